"""Crashes, preemption, NaN: when a line counts, and when it is history."""

from __future__ import annotations

import math
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rgt_tui.health import diagnose_box
from rgt_tui.model import (
    EPOCH,
    BoxEvent,
    BoxState,
    FoundRun,
    GpuReading,
    MemoryReading,
    RunResume,
    Series,
    Severity,
)
from tests.unit.triage.builders import LOG, NOW, box, cell, log, queue, run, sample

OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."
STEP = "step 813  epoch 1  loss 1.2840"
RESUME = "resume: at step 800 of 2400 from /x; attempt 2, the last one ended by: SIGTERM; work lost: 12 steps"


def ids(state: BoxState) -> list[str]:
    return [finding.gotcha for finding in diagnose_box(state, NOW, ())]


def with_log(*lines: str, **cell_over: Any) -> BoxState:
    return box(queues=(queue(cell(**cell_over)),), logs=(log(*lines),))


def test_a_healthy_box_has_no_finding() -> None:
    assert diagnose_box(box(), NOW, ()) == ()


def test_a_running_cell_that_stepped_on_is_past_it() -> None:
    assert ids(with_log(OOM, state="running")) == ["U10"]
    assert ids(with_log(OOM, STEP, STEP, state="running")) == ["U10"]
    assert ids(with_log(OOM, STEP, STEP, STEP, state="running")) == []


def test_a_failed_cell_is_not_past_it_because_buffered_lines_come_late() -> None:
    assert ids(with_log(OOM, STEP, state="failed", exit_code=1)) == ["U10"]


def test_an_exception_without_a_traceback_ended_what_has_ended_with_it() -> None:
    bare = "[rank0]: mylib.errors.FoldError: no fold 3"
    assert ids(with_log(STEP, bare, state="failed", exit_code=1)) == ["PY1"]
    assert ids(with_log(STEP, bare)) == ids(with_log(bare, STEP, state="failed", exit_code=1)) == []


@pytest.mark.parametrize("state", ["running", "failed"])
def test_what_stands_before_a_resume_is_an_earlier_attempt(state: str) -> None:
    assert ids(with_log(OOM, RESUME, state=state, exit_code=1)) == []


@pytest.mark.parametrize("state", ["done", "waiting"])
def test_cells_that_are_not_at_work_are_not_searched(state: str) -> None:
    assert ids(with_log(OOM, state=state)) == []


def test_a_log_that_no_cell_owns_is_history_beside_a_queue_and_news_without_one() -> None:
    state = box(logs=(log(OOM, path="/root/job/master.log"),))
    assert ids(state) == []
    assert ids(msgspec.structs.replace(state, queues=(), runs=())) == ["U10"]


def test_a_log_below_the_run_belongs_to_its_cell() -> None:
    state = box(logs=(log(OOM, path="/workspace/runs/lstm-b/rank3.log"),))
    found = diagnose_box(state, NOW, ())
    assert [(f.gotcha, f.run, f.where) for f in found] == [
        ("U10", "lstm-b", "/workspace/runs/lstm-b/rank3.log")
    ]


def test_only_the_end_of_a_log_counts() -> None:
    lines = (OOM, *("filler" for _ in range(60)))
    assert ids(with_log(*lines, state="failed", exit_code=1)) == []


def test_a_preempted_cell_until_it_goes_on() -> None:
    lines = (
        STEP,
        "SIGTERM at step 338: saving, then exit 75",
        "checkpoint 338 → /workspace/x  38 MB",
    )
    found = diagnose_box(with_log(*lines, state="interrupted", exit_code=75), NOW, ())
    assert [(f.gotcha, f.severity, f.evidence) for f in found] == [
        ("SP1", Severity.DEGRADING, lines[1])
    ]
    assert ids(with_log(*lines, RESUME, state="running")) == []


def test_a_preempted_cell_without_a_log_line() -> None:
    gone = queue(cell(state="interrupted", exit_code=75), runner_alive=False)
    assert ids(box(queues=(gone,))) == ["SP1"]
    assert ids(box(queues=(msgspec.structs.replace(gone, runner_alive=True),))) == []


@pytest.mark.parametrize(("kills", "id_"), [(0, "U3"), (2, "U9"), (None, "U3")])
def test_a_kill_is_the_kernels_only_if_it_counted_it(kills: int | None, id_: str) -> None:
    mem = MemoryReading(cgroup=2, used=5, limit=100, oom_kills=kills)
    killed = queue(cell(state="failed", signal="SIGKILL", exit_code=None))
    found = diagnose_box(box(queues=(killed,), sample=sample(mem=mem)), NOW, ())
    assert [f.gotcha for f in found] == [id_]
    assert found[0].reading is not None


