from __future__ import annotations

import errno
import json
import os
from pathlib import Path
from typing import Any

import msgspec
import pytest
from rgt_box import jsonline
from rgt_box.streams import log_follower, watch
from rgt_box.streams.follows import FollowedFiles
from rgt_box.streams.log_follower import LogFollower, tail_offset

from rgt_tui.fleet import extend_log
from rgt_tui.model import LogView, protocol


def drain(follower: LogFollower) -> tuple[list[str], list[dict[str, Any]]]:
    frames = []
    quiet = 0
    while quiet < 40:
        frame = follower.poll_frame()
        quiet = 0 if frame else quiet + 1
        frames += [frame] if frame else []
    return [line for frame in frames for line in frame["lines"]], frames


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "train.log"


def append(path: Path, text: str) -> None:
    with path.open("a") as file:
        file.write(text)


def test_the_tail_comes_first_then_what_is_new(log: Path) -> None:
    log.write_text("".join(f"{n}\n" for n in range(1000)))
    follower = LogFollower(str(log), None, 3)
    lines, (frame,) = drain(follower)
    assert lines == ["997", "998", "999"]
    assert (frame["inode"], frame["end"]) == (log.stat().st_ino, log.stat().st_size)
    assert frame["end"] - frame["start"] == 12
    append(log, "1000\nhalf")
    lines, (frame,) = drain(follower)
    assert lines == ["1000"] and "age" not in frame, "it is told once"
    append(log, " done\n")
    assert drain(follower)[0] == ["half done"]


