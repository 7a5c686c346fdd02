"""One module per command; each loads what it needs only when it runs."""

__all__ = [
    "arguments",
    "commands",
    "dashboard",
    "entry",
    "gathering",
    "opening",
    "printing",
    "running",
    "status_line",
    "terminal_questions",
]
"""Modules that other packages may use."""
