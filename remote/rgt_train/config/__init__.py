"""Configuration: one list of fields, small YAML files, merged with the command line in one place."""

from __future__ import annotations

__all__ = ["fields", "merge"]
"""Modules that other packages may use."""
