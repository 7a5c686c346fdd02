"""How the gate's lines speak of time and size, and how they quote a stranger's text."""

from __future__ import annotations


def ago(then: float | None, now: float) -> str:
    """Return e.g. ``3 s ago``."""
    if then is None:
        return "at an unknown time"
    seconds = max(0.0, now - then)
    return f"{seconds:.0f} s ago" if seconds < 120 else f"{seconds / 60:.0f} min ago"


def size(count: int | None) -> str:
    """Return bytes in decimal units, e.g. ``38.2 GB``."""
    if count is None:
        return "size unknown"
    value = float(count)
    for unit in ("B", "kB", "MB", "GB"):
        if value < 1000:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1000
    return f"{value:.1f} TB"


def quoted(text: str, limit: int = 120) -> str:
    """Return a name or path from a box without characters that do something on a terminal."""
    shown = "".join(char if char.isprintable() else "·" for char in text[: limit + 1])
    return shown if len(shown) <= limit else shown[:limit] + "…"


def listed(names: list[str], limit: int = 4) -> str:
    """Return e.g. ``gpt-a, gpt-b and 3 more``."""
    shown = [quoted(name, 60) for name in names[:limit]]
    rest = len(names) - len(shown)
    return ", ".join(shown) + (f" and {rest} more" if rest else "")
