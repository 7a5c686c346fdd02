from __future__ import annotations

import msgspec
import pytest

from rgt_tui.model import (
    Checkpoint,
    Checkpoints,
    FleetSpend,
    GpuHolder,
    GpuReading,
    Hello,
    QueueCell,
    QueueState,
    RunState,
    TrainingPause,
)
from rgt_tui.ui import spend_parts
from rgt_tui.ui.widgets import (
    checkpoint_lines,
    fault_lines,
    join_fitting,
    limited_lines,
    link_lines,
    text_of,
)
from rgt_tui.ui.widgets.queue_lines import queue_lines
from tests.ui.fakes import NOW, demo_state, running_box


def test_faults_of_a_gpu_are_said_and_a_healthy_one_says_nothing() -> None:
    bad = GpuReading(
        index=0,
        name="X",
        xid=79,
        ecc_uncorrected=2,
        ecc_corrected=5,
        orphans=(GpuHolder(pid=7, started=0.0, cmd="python"),),
    )
    text = "\n".join(text_of(made) for made in fault_lines(bad))
    assert "Xid 79" in text
    assert "2 uncorrected memory errors" in text
    assert "5 corrected memory errors" in text
    assert "7 python" in text
    assert fault_lines(GpuReading(index=0, name="X", ecc_corrected=0, ecc_uncorrected=0)) == []


def test_limits_of_the_box_and_of_the_agent_are_said_once() -> None:
    hello = Hello(
        proto=1,
        agent="abc",
        boot="boot",
        host="host",
        python="3.11",
        pid=1,
        at=NOW,
        limited=("no log",),
    )
    box = msgspec.structs.replace(running_box("a"), limited=("no Python", "no log"), hello=hello)
    assert [text_of(made)[2:] for made in limited_lines(box, 80)] == [
        "limited: no Python",
        "limited: no log",
    ]


def test_another_pace_and_remembered_values_are_said() -> None:
    box = msgspec.structs.replace(running_box("a"), interval=15.0, remembered_at=NOW, sample=None)
    text = "\n".join(text_of(made) for made in link_lines(box, 80, NOW))
    assert "sampled every 15 s" in text
    assert "by an earlier rgt" in text


def test_today_replaces_spent_where_somebody_keeps_count() -> None:
    state = demo_state()
    assert "spent" in text_of(spend_parts(state)[0][1])
    kept = msgspec.structs.replace(
        state, spend=FleetSpend(today=(("USD", 2.98), ("CNY", 5.12)), idle_today=(("USD", 0.31),))
    )
    assert [text_of(made) for _, made in spend_parts(kept)] == ["today $2.98 + ¥5.12", "idle $0.31"]


def test_yesterday_and_the_month_stand_behind_today_where_there_is_room() -> None:
    spend = FleetSpend(
        today=(("USD", 2.98),),
        idle_today=(("USD", 0.31),),
        yesterday=(("USD", 12.4),),
        month=(("USD", 61.2),),
    )
    parts = spend_parts(msgspec.structs.replace(demo_state(), spend=spend))
    assert (
        text_of(join_fitting(100, parts))
        == "today $2.98  idle $0.31  yesterday $12.40  month $61.20"
    )
    assert text_of(join_fitting(44, parts)) == "today $2.98  idle $0.31  yesterday $12.40"
    assert text_of(join_fitting(25, parts)) == "today $2.98  idle $0.31"
    first = FleetSpend(today=(("USD", 2.98),), yesterday=(("USD", 0.0),), month=(("USD", 2.98),))
    parts = spend_parts(msgspec.structs.replace(demo_state(), spend=first))
    assert [text_of(made) for _, made in parts] == [
        "today $2.98"
    ]  # on the first of a month, and a first day


def test_sums_that_lack_lost_hours_are_lower_bounds() -> None:
    spend = FleetSpend(
        today=(("USD", 2.98),),
        yesterday=(("USD", 12.4),),
        month=(("USD", 61.2),),
        at_least=("yesterday", "month"),
    )
    parts = spend_parts(msgspec.structs.replace(demo_state(), spend=spend))
    assert [text_of(made) for _, made in parts] == [
        "today $2.98",
        "yesterday ≥ $12.40",
        "month ≥ $61.20",
    ]


@pytest.mark.parametrize("width", [36, 40, 50, 78], ids=["80", "120", "200", "alone"])
def test_the_parts_of_a_checkpoint_never_run_together(width: int) -> None:
    item = Checkpoint(path="/w/ckpt/step-1900", bytes=48_000_000, at=NOW - 40, step=1900)
    begun = msgspec.structs.replace(item, step=1910)
    listed = Checkpoints(run="a-long-name-of-a-run", at=NOW, items=(item,), writing=(begun,))
    box = msgspec.structs.replace(running_box(), clock_skew=0.0, checkpoints=(listed,))
    whole, writing = (text_of(made) for made in checkpoint_lines(box, width, NOW))
    assert "step 1,900  " in whole and whole.endswith("  40s ago") and len(whole) == width
    assert "step 1,910 not complete" in writing and len(writing) <= width
    assert ("1 kept" in whole) is (width > 50), "the age stays longest, the number goes first"


def test_a_cell_that_holds_is_not_cut_off_in_the_queue_of_a_small_screen() -> None:
    base = running_box()
    cell = QueueCell(name="lstm-a", cfg="c", task="t", state="running", started=NOW - 60)
    run = RunState(name="lstm-a", step=401, wait=TrainingPause(what="disk", step=401, unsaved=81))
    queue = QueueState(path="q", at=NOW, cells=(cell,), runner_alive=True)
    box = msgspec.structs.replace(base, queues=(queue,), runs=(run,))
    wide, narrow = (text_of(queue_lines(box, width, NOW)[0]).rstrip() for width in (70, 34))
    assert "holding at step 401, 81 steps not saved" in wide
    assert narrow.endswith("holding at step 401")
