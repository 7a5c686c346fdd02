"""What is advised, from which figures, and that nothing is where one of them is missing."""

from __future__ import annotations

import re
from typing import Any

import msgspec
import pytest
from rgt_box.discovery import script_look

from rgt_tui.handbook import shipped_pages
from rgt_tui.model import (
    BoxState,
    Checkpoint,
    Checkpoints,
    CpuReading,
    DiskReading,
    FoundRun,
    GpuReading,
    RankReading,
    RowSparklines,
    RunResume,
    TrainingProcess,
)
from rgt_tui.profiles import (
    FAULTS,
    collect_advice,
    compute_daly_interval,
    faults_of,
    is_version_in_range,
    run_advice,
)
from tests.unit.triage.builders import NOW, ROOT, box, cell, log, queue, run, sample

replace = msgspec.structs.replace
HOUR = 3600.0


@pytest.mark.parametrize(("mtbf_h", "minutes"), [(24, 117), (6, 57), (0.25, 9.1)])
def test_daly_s_own_figures(mtbf_h: float, minutes: float) -> None:
    """C = 5 min: https://doi.org/10.1016/j.future.2004.11.016."""
    assert compute_daly_interval(300.0, mtbf_h * HOUR) / 60.0 == pytest.approx(minutes, rel=0.02)
    assert compute_daly_interval(100.0, 50.0) == 50.0


def saves(every: float, count: int = 6) -> Checkpoints:
    points = [
        Checkpoint(path=f"/x/{i}", step=i, bytes=1, at=NOW - every * (count - i))
        for i in range(count)
    ]
    return Checkpoints(run="lstm-b", at=NOW, items=tuple(points))


COST = log("checkpoint 800 → /x  3 MB  on disk after 2.10 s, stalled 2,000 ms")


def going(**over: Any) -> BoxState:
    base = {
        "queues": (queue(cell(started=NOW - 8 * HOUR)),),
        "logs": (),
        "runs": (run(),),
        "clock_skew": 0.0,
    }
    return box(**{**base, **over})


def texts(state: BoxState, about: str) -> list[str]:
    return [one.text for one in collect_advice(state, NOW) if one.about == about]


def test_the_interval_is_compared_with_the_optimum_where_the_cost_is_known() -> None:
    (one,) = [
        one
        for one in collect_advice(going(checkpoints=(saves(2400),), logs=(COST,)), NOW)
        if one.about == "save"
    ]
    best = compute_daly_interval(2.0, 8 * HOUR)
    assert one.seconds == pytest.approx(best, abs=0.1)
    assert (
        one.text
        == "saves every 40m00; 5m38 would lose less (a save costs 2.0 s, no failure in 8h00)"
    )
    assert texts(going(checkpoints=(saves(best),), logs=(COST,)), "save") == []
    often = run(resumes=tuple(RunResume(step=i, reason="killed", index=i) for i in range(9)))
    assert (
        "9 failures in 8h00"
        in texts(going(checkpoints=(saves(2400),), logs=(COST,), runs=(often,)), "save")[0]
    )


def test_without_a_cost_it_says_what_a_failure_loses() -> None:
    (text,) = texts(going(checkpoints=(saves(2400),)), "save")
    assert (
        text
        == "saves every 40m00: a failure costs 20m00 of work, $0.14, on average (no failure in 8h00)"
    )
    assert texts(going(checkpoints=(saves(900),)), "save") == []


@pytest.mark.parametrize(
    "over",
    [
        {"checkpoints": (saves(2400, count=2),)},
        {"checkpoints": ()},
        {
            "checkpoints": (saves(500),),
            "queues": (queue(cell(started=NOW - 600)),),
            "logs": (COST,),
        },
        {"checkpoints": (saves(2400),), "queues": (queue(cell(state="done")),)},
    ],
    ids=["too-few", "none", "seen-too-shortly", "done"],
)
def test_what_is_not_known_is_not_advised(over: dict[str, Any]) -> None:
    assert texts(going(**over), "save") == []


def found(**over: Any) -> FoundRun:
    base = FoundRun(name="p/train.py", pid=7, started=NOW - HOUR, command="python train.py")
    return replace(base, **over)


