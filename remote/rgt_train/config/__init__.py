"""Configuration: one list of fields, small YAML files, one place where they meet the command line."""

from __future__ import annotations

__all__ = ["fields", "merge"]
"""Modules that other packages may use."""
