"""Start a job for one command, set up by its platform's profile, and report its launch."""

from __future__ import annotations

import hashlib
import posixpath
import re
import shlex
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from rgt_tui.fleet.errands import durable_dirs
from rgt_tui.fleet.work.agent_answers import Row, row_count, row_text, row_texts, rows_of
from rgt_tui.fleet.work.queue_split import same_job
from rgt_tui.health import log_finding
from rgt_tui.language import show_recorded, translate
from rgt_tui.model import BoxSpec, Finding, FrozenStruct, Profile, clean_text, how_many

JOBS = "~/jobs"
"""Where the agent creates jobs."""
DETACH = {
    "tmux": "auto",
    "onstart.sh": "auto",
    "setsid": "setsid",
    "sbatch": "slurm",
    "none": "auto",
}
"""Launch method of a profile → ``detach`` of a job."""
NO_DETACH = {
    "k8s-job": (
        "there, work is a separate Job, which the agent prints: detach --job DIR --print "
        "k8s (docs/jobs.md)"
    ),
    "kaggle-commit": "there only a committed notebook outlives the session",
}
"""Platforms on which no process outlives the login, and what to use instead."""
FLEETING = "nothing keeps work going there once the session ends"
IN_POD = "it runs inside the pod, and ends with it; only what lies on a volume claim is kept"
SCRIPTS = (".py", ".sh", ".ipynb")


class CannotRun(ValueError):
    """No job is possible for this; the message says why."""


class PushedCode(NamedTuple):
    """Code that is pushed for a job."""

    digest: str
    """Digest of the entire content (`SourceTree.digest`)."""
    path: str = ""
    """Path of this version on the box; empty = not pushed yet."""


class JobRequest(FrozenStruct, kw_only=True):
    """A job for the agent to create."""

    name: str
    asked: dict[str, Any]
    """The ``launch`` verb's standard input."""
    notes: tuple[str, ...] = ()


def job_for(
    spec: BoxSpec,
    profile: Profile,
    words: Sequence[str],
    *,
    name: str | None = None,
    workdir: str | None = None,
    code: PushedCode | None = None,
    env: Mapping[str, str] | None = None,
    secrets: Sequence[str] = (),
    retries: int = 0,
    smoke: str | None = None,
    ckpt_bytes: int | None = None,
    keep: Sequence[str] = (),
    again: bool = False,
) -> JobRequest:
    """Return the job of a command, set up by the command line and the platform's profile.

    A job is identified by its command, its environment, its name if given, and the content of the
    code pushed for it. Without a name, its name is made of its command and a digest of these.

    Args:
        spec: The box.
        profile: Of its platform.
        words: The command: one word is a shell line, several are run unchanged.
        name: Name of the job.
        workdir: Start directory on the box, relative to the code if there is any; None = the
            code's, or the home directory.
        code: Code pushed for it.
        env: Its environment, over the box's own, which is over the platform's.
        secrets: Names of its secrets; their values are not part of the job.
        retries: Further attempts.
        smoke: A shell line that is tried first.
        ckpt_bytes: Size of one checkpoint; 0 = do not check the space for it, None = unknown.
        keep: Paths below the run's directory to copy to durable storage; empty = all.
        again: Start one more, although the job exists.

    Raises:
        CannotRun: no process outlives a login on this platform.
    """
    overrides = profile.overrides
    is_in_pod = spec.kubectl is not None
    # Within a pod a process does outlive the login; the note says what it does not outlive.
    if overrides.detach in NO_DETACH and not is_in_pod:
        raise CannotRun(f"{profile.name}: {translate(NO_DETACH[overrides.detach])}")
    command: dict[str, Any]
    if len(words) == 1:
        command = {"line": words[0]}
    else:
        command = {"words": list(words)}
    meaning = {
        **command,
        "workdir": workdir,
        "env": {**spec.env, **(env or {})},
        "secrets": sorted(secrets),
        "name": name,
    }
    # Without the code, to notice that the same command already runs with older code.
    same_command = _hash_meaning(meaning)
    digest = _hash_meaning([same_command, code.digest if code else None])
    pythons = (spec.python,) if spec.python else overrides.python
    # Digits of a digest that make a name distinct.
    short = 6
    asked: dict[str, Any] = {
        # Names of secrets are part of the digest only: the agent gets the values elsewhere.
        **{key: value for key, value in meaning.items() if key != "secrets"},
        "workdir": _start_directory(workdir, code),
        "name": name or f"{job_name_of(words)}-{digest[:short]}",
        "digest": digest,
        "same_command": same_command,
        "again": again,
        "platform_env": dict(overrides.env),
        "platform_hooks": {
            "env": overrides.env_hook,
            "proxy": overrides.proxy_hook,
            "no_proxy": overrides.no_proxy,
        },
        # So that `python` in a command is the one that the profile means.
        "paths": [posixpath.dirname(python) for python in pythons if python.startswith("/")],
        "data": overrides.data_dir,
        "durable": spec.durable or overrides.durable_dir,
        "ignore": list(spec.ignore),
        "detach": DETACH.get(overrides.detach, "auto"),
        "retries": retries,
        "smoke": smoke,
        "ckpt_bytes": ckpt_bytes,
        # With a given size no inodes are demanded: 0 is a figure, while None means unknown.
        "ckpt_inodes": None if ckpt_bytes is None else 0,
        "keep": list(keep),
        "outlives": durable_dirs(spec, profile),
    }
    notes = (f"{profile.name}: {FLEETING}",) if overrides.detach == "none" else ()
    if is_in_pod:
        notes = (IN_POD,)
    return JobRequest(name=str(asked["name"]), asked=asked, notes=notes)


