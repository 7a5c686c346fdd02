"""The ``launch`` verb: make a job, run its smoke command, check it, start it and watch it."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import zlib

from rgt_box import files, jsonline, options, ownership, place, procstat, secret_store
from rgt_box.background import error_text, write_error_text
from rgt_box.checkpoint_search import CheckpointSearch
from rgt_box.metrics import formats
from rgt_box.metrics.jsonl import RunMetrics
from rgt_box.queue import (
    cell_command,
    cell_process,
    detach,
    job_making,
    queue_check,
    queue_file,
    queue_state,
)
from rgt_box.queue.queue_file import Job
from rgt_box.recorder import state_files
from rgt_box.sampling.processes import SMOKE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable

    from rgt_wire import JsonObject


HELP = """
usage: launch --job DIR [--from NAME] [--seconds S] [--no-smoke] [--smoke-seconds S]
       launch --make [--seconds S] [--no-smoke]
       launch --find

Launch a queue in one go: its smoke command first ("smoke" in job.json, or the reference trainer's own), then what
"queue check" and "detach" do, then check how it begins: alive, first line, first step, no traceback. A runner that
is alive is left alone, and reported. With --make the job comes as one JSON object on standard input; one with the same
command, environment, name and code that has begun before is not started again, only reported, and nothing is started
while another job runs the same command with other code ("others"), unless "again" is true. --find only looks.

Prints JSON lines: {"phase": "job"}, {"phase": "smoke"}, {"phase": "check"}, what detach prints, {"phase": "begins"}.

  --seconds S        wait at most this long for the first step (default: 60)
  --no-smoke         start without the smoke command
  --smoke-seconds S  how long the smoke command may take (default: 600)

Exit status: 0 alive, done, or waiting in Slurm's queue, 1 it died, the smoke command failed, or others run, 2 it
cannot be run.

Example: launch --job ~/jobs/sweep
"""
SPEC = {
    "--job": "str", "--make": "flag", "--find": "flag", "--from": "str", "--seconds": "float",
    "--no-smoke": "flag",
    "--smoke-seconds": "float",
}  # fmt: skip
OK, FAILED, USAGE = 0, 1, 2
SECONDS, SMOKE_S = 60.0, 600.0
MOST_INPUT = 1 << 20
LOG = "smoke.log"
MAKING_LOCK, MAKING_WAITS_S = "jobs.lock", 30.0
"""In the state directory. Locked while a job is searched for and made, so that two launches of the
same command see each other.
"""
ALIVE, QUEUED, DONE, DIED, TROUBLE, STILL = (
    "alive",
    "queued",
    "done",
    "died",
    "trouble",
    "not-started",
)
"""Results of `JobBeginning.watch_start`. Trouble: it runs, but its log ends in a traceback. Not
started: no cell has run yet, and no runner is active.
"""
BEGUN_WELL = (ALIVE, QUEUED, DONE)
CHECK_EVERY_S, CHECK_RARELY_S = 0.1, 2.0
TAIL_LINES, TAIL_BYTES, LINE_CHARS = 60, 64 << 10, 1000
TRACEBACK = b"Traceback (most recent call last)"


def main(argv: list[str]) -> int:
    """Run the verb; return the exit status."""
    found = options.parse_or_exit(argv, SPEC, HELP)
    if [bool(found["job"]), found["make"], found["find"]].count(True) != 1:
        return _print_usage_error("give one of --job DIR, --make and --find")
    if found["seconds"] is None:
        seconds = SECONDS
    else:
        seconds = found["seconds"]
    try:
        if found["job"]:
            return launch_job(queue_file.Job(found["job"]), found, seconds)
        asked = jsonline.loads_dict(sys.stdin.buffer.read(MOST_INPUT))
        if asked is None:
            return _print_usage_error("standard input is not a JSON object")
        if found["find"]:
            job_making.check_request(asked)
            known = job_making.find_job(asked)
            if not known.begun:
                # Before gigabytes of code are pushed for a job that could not keep its results.
                job_making.refuse_unwritable(asked.get("durable"))
            _print_masked_row(
                {"phase": "job", "folder": known.same, "begun": known.begun, "others": known.others}
            )
            return OK
        made, held = _make_job(asked)
        _print_masked_row(dict(made, phase="job"))
        if made.get("others"):
            return FAILED
        if not made["same"]:
            return USAGE
        return launch_job(queue_file.Job(made["folder"]), found, seconds, once=True, held=held)
    except job_making.JobNotMade as error:
        return _print_usage_error(str(error))
    except OSError as error:
        return _print_usage_error(write_error_text(error, found["job"] or "job"))


def _make_job(asked: JsonObject) -> tuple[JsonObject, files.FileLock | None]:
    """Make a job unless it exists or its command runs.

    Return `job_making.make_job`'s result and the launch lock.

    Raises:
        job_making.NotMade: Nothing was made.
    """
    ownership.ensure_private_folder(place.state_dir())
    making = files.FileLock(os.path.join(place.state_dir(), MAKING_LOCK))
    if not making.acquire(MAKING_WAITS_S):
        raise job_making.JobNotMade(
            f"another rgt is making a job on this box, for more than {MAKING_WAITS_S:g} s"
        )
    try:
        known = job_making.find_job(asked)
        if not asked.get("again"):
            if known.same is not None and known.begun:
                return job_making.describe_existing(known.same, asked) or {}, None
            if known.others:
                return {
                    "folder": known.same,
                    "made": False,
                    "same": False,
                    "others": known.others,
                }, None
        made = job_making.make_job(asked)
        if not made["same"]:
            return made, None
        _put_secrets(made["folder"], asked)
        # Before the other lock is released: from here on other launches see this job as running.
        held = files.FileLock(os.path.join(made["folder"], job_making.LAUNCH_LOCK))
        return made, held if held.acquire(0.0) else None
    finally:
        making.release()


def _put_secrets(folder: str, asked: JsonObject) -> None:
    """Store the secrets that came with a job, for its cells only.

    Raises:
        job_making.NotMade: A secret cannot be stored where only this user can read it.
    """
    secrets = asked.get("secrets")
    for name, value in (secrets if isinstance(secrets, dict) else {}).items():
        data = str(value).encode("utf-8", "surrogateescape")
        try:
            secret_store.store_secret(
                str(name), data, None, folder, list(asked.get("outlives") or [])
            )
        except secret_store.SecretNotStored as error:
            raise job_making.JobNotMade(
                f"the secret {name} was not stored, and nothing was started: {error}"
            ) from error


def launch_job(
    job: queue_file.Job,
    found: JsonObject,
    seconds: float,
    once: bool = False,
    held: files.FileLock | None = None,
) -> int:
    """Launch a job, one at a time.

    Args:
        job: The job.
        found: The options.
        seconds: How long to watch its start.
        once: Do not start a job that was started before.
        held: Its launch lock, if this process has acquired it; it is released here.
    """
    if not os.path.isdir(job.folder):
        return _print_usage_error(f"{job.folder} is not a directory")
    if held is None:
        held = files.FileLock(job.path(job_making.LAUNCH_LOCK))
        if not held.acquire(_smoke_seconds(found) + SECONDS):
            return _print_usage_error(f"{job.folder} is being launched by another process")
    try:
        slurm = job.settings["detach"] == "slurm"
        if job_making.has_begun(job) if once else queue_state.is_runner_alive(job):
            _print_masked_row({"phase": "stands"})
            return _watch_beginning(job, JobBeginning(job, fresh=False), seconds, slurm)
        state_files.register_job(job.folder)
        code = _run_smoke_once(job, found)
        if code == OK:
            code = _check_queue(job, found["from"])
        if code != OK:
            return code
        beginning = JobBeginning(job, fresh=True)
        code = detach.main(
            ["--job", job.folder] + (["--", "--from", found["from"]] if found["from"] else [])
        )
        sys.stdout.buffer.flush()
    finally:
        held.release()
    return code or _watch_beginning(job, beginning, seconds, slurm)


def _watch_beginning(
    job: queue_file.Job, beginning: JobBeginning, seconds: float, slurm: bool
) -> int:
    found = beginning.watch_start(seconds, (lambda: in_slurm(job)) if slurm else None)
    _print_masked_row(dict(found, phase="begins"))
    if found["verdict"] in BEGUN_WELL:
        return OK
    return FAILED


def in_slurm(job: queue_file.Job) -> tuple[str, str] | None:
    """Return number and state of the job's Slurm submission.

    ("?", Slurm's error) if the query failed.
    """
    try:
        return detach.waiting_in_slurm(job)
    except detach.SlurmRefused as error:
        return "?", str(error)


def _check_queue(job: queue_file.Job, start: str | None) -> int:
    checked = queue_check.check_queue(job, start)
    env = {**os.environ, **job.settings["env"]}
    # A platform's hook may bring its own Python, and so may the node that Slurm chooses.
    hooked = {cell_command.ENV, cell_command.PROXY} & queue_file.platform_hooks(
        place.state_dir()
    ).keys()
    fixed = not hooked and job.settings["detach"] != "slurm"
    if fixed and queue_file.command_words(job.settings["command"])[:1] == ["python"]:
        hint = cell_process.python_hint(env.get("PATH", os.defpath))
        checked.problems += [hint] if hint else []
    _print_masked_row(
        {
            "phase": "check",
            "cells": len(checked.lines),
            "problems": checked.problems,
            "notes": checked.notes,
        }
    )
    if checked.problems:
        return USAGE
    return OK


def smoke_words(job: queue_file.Job) -> list[str] | None:
    """Return the job's own smoke command, or the reference trainer's; None if neither is known."""
    own = (files.read_json(job.path("job.json")) or {}).get("smoke")
    py = job.settings["py"] or sys.executable
    if isinstance(own, str) and own.strip():
        return job_making.shell_words(
            queue_file.fill_template(own, {"py": queue_file.quote_for_shell(py)})
        )
    if isinstance(own, list) and own:
        return [queue_file.fill_template(str(word), {"py": py}) for word in own]
    words = queue_file.command_words(job.settings["command"])
    for at, word in enumerate(words):
        base = os.path.basename(word)
        if word == "rgt_train" or (base.startswith("rgt-train-") and base.endswith(".pyz")):
            return [queue_file.fill_template(one, {"py": py}) for one in words[: at + 1]] + [
                "--smoke",
                "2",
            ]
    return None


def _run_smoke_once(job: queue_file.Job, found: JsonObject) -> int:
    """Run the smoke command, unless the same one has passed before."""
    if found["no-smoke"]:
        _print_masked_row({"phase": "smoke", "known": None})
        return OK
    words = smoke_words(job)
    if words is None:
        _print_masked_row({"phase": "smoke", "known": False})
        return OK
    # Other code in the same job has not passed.
    code = job.workdir, queue_state.code_version(job.workdir, edits=True)
    about = {"words": words, "command": job.settings["command"], "env": job.settings["env"]}
    digest = f"{zlib.crc32(jsonline.dumps(dict(about, code=code))):08x}"
    before = files.read_json(job.path(SMOKE)) or {}
    if before.get("digest") == digest and before.get("ok") is True:
        _print_masked_row({"phase": "smoke", "known": True, "ok": True, "before": True})
        return OK
    row = dict(run_smoke(job, words, _smoke_seconds(found)), phase="smoke", known=True)
    result = {"digest": digest, "ok": row["ok"], "at": round(time.time(), 3)}
    files.write_json(job.path(SMOKE), result)
    _print_masked_row(row)
    if row["ok"]:
        return OK
    return FAILED


def run_smoke(job: queue_file.Job, words: list[str], seconds: float) -> JsonObject:
    """Run a smoke command like a cell.

    Returns ``ok``, ``exit``, ``seconds``, ``log``, ``tail`` and ``reason``.
    """
    os.makedirs(job.path("logs"), exist_ok=True)
    log = job.path("logs", LOG)
    env = queue_file.platform_environment(place.state_dir())
    env.update(os.environ, PYTHONUNBUFFERED="1", RGT_SMOKE="1")
    env.update({str(key): str(value) for key, value in job.settings["env"].items()})
    # A directory of its own, on the same disk: the run would resume from a smoke's checkpoint.
    scratch = make_scratch(os.path.dirname(job.run_folder("smoke") or job.path("smoke")))
    began = time.monotonic()
    reason = None
    status: int | None = None
    try:
        env[cell_command.OUT] = scratch
        env.update(secret_store.secrets_of_job(job.folder)[0])
        words = cell_command.wrap_with_hooks(
            words, queue_file.platform_hooks(place.state_dir()), env
        )
        with open(log, "wb") as out:
            try:
                child = subprocess.Popen(
                    words,
                    cwd=job.workdir,
                    env=env,
                    stdin=subprocess.DEVNULL,
                    stdout=out,
                    stderr=out,
                    start_new_session=True,
                )
            except OSError as error:
                reason = f"could not be started: {error_text(error)}"
            else:
                # So that the recorder can attribute the process to the job.
                running = {"pid": child.pid, "ticks": procstat.start_ticks(child.pid)}
                files.write_json(job.path(SMOKE), {"running": running})
                try:
                    status = child.wait(seconds)
                except subprocess.TimeoutExpired:
                    reason = f"did not exit within {seconds:g} s"
                finally:
                    try:
                        os.killpg(
                            child.pid, signal.SIGKILL
                        )  # also the processes that it has left running
                    except OSError:
                        pass
                    child.wait()
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    end = files.read_tail(log, 16384)
    tail = end.decode("utf-8", "replace").splitlines()[-40:]
    if reason is None and status:
        if status > 0:
            reason = "exit %d" % status
        else:
            reason = "killed by signal %d" % -status
        reason += cell_process.describe_missing_python(status, end, env.get("PATH", os.defpath))
    return {
        "ok": status == 0, "exit": status, "seconds": round(time.monotonic() - began, 1),
        "log": log,
        "reason": reason, "tail": [line[:1000] for line in tail],
    }  # fmt: skip


def make_scratch(parent: str) -> str:
    """Make a directory for what a smoke command writes, below `parent` if that can be written."""
    try:
        os.makedirs(parent, exist_ok=True)
        return tempfile.mkdtemp(prefix=".rgt-smoke-", dir=parent)
    except OSError:
        return tempfile.mkdtemp(prefix=".rgt-smoke-")


def _smoke_seconds(found: JsonObject) -> float:
    if found["smoke-seconds"] is None:
        return SMOKE_S
    return float(found["smoke-seconds"])


def _print_usage_error(text: str) -> int:
    print(f"launch: {text}", file=sys.stderr)
    return USAGE


def _print_masked_row(row: JsonObject) -> None:
    masker = secret_store.SecretMasker()
    if masker.reread_secrets():  # the row may contain the last lines of a log
        row = {
            key: masker.mask_line(value) if isinstance(value, str) else value
            for key, value in row.items()
        }
        if isinstance(row.get("tail"), list):
            row["tail"] = [masker.mask_line(str(line)) for line in row["tail"]]
    jsonline.print_frame(row)


# Watch how a newly launched queue starts: whether it is alive, its first line, whether it has
# logged a step.


class JobBeginning:
    """Watches a job from its state when this object was created.

    Args:
        job: The job.
        fresh: Ignore what happened before. Otherwise the running or latest cell is read from its
            start.
    """

    def __init__(self, job: Job, fresh: bool) -> None:
        self._job = job
        self._fresh = fresh
        self._attempts: dict[str, int] = {}
        self._logs: dict[str, int] = {}
        self._saved: dict[str, list[Any] | None] = {}
        """Step and path of the newest checkpoint that a cell had before the launch."""
        self._sources: dict[str, list[list[Any]]] = {}
        """Cell → reader and cursor of each file that may report its step, the preferred one first.
        """
        for line in job.read_lines()[0] if fresh else ():
            self._logs[line.name] = files.size_or_zero(job.log_path(line.name))
            self._sources[line.name] = self._open_readers(line.name, fresh)
        if fresh:
            cells = queue_state.cells_by_name(queue_state.load_state(job))
            self._attempts = {name: int(cell.get("attempts") or 0) for name, cell in cells.items()}
            undone = [name for name, cell in cells.items() if cell.get("state") != "done"]
            most_cells = 20
            for name in [name for name in undone if self._attempts[name]][:most_cells]:
                self._saved[name] = self._newest_checkpoint(name)
        self._step: dict[str, float] = {}
        self._began: dict[str, float] = {}
        """The first step of each cell since the launch."""
        self._row_cells: set[str] = set()
        """Cells that logged values without a step since the launch: they train."""

    def _newest_checkpoint(self, name: str) -> list[Any] | None:
        """Return step and path of a cell's newest checkpoint; None = unknown, or counted otherwise."""
        out = self._job.run_folder(name)
        if not out:
            return None
        path = os.path.join(out, "metrics.jsonl")
        seen = files.signature(path)
        saved = [
            (one.step, one.path)
            for one in CheckpointSearch(out, waits=False).poll_checkpoints()
            if one.step is not None and not one.unfinished
        ]
        if seen is None or not saved:
            return None
        tail_bytes = 64 << 10
        cursor = {"inode": seen[0], "offset": max(0, seen[1] - tail_bytes)}
        points = RunMetrics(path).read(cursor, 2000).points
        top = max((point.x for point in points if point.x_kind == "step"), default=0.0)
        step, newest = max(saved)
        # Some count epochs or images.
        if not 0.05 * top <= step <= 2.5 * top:
            return None
        return [step, newest]

    def _open_readers(self, name: str, fresh: bool) -> list[list[Any]]:
        path = os.path.join(self._job.run_folder(name) or "", "metrics.jsonl")
        log = self._job.log_path(name)
        found: list[list[Any]] = [
            [RunMetrics(path), None],
            [formats.open_reader("console", log), None],
        ]
        for one, file in zip(found, (path, log)):
            if fresh:
                seen = files.signature(file)
            else:
                seen = None
            if seen is not None:
                one[1] = {"inode": seen[0], "offset": seen[1]}
        return found

    def watch_start(self, seconds: float, slurm: Callable[[], Any] | None = None) -> JsonObject:
        """Poll until it is clear how the job starts, or the time is up.

        Args:
            seconds: Time limit.
            slurm: Queries Slurm for (number, state) of the submission; None if Slurm is not used.

        Returns:
            ``verdict``, and if known ``cell``, ``state``, ``reason``, ``exit_code``, ``pid``,
            ``first``, ``step``, ``traceback``, ``tail``, ``log``, ``seconds``, ``slurm``, and of a
            cell that ran before ``began`` (its first step now) and ``saved`` (step and path of the
            newest checkpoint that it had).
        """
        began = time.monotonic()
        asked_at = float("-inf")
        known = None
        stood = False
        while True:
            now = time.monotonic()
            if slurm is not None and now - asked_at >= CHECK_RARELY_S:
                asked_at = now
                known = slurm()
            found = self._poll_start(known)
            found["seconds"] = round(now - began, 1)
            # The state was read before checking whether the runner is alive: it may have ended in
            # between.
            again = found["verdict"] == STILL and not stood
            stood = found["verdict"] == STILL
            if (found.pop("sure") and not again) or now - began >= seconds:
                return found
            time.sleep(CHECK_EVERY_S)

    def _poll_start(self, slurm: Any) -> JsonObject:
        frame = queue_state.queue_frame(self._job, self._job.folder)
        cell = self._cell_to_report(frame["cells"])
        found: JsonObject = {
            "slurm": list(slurm) if slurm else None,
            "pid": frame.get("runner_pid"),
        }
        if cell is None:
            if slurm:
                return dict(found, verdict=QUEUED, sure=False)
            if frame.get("runner_alive"):
                return dict(found, verdict=ALIVE, sure=False)
            if frame.get("done"):
                verdict = DONE
            else:
                verdict = STILL
            reasons = [one["reason"] for one in frame["cells"] if one.get("reason")]
            return dict(
                found,
                verdict=verdict,
                reason=reasons[0] if reasons else frame.get("error"),
                sure=True,
            )
        found.update(self._describe_cell(cell))
        state = cell.get("state")
        if state == "running":
            stuck = found["traceback"]
            return dict(
                found,
                verdict=TROUBLE if stuck else ALIVE,
                sure=(found["step"] is not None or found["cell"] in self._row_cells) and not stuck,
            )
        if state == "done":
            return dict(
                found, verdict=DONE if queue_state.is_over(frame["cells"]) else ALIVE, sure=True
            )
        # Between two attempts of a cell the runner is alive, and tries again.
        again = bool(frame.get("runner_alive")) and int(cell.get("attempts") or 0) <= int(
            self._job.settings["retries"]
        )
        return dict(found, verdict=DIED, sure=not again)

    def _cell_to_report(self, cells: list[JsonObject]) -> JsonObject | None:
        """Return the cell to report: a failed one, a running one, or the latest one."""
        begun = [
            cell
            for cell in cells
            if int(cell.get("attempts") or 0) > self._attempts.get(str(cell["name"]), 0)
        ]
        failed = [cell for cell in begun if cell.get("state") == "failed"]
        at_work = [cell for cell in begun if cell.get("state") == "running"]
        told = (failed or at_work if self._fresh else at_work or failed) or begun
        return max(told, key=lambda cell: float(cell.get("started") or 0.0), default=None)

    def _describe_cell(self, cell: JsonObject) -> JsonObject:
        name = str(cell["name"])
        log = str(cell["log"])
        tail, first = self._log_since_launch(name, log)
        step = self._newest_step(name)
        lines = tail.decode("utf-8", "replace").splitlines()
        return {
            "cell": name, "state": cell.get("state"), "reason": cell.get("reason"), "log": log,
            "exit_code": cell.get("exit_code"), "attempts": cell.get("attempts"), "first": first,
            "step": step,
            "began": self._began.get(name), "saved": self._saved.get(name),
            "out": cell.get("out"),
            "traceback": TRACEBACK in tail and not _continues_after_traceback(tail),
            "tail": [line[:LINE_CHARS] for line in lines[-TAIL_LINES:]],
        }  # fmt: skip

    def _log_since_launch(self, name: str, log: str) -> tuple[bytes, str | None]:
        """Return the end and the first line of the log since the launch."""
        since = self._logs.get(name, 0)
        try:
            with open(files.open_regular(log), "rb") as file:
                size = file.seek(0, os.SEEK_END)
                if since > size:
                    since = 0
                file.seek(since)
                head = file.read(4096)
                file.seek(max(since, size - TAIL_BYTES))
                tail = file.read(TAIL_BYTES)
        except OSError:
            return b"", None
        rows = [row for row in head.replace(b"\r", b"\n").split(b"\n") if row.strip()]
        return tail, rows[0].decode("utf-8", "replace")[:LINE_CHARS] if rows else None

    def _newest_step(self, name: str) -> float | None:
        """Return the newest step logged since the launch, from the run's metrics or its log."""
        most_points = 2000
        for source in self._sources.setdefault(name, self._open_readers(name, False)):
            batch = source[0].read(source[1], most_points)
            source[1] = batch.cursor
            if any(point.x_kind == "row" for point in batch.points):
                self._row_cells.add(name)
            steps = [point.x for point in batch.points if point.x_kind in ("step", "epoch")]
            if steps:
                self._step[name] = steps[-1]
                if batch.points[0].x_kind == "step":
                    self._began.setdefault(name, steps[0])
                break
        return self._step.get(name)


def _continues_after_traceback(tail: bytes) -> bool:
    """Return whether output follows the traceback: a handled error is followed by other lines."""
    behind = tail[tail.rindex(TRACEBACK) + len(TRACEBACK) :].splitlines()
    # The frames are indented, the error itself is the one unindented line; a program that continues
    # prints more.
    # An error message may have several lines, and be followed by another error.
    message_lines = 8
    return (
        sum(bool(line.strip()) and not line.startswith((b" ", b"\t")) for line in behind)
        > message_lines
    )


def wait_until_done(job: Job, seconds: float, slurm: Callable[[], Any] | None = None) -> JsonObject:
    """Return the ``queue`` frame once no runner works on the job any more, or the time is up.

    Args:
        job: The job.
        seconds: Time limit.
        slurm: As for `JobBeginning.watch_start`; a job that waits in Slurm's queue is ``queued``,
            not over.
    """
    until = time.monotonic() + seconds
    asked_at = float("-inf")
    known = None
    while True:
        frame = queue_state.queue_frame(job, job.folder)
        now = time.monotonic()
        if slurm is not None and now - asked_at >= CHECK_RARELY_S:
            asked_at = now
            known = slurm()
        frame["queued"] = known is not None
        if not (frame.get("runner_alive") or known) or now >= until:
            return frame
        time.sleep(CHECK_EVERY_S)
