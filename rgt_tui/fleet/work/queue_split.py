"""Split a queue over several boxes by the measured costs of cells. Pure functions."""

from __future__ import annotations

import errno
import posixpath
import shlex
import statistics
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from rgt_tui import files
from rgt_tui.fleet.work.agent_answers import Row, row_text
from rgt_tui.language import translate
from rgt_tui.model import FrozenStruct, QueueCell, QueueState, format_duration, how_many

DEFAULT_EPOCHS = 20
"""Epochs of a cell if neither its line nor its ``job.json`` sets them (docs/jobs.md)."""
UNDONE = ("waiting", "running", "interrupted")
OK, UNKNOWN = "ok", "unknown"
LOST = ("damaged", "missing", "zero-byte")
"""Statuses of a copy whose cell the queue may report as done: only another run recreates it."""
LEDGER_VERSION = 1


class NoQueue(ValueError):
    """A file is not a queue; the message names file and line."""


class QueueLine(FrozenStruct):
    """One line that defines a cell."""

    text: str
    """The original line, including its comment."""
    name: str
    task: str
    epochs: int = DEFAULT_EPOCHS


class SeenCost(FrozenStruct):
    """The cost of a finished cell."""

    box: str
    name: str
    task: str
    per_epoch: float
    """Seconds."""


class BoxShare(FrozenStruct):
    """The share of one box."""

    box: str
    lines: tuple[QueueLine, ...] = ()
    seconds: float | None = None
    """Seconds until this share and the box's present queue are done; None = no cost is known."""


class QueueSplit(FrozenStruct):
    """The lines of each box, and notes about the costs used."""

    shares: tuple[BoxShare, ...]
    notes: tuple[str, ...] = ()


def parse_lines(content: str, where: str) -> tuple[QueueLine, ...]:
    """Return the cells of a queue file; `where` is named in errors.

    Raises:
        NoQueue: a line is not a cell, a name occurs twice, or there is no cell.
    """
    found: dict[str, QueueLine] = {}
    # Editors on Windows put a byte order mark in front, which would be part of the first config.
    for place, row in enumerate(content.removeprefix("\ufeff").splitlines(), 1):
        # As the agent reads it: everything after # is a comment.
        words = row.partition("#")[0].split()
        if not words:
            continue
        if len(words) not in (2, 3) or (
            len(words) == 3 and not (words[2].isdecimal() and int(words[2]) > 0)
        ):
            raise NoQueue(
                translate(
                    "{where}:{place}: {strip!r} is not a cell; write <cfg> <task> [epochs]",
                    where=where,
                    place=place,
                    strip=row.strip(),
                )
            )
        name = cell_name(words[0])
        # Names are directories of results: two cells of one name would write over each other.
        if name in found:
            raise NoQueue(
                translate(
                    "{where}:{place}: the name {name!r} is used by a line above; rename the config",
                    where=where,
                    place=place,
                    name=name,
                )
            )
        if len(words) == 3:
            epochs = int(words[2])
        else:
            epochs = DEFAULT_EPOCHS
        found[name] = QueueLine(row.strip(), name, words[1], epochs)
    if not found:
        raise NoQueue(translate("{where}: has no cell; write <cfg> <task> [epochs]", where=where))
    return tuple(found.values())


def cell_name(cfg: str) -> str:
    """Return the name of a config's cell, the same as the agent's."""
    base = posixpath.basename(cfg.rstrip("/"))
    return posixpath.splitext(base)[0] or base


def line_of(cell: QueueCell, comment: str = "") -> QueueLine:
    """Return the line of a cell."""
    if cell.epochs is None:
        epochs = DEFAULT_EPOCHS
    else:
        epochs = cell.epochs
    words = f"{cell.cfg} {cell.task} {epochs}"
    return QueueLine(f"{words}  # {comment}" if comment else words, cell.name, cell.task, epochs)


