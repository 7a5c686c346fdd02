"""Advice from a log of any origin: its save interval, lost work, and the versions it names.

Pure. Without evidence in the log there is no advice.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from statistics import median
from typing import Any

import msgspec

from rgt_tui.language import translate
from rgt_tui.model import memory, pct
from rgt_tui.profiles.run_advice import (
    LEAST_POINTS,
    LEAST_SAVES,
    ROOM_PCT,
    Advice,
    advise_save_interval,
    faults_of,
    ranks_changed,
)

# A log may be gigabytes long, or standard input, which can be read once.
FIRST_BYTES, LAST_BYTES = 1 << 20, 2 << 20
"""Bytes read from both ends of a log: versions are at the beginning, current activity at the end.
"""
LONGEST, MOST_TELLING = 1000, 20_000
"""Maximum characters of a line, and relevant lines, that are read."""
NAME = "this run"


class HeadAndTail:
    """Keeps both ends of its input, with bounded memory."""

    def __init__(self) -> None:
        self._first = bytearray()
        self._last = bytearray()
        self.cut = False
        """Data between the two ends is missing."""

    def feed(self, data: bytes) -> None:
        """Add the next piece."""
        # Negative or 0 once the head is full: both slices below handle that.
        room = FIRST_BYTES - len(self._first)
        self._first += data[:room]
        self._last += data[max(0, room) :]
        # Cut at twice the size, so that not every piece moves the whole buffer.
        if len(self._last) > 2 * LAST_BYTES:
            del self._last[:-LAST_BYTES]
        self.cut = self.cut or len(self._last) > LAST_BYTES

    @property
    def last_line_states(self) -> list[str]:
        """The lines of both ends; a line that rewrites itself has its last state."""
        text = bytes(self._first) + bytes(self._last[-LAST_BYTES:])
        lines = text.decode("utf-8", "replace").split("\n")
        return [line.rstrip("\r").rpartition("\r")[2] for line in lines]

    @property
    def all_line_states(self) -> list[str]:
        """The lines of both ends; each state of a line that rewrites itself is a line."""
        text = bytes(self._first) + bytes(self._last[-LAST_BYTES:])
        return [
            line[:LONGEST]
            for line in text.decode("utf-8", "replace").replace("\r", "\n").split("\n")
        ]


_SAVED = re.compile(
    r"\bcheckpoint (?P<ours>\d[\d,]*) → |\bSaving model checkpoint to \S*?checkpoint-(?P<hf>\d+)"
    r"|(?i:\bsav(?:ed|ing) (?:the )?checkpoint\b)(?:.{0,80}?\bstep[ =:-]{0,3}(?P<other>\d+))?"
)
_STALLED = re.compile(r"\bstalled (\d[\d,]*) ms")
# Only at the start of a line: elsewhere, a time may be part of the program's output.
_CLOCK = re.compile(r"^\W{0,3}(?:(\d{4})-(\d\d)-(\d\d)[ T_])?(\d\d):(\d\d):(\d\d)\b")
_BAR = re.compile(r"\b(\d+)/(\d+) \[(?:(\d+):)?(\d\d?):(\d\d)<")
_BEGINS = re.compile(r"\*{5} Running training \*{5}|^GPU available: |(?:^|\s)\S+ on \S+: torch \d")
"""How Hugging Face, Lightning and rgt_train begin an attempt."""
_GOES_ON = re.compile(
    r"(?:Continuing|Resuming) training from checkpoint|^Restor(?:ing|ed all) states"
    r"|^resume: at step [1-9]"
    r"|(?i:\bresum(?:ed|ing) (?:from|at) (?:step|checkpoint|epoch)\b)"
)
_RANKS = re.compile(
    r", (\d+) ranks \(|\bStarting with (\d+) processes\b"
    r"|--nproc[-_]per[-_]node[= ](\d+)\b|\bWORLD_SIZE[=: ]{1,2}(\d+)\b"
)
_BATCH = re.compile(
    r"\bTotal train batch size \(w\. parallel, distributed & accumulation\) = ([\d,]+)"
)
_WORKERS = re.compile(
    r"\bwill create (\d+) worker processes in total|\bnum_workers[\"']?[=: ]{1,3}(\d+)\b"
)
_VERSION = re.compile(
    r"\b(transformers|trl|accelerate|pytorch[-_]lightning|lightning|torchdata|deepspeed)"
    r"(?:==|[-_ ]version[\"']?[=: ]{1,3}[\"']?|-)(\d+(?:\.\d+)+[\w.+]{0,20})"
)
_FRAMEWORK = {"***** Running training *****": "transformers", "GPU available: ": "lightning"}
_MARKS = {
    "save_total_limit=1": re.compile(r"\bsave_total_limit[\"']?[=: ]{1,3}1\b(?!\.)"),
    "StatefulDataLoader": re.compile(r"\bStatefulDataLoader\b"),
    "DeepSpeed": re.compile(r"\bDeepSpeed info: version|--deepspeed\b"),
}
_DEEPSPEED = re.compile(r"\bDeepSpeed info: version=(\d+(?:\.\d+)+)")
# Substrings first: the patterns above would run on every line of the log.
_NEEDLES = (
    "checkpoint", "running training", "gpu available", ": torch ", "restor", "resum", " ranks (",
    " processes", "nproc",
    "world_size", "total train batch", "worker", "transformers", "trl", "accelerate", "lightning",
    "torchdata",
    "deepspeed", "save_total_limit", "statefuldataloader", "batchnorm",
)  # fmt: skip
"""Lower-case words, one of which is in every relevant line; progress bars are handled separately.
"""


class TrainingAttempt(msgspec.Struct):
    """The part of a log between two starts of the training."""

    saves: list[tuple[int | None, float | None]] = []
    """Step and time of each save; None = not logged."""
    costs: list[float] = []
    """Seconds of training time taken by each save."""
    step_s: float | None = None
    """Seconds per step, by its progress bar."""
    ran_s: float = 0.0
    """Minimum duration in seconds."""
    resumed: bool = False
    ranks: int | None = None
    batch: int | None = None


class _LogFacts(msgspec.Struct):
    """The data gathered from a log."""

    attempts: list[TrainingAttempt] = []
    uses: dict[str, str] = {}
    marks: list[str] = []
    workers: int | None = None
    batch_norm: bool = False
    since: float | None = None
    """Time of the current attempt's first line with a time."""