def beside(one: FoundRun, **over: Any) -> BoxState:
    return box(**{"queues": (), "runs": (), "logs": (), "found": (one,), **over})


RESUMES = ("save_state", "load_state", "register_for_checkpointing", "skip_first_batches")


@pytest.mark.parametrize(
    ("uses", "marks", "pages"),
    [
        (("transformers 5.23.0",), ("train()",), ["C9"]),
        (("transformers 5.23.0",), ("train()", "resume"), []),
        (("transformers 5.23.0",), ("resume", "newest"), ["C9"]),
        (("trl 1.0",), ("resume", "newest"), []),
        (("accelerate 1.15.0",), ("total_limit=1", "resume"), ["C17"]),
        (("accelerate 1.15.0",), ("save_state",), ["C10", "C10"]),
        (("accelerate 1.15.0",), ("save_state", "register_for_checkpointing"), ["C10"]),
        (
            ("accelerate 1.15.0",),
            ("save_state", "resume", "load_state", "register_for_checkpointing"),
            ["C13"],
        ),
        (
            ("accelerate",),
            ("save_state", "load_state", "register_for_checkpointing", "skip_first_batches"),
            [],
        ),
        (("accelerate 1.15.0",), (*RESUMES, "automatic_checkpoint_naming"), ["C10"]),
        (("accelerate 1.15.0",), (*RESUMES, "automatic_checkpoint_naming", "iteration"), []),
        (("transformers 5.23.0",), ("train()", "resume", "load_best_model_at_end"), ["C17"]),
        (("lightning",), ("fit", "resume", "AsyncCheckpointIO", "save_top_k=1"), ["C13", "C17"]),
        (("transformers 5.23.0",), (), []),
        (("transformers",), ("resume", "save_total_limit=1"), ["C9"]),
        (("lightning 2.6.6",), ("fit", "ModelCheckpoint"), ["C11", "C11"]),
        (("lightning 2.6.6",), ("fit", "resume", "ModelCheckpoint", "save_last"), ["C13"]),
        (("torchdata 0.11",), ("StatefulDataLoader",), ["C13"]),
        (("deepspeed 0.18",), ("DeepSpeed",), ["C8"]),
        ((), ("train()", "fit"), []),
    ],
)
def test_a_fault_of_a_framework_is_told_before_it_bites(
    uses: tuple[str, ...], marks: tuple[str, ...], pages: list[str]
) -> None:
    state = beside(found(uses=uses, marks=marks))
    assert [one.page for one in collect_advice(state, NOW) if one.about == "resume"] == pages
    assert collect_advice(beside(found(uses=uses, marks=marks, alive=False)), NOW) == ()


def test_every_fault_has_a_page_a_source_and_a_mark_that_the_agent_tells() -> None:
    marks = {mark for fault in FAULTS for mark in (*fault.has, fault.lacks) if mark}
    assert {fault.page for fault in FAULTS} <= set(shipped_pages()) and marks <= set(
        script_look.MARKS
    )
    for fault in FAULTS:
        assert fault.source.startswith("https://") or fault.first, (
            "what no source says is told with its version"
        )
        assert re.fullmatch(r"20\d\d-\d\d", fault.verified) and bool(fault.first) == bool(
            fault.last
        )


@pytest.mark.parametrize(
    ("version", "told"),
    [
        ("2.6.6", "again"),
        ("2.6.6+cpu", "again"),
        ("2.6.5", "again (seen on 2.6.6; unknown for 2.6.5: check it)"),
        ("2.7.0", "again (seen on 2.6.6; unknown for 2.7.0: check it)"),
        ("2.6.6rc1", "again (seen on 2.6.6; which version is here is unknown: check it)"),
        ("", "again (seen on 2.6.6; which version is here is unknown: check it)"),
    ],
)
def test_another_version_than_the_one_tried_is_told_as_not_known(version: str, told: str) -> None:
    ((text, fault),) = faults_of([f"lightning {version}".rstrip()], ("fit", "resume"))
    assert fault.page == "C13" and text.endswith(f"order of epoch 0 {told}")


