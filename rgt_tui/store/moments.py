"""Snapshots of the fleet, minute by minute, from which screens can be drawn again.

A snapshot is compressed with an earlier one, its base, as dictionary, so that it contains little
more than the changes. Up to 60 snapshots depend on one base, which is therefore stored twice: no
damaged row makes another one unreadable. zlib's checksum detects a damaged row.
"""

from __future__ import annotations

import math
import sqlite3
import zlib
from array import array
from collections.abc import Iterable, Iterator, Sequence

import msgspec

from rgt_tui.language import load_text, store_text
from rgt_tui.model import (
    AccountBill,
    Alert,
    BoxSpec,
    BoxState,
    CostTally,
    FleetSpend,
    FleetState,
    FrozenStruct,
    LinkState,
    LogView,
    ReceivedTimes,
    ReducedHistory,
    RowSparklines,
    RunState,
    Timeline,
    UnwatchedSpan,
    time_of_day,
)

TABLES = (
    """CREATE TABLE ticks (n INTEGER PRIMARY KEY, fleet TEXT NOT NULL, at REAL NOT NULL,
       body BLOB NOT NULL)""",
    "CREATE INDEX ticks_of ON ticks (fleet, n, at)",
    """CREATE TABLE bases (box INTEGER NOT NULL, base INTEGER NOT NULL, copy INTEGER NOT NULL,
       body BLOB NOT NULL, PRIMARY KEY (box, base, copy))""",
    """CREATE TABLE moments (box INTEGER NOT NULL, n INTEGER NOT NULL, at REAL NOT NULL,
       base INTEGER NOT NULL, body BLOB NOT NULL, PRIMARY KEY (box, n))""",
    """CREATE TABLE recorded (box INTEGER NOT NULL, first REAL NOT NULL, last REAL NOT NULL,
       body BLOB NOT NULL, PRIMARY KEY (box, first, last))""",
)
"""With row ids: without them, a row larger than a quarter of a page takes a page of its own."""


class SnapshotLimits(FrozenStruct):
    """How large the recorded snapshots may be."""

    window: int = 32768
    """Bytes of a dictionary that deflate can use."""
    most_bytes: int = 512 << 10
    """A larger snapshot (before compression) is not stored."""
    total_bytes: int = 64 << 20
    """Total bytes of all snapshots; beyond, the oldest are thinned out."""
    near_s: float = 150.0
    """A longer gap between two moments counts as unwatched time."""
    log_lines: int = 2000
    """Maximum number of lines of a log that are reassembled."""
    events: int = 20
    """Newest events of a box in a snapshot."""


SNAPSHOT = SnapshotLimits()

GAP = "··· {} lines were not kept ···"

_replace = msgspec.structs.replace


class LogPart(FrozenStruct, array_like=True):
    """The lines added to a log since the previous snapshot."""

    path: str
    total: int
    """Total number of its lines, as counted by the client."""
    at: float | None = None
    lines: tuple[str, ...] = ()
    """The last of the new lines."""


class CurvePlace(FrozenStruct, array_like=True):
    """The end of a curve at the time of a snapshot."""

    run: str
    metric: str
    last: int
    """Step of its last point."""
    backs: int
    """How often its steps had gone back by then, as after a resume."""


class BoxSnapshot(FrozenStruct):
    """The body of a row of ``moments``."""

    state: BoxState
    logs: tuple[LogPart, ...] = ()
    curves: tuple[CurvePlace, ...] = ()
    tallies: tuple[CostTally, ...] = ()


class _SnapshotLogs(FrozenStruct):
    logs: tuple[LogPart, ...] = ()


class TickBody(FrozenStruct):
    """The body of a row of ``ticks``: data that belongs to no single box."""

    spend: FleetSpend | None = None
    alerts: tuple[Alert, ...] = ()
    accounts: tuple[AccountBill, ...] = ()


_encode = msgspec.msgpack.Encoder().encode
_state = msgspec.msgpack.Decoder(BoxSnapshot)
_logs = msgspec.msgpack.Decoder(_SnapshotLogs)
_tick = msgspec.msgpack.Decoder(TickBody)
_past = msgspec.msgpack.Decoder(ReducedHistory)


