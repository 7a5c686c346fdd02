"""Exports: curves as a picture or as points, by the file's suffix; phases as a Markdown page.

SVG and CSV need no further package; PNG is made from the SVG if resvg-py is installed.
"""

from __future__ import annotations

import csv
import importlib
import importlib.util
import io
import math
import os
import re
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

from rgt_tui.files import here_or, note_written, state_directory, write_new
from rgt_tui.language import translate
from rgt_tui.model import EPOCH, TIME, CheckResult, clean_text
from rgt_tui.ui.notation import compact_time
from rgt_tui.ui.plot.view import ShownRun
from rgt_tui.ui.widgets.checklist import STATUS_WORDS, PhaseChecks

# Only looked for, not imported, until a PNG is made.
PNG_NEEDS = "resvg_py"
ENDINGS = (".svg", ".csv", ".png")


class NotExported(Exception):
    """Nothing was written; the message says why, and what to do."""


def check_suffix(name: str) -> str:
    """Return the suffix of a file name, which decides the format.

    Raises:
        NotExported: This format is not possible.
    """
    ending = Path(name).suffix.lower()
    if ending not in ENDINGS:
        raise NotExported(
            translate(
                "nothing written: the name must end with {endings} or {endings_2}",
                endings=", ".join(ENDINGS[:-1]),
                endings_2=ENDINGS[-1],
            )
        )
    if ending == ".png" and importlib.util.find_spec(PNG_NEEDS) is None:
        raise NotExported(
            translate(
                "nothing written: PNG needs resvg-py (pip install resvg-py); .svg and .csv "
                "need nothing"
            )
        )
    return ending


def propose_file_name(box: str, metric: str) -> str:
    """Return a proposed file name, in characters that every file system allows."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", f"{box}-{metric}").strip("-.") + ".svg"


def export_points(runs: Sequence[ShownRun], metric: str) -> bytes:
    """Return all points of some runs as CSV, in order of arrival.

    The columns are box, run, metric, step, epoch, time and value.
    """
    out = io.StringIO()
    table = csv.writer(out, lineterminator="\n")
    table.writerow(("box", "run", "metric", "step", "epoch", "time", "value"))
    for each in runs:
        series = each.run.series.get(metric)
        if series is None:
            continue
        epochs, times = (dict(each.run.series.get(name, ())) for name in (EPOCH, TIME))
        names = [_disarm_formula(text) for text in (each.box, each.run.name, metric)]
        for step, value in series:
            table.writerow(
                (
                    *names,
                    step,
                    _format_number(epochs.get(step)),
                    _format_time(times.get(step)),
                    # `repr` is the shortest text that reads back as the same number.
                    repr(value),
                )
            )
    return out.getvalue().encode()


def _format_number(value: float | None) -> str:
    if value is None or math.isnan(value):
        return ""
    return repr(value)


def _format_time(at: float | None) -> str:
    try:
        if at is None or math.isnan(at):
            return ""
        return datetime.fromtimestamp(at, UTC).isoformat()
    # Times are as the box reported them, and no calendar may have them.
    except (ValueError, OverflowError, OSError):
        return ""


def _disarm_formula(text: str) -> str:
    """Return a name that no spreadsheet interprets as a formula."""
    plain = clean_text(text)
    # A spreadsheet evaluates a cell that begins with one of these.
    if plain[:1] in ("=", "+", "-", "@"):
        return f"'{plain}"
    return plain


def render_png(svg: str) -> bytes:
    """Return a picture as PNG.

    Raises:
        NotExported: It cannot be made.
    """
    try:
        return bytes(importlib.import_module(PNG_NEEDS).svg_to_bytes(svg_string=svg))
    except Exception as error:  # the library may raise anything
        raise NotExported(
            translate("nothing written: no PNG can be made ({error}); .svg can", error=error)
        ) from error


def phases_markdown(box: str, phases: Sequence[PhaseChecks], now: float) -> str:
    """Return the page; texts from boxes and persons are escaped."""
    checks = [check for phase in phases for check in phase.checks]
    proved = sum(phase.proved_count for phase in phases)
    written = time.strftime("%Y-%m-%d %H:%M %Z", time.localtime(now))
    out = [
        "# " + translate("Phases of {box}", box=escape_markdown(box)),
        "",
        translate(
            "{written}: {proved} of {checks} proved.",
            written=written,
            proved=proved,
            checks=len(checks),
        ),
        "",
    ]
    for phase in phases:
        if not phase.checks:
            continue
        out += [f"## {phase.number} {phase.name} ({phase.proved_count}/{len(phase.checks)})", ""]
        out += [format_task_item(check, now) for check in phase.checks]
        out.append("")
    return "\n".join(out).rstrip("\n") + "\n"


def format_task_item(check: CheckResult, now: float) -> str:
    """Return a check as an item of a task list."""
    done = STATUS_WORDS[check.status] == "proved"
    if check.by:
        word = translate("ticked by {by}", by=escape_markdown(check.by))
    else:
        word = STATUS_WORDS[check.status]
    if check.at is None:
        age = ""
    else:
        age = translate(", {age} old", age=compact_time(max(0.0, now - check.at)))
    evidence = ""
    if check.evidence:
        evidence = f": {escape_markdown(check.evidence)}"
    advice = ""
    if check.advice:
        advice = translate("; advice: {advice}", advice=escape_markdown(check.advice))
    return (
        f"- [{'x' if done else ' '}] {check.id} {escape_markdown(check.title)} "
        f"({word}{age}){evidence}{advice}"
    )


def escape_markdown(text: str) -> str:
    """Return text without active Markdown or HTML markup."""
    return re.sub(r"([\\`*_{}\[\]<>#|!~&])", r"\\\1", " ".join(clean_text(text).split()))


def export_name(box: str, now: float) -> str:
    """Return the file name of an export of phases."""
    plain = re.sub(r"[^A-Za-z0-9._-]+", "-", box).strip(".-")[:60] or "box"
    return f"phases-{plain}-{time.strftime('%Y%m%d-%H%M%S', time.localtime(now))}.md"


def write_export(name: str, content: bytes, env: Mapping[str, str] = os.environ) -> Path:
    """Write a new file; if the name exists, add a number.

    A relative name is relative to the current directory or, if that is not writable, to rgt's state
    directory.

    Raises:
        NotExported: Neither can be written.
    """
    try:
        given = Path(name).expanduser()
    except RuntimeError as error:  # there is no such user
        raise NotExported(translate("nothing written: {why}", why=f"{name}: {error}")) from error
    own = state_directory(env) / "exports"
    why = ""
    # An absolute path is the person's choice; nothing else is tried.
    for folder in [given.parent] if given.is_absolute() else here_or(own):
        try:
            # Only rgt's own directory is created; a wrong name must not create directories.
            if folder == own:
                folder.mkdir(parents=True, exist_ok=True, mode=0o700)
                return write_new(folder / given.name, content)
            path = write_new(folder / given, content)
            note_written([path], env)
            return path
        except OSError as error:
            why = why or f"{(folder / given).parent}: {error.strerror or error}"
    raise NotExported(translate("nothing written: {why}", why=why))
