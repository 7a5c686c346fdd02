"""Samplers: each reads one thing, fails alone, and never stalls the rest."""
