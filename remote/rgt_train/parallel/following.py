"""What a rank that is not the writer has in place of lock, ledger, log and saver: things that do nothing."""

from __future__ import annotations

from typing import Any, Callable, Iterable, List

from rgt_train.ledger import Past
from rgt_train.logs.sinks import Sink
from rgt_train.report import Report


class NoLock:
    """The writer holds the lock of the run directory for all ranks."""

    exclusive = True
    fd = -1

    def __init__(self) -> None:
        self.fenced: List[int] = []

    def note_helper(self, pid: int) -> None:
        """There are no helpers here."""

    def close(self) -> None:
        """Nothing is held."""


class NoLedger:
    """The writer keeps the diary.

    Args:
        attempt: Number of this incarnation, as the writer counted.
    """

    def __init__(self, attempt: int) -> None:
        self.attempt = attempt
        self.past = Past()

    def start(self, step: int, nodes: int = 1, log_every: int = 1) -> None:
        """Not noted here."""

    def alive(self, step: int) -> None:
        """Not noted here."""

    def end(self, step: int, cause: str) -> None:
        """Not noted here."""

    def close(self) -> None:
        """Nothing is open."""


class NoReport(Report):
    """The writer speaks for all ranks."""

    def __init__(self) -> None:
        """Nothing is opened."""

    def add(self, sinks: Iterable[Sink]) -> None:
        """There are no sinks here."""

    def say(self, line: str) -> None:
        """Not said here."""

    def point(self, step: int, epoch: float, **values: float) -> None:
        """Not logged here."""

    def event(self, kind: str, step: int, **fields: Any) -> None:
        """Not logged here."""

    def close(self) -> None:
        """Nothing is open."""


class NoSaver:
    """The writer decides when to save; what the other ranks do for it comes as orders."""

    busy = False
    only_best = False

    def __init__(self) -> None:
        self.on_wait: Callable[[], bool] = lambda: False

    def wishes(self, step: int) -> int:
        """Return no wish."""
        return 0

    def finish(self) -> None:
        """Nothing is waited for here."""
