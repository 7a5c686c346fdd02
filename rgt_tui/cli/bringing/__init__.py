"""``rgt push``, ``rgt secret``, ``rgt mirrors``: provide a box with what a run needs."""

__all__ = ["bringing_arguments", "push_to_box", "secrets_and_mirrors"]
"""Modules that other packages may use."""
