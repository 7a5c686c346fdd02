"""Recordings that a test has written: what is shown when, and what becomes of damaged ones."""

from __future__ import annotations

import asyncio
import gzip
import itertools
from pathlib import Path

import msgspec
import pytest

from rgt_tui.fleet import GateClosed, publisher
from rgt_tui.model import (
    BillingVerb,
    BoxSpec,
    BoxState,
    FleetEvent,
    FleetState,
    Hello,
    Lifecycle,
    LinkState,
    Meter,
    ProviderRef,
)
from rgt_tui.recordings import (
    FULL,
    FleetRecorder,
    LineFile,
    RecordFailed,
    RecordingError,
    RecordingReader,
    ReplayFleet,
    SkippedLine,
    recording_lines,
)

THREE = Path(__file__).parents[2] / "fixtures" / "recordings" / "three-boxes.jsonl.gz"
START = 1000.0
SPEC = BoxSpec(
    name="a",
    host="h",
    identity="/home/me/key",
    known_hosts="/home/me/known",
    provider=ProviderRef("runpod", "pod", base_url="http://x", key_env="MY_KEY"),
)
replace = msgspec.structs.replace


def hello(at: float = START, pid: int = 1) -> bytes:
    frame = Hello(proto=1, agent="0" * 16, boot="b", host="h", python="3", pid=pid, at=at)
    return recording_lines.frame_line("a", at, msgspec.json.encode(frame))


def sample(at: float, seq: int, box_at: float | None = None) -> bytes:
    there = at if box_at is None else box_at
    return recording_lines.frame_line(
        "a", at, f'{{"t":"sample","boot":"b","seq":{seq},"at":{there}}}'.encode()
    )


def samples(count: int) -> list[bytes]:
    return [sample(START + number, number) for number in range(1, count + 1)]


def written(path: Path, *lines: bytes) -> Path:
    path.write_bytes(recording_lines.header_line([SPEC], START) + b"".join(lines))
    return path


async def played(path: Path, *, skip: float = 0.0) -> ReplayFleet:
    fleet = ReplayFleet(path, speed=FULL, skip=skip)
    await fleet.start()
    await asyncio.wait_for(fleet.over.wait(), 90)
    await fleet.stop()
    return fleet


def seq(state: FleetState) -> int:
    return state.boxes[0].counters.seq


async def test_time_is_the_recording_s(tmp_path: Path) -> None:
    fleet = await played(written(tmp_path / "r", hello(), *samples(5)))
    assert (fleet.now(), fleet.state.at, fleet.position) == (START + 5, START + 5, 5.0)
    assert fleet.state.boxes[0].sample_at == START + 5
    assert fleet.state.boxes[0].since == START
    assert [event.text for event in fleet.state.events] == ["connected"]


async def test_what_no_frame_says_is_recorded_as_well(tmp_path: Path) -> None:
    before = BoxState(spec=SPEC, link=LinkState.LIVE)
    lost = replace(
        before,
        link=LinkState.UNREACHABLE,
        reason="ssh: reset",
        since=START + 2.5,
        retry_at=START + 4,
    )
    stopped = replace(
        lost, meter=Meter(lifecycle=Lifecycle.STOPPED, at=START + 3), limited=("no SFTP",)
    )
    changes = [
        recording_lines.change_line(before, lost, START + 2.6),
        recording_lines.change_line(lost, stopped, START + 3.1),
    ]
    assert recording_lines.change_line(stopped, stopped, START + 9) is None
    lines = [line for line in changes if line is not None]
    fleet = await played(written(tmp_path / "r", hello(), *samples(2), *lines))
    again = fleet.state.boxes[0]
    assert (again.link, again.reason, again.since, again.retry_at) == (
        lost.link,
        *("ssh: reset", START + 2.5, START + 4),
    )
    assert (again.meter, again.limited) == (stopped.meter, stopped.limited)
    assert "unreachable: ssh: reset" in [event.text for event in fleet.state.events]


