"""GPU readings from ``nvidia-smi``, for boxes whose NVML library cannot be loaded."""

from __future__ import annotations

from rgt_box import jsonline
from rgt_box.sampling import session

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

TIMEOUT = 8.0
MIB = 1 << 20

COLUMNS: list[tuple[str, str, float]] = [
    ("index", "index", 1),
    ("name", "name", 0),
    ("utilization.gpu", "util", 1),
    ("memory.used", "vram_used", MIB),
    ("memory.total", "vram_total", MIB),
    ("temperature.gpu", "temp_c", 1),
    ("power.draw", "power_w", 1),
    ("power.limit", "power_limit_w", 1),
    ("clocks.sm", "clock_mhz", 1),
    ("clocks.max.sm", "clock_max_mhz", 1),
    ("clocks_throttle_reasons.active", "throttle_mask", -1),
]
"""Query name, field, and factor to our unit (0 = text, -1 = hexadecimal mask)."""
WHOLE = ("index", "vram_used", "vram_total")


def available() -> bool:
    """Tell whether ``nvidia-smi`` is in PATH."""
    return session.which("nvidia-smi") is not None


def read() -> list[dict[str, Any]]:
    """Ask ``nvidia-smi`` (takes 20 ms to seconds: call it in a thread).

    Raises:
        TimeoutError: when it hangs.
        RuntimeError: when it fails or prints no table.
    """
    for columns in (COLUMNS, COLUMNS[:-1]):  # the name of the mask changed between drivers
        query = "--query-gpu=" + ",".join(name for name, _, _ in columns)
        text = session.run(["nvidia-smi", query, "--format=csv,noheader,nounits"], TIMEOUT)
        if text.strip():
            return parse(text)
    raise RuntimeError("nvidia-smi failed")


def parse(text: str) -> list[dict[str, Any]]:
    """Parse its CSV; a cell like ``[N/A]`` is unknown, a row without an index is left out."""
    found = []
    for row in text.splitlines():
        cells = [cell.strip() for cell in row.split(",")]
        pairs = zip(cells, COLUMNS)  # noqa: B905 (strict= needs Python 3.10)
        values = {field: _convert(cell, field, factor) for cell, (_, field, factor) in pairs}
        if values.get("index") is None:
            continue
        if "lost" in row.lower() or "unknown error" in row.lower():
            values["error"] = "nvidia-smi reports: %s" % row.strip()[:200]
        values["name"] = values.get("name") or "GPU"
        found.append(jsonline.compact(values))
    return found


def _convert(cell: str, field: str, factor: float) -> Any:
    if factor == 0:
        return cell or None
    try:
        if factor < 0:
            return int(cell, 16)
        number = float(cell) * factor
    except ValueError:
        return None
    return int(number) if field in WHOLE else number
