"""One module per screen. Screens are imported when they are opened, never before the first frame."""

__all__ = [
    "alerts",
    "audit_log",
    "base",
    "box",
    "curves",
    "event_journal",
    "fleet",
    "handbook_pages",
    "help",
    "lifecycle",
    "log",
    "platform",
    "question",
    "receipt",
    "teardown",
    "time_machine",
    "transfers",
    "welcome",
]
"""Modules that other packages may use."""