async def test_an_interval_that_was_asked_for_is_kept(tmp_path: Path) -> None:
    one = BoxState(spec=SPEC, link=LinkState.LIVE)
    states = [one, replace(one, interval=5.0), replace(one, interval=None)]
    pairs = itertools.pairwise(states)
    lines = [recording_lines.change_line(old, new, START + 1) or b"" for old, new in pairs]
    for count, interval in ((1, 5.0), (2, None)):
        fleet = await played(written(tmp_path / f"r{count}", hello(), *lines[:count]))
        assert fleet.state.boxes[0].interval == interval


async def test_a_line_of_the_wire_that_was_no_frame_counts_as_it_did(tmp_path: Path) -> None:
    bad = [b"not json", b'{"t":"unknown"}', b"\xff\xfe", b'{"t":"delta","seq":9,"at":1}']
    lines = [recording_lines.frame_line("a", START, line) for line in bad]
    fleet = await played(written(tmp_path / "r", hello(), *lines, *samples(1)))
    assert fleet.state.boxes[0].counters.bad_frames == len(bad)
    assert fleet.skipped == []
    assert seq(fleet.state) == 1


async def test_damaged_lines_are_named_and_left_out(tmp_path: Path) -> None:
    path = written(
        tmp_path / "r", hello(), b"\x00garbage\n", *samples(2), sample(START, 3).replace(b'"a"', b'"stranger"', 1),
        b'{"box":"a","at":"noon","line":{}}\n', b'{"box":"a","at":1003,"raw":"!"}\n', sample(START + 4, 3)[:-20],
    )  # fmt: skip
    fleet = await played(path)
    assert [(item.line, item.torn) for item in fleet.skipped] == [
        (3, False),
        (6, False),
        (7, False),
        (8, False),
        (9, True),
    ]
    assert seq(fleet.state) == 2
    said = [event.text for event in fleet.state.events if event.level == "warn"]
    assert said[0].startswith("r: line 3 was left out: ")
    assert said[-1] == "r: line 9 was left out: the file ends in its middle"


async def test_a_last_line_without_its_line_feed_is_as_good_as_any(tmp_path: Path) -> None:
    fleet = await played(written(tmp_path / "r", hello(), sample(START + 1, 1).rstrip(b"\n")))
    assert (seq(fleet.state), fleet.skipped) == (1, [])


async def test_a_compressed_recording_that_was_cut_off_plays_up_to_there(tmp_path: Path) -> None:
    whole = gzip.compress(
        recording_lines.header_line([SPEC], START) + hello() + b"".join(samples(2000)), 6
    )
    path = tmp_path / "r.gz"
    path.write_bytes(whole[: len(whole) // 2])
    fleet = await played(path)
    assert 0 < seq(fleet.state) < 2000
    assert [item.torn for item in fleet.skipped][-1]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "not an rgt recording"),
        (b"hello\n", "not an rgt recording"),
        (b'{"t":"sample"}\n', "not an rgt recording"),
        (b'{"recording":99,"whatever":1}\n', "newer rgt"),
        (b'{"recording":1,"rgt":"0","started":5}\n', "line 1 cannot be used"),
        (b'{"recording":1,"rgt":"0","started":5,"boxes":[]}\n', "names no boxes"),
        (b"\x1f\x8b\x08broken", "cannot be read"),
        (None, "cannot be read"),
    ],
)
def test_what_is_no_recording_is_said_so(tmp_path: Path, content: bytes | None, words: str) -> None:
    path = tmp_path / "r"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(RecordingError, match=words):
        ReplayFleet(path)


async def test_the_beginning_may_be_left_out(tmp_path: Path) -> None:
    reached = asyncio.Event()

    class Seen:
        def published(
            self, state: FleetState, changed: tuple[tuple[BoxState, BoxState], ...]
        ) -> None:
            if seq(state) == 10:
                reached.set()

        def receive_events(self, events: tuple[FleetEvent, ...]) -> None: ...

        async def close(self) -> None: ...

    path = written(tmp_path / "r", hello(), *samples(20))
    fleet = ReplayFleet(path, speed=1e-6, skip=10.0, observers=[Seen()])
    await fleet.start()
    await asyncio.wait_for(reached.wait(), 90)
    assert 10.0 <= fleet.position < 10.1  # what comes next is a million seconds away
    await fleet.stop()