# Writing.


def storable_state(state: BoxState) -> BoxState:
    """Return the parts of a state that a snapshot stores.

    It has no curves, lines or full rings, and nothing about this computer.
    """
    rings = RowSparklines(
        gpu_util=_round_percents(state.rings.gpu_util),
        vram_pct=_round_percents(state.rings.vram_pct),
        cgroup_pct=_round_percents(state.rings.cgroup_pct),
    )
    return _replace(
        state,
        # The history is no place for secrets: it may be copied, or sent away.
        spec=state.spec.without_secrets(),
        rings=rings,
        # Curves have tables of their own; here only the ends are kept, by `CurvePlace`.
        runs=tuple(_replace(run, series={}, cursors={}) for run in state.runs),
        logs=(),
        events=state.events[-SNAPSHOT.events :],
        alerts=tuple(alert.as_stored() for alert in state.alerts),
        findings=tuple(finding.as_stored() for finding in state.findings),
        reason=store_text(state.reason),
        past=ReducedHistory(),
        recent=ReducedHistory(),
        seen=ReceivedTimes(),
    )


def _round_percents(ring: Sequence[float | None]) -> tuple[float | None, ...]:
    """Return the newest values in whole percent; impossible values stay as they are."""
    # Values kept of a row's sparkline, in whole percent.
    ring_limit = 32
    most_percent = 1e6
    found: list[float | None] = []
    for value in ring[-ring_limit:]:
        if value is None or math.isnan(value):
            found.append(None)
        elif abs(value) < most_percent:
            found.append(round(value))
        else:
            # An absurd value stays as it is: it shows that the reading is wrong.
            found.append(value)
    return tuple(found)


class _SnapshotBase:
    __slots__ = ("body", "count", "number")

    def __init__(self, number: int, body: bytes) -> None:
        self.number = number
        self.body = body
        self.count = 0


class Recording:
    """Writes the snapshots of boxes; tracks which parts are in the file already."""

    def __init__(self) -> None:
        self._bases: dict[int, _SnapshotBase] = {}
        self._totals: dict[int, dict[str, int]] = {}
        self._backs: dict[tuple[int, str, str], tuple[list[int], int, int]] = {}

    def reset_bases(self) -> None:
        """Start over: the data written so far is gone, or may be."""
        self._bases.clear()
        self._totals.clear()
        self._backs.clear()

    def write_snapshot(
        self, con: sqlite3.Connection, box: int, n: int, at: float, state: BoxState
    ) -> None:
        """Write the state of a box.

        Args:
            con: In a transaction.
            box: Its number.
            n: Number of the moment.
            at: Client clock.
            state: The published state.

        Raises:
            ValueError: it is too large to be stored.
        """
        totals: dict[str, int] = {}
        logs = tuple(self._build_log_part(box, view, totals) for view in _newest_logs(state.logs))
        tallies = tuple(iterate_tallies(con, [box]))
        body = _encode(
            BoxSnapshot(
                storable_state(state),
                logs,
                tuple(self._iterate_curve_places(box, state.runs)),
                tallies,
            )
        )
        # A box decides how much it sends; the history must not grow without a limit.
        if len(body) > SNAPSHOT.most_bytes:
            raise ValueError(
                f"a snapshot of {len(body):,} bytes is more than the {SNAPSHOT.most_bytes:,} that "
                "are kept"
            )
        base = self._choose_base(con, box, n, body)
        con.execute(
            "INSERT OR REPLACE INTO moments VALUES (?, ?, ?, ?, ?)",
            (box, n, at, base.number, pack_snapshot(body, base.body)),
        )
        base.count += 1
        self._totals[box] = totals

    def _choose_base(self, con: sqlite3.Connection, box: int, n: int, body: bytes) -> _SnapshotBase:
        base = self._bases.get(box)
        on_a_base = 60
        if base is not None and base.count < on_a_base:
            # Thinning may have deleted it meanwhile.
            there = con.execute(
                "SELECT 1 FROM bases WHERE box = ? AND base = ?", (box, base.number)
            ).fetchone()
            if there is not None:
                return base
        base = self._bases[box] = _SnapshotBase(n, body)
        whole = zlib.compress(body, 6)
        con.executemany(
            "INSERT OR REPLACE INTO bases VALUES (?, ?, ?, ?)",
            # Twice, because up to 60 snapshots cannot be read without it.
            [(box, n, copy, whole) for copy in (0, 1)],
        )
        return base

    def _build_log_part(self, box: int, view: LogView, totals: dict[str, int]) -> LogPart:
        total = view.dropped + len(view.lines)
        known = self._totals.get(box, {}).get(view.path, 0)
        if total >= known:
            new = total - known
        else:
            # The log began again, so all of its lines are new.
            new = len(view.lines)
        totals[view.path] = total
        # The last line may have been unfinished when it was last written, so it is written again.
        # Maximum number of new lines of a log in one snapshot, the newest.
        lines_limit = 200
        lines = view.lines[-min(new + (known > 0), lines_limit) :]
        longest_line = 400
        return LogPart(view.path, total, view.at, tuple(line[:longest_line] for line in lines))

    def _iterate_curve_places(self, box: int, runs: Iterable[RunState]) -> Iterator[CurvePlace]:
        for run in runs:
            for metric, series in run.series.items():
                xs, _, count = series.backing_columns()
                if not count:
                    continue
                key = (box, run.name, metric)
                known, done, backs = self._backs.get(key, (xs, 0, 0))
                # Another list, or a shorter one: the curve was rewound by a resume.
                if known is not xs or done > count:
                    done = backs = 0
                backs += sum(xs[i] < xs[i - 1] for i in range(max(1, done), count))
                self._backs[key] = (xs, count, backs)
                yield CurvePlace(run.name, metric, xs[count - 1], backs)