def log_advice(
    lines: Sequence[str], samples: Sequence[Mapping[str, Any]] = ()
) -> tuple[Advice, ...]:
    """Return the advice that follows from a log's own numbers.

    Args:
        lines: The log's lines in order.
        samples: Readings of the box from that time; without them, advice that needs them is
            omitted.
    """
    seen = _gather_facts(lines)
    return (
        *_advise_log_saves(seen),
        *_advise_resume(seen),
        *_advise_rank_change(seen),
        *_advise_workers(seen, samples),
        *_advise_free_memory(samples),
    )


def _gather_facts(lines: Sequence[str]) -> _LogFacts:
    seen = _LogFacts(attempts=[TrainingAttempt()])
    clock, bar, left = 0.0, "", MOST_TELLING
    last = len(lines) - 1
    for place, line in enumerate(lines):
        low = line.lower()
        # First and last line always: they show how long the log lasted.
        if 0 < place < last and not any(needle in low for needle in _NEEDLES):
            if "<" in line and "/" in line:
                bar = line
            continue
        # A program that logs nothing but such lines must not take minutes.
        left -= 1
        if not left:
            break
        here = seen.attempts[-1]
        _read_bar(here, bar)
        bar = ""
        if _BEGINS.search(line):
            seen.uses |= {
                name: seen.uses.get(name, "") for text, name in _FRAMEWORK.items() if text in line
            }
            # The lines in front of the first start are no attempt of their own.
            if here != TrainingAttempt() or seen.since is not None:
                here = TrainingAttempt()
                seen.attempts.append(here)
                seen.since = None
        if (time := _time_of(line, clock)) is not None:
            clock = time
            if seen.since is None:
                seen.since = time
            here.ran_s = max(here.ran_s, time - seen.since)
        _read_line(seen, here, line, time)
    return seen


