"""What a box costs: no second twice, none that nobody can vouch for."""

from __future__ import annotations

import itertools

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from rgt_tui.model.box import BoxSpec, BoxState, Link, ProviderRef
from rgt_tui.model.money import Meter, MeterKind
from rgt_tui.model.protocol import Cell, Proc, QueueState, Sample
from rgt_tui.store.metering import AWAKE_SECONDS, VALID_SECONDS, Metering, alive
from rgt_tui.store.spend import MINUTE, Minute, gap_share, masks, merged

NOON = 1_790_000_040.0 // MINUTE * MINUTE
replace = msgspec.structs.replace


def test_masks_cover_each_second_once() -> None:
    for start, stop in ((0.0, 0.0), (3.2, 3.9), (59.5, 61.5), (10.0, 200.0)):
        seconds = [m * 60 + bit for m, mask in masks(start, stop) for bit in range(60) if mask >> bit & 1]
        assert seconds == list(range(int(start), int(stop)))


stretches = st.lists(st.tuples(st.integers(0, 59), st.integers(1, 30)), max_size=4)


@settings(max_examples=100)
@given(st.lists(stretches, min_size=1, max_size=3))
def test_what_several_watchers_saw_is_the_union_of_it_in_any_order(
    watchers: list[list[tuple[int, int]]],
) -> None:
    def seen(stretches: list[tuple[int, int]]) -> Minute:
        found = Minute(0, "USD", rate=3600.0)
        for start, length in stretches:
            for minute, mask in masks(start, min(60, start + length)):
                assert minute == 0
                found = merged(found, Minute(0, "USD", rate=3600.0, covered=mask))
        return found

    union = {s for w in watchers for start, length in w for s in range(start, min(60, start + length))}
    totals = set()
    for order in itertools.permutations(watchers):
        together: Minute | None = None
        for watcher in (*order, order[0]):  # and the first one tells it twice
            together = merged(together, seen(watcher))
        assert together is not None
        totals.add(together.billed)
    assert totals == {float(len(union))}


def test_busy_overrules_idle() -> None:
    minute = Minute(0, "USD", rate=3600.0, covered=0b111, idle=0b110, busy=0b100)
    assert (minute.billed, minute.idle_billed) == (3.0, 1.0)


def test_a_gap_is_shared_by_time() -> None:
    assert gap_share(10.0, 100.0, 200.0, 150.0, 1000.0) == 5.0
    assert gap_share(10.0, 100.0, 200.0, 300.0, 1000.0) == 0.0


# From states to minutes.


def box(**changes: object) -> BoxState:
    spec = BoxSpec(name="a", host="h", provider=ProviderRef("runpod", "pod"))
    meter = Meter(kind=MeterKind.COMPUTE_AND_STORAGE, per_hour=3600.0, at=NOON)
    sample = Sample(boot="b", seq=1, at=NOON)
    state = BoxState(spec=spec, link=Link.LIVE, meter=meter, sample=sample, sample_at=NOON)
    return replace(state, **changes)


def cost(*looks: tuple[BoxState, float]) -> tuple[float, float]:
    metering = Metering()
    for state, at in looks:
        metering.look((state,), NOON + at)
    found = [minute for _, minute in metering.taken()]
    return sum(m.billed for m in found), sum(m.idle_billed for m in found)


def test_time_counts_while_somebody_looks() -> None:
    assert cost((box(), 0), (box(), 5), (box(), 10)) == (10.0, 0.0)
    fresh = box(sample_at=NOON + 4)
    assert cost((fresh, 0), (fresh, 5), (fresh, 10)) == (10.0, 5.0)  # then the sample has grown stale


def test_the_first_look_and_a_sleep_count_nothing() -> None:
    assert cost((box(), 0)) == (0.0, 0.0)
    assert cost((box(), 0), (box(), AWAKE_SECONDS + 1)) == (0.0, 0.0)
    assert cost((box(), 10), (box(), 5)) == (0.0, 0.0)  # a clock that was set back


def test_a_price_that_is_old_or_unknown_counts_nothing() -> None:
    old = replace(box().meter, at=NOON - VALID_SECONDS - 6)
    assert cost((box(meter=old), 0), (box(meter=old), 5)) == (0.0, 0.0)
    unknown = Meter(at=NOON, error="no answer")
    assert cost((box(meter=unknown), 0), (box(meter=unknown), 5)) == (0.0, 0.0)


def test_a_price_that_may_not_be_charged_any_more_counts_nothing() -> None:
    """As of a box without a provider that does not answer: its price is known, whether it is charged is not."""
    unsure = replace(box().meter, kind=MeterKind.UNKNOWN)
    assert cost((box(meter=unsure), 0), (box(meter=unsure), 5)) == (0.0, 0.0)


def test_a_price_of_the_fleet_file_counts_while_the_box_answers() -> None:
    spec = BoxSpec(name="a", host="h", per_hour=3600.0, currency="CNY")
    live = box(spec=spec, meter=Meter())
    assert cost((live, 0), (live, 5))[0] == 5.0
    gone = replace(live, link=Link.UNREACHABLE)
    assert cost((gone, 0), (gone, 5))[0] == 0.0


def test_idle_needs_a_box_that_says_so() -> None:
    assert alive(box(), NOON) is False
    assert alive(box(link=Link.UNREACHABLE), NOON) is None
    assert alive(box(), NOON + 60) is None
    assert alive(box(sample=Sample("b", 1, NOON, procs=(Proc(1, 0.0, "train"),))), NOON) is True
    cell = Cell(name="c", cfg="c", task="t", state="running")
    running = QueueState(path="/q", at=NOON, cells=(cell,), runner_alive=True)
    assert alive(box(queues=(running,)), NOON) is True
    assert alive(box(queues=(replace(running, runner_alive=False),)), NOON) is False


def test_a_reading_of_the_provider_s_sum_is_kept_once() -> None:
    state = box(meter=replace(box().meter, spent=12.0, spent_since=NOON - 7200))
    metering = Metering()
    metering.look((state,), NOON)
    metering.look((state,), NOON + 1)
    found = [minute for _, minute in metering.taken()]
    assert [(m.spent, m.at) for m in found] == [(12.0, NOON)]
    metering.look((state,), NOON + 2)
    assert all(minute.spent is None for _, minute in metering.taken())
