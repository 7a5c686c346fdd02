"""GPU readings from ``nvidia-smi``, for boxes whose NVML library cannot be loaded."""

from __future__ import annotations

import time

from rgt_box import background, jsonline, procstat

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, List, Tuple

    Columns = List[Tuple[str, str, float]]

PROGRAM, TIMEOUT = "nvidia-smi", 8.0
MIB = 1 << 20
USERS_EVERY = 10.0
"""Seconds between two lists of the processes: each costs a start of the program."""

COLUMNS: Columns = [
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
    ("pci.bus_id", "bus", 0),
    ("pcie.link.gen.current", "pcie_gen", 1),
    ("pcie.link.gen.max", "pcie_gen_max", 1),
    ("pcie.link.width.current", "pcie_width", 1),
    ("pcie.link.width.max", "pcie_width_max", 1),
    ("ecc.errors.corrected.volatile.total", "ecc_corrected", 1),
    ("ecc.errors.uncorrected.volatile.total", "ecc_uncorrected", 1),
    ("uuid", "uuid", 0),
]
"""Query name (``nvidia-smi --help-query-gpu``), field, and factor to our unit (0 = text, -1 = hexadecimal mask)."""

MASK = 10
RENAMED: Columns = [
    *COLUMNS[:MASK],
    ("clocks_event_reasons.active", "throttle_mask", -1),
    *COLUMNS[MASK + 1 :],
]
"""The mask got a new name with driver 535; an unknown name makes the whole query fail."""

QUERIES = (COLUMNS, RENAMED, COLUMNS[:MASK])

WHOLE = frozenset(
    ("index", "vram_used", "vram_total", "pcie_gen", "pcie_gen_max", "pcie_width", "pcie_width_max")
    + ("ecc_corrected", "ecc_uncorrected")
)


def available() -> bool:
    """Tell whether ``nvidia-smi`` is in PATH."""
    return background.which(PROGRAM) is not None


class Smi:
    """Asks ``nvidia-smi``; remembers which query this driver knows."""

    def __init__(self) -> None:
        self._queries = list(QUERIES)
        self._users: dict[str, list[dict[str, Any]]] | None = None
        self._asked: float | None = None

    def read(self) -> list[dict[str, Any]]:
        """Return one ``Gpu`` per card (takes 20 ms to seconds: call it in a thread).

        Raises:
            TimeoutError: when it hangs.
            RuntimeError: when it fails or prints no table.
        """
        gpus = self._cards()
        now = time.monotonic()
        if self._asked is None or now - self._asked >= USERS_EVERY:
            self._asked, self._users = now, _users()
        if self._users is not None:
            gpus = [
                jsonline.compact(dict(gpu, listed=True, procs=self._users.get(gpu.get("bus", ""))))
                for gpu in gpus
            ]
        return gpus

    def _cards(self) -> list[dict[str, Any]]:
        for columns in self._queries:
            query = "--query-gpu=" + ",".join(name for name, _, _ in columns)
            text = background.run_program([PROGRAM, query, "--format=csv,noheader,nounits"], TIMEOUT)
            if text.strip():
                self._queries = [columns]
                return parse(text, columns)
        self._queries = list(QUERIES)  # another driver may have been loaded
        raise RuntimeError("nvidia-smi failed")


def _users() -> dict[str, list[dict[str, Any]]] | None:
    query = "--query-compute-apps=gpu_bus_id,pid,used_memory"
    text = background.try_program([PROGRAM, query, "--format=csv,noheader,nounits"], TIMEOUT)
    return None if text is None else parse_users(text)


def parse_users(text: str) -> dict[str, list[dict[str, Any]]]:
    """Parse the list of processes into PCI address → ``pid`` and ``bytes``."""
    found: dict[str, list[dict[str, Any]]] = {}
    for row in text.splitlines():
        cells = [cell.strip() for cell in row.split(",")]
        bus = procstat.pci_address(cells[0])
        if len(cells) == 3 and bus and cells[1].isdigit():
            used = _convert(cells[2], "vram_used", MIB)
            found.setdefault(bus, []).append({"pid": int(cells[1]), "bytes": used})
    return found


def parse(text: str, columns: Columns = COLUMNS) -> list[dict[str, Any]]:
    """Parse its CSV; a cell like ``[N/A]`` is unknown, a row without an index is left out."""
    found = []
    for row in text.splitlines():
        cells = [cell.strip() for cell in row.split(",")]
        pairs = zip(cells, columns)  # noqa: B905 (strict= needs Python 3.10)
        values = {field: _convert(cell, field, factor) for cell, (_, field, factor) in pairs}
        if values.get("index") is None:
            continue
        if "lost" in row.lower() or "unknown error" in row.lower():
            values["error"] = "nvidia-smi reports: %s" % row.strip()[:200]
        values["name"] = values.get("name") or "GPU"
        values["uuid"] = uuid if (uuid := values.get("uuid") or "").startswith(("GPU-", "MIG-")) else None
        values["bus"] = procstat.pci_address(values.get("bus"))
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
