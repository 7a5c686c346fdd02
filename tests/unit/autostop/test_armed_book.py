"""What this computer remembers of the boxes that it armed, and what it makes of what they do then."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

from rgt_tui.fleet import BoxSession
from rgt_tui.fleet.autostop import ArmedBook, SelfStops
from rgt_tui.fleet.autostop.self_stops import add_story, is_back, update_from_state
from rgt_tui.model import (
    ArmedRecord,
    AutostopMode,
    BoxEvent,
    BoxSpec,
    BoxState,
    EndAction,
    LinkState,
    MachineLife,
    ProviderRef,
    SelfStopState,
    StopEvent,
)
from rgt_tui.ssh import Unreachable
from tests.unit.gate.builders import HELLO, METER, NOW, OFF, box, spec

replace = msgspec.structs.replace


def armed(mode: AutostopMode = AutostopMode.IDLE, **more: object) -> ArmedRecord:
    made = ArmedRecord(
        box="autodl-demo",
        kind="runpod",
        account="default@vendor",
        instance="k3v9",
        boot="b",
        mode=mode,
        action=EndAction.PARK,
        limit_s=2700.0,
        at=NOW - 5000.0,
        per_hour=1.38,
        durable=("/workspace",),
    )
    return replace(made, **more)


@pytest.fixture
def book(tmp_path: Path) -> ArmedBook:
    return ArmedBook(tmp_path / "armed")


def test_it_is_remembered_by_instance_and_found_by_the_next_rgt(book: ArmedBook) -> None:
    assert book.find_record(spec()) is None
    book.record_arming(spec(), armed())
    assert ArmedBook(book.folder).find_record(spec()) == SelfStopState(armed=(armed(),))
    assert book.find_record(replace(spec(), name="called otherwise")) is not None
    assert book.find_record(replace(spec(), provider=ProviderRef("runpod", "another"))) is None
    assert book.folder.stat().st_mode & 0o77 == 0
    assert all(path.stat().st_mode & 0o77 == 0 for path in book.folder.glob("*.json"))


def test_idle_clock_and_lease_stand_beside_each_other_and_arming_anew_replaces(
    book: ArmedBook,
) -> None:
    book.record_arming(spec(), armed())
    book.record_arming(spec(), armed(AutostopMode.LEASE))
    after = book.record_arming(spec(), armed(limit_s=60.0))
    assert [(one.mode, one.limit_s) for one in after.armed] == [
        (AutostopMode.LEASE, 2700.0),
        (AutostopMode.IDLE, 60.0),
    ]


def test_what_was_armed_for_an_earlier_boot_is_over(book: ArmedBook) -> None:
    book.record_arming(spec(), armed(AutostopMode.LEASE))
    after = book.record_arming(spec(), armed(boot="b2"))
    assert [one.mode for one in after.armed] == [AutostopMode.IDLE]
    book.change_record(spec(), lambda one: replace(one, off_at=NOW) if one else None)
    assert book.record_arming(spec(), armed(boot="b2")).off_at is None


def test_a_disarmed_box_is_forgotten_and_a_damaged_file_is_no_memory(book: ArmedBook) -> None:
    book.record_arming(spec(), armed())
    (path,) = book.folder.glob("*.json")
    path.write_bytes(b'{"armed": [{"box"')
    assert book.find_record(spec()) is None
    book.record_arming(spec(), armed())
    book.delete_record(spec())
    assert list(book.folder.glob("*.json")) == []
    book.delete_record(spec())


def test_a_box_without_a_provider_is_known_by_its_name(book: ArmedBook) -> None:
    bare = replace(spec(), provider=None)
    book.record_arming(bare, armed())
    assert book.find_record(bare) is not None
    assert book.find_record(replace(bare, name="other")) is None


KNOWN = SelfStopState(armed=(armed(),))
STOPPING = BoxEvent(
    boot="b", seq=3, at=NOW - 100.0, kind="autostop-stopping", text="idle 45 m", level="warn"
)


def off(**more: object) -> BoxState:
    away = box(
        link=LinkState.UNREACHABLE,
        meter=OFF,
        sample_at=NOW - 300.0,
        life=MachineLife(stopped_at=NOW - 80.0),
    )
    return replace(away, **more)


def test_off_by_the_provider_and_heard_to_stop_are_two_things() -> None:
    assert update_from_state(KNOWN, box(meter=METER), NOW) is KNOWN
    quiet = update_from_state(KNOWN, off(), NOW)
    assert (quiet.stopping_at, quiet.off_at) == (None, NOW - 80.0)
    heard = update_from_state(KNOWN, off(events=(STOPPING,), clock_skew=10.0), NOW)
    assert (heard.stopping_at, heard.off_at) == (NOW - 110.0, NOW - 80.0)
    elsewhere = update_from_state(KNOWN, off(events=(replace(STOPPING, boot="b0"),)), NOW)
    assert elsewhere.stopping_at is None


def test_a_stop_that_was_withdrawn_was_none() -> None:
    kept = replace(STOPPING, kind="autostop-kept", at=NOW - 90.0)
    assert update_from_state(KNOWN, off(events=(STOPPING, kept)), NOW).stopping_at is None
    heard = replace(KNOWN, stopping_at=NOW - 100.0)
    assert update_from_state(heard, box(events=(STOPPING, kept)), NOW).stopping_at is None


def test_a_provider_that_cannot_be_read_or_a_live_box_says_nothing() -> None:
    assert update_from_state(KNOWN, off(meter=replace(METER, error="no answer")), NOW) is KNOWN
    live = box(meter=replace(OFF, at=NOW - 10.0), sample_at=NOW)
    assert update_from_state(KNOWN, live, NOW) is KNOWN


def test_it_is_back_with_another_boot_alone() -> None:
    assert not is_back(KNOWN, box())
    back = box(hello=replace(HELLO, boot="b2"))
    assert is_back(KNOWN, back)
    assert not is_back(replace(KNOWN, told_at=NOW), back)
    assert not is_back(KNOWN, replace(back, link=LinkState.UNREACHABLE))
    assert not is_back(KNOWN, replace(back, remembered_at=NOW))


STORY = (
    StopEvent(at=NOW - 90_000.0, event="intent", text="an older one", boot="a"),
    StopEvent(at=NOW - 4990.0, event="armed", boot="b"),
    StopEvent(at=NOW - 3610.0, event="sealed", text="4 results verified", boot="b"),
    StopEvent(at=NOW - 3600.0, event="intent", text="stop", boot="b"),
)


def test_the_story_counts_from_the_arming_on_by_this_computer_s_clock() -> None:
    back = box(
        hello=replace(HELLO, boot="b2"), meter=replace(METER, started=NOW - 10.0), clock_skew=5.0
    )
    after = add_story(KNOWN, back, tuple(replace(one, at=one.at + 5.0) for one in STORY), NOW)
    assert [one.event for one in after.story] == ["armed", "sealed", "intent"]
    assert (after.off_at, after.told_at) == (NOW - 3600.0, NOW)
    assert after.saved == pytest.approx(1.38 * 3590.0 / 3600.0)


def test_money_saved_is_not_guessed() -> None:
    back = box(hello=replace(HELLO, boot="b2"))
    assert add_story(SelfStopState(armed=(armed(per_hour=None),)), back, STORY, NOW).saved is None
    assert add_story(KNOWN, back, (), NOW).saved is None


class Session:
    """As much of a session as is looked at."""

    def __init__(self, state: BoxState) -> None:
        self.state = state
        self.agent = ("connection", "agent")

    def set_self_stop(self, known: SelfStopState | None) -> None:
        self.state = replace(self.state, self_stop=known)


def known(session: Session) -> SelfStopState:
    assert session.state.self_stop is not None
    return session.state.self_stop


def stops(book: ArmedBook, session: Session, answers: list[Any], clock: Any) -> SelfStops:
    async def ask(way: object, copies: tuple[str, ...]) -> tuple[StopEvent, ...]:
        assert copies == ("/workspace",)
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return cast("tuple[StopEvent, ...]", answer)

    return SelfStops(
        book, {session.state.spec.name: cast(BoxSession, session)}, clock=lambda: clock.now, ask=ask
    )


def test_a_new_rgt_takes_the_memory_over_asks_once_and_writes_it_down(book: ArmedBook) -> None:
    async def tells() -> None:
        clock = SimpleNamespace(now=NOW)
        book.record_arming(spec(), armed())
        session = Session(off())
        looking = stops(book, session, [Unreachable("not yet"), STORY], clock)
        await looking.check_boxes()
        assert session.state.self_stop is not None
        assert session.state.self_stop.off_at == NOW - 80.0
        session.state = replace(
            box(hello=replace(HELLO, boot="b2"), meter=METER), self_stop=session.state.self_stop
        )
        await looking.check_boxes()
        assert known(session).told_at is None, "it did not answer"
        await looking.check_boxes()
        clock.now += 31.0
        await looking.check_boxes()
        assert known(session).told_at == NOW + 31.0
        await looking.check_boxes()
        other = Session(box())
        await stops(book, other, [], clock).check_boxes()
        assert other.state.self_stop == session.state.self_stop

    asyncio.run(tells())


def test_what_another_rgt_arms_or_forgets_is_taken_over(book: ArmedBook) -> None:
    async def follows() -> None:
        session = Session(box())
        looking = stops(book, session, [], SimpleNamespace(now=NOW))
        await looking.check_boxes()
        assert session.state.self_stop is None
        book.record_arming(spec(), armed())
        await looking.check_boxes()
        assert session.state.self_stop == KNOWN
        book.delete_record(spec())
        await looking.check_boxes()
        assert session.state.self_stop is None

    asyncio.run(follows())


def test_one_look_at_the_directory_answers_for_all_boxes(
    book: ArmedBook, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    one = ArmedBook.read_stamp

    def counted(self: ArmedBook, of: BoxSpec) -> tuple[int, int] | None:
        asked.append(of.name)
        return one(self, of)

    monkeypatch.setattr(ArmedBook, "read_stamp", counted)
    fleet = [replace(spec(), name=f"box{number}", provider=None) for number in range(50)]
    assert book.list_stamps(fleet) == {} and not asked, "there is no directory yet"
    book.record_arming(fleet[7], armed())
    assert book.list_stamps(fleet) == {"box7": one(book, fleet[7])} and asked == ["box7"]
