"""Frozen structs only: the words that every other package speaks. Imports nothing of ours."""
