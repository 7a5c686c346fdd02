"""One judge, two feeds: a log that comes from a box line by line shows what the same lines show as a file."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from msgspec.structs import replace

from rgt_tui.fleet import events_between, extend_log
from rgt_tui.handbook import shipped_pages, triage_file
from rgt_tui.health import (
    SEARCH_LIMITS,
    STORAGE_IDS,
    AlertState,
    alerts_to_show,
    diagnose_box,
    judge_without_history,
    step_alerts,
)
from rgt_tui.health.lognotes import _MARKS
from rgt_tui.model import (
    BoxState,
    Finding,
    FoundRun,
    LogLines,
    LogView,
    QueueState,
    RunState,
    clean_text,
)
from rgt_tui.ui.screens import findings_of
from tests.unit.handbook.test_line_search import CASES, ENDED
from tests.unit.triage.builders import DATA, LOG, NOW, box, cell, queue, run, sample

RUN_PAGES = {id_: page for id_, page in shipped_pages().items() if not page.terminal_only}
"""The log of a run is not searched for what shows in a terminal of one's own alone."""
Shown = tuple[str, float | None, str, str, int | None]


def with_log(state: str, *views: LogView | None) -> BoxState:
    """Return a box whose only cell writes the log, without readings."""
    running = queue(cell(state=state, exit_code=None if state == "running" else 1))
    return box(
        sample=None,
        queues=(running,),
        runs=(),
        checkpoints=(),
        logs=tuple(view for view in views if view),
    )


def as_live(lines: list[str], rng: random.Random) -> tuple[Finding, ...]:
    """Follow a log as it is written: in frames of any size, lines cut in two, each looked at; then its run fails."""
    view: LogView | None = None
    found: tuple[Finding, ...] = ()
    at = 0
    while at < len(lines):
        count = rng.choice((1, 3, 10, 40))
        part, at = lines[at : at + count], at + count
        cut = (
            lines[at][: rng.randrange(len(lines[at]) + 1)]
            if at < len(lines) and rng.random() < 0.3
            else None
        )
        frame = LogLines(path=LOG, inode=1, start=0, end=0, lines=tuple(part), partial=cut)
        view = extend_log(view, frame, NOW)
        found = diagnose_box(with_log("running", view), NOW, found)
    return diagnose_box(with_log("failed", view), NOW, found)


def as_file(lines: list[str], path: Path) -> list[Shown]:
    """Judge the lines that the live look has, as a file."""
    path.write_text(
        "".join(f"{line}\n" for line in lines[-SEARCH_LIMITS.window :]), errors="surrogateescape"
    )
    before = max(0, len(lines) - SEARCH_LIMITS.window)
    return [
        (one.gotcha, one.confidence, one.action, one.line, one.line_no + before)
        for one in triage_file(path, RUN_PAGES)
    ]


def shown(findings: tuple[Finding, ...]) -> list[Shown]:
    return [(one.gotcha, one.confidence, one.action, one.evidence, one.line_no) for one in findings]


def without_lines_of_full_disks(found: list[Shown]) -> list[Shown]:
    """Of several lines that say that a disk is full the live look takes the newest that names the file."""
    return [one if one[0] not in STORAGE_IDS else (*one[:3], "", None) for one in found]


@pytest.mark.parametrize("part", range(40))
def test_a_log_shows_the_same_first_live_as_from_a_file(part: int, tmp_path: Path) -> None:
    rng = random.Random(part)
    different = []
    for case in CASES[part::40]:
        lines = [clean_text(line) for line in case["log"].rstrip("\n").split("\n")]
        live, file = shown(as_live(lines, rng)), as_file(lines, tmp_path / "train.log")
        if without_lines_of_full_disks(live) != without_lines_of_full_disks(file):
            different.append((case["case"], live, file))
    assert not different


