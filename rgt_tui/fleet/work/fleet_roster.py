"""Compares the cells of a queue on several boxes with what exists, and hands cells over to other boxes."""

from __future__ import annotations

import errno
import posixpath
import shlex
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from rgt_tui import files
from rgt_tui.fleet.work.agent_answers import Row, text
from rgt_tui.model import QueueState

OK, UNKNOWN = "ok", "unknown"
LOST = ("damaged", "missing", "zero-byte")
"""Of these the queue may say done: only a new run of the cell makes its copy anew."""
VERSION = 1


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """What one box has of it."""

    box: str
    job: str
    queue: QueueState | None = None
    cells: tuple[Row, ...] = ()
    """Of the agent's ``reconcile``; empty where the box was not reached."""
    error: str = ""
    """Why it was not reached; what it has is then as it was seen last."""


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """The state of one cell, over all boxes."""

    name: str
    boxes: tuple[str, ...]
    status: str
    """As the agent's ``reconcile`` has it; ``duplicate`` also across boxes, ``unknown`` where a box was not reached."""
    why: str = ""
    command: str = ""
    """What to type; empty = nothing is to be done, or nobody can say."""


def roster(parts: Sequence[Part]) -> tuple[Entry, ...]:
    """Return every cell of the fleet, those that need attention first. Pure."""
    where: dict[str, list[tuple[Part, Row]]] = {}
    for part in parts:
        rows: Mapping[str, Row] = {text(row, "name"): row for row in part.cells}
        names = [
            *rows,
            *([] if part.queue is None else [c.name for c in part.queue.cells if c.name not in rows]),
        ]
        for name in names:
            where.setdefault(name, []).append((part, rows.get(name, {"name": name, "status": UNKNOWN})))
    found = [_entry(name, copies) for name, copies in where.items()]
    return tuple(sorted(found, key=lambda entry: (entry.status == OK, entry.name)))


def _entry(name: str, copies: Sequence[tuple[Part, Row]]) -> Entry:
    boxes = tuple(part.box for part, _ in copies)
    good = [part for part, row in copies if row.get("status") == OK]
    if good:
        others = [box for box in boxes if box != good[0].box]
        if not others:
            return Entry(name=name, boxes=boxes, status=OK)
        if len(good) > 1:
            return Entry(
                name=name,
                boxes=boxes,
                status="duplicate",
                why=f"complete on {', '.join(p.box for p in good)}",
            )
        return _spare(name, boxes, copies, good[0])
    if len(copies) > 1:
        first = next((part for part, row in copies if _at_work(part, name)), copies[0][0])
        return _spare(name, boxes, copies, first)
    part, row = copies[0]
    status = text(row, "status", UNKNOWN)
    why = text(row, "reason") or (f"{part.box} was not reached: {part.error}" if part.error else "")
    return Entry(name=name, boxes=boxes, status=status, why=why, command=_command(part, name, row))


def _spare(name: str, boxes: tuple[str, ...], copies: Sequence[tuple[Part, Row]], keeps: Part) -> Entry:
    """Return a cell that stands in the queues of several boxes: the others must not run it as well."""
    busy = [part.box for part, _ in copies if part is not keeps and _at_work(part, name)]
    if busy:
        why = f"runs on {', '.join(busy)} as well as on {keeps.box}"
        return Entry(name=name, boxes=boxes, status="duplicate", why=why)
    spare = [part for part, _ in copies if part is not keeps]
    words = [
        f"rgt queue {part.box} take-out {shlex.quote(name)}{_job(part)}" for part in spare if not part.error
    ]
    why = f"is in the queues of {', '.join(boxes)}; {keeps.box} keeps it"
    return Entry(name=name, boxes=boxes, status="duplicate", why=why, command=" && ".join(words))


def _at_work(part: Part, name: str) -> bool:
    return part.queue is not None and any(c.name == name and c.state == "running" for c in part.queue.cells)


def _job(part: Part) -> str:
    return f" --job {shlex.quote(part.job)}"


def _command(part: Part, name: str, row: Row) -> str:
    """Return what brings a cell to its end; a runner that is at work does that by itself."""
    status, state = row.get("status"), row.get("state")
    if part.error or status in (UNKNOWN, "unreadable", "duplicate", "unproven"):
        return ""
    alive = part.queue is not None and part.queue.runner_alive
    again = status in LOST and state == "done"
    if alive and not again:
        return ""
    return f"rgt queue {part.box} run{f' --again {shlex.quote(name)}' if again else ''}{_job(part)}"


class Handed(msgspec.Struct, frozen=True, kw_only=True):
    """A cell that another box runs now: its first box must not, should it ever come back."""

    box: str
    job: str
    cell: str
    to: str
    at: float


class _Ledger(msgspec.Struct, frozen=True):
    version: int = VERSION
    handed: tuple[Handed, ...] = ()


def ledger_path(env: Mapping[str, str]) -> Path:
    """Return the file that handed cells are kept in."""
    return files.state_directory(env) / "handed-over.json"


def handed_cells(path: Path) -> tuple[Handed, ...]:
    """Return the cells that were handed over, and whose first box has not been told yet.

    Raises:
        OSError: the file is there and cannot be read, or is damaged: a cell could then run twice.
    """
    try:
        with files.open_regular(path) as file:
            known = msgspec.json.decode(file.read(), type=_Ledger)
    except FileNotFoundError:
        return ()
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise OSError(
            errno.EINVAL,
            f"is damaged ({error}); check which cells were handed over, and remove it",
            str(path),
        ) from error
    return known.handed


def note_handed(path: Path, box: str, job: str, shares: Mapping[str, Sequence[str]]) -> None:
    """Write down, before anything is added elsewhere, which cells of a box others get.

    Raises:
        OSError: it cannot be written; nothing may be handed over then.
    """
    with files.alone(path):
        now = time.time()
        fresh = tuple(
            Handed(box=box, job=job, cell=cell, to=to, at=now)
            for to, cells in shares.items()
            for cell in cells
        )
        names = {(one.box, one.job, one.cell) for one in fresh}
        kept = tuple(one for one in handed_cells(path) if (one.box, one.job, one.cell) not in names)
        files.publish(path, msgspec.json.encode(_Ledger(handed=kept + fresh)))


def forget_handed(path: Path, box: str, job: str, cells: Sequence[str]) -> None:
    """Take cells off the list whose first box has been told.

    Raises:
        OSError: it cannot be written; the box is then told once more.
    """
    with files.alone(path):
        kept = tuple(
            one for one in handed_cells(path) if not (one.box == box and one.job == job and one.cell in cells)
        )
        files.publish(path, msgspec.json.encode(_Ledger(handed=kept)))


def same_job(first: str, second: str) -> bool:
    """Tell whether two boxes call a job by the same name."""
    return posixpath.basename(first.rstrip("/")) == posixpath.basename(second.rstrip("/"))