def _newest_logs(logs: Sequence[LogView]) -> list[LogView]:
    logs_limit = 8
    # The most recently written ones; the result keeps their usual order.
    kept = sorted(logs, key=lambda view: -(view.at or 0.0))[:logs_limit]
    return [view for view in logs if view in kept]


def write_tick(con: sqlite3.Connection, fleet: str, state: FleetState) -> int:
    """Write the data that belongs to no single box; return the number of the moment."""
    alerts = tuple(alert.as_stored() for alert in state.alerts)
    body = _encode(TickBody(state.spend, alerts, state.accounts))
    con.execute(
        "INSERT INTO ticks (fleet, at, body) VALUES (?, ?, ?)",
        (fleet, state.at, zlib.compress(body, 6)),
    )
    return int(con.execute("SELECT last_insert_rowid()").fetchone()[0])


def write_recorded(con: sqlite3.Connection, box: int, past: ReducedHistory) -> None:
    """Write a box's own recording of unwatched time; above the limit, the oldest is deleted."""
    body = zlib.compress(_encode(past), 6)
    con.execute(
        "INSERT OR REPLACE INTO recorded VALUES (?, ?, ?, ?)",
        (box, past.at[0] - past.width, past.at[-1], body),
    )
    # Number of summaries kept of a box's own recorder.
    most_recorded = 100
    con.execute(
        """DELETE FROM recorded WHERE box = ? AND first <
           (SELECT first FROM recorded WHERE box = ? ORDER BY first DESC LIMIT 1 OFFSET ?)""",
        (box, box, most_recorded),
    )


def iterate_tallies(con: sqlite3.Connection, boxes: Sequence[int]) -> Iterator[CostTally]:
    """Yield the total costs of boxes, by currency."""
    marks = ", ".join("?" * len(boxes))
    for row in con.execute(
        f"""SELECT currency, sum(billed), sum(idle), sum(estimated) FROM
            (SELECT currency, billed, idle, 0.0 AS estimated FROM days WHERE box IN ({marks}) UNION ALL
             SELECT currency, amount, 0.0, amount FROM estimates WHERE box IN ({marks})) GROUP BY currency""",
        (*boxes, *boxes),
    ):
        yield CostTally(*row)


