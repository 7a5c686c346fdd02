"""Processes as a tree with what they hold, and the threads that want the cores."""

from __future__ import annotations

import msgspec
import pytest

from rgt_tui.model import BoxState, CpuReading, GpuProcess, GpuReading, TrainingProcess, WorkerSums
from rgt_tui.ui.widgets import Tone, cpu_lines, text_of, walk_processes, width_of
from rgt_tui.ui.widgets.vitals import process_lines
from tests.ui.fakes import GIB, NOW, running_box, sample


def proc(pid: int, ppid: int | None = 1, **changes: object) -> TrainingProcess:
    made = TrainingProcess(
        pid=pid,
        ppid=ppid,
        started=NOW - 999,
        cmd="/usr/bin/python train.py",
        rss=4 * GIB,
        threads=40,
        state="R",
        age_s=999,
        user="root",
    )
    return msgspec.structs.replace(made, **changes)


def box_of(
    *procs: TrainingProcess, gpus: tuple[GpuReading, ...] = (), cpu: CpuReading | None = None
) -> BoxState:
    shown = msgspec.structs.replace(sample(), procs=procs, gpus=gpus, cpu=cpu or CpuReading())
    return msgspec.structs.replace(running_box(), sample=shown)


def rows(box: BoxState, width: int = 76) -> list[str]:
    return [text_of(made).rstrip() for made in process_lines(box, width)]


def test_a_tree_with_user_state_memory_threads_and_the_cards_held() -> None:
    gpus = (
        GpuReading(index=0, name="X", procs=(GpuProcess(pid=11, mapped=True),)),
        GpuReading(
            index=3,
            name="X",
            procs=(GpuProcess(pid=11, mapped=True), GpuProcess(pid=10, mapped=False)),
        ),
    )
    workers = WorkerSums(count=8, threads=16, states={"S": 7, "D": 1})
    child = proc(11, 10, workers=workers)
    shown = rows(box_of(child, proc(10, cmd="torchrun train.py", state="S"), gpus=gpus))
    assert shown[0].split()[:4] == ["10", "S", "root", "torchrun"]
    assert shown[0].split()[-5:] == ["4.0", "GiB", "40", "thr", "16m39"], (
        "an unmapped number is nobody's here"
    )
    assert shown[1].startswith("└ 11 R root python train.py") and "gpu 0,3" in shown[1]
    assert shown[2].strip() == "8 workers, 16 threads  1 D 7 S"


@pytest.mark.parametrize("state", ["D", "Z", "T", "t"])
def test_a_process_that_cannot_run_says_why(state: str) -> None:
    made = process_lines(box_of(proc(7, state=state)), 40)
    assert any(span.tone is Tone.TROUBLE for span in made[0]) and made[1][-1].tone is Tone.TROUBLE
    assert not any(
        span.tone is Tone.TROUBLE for span in process_lines(box_of(proc(7, state="S")), 40)[0]
    )


def test_in_a_narrow_pane_the_user_is_said_only_where_there_are_several() -> None:
    assert "root" not in rows(box_of(proc(7)), 40)[0]
    two = rows(box_of(proc(7), proc(8, user="mallory\x1b[31m[red]" * 9)), 40)
    assert "root" in two[0] and "mallory" in two[1] and "\x1b" not in two[1]
    assert all(len(text) <= 40 for text in two)


def test_processes_that_claim_to_be_each_others_parents_are_each_shown_once() -> None:
    circle = (proc(1, 2), proc(2, 1), proc(3, 3), proc(4, 3))
    assert sorted(one.pid for one, _ in walk_processes(circle)) == [1, 2, 3, 4]
    deep = [proc(i, i - 1) for i in range(1, 60)]
    assert max(depth for _, depth in walk_processes(deep)) == 6
    assert all(width_of(made) <= 40 for made in process_lines(box_of(*deep), 40))
    many = rows(box_of(*(proc(i) for i in range(900))))
    assert len(many) == 65 and many[-1] == "and 836 more"


def test_an_older_agent_tells_of_no_user_no_parent_and_no_workers() -> None:
    (only,) = rows(box_of(proc(7, ppid=None, user=None)), 76)
    assert only.startswith("7 R python train.py")


def cpu_text(box: BoxState) -> tuple[str, bool]:
    made = cpu_lines(box, 60)
    loud = any(span.tone in {Tone.WARN, Tone.TROUBLE} for row in made for span in row)
    return "\n".join(text_of(row).rstrip() for row in made), loud


def test_threads_stand_against_the_cores_that_are_granted() -> None:
    quota = CpuReading(quota=16, cores=128, usable=16, load1=7.25)
    ranks = [proc(i, omp=32, workers=WorkerSums(count=4, threads=8)) for i in range(2)]
    text, loud = cpu_text(box_of(*ranks, cpu=quota))
    assert "16 of 128 cores by quota" in text and "load 7.2" in text
    assert "96 threads · 6.0 a core (2 processes, 8 workers)" in text
    assert "OMP_NUM_THREADS 32 × 2 = 64, 16 cores" in text
    assert not loud, "many threads that wait harm nobody"
    text, loud = cpu_text(
        box_of(*ranks, cpu=msgspec.structs.replace(quota, oversubscribed=True, throttled_pct=41))
    )
    assert (
        loud
        and "they slow each other down" in text.replace("\n", " ")
        and "throttled by the quota 41%" in text
    )


def test_cores_that_nobody_told_of_are_unknown() -> None:
    assert cpu_text(box_of(cpu=CpuReading())) == ("", False)
    assert cpu_text(box_of(cpu=CpuReading(load1=1.0)))[0].split("  ")[0] == "cores unknown"
    assert cpu_text(msgspec.structs.replace(running_box(), sample=None))[0] == "no sample yet"
    assert "4 cores, no quota" in cpu_text(box_of(cpu=CpuReading(cores=4)))[0]


def test_a_command_is_told_before_its_age_where_there_is_little_room() -> None:
    box = box_of(
        proc(300), gpus=(GpuReading(index=0, name="X", procs=(GpuProcess(pid=300, mapped=True),)),)
    )
    (narrow,), (wide,) = rows(box, 40), rows(box, 80)
    assert "python tr" in narrow and "16m39" not in narrow
    assert "python train.py" in wide and "40 thr  16m39" in wide
