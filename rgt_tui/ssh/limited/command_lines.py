"""Which of the processes that a plain shell lists train: by their command lines alone, so that none is no proof.

The agent judges by much more (files, GPUs, the tree of processes). What is missed here is told as unknown, never as
idle, and so a short list of names is enough.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from rgt_tui.model.plain import clean
from rgt_tui.model.protocol import DEFAULT_PATTERN, Proc

COARSE = (
    "python|pypy|torchrun|accelerate|deepspeed|axolotl|autotrain|composer|horovodrun|litgpt|llamafactory|nnUNet|"
    "swift|trl|tune|xtuner|yolo|train"
)
"""What a command line must hold to be sent at all, as ``grep -E`` reads it."""
MOST = 32
LONGEST = 300
NO_PROC = "cannot see processes: the box lets a plain shell read no /proc"
HIDDEN = "cannot see processes of other users (/proc is mounted with hidepid)"
BY_NAME = "cannot see for certain what trains: a plain shell knows processes by their command lines alone"

_PYTHON = re.compile(r"i?python[\d.]*t?|pypy[\d.]*")
_WRAPPER = re.compile(
    r"(?:ba|da|k|z|a|fi)?sh|env|nohup|nice|setsid|time|timeout|tmux.*|screen|SCREEN|ssh|sshd.*|sudo|su|srun|sbatch|"
    r"salloc|tail|less|vim?|nano|grep|cat|tee|watch|docker|kubectl"
)
_STARTER = re.compile(
    r"torchrun|accelerate|deepspeed|axolotl|autotrain|composer|horovodrun|litgpt|llamafactory-cli|nnUNetv2_train|"
    r"swift|trl|tune|xtuner|yolo"
)
_TRAINS = re.compile(
    r"(?:^|[^a-z])(?:pre|re)?-?_?train|fine_?-?tun|(?:^|[^a-z])(?:sft|dpo|grpo|ppo|lora|qlora|dreambooth|distill)"
    r"(?:[^a-z]|$)|torch\.distributed|nanogpt",
    re.IGNORECASE,
)
_SUBCOMMAND = frozenset(("train", "fit", "pretrain", "finetune", "--do_train", "--do-train"))
_NEVER = re.compile(r"(?:^|/)(?:tensorboard|jupyter|ipykernel|rgt-box)")
_VALUED = frozenset("WX")


def programs(pattern: str) -> str:
    """Return what the box is to look for in command lines: an expression of ``grep -E``."""
    # A pattern of the person's own is Python's; the box sends every command line, and it is applied here.
    return COARSE if pattern == DEFAULT_PATTERN else "."


def processes(said: dict[str, list[str]], pattern: str, at: float) -> tuple[tuple[Proc, ...], str]:
    """Return the processes that train, and why others may be missing.

    Args:
        said: The probe's lines by their first word: ``pt``, and ``p`` per process.
        pattern: As in `WatchConfig`.
        at: Time of the reading, by the box's clock.
    """
    head = said.get("pt", [""])[0].split()
    numbers = [int(word) if word.isascii() and word.isdecimal() else 0 for word in head[:3]]
    if len(numbers) < 3 or not all(numbers):
        return (), NO_PROC
    boot, ticks, page = numbers
    own = None if pattern == DEFAULT_PATTERN else re.compile(pattern)
    found: dict[int, tuple[int, str, Proc]] = {}
    for row in said.get("p", []):
        words = row.split(" ", 6)
        if len(words) < 7 or not all(
            word.isascii() and word.isdecimal() for word in (*words[:2], *words[3:6])
        ):
            continue
        pid, parent, start, threads, pages = (int(words[place]) for place in (0, 1, 3, 4, 5))
        command = words[6].split()
        if pid in found or not _trains(command, own):
            continue  # a command line of several lines comes as several rows
        started = boot + start / ticks
        proc = Proc(
            pid=pid,
            started=round(started, 2),
            cmd=shown(command),
            rss=pages * page,
            threads=threads,
            state=clean(words[2])[:1] or None,
            age_s=round(max(0.0, at - started), 1),
        )
        found[pid] = (parent, words[6], proc)
    # A loader worker is forked and never exec'ed: its parent's very words.
    rows = [proc for parent, text, proc in found.values() if parent not in found or found[parent][1] != text]
    return tuple(rows[:MOST]), HIDDEN if "hidden" in head[3:] else BY_NAME


def _trains(words: Sequence[str], own: re.Pattern[str] | None) -> bool:
    if not words:
        return False
    program = words[0].rpartition("/")[2].lstrip("-").rstrip(":")
    if _WRAPPER.fullmatch(program) or any(_NEVER.search(word) for word in words[:5]):
        return False
    if own is not None:
        return own.search(" ".join(words)) is not None
    if _STARTER.fullmatch(program):
        return True
    if not _PYTHON.fullmatch(program):
        return _TRAINS.search(program) is not None
    rest = words[_script(words) :]
    name = rest[0].rpartition("/")[2].removesuffix(".py") if rest else ""
    return bool(_TRAINS.search(name) or _STARTER.fullmatch(name)) or not _SUBCOMMAND.isdisjoint(rest[1:5])


def shown(words: Sequence[str]) -> str:
    """Return a command line up to its script: what follows may hold a secret, and blanks in it are not known."""
    end = _script(words) + 1 if _PYTHON.fullmatch(words[0].rpartition("/")[2]) else 1
    text = clean(" ".join(words[:end]))
    return text[:LONGEST] + (" …" if len(words) > end else "")


def _script(words: Sequence[str]) -> int:
    """Return where the script or module stands behind ``python``; the last place where there is none."""
    return next(_scripts(words), len(words) - 1)


def _scripts(words: Sequence[str]) -> Iterator[int]:
    skip = False
    for place, word in enumerate(words[1:], 1):
        if skip:
            skip = False
        elif not word.startswith("-"):
            yield place
        elif word[-1:] in _VALUED and not word.startswith("--"):
            skip = True