BEGINS = [
    [clean_text(line) for line in case["log"].rstrip("\n").split("\n")][:25] for case in CASES
]
BEGINS_ANEW = (_MARKS[0], *_MARKS[2:])
CALM = [
    lines
    for case, lines in zip(CASES, BEGINS, strict=True)
    if case["expected"] != "U33"
    and not any(mark.search(line) for line in lines for mark in BEGINS_ANEW)
]
"""Logs that tell of no save and no resume: what stands before those is over for the live look. Nor of a copy that fails
and is reported as done: to the live look only what is reported at once tells of the same full disk."""


def mixed(rng: random.Random) -> list[str]:
    """Return a log in which one rank or three tell of several failures, with steps between them."""
    ranks = rng.choice((1, 1, 3))
    own = [
        [
            f"[rank{rank}]: {line}" if ranks > 1 else line
            for lines in rng.sample(CALM, rng.choice((1, 2, 3)))
            for line in (
                *lines,
                *(f"step {step} loss 0.{step}" for step in range(rng.randrange(6))),
            )
        ]
        for rank in range(ranks)
    ]
    log: list[str] = []
    while waiting := [lines for lines in own if lines]:
        lines = rng.choice(waiting)
        count = rng.randrange(1, 4)
        log += lines[:count]
        del lines[:count]
    return log


@pytest.mark.parametrize("seed", range(25))
def test_so_does_a_log_of_several_failures_and_ranks(seed: int, tmp_path: Path) -> None:
    rng = random.Random(seed)
    lines = mixed(rng)
    live, file = shown(as_live(lines, rng)), as_file(lines, tmp_path / "train.log")
    # A disk stays full for the live look until the run has saved, also when the line that says so is out of its window.
    gone = len(lines) - SEARCH_LIMITS.window
    live = [
        one for one in live if not (one[0] in STORAGE_IDS and one[4] is not None and one[4] <= gone)
    ]
    assert without_lines_of_full_disks(live) == without_lines_of_full_disks(file)


UNKNOWN = [*ENDED.splitlines(), "ValueError: depth must be positive"]
RETRIED = [
    "curl: (7) Failed to connect to 10.0.0.7 port 443 after 2 ms: Connection refused",
    "fetched, exit code 0",
]


STEPS = [f"Iter {n}: cost {9.0 / n:.3f}" for n in range(1, 9)]
"""Of a program whose progress rgt does not know."""


@pytest.mark.parametrize(
    ("page", "said"),
    [
        ("U10", "FATAL tower.cc:88 GPU allocator: could not allocate 812 MB"),
        ("ILL1", "terminate called: hip stream error, misaligned address"),
        ("U28", "Check failed: e == cudaSuccess (48 vs. 0)  no kernel image for this device"),
        ("DNN1", "Error: could not create a handle of rocBLAS"),
        ("DEV1", "[fatal] assertion a.context() == b.context() failed: gpu(1) and cpu(0)"),
        ("IMG1", "Fatal: cannot decode the picture scans/0042.webp"),
        ("AUTH1", "upload failed (403): signature rejected, the secret key is unknown"),
        ("SEG1", "malloc_consolidate(): invalid chunk size"),
        ("COMP1", "Internal compiler error while lowering the module"),
        ("PATH1", "Error: folder 'frames/left' does not exist"),
        ("CUT1", "Fatal: archive part-3.tar is truncated"),
        ("CAP1", "Error: the region has not enough instances of that size"),
        ("SCREEN1", "Fatal: failed to open a GL context"),
        ("LOCK1", "Error: could not lock the file runs.db"),
    ],
)
def test_where_no_line_names_a_cause_the_words_of_failures_at_the_end_do(
    page: str, said: str, tmp_path: Path
) -> None:
    lines = [*STEPS, said, "    @ 0x7f21 main", "done waiting"]
    live, file = shown(as_live(lines, random.Random(2))), as_file(lines, tmp_path / "train.log")
    assert [one[0] for one in file][:1] == [page]
    assert file[0][1] == 0.7  # wide words are less certain than a pattern
    assert (file[0][3], file[0][4]) == (said, len(STEPS) + 1)
    assert live == file


