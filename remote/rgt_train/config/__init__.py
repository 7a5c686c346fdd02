"""Configuration: one list of fields; config files and the command line are merged over their defaults."""

from __future__ import annotations

__all__ = ["config_files", "fields", "merge"]
"""Modules that other packages may use."""
