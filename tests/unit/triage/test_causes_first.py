"""What a process says itself comes before what a launcher, scheduler or watchdog says about it."""

from __future__ import annotations

from pathlib import Path

import pytest

from rgt_tui.handbook import PageRole, shipped_pages, triage_file
from rgt_tui.health import diagnose_box
from tests.unit.triage.builders import NOW, box, cell, log, queue

SHAPES = [
    "Traceback (most recent call last):",
    '  File "/workspace/train.py", line 9, in <module>',
    "    main()",
    "RuntimeError: mat1 and mat2 shapes cannot be multiplied (32x300 and 256x10)",
]
MISSING = [*SHAPES[:3], "FileNotFoundError: [Errno 2] No such file or directory: '/data/val.bin'"]
UNKNOWN = [*SHAPES[:3], "OddError: the flux is low"]
SLURM = [
    "srun: error: n12: task 3: Exited with exit code 1",
    "slurmstepd: error: *** STEP 442211.0 ON n11 CANCELLED AT 2026-05-06T10:13:02 ***",
    "slurmstepd: error: Failed to send MESSAGE_TASK_EXIT: Connection refused",
]
ANOTHER_TASK = [
    "F0506 10:13:05.1 4312 client.h:80] Terminating process because the JAX distributed service detected fatal "
    "errors. This most likely indicates that another task died.",
    "Aborted (core dumped)",
]
ACTOR = [
    *SHAPES[:3],
    "ray.exceptions.ActorDiedError: The actor died unexpectedly before finishing this task.",
]
KILLED_BY_LAUNCHER = [
    "E0506 10:13:02.2 551 torch/distributed/elastic/multiprocessing/api.py:869] failed (exitcode: -9) local_rank: 0 "
    "(pid: 561) of binary: /usr/bin/python"
]


def found_in(lines: list[str], path: Path) -> list[str]:
    path.write_text("".join(f"{line}\n" for line in lines))
    return [one.gotcha for one in triage_file(path, shipped_pages())]


@pytest.mark.parametrize(
    ("first", "lines"),
    [
        ("SHP1", SHAPES + SLURM),
        ("SHP1", SLURM + SHAPES),
        ("PATH1", MISSING + ANOTHER_TASK),
        ("PATH1", ACTOR + MISSING),
        ("SHP1", KILLED_BY_LAUNCHER + SHAPES),
        ("PY1", UNKNOWN + SLURM),
        (
            "PATH1",
            ["curl: (7) Failed to connect to 10.0.0.1 port 80: Connection refused", *MISSING],
        ),
        ("D20", ANOTHER_TASK),
        ("PROC1", ACTOR),
        ("U9", KILLED_BY_LAUNCHER + UNKNOWN),
    ],
)
def test_a_cause_comes_first_live_and_from_a_file(
    first: str, lines: list[str], tmp_path: Path
) -> None:
    assert found_in(lines, tmp_path / "train.log")[0] == first
    sick = box(sample=None, queues=(queue(cell(state="failed", exit_code=1)),), logs=(log(*lines),))
    assert diagnose_box(sick, NOW, ())[0].gotcha == first


def test_what_only_follows_is_left_out_beside_a_cause(tmp_path: Path) -> None:
    assert found_in(SHAPES + SLURM + ANOTHER_TASK, tmp_path / "train.log") == ["SHP1"]


def test_pages_that_cover_a_whole_kind_have_that_role() -> None:
    pages = shipped_pages()
    general = {"CFG1", "NET1", "MON1", "SEG1", "COL1"}
    assert {pages[id_].role for id_ in general} == {PageRole.CATCH_ALL}
    assert {pages[id_].role for id_ in ("PY1", "API1")} == {PageRole.UNKNOWN}


NOT_FOUND = "FileNotFoundError: [Errno 2] No such file or directory"


def test_a_name_in_shared_memory_is_no_path(tmp_path: Path) -> None:
    raised = "FileExistsError: [Errno 17] File exists: '/000000_epoch_shape'"
    shared = [
        SHAPES[0],
        '  File "/usr/lib/python3.11/multiprocessing/shared_memory.py", line 104, in __init__',
        "    self._fd = _posixshmem.shm_open(",
        "               ^^^^^^^^^^^^^^^^^^^^^",
        raised,
    ]
    path = [*SHAPES[:2], '    os.makedirs("/000000_epoch_shape")', raised]
    gone = [line.replace("FileExistsError: [Errno 17] File exists", NOT_FOUND) for line in shared]
    missing = [line.replace("FileExistsError: [Errno 17] File exists", NOT_FOUND) for line in path]
    for expected, lines in (
        ("LOCK1", shared),
        ("SHM1", gone),
        ("PATH1", path),
        ("PATH1", missing),
    ):
        assert found_in(lines, tmp_path / "train.log") == [expected]
        sick = box(
            sample=None, queues=(queue(cell(state="failed", exit_code=1)),), logs=(log(*lines),)
        )
        assert [one.gotcha for one in diagnose_box(sick, NOW, ())] == [expected]


FOLDED = (
    "The replica master 0 exited with a non-zero status of 1. Termination reason: Error. "
    'Traceback (most recent call last): File "/app/train.py", line 174, in <module> main() '
    'File "/app/net.py", line 17, in f run() RuntimeError: {} To find out more, read the log'
)


@pytest.mark.parametrize(
    ("first", "lines"),
    [
        ("PY1", [FOLDED.format("the flux is low")]),
        ("SHP1", [FOLDED.format("mat1 and mat2 shapes cannot be multiplied (3x4 and 5x6)")]),
        # What is named within a traceback stands before the exception that ends it.
        (
            "C6",
            [
                "2026-05-06 10:13:02,1 - tool - INFO - [rank7]: x.CheckpointException: CheckpointException ranks:[0]",
                "2026-05-06 10:13:02,2 - tool - INFO - [rank7]: Traceback (most recent call last): (RANK 0)",
                *['2026-05-06 10:13:02,3 - tool - INFO - [rank7]:   File "/app/u.py", line 192, in f'] * 12,
                "2026-05-06 10:13:02,8 - tool - INFO - [rank7]: AssertionError",
            ],
        ),
        # Who only misses another process points to it.
        ("D20", ["coordination_service.cc:954] Task 37 heartbeat timeout.", "Aborted (core dumped)"]),
        ("SEG1", ["run.sh: line 2: 9 Segmentation fault  (core dumped) python x.py",
                  "head: cannot open '/exp/best.txt' for reading: No such file or directory"]),
        ("DP15", ["Bus error (core dumped)"]),
    ],
)  # fmt: skip
def test_a_line_that_names_the_cause_stands_first(
    first: str, lines: list[str], tmp_path: Path
) -> None:
    assert found_in(lines, tmp_path / "x.log")[0] == first


def test_a_script_that_fails_to_parse_after_a_while_was_edited_under_the_run(
    tmp_path: Path,
) -> None:
    path = tmp_path / "queue.log"
    path.write_text(
        "START cell-3\nstep 100 loss 0.5\n"
        "run_queue.sh: line 83: syntax error near unexpected token `fi'\n"
        "run_queue.sh: line 83: `  fi'\n"
    )
    (found,) = triage_file(path, shipped_pages())
    assert found.gotcha == "SYN1"
    assert any("edited or copied over while it ran (U2)" in step.text for step in found.fix)
