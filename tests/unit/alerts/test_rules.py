"""Every kind of the table: where it holds, what it says, and the nearest case where it does not."""

from __future__ import annotations

import math
from array import array
from typing import Any

import msgspec
import pytest
from rgt_box.sampling import xid as box_xid

from rgt_tui.health import (
    ALERTS,
    BY_ID,
    AlertState,
    BoxFacts,
    Condition,
    FigureTrend,
    RememberedBox,
    covered_alert_ids,
    describe_armed_off,
    ended_at,
    facts_of,
    gather_event_news,
    step_alerts,
    xid_level,
)
from rgt_tui.health.rows.conditions_gpu import SLOWED
from rgt_tui.health.rows.conditions_runs import spike_deviations
from rgt_tui.model import (
    MACHINE,
    TIME,
    AccountBill,
    Alert,
    ArmedRecord,
    AutostopMode,
    AutostopReading,
    BoxEvent,
    BoxState,
    CpuReading,
    EndAction,
    Finding,
    FoundRun,
    GpuReading,
    Hello,
    Lifecycle,
    LinkState,
    MachineLife,
    Meter,
    MeterKind,
    PreemptionNotice,
    RentalTerms,
    RowSparklines,
    RunResume,
    RunState,
    SelfStopState,
    Series,
    Severity,
    StreamCounters,
    TrainingPause,
    TrainingProcess,
    UnlistedItem,
    time_of_day,
)
from rgt_tui.model import MemoryReading as BoxMemory
from tests.unit.triage.builders import (
    DATA,
    LOG,
    NOW,
    box,
    cell,
    checkpoints,
    log,
    queue,
    run,
    sample,
)

replace = msgspec.structs.replace
RUNNING = Meter(
    MeterKind.COMPUTE_AND_STORAGE, Lifecycle.RUNNING, per_hour=0.42, at=NOW, source="Vast.ai"
)
STOPPED = Meter(MeterKind.STORAGE_ONLY, Lifecycle.STOPPED, at=NOW, source="RunPod")
GONE = Meter(MeterKind.NONE, Lifecycle.GONE, at=NOW, source="RunPod")
DONE = queue(cell(state="done", exit_code=0), done=True, runner_alive=False)
IDLE = sample(procs=())


def gpu(**over: Any) -> Any:
    return sample(gpus=(replace(GpuReading(index=0, name="H100", util=90.0), **over),))


def event(kind: str, text: str, level: str = "error", seq: int = 7) -> BoxEvent:
    return BoxEvent(boot="boot-1", seq=seq, at=NOW - 5, kind=kind, text=text, level=level)


def timed(**seconds: float) -> RunState:
    """A run that logs so many seconds a step."""
    made = run()
    curves = {name: Series(list(range(60)), [value] * 60) for name, value in seconds.items()}
    return replace(made, series={**made.series, **curves})


NOTICE = PreemptionNotice(
    source="EC2",
    action="terminate",
    ends=NOW + 95.5,
    at=NOW - 5,
    boot="boot-1",
    asked=("lstm-b",),
    unasked=("other",),
)
FATAL = Finding(
    "U7", "No inodes", Severity.FATAL, "inodes of /data", "OSError", "log", reading="all used"
)
CUT = queue(cell(state="interrupted", exit_code=75), runner_alive=False)
LEFT = queue(cell(state="waiting"), runner_alive=False)
NAN = run(losses=[2.0] * 60 + [math.nan] * 2)
JUMP = run(losses=[2.0 + 0.01 * (i % 5) for i in range(60)] + [9.0] * 3)
GONE_RUN = FoundRun(
    name="proj/train.py",
    pid=7,
    started=NOW - 900,
    command="python train.py",
    log="/proj/out.log",
    alive=False,
    ended=NOW - 120,
)
SAVED = (checkpoints(400, 800),)
ANEW = {
    "loss": Series().with_points(
        [*((at, 2.0) for at in range(713, 813)), *((at, 4.0) for at in range(1, 41))]
    )
}
FLAGGED = cell("lstm-a", state="done", flag="ended after 3 s, where 60 min is usual")
RAN = RememberedBox(past=MachineLife(existed=True, ran=True))
TWO_H100 = replace(box().spec, asked=RentalTerms(gpu="H100", gpu_count=2))
SPOT = replace(box().spec, asked=RentalTerms(spot=True, max_per_hour=0.42))
BILL = AccountBill(
    kind="runpod",
    account="default@vendor",
    machines_at=NOW,
    leftovers_at=NOW,
    things=(
        UnlistedItem(
            kind="runpod",
            what=MACHINE,
            id="pod9",
            name="old",
            status="EXITED",
            gpu="RTX 4090",
            gpu_count=2,
            per_hour=0.02,
            at_least=True,
        ),
        UnlistedItem(kind="runpod", what="volume", id="vol1", size_gb=100.0, per_hour=0.0096),
        UnlistedItem(kind="runpod", what="address", id="ip1", bills=False),
    ),
)
PACE = 19_400_000_000 / 7300.0
GROWN = array(
    "d", [x for i in range(-28, 1) for x in (60.0 * i, 600_000_000 - PACE * 60.0 * (1 - i))]
)
GROWS = RememberedBox(trends={"bytes:/workspace": FigureTrend(GROWN, PACE)})
STUCK = run(progressed_at=NOW - 300, last_at=NOW - 300)
WAIT = TrainingPause(what="disk", step=812, at=NOW - 240, until=NOW + 1560.5, unsaved=81)