async def stood_at(fleet: ReplayFleet, position: float) -> FleetState:
    """Go to a position of a paused replay; return the state shown there."""
    shown = asyncio.Event()
    leave = fleet.subscribe(lambda state: shown.set() if fleet.position == position else None)
    fleet.seek_to(position)
    await asyncio.wait_for(shown.wait(), 90)
    leave()
    return fleet.state


async def test_a_replay_goes_to_any_position_and_back(tmp_path: Path) -> None:
    """Wherever it was before, the boxes, alerts and events are those of a replay that came there by itself."""
    path = written(tmp_path / "r.gz", hello(), *samples(2000), b"damaged\n", *samples(2))
    fleet = ReplayFleet(path, speed=1e-6)
    fleet.set_playback_paused(True)
    await fleet.start()
    first = {}
    for position in (300.5, 900.0, 1999.5):
        first[position] = await stood_at(fleet, position)
        assert seq(first[position]) == int(position)
    assert fleet.state.boxes[0].rings.gpu_util
    assert fleet.is_playback_paused
    for position in (900.0, 300.5, 1999.5):
        assert await stood_at(fleet, position) == first[position]
    fleet.set_speed(FULL)
    fleet.set_playback_paused(False)
    await asyncio.wait_for(fleet.over.wait(), 90)
    ends = fleet.state
    assert [item.line for item in fleet.skipped] == [2003]
    fleet.set_playback_paused(True)
    assert await stood_at(fleet, 900.0) == first[900.0]
    assert not fleet.over.is_set()
    assert fleet.skipped == []
    fleet.set_playback_paused(False)
    await asyncio.wait_for(fleet.over.wait(), 90)
    await fleet.stop()
    assert fleet.state == ends == (await played(path)).state


async def test_alerts_logs_and_curves_go_back_as_well() -> None:
    """A minute of three boxes, with a preemption and a disk without inodes; each state in both directions."""
    fleet = ReplayFleet(THREE)
    fleet.set_playback_paused(True)
    await fleet.start()
    positions = [float(position) for position in range(3, 62, 4)]
    first = [await stood_at(fleet, position) for position in positions]
    assert any(box.alerts for state in first for box in state.boxes)
    again = [await stood_at(fleet, position) for position in reversed(positions)]
    await fleet.stop()
    assert again[::-1] == first


async def test_a_part_that_was_not_played_is_read_ahead() -> None:
    """A replay that is paused at its beginning soon has keyframes up to the end."""
    fleet = ReplayFleet(THREE)
    fleet.set_playback_paused(True)
    await fleet.start()
    async with asyncio.timeout(90):
        while fleet._keyframes[-1].position < 55.0:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    assert fleet.position == 0.0
    assert fleet.length == pytest.approx(61.94, abs=0.01)
    late = await stood_at(fleet, 61.0)
    await fleet.stop()
    played_there = ReplayFleet(THREE, speed=1e-9, skip=61.0)
    await played_there.start()
    assert await stood_at(played_there, 61.0) == late
    await played_there.stop()


async def test_a_position_before_the_beginning_is_the_beginning(tmp_path: Path) -> None:
    fleet = ReplayFleet(written(tmp_path / "r", hello(), *samples(20)), speed=1e-6, skip=10.0)
    fleet.set_playback_paused(True)
    await fleet.start()
    assert seq(await stood_at(fleet, 10.0)) == 10
    fleet.seek_to(-60.0)
    assert fleet.position == 0.0
    await fleet.stop()


HOUR = 3600.0


def set_by(moved: float, at: float) -> list[bytes]:
    return [recording_lines.clock_set(name, at, moved) for name in ("a", "b")]


def two(path: Path, *lines: bytes) -> Path:
    path.write_bytes(
        recording_lines.header_line([SPEC, replace(SPEC, name="b")], START) + b"".join(lines)
    )
    return path


