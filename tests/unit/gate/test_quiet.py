"""A box is quiet when nothing on it trains, computes, holds memory, copies or types; each reason has its own name."""

from __future__ import annotations

import msgspec
import pytest
from rgt_box.sampling.gpu import FOREIGN, SILENT

from rgt_tui.gate import evaluate_evidence, facts_digest
from rgt_tui.model import (
    BillingVerb,
    BoxState,
    CopyProgram,
    DroppedCounts,
    FoundRun,
    GpuHolder,
    GpuProcess,
    GpuReading,
    LinkState,
    Permit,
    QueueState,
    ReceivedTimes,
    RunState,
    TrainingProcess,
)
from tests.unit.gate.builders import (
    GB,
    HELLO,
    METER,
    NOW,
    OFF,
    TICKS,
    against,
    box,
    cell,
    evidence,
    held,
    items,
    sample,
    text,
)

replace = msgspec.structs.replace


def training(**proc: object) -> BoxState:
    one = replace(
        TrainingProcess(pid=231, started=NOW - 60, cmd="python -m rgt_train", state="R"), **proc
    )
    return box(
        cell("gpt-b", state="running"),
        sample=sample(procs=(one,)),
        runs=(RunState("gpt-b", step=655, progressed_at=NOW - 1),),
    )


def with_gpu(**fields: object) -> BoxState:
    return box(sample=sample(gpus=(replace(GpuReading(index=0, name="RTX"), **fields),)))


def test_training_is_named_with_pid_step_and_age() -> None:
    found = evidence(training())
    assert text(found, "quiet") == "gpt-b is training: pid 231, step 655, advanced 1s ago"
    assert items(found, "quiet")[0].key == "quiet:training"


def test_a_process_without_a_known_run_is_named_by_its_command() -> None:
    state = replace(training(), queues=(), runs=())
    assert (
        text(evidence(state), "quiet")
        == "a training process is alive: pid 231, python -m rgt_train"
    )


def test_a_zombie_is_not_training() -> None:
    state = replace(training(state="Z"), queues=box().queues, runs=())
    assert held(evidence(state), "quiet")


def test_a_step_that_just_advanced_is_training_even_without_a_process() -> None:
    state = box(runs=(RunState("other", step=9, progressed_at=NOW - 3),))
    assert text(evidence(state), "quiet") == "other advanced to step 9 3s ago"
    done = box(runs=(RunState("gpt-a", step=9, progressed_at=NOW - 3),))
    assert held(evidence(done), "quiet")


def test_a_training_that_was_found_alive_counts_although_no_process_is_listed() -> None:
    run = FoundRun(
        name="hf/train.py", pid=70, started=NOW - 500, command="python train.py", pids=(70, 71)
    )
    found = evidence(box(found=(run,)))
    assert against(found) == ["quiet:found hf/train.py"]
    assert "found alive, pid 70, python train.py" in text(found, "quiet")
    assert held(evidence(box(found=(replace(run, alive=False, ended=NOW - 9),))), "quiet")
    listed = replace(training(pid=71), found=(run,))
    assert [item.key for item in items(evidence(listed), "quiet")] == ["quiet:training"]
    assert against(evidence(box(left_out=DroppedCounts(found=2)))) == ["quiet:found, left out"]


def test_memory_of_a_card_that_somebody_holds_counts_at_0_percent() -> None:
    found = evidence(with_gpu(util=0.0, vram_used=70 * GB))
    assert against(found) == ["quiet:gpu 0"]
    assert (
        text(found, "quiet")
        == "no training process found, but somebody holds 65.2 GiB of GPU 0 at 0%"
    )
    mig = evidence(with_gpu(util=None, vram_used=70 * GB))
    assert "at a use that cannot be read" in text(mig, "quiet")
    assert against(evidence(with_gpu(util=0.0, procs=(GpuProcess(pid=9, bytes=None),)))) == [
        "quiet:gpu 0"
    ]
    named = evidence(with_gpu(util=0.0, procs=(GpuProcess(pid=9, bytes=3 * GB, mapped=True),)))
    assert "pid 9 holds 2.8 GiB" in text(named, "quiet")
    orphan = GpuHolder(pid=8, started=NOW, cmd="python")
    assert against(evidence(with_gpu(util=0.0, vram_used=0, orphans=(orphan,)))) == ["quiet:gpu 0"]


def test_a_card_that_nobody_uses_is_quiet() -> None:
    assert held(evidence(with_gpu(util=0.0, vram_used=400_000_000)), "quiet")
    assert held(evidence(with_gpu(util=None, vram_used=5_000_000)), "quiet"), (
        "MIG never tells its use"
    )
    assert held(
        evidence(with_gpu(util=0.0, vram_used=1, procs=(GpuProcess(pid=9, bytes=1000),))), "quiet"
    )
    assert held(evidence(with_gpu(util=93.0, vram_used=70 * GB, sim=True)), "quiet"), (
        "replayed numbers"
    )


def test_a_card_of_which_nothing_can_be_read_is_not_called_quiet() -> None:
    found = evidence(with_gpu(error="Unknown Error"))
    assert against(found) == ["quiet:gpu 0"]
    assert "neither use nor memory of GPU 0 can be read (Unknown Error)" in text(found, "quiet")


def test_a_busy_card_without_a_process_refuses() -> None:
    assert "something computes: GPU 0 93%" in text(evidence(with_gpu(util=93.0)), "quiet")
    two = sample(gpus=tuple(GpuReading(index=index, name="x", util=50.0) for index in (0, 1)))
    assert against(evidence(box(sample=two))) == ["quiet:gpu 0", "quiet:gpu 1"]


