"""The history file for one process. Everything here may wait for the disk, so it runs in its own thread."""

from __future__ import annotations

import contextlib
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TypeVar

import msgspec

from rgt_tui.model import BoxSpec, BoxState, FleetEvent, FleetState, Past, Spend, keep_named
from rgt_tui.store import database, happenings, minute_means, moments, saved_curves, spending
from rgt_tui.store.database import Damaged, HistoryError, Writers, judged, pragma, transaction
from rgt_tui.store.look_back import LookBack
from rgt_tui.store.minute_means import Mean
from rgt_tui.store.saved_curves import Kept
from rgt_tui.store.spending import Cost, ProviderSum

MAX_BYTES = 256 << 20
LOW_WATER = 0.9
SLICE = 2000
"""Events deleted in one go, so that no other writer waits long."""
UPKEEP_SECONDS = 300.0
FLEET = ""
"""Of a batch: what concerns no single box stands under this name."""
MOST_MOMENTS = 120
"""Snapshots that are held back while the disk refuses; the oldest then go."""
MOST_ROWS = 5000
"""Means and events of a box that are held back while the disk refuses; the oldest then go."""

_OLDEST = (
    "DELETE FROM happened WHERE n <= (SELECT n FROM happened ORDER BY n LIMIT 1 OFFSET {slice})",
    """DELETE FROM samples WHERE (box, width, chunk) IN
       (SELECT box, width, chunk FROM samples ORDER BY chunk * width LIMIT {slice} / 64)""",
    "DELETE FROM curves WHERE (box, run) IN (SELECT box, run FROM runs ORDER BY at LIMIT 1)",
    "DELETE FROM runs WHERE (box, run) IN (SELECT box, run FROM runs ORDER BY at LIMIT 1)",
)
"""Deleted together with the oldest moments while the file is too large: a few old rows of each table."""

T = TypeVar("T")


class Told(msgspec.Struct, frozen=True):
    """What is to be written of one box; immutable, so that another thread may read it."""

    runs: BoxState | None = None
    """Newest state, if its runs are to be saved."""
    means: tuple[Mean, ...] = ()
    costs: tuple[Cost, ...] = ()
    sums: tuple[ProviderSum, ...] = ()
    events: tuple[FleetEvent, ...] = ()
    """Under `FLEET`: of all boxes, in the order in which they came."""
    moments: tuple[FleetState, ...] = ()
    """Under `FLEET`: how all boxes stood at some times."""
    recorded: tuple[Past, ...] = ()
    """What the box's own recorder has told of time that nobody watched."""


Batch = Mapping[str, Told]
"""A few seconds of a fleet, by box."""


def joined(batches: Iterable[Batch]) -> Batch:
    """Return several batches, in their order, as one: of a state only the newest counts."""
    found: dict[str, Told] = {}
    for batch in batches:
        for box, new in batch.items():
            old = found.get(box)
            if old is None:
                found[box] = new
            else:
                found[box] = Told(
                    runs=new.runs or old.runs,
                    means=(*old.means, *new.means)[-MOST_ROWS:],
                    costs=spending.joined((*old.costs, *new.costs)),
                    sums=(*old.sums, *new.sums)[-MOST_ROWS:],
                    events=(*old.events, *new.events)[-MOST_ROWS:],
                    moments=(*old.moments, *new.moments)[-MOST_MOMENTS:],
                    recorded=(*old.recorded, *new.recorded)[-MOST_MOMENTS:],
                )
    return found


class LeftOut(msgspec.Struct, frozen=True):
    """Something that a box told and that fits no history; nothing is wrong with the file."""

    box: str
    part: str
    why: str