IDLE_CLOCK = AutostopReading(idle_s=2148.0, limit_s=2700.0, stops_in_s=552.0)
LEASE = AutostopReading(
    mode=AutostopMode.LEASE, limit_s=28800.0, stops_in_s=3600.0, unsaving=("old-run",)
)
ARMED = SelfStopState(
    armed=(
        ArmedRecord(
            box="vast-demo",
            kind="vastai",
            account="default@vendor",
            instance="9918231",
            boot="boot-1",
            mode=AutostopMode.IDLE,
            action=EndAction.PARK,
            limit_s=2700.0,
            at=NOW - 9000.0,
        ),
    )
)
PARKED = replace(ARMED, off_at=NOW - 3600.0, stopping_at=NOW - 3610.0)
REBOOTED = replace(
    box().hello or Hello(proto=1, agent="", boot="", host="", python="", pid=1, at=0.0),
    boot="boot-2",
)

HALTED = replace(
    IDLE,
    procs=(
        TrainingProcess(pid=7, cmd="python train.py", started=NOW - 900, state="T", run="lstm-b"),
    ),
)

BUSY = GpuReading(index=0, name="H100", util=100.0, power_w=140.0, power_limit_w=700.0)
HALF = RowSparklines(gpu_util=(12.0,) * 60)
ONE_CORE = TrainingProcess(
    pid=7, cmd="python train.py", started=NOW - 900, state="R", threads=90, cpu_pct=99.0
)
SILENT = replace(log(), at=NOW - 2400)
WENT_ON = (RunResume(step=100, reason="killed", index=100),)
HIGHER = [2.0 + 0.01 * (i % 5) for i in range(100)] + [3.0 + 0.01 * (i % 5) for i in range(40)]
FELL = [4.0 - i / 50 for i in range(100)] + [2.0 + 0.01 * (i % 5) for i in range(65)]
FELL_AND_ROSE = FELL + [3.5 + 0.01 * (i % 5) for i in range(100)]


def resumed(losses: list[float], **over: Any) -> RunState:
    """A run that went on at step 100, its 100th point."""
    return run(step=len(losses), losses=losses, resumes=WENT_ON, **over)


def fell_to(step: int) -> RunState:
    """A run that was at step 350 when its next point was `step`."""
    steps = [*range(5, 355, 5), *range(step, step + 40, 5)]
    series = {
        "loss": Series().with_points([(at, 2.0) for at in steps]),
        TIME: Series().with_points([(at, NOW - 300 + i) for i, at in enumerate(steps)]),
    }
    return run(step=steps[-1], series=series)