def _read_line(seen: _LogFacts, here: TrainingAttempt, line: str, time: float | None) -> None:
    if match := _SAVED.search(line):
        step = next((text for text in match.groups() if text), None)
        here.saves.append((int(step.replace(",", "")) if step else None, time))
        if cost := _STALLED.search(line):
            here.costs.append(_parse_number(cost.group(1)) / 1000.0)
    _read_bar(here, line)
    here.resumed = here.resumed or bool(_GOES_ON.search(line))
    if match := _RANKS.search(line):
        # The first mention counts: later ones may be of a nested launcher.
        here.ranks = here.ranks or int(next(text for text in match.groups() if text))
    if match := _BATCH.search(line):
        here.batch = int(_parse_number(match[1]))
    if match := _WORKERS.search(line):
        seen.workers = int(next(text for text in match.groups() if text))
    for name, version in _VERSION.findall(line):
        seen.uses[name.replace("_", "-")] = version
    if match := _DEEPSPEED.search(line):
        seen.uses["deepspeed"] = match[1]
    seen.marks += [
        mark for mark, pattern in _MARKS.items() if mark not in seen.marks and pattern.search(line)
    ]
    seen.batch_norm = seen.batch_norm or "BatchNorm" in line


def _read_bar(here: TrainingAttempt, line: str) -> None:
    """Read a progress bar; only the last one before a relevant line is needed."""
    if match := _BAR.search(line):
        done, hours, minutes, seconds = (
            int(match[1]),
            int(match[3] or 0),
            int(match[4]),
            int(match[5]),
        )
        spent = 3600.0 * hours + 60.0 * minutes + seconds
        # The bar's first state has neither.
        if done and spent:
            here.step_s, here.ran_s = spent / done, max(here.ran_s, spent)


def _parse_number(text: str) -> float:
    return float(text.replace(",", ""))


def _time_of(line: str, before: float) -> float | None:
    """Return the time of a line in seconds.

    Without a date, the day continues from the line before.
    """
    match = _CLOCK.match(line)
    if match is None:
        return None
    hours, minutes, seconds = (int(text) for text in match.groups()[3:])
    of_day = 3600.0 * hours + 60.0 * minutes + seconds
    day_s = 86400.0
    if match[1]:
        year, month, day = (int(text) for text in match.groups()[:3])
        return _count_days(year, month, day) * day_s + of_day
    # Without a date: the day of the line before, or the next one after midnight.
    at = before - before % day_s + of_day
    if at >= before - day_s / 2:
        return at
    return at + day_s


def _count_days(year: int, month: int, day: int) -> int:
    """Return a day count from a fixed epoch; impossible dates also give a number."""
    # Years from March, so that the leap day is their last. datetime would refuse 02-30 of a torn
    # line.
    year -= month <= 2
    month += 9 if month <= 2 else -3
    return 365 * year + year // 4 - year // 100 + year // 400 + (153 * month + 2) // 5 + day


def _advise_log_saves(seen: _LogFacts) -> Iterator[Advice]:
    every = _find_save_interval(seen.attempts)
    if every is None:
        return
    costs = [cost for one in seen.attempts for cost in one.costs]
    watched = sum(one.ran_s for one in seen.attempts)
    if costs:
        # The newest ones: the first save often creates directories and caches.
        cost = max(median(costs[-5:]), 1e-3)
    else:
        cost = None
    yield from advise_save_interval(
        NAME, every, watched, len(seen.attempts) - 1, cost, lambda lost: ""
    )


