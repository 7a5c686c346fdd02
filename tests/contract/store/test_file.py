"""The file itself: made, migrated, refused, damaged, bounded."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest
from msgspec.structs import replace

from rgt_tui.model.box import ProviderRef
from rgt_tui.model.fleet import FleetEvent
from rgt_tui.model.run import RunState
from rgt_tui.store import damage, room, samples, upkeep
from rgt_tui.store.batch import Batch
from rgt_tui.store.connect import connect, on_network, transaction
from rgt_tui.store.errors import Damaged, Refused, Trouble, Unfit
from rgt_tui.store.file import HistoryFile
from rgt_tui.store.means import Mean
from rgt_tui.store.spend import Minute
from rgt_tui.store.steps import STEPS, VERSION, Step
from rgt_tui.store.tables import TABLES, Table
from tests.contract.store.worlds import batch, spec, state

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
    file.adopt([spec(name) for name in names])
    return file


def test_it_is_ours_alone_and_says_what_it_is(path: Path) -> None:
    con = connect(path)
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700
    assert con.execute("PRAGMA user_version").fetchone() == (VERSION,)
    assert con.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    assert con.execute("PRAGMA auto_vacuum").fetchone() == (2,)
    con.close()


def test_the_list_of_tables_is_what_the_steps_make(path: Path) -> None:
    con = connect(path)
    for table in TABLES:
        found = [(row[1], row[5]) for row in con.execute(f"PRAGMA table_info({table.name})")]
        assert [name for name, _ in found] == [*table.columns, "crc"], table.name
        keys = [name for name, place in sorted(found, key=lambda item: item[1]) if place]
        assert keys == list(table.columns[: table.key]), table.name
    con.close()


@pytest.mark.parametrize("version", range(1, VERSION))
def test_every_older_version_is_brought_up_with_what_it_holds(path: Path, version: int) -> None:
    con = connect(path, STEPS[:version])
    places = Table("boxes", ("id", "place", "name", "first_at", "seen_at"), 1)
    con.execute(places.insert(), places.sealed((7, '["ssh"]', "old", 1.0, 2.0)))
    con.close()
    con = connect(path)
    assert con.execute("PRAGMA user_version").fetchone() == (VERSION,)
    assert con.execute("SELECT id, name FROM boxes").fetchall() == [(7, "old")]
    con.close()
    file = opened(path)
    file.commit(batch(["a"], 0, at=NOW))
    assert list(file.verify(force=True))
    file.close()


def test_versions_have_no_hole_and_every_step_a_name() -> None:
    assert [step.version for step in STEPS] == list(range(1, VERSION + 1))
    assert len({step.name for step in STEPS}) == len(STEPS)


def test_a_step_that_fails_leaves_the_version_before_it(path: Path) -> None:
    connect(path, STEPS[:1]).close()
    broken = (STEPS[0], Step(2, "broken", ("CREATE TABLE half (x)", "CREATE TABLE half (x)")))
    with pytest.raises(Damaged):
        connect(path, broken)
    con = connect(path, STEPS[:1])
    assert con.execute("PRAGMA user_version").fetchone() == (1,)
    assert con.execute("SELECT count(*) FROM sqlite_master WHERE name = 'half'").fetchone() == (0,)
    con.close()


def test_a_newer_file_is_left_alone_and_said(path: Path) -> None:
    con = connect(path)
    con.execute(f"PRAGMA user_version = {VERSION + 1}")
    con.close()
    before = path.read_bytes()
    with pytest.raises(Refused, match=f"newer rgt.*knows {VERSION}"):
        opened(path).recall()
    assert path.read_bytes() == before
    assert sorted(item.name for item in path.parent.iterdir()) == ["history.db", "history.db.lock"]


def test_a_stranger_s_database_is_left_alone(path: Path) -> None:
    path.parent.mkdir()
    con = sqlite3.connect(path)
    con.execute("CREATE TABLE mine (x)")
    con.commit()
    con.close()
    before = path.read_bytes()
    with pytest.raises(Refused, match="not a history of rgt"):
        opened(path).recall()
    assert path.read_bytes() == before


def test_what_is_no_database_is_damaged(path: Path) -> None:
    path.parent.mkdir()
    path.write_bytes(b"this is not a database at all, just some text\n" * 100)
    with pytest.raises(Damaged):
        opened(path).recall()


def test_a_place_that_cannot_be_written_is_trouble_that_may_pass(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(Trouble, match="file"):
        opened(tmp_path / "file" / "history.db").recall()


UNFIT = {
    "boxes": (replace(state("a", at=NOW), sample_at=float("nan")), "NOT NULL"),
    "runs": (replace(state("a", at=NOW), runs=(RunState(name="run0", step=2**70),)), "ints"),
    "means": ((Mean("a", 29_000_000, 5, {"util": 1e39}),), "float too large"),
    "minutes": ((("a", Minute(2**63, "USD", covered=1)),), "too large"),
    "events": ((FleetEvent(at=NOW, box="a", text="\ud800"),), "surrogates"),
}


@pytest.mark.parametrize("part", UNFIT)
def test_what_fits_no_column_is_no_damage_and_costs_nobody_else_anything(path: Path, part: str) -> None:
    file = opened(path, ("a", "b"))
    value, why = UNFIT[part]
    good = batch(["a", "b"], 0, at=NOW)
    if isinstance(value, tuple):
        bad = replace(good, **{part: (*getattr(good, part), *value)})
    else:
        bad = replace(good, **{part: {**getattr(good, part), "a": value}})
    with pytest.raises(Unfit, match=rf"^of what a told, its {part} fit no history.*{why}") as caught:
        file.commit(bad)
    assert file.recall() == {}
    assert (caught.value.box, caught.value.part) == ("a", part)
    rest = bad.without("a", part)
    file.commit(rest)
    assert {item for item in good.__struct_fields__ if getattr(rest, item) != getattr(bad, item)} == {part}
    assert len(file.recall()["b"].runs[0].series["loss"]) == 10
    assert list(file.verify(force=True))
    file.close()


def test_a_damaged_file_is_set_aside_and_what_can_be_read_taken_over(path: Path) -> None:
    file = opened(path, ("a", "b"))
    for number in range(40):
        file.commit(batch(["a", "b"], number, at=NOW))
    file.close()
    con = sqlite3.connect(path)
    (page,) = con.execute("SELECT rootpage FROM sqlite_master WHERE name = 'curves'").fetchone()
    con.close()
    with path.open("r+b") as raw:  # the root of the curves: nothing of them can be found any more
        raw.seek((page - 1) * 4096)
        raw.write(b"\xff" * 4096)
    file = opened(path, ("a", "b"))
    with pytest.raises(Damaged):
        file.recall()
    aside, rows = file.renew()
    assert aside is not None
    assert aside.name.startswith("history.db.damaged-")
    assert rows.rows > 100
    recalled = file.recall()
    assert recalled["a"].meter.spent == 5.0  # the last values are there
    assert recalled["a"].runs == ()  # the curves are told anew
    assert file.spend().today != ()
    assert list(file.verify(force=True))
    file.close()


def test_rows_that_lost_their_box_are_not_given_to_the_next_one(path: Path) -> None:
    file = opened(path, ("a", "b"))
    file.commit(batch(["a"], 0, at=NOW))
    file.commit(batch(["b"], 0, at=NOW))
    file.close()
    con = sqlite3.connect(path)
    con.execute("UPDATE boxes SET seen_at = 1.0 WHERE name = 'b'")  # its seal is broken
    con.commit()
    con.close()
    file = opened(path, ("a", "b"))
    with pytest.raises(Damaged):
        file.recall()
    file.renew()
    file.adopt([spec("c")])
    file.commit(batch(["c"], 0, at=NOW))
    found = file.recall()
    assert set(found) == {"a", "c"}
    for table in ("samples", "minutes", "curves", "states"):
        con = connect(path)
        numbers = {row[0] for row in con.execute(f"SELECT DISTINCT box FROM {table}")}
        known = con.execute("SELECT id FROM boxes WHERE name IN ('a', 'c')")
        assert numbers == {row[0] for row in known}, table  # b is known again, and has nothing
        con.close()
    file.close()


def test_only_one_of_two_processes_sets_a_file_aside(path: Path) -> None:
    one, two = opened(path), opened(path)
    one.commit(batch(["a"], 0, at=NOW))
    two.commit(batch(["a"], 1, at=NOW))
    assert one.renew()[0] is not None
    assert two.renew()[0] is None
    two.commit(batch(["a"], 2, at=NOW))  # into the new one
    one.commit(batch(["a"], 3, at=NOW))
    assert len(list(path.parent.glob("*.damaged-*[0-9]"))) == 1
    one.close()
    two.close()
    assert "a" in opened(path).recall()


def test_a_process_that_finds_its_file_replaced_writes_into_the_new_one(path: Path) -> None:
    one, two = opened(path), opened(path, ("b",))
    one.commit(batch(["a"], 0, at=NOW))
    damage.set_aside(path, None)
    two.commit(batch(["b"], 0, at=NOW))
    one.commit(batch(["a"], 1, at=NOW))
    one.close()  # which must not throw away the log of the new file
    assert set(opened(path, ("a", "b")).recall()) == {"a", "b"}
    two.close()


def test_what_was_set_aside_is_bounded(path: Path) -> None:
    for number in range(6):
        connect(path).close()
        aside = damage.set_aside(path, None)
        assert aside is not None
        aside.rename(path.with_name(f"history.db.damaged-2026010{number}T000000"))
    room.drop_old_damaged(path)
    assert len(list(path.parent.glob("*.damaged-*"))) == room.KEPT_DAMAGED


def test_it_stays_within_its_bound_and_gives_the_room_back(path: Path) -> None:
    bound = 400_000
    file = opened(path, max_bytes=bound)
    for number in range(6):
        big = state("a", points=200, runs=40)
        renamed = tuple(replace(run, name=f"{run.name}-{number}") for run in big.runs)
        file.commit(Batch(runs={"a": replace(big, runs=renamed)}))
        file.upkeep(force=True)
    con = connect(path)
    assert room.used(con) <= bound
    left = {row[0].split("-")[1] for row in con.execute("SELECT run FROM runs")}
    assert "5" in left  # the newest stays
    assert "0" not in left
    con.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    con.close()
    file.close()
    assert path.stat().st_size <= 2 * bound
    assert list(opened(path).verify(force=True))


def test_samples_grow_coarse_and_are_dropped_in_time(path: Path) -> None:
    file = opened(path)
    clock = file._clock
    assert isinstance(clock, Clock)
    for number in range(30):
        file.commit(batch(["a"], number, at=NOW))
    file.upkeep(force=True)
    con = connect(path)

    def widths() -> dict[int, int]:
        return dict(con.execute("SELECT width, sum(count) FROM samples GROUP BY width"))

    assert widths() == {60: 30 * 60, 480: 30 * 60}
    clock.now += 1.5 * 86400
    file.upkeep(force=True)
    assert widths() == {480: 30 * 60}
    assert file.recall()["a"].past.at == ()
    clock.now += 40 * 86400
    file.upkeep(force=True)
    assert widths() == {}
    con.close()
    file.close()


def test_the_past_is_a_day_with_its_holes(path: Path) -> None:
    file = opened(path)
    for number in (0, 1, 200, 201):
        file.commit(batch(["a"], number, at=NOW))
    past = file.recall()["a"].past
    assert past.names == ("util", "disk:/")
    assert past.values == ((50.0, 12.5), (50.0, 12.5))
    assert past.width == 480.0
    assert past.at[1] - past.at[0] in (12000.0, 12480.0)
    file.close()


def test_values_of_an_earlier_rgt_say_so(path: Path) -> None:
    file = opened(path)
    file.commit(batch(["a"], 0, at=NOW))
    found = file.recall()["a"]
    assert found.link.value == "connecting"
    assert found.reason.startswith("not connected yet; values of ")
    assert found.remembered_at == NOW
    assert found.meter.at == NOW
    assert found.since == NOW
    file.close()


def test_a_box_that_was_rented_anew_under_its_name_begins_with_nothing(path: Path) -> None:
    file = opened(path)
    file.commit(batch(["a"], 0, at=NOW))
    file.close()
    again = HistoryFile(path, clock=Clock())
    again.adopt([replace(spec("a"), provider=ProviderRef("runpod", "another"))])
    assert again.recall() == {}
    ((currency, amount),) = again.spend().today  # but what it cost today, it cost
    assert (currency, round(amount, 6)) == ("USD", round(2.0 / 60, 6))
    again.close()


def test_a_fleet_is_charged_for_its_own_boxes_alone(path: Path) -> None:
    """Both have a box called a; that of the first was another machine this morning."""

    def of(fleet: str, instance: str) -> HistoryFile:
        file = HistoryFile(path, clock=Clock(), fleet=fleet)
        file.adopt([replace(spec("a"), provider=ProviderRef("runpod", instance))])
        return file

    minute = 2.0 / 60
    for fleet, instance, expected in (("/x.toml", "1", 1), ("/x.toml", "2", 2), ("/y.toml", "3", 1)):
        file = of(fleet, instance)
        file.commit(batch(["a"], 0, at=NOW))
        assert dict(file.spend().today) == {"USD": pytest.approx(expected * minute)}
        file.close()
    again = of("/x.toml", "2")
    assert dict(again.spend().today) == {"USD": pytest.approx(2 * minute)}
    again.close()


def test_lists_of_names_that_nothing_has_any_more_go_and_no_number_comes_back(path: Path) -> None:
    """Mounts that come and go, such as those of containers; another process still knows their numbers."""
    file, other = opened(path), opened(path, ("b",))

    def told(name: str, slot: int, mount: str) -> Batch:
        return Batch(means=(Mean(name, int(NOW // 60) - slot, 9, {f"disk:/{mount}": 50.0}),))

    def lists() -> list[str]:
        con = connect(path)
        found = [row[0] for row in con.execute("SELECT list FROM names ORDER BY id")]
        con.close()
        return found

    for number in range(20):
        file.commit(told("a", 60 * 24 * 40 + 8 * number, f"run{number}"))
    other.commit(told("b", 60 * 24 * 40, "data"))
    assert len(lists()) == 21
    con = connect(path)
    with transaction(con):
        samples.drop_old(con, NOW)
        assert samples.drop_names(con) == 21
    con.close()
    other.commit(told("b", 1, "data"))  # its number is not that of another list
    file.commit(told("a", 1, "new"))
    assert lists() == ['["disk:/data"]', '["disk:/new"]']
    assert other.recall()["b"].past.names == ("disk:/data",)
    assert file.recall()["a"].past.names == ("disk:/new",)
    assert list(file.verify(force=True))
    file.close()
    other.close()


def test_many_lists_of_names_are_looked_through_by_the_upkeep(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upkeep, "MANY_NAMES", 3)
    file = opened(path)
    for number in range(5):
        values = {f"disk:/{number}": 50.0}
        file.commit(Batch(means=(Mean("a", int(NOW // 60) - 60 * 24 * 40 - 8 * number, 9, values),)))
    file.upkeep(force=True)
    con = connect(path)
    assert samples.count_names(con) == 0
    con.close()
    file.close()


def test_a_clock_that_is_ahead_throws_nothing_away_at_first(path: Path) -> None:
    file = opened(path)
    clock = file._clock
    assert isinstance(clock, Clock)
    file.commit(batch(["a"], 0, at=NOW))
    file.upkeep()
    before = file.spend()
    clock.now += 40 * 86400
    file.commit(batch(["a"], 0, at=clock.now))
    file.upkeep()
    clock.now = NOW
    file.upkeep()
    assert file.spend() == before
    assert file.recall()["a"].past.at != ()
    file.close()


def test_nor_does_one_that_is_ahead_when_rgt_begins(path: Path) -> None:
    file = opened(path)
    file.commit(batch(["a"], 0, at=NOW))
    before = file.spend()
    file.close()
    clock = Clock()
    clock.now += 40 * 86400
    again = HistoryFile(path, clock=clock)
    again.adopt([spec("a")])
    again.upkeep()
    clock.now = NOW
    assert again.spend() == before
    assert again.recall()["a"].past.at != ()
    again.close()


def test_events_come_back_once(path: Path) -> None:
    one, two = opened(path), opened(path)
    for file in (one, two):
        for number in range(3):
            file.commit(batch(["a"], number, at=NOW))
    assert [event.text for event in one.events(10)] == ["event 0", "event 1", "event 2"]
    assert [event.text for event in one.events(2)] == ["event 1", "event 2"]
    one.close()
    two.close()


def test_the_audit_log_is_indexed_as_it_grows_and_anew_when_it_is_another(path: Path, tmp_path: Path) -> None:
    log = tmp_path / "audit.jsonl"
    file = opened(path, audit=log)
    file.upkeep(force=True)
    line = (
        '{{"at": {at}, "event": "requested", "box": "a", "verb": "park", "instance": "p", "text": "POST"}}\n'
    )
    log.write_text(line.format(at=1.0) + "garbage\n" + line.format(at=2.0))
    file.upkeep(force=True)
    with log.open("a") as more:
        more.write(line.format(at=3.0) + '{"at": 4.0, "ev')
    file.upkeep(force=True)
    file.upkeep(force=True)
    rows = file.audit(10)
    assert [(row.at, row.box, row.verb, row.event) for row in rows] == [
        (at, "a", "park", "requested") for at in (1.0, 2.0, 3.0)
    ]
    data = log.read_bytes()
    assert all(data[row.start :].startswith(b'{"at"') for row in rows)
    log.write_text(line.format(at=9.0))
    file.upkeep(force=True)
    assert [row.at for row in file.audit(10)] == [9.0]
    file.close()


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
        con.execute("INSERT INTO marks VALUES ('x', 1, 2)")
        raise RuntimeError
    assert con.execute("SELECT count(*) FROM marks").fetchone() == (0,)
    con.close()