CASES: dict[str, tuple[dict[str, Any], str, dict[str, Any]]] = {
    "finding": ({"findings": (FATAL,)}, "inodes of /data: all used · U7", {}),
    "failed": (
        {"queues": (queue(cell(state="failed", exit_code=1, reason="exit 1")),)},
        "lstm-b failed, exit 1",
        {"queues": (queue(cell(state="done")),), "runs": ()},
    ),
    "ended": (
        {"found": (GONE_RUN,), "queues": (), "sample": IDLE},
        "proj/train.py ended 2m00 ago, exit status unknown; its log is /proj/out.log",
        {"found": (replace(GONE_RUN, exit_code=0),), "queues": (), "sample": IDLE},
    ),
    "queue": ({"queues": (queue(error="no such file"),)}, "queue /root/job/queue.txt: no such file", {}),
    "holding": (
        {"runs": (replace(STUCK, wait=WAIT),)},
        "lstm-b is held at step 812: no room to save, 81 steps not saved, "
        f"gives up at {time_of_day(NOW + 1560.5, NOW)}",
        {"runs": (replace(STUCK, wait=WAIT),), "queues": (queue(cell(state="failed", exit_code=74)),)},
    ),
    "stalled": ({"runs": (STUCK,)}, "lstm-b stuck at step 812 for 5m00, usually 1.5 s a step", {}),
    "halted": (
        {"sample": HALTED},
        "stopped by a signal (state T): lstm-b, pid 7; kill -CONT 7 resumes it",
        {"sample": replace(HALTED, procs=(replace(HALTED.procs[0], state="D"),))},
    ),
    "no-step": ({"runs": ()}, "lstm-b has logged no step, 10m00 after its start", {}),
    "idle-gpu": ({"sample": gpu(util=1.0)}, "GPU 0 at 1% for 10m00, while the run advances without it", {}),
    "gpu-spins": (
        {"sample": sample(gpus=(BUSY,)), "runs": (STUCK,)},
        "GPU 0 is 100% busy at 140 of 700 W, and lstm-b has not advanced for 5m00: it hangs",
        {"sample": sample(gpus=(replace(BUSY, power_w=650.0),)), "runs": (STUCK,)},
    ),
    "starved": (
        {"sample": gpu(), "rings": HALF},
        "the GPU is 12% busy, while the run advances: what it waits for is not known",
        {"sample": gpu(), "rings": HALF, "runs": (STUCK,)},
    ),
    "input-bound": (
        {"runs": (timed(data_time=0.31, step_time=0.5),)},
        "lstm-b is input-bound: it waits for its data 62% of a step (0.31 of 0.5 s)",
        {"runs": (timed(data_time=0.09, step_time=0.5),)},
    ),
    "comm-bound": (
        {"runs": (timed(comm_time=0.3, step_time=0.5),)},
        "lstm-b is communication-bound: it exchanges, or waits for a slower rank, 60% of a step (0.3 of 0.5 s)",
        {"runs": (timed(compute_comm_time=0.5, step_time=0.5),)},
    ),
    "held-back": (
        {"logs": (SILENT,)},
        f"lstm-b is advancing (moved 1s ago), but {LOG} has been silent for 40m00: buffered",
        {"logs": (SILENT,), "runs": (run(progressed_at=NOW - 900),)},
    ),
    "bytes": (
        {"sample": sample(replace(DATA, bytes_used=90, bytes_free=10))},
        "/workspace 90% of its bytes used (10 B free)",
        {"sample": sample(replace(DATA, bytes_used=90, bytes_free=10, read_only=True))},
    ),
    "inodes": (
        {"sample": sample(replace(DATA, inodes_used=4000))},
        "/workspace 97% of its inodes used (4,000 of 4,096)",
        {"sample": sample(replace(DATA, inodes_used=4000, inodes_total=None))},
    ),
    "filling": (
        {"memory": GROWS},
        "/workspace runs out of bytes in 2h",
        {"memory": RememberedBox(trends={"bytes:/workspace": FigureTrend(GROWN[:16])})},
    ),
    "mount": ({"sample": sample(replace(DATA, error="stale handle"))}, "/workspace cannot be read: stale handle", {}),
    "memory": (
        {"sample": sample(mem=BoxMemory(cgroup=2, used=95, cache=1, limit=100))},
        "container memory 94%: 94 B of 100 B, without cache",
        {"sample": sample(mem=BoxMemory(cgroup=2, used=95, cache=50, limit=100))},
    ),
    "oom-kill": (
        {"events": (event("oom-kill", "killed 12"),)},
        "the kernel killed a process for lack of memory 5s ago (oom kills 0)",
        {"events": (replace(event("oom-kill", "killed 12"), at=NOW - 700),)},
    ),
    "throttled": (
        {"sample": gpu(throttle=("hw_thermal",), temp_c=91.0, clock_mhz=900.0, clock_max_mhz=1980.0)},
        "GPU 0 is slowed down: thermal slowdown by the hardware, 91 °C, 900 of 1980 MHz",
        {"sample": gpu(throttle=("sw_power_cap",), util=99.0, clock_mhz=1800.0, clock_max_mhz=1980.0)},
    ),
    "cpu-throttled": (
        {"sample": sample(cpu=CpuReading(quota=8.0, usable=8.0, throttled_pct=40.0))},
        "the CPU quota (8 cores) slows the training down 40% of the time",
        {"sample": sample(cpu=CpuReading(quota=8.0, throttled_pct=40.0), procs=())},
    ),
    "crowded": (
        {"sample": sample(cpu=CpuReading(usable=8.0, oversubscribed=True), procs=(ONE_CORE,))},
        "the training has 90 threads on 8 cores, and they slow each other down",
        {"sample": sample(cpu=CpuReading(usable=8.0, oversubscribed=True, throttled_pct=30.0), procs=(ONE_CORE,))},
    ),
    "stolen": (
        {"sample": sample(cpu=CpuReading(steal_pct=22.0))},
        "the host gives 22% of the processors' time to other machines (steal)",
        {"sample": sample(cpu=CpuReading(steal_pct=22.0), procs=())},
    ),
    "xid": (
        {"sample": gpu(xid=79)},
        "GPU 0: Xid 79 in the kernel log",
        {"sample": gpu(xid=31)},
    ),
    "xid-soft": (
        {"events": (event("xid", "GPU 0 (0000:01:00.0): Xid 31, page fault", "warn"),)},
        "GPU 0 (0000:01:00.0): Xid 31, page fault",
        {"events": (event("xid", "GPU 0 (0000:01:00.0): Xid 45, a program's work was taken off", "info"),)},
    ),
    "tracker-error": (
        {"events": (event("tracker-error", "run-a: Loss divergence (step 3)", "error", 0),)},
        "run-a: Loss divergence (step 3)",
        {"events": (event("tracker-info", "run-a: Milestone", "info", 0),)},
    ),
    "tracker-warn": (
        {"events": (event("tracker-warn", "run-a: gradient norm 40", "warn", 0),)},
        "run-a: gradient norm 40",
        {"events": (event("tracker-info", "run-a: Milestone", "info", 0),)},
    ),
    "ecc": (
        {"sample": gpu(ecc_uncorrected=2, ecc_corrected=70)},
        "GPU 0: 2 uncorrected memory errors (70 corrected)",
        {"sample": gpu(ecc_uncorrected=0, ecc_corrected=70)},
    ),
    "gpu-other": (
        {"spec": TWO_H100, "sample": gpu()},
        "1 × H100, asked for 2 × H100",
        {"spec": replace(TWO_H100, asked=RentalTerms(gpu="H100", gpu_count=1)), "sample": gpu()},
    ),
    "gpu-error": ({"sample": gpu(error="GPU is lost")}, "GPU 0 does not answer: GPU is lost", {}),
    "loss-nan": ({"runs": (NAN,)}, "lstm-b: loss nan at step 812, 2 points in a row", {"runs": (run(),)}),
    "loss-spike": (
        {"runs": (JUMP,)},
        "lstm-b: the loss jumped to 9 at step 812, usual was 2.02",
        {"runs": (run(losses=[2.0 + 0.01 * (i % 5) for i in range(62)] + [9.0]),)},
    ),
    "loss-flat": (
        {"runs": (run(losses=[2.3 + 0.01 * (i % 5) for i in range(400)]),)},
        "lstm-b: the loss has not fallen over 400 points: 2.32 at first, 2.32 now",
        {"runs": (run(losses=[2.3 - 0.0005 * i for i in range(400)]),)},
    ),
    "loss-rising": (
        {"runs": (run(losses=FELL_AND_ROSE),)},
        "lstm-b: the loss is 1.7 times its earlier value in this attempt, and stays there",
        {"runs": (run(losses=FELL),)},
    ),
    "loss-resumed": (
        {"runs": (resumed(HIGHER),)},
        "lstm-b: since the resume at step 100 the loss is 3.02, before it was 2.02",
        {"runs": (resumed(HIGHER[:100] * 2),)},
    ),
    "began-anew": (
        {
            "runs": (run(step=40, series=ANEW, resumes=(RunResume(step=0, reason="started again", index=100),)),),
            "checkpoints": SAVED,
        },
        f"lstm-b started at step 0, although {SAVED[0].items[-1].path} has step 800",
        {
            "runs": (run(step=40, series=ANEW, resumes=(RunResume(step=0, reason="rollback", index=100),)),),
            "checkpoints": SAVED,
        },
    ),
    "step-back": (
        {"runs": (fell_to(175),), "checkpoints": (checkpoints(100, 200, 300),)},
        "lstm-b went back from step 350 to step 175 within one attempt: there is no checkpoint, "
        "and the log shows no resume",
        {"runs": (fell_to(305),), "checkpoints": (checkpoints(100, 200, 300),)},
    ),
    "fast-finish": (
        {"queues": (queue(FLAGGED, cell()),)},
        "lstm-a ended after 3 s, where 60 min is usual",
        {"queues": (queue(replace(FLAGGED, flag=None), cell()),)},
    ),
    "interrupted": ({"queues": (CUT,), "sample": IDLE}, "lstm-b was preempted and is not running", {}),
    "waiting": ({"queues": (LEFT,), "sample": IDLE}, "1 cell waiting, no runner active", {}),
    "done-billing": (
        {"queues": (DONE,), "runs": (), "sample": IDLE, "meter": RUNNING},
        "queue done, still billed $0.42/h (Vast.ai)",
        {"queues": (DONE,), "runs": (), "sample": IDLE, "meter": STOPPED},
    ),
    "unreachable": (
        {"link": LinkState.UNREACHABLE, "reason": "ssh: timed out", "since": NOW - 180},
        "unreachable for 3m00: ssh: timed out; Vast.ai says running",
        {"link": LinkState.UNREACHABLE, "reason": "ssh: timed out", "since": NOW - 60},
    ),
    "silent": (
        {"sample_at": NOW - 300, "since": NOW - 900},
        "connected, but no sample for 5m00: the agent, its recorder or the machine hangs",
        {"sample_at": NOW - 60, "since": NOW - 900},
    ),
    "proxied": (
        {"peer": ("198.18.0.7", 22)},
        "ssh goes through a proxy: 127.0.0.1 resolves to 198.18.0.7, an address that no machine has",
        {"peer": ("198.20.0.7", 22)},
    ),
    "asking": (
        {"link": LinkState.ASKING, "reason": "waiting for you: password of root@h", "since": NOW - 300},
        "not watched until you answer: waiting for you: password of root@h",
        {"link": LinkState.ASKING, "reason": "waiting for you: password", "since": NOW - 60},
    ),
    "host-key": ({"link": LinkState.REFUSED_KEY, "reason": "line 4"}, "host key refused: line 4", {}),
    "login": ({"link": LinkState.REFUSED_LOGIN, "reason": "no key fits"}, "login refused: no key fits", {}),
    "stopped": (
        {"link": LinkState.UNREACHABLE, "meter": STOPPED, "memory": RAN},
        "RunPod says stopped, not requested from here",
        {"link": LinkState.UNREACHABLE, "meter": STOPPED, "memory": RememberedBox(past=MachineLife(existed=True))},
    ),
    "preemption": (
        {"sample": sample(notice=NOTICE)},
        "1m35 left: EC2 takes this machine away (terminate); asked to save: lstm-b; "
        "not asked to save, not known to do so on SIGTERM: other",
        {"sample": sample()},
    ),
    "gone": (
        {"link": LinkState.UNREACHABLE, "meter": GONE, "memory": RAN},
        "RunPod says gone, not destroyed from here",
        {"link": LinkState.UNREACHABLE, "meter": GONE},
    ),
    "contested": (
        {"meter": replace(STOPPED, native_status="EXITED")},
        "RunPod says stopped (EXITED), read 0s ago; but it answers over SSH, last sample 0s ago",
        {"meter": STOPPED, "sample_at": NOW - 40},
    ),
    "clock": (
        {
            "link": LinkState.UNREACHABLE,
            "meter": STOPPED,
            "sample_at": NOW - 13.5 * 86400,
            "spec": replace(box().spec, profile="autodl"),
        },
        "1d 12h left or more: it stopped at most 13d 12h ago: ",
        {"link": LinkState.UNREACHABLE, "meter": STOPPED, "spec": replace(box().spec, profile="autodl")},
    ),
    "balance": (
        {"meter": replace(RUNNING, balance=3.0, burn_per_hour=1.0)},
        "the account has $3.00 left, 3h00 at $1.00/h (Vast.ai)",
        {"meter": replace(RUNNING, balance=3.0, burn_per_hour=0.0)},
    ),
    "meter": (
        {"meter": replace(RUNNING, at=NOW - 700, error="401")},
        "price unknown, last read 11m40 ago: 401",
        {"meter": replace(RUNNING, at=NOW - 500, error="401")},
    ),
    "unconfirmed": (
        {"open_action": "park of lab (pod1) is open since 14:20"},
        "park of lab (pod1) is open since 14:20",
        {},
    ),
    "autostop-failed": (
        {
            "sample": sample(autostop=replace(IDLE_CLOCK, state="failed")),
            "events": (event("autostop-failed", "tried 3 times"),),
        },
        "it could not park itself, and is still billed: tried 3 times",
        {"sample": sample(autostop=IDLE_CLOCK)},
    ),
    "autostop-unwatched": (
        {"self_stop": ARMED},
        "armed from here, but no recorder on the box confirms it: it will not stop itself",
        {"self_stop": ARMED, "sample": sample(autostop=IDLE_CLOCK)},
    ),
    "autostop-unknown": (
        {"sample": sample(autostop=replace(IDLE_CLOCK, idle_s=None, unknown_s=2800.0, why=("GPU 0 is silent",)))},
        "for 46m40 it has been unknown whether it is idle, so it will not stop itself: GPU 0 is silent",
        {"sample": sample(autostop=replace(IDLE_CLOCK, idle_s=None, unknown_s=2600.0))},
    ),
    "lease-unsaving": (
        {"sample": sample(lease=LEASE)},
        "parks itself in 1h00 (lease of 8h00), and will not stop runs that are not known to save: old-run",
        {"sample": sample(lease=replace(LEASE, unsaving=()))},
    ),
    "autostop-warned": (
        {"sample": sample(autostop=replace(IDLE_CLOCK, state="warned"))},
        "parks itself in 9m12 (idle 35m48 of 45m00): rgt keep vast-demo 2h",
        {"sample": sample(autostop=IDLE_CLOCK)},
    ),
    "autostop-disarmed": (
        {"self_stop": ARMED, "hello": REBOOTED},
        "no longer armed, since it was started again",
        {"self_stop": ARMED},
    ),
    "parked-itself": (
        {"self_stop": PARKED, "meter": STOPPED, "link": LinkState.UNREACHABLE, "sample_at": NOW - 3700.0},
        describe_armed_off(PARKED, "RunPod"),
        {
            "self_stop": replace(PARKED, stopping_at=None, off_at=NOW - 8000.0),
            "meter": STOPPED,
            "link": LinkState.UNREACHABLE,
            "sample_at": NOW - 8100.0,
        },
    ),
    "unlisted": (
        {"account": BILL},
        "machine old (pod9), 2 × RTX 4090, EXITED, of runpod, belongs to no box: ≥ $0.02/h",
        {"account": replace(BILL, things=())},
    ),
    "leftover": (
        {"account": BILL},
        "volume vol1, 100 GB, of runpod, belongs to no box: $0.01/h, $7.01 a month",
        {"account": replace(BILL, things=())},
    ),
    "agreed": (
        {"spec": SPOT, "meter": replace(RUNNING, spot=False)},
        "asked for spot, billed as on-demand: $0.42/h (Vast.ai)",
        {"spec": SPOT, "meter": replace(RUNNING, spot=True)},
    ),
    "clock-skew": ({"clock_skew": -3600.0}, "the box's clock is 1h00 behind this machine's", {}),
    "own-clock": (
        {"meter": Meter(at=NOW, source="Vast.ai API", clock_skew=30 * 86400.0)},
        "this computer's clock is 30d 0h ahead of the provider's (Vast.ai API): what was spent is counted by the "
        "provider's",
        {},
    ),
    "stream": (
        {"counters": StreamCounters(bad_frames=3)},
        "the agent's stream is damaged: 3 bad frames, 0 missing",
        {"counters": StreamCounters()},
    ),
}  # fmt: skip