def pack_snapshot(body: bytes, base: bytes) -> bytes:
    """Return a snapshot compressed with its base as dictionary."""
    deflate = zlib.compressobj(6, zdict=base[-SNAPSHOT.window :])
    return deflate.compress(body) + deflate.flush()


def unpack_snapshot(body: bytes, base: bytes) -> bytes:
    """Return a decompressed snapshot.

    Raises:
        zlib.error: it is damaged, or has another base.
    """
    inflate = zlib.decompressobj(zdict=base[-SNAPSHOT.window :])
    # Limited: a damaged row could unpack to gigabytes.
    found = inflate.decompress(body, SNAPSHOT.most_bytes + 1) + inflate.flush()
    if not inflate.eof:
        raise zlib.error("it is cut off")
    return found


# Reading.


class StoredState(FrozenStruct):
    """The state of a box as stored in the file."""

    at: float
    saved: BoxSnapshot


def _in_language(state: BoxState) -> BoxState:
    """Return a recorded state with its texts in the person's language."""
    return _replace(
        state,
        alerts=tuple(alert.in_language() for alert in state.alerts),
        findings=tuple(finding.in_language() for finding in state.findings),
        reason=load_text(state.reason),
    )


def state_at(con: sqlite3.Connection, box: int, n: int) -> StoredState | None:
    """Return the last snapshot of a box up to a moment; None = missing or damaged."""
    row = con.execute(
        "SELECT at, base, body FROM moments WHERE box = ? AND n <= ? ORDER BY n DESC LIMIT 1",
        (box, n),
    ).fetchone()
    if row is None:
        return None
    body = _whole_body(con, box, row[1], row[2], {})
    try:
        if body is None:
            return None
        snapshot = _state.decode(body)
        return StoredState(row[0], _replace(snapshot, state=_in_language(snapshot.state)))
    except msgspec.MsgspecError:
        return None


def recall_state(con: sqlite3.Connection, box: int, spec: BoxSpec, now: float) -> BoxState | None:
    """Return the last readable values of a box, saved by an earlier rgt; None = no values.

    Args:
        con: The file.
        box: Its number.
        spec: Its present description.
        now: Client clock.
    """
    # An older snapshot is better than none if the newest is damaged.
    for (n,) in con.execute("SELECT n FROM moments WHERE box = ? ORDER BY n DESC", (box,)):
        kept = state_at(con, box, n)
        if kept is not None:
            break
    else:
        return None
    last = kept.saved.state
    read_at = filter(None, (last.sample_at, last.meter.at))
    at = max(read_at, default=last.remembered_at or kept.at)
    return BoxState(
        spec=spec,
        link=LinkState.CONNECTING,
        reason=f"not connected yet; values of {time_of_day(at, now)} by an earlier rgt",
        since=now,
        sample=last.sample,
        sample_at=last.sample_at,
        clock_skew=last.clock_skew,
        queues=last.queues,
        checkpoints=last.checkpoints,
        meter=last.meter,
        limited=last.limited,
        remembered_at=at,
    )


def _whole_body(
    con: sqlite3.Connection, box: int, base: int, body: bytes, bases: dict[tuple[int, int], bytes]
) -> bytes | None:
    """Return a decompressed snapshot, or None if it is damaged.

    If the first copy of its base is damaged, the second is used.
    """
    for copy in (0, 1):
        try:
            if (base, copy) not in bases:
                (stored,) = con.execute(
                    "SELECT body FROM bases WHERE box = ? AND base = ? AND copy = ?",
                    (box, base, copy),
                ).fetchone()
                bases[base, copy] = zlib.decompress(stored)
            return unpack_snapshot(body, bases[base, copy])
        except (zlib.error, TypeError):
            continue
    return None


