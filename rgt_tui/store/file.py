"""The history's file as one process uses it. Everything here may wait for the disk: it runs in the writer's thread."""

from __future__ import annotations

import contextlib
import sqlite3
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from pathlib import Path

import msgspec

from rgt_tui.model.box import BoxSpec, BoxState
from rgt_tui.model.fleet import FleetEvent, Spend
from rgt_tui.store import damage, events, marks, minutes, room, runs, samples, states
from rgt_tui.store.batch import Batch
from rgt_tui.store.connect import connect, shape_of, transaction
from rgt_tui.store.costs import Costs
from rgt_tui.store.errors import Damaged, HistoryError, Unfit, is_unfit, judged
from rgt_tui.store.events import AuditRow
from rgt_tui.store.runs import Book
from rgt_tui.store.salvage import Salvaged, salvage
from rgt_tui.store.samples import Names
from rgt_tui.store.steady import Steady
from rgt_tui.store.upkeep import Upkeep

VERIFIED = "rows verified on day"


class HistoryFile:
    """Opens the file when it is first used, and again when another process has set it aside.

    Args:
        path: The file.
        clock: Epoch seconds.
        max_bytes: Its bound.
        audit: The audit log to index, if any.
        fleet: By what the fleet is known: of two fleets, both may have a box of one name.
    """

    def __init__(
        self,
        path: Path,
        *,
        clock: Callable[[], float] = time.time,
        max_bytes: int = room.MAX_BYTES,
        audit: Path | None = None,
        fleet: str = "",
    ) -> None:
        self.path = path
        self._clock = clock
        self._fleet = fleet
        self._con: sqlite3.Connection | None = None
        self._names: Names | None = None
        self._inode: int | None = None
        self._specs: dict[str, BoxSpec] = {}
        self._numbers: dict[str, int] = {}
        self._books: dict[tuple[str, str], Book] = {}
        self._upkeep = Upkeep(path, max_bytes, audit)
        self._steady = Steady()
        self._costs = Costs()

    def adopt(self, specs: Sequence[BoxSpec]) -> None:
        """Say which boxes there are."""
        self._specs.update((spec.name, spec) for spec in specs)

    def recall(self) -> dict[str, BoxState]:
        """Return what is known of the boxes that were adopted.

        Raises:
            HistoryError: it cannot be read.
        """
        found = {}
        with self._used() as (con, names):
            now = self._clock()
            for name, spec in self._specs.items():
                box = states.known(con, spec)
                state = None if box is None else self._recalled(con, names, box, spec, now)
                if state is not None:
                    found[name] = state
        return found

    def _recalled(
        self, con: sqlite3.Connection, names: Names, box: int, spec: BoxSpec, now: float
    ) -> BoxState | None:
        recalled = runs.recall(con, box)
        past = samples.past(con, names, box, now)
        state = states.recall(con, box, spec, now)
        if state is None and not recalled and not past.at:
            return None
        self._books.update(((spec.name, run.name), book) for run, book in recalled)
        return msgspec.structs.replace(
            state or BoxState(spec=spec, since=now), runs=tuple(run for run, _ in recalled), past=past
        )

    def commit(self, batch: Batch) -> None:
        """Write a batch, all or nothing; twice is as good as once. Only of boxes that were adopted.

        Raises:
            Unfit: something of one box cannot be written; without it, the others' can.
            HistoryError: nothing was written.
        """
        with self._used() as (con, names):
            now = self._clock()
            books: dict[tuple[str, str], Book] = {}
            numbers = dict(self._numbers)
            with transaction(con):
                names.forget()
                before = minutes.closed(con, now)
                for name, spec in self._specs.items():
                    if name not in numbers:
                        numbers[name] = states.number(con, spec, now)
                        states.belongs(con, self._fleet, name, numbers[name])
                for name, state in batch.boxes.items():
                    if name in numbers:
                        with _fitting(name, "boxes"):
                            states.save(con, numbers[name], state, now)
                for mean in batch.means:
                    if mean.box in numbers:
                        with _fitting(mean.box, "means"):
                            samples.write(con, names, numbers[mean.box], mean)
                for name, minute in batch.minutes:
                    if name in numbers:
                        with _fitting(name, "minutes"):
                            minutes.write(con, numbers[name], minute, before)
                for event in batch.events:
                    if event.box in numbers:
                        with _fitting(event.box, "events"):
                            events.write(con, numbers[event.box], event)
                for name, state in batch.runs.items():
                    if name in numbers:
                        with _fitting(name, "runs"):
                            books.update(self._runs(con, numbers[name], state, now))
            self._numbers.update(numbers)
            self._books.update(books)

    def _runs(
        self, con: sqlite3.Connection, box: int, state: BoxState, now: float
    ) -> Iterator[tuple[tuple[str, str], Book]]:
        for run in state.runs:
            key = (state.spec.name, run.name)
            known = self._books.get(key)
            if known is None or known.run is not run:
                book = runs.save(con, box, run, known, now)
                if book is not None:
                    yield key, book

    def spend(self) -> Spend:
        """Return what the fleet's boxes cost, also those that had their names before.

        Raises:
            HistoryError: it cannot be read.
        """
        with self._used() as (con, _):
            numbers = {n for name in self._specs for n in states.of_name(con, self._fleet, name)}
            numbers |= {
                n for n in (states.known(con, spec) for spec in self._specs.values()) if n is not None
            }
            return self._costs.look(con, sorted(numbers), self._clock())

    def events(self, count: int) -> tuple[FleetEvent, ...]:
        """Return the last events of the adopted boxes, oldest first.

        Raises:
            HistoryError: it cannot be read.
        """
        with self._used() as (con, _):
            numbers = {states.known(con, spec): name for name, spec in self._specs.items()}
            return events.newest(con, {n: name for n, name in numbers.items() if n is not None}, count)

    def audit(self, count: int) -> tuple[AuditRow, ...]:
        """Return the last billing actions that the index knows of, oldest first.

        Raises:
            HistoryError: it cannot be read.
        """
        with self._used() as (con, _):
            return events.audit(con, count)

    def upkeep(self, *, force: bool = False) -> None:
        """Sum up what is old, drop what is too old or too much; at most every few minutes.

        Args:
            force: Do it now, and believe the clock.

        Raises:
            HistoryError: it could not be done now.
        """
        now = self._clock()
        with self._used() as (con, _):  # opening compares the clock with the file
            believed = self._steady.look(now)
            if self._upkeep.due(now) or force:
                self._upkeep.run(con, now, believed=believed or force)

    def verify(self, *, force: bool = False) -> Generator[int]:
        """Prove the whole file, a slice at a time: its structure always, its rows once a day.

        Raises:
            HistoryError: it is not what was written, or cannot be read now.
        """
        with self._used() as (con, _):
            done = marks.get(con, VERIFIED)
        # A connection of its own: a long reading must not stand in the way of what is written meanwhile.
        other = damage.read_only(self.path)
        try:
            wrong = shape_of(other, self.path)
            if wrong is not None:
                raise Damaged(f"{self.path}: {wrong}")
            today = int(self._clock() // 86400)
            if force or done != today:
                yield from damage.verify(other, self.path)
                with self._used() as (con, _), transaction(con):
                    marks.put(con, VERIFIED, today)
        finally:
            other.close()

    def renew(self) -> tuple[Path | None, Salvaged]:
        """Set the damaged file aside and begin a new one; return where the old one lies, and what was taken over.

        Raises:
            HistoryError: the new one cannot be begun either.
        """
        inode = self._inode
        self.close()
        aside = damage.set_aside(self.path, inode)
        return aside, Salvaged(0, whole=True) if aside is None else salvage(aside, self.path)

    @contextlib.contextmanager
    def _used(self) -> Iterator[tuple[sqlite3.Connection, Names]]:
        """Have the file open that stands at the path; translate what SQLite says."""
        try:
            con = self._opened()
            assert self._names is not None
            yield con, self._names
            if damage.inode_of(self.path) != self._inode:
                # Another process has set the file aside meanwhile: what was written went with it.
                self.close()
                raise judged(OSError("it was replaced while it was written"), self.path)
        except (sqlite3.Error, OverflowError) as error:
            self._undo()
            raise (
                judged(error, self.path)
                if isinstance(error, sqlite3.Error)
                else Damaged(f"{self.path}: {error}")
            ) from error
        except BaseException:
            self._undo()
            raise

    def _undo(self) -> None:
        if self._names is not None:
            self._names.forget()

    def _opened(self) -> sqlite3.Connection:
        if self._con is not None and damage.inode_of(self.path) != self._inode:
            self.close()
        if self._con is None:
            self._inode = damage.inode_of(self.path)
            self._con = connect(self.path)
            self._inode = damage.inode_of(self.path)
            self._names = Names(self._con)
            self._steady.opened(self._clock(), states.newest(self._con))
        return self._con

    def close(self) -> None:
        """Close the file. What is known of runs stays: their stamps tell whether it still holds."""
        con, self._con = self._con, None
        self._names = None
        self._costs.forget()
        self._numbers.clear()
        if con is not None:
            with contextlib.suppress(sqlite3.Error):
                con.close()


@contextlib.contextmanager
def _fitting(box: str, part: str) -> Iterator[None]:
    """Write something of a box; say so when the fault is what it told, and not the file's."""
    try:
        yield
    except HistoryError:
        raise
    except Exception as error:
        if is_unfit(error):
            raise Unfit(box, part, f"{type(error).__name__}: {error}"[:200]) from error
        raise
