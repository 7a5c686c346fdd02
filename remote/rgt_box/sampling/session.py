"""What detached work lives in: tmux sessions, and how long the box is up."""

from __future__ import annotations

import os

from rgt_box import background, jsonline, procstat
from rgt_box.sampling.kept import KeptFile

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

PERIOD, TIMEOUT = 10.0, 5.0


class SessionSampler:
    """Asks tmux in a thread, at most every `PERIOD` seconds."""

    def __init__(self) -> None:
        self._uptime = KeptFile("/proc/uptime", 128)
        first = procstat.read_stat(1)
        # A container is as old as its first process, however long the host has been up.
        self._began = first.start / procstat.CLOCK_TICKS if first else 0.0
        self._tmux = background.Background(tmux_sessions, PERIOD, TIMEOUT * 2)

    def read(self, wait: float = 0.0) -> dict[str, Any]:
        """Return the ``session`` object of a sample."""
        words = (self._uptime.read() or b"").split()
        names, error = self._tmux.poll(wait)
        up = max(0.0, float(words[0]) - self._began) if words else None
        return jsonline.compact({"tmux": [] if error else names or [], "uptime_s": up})


def tmux_sessions() -> list[str]:
    """Return the names of this user's tmux sessions; [] without tmux or a server."""
    if which("tmux") is None:
        return []
    done = run(["tmux", "ls", "-F", "#S"], TIMEOUT)
    return [name[:200] for name in done.splitlines() if name][:100]


def which(program: str) -> str | None:
    """Return the path of a program in PATH (the full ``shutil`` is not worth its import)."""
    for folder in os.environ.get("PATH", os.defpath).split(os.pathsep):
        path = os.path.join(folder, program)
        if os.access(path, os.X_OK) and os.path.isfile(path):
            return path
    return None


def run(words: list[str], timeout: float) -> str:
    """Return what a program prints; "" when it fails.

    Raises:
        TimeoutError: when it had to be killed after `timeout` seconds.
    """
    import subprocess  # here, because most boxes never need it

    try:
        done = subprocess.run(
            words,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=timeout,
        )
    except subprocess.TimeoutExpired:
        raise TimeoutError("%s did not answer within %d s" % (words[0], timeout)) from None
    return done.stdout.decode("utf-8", "replace") if done.returncode == 0 else ""
