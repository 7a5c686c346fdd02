"""Curves into a file: a picture or the points, by the ending of its name.

SVG and CSV need nothing; a PNG is made from the SVG where resvg-py happens to be installed.
"""

from __future__ import annotations

import csv
import importlib
import importlib.util
import io
import math
import os
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

from rgt_tui.files import state_directory
from rgt_tui.model.run import EPOCH, TIME
from rgt_tui.ui.notation import clean
from rgt_tui.ui.plot.view import Shown

PNG_NEEDS = "resvg_py"
ENDINGS = (".svg", ".csv", ".png")
MOST_TRIES = 1000


class NotExported(Exception):
    """Nothing was written; the message says why, and what to do."""


def wanted(name: str) -> str:
    """Return the ending that says what is written.

    Raises:
        NotExported: Nothing like that can be.
    """
    ending = Path(name).suffix.lower()
    if ending not in ENDINGS:
        raise NotExported(
            f"nothing written: let the name end with {', '.join(ENDINGS[:-1])} or {ENDINGS[-1]}"
        )
    if ending == ".png" and importlib.util.find_spec(PNG_NEEDS) is None:
        raise NotExported(
            "nothing written: PNG needs resvg-py (pip install resvg-py); .svg and .csv need nothing"
        )
    return ending


def proposed(box: str, metric: str) -> str:
    """Return a name for the file: letters that every file system takes."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", f"{clean(box)}-{clean(metric)}").strip("-.") + ".svg"


def points(runs: Sequence[Shown], metric: str) -> bytes:
    """Return all points of some runs in the order in which they came: box, run, metric, step, epoch, time, value."""
    out = io.StringIO()
    table = csv.writer(out, lineterminator="\n")
    table.writerow(("box", "run", "metric", "step", "epoch", "time", "value"))
    for each in runs:
        series = each.run.series.get(metric)
        if series is None:
            continue
        epochs, times = (dict(each.run.series.get(name, ())) for name in (EPOCH, TIME))
        names = [_inert(text) for text in (each.box, each.run.name, metric)]
        for step, value in series:
            table.writerow((*names, step, _number(epochs.get(step)), _moment(times.get(step)), repr(value)))
    return out.getvalue().encode()


def _number(value: float | None) -> str:
    return "" if value is None or math.isnan(value) else repr(value)


def _moment(at: float | None) -> str:
    try:
        return "" if at is None or math.isnan(at) else datetime.fromtimestamp(at, UTC).isoformat()
    except (ValueError, OverflowError, OSError):
        return ""


def _inert(text: str) -> str:
    """Return a name that no spreadsheet takes for a formula."""
    plain = clean(text)
    return f"'{plain}" if plain[:1] in ("=", "+", "-", "@") else plain


def png(svg: str) -> bytes:
    """Return the PNG of a picture.

    Raises:
        NotExported: It cannot be made.
    """
    try:
        return bytes(importlib.import_module(PNG_NEEDS).svg_to_bytes(svg_string=svg))
    except Exception as error:  # whatever that library says
        raise NotExported(f"nothing written: no PNG can be made ({clean(str(error))}); .svg can") from error


def write(name: str, content: bytes, env: Mapping[str, str]) -> Path:
    """Write a file that is not there yet; one more number in its name where it is.

    A relative name is of the current directory; where nothing can be written there, of rgt's state directory.

    Raises:
        NotExported: Neither can be written.
    """
    given = Path(name).expanduser()
    folders = (
        [given.parent]
        if given.is_absolute()
        else [Path.cwd() / given.parent, state_directory(env) / "exports"]
    )
    why = ""
    for folder in folders:
        try:
            if folder is not folders[0]:
                folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            return _put(folder, given, content)
        except OSError as error:
            why = why or f"{folder}: {error.strerror or error}"
    raise NotExported(f"nothing written: {clean(why)}")


def _put(folder: Path, given: Path, content: bytes) -> Path:
    for number in range(1, MOST_TRIES):
        path = folder / (given.name if number == 1 else f"{given.stem}-{number}{given.suffix}")
        try:
            handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
        except FileExistsError:
            continue
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(content)
        except OSError:
            path.unlink(missing_ok=True)
            raise
        return path
    raise FileExistsError(0, f"there are {MOST_TRIES - 1} files of this name already")
