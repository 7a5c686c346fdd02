"""Further places for the points of a run, opened by name; none of them can end the training."""

from __future__ import annotations

import hashlib
import importlib
import os
from typing import Any, Callable, Dict, List, Mapping, Protocol, Sequence

from rgt_train.exits import UsageError
from rgt_train.logs.event_file import EventFile

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