def test_every_kind_has_a_case() -> None:
    assert list(CASES) == [kind.id for kind in ALERTS]


SELF = ("unreachable", "asking", "no-step")


def judge(kind: Condition, over: dict[str, Any]) -> list[tuple[str, str]]:
    """Watch a box for as long as the kind asks, from a calm state on."""
    memory = over.get("memory", RememberedBox())
    state = box(**{key: value for key, value in over.items() if key != "memory"})
    book = AlertState(memory=memory)
    trends = book.memory.trends
    if kind.rises and kind.id == "stream":
        book = step_alerts(book, box(), NOW - 2000, (kind,)).book
    rounds = int(kind.hold_s / 60) + 2
    texts: list[tuple[str, str]] = []
    for left in range(rounds, -1, -1):
        now = NOW if left == 0 else NOW - 60.0 * left
        fresh = facts_of(state, NOW)
        shifted = replace(
            state, sample_at=now if fresh.live else state.sample_at, since=state.since
        )
        book = replace(book, memory=replace(book.memory, trends=trends))
        if left and (kind.hold_s == 0 or kind.id in SELF):
            continue  # says by itself for how long it has been so
        book = step_alerts(book, shifted, now, (kind,)).book
        texts = [
            (m.alert.level, m.alert.text)
            for ms in book.machines.values()
            for m in ms.values()
            if m.alert
        ]
    return texts