def test_how_old_the_end_of_a_log_is_is_told_as_it_is_opened(
    log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log.write_text("".join(f"{n}\n" for n in range(200_000)))
    os.utime(log, (5000.0, 5000.0))
    monkeypatch.setattr("rgt_box.streams.log_follower.time.time", lambda: 5090.04)
    _, frames = drain(LogFollower(str(log), (log.stat().st_ino, 0), 3))
    assert len(frames) > 1 and [frame.get("age") for frame in frames] == [None] * (
        len(frames) - 1
    ) + [90.0]
    monkeypatch.setattr("rgt_box.streams.log_follower.time.time", lambda: 4000.0)
    _, (frame,) = drain(LogFollower(str(log), None, 3))
    assert frame["age"] == 0.0, "a clock that was set back"
    assert extend_log(None, msgspec.convert(frame, protocol.LogLines), 70.0).written == 70.0


def test_a_cursor_resumes_without_gap_or_duplicate(log: Path) -> None:
    log.write_text("a\nb\nc")
    _, (frame,) = drain(LogFollower(str(log), None, 10))
    append(log, "c\nd\n")
    cursor = (frame["inode"], frame["end"])
    assert drain(LogFollower(str(log), cursor, 10))[0] == ["cc", "d"]


def test_an_empty_file_is_told_once_and_its_cursor_goes_on(log: Path) -> None:
    """Its client could not tell otherwise whether the log is silent, or not followed."""
    log.touch()
    follower = LogFollower(str(log), None, 10)
    lines, (frame,) = drain(follower)
    assert lines == [] and (frame["start"], frame["end"]) == (0, 0)
    view = extend_log(None, msgspec.convert(frame, protocol.LogLines), 7.0)
    assert (view.lines, view.at, view.counted) == ((), 7.0, True)
    again = LogFollower(str(log), (frame["inode"], 0), 10)
    assert drain(again)[1] == []
    append(log, "step 1\n")
    for one in (follower, again):
        assert drain(one)[0] == ["step 1"]


def test_a_file_that_appears_later_is_read_from_its_start(log: Path) -> None:
    follower = LogFollower(str(log), None, 1)
    assert drain(follower)[0] == []
    log.write_text("1\n2\n3\n")
    lines, frames = drain(follower)
    assert lines == ["1", "2", "3"]
    assert not frames[0].get("reset")


def test_rotation_loses_nothing_and_says_reset(log: Path) -> None:
    log.write_text("old 1\n")
    follower = LogFollower(str(log), None, 10)
    drain(follower)
    append(log, "old 2\n")
    log.rename(log.with_suffix(".log.1"))
    log.write_text("new 1\n")
    lines, frames = drain(follower)
    assert lines == ["old 2", "new 1"]
    assert [bool(frame.get("reset")) for frame in frames] == [False, True]


def test_rotation_while_nobody_followed_is_made_good_by_inode(log: Path) -> None:
    log.write_text("old 1\n")
    _, (frame,) = drain(LogFollower(str(log), None, 10))
    append(log, "old 2\n")
    log.rename(log.with_name("train.log.1"))
    log.write_text("new 1\n")
    lines, frames = drain(LogFollower(str(log), (frame["inode"], frame["end"]), 10))
    assert lines == ["old 2", "new 1"]
    assert [bool(frame.get("reset")) for frame in frames] == [False, True]


def test_truncation_starts_anew(log: Path) -> None:
    log.write_text("one\ntwo\nthree\n")
    follower = LogFollower(str(log), None, 10)
    drain(follower)
    log.write_text("1\n")
    lines, (frame,) = drain(follower)
    assert (lines, frame["reset"], frame["start"]) == (["1"], True, 0)


def test_a_rewrite_of_the_same_length_is_noticed_by_the_line_ends(log: Path) -> None:
    log.write_text("one\ntwo\n")
    follower = LogFollower(str(log), None, 10)
    drain(follower)
    log.write_text("seventeen\nx\n")
    lines, (frame,) = drain(follower)
    assert lines == ["seventeen", "x"]
    assert frame["reset"]


def test_deletion_and_recreation(log: Path) -> None:
    log.write_text("one\n")
    follower = LogFollower(str(log), None, 10)
    drain(follower)
    log.unlink()
    assert drain(follower)[0] == []
    log.write_text("two\n")
    lines, (frame,) = drain(follower)
    assert (lines, frame["reset"]) == (["two"], True)


def test_a_stale_cursor_starts_anew(log: Path) -> None:
    log.write_text("one\n")
    lines, (frame,) = drain(LogFollower(str(log), (log.stat().st_ino, 4000), 10))
    assert (lines, frame["reset"]) == (["one"], True)


def test_too_much_to_read_skips_to_the_newest_and_counts(
    log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_follower, "BACKLOG", 10000)
    monkeypatch.setattr(log_follower, "READ", 1000)
    monkeypatch.setattr(log_follower, "SCAN", 3000)
    log.write_text("first\nunfinished")
    follower = LogFollower(str(log), None, 10)
    drain(follower)
    append(log, " line\n" + "".join(f"line {n}\n" for n in range(5000)))
    lines, frames = drain(follower)
    assert lines[-1] == "line 4999"
    skipped = sum(frame.get("skipped", 0) for frame in frames)
    assert skipped + len(lines) == 5001
    assert frames[0]["skipped"] == skipped
    assert lines == [f"line {n}" for n in range(5000 - len(lines), 5000)]
    assert 3 * 1000 < frames[-1]["end"] - frames[0]["start"] <= 4 * 1000, (
        "several frames of it are left to read"
    )


@pytest.mark.parametrize(
    ("row", "at_once"),
    [
        (b"step 1200 loss 3.2101 lr 0.00030 tok/s 41200", True),
        ("époch 3 of 90 ━━╸ 41 %, loss 3.2101, lr 0.00030".encode(), True),
        (b"\x01" * 40, False),
        (b'"\\' * 20, False),
        (b"\xff\x1b[1m" * 10, True),
        (b"", False),
    ],
)
def test_as_much_is_sent_at_once_as_surely_fits_into_a_frame(
    log: Path, row: bytes, at_once: bool
) -> None:
    log.write_bytes(b"")
    follower = LogFollower(str(log), None, 10)
    drain(follower)
    log.write_bytes((row + b"\n") * (2 * log_follower.READ // (len(row) + 1)))
    lines, frames = drain(follower)
    assert len(lines) == 2 * log_follower.READ // (len(row) + 1)
    assert max(len(jsonline.encode_line(frame)) for frame in frames) < protocol.MAX_FRAME_BYTES
    assert (len(frames) <= 3) is at_once
    ends = [0, *(frame["end"] for frame in frames)]
    assert [frame["start"] for frame in frames] == ends[:-1]


def test_a_directory_or_a_device_in_place_of_a_log_is_not_read(tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    for path in (tmp_path, fifo):
        assert drain(LogFollower(str(path), None, 10))[0] == []


@pytest.mark.parametrize("count", [0, 1, 2, 5, 6, 7, 100])
def test_tail_offsets(log: Path, count: int) -> None:
    rows = ["a", "bb", "", "cccc", "d", "e"]
    log.write_text("\n".join(rows) + "\nunfinished")
    with log.open("rb") as file:
        offset = tail_offset(file.fileno(), log.stat().st_size, count)
    kept = log.read_text()[offset:].split("\n")[:-1]
    assert kept == (rows[-count:] if count else [])


def test_a_tail_without_line_ends_is_bounded(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_follower, "MAX_TAIL", 1000)
    log.write_text("x\n" + "y" * 5000)
    assert drain(LogFollower(str(log), None, 5))[0] == ["x"]


def test_a_progress_bar_is_seen_while_its_line_is_unfinished(
    log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_follower, "PARTIAL_AFTER", 0.0)
    follower = LogFollower(str(log), None, 5)
    view: LogView | None = None
    shown = []
    log.write_text("start\n")
    for text in ("\r 1%|#  |", "\r50%|## |", "\r99%|###|", "\r100%|###|\n", "end\n"):
        append(log, text)
        for frame in drain(follower)[1]:
            view = extend_log(view, msgspec.convert(frame, protocol.LogLines), 1.0)
        assert view is not None
        shown.append(view.lines)
    assert shown == [
        ("start", " 1%|#  |"),
        ("start", "50%|## |"),
        ("start", "99%|###|"),
        ("start", "100%|###|"),
        ("start", "100%|###|", "end"),
    ]


def test_an_unfinished_line_moves_no_cursor_and_is_not_repeated(
    log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_follower, "PARTIAL_AFTER", 0.0)
    log.write_text("one\ntwo")
    follower = LogFollower(str(log), None, 5)
    frames = drain(follower)[1]
    assert [(frame["lines"], frame.get("partial")) for frame in frames] == [
        (["one"], None),
        ([], "two"),
    ]
    assert {frame["end"] for frame in frames} == {4}
    assert drain(follower)[1] == []
    append(log, "x" * 100000)
    (frame,) = drain(follower)[1]
    assert len(frame["partial"]) < 1100


def test_who_writes_on_after_a_rename_is_read_until_the_new_file_has_something(log: Path) -> None:
    log.write_text("1\n")
    follower = LogFollower(str(log), None, 5)
    lines = drain(follower)[0]
    old = log.open("a")
    log.rename(log.with_suffix(".log.1"))
    lines += drain(follower)[0]
    old.write("2\n")
    old.flush()
    lines += drain(follower)[0]
    log.write_text("")
    old.write("3\nlast words")
    old.close()
    lines += drain(follower)[0]
    log.write_text("4\n")
    found, frames = drain(follower)
    assert lines + found == ["1", "2", "3", "last words", "4"]
    assert frames[-1]["reset"]


@pytest.mark.parametrize("live", [True, False])
def test_files_that_were_rotated_away_unseen_are_read_in_their_order(log: Path, live: bool) -> None:
    def rotate(text: str, at: int) -> None:
        for number in (3, 2, 1):
            older = log.with_name(f"{log.name}.{number}")
            if older.exists():
                older.rename(log.with_name(f"{log.name}.{number + 1}"))
        os.utime(log, ns=(at, at))
        log.rename(log.with_name(f"{log.name}.1"))
        log.write_text(text)

    log.write_text("1\n")
    follower = LogFollower(str(log), None, 5)
    lines, frames = drain(follower)
    now = log.stat().st_mtime_ns - 10**9
    log.with_name(log.name + ".gz").write_text("packed\n")
    log.with_name(log.name + ".bak").write_text("copied\n")
    for number in (2, 3, 4):
        rotate(f"{number}\n", now + number)
    if not live:
        follower = LogFollower(str(log), (frames[-1]["inode"], frames[-1]["end"]), 5)
    assert lines + drain(follower)[0] == ["1", "2", "3", "4"]


def test_junk_and_lines_of_a_megabyte_do_no_harm(log: Path) -> None:
    junk = bytes(range(256)).replace(b"\n", b"") * 64
    log.write_bytes(b"a\n" + b"x" * (1 << 20) + b"\n" + junk + b"\nb\n")
    lines, _ = drain(LogFollower(str(log), None, 10))
    assert [lines[0], lines[-1], len(lines)] == ["a", "b", 4]
    assert max(map(len, lines)) < 17000


def test_a_file_cut_within_its_unfinished_line_is_read_anew(log: Path) -> None:
    """Its last complete line still stands: only what was read of the unfinished one tells."""
    log.write_text("one\nan unfinished line")
    follower = LogFollower(str(log), None, 10)
    assert drain(follower)[0] == ["one"]
    log.write_text("one\nan other")
    append(log, " line\n")
    lines, (frame, *_) = drain(follower)
    assert (lines, frame["start"], frame["reset"]) == (["one", "an other line"], 0, True)


def test_a_stale_handle_goes_on_behind_the_last_complete_line(
    log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that was restarted: the descriptor is worthless, the file is there as it was."""
    log.write_text("one\ntwo\nthr")
    follower = LogFollower(str(log), None, 10)
    assert drain(follower)[0] == ["one", "two"]
    stale = follower._fd
    real = os.pread

    def pread(fd: int, count: int, offset: int) -> bytes:
        if fd == stale:
            raise OSError(errno.ESTALE, os.strerror(errno.ESTALE))
        return real(fd, count, offset)

    monkeypatch.setattr(os, "pread", pread)
    append(log, "ee\nfour\n")
    assert follower.poll_frame() is None
    stale = -1
    lines, frames = drain(follower)
    assert (lines, frames[0]["start"], [frame.get("reset") for frame in frames]) == (
        ["three", "four"],
        len("one\ntwo\n"),
        [None] * len(frames),
    )


@pytest.mark.parametrize("read", [1000, 1001, 1003])
def test_what_is_skipped_is_counted_to_the_line(
    log: Path, monkeypatch: pytest.MonkeyPatch, read: int
) -> None:
    """Wherever the newest part begins: between two lines, or within one, which is then skipped as well."""
    monkeypatch.setattr(log_follower, "READ", read)
    monkeypatch.setattr(log_follower, "BACKLOG", 3000)
    monkeypatch.setattr(log_follower, "SCAN", 700)
    log.write_text("first\n")
    follower = LogFollower(str(log), None, 10)
    assert drain(follower)[0] == ["first"]
    append(log, "".join(f"{n:04}\n" for n in range(2000)))
    lines, frames = drain(follower)
    assert sum(frame.get("skipped", 0) for frame in frames) + len(lines) == 2000
    assert lines == [f"{n:04}" for n in range(2000 - len(lines), 2000)]
    append(log, "next\n")
    (frame,) = drain(follower)[1]
    assert "skipped" not in frame


def test_a_log_is_looked_at_again_at_once_only_where_more_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = [tmp_path / name for name in ("a.log", "b.log")]
    for path in paths:
        path.write_text("one\n")
    follows = FollowedFiles(
        watch.parse_config(json.dumps({"logs": [str(path) for path in paths]}).encode())
    )
    asked: list[bool] = []

    def refresh() -> bool:
        asked.append(True)
        return False

    monkeypatch.setattr(follows._masker, "reread_secrets", refresh)
    assert ([frame["lines"] for frame in follows.poll_frames(100)[0]], len(asked)) == (
        [["one"], ["one"]],
        1,
    )
    assert follows.poll_frames(100) == ([], False)
    assert len(asked) == 1, "no line came: nothing is to be masked"
    append(paths[0], "two\n")
    frames, more = follows.poll_frames(100)
    assert ([frame["lines"] for frame in frames], more) == ([["two"]], False)
    append(paths[0], "three\n" * log_follower.SWIFT)
    rounds: list[tuple[list[dict[str, Any]], bool]] = []
    while not rounds or rounds[-1][1]:
        rounds.append(follows.poll_frames(100))
    lines = [line for frames, _ in rounds for frame in frames for line in frame["lines"]]
    assert lines == ["three"] * log_follower.SWIFT
    for path in paths:
        append(path, "four\n")
    assert [
        (len(frames), more) for frames, more in (follows.poll_frames(1), follows.poll_frames(1))
    ] == [
        (1, True),
        (1, True),
    ]
    assert follows.poll_frames(100) == ([], False)


def test_what_is_awaited_of_the_first_look_does_not_wait_for_a_tick(log: Path) -> None:
    log.write_text("one\n")
    follows = FollowedFiles(watch.parse_config(json.dumps({"logs": [str(log)]}).encode()))
    follows.announce_first_check()
    assert [frame["t"] for frame in follows.poll_frames(100)[0]] == ["log"]
    append(log, "two\n")
    assert follows.poll_frames(100)[1] is True
    assert follows.poll_frames(100) == ([{"t": "looked"}], False)


def test_one_follower_that_fails_costs_the_others_nothing_and_is_told_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = [tmp_path / name for name in ("bad.log", "good.log")]
    for path in paths:
        path.write_text("one\n")
    whole = LogFollower.poll_frame

    def poll(follower: LogFollower) -> dict[str, Any] | None:
        if follower.path == str(paths[0]):
            raise ZeroDivisionError("made up")
        return whole(follower)

    monkeypatch.setattr(LogFollower, "poll_frame", poll)
    follows = FollowedFiles(
        watch.parse_config(json.dumps({"logs": [str(path) for path in paths]}).encode())
    )
    event, log = follows.poll_frames(100)[0]
    assert (event["kind"], log["lines"]) == ("follow-failed", ["one"])
    assert event["text"].startswith(f"{paths[0]} cannot be followed: ZeroDivisionError")
    assert follows.poll_frames(100)[0] == []
    monkeypatch.undo()
    (log,) = follows.poll_frames(100)[0]
    assert (log["path"], log["lines"]) == (str(paths[0]), ["one"])
