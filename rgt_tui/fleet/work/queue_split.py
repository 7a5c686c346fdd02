"""Splits the lines of one queue over several boxes, by what each cell has been seen to take. Pure."""

from __future__ import annotations

import posixpath
import statistics
from collections.abc import Mapping, Sequence

import msgspec

from rgt_tui.model import Cell, QueueState
from rgt_tui.profiles import age, how_many

DEFAULT_EPOCHS = 20
"""What a job runs where neither its line nor its ``job.json`` says it (docs/jobs.md)."""
UNDONE = ("waiting", "running", "interrupted")


class NoQueue(ValueError):
    """A file is no queue; the message names file and line."""


class QueueLine(msgspec.Struct, frozen=True):
    """One line that names a cell."""

    text: str
    """As it stands, comment included."""
    name: str
    task: str
    epochs: int = DEFAULT_EPOCHS


class Seen(msgspec.Struct, frozen=True):
    """What a finished cell has cost."""

    box: str
    name: str
    task: str
    per_epoch: float
    """Seconds."""


class Share(msgspec.Struct, frozen=True):
    """What one box gets."""

    box: str
    lines: tuple[QueueLine, ...] = ()
    seconds: float | None = None
    """Until it has done them and what it has already; None = no cost is known."""


class Split(msgspec.Struct, frozen=True):
    """Which box gets which lines, and on what evidence."""

    shares: tuple[Share, ...]
    notes: tuple[str, ...] = ()


def parse_lines(content: str, where: str) -> tuple[QueueLine, ...]:
    """Return the cells of a queue file; `where` is what errors name.

    Raises:
        NoQueue: a line is no cell, a name comes twice, or there is no cell.
    """
    found: dict[str, QueueLine] = {}
    for place, row in enumerate(content.removeprefix("\ufeff").splitlines(), 1):
        words = row.partition("#")[0].split()
        if not words:
            continue
        if len(words) not in (2, 3) or (len(words) == 3 and not (words[2].isdecimal() and int(words[2]) > 0)):
            raise NoQueue(f"{where}:{place}: {row.strip()!r} is not a cell; write <cfg> <task> [epochs]")
        name = cell_name(words[0])
        if name in found:
            raise NoQueue(f"{where}:{place}: the name {name!r} is taken by a line above; rename the config")
        epochs = int(words[2]) if len(words) == 3 else DEFAULT_EPOCHS
        found[name] = QueueLine(row.strip(), name, words[1], epochs)
    if not found:
        raise NoQueue(f"{where}: has no cell; write <cfg> <task> [epochs]")
    return tuple(found.values())


def cell_name(cfg: str) -> str:
    """Return the name of a config's cell, as the agent has it."""
    base = posixpath.basename(cfg.rstrip("/"))
    return posixpath.splitext(base)[0] or base


def line_of(cell: Cell, comment: str = "") -> QueueLine:
    """Return the line of a cell."""
    epochs = DEFAULT_EPOCHS if cell.epochs is None else cell.epochs
    words = f"{cell.cfg} {cell.task} {epochs}"
    return QueueLine(f"{words}  # {comment}" if comment else words, cell.name, cell.task, epochs)


def seen_in(box: str, queues: Sequence[QueueState]) -> list[Seen]:
    """Return what the finished cells of a box have cost: those that ran through at once, by the box's clock."""
    found = []
    for cell in (cell for queue in queues for cell in queue.cells):
        if cell.state != "done" or cell.attempts != 1 or cell.started is None or cell.ended is None:
            continue
        seconds = cell.ended - cell.started
        if seconds > 0 and cell.epochs and not cell.flag:
            found.append(Seen(box, cell.name, cell.task, seconds / cell.epochs))
    return found


def split(
    lines: Sequence[QueueLine],
    boxes: Sequence[str],
    *,
    seen: Sequence[Seen] = (),
    speeds: Mapping[str, float] | None = None,
    queued: Mapping[str, Sequence[QueueLine]] | None = None,
) -> Split:
    """Share lines out so that all boxes are done as early as possible: the dearest cell first, to who is free first.

    Args:
        lines: What is to be shared out.
        boxes: Who shares.
        seen: What finished cells have cost.
        speeds: How fast the GPUs of a box are; only their ratio counts, and only where all are known.
        queued: What each box has to do already.
    """
    known = {**(speeds or {})}
    rated = {box: known[box] for box in boxes if known.get(box, 0.0) > 0}
    equal = len(rated) < len(boxes)
    usual = statistics.median([one.per_epoch for one in seen]) if seen else None
    counted: dict[str, int] = {}

    def cost(line: QueueLine, box: str) -> tuple[float, str]:
        for how, like in (
            ("this config there", [one for one in seen if one.name == line.name and one.box == box]),
            ("this config elsewhere", [one for one in seen if one.name == line.name]),
            ("its task", [one for one in seen if one.task == line.task]),
        ):
            if like:
                per = [one.per_epoch * (1.0 if equal else _ratio(known, one.box, box)) for one in like]
                return statistics.median(per) * line.epochs, how
        return (usual * line.epochs if usual is not None else 1.0), "nothing"

    load = {box: sum(cost(line, box)[0] for line in (queued or {}).get(box, ())) for box in boxes}
    shares: dict[str, list[QueueLine]] = {box: [] for box in boxes}
    order = sorted(lines, key=lambda line: -min(cost(line, box)[0] for box in boxes))
    for line in order:
        box = min(boxes, key=lambda one: (load[one] + cost(line, one)[0], boxes.index(one)))
        seconds, how = cost(line, box)
        counted[how] = counted.get(how, 0) + 1
        load[box] += seconds
        shares[box].append(line)
    place = {line.name: at for at, line in enumerate(lines)}
    made = tuple(
        Share(box, tuple(sorted(shares[box], key=lambda line: place[line.name])), load[box] if seen else None)
        for box in boxes
    )
    return Split(made, tuple(_notes(counted, bool(seen), rated, equal, boxes)))


def _ratio(speeds: Mapping[str, float], measured: str, box: str) -> float:
    there = speeds.get(measured, 0.0)
    return there / speeds[box] if there > 0 else 1.0


def _notes(
    counted: Mapping[str, int], measured: bool, rated: Mapping[str, float], equal: bool, boxes: Sequence[str]
) -> list[str]:
    if not measured:
        return ["split evenly: no finished cell shows what one costs"]
    by = ", ".join(f"{count} by {how}" for how, count in counted.items() if how != "nothing")
    guessed = counted.get("nothing", 0)
    notes = [f"cost: {by}" if by else "cost: no cell of its config or task has finished"]
    if guessed:
        notes.append(f"{how_many(guessed, 'cell')} of unknown cost counted as the usual one")
    if len(boxes) > 1:
        speeds = ", ".join(f"{box} {value:.0f} TFLOP/s" for box, value in rated.items())
        notes.append(
            "speed of the GPUs not known of every box: taken as equal (rgt check-box measures it)"
            if equal
            else f"speed: {speeds}"
        )
    return notes


def share_words(share: Share) -> str:
    """Return a share as one line."""
    names = ", ".join(line.name for line in share.lines) or "nothing"
    return names + (f"; done in about {age(share.seconds)}" if share.seconds else "")
