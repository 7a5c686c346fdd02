"""Functions shared by the agent, the trainer and the client.

Pure, standard library only, Python 3.8.
"""

from importlib import import_module

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

__all__ = [
    "USER_AGENT",
    "VERSION",
    "block_packing",
    "checkpoint_layouts",
    "checkpoint_names",
    "event_records",
    "imported_later",
    "log_envelopes",
    "shared_text",
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
