"""A reader that stops understanding a log that still grows makes the step unknown, never the run stuck."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import msgspec
from rgt_box.metrics import ConsoleReader, SourceFinder
from rgt_box.streams.curve_followers import FoundScalars

from rgt_tui.fleet import apply_frame, fold_points
from rgt_tui.health import Assessment, assess_box
from rgt_tui.model import BoxHealth, RunState, Scalars
from tests.unit.triage.builders import NOW, box, cell, queue, run

STEP = "iter {}: loss 1.5, time 1.0ms\n"
STRANGE = "iter one thousand and {}: loss=*1.{}*\n"


def alerts(found: Assessment) -> list[tuple[str, str]]:
    return [(alert.id, alert.level) for alert in found.alerts]


def write_lines(path: Path, line: str, first: int, last: int) -> None:
    with path.open("a") as file:
        file.writelines(line.format(n, n) for n in range(first, last))


def poll(follower: FoundScalars) -> list[dict[str, Any]]:
    follower.rescan_soon()
    follower._due = 0.0
    return follower.poll()


def follow_directory(folder: Path) -> FoundScalars:
    finder = SourceFinder(str(folder), clock=lambda: 0.0)
    return FoundScalars("r", str(folder), None, {}, finder)


def follow(tmp_path: Path) -> tuple[FoundScalars, Path]:
    path = tmp_path / "train.log"
    write_lines(path, STEP, 1, 10)
    return follow_directory(tmp_path), path


def test_lines_of_progress_without_a_step_are_counted_until_a_step_comes(tmp_path: Path) -> None:
    _, path = follow(tmp_path)
    write_lines(path, STRANGE, 1, 5)
    batch = ConsoleReader(str(path)).read()
    assert batch.cursor is not None
    assert batch.cursor["unread"] == 4
    write_lines(path, STEP, 10, 11)
    batch = ConsoleReader(str(path)).read(batch.cursor)
    assert batch.cursor is not None
    assert "unread" not in batch.cursor
    write_lines(path, "NCCL watchdog: {} waits for the other ranks\n", 1, 9)
    batch = ConsoleReader(str(path)).read(batch.cursor)
    assert batch.cursor is not None
    assert "unread" not in batch.cursor, "a log of complaints is no progress"


def test_the_client_is_told_when_such_a_log_last_grew(tmp_path: Path) -> None:
    follower, path = follow(tmp_path)
    state = RunState("r")
    for frame in poll(follower):
        state = fold_points(state, msgspec.convert(frame, Scalars), NOW, 0.0)
    assert (state.step, state.unread_at) == (9, None)
    assert poll(follower) == []
    write_lines(path, STRANGE, 1, 9)
    os.utime(path, (NOW - 3, NOW - 3))
    (frame,) = poll(follower)
    assert (frame["points"], frame["unread"]) == ([], NOW - 3)
    lost = fold_points(state, msgspec.convert(frame, Scalars), NOW, 0.0)
    assert (lost.step, lost.unread_at, lost.series["loss"]) == (9, NOW - 3, state.series["loss"])
    assert poll(follower) == [], "nothing new, nothing to tell"
    write_lines(path, STEP, 10, 12)
    for frame in poll(follower):
        lost = fold_points(lost, msgspec.convert(frame, Scalars), NOW, 0.0)
    assert (lost.step, lost.unread_at) == (11, None)


def test_a_run_whose_log_is_not_understood_is_not_stuck() -> None:
    late = run(progressed_at=NOW - 2000)
    assert ("stalled:lstm-b", "warn") in alerts(assess_box(box(runs=(late,)), NOW))
    lost = msgspec.structs.replace(late, unread_at=NOW - 5)
    found = assess_box(box(runs=(lost,)), NOW)
    assert alerts(found) == []
    assert (found.health, found.beneath) == (BoxHealth.RUNNING, BoxHealth.UNKNOWN)
    assert "the log of lstm-b grows, but no step in it is understood" in found.why


def test_it_is_stuck_again_once_its_log_stops() -> None:
    silent = run(progressed_at=NOW - 2000)
    silent = msgspec.structs.replace(silent, unread_at=NOW - 1900)
    assert ("stalled:lstm-b", "warn") in alerts(assess_box(box(runs=(silent,)), NOW))


def test_a_step_that_is_abbreviated_advances_with_its_lines(tmp_path: Path) -> None:
    path = tmp_path / "train.log"
    finder = SourceFinder(str(tmp_path), clock=lambda: 0.0)
    follower, state = FoundScalars("lstm-b", str(tmp_path), None, {}, finder), box(runs=())
    moved = []
    for n in range(1, 6):
        write_lines(path, f"step:{min(n, 2)}K loss:1.{n} lr:1e-4 grdn:0.7\n", n, n + 1)
        os.utime(path, (NOW + 60 * n, NOW + 60 * n))
        for frame in poll(follower):
            state = apply_frame(state, msgspec.convert(frame, Scalars), NOW + 60 * n)
        moved += [(one.step, round(one.progressed_at or 0)) for one in state.runs]
    assert moved == [(min(n, 2) * 1000, round(NOW + 60 * n)) for n in range(1, 6)]


def test_an_epoch_is_never_taken_for_a_step(tmp_path: Path) -> None:
    """HF Trainer without a bar: the first whole epoch is not step 1 among steps 1 to 4."""
    path = tmp_path / "train.log"
    rows = [
        f"{{'loss': {4 - n / 4}, 'learning_rate': 1e-5, 'epoch': {n / 4}}}\n" for n in range(1, 9)
    ]
    rows.insert(4, "{'eval_loss': 2.5, 'eval_runtime': 1.0, 'epoch': 1.0}\n")
    path.write_text("".join(rows[:2]))
    finder = SourceFinder(str(tmp_path), clock=lambda: 0.0)
    follower, state = FoundScalars("r", str(tmp_path), None, {}, finder), RunState("r")
    for text in ("".join(rows[:2]), "".join(rows)):
        path.write_text(text)
        for frame in poll(follower):
            state = fold_points(state, msgspec.convert(frame, Scalars), NOW, 0.0)
    assert list(state.series["loss"]) == [(n, 4 - n / 4) for n in range(1, 9)]
    assert list(state.series["val_loss"]) == [(4, 2.5)]
    assert (state.axis, state.epoch, state.position, state.counts_epochs) == (
        "epoch",
        2.0,
        "epoch 2",
        False,
    )


def test_whole_epochs_are_their_own_steps(tmp_path: Path) -> None:
    rows = ["epoch,loss,val_acc\n", *(f"{n},{2 - n / 10},0.{n}\n" for n in range(1, 6))]
    (tmp_path / "log.csv").write_text("".join(rows))
    finder = SourceFinder(str(tmp_path), clock=lambda: 0.0)
    state = RunState("r")
    for frame in poll(FoundScalars("r", str(tmp_path), None, {}, finder)):
        state = fold_points(state, msgspec.convert(frame, Scalars), NOW, 0.0)
    assert [step for step, _ in state.series["val_acc"]] == [1, 2, 3, 4, 5]
    assert (state.axis, state.position, state.counts_epochs) == ("epoch", "epoch 5", True)


def test_a_run_without_a_loss_is_followed_by_its_first_measure(tmp_path: Path) -> None:
    path = tmp_path / "train.log"
    path.write_text("".join(f"global_step={n}, episodic_return=[{n}.5]\n" for n in range(1, 6)))
    finder = SourceFinder(str(tmp_path), clock=lambda: 0.0)
    state = RunState("r")
    for frame in poll(FoundScalars("r", str(tmp_path), None, {}, finder)):
        state = fold_points(state, msgspec.convert(frame, Scalars), NOW, 0.0)
    assert (state.step, state.progressed_at is not None, list(state.series)) == (
        5,
        True,
        ["episodic_return"],
    )


def test_a_slow_log_is_not_stuck_between_its_lines(tmp_path: Path) -> None:
    """Its points have no times: the pace is learned from when the file was written."""
    path = tmp_path / "train.log"
    follower, state = follow_directory(tmp_path), box(runs=())
    cells = (cell("r", state="running", started=NOW),)
    state = msgspec.structs.replace(state, queues=(queue(*cells),))
    for n in range(1, 8):
        at = NOW + 2 + 45 * (n - 1)
        write_lines(path, STEP, n, n + 1)
        os.utime(path, (at, at))
        for frame in poll(follower):
            state = apply_frame(state, msgspec.convert(frame, Scalars), at + 1)
        fresh = msgspec.structs.replace(state, sample_at=at + 44)
        assert alerts(assess_box(fresh, at + 44)) == [], f"after line {n}"
    (late,) = state.runs
    assert late.last_at == at
    hung = msgspec.structs.replace(state, sample_at=at + 500)
    assert ("stalled:r", "warn") in alerts(assess_box(hung, at + 500))
