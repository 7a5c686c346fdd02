"""What a running fleet leaves of its past: a moment each minute and with what happened, events in their order."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec
import pytest

from rgt_tui import language
from rgt_tui.fleet import HistoryRecorder
from rgt_tui.fleet.history.history_keeper import KEEPER_PACES
from rgt_tui.fleet.history.past import unwatched
from rgt_tui.model import (
    Alert,
    BoxSpec,
    BoxState,
    EventFilter,
    FleetEvent,
    FleetState,
    LinkState,
    ReducedHistory,
)
from rgt_tui.store import OWN, FleetHistory

START = 1_790_000_000.0 - 1_790_000_000.0 % 60
replace = msgspec.structs.replace


class Fleet:
    """Publishes to a memory, by a clock of its own."""

    def __init__(self, path: Path) -> None:
        self.at = START
        self.history = FleetHistory(path, clock=lambda: self.at)
        self.memory = HistoryRecorder(self.history, clock=lambda: self.at, seconds=1e6)
        self.boxes = tuple(
            BoxState(spec=BoxSpec(name=name, host=name), link=LinkState.LIVE) for name in ("a", "b")
        )

    def publish(self, *events: tuple[str, str], seconds: float = 0.0, **changes: object) -> None:
        self.at += seconds
        new = tuple(
            replace(box, **{"reason": f"at {self.at - START:.0f}", **changes}) for box in self.boxes
        )
        pairs, self.boxes = tuple(zip(self.boxes, new, strict=True)), new
        self.memory.published(FleetState(boxes=new, at=self.at), pairs)
        if events:
            self.memory.receive_events(
                tuple(FleetEvent(self.at, box, text) for box, text in events)
            )

    def tick(self) -> None:
        self.history.put_batch(self.memory._build_batch(self.at))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "history.db"


async def kept(path: Path) -> tuple[list[float], list[str]]:
    history = FleetHistory(path, clock=lambda: START)
    history.adopt_boxes([BoxSpec(name=name, host=name) for name in ("a", "b")])
    line = await history.read_timeline()
    rows = (await history.read_event_page(EventFilter(), None, 99)).rows
    for n, at in zip(line.ns, line.ats, strict=True):
        found = await history.read_moment(n, at, frozenset())
        assert [box.reason for box in found.boxes] == [f"at {at - START:.0f}"] * 2
    await history.close()
    return [at - START for at in line.ats], [f"{row.box} {row.text}" for row in rows if row.box]


async def test_a_moment_each_minute_and_one_with_what_happened(path: Path) -> None:
    fleet = Fleet(path)
    for second in range(0, 190, 10):
        events = (("b", "first"), ("a", "second")) if second == 70 else ()
        fleet.publish(*events, seconds=10.0 if second else 0.0)
        fleet.tick()
    await fleet.memory.close()
    ats, rows = await kept(path)
    assert ats == [0, 60, 70, 120, 180]
    assert rows == ["b first", "a second"]  # as they came, not box by box


async def test_a_storm_of_events_does_not_make_one_of_moments(path: Path) -> None:
    fleet = Fleet(path)
    for _ in range(50):
        fleet.publish(("a", f"{fleet.at}"), seconds=1.0)
        fleet.tick()
    await fleet.memory.close()
    ats, rows = await kept(path)
    assert len(rows) == 50
    assert len(ats) <= KEEPER_PACES.most_extra + 3


async def test_the_last_state_is_kept_when_rgt_ends(path: Path) -> None:
    fleet = Fleet(path)
    fleet.publish()
    fleet.tick()
    fleet.publish(seconds=7.0)
    await fleet.memory.close()
    assert (await kept(path))[0] == [0, 7]


async def test_what_a_box_s_recorder_told_speaks_for_the_time_that_nobody_watched(
    path: Path,
) -> None:
    fleet = Fleet(path)
    fleet.publish(past=ReducedHistory(names=("util",), at=(START - 7200,), values=((50.0,),)))
    fleet.tick()
    whole = ReducedHistory(
        names=("util",),
        at=tuple(START - 7200 + 60 * n for n in range(120)),
        values=tuple((float(n % 100),) for n in range(120)),
    )
    fleet.publish(seconds=1.0, past=whole)
    await fleet.memory.close()
    history = FleetHistory(path, clock=lambda: START)
    history.adopt_boxes([BoxSpec(name=name, host=name) for name in ("a", "b")])
    found = await history.read_moment(1, START - 3600, frozenset())
    assert found.recorded["a"].at[0] == START - 7140
    assert len(found.recorded["a"].at) == 118  # without what was known, and what is of now
    await history.close()


def past(*ends: float, width: float = 60.0) -> ReducedHistory:
    return ReducedHistory(names=("x",), at=ends, values=tuple((end,) for end in ends), width=width)


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        (past(), past(60, 120), (60, 120)),
        (past(60), past(60, 120), (120,)),
        (past(60, 120), past(120, width=120), ()),  # the same, wider
        (past(60), past(60, 960), ()),  # of now
        (past(240, width=240), past(60, 120, 300), (300,)),
    ],
)
def test_what_only_the_recorder_saw(
    old: ReducedHistory, new: ReducedHistory, told: tuple[float, ...]
) -> None:
    assert unwatched(old, new, 1000.0).at == told


async def test_what_is_about_no_single_box_is_kept_too(path: Path) -> None:
    """When rgt watched, what a sink failed at, that a clock jumped: for the fleet, and not for one of its boxes."""
    fleet = Fleet(path)
    fleet.publish(("", "sink phone: it does not answer"), ("a", "preempted"))
    fleet.memory.receive_events((FleetEvent(fleet.at, "", "nothing can be kept", about=OWN),))
    await fleet.memory.close()
    history = FleetHistory(path, clock=lambda: START)
    history.adopt_boxes([BoxSpec(name=name, host=name) for name in ("a", "b")])
    rows = (await history.read_event_page(EventFilter(), None, 99)).rows
    assert [(row.box, row.text) for row in rows] == [
        ("", f"rgt began to watch 2 boxes, process {os.getpid()}"),
        ("", "sink phone: it does not answer"),
        ("a", "preempted"),
        ("", f"rgt stopped watching, process {os.getpid()}"),
    ]
    assert [
        row.text for row in (await history.read_event_page(EventFilter(box="a"), None, 99)).rows
    ] == ["preempted"]
    assert "" not in await history.recall_states([BoxSpec(name="a", host="a")])
    await history.close()
    other = FleetHistory(path, fleet="another", clock=lambda: START)
    other.adopt_boxes([BoxSpec(name="c", host="c")])
    assert (await other.read_event_page(EventFilter(), None, 99)).rows == ()
    await other.close()


async def test_what_was_recorded_in_chinese_is_read_in_english(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Events and a moment's alerts, by two processes of rgt with different languages."""
    monkeypatch.setattr(language, "_current_catalogue", lambda: language.load_catalogue("zh_CN"))
    monkeypatch.setattr(language, "_recent", language._RecentTexts())
    connected = language.translate("back after {silent_s}", silent_s="9s")
    alert = Alert("link", "warn", language.translate("it does not answer"))
    fleet = Fleet(path)
    fleet.publish(("a", connected), alerts=(alert,))
    assert alert.text == "没有响应" and connected == "9s 后恢复"
    await fleet.memory.close()

    monkeypatch.setattr(language, "_current_catalogue", lambda: language.load_catalogue("en"))
    monkeypatch.setattr(language, "_recent", language._RecentTexts())
    history = FleetHistory(path, clock=lambda: START)
    history.adopt_boxes([BoxSpec(name="a", host="a")])
    rows = (await history.read_event_page(EventFilter(), None, 99)).rows
    line = await history.read_timeline()
    moment = await history.read_moment(line.ns[-1], line.ats[-1], frozenset())
    await history.close()
    assert [row.text for row in rows if row.box] == ["back after 9s"]
    assert [one.text for box in moment.boxes for one in box.alerts] == ["it does not answer"] * 2
