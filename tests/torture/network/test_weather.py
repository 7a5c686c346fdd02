"""Thirty boxes behind bad networks at once: no gap, no duplicate, no session lost, and every state named rightly.

Each box has a proxy of its own between the engine and a real sshd. RGT_TORTURE=full takes the black hole's whole
minute and four rounds; the usual run one round with a third of the keepalive and of the hole: the hole is still longer.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import resource
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from rgt_tui.fleet import engine
from rgt_tui.model import LinkState
from rgt_tui.ssh import hop
from tests.torture.network.boxes import Boxes, Place, finish, writing
from tests.torture.network.watching import Ledger, account, counted
from tests.torture.network.weather import Road, Weather

FULL = os.environ.get("RGT_TORTURE") == "full"
BOXES = 30
ROUNDS = 4 if FULL else 1
HOLE_SECONDS = 60 if FULL else 20
SHORTER = 1 if FULL else 3
"""The keepalive of the usual run is so many times shorter."""
FLAP_SECONDS = 2.0
GROWTH_KIB = 160 * 1024
"""Resident memory that thirty sessions may add; a leak of buffers in a minute of hole would be far more."""


@dataclass(frozen=True)
class Trial:
    """One kind of weather, and what must be said of a box in it."""

    weather: Weather
    links: frozenset[LinkState]
    """The words that may be used."""
    must: LinkState | None = None
    """The word that must have been used."""
    reason: str = ""
    """Regular expression that the reason given with it matches."""


CALM = frozenset({LinkState.LIVE})
LOST = frozenset({LinkState.LIVE, LinkState.UNREACHABLE, LinkState.CONNECTING})
TRIALS = (
    Trial(Weather.LATENCY, CALM),
    Trial(Weather.NARROW, CALM),
    Trial(Weather.HOLE, LOST, LinkState.UNREACHABLE, r"(?i)keepalive|timeout|timed out|no answer"),
    Trial(
        Weather.HALF_OPEN, LOST, LinkState.UNREACHABLE, r"(?i)keepalive|timeout|timed out|no answer"
    ),
    Trial(
        Weather.CORRUPT,
        LOST,
        LinkState.UNREACHABLE,
        r"(?i)mac|integrity|corrupt|tag|length|packet|lost",
    ),
    Trial(Weather.RESET, LOST, LinkState.UNREACHABLE, r"(?i)reset|lost"),
    Trial(Weather.DOWN, LOST, LinkState.UNREACHABLE, r"(?i)reset|lost|refused"),
)


async def suffer(road: Road, trial: Trial) -> None:
    """Let one box go through one kind of weather."""
    if trial.weather is Weather.DOWN:
        for _ in range(int(HOLE_SECONDS / FLAP_SECONDS / 2)):
            await road.set(Weather.DOWN)
            await asyncio.sleep(
                FLAP_SECONDS
            )  # the length of an outage is what is tried here, not a wait
            await road.set(Weather.CLEAR)
            await asyncio.sleep(FLAP_SECONDS)
    else:
        await road.set(trial.weather)
        await asyncio.sleep(HOLE_SECONDS)
    await road.set(Weather.CLEAR)


@pytest.mark.serial
@pytest.mark.full  # each loss of a connection alone is in `test_kills`, and cuts of every stream in `test_cuts`
@pytest.mark.timeout(1800 if FULL else 600)
async def test_thirty_boxes_in_bad_weather(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ledger: Ledger
) -> None:
    boxes = Boxes(tmp_path, BOXES)
    logs = {place.name: str(place.log) for place in boxes.places}
    monkeypatch.setattr(engine, "BoxSession", counted(ledger, logs))
    monkeypatch.setattr(hop, "KEEPALIVE_SECONDS", hop.KEEPALIVE_SECONDS / SHORTER)
    boxes.start()
    try:
        async with AsyncExitStack() as stack:
            roads = {p.name: await stack.enter_async_context(Road(p.port)) for p in boxes.places}
            specs = [boxes.spec(place, roads[place.name].port) for place in boxes.places]
            fleet = engine.Fleet(specs, audit=tmp_path / "audit.jsonl")
            account(fleet, ledger)
            writer = await stack.enter_async_context(writing(boxes.places))
            await fleet.start()
            try:
                await all_flow(ledger, boxes.places, 1)
                before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
                for turn in range(ROUNDS):
                    await one_round(ledger, roads, boxes.places, turn)
                written = await finish(writer)
                await all_flow(ledger, boxes.places, written)
                growth = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
                alive = {task.get_name() for task in asyncio.all_tasks()}
                assert {f"watching {place.name}" for place in boxes.places} <= alive, (
                    "a session ended"
                )
                assert not [event for event in fleet.state.events if "fault of rgt" in event.text]
                report(fleet, ledger, written, growth)
                judge(fleet, ledger)
                assert growth < GROWTH_KIB, f"{growth} KiB more than before the weather"
            finally:
                await fleet.stop()
    finally:
        boxes.stop()


async def one_round(ledger: Ledger, roads: dict[str, Road], places: list[Place], turn: int) -> None:
    """Give each box a kind of weather, all at once, then wait until all are live again."""
    dealt = {p.name: TRIALS[(number + turn) % len(TRIALS)] for number, p in enumerate(places)}
    marks = {place.name: len(ledger.links[place.name]) for place in places}
    await asyncio.gather(*(suffer(roads[name], trial) for name, trial in dealt.items()))
    await ledger.until(
        lambda: all(ledger.links[name][-1][0] is LinkState.LIVE for name in dealt),
        lambda: str(
            {
                name: ledger.links[name][-1]
                for name in dealt
                if ledger.links[name][-1][0] is not LinkState.LIVE
            }
        ),
        150,
    )
    wrong = []
    for name, trial in dealt.items():
        said = ledger.since(name, marks[name])
        used = {link for link, _ in said}
        if not used <= trial.links:
            wrong.append(f"{name} in {trial.weather}: {said}")
        if trial.must is not None and not any(
            link is trial.must and re.search(trial.reason, reason) for link, reason in said
        ):
            wrong.append(
                f"{name} in {trial.weather} was never {trial.must} for {trial.reason!r}: {said}"
            )
    assert not wrong, "\n".join(wrong)


async def all_flow(ledger: Ledger, places: list[Place], last: int) -> None:
    """Wait until every box has brought line and step number `last`, and at least one sample."""

    def behind() -> list[str]:
        tallies = [(place.name, ledger.tally(place.name)) for place in places]
        return [
            f"{name}: line {tally.line}, step {tally.step}, {tally.samples} samples"
            for name, tally in tallies
            if tally.line < last or tally.step < last or not tally.samples
        ]

    await ledger.until(lambda: not behind(), lambda: f"{last} everywhere: {behind()}", 150)


def report(fleet: engine.Fleet, ledger: Ledger, written: int, growth: int) -> None:
    """Print what happened, for whoever looks."""
    connects = sum(box.counters.connects for box in fleet.state.boxes)
    samples = sum(tally.samples for tally in ledger.tallies.values())
    figures = {
        "boxes": len(fleet.state.boxes),
        "lines": written,
        "connects": connects,
        "samples": samples,
    }
    print(json.dumps(figures | {"growth_kib": growth}))


def judge(fleet: engine.Fleet, ledger: Ledger) -> None:
    """Every stream of every box is whole."""
    faults = {name: tally.faults[:3] for name, tally in ledger.tallies.items() if tally.faults}
    assert not faults
    for box in fleet.state.boxes:
        counters = box.counters
        told = (counters.gaps, counters.duplicates, counters.bad_frames, counters.skipped)
        assert told == (0, 0, 0, 0), (box.spec.name, counters)
