"""Pushes onto this box: code in directories that never change, and data.

No file in use is replaced.
"""

from __future__ import annotations

__all__ = ["push_command", "push_staging", "version_files"]
"""Modules that other packages may use."""
