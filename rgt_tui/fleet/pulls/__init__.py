"""Pulling results off a box: what is wanted, which way it is sent, the streams, and the check of what arrived."""

__all__ = ["pull_way", "pulling"]
"""Modules that other packages may use."""