def _start_directory(workdir: str | None, code: PushedCode | None) -> str | None:
    """Return a job's start directory on the box.

    None = the home directory, or where the existing job starts.
    """
    if code is None:
        return workdir
    if code.path:
        return posixpath.join(code.path, workdir or "")
    return None


def job_directory(spec: BoxSpec, said: str) -> str:
    """Return the directory of a job on a box, from its name or path."""
    if "/" in said:
        return said
    # The fleet file first: a job there may be in another directory.
    return next((job for job in spec.jobs if same_job(job, said)), f"{JOBS}/{said}")


def sweep_for(
    spec: BoxSpec,
    profile: Profile,
    words: Sequence[str],
    *,
    name: str,
    code: PushedCode | None,
    workdir: str | None = None,
    env: Mapping[str, str] | None = None,
    retries: int = 0,
    smoke: str | None = None,
    prune: str | None = None,
    keep: Sequence[str] = (),
) -> dict[str, Any]:
    """Return the agent's input for the job of a sweep.

    Args:
        spec: The box.
        profile: Of its platform.
        words: The command, with fields: one word is a shell line, several are run unchanged.
        name: Name of the job.
        code: Code pushed for it.
        workdir: Start directory of cells, relative to the code if there is any.
        env: Their environment, in addition to the platform's.
        retries: Further attempts of a failed cell.
        smoke: A shell line that is tried first.
        prune: ``keep-best``: when the next cell needs space, delete all but the best checkpoint of
            finished cells with a verified copy.
        keep: Paths below a cell's directory to copy to durable storage; empty = all.

    Raises:
        CannotRun: no process outlives a login on this platform.
    """
    job = job_for(
        spec,
        profile,
        words,
        name=name,
        workdir=workdir,
        code=code,
        env=env,
        retries=retries,
        smoke=smoke,
        keep=keep,
    )
    # For a sweep these decide which cells run, so another value is another job.
    meaning = [job.asked["digest"], retries, smoke, prune, *keep]
    return {**job.asked, "prune": prune, "digest": _hash_meaning(meaning)}


def _hash_meaning(meaning: object) -> str:
    # Sorted, so that the order of options does not make another job.
    return hashlib.sha256(msgspec.json.encode(meaning, order="sorted")).hexdigest()


def job_name_of(words: Sequence[str]) -> str:
    """Return a name for a command: its script, otherwise its module, otherwise its program."""
    try:
        if len(words) == 1:
            parts = shlex.split(words[0])
        else:
            parts = list(words)
    except ValueError:
        # An unbalanced quote: the shell will report it; a name is needed before that.
        parts = words[0].split()
    script = next((part for part in parts if part.endswith(SCRIPTS)), None)
    if script is None and "-m" in parts[:-1]:
        script = parts[parts.index("-m") + 1].rpartition(".")[2]
    found = posixpath.basename(script or (parts[0] if parts else "job"))
    return re.sub(r"[^A-Za-z0-9_-]+", "-", posixpath.splitext(found)[0]).strip("-_")[:40] or "job"


