"""What is wrong with an ssh_config file."""

from __future__ import annotations

from rgt_tui.ssh.errors import BoxError


class ConfigError(BoxError):
    """An ssh_config file cannot be used; the message names file and line."""