class Seen:
    """An observer that keeps what it is told."""

    def __init__(self) -> None:
        self.states: list[FleetState] = []
        self.events: list[str] = []

    def published(self, state: FleetState, changed: tuple[tuple[BoxState, BoxState], ...]) -> None:
        self.states.append(state)

    def receive_events(self, events: tuple[FleetEvent, ...]) -> None:
        self.events += [event.text for event in events]

    async def close(self) -> None: ...


async def seen_by(path: Path, speed: float = FULL) -> tuple[Seen, ReplayFleet]:
    seen = Seen()
    fleet = ReplayFleet(path, speed=speed, observers=[seen])
    await fleet.start()
    await asyncio.wait_for(fleet.over.wait(), 90)
    await fleet.stop()
    return seen, fleet


@pytest.mark.parametrize(("moved", "way"), [(-HOUR, "back"), (HOUR, "forward")])
async def test_a_clock_that_was_set_is_followed_at_once(
    tmp_path: Path, moved: float, way: str
) -> None:
    """At this speed an hour would take longer than the test waits."""
    after = START + 5 + moved
    more = [sample(after + number, 5 + number, START + 5 + number) for number in range(1, 6)]
    path = two(tmp_path / "r", hello(), *samples(5), *set_by(moved, after), *more)
    seen, fleet = await seen_by(path, speed=50.0)
    assert [state.at for state in seen.states][-6:] == [
        after,
        *(after + number for number in range(1, 6)),
    ]
    assert fleet.position == 10.0
    a, b = fleet.state.boxes
    assert (a.sample_at, a.since, b.since) == (after + 5, START + moved, START + moved)
    assert a.counters.gaps == 0
    assert seen.events.count(f"this computer's clock went {way} 1h00") == 1


@pytest.mark.parametrize("moved", [-HOUR, HOUR])
async def test_positions_do_not_count_changes_of_the_clock(tmp_path: Path, moved: float) -> None:
    after = START + 200 + moved
    more = [sample(after + number, 200 + number) for number in range(1, 201)]
    path = two(tmp_path / "r", hello(), *samples(200), *set_by(moved, after), *more)
    fleet = ReplayFleet(path, speed=1e-6)
    fleet.set_playback_paused(True)
    await fleet.start()
    late, early = await stood_at(fleet, 300.0), await stood_at(fleet, 100.0)
    assert (seq(late), fleet.now()) == (300, START + 100)
    assert seq(early) == 100
    assert await stood_at(fleet, 300.0) == late
    assert (seq(late), late.at, fleet.now()) == (300, START + 300 + moved, START + 300 + moved)
    async with asyncio.timeout(90):
        while fleet.length is None:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    assert fleet.length == 400.0
    await fleet.stop()


async def test_nobody_waits_for_hours_of_which_nothing_was_recorded(tmp_path: Path) -> None:
    path = two(tmp_path / "r", hello(), *samples(5), sample(START + 5 + HOUR, 6))
    seen, fleet = await seen_by(path, speed=50.0)
    assert fleet.position == HOUR + 5
    assert "nothing was recorded for 1h00" in seen.events


async def test_a_time_of_another_age_is_a_damaged_line(tmp_path: Path) -> None:
    fleet = await played(
        written(tmp_path / "r", hello(), *samples(2), sample(1e300, 3), sample(-1e300, 4))
    )
    assert [item.why for item in fleet.skipped] == ["its time is years away from the header's"] * 2
    assert fleet.now() == START + 2


async def test_the_recorder_says_that_the_clock_was_set_before_anything_by_the_new_time(
    tmp_path: Path,
) -> None:
    now = [START]
    recorder = FleetRecorder(
        LineFile(tmp_path / "r"), [SPEC, replace(SPEC, name="b")], START, lambda: now[0]
    )
    now[0] += HOUR  # and no hour has passed
    recorder.record_line("b", now[0], b'{"t":"sample","boot":"b","seq":1,"at":1}')
    recorder.published(FleetState(at=now[0]), ())
    now[0] -= HOUR
    recorder.published(FleetState(at=now[0]), ())
    await recorder.close()
    read = RecordingReader(tmp_path / "r").read()
    items = [item.entry for item in read if not isinstance(item, SkippedLine)]
    moved = [round(item.set.moved) if item.set is not None else None for item in items]
    assert moved == [HOUR, HOUR, None, -HOUR, -HOUR]
    assert [item.box for item in items] == ["a", "b", "b", "a", "b"]


