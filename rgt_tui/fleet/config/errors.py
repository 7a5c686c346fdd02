"""What is wrong with a fleet file."""

from __future__ import annotations


class FleetFileError(Exception):
    """The fleet file cannot be used; the message says where and what to do."""
