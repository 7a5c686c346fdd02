"""The tmux sessions and Slurm jobs of this user, and the uptime of the box."""

from __future__ import annotations

import os

from rgt_box import background, jsonline, procstat
from rgt_box.sampling.cgroup import KeptFile

TYPE_CHECKING = False

if TYPE_CHECKING:
    from typing import Any

SQUEUE, SQUEUE_TIMEOUT, MOST_JOBS = "squeue", 5.0, 50
SQUEUE_FORMAT = "%i|%T|%M|%L|%R|%j"
"""Id, state, time used, time left, reason or nodes, name (last: it may hold anything): squeue(1), "--format"."""


def has_slurm() -> bool:
    """Tell whether ``squeue`` is in PATH."""
    return background.which(SQUEUE) is not None


def slurm_jobs() -> list[dict[str, Any]]:
    """Ask ``squeue`` (takes seconds where the controller is busy: call it in a thread).

    Raises:
        TimeoutError: when it hangs.
        RuntimeError: when it fails, as it does where no controller answers.
    """
    text = background.try_program([SQUEUE, "-h", "-u", str(os.getuid()), "-o", SQUEUE_FORMAT], SQUEUE_TIMEOUT)
    if text is None:
        raise RuntimeError("squeue failed: no answer from Slurm's controller")
    return parse_squeue(text)[:MOST_JOBS]


def parse_squeue(text: str) -> list[dict[str, Any]]:
    """Parse its rows; others are left out."""
    found = []
    for row in text.splitlines():
        cells = row.strip().split("|", 5)
        if len(cells) == 6 and cells[0]:
            job, state, used, left, reason, name = cells
            fields = {"id": job, "name": name[:200], "state": state, "reason": reason[:200] or None}
            found.append(
                jsonline.compact(dict(fields, elapsed_s=slurm_seconds(used), left_s=slurm_seconds(left)))
            )
    return found


def slurm_seconds(text: str) -> float | None:
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


PERIOD, TIMEOUT = 10.0, 5.0
SLURM_PERIOD = 30.0
"""Seconds between two looks into Slurm's queue: its administrators ask not to be polled faster."""


class SessionSampler:
    """Asks tmux and Slurm in threads, at most every `PERIOD` and `SLURM_PERIOD` seconds."""

    def __init__(self) -> None:
        self._uptime = KeptFile("/proc/uptime", 128)
        first = procstat.read_stat(1)
        # A container is as old as its first process, however long the host has been up.
        self._began = first.start / procstat.CLOCK_TICKS if first else 0.0
        self._tmux = background.Background(tmux_sessions, PERIOD, TIMEOUT * 2)
        self._slurm: background.Background | None = None
        if has_slurm():
            self._slurm = background.Background(slurm_jobs, SLURM_PERIOD, SQUEUE_TIMEOUT * 2)

    def read(self, wait: float = 0.0) -> dict[str, Any]:
        """Return the ``session`` object of a sample."""
        words = (self._uptime.read() or b"").split()
        names, error = self._tmux.poll(wait)
        up = max(0.0, float(words[0]) - self._began) if words else None
        found = {"tmux": [] if error else names or [], "uptime_s": up}
        if self._slurm is not None:
            jobs, error = self._slurm.poll(wait)
            found.update(slurm=[] if error else jobs, slurm_error=error)
        return jsonline.compact(found)


def tmux_sessions() -> list[str]:
    """Return the names of this user's tmux sessions; [] without tmux or a server."""
    if background.which("tmux") is None:
        return []
    done = background.run_program(["tmux", "ls", "-F", "#S"], TIMEOUT)
    return [name[:200] for name in done.splitlines() if name][:100]