@pytest.mark.parametrize("id_", CASES)
def test_it_holds_and_says_so(id_: str) -> None:
    over, text, _ = CASES[id_]
    found = judge(BY_ID[id_], over)
    assert len(found) == 1
    if id_ in ("filling", "clock"):
        assert found[0][1].startswith(text)
    elif id_ == "idle-gpu":
        assert found[0][1].startswith("GPU 0 at 1% for 1")
    else:
        assert found[0][1] == text


@pytest.mark.parametrize("id_", CASES)
def test_the_nearest_case_where_it_does_not_hold(id_: str) -> None:
    assert judge(BY_ID[id_], CASES[id_][2]) == []


@pytest.mark.parametrize("kind", ALERTS, ids=lambda kind: kind.id)
def test_a_row_is_whole(kind: Condition) -> None:
    sign = -1 if kind.below else 1
    for rung in kind.rungs:
        assert rung.level in ("warn", "error")
        assert sign * rung.clear <= sign * rung.at
    assert [rung.level for rung in kind.rungs] == sorted(
        (r.level for r in kind.rungs), reverse=True
    )
    assert ":" not in kind.id
    assert kind.advice.endswith(".")
    assert len(kind.advice) <= 110
    assert kind.hold_s >= 0 <= kind.quiet_s


