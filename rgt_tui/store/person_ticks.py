"""Checks ticked by a person because no sample can prove them: who, when, and with which note.

``$XDG_STATE_HOME/rgt/ticks.json`` stores them by a box's identity (`place_of`), so that a new
machine under an old name begins without ticks. Withdrawing a tick deletes nothing: the last entry
applies, and earlier ones are kept.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Iterable, Mapping
from pathlib import Path

import msgspec

from rgt_tui.files import locked_file, replace_file, state_directory
from rgt_tui.model import BoxSpec, CheckResult, CheckStatus, FrozenStruct, PersonTick, clean_text
from rgt_tui.store.database import box_identity

VERSION = 1
MOST_BYTES = 8 << 20
LONGEST_NOTE, LONGEST_NAME = 500, 64

Ticks = Mapping[str, tuple[PersonTick, ...]]
"""Check → its entries, oldest first."""


class TicksError(Exception):
    """The file cannot be used or written; the message includes its path and what to do."""


class _TickFile(FrozenStruct):
    """The content of the file."""

    version: int = VERSION
    boxes: dict[str, dict[str, tuple[PersonTick, ...]]] = {}


def ticks_path(env: Mapping[str, str]) -> Path:
    """Return the path of the file."""
    return state_directory(env) / "ticks.json"


def save_tick(
    spec: BoxSpec, check: str, tick: PersonTick, env: Mapping[str, str] = os.environ
) -> None:
    """Store a person's tick of a check. Blocks on disk.

    Raises:
        TicksError: it cannot be stored; the file is unchanged.
    """
    path = ticks_path(env)
    made = PersonTick(
        ticked=tick.ticked,
        at=tick.at,
        by=clean_text(tick.by).strip()[:LONGEST_NAME],
        note=clean_text(tick.note).strip()[:LONGEST_NOTE],
    )
    try:
        with locked_file(path):
            kept = _read_file(path)
            of_box = kept.boxes.get(box_identity(spec), {})
            # Maximum number of entries per check and box; the oldest are dropped.
            most_words = 20
            said = (*of_box.get(check, ()), made)[-most_words:]
            boxes = {**kept.boxes, box_identity(spec): {**of_box, check: said}}
            replace_file(path, msgspec.json.encode(_TickFile(boxes=boxes)))
    except OSError as error:
        raise TicksError(f"{path}: {error.strerror or error}; nothing was ticked") from error


def ticks_of(spec: BoxSpec, env: Mapping[str, str] = os.environ) -> Ticks:
    """Return the entries of a box's checks; the file is only read if it has changed.

    Raises:
        TicksError: it cannot be used.
    """
    path = ticks_path(env)
    try:
        found = path.stat()
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise TicksError(f"{path}: {error.strerror or error}") from error
    return _remembered(path, found.st_mtime_ns, found.st_size).boxes.get(box_identity(spec), {})


@functools.lru_cache(maxsize=4)
def _remembered(path: Path, changed: int, length: int) -> _TickFile:
    return _read_file(path)


def _read_file(path: Path) -> _TickFile:
    try:
        with path.open("rb") as file:
            kept = msgspec.json.decode(file.read(MOST_BYTES), type=_TickFile)
    except FileNotFoundError:
        return _TickFile()
    except OSError as error:
        raise TicksError(f"{path}: {error.strerror or error}") from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise TicksError(f"{path} is damaged ({error}): move it away, and tick again") from error
    if kept.version != VERSION:
        raise TicksError(
            f"{path} is of another version of rgt ({kept.version}): use that one, or move it away"
        )
    return kept


def with_ticks(results: Iterable[CheckResult], ticks: Ticks) -> tuple[CheckResult, ...]:
    """Add a person's ticks to the results of checks that only a person can judge.

    A check that the readings disprove stays failed, even if it is ticked.
    """
    return tuple(_apply_ticks(result, ticks.get(result.id, ())) for result in results)


def _apply_ticks(result: CheckResult, said: tuple[PersonTick, ...]) -> CheckResult:
    if result.status is not CheckStatus.PERSON or not said:
        return result
    last = said[-1]
    by = last.by or "somebody"
    if last.ticked:
        evidence = f"{last.note} ({by})"
        return msgspec.structs.replace(
            result, status=CheckStatus.PASSED, evidence=evidence, at=last.at, by=by
        )
    before = next((tick for tick in reversed(said) if tick.ticked), None)
    note = ""
    if before is not None and before.note:
        note = f", was: {before.note}"
    return msgspec.structs.replace(result, evidence=f"unticked by {by}{note}", at=last.at)
