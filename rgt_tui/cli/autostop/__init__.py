"""``rgt autostop``, ``lease``, ``keep`` and ``notify``: boxes that stop themselves, and call without the laptop."""

__all__ = ["arm_command", "autostop_arguments", "notify"]
"""Modules that other packages may use."""