def seen_in(box: str, queues: Sequence[QueueState]) -> list[SeenCost]:
    """Return the costs of a box's finished cells, by the box's clock.

    Only cells that succeeded at the first attempt count.
    """
    found = []
    for cell in (cell for queue in queues for cell in queue.cells):
        if cell.state != "done" or cell.attempts != 1 or cell.started is None or cell.ended is None:
            continue
        seconds = cell.ended - cell.started
        # A flagged cell ended much too soon, and a cost from it would attract more cells.
        if seconds > 0 and cell.epochs and not cell.flag:
            found.append(SeenCost(box, cell.name, cell.task, seconds / cell.epochs))
    return found


def split_queue(
    lines: Sequence[QueueLine],
    boxes: Sequence[str],
    *,
    seen: Sequence[SeenCost] = (),
    speeds: Mapping[str, float] | None = None,
    queued: Mapping[str, Sequence[QueueLine]] | None = None,
) -> QueueSplit:
    """Split lines so that all boxes finish as early as possible.

    Greedy: the most expensive cell first, each to the box that would finish it first.

    Args:
        lines: The lines to split.
        boxes: The boxes that share them.
        seen: Costs of finished cells.
        speeds: Relative GPU speed of boxes; used only if all are known.
        queued: Each box's present queue.
    """
    known = {**(speeds or {})}
    rated = {box: known[box] for box in boxes if known.get(box, 0.0) > 0}
    # One unknown speed makes the comparison impossible: then all count as equal.
    equal = len(rated) < len(boxes)
    if seen:
        usual = statistics.median([one.per_epoch for one in seen])
    else:
        usual = None
    counted: dict[str, int] = {}

    def estimate_cost(line: QueueLine, box: str) -> tuple[float, str]:
        for how, like in (
            (
                translate("this config there"),
                [one for one in seen if one.name == line.name and one.box == box],
            ),
            (translate("this config elsewhere"), [one for one in seen if one.name == line.name]),
            (translate("its task"), [one for one in seen if one.task == line.task]),
        ):
            if like:
                per = [
                    # A cost that was measured on another box is scaled by the speeds of both.
                    one.per_epoch * (1.0 if equal else _speed_ratio(known, one.box, box))
                    for one in like
                ]
                return statistics.median(per) * line.epochs, how
        # 1.0 for each: without any cost the cells are split by number.
        return (usual * line.epochs if usual is not None else 1.0), "nothing"

    load = {
        box: sum(estimate_cost(line, box)[0] for line in (queued or {}).get(box, ()))
        for box in boxes
    }
    shares: dict[str, list[QueueLine]] = {box: [] for box in boxes}
    # Longest first: a long cell at the end would leave the other boxes idle.
    order = sorted(lines, key=lambda line: -min(estimate_cost(line, box)[0] for box in boxes))
    for line in order:
        box = min(
            boxes, key=lambda one: (load[one] + estimate_cost(line, one)[0], boxes.index(one))
        )
        seconds, how = estimate_cost(line, box)
        counted[how] = counted.get(how, 0) + 1
        load[box] += seconds
        shares[box].append(line)
    # Within a box, cells run in the order in which the person wrote them.
    place = {line.name: at for at, line in enumerate(lines)}
    made = tuple(
        BoxShare(
            box,
            tuple(sorted(shares[box], key=lambda line: place[line.name])),
            load[box] if seen else None,
        )
        for box in boxes
    )
    return QueueSplit(made, tuple(_list_notes(counted, bool(seen), rated, equal, boxes)))


def _speed_ratio(speeds: Mapping[str, float], measured: str, box: str) -> float:
    there = speeds.get(measured, 0.0)
    if there > 0:
        return there / speeds[box]
    return 1.0


def _list_notes(
    counted: Mapping[str, int],
    measured: bool,
    rated: Mapping[str, float],
    equal: bool,
    boxes: Sequence[str],
) -> list[str]:
    if not measured:
        return [translate("split evenly: no finished cell, so no cost per cell")]
    by = ", ".join(f"{count} by {how}" for how, count in counted.items() if how != "nothing")
    guessed = counted.get("nothing", 0)
    notes = [f"cost: {by}" if by else translate("cost: no cell of its config or task has finished")]
    if guessed:
        notes.append(
            translate(
                "{cells} of unknown cost counted as the usual one", cells=how_many(guessed, "cell")
            )
        )
    if len(boxes) > 1:
        speeds = ", ".join(f"{box} {value:.0f} TFLOP/s" for box, value in rated.items())
        note = f"speed: {speeds}"
        if equal:
            note = translate(
                "GPU speed of some boxes is unknown: assumed equal (rgt check-box measures it)"
            )
        notes.append(note)
    return notes


