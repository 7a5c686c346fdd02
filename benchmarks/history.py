"""How long a minute of the past takes to open, and the size of the history: 50 boxes, watched for a month.

Also how long a replay of the demo's recording (3 boxes, 4 minutes) takes to go to a position that
it has played.
"""

from __future__ import annotations

import asyncio
import random
import shutil
import sqlite3
import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path

from msgspec.structs import replace

from benchmarks.report import Row, main, say
from benchmarks.ui_fleet import Wave
from rgt_tui.demo import RECORDING
from rgt_tui.model import FleetEvent
from rgt_tui.recordings import ReplayFleet
from rgt_tui.store import FLEET, BoxWrites, HistoryFile

NAME = "history"
COUNT = 50
DAY = 86400
START = 1_790_000_000.0 // DAY * DAY
EVENTS_A_DAY = 700
GOAL_MS = 50.0
"""To open a minute: longer than that, a key seems to wait."""
GOAL_MIB = 256.0
OPENED = 100
LATER = {
    "ticks": "n + 60 * :hours, fleet, at + 3600 * :hours, body",
    "bases": "box, base + 60 * :hours, copy, body",
    "moments": "box, n + 60 * :hours, at + 3600 * :hours, base + 60 * :hours, body",
}
"""The rows of the first hour, some hours later."""


def write_hour(file: HistoryFile, wave: Wave) -> None:
    """Write the first hour, minute by minute, as rgt does."""
    for minute in range(60):
        wave.tick += 1
        state = replace(wave.make_state(), at=START + 60.0 * minute)
        file.commit_batch({FLEET: BoxWrites(moments=(replace(state, boxes=state.boxes[:COUNT]),))})


def repeat_hour(path: Path, hour: Path, day: int) -> None:
    """Write one more day of moments, each hour like the first: a month of real ones would take an hour."""
    with closing(sqlite3.connect(path, isolation_level=None)) as con:
        con.execute("ATTACH ? AS hour", (str(hour),))
        con.execute("BEGIN IMMEDIATE")
        for table, columns in LATER.items():
            con.executemany(
                f"INSERT INTO main.{table} SELECT {columns} FROM hour.{table}",
                [{"hours": hours} for hours in range(24 * day, 24 * day + 24) if hours],
            )
        con.execute("COMMIT")


def events(names: Sequence[str], day: int) -> tuple[FleetEvent, ...]:
    """Return the events of one day."""
    return tuple(
        FleetEvent(
            START + DAY * (day + number / EVENTS_A_DAY), name, f"run-{day}-{number} ended", "info"
        )
        for number, name in enumerate(random.Random(day).choices(names, k=EVENTS_A_DAY))
    )


def open_times(file: HistoryFile, focus: str) -> Iterator[float]:
    """Yield how many milliseconds it takes to open each of some minutes, one box with its curves and logs."""
    line = file.query_history(lambda past: past.read_timeline())
    rng = random.Random(1)
    for n, at in rng.choices(list(zip(line.ns, line.ats, strict=True)), k=OPENED):
        begun = time.perf_counter()
        moment = file.query_history(lambda past, n=n, at=at: past.moment(n, at, {focus}))  # type: ignore[misc]
        yield 1000 * (time.perf_counter() - begun)
        assert len(moment.boxes) == COUNT


async def seek_times(count: int) -> list[float]:
    """Return how many milliseconds a paused replay takes to show each of some positions, sorted."""
    fleet, rng = ReplayFleet(RECORDING), random.Random(1)
    fleet.set_playback_paused(True)
    await fleet.start()
    shown = asyncio.Event()
    goal = 0.0
    fleet.subscribe(lambda _: shown.set() if abs(fleet.position - goal) < 1e-6 else None)
    found = []
    for goal in (240.0, *(round(rng.uniform(1.0, 240.0), 1) for _ in range(count))):
        shown.clear()
        begun = time.perf_counter()
        fleet.seek_to(goal)
        await shown.wait()
        found.append(1000 * (time.perf_counter() - begun))
    await fleet.stop()
    return sorted(found[1:])


def run(quick: bool) -> list[Row]:
    """Write a month, or with `quick` four days, and open minutes of it."""
    days = 4 if quick else 31
    with tempfile.TemporaryDirectory() as folder:
        path, hour = Path(folder) / "history.db", Path(folder) / "hour.db"
        file, wave = HistoryFile(path), Wave()
        specs = [box.spec for box in wave.state.boxes[:COUNT]]
        names = [spec.name for spec in specs]
        file.adopt_boxes(specs)
        write_hour(file, wave)
        file.close()
        shutil.copy(path, hour)
        file.adopt_boxes(specs)
        upkeep = []
        for day in range(days):
            repeat_hour(path, hour, day)
            file.commit_batch({FLEET: BoxWrites(events=events(names, day))})
            begun = time.perf_counter()
            file.run_upkeep(force=True)
            upkeep.append(1000 * (time.perf_counter() - begun))
            say(f"day {day + 1} of {days}: upkeep {upkeep[-1]:,.0f} ms")
        begun = time.perf_counter()
        kept = len(file.query_history(lambda past: past.read_timeline()).ns)
        timeline = 1000 * (time.perf_counter() - begun)
        spent = sorted(open_times(file, names[0]))
        file.close()
        size = path.stat().st_size / 2**20
    sought = asyncio.run(seek_times(OPENED))
    return [
        Row("one minute opened, median", statistics.median(spent), "ms", goal=GOAL_MS),
        Row("one minute opened, 95th percentile", spent[-OPENED // 20], "ms", goal=GOAL_MS),
        Row("a replay goes to a position, median", statistics.median(sought), "ms", goal=GOAL_MS),
        Row(
            "a replay goes to a position, 95th percentile",
            sought[-OPENED // 20],
            "ms",
            goal=GOAL_MS,
        ),
        Row("all minutes listed", timeline, "ms", goal=GOAL_MS),
        Row("minutes kept", kept, "minutes"),
        Row("size of the file", size, "MiB", goal=GOAL_MIB),
        Row("upkeep with a day more than fits", statistics.median(upkeep), "ms"),
    ]


if __name__ == "__main__":
    raise SystemExit(main(NAME, run))
