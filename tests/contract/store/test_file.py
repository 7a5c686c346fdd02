"""The file itself: made, replaced, refused, damaged, bounded."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest
from msgspec.structs import replace

from rgt_tui.model import BoxState, FleetEvent, FleetState, ProviderRef, RunState
from rgt_tui.store import (
    FLEET,
    BoxWrites,
    HistoryFile,
    ObservedCost,
    SlotMean,
    database,
    minute_means,
)
from rgt_tui.store.database import (
    DATABASE,
    HistoryDamaged,
    HistoryRefused,
    HistoryUnavailable,
    connect,
    inode_of,
    on_network,
    restore_backup,
    transaction,
)
from rgt_tui.store.history_file import count_used_bytes, merge_batches
from tests.contract.store.worlds import batch, events_of, run, spec, state

NOW = 1_790_000_000.0


class Clock:
    def __init__(self) -> None:
        self.now = NOW

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state" / "history.db"


def opened(path: Path, names: tuple[str, ...] = ("a",), **options: object) -> HistoryFile:
    file = HistoryFile(path, clock=Clock(), **options)  # type: ignore[arg-type]
    file.adopt_boxes([spec(name) for name in names])
    return file


def test_it_is_ours_alone_and_says_what_it_is(path: Path) -> None:
    con = connect(path)
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700
    assert con.execute("PRAGMA user_version").fetchone() == (DATABASE.version,)
    assert con.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    assert con.execute("PRAGMA auto_vacuum").fetchone() == (2,)
    con.close()


def test_a_newer_file_is_left_alone_and_said(path: Path) -> None:
    con = connect(path)
    con.execute(f"PRAGMA user_version = {DATABASE.version + 1}")
    con.close()
    before = path.read_bytes()
    with pytest.raises(HistoryRefused, match=f"newer rgt.*knows {DATABASE.version}"):
        opened(path).recall_states()
    assert path.read_bytes() == before
    assert sorted(item.name for item in path.parent.iterdir()) == ["history.db", "history.db.lock"]


def test_an_earlier_version_is_kept_aside_and_a_new_history_begins(path: Path) -> None:
    con = connect(path)
    con.execute(f"PRAGMA user_version = {DATABASE.version - 1}")
    con.close()
    inode = path.stat().st_ino
    con = connect(path)
    assert con.execute("PRAGMA user_version").fetchone() == (DATABASE.version,)
    con.close()
    assert path.with_name(f"history.db.version-{DATABASE.version - 1}").stat().st_ino == inode


def test_a_stranger_s_database_is_left_alone(path: Path) -> None:
    path.parent.mkdir()
    con = sqlite3.connect(path)
    con.execute("CREATE TABLE mine (x)")
    con.commit()
    con.close()
    before = path.read_bytes()
    with pytest.raises(HistoryRefused, match="not a history of rgt"):
        opened(path).recall_states()
    assert path.read_bytes() == before


def test_what_is_no_database_is_damaged(path: Path) -> None:
    path.parent.mkdir()
    path.write_bytes(b"this is not a database at all, just some text\n" * 100)
    with pytest.raises(HistoryDamaged):
        opened(path).recall_states()


def test_a_place_that_cannot_be_written_is_trouble_that_may_pass(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(HistoryUnavailable, match="file"):
        opened(tmp_path / "file" / "history.db").recall_states()


UNFIT = {
    "runs": (
        BoxWrites(
            runs=replace(
                state("a", at=NOW),
                runs=(RunState(name="run0", step=2**70), RunState(name="other", step=5)),
            )
        ),
        "ints",
    ),
    "readings": (BoxWrites(means=(SlotMean("a", 2**70, 5, {"util": 1.0}),)), "too large"),
    "costs": (
        BoxWrites(costs=(ObservedCost("2026-01-01", "USD", billed=float("nan")),)),
        "NOT NULL",
    ),
    "events": (BoxWrites(events=(FleetEvent(at=NOW, box="a", text="\ud800"),)), "surrogates"),
}


@pytest.mark.parametrize("part", UNFIT)
def test_what_fits_no_column_is_no_damage_and_costs_nobody_else_anything(
    path: Path, part: str
) -> None:
    file = opened(path, ("a", "b"))
    told, why = UNFIT[part]
    ((left_out),) = file.commit_batch(merge_batches((batch(["a", "b"], 0, at=NOW), {"a": told})))
    assert (left_out.box, left_out.part) == ("a", part)
    assert why in left_out.why
    found = file.recall_states()
    assert len(found["b"].runs[0].series["loss"]) == 10
    assert [event.box for event in events_of(file, 9)] == (
        ["b"] if part == "events" else ["a", "b"]
    )
    runs = ["other"] if part == "runs" else ["run0"]
    assert [run.name for run in found["a"].runs] == runs, "no other run is lost with one"
    assert bool(found["a"].past.at) is (part != "readings")
    assert found["a"].meter.spent is not None
    file.close()


def test_only_one_of_two_processes_sets_a_file_aside(path: Path) -> None:
    one, two = opened(path), opened(path)
    one.commit_batch(batch(["a"], 0, at=NOW))
    two.commit_batch(batch(["a"], 1, at=NOW))
    assert one.restore_backup() is not None
    assert two.restore_backup() is None
    two.commit_batch(batch(["a"], 2, at=NOW))  # into the new one
    one.commit_batch(batch(["a"], 3, at=NOW))
    assert len(list(path.parent.glob("*.damaged-*[0-9]"))) == 1
    one.close()
    two.close()
    assert "a" in opened(path).recall_states()


def test_a_process_that_finds_its_file_replaced_writes_into_the_new_one(path: Path) -> None:
    one, two = opened(path), opened(path, ("b",))
    one.commit_batch(batch(["a"], 0, at=NOW))
    restore_backup(path, None, NOW)
    two.commit_batch(batch(["b"], 0, at=NOW))
    one.commit_batch(batch(["a"], 1, at=NOW))
    one.close()  # which must not throw away the log of the new file
    assert set(opened(path, ("a", "b")).recall_states()) == {"a", "b"}
    two.close()


def test_what_was_set_aside_is_bounded(path: Path) -> None:
    for number in range(6):
        connect(path).close()
        assert restore_backup(path, inode_of(path), NOW + 60 * number) is not None
    assert len(list(path.parent.glob("*.damaged-*"))) == database.DATABASE.kept_damaged


def test_it_stays_within_its_bound_and_gives_the_room_back(path: Path) -> None:
    bound = 400_000
    file = opened(path, max_bytes=bound)
    for number in range(6):
        big = state("a", points=200, runs=40)
        renamed = tuple(replace(run, name=f"{run.name}-{number}") for run in big.runs)
        file.commit_batch({"a": BoxWrites(runs=replace(big, runs=renamed))})
        file.run_upkeep(force=True)
    con = connect(path)
    assert count_used_bytes(con) <= bound
    left = {row[0].split("-")[1] for row in con.execute("SELECT run FROM runs")}
    assert "5" in left  # the newest stays
    assert "0" not in left
    con.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    con.close()
    file.close()
    assert path.stat().st_size <= 2 * bound


def kept(path: Path) -> dict[int, int]:
    """Samples by width."""
    con = connect(path)
    found: dict[int, int] = {}
    for width, chunk in con.execute("SELECT width, chunk FROM samples").fetchall():
        slots = minute_means.load_chunk(con, (1, width, chunk))
        found[width] = found.get(width, 0) + sum(count for count, _ in slots.values())
    con.close()
    return found


def test_minutes_are_kept_for_a_day_and_coarse_stretches_for_a_month(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(minute_means, "KEPT", {60: 2, 480: 3})
    file = opened(path)
    first = int(NOW // 60) // 512 * 512
    for number in range(0, 512 * 4, 4):
        file.commit_batch(
            {"a": BoxWrites(means=(SlotMean("a", first + number, 60, {"util": 50.0}),))}
        )
    assert kept(path) == {60: 2 * 16 * 60, 480: 3 * 128 * 60}
    file.close()


def test_a_day_and_a_month_are_what_is_kept() -> None:
    stretches = {
        width: minute_means.CHUNK * count * width for width, count in minute_means.KEPT.items()
    }
    assert stretches[60] >= 86400 + 60 * minute_means.CHUNK
    assert stretches[480] >= 30 * 86400 + 480 * minute_means.CHUNK


def test_a_minute_that_was_seen_by_less_samples_gives_way(path: Path) -> None:
    file = opened(path)
    for count, value in ((5, 10.0), (60, 50.0), (7, 90.0)):
        file.commit_batch(
            {"a": BoxWrites(means=(SlotMean("a", int(NOW // 60) - 9, count, {"util": value}),))}
        )
    assert file.recall_states()["a"].past.values == ((50.0,),)
    file.close()


def test_the_past_is_a_day_with_its_holes(path: Path) -> None:
    file = opened(path)
    for number in (0, 1, 200, 201):
        file.commit_batch(batch(["a"], number, at=NOW))
    past = file.recall_states()["a"].past
    assert past.names == ("util", "disk:/")
    assert past.values == ((50.0, 12.5), (50.0, 12.5))
    assert past.width == 480.0
    assert past.at[1] - past.at[0] in (12000.0, 12480.0)
    file.close()


def test_values_of_an_earlier_rgt_say_so(path: Path) -> None:
    file = opened(path)
    file.commit_batch(batch(["a"], 0, at=NOW))
    found = file.recall_states()["a"]
    assert found.link.value == "connecting"
    assert found.reason.startswith("not connected yet; values of ")
    assert found.remembered_at == NOW
    assert found.meter.at == NOW
    assert found.since == NOW
    file.close()


def test_values_that_no_reading_has_replaced_keep_their_age(path: Path) -> None:
    file = opened(path)
    box = BoxState(spec=spec("a"), remembered_at=NOW - 500)
    file.commit_batch({FLEET: BoxWrites(moments=(FleetState((box,), at=NOW),))})
    assert file.recall_states()["a"].remembered_at == NOW - 500
    file.close()


def test_a_box_that_was_rented_anew_under_its_name_begins_with_nothing(path: Path) -> None:
    file = opened(path)
    file.commit_batch(batch(["a"], 0, at=NOW))
    file.close()
    again = HistoryFile(path, clock=Clock())
    again.adopt_boxes([replace(spec("a"), provider=ProviderRef("runpod", "another"))])
    assert again.recall_states() == {}
    ((currency, amount),) = again.read_spend().today  # but what it cost today, it cost
    assert (currency, round(amount, 6)) == ("USD", round(2.0 / 60, 6))
    again.close()


def test_runs_that_the_fleet_file_names_are_recalled_before_any_number_of_found_ones(
    path: Path,
) -> None:
    clock = Clock()
    file = HistoryFile(path, clock=clock)
    described = replace(spec("a"), runs=("/mine",))
    file.adopt_boxes([described])
    mine = replace(run("mine", 10), named_by="/mine")
    box = replace(state("a", runs=0), spec=described, runs=(mine,))
    file.commit_batch({"a": BoxWrites(runs=box)})
    clock.now += 60
    found = tuple(run(f"found{number}", 1) for number in range(80))
    file.commit_batch({"a": BoxWrites(runs=replace(box, runs=(mine, *found)))})
    file.close()
    again = HistoryFile(path, clock=clock)
    again.adopt_boxes([described])
    first, *others = again.recall_states()["a"].runs
    again.close()
    assert (first.name, len(first.series["loss"])) == ("mine", 10)
    assert len(others) == 63


def test_a_fleet_is_charged_for_its_own_boxes_alone(path: Path) -> None:
    """Both have a box called a; that of the first was another machine this morning."""

    def of(fleet: str, instance: str) -> HistoryFile:
        file = HistoryFile(path, clock=Clock(), fleet=fleet)
        file.adopt_boxes([replace(spec("a"), provider=ProviderRef("runpod", instance))])
        return file

    minute = 2.0 / 60
    for fleet, instance, expected in (
        ("/x.toml", "1", 1),
        ("/x.toml", "2", 2),
        ("/y.toml", "3", 1),
    ):
        file = of(fleet, instance)
        file.commit_batch(batch(["a"], 0, at=NOW))
        assert dict(file.read_spend().today) == {"USD": pytest.approx(expected * minute)}
        file.close()
    again = of("/x.toml", "2")
    assert dict(again.read_spend().today) == {"USD": pytest.approx(2 * minute)}
    again.close()


def test_a_clock_that_jumps_ahead_and_back_throws_nothing_away(path: Path) -> None:
    file = opened(path)
    clock = file._clock
    assert isinstance(clock, Clock)
    file.commit_batch(batch(["a"], 0, at=NOW))
    file.run_upkeep()
    before = file.read_spend()
    clock.now += 40 * 86400
    file.commit_batch(batch(["a"], 0, at=clock.now))
    file.run_upkeep(force=True)
    clock.now = NOW
    file.run_upkeep(force=True)
    assert file.read_spend() == before
    assert file.recall_states()["a"].past.at != ()
    file.close()


def test_events_come_back_once(path: Path) -> None:
    one, two = opened(path), opened(path)
    for file in (one, two):
        for number in range(3):
            file.commit_batch(batch(["a"], number, at=NOW))
    assert [event.text for event in events_of(one, 10)] == ["event 0", "event 1", "event 2"]
    assert [event.text for event in events_of(one, 2)] == ["event 1", "event 2"]
    one.close()
    two.close()


def test_a_network_disk_gets_no_shared_memory(tmp_path: Path) -> None:
    mounts = tmp_path / "mounts"
    mounts.write_text(f"/dev/sda / ext4 rw 0 0\nserver:/x {tmp_path} nfs4 rw 0 0\n")
    assert on_network(tmp_path / "history.db", mounts)
    mounts.write_text("/dev/sda / ext4 rw 0 0\n")
    assert not on_network(tmp_path / "history.db", mounts)
    assert not on_network(tmp_path, tmp_path / "missing")


def test_a_transaction_that_fails_leaves_nothing(path: Path) -> None:
    con = connect(path)
    with pytest.raises(RuntimeError), transaction(con):
        con.execute("INSERT INTO losses VALUES (1, 2)")
        raise RuntimeError
    assert con.execute("SELECT count(*) FROM losses").fetchone() == (0,)
    con.close()
