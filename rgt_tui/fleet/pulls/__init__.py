"""Pulling results off a box: what is wanted, by which way it comes, its streams, and the look at what came."""

__all__ = ["pull_and_verify", "pull_way", "pulling"]
"""Modules that other packages may use."""
