"""How a box's own stop is put into words, on every screen and in every command."""

from __future__ import annotations

import msgspec
import pytest

from rgt_tui.health import (
    describe_armed_off,
    describe_clock,
    describe_reported_park,
    describe_self_stop,
)
from rgt_tui.model import (
    AutostopMode,
    AutostopReading,
    EndAction,
    LinkState,
    SelfStopState,
    StopEvent,
    time_of_day,
)
from tests.unit.autostop.test_armed_book import KNOWN, STORY, armed
from tests.unit.gate.builders import NOW, box, sample

replace = msgspec.structs.replace
IDLE = AutostopReading(idle_s=2148.0, limit_s=2700.0, stops_in_s=552.0)
LEASE = AutostopReading(mode=AutostopMode.LEASE, limit_s=28800.0, stops_in_s=3600.0, idle_s=0.0)


@pytest.mark.parametrize(
    ("reading", "words"),
    [
        (IDLE, "parks itself in 9m12 (idle 35m48 of 45m00)"),
        (replace(IDLE, action=EndAction.ASK), "calls you in 9m12 (idle 35m48 of 45m00)"),
        (
            replace(IDLE, idle_s=0.0, stops_in_s=None, why=("gpt-a runs",)),
            "parks itself when idle 45m00, now: gpt-a runs",
        ),
        (
            replace(IDLE, idle_s=None, stops_in_s=None, why=("GPU 0 does not answer",)),
            "parks itself when idle 45m00; unknown whether it is idle: GPU 0 does not answer",
        ),
        (replace(IDLE, state="stopping"), "parks itself now"),
        (replace(IDLE, state="failed"), "could not park itself: it is still billed"),
        (LEASE, "parks itself in 1h00 (lease of 8h00)"),
    ],
)
def test_the_clock_in_words(reading: AutostopReading, words: str) -> None:
    assert describe_clock(reading) == words


def test_off_is_not_called_parked_by_itself_unless_it_was_heard_to_do_so() -> None:
    quiet = describe_armed_off(replace(KNOWN, off_at=NOW), "RunPod")
    assert quiet.startswith("off by ")
    assert ", as armed (RunPod): idle" in quiet
    heard = describe_armed_off(replace(KNOWN, off_at=NOW, stopping_at=NOW - 5), "RunPod")
    assert heard.startswith("parked itself by ")
    for words in (quiet, heard):
        assert "(RunPod): idle 45m00, armed at " in words
        assert words.endswith("its saved files are listed once it starts again")


def test_the_story_says_when_why_and_what_was_saved() -> None:
    known = replace(KNOWN, story=STORY[1:], told_at=NOW, off_at=NOW - 3600.0, saved=1.37)
    words = describe_reported_park(known)
    assert words.startswith("parked itself at ")
    assert "idle 45m00; 4 results verified" in words
    assert "1.37" in words
    undone = StopEvent(at=NOW - 3500.0, event="failed", text="tried 3 times", boot="b")
    failed = describe_reported_park(replace(KNOWN, story=(*STORY[1:], undone), told_at=NOW))
    assert failed == "was started again, and is no longer armed: failed: tried 3 times"
    bare = describe_reported_park(replace(KNOWN, told_at=NOW))
    assert bare == "was started again, and is no longer armed: it wrote nothing about a stop"


def test_a_box_says_what_counts_now() -> None:
    live = box(sample=sample(autostop=IDLE, lease=LEASE))
    assert describe_self_stop(live, NOW) == f"{describe_clock(IDLE)}; {describe_clock(LEASE)}"
    assert describe_self_stop(replace(live, link=LinkState.UNREACHABLE), NOW) == ""
    assert describe_self_stop(box(self_stop=SelfStopState(armed=(armed(),))), NOW) == ""
    told = replace(KNOWN, story=STORY, told_at=NOW)
    assert describe_self_stop(box(self_stop=told), NOW).startswith("parked itself at")
    assert describe_self_stop(box(self_stop=told), NOW + 90_000.0) == ""


@pytest.mark.parametrize("at", [1e300, -1e300, 2.0**62, float("inf"), float("nan")])
def test_a_box_that_names_a_time_that_no_calendar_has_ends_no_screen(at: float) -> None:
    assert time_of_day(at) == f"{at:g}"
