"""``rgt push``, ``rgt secret``, ``rgt mirrors``: bring to a box what a run needs."""

__all__ = ["bringing_arguments", "mirror_settings", "push_to_box", "secret_values"]
"""Modules that other packages may use."""