class RunningJob(NamedTuple):
    """A job on the box that runs the same command with other code."""

    name: str
    seconds: float
    """Since it was started."""


class LaunchReport(FrozenStruct, kw_only=True):
    """The reports of a launch, by phase."""

    status: int
    words: str = ""
    rows: dict[str, Row] = {}

    @property
    def job_row(self) -> Row:
        """The agent's report on the job."""
        return self.rows.get("job", {})

    @property
    def was_begun(self) -> bool:
        """Whether this job was started before, with any result."""
        return bool(self.job_row.get("begun"))

    def folder_of(self, job: JobRequest) -> str:
        """Return the job's directory as the fleet file names it.

        A further job of the same name is called NAME-2 and so on.
        """
        name = posixpath.basename(row_text(self.job_row, "folder"))
        # The name comes from the box, and goes into the fleet file.
        return f"{JOBS}/{name if re.fullmatch(re.escape(job.name) + r'(-[0-9]+)?', name) else job.name}"

    @property
    def running_jobs(self) -> tuple[RunningJob, ...]:
        """Jobs that run the same command with other code; nothing was started then."""
        rows = rows_of(self.job_row, "others")
        return tuple(RunningJob(row_text(row, "name"), row_count(row, "seconds")) for row in rows)

    @property
    def finding(self) -> Finding | None:
        """The handbook's finding about the last log lines, if there is one."""
        tail = self.rows.get("begins", self.rows.get("smoke", {})).get("tail")
        verdict = self.rows.get("begins", {}).get("verdict")
        # What runs well may still print words of the handbook.
        if verdict in ("alive", "done", "queued") or not isinstance(tail, list):
            return None
        return log_finding(tuple(str(line) for line in tail))


def phase_of(row: Row) -> str:
    """Return the phase of a launch that a row reports on."""
    return row_text(row, "phase") or ("start" if "how" in row else "")


def describe_phase(row: Row) -> list[str]:
    """Return the text of a launch's row, as lines."""
    if phase_of(row) in SAID:
        return SAID[phase_of(row)](row)
    return []


def _describe_job(row: Row) -> list[str]:
    folder = row_text(row, "folder")
    # Then the caller asks whether to start another one, and prints the jobs itself.
    if rows_of(row, "others"):
        return []
    if row.get("made"):
        lines = [
            translate(
                "job    {folder}, in {workdir}; $RGT_OUT is {out}",
                folder=folder,
                workdir=row_text(row, "workdir"),
                out=row_text(row, "out"),
            )
        ]
    elif row.get("same"):
        lines = [translate("job    {folder} already exists, with the same command", folder=folder)]
    else:
        if row.get("same_command"):
            what = translate("other code")
        else:
            what = translate("another command")
        lines = [
            translate(
                "job    {folder} already exists, with {what}: choose another --name, or "
                "type --again for {name}-2; nothing was started",
                folder=folder,
                what=what,
                name=posixpath.basename(folder),
            )
        ]
    return lines + [f"note   {show_recorded(note)}" for note in row_texts(row, "notes")]


def _describe_smoke(row: Row) -> list[str]:
    if row.get("known") is None:
        return [translate("smoke  left out")]
    if not row.get("known"):
        return [
            translate(
                "smoke  no smoke command: nothing tests this before it runs (--smoke CMD adds one)"
            )
        ]
    if row.get("ok"):
        if row.get("before"):
            return [translate("smoke  passed before")]
        return [translate("smoke  passed in {seconds} s", seconds=row_text(row, "seconds"))]
    log = ""
    if row.get("log"):
        log = translate("; its log is {log}", log=row_text(row, "log"))
    return [
        translate(
            "smoke  FAILED: {reason}; nothing was started{log}",
            reason=row_text(row, "reason"),
            log=log,
        ),
        *_format_tail(row),
    ]


def _describe_check(row: Row) -> list[str]:
    problems, notes = row_texts(row, "problems"), row_texts(row, "notes")
    if problems:
        return [f"check  {line}" for line in problems]
    lines = [
        translate("check  {cells}, nothing wrong", cells=how_many(row_count(row, "cells"), "cell"))
    ]
    return lines + [f"note   {show_recorded(line)}" for line in notes]


