"""Huawei Ascend accelerators by the table of ``npu-smi info``.

Written after the table in Huawei's "npu-smi command reference" and outputs that users have published; it has
never run beside a card. A table of another form gives no reading and an error, never a wrong number.
"""

from __future__ import annotations

import re

from rgt_box import jsonline
from rgt_box.sampling import pci, programs

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

PROGRAM, TIMEOUT = "npu-smi", 8.0
MIB = 1 << 20
_PAIR = re.compile(r"(\d+)\s*/\s*(\d+)")


def available() -> bool:
    """Tell whether ``npu-smi`` is in PATH."""
    return programs.which(PROGRAM) is not None


def read() -> list[dict[str, Any]]:
    """Ask ``npu-smi`` (takes up to seconds: call it in a thread).

    Raises:
        TimeoutError: when it hangs.
        RuntimeError: when it fails or prints another table.
    """
    found = parse(programs.run([PROGRAM, "info"], TIMEOUT))
    if not found:
        raise RuntimeError("%s failed or printed an unknown table" % PROGRAM)
    return found


def parse(text: str) -> list[dict[str, Any]]:
    """Parse the first table: two rows per chip, of three cells each.

    The upper row: NPU and name, health, then power, temperature and huge pages. The lower row: chip (and, in newer
    versions, its physical number), PCI address, then use of the cores, memory and HBM.
    """
    found: list[dict[str, Any]] = []
    upper: list[str] | None = None
    for row in text.splitlines():
        cells = [cell.strip() for cell in row.strip().strip("|").split("|")]
        if "Process id" in row:
            break
        if len(cells) != 3:
            continue
        if upper is not None and pci.normal(cells[1]):
            found.append(_chip(upper, cells, len(found)))
            upper = None
        else:
            words = cells[0].split()
            upper = cells if len(words) == 2 and words[0].isdigit() else None
    return found


def _chip(upper: list[str], lower: list[str], count: int) -> dict[str, Any]:
    power, temperature = (upper[2].split() + ["", ""])[:2]
    pairs = [(int(used), int(total)) for used, total in _PAIR.findall(lower[2])]
    # A 310 has memory of the board alone, a 910 HBM: the pair that is not "0 / 0" is the one that models live in.
    used, total = next((pair for pair in reversed(pairs) if pair[1]), (None, None))
    words = lower[0].split()
    return jsonline.compact(
        {
            "index": int(words[1]) if len(words) > 1 and words[1].isdigit() else count,
            "name": upper[0].split()[1],
            "util": _number((lower[2].split() or [""])[0]),
            "vram_used": None if used is None else used * MIB,
            "vram_total": None if total is None else total * MIB,
            "temp_c": _number(temperature),
            "power_w": _number(power),
            "bus": pci.normal(lower[1]),
            "error": None if upper[1] == "OK" else "npu-smi reports health: %s" % upper[1][:80],
        }
    )


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:  # "-" on the second chip of a card that measures power once
        return None
