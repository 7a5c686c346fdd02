"""Functions shared by the agent, the trainer and the client.

Pure, standard library only, Python 3.8. Storage and transfers are shown in powers of 1,000 (GB), as
they are sold and as ``df -H`` prints them; memory of a container, process or card in powers of
1,024 (GiB), as the kernel and ``nvidia-smi`` print it.
"""

from importlib import import_module

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any, Dict

    JsonObject = Dict[str, Any]
    """A JSON object: what verbs read and print, and what state files hold; for type checkers."""

__all__ = [
    "CUT",
    "MAX_LINE",
    "USER_AGENT",
    "VERSION",
    "block_packing",
    "checkpoint_layouts",
    "checkpoint_names",
    "duration_text",
    "event_records",
    "imported_later",
    "line_text",
    "log_envelopes",
    "memory_text",
    "size_text",
]

VERSION = "0.1.0"
"""Version of rgt, and of the agent that it puts on a box."""
USER_AGENT = "rgt/" + VERSION
"""Sent with every HTTP request: Cloudflare, in front of RunPod's API, refuses programs without a
user agent of their own.
"""


def imported_later(package: str, homes: "Mapping[str, str]") -> "Callable[[str], Any]":
    """Return the ``__getattr__`` of a package whose public names are imported on first use.

    Args:
        package: Its full name.
        homes: Module of the package → its public names, separated by spaces.
    """
    found = {
        name: f"{package}.{module}" for module, names in homes.items() for name in names.split()
    }

    def load_name(name: str) -> "Any":
        if name not in found:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(found[name]), name)

    return load_name


# How the agent, the trainer and the screen write figures and lines.

MAX_LINE = 16 << 10
"""Maximum bytes kept of a line."""
CUT = " … [line cut]"


def size_text(count: float) -> str:
    """Return bytes on a disk or in transfer, such as ``38.2 GB``: powers of 1,000."""
    return _with_unit(count, 1000.0, ("B", "kB", "MB", "GB", "TB"))


def memory_text(count: float) -> str:
    """Return bytes of memory, such as ``62.0 GiB``: powers of 1,024."""
    return _with_unit(count, 1024.0, ("B", "KiB", "MiB", "GiB", "TiB"))


def _with_unit(count: float, step: float, units: "tuple[str, ...]") -> str:
    for unit in units[:-1]:
        # 999.5 rounds to 1000, which belongs to the next unit.
        if abs(count) < 999.5:
            return "%.*f %s" % (0 if unit == "B" or abs(count) >= 99.95 else 1, count, unit)
        count /= step
    return f"{count:.1f} {units[-1]}"


def duration_text(seconds: float) -> str:
    """Return a duration such as ``42 s``, ``14 min``, ``3.1 h``."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    if seconds < 7200:
        return "%.0f min" % (seconds / 60)
    return "%.1f h" % (seconds / 3600)


# The text of a log line, as the agent sends it and as the client makes it from fetched bytes.


def line_text(raw: bytes) -> str:
    """Return one line, without its newline, as text.

    A progress bar that rewrites itself with carriage returns is reduced to its last state, a long
    line is cut with a marker, and bytes that are not UTF-8 become U+FFFD.
    """
    raw = raw.rstrip(b"\r")
    raw = raw[raw.rfind(b"\r") + 1 :]
    if len(raw) > MAX_LINE:
        return raw[:MAX_LINE].decode("utf-8", "replace") + CUT
    return raw.decode("utf-8", "replace")
