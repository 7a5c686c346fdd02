"""Checks that a person has ticked because no sample can prove them: who, when, and with which note.

``$XDG_STATE_HOME/rgt/ticks.json`` holds them by what a box is known by (`place_of`), so that a new machine under an old
name begins with none. Nothing is forgotten when a tick is taken back: the last word counts, the earlier ones stay.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Iterable, Mapping
from pathlib import Path

import msgspec

from rgt_tui.files import alone, publish, state_directory
from rgt_tui.model import BoxSpec, CheckResult, CheckStatus, PersonTick, clean
from rgt_tui.store.database import place_of

VERSION = 1
MOST_BYTES = 8 << 20
MOST_WORDS = 20
"""Of one check of one box; of more the oldest go."""
LONGEST_NOTE, LONGEST_NAME = 500, 64

Ticks = Mapping[str, tuple[PersonTick, ...]]
"""Check → what was said of it, oldest first."""


class TicksError(Exception):
    """The file cannot be used, or not be written; the message names it and says what to do."""


class _Kept(msgspec.Struct, frozen=True):
    """The whole file."""

    version: int = VERSION
    boxes: dict[str, dict[str, tuple[PersonTick, ...]]] = {}


def ticks_path(env: Mapping[str, str]) -> Path:
    """Return the file that they are kept in."""
    return state_directory(env) / "ticks.json"


def say_tick(
    spec: BoxSpec, check: str, tick: PersonTick, env: Mapping[str, str] = os.environ
) -> None:
    """Remember what a person says of a check. Blocks for a moment.

    Raises:
        TicksError: it cannot be kept; what was there is as it was.
    """
    path = ticks_path(env)
    made = PersonTick(
        ticked=tick.ticked,
        at=tick.at,
        by=clean(tick.by).strip()[:LONGEST_NAME],
        note=clean(tick.note).strip()[:LONGEST_NOTE],
    )
    try:
        with alone(path):
            kept = _read(path)
            of_box = kept.boxes.get(place_of(spec), {})
            said = (*of_box.get(check, ()), made)[-MOST_WORDS:]
            boxes = {**kept.boxes, place_of(spec): {**of_box, check: said}}
            publish(path, msgspec.json.encode(_Kept(boxes=boxes)))
    except OSError as error:
        raise TicksError(f"{path}: {error.strerror or error}; nothing was ticked") from error


def ticks_of(spec: BoxSpec, env: Mapping[str, str] = os.environ) -> Ticks:
    """Return what was said of a box's checks; the file is read again only where it has changed.

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
    return _remembered(path, found.st_mtime_ns, found.st_size).boxes.get(place_of(spec), {})


@functools.lru_cache(maxsize=4)
def _remembered(path: Path, changed: int, length: int) -> _Kept:
    return _read(path)


def _read(path: Path) -> _Kept:
    try:
        with path.open("rb") as file:
            kept = msgspec.json.decode(file.read(MOST_BYTES), type=_Kept)
    except FileNotFoundError:
        return _Kept()
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
    """Return the results with what a person has said of those that only a person can judge.

    A check that the readings disprove stays disproved, whatever was ticked.
    """
    return tuple(_said(result, ticks.get(result.id, ())) for result in results)


def _said(result: CheckResult, said: tuple[PersonTick, ...]) -> CheckResult:
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
    note = f", was: {before.note}" if before is not None and before.note else ""
    return msgspec.structs.replace(result, evidence=f"unticked by {by}{note}", at=last.at)
