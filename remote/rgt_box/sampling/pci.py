"""PCI addresses in one spelling, and what the NVIDIA kernel module tells of its cards."""

from __future__ import annotations

import os
import re

from rgt_box import procstat

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

DRIVER = "/proc/driver/nvidia/gpus"
"""One directory per card, written by the kernel module itself: there also when the user-space library is not usable."""

_ADDRESS = re.compile(r"^(?:([0-9a-f]+):)?([0-9a-f]{1,2}):([0-9a-f]{1,2})(?:\.([0-7]))?$")


def normal(address: Any) -> str | None:
    """Return ``0000:3b:00.0`` for ``00000000:3B:00.0`` (NVML), ``0000:3b:00`` (kernel log) and the like; else None."""
    text = address.decode("ascii", "replace") if isinstance(address, bytes) else str(address or "")
    match = _ADDRESS.match(text.strip().lower())
    if not match:
        return None
    domain, bus, device, function = match.groups()
    return "%04x:%02x:%02x.%s" % (int(domain or "0", 16), int(bus, 16), int(device, 16), function or "0")


def driver_cards(root: str = DRIVER) -> list[dict[str, Any]]:
    """Return ``bus``, ``name`` and ``minor`` of every card that the NVIDIA kernel module knows.

    Its rows are described in the driver's README, "The /proc Interface". Cards are in the order of their addresses.
    """
    try:
        folders = sorted(os.listdir(root))
    except OSError:
        return []
    found = []
    for folder in folders:
        text = (procstat.read_bytes(os.path.join(root, folder, "information")) or b"").decode(
            "utf-8", "replace"
        )
        rows = dict(row.split(":", 1) for row in text.splitlines() if ":" in row)
        minor = rows.get("Device Minor", "").strip()
        found.append(
            {
                "bus": normal(rows.get("Bus Location")) or normal(folder),
                "name": rows.get("Model", "").strip() or "GPU",
                "minor": int(minor) if minor.isdigit() else None,
            }
        )
    return found
