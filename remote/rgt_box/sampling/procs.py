"""The training processes: found by their command line every few seconds, read every tick."""

from __future__ import annotations

import os
import re
import time

from rgt_box import jsonline, procstat

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

RESCAN = 5.0
"""Seconds between two looks at the whole of /proc."""

YOUNG = 2
"""Scans during which a new pid is looked at again: a fork shows its parent's words until it calls exec."""

FULL = 12
"""Every so many scans all pids are looked at again: a script may `exec` the trainer after a long download."""

MOST, MAX_CMD = 32, 300
"""How many processes, and how much of each command line, a sample tells: it has to fit the ring."""

WRAPPERS = frozenset(
    (
        "ash", "bash", "cat", "dash", "docker", "emacs", "env", "fish", "grep", "htop", "ionice", "ksh", "kubectl",
        "less", "more", "nano", "nice", "nohup", "nvidia-smi", "ps", "rg", "salloc", "sbatch", "screen", "script",
        "setsid", "sh", "srun", "ssh", "sshd", "su", "sudo", "tail", "tee", "time", "timeout", "tmux", "top", "vi",
        "vim", "watch", "zsh",
    )
)  # fmt: skip
"""Programs that carry the pattern in their arguments without being the training."""
AGENT = re.compile(r"(^|/)(rgt-box-[0-9a-f]+\.pyz|rgt_box(/__main__\.py)?)$")


def is_training(words: list[str], pattern: re.Pattern[str]) -> bool:
    """Tell whether a command line is a training process: matches, and is neither wrapper nor the agent itself."""
    if not words or not pattern.search(" ".join(words)):
        return False
    program = os.path.basename(words[0]).lstrip("-").split(":")[0]
    return program not in WRAPPERS and not any(AGENT.search(word) for word in words[:5])


class ProcSampler:
    """Tracks processes whose command line matches.

    Args:
        pattern: Regular expression on the command line.

    Raises:
        re.error: when the pattern is malformed.
    """

    def __init__(self, pattern: str) -> None:
        self._pattern = re.compile(pattern)
        self._boot = procstat.boot_time()
        self._tracked: dict[int, tuple[int, list[str]]] = {}
        self._judged: dict[int, int] = {}
        self._cpu: dict[tuple[int, int], tuple[float, int]] = {}
        self._scanned = 0.0
        self._scans = 0

    def read(self) -> list[dict[str, Any]]:
        """Return the ``procs`` list of a sample."""
        now = time.monotonic()
        if not self._scanned or now - self._scanned >= RESCAN:
            self._scan()
            self._scanned = now
        stats = {pid: procstat.read_stat(pid) for pid in self._tracked}
        found, cpu = [], {}
        for pid, stat in stats.items():
            ticks, words = self._tracked[pid]
            if stat is None or stat.start != ticks:
                continue
            parent = self._tracked.get(stat.ppid)
            if parent is not None and parent[1] == words and stats.get(stat.ppid) is not None:
                continue  # a loader worker: forked, never exec'ed
            cpu[pid, ticks] = (now, stat.cpu)
            found.append(self._describe(stat, words, now, self._cpu.get((pid, ticks))))
        self._tracked = {pid: kept for pid, kept in self._tracked.items() if stats[pid] is not None}
        self._cpu = cpu
        return found[:MOST]

    def _describe(
        self, stat: procstat.Stat, words: list[str], now: float, before: tuple[float, int] | None
    ) -> dict[str, Any]:
        started = self._boot + stat.start / procstat.CLOCK_TICKS
        busy = None
        if before is not None and now > before[0]:
            busy = round((stat.cpu - before[1]) / procstat.CLOCK_TICKS / (now - before[0]) * 100.0, 1)
        return jsonline.compact(
            {
                "pid": stat.pid,
                "started": round(started, 2),
                "cmd": " ".join(words)[:MAX_CMD],
                "rss": stat.rss,
                "threads": stat.threads,
                "state": stat.state,
                "cpu_pct": busy,
                "age_s": round(max(0.0, time.time() - started), 1),
            }
        )

    def _scan(self) -> None:
        try:
            pids = {int(name) for name in os.listdir("/proc") if name.isdigit()}
        except OSError:
            return
        self._scans += 1
        keep = pids if self._scans % FULL else set()
        self._judged = {pid: scans for pid, scans in self._judged.items() if pid in keep}
        own = os.getpid()
        for pid in pids:
            scans = self._judged.get(pid, 0)
            if scans > YOUNG and pid not in self._tracked:
                continue
            self._judged[pid] = scans + 1
            words = procstat.cmdline(pid)
            if pid != own and is_training(words, self._pattern):
                ticks = procstat.start_ticks(pid)
                if ticks is not None:
                    self._tracked[pid] = (ticks, words)
            else:
                self._tracked.pop(pid, None)
