"""The history file for one process. Every call may block on disk, so it runs in a thread."""

from __future__ import annotations

import contextlib
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TypeVar

import msgspec

from rgt_tui.model import (
    BoxSpec,
    BoxState,
    FleetEvent,
    FleetSpend,
    FleetState,
    FrozenStruct,
    ReducedHistory,
    RunState,
    keep_named,
)
from rgt_tui.store import database, happenings, minute_means, moments, saved_curves, spending
from rgt_tui.store.database import (
    BoxWriters,
    HistoryDamaged,
    HistoryError,
    convert_error,
    read_pragma,
    transaction,
)
from rgt_tui.store.look_back import HistoryReader
from rgt_tui.store.minute_means import SlotMean
from rgt_tui.store.saved_curves import KnownRun
from rgt_tui.store.spending import ObservedCost, ProviderSum

MAX_BYTES = 256 << 20
FLEET = ""
"""Key in a batch for data that belongs to no single box."""

_OLDEST = (
    "DELETE FROM happened WHERE n <= (SELECT n FROM happened ORDER BY n LIMIT 1 OFFSET {slice})",
    """DELETE FROM samples WHERE (box, width, chunk) IN
       (SELECT box, width, chunk FROM samples ORDER BY chunk * width LIMIT {slice} / 64)""",
    "DELETE FROM curves WHERE (box, run) IN (SELECT box, run FROM runs ORDER BY at LIMIT 1)",
    "DELETE FROM runs WHERE (box, run) IN (SELECT box, run FROM runs ORDER BY at LIMIT 1)",
)
"""Deleted together with the oldest moments while the file is too large: a few old rows of each
table."""

T = TypeVar("T")


class BoxWrites(FrozenStruct):
    """Data to write about one box; immutable, so that another thread may read it."""

    runs: BoxState | None = None
    """Newest state, if its runs must be saved."""
    means: tuple[SlotMean, ...] = ()
    costs: tuple[ObservedCost, ...] = ()
    sums: tuple[ProviderSum, ...] = ()
    events: tuple[FleetEvent, ...] = ()
    """Under `FLEET`: events of all boxes, in order of arrival."""
    moments: tuple[FleetState, ...] = ()
    """Under `FLEET`: states of all boxes at some times."""
    recorded: tuple[ReducedHistory, ...] = ()
    """History of unwatched time from the box's own recorder."""


Batch = Mapping[str, BoxWrites]
"""Data of a few seconds of a fleet, by box."""


def merge_batches(batches: Iterable[Batch]) -> Batch:
    """Merge batches in their order; of several states of a box, the newest is kept."""
    found: dict[str, BoxWrites] = {}
    # Maximum number of buffered snapshots while the disk fails; the oldest are dropped.
    most_moments = 120
    # Maximum number of a box's buffered means and events while the disk fails; the oldest are
    # dropped.
    most_rows = 5000
    for batch in batches:
        for box, new in batch.items():
            old = found.get(box)
            if old is None:
                found[box] = new
            else:
                found[box] = BoxWrites(
                    # The newest state has all that the older one had.
                    runs=new.runs or old.runs,
                    means=(*old.means, *new.means)[-most_rows:],
                    costs=spending.merge_costs((*old.costs, *new.costs)),
                    sums=(*old.sums, *new.sums)[-most_rows:],
                    events=(*old.events, *new.events)[-most_rows:],
                    moments=(*old.moments, *new.moments)[-most_moments:],
                    recorded=(*old.recorded, *new.recorded)[-most_moments:],
                )
    return found


class UnstoredPart(FrozenStruct):
    """Data of a box that cannot be stored; the file itself is fine."""

    box: str
    part: str
    why: str