def test_a_live_runner_refuses() -> None:
    cells = (cell(), cell("b", state="waiting"))
    queue = QueueState(path="/j", at=NOW, cells=cells, runner_pid=7, runner_alive=True)
    found = evidence(box(queues=(queue,)), BillingVerb.PARK)
    assert text(found, "quiet") == "the queue runner is alive (pid 7), 1 cell waiting"
    assert items(found, "quiet")[0].key == "quiet:runner /j"
    unknown = evidence(box(queues=(replace(queue, runner_pid=None),)), BillingVerb.PARK)
    assert "pid unknown" in text(unknown, "quiet")


def test_a_copy_under_way_refuses_and_so_does_not_knowing() -> None:
    found = evidence(
        box(
            sample=sample(
                transfers=(CopyProgram(pid=5, name="rsync"), CopyProgram(pid=6, name="aws s3"))
            )
        )
    )
    assert against(found) == ["quiet:transfer 5", "quiet:transfer 6"]
    assert "files are being copied: rsync, pid 5" in text(found, "quiet")
    assert against(evidence(box(sample=sample(transfers=None)))) == ["quiet:transfers"]


@pytest.mark.parametrize(
    ("ago", "quiet"),
    [
        (0.0, False),
        (299.0, False),
        (300.0, True),
        (301.0, True),
        (-30.0, False),
        (float("nan"), False),
    ],
)
def test_somebody_who_typed_within_five_minutes_is_still_there(ago: float, quiet: bool) -> None:
    state = box(sample=sample(input_at=NOW - ago))
    assert held(evidence(state), "quiet") is quiet
    if not quiet:
        assert against(evidence(state)) == ["quiet:terminal"]


def test_a_terminal_that_nobody_has_typed_at_and_one_that_cannot_be_read_are_two_things() -> None:
    assert held(evidence(box(sample=sample(input_at=0.0))), "quiet")
    assert against(evidence(box(sample=sample(input_at=None)))) == ["quiet:terminal"]


def test_every_reason_is_an_item_that_can_be_given_up_by_name() -> None:
    seen = training().sample
    assert seen is not None
    busy = replace(training(), sample=replace(seen, transfers=(CopyProgram(pid=5, name="scp"),)))
    keys = {item.key for item in items(evidence(busy), "quiet")}
    assert keys == {"quiet:training", "quiet:transfer 5"}
    one = evidence(busy, forfeits=frozenset({"quiet:training"}))
    assert "quiet:transfer 5" in against(one) and "quiet:training" not in against(one)


def test_what_is_given_up_is_this_training_and_not_the_next() -> None:
    """Steps and ages move on; another process is another thing."""
    steps = replace(training(), runs=(RunState("gpt-b", step=700, progressed_at=NOW - 1),))
    assert facts_digest(evidence(training())) == facts_digest(evidence(steps))
    assert facts_digest(evidence(training())) != facts_digest(evidence(training(pid=232)))


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"sample": None, "reason": "ssh: timed out"}, "no reading of the box (ssh: timed out)"),
        ({"seen": ReceivedTimes()}, "no reading of the box"),
        ({"link": LinkState.UNREACHABLE, "reason": "ssh"}, "unreachable (ssh)"),
        ({"seen": ReceivedTimes(sample=TICKS - 10.5)}, "10 s old"),
        ({"seen": ReceivedTimes(sample=TICKS + 30)}, "-30 s old"),
        ({"seen": ReceivedTimes(sample=float("nan"))}, "nan s old"),
        ({"sample": sample(unseen="no processes")}, "no processes"),
    ],
)
def test_a_box_that_cannot_be_seen_is_one_item(fields: dict[str, object], why: str) -> None:
    found = evidence(box(**fields))
    assert [item.key for item in items(found, "quiet")] == ["quiet:unseen"]
    assert why in text(found, "quiet")
    assert items(found, "quiet")[0].forfeitable


def test_a_reading_of_before_it_was_asked_does_not_count() -> None:
    """At OK the box is asked anew: a sample of nine seconds ago says nothing about the last nine seconds."""
    fresh = box(seen=replace(box().seen, sample=TICKS - 9))
    assert held(evidence(fresh), "quiet")
    found = evidence(fresh, since=TICKS - 5)
    assert against(found) == ["quiet:unseen"]
    assert "not answered the request" in text(found, "quiet")
    assert held(evidence(fresh, since=TICKS - 9), "quiet")


def test_nothing_runs_on_a_machine_that_is_off_by_the_providers_word() -> None:
    lost = box(link=LinkState.UNREACHABLE)
    assert (
        text(evidence(lost, meter=OFF), "quiet")
        == "the provider's status is EXITED: nothing runs on a machine that is off"
    )
    assert not held(evidence(lost, meter=METER), "quiet")
    assert not held(evidence(lost, meter=replace(OFF, error="timed out")), "quiet")
    assert held(evidence(lost, meter=OFF), "seal")
    assert not held(evidence(training(), meter=OFF), "quiet"), (
        "a box that answers is on, whatever the provider says"
    )


@pytest.mark.parametrize("limited", [FOREIGN, SILENT])
def test_what_else_an_agent_cannot_tell_keeps_no_meter_running(limited: str) -> None:
    """Of a container's GPUs the driver seldom tells who uses them: the box's own processes are all seen."""
    told = replace(HELLO, limited=(limited,))
    assert isinstance(evaluate_evidence(evidence(box(hello=told)), TICKS), Permit)
