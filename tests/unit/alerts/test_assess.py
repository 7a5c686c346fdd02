"""Four words that must not be mixed up, every rule at its threshold, and an order with the worst first."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rgt_tui.cli import StatusVerdict, choose_verdict
from rgt_tui.health import Assessment, assess_box, facts_of, sort_alerts
from rgt_tui.health.rows.conditions_queue import prove_preempted
from rgt_tui.model import (
    Alert,
    BoxEvent,
    BoxHealth,
    BoxSpec,
    DiskReading,
    Finding,
    Lifecycle,
    LinkState,
    MemoryReading,
    Meter,
    MeterKind,
    Severity,
    TrainingPause,
    time_of_day,
)
from tests.unit.triage.builders import DATA, NOW, ROOT, box, cell, queue, run, sample

DONE = queue(
    cell("lstm-a", state="done", exit_code=0),
    cell(state="done", exit_code=0),
    done=True,
    runner_alive=False,
)
IDLE = sample(procs=())
RUNNING = Meter(
    MeterKind.COMPUTE_AND_STORAGE, Lifecycle.RUNNING, per_hour=0.42, at=NOW - 10, source="Vast.ai"
)
STOPPED = Meter(
    MeterKind.STORAGE_ONLY, Lifecycle.STOPPED, at=NOW - 3, source="Vast.ai", native_status="exited"
)


def alerts(state: Assessment) -> list[tuple[str, str]]:
    return [(alert.id, alert.level) for alert in state.alerts]


def test_a_healthy_box_runs_and_is_silent() -> None:
    found = assess_box(box(), NOW)
    assert (found.health, found.word, found.alerts, found.stale) == (
        BoxHealth.RUNNING,
        "running",
        (),
        False,
    )
    assert found.why == "lstm-b at step 812, advanced 1s ago"
    assert (found.progress_age, found.sample_age) == (1.0, 0.5)


def test_unreachable_is_not_stopped() -> None:
    found = assess_box(box(link=LinkState.UNREACHABLE, reason="ssh: connection refused"), NOW)
    assert (found.health, found.word) == (BoxHealth.UNREACHABLE, "unreachable")
    assert found.why == "ssh: connection refused; Vast.ai says running; last sample 0s ago"


def test_stopped_is_what_the_provider_says_even_if_ssh_refuses() -> None:
    found = assess_box(
        box(link=LinkState.UNREACHABLE, reason="ssh: connection refused", meter=STOPPED), NOW
    )
    assert (found.health, found.word) == (BoxHealth.STOPPED, "stopped")
    assert found.why == "Vast.ai says stopped (exited), read 3s ago"


def test_gone() -> None:
    meter = msgspec.structs.replace(STOPPED, lifecycle=Lifecycle.GONE, native_status=None)
    found = assess_box(box(link=LinkState.UNREACHABLE, meter=meter), NOW)
    assert (found.health, found.word) == (BoxHealth.GONE, "gone")


def test_a_box_that_came_back_overrules_what_its_provider_said_before() -> None:
    before = msgspec.structs.replace(STOPPED, at=NOW - 60)
    assert assess_box(box(meter=before, since=NOW - 20), NOW).health is BoxHealth.RUNNING
    at_once = msgspec.structs.replace(STOPPED, at=NOW - 21)
    assert assess_box(box(meter=at_once, since=NOW - 20), NOW).word == "stopped?", (
        "as one look reads them"
    )
    assert (
        choose_verdict(assess_box(box(meter=at_once, since=NOW - 20), NOW)) is StatusVerdict.UNKNOWN
    ), "a single look raises no alert"


def test_a_box_that_answers_and_is_called_stopped_has_one_word_and_both_sources_whoever_spoke_last() -> (
    None
):
    words = set()
    for second in range(300):
        now = NOW + second
        called = msgspec.structs.replace(STOPPED, at=now - second % 45)
        found = assess_box(
            box(meter=called, since=NOW - 600, sample_at=now - second % 7, queues=(), runs=()), now
        )
        words.add((found.health, found.word))
        assert f"Vast.ai says stopped (exited), read {second % 45}s ago" in found.why
        assert f"answers over SSH, last sample {second % 7}s ago" in found.why
    assert words == {(BoxHealth.WARN, "stopped?")}


def test_a_box_that_no_longer_reports_is_as_its_provider_says() -> None:
    called = msgspec.structs.replace(STOPPED, at=NOW)
    old = box(meter=called, since=NOW - 600, sample_at=NOW - 31)
    assert assess_box(old, NOW).health is BoxHealth.STOPPED
    assert (
        assess_box(
            msgspec.structs.replace(old, sample_at=NOW, link=LinkState.UNREACHABLE), NOW
        ).word
        == "stopped"
    )


def test_a_stopped_box_does_not_complain_about_its_last_figures() -> None:
    full = sample(ROOT, msgspec.structs.replace(DATA, inodes_used=4096))
    assert assess_box(box(link=LinkState.UNREACHABLE, meter=STOPPED, sample=full), NOW).alerts == ()


def test_finished_is_not_trouble_when_the_meter_is_off() -> None:
    found = assess_box(box(queues=(DONE,), sample=IDLE, meter=Meter()), NOW)
    assert (found.health, found.word) == (BoxHealth.FINISHED, "finished")
    assert found.why == "2 of 2 cells done, the runner wrote QUEUE DONE"


def test_finished_but_billing() -> None:
    found = assess_box(box(queues=(DONE,), sample=IDLE, meter=RUNNING), NOW)
    assert (found.health, found.word) == (BoxHealth.WARN, "finished")
    assert found.why == "queue done, still billed $0.42/h (Vast.ai)"


@pytest.mark.parametrize(
    ("over", "health", "word"),
    [
        ({"link": LinkState.CONNECTING}, BoxHealth.CONNECTING, "connecting"),
        ({"link": LinkState.PAUSED}, BoxHealth.PAUSED, "paused"),
        ({"link": LinkState.REFUSED_KEY}, BoxHealth.TROUBLE, "key refused"),
        ({"sample": None, "sample_at": None, "since": NOW}, BoxHealth.CONNECTING, "connecting"),
        ({"queues": (), "runs": (), "sample": IDLE}, BoxHealth.IDLE, "idle"),
        ({"queues": (), "runs": ()}, BoxHealth.RUNNING, "running"),
    ],
)
def test_other_words(over: dict[str, Any], health: BoxHealth, word: str) -> None:
    found = assess_box(box(**over), NOW)
    assert (found.health, found.word) == (health, word)


@pytest.mark.parametrize(("age", "stale"), [(3.0, False), (3.1, True)])
def test_stale_after_three_intervals(age: float, stale: bool) -> None:
    found = assess_box(box(sample_at=NOW - age), NOW)
    assert found.stale is stale
    assert found.health is (BoxHealth.STALE if stale else BoxHealth.RUNNING)


@pytest.mark.parametrize(
    ("used", "level"),
    [(3276, None), (3277, "warn"), (3891, "warn"), (3892, "error"), (4096, "error")],
)
def test_inodes_at_80_and_95(used: int, level: str | None) -> None:
    found = assess_box(
        box(sample=sample(ROOT, msgspec.structs.replace(DATA, inodes_used=used))), NOW
    )
    assert alerts(found) == ([("inodes:/workspace", level)] if level else [])


@pytest.mark.parametrize(("free", "level"), [(21, None), (20, "warn"), (6, "warn"), (5, "error")])
def test_bytes_at_80_and_95(free: int, level: str | None) -> None:
    disk = DiskReading(mount="/workspace", bytes_total=100, bytes_used=100 - free, bytes_free=free)
    assert alerts(assess_box(box(sample=sample(disk)), NOW)) == (
        [("bytes:/workspace", level)] if level else []
    )


def test_a_read_only_image_may_be_full() -> None:
    disk = DiskReading(mount="/snap", bytes_total=100, bytes_used=100, bytes_free=0, read_only=True)
    assert assess_box(box(sample=sample(disk)), NOW).alerts == ()


def test_a_mount_that_cannot_be_read_is_said() -> None:
    assert alerts(
        assess_box(box(sample=sample(DiskReading(mount="/mnt", error="stale handle"))), NOW)
    ) == [("mount:/mnt", "warn")]


@pytest.mark.parametrize(
    ("used", "level"), [(93, None), (94, "warn"), (100, "warn"), (101, "error")]
)
def test_memory_at_90_and_97_without_the_cache(used: int, level: str | None) -> None:
    mem = MemoryReading(cgroup=2, used=used, cache=4, limit=100, oom_kills=0)
    assert alerts(assess_box(box(sample=sample(mem=mem)), NOW)) == (
        [("memory", level)] if level else []
    )


def test_memory_without_a_limit_is_no_alert() -> None:
    assert assess_box(box(sample=sample(mem=MemoryReading(used=10**12))), NOW).alerts == ()


@pytest.mark.parametrize(("ago", "there"), [(5.0, True), (700.0, False)])
def test_a_kill_by_the_kernel_for_ten_minutes(ago: float, there: bool) -> None:
    event = BoxEvent(
        boot="boot-1", seq=1, at=NOW - ago, kind="oom-kill", text="killed 12", level="error"
    )
    assert bool(assess_box(box(events=(event,)), NOW).alerts) is there


@pytest.mark.parametrize(("still", "there"), [(29.0, False), (31.0, True)])
def test_stalled_after_30_seconds_of_a_fast_run(still: float, there: bool) -> None:
    found = assess_box(box(runs=(run(progressed_at=NOW - still),)), NOW)
    assert ("stalled:lstm-b", "warn") in alerts(found) or not there
    assert bool(found.alerts) is there


@pytest.mark.parametrize(
    ("connected", "looked", "there"),
    [(2.0, False, False), (2.0, True, True), (61.0, False, True), (700.0, False, True)],
    ids=[
        "its curve is on its way",
        "it was read",
        "it should have come",
        "the connection is older",
    ],
)
def test_after_a_rest_a_run_is_stuck_once_its_curve_was_read(
    connected: float, looked: bool, there: bool
) -> None:
    """What was known before the laptop slept says nothing of the time since."""
    state = box(runs=(run(progressed_at=NOW - 662),), since=NOW - connected, looked=looked)
    assert (("stalled:lstm-b", "warn") in alerts(assess_box(state, NOW))) is there


def test_while_a_curve_is_still_read_nobody_knows_whether_its_run_is_stuck() -> None:
    """A single look that ends before the curve is read is not to call the box healthy."""
    state = box(runs=(run(progressed_at=NOW - 662),), since=NOW - 16, looked=False)
    found = assess_box(state, NOW)
    assert (found.health, found.beneath, found.alerts) == (BoxHealth.RUNNING, BoxHealth.UNKNOWN, ())
    assert found.why == "lstm-b at step 812, advanced 11m02 ago; its curve is still being read"
    assert choose_verdict(found) is StatusVerdict.UNKNOWN
    read = msgspec.structs.replace(state, looked=True)
    assert choose_verdict(assess_box(read, NOW)) is StatusVerdict.ESCALATE
    on_time = msgspec.structs.replace(state, runs=(run(progressed_at=NOW - 20),))
    assert (assess_box(on_time, NOW).beneath, choose_verdict(assess_box(on_time, NOW))) == (
        BoxHealth.RUNNING,
        StatusVerdict.HEALTHY,
    )


def test_a_slow_run_may_take_ten_of_its_own_steps() -> None:
    slow = run(losses=[1.0] * 60, last_at=NOW)  # 600 s for 60 points: 10 s a step
    assert (
        assess_box(box(runs=(msgspec.structs.replace(slow, progressed_at=NOW - 90),)), NOW).alerts
        == ()
    )
    assert (
        assess_box(box(runs=(msgspec.structs.replace(slow, progressed_at=NOW - 110),)), NOW).word
        == "stalled"
    )


def test_a_stale_box_is_not_called_stalled() -> None:
    found = assess_box(box(sample_at=NOW - 60, runs=(run(progressed_at=NOW - 60),)), NOW)
    assert found.health is BoxHealth.STALE


def test_no_first_step_for_long() -> None:
    late = queue(cell(started=NOW - 700))
    assert [id_ for id_, _ in alerts(assess_box(box(queues=(late,), runs=()), NOW))] == [
        "no-step:lstm-b"
    ]
    soon = queue(cell(started=NOW - 60))
    assert assess_box(box(queues=(soon,), runs=()), NOW).alerts == ()


@pytest.mark.parametrize(("code", "word"), [(75, "preempted"), (None, "interrupted")])
def test_interrupted_and_nobody_runs_it(code: int | None, word: str) -> None:
    cut = queue(cell(state="interrupted", exit_code=code), runner_alive=False)
    found = assess_box(box(queues=(cut,), sample=IDLE), NOW)
    assert (found.health, found.word, found.why) == (
        BoxHealth.WARN,
        word,
        f"lstm-b was {word} and is not running",
    )


def test_a_cell_that_a_person_stopped_is_no_alert_and_no_finding() -> None:
    stopped = cell(
        state="interrupted",
        exit_code=75,
        reason="the queue was stopped by rgt stop; the cell ended: exit 75",
    )
    found = assess_box(box(queues=(queue(stopped, runner_alive=False),), sample=IDLE), NOW)
    assert (found.health, found.alerts) == (BoxHealth.IDLE, ())
    view = facts_of(box(queues=(queue(stopped, runner_alive=False),), sample=IDLE), NOW)
    assert list(prove_preempted(view)) == []


def test_a_run_that_holds_names_the_box_and_what_ran_out_follows() -> None:
    wait = TrainingPause(what="disk", step=812, at=NOW - 240, until=NOW + 1560.5, unsaved=81)
    held = assess_box(box(runs=(run(wait=wait),), findings=(FINDING,)), NOW)
    assert held.word == "holding" and len(held.alerts) > 1
    assert held.why.startswith(
        "lstm-b is held at step 812: no room to save, 81 steps not saved, "
        f"gives up at {time_of_day(NOW + 1560.5, NOW)}; "
    )
    assert held.why.endswith(held.alerts[1].text) and "inodes" in held.why


def test_interrupted_while_the_runner_lives_is_no_alert() -> None:
    assert assess_box(box(queues=(queue(cell(state="interrupted")),)), NOW).alerts == ()


def test_a_runner_that_died() -> None:
    found = assess_box(box(queues=(queue(runner_alive=False),), sample=IDLE), NOW)
    assert found.why == "lstm-b: its runner has ended, the cell is not running"


def test_waiting_cells_without_a_runner() -> None:
    lone = queue(cell(state="waiting"), cell("gru", state="waiting"), runner_alive=False)
    assert (
        assess_box(box(queues=(lone,), runs=(), sample=IDLE), NOW).why
        == "2 cells waiting, no runner active"
    )


def test_a_failed_cell_is_trouble() -> None:
    bad = queue(cell(state="failed", exit_code=1, reason="exit 1"), cell("gru"))
    found = assess_box(box(queues=(bad,)), NOW)
    assert (found.health, found.word, found.why) == (
        BoxHealth.TROUBLE,
        "failed",
        "lstm-b failed, exit 1",
    )


FINDING = Finding(
    "U7", "No inodes", Severity.FATAL, "inodes of /workspace", "OSError", "log", reading="all used"
)


@pytest.mark.parametrize(
    ("finding", "health"),
    [
        (FINDING, BoxHealth.TROUBLE),
        (msgspec.structs.replace(FINDING, severity=Severity.SILENT_WRONG), BoxHealth.TROUBLE),
        (msgspec.structs.replace(FINDING, cleared=True), BoxHealth.WARN),
        (msgspec.structs.replace(FINDING, severity=Severity.DEGRADING), BoxHealth.WARN),
    ],
)
def test_a_finding_is_trouble_while_it_is_fatal(finding: Finding, health: BoxHealth) -> None:
    found = assess_box(box(findings=(finding,)), NOW)
    assert (found.health, found.word) == (health, "inodes")


def test_a_finding_stands_for_the_reading_it_explains() -> None:
    full = sample(ROOT, msgspec.structs.replace(DATA, inodes_used=4096))
    found = assess_box(box(sample=full, findings=(FINDING,)), NOW)
    assert [alert.id for alert in found.alerts] == ["finding:U7:inodes of /workspace:"]


def test_a_provider_that_cannot_be_read() -> None:
    old = msgspec.structs.replace(RUNNING, at=NOW - 700, error="401")
    assert alerts(assess_box(box(meter=old), NOW)) == [("meter", "warn")]
    assert assess_box(box(meter=msgspec.structs.replace(old, at=NOW - 30)), NOW).alerts == ()


def test_the_worst_box_comes_first() -> None:
    def named(name: str, **over: Any) -> tuple[Any, str]:
        state = box(**over)
        state = msgspec.structs.replace(state, spec=BoxSpec(name=name, host="h"))
        return assess_box(state, NOW).rank, name

    fleet = [
        named("f-stopped", link=LinkState.UNREACHABLE, meter=STOPPED),
        named("e-done", queues=(DONE,), sample=IDLE, meter=Meter()),
        named("d-well"),
        named("c-warn", queues=(DONE,), sample=IDLE, meter=RUNNING),
        named("b-lost", link=LinkState.UNREACHABLE),
        named("a2-full", findings=(FINDING,), queues=(queue(cell(state="failed")),)),
        named("a3-full", findings=(FINDING,)),
        named("a1-full", findings=(FINDING,)),
    ]
    order = [name for _, name in sorted(fleet)]
    assert order == [
        "a2-full",
        "a1-full",
        "a3-full",
        "b-lost",
        "c-warn",
        "d-well",
        "e-done",
        "f-stopped",
    ]


@given(
    link=st.sampled_from(LinkState),
    lifecycle=st.sampled_from(Lifecycle),
    kind=st.sampled_from(MeterKind),
    age=st.none() | st.floats(0, 1e6),
    meter_age=st.none() | st.floats(0, 1e6),
    states=st.lists(
        st.sampled_from(["waiting", "running", "done", "failed", "interrupted"]), max_size=4
    ),
    alive=st.booleans(),
)
def test_every_state_has_a_word_a_reason_and_a_rank(
    link: LinkState,
    lifecycle: Lifecycle,
    kind: MeterKind,
    age: float | None,
    meter_age: float | None,
    states: list[str],
    alive: bool,
) -> None:
    cells = tuple(cell(f"c{i}", state=state) for i, state in enumerate(states))
    state = box(
        link=link,
        sample_at=None if age is None else NOW - age,
        meter=Meter(kind, lifecycle, at=None if meter_age is None else NOW - meter_age),
        queues=(queue(*cells, runner_alive=alive),) if cells else (),
    )
    found = assess_box(state, NOW)
    assert found.word
    assert found.why
    assert found.rank < (99,)
    assert {alert.level for alert in found.alerts} <= {"warn", "error"}
    levels = [alert.level for alert in found.alerts]
    assert levels == sorted(levels)  # error before warn
    if lifecycle is Lifecycle.STOPPED and link is not LinkState.LIVE:
        assert found.health is BoxHealth.STOPPED


BLIND = "cannot see processes: /proc is not readable from a shell on this box"


def test_a_box_whose_processes_cannot_be_seen_is_unknown_not_idle() -> None:
    seen = sample(procs=(), unseen=BLIND, gpus=())
    found = assess_box(box(sample=seen, queues=(), runs=()), NOW)
    assert (found.health, found.word, found.why) == (BoxHealth.UNKNOWN, "unknown", BLIND)
    busy = assess_box(box(sample=sample(procs=(), unseen=BLIND), queues=(), runs=()), NOW)
    assert busy.why == f"{BLIND}; a GPU is 93% busy"


def test_a_warning_does_not_hide_that_nobody_knows_what_runs() -> None:
    filling = DiskReading(mount="/data", bytes_total=100, bytes_used=86, bytes_free=14)
    found = assess_box(
        box(sample=sample(filling, procs=(), unseen=BLIND, gpus=()), queues=(), runs=()), NOW
    )
    assert (found.health, found.beneath) == (BoxHealth.WARN, BoxHealth.UNKNOWN)
    assert found.why.startswith("/data ") and found.why.endswith(f"; {BLIND}")
    known = assess_box(box(sample=sample(filling), queues=(), runs=()), NOW)
    assert (known.health, known.beneath, BLIND in known.why) == (
        BoxHealth.WARN,
        BoxHealth.RUNNING,
        False,
    )


def test_a_training_that_is_seen_counts_also_where_others_may_be_missed() -> None:
    found = assess_box(box(sample=sample(unseen=BLIND), queues=(), runs=()), NOW)
    assert (found.health, found.why) == (BoxHealth.RUNNING, "1 training process, no queue")


def test_what_an_agent_told_before_the_box_was_limited_is_no_news_of_now() -> None:
    """A cell that ran, a curve that stands: nobody reads them any more, and so they have not stalled either."""
    old = run(progressed_at=NOW - 4000, last_at=NOW - 4000)
    meter = msgspec.structs.replace(RUNNING, at=NOW)
    for queues in ((queue(),), (DONE,)):
        found = assess_box(
            box(sample=sample(procs=(), unseen=BLIND), runs=(old,), queues=queues, meter=meter), NOW
        )
        assert (found.health, found.alerts) == (BoxHealth.UNKNOWN, ())


def test_what_ends_at_a_known_time_comes_first() -> None:
    """A failed cell hid that the platform takes the machine away in half a minute."""
    kinds = ["failed", "bytes", "holding", "preemption", "gpu-error"]
    alerts = sort_alerts(Alert(kind, "error", kind, since=NOW) for kind in kinds)
    assert [alert.kind for alert in alerts][:2] == ["preemption", "holding"]