@pytest.mark.parametrize(
    "lines",
    [
        [*STEPS, "warning: could not allocate 812 MB on the GPU, using less"],
        [*STEPS, "GPU memory allocation: 812 MB", "image 0042.webp: truncated to 512 px"],
        [*STEPS, "found 900 images, 0 corrupt, no missing files"],
        ["shard 7 is corrupt", *(f"step {n} loss 0.{n}" for n in (1, 2))],
        ["Fatal: archive part-3.tar is truncated", *["next, please"] * 90],
        [
            line
            for n in (1, 2, 3)
            for line in (f"step {n} loss 0.{n}", f"mixer.c:{n}: cannot find the file")
        ],
    ],
    ids=[
        "a warning",
        "no failure",
        "none of them",
        "before progress",
        "far from the end",
        "survived",
    ],
)
def test_such_words_say_nothing_elsewhere(lines: list[str], tmp_path: Path) -> None:
    path = tmp_path / "train.log"
    path.write_text("".join(f"{line}\n" for line in lines))
    assert triage_file(path, RUN_PAGES) == []


def test_nor_behind_a_line_that_names_the_cause(tmp_path: Path) -> None:
    lines = [
        *STEPS,
        "OSError: [Errno 28] No space left on device",
        "Fatal: archive a.tar is truncated",
    ]
    assert [one[0] for one in as_file(lines, tmp_path / "train.log")] == ["U7"]


@pytest.mark.parametrize("before", ["", "[rank3]: "])
def test_what_an_unknown_exception_is_probably_about_comes_first(
    before: str,
) -> None:
    found = as_live([f"{before}{line}" for line in UNKNOWN], random.Random(1))
    assert [(one.gotcha, one.guess, one.confidence) for one in found] == [
        ("CFG1", True, 0.5),
        ("PY1", False, 0.5),
    ]
    assert {one.evidence for one in found} == {before + UNKNOWN[-1]}


def test_a_guess_is_no_alert_of_its_own_and_the_margin_names_what_stands_first() -> None:
    view = extend_log(None, LogLines(path=LOG, inode=1, start=0, end=0, lines=tuple(UNKNOWN)), NOW)
    state = with_log("failed", view)
    state = replace(state, findings=diagnose_box(state, NOW, ()))
    assert [
        alert.word for alert in judge_without_history(state, NOW)[1] if alert.kind == "finding"
    ] == ["PY1"]
    assert findings_of(state) == {UNKNOWN[-1]: "PY1"}
    told = [event.text for event in events_between(with_log("failed", view), state, NOW)]
    assert [text.split()[0] for text in told] == ["PY1"]


def test_what_was_tried_again_with_success_is_no_finding() -> None:
    assert [one.gotcha for one in as_live(RETRIED[:1], random.Random(1))] == ["NET1"]
    assert as_live(RETRIED, random.Random(1)) == ()


def test_a_quoted_failure_in_a_comment_is_none() -> None:
    assert (
        as_live(["# torch.OutOfMemoryError: CUDA out of memory. Tried 2 GiB"], random.Random(1))
        == ()
    )


def test_another_run_s_failure_does_not_hide_that_of_a_run() -> None:
    """Of one run, what broke in one log explains the timeout in another; of two runs each tells its own."""
    oom = ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB",)
    late = (
        "Watchdog caught collective operation timeout: WorkNCCL(SeqNum=9) ran for 600 milliseconds",
    )
    failed = queue(*(cell(name, state="failed", exit_code=1) for name in ("a", "b")))

    def of(*logs: tuple[str, tuple[str, ...]]) -> list[tuple[str, str | None]]:
        views = tuple(LogView(path=path, lines=lines, at=NOW) for path, lines in logs)
        sick = box(sample=None, queues=(failed,), runs=(), checkpoints=(), logs=views)
        return [(one.gotcha, one.run) for one in diagnose_box(sick, NOW, ())]

    ranks = [f"/workspace/runs/a/rank{rank}.log" for rank in (0, 1)]
    assert of((ranks[0], late), (ranks[1], oom)) == [("U10", "a")]
    assert of((ranks[0], late), ("/root/job/logs/b.log", oom)) == [("MN3", "a"), ("U10", "b")]


