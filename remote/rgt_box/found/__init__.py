"""Trainings that nobody told rgt about: found by their processes, with where they write."""
