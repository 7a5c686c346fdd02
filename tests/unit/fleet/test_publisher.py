"""What the fleet shows: only what changed is looked at, and a fault in what looks is said and ends nothing."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Iterable

import msgspec
import pytest

from rgt_tui.fleet import (
    BoxSession,
    ConnectLimit,
    FleetAlerting,
    Publisher,
    Questions,
    box_session,
    frame_intake,
    reduce_collection,
)
from rgt_tui.fleet import publisher as module
from rgt_tui.fleet.history.past import Values, kept_percentages
from rgt_tui.model import BoxSpec, BoxState, FleetEvent, FleetState, LinkState, Sample
from rgt_tui.profiles import load_profile
from rgt_tui.ssh import AgentBundle, WatchChannel

replace = msgspec.structs.replace


class World:
    """A publisher over sessions that do not run; their states are set by hand."""

    def __init__(
        self, names: tuple[str, ...] = ("a", "b"), observers: tuple[Watcher, ...] = ()
    ) -> None:
        self.now = 1000.0
        clock: Callable[[], float] = lambda: self.now  # noqa: E731
        self.publisher = Publisher(
            clock,
            Questions(clock, lambda: None, attended=False),
            FleetAlerting(clock=clock),
            observers,
        )
        bundle, profile = AgentBundle(b"", "", ""), load_profile("generic-ssh")
        self.sessions = {
            name: BoxSession(
                BoxSpec(name=name, host="h"),
                profile,
                bundle,
                ConnectLimit(),
                clock,
                self.publisher.mark_changed,
            )
            for name in names
        }
        self.publisher.set_boxes(self.sessions)

    def put(self, name: str, **changes: object) -> None:
        session = self.sessions[name]
        session.state = replace(session.state, **changes)
        self.publisher.mark_changed(name)


class Watcher:
    """An observer."""

    def __init__(self, fails: bool = False) -> None:
        self.fails = fails
        self.changed: list[list[str]] = []
        self.events: list[FleetEvent] = []

    def published(self, state: FleetState, changed: tuple[tuple[BoxState, BoxState], ...]) -> None:
        if self.fails:
            raise OSError("no room")
        self.changed.append([new.spec.name for _, new in changed])

    def receive_events(self, events: tuple[FleetEvent, ...]) -> None:
        self.events += events

    async def close(self) -> None:
        pass


def test_only_the_boxes_that_changed_are_told_of_in_the_order_of_the_file() -> None:
    watcher = Watcher()
    world = World(("c", "a", "b"), (watcher,))
    world.publisher.publish_all()
    watcher.changed.clear()
    world.put("b", link=LinkState.LIVE)
    world.put("c", link=LinkState.LIVE)
    world.publisher.publish_all()
    world.publisher.publish_all()
    assert watcher.changed == [["c", "b"], []]
    assert [box.spec.name for box in world.publisher.state.boxes] == ["c", "a", "b"]


def test_a_box_that_does_not_change_costs_no_diagnosis(monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[str] = []

    def look(box: BoxState, *_: object) -> tuple[()]:
        looked.append(box.spec.name)
        return ()

    monkeypatch.setattr(module, "diagnose_box", look)
    world = World(tuple(f"box{n}" for n in range(50)))
    world.put("box7", link=LinkState.LIVE)
    world.publisher.publish_all()
    assert looked == ["box7"]


def test_a_fault_of_a_diagnosis_is_said_once_and_the_state_is_shown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(*_: object) -> tuple[()]:
        raise KeyError("inodes")

    monkeypatch.setattr(module, "diagnose_box", fail)
    watcher = Watcher()
    world = World(observers=(watcher,))
    for reason in ("1", "2", "3"):
        world.put(
            "a", link=LinkState.UNREACHABLE if reason == "2" else LinkState.LIVE, reason=reason
        )
        world.publisher.publish_all()
        assert world.publisher.state.boxes[0].reason == reason
    world.publisher.publish_all()
    said = [event.text for event in watcher.events if "fault of rgt" in event.text]
    assert said == ["looking at a failed: KeyError: 'inodes'; this is a fault of rgt"]


def test_an_observer_that_fails_takes_no_other_with_it() -> None:
    fails, works = Watcher(fails=True), Watcher()
    world = World(observers=(fails, works))
    shown: list[FleetState] = []
    world.publisher.subscribe(lambda state: 1 / 0)  # type: ignore[arg-type]
    world.publisher.subscribe(shown.append)
    world.put("a", link=LinkState.LIVE)
    world.publisher.publish_all()
    world.publisher.publish_all()
    assert works.changed[0] == ["a"]
    assert len(shown) == 2
    texts = " ".join(event.text for event in works.events)
    assert "Watcher failed: OSError: no room" in texts
    assert "showing the fleet failed: ZeroDivisionError" in texts


async def test_it_publishes_by_itself_when_something_changes() -> None:
    world = World()
    reached = asyncio.Event()
    world.publisher.subscribe(
        lambda state: reached.set() if state.boxes[1].link is LinkState.LIVE else None
    )
    running = asyncio.create_task(world.publisher.run())
    world.put("b", link=LinkState.LIVE)
    async with asyncio.timeout(90):
        await reached.wait()
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


def test_a_small_fleet_leaves_the_collector_alone() -> None:
    import gc

    before = gc.get_threshold(), gc.get_freeze_count()
    reduce_collection(30)()
    assert (gc.get_threshold(), gc.get_freeze_count()) == before
    undo = reduce_collection(31)
    assert gc.get_threshold() != before[0]
    undo()
    assert (gc.get_threshold(), gc.get_freeze_count()) == (before[0], 0)


def test_a_box_that_talks_without_end_has_its_turn_after_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world, taken = World(("talks", "b", "c")), []

    def take_in(self: BoxSession, until: float = 0.0) -> bool:
        taken.append(self.state.spec.name)
        return self.state.spec.name == "talks" and len(taken) < 6

    monkeypatch.setattr(BoxSession, "apply_received", take_in)
    for name in world.sessions:
        world.put(name)
    world.publisher._apply_received(0.0)  # a turn for one of them
    assert taken == ["talks"]
    world.publisher._apply_received(0.0)
    world.publisher._apply_received(0.0)
    world.publisher._apply_received(0.0)
    assert taken == ["talks", "b", "c", "talks"]
    world.publisher._apply_received(10.0)
    world.publisher._apply_received(10.0)
    world.publisher._apply_received(10.0)
    assert taken == ["talks", "b", "c", "talks", "talks", "talks"]


class Rememberer(Watcher):
    """An observer that keeps what happened."""

    spend = None
    chronicle = None

    def take_events(self) -> tuple[FleetEvent, ...]:
        return ()


class Sending(WatchChannel):
    """A channel on which samples have come, each at once behind the other."""

    def __init__(self, session: BoxSession, seqs: Iterable[int]) -> None:
        self._box, self._seqs = session, tuple(seqs)

    def apply_received(self, until: float = math.inf) -> bool:
        for seq in self._seqs:
            self._box._accept_frame(Sample(boot="b", seq=seq, at=1000.0 + seq))
        return False


def sent(seqs: Iterable[int]) -> BoxSession:
    """A session that has taken in what came."""
    session = World(("a",)).sessions["a"]
    session._channel = Sending(session, seqs)
    session.apply_received()
    return session


@pytest.mark.parametrize("together", [1, 2, 64])
def test_samples_that_came_together_are_all_taken_in(
    monkeypatch: pytest.MonkeyPatch, together: int
) -> None:
    monkeypatch.setattr(box_session, "MOST_TOGETHER", together)
    state = sent([*range(1, 131), 130, 133]).state
    assert state.sample is not None and state.sample.seq == 133
    counters = state.counters
    assert (counters.samples, counters.duplicates, counters.gaps) == (131, 1, 2)
    assert (len(state.rings.gpu_util), state.seen.sample is not None) == (120, True)


def test_of_samples_that_came_together_the_one_that_is_wrong_ends_the_connection_behind_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def poisoned(sample: Sample, *, cards: bool = True) -> Values:
        if sample.seq == 3:
            raise ValueError("it is poisoned")
        return kept_percentages(sample, cards=cards)

    monkeypatch.setattr(frame_intake, "kept_percentages", poisoned)
    session = sent(range(1, 9))
    counters = session.state.counters
    assert (counters.samples, counters.bad_frames, counters.seq) == (2, 1, 3), "it would come again"
    assert session._fault is not None and "could not process a Sample frame" in session._fault


def test_of_what_is_muted_only_the_history_hears() -> None:
    keeper, watcher = Rememberer(), Watcher()
    world = World(observers=(keeper, watcher))
    world.put("a", link=LinkState.LIVE)
    world.publisher.publish_all()
    world.publisher._alerting.mute_alert("a", "host-key", None)
    world.put("a", link=LinkState.REFUSED_KEY, reason="another key")
    world.publisher.publish_all()
    world.put("a", link=LinkState.UNREACHABLE, reason="no route")
    world.publisher.publish_all()
    kept = [event.text for event in keeper.events]
    shown = [event.text for event in world.publisher.state.events]
    assert (
        [event.text for event in watcher.events]
        == shown
        == [text for text in kept if "(muted)" not in text]
    )
    assert kept.count("another key (muted)") == 1 and "unreachable: no route" in shown


def test_the_look_at_the_boxes_is_done_in_slices_and_lets_them_come_and_go_meanwhile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        module, "PUBLISH_PACES", replace(module.PUBLISH_PACES, slice_s=-1.0)
    )  # each box is a slice
    watcher = Watcher()
    world = World(("a", "b", "c"), (watcher,))
    for name in world.sessions:
        world.put(name, link=LinkState.LIVE)
    world.publisher._apply_received(10.0)
    steps = world.publisher._publishing(world.now)
    next(steps)
    next(steps)
    assert watcher.changed == [], "nothing is told before all is looked at"
    world.publisher.replace_boxes({name: world.sessions[name] for name in ("c", "a")})
    assert [*steps] == [None], "one box is left to look at"
    assert watcher.changed == [["a", "c"]]
    assert [box.link for box in world.publisher.state.boxes] == [LinkState.LIVE, LinkState.LIVE]


@pytest.mark.parametrize("where", ["comparing", "taking", "observing", "judging a box that left"])
def test_a_fault_while_publishing_loses_no_event_and_no_other_box(
    monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    watcher, keeper = Watcher(), Rememberer()
    world = World(("a", "b", "c"), (keeper, watcher))
    publisher = world.publisher
    compare: Callable[..., list[FleetEvent]] = vars(module)["events_between"]

    def fail(*_: object) -> list[FleetEvent]:
        raise ValueError("broken")

    def compare_or_fail(old: BoxState, new: BoxState, now: float) -> list[FleetEvent]:
        if new.spec.name == "b":
            raise ValueError("broken")
        return compare(old, new, now)

    if where == "comparing":
        monkeypatch.setattr(module, "events_between", compare_or_fail)
    elif where == "taking":
        monkeypatch.setattr(keeper, "take_events", fail)
    elif where == "observing":
        watcher.fails = True
    else:
        monkeypatch.setattr(publisher._alerting, "boxes_to_judge", lambda _: frozenset({"gone"}))
    publisher.publish_message("said")
    for name in world.sessions:
        world.put(name, link=LinkState.UNREACHABLE, reason="no route")
    publisher.publish_all()
    told = [event.text for event in watcher.events]
    assert told.count("said") == 1
    spoke = [event.box for event in watcher.events if "no route" in event.text]
    assert spoke == [name for name in "abc" if name != "b" or where != "comparing"]
    assert [box.link for box in publisher.state.boxes] == [LinkState.UNREACHABLE] * 3
    if where == "comparing":
        assert keeper.changed == [["a", "b", "c"]]
    assert bool(publisher.faults) == (where != "judging a box that left")


@pytest.mark.parametrize("end", ["publish", "cancel"])
async def test_what_is_being_looked_at_is_told_before_anything_else_and_before_the_end(
    monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    """A single look publishes as it ends, and a dashboard that is left is cancelled: neither loses an event."""
    monkeypatch.setattr(
        module, "PUBLISH_PACES", replace(module.PUBLISH_PACES, slice_s=-1.0)
    )  # each box is a slice
    monkeypatch.setattr(
        module, "PUBLISH_PACES", replace(module.PUBLISH_PACES, publish_s=3600.0)
    )  # and all are taken in before the first is looked at
    watcher = Watcher()
    world = World(("a", "b", "c"), (watcher,))
    between = asyncio.Event()

    async def turn() -> None:
        if world.publisher._under_way is not None:  # it looks at the boxes
            between.set()
            await asyncio.Event().wait()

    monkeypatch.setattr(world.publisher, "_yield_to_keys", turn)
    for name in world.sessions:
        world.put(name, link=LinkState.LIVE)
    world.publisher.publish_message("said")
    running = asyncio.create_task(world.publisher.run())
    async with asyncio.timeout(90):
        await between.wait()
    assert watcher.events == []
    if end == "publish":
        world.publisher.publish_all()
        assert [event.text for event in watcher.events].count("said") == 1
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert [event.text for event in watcher.events].count("said") == 1
    assert sorted(name for names in watcher.changed for name in names) == ["a", "b", "c"]


async def test_what_boxes_send_waits_until_a_key_is_painted_but_not_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "PUBLISH_PACES", replace(module.PUBLISH_PACES, held_s=3600.0))
    world = World()
    asked = asyncio.Event()
    painted, shown = False, asyncio.Event()

    def busy() -> bool:
        asked.set()
        return not painted

    world.publisher.busy = busy
    world.publisher.subscribe(
        lambda state: shown.set() if state.boxes[0].link is LinkState.LIVE else None
    )
    running = asyncio.create_task(world.publisher.run())
    world.put("a", link=LinkState.LIVE)
    async with asyncio.timeout(90):
        await asked.wait()
        for _ in range(20):
            await asyncio.sleep(0)
        assert not shown.is_set()
        painted = True
        await shown.wait()
        painted = False  # and somebody who holds a key down sees the boxes all the same
        monkeypatch.setattr(module, "PUBLISH_PACES", replace(module.PUBLISH_PACES, held_s=0.0))
        shown.clear()
        world.put("a", link=LinkState.UNREACHABLE)
        world.put("a", link=LinkState.LIVE, reason="again")
        await shown.wait()
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
