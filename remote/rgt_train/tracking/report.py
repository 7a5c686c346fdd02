"""What a run reports: lines for a person, points and events in metrics.jsonl, and other places for the points."""

from __future__ import annotations

import hashlib
import importlib
import json
import math
import os
import sys
import time
from typing import Any, Callable, Dict, Iterable, List, Mapping, Optional, Protocol, Sequence, Tuple

from rgt_train.checkpoint.diskio import Appender, StrPath
from rgt_train.exits import UsageError
from rgt_train.tracking.tensorboard import EventFile

TENSORBOARD_DIR = "tensorboard"


class Sink(Protocol):
    """Takes the points of a run."""

    def point(self, step: int, seconds: float, values: Mapping[str, float]) -> None:
        """Take the numbers of `step`, measured at `seconds` since the epoch."""

    def close(self) -> None:
        """Hand over what waits."""


class Launch:
    """What a sink is told about the run that writes into it.

    Args:
        out: The run directory.
        step: The step this launch goes on from.
        settings: The run's settings, plain values.
        project: Name of the project at a tracking service.
    """

    def __init__(self, out: str, step: int, settings: Mapping[str, Any], project: str) -> None:
        self.out, self.step, self.settings, self.project = out, step, dict(settings), project

    @property
    def identity(self) -> str:
        """A name that every launch of this run directory has in common."""
        digest = hashlib.sha256(os.path.realpath(self.out).encode()).hexdigest()[:8]
        return f"{os.path.basename(self.out)}-{digest}"


class Tracker:
    """A tracking service with W&B's calls: ``init``, ``log``, ``finish`` (trackio has the same).

    The points keep their step as an own column and carry no service-side step: after a resume the steps behind the
    checkpoint come again, and such services drop a step that is lower than the last.

    Args:
        module: The imported client library.
        launch: What is logged.
        arguments: Further arguments of its ``init``.
    """

    def __init__(self, module: Any, launch: Launch, arguments: Mapping[str, Any]) -> None:
        self._run = module.init(
            project=launch.project, name=launch.identity, config=launch.settings, resume="allow", **arguments
        )
        self._log: Callable[[Dict[str, float]], Any] = getattr(self._run, "log", module.log)
        self._finish: Callable[[], Any] = getattr(self._run, "finish", module.finish)
        if hasattr(self._run, "define_metric"):
            self._run.define_metric("*", step_metric="train_step")

    def point(self, step: int, seconds: float, values: Mapping[str, float]) -> None:
        """Hand the numbers of `step` to the service."""
        self._log({"train_step": step, **values})

    def close(self) -> None:
        """End the service's run."""
        self._finish()


def _tensorboard(launch: Launch) -> Sink:
    return EventFile(os.path.join(launch.out, TENSORBOARD_DIR), launch.step)


def _wandb(launch: Launch) -> Sink:
    # Mode and credentials are W&B's own environment variables: nothing secret passes through here.
    return Tracker(_library("wandb"), launch, {"id": launch.identity, "dir": launch.out})


def _trackio(launch: Launch) -> Sink:
    return Tracker(_library("trackio"), launch, {})


SINKS: Dict[str, Callable[[Launch], Sink]] = {
    "tensorboard": _tensorboard,
    "wandb": _wandb,
    "trackio": _trackio,
}


def check_names(names: Sequence[str]) -> None:
    """See that all sinks are known.

    Raises:
        UsageError: One is not; names those that are.
    """
    for name in names:
        if name not in SINKS:
            raise UsageError(
                f"unknown logger {name!r}; known are {', '.join(SINKS)} (metrics.jsonl is always on)"
            )


def open_sinks(names: Sequence[str], launch: Launch, say: Callable[[str], None]) -> List[Sink]:
    """Return the sinks `names`, each behind a guard.

    Raises:
        UsageError: A name is unknown, or its library is not installed.
    """
    check_names(names)
    sinks: List[Sink] = []
    for name in names:
        try:
            sinks.append(Guarded(name, SINKS[name](launch), say))
        except UsageError:
            raise
        except Exception as error:
            say(f"logger {name} could not be opened and is left out: {type(error).__name__}: {error}")
    return sinks


