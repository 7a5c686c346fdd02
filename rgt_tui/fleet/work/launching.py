"""Starts a single job for one command: set up as its platform's profile says, and its launch reported."""

from __future__ import annotations

import hashlib
import posixpath
import re
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from rgt_tui.fleet.work.agent_answers import Row, number, text, texts
from rgt_tui.health import log_finding
from rgt_tui.model.box import BoxSpec
from rgt_tui.model.evidence import Finding
from rgt_tui.model.figures import how_many
from rgt_tui.model.profile import Profile

JOBS = "~/jobs"
"""Where the agent makes jobs."""
DETACH = {"tmux": "auto", "onstart.sh": "auto", "setsid": "setsid", "sbatch": "slurm", "none": "auto"}
"""What a profile says → ``detach`` of a job."""
BY_HAND = {
    "k8s-job": "there work is a Job of its own, which the agent prints: detach --job DIR --print k8s (docs/jobs.md)",
    "kaggle-commit": "there only a committed notebook outlives the session",
}
"""What a profile says where no process outlives the login, and what there is instead."""
FLEETING = "nothing keeps work going there once the session ends"
SHORT = 6
"""Digits of a digest that make a name distinct."""
SCRIPTS = (".py", ".sh", ".ipynb")


class CannotRun(ValueError):
    """There is no job for this; the message says why."""


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """What the agent is asked to make."""

    name: str
    asked: dict[str, Any]
    """Of the ``launch`` verb's standard input."""
    notes: tuple[str, ...] = ()

    @property
    def folder(self) -> str:
        """The job's directory, as the fleet file names it."""
        return f"{JOBS}/{self.name}"


def job_for(
    spec: BoxSpec,
    profile: Profile,
    words: Sequence[str],
    *,
    name: str | None = None,
    workdir: str | None = None,
    env: Mapping[str, str] | None = None,
    retries: int = 0,
    smoke: str | None = None,
) -> Job:
    """Return the job of a command: what the person typed, and of everything else what the platform's profile says.

    Without a name it is called after its command and a digest of it, so that the same command again is the same job.

    Args:
        spec: The box.
        profile: Of its platform.
        words: The command: one word is a line for a shell, several are run as they are.
        name: What to call it.
        workdir: Where it starts, on the box; None = the home directory.
        env: Its environment, beyond the platform's.
        retries: Further attempts.
        smoke: A line for a shell that is tried before.

    Raises:
        CannotRun: no process outlives a login on this platform.
    """
    overrides = profile.overrides
    if overrides.detach in BY_HAND:
        raise CannotRun(f"{profile.name}: {BY_HAND[overrides.detach]}")
    command: dict[str, Any] = {"line": words[0]} if len(words) == 1 else {"words": list(words)}
    meaning = {**command, "workdir": workdir, "env": dict(env or {})}
    digest = hashlib.sha256(msgspec.json.encode(meaning, order="sorted")).hexdigest()
    pythons = (spec.python,) if spec.python else overrides.python
    asked = {
        **meaning,
        "name": name or f"{stem(words)}-{digest[:SHORT]}",
        "digest": digest,
        "platform_env": dict(overrides.env),
        "platform_hooks": {
            "env": overrides.env_hook,
            "proxy": overrides.proxy_hook,
            "no_proxy": overrides.no_proxy,
        },
        "paths": [posixpath.dirname(python) for python in pythons if python.startswith("/")],
        "data": overrides.data_dir,
        "durable": spec.durable or overrides.durable_dir,
        "detach": DETACH.get(overrides.detach, "auto"),
        "retries": retries,
        "smoke": smoke,
    }
    notes = (f"{profile.name}: {FLEETING}",) if overrides.detach == "none" else ()
    return Job(name=str(asked["name"]), asked=asked, notes=notes)


def stem(words: Sequence[str]) -> str:
    """Return what a command is called after: its script, else its module, else its program."""
    try:
        parts = shlex.split(words[0]) if len(words) == 1 else list(words)
    except ValueError:
        parts = words[0].split()
    script = next((part for part in parts if part.endswith(SCRIPTS)), None)
    if script is None and "-m" in parts[:-1]:
        script = parts[parts.index("-m") + 1].rpartition(".")[2]
    found = posixpath.basename(script or (parts[0] if parts else "job"))
    return re.sub(r"[^A-Za-z0-9_-]+", "-", posixpath.splitext(found)[0]).strip("-_")[:40] or "job"


