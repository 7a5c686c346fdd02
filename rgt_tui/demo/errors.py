"""What can keep the demo from running, in words that say what to do."""

from __future__ import annotations


class DemoError(Exception):
    """The demo cannot start or go on; the message says why and what to do next."""
