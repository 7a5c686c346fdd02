"""Who is told to sample how often, and when: the box that is opened at once, the others when somebody stays there."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import pytest
from msgspec.structs import replace

from rgt_tui.fleet import ATTENTION_PACES, SamplingPaces, attention, settings_for_size
from rgt_tui.model import BoxSpec, BoxState

NEVER = 86_400.0
PATIENCE = 120.0


@dataclass
class Kept:
    focused: bool = False


@dataclass
class Session:
    """Writes down what its box is told, as a session sends it: only what is new."""

    state: BoxState
    intake: Kept = field(default_factory=Kept)
    told: list[float] = field(default_factory=list)

    @property
    def seconds(self) -> float:
        return self.told[-1] if self.told else self.state.spec.interval

    def set_interval(self, seconds: float) -> None:
        if seconds != self.seconds:
            self.told.append(seconds)


def box(name: str, seconds: float = 1.0) -> Session:
    return Session(BoxState(spec=BoxSpec(name=name, host="h", interval=seconds)))


def fleet(count: int) -> dict[str, Session]:
    return {f"box-{n:03d}": box(f"box-{n:03d}") for n in range(count)}


@contextlib.asynccontextmanager
async def running(paces: SamplingPaces) -> AsyncIterator[None]:
    task = asyncio.create_task(paces.run())
    try:
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def until_told(session: Session, seconds: float, every: float = 0.01) -> None:
    async with asyncio.timeout(PATIENCE):
        while session.seconds != seconds:  # noqa: ASYNC110  (a fake tells nobody)
            await asyncio.sleep(every)


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    paces = replace(attention.ATTENTION_PACES, stays_s=0.0, back_s=0.0, spread_s=0.0)
    monkeypatch.setattr(attention, "ATTENTION_PACES", paces)


async def test_a_key_that_opens_a_box_writes_to_no_other_one() -> None:
    boxes = fleet(200)
    boxes["slow"] = box("slow", 5.0)
    paces = SamplingPaces(boxes)
    paces.focus_box("slow")
    assert boxes["slow"].intake.focused
    assert [name for name, one in boxes.items() if one.told] == []
    paces.set_interval_of("slow", 0.5)
    assert boxes["slow"].told == [0.5], "what concerns this box alone does not wait"


async def test_whoever_stays_lets_the_others_sample_slowly_and_all_are_fast_again_behind_him() -> (
    None
):
    boxes = fleet(200)
    paces = SamplingPaces(boxes)
    async with running(paces):
        paces.focus_box("box-007")
        await until_told(boxes["box-199"], 5.0)
        assert {one.seconds for name, one in boxes.items() if name != "box-007"} == {5.0}
        assert boxes["box-007"].told == []
        paces.focus_box(None)
        assert not boxes["box-007"].intake.focused
        await until_told(boxes["box-199"], 1.0)
        assert all(one.told == [5.0, 1.0] for name, one in boxes.items() if name != "box-007")


async def test_whoever_comes_back_at_once_has_told_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        attention, "ATTENTION_PACES", replace(attention.ATTENTION_PACES, stays_s=NEVER)
    )
    boxes = fleet(200)
    paces = SamplingPaces(boxes)
    async with running(paces):
        paces.focus_box("box-007")
        for _ in range(5):
            await asyncio.sleep(0)
        boxes["new"] = box("new")
        boxes["new"].told = [9.0]
        paces.focus_box(None)
        await until_told(boxes["new"], 1.0)  # the last one, so all have been gone through
    assert [name for name, one in boxes.items() if one.told] == ["new"]


async def test_who_opens_a_box_while_the_others_are_told_slows_none_down(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        attention, "ATTENTION_PACES", replace(attention.ATTENTION_PACES, stays_s=NEVER)
    )
    boxes = fleet(5 * ATTENTION_PACES.at_a_time)
    boxes["box-001"].told = [9.0]
    paces = SamplingPaces(boxes)
    async with running(paces):
        paces.focus_box("box-007")
        paces.focus_box(None)
        await until_told(
            boxes["box-001"], 1.0, every=0.0
        )  # the first of those that are told together
        paces.focus_box("box-007")
        for _ in range(100):
            await asyncio.sleep(0)
    assert {one.seconds for one in boxes.values()} == {1.0}


async def test_other_things_have_their_turn_between_a_few_boxes_and_the_next() -> None:
    boxes = fleet(5 * ATTENTION_PACES.at_a_time)
    paces = SamplingPaces(boxes)
    counts: list[int] = []
    async with running(paces):
        paces.focus_box("box-000")
        async with asyncio.timeout(PATIENCE):
            while not counts or counts[-1] < len(boxes) - 1:
                await asyncio.sleep(0)
                counts.append(sum(bool(one.told) for one in boxes.values()))
    steps = [after - before for before, after in itertools.pairwise(counts)]
    assert max(steps) <= ATTENTION_PACES.at_a_time


async def test_the_box_in_sight_is_fast_at_once_where_it_was_slow() -> None:
    boxes = fleet(20)
    paces = SamplingPaces(boxes)
    async with running(paces):
        paces.focus_box("box-000")
        await until_told(boxes["box-019"], 5.0)
        paces.focus_box("box-019")
        assert boxes["box-019"].seconds == 1.0
        assert (boxes["box-000"].intake.focused, boxes["box-019"].intake.focused) == (False, True)


async def test_while_nobody_looks_less_is_asked_and_what_a_person_chose_stays() -> None:
    boxes = fleet(200)
    paces = SamplingPaces(boxes)
    paces.set_interval_of("box-001", 2.0)
    async with running(paces):
        paces.set_looking(False)
        await until_told(boxes["box-199"], 10.0)
        assert boxes["box-001"].seconds == 2.0
        paces.set_interval_of("box-001", None)
        assert boxes["box-001"].seconds == 10.0
        paces.set_looking(True)
        await until_told(boxes["box-199"], 1.0)
        assert boxes["box-001"].seconds == 1.0


async def test_boxes_that_come_make_a_fleet_in_which_the_others_are_slow() -> None:
    boxes = fleet(2)
    paces = SamplingPaces(boxes)
    paces.focus_box("box-000")
    assert settings_for_size(len(boxes)).most == 12
    async with running(paces):
        boxes.update(fleet(40))
        boxes["box-000"] = box("box-000")
        paces.boxes_changed()
        assert boxes["box-000"].intake.focused
        await until_told(boxes["box-039"], 5.0)
        assert boxes["box-000"].seconds == 1.0


async def test_a_box_that_has_gone_is_told_nothing() -> None:
    boxes = fleet(2)
    paces = SamplingPaces(boxes)
    paces.focus_box("gone")
    paces.set_interval_of("gone", 3.0)
    paces.focus_box(None)
    assert all(not one.told and not one.intake.focused for one in boxes.values())
