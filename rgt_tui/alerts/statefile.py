"""``alerts.json``: mutes, what was raised, what the sinks were told. Atomic; two rgt at once are safe."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec

from rgt_tui.alerts.mute import Mute
from rgt_tui.files.own import alone, publish, state_directory
from rgt_tui.health.remembered import Past
from rgt_tui.model.alert import Alert
from rgt_tui.model.box import BoxSpec

KEEP_S = 90 * 86400.0
"""What was not touched for so long belongs to boxes that are no more."""
MAX_BYTES = 16 << 20
VERSION = 1


class Told(msgspec.Struct, frozen=True):
    """What a sink was last told of one alert."""

    level: str
    at: float
    over: bool = False
    """It was told that it is over, or need not be."""


class Notes(msgspec.Struct, frozen=True):
    """What held on one box."""

    alerts: tuple[Alert, ...] = ()
    past: Past = Past()
    at: float = 0.0
    covered: tuple[str, ...] = ()
    """Ids of alerts that held as well, and in whose place something else was shown or had been told."""


class _Version(msgspec.Struct):
    version: int = VERSION


class Stored(msgspec.Struct, frozen=True):
    """The whole file."""

    version: int = VERSION
    mutes: tuple[Mute, ...] = ()
    boxes: dict[str, Notes] = {}
    told: dict[str, dict[str, Told]] = {}
    """Sink → ``BOX ALERT`` → what."""


def default_path(env: Mapping[str, str]) -> Path:
    """Return ``$XDG_STATE_HOME/rgt/alerts.json``, by default below ``~/.local/state``; a relative value is ignored."""
    return state_directory(env) / "alerts.json"


def key_of(spec: BoxSpec) -> str:
    """Return what a box is called here: of two fleets, both may have a box of one name."""
    return f"{spec.name}@{spec.host}"


def load(path: Path) -> Stored:
    """Read the file. One that is damaged is set aside beside it, so that nothing is lost; then all is empty.

    Raises:
        OSError: it is there and cannot be read, or a newer rgt has written it.
    """
    try:
        with path.open("rb") as file:
            data = file.read(MAX_BYTES)
    except FileNotFoundError:
        return Stored()
    try:
        if msgspec.json.decode(data, type=_Version).version > VERSION:
            raise OSError("a newer rgt has written it: update this one; it is left as it is")
        return msgspec.json.decode(data, type=Stored)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        with contextlib.suppress(OSError):
            path.replace(path.with_name(path.name + ".damaged"))
        return Stored()


def update(path: Path, change: Callable[[Stored], Stored], now: float) -> Stored:
    """Apply `change` to what is in the file now, whoever wrote it, and return the result. Blocks for a moment.

    Raises:
        OSError: it cannot be written, or its lock is not let go of; the file is then as it was.
    """
    with alone(path):
        old = load(path)
        new = change(old)
        if new is not old:
            publish(path, msgspec.json.format(msgspec.json.encode(_kept(new, now)), indent=1))
        return new


def _kept(stored: Stored, now: float) -> Stored:
    boxes = {key: notes for key, notes in stored.boxes.items() if now - notes.at < KEEP_S}
    told = {
        sink: {key: what for key, what in known.items() if now - what.at < KEEP_S}
        for sink, known in stored.told.items()
    }
    return msgspec.structs.replace(stored, boxes=boxes, told=told)


def stamp(path: Path) -> tuple[int, int]:
    """Return what changes whenever somebody writes the file; (0, 0) where there is none.

    Raises:
        OSError: it cannot be looked at.
    """
    try:
        found = path.stat()
    except FileNotFoundError:
        return 0, 0
    return found.st_ino, found.st_mtime_ns
