from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from rgt_box.metrics import MAX_LINE
from rgt_box.streams.curve_followers import ROWS, ScalarFollower


def told(tmp_path: Path, *rows: object) -> tuple[list[Any], list[Any], list[Any]]:
    """Return points, resumes and events of a file of rows."""
    path = tmp_path / "rows.jsonl"
    path.write_bytes(
        b"".join(
            (row if isinstance(row, bytes) else json.dumps(row).encode()) + b"\n" for row in rows
        )
    )
    follower = ScalarFollower("a", str(path), None)
    points: list[Any] = []
    resumes: list[Any] = []
    events: list[Any] = []
    while True:
        frame, news = follower.poll()
        if frame is None:
            return points, resumes, events
        points += frame["points"]
        resumes += frame.get("resumes", [])
        events += news


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (1, 1.0),
        ("nan", "nan"),
        ("NaN", "nan"),
        ("-inf", "-inf"),
        (float("inf"), "inf"),
        (float("-inf"), "-inf"),
        (float("nan"), "nan"),
        (10**400, "inf"),
    ],
)
def test_values(tmp_path: Path, value: object, shown: object) -> None:
    assert told(tmp_path, {"step": 1, "loss": value})[0] == [[1, None, None, {"loss": shown}]]


@pytest.mark.parametrize("value", ["hi", [1], {}, None, True])
def test_what_is_no_number_is_left_out(tmp_path: Path, value: object) -> None:
    row = {"step": 1, "loss": 2, "other": value}
    assert told(tmp_path, row)[0] == [[1, None, None, {"loss": 2.0}]]


@pytest.mark.parametrize(
    "row",
    [
        b"",
        b"{",
        b"[]",
        b"\xff",
        {"loss": 1},
        {"step": "x", "loss": 1},
        {"step": 1.5, "loss": 1},
        {"step": None, "loss": 1},
    ],
)
def test_lines_without_a_step_are_left_out(tmp_path: Path, row: object) -> None:
    assert told(tmp_path, row)[0] == []


def test_a_row_has_its_time_its_epoch_and_the_names_that_were_written(tmp_path: Path) -> None:
    row = {"step": 3, "epoch": 0.5, "time": 1.79e9, "loss": 2.0, "my/own": 7}
    assert told(tmp_path, row)[0] == [[3, 1.79e9, 0.5, {"loss": 2.0, "my/own": 7.0}]]


@pytest.mark.parametrize("key", ["global_step", "iteration"])
def test_a_step_by_another_name_is_one(tmp_path: Path, key: str) -> None:
    """Nothing at all was shown of such a file."""
    assert told(tmp_path, {key: 3, "loss": 2.0})[0] == [[3, None, None, {"loss": 2.0}]]


def test_seconds_since_the_start_are_no_time_of_day(tmp_path: Path) -> None:
    """They were taken for the year 1970: the run was said to stand for 20,778 days."""
    path = tmp_path / "metrics.jsonl"
    path.write_text(json.dumps({"step": 3, "time": 12.5, "loss": 2.0}) + "\n")
    os.utime(path, (1.79e9, 1.79e9))
    frame, _ = ScalarFollower("a", str(path), None).poll()
    assert frame is not None
    assert (frame["points"], frame["written"]) == ([[3, None, None, {"loss": 2.0}]], 1.79e9)


def test_events(tmp_path: Path) -> None:
    points, resumes, events = told(
        tmp_path,
        {"event": "start", "step": 0, "total_steps": 9, "time": 1790000005},
        {"event": "resume", "step": 3, "reason": "SIGTERM"},
        {"event": "checkpoint", "step": 3},
        {"event": "checkpoint-recovered", "step": 4, "time": 1790000006.0},
    )
    assert points == [[0, 1790000005.0, None, {"total_steps": 9.0}]]
    assert resumes == [[3, "SIGTERM"]]
    assert events == [
        {
            "kind": "checkpoint-recovered",
            "level": "info",
            "at": 1790000006.0,
            "text": "step 4: saved again",
        }
    ]


def drain(follower: ScalarFollower) -> list[dict[str, Any]]:
    frames: list[dict[str, Any]] = []
    while True:
        frame, _ = follower.poll()
        if frame is None:
            return frames
        frames.append(frame)


def steps(frames: list[dict[str, Any]]) -> list[int]:
    return [point[0] for frame in frames for point in frame["points"]]


