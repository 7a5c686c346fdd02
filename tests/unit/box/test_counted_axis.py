"""A log that names no step has a curve over its rows, on which no verdict about progress is built."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from rgt_tui.cli import draw_plot, for_output
from rgt_tui.fleet import apply_frame
from rgt_tui.health import Assessment, assess_box
from rgt_tui.model import RunState, Scalars
from rgt_tui.profiles import seconds_left, seconds_per_step, stalled_seconds
from rgt_tui.ui.plot import XAxis, name_axis
from tests.unit.box.test_unread_logs import follow_directory, poll
from tests.unit.triage.builders import NOW, box, cell, queue, run

LINE = "train_loss {:.3f} accuracy 0.{}5\n"
FILES = {
    "train.log": "".join(LINE.format(3 - n / 10, n) for n in range(1, 9)),
    "losses.csv": "loss,acc\n" + "".join(f"{3 - n / 10},0.{n}\n" for n in range(1, 9)),
    "log.jsonl": "".join(f'{{"loss": {3 - n / 10}, "acc": 0.{n}}}\n' for n in range(1, 9)),
}


def alerts(found: Assessment) -> list[tuple[str, str]]:
    return [(alert.id, alert.level) for alert in found.alerts]


def fold_frames(state: RunState, frames: list[dict[str, Any]]) -> RunState:
    seen = box(runs=(state,))
    for frame in frames:
        seen = apply_frame(seen, msgspec.convert(frame, Scalars), NOW)
    return seen.runs[0]


@pytest.mark.parametrize("name", FILES)
def test_the_axis_travels_with_the_points(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(FILES[name])
    frames = poll(follow_directory(tmp_path))
    assert {frame["axis"] for frame in frames} == {"row"}
    state = fold_frames(RunState("r"), frames)
    assert (state.axis, state.step, state.position, state.counts_rows) == ("row", 8, "row 8", True)
    assert len(state.metrics) == 2


def test_a_position_that_comes_later_replaces_the_rows(tmp_path: Path) -> None:
    path = tmp_path / "train.log"
    path.write_text(FILES["train.log"])
    follower = follow_directory(tmp_path)
    state = fold_frames(RunState("r"), poll(follower))
    with path.open("a") as file:
        file.writelines(f"step {n} train_loss {2 - n / 100:.3f}\n" for n in range(10, 40, 10))
    state = fold_frames(state, poll(follower))
    assert (state.axis, state.position) == ("step", "step 30")
    assert [x for x, _ in state.series["loss"]] == [10, 20, 30]


def test_rows_replace_the_bars_before_them_and_the_total_of_those(tmp_path: Path) -> None:
    path = tmp_path / "train.log"
    path.write_text(
        "".join(
            f"job: {n}%|█  | {n}/100 [00:0{n}<00:09, 1.00it/s, mem=1.{n}5, foo=2.{n}5]\n"
            for n in range(1, 6)
        )
    )
    follower = follow_directory(tmp_path)
    state = fold_frames(RunState("r"), poll(follower))
    assert state.axis == "step"
    state = msgspec.structs.replace(state, total_steps=100)
    with path.open("a") as file:
        file.write(FILES["train.log"])
    state = fold_frames(state, poll(follower))
    assert (state.position, state.total_steps) == ("row 8", None)
    assert [x for x, _ in state.series["loss"]] == list(range(1, 9))


def test_no_verdict_about_progress_is_built_on_rows() -> None:
    late = run(progressed_at=NOW - 5000, total_steps=5000)
    cells = (cell("lstm-b", state="running", started=NOW - 9000),)
    judged = box(runs=(late,), queues=(queue(*cells),))
    assert ("stalled:lstm-b", "warn") in alerts(assess_box(judged, NOW))
    assert stalled_seconds(judged, late, NOW) is not None
    counted = msgspec.structs.replace(late, axis="row")
    judged = box(runs=(counted,), queues=(queue(*cells),))
    found = assess_box(judged, NOW)
    assert not [alert for alert in found.alerts if alert.kind in ("stalled", "spinning")]
    assert "names no step" in found.why
    assert stalled_seconds(judged, counted, NOW) is None
    moving = msgspec.structs.replace(counted, progressed_at=NOW - 1)
    judged = box(runs=(moving,), queues=(queue(*cells),))
    assert assess_box(judged, NOW).why == "lstm-b at row 812, advanced 1s ago"
    assert seconds_per_step(judged, "lstm-b", NOW) is None
    assert seconds_left(judged, "lstm-b", NOW) is None


def test_the_axis_has_its_own_name() -> None:
    assert name_axis(XAxis.STEP, ["row", "row"]) == "row"
    assert name_axis(XAxis.STEP, ["row", "step"]) == "step"
    assert name_axis(XAxis.STEP, []) == "step"
    assert name_axis(XAxis.EPOCH, ["row"]) == "epoch"
    counted = msgspec.structs.replace(run(), axis="row")
    names = list(counted.metrics)[:1]
    plot = for_output(draw_plot(counted, names, 60, 12)[0], "utf-8", colours=False)
    assert "row" in plot
    assert "step" not in plot


def test_a_repeated_header_of_rows_is_no_resume(tmp_path: Path) -> None:
    path = tmp_path / "losses.csv"
    path.write_text(FILES["losses.csv"])
    follower = follow_directory(tmp_path)
    frames = poll(follower)
    with path.open("a") as file:
        file.write(FILES["losses.csv"])
    more = poll(follower)
    assert more
    assert not any(frame.get("resumes") for frame in frames + more)
