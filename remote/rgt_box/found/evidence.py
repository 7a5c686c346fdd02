"""What tells that a process trains where its command line does not: a GPU, files of metrics, long work."""

from __future__ import annotations

import os
import time

from rgt_box import procstat
from rgt_box.found.outputs import is_file, is_metrics, open_files
from rgt_box.sampling.gpu import TOOLS, device_prefix
from rgt_box.sampling.processes import program

TYPE_CHECKING = False
if TYPE_CHECKING:
    from rgt_box.found.commands import Command

BUSY = 0.5
"""Cores that a program has used in the mean over its life so far …"""
LONG = 60.0
"""… of at least so many seconds."""
HEAVY_RSS, HEAVY_CPU = 200 << 20, 5.0
"""A program that is not Python's is only asked for a GPU once it has this much memory, or seconds of CPU."""


def cards() -> bool:
    """Tell whether this box has device files of NVIDIA's cards."""
    folder, start = os.path.split(device_prefix())
    try:
        return any(name.startswith(start) and name[len(start) :].isdigit() for name in os.listdir(folder))
    except OSError:
        return False


def why(command: Command, words: list[str], stat: procstat.Stat, boot: float, has_cards: bool) -> str:
    """Return in words why a process trains; "" when nothing tells so (yet).

    Args:
        command: What it runs, of kind python, kernel or other.
        words: Its command line.
        stat: Its figures.
        boot: When the kernel was booted.
        has_cards: Whether there are GPUs to be held.
    """
    cpu = stat.cpu / procstat.CLOCK_TICKS
    if command.kind == "other":
        heavy = has_cards and (stat.rss > HEAVY_RSS or cpu > HEAVY_CPU) and program(words) not in TOOLS
        return _by_files(stat.pid, has_cards, False) if heavy else ""
    found = _by_files(stat.pid, has_cards, command.kind == "python")
    if found or command.kind == "kernel":
        return found
    age = time.time() - (boot + stat.start / procstat.CLOCK_TICKS)
    if age >= LONG and cpu / age >= BUSY:
        return "it has kept %.1f cores busy for %d s" % (cpu / age, age)
    return ""


def _by_files(pid: int, has_cards: bool, metrics: bool) -> str:
    start = device_prefix()
    for item in open_files(pid) or []:
        rest = item.target[len(start) :]
        if has_cards and item.target.startswith(start) and rest.isdigit():
            return "it holds GPU %s" % rest
        if metrics and item.writes and is_file(item) and is_metrics(item.target) and _sure(item.target):
            return "it writes %s" % os.path.basename(item.target)
    return ""


def _sure(path: str) -> bool:
    """Tell whether a name alone is that of a training's metrics: any program writes some ``.json`` or database."""
    name = os.path.basename(path)
    return "tfevents" in name or name.endswith(".wandb") or name in ("metrics.csv", "metrics.jsonl")