def test_a_mount_that_only_the_platform_knows_may_be_missing() -> None:
    """Not every machine of a platform has every storage of it; what a person named has to be there."""
    missing = sample(replace(DATA, mount="/hy-netdisk", error="No such file or directory"))
    assert judge(BY_ID["mount"], {"sample": missing}) == []
    named = replace(box().spec, mounts=("/hy-netdisk",))
    assert len(judge(BY_ID["mount"], {"sample": missing, "spec": named})) == 1


def test_no_kind_says_dead() -> None:
    assert not any("dead" in text for _, text, _ in CASES.values())


def test_xid_classes_are_those_of_the_agent() -> None:
    assert {number: xid_level(number) for number in box_xid.MEANINGS} == {
        number: level for number, (level, _) in box_xid.MEANINGS.items()
    }


def test_the_agent_calls_the_same_reasons_slowed_down() -> None:
    from rgt_box.commands.gpu_health import SLOWED as THEIRS

    assert THEIRS == SLOWED


@pytest.mark.parametrize(
    ("cpu", "busy", "why"),
    [
        (
            CpuReading(usable=8.0, throttled_pct=12.0),
            (99.0,),
            "CPU-bound, its quota runs out 12% of the time",
        ),
        (
            CpuReading(usable=8.0, throttled_pct=9.0),
            (99.0,),
            "its main process keeps a core 99% busy",
        ),
        (CpuReading(usable=8.0), (340.0, 340.0), "CPU-bound, all 8 cores are busy"),
        (CpuReading(usable=8.0), (91.0, 4.0), "its main process keeps a core 91% busy"),
        (
            CpuReading(usable=8.0),
            (20.0, 4.0),
            "the CPUs are idle, too: it waits for a disk, the network",
        ),
        (CpuReading(), (None,), "what it waits for is not known"),
    ],
)
def test_what_holds_up_a_training_whose_cards_are_not_busy(
    cpu: CpuReading, busy: tuple[float | None, ...], why: str
) -> None:
    procs = tuple(replace(ONE_CORE, pid=number, cpu_pct=pct) for number, pct in enumerate(busy, 7))
    cards = (GpuReading(index=0, name="H100", util=12.0),)
    over = {"sample": sample(gpus=cards, cpu=cpu, procs=procs), "rings": HALF}
    ((_, text),) = judge(BY_ID["starved"], over)
    assert text.startswith(f"the GPU is 12% busy, while the run advances: {why}")


def test_a_checkpoint_alone_shows_that_a_silent_log_is_held_back() -> None:
    still = run(progressed_at=None, last_at=None)
    saved = {"logs": (SILENT,), "runs": (still,), "checkpoints": (checkpoints(400, 800),)}
    ((_, text),) = judge(BY_ID["held-back"], saved)
    assert (
        text
        == f"lstm-b is advancing (moved 3m20 ago), but {LOG} has been silent for 40m00: buffered"
    )
    assert judge(BY_ID["held-back"], saved | {"checkpoints": (checkpoints(400, 700),)}) == []


def test_a_found_log_that_was_never_written_to_is_held_back_unless_another_of_its_logs_speaks() -> (
    None
):
    """What most buffered trainings look like: the file that the shell made, and not a byte in it."""
    name, said = "lstm/train.py", f"{LOG}.err"
    found = FoundRun(
        name=name, pid=7, started=NOW - 9000, command="python train.py", log=LOG, logs=(LOG, said)
    )
    empty = replace(SILENT, lines=(), counted=True)
    state = {"queues": (), "found": (found,), "runs": (run(name),), "logs": (empty,)}
    ((_, text),) = judge(BY_ID["held-back"], state)
    assert (
        text
        == f"{name} is advancing (moved 1s ago), but {LOG} has been empty for 40m00: buffered, if it prints at all"
    )
    assert judge(BY_ID["held-back"], state | {"logs": (replace(empty, at=NOW - 60),)}) == []
    assert judge(BY_ID["held-back"], state | {"logs": ()}) == []
    speaks = replace(SILENT, path=said, at=NOW - 5)
    assert judge(BY_ID["held-back"], state | {"logs": (empty, speaks)}) == []


def test_events_before_the_newest_boot_are_history() -> None:
    old = replace(event("oom-kill", "killed"), boot="boot-0")
    assert gather_event_news((old, event("rebooted", "anew", "warn"))).oom_seq == 0
    assert (
        gather_event_news((event("rebooted", "anew", "warn"), event("oom-kill", "killed"))).oom_seq
        == 7
    )


def test_a_hard_xid_is_not_hidden_by_a_later_soft_one() -> None:
    hard = event("xid", "GPU 1 (0000:02:00.0): Xid 79, fallen off the bus")
    soft = event("xid", "GPU 1 (0000:02:00.0): Xid 31, page fault", "warn", 8)
    state = box(
        events=(hard, soft), sample=sample(gpus=(GpuReading(index=1, name="H100", xid=31),))
    )
    raised = step_alerts(AlertState(), state, NOW).raised
    assert {(alert.id, alert.level) for alert in raised} == {
        ("xid:1", "error"),
        ("xid-soft", "warn"),
    }


FLAT = [2.0 + 0.05 * math.sin(i) for i in range(49)]


@pytest.mark.parametrize(
    ("usual", "newest", "high"),
    [
        (FLAT, [2.1, 2.1, 2.1], False),
        (FLAT, [9.0, 9.0, 9.0], True),
        (FLAT, [9.0, 2.0, 9.0], False),
        (FLAT, [0.1, 0.1, 0.1], False),
        ([2.0] * 49, [2.05, 2.05, 2.05], False),
        ([2.0] * 49, [3.0, 3.0, 3.0], True),
        ([*FLAT[:46], 50.0, 60.0, 70.0], [5.0, 5.0, 5.0], True),
        ([*FLAT[:43], *[50.0] * 3, *FLAT[46:]], [70.0, 70.0, 70.0], True),
        ([4.0 - i / 20 for i in range(49)], [1.5, 1.5, 1.5], False),
        ([-2.0] * 49, [-1.0, -1.0, -1.0], True),
    ],
)
def test_spikes(usual: list[float], newest: list[float], high: bool) -> None:
    found = spike_deviations(usual, newest)
    assert found is not None
    assert (found >= 8.0) is high