class Guarded:
    """Switches a sink off at its first error, and says so once.

    Args:
        name: What it is called.
        sink: The sink.
        say: Where the error is told.
    """

    def __init__(self, name: str, sink: Sink, say: Callable[[str], None]) -> None:
        self._name, self._sink, self._say, self._on = name, sink, say, True

    def point(self, step: int, seconds: float, values: Mapping[str, float]) -> None:
        """Hand the point on."""
        if self._on:
            self._try(lambda: self._sink.point(step, seconds, values))

    def close(self) -> None:
        """Close the sink."""
        if self._on:
            self._try(self._sink.close)

    def _try(self, call: Callable[[], Any]) -> None:
        try:
            call()
        except Exception as error:
            self._on = False
            self._say(
                f"logger {self._name} failed and is switched off for this launch: {type(error).__name__}: {error}"
            )


def _library(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise UsageError(
            f"logger {name} was asked for, but it is not installed here ({error}): pip install {name}, or leave it out"
        ) from error


METRICS = "metrics.jsonl"
_TAIL = 1 << 16
_encode = json.JSONEncoder(allow_nan=False).encode


class Report:
    """Reports for one run; a full disk or a closed pipe never ends the training.

    Args:
        out: The run directory.
    """

    def __init__(self, out: StrPath) -> None:
        self._file = Appender(os.path.join(out, METRICS))
        self._sinks: List[Sink] = []

    def add(self, sinks: Iterable[Sink]) -> None:
        """Send the points to further sinks from now on; `close` closes them."""
        self._sinks += sinks

    def say(self, line: str) -> None:
        """Print one line now."""
        say(line)

    def point(self, step: int, epoch: float, **values: float) -> None:
        """Append one point of the curves at `step`; `epoch` counts from 0 and has a fraction."""
        now = time.time()
        self._append({"step": step, "epoch": round(epoch, 6), "time": now, **values})
        for sink in self._sinks:
            sink.point(step, now, values)

    def event(self, kind: str, step: int, **fields: Any) -> None:
        """Append one event."""
        self._append({"event": kind, "step": step, **fields, "time": time.time()})

    def reopen(self) -> None:
        """Continue with the file that has replaced this one."""
        self._file.close()
        self._file = Appender(self._file.path)

    def close(self) -> None:
        """Write what waits and close."""
        self._file.close()
        while self._sinks:
            self._sinks.pop().close()

    def _append(self, entry: Dict[str, Any]) -> None:
        try:
            line = _encode(entry)
        except ValueError:  # one of them is not finite, which is rare
            line = _encode(_finite(entry))
        self._file.append(line)


def say(line: str) -> None:
    """Print `line` and push it out, ignoring a reader that is gone or a log that does not fit."""
    try:
        sys.stdout.write(line + "\n")
        sys.stdout.flush()
    except (OSError, ValueError):
        return


def last_seen(out: StrPath) -> Tuple[Optional[int], Optional[float]]:
    """Return the highest step among the last points logged, and the time of the last line of all."""
    try:
        with open(os.path.join(out, METRICS), "rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - _TAIL))
            lines = file.read().splitlines()
    except OSError:
        return None, None
    step: Optional[int] = None
    at: Optional[float] = None
    for line in lines:
        try:
            entry = json.loads(line)
            at = float(entry["time"])
            if "event" not in entry:
                step = max(step or 0, int(entry["step"]))
            elif entry["event"] == "resume":
                step = int(entry["step"])
        except (ValueError, KeyError, TypeError):
            continue
    return step, at


def _finite(value: Any) -> Any:
    """JSON has no NaN: the contract writes it as a string."""
    if isinstance(value, dict):
        return {key: _finite(entry) for key, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(entry) for entry in value]
    if isinstance(value, float) and not math.isfinite(value):
        return "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"
    return value