class Launched(msgspec.Struct, frozen=True, kw_only=True):
    """What a launch has told, by phase."""

    status: int
    words: str = ""
    rows: dict[str, Row] = {}

    @property
    def finding(self) -> Finding | None:
        """What the handbook says of the last lines, if it knows them."""
        tail = self.rows.get("begins", self.rows.get("smoke", {})).get("tail")
        verdict = self.rows.get("begins", {}).get("verdict")
        if verdict in ("alive", "done", "queued") or not isinstance(tail, list):
            return None
        return log_finding(tuple(str(line) for line in tail))


def phase_of(row: Row) -> str:
    """Return which phase of a launch a row is of."""
    return text(row, "phase") or ("start" if "how" in row else "")


def said(row: Row) -> list[str]:
    """Return what a row of a launch says to a person, as lines."""
    return SAID[phase_of(row)](row) if phase_of(row) in SAID else []


def _job(row: Row) -> list[str]:
    folder = text(row, "folder")
    if row.get("made"):
        lines = [f"job    {folder}, in {text(row, 'workdir')}; $RGT_OUT is {text(row, 'out')}"]
    elif row.get("same"):
        lines = [f"job    {folder} is there already, with this very command"]
    else:
        lines = [
            f"job    {folder} is there already, with another command: choose another --name; nothing was started"
        ]
    return lines + [f"note   {note}" for note in texts(row, "notes")]


def _smoke(row: Row) -> list[str]:
    if row.get("known") is None:
        return ["smoke  left out"]
    if not row.get("known"):
        return ["smoke  no smoke known: nothing has tried this before it runs (--smoke CMD tries something)"]
    if row.get("ok"):
        return ["smoke  passed before" if row.get("before") else f"smoke  passed in {text(row, 'seconds')} s"]
    return [
        f"smoke  FAILED: {text(row, 'reason')}; nothing was started; its log is {text(row, 'log')}",
        *_tail(row),
    ]


def _check(row: Row) -> list[str]:
    problems, notes = texts(row, "problems"), texts(row, "notes")
    if problems:
        return [f"check  {line}" for line in problems]
    lines = [f"check  {how_many(number(row, 'cells'), 'cell')}, nothing wrong"]
    return lines + [f"note   {line}" for line in notes]


def _start(row: Row) -> list[str]:
    how, session = text(row, "how"), text(row, "session")
    if how == "slurm":
        return [f"start  Slurm job {session}"]
    if how == "tmux":
        return [f"start  tmux session {session}, pid {text(row, 'pid')}"]
    return [f"start  pid {text(row, 'pid')} in a session of its own" if how == "setsid" else f"start  {how}"]


def _stands(row: Row) -> list[str]:
    return ["start  nothing: it was started before; this is how it is doing"]


def _begins(row: Row) -> list[str]:
    verdict, seconds, step = text(row, "verdict"), text(row, "seconds"), row.get("step")
    name = text(row, "cell")
    first = [f"       first line: {text(row, 'first')}"] if row.get("first") is not None else []
    if verdict == "queued":
        return [f"QUEUED it waits in Slurm's queue ({', '.join(texts(row, 'slurm'))})"]
    if verdict == "alive":
        came = "no step yet" if step is None else f"step {step:g}" if isinstance(step, int | float) else "?"
        more = "" if step is not None else ": it may still load, buffer its output, or log none"
        return [
            f"ALIVE  {name} after {seconds} s: {came}{more}",
            *(first or ["       it has printed nothing yet"]),
        ]
    if verdict == "done":
        return [f"DONE   {name}" if name else "DONE   every cell of this queue is done", *first]
    if verdict == "not-started":
        return [f"DIED   no cell was started: {text(row, 'reason') or 'the runner ended at once'}"]
    if verdict == "trouble":
        return [f"DIED?  {name} is still alive, and its log ends in a traceback", *_tail(row)]
    return [f"DIED   {name}: {text(row, 'reason') or verdict}; its log is {text(row, 'log')}", *_tail(row)]


LAST = 12


def _tail(row: Row) -> list[str]:
    return [f"       | {line}" for line in texts(row, "tail")[-LAST:]]


SAID = {
    "job": _job, "smoke": _smoke, "check": _check, "start": _start, "stands": _stands, "begins": _begins,
}  # fmt: skip
"""Phase → its lines."""


def finding_lines(finding: Finding) -> list[str]:
    """Return a finding with its way out, as lines."""
    lines = [f"why    {finding.gotcha}: {finding.title}"]
    for fix in finding.fixes:
        lines.append(f"fix    {fix.text}" + (f": {fix.command}" if fix.command else ""))
    return [*lines, f"never  {finding.never}"]