def describe_share(share: BoxShare) -> str:
    """Return a share as one line."""
    names = ", ".join(line.name for line in share.lines) or "nothing"
    return names + (
        translate("; done in about {duration}", duration=format_duration(share.seconds))
        if share.seconds
        else ""
    )


# Compares the cells of a queue on several boxes with their results, and moves cells between boxes.


class QueuePart(FrozenStruct, kw_only=True):
    """One box's part of the queue."""

    box: str
    job: str
    queue: QueueState | None = None
    cells: tuple[Row, ...] = ()
    """Rows of the agent's ``reconcile``; empty if the box was not reached."""
    error: str = ""
    """Why the box was not reached; its queue is then the last known one."""


class CellEntry(FrozenStruct, kw_only=True):
    """The state of one cell, over all boxes."""

    name: str
    boxes: tuple[str, ...]
    status: str
    """As in the agent's ``reconcile``; ``duplicate`` also across boxes, ``unknown`` if a box was
    not reached."""
    why: str = ""
    command: str = ""
    """The command to type; empty = none needed or known."""


def list_cells(parts: Sequence[QueuePart]) -> tuple[CellEntry, ...]:
    """Return every cell of the fleet, those that need attention first. Pure function."""
    where: dict[str, list[tuple[QueuePart, Row]]] = {}
    for part in parts:
        rows: Mapping[str, Row] = {row_text(row, "name"): row for row in part.cells}
        names = [*rows]
        if part.queue is not None:
            names += [cell.name for cell in part.queue.cells if cell.name not in rows]
        for name in names:
            where.setdefault(name, []).append(
                (part, rows.get(name, {"name": name, "status": UNKNOWN}))
            )
    found = [_build_entry(name, copies) for name, copies in where.items()]
    return tuple(sorted(found, key=lambda entry: (entry.status == OK, entry.name)))


def _build_entry(name: str, copies: Sequence[tuple[QueuePart, Row]]) -> CellEntry:
    boxes = tuple(part.box for part, _ in copies)
    # A complete result anywhere means that no other box needs to run the cell.
    good = [part for part, row in copies if row.get("status") == OK]
    if good:
        others = [box for box in boxes if box != good[0].box]
        if not others:
            return CellEntry(name=name, boxes=boxes, status=OK)
        if len(good) > 1:
            return CellEntry(
                name=name,
                boxes=boxes,
                status="duplicate",
                why=translate("complete on {box}", box=", ".join(p.box for p in good)),
            )
        return _build_duplicate_entry(name, boxes, copies, good[0])
    if len(copies) > 1:
        # The box that already runs it keeps it.
        first = next((part for part, row in copies if _at_work(part, name)), copies[0][0])
        return _build_duplicate_entry(name, boxes, copies, first)
    part, row = copies[0]
    status = row_text(row, "status", UNKNOWN)
    why = row_text(row, "reason") or (
        translate("{box} was not reached: {error}", box=part.box, error=part.error)
        if part.error
        else ""
    )
    return CellEntry(
        name=name, boxes=boxes, status=status, why=why, command=_completing_command(part, name, row)
    )