@pytest.mark.parametrize(("kills", "id_"), [(0, "U3"), (1, "U9")])
def test_a_bare_killed_is_told_apart_by_the_counter(kills: int, id_: str) -> None:
    mem = MemoryReading(cgroup=2, used=5, limit=100, oom_kills=kills)
    state = msgspec.structs.replace(
        with_log(STEP, "Killed", state="failed"), sample=sample(mem=mem)
    )
    assert ids(state) == [id_]


def test_the_kernels_own_words_are_believed() -> None:
    mem = MemoryReading(cgroup=2, used=5, limit=100, oom_kills=0)
    line = "Memory cgroup out of memory: Killed process 12 (python)"
    assert ids(msgspec.structs.replace(with_log(line, state="failed"), sample=sample(mem=mem))) == [
        "U9"
    ]


@pytest.mark.parametrize("loss", [math.nan, math.inf])
def test_a_loss_that_is_no_number(loss: float) -> None:
    found = diagnose_box(box(runs=(run(losses=[1.0, loss]),)), NOW, ())
    assert [(f.gotcha, f.run, f.step, f.where) for f in found] == [("P8", "lstm-b", 812, "scalars")]


def test_a_nan_of_a_finished_run_is_history() -> None:
    over = queue(cell(state="done", exit_code=0))
    assert ids(box(queues=(over,), runs=(run(losses=[math.nan]),))) == []


def test_log_and_curve_make_one_finding() -> None:
    state = box(runs=(run(losses=[math.nan]),), logs=(log("step 812  epoch 1  loss nan"),))
    assert [(f.gotcha, f.where) for f in diagnose_box(state, NOW, ())] == [("P8", LOG)]


def test_a_copy_that_failed() -> None:
    bad = cell(
        state="failed",
        durable="failed",
        durable_path="/mnt/fs/b",
        reason="the durable copy failed: EIO",
    )
    found = diagnose_box(box(queues=(queue(bad),)), NOW, ())
    assert [f.gotcha for f in found] == ["U33"]
    assert "ls -l -- '/mnt/fs/b'" in [fix.command for fix in found[0].fixes]


def test_a_lost_card() -> None:
    gpu = GpuReading(
        index=1, name="A100", error="GPU is lost. Reboot the system to recover this GPU"
    )
    found = diagnose_box(box(sample=sample(gpus=(gpu,))), NOW, ())
    assert [(f.gotcha, f.resource) for f in found] == [("U22", "GPU 1")]


def test_a_gpu_that_is_merely_unreadable_is_no_diagnosis() -> None:
    assert (
        ids(box(sample=sample(gpus=(GpuReading(index=0, name="A100", error="not supported"),))))
        == []
    )


def test_since_is_kept_and_new_ones_are_dated_now() -> None:
    first = diagnose_box(with_log(OOM, state="failed"), NOW, ())
    both = box(
        queues=(queue(cell(state="failed"), cell("gru", state="failed")),),
        logs=(log(OOM), log("Hangup", path="/root/job/logs/gru.log")),
    )
    again = {f.gotcha: f.since for f in diagnose_box(both, NOW + 60, first)}
    assert again == {"U10": NOW, "LL4": NOW + 60}


def test_worst_first() -> None:
    state = box(
        queues=(
            queue(
                cell(state="failed"),
                cell("gru", state="interrupted", exit_code=75),
                runner_alive=False,
            ),
        ),
        logs=(log(OOM),),
    )
    assert ids(state) == ["U10", "SP1"]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.text(max_size=200), max_size=80), st.sampled_from(["running", "failed"]))
def test_any_text_is_survived_and_the_answer_is_stable(lines: list[str], state: str) -> None:
    sick = with_log(*lines, state=state)
    once = diagnose_box(sick, NOW, ())
    assert diagnose_box(sick, NOW + 1, once) == once


@given(
    st.lists(
        st.sampled_from([OOM, STEP, RESUME, "Killed", "Hangup", "step 9  loss nan", "x"]),
        max_size=12,
    )
)
def test_three_good_steps_at_the_end_of_a_running_log_end_every_crash(lines: list[str]) -> None:
    assert ids(with_log(*lines, STEP, STEP, STEP, state="running")) == []


REBOOT = BoxEvent(
    boot="boot-1", seq=5, at=NOW - 100, kind="rebooted", text="the box was rebooted", level="warn"
)
KILL = BoxEvent(
    boot="boot-1", seq=6, at=NOW - 95, kind="oom-kill", text="oom_kill 0 → 1", level="error"
)
GONE = FoundRun(
    name="proj/train.py", pid=7, started=NOW - 900, command="python train.py", alive=False,
    seen=NOW - 105, ended=NOW - 95,
)  # fmt: skip
IDLE = sample(procs=())


