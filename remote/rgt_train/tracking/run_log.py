"""The run log: when each attempt began, how it ended, and the facts of each launch.

A start without an end was killed. Resuming needs none of this; it is for the receipt ("killed" or
"SIGTERM") and for the estimate of the mean time between failures that determines the checkpoint
interval.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass
from importlib import metadata
from typing import Any, BinaryIO, Callable, Mapping, Sequence, TypeVar

from rgt_train.cadence import AssumedMtbf, FailureRate
from rgt_train.checkpoint.diskio import LineAppender, StrPath, replace_file

T = TypeVar("T")

RUN_LOG = "ledger.jsonl"
WANTED = ("done", "left early", "SIGINT", "rollback", "mirror")
"""Ends that give no information about the machine; any other is a failure."""


@dataclass(frozen=True)
class AttemptHistory:
    """The record of the previous attempts of a run.

    Attributes:
        attempts: Number of attempts.
        cause: End of the last one; None if there was none.
        up_s: Node seconds all of them ran, as known so far.
        failures: Number of them that ended unintentionally.
        step: The last step that the last one is known to have reached, as far as recorded here.
        log_every: Steps between the logged ones of the last attempt; 0 if it logged none, None if
            unknown.
        told: Whether the last one recorded its end itself; otherwise it may have come further than
            known.
        together: Lines that the last one wrote together at most when it ended; one fewer may be
            missing.
        late: Attempt, step and words of each change after `run.step`, which a resume leaves out.
        copied_at: When the last line of the logs was written if they are copies from a mirror, in
            seconds since the epoch; None if they are the originals.
    """

    attempts: int = 0
    cause: str | None = None
    up_s: float = 0.0
    failures: int = 0
    step: int = 0
    log_every: int | None = None
    told: bool = False
    copied_at: float | None = None
    together: int = 1
    late: tuple[tuple[int, int, str], ...] = ()

    def late_changes(self, attempt: int, step: int) -> list[str]:
        """Return the changes up to the step of a checkpoint of `attempt`, in words."""
        return [words for made, at, words in self.late if made == attempt and at <= step]

    def describe_lost_steps(self, logged: int | None, now: int) -> "tuple[int, str]":
        """Return the minimum number of steps of the last attempt to repeat, and that in words.

        Args:
            logged: The last step in the metrics, as known so far.
            now: The step from which the run continues.
        """
        known = max(logged or 0, self.step)
        lost = max(0, known - now)
        if lost == 1:
            words = "1 step"
        else:
            words = f"{lost} steps"
        if self.copied_at is not None and not self.told:
            minutes = (time.time() - self.copied_at) / 60
            return (
                lost,
                (
                    f"{lost} to unknown steps (the mirror's logs end {minutes:.0f} min before this "
                    "launch)"
                ),
            )
        exact = self.log_every == 1 and self.together == 1
        if self.told or exact or not self.attempts:
            return lost, words
        if not self.log_every:
            return lost, f"at least {words} (what came after step {known} was not noted)"
        most = max(0, (known // self.log_every + self.together) * self.log_every - 1 - now)
        how = []
        if self.log_every > 1:
            how.append(f"one in {self.log_every} was noted")
        if self.together > 1:
            how.append(f"{self.together} were noted at a time")
        range_ = f"{lost} to {most} steps ({', '.join(how)})"
        return lost, range_ if most > lost else words

    def expected_failures(self, prior: AssumedMtbf, nodes: int = 1) -> FailureRate:
        """Return how often a job on `nodes` machines is expected to fail: history and prior."""
        node_s = (3600 * prior.hours * prior.failures + self.up_s) / (
            prior.failures + self.failures
        )
        seen = f"{self.failures} seen in {self.up_s / 3600:.1f} h here, {prior.why} assumed before"
        return FailureRate(
            node_s / max(1, nodes), seen if self.attempts else f"assumed of {prior.why}"
        )


class RunLog:
    """Reads the past once, then appends the present.

    Args:
        out: The run directory.
        last_seen: Time of the last sign of life in the metrics, seconds since the epoch: when a
            killed attempt was still alive.
    """

    def __init__(self, out: StrPath, last_seen: float | None = None) -> None:
        self.path = os.path.join(out, RUN_LOG)
        self.past = _read_history(self.path, last_seen)
        self.attempt = self.past.attempts + 1
        self._file = LineAppender(self.path)

    def record_start(self, step: int, nodes: int = 1, log_every: int = 1) -> None:
        """Record that this attempt begins at `step`, on `nodes` machines.

        `log_every` is the number of steps between logged ones.
        """
        self._append_entry(
            {
                "event": "start",
                "attempt": self.attempt,
                "step": step,
                "pid": os.getpid(),
                "nodes": nodes,
                "log_every": log_every,
                "time": time.time(),
            }
        )

    def record_alive(self, step: int) -> None:
        """Record a sign of life (after each checkpoint: frequent enough, and bounded)."""
        self._append_entry(
            {"event": "alive", "attempt": self.attempt, "step": step, "time": time.time()}
        )

    def record_gathering(self, lines: int) -> bool:
        """Record that up to `lines` points are written together from now on; False if it fails."""
        return self._append_entry(
            {"event": "gathering", "attempt": self.attempt, "lines": lines, "time": time.time()}
        )

    def record_late(self, step: int, words: str) -> None:
        """Record a change after `run.step`; a checkpoint of `step` may be written already."""
        self._append_entry(
            {
                "event": "late",
                "attempt": self.attempt,
                "step": step,
                "words": words,
                "time": time.time(),
            }
        )

    def record_end(self, step: int, cause: str) -> None:
        """Record how this attempt ends."""
        self._append_entry(
            {
                "event": "end",
                "attempt": self.attempt,
                "step": step,
                "cause": cause,
                "time": time.time(),
            }
        )

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _append_entry(self, entry: dict[str, Any]) -> bool:
        return self._file.append_line(json.dumps(entry))


def _read_history(path: str, last_seen: float | None) -> AttemptHistory:
    """Summarise the lines; a truncated or foreign line is skipped, at the cost of precision."""
    spans: list[_AttemptSpan] = []
    late: list[tuple[int, int, str]] = []
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            lines = file.readlines()
    except OSError:
        return AttemptHistory()
    for line in lines:
        try:
            entry = json.loads(line)
            event = entry["event"]
            at = float(entry["time"])
            nodes = int(entry.get("nodes", 1))
            step = int(entry.get("step", 0))
            log_every = entry.get("log_every")
        except (ValueError, KeyError, TypeError, OverflowError):
            continue
        if event == "start":
            if not isinstance(log_every, int):
                log_every = None
            spans.append(_AttemptSpan(at, at, nodes, step, log_every))
        elif event == "gathering" and spans:
            spans[-1].together = int(entry.get("lines", 1))
        elif event == "late":
            attempt = int(entry.get("attempt", 0))
            late.append((attempt, step, str(entry.get("words", ""))))
        elif spans and event in ("alive", "end"):
            spans[-1].end = at
            spans[-1].step = max(step, spans[-1].step)
            if event == "end":
                spans[-1].cause = str(entry.get("cause", ""))
    if not spans:
        return AttemptHistory()
    # Killed: the last metric shows better than the last save how long it lived.
    if spans[-1].cause is None and last_seen is not None:
        spans[-1].end = max(spans[-1].end, last_seen)
    # A clock may step back.
    up_s = sum(max(0.0, span.end - span.begin) * span.nodes for span in spans)
    return AttemptHistory(
        attempts=len(spans),
        cause=spans[-1].cause or "killed",
        up_s=up_s,
        failures=sum(span.cause not in WANTED for span in spans),
        step=spans[-1].step,
        log_every=spans[-1].log_every,
        told=spans[-1].cause is not None,
        together=spans[-1].together,
        late=tuple(late),
    )


@dataclass
class _AttemptSpan:
    begin: float
    end: float
    nodes: int
    step: int
    log_every: int | None
    cause: str | None = None
    together: int = 1


RUN_JSON = "run.json"
_LIBRARIES = (
    "torch",
    "numpy",
    "transformers",
    "lightning",
    "accelerate",
    "datasets",
    "torchvision",
    "torchdata",
)


def launch_facts(
    *,
    seed: int | None,
    batch: int | None,
    accumulate: int,
    world: int,
    attempt: int,
    step: int,
    settings: Mapping[str, Any],
    overrides: Mapping[str, Any] | None = None,
    git: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Return the record of one launch.

    Args:
        seed: Seed of the data order; None if unknown.
        batch: Samples of a batch over all ranks; None if unknown.
        accumulate: Batches of an optimizer step.
        world: Number of ranks.
        attempt: Number of this launch.
        step: Its starting step.
        settings: The run's settings.
        overrides: The settings that the person gave, as known so far.
        git: The state of the work tree, as `git_state` returns it.
    """
    return {
        "time": time.time(),
        "attempt": attempt,
        "step": step,
        "argv": sys.argv,
        "host": platform.node(),
        "seed": seed,
        "world_size": world,
        "batch": batch,
        "accumulate": accumulate,
        "effective_batch": None if batch is None else batch * accumulate,
        "settings": dict(settings),
        "overrides": dict(overrides or {}),
        "versions": platform_versions(),
        "git": git,
    }


