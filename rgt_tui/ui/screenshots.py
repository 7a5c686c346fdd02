"""Where a screenshot goes: to the working directory, else to rgt's state directory; never over another file."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from rgt_tui.files import state_directory
from rgt_tui.ui.enduring import short
from rgt_tui.ui.notation import clean

TRIES = 100


def _places(env: Mapping[str, str]) -> Iterator[Path]:
    with contextlib.suppress(OSError):  # the working directory may have been removed
        yield Path.cwd()
    yield state_directory(env) / "screenshots"


def write_screenshot(svg: str, env: Mapping[str, str]) -> str:
    """Write a screenshot; return what to say of it."""
    why = ""
    for place in _places(env):
        try:
            path = _written(place, svg)
        except OSError as error:
            why = why or f"{clean(str(place))}: {clean(error.strerror or str(error))}"
            continue
        said = f"the screen is in {clean(short(path))}"
        return f"{said} ({why})" if why else said
    return f"no screenshot could be written: {why}"


def _written(place: Path, svg: str) -> Path:
    place.mkdir(parents=True, exist_ok=True, mode=0o700)
    stem = f"rgt-{time.strftime('%Y%m%d-%H%M%S')}"
    for number in range(TRIES):
        path = place / (f"{stem}-{number}.svg" if number else f"{stem}.svg")
        try:
            file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
        except FileExistsError:
            continue
        with os.fdopen(file, "w", encoding="utf-8") as out:
            out.write(svg)
        return path
    raise FileExistsError(17, f"{TRIES} of this second are there")