@pytest.mark.parametrize(
    ("events", "found", "expected"),
    [
        ((REBOOT,), GONE, ["BOOT1"]),
        ((), GONE, []),
        ((msgspec.structs.replace(REBOOT, at=NOW - 2000),), GONE, []),  # it was started after that
        ((REBOOT,), msgspec.structs.replace(GONE, alive=True, ended=None), []),
        ((KILL,), GONE, ["U9"]),
        ((KILL,), msgspec.structs.replace(GONE, exit_code=0), []),
        ((msgspec.structs.replace(KILL, at=NOW - 600),), GONE, []),
    ],
)
def test_a_found_training_that_vanished_is_explained_by_what_the_box_saw(
    events: tuple[BoxEvent, ...], found: FoundRun, expected: list[str]
) -> None:
    state = box(queues=(), runs=(), logs=(), sample=IDLE, events=events, found=(found,))
    assert ids(state) == expected


def test_a_cell_that_a_reboot_cut_off_is_told_and_one_that_was_begun_after_it_is_not() -> None:
    left = cell(state="interrupted", started=NOW - 600)
    state = box(queues=(queue(left, runner_alive=False),), sample=IDLE, events=(REBOOT,), logs=())
    assert ids(state) == ["BOOT1"]
    later = cell(state="interrupted", started=NOW - 50)
    assert ids(msgspec.structs.replace(state, queues=(queue(later, runner_alive=False),))) == []
    assert (
        ids(msgspec.structs.replace(state, queues=(queue(left),))) == []
    )  # its runner goes on with it


@pytest.mark.parametrize(
    ("rates", "expected"),
    [
        ([1e-4] * 50 + [3e-4] * 10, ["C14"]),
        ([1e-4] * 50 + [1e-6] * 10, ["C14"]),
        ([1e-4 - 1e-6 * i for i in range(60)], []),
        ([1e-4] * 50, []),
    ],
)
def test_a_learning_rate_that_begins_anew_after_a_resume(
    rates: list[float], expected: list[str]
) -> None:
    state = run(
        losses=[2.0] * 60, step=60, resumes=(RunResume(step=50, reason="killed", index=50),)
    )
    series = {
        **state.series,
        "lr": Series().with_points([(i + 1, rate) for i, rate in enumerate(rates)]),
    }
    if len(rates) < 60:
        series["loss"] = Series().with_points([(i + 1, 2.0) for i in range(len(rates))])
    assert ids(box(runs=(msgspec.structs.replace(state, series=series),))) == expected


@pytest.mark.parametrize(
    ("before", "after", "first_step", "expected"),
    [
        (3.0, 0.0, 51, ["C12"]),
        (3.0, 1.0, 51, ["C12"]),
        (3.4, 0.01, 51, ["C12"]),
        (1.0, 0.0, 51, ["C12"]),
        (3.0, 3.0, 51, []),
        (3.4, 3.1, 51, []),
        (3.0, 2.0, 51, []),
        (1.0, 1.0, 51, []),
        (0.9, 0.0, 51, []),
        (3.0, 0.0, 1, []),
        (float("nan"), 0.0, 51, []),
        (3.0, float("nan"), 51, []),
    ],
)
def test_epochs_that_are_counted_anew_while_the_step_goes_on(
    before: float, after: float, first_step: int, expected: list[str]
) -> None:
    state = run(
        losses=[2.0] * 60, step=60, resumes=(RunResume(step=50, reason="killed", index=50),)
    )
    steps = [*range(1, 51), *range(first_step, first_step + 10)]
    series = {
        "loss": Series().with_points([(step, 2.0) for step in steps]),
        EPOCH: Series().with_points(
            [(step, before if i < 50 else after) for i, step in enumerate(steps)]
        ),
    }
    found = diagnose_box(box(runs=(msgspec.structs.replace(state, series=series),)), NOW, ())
    assert [one.gotcha for one in found] == expected
    if found:
        text = f"epoch {before:g} before the resume at step 50, {after:g} after it, at step {first_step}"
        assert (found[0].evidence, found[0].where, found[0].run) == (text, "scalars", "lstm-b")


def test_epochs_of_a_run_that_never_resumed_may_begin_anew() -> None:
    state = run(losses=[2.0] * 60, step=60)
    epochs = Series().with_points([(i, 3.0 if i < 50 else 0.0) for i in range(60)])
    assert (
        ids(box(runs=(msgspec.structs.replace(state, series={**state.series, EPOCH: epochs}),)))
        == []
    )


@pytest.mark.parametrize(
    ("events", "expected"),
    [((), ["U9"]), ((KILL,), ["U9"]), ((msgspec.structs.replace(KILL, at=NOW - 900),), ["U3"])],
    ids=["nobody-saw-when", "while-it-ran", "before-it-began"],
)
def test_exit_137_is_the_kernel_s_where_the_counter_moved_while_it_ran(
    events: tuple[BoxEvent, ...], expected: list[str]
) -> None:
    killed = cell(state="failed", exit_code=137, started=NOW - 600, ended=NOW - 90)
    mem = MemoryReading(cgroup=2, used=1, limit=100, oom_kills=1)
    state = box(queues=(queue(killed),), logs=(), sample=sample(mem=mem, procs=()), events=events)
    assert ids(state) == expected