class HistoryFile:
    """Opens the file when it is first used, and again when another process has replaced it.

    Args:
        path: The file.
        clock: Epoch seconds.
        max_bytes: Its bound.
        fleet: By what the fleet is known: of two fleets, both may have a box of one name.
    """

    def __init__(
        self,
        path: Path,
        *,
        clock: Callable[[], float] = time.time,
        max_bytes: int = MAX_BYTES,
        fleet: str = "",
    ) -> None:
        self.path = path
        self._clock = clock
        self._max_bytes = max_bytes
        self._fleet = fleet
        self._con: sqlite3.Connection | None = None
        self._inode: int | None = None
        self._specs: dict[str, BoxSpec] = {}
        self._numbers: dict[str, int] = {}
        self._runs: dict[tuple[str, str], Kept] = {}
        """Of the boxes that this process writes: what it knows of their runs in the file."""
        self._writers = Writers(path)
        self._recording = moments.Recording()
        self._upkeep_at = float("-inf")

    def adopt(self, specs: Sequence[BoxSpec]) -> None:
        """Say which boxes there are."""
        self._specs.update((spec.name, spec) for spec in specs)

    def recall(self) -> dict[str, BoxState]:
        """Return what is known of the boxes that were adopted.

        Raises:
            HistoryError: it cannot be read.
        """
        found = {}
        with self._used() as con:
            now = self._clock()
            for name, spec in self._specs.items():
                box = database.known(con, spec)
                state = None if box is None else self._recalled(con, box, spec, now)
                if state is not None:
                    found[name] = state
        return found

    def _recalled(
        self, con: sqlite3.Connection, box: int, spec: BoxSpec, now: float
    ) -> BoxState | None:
        mine = self._writes(spec)
        runs = saved_curves.recall(con, box)
        past = minute_means.past(con, box, now)
        state = moments.recall(con, box, spec, now)
        if state is None and not runs and not past.at:
            return None
        if mine:
            self._runs.update(((spec.name, kept.run.name), kept) for kept in runs)
        whole = msgspec.structs.replace(
            state or BoxState(spec=spec, since=now),
            runs=tuple(kept.run for kept in runs),
            past=past,
        )
        return keep_named(whole)

    def _writes(self, spec: BoxSpec) -> bool:
        return self._writers.take(database.place_of(spec))

    def commit(self, batch: Batch) -> tuple[LeftOut, ...]:
        """Write a batch, all or nothing: of the boxes that were adopted and that no other process writes.

        Returns:
            What fits no history, and was left out alone.

        Raises:
            HistoryError: nothing was written.
        """
        left_out: list[LeftOut] = []
        with self._used() as con:
            now = self._clock()
            runs: dict[tuple[str, str], Kept] = {}
            numbers = dict(self._numbers)
            try:
                with transaction(con):
                    writing = [
                        (name, spec) for name, spec in self._specs.items() if self._writes(spec)
                    ]
                    for name, spec in writing:
                        if name not in numbers:
                            numbers[name] = database.number(con, self._fleet, spec)
                        told = batch.get(name)
                        if told is not None:
                            parts = self._parts(con, numbers[name], told, runs, now)
                            left_out += self._written(con, name, parts)
                    written = {name: numbers[name] for name, _ in writing}
                    whole = batch.get(FLEET, Told())
                    for event in whole.events:  # of all boxes, in the order in which they came
                        if not event.box and written:
                            written[""] = database.number_of_fleet(con, self._fleet)
                        if event.box in written:
                            write = partial(happenings.write, con, written[event.box], event)
                            left_out += self._written(con, event.box, [("events", write)])
                    written.pop("", None)
                    for state in whole.moments if written else ():
                        left_out += self._remembered(con, written, state)
            except BaseException:
                self._recording.forget()
                raise
            self._numbers.update(numbers)
            self._runs.update(runs)
        return tuple(left_out)

    def _written(
        self, con: sqlite3.Connection, box: str, parts: Iterable[tuple[str, Callable[[], None]]]
    ) -> Iterator[LeftOut]:
        """Write the parts of a box; yield those that fit no history."""
        for part, write in parts:
            try:
                with database.savepoint(con):
                    write()
            except Exception as error:
                if not database.is_unfit(error):
                    raise
                yield LeftOut(box, part, f"{type(error).__name__}: {error}"[:200])

    def _remembered(
        self, con: sqlite3.Connection, numbers: Mapping[str, int], state: FleetState
    ) -> Iterator[LeftOut]:
        """Write how the boxes stood at a moment."""
        n = moments.write_tick(con, self._fleet, state)
        for box in state.boxes:
            name = box.spec.name
            if name in numbers:
                write = partial(self._recording.write, con, numbers[name], n, state.at, box)
                found = list(self._written(con, name, [("moment", write)]))
                if found:
                    self._recording.forget()
                yield from found

    def _parts(
        self,
        con: sqlite3.Connection,
        box: int,
        told: Told,
        runs: dict[tuple[str, str], Kept],
        now: float,
    ) -> Iterator[tuple[str, Callable[[], None]]]:
        """Yield what is to be written of a box, each part for itself."""
        if told.means:
            yield "readings", partial(_each, minute_means.write, con, box, told.means)
        if told.costs:
            yield "costs", partial(_each, spending.add, con, box, told.costs)
        if told.sums:
            yield "provider's sums", partial(_each, spending.take_sum, con, box, told.sums)
        if told.events:
            yield "events", partial(_each, happenings.write, con, box, told.events)
        if told.recorded:
            yield (
                "recorder's summary",
                partial(_each, moments.write_recorded, con, box, told.recorded),
            )
        if told.runs is not None:
            yield "runs", partial(self._save_runs, con, box, told.runs, runs, now)

    def _save_runs(
        self,
        con: sqlite3.Connection,
        box: int,
        state: BoxState,
        runs: dict[tuple[str, str], Kept],
        now: float,
    ) -> None:
        for run in state.runs:
            key = (state.spec.name, run.name)
            known = self._runs.get(key)
            if known is None or known.run is not run:
                runs[key] = saved_curves.save(con, box, run, known, now)

    def spend(self) -> Spend:
        """Return what the fleet's boxes cost, also those that had their names before.

        Raises:
            HistoryError: it cannot be read.
        """
        with self._used() as con:
            numbers = {n for name in self._specs for n in database.of_name(con, self._fleet, name)}
            numbers |= {
                n for n in (database.known(con, s) for s in self._specs.values()) if n is not None
            }
            return spending.spent(con, sorted(numbers), self._clock())

    def events(self, count: int) -> tuple[FleetEvent, ...]:
        """Return the last events of the adopted boxes, oldest first.

        Raises:
            HistoryError: it cannot be read.
        """
        with self._used() as con:
            numbers = {database.known(con, spec): name for name, spec in self._specs.items()}
            names = {n: name for n, name in numbers.items() if n is not None}
            return happenings.newest(con, names, count)

    def look_back(self, question: Callable[[LookBack], T]) -> T:
        """Ask something about the past of the fleet: also of boxes that had one of its names before.

        Raises:
            HistoryError: it cannot be read.
        """
        with self._used() as con:
            names = database.ever_of(con, self._fleet)
            for name, spec in self._specs.items():
                box = database.known(con, spec)
                if box is not None:
                    names[box] = name
            return question(LookBack(con, self._fleet, names, self._specs))

    def upkeep(self, *, force: bool = False) -> str | None:
        """Drop what is too much and write the daily backup; every few minutes, or at once with `force`.

        Returns:
            Why the backup could not be written; None when nothing is wrong.

        Raises:
            HistoryError: it could not be done now.
        """
        now = self._clock()
        if 0 <= now - self._upkeep_at < UPKEEP_SECONDS and not force:
            return None
        self._upkeep_at = now
        with self._used() as con:
            with transaction(con):
                happenings.trim(con)
                if moments.thin(con):
                    self._recording.forget()
            self._make_room(con)
            try:
                database.back_up(con, self.path, now)
            except (sqlite3.Error, OSError) as error:
                trouble = judged(error, database.backup_of(self.path))
                if isinstance(trouble, Damaged):
                    raise
                return f"no backup of the history could be written: {trouble}"
        return None

    def _make_room(self, con: sqlite3.Connection) -> None:
        """Delete what is oldest until the file is below its bound."""
        if used(con) > self._max_bytes:
            while used(con) > LOW_WATER * self._max_bytes:
                with transaction(con):
                    gone = moments.thin_oldest(con)
                    gone += sum(con.execute(each.format(slice=SLICE)).rowcount for each in _OLDEST)
                if not gone:
                    break
            # What is known of the runs that are gone is no longer so.
            self._runs.clear()
            self._recording.forget()
        if pragma(con, "freelist_count"):
            con.execute("PRAGMA incremental_vacuum(2000)").fetchall()

    def restore(self) -> database.Restored | None:
        """Replace the damaged file by its backup, and return what was done; None when another rgt did it.

        Raises:
            HistoryError: it cannot be done now.
        """
        inode = self._inode
        self.close()
        return database.restore(self.path, inode, self._clock())

    @contextlib.contextmanager
    def _used(self) -> Iterator[sqlite3.Connection]:
        """Have the file open that stands at the path; translate what SQLite says."""
        try:
            con = self._opened()
            yield con
            if database.inode_of(self.path) != self._inode:
                # Another process has set the file aside meanwhile: what was written went with it.
                self.close()
                raise judged(OSError("it was replaced while it was written"), self.path)
        except HistoryError:
            raise
        except (sqlite3.Error, OSError) as error:
            raise judged(error, self.path) from error

    def _opened(self) -> sqlite3.Connection:
        if self._con is not None and database.inode_of(self.path) != self._inode:
            self.close()
        if self._con is None:
            self._inode = database.inode_of(self.path)
            self._con = database.connect(self.path)
            self._inode = database.inode_of(self.path)
        return self._con

    def close(self) -> None:
        """Close the file and leave its boxes to other writers."""
        con, self._con = self._con, None
        self._numbers.clear()
        self._runs.clear()
        self._recording.forget()
        if con is not None:
            with contextlib.suppress(sqlite3.Error):
                con.close()
        self._writers.release()


def _each(
    write: Callable[[sqlite3.Connection, int, T], None],
    con: sqlite3.Connection,
    box: int,
    items: Iterable[T],
) -> None:
    for item in items:
        write(con, box, item)


def used(con: sqlite3.Connection) -> int:
    """Return the bytes of the file that hold something."""
    return (pragma(con, "page_count") - pragma(con, "freelist_count")) * pragma(con, "page_size")
