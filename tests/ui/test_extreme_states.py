"""Every screen draws what a box that speaks nonsense is taken for: extreme numbers, odd texts, no fault."""

from __future__ import annotations

import msgspec
import pytest

from rgt_tui.health import evaluate_checks
from rgt_tui.model import BoxState, CheckResult, FleetState, Hello, RunState, Series
from rgt_tui.profiles import load_profile
from rgt_tui.ui.widgets import link_lines, text_of
from tests.security.odd_frames import SPEC, odd_state
from tests.ui.fakes import NOW, FakeFleet, running_box, sample
from tests.ui.snap import resize, running, screen_text, settle

KEYS = {
    "box": ("down", "j", "f"),
    "log": ("g", "e", "G"),
    "curves": ("m", "j", "left", "+", "right", "m", "e", "s", "-", "space", "v"),
    "phases": ("j", "enter"),
    "alerts": ("j", "enter"),
    "teardown": ("tab", "pagedown"),
}


class OddFleet(FakeFleet):
    """Evaluates the checks of its one box, as a real fleet does."""

    def evaluate_checks(self, box: str) -> tuple[CheckResult, ...]:
        found = self.state.find_box(box)
        return () if found is None else evaluate_checks(found, load_profile(SPEC.profile), NOW)


def nanoseconds() -> BoxState:
    """A trainer that logs `time_ns()` as its step, with losses at the ends of what a float holds."""
    begun, state = 1_795_255_331_000_000_000, odd_state(1)
    points = [
        (begun + n * 1_000_000_007, value)
        for n, value in enumerate((1e308, -1e308, float("nan"), 5e-324))
    ]
    runs = tuple(
        RunState(name, step=points[-1][0], loss=points[-1][1], epoch=1e300, last_at=NOW, progressed_at=NOW,
                 series={"loss": Series().with_points(points[:count])}, total_steps=10**15)
        for name, count in (("one", 1), ("two", 2), ("all", 4))
    )  # fmt: skip
    return msgspec.structs.replace(state, runs=(*state.runs, *runs))


@pytest.mark.parametrize("seed", [None, 3, 4, 11])
async def test_no_screen_fails(seed: int | None) -> None:
    state = nanoseconds() if seed is None else odd_state(seed)
    fleet = OddFleet(FleetState((state,), (), NOW))
    async with running(fleet, size=(80, 24)) as (app, pilot, _):
        for place, keys in KEYS.items():
            app.open_screen(place, SPEC.name)
            await settle(pilot)
            for key in keys:
                await pilot.press(key)
            await settle(pilot)
            assert screen_text(app).strip()
            while len(app.screen_stack) > 1:
                app.pop_screen()
            await settle(pilot)
        assert app.is_running


LIMITED = (
    "no Python 3.8 or later is on the box; no log, no curve, no queue and no history",
    "no file transfer",
)


async def test_a_box_without_an_agent_is_not_said_to_have_no_queue_and_no_log() -> None:
    plain = Hello(
        proto=1, agent="sh", boot="b", host="h", python="", pid=1, at=NOW, limited=LIMITED
    )
    box = msgspec.structs.replace(
        running_box(),
        hello=plain,
        limited=LIMITED,
        logs=(),
        runs=(),
        queues=(),
        sample=sample(procs=()),
    )
    async with running(FleetState((box,), (), NOW), size=(100, 34)) as (app, pilot, _):
        assert "limited  no Python 3.8 or later is on the box" in screen_text(app)
        assert "limited  no file transfer" in screen_text(app)
        assert "◐ 1" in screen_text(app).splitlines()[0], "counted as its row shows it, not as idle"
        await resize(pilot, 150, 40)
        await settle(pilot)
        assert "no agent on the box: no curve" in screen_text(
            app
        ) and "no run yet" not in screen_text(app)
        await resize(pilot, 100, 34)
        await pilot.press("enter")
        await settle(pilot)
        text = screen_text(app)
        assert (
            "queue and runs unknown: no agent runs on the" in text
            and "no queue and no training" not in text
        )
        for key, said in (
            ("l", "this box sends no log: no Python 3.8 or later"),
            ("c", "no agent runs there"),
        ):
            await pilot.press(key)
            await settle(pilot)
            assert said in screen_text(app)
            assert "no log is followed" not in screen_text(
                app
            ) and "Start a queue" not in screen_text(app)
            await pilot.press("q")
            await settle(pilot)


async def test_the_phases_of_a_box_without_an_agent_say_that_nobody_looked() -> None:
    plain = Hello(
        proto=1, agent="sh", boot="b", host="h", python="", pid=1, at=NOW, limited=LIMITED
    )
    box = msgspec.structs.replace(
        running_box(),
        hello=plain,
        limited=LIMITED,
        logs=(),
        runs=(),
        queues=(),
        sample=sample(procs=()),
    )
    checks = {
        check.id: check.evidence for check in evaluate_checks(box, load_profile("autodl"), NOW)
    }
    assert checks["1.2"].startswith("agent sh, protocol 1; limited: no Python")
    for check in ("3.1", "3.3", "4.1", "4.2", "4.4", "4.5", "5.1"):
        assert checks[check] == "unknown: no agent runs on the box"
    assert [text_of(row) for row in link_lines(box, 44, NOW)][2:] == [
        "▲ limited: no Python 3.8 or later is on the",
        "box; no log, no curve, no queue and no",
        "history",
        "▲ limited: no file transfer",
        "agent sh",
    ]
