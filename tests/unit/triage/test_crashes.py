"""Crashes, preemption, NaN: when a line counts, and when it is history."""

from __future__ import annotations

import math
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rgt_tui.health import diagnose
from rgt_tui.model.box import BoxState
from rgt_tui.model.evidence import Severity
from rgt_tui.model.protocol import Gpu, Memory
from tests.unit.triage.builders import LOG, NOW, box, cell, log, queue, run, sample

OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."
STEP = "step 813  epoch 1  loss 1.2840"
RESUME = "resume: at step 800 of 2400 from /x; attempt 2, the last one ended by: SIGTERM; work lost: 12 steps"


def ids(state: BoxState) -> list[str]:
    return [finding.gotcha for finding in diagnose(state, NOW, ())]


def with_log(*lines: str, **cell_over: Any) -> BoxState:
    return box(queues=(queue(cell(**cell_over)),), logs=(log(*lines),))


def test_a_healthy_box_has_no_finding() -> None:
    assert diagnose(box(), NOW, ()) == ()


def test_a_running_cell_that_stepped_on_is_past_it() -> None:
    assert ids(with_log(OOM, state="running")) == ["U10"]
    assert ids(with_log(OOM, STEP, state="running")) == []


def test_a_failed_cell_is_not_past_it_because_buffered_lines_come_late() -> None:
    assert ids(with_log(OOM, STEP, state="failed", exit_code=1)) == ["U10"]


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
    found = diagnose(state, NOW, ())
    assert [(f.gotcha, f.run, f.where) for f in found] == [
        ("U10", "lstm-b", "/workspace/runs/lstm-b/rank3.log")
    ]


def test_only_the_end_of_a_log_counts() -> None:
    lines = (OOM, *("filler" for _ in range(60)))
    assert ids(with_log(*lines, state="failed", exit_code=1)) == []


def test_a_preempted_cell_until_it_goes_on() -> None:
    lines = (STEP, "SIGTERM at step 338: saving, then exit 75", "checkpoint 338 → /workspace/x  38 MB")
    found = diagnose(with_log(*lines, state="interrupted", exit_code=75), NOW, ())
    assert [(f.gotcha, f.severity, f.evidence) for f in found] == [("SP1", Severity.DEGRADING, lines[1])]
    assert ids(with_log(*lines, RESUME, state="running")) == []


def test_a_preempted_cell_without_a_log_line() -> None:
    gone = queue(cell(state="interrupted", exit_code=75), runner_alive=False)
    assert ids(box(queues=(gone,))) == ["SP1"]
    assert ids(box(queues=(msgspec.structs.replace(gone, runner_alive=True),))) == []


@pytest.mark.parametrize(("kills", "id_"), [(0, "U3"), (2, "U9"), (None, "U3")])
def test_a_kill_is_the_kernels_only_if_it_counted_it(kills: int | None, id_: str) -> None:
    mem = Memory(cgroup=2, used=5, limit=100, oom_kills=kills)
    killed = queue(cell(state="failed", signal="SIGKILL", exit_code=None))
    found = diagnose(box(queues=(killed,), sample=sample(mem=mem)), NOW, ())
    assert [f.gotcha for f in found] == [id_]
    assert found[0].reading is not None


@pytest.mark.parametrize(("kills", "id_"), [(0, "U3"), (1, "U9")])
def test_a_bare_killed_is_told_apart_by_the_counter(kills: int, id_: str) -> None:
    mem = Memory(cgroup=2, used=5, limit=100, oom_kills=kills)
    state = msgspec.structs.replace(with_log(STEP, "Killed", state="failed"), sample=sample(mem=mem))
    assert ids(state) == [id_]


def test_the_kernels_own_words_are_believed() -> None:
    mem = Memory(cgroup=2, used=5, limit=100, oom_kills=0)
    line = "Memory cgroup out of memory: Killed process 12 (python)"
    assert ids(msgspec.structs.replace(with_log(line, state="failed"), sample=sample(mem=mem))) == ["U9"]


@pytest.mark.parametrize("loss", [math.nan, math.inf])
def test_a_loss_that_is_no_number(loss: float) -> None:
    found = diagnose(box(runs=(run(losses=[1.0, loss]),)), NOW, ())
    assert [(f.gotcha, f.run, f.step, f.where) for f in found] == [("P8", "lstm-b", 812, "scalars")]


def test_a_nan_of_a_finished_run_is_history() -> None:
    over = queue(cell(state="done", exit_code=0))
    assert ids(box(queues=(over,), runs=(run(losses=[math.nan]),))) == []


def test_log_and_curve_make_one_finding() -> None:
    state = box(runs=(run(losses=[math.nan]),), logs=(log("step 812  epoch 1  loss nan"),))
    assert [(f.gotcha, f.where) for f in diagnose(state, NOW, ())] == [("P8", LOG)]


def test_a_copy_that_failed() -> None:
    bad = cell(
        state="failed", durable="failed", durable_path="/mnt/fs/b", reason="the durable copy failed: EIO"
    )
    found = diagnose(box(queues=(queue(bad),)), NOW, ())
    assert [f.gotcha for f in found] == ["U33"]
    assert "ls -l -- '/mnt/fs/b'" in [fix.command for fix in found[0].fixes]


def test_a_lost_card() -> None:
    gpu = Gpu(index=1, name="A100", error="GPU is lost. Reboot the system to recover this GPU")
    found = diagnose(box(sample=sample(gpus=(gpu,))), NOW, ())
    assert [(f.gotcha, f.resource) for f in found] == [("U22", "GPU 1")]


def test_a_gpu_that_is_merely_unreadable_is_no_diagnosis() -> None:
    assert ids(box(sample=sample(gpus=(Gpu(index=0, name="A100", error="not supported"),)))) == []


def test_since_is_kept_and_new_ones_are_dated_now() -> None:
    first = diagnose(with_log(OOM, state="failed"), NOW, ())
    both = box(
        queues=(queue(cell(state="failed"), cell("gru", state="failed")),),
        logs=(log(OOM), log("Hangup", path="/root/job/logs/gru.log")),
    )
    again = {f.gotcha: f.since for f in diagnose(both, NOW + 60, first)}
    assert again == {"U10": NOW, "LL4": NOW + 60}


def test_worst_first() -> None:
    state = box(
        queues=(
            queue(cell(state="failed"), cell("gru", state="interrupted", exit_code=75), runner_alive=False),
        ),
        logs=(log(OOM),),
    )
    assert ids(state) == ["U10", "SP1"]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.text(max_size=200), max_size=80), st.sampled_from(["running", "failed"]))
def test_any_text_is_survived_and_the_answer_is_stable(lines: list[str], state: str) -> None:
    sick = with_log(*lines, state=state)
    once = diagnose(sick, NOW, ())
    assert diagnose(sick, NOW + 1, once) == once


@given(
    st.lists(st.sampled_from([OOM, STEP, RESUME, "Killed", "Hangup", "step 9  loss nan", "x"]), max_size=12)
)
def test_a_good_step_at_the_end_of_a_running_log_ends_every_crash(lines: list[str]) -> None:
    assert ids(with_log(*lines, STEP, state="running")) == []