OUT_OF_MEMORY = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB"


def found(name: str, log: str, *more: str) -> FoundRun:
    return FoundRun(
        name=name, pid=9, started=NOW - 60, command="python train.py", log=log, logs=(log, *more)
    )


def of_found(
    queues: tuple[QueueState, ...], runs: tuple[RunState, ...], *given: tuple[FoundRun, str]
) -> list[tuple[str, str | None, str]]:
    views = tuple(LogView(path=one.log or "", lines=(line,), at=NOW) for one, line in given)
    sick = box(
        sample=None,
        queues=queues,
        runs=runs,
        checkpoints=(),
        logs=views,
        found=tuple(one for one, _ in given),
    )
    return sorted((one.gotcha, one.run, one.where) for one in diagnose_box(sick, NOW, ()))


@pytest.mark.parametrize("queues", [(), (queue(cell(state="done", exit_code=0)),)])
def test_what_a_found_training_s_log_shows_is_that_training_s(
    queues: tuple[QueueState, ...],
) -> None:
    """Two of them fail in two ways, and neither hides the other; an old queue on the box hides none."""
    one, two = (
        (found("a/train", "/a/train.log"), OUT_OF_MEMORY),
        (found("b/train", "tmux:%1"), OUT_OF_MEMORY),
    )
    assert of_found(queues, (), one, two) == [
        ("U10", "a/train", "/a/train.log"),
        ("U10", "b/train", "tmux:%1"),
    ]


def test_a_loss_that_is_none_is_told_once_where_log_and_curve_show_it() -> None:
    one = (found("a/train", "/a/train.log"), "{'loss': nan, 'grad_norm': 1.2, 'epoch': 0.21}")
    bad = run("a/train", losses=[1.0, float("nan")])
    assert of_found((), (bad,), one) == [("P8", "a/train", "/a/train.log")]


def test_full_disks_of_two_found_trainings_are_kept_apart() -> None:
    line = "OSError: [Errno 28] No space left on device: '/{}/x.pt'"
    given = [
        (found(f"{name}/train", f"/{name}/train.log"), line.format(name))
        for name in ("root", "data")
    ]
    disks = tuple(replace(DATA, mount=f"/{name}", bytes_free=0) for name in ("root", "data"))
    views = tuple(LogView(path=one.log or "", lines=(text,), at=NOW) for one, text in given)
    state = box(
        sample=sample(*disks),
        queues=(),
        runs=(),
        checkpoints=(),
        logs=views,
        found=tuple(o for o, _ in given),
    )
    first = diagnose_box(state, NOW, ())
    assert {one.run: one.resource for one in diagnose_box(state, NOW + 1, first)} == {
        "root/train": "bytes of /root",
        "data/train": "bytes of /data",
    }


def test_the_row_of_a_box_names_what_its_log_shows_first() -> None:
    """Whichever of them was seen first: of findings of one level the order is that of the judge."""
    lines = (
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB",
        "RuntimeError: mat1 and mat2 shapes cannot be multiplied (32x300 and 256x10)",
    )
    state, book = with_log("running"), AlertState()
    words = []
    for until in (1, 2):
        seen = with_log("failed", LogView(path=LOG, lines=lines[:until], at=NOW))
        state = replace(seen, findings=diagnose_box(seen, NOW, state.findings))
        book = step_alerts(book, state, NOW).book
        words.append(
            [
                alert.word
                for alert in alerts_to_show(book, state.findings)
                if alert.kind == "finding"
            ]
        )
    assert words == [["memory"], ["SHP1", "memory"]]
