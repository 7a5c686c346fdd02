"""``rgt autostop``, ``lease``, ``keep``, ``notify``: boxes that stop themselves and notify you."""

__all__ = ["arm_command", "autostop_arguments", "notify"]
"""Modules that other packages may use."""
