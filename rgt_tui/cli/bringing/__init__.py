"""``rgt push``, ``rgt secret``, ``rgt mirrors``: what a run needs on a box, brought there."""

__all__ = ["bringing_parsers", "mirror_settings", "push_to_box", "secret_values"]
"""Modules that other packages may use."""
