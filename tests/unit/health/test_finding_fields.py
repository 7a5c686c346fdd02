"""What every finding carries: its page, how sure, which line of which log or which reading, and what to do now."""

from __future__ import annotations

import msgspec
import pytest

from rgt_tui.fleet import extend_log
from rgt_tui.handbook import ACTION_WORDS, AdvisedAction, shipped_pages
from rgt_tui.health import diagnose_box
from rgt_tui.model import (
    BoxEvent,
    BoxState,
    Finding,
    GpuReading,
    LogLines,
    LogView,
    MemoryReading,
    RunResume,
    Series,
    TrainingProcess,
)
from rgt_tui.ui.widgets import action_lines, finding_lines, text_of, width_of
from tests.unit.triage.builders import (
    DATA,
    FULL,
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
ENOSPC = "OSError: [Errno 28] No space left on device: '/workspace/runs/lstm-b/.tmp-00812'"
OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."
BIG = replace(DATA, bytes_used=19_900_000_000, bytes_free=100_000_000)


def failed(*lines: str, **over: object) -> BoxState:
    return box(queues=(queue(cell(state="failed", exit_code=1)),), logs=(log(*lines),), **over)


def lr_anew() -> BoxState:
    losses = [1.0] * 60
    rates = Series().with_points([(i, 1e-4 if i < 30 else 1e-3) for i in range(60)])
    made = run(losses=losses, step=59, resumes=(RunResume(step=29, reason="killed", index=30),))
    return box(runs=(replace(made, series={**made.series, "lr": rates}),))


BOXES = {
    "line": failed("a", OOM),
    "general": failed("ModuleNotFoundError: No module named 'einops'"),
    "killed": failed("./run.sh: line 9:  4242 Killed                  python train.py"),
    "full by line": failed(ENOSPC, sample=sample(FULL)),
    "full, unknown": failed(ENOSPC, sample=None),
    "full by reading": box(sample=sample(FULL)),
    "preempted": box(queues=(queue(cell(state="interrupted", exit_code=75), runner_alive=False),)),
    "137": box(
        queues=(queue(cell(state="failed", exit_code=137), runner_alive=False),),
        sample=sample(mem=MemoryReading(oom_kills=2)),
        events=(BoxEvent(boot="b", seq=1, at=NOW - 20, kind="oom-kill", text="killed 7"),),
    ),
    "nan": box(runs=(run(losses=[1.0, float("nan")]),)),
    "card": box(sample=sample(gpus=(GpuReading(index=0, name="H100", error="GPU is lost"),))),
    "curve": lr_anew(),
}


@pytest.mark.parametrize("state", BOXES.values(), ids=list(BOXES))
def test_a_finding_says_all_of_it(state: BoxState) -> None:
    found = diagnose_box(state, NOW, ())
    assert found
    for one in found:
        assert one.gotcha in shipped_pages() and one.title and one.resource and one.severity
        assert one.confidence is not None and 0.0 < one.confidence < 1.0
        assert one.action in set(AdvisedAction) and ACTION_WORDS[AdvisedAction(one.action)]
        assert one.evidence and one.where and one.fixes and one.never
        text = text_of(action_lines(one, 76)[0])
        assert (
            text.startswith(f"do     {ACTION_WORDS[AdvisedAction(one.action)]}")
            and "% sure" in text
        )


def the(state: BoxState) -> Finding:
    (one,) = diagnose_box(state, NOW, ())
    return one


def test_the_line_has_its_number_where_the_log_was_followed_from_its_beginning() -> None:
    frames = [
        LogLines(path=LOG, inode=1, start=0, end=90, lines=("a", "10%\r20%\r30%", OOM)),
        LogLines(path=LOG, inode=1, start=900, end=990, lines=("b",), skipped=40),
    ]
    view: LogView | None = None
    for frame in frames:
        view = extend_log(view, frame, NOW)
    assert view is not None
    numbers = []
    for lines, dropped in (
        (view.lines[:3], 0),
        (view.lines[1:3], 1),
        ((*["x"] * 90, *view.lines[:3]), 0),
    ):
        seen = replace(view, lines=lines, dropped=dropped)
        numbers.append(the(box(queues=(queue(cell(state="failed")),), logs=(seen,))).line_no)
    assert numbers == [3, 3, 93]
    later = extend_log(None, replace(frames[0], start=4096), NOW)
    assert the(box(queues=(queue(cell(state="failed")),), logs=(later,))).line_no is None, (
        "nobody counted"
    )
    again = extend_log(later, replace(frames[0], reset=True), NOW)
    assert the(box(queues=(queue(cell(state="failed")),), logs=(again,))).line_no == 3


def test_how_sure_follows_from_what_proves_it() -> None:
    assert the(BOXES["line"]).confidence == 0.7, "a more exact page may explain it away"
    assert the(BOXES["killed"]).gotcha == "U3"
    counted = replace(BOXES["killed"], sample=sample(mem=MemoryReading(oom_kills=1)))
    assert (the(counted).gotcha, the(counted).confidence) == ("U9", 0.95)
    unread = the(BOXES["full, unknown"])
    assert unread.confidence == 0.7 and the(BOXES["full by line"]).confidence == 0.95


LAUNCH = "python /opt/conda/bin/accelerate launch train.py"


@pytest.mark.parametrize(
    ("command", "second", "minutes", "there"),
    [
        (LAUNCH, 0, 30, True),
        ("accelerate-launch train.py", 0, 30, True),
        (LAUNCH.replace("launch", "launch --num_processes 1"), 0, 30, False),
        ("torchrun train.py", 0, 30, False),
        (LAUNCH, 20 << 30, 30, False),
        (LAUNCH, 0, 2, False),
    ],
)
def test_accelerate_on_one_of_two_gpus_is_named(
    command: str, second: int, minutes: int, there: bool
) -> None:
    began = NOW - 60 * minutes
    cards = tuple(
        GpuReading(index=i, name="A100", util=util, vram_used=used, vram_total=80 << 30)
        for i, (util, used) in enumerate([(97.0, 60 << 30), (0.0, second)])
    )
    procs = (
        TrainingProcess(pid=7, started=began, cmd=command, run="lstm-b"),
        TrainingProcess(pid=8, started=began, cmd="python train.py", ppid=7, run="lstm-b"),
    )
    found = diagnose_box(box(sample=sample(gpus=cards, procs=procs)), NOW, ())
    assert [one.gotcha for one in found] == (["D5"] if there else [])
    for one in found:
        assert one.run == "lstm-b" and one.fixes
        assert one.evidence == f"GPU 0 alone is busy, 1 GPU unused: {command}"


@pytest.mark.parametrize(
    ("profile", "price"),
    [
        (
            "runpod",
            "volume-disk: chosen at creation; it can only grow; 50 GB more: $5.00 a month, $0.10",
        ),
        (
            "vastai",
            "container-disk: fixed at creation (10 GB by default), never resized; price unknown",
        ),
        ("local", ""),
    ],
)
def test_enlarging_a_full_disk_is_offered_with_its_price(profile: str, price: str) -> None:
    full = sample(replace(DATA, bytes_used=20_000_000_000, bytes_free=0))
    state = failed(ENOSPC, sample=full)
    state = replace(state, spec=replace(state.spec, profile=profile))
    texts = [fix.text for fix in the(state).fixes if "Enlarging" in fix.text]
    assert len(texts) == bool(price)
    assert all(text.startswith(f"Enlarging it is your decision. {price}") for text in texts)


def test_a_disk_that_checkpoints_fill_is_to_be_enlarged() -> None:
    kept = checkpoints(600, 640, size=6_000_000_000)
    assert the(failed(ENOSPC, sample=sample(BIG), checkpoints=(kept,))).action == "enlarge-disk"
    assert the(failed(ENOSPC, sample=sample(BIG))).action == "free-space"
    assert the(failed(ENOSPC, sample=sample(FULL), checkpoints=(kept,))).action == "free-space", (
        "inodes"
    )


@pytest.mark.parametrize("width", [30, 48, 76, 120])
def test_what_to_do_is_never_cut_and_its_place_gives_way(width: int) -> None:
    one = replace(the(BOXES["line"]), line_no=1203, confidence=0.95)
    made = action_lines(one, width)
    text = " ".join(text_of(row).removeprefix("do").strip() for row in made)
    assert " ".join(text.split()).startswith("fix the code or config first") and all(
        width_of(row) <= width for row in made
    )
    assert "95% sure" in text and ("lstm-b.log:1203" in text) == (width >= 76)
    assert not any(
        text_of(row)[:3] == "do " for row in finding_lines(replace(one, cleared=True), width, NOW)
    )
