"""How the fleet stood, minute by minute: what is written is what is read, row by row, within bounds."""

from __future__ import annotations

import os
import random
import signal
import sqlite3
import subprocess
import sys
import textwrap
from pathlib import Path

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rgt_tui.model import (
    Alert,
    BoxState,
    EventFilter,
    FleetEvent,
    FleetMoment,
    FleetSpend,
    FleetState,
    LinkState,
    LogView,
    ReducedHistory,
    RowSparklines,
    RunResume,
    RunState,
    Sample,
    Series,
    clean_text,
)
from rgt_tui.store import FLEET, BoxWrites, HistoryFile, moments
from rgt_tui.store.database import connect
from tests.contract.store.worlds import spec, state

NOW = 1_790_000_000.0
ROOT = Path(__file__).resolve().parents[3]
replace = msgspec.structs.replace


def opened(path: Path, *names: str) -> HistoryFile:
    file = HistoryFile(path, clock=lambda: NOW, fleet="f")
    file.adopt_boxes([spec(name) for name in names or ("a",)])
    return file


def keep(file: HistoryFile, at: float, *boxes: BoxState, **changes: object) -> None:
    """Commit how some boxes stood, with their curves as they are then."""
    fleet = replace(FleetState(boxes=boxes, at=at), **changes)
    told = {box.spec.name: BoxWrites(runs=box) for box in boxes}
    assert file.commit_batch({**told, FLEET: BoxWrites(moments=(fleet,))}) == ()


def moment(
    file: HistoryFile, place: int, *, at: float | None = None, full: str = "a"
) -> FleetMoment:
    line = file.query_history(lambda past: past.read_timeline())
    n, then = line.ns[place], line.ats[place]
    return file.query_history(lambda past: past.read_moment(n, then if at is None else at, {full}))


def plain(box: BoxState) -> BoxState:
    """Leave out what a snapshot says it does not keep, or keeps elsewhere."""
    runs = tuple(replace(run, cursors={}, series={}, resumes=()) for run in box.runs)
    return replace(box, runs=runs, logs=(), rings=RowSparklines(), past=ReducedHistory())


FLOATS = st.floats(allow_nan=False, width=64)
ADVANCES = st.tuples(
    st.integers(0, 30),  # points
    st.sampled_from([0, 0, 0, 1]),  # resumed before them
    st.integers(0, 30),  # lines
    FLOATS,
    # Texts arrive cleaned; a record may use control characters as marks of its own.
    st.text(max_size=20).map(clean_text),
    st.sampled_from(list(LinkState)),
)