def _build_duplicate_entry(
    name: str, boxes: tuple[str, ...], copies: Sequence[tuple[QueuePart, Row]], keeps: QueuePart
) -> CellEntry:
    """Return the entry of a cell in several boxes' queues: only one box may run it."""
    busy = [part.box for part, _ in copies if part is not keeps and _at_work(part, name)]
    if busy:
        why = translate("runs on {busy} as well as on {box}", busy=", ".join(busy), box=keeps.box)
        return CellEntry(name=name, boxes=boxes, status="duplicate", why=why)
    spare = [part for part, _ in copies if part is not keeps]
    words = [
        f"rgt queue {part.box} take-out {shlex.quote(name)}{_job_argument(part)}"
        for part in spare
        # No command for a box that was not reached: it could not run there now.
        if not part.error
    ]
    why = translate(
        "is in the queues of {boxes}; {box} keeps it", boxes=", ".join(boxes), box=keeps.box
    )
    return CellEntry(
        name=name, boxes=boxes, status="duplicate", why=why, command=" && ".join(words)
    )


def _at_work(part: QueuePart, name: str) -> bool:
    return part.queue is not None and any(
        c.name == name and c.state == "running" for c in part.queue.cells
    )


def _job_argument(part: QueuePart) -> str:
    return f" --job {shlex.quote(part.job)}"


def _completing_command(part: QueuePart, name: str, row: Row) -> str:
    """Return the command that completes a cell; empty if a live runner will do that."""
    status, state = row.get("status"), row.get("state")
    if part.error or status in (UNKNOWN, "unreadable", "duplicate", "unproven"):
        return ""
    alive = part.queue is not None and part.queue.runner_alive
    again = status in LOST and state == "done"
    # The runner does it by itself, unless the queue takes the lost cell for done.
    if alive and not again:
        return ""
    return (
        f"rgt queue {part.box} "
        f"run{f' --again {shlex.quote(name)}' if again else ''}{_job_argument(part)}"
    )


class HandedCell(FrozenStruct, kw_only=True):
    """A cell that was moved to another box: its first box must not run it if it comes back."""

    box: str
    job: str
    cell: str
    to: str
    at: float


class _HandedLedger(FrozenStruct):
    version: int = LEDGER_VERSION
    handed: tuple[HandedCell, ...] = ()


def ledger_path(env: Mapping[str, str]) -> Path:
    """Return the file of moved cells."""
    return files.state_directory(env) / "handed-over.json"


def handed_cells(path: Path) -> tuple[HandedCell, ...]:
    """Return the moved cells whose first box has not been notified yet.

    Raises:
        OSError: the file exists but cannot be read or is damaged: a cell could then run twice.
    """
    try:
        with files.open_regular(path) as file:
            known = msgspec.json.decode(file.read(), type=_HandedLedger)
    except FileNotFoundError:
        return ()
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise OSError(
            errno.EINVAL,
            translate(
                "is damaged ({error}); check which cells were handed over, and remove it",
                error=error,
            ),
            str(path),
        ) from error
    return known.handed


def note_handed(path: Path, box: str, job: str, shares: Mapping[str, Sequence[str]]) -> None:
    """Record which cells of a box move to others, before they are added there.

    Raises:
        OSError: it cannot be written; no cell may be moved then.
    """
    with files.locked_file(path):
        now = time.time()
        fresh = tuple(
            HandedCell(box=box, job=job, cell=cell, to=to, at=now)
            for to, cells in shares.items()
            for cell in cells
        )
        # A cell that moves once more has one entry, with its newest box.
        names = {(one.box, one.job, one.cell) for one in fresh}
        kept = tuple(one for one in handed_cells(path) if (one.box, one.job, one.cell) not in names)
        files.replace_file(path, msgspec.json.encode(_HandedLedger(handed=kept + fresh)))


def forget_handed(path: Path, box: str, job: str, cells: Sequence[str]) -> None:
    """Remove cells from the list once their first box has been notified.

    Raises:
        OSError: it cannot be written; the box is then notified once more.
    """
    with files.locked_file(path):
        kept = tuple(
            one
            for one in handed_cells(path)
            if not (one.box == box and one.job == job and one.cell in cells)
        )
        files.replace_file(path, msgspec.json.encode(_HandedLedger(handed=kept)))


def same_job(first: str, second: str) -> bool:
    """Return whether two job paths have the same name."""
    return posixpath.basename(first.rstrip("/")) == posixpath.basename(second.rstrip("/"))
