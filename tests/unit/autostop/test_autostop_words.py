"""How a box's own stop is put into words, on every screen and in every command."""

from __future__ import annotations

import msgspec
import pytest

from rgt_tui.health import (
    describe_armed_off,
    describe_clock,
    describe_hung_runs,
    describe_reported_park,
    describe_self_stop,
)
from rgt_tui.model import (
    AutostopMode,
    AutostopReading,
    BoxState,
    EndAction,
    FoundRun,
    GpuProcess,
    GpuReading,
    LinkState,
    RunState,
    SelfStopState,
    StopEvent,
    TrainingProcess,
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


def hung(**changes: object) -> BoxState:
    """Return a box on which a found training lives without progress; `changes` of its process."""
    process = {"pid": 7, "started": 1.0, "cmd": "python train.py", "cpu_pct": 0.5, **changes}
    found = FoundRun(
        name="train.py", pid=7, pids=(7,), command="python train.py", started=NOW - 9000.0
    )
    run = RunState("train.py", step=800, progressed_at=NOW - 2460.0, last_at=NOW - 2460.0)
    card = GpuReading(
        index=1, name="A100", util=0.0, vram_used=38 << 30,
        procs=(GpuProcess(pid=7, bytes=38 << 30, mapped=True),),
    )  # fmt: skip
    seen = replace(sample(), gpus=(card,), procs=(TrainingProcess(**process),))  # type: ignore[arg-type]
    return replace(box(), sample=seen, sample_at=NOW, queues=(), runs=(run,), found=(found,))


def test_a_process_that_lives_and_does_nothing_is_named_with_its_evidence() -> None:
    assert describe_hung_runs(hung(), NOW) == (
        "train.py, pid 7, lives and holds GPU 1 (38.0 GiB), but makes no progress: step 800 for "
        "41m00, GPU 0%, CPU <1%",
    )


def test_what_may_work_is_not_called_hung() -> None:
    state = hung()
    assert state.sample is not None
    card, run = state.sample.gpus[0], state.runs[0]

    def with_card(**changes: object) -> BoxState:
        assert state.sample is not None
        return replace(state, sample=replace(state.sample, gpus=(replace(card, **changes),)))

    others = (GpuProcess(pid=9, bytes=38 << 30, mapped=True),)
    quiet = {
        "a GPU works": with_card(util=40.0),
        "its use is unknown": with_card(util=None),
        "another process holds it": with_card(procs=others),
        "it holds none": with_card(procs=(), vram_used=0),
        "it computes": hung(cpu_pct=60.0),
        "its CPU use is unknown": hung(cpu_pct=None),
        "a zombie": hung(state="Z"),
        "it advanced": replace(state, runs=(replace(run, progressed_at=NOW - 20.0),)),
        "its log grows": replace(state, runs=(replace(run, unread_at=NOW - 5.0),)),
        "not live": replace(state, link=LinkState.UNREACHABLE),
    }
    assert {why: describe_hung_runs(one, NOW) for why, one in quiet.items()} == dict.fromkeys(
        quiet, ()
    )
    unnamed = with_card(procs=())
    assert describe_hung_runs(unnamed, NOW), "a driver that names no process, and memory in use"