def _describe_start(row: Row) -> list[str]:
    how, session = row_text(row, "how"), row_text(row, "session")
    if how == "slurm":
        return [translate("start  Slurm job {session}", session=session)]
    if how == "tmux":
        return [
            translate(
                "start  tmux session {session}, pid {pid}",
                session=session,
                pid=row_text(row, "pid"),
            )
        ]
    if how == "setsid":
        return [translate("start  pid {pid} in its own session", pid=row_text(row, "pid"))]
    return [f"start  {how}"]


def _describe_unstarted(row: Row) -> list[str]:
    return [translate("start  nothing: it was started before; this is its state")]


def _describe_beginning(row: Row) -> list[str]:
    verdict, seconds, step = row_text(row, "verdict"), row_text(row, "seconds"), row.get("step")
    name = row_text(row, "cell")
    if row.get("first") is not None:
        first = [translate("       first line: {line}", line=row_text(row, "first"))]
    else:
        first = []
    if verdict == "queued":
        return [
            translate(
                "QUEUED it waits in Slurm's queue ({reasons})",
                reasons=", ".join(row_texts(row, "slurm")),
            )
        ]
    if verdict == "alive":
        if step is None:
            came = translate("no step yet")
        elif isinstance(step, int | float):
            came = translate("step {step:g}", step=step)
        else:
            came = "?"
        if step is not None:
            more = ""
        else:
            more = translate(": it may still load, buffer its output, or log none")
        return [
            translate(
                "ALIVE  {name} after {seconds} s: {came}{more}",
                name=name,
                seconds=seconds,
                came=came,
                more=more,
            ),
            *(first or [translate("       it has printed nothing yet")]),
            *_describe_resume(row),
        ]
    if verdict == "done":
        done = [
            f"DONE   {name}" if name else translate("DONE   every cell of this queue is done"),
            *first,
        ]
        return done + _describe_resume(row)
    if verdict == "not-started":
        return [
            translate(
                "DIED   no cell was started: {reason}",
                reason=row_text(row, "reason") or translate("the runner ended at once"),
            )
        ]
    if verdict == "trouble":
        return [
            translate("DIED?  {name} is still alive, and its log ends in a traceback", name=name),
            *_format_tail(row),
        ]
    return [
        translate(
            "DIED   {name}: {reason}; its log is {log}",
            name=name,
            reason=row_text(row, "reason") or verdict,
            log=row_text(row, "log"),
        ),
        *_format_tail(row),
    ]


def _describe_resume(row: Row) -> list[str]:
    """Compare the first step of a cell that ran before with its newest checkpoint."""
    saved, began = row.get("saved"), row.get("began")
    if not (isinstance(saved, list) and len(saved) == 2 and isinstance(began, int | float)):
        return []
    step, path = saved
    if not isinstance(step, int | float):
        return []
    words = {"began": f"{began:g}", "step": f"{step:g}", "path": clean_text(str(path))}
    # Steps may be numbered from 0.
    if began >= step - 1:
        said = translate("resumed at step {began}, after step {step} of {path}", **words)
        return [f"       {said}"]
    return [
        translate(
            "       NOT RESUMED: it began at step {began}, and {path} has step {step}", **words
        ),
        translate("       stop it before it replaces that checkpoint, and check how it resumes"),
    ]


def _format_tail(row: Row) -> list[str]:
    last = 12
    return [f"       | {line}" for line in row_texts(row, "tail")[-last:]]


SAID = {
    "job": _describe_job, "smoke": _describe_smoke, "check": _describe_check,
    "start": _describe_start, "stands": _describe_unstarted, "begins": _describe_beginning,
}  # fmt: skip
"""Phase → function that returns its lines."""


def finding_lines(finding: Finding) -> list[str]:
    """Return a finding with its steps, as lines."""
    lines = [f"why    {finding.gotcha}: {translate(finding.title)}"]
    if finding.never:
        lines.append(f"never  {translate(finding.never)}")
    for fix in finding.fixes:
        lines.append(f"fix    {translate(fix.text)}" + (f": {fix.command}" if fix.command else ""))
    return [*lines, *([f"proof  {finding.evidence}"] if finding.evidence else [])]