def write_launch_record(out: StrPath, record: Mapping[str, Any]) -> str | None:
    """Replace ``run.json``, keeping the first launch's record; return why it could not be written, or None.

    The versions of libraries are added to a `record` with versions.
    """
    path = os.path.join(out, RUN_JSON)
    if "versions" in record:
        record = {**record, "versions": {**library_versions(), **record["versions"]}}
    body: dict[str, Any] = {"first": record, "last": record}
    try:
        with open(path, encoding="utf-8") as file:
            body["first"] = json.load(file)["first"]
    except (OSError, ValueError, KeyError, TypeError):
        pass
    try:
        replace_file(path, (json.dumps(body, indent=1, default=str) + "\n").encode())
    except OSError as error:
        return f"{path} could not be written: {error}"
    return None


def last_recorded_attempt(out: StrPath) -> int:
    """Return the number of the last launch that is recorded in `out`; 0 without one."""
    try:
        with open(os.path.join(out, RUN_JSON), encoding="utf-8") as file:
            return int(json.load(file)["last"]["attempt"])
    except (OSError, ValueError, KeyError, TypeError):
        return 0


def platform_versions() -> dict[str, str]:
    """Return the versions of Python and of torch, and the name of the GPU."""
    found = {"python": platform.python_version()}
    torch: Any = sys.modules.get("torch")
    if torch is not None:
        found["torch"] = str(torch.__version__)
        if torch.cuda.is_available():
            found["cuda"], found["device"] = str(torch.version.cuda), torch.cuda.get_device_name()
    return found