def logs_at(con: sqlite3.Connection, box: int, n: int) -> tuple[LogView, ...]:
    """Return the logs of a box at a moment; missing lines are replaced by their number."""
    gathered: dict[str, _LogReassembly] = {}
    order: list[str] = []
    bases: dict[tuple[int, int], bytes] = {}
    rows = con.execute(
        "SELECT base, body FROM moments WHERE box = ? AND n <= ? ORDER BY n DESC", (box, n)
    )
    for first, (base, body) in enumerate(rows):
        whole = _whole_body(con, box, base, body, bases)
        try:
            parts = () if whole is None else _logs.decode(whole).logs
        except msgspec.MsgspecError:
            parts = ()
        if first == 0:
            order = [part.path for part in parts]
            gathered = {part.path: _LogReassembly(part) for part in parts}
            continue
        open_ones = [each for each in gathered.values() if not each.whole]
        # Every log has enough lines, so the older snapshots need not be unpacked.
        if not open_ones:
            break
        by_path = {part.path: part for part in parts}
        for each in open_ones:
            if each.path in by_path:
                each.add_earlier(by_path[each.path])
    return tuple(gathered[path].build_view() for path in order)


class _LogReassembly:
    """Reassembles the lines of a log, going back in time."""

    def __init__(self, newest: LogPart) -> None:
        self.path = newest.path
        self._at = newest.at
        self._total = newest.total
        """Total number of lines in the earliest snapshot processed so far."""
        self._first = newest.total - len(newest.lines)
        """Number of lines before those collected."""
        self._parts: list[tuple[str, ...]] = [newest.lines]
        self._count = len(newest.lines)
        self.whole = self._first <= 0

    def add_earlier(self, part: LogPart) -> None:
        """Add the lines of an earlier snapshot."""
        if part.total > self._total:  # it was another log then
            self.whole = True
            return
        self._total = part.total
        missing = self._first - part.total
        if missing >= 0:
            lines = part.lines
        else:
            lines = part.lines[:missing]
        if not lines:
            return
        # The snapshot kept only its newest lines; the reader must see that some are missing.
        if missing > 0:
            self._parts.append((GAP.format(f"{missing:,}"),))
        self._parts.append(lines)
        self._count += len(lines)
        self._first = min(self._first, part.total) - len(lines)
        self.whole = self._first <= 0 or self._count >= SNAPSHOT.log_lines

    def build_view(self) -> LogView:
        """Return the log."""
        lines = tuple(line for part in reversed(self._parts) for line in part)
        return LogView(
            path=self.path,
            lines=lines[-SNAPSHOT.log_lines :],
            dropped=max(0, self._first),
            at=self._at,
        )


def tick_at(con: sqlite3.Connection, n: int) -> tuple[float, TickBody] | None:
    """Return the time and fleet data of a moment; None = no such moment."""
    row = con.execute("SELECT at, body FROM ticks WHERE n = ?", (n,)).fetchone()
    if row is None:
        return None
    try:
        body = _tick.decode(zlib.decompress(row[1]))
        return row[0], _replace(body, alerts=tuple(alert.in_language() for alert in body.alerts))
    except (zlib.error, TypeError, msgspec.MsgspecError):
        return row[0], TickBody()


def read_timeline(con: sqlite3.Connection, fleet: str) -> Timeline:
    """Return all moments of a fleet, in the order in which they were stored."""
    ns, ats = array("q"), array("d")
    for n, at in con.execute("SELECT n, at FROM ticks WHERE fleet = ? ORDER BY n", (fleet,)):
        ns.append(n)
        ats.append(at)
    return Timeline(ns, ats)


def unwatched_spans(ats: Iterable[float], since: float, until: float) -> tuple[UnwatchedSpan, ...]:
    """Return the unwatched spans between two times, derived from the stored moments."""
    found: list[UnwatchedSpan] = []
    last = since
    for at in sorted(at for at in ats if since - SNAPSHOT.near_s <= at <= until):
        if at - last > SNAPSHOT.near_s:
            found.append(UnwatchedSpan(last, at))
        last = max(last, at)
    if until - last > SNAPSHOT.near_s:
        found.append(UnwatchedSpan(last, until))
    return tuple(found)