def test_a_range_holds_both_its_ends_and_every_patch_of_them() -> None:
    known = {
        "1.14.9": False,
        "1.15": True,
        "1.15.3": True,
        "1.16": True,
        "1.16.2": True,
        "1.17": False,
        "2": False,
    }
    assert {version: is_version_in_range(version, "1.15", "1.16") for version in known} == known
    assert (
        not is_version_in_range("main", "1.15", "1.16")
        and not is_version_in_range("1.15", "", "1.16")
        and not is_version_in_range("1.15", "1.15", "")
    )


def test_a_range_is_told_with_both_its_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    wide = next(fault for fault in FAULTS if fault.first)._replace(first="2.1", last="2.6")
    monkeypatch.setattr(run_advice, "FAULTS", (wide,))
    ((text, _),) = faults_of([f"{wide.frameworks[0]} 3.0"], wide.has)
    assert text.endswith("(seen on 2.1 to 2.6; unknown for 3.0: check it)")


def test_batch_norm_without_sync_is_told_where_the_number_of_ranks_changes() -> None:
    def pages(*marks: str) -> list[str | None]:
        one = found(world=2, world_before=8, marks=marks)
        state = beside(one, sample=sample(procs=(rank(2), rank(2, 1))))
        return [told.page for told in collect_advice(state, NOW) if told.about == "batch"]

    assert pages() == ["D11"] == pages("BatchNorm", "SyncBatchNorm")
    assert pages("BatchNorm") == ["D11", "D10"]


def test_a_cache_on_the_system_disk_beside_an_empty_data_disk() -> None:
    root = replace(ROOT, bytes_free=9_000_000_000)
    data = DiskReading(mount="/data", bytes_total=10**12, bytes_used=0, bytes_free=900_000_000_000)
    one = found(cache="/root/.cache/huggingface/hub")
    (text,) = texts(beside(one, sample=sample(root, data)), "cache")
    assert (
        text
        == "Hugging Face's cache is on the system disk (9.0 GB free), /data has 900 GB: HF_HOME=/data/hf"
    )
    for disks in (
        (root,),
        (root, replace(data, read_only=True)),
        (root, replace(data, bytes_free=10**10)),
    ):
        assert texts(beside(one, sample=sample(*disks)), "cache") == []
    assert texts(beside(found(cache="/data/hf"), sample=sample(root, data)), "cache") == []


def rank(world: int, number: int = 0) -> TrainingProcess:
    dist = RankReading(rank=number, world=world, group="a")
    return TrainingProcess(
        pid=7 + number, started=NOW - 900, cmd="python train.py", run="p/train.py", dist=dist
    )


def test_more_workers_than_cores_another_number_of_ranks_and_room_on_the_cards() -> None:
    cpu = CpuReading(usable=4.0)
    many = found(pids=tuple(range(7, 20)))
    (text,) = texts(beside(many, sample=sample(cpu=cpu, procs=(rank(2),))), "workers")
    assert text == "about 12 loader workers share 4 cores: 3 are as fast, and take less memory"
    assert (
        texts(beside(found(pids=(7, 8, 9)), sample=sample(cpu=cpu, procs=(rank(2),))), "workers")
        == []
    )
    (text,) = texts(
        beside(found(world=2, world_before=8), sample=sample(procs=(rank(2), rank(2, 1)))), "batch"
    )
    assert text.startswith("2 ranks now, 8 before: the effective batch is 0.25 times what it was")
    assert (
        texts(beside(found(world=2, world_before=2), sample=sample(procs=(rank(2),))), "batch")
        == []
    )
    for nobody in (0, -3):  # no box has that, and may say so
        assert (
            texts(
                beside(found(world=2, world_before=nobody), sample=sample(procs=(rank(2),))),
                "batch",
            )
            == []
        )
    card = GpuReading(index=0, name="H100", vram_total=80_000_000_000)
    for values, expected in (((30.0,) * 40, 1), ((30.0,) * 10, 0), ((30.0,) * 40 + (90.0,), 0)):
        state = beside(found(), sample=sample(gpus=(card,)), rings=RowSparklines(vram_pct=values))
        assert len(texts(state, "memory")) == expected
