"""Results pulled from the teardown page: how far it is, stopped with the same key, and never lost from sight."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest
from textual.pilot import Pilot

from rgt_tui.fleet import PullResult
from rgt_tui.model import MoneyAmount
from rgt_tui.profiles import TransferCost
from rgt_tui.transfer.copying import PullProgress
from rgt_tui.ui import BoxPull
from rgt_tui.ui.screens import TeardownScreen
from rgt_tui.ui.widgets import Tone, text_of, width_of
from rgt_tui.ui.widgets.teardown.evidence_list import EvidenceList
from rgt_tui.ui.widgets.teardown.pull_line import pull_line
from tests.ui.fakes import GIB, NOW
from tests.ui.snap import resize, until
from tests.ui.test_evidence_rows import GIVABLE, NOBODYS, QUIET, evidence_page
from tests.ui.test_teardown import (
    BOX,
    SIZES,
    ParkFleet,
    app_of,
    button,
    open_dialog,
    said,
    type_name,
)

HALF = PullProgress(
    phase="pulling",
    files=4,
    files_done=1,
    bytes=4 * GIB,
    bytes_done=GIB,
    rate=45.0 * (1 << 20),
    eta=70.0,
    problems=2,
)


def test_the_line_says_how_far_it_is_and_how_it_ended() -> None:
    going = text_of(pull_line(BoxPull(("/w",), HALF, "4 files, to pulled/x"), 118))
    for part in (
        "25%",
        "1.1 GB of 4.3 GB",
        "47.2 MB/s",
        "1m10 to go",
        "2 problems",
        "to pulled/x",
        "p stops it",
    ):
        assert part in going
    begun = text_of(pull_line(BoxPull(("/w",), PullProgress(phase="listing")), 80))
    assert "listing …" in begun
    good = pull_line(
        BoxPull(("/w",), end=PullResult(whole=True, text="4 files verified"), ended_at=NOW), 80
    )
    assert any(span.tone is Tone.PROVED for span in good)
    bad = pull_line(
        BoxPull(("/w",), end=PullResult(whole=False, text="a.pt: truncated"), ended_at=NOW), 80
    )
    assert not any(span.tone is Tone.PROVED for span in bad)
    assert "a.pt: truncated" in text_of(bad)


def test_what_cannot_be_told_is_left_out() -> None:
    unknown = msgspec.structs.replace(HALF, rate=None, eta=None, problems=0)
    shown = text_of(pull_line(BoxPull(("/w",), unknown), 118))
    assert "/s" not in shown
    assert "to go" not in shown


@pytest.mark.parametrize("width", [20, 56, 76, 118])
def test_the_line_stays_in_its_room(width: int) -> None:
    for pull in (
        BoxPull(("/w",), HALF, "x" * 300),
        BoxPull(("/w",)),
        BoxPull(("/w",), end=PullResult(whole=False, text="\x1b[31m" + "y" * 300), ended_at=NOW),
    ):
        assert width_of(pull_line(pull, width)) <= width
        assert "\x1b" not in text_of(pull_line(pull, width))


def stoppable(fleet: ParkFleet) -> asyncio.Event:
    fleet.pull_looks = (HALF,)
    fleet.pull_gate = asyncio.Event()
    return fleet.pull_gate


async def begin(pilot: Pilot[None], fleet: ParkFleet, key: str = "p") -> TeardownScreen:
    screen = await evidence_page(pilot, fleet)
    fleet.advance(1.0)
    await pilot.press(key)
    await until(pilot, lambda: bool(fleet.pulls) and "to go" in said(screen))
    fleet.advance(1.0)
    return screen


async def test_a_row_is_pulled_and_turns_proved_when_the_copy_is_verified() -> None:
    fleet = ParkFleet()
    async with app_of(fleet).run_test(size=SIZES[1]) as pilot:
        gate = stoppable(fleet)
        screen = await begin(pilot, fleet)
        assert fleet.pulls == [(BOX, (GIVABLE.path,))]
        assert "pulling: /w/b" in said(screen)
        await type_name(pilot, screen)
        assert "results are being pulled from this box" in screen.state.list_blockers(fleet.now())
        assert button(screen, "ok").disabled
        proved = msgspec.structs.replace(
            GIVABLE, ok=True, forfeitable=False, text="/w/b: a verified copy"
        )
        fleet.review_changes = {"items": (QUIET, proved)}
        asked = len(fleet.reviewed)
        gate.set()
        await until(pilot, lambda: len(fleet.reviewed) > asked and "✔ results" in said(screen))
        assert "✔ 3 files, 3.0 GB verified in pulled/vast-demo" in said(screen)
        assert fleet.executed == []


async def test_the_same_key_stops_it_and_what_came_is_kept() -> None:
    fleet = ParkFleet()
    async with app_of(fleet).run_test(size=(120, 34)) as pilot:
        stoppable(fleet)
        screen = await begin(pilot, fleet)
        await pilot.press("p")
        await until(pilot, lambda: "stopped; files that have arrived are kept" in said(screen))
        assert fleet.pulls_stopped == 1
        fleet.advance(1.0)
        await pilot.press("p")
        await until(pilot, lambda: len(fleet.pulls) == 2)


async def test_all_rows_that_stand_against_are_pulled_at_once() -> None:
    fleet = ParkFleet()
    async with app_of(fleet).run_test(size=(120, 34)) as pilot:
        stoppable(fleet)
        screen = await begin(pilot, fleet, "P")
        assert fleet.pulls == [(BOX, (GIVABLE.path, NOBODYS.path))]
        await pilot.press("P")
        await until(pilot, lambda: fleet.pulls_stopped == 1)
        assert "stopped" in said(screen)


async def test_a_second_pull_waits_for_the_first() -> None:
    fleet = ParkFleet()
    async with app_of(fleet).run_test(size=(120, 34)) as pilot:
        stoppable(fleet)
        screen = await begin(pilot, fleet)
        await pilot.press("down", "p")
        assert screen.query_one(EvidenceList).picked_key == NOBODYS.key
        assert "another pull is under way" in said(screen)
        assert len(fleet.pulls) == 1
        assert fleet.pulls_stopped == 0


@pytest.mark.parametrize(
    ("end", "words", "level"),
    [
        (PullResult(whole=True, text="3 files verified"), "pulled: 3 files verified", "hint"),
        (
            PullResult(whole=False, text="a.pt: truncated"),
            "the pull ended: a.pt: truncated",
            "error",
        ),
        (
            ConnectionError("connection reset by peer"),
            "the pull ended: connection reset by peer",
            "error",
        ),
    ],
)
async def test_it_goes_on_without_the_page_and_says_how_it_ended(
    end: PullResult | Exception, words: str, level: str
) -> None:
    fleet = ParkFleet()
    app = app_of(fleet)
    async with app.run_test(size=(120, 34)) as pilot:
        gate = stoppable(fleet)
        fleet.pull_end = end
        screen = await begin(pilot, fleet)
        await pilot.press("escape")
        await until(pilot, lambda: app.screen is not screen)
        again = await open_dialog(pilot, fleet)
        assert "to go" in said(again), "another page of the box shows the pull that goes on"
        assert again.state.pulling
        await pilot.press("escape")
        await until(pilot, lambda: app.screen is not again)
        hints: list[str] = []
        app.screen.hint = lambda text, *_: hints.append(text)  # type: ignore[attr-defined]
        gate.set()
        if level == "hint":
            await until(pilot, lambda: bool(hints))
            assert hints == [f"{BOX}: {words}"]
        else:
            await until(pilot, lambda: len(app._notifications) == 1)
            assert words in next(iter(app._notifications)).message
        assert len(fleet.pulls) == 1
        assert fleet.executed == []


async def test_losing_the_network_in_mid_pull_locks_nothing_open() -> None:
    fleet = ParkFleet()
    async with app_of(fleet).run_test(size=(120, 34)) as pilot:
        gate = stoppable(fleet)
        fleet.pull_end = ConnectionError("connection reset by peer")
        screen = await begin(pilot, fleet)
        gate.set()
        await until(pilot, lambda: "connection reset by peer" in said(screen))
        assert "✖" in said(screen)
        fleet.advance(1.0)
        await type_name(pilot, screen)
        assert button(screen, "ok").disabled, "the row blocks it as before"
        assert fleet.executed == []


async def test_with_a_pull_under_way_all_that_must_be_seen_is_seen() -> None:
    fleet = ParkFleet()
    async with app_of(fleet).run_test(size=SIZES[1]) as pilot:
        stoppable(fleet)
        screen = await begin(pilot, fleet)
        for size in SIZES:
            await resize(pilot, *size)
            await pilot.pause()
            for name in ("#name", "#cancel", "#ok", "#status", "#asked", "#pull"):
                region = screen.query_one(name).region
                assert region.area > 0, (name, size)
                assert screen.region.contains_region(region), (name, size)


TOLL = TransferCost(
    bytes=4 * GIB,
    free=False,
    price=MoneyAmount(0.34),
    words="it costs money: $0.08 per GB (vast.ai)",
)


async def asked(pilot: Pilot[None], fleet: ParkFleet, key: str = "p") -> TeardownScreen:
    """Begin a pull whose traffic costs money."""
    stoppable(fleet)
    fleet.pull_toll = TOLL
    screen = await evidence_page(pilot, fleet)
    fleet.advance(1.0)
    await pilot.press(key)
    await until(pilot, lambda: "fetch          4.3 GB" in said(screen))
    return screen


async def test_what_the_traffic_costs_is_agreed_to_before_the_first_byte() -> None:
    fleet = ParkFleet()
    async with app_of(fleet).run_test(size=SIZES[1]) as pilot:
        screen = await asked(pilot, fleet)
        for part in ("4.3 GB for at most $0.34?   Y yes   p no", "$0.08 per GB (vast.ai)"):
            assert part in said(screen)
        assert "to go" not in said(screen)
        await pilot.press("Y")
        await pilot.pause()
        assert "fetch          4.3 GB" in said(screen), (
            "a key that was on its way when the question came does not count"
        )
        fleet.advance(1.0)
        await pilot.press("Y")
        await until(pilot, lambda: "to go" in said(screen))
        assert "fetch          4.3 GB" not in said(screen)
        fleet.advance(1.0)
        await pilot.press("p")
        await until(pilot, lambda: fleet.pulls_stopped == 1)
        fleet.advance(1.0)
        await pilot.press("p")
        await until(pilot, lambda: len(fleet.pulls) == 2 and "to go" in said(screen))
        assert "fetch          4.3 GB" not in said(screen), (
            "the price of the same files was agreed to"
        )


async def test_what_grew_or_is_another_pull_is_asked_for_again() -> None:
    fleet = ParkFleet()
    async with app_of(fleet).run_test(size=(120, 34)) as pilot:
        screen = await asked(pilot, fleet)
        for key, toll in (
            ("p", msgspec.structs.replace(TOLL, bytes=TOLL.bytes + 1)),
            ("p", msgspec.structs.replace(TOLL, price=MoneyAmount(0.35))),
            ("p", msgspec.structs.replace(TOLL, price=None)),
            ("P", TOLL),
        ):
            fleet.advance(1.0)
            await pilot.press("Y")
            await until(pilot, lambda: "to go" in said(screen))
            fleet.advance(1.0)
            await pilot.press("P")
            await until(pilot, lambda: not screen.state.pulling)
            fleet.pull_toll = toll
            fleet.advance(1.0)
            await pilot.press(key)
            await until(pilot, lambda: "fetch          4.3 GB" in said(screen))


async def test_a_pull_that_came_to_its_end_is_paid_for() -> None:
    fleet = ParkFleet()
    async with app_of(fleet).run_test(size=(120, 34)) as pilot:
        screen = await asked(pilot, fleet)
        assert fleet.pull_gate is not None
        fleet.pull_gate.set()
        fleet.advance(1.0)
        await pilot.press("Y")
        await until(pilot, lambda: "✔ 3 files" in said(screen))
        fleet.advance(1.0)
        await pilot.press("p")
        await until(pilot, lambda: "fetch          4.3 GB" in said(screen))


async def test_who_does_not_agree_pulls_nothing() -> None:
    fleet = ParkFleet()
    async with app_of(fleet).run_test(size=(120, 34)) as pilot:
        screen = await asked(pilot, fleet)
        fleet.advance(1.0)
        await pilot.press("p")
        await until(pilot, lambda: fleet.pulls_stopped == 1 and "stopped" in said(screen))
        fleet.advance(1.0)
        await pilot.press("p")
        await until(pilot, lambda: "fetch          4.3 GB" in said(screen))


async def test_a_pull_that_asks_is_not_lost_from_sight() -> None:
    fleet = ParkFleet()
    app = app_of(fleet)
    async with app.run_test(size=SIZES[1]) as pilot:
        screen = await asked(pilot, fleet)
        for size in SIZES:
            await resize(pilot, *size)
            await pilot.pause()
            for name in ("#name", "#cancel", "#ok", "#status", "#asked", "#pull"):
                region = screen.query_one(name).region
                assert region.area > 0, (name, size)
                assert screen.region.contains_region(region), (name, size)
            assert "4.3 GB for at most $0.34?   Y yes   p no" in said(screen)


async def test_a_pull_that_asks_without_its_page_says_where() -> None:
    fleet = ParkFleet()
    app = app_of(fleet)
    async with app.run_test(size=(120, 34)) as pilot:
        screen = await evidence_page(pilot, fleet)
        gate = asyncio.Event()
        plain = fleet.pull_directories

        async def late(*given: Any) -> PullResult:
            await gate.wait()
            fleet.pull_toll = TOLL
            return await plain(*given)

        fleet.pull_directories = late  # type: ignore[assignment, method-assign]
        fleet.advance(1.0)
        await pilot.press("p")
        await until(pilot, lambda: screen.state.pulling)
        fleet.advance(1.0)
        await pilot.press("escape")
        await until(pilot, lambda: app.screen is not screen)
        gate.set()
        await until(pilot, lambda: len(app._notifications) == 1)
        assert "fetch 4.3 GB for at most $0.34?" in next(iter(app._notifications)).message
        again = await open_dialog(pilot, fleet)
        assert "Y yes" in said(again)
