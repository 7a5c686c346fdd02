"""A box's book: what raises once, what says nothing, and what no clock can fool."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rgt_tui.health import (
    AlertState,
    AlertStep,
    RememberedBox,
    active_alerts,
    alert_rows,
    alerts_to_show,
    assess_box,
    clock_readings,
    clock_set,
    find_stop_span,
    parse_alerts,
    record_stop_request,
    restore_alert_state,
    step_alerts,
    worst_case_of,
)
from rgt_tui.model import (
    Alert,
    BoxState,
    CpuReading,
    DiskReading,
    Finding,
    FoundRun,
    GpuReading,
    Lifecycle,
    LinkState,
    MachineLife,
    Meter,
    MeterKind,
    Severity,
    StreamCounters,
)
from rgt_tui.model import MemoryReading as BoxMemory
from rgt_tui.profiles import load_profile
from rgt_tui.store import CostMetering
from tests.unit.triage.builders import DATA, NOW, ROOT, box, cell, log, queue, run, sample

replace = msgspec.structs.replace


class Watch:
    """Steps a book as time goes by, and keeps what was raised and cleared."""

    def __init__(self, book: AlertState | None = None, now: float = NOW) -> None:
        self.book = book or AlertState()
        self.now = now
        self.raised: list[str] = []
        self.cleared: list[str] = []
        self.last: BoxState | None = None

    def see(self, seconds: float = 1.0, *, every: float = 1.0, **over: Any) -> AlertStep:
        """Look at a box for so long; it is live and its run advances, unless `over` says otherwise."""
        left = seconds
        while True:
            tick = min(every, left)
            self.now += tick
            left -= tick
            found = step_alerts(self.book, self.state(**over), self.now)
            self.book = found.book
            self.raised += [alert.id for alert in found.raised]
            self.cleared += [alert.id for alert in found.cleared]
            if left <= 0:
                return found

    def state(self, **over: Any) -> BoxState:
        base = box(
            sample=over.pop("sample", sample(at=self.now)),
            sample_at=over.pop("sample_at", self.now),
            runs=over.pop("runs", (run(progressed_at=self.now - 1, last_at=self.now - 1),)),
            meter=over.pop("meter", replace(RUNNING, at=self.now)),
            logs=over.pop("logs", (replace(log(), at=self.now - 1),)),
            since=self.now,
            looked=True,
        )
        self.last = replace(base, **over)
        return self.last

    @property
    def ids(self) -> list[str]:
        assert self.last is not None
        return [alert.id for alert in alerts_to_show(self.book, self.last.findings)]

    def alert(self, id_: str) -> Alert:
        return next(alert for alert in alerts_to_show(self.book, ()) if alert.id == id_)


RUNNING = Meter(
    MeterKind.COMPUTE_AND_STORAGE, Lifecycle.RUNNING, per_hour=0.42, at=NOW, source="Vast.ai"
)
STOPPED = Meter(
    MeterKind.STORAGE_ONLY, Lifecycle.STOPPED, at=NOW, source="Vast.ai", native_status="exited"
)
GONE = Meter(MeterKind.NONE, Lifecycle.GONE, at=NOW, source="Vast.ai")


def full(used: int = 3980) -> DiskReading:
    return replace(DATA, inodes_used=used)


LOST: dict[str, Any] = {
    "link": LinkState.UNREACHABLE,
    "reason": "ssh: connection refused",
    "sample_at": NOW,
}


def test_a_healthy_box_is_silent_for_an_hour() -> None:
    watch = Watch()
    watch.see(3600, every=20)
    assert (watch.raised, watch.ids) == ([], [])


def test_a_reconnect_does_not_raise_again() -> None:
    watch = Watch()
    watch.see(5, sample=sample(ROOT, full()))
    since = watch.alert("inodes:/workspace").since
    for _ in range(5):
        watch.see(20, **LOST)
        watch.see(5, link=LinkState.CONNECTING, sample_at=NOW)
        watch.see(20, sample=sample(ROOT, full()))
    assert watch.raised == ["inodes:/workspace"]
    assert watch.alert("inodes:/workspace").since == since


def test_without_figures_nothing_is_raised_and_nothing_cleared() -> None:
    watch = Watch()
    watch.see(60, sample=sample(ROOT, full()), **LOST)
    assert watch.raised == []
    watch.see(5, sample=sample(ROOT, full()))
    watch.see(90, sample=sample(ROOT, DATA), sample_at=NOW - 999)
    watch.see(90, sample=sample(ROOT, replace(DATA, error="stale handle", inodes_used=None)))
    assert "inodes:/workspace" in watch.ids
    assert watch.cleared == []


def test_a_wait_goes_on_after_a_gap_and_counts_known_time_alone() -> None:
    watch = Watch()
    hot = sample(gpus=(GpuReading(index=0, name="H100", util=95.0, throttle=("hw_thermal",)),))
    watch.see(100, sample=hot)
    watch.see(600, **LOST, every=20)
    watch.see(15, sample=hot)
    assert "throttled:0" not in watch.raised
    watch.see(10, sample=hot)
    assert "throttled:0" in watch.raised


@pytest.mark.parametrize("jump", [3600.0, -3600.0])
@pytest.mark.parametrize("troubled", [False, True])
def test_a_clock_that_is_set_on_the_box_raises_and_clears_nothing(
    jump: float, troubled: bool
) -> None:
    """The client learns of the new skew at once; times that the box has written stay as they were."""
    waiting = queue(cell(started=NOW - 60))
    some = sample(ROOT, full()) if troubled else sample(mem=BoxMemory(used=1, limit=9, oom_kills=4))
    watch = Watch()
    still: dict[str, Any] = {"queues": (waiting,), "runs": (), "sample": some}
    watch.see(30, clock_skew=0.0, **still)
    before = (watch.raised.copy(), watch.cleared.copy(), watch.ids)
    watch.see(50, clock_skew=jump, **still)
    assert (watch.raised, watch.cleared, watch.ids) == before
    watch.see(30, clock_skew=jump, **still)
    assert set(watch.raised) - set(before[0]) == {"clock-skew"}
    watch.see(30, clock_skew=0.0, **still)
    assert watch.cleared == ["clock-skew"]


@pytest.mark.parametrize("jump", [3600.0, -3600.0, 1e9])
def test_our_own_clock_may_jump_too(jump: float) -> None:
    watch = Watch()
    watch.see(60, sample=sample(gpus=(GpuReading(index=0, name="H100", util=0.0),)))
    watch.now += jump
    watch.see(60, sample=sample(gpus=(GpuReading(index=0, name="H100", util=0.0),)))
    assert watch.raised == []


def test_worse_is_news_and_better_is_not() -> None:
    watch = Watch()
    watch.see(2, sample=sample(ROOT, full(3400)))
    watch.see(2, sample=sample(ROOT, full(4000)))
    assert watch.raised == ["inodes:/workspace"] * 2
    since = watch.alert("inodes:/workspace").since
    watch.see(60, sample=sample(ROOT, full(3400)))
    found = watch.alert("inodes:/workspace")
    assert (found.level, found.since, len(watch.raised), watch.cleared) == ("warn", since, 2, [])


def test_a_finding_stands_for_the_reading_it_explains() -> None:
    finding = Finding("U7", "No inodes", Severity.FATAL, "inodes of /workspace", "OSError", "log")
    watch = Watch()
    watch.see(5, sample=sample(ROOT, full()), findings=(finding,))
    assert watch.raised == ["finding:U7:inodes of /workspace:"]
    watch.see(5, sample=sample(ROOT, full()))
    assert watch.ids == ["inodes:/workspace"]
    assert watch.raised == ["finding:U7:inodes of /workspace:"], "it was there all along"


def test_unreachable_only_after_a_grace_and_over_at_once() -> None:
    watch = Watch()
    watch.see(5)
    lost = {**LOST, "since": watch.now}
    for _ in range(5):
        watch.see(20, **lost)
        watch.see(2, **{**lost, "link": LinkState.CONNECTING})
    assert watch.raised == []
    watch.see(60, **lost)
    assert watch.raised == ["unreachable"]
    assert "dead" not in watch.alert("unreachable").text
    assert "Vast.ai says running" in watch.alert("unreachable").text
    watch.see(1)
    assert watch.cleared == ["unreachable"]


@pytest.mark.parametrize("link", [LinkState.PAUSED, LinkState.ASKING, LinkState.REFUSED_KEY])
def test_a_box_that_is_left_alone_is_not_unreachable(link: LinkState) -> None:
    watch = Watch()
    watch.see(600, link=link, every=20)
    assert "unreachable" not in watch.raised


def test_stopped_unasked() -> None:
    watch = Watch()
    watch.see(5, meter=RUNNING)
    watch.see(5, **LOST, meter=STOPPED)
    assert watch.raised == ["stopped"]
    watch.see(5, meter=replace(RUNNING, at=NOW + 99))
    assert watch.cleared == ["stopped"]


def test_a_box_that_is_called_stopped_and_answers_is_one_alert_and_no_clock_begins_or_money_counts_twice() -> (
    None
):
    watch = Watch()
    metering = CostMetering(lambda: watch.now)
    spec = replace(box().spec, profile="autodl")
    profile = load_profile("autodl")
    watch.see(5, spec=spec)
    began, known = watch.now, set()
    called = replace(STOPPED, per_hour=0.5, source="AutoDL")
    for second in range(600):  # a sample every third second, a reading of the provider every 20 s
        watch.see(
            1,
            spec=spec,
            since=NOW,
            sample_at=began + second // 3 * 3,
            meter=replace(called, at=began + second // 20 * 20),
        )
        assert watch.last is not None
        life = watch.book.memory.past
        state = replace(
            watch.last, life=life, alerts=alerts_to_show(watch.book, ()), alerts_kept=True
        )
        assert not metering.meter_boxes((state,), watch.now)
        known.add(
            (
                bool(clock_readings(profile, state, watch.now, charges=False)),
                life.rested,
                life.stopped_at,
            )
        )
        assert assess_box(state, watch.now).word == "stopped?"
    assert watch.raised == ["contested"]
    assert watch.cleared == []
    assert known == {(False, False, None)}
    assert find_stop_span(state, watch.now) is None
    worst = worst_case_of(state, clock_readings(profile, state, watch.now), watch.now)
    assert worst.at_least and "≥ $0.50/h" in worst.text
    costs, _ = metering.take_new_costs()
    (cost,) = costs[state.spec.name]
    assert cost.billed == pytest.approx(0.5 * 599 / 3600)
    assert cost.at_least
    watch.see(
        60, spec=spec, since=NOW, meter=replace(called, at=watch.now), sample_at=watch.now, every=2
    )
    assert watch.cleared == ["contested"], "it answers no more: its provider is believed"
    assert "stopped" in watch.raised


def test_stopped_from_here_or_long_ago_is_no_surprise() -> None:
    watch = Watch()
    watch.see(5, **LOST, meter=STOPPED)
    watch.see(5, meter=replace(RUNNING, at=watch.now))
    memory = replace(watch.book.memory, past=record_stop_request(watch.book.memory.past, "park"))
    watch.book = replace(watch.book, memory=memory)
    watch.see(5, meter=replace(RUNNING, at=watch.now))  # it takes a while
    watch.see(5, **LOST, meter=STOPPED)
    assert watch.raised == []
    watch.see(5, meter=replace(RUNNING, at=watch.now))
    watch.see(5, **LOST, meter=STOPPED)
    assert watch.raised == ["stopped"], "what was asked for once does not excuse the next time"


@pytest.mark.parametrize(
    ("verb", "raised"), [("", ["stopped", "gone"]), ("park", ["gone"]), ("destroy", [])]
)
def test_gone_is_a_surprise_unless_it_was_destroyed_from_here(verb: str, raised: list[str]) -> None:
    watch = Watch(
        AlertState(memory=RememberedBox(past=MachineLife(existed=True, ran=True, asked=verb)))
    )
    watch.see(5, **LOST, meter=STOPPED)
    watch.see(5, **LOST, meter=GONE)
    assert watch.raised == raised


def test_a_box_that_nobody_ever_saw_is_not_gone() -> None:
    watch = Watch()
    watch.see(5, **LOST, meter=GONE)
    assert watch.raised == []


def test_a_stopped_box_does_not_complain_about_its_last_figures() -> None:
    watch = Watch()
    watch.see(5, sample=sample(ROOT, full()))
    watch.see(60, **LOST, sample=sample(ROOT, full()), meter=STOPPED)
    assert watch.ids == ["stopped"]


DONE = queue(cell(state="done", exit_code=0, ended=NOW), done=True, runner_alive=False)


def test_done_and_billing_says_what_it_costs() -> None:
    watch = Watch()
    done: dict[str, Any] = {"queues": (DONE,), "runs": (), "sample": sample(procs=())}
    watch.see(1, **done)
    assert watch.alert("done-billing").text == "queue done, still billed $0.42/h (Vast.ai)"
    watch.see(7200, every=20, **done)
    expected = "queue done 2h00 ago, still billed $0.42/h: $0.84 wasted (Vast.ai)"
    assert watch.alert("done-billing").text == expected
    assert watch.raised == ["done-billing"]
    watch.see(5, **done, meter=Meter())
    assert watch.cleared == [], "a provider that cannot be read says nothing"
    watch.see(1, **done, meter=replace(RUNNING, kind=MeterKind.STORAGE_ONLY))
    assert watch.cleared == ["done-billing"]


def test_a_found_training_that_is_gone_bills_on() -> None:
    watch = Watch()
    gone = FoundRun(
        name="proj/train.py",
        pid=7,
        started=NOW - 900,
        command="python train.py",
        alive=False,
        ended=NOW,
    )
    over: dict[str, Any] = {"queues": (), "runs": (), "found": (gone,), "sample": sample(procs=())}
    watch.see(110, **over)
    assert "done-billing" not in watch.raised, (
        "a script that trains with several seeds, one after the other"
    )
    watch.see(20, **over)
    assert watch.alert("done-billing").text.startswith("no training alive for 2m")
    watch.see(7070, every=20, **over)
    expected = "no training alive for 2h00, still billed $0.42/h: $0.84 wasted (Vast.ai)"
    assert watch.alert("done-billing").text == expected
    again = replace(gone, alive=True, ended=None)
    watch.see(1, **over | {"found": (again,)})
    assert "done-billing" in watch.cleared


def test_the_dollars_do_not_follow_a_clock_that_is_set() -> None:
    watch = Watch()
    done: dict[str, Any] = {"queues": (DONE,), "sample": sample(procs=())}
    watch.see(3600, every=20, **done)
    watch.see(5, **done, clock_skew=7200.0)
    assert "1h00 ago, still billed $0.42/h: $0.42" in watch.alert("done-billing").text


def gpus(*utils: float | None) -> Any:
    return sample(
        gpus=tuple(GpuReading(index=i, name="H100", util=util) for i, util in enumerate(utils))
    )


def test_an_idle_card_while_the_run_advances() -> None:
    watch = Watch()
    watch.see(599, sample=gpus(90.0, 0.0), every=5)
    assert watch.raised == []
    watch.see(10, sample=gpus(90.0, 0.0))
    assert watch.raised == ["idle-gpu:1"]
    assert "while the run advances without it" in watch.alert("idle-gpu:1").text
    watch.see(300, sample=gpus(90.0, 8.0))
    assert watch.cleared == [], "8% is neither idle nor busy"
    watch.see(70, sample=gpus(90.0, 60.0))
    assert watch.cleared == ["idle-gpu:1"]


def test_an_evaluation_or_a_pause_is_not_idle() -> None:
    """The run goes 25 s without a step, of which ten are usual, and meanwhile the cards rest."""
    watch = Watch()
    for _ in range(60):
        watch.see(5, sample=gpus(90.0))
        paused = run(progressed_at=watch.now, last_at=watch.now)
        watch.see(25, sample=gpus(0.0), runs=(paused,))
    assert watch.raised == []


def test_a_long_evaluation_of_a_slow_run_is_not_idle() -> None:
    """One step takes a hundred seconds; after five minutes without one, nothing is said until it counts as stalled."""
    watch = Watch()
    slow = run(losses=[2.0] * 40, last_at=NOW + 3400, progressed_at=NOW)
    started = queue(cell(started=NOW - 600))
    watch.see(900, sample=gpus(0.0), runs=(slow,), queues=(started,), every=20)
    assert watch.raised == []
    watch.see(700, sample=gpus(0.0), runs=(slow,), queues=(started,), every=20)
    assert watch.raised == ["stalled:lstm-b", "idle-gpu:0"]


def test_a_card_that_idles_because_the_run_stalls() -> None:
    watch = Watch()
    stuck = run(progressed_at=NOW, last_at=NOW)
    watch.see(700, sample=gpus(0.0), runs=(stuck,), every=20)
    assert watch.raised == ["stalled:lstm-b", "idle-gpu:0"]


def test_a_card_without_training_is_not_looked_at() -> None:
    watch = Watch()
    idle = replace(gpus(0.0), procs=())
    watch.see(1200, sample=idle, queues=(), runs=(), every=20)
    assert watch.raised == []


def test_a_run_that_nobody_queued_stalls_too() -> None:
    watch = Watch()
    one: dict[str, Any] = {"queues": (), "runs": (run(progressed_at=NOW),)}
    watch.see(590, **one, every=20)
    assert watch.raised == []
    watch.see(20, **one)
    assert watch.raised == ["stalled:lstm-b"]


def test_no_first_step_counts_our_own_time() -> None:
    watch = Watch()
    one: dict[str, Any] = {"queues": (queue(cell(started=NOW)),), "runs": ()}
    watch.see(590, **one, every=20)
    assert watch.raised == []
    watch.see(20, **one)
    assert watch.raised == ["no-step:lstm-b"]
    watch.see(1)
    assert watch.cleared == ["no-step:lstm-b"]


def growing(watch: Watch, minutes: int, per_minute: int, start: int = 10_000_000_000) -> None:
    for minute in range(minutes):
        used = start + minute * per_minute
        disk = DiskReading(
            mount="/data",
            bytes_total=20_000_000_000,
            bytes_used=used,
            bytes_free=20_000_000_000 - used,
        )
        watch.see(60, sample=sample(disk), every=20)


def test_a_disk_that_will_be_full_in_two_hours() -> None:
    watch = Watch()
    growing(watch, 20, 60_000_000)
    assert watch.raised == ["filling:bytes:/data"]
    assert "runs out of bytes in 2h2" in watch.alert("filling:bytes:/data").text


def test_a_download_of_five_minutes_is_no_trend() -> None:
    watch = Watch()
    growing(watch, 5, 1_000_000_000)
    growing(watch, 30, 0, start=14_000_000_000)
    assert watch.raised == []


def test_checkpoints_that_are_kept_and_removed_are_no_trend() -> None:
    watch = Watch()
    for turn in range(45):
        used = 12_000_000_000 + (turn % 3) * 1_000_000_000
        disk = DiskReading(
            mount="/data",
            bytes_total=20_000_000_000,
            bytes_used=used,
            bytes_free=20_000_000_000 - used,
        )
        watch.see(60, sample=sample(disk), every=20)
    assert watch.raised == []


def test_bad_frames() -> None:
    watch = Watch()
    watch.see(5, counters=StreamCounters(bad_frames=2))
    assert watch.raised == []
    watch.see(1, counters=StreamCounters(bad_frames=3, gaps=1))
    assert watch.raised == ["stream"]
    watch.see(610, counters=StreamCounters(bad_frames=3, gaps=1), every=20)
    assert watch.cleared == ["stream"]


def test_a_kill_by_its_counter_alone() -> None:
    watch = Watch()
    watch.see(5, sample=sample(mem=BoxMemory(used=1, limit=9, oom_kills=2)))
    assert watch.raised == []
    watch.see(1, sample=sample(mem=BoxMemory(used=1, limit=9, oom_kills=3)))
    assert watch.raised == ["oom-kill"]
    assert (
        watch.alert("oom-kill").text
        == "the kernel killed a process for lack of memory 0s ago (oom kills 3)"
    )


def test_the_cpu_quota_needs_to_hold_it_back_for_a_while() -> None:
    watch = Watch()
    slow = sample(cpu=CpuReading(quota=4.0, usable=4.0, throttled_pct=60.0, oversubscribed=True))
    watch.see(299, sample=slow, every=5)
    assert watch.raised == []
    watch.see(10, sample=slow)
    assert "more threads than cores" in watch.alert("cpu-throttled").text


def test_an_account_that_runs_empty() -> None:
    watch = Watch()
    meter = replace(RUNNING, balance=10.0, burn_per_hour=0.5)
    watch.see(5, meter=meter)
    assert watch.raised == ["balance"]
    assert watch.alert("balance").text == "the account has $10.00 left, 19h59 at $0.50/h (Vast.ai)"
    watch.see(5, meter=replace(meter, balance=2.0))
    assert watch.alert("balance").level == "error"


@pytest.mark.parametrize(
    ("over", "cleared"),
    [
        ({"balance": None}, ["balance"]),
        ({"balance": None, "error": "503"}, []),
        ({"balance": None, "at": None}, []),
        ({"lifecycle": Lifecycle.GONE, "kind": MeterKind.NONE}, ["balance"]),
    ],
    ids=["not told any more", "not read", "never read", "gone"],
)
def test_a_balance_that_is_not_told_any_more(over: dict[str, Any], cleared: list[str]) -> None:
    watch = Watch()
    meter = replace(RUNNING, balance=10.0, burn_per_hour=0.5)
    watch.see(5, meter=meter)
    for _ in range(20):
        later = {"at": watch.now + 20, **over}
        watch.see(
            20,
            every=20,
            meter=replace(meter, **later),
            link=LinkState.UNREACHABLE,
            sample_at=NOW - 99,
        )
    assert watch.cleared == cleared


def test_a_danger_clock_of_which_nobody_saw_the_beginning() -> None:
    """Of a box that rgt has never seen live: the time left is not known, that it runs down is."""
    watch = Watch()
    spec = replace(box().spec, profile="autodl")
    watch.see(5, spec=spec, link=LinkState.UNREACHABLE, meter=STOPPED, sample=None, sample_at=None)
    found = watch.alert("clock")
    assert found.level == "warn"
    assert found.text.startswith("at most 14d 23h left; unknown when it stopped: ")


def test_a_danger_clock_under_two_days() -> None:
    """RunPod keeps a stopped pod for about thirty days."""
    watch = Watch(
        AlertState(memory=RememberedBox(past=MachineLife(existed=True, ran=True, asked="park")))
    )
    spec = replace(box().spec, profile="runpod")
    watch.see(5, **LOST, spec=spec, meter=STOPPED)
    assert watch.raised == []
    watch.now += 28.5 * 86400
    watch.see(5, **LOST, spec=spec, meter=replace(STOPPED, at=watch.now))
    assert watch.alert("clock").level == "error"
    assert watch.alert("clock").text.startswith("about 1d 11h left")


def test_the_limits_of_the_fleet_file_count() -> None:
    kinds = alert_rows(parse_alerts({"inodes": {"warn": 50}, "memory": {"enabled": False}}, None))
    mem = BoxMemory(cgroup=2, used=99, limit=100)
    found = step_alerts(AlertState(), box(sample=sample(ROOT, full(2100), mem=mem)), NOW, kinds)
    assert [alert.id for alert in found.raised] == ["inodes:/workspace"]


def test_what_an_earlier_rgt_said_goes_on() -> None:
    first = Watch()
    first.see(5, sample=sample(ROOT, full()))
    kept = alerts_to_show(first.book, ())
    later = Watch(restore_alert_state(kept, RememberedBox(), NOW + 86400), now=NOW + 86400)
    assert [alert.id for alert in alerts_to_show(later.book, ())] == ["inodes:/workspace"]
    later.see(5, **LOST)
    later.see(5, sample=sample(ROOT, full()))
    assert later.raised == []
    assert later.alert("inodes:/workspace").since == kept[0].since
    later.see(40, sample=sample(ROOT, DATA))
    assert later.cleared == ["inodes:/workspace"]


def test_what_an_earlier_rgt_said_is_over_at_the_first_look_that_shows_it() -> None:
    full_once, killed = Watch(), Watch()
    full_once.see(5, sample=sample(ROOT, full()))
    killed.see(5, sample=sample(mem=BoxMemory(used=1, limit=9, oom_kills=2)))
    killed.see(1, sample=sample(mem=BoxMemory(used=1, limit=9, oom_kills=3)))
    later = Watch(
        restore_alert_state(alerts_to_show(full_once.book, ()), RememberedBox(), NOW + 99),
        now=NOW + 99,
    )
    later.see(1, sample=sample(ROOT, DATA))
    assert (later.ids, later.cleared) == ([], ["inodes:/workspace"])
    for after, ids in ((99, ["oom-kill"]), (999, [])):
        book = restore_alert_state(alerts_to_show(killed.book, ()), RememberedBox(), NOW + after)
        later = Watch(book, now=NOW + after)
        later.see(1, sample=sample(mem=BoxMemory(used=1, limit=9, oom_kills=3)))
        assert later.ids == ids


def test_text_from_a_box_is_made_harmless() -> None:
    watch = Watch()
    evil = queue(cell("a\x1b[31m\x07b\nc", state="failed", reason="\x1b]0;title\x07x"), path="/q")
    watch.see(1, queues=(evil,))
    (alert,) = alerts_to_show(watch.book, ())
    assert alert.text.isprintable()


def test_a_step_changes_nothing_that_was_there() -> None:
    before = step_alerts(AlertState(), box(sample=sample(ROOT, full())), NOW).book
    frozen = {key: dict(value) for key, value in before.machines.items()}
    step_alerts(before, box(sample=sample(ROOT, DATA)), NOW + 99)
    assert before.machines == frozen


@given(
    st.lists(
        st.tuples(
            st.floats(0.1, 90), st.sampled_from([None, 10.0, 76.0, 78.0, 82.0, 96.0]), st.booleans()
        ),
        max_size=60,
    )
)
def test_raised_and_cleared_take_turns_and_agree_with_the_list(
    looks: list[tuple[float, float | None, bool]],
) -> None:
    """Whatever the readings and gaps: nothing is raised twice at a level, or cleared that did not hold."""
    watch = Watch()
    holds: dict[str, str] = {}
    for seconds, share, live in looks:
        watch.now += seconds
        used = None if share is None else int(share * 40.96)
        over: dict[str, Any] = {} if live else dict(LOST)
        state = watch.state(sample=sample(ROOT, replace(DATA, inodes_used=used)), **over)
        found = step_alerts(watch.book, state, watch.now)
        for alert in found.raised:
            assert holds.get(alert.id) != alert.level
            holds[alert.id] = alert.level
        for alert in found.cleared:
            assert holds.pop(alert.id)
        watch.book = found.book
        kept = {alert.id: alert.level for alert in active_alerts(watch.book)}
        assert kept.keys() == holds.keys()
        shown = {alert.id for alert in alerts_to_show(watch.book, ())}
        assert shown <= kept.keys()
        if live and share is not None:
            assert (share > 77.0) >= bool(shown), "a number that is good is not shown as trouble"
        holds = kept


def test_a_computer_that_slept_does_not_call_its_boxes_silent() -> None:
    watch = Watch()
    watch.see(5)
    last = watch.now
    watch.now += 8 * 3600
    watch.see(15, sample_at=last)
    assert watch.raised == []
    watch.see(5)
    watch.see(130, sample_at=watch.now)
    assert watch.raised == ["silent"]
    watch.see(10, link=LinkState.CONNECTING, sample_at=watch.now - 140)
    assert watch.cleared == [], "a lost connection proves nothing"
    watch.see(130, every=10, link=LinkState.UNREACHABLE, sample_at=last, since=watch.now)
    assert watch.ids == ["unreachable"]


def test_an_alert_has_held_for_as_long_as_before_when_the_clock_is_set() -> None:
    """Three hours ahead: what began half a minute ago was shown as holding for three hours."""
    seen = box(sample=sample(ROOT, full()))
    book = step_alerts(AlertState(), seen, NOW).book
    (alert,) = active_alerts(book)
    assert alert.since is not None
    for seconds in (10_800.0, -172_800.0):
        (moved,) = active_alerts(clock_set(book, seconds))
        assert moved.since == alert.since + seconds
        assert moved.id == alert.id and moved.text == alert.text
        later = step_alerts(clock_set(book, seconds), seen, NOW + seconds + 30)
        assert (later.raised, later.cleared) == ((), ())
        assert [one.since for one in active_alerts(later.book)] == [alert.since + seconds]
