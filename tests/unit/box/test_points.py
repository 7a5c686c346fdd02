from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from rgt_box.streams import points, scalars
from rgt_box.streams.scalars import ScalarFollower


def parse(*rows: object) -> points.Parsed:
    return points.parse([row if isinstance(row, bytes) else json.dumps(row).encode() for row in rows])


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
        (True, 1.0),
        (None, None),
    ],
)
def test_values(value: object, shown: object) -> None:
    assert parse({"step": 1, "loss": value}).points == [[1, None, None, {"loss": shown}]]


def test_what_is_no_number_is_left_out() -> None:
    assert parse({"step": 1, "loss": 2, "note": "hi", "list": [1], "map": {}}).points == [
        [1, None, None, {"loss": 2.0}]
    ]


@pytest.mark.parametrize(
    "row", [b"", b"{", b"[]", b"\xff", {"loss": 1}, {"step": "x"}, {"step": 1.5}, {"step": None}]
)
def test_lines_without_a_step_are_left_out(row: object) -> None:
    assert parse(row).points == []


def test_events() -> None:
    found = parse(
        {"event": "start", "step": 0, "total_steps": 9, "time": 5},
        {"event": "resume", "step": 3, "reason": "SIGTERM"},
        {"event": "checkpoint", "step": 3},
        {"event": "checkpoint-recovered", "step": 4, "time": 6.0},
    )
    assert found.points == [[0, 5.0, None, {"total_steps": 9.0}]]
    assert found.resumes == [[3, "SIGTERM"]]
    assert found.events == [{"kind": "checkpoint-recovered", "level": "info", "at": 6.0, "text": "step 4"}]


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


def test_a_file_is_read_from_its_start_in_bounded_frames_and_resumed_anywhere(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    follower = ScalarFollower("a", str(path), None)
    assert drain(follower) == []
    write(path, 1, 1234)
    frames = drain(follower)
    assert steps(frames) == list(range(1, 1235))
    assert max(len(frame["points"]) for frame in frames) == scalars.POINTS
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


def test_an_absurd_line_is_skipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scalars, "READ", 64)
    path = tmp_path / "metrics.jsonl"
    path.write_text("x" * 1000 + "\n")
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


def test_an_event_that_is_no_word_is_left_out() -> None:
    """One such line ended the reading of all files of the box."""
    found = points.parse(
        [b'{"step": 1, "event": [1]}', b'{"step": 2, "event": {}}', b'{"step": 3, "loss": 1.0}']
    )
    assert ([point[0] for point in found.points], found.resumes, found.events) == ([3], [], [])


def test_many_short_lines_are_taken_to_the_last(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text("\n" * 3000 + '{"step": 1, "loss": 1}\n' * 1700)
    frames = drain(ScalarFollower("a", str(path), None))
    assert sum(len(frame["points"]) for frame in frames) == 1700
    assert [frame["start"] for frame in frames[1:]] == [frame["end"] for frame in frames[:-1]]
    assert frames[-1]["end"] == path.stat().st_size
