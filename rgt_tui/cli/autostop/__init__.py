"""``rgt autostop``, ``lease``, ``keep`` and ``notify``: a box that stops itself, and calls without the laptop."""

__all__ = ["arm_command", "autostop_parsers", "notify"]
"""Modules that other packages may use."""