class HistoryFile:
    """Opens the file at first use, and again when another process has replaced it.

    Args:
        path: The file.
        clock: Epoch seconds.
        max_bytes: Its maximum size.
        fleet: Identifies the fleet, because two fleets may have boxes of the same name.
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
        self._runs: dict[tuple[str, str], KnownRun] = {}
        """For boxes written by this process: its knowledge of their runs in the file."""
        self._writers = BoxWriters(path)
        self._recording = moments.Recording()
        self._upkeep_at = float("-inf")

    def adopt_boxes(self, specs: Sequence[BoxSpec]) -> None:
        """Set the boxes of the fleet."""
        self._specs.update((spec.name, spec) for spec in specs)

    def recall_states(self) -> dict[str, BoxState]:
        """Return the saved states of the adopted boxes.

        Raises:
            HistoryError: the file cannot be read.
        """
        found = {}
        with self._use_connection() as con:
            now = self._clock()
            for name, spec in self._specs.items():
                box = database.box_number(con, spec)
                if box is None:
                    state = None
                else:
                    state = self._recall_state(con, box, spec, now)
                if state is not None:
                    found[name] = state
        return found

    def _recall_state(
        self, con: sqlite3.Connection, box: int, spec: BoxSpec, now: float
    ) -> BoxState | None:
        # Only its writer keeps what it knows of the file: another process may change it meanwhile.
        mine = self._is_writer(spec)
        runs = saved_curves.recall_runs(con, box)
        past = minute_means.read_last_day(con, box, now)
        state = moments.recall_state(con, box, spec, now)
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

    def _is_writer(self, spec: BoxSpec) -> bool:
        return self._writers.acquire_box(database.box_identity(spec))

    def commit_batch(self, batch: Batch) -> tuple[UnstoredPart, ...]:
        """Write a batch in one transaction, for adopted boxes not written by another process.

        Returns:
            Parts that cannot be stored and were left out.

        Raises:
            HistoryError: nothing was written.
        """
        left_out: list[UnstoredPart] = []
        with self._use_connection() as con:
            now = self._clock()
            runs: dict[tuple[str, str], KnownRun] = {}
            # A copy, adopted only after the commit: a rollback also takes back new numbers.
            numbers = dict(self._numbers)
            try:
                with transaction(con):
                    writing = [
                        (name, spec) for name, spec in self._specs.items() if self._is_writer(spec)
                    ]
                    for name, spec in writing:
                        # Within the transaction: two processes could give a new box two numbers.
                        if name not in numbers:
                            numbers[name] = database.number_box(con, self._fleet, spec)
                        told = batch.get(name)
                        if told is not None:
                            parts = self._iterate_parts(con, numbers[name], told, runs, now)
                            left_out += self._write_parts(con, name, parts)
                    written = {name: numbers[name] for name, _ in writing}
                    whole = batch.get(FLEET, BoxWrites())
                    for event in whole.events:  # of all boxes, in order of arrival
                        if not event.box and written:
                            written[""] = database.number_fleet(con, self._fleet)
                        # An event of a box that another process writes is written there.
                        if event.box in written:
                            write = partial(happenings.write_event, con, written[event.box], event)
                            left_out += self._write_parts(con, event.box, [("events", write)])
                    written.pop("", None)
                    for state in whole.moments if written else ():
                        left_out += self._remembered(con, written, state)
            except BaseException:
                self._recording.reset_bases()
                raise
            self._numbers.update(numbers)
            self._runs.update(runs)
        return tuple(left_out)

    def _write_parts(
        self, con: sqlite3.Connection, box: str, parts: Iterable[tuple[str, Callable[[], None]]]
    ) -> Iterator[UnstoredPart]:
        """Write the parts of a box; yield those that cannot be stored."""
        for part, write in parts:
            try:
                with database.savepoint(con):
                    write()
            except Exception as error:
                # Only data that cannot be stored is left out; a full disk fails the whole batch.
                if not database.is_unfit(error):
                    raise
                yield UnstoredPart(box, part, f"{type(error).__name__}: {error}"[:200])

    def _remembered(
        self, con: sqlite3.Connection, numbers: Mapping[str, int], state: FleetState
    ) -> Iterator[UnstoredPart]:
        """Write the states of the boxes at a moment."""
        n = moments.write_tick(con, self._fleet, state)
        for box in state.boxes:
            name = box.spec.name
            if name in numbers:
                write = partial(
                    self._recording.write_snapshot, con, numbers[name], n, state.at, box
                )
                found = list(self._write_parts(con, name, [("moment", write)]))
                if found:
                    # The next snapshot is stored whole, since the one it would refer to is missing.
                    self._recording.reset_bases()
                yield from found

    def _iterate_parts(
        self,
        con: sqlite3.Connection,
        box: int,
        told: BoxWrites,
        runs: dict[tuple[str, str], KnownRun],
        now: float,
    ) -> Iterator[tuple[str, Callable[[], None]]]:
        """Yield the parts to write for a box; each can fail separately."""
        if told.means:
            yield "readings", partial(_write_each, minute_means.write_mean, con, box, told.means)
        if told.costs:
            yield "costs", partial(_write_each, spending.add_cost, con, box, told.costs)
        if told.sums:
            yield (
                "provider's sums",
                partial(_write_each, spending.apply_provider_sum, con, box, told.sums),
            )
        if told.events:
            yield "events", partial(_write_each, happenings.write_event, con, box, told.events)
        if told.recorded:
            yield (
                "recorder's summary",
                partial(_write_each, moments.write_recorded, con, box, told.recorded),
            )
        if told.runs is None:
            return
        for run in told.runs.runs:
            key = (told.runs.spec.name, run.name)
            # By identity: a run that has not changed is the same object.
            if key not in self._runs or self._runs[key].run is not run:
                # A part of its own: a run that cannot be stored keeps no other from the file.
                yield "runs", partial(self._save_run, con, box, key, run, runs, now)

    def _save_run(
        self,
        con: sqlite3.Connection,
        box: int,
        key: tuple[str, str],
        run: RunState,
        runs: dict[tuple[str, str], KnownRun],
        now: float,
    ) -> None:
        runs[key] = saved_curves.save_run(con, box, run, self._runs.get(key), now)

    def read_spend(self) -> FleetSpend:
        """Return the fleet's costs, including former boxes of the same names.

        Raises:
            HistoryError: the file cannot be read.
        """
        with self._use_connection() as con:
            numbers = {
                n
                for name in self._specs
                for n in database.box_numbers_named(con, self._fleet, name)
            }
            numbers |= {
                n
                for n in (database.box_number(con, s) for s in self._specs.values())
                if n is not None
            }
            return spending.read_spend(con, sorted(numbers), self._clock())

    def query_history(self, question: Callable[[HistoryReader], T]) -> T:
        """Run a query on the fleet's history, including former boxes of the same names.

        Raises:
            HistoryError: the file cannot be read.
        """
        with self._use_connection() as con:
            names = database.boxes_of_fleet(con, self._fleet)
            for name, spec in self._specs.items():
                box = database.box_number(con, spec)
                if box is not None:
                    names[box] = name
            return question(HistoryReader(con, self._fleet, names, self._specs))

    def run_upkeep(self, *, force: bool = False) -> str | None:
        """Delete excess rows and write the daily backup; every few minutes, or now with `force`.

        Returns:
            Why the backup could not be written, or None.

        Raises:
            HistoryError: it could not be done now.
        """
        now = self._clock()
        upkeep_seconds = 300.0
        if 0 <= now - self._upkeep_at < upkeep_seconds and not force:
            return None
        self._upkeep_at = now
        with self._use_connection() as con:
            with transaction(con):
                happenings.trim_events(con)
                if moments.thin_snapshots(con):
                    self._recording.reset_bases()
            self._delete_until_within_limit(con)
            try:
                database.back_up(con, self.path, now)
            except (sqlite3.Error, OSError) as error:
                trouble = convert_error(error, database.backup_of(self.path))
                if isinstance(trouble, HistoryDamaged):
                    raise
                return f"no backup of the history could be written: {trouble}"
        return None

    def _delete_until_within_limit(self, con: sqlite3.Connection) -> None:
        """Delete the oldest rows until the file is below its maximum size."""
        if count_used_bytes(con) > self._max_bytes:
            low_water = 0.9
            # Events deleted per transaction, so that no other writer waits long.
            slice_limit = 2000
            while count_used_bytes(con) > low_water * self._max_bytes:
                with transaction(con):
                    gone = moments.thin_oldest(con)
                    gone += sum(
                        con.execute(each.format(slice=slice_limit)).rowcount for each in _OLDEST
                    )
                # Nothing left to delete: the limit is smaller than an empty file.
                if not gone:
                    break
            # Some runs may be deleted, so what this process knows of them is invalid.
            self._runs.clear()
            self._recording.reset_bases()
        if read_pragma(con, "freelist_count"):
            con.execute("PRAGMA incremental_vacuum(2000)").fetchall()

    def restore_backup(self) -> database.RestoreResult | None:
        """Replace the damaged file by its backup; return the result.

        None = another rgt has already done so.

        Raises:
            HistoryError: it cannot be done now.
        """
        inode = self._inode
        self.close()
        return database.restore_backup(self.path, inode, self._clock())

    @contextlib.contextmanager
    def _use_connection(self) -> Iterator[sqlite3.Connection]:
        """Open the file that is now at the path, and convert SQLite's errors."""
        try:
            con = self._current_connection()
            yield con
            if database.inode_of(self.path) != self._inode:
                # Another process has replaced the file meanwhile: the data went to the old one.
                self.close()
                raise convert_error(OSError("it was replaced while it was written"), self.path)
        except HistoryError:
            raise
        except (sqlite3.Error, OSError) as error:
            raise convert_error(error, self.path) from error

    def _current_connection(self) -> sqlite3.Connection:
        if self._con is not None and database.inode_of(self.path) != self._inode:
            self.close()
        if self._con is None:
            self._inode = database.inode_of(self.path)
            self._con = database.connect(self.path)
            # Once more: connecting may have created the file.
            self._inode = database.inode_of(self.path)
        return self._con

    def close(self) -> None:
        """Close the file and release its boxes to other writers."""
        con, self._con = self._con, None
        self._numbers.clear()
        self._runs.clear()
        self._recording.reset_bases()
        if con is not None:
            with contextlib.suppress(sqlite3.Error):
                con.close()
        self._writers.release()


def _write_each(
    write: Callable[[sqlite3.Connection, int, T], None],
    con: sqlite3.Connection,
    box: int,
    items: Iterable[T],
) -> None:
    for item in items:
        write(con, box, item)


def count_used_bytes(con: sqlite3.Connection) -> int:
    """Return the bytes in use in the file."""
    return (read_pragma(con, "page_count") - read_pragma(con, "freelist_count")) * read_pragma(
        con, "page_size"
    )