def tallies_at(con: sqlite3.Connection, boxes: Iterable[int], n: int) -> dict[str, CostTally]:
    """Return the total costs of boxes up to a moment, by currency."""
    sums: dict[str, CostTally] = {}
    for box in boxes:
        kept = state_at(con, box, n)
        for each in () if kept is None else kept.saved.tallies:
            old = sums.get(each.currency, CostTally(each.currency, 0.0, 0.0))
            sums[each.currency] = CostTally(
                each.currency,
                old.billed + each.billed,
                old.idle + each.idle,
                old.estimated + each.estimated,
            )
    return sums


def recorded_by(
    con: sqlite3.Connection, box: int, since: float, until: float
) -> tuple[ReducedHistory, ...]:
    """Return the history of a time span from a box's own recorder."""
    found = []
    for (body,) in con.execute(
        "SELECT body FROM recorded WHERE box = ? AND last > ? AND first < ? ORDER BY last",
        (box, since, until),
    ):
        try:
            found.append(_past.decode(zlib.decompress(body)))
        except (zlib.error, TypeError, msgspec.MsgspecError):
            continue
    return tuple(found)


# Limits.


def bytes_kept(con: sqlite3.Connection) -> int:
    """Return the total bytes of all snapshots."""
    return sum(
        int(con.execute(f"SELECT total(length(body)) FROM {table}").fetchone()[0])
        for table in ("moments", "bases", "ticks")
    )


def thin_snapshots(con: sqlite3.Connection, most: int = SNAPSHOT.total_bytes) -> bool:
    """Keep the snapshots within their limits in days and bytes; return whether any was deleted.

    Above the limit in bytes, every second moment of the oldest quarter is deleted, repeatedly, so
    that old data becomes coarser instead of missing. Days are limited by number, not age, so that a
    clock that jumps ahead deletes nothing.

    Args:
        con: In a transaction.
        most: Bytes.
    """
    days = [
        row[0]
        for row in con.execute(
            "SELECT CAST(at / 86400 AS INTEGER) AS day FROM ticks GROUP BY day ORDER BY max(n)"
        )
    ]
    gone = 0
    most_days = 31
    for day in days[:-most_days]:
        gone += con.execute(
            "DELETE FROM ticks WHERE CAST(at / 86400 AS INTEGER) = ?", (day,)
        ).rowcount
    if gone:
        _drop_orphans(con)
    while bytes_kept(con) > most and (thinned := thin_oldest(con)):
        gone += thinned
    return bool(gone)


def thin_oldest(con: sqlite3.Connection) -> int:
    """Delete every second moment of the oldest quarter; return the number of deleted rows.

    The newest moment is kept, so that no later one gets the number of a snapshot that outlived its
    moment.
    """
    ns = [row[0] for row in con.execute("SELECT n FROM ticks ORDER BY n")]
    oldest = ns[: max(2, len(ns) // 4)][:-1:2]
    con.executemany("DELETE FROM ticks WHERE n = ?", [(n,) for n in oldest])
    return len(oldest) + _drop_orphans(con)


def _drop_orphans(con: sqlite3.Connection) -> int:
    """Delete snapshots without a moment; return their number.

    The newest of each box is kept: the next start shows it.
    """
    gone = con.execute(
        """DELETE FROM moments WHERE n NOT IN (SELECT n FROM ticks)
           AND n < (SELECT max(n) FROM moments AS newer WHERE newer.box = moments.box)"""
    ).rowcount
    # A base that is used belongs to the first snapshot at or after its own number.
    con.execute(
        """DELETE FROM bases WHERE coalesce((SELECT m.base FROM moments m WHERE m.box = bases.box
           AND m.n >= bases.base ORDER BY m.n LIMIT 1), -1) <> base"""
    )
    return gone


def series_until(xs: Sequence[int], last: int, backs: int) -> int:
    """Return how many points a curve, in its present form, had when it ended at step `last`.

    Args:
        xs: Its steps.
        last: Step of its last point then.
        backs: How often its steps had gone back by then.
    """
    part = 0
    for index, x in enumerate(xs):
        if index and x < xs[index - 1]:
            part += 1
        if part > backs or (part == backs and x > last):
            return index
    return len(xs)