def write(path: Path, first: int, last: int, mode: str = "a") -> None:
    with path.open(mode) as file:
        file.writelines(json.dumps({"step": n, "loss": 1.0}) + "\n" for n in range(first, last + 1))


def test_a_file_is_read_from_its_start_in_bounded_frames_and_resumed_anywhere(
    tmp_path: Path,
) -> None:
    path = tmp_path / "metrics.jsonl"
    follower = ScalarFollower("a", str(path), None)
    assert drain(follower) == []
    write(path, 1, 1234)
    frames = drain(follower)
    assert steps(frames) == list(range(1, 1235))
    assert max(len(frame["points"]) for frame in frames) == ROWS
    for index, frame in enumerate(frames):
        rest = drain(ScalarFollower("a", str(path), (frame["inode"], frame["end"])))
        assert steps(rest) == steps(frames[index + 1 :])


def test_half_a_line_waits(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"step": 1, "loss"')
    follower = ScalarFollower("a", str(path), None)
    assert drain(follower) == []
    with path.open("a") as file:
        file.write(": 2}\n")
    assert steps(drain(follower)) == [1]


def test_of_points_without_a_time_it_is_told_when_their_file_was_written(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"step": 1, "loss": 2}\n')
    os.utime(path, (1_700_000_000, 1_700_000_000))
    follower = ScalarFollower("a", str(path), None)
    assert [frame["written"] for frame in drain(follower)] == [1_700_000_000.0]
    with path.open("a") as file:
        file.write('{"step": 2, "loss": 2, "time": 1700000500}\n')
    assert not any("written" in frame for frame in drain(follower)), "they have their own"


def test_a_replaced_or_shortened_file_starts_anew(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    write(path, 1, 9)
    follower = ScalarFollower("a", str(path), None)
    (old,) = drain(follower)
    path.rename(tmp_path / "old")
    write(path, 1, 3)
    (new,) = drain(follower)
    assert (new["start"], steps([new]), new["inode"] != old["inode"]) == (0, [1, 2, 3], True)
    write(path, 5, 5, "w")
    (short,) = drain(follower)
    assert (short["start"], steps([short])) == (0, [5])


def test_an_absurd_line_is_skipped(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text("x" * (2 * MAX_LINE) + "\n")
    write(path, 1, 2)
    assert steps(drain(ScalarFollower("a", str(path), None))) == [1, 2]


def test_a_resume_begins_a_frame_of_its_own(tmp_path: Path) -> None:
    def point(step: int) -> str:
        return json.dumps({"step": step, "loss": 1.0})

    def resume(step: int) -> str:
        return json.dumps({"event": "resume", "step": step, "reason": "killed"})

    rows = [point(1), point(2), resume(1), point(2), point(3), resume(3), resume(3), point(4)]
    (tmp_path / "m").write_text("\n".join(rows) + "\n")
    follower = ScalarFollower("r", str(tmp_path / "m"), None)
    frames = []
    while (frame := follower.poll()[0]) is not None:
        frames.append((len(frame.get("resumes", [])), [row[0] for row in frame["points"]]))
    assert frames == [(0, [1, 2]), (1, [2, 3]), (1, []), (1, [4])]


def test_an_event_that_is_no_word_is_left_out(tmp_path: Path) -> None:
    """One such line ended the reading of all files of the box."""
    rows = (b'{"step": 1, "event": [1]}', b'{"step": 2, "event": {}}', b'{"step": 3, "loss": 1.0}')
    points, resumes, events = told(tmp_path, *rows)
    assert ([point[0] for point in points], resumes, events) == ([3], [], [])


def test_a_frame_of_many_wide_rows_fits(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    row = {f"layer.{n}.grad_norm": 1e5 for n in range(400)}
    path.write_text("".join(json.dumps({"step": n, **row}) + "\n" for n in range(300)))
    frames = drain(ScalarFollower("a", str(path), None))
    assert steps(frames) == list(range(300))
    assert max(len(json.dumps(frame)) for frame in frames) < 1 << 20


def test_many_short_lines_are_taken_to_the_last(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text("\n" * 3000 + '{"step": 1, "loss": 1}\n' * 1700)
    frames = drain(ScalarFollower("a", str(path), None))
    assert sum(len(frame["points"]) for frame in frames) == 1700
    assert [frame["start"] for frame in frames[1:]] == [frame["end"] for frame in frames[:-1]]
    assert frames[-1]["end"] == path.stat().st_size
