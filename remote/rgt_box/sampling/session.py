"""What detached work lives in: tmux sessions and Slurm jobs, and how long the box is up."""

from __future__ import annotations

from rgt_box import background, jsonline, procstat
from rgt_box.sampling import programs, slurm
from rgt_box.sampling.kept import KeptFile
from rgt_box.sampling.programs import which as which  # re-exported

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

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
        if slurm.available():
            self._slurm = background.Background(slurm.jobs, SLURM_PERIOD, slurm.TIMEOUT * 2)

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
    if programs.which("tmux") is None:
        return []
    done = programs.run(["tmux", "ls", "-F", "#S"], TIMEOUT)
    return [name[:200] for name in done.splitlines() if name][:100]