def _find_save_interval(attempts: Sequence[TrainingAttempt]) -> float | None:
    """Return the usual seconds between two saves, by times, else by steps and step duration."""
    timed: list[float] = []
    stepped: list[float] = []
    for one in attempts:
        for (step, at), (later, then) in itertools.pairwise(one.saves):
            if at is not None and then is not None and then > at:
                timed.append(then - at)
            elif step is not None and later is not None and later > step and one.step_s is not None:
                stepped.append((later - step) * one.step_s)
    # Times are better than steps, whose duration varies.
    if len(timed) >= LEAST_SAVES - 1:
        gaps = timed
    else:
        gaps = stepped
    if len(gaps) >= LEAST_SAVES - 1:
        return median(gaps)
    return None


def _advise_resume(seen: _LogFacts) -> Iterator[Advice]:
    """Yield what the frameworks named in a log lose, as far as its lines show their use."""
    again = len(seen.attempts) > 1 and any(one.saves for one in seen.attempts[:-1])
    marks = list(seen.marks)
    # A second start after a save that does not say that it resumed: the fault's own evidence.
    if again and not any(one.resumed for one in seen.attempts[1:]):
        marks += ["train()", "fit"]
    if any(one.resumed for one in seen.attempts):
        marks += ["resume", "fit"]
    uses = [f"{name} {version}".rstrip() for name, version in sorted(seen.uses.items())]
    for text, fault in faults_of(uses, marks):
        yield Advice(run=NAME, about="resume", text=text, page=fault.page)


def _advise_rank_change(seen: _LogFacts) -> Iterator[Advice]:
    for before, now in itertools.pairwise(seen.attempts):
        if before.batch and now.batch and before.batch != now.batch:
            text = translate(
                "the total batch is {batch:,} now, {batch_2:,} before: learning rate, warm-up "
                "and steps an epoch were chosen for the previous one",
                batch=now.batch,
                batch_2=before.batch,
            )
            yield Advice(run=NAME, about="batch", text=text, page="D11")
        # The total batch, where it is logged, says more than the number of ranks.
        elif (
            before.ranks
            and now.ranks
            and before.ranks != now.ranks
            and not (before.batch and now.batch)
        ):
            yield from ranks_changed(NAME, before.ranks, now.ranks, batch_norm=seen.batch_norm)


def _advise_workers(seen: _LogFacts, samples: Sequence[Mapping[str, Any]]) -> Iterator[Advice]:
    cores = next(
        (value for sample in samples if (value := _read_positive(sample, "cpu", "usable"))), None
    )
    if cores and seen.workers is not None and seen.workers > cores:
        spare = max(1, int(cores) - 1)
        text = translate(
            "{workers} loader workers share {cores:g} cores: {spare} are as fast, and take "
            "less memory",
            workers=seen.workers,
            cores=cores,
            spare=spare,
        )
        yield Advice(run=NAME, about="workers", text=text, page="U40")


def _advise_free_memory(samples: Sequence[Mapping[str, Any]]) -> Iterator[Advice]:
    cards = [
        (used / total, total)
        for sample in samples
        for gpu in _as_list(sample.get("gpus"))
        if isinstance(gpu, dict)
        # Replayed cards say nothing about memory.
        and not gpu.get("sim")
        and isinstance(used := gpu.get("vram_used"), (int, float))
        and isinstance(total := gpu.get("vram_total"), (int, float))
        and total > 0
    ]
    if len(cards) < LEAST_POINTS:
        return
    fullest, total = max(cards)
    if 0.0 < 100.0 * fullest < ROOM_PCT:
        free = memory(int(total * (1.0 - fullest)))
        text = translate(
            "the cards were never fuller than {pct} ({free} free): a larger batch fits",
            pct=pct(100.0 * fullest),
            free=free,
        )
        yield Advice(run=NAME, about="memory", text=text)


def _read_positive(sample: Mapping[str, Any], part: str, key: str) -> float | None:
    found = sample.get(part)
    if isinstance(found, dict):
        value = found.get(key)
    else:
        value = None
    if isinstance(value, (int, float)) and value > 0:
        return float(value)
    return None


def _as_list(value: Any) -> list[Any]:
    if isinstance(value, list):
        return value
    return []