def library_versions() -> dict[str, str]:
    """Return the versions of the system, of torch and of the libraries installed next to it.

    It takes milliseconds: their metadata are read, and Python asks another program for the system.
    """
    found = {"platform": platform.platform()}
    for name in _LIBRARIES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def git_state(folder: str) -> dict[str, Any] | None:
    """Return commit, branch and changes of the work tree at `folder`; None without one or git.

    The remote's address is left out: it may hold a token.
    """
    head = _run_git(folder, ["rev-parse", "HEAD", "--abbrev-ref", "HEAD"])
    if head is None:
        return None
    commit, _, branch = head.decode().strip().partition("\n")
    # --no-ext-diff: a configured diff tool could be any program, and give another text.
    diff = _run_git(folder, ["diff", "HEAD", "--no-ext-diff", "--binary"])
    untracked = _run_git(folder, ["ls-files", "--others", "--exclude-standard", "-z"])
    if diff is None or untracked is None:  # too slow, or a damaged index: unknown is not clean
        return {"commit": commit, "dirty": None}
    names = [name for name in untracked.decode(errors="replace").split("\0") if name]
    return {
        "commit": commit,
        "branch": branch,
        "dirty": bool(diff or names),
        "diff_sha256": hashlib.sha256(diff).hexdigest() if diff else None,
        "untracked": len(names),
    }


def begin_git_state(folder: str) -> Callable[[], dict[str, Any] | None]:
    """Start `git_state` in a thread; return the function that waits for its result."""
    return _begin_in_thread(lambda: git_state(folder))


def begin_launch_record(
    out: StrPath, record: Mapping[str, Any], git: Callable[[], dict[str, Any] | None]
) -> Callable[[], str | None]:
    """Write ``run.json`` in a thread, once `git` has answered: that takes longer than a small checkpoint.

    Returns:
        The function that waits for it, with the result of `write_launch_record`.
    """
    return _begin_in_thread(lambda: write_launch_record(out, {**record, "git": git()}))


def _begin_in_thread(work: Callable[[], T]) -> Callable[[], T | None]:
    found: list[T] = []
    thread = threading.Thread(target=lambda: found.append(work()), name="rgt-record", daemon=True)
    thread.start()

    def wait_for_result() -> T | None:
        thread.join()
        if found:
            return found[0]
        return None

    return wait_for_result


def _run_git(folder: str, words: Sequence[str]) -> bytes | None:
    program = shutil.which("git")
    if program is None:
        return None
    # The person may be committing in this work tree right now: no index.lock, also not to write
    # the times of files that were only touched, which --no-optional-locks alone does not prevent.
    options = ["--no-optional-locks", "-c", "diff.autoRefreshIndex=false"]
    git_seconds = 10.0
    try:
        with _open_nameless_file() as output:
            # A file instead of a pipe, which a DataLoader worker that is forked meanwhile would
            # keep open. close_fds=False avoids the pipe to which a forked child reports a failed
            # exec.
            done = subprocess.run(
                [program, "-C", folder, *options, *words],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.DEVNULL,
                timeout=git_seconds,
                close_fds=False,
            )
            output.seek(0)
            content = output.read()
    except (OSError, subprocess.SubprocessError):
        return None
    if done.returncode == 0:
        return content
    return None


def _open_nameless_file() -> BinaryIO:
    if hasattr(os, "memfd_create"):
        return os.fdopen(os.memfd_create("rgt-git"), "w+b")
    return tempfile.TemporaryFile()
