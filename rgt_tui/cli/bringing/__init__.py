"""``rgt push``, ``rgt secret``, ``rgt mirrors``: bring to a box what a run needs."""

__all__ = ["bringing_arguments", "push_to_box", "secrets_and_mirrors"]
"""Modules that other packages may use."""
