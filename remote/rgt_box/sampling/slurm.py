"""This user's jobs in Slurm's queue, where there is one."""

from __future__ import annotations

import os

from rgt_box import jsonline
from rgt_box.sampling import programs

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

PROGRAM, TIMEOUT, MOST = "squeue", 5.0, 50
FORMAT = "%i|%T|%M|%L|%R|%j"
"""Id, state, time used, time left, reason or nodes, name (last: it may hold anything): squeue(1), "--format"."""


def available() -> bool:
    """Tell whether ``squeue`` is in PATH."""
    return programs.which(PROGRAM) is not None


def jobs() -> list[dict[str, Any]]:
    """Ask ``squeue`` (takes seconds where the controller is busy: call it in a thread).

    Raises:
        TimeoutError: when it hangs.
        RuntimeError: when it fails, as it does where no controller answers.
    """
    text = programs.attempt([PROGRAM, "-h", "-u", str(os.getuid()), "-o", FORMAT], TIMEOUT)
    if text is None:
        raise RuntimeError("squeue failed: no answer from Slurm's controller")
    return parse(text)[:MOST]


def parse(text: str) -> list[dict[str, Any]]:
    """Parse its rows; others are left out."""
    found = []
    for row in text.splitlines():
        cells = row.strip().split("|", 5)
        if len(cells) == 6 and cells[0]:
            job, state, used, left, reason, name = cells
            fields = {"id": job, "name": name[:200], "state": state, "reason": reason[:200] or None}
            found.append(jsonline.compact(dict(fields, elapsed_s=seconds(used), left_s=seconds(left))))
    return found


def seconds(text: str) -> float | None:
    """Return the seconds of ``days-hours:minutes:seconds`` or a shorter form; None for UNLIMITED and the like."""
    days, _, clock = text.rpartition("-")
    parts = clock.split(":")
    if (
        not all(part.isdigit() for part in parts)
        or not (days.isdigit() or not days)
        or len(parts) not in (2, 3)
    ):
        return None
    total = 0
    for part in parts:
        total = total * 60 + int(part)
    return float(total + int(days or "0") * 86400)