@pytest.mark.parametrize(
    ("usual", "newest"),
    [
        ([], []),
        ([2.0] * 29, [9.0] * 3),
        ([2.0] * 49, [9.0] * 2),
        ([2.0] * 49, [math.nan, 9.0, 9.0]),
    ],
)
def test_a_short_curve_has_no_spikes(usual: list[float], newest: list[float]) -> None:
    assert spike_deviations(usual, newest) is None


def test_a_resume_begins_anew() -> None:
    """A run that goes on from an old checkpoint with a higher loss does not spike."""
    curve = [2.0 + 0.01 * (i % 3) for i in range(60)] + [4.0] * 5
    resumed_run = run(losses=curve, resumes=(RunResume(step=10, reason="SIGTERM", index=60),))
    assert step_alerts(AlertState(), box(runs=(resumed_run,)), NOW).raised == ()
    assert [
        a.id for a in step_alerts(AlertState(), box(runs=(run(losses=curve),)), NOW).raised
    ] == ["loss-spike:lstm-b"]


@pytest.mark.parametrize(
    ("first", "every", "wrong"),
    [(800, 1, 0.0), (801, 1, 0.0), (799, 1, 0.0), (790, 10, 0.0), (400, 1, 1.0), (780, 1, 1.0)],
)
def test_the_first_step_after_a_resume_is_that_of_the_newest_checkpoint(
    first: int, every: int, wrong: float
) -> None:
    """It continued from an older one: the newest is damaged, or another path was given."""
    points = [(at, 2.0) for at in range(every, 813, every)]
    points += [(at, 2.0) for at in range(first, first + 5 * every, every)]
    resumed = run(
        step=points[-1][0],
        series={"loss": Series().with_points(points)},
        resumes=(RunResume(step=first, reason="started again", index=812 // every),),
    )
    read = BY_ID["began-anew"].read(facts_of(box(runs=(resumed,), checkpoints=SAVED), NOW))
    assert read is not None and [reading.value for reading in read] == [wrong]


@pytest.mark.parametrize(("attempts", "wrong"), [(2, [1.0]), (1, [])])
def test_metrics_without_a_resume_are_judged_by_the_cells_attempts(
    attempts: int, wrong: list[float]
) -> None:
    again = queue(cell(state="running", attempts=attempts))
    now = box(queues=(again,), runs=(run(step=40, series=ANEW),), checkpoints=SAVED)
    kind, facts = BY_ID["began-anew"], facts_of(now, NOW)
    read = kind.read(facts)
    assert read is not None and [reading.value for reading in read] == wrong
    assert kind.needs is not None and bool(kind.needs(facts)) == bool(wrong)


def test_three_nans_in_a_row_are_an_error() -> None:
    bad = run(losses=[2.0] * 40 + [math.nan, math.inf, math.nan])
    (alert,) = step_alerts(AlertState(), box(runs=(bad,)), NOW).raised
    assert (alert.id, alert.level) == ("loss-nan:lstm-b", "error")


def test_done_at_a_part_of_its_plan() -> None:
    """Found half a minute later: the last points of a cell may come after the news that it is done."""
    done = queue(cell(state="done", exit_code=0), cell("next"))
    kinds = (BY_ID["fast-finish"],)
    book = AlertState()
    for after, raised in ((0, 0), (20, 0), (31, 1)):
        found = step_alerts(book, box(queues=(done,), sample_at=NOW + after), NOW + after, kinds)
        book = found.book
        assert len(found.raised) == raised
    assert found.raised[0].text == "lstm-b is done at step 812 of 2,400"


@pytest.mark.parametrize(
    ("resource", "gotcha", "hidden"),
    [
        ("inodes of /data", "U7", "inodes:/data"),
        ("bytes of /data", "U6", "bytes:/data"),
        ("the loss", "P8", "loss-nan:lstm-b"),
        ("GPU 3", "U22", "gpu-error:3"),
    ],
)
def test_what_a_finding_says_already(resource: str, gotcha: str, hidden: str) -> None:
    found = Finding(gotcha, "t", Severity.FATAL, resource, "e", "log", run="lstm-b")
    assert covered_alert_ids((found,)) == {hidden}


def test_an_end_is_told_from_the_next_one_of_the_same_training() -> None:
    state = box(found=(replace(GONE_RUN, name="other", ended=NOW - 5), GONE_RUN))
    assert ended_at(state, Alert("ended:proj/train.py", "warn", "x", since=NOW)) == NOW - 120
    assert ended_at(state, Alert("ended:gone", "warn", "x", since=NOW - 7)) == NOW - 7
    assert ended_at(state, Alert("ended:gone", "warn", "x")) == 0.0


@pytest.mark.parametrize(
    ("over", "found"),
    [
        ({"exit_code": 1, "outcome": "FAILED"}, [("error", "exit 1, Slurm says FAILED")]),
        ({"outcome": "TIMEOUT"}, [("error", "Slurm says TIMEOUT")]),
        ({"outcome": "CANCELLED"}, [("warn", "Slurm says CANCELLED")]),
        ({"exit_code": 0, "outcome": "COMPLETED"}, []),
        ({"outcome": "COMPLETED"}, []),
        ({"exit_code": 3, "outcome": "COMPLETED"}, [("error", "exit 3")]),
        ({}, [("warn", "exit status unknown")]),
    ],
)
def test_slurm_says_how_a_training_ended(
    over: dict[str, Any], found: list[tuple[str, str]]
) -> None:
    state = box(found=(replace(GONE_RUN, **over),), queues=(), sample=IDLE)
    alerts = step_alerts(AlertState(), state, NOW, (BY_ID["ended"],)).raised
    expected = [
        (level, f"proj/train.py ended 2m00 ago, {how}; its log is /proj/out.log")
        for level, how in found
    ]
    assert [(alert.level, alert.text) for alert in alerts] == expected


def test_of_an_ended_training_no_log_is_named_that_went_with_its_process() -> None:
    state = box(found=(replace(GONE_RUN, log="/proc/14332/fd/8"),), queues=(), sample=IDLE)
    (alert,) = step_alerts(AlertState(), state, NOW, (BY_ID["ended"],)).raised
    assert alert.text.endswith("exit status unknown; its log was deleted")


def test_an_end_that_nobody_saw_has_two_limits() -> None:
    state = box(found=(replace(GONE_RUN, seen=NOW - 120 - 86400),), queues=(), sample=IDLE)
    (alert,) = step_alerts(AlertState(), state, NOW, (BY_ID["ended"],)).raised
    assert alert.text.startswith(
        "proj/train.py ended 2m00 ago or up to 1d 0h before that, exit status unknown"
    )


def test_a_box_that_went_off_before_its_limit_did_not_park_itself() -> None:
    """Then somebody else has stopped it, which nobody asked for here."""
    early = replace(ARMED, off_at=NOW - 8000.0)
    off = {"meter": STOPPED, "link": LinkState.UNREACHABLE, "sample_at": NOW - 8100.0}
    assert judge(BY_ID["stopped"], {**off, "memory": RAN, "self_stop": early}) != []
    assert (
        judge(
            BY_ID["stopped"], {**off, "memory": RAN, "self_stop": replace(ARMED, off_at=NOW - 60.0)}
        )
        == []
    )


def test_what_was_taken_back_elsewhere_is_no_missing_recorder() -> None:
    taken = {
        "self_stop": ARMED,
        "events": (event("autostop-disarmed", "idle: taken back", "warn"),),
    }
    assert judge(BY_ID["autostop-unwatched"], taken) == []
    assert judge(BY_ID["autostop-disarmed"], taken) == [
        ("warn", "no longer armed: idle: taken back")
    ]


def test_a_view_without_anything() -> None:
    bare = BoxState(spec=box().spec)
    found: BoxFacts = facts_of(bare, NOW)
    for kind in ALERTS:
        assert not kind.read(found) or kind.id == "stream", kind.id


def test_a_price_above_the_agreed_one_is_an_alert_and_an_unknown_one_settles_nothing() -> None:
    (kind,) = [one for one in ALERTS if one.id == "agreed"]

    def read(**over: Any) -> list[tuple[str, float | None]]:
        seen = facts_of(box(spec=SPOT, meter=replace(RUNNING, spot=True, **over)), NOW)
        return [(reading.key, reading.value) for reading in kind.read(seen) or ()]

    assert read() == []
    assert read(per_hour=0.43) == [("price", 1.0)]
    assert read(per_hour=None) == [("price", None)]
    assert read(per_hour=9.0, currency="CNY") == []
    assert judge(kind, {"spec": SPOT, "meter": replace(RUNNING, spot=None, per_hour=0.43)}) == [
        ("warn", "asked for $0.42/h at most, billed $0.43/h (Vast.ai)")
    ]


def test_what_runs_on_a_cluster_is_listed_and_no_alert() -> None:
    for id_ in ("unlisted", "leftover"):
        (kind,) = [one for one in ALERTS if one.id == id_]
        assert kind.read(facts_of(box(account=BILL), NOW))
        assert kind.read(facts_of(box(account=replace(BILL, kind="slurm")), NOW)) == ()
        assert kind.read(facts_of(box(account=replace(BILL, kind="of-tomorrow")), NOW))


def test_an_account_that_was_never_listed_says_nothing_about_what_bills_unseen() -> None:
    for id_, unread in (("unlisted", "machines_at"), ("leftover", "leftovers_at")):
        (kind,) = [one for one in ALERTS if one.id == id_]
        unseen = replace(BILL, things=(), **{unread: None})
        assert kind.read(facts_of(box(account=unseen), NOW)) is None
        assert kind.read(facts_of(box(), NOW)) is None


def test_a_failed_attempt_that_a_later_one_made_good_is_no_trouble() -> None:
    def of(path: str, state: str, started: float, command: str | None = "c1") -> Any:
        ended = cell(
            "try", state=state, exit_code=0 if state == "done" else 1, started=NOW - started
        )
        made = queue(ended, done=True, runner_alive=False)
        return replace(made, path=path, same_command=command)

    def kinds(*queues: Any) -> set[str]:
        seen = facts_of(box(queues=queues, runs=(), logs=()), NOW)
        return {kind.id for kind in ALERTS if kind.id == "failed" and kind.read(seen)}

    bad = of("/jobs/try", "failed", 900)
    assert kinds(bad) == {"failed"}
    assert kinds(bad, of("/jobs/try-2", "done", 300)) == set()
    assert kinds(bad, of("/jobs/try-2", "failed", 300)) == {"failed"}
    assert kinds(bad, of("/jobs/try-2", "done", 1200)) == {
        "failed"
    }  # an earlier one made nothing good
    assert kinds(bad, of("/jobs/other", "done", 300, "c2")) == {"failed"}
    assert kinds(replace(bad, same_command=None), of("/jobs/other", "done", 300, None)) == {
        "failed"
    }