@settings(
    max_examples=25,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(story=st.lists(ADVANCES, min_size=1, max_size=8))
def test_what_is_read_of_a_moment_is_what_was_published_then(
    story: list[tuple[int, int, int, float, str, LinkState]],
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    file = opened(tmp_path_factory.mktemp("h") / "history.db")
    series, step = Series(), 0
    resumes: tuple[RunResume, ...] = ()
    lines: tuple[str, ...] = ()
    published = []
    for number, (points, resumed, more, value, text, link) in enumerate(story):
        if resumed and step > 5:
            step -= 5
            resumes = (*resumes, RunResume(step=step, reason="SIGTERM", index=len(series)))
        series = series.with_points([(step + i, value) for i in range(1, points + 1)])
        step += points
        lines = (*lines, *(f"line {len(lines) + i} {text}" for i in range(more)))
        run = RunState(
            name="r",
            step=step,
            loss=value,
            series={"loss": series} if len(series) else {},
            resumes=resumes,
        )
        box = BoxState(
            spec=spec("a"),
            link=link,
            reason=text,
            sample=Sample(boot=text, seq=number, at=value),
            sample_at=NOW + 60 * number,
            runs=(run,),
            logs=(LogView(path="/l", lines=lines, at=NOW),),
            alerts=(Alert("inodes:/w", "error", text, since=value),),
            alerts_kept=True,
        )
        published.append(box)
        keep(file, NOW + 60 * number, box, spend=FleetSpend(today=(("USD", float(number)),)))
    for number, box in enumerate(published):
        found = moment(file, number)
        (then,) = found.boxes
        assert found.at == NOW + 60 * number
        assert found.spend == FleetSpend(today=(("USD", float(number)),))
        assert plain(then) == plain(box)
        assert then.logs[0].lines == box.logs[0].lines
        assert then.runs[0].series == box.runs[0].series
        assert then.runs[0].resumes == box.runs[0].resumes
    file.close()


def test_a_sparkline_is_kept_in_whole_percent_and_a_nan_as_nothing(tmp_path: Path) -> None:
    file = opened(tmp_path / "history.db")
    ring = (*(float(i) for i in range(100)), 3.4, float("nan"), None)
    keep(file, NOW, replace(state("a", at=NOW), rings=RowSparklines(gpu_util=ring)))
    (box,) = moment(file, 0).boxes
    assert box.rings.gpu_util == (*range(71, 100), 3, None, None)


def test_a_log_says_how_many_of_its_lines_were_not_kept(tmp_path: Path) -> None:
    file = opened(tmp_path / "history.db")
    told = tuple(f"line {i}" for i in range(2000))
    for number, count in enumerate((10, 1000, 1010)):
        view = LogView(path="/l", lines=told[:count], at=NOW)
        keep(file, NOW + 60 * number, replace(state("a", at=NOW), logs=(view,)))
    (box,) = moment(file, 2).boxes
    lines = box.logs[0].lines
    assert lines[:10] == told[:10]
    assert lines[10] == "··· 790 lines were not kept ···"
    assert lines[11:] == told[800:1010]
    assert moment(file, 0).boxes[0].logs[0].lines == told[:10]


def test_a_log_that_began_anew_is_not_mixed_with_the_one_before(tmp_path: Path) -> None:
    file = opened(tmp_path / "history.db")
    for number, lines in enumerate((("old 1", "old 2", "old 3"), ("new 1",), ("new 1", "new 2"))):
        view = LogView(path="/l", lines=lines, at=NOW)
        keep(file, NOW + 60 * number, replace(state("a", at=NOW), logs=(view,)))
    assert moment(file, 2).boxes[0].logs[0].lines == ("new 1", "new 2")


def test_a_clock_that_was_set_back_mixes_nothing(tmp_path: Path) -> None:
    file = opened(tmp_path / "history.db")
    for number, at in enumerate((NOW, NOW + 60, NOW - 3600, NOW - 3540)):
        keep(file, at, replace(state("a", at=at), reason=f"moment {number}"))
        told = BoxWrites(events=(FleetEvent(at=at, box="a", text=f"event {number}"),))
        file.commit_batch({"a": told})
    line = file.query_history(lambda past: past.read_timeline())
    assert list(line.ats) == [NOW, NOW + 60, NOW - 3600, NOW - 3540]
    assert [moment(file, place).boxes[0].reason for place in range(4)] == [
        f"moment {n}" for n in range(4)
    ]
    rows = file.query_history(lambda past: past.read_event_page(EventFilter(), None, 9)).rows
    assert [row.text for row in rows] == [f"event {number}" for number in range(4)]


def test_time_that_nobody_watched_is_not_kept_and_its_recorder_speaks_for_it(
    tmp_path: Path,
) -> None:
    file = opened(tmp_path / "history.db")
    keep(file, NOW, state("a", at=NOW))
    past = ReducedHistory(
        names=("util",), at=(NOW + 3600, NOW + 3660), values=((93.0,), (91.0,)), width=60.0
    )
    file.commit_batch({"a": BoxWrites(recorded=(past,))})
    found = moment(file, 0, at=NOW + 3650)
    assert found.boxes[0].link is LinkState.NOT_KEPT
    assert "nobody watched" in found.boxes[0].reason
    assert found.boxes[0].sample is None
    assert found.spend is None
    assert found.recorded == {"a": past}


def rows(path: Path) -> sqlite3.Connection:
    con = sqlite3.connect(path)
    con.execute("PRAGMA busy_timeout = 5000")
    return con


@pytest.mark.parametrize(
    "hurt",
    [
        "UPDATE moments SET body = x'00' WHERE n = 3",
        "UPDATE moments SET body = substr(body, 1, 9) WHERE n = 3",
    ],
)
def test_a_damaged_row_loses_that_row_alone(tmp_path: Path, hurt: str) -> None:
    file = opened(tmp_path / "history.db")
    for number in range(6):
        keep(file, NOW + 60 * number, replace(state("a", at=NOW), reason=f"moment {number}"))
    con = rows(tmp_path / "history.db")
    con.execute(hurt)
    con.commit()
    for number in range(6):
        (box,) = moment(file, number).boxes
        if number == 2:
            assert (box.link, box.sample) == (LinkState.NOT_KEPT, None)
            assert "damaged" in box.reason
        else:
            assert box.reason == f"moment {number}"


@pytest.mark.parametrize("copy", [0, 1])
def test_a_damaged_base_loses_nothing(tmp_path: Path, copy: int) -> None:
    file = opened(tmp_path / "history.db")
    for number in range(3):
        keep(file, NOW + 60 * number, replace(state("a", at=NOW), reason=f"moment {number}"))
    con = rows(tmp_path / "history.db")
    assert con.execute("UPDATE bases SET body = x'ffff' WHERE copy = ?", (copy,)).rowcount == 1
    con.commit()
    assert [moment(file, place).boxes[0].reason for place in range(3)] == [
        "moment 0",
        "moment 1",
        "moment 2",
    ]


def test_beyond_its_bound_the_oldest_is_thinned_and_the_newest_stays_whole(tmp_path: Path) -> None:
    file = opened(tmp_path / "history.db")
    rng = random.Random(1)
    for number in range(200):
        noise = "".join(rng.choices("abcdefgh", k=300))
        keep(
            file,
            NOW + 60 * number,
            replace(state("a", at=NOW, points=3), reason=f"{number} {noise}"),
        )
    con = connect(tmp_path / "history.db")
    size = moments.bytes_kept(con)
    con.execute("BEGIN")
    assert moments.thin_snapshots(con, size // 2)
    con.execute("COMMIT")
    assert moments.bytes_kept(con) <= size // 2
    line = file.query_history(lambda past: past.read_timeline())
    ages = [round((NOW + 60 * 199 - at) / 60) for at in line.ats]
    assert ages[-50:] == list(range(49, -1, -1))  # the newest, minute by minute
    assert 20 < len(ages) < 150
    assert max(ages) > 120  # and of what is long past some
    for place, age in enumerate(ages):
        assert moment(file, place).boxes[0].reason.startswith(f"{199 - age} ")
    file._recording.reset_bases()
    keep(file, NOW + 60 * 200, replace(state("a", at=NOW), reason="after"))
    assert moment(file, -1).boxes[0].reason == "after"
    con.close()


def test_the_last_values_of_a_box_outlive_its_minutes(tmp_path: Path) -> None:
    file = HistoryFile(tmp_path / "history.db", clock=lambda: NOW, fleet="f", max_bytes=1)
    file.adopt_boxes([spec("a"), spec("b")])
    for minute in range(9):
        at = NOW + 60 * minute
        keep(file, at, *(state(name, at=at) for name in "ab"[minute > 4 :]))
    file.run_upkeep(force=True)
    assert file.query_history(lambda past: past.read_timeline()).ats.tolist() == [NOW + 480]
    assert [box.sample_at for box in file.recall_states().values()] == [NOW + 240, NOW + 480]
    con = connect(file.path)
    assert con.execute("SELECT count(*) FROM moments").fetchone() == (2,)
    con.close()
    file.close()


def test_days_are_counted_and_not_told_by_their_age(tmp_path: Path) -> None:
    file = opened(tmp_path / "history.db")
    for day in (*range(40), 4000):  # the clock has jumped years ahead
        keep(file, NOW + 86400 * day, state("a", at=NOW))
    file.run_upkeep(force=True)
    line = file.query_history(lambda past: past.read_timeline())
    assert [round((at - NOW) / 86400) for at in line.ats] == [*range(10, 40), 4000]
    assert all(
        box.link is not LinkState.NOT_KEPT
        for place in range(31)
        for box in moment(file, place).boxes
    )


def test_what_one_snapshot_costs_is_little_more_than_what_has_changed(tmp_path: Path) -> None:
    file = opened(tmp_path / "history.db")
    rng = random.Random(2)
    for number in range(120):
        one = state("a", at=NOW + 60 * number, points=100)
        assert one.sample is not None
        gpus = tuple(replace(gpu, util=rng.random() * 100) for gpu in one.sample.gpus)
        ring = tuple(float(rng.randrange(101)) for _ in range(120))
        keep(
            file,
            NOW + 60 * number,
            replace(
                one, sample=replace(one.sample, gpus=gpus), rings=RowSparklines(ring, ring, ring)
            ),
        )
    con = rows(tmp_path / "history.db")
    assert moments.bytes_kept(con) / 120 < 700


def test_a_state_that_no_snapshot_can_hold_is_left_out_alone(tmp_path: Path) -> None:
    file = opened(tmp_path / "history.db", "a", "b")
    large = replace(state("a", at=NOW), reason="x" * (moments.SNAPSHOT.most_bytes + 1))
    fleet = FleetState(boxes=(large, state("b", at=NOW)), at=NOW)
    (left,) = file.commit_batch({FLEET: BoxWrites(moments=(fleet,))})
    assert (left.box, left.part) == ("a", "moment")
    found = {box.spec.name: box.link for box in moment(file, 0).boxes}
    assert found == {"a": LinkState.NOT_KEPT, "b": LinkState.LIVE}


def test_nothing_of_this_computer_is_in_a_snapshot(tmp_path: Path) -> None:
    file = opened(tmp_path / "history.db")
    secret = replace(
        spec("a"), identity="/home/me/id", known_hosts="/home/me/kh", ssh_config="/home/me/cfg"
    )
    assert secret.provider is not None
    secret = replace(secret, provider=replace(secret.provider, key_env="MY_KEY"))
    body = msgspec.msgpack.encode(
        moments.BoxSnapshot(moments.storable_state(replace(state("a", at=NOW), spec=secret)))
    )
    assert b"/home/me" not in body
    assert b"MY_KEY" not in body
    file.close()


WRITER = """
import sys
from pathlib import Path
from tests.contract.store.test_kept_moments import NOW, keep, opened, replace, state
file = opened(Path(sys.argv[1]))
number = 0
while True:
    keep(file, NOW + 60 * number, replace(state("a", at=NOW), reason=f"moment {number}"))
    print(number, flush=True)
    number += 1
"""


def test_a_writer_that_is_killed_leaves_every_moment_it_had_written(tmp_path: Path) -> None:
    path = tmp_path / "history.db"
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(WRITER), str(path)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    said = -1
    while said < 70:  # beyond one base
        said = int(process.stdout.readline())
    os.kill(process.pid, signal.SIGKILL)
    said = max([said, *(int(line) for line in process.stdout.read().split("\n")[:-1] if line)])
    process.wait()
    process.stdout.close()
    file = opened(path)
    line = file.query_history(lambda past: past.read_timeline())
    assert len(line.ns) in (said + 1, said + 2)  # the last one may have been done, and not yet said
    for place in (0, 59, 60, 61, len(line.ns) - 1):
        assert moment(file, place).boxes[0].reason == f"moment {place}"
    file.close()
