"""What the run has outlived, what Python ignored, and what is only quoted is no failure."""

from __future__ import annotations

from pathlib import Path

import pytest

from rgt_tui.handbook import FileFinding, shipped_pages, triage_file
from rgt_tui.health import diagnose_box
from tests.unit.triage.builders import NOW, box, cell, log, queue


def steps(first: int, last: int) -> list[str]:
    return [f"step {n}/5000 | loss {3 - n / 3000:.4f} | lr 3.0e-4" for n in range(first, last, 10)]


def bar(first: int, last: int) -> str:
    return "\r".join(
        f" {n // 20}%|██ | {n}/2000 [00:{n % 60:02d}<12:10, loss={2 - n / 2000:.3f}]"
        for n in range(first, last, 10)
    )


TRACE = [
    "Traceback (most recent call last):",
    '  File "/workspace/train.py", line 9, in run',
    "    f()",
]
MEMORY = [*TRACE, "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.50 GiB."]
FULL = [*TRACE, "OSError: [Errno 28] No space left on device"]
IGNORED = [
    "Exception ignored in: <function _MultiProcessingDataLoaderIter.__del__ at 0x7f6d5cf914c0>",
    *TRACE,
    "AssertionError: can only test a child process",
]
HEALTHY = {
    "ignored in the middle": [*steps(0, 100), *IGNORED, *steps(100, 130)],
    "ignored at the end": [*steps(0, 100), "Training done.", *IGNORED],
    "ignored within a bar": [bar(0, 300) + IGNORED[0], *IGNORED[1:], bar(300, 400)],
    "trace of the shell": [
        "+ grep -cE 'Traceback|No space left on device|CUDA out of memory' train.log",
        "0",
        "+ trap 'echo \"Segmentation fault (core dumped)\"' SEGV",
    ],
    "a search at a prompt": ["root@box:~# dmesg | grep -iE 'Out of memory: Killed process'", "0"],
    "code": ["$ cat train.py", '    raise RuntimeError("CUDA out of memory")', "x = 1"],
    "settings": ["retry:", '  - "NCCL timeout in: "', "  oom_text: 'CUDA out of memory.'"],
    "caught": [*steps(0, 100), "batch skipped", *MEMORY, *steps(100, 200)],
    "caught, with a bar": [*MEMORY, bar(0, 300)],
    "tried again": ["trying 32", *MEMORY, "trying 16", *steps(0, 200)],
    "many steps later": [*MEMORY, *steps(0, 5000)],
    "a monitor's warning": [*steps(0, 50), "[monitor] WARNING: risk of CUDA out of memory", *steps(50, 99)],
    "saved again": [*steps(0, 50), *FULL, *steps(50, 90), "checkpoint saved: step 90", *steps(90, 200)],
    "queued again": [
        *steps(0, 100),
        "slurmstepd: error: *** JOB 4 ON n1 CANCELLED AT 2026-05-06T10:13:02 DUE TO PREEMPTION ***",
        "Resuming from step 90",
        *steps(90, 200),
    ],
}  # fmt: skip
FATAL = {
    "held back in a buffer": ("U10", [*MEMORY, *steps(0, 60), "exit status 1"]),
    "the same again at the end": ("U10", [*steps(0, 90), *MEMORY, *steps(90, 200), *MEMORY]),
    "not saved since": ("U7", [*steps(0, 90), *FULL, *steps(90, 200)]),
    "written at exit": (
        "U7",
        ["Exception ignored in: <_io.TextIOWrapper name='<stdout>'>", "OSError: [Errno 28] No space left on device"],
    ),
    "a tracker's summary behind it": (
        "U10",
        [
            bar(0, 300), *MEMORY, "wandb: Run summary:",
            *(f"wandb: {name}/loss 1.23" for name in ("train", "eval", "test", "aux")),
        ],
    ),
    "another one at the end": ("U10", [bar(0, 300), *FULL[:3], "ValueError: x y", bar(300, 400), *MEMORY]),
}  # fmt: skip


def found_in(lines: list[str], path: Path) -> list[str]:
    path.write_text("".join(f"{line}\n" for line in lines))
    return [one.gotcha for one in triage_file(path, shipped_pages())]


@pytest.mark.parametrize("name", HEALTHY)
def test_a_healthy_log_shows_nothing(name: str, tmp_path: Path) -> None:
    assert found_in(HEALTHY[name], tmp_path / "train.log") == []


@pytest.mark.parametrize("name", FATAL)
def test_what_ended_the_run_is_shown(name: str, tmp_path: Path) -> None:
    first, lines = FATAL[name]
    assert found_in(lines, tmp_path / "train.log")[:1] == [first]


@pytest.mark.parametrize("name", ["ignored at the end", "caught", "settings", "tried again"])
def test_the_same_holds_on_a_box(name: str) -> None:
    sick = box(
        queues=(queue(cell(state="failed", exit_code=1)),),
        runs=(),
        checkpoints=(),
        logs=(log(*HEALTHY[name]),),
    )
    assert diagnose_box(sick, NOW, ()) == ()


@pytest.mark.parametrize(
    ("first", "more", "trials"),
    [
        (MEMORY, [f"[I 2026-05-06 10:1{n}:00,1] Trial {n} finished with value: 0.{n}." for n in range(4)], 4),
        ([MEMORY[-1]], [f'{{"loss": "{n}.1"}}' for n in range(5)], 5),
        (MEMORY, [f"[train: 35, {n}50 / 1000] FPS: 5 , Loss/total: 3.{n}" for n in range(300)], 300),
    ],
    ids=["trials", "quoted", "slashed"],
)  # fmt: skip
def test_what_the_run_has_outlived_is_listed_as_overcome(
    first: list[str], more: list[str], trials: int, tmp_path: Path
) -> None:
    (tmp_path / "x.log").write_text("\n".join([*steps(0, 20), *first, *more]) + "\n")
    overcome: list[FileFinding] = []
    assert triage_file(tmp_path / "x.log", shipped_pages(), overcome=overcome) == []
    (one,) = overcome
    assert (one.gotcha, one.line_no, one.steps_behind) == ("U10", 2 + len(first), trials)


def test_what_counts_still_is_not_listed_as_overcome(tmp_path: Path) -> None:
    (tmp_path / "x.log").write_text("\n".join([*MEMORY, *steps(0, 400), *MEMORY]) + "\n")
    overcome: list[FileFinding] = []
    found = triage_file(tmp_path / "x.log", shipped_pages(), overcome=overcome)
    assert [one.gotcha for one in found] == ["U10"] and overcome == []
