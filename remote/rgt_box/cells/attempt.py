"""One attempt of one cell: started, awaited, judged, kept. Every step is on disk before the next."""

from __future__ import annotations

import os
import time
import zlib

from rgt_box import files
from rgt_box.background import describe
from rgt_box.cells import durable, memory, outcome, process, usual
from rgt_box.cells.jobfile import Job, Line
from rgt_box.cells.journal import Journal, now

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

TAIL = 4096
"""Bytes at the end of a log in which a bare ``Killed`` is looked for."""

CHANGED = "its config changed between attempts: its result is not comparable as it stands"


def run(job: Job, line: Line, words: list[str], journal: Journal) -> int | None:
    """Run one attempt.

    Args:
        job: The job.
        line: The cell.
        words: Its command, the same for every attempt.
        journal: Where everything is written down.

    Returns:
        The signal that the runner was stopped with meanwhile, if any.
    """
    cell = journal.cell(line.name)
    cell.update(state="running", attempts=int(cell.get("attempts") or 0) + 1, started=now(), ended=None)
    cell.update(exit_code=None, signal=None, reason=None)
    note_config(job, line, cell)
    journal.mark("START %s attempt=%d" % (line.name, cell["attempts"]))
    log = job.log(line.name)
    before, watch, began = _length(log), memory.Watch(), time.monotonic()
    try:
        child = process.Process(
            words, job.workdir, environment(job, line), log, int(job.settings["nice"])
        )  # fmt: skip
    except OSError as error:
        reason = "could not be started: %s" % describe(error)
        cell.update(state="failed", exit_code=outcome.NOT_EXECUTABLE, ended=now(), reason=reason)
        journal.mark("FINISHED %s exit=%d" % (line.name, outcome.NOT_EXECUTABLE))
        return None
    journal.state.update(cell_pid=child.pid, cell_ticks=child.ticks)
    journal.save()
    child.release()
    status, stopped = child.wait()
    del journal.state["cell_pid"], journal.state["cell_ticks"]
    usual.add(cell, time.monotonic() - began)
    name = outcome.signal_name(stopped) if stopped else None
    ended = outcome.judge(status, name, watch.verdict(), _tail(log, before) if status else b"")
    shown = outcome.shown_exit(status)
    if ended["state"] == "done":
        ended.update(keep(job, line))
        shown = 0 if ended["state"] == "done" else 1
    cell.update(ended, ended=now(), best=best_of(cell.get("out")))
    _flag(cell, journal)
    journal.mark("FINISHED %s exit=%d" % (line.name, shown))
    journal.save()
    return stopped


def note_config(job: Job, line: Line, cell: dict[str, Any]) -> bool:
    """Compare the config with the one of the attempt before; returns True when it is another one now."""
    data = files.read(job.config(line))
    # A checksum against accidents: a cryptographic one would load libcrypto into every runner.
    digest = None if data is None else "%d-%08x" % (len(data), zlib.crc32(data))
    before = cell.get("config_digest")
    cell["config_digest"] = digest
    changed = before is not None and before != digest
    cell["config_changed"] = changed or bool(cell.get("config_changed"))
    return changed


def _flag(cell: dict[str, Any], journal: Journal) -> None:
    """Say what is odd about a cell that ended by itself."""
    if cell["state"] == "interrupted":
        return
    found = [usual.flag(cell, journal.everyone()), CHANGED if cell.get("config_changed") else None]
    cell["flag"] = "; ".join(text for text in found if text) or None
    if cell["flag"]:
        journal.say("%s: %s" % (cell["name"], cell["flag"]))


def keep(job: Job, line: Line) -> dict[str, Any]:
    """Copy a finished run to durable storage; only a verified copy makes it done."""
    target, out = job.durable(line.name), job.out(line.name)
    if not target or not out:
        return {"state": "done", "durable": None}
    try:
        kept = durable.copy_verified(out, list(job.settings["keep"]), target, job.log(line.name))
    except durable.CopyFailed as error:
        return {"state": "failed", "durable": "failed", "reason": "the durable copy failed: %s" % error}
    if not kept:
        reason = "it ended with 0 but left nothing to keep in %s" % out
        return {"state": "failed", "durable": "failed", "reason": reason}
    return {"state": "done", "durable": "verified", "durable_path": target}


def environment(job: Job, line: Line) -> dict[str, str]:
    """Return the environment of a cell; the job's own wins."""
    env = dict(os.environ, PYTHONUNBUFFERED="1", RGT_CELL=line.name)
    env.update({str(key): str(value) for key, value in job.settings["env"].items()})
    return env


def best_of(out: str | None) -> float | None:
    """Return the best metric of a run: ``value`` of best.json, else ``best`` of result.json."""
    if not out:
        return None
    for name, key in (("best.json", "value"), ("result.json", "best")):
        value = (files.read_json(os.path.join(out, name), 1 << 20) or {}).get(key)
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            return float(value)
    return None


def _length(path: str) -> int:
    try:
        return os.stat(path).st_size
    except OSError:
        return 0


def _tail(path: str, since: int) -> bytes:
    """Return the end of a log, of what was written after the byte `since` only."""
    try:
        with open(files.open_regular(path), "rb") as file:
            file.seek(max(since, file.seek(0, os.SEEK_END) - TAIL))
            return file.read(TAIL)
    except OSError:
        return b""