async def test_a_fault_of_a_diagnosis_is_said_and_the_replay_ends_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise KeyError("inodes")

    monkeypatch.setattr(publisher, "diagnose_box", fail)
    seen, fleet = await seen_by(written(tmp_path / "r", hello(), *samples(3)))
    assert fleet.faults == ("looking at a failed: KeyError: 'inodes'; this is a fault of rgt",)
    assert list(fleet.faults) == [text for text in seen.events if "fault of rgt" in text]
    assert seq(fleet.state) == 3


async def test_a_recording_that_cannot_be_read_on_is_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fleet = ReplayFleet(written(tmp_path / "r", hello()), speed=FULL, loop=True)
    shown: list[FleetState] = []
    fleet.subscribe(shown.append)
    monkeypatch.setattr(
        RecordingReader, "close", lambda _: (tmp_path / "r").unlink(missing_ok=True)
    )
    await fleet.start()
    await asyncio.wait_for(fleet.over.wait(), 90)
    monkeypatch.undo()
    await fleet.stop()
    assert "playing the recording failed: RecordingError" in shown[-1].events[-1].text


async def test_an_observer_that_fails_does_not_end_the_replay(tmp_path: Path) -> None:
    class Fails(Seen):
        def published(
            self, state: FleetState, changed: tuple[tuple[BoxState, BoxState], ...]
        ) -> None:
            raise OSError("no room")

    works = Seen()
    path = written(tmp_path / "r", hello(), *samples(3))
    fleet = ReplayFleet(path, speed=FULL, observers=[Fails(), works])
    await fleet.start()
    await asyncio.wait_for(fleet.over.wait(), 90)
    await fleet.stop()
    assert "Fails failed: OSError: no room; this is a fault of rgt" in works.events


async def test_a_loop_begins_again(tmp_path: Path) -> None:
    fleet = ReplayFleet(written(tmp_path / "r", hello(), *samples(3)), speed=FULL, loop=True)
    rounds: list[int] = []
    twice = asyncio.Event()

    def look(state: FleetState) -> None:
        rounds.append(seq(state))
        if rounds.count(3) >= 2:
            twice.set()

    fleet.subscribe(look)
    await fleet.start()
    await asyncio.wait_for(twice.wait(), 90)
    await fleet.stop()
    assert not fleet.over.is_set()
    assert fleet.state.boxes[0].counters.duplicates == 0


async def test_a_replay_refuses_every_billing_action(tmp_path: Path) -> None:
    fleet = ReplayFleet(written(tmp_path / "r", hello()))
    with pytest.raises(GateClosed, match="this is a replay"):
        await fleet.review_action("a", BillingVerb.DESTROY)
    with pytest.raises(GateClosed, match="this is a replay"):
        async for _ in fleet.execute_action("a", BillingVerb.DESTROY, "a"):
            pass
    await fleet.stop()


def test_nothing_of_this_computer_is_in_the_header() -> None:
    text = recording_lines.header_line([SPEC], START).decode()
    for secret in ("/home/me", "MY_KEY", "http://x"):
        assert secret not in text
    assert recording_lines.read_header(text.encode(), "r").boxes[0].provider == ProviderRef(
        "runpod", "pod"
    )


def test_a_recording_never_replaces_a_file(tmp_path: Path) -> None:
    path = tmp_path / "r"
    LineFile(path).close()
    assert path.stat().st_mode & 0o777 == 0o600
    with pytest.raises(RecordFailed, match="already exists"):
        LineFile(path)
    with pytest.raises(RecordFailed, match="cannot be created"):
        LineFile(tmp_path / "missing" / "r")
    with pytest.raises(RecordFailed, match=r"only \.gz"):
        LineFile(tmp_path / "r.zst")
