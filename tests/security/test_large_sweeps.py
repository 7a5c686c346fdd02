"""Honest sweeps that are large: 28 directories of 1,000 curves, 3,500 cells. Each goes through the agent, and again."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from rgt_box import jsonline
from rgt_box.metrics import MAX_STARTS, MetricPoint, ReadBatch, SeriesStore, merging
from rgt_box.queue import queue_state
from rgt_box.streams import curve_followers
from rgt_box.streams import watch as configs
from rgt_box.streams.curve_followers import ScalarFollower
from rgt_box.streams.log_follower import LogFollower
from rgt_box.streams.pipes import ControlInbox

from rgt_tui.model import protocol
from tests.process.box.harness import Agent, make_job

MIB = 1 << 20
METRICS = ("loss", "eval_loss", "lr", "grad_norm", "tokens_per_second")
SWEEPS, RUNS, STEPS = 28, 200, 1


def sweep(folder: Path) -> Path:
    """An MLflow store of 200 runs with five metrics: 1,000 curves."""
    folder.mkdir()
    db = sqlite3.connect(folder / "mlflow.db", isolation_level=None)
    db.execute(
        "CREATE TABLE metrics (key TEXT, value FLOAT, timestamp BIGINT, run_uuid TEXT, step BIGINT, is_nan BOOLEAN)"
    )
    db.execute("BEGIN")
    db.executemany(
        "INSERT INTO metrics VALUES (?, ?, 1795253821902, ?, ?, 0)",
        [
            (metric, 1.0 / step, f"{run:032x}", step)
            for run in range(RUNS)
            for step in range(1, STEPS + 1)
            for metric in METRICS
        ],
    )
    db.execute("COMMIT")
    db.close()
    os.utime(folder / "mlflow.db", (1.79e9, 1.79e9))
    return folder


def frames_of(process: subprocess.Popen[bytes], config: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the frames of a watch; none may be too long, or tell of a failure."""
    assert process.stdin is not None and process.stdout is not None
    process.stdin.write(json.dumps(config).encode() + b"\n")
    process.stdin.flush()
    deadline = time.monotonic() + 240.0
    try:
        for line in process.stdout:
            assert len(line) <= protocol.MAX_FRAME_BYTES
            frame = json.loads(line)
            bad = ("files-hang", "follow-failed", "frame-too-long", "bad-config", "curves-cut")
            assert frame.get("kind") not in bad, frame
            yield frame
            assert time.monotonic() < deadline, "what was awaited did not come"
    finally:
        process.kill()
        process.wait()
        process.stdin.close()
        process.stdout.close()


def started(words: list[str], agent: Agent) -> subprocess.Popen[bytes]:
    return subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=agent.env)


def peak_of(pid: int) -> int:
    words = dict(
        line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines()
    )
    return int(words["VmHWM"].split()[0]) * 1024


def test_28_sweeps_of_1000_curves_come_once_and_go_on_where_they_were(
    tmp_path: Path, agent: Agent
) -> None:
    folders = [str(sweep(tmp_path / f"sweep-{n:02}-{'x' * 60}")) for n in range(SWEEPS)]
    process = started(agent.command("watch"), agent)
    cursors: dict[str, dict[str, int]] = {}
    points = 0
    for frame in frames_of(process, {"runs": folders, "interval": 5.0}):
        if frame["t"] == "scalar":
            assert frame["start"] == cursors.get(frame["source"], {"offset": 0})["offset"]
            cursors[frame["source"]] = {"inode": frame["inode"], "offset": frame["end"]}
            points += len(frame["points"])
        if points == SWEEPS * RUNS * STEPS * len(METRICS):
            assert peak_of(process.pid) < 250 * MIB
            break
    assert (len(cursors), points) == (28_000, 28_000 * STEPS)
    config = {"runs": folders, "scalar_cursors": cursors, "interval": 5.0}
    assert len(json.dumps(config)) > 4 * MIB  # more than what ended the agent for ever
    with sqlite3.connect(Path(folders[-1]) / "mlflow.db") as db:
        db.execute(
            "INSERT INTO metrics VALUES ('loss', 0.5, 1795253821903, ?, ?, 0)",
            (f"{7:032x}", STEPS + 1),
        )
    db.close()
    for frame in frames_of(started(agent.command("watch"), agent), config):
        if frame["t"] == "scalar":
            steps = [point[0] for point in frame["points"]]
            assert (frame["start"], frame["end"], steps) == (STEPS, STEPS + 1, [STEPS + 1])
            break


def test_a_queue_of_3500_cells_with_3500_sources(tmp_path: Path, agent: Agent) -> None:
    names = [f"seed-{n:04}-lr-3e-4-wd-0.1-dropout-0.2" for n in range(3500)]
    job = make_job(
        tmp_path / ("job-" + "x" * 60), ["true"], names, durable=str(tmp_path / "kept" / "{name}")
    )
    done = [{"name": name, "state": "done", "attempts": 1, "durable": "verified"} for name in names]
    (job / "state.json").write_text(json.dumps({"cells": done, "done": True}))
    for name in names:
        (job / "out" / name).mkdir(parents=True)
        (job / "out" / name / "metrics.jsonl").write_text('{"step": 1, "loss": 1.0, "time": 1.0}\n')
    command = ["sh", "-c", 'ulimit -n 1024; exec "$@"', "sh", *agent.command("watch")]
    process = started(command, agent)
    sources: set[str] = set()
    cells = 0
    for frame in frames_of(process, {"jobs": [str(job)], "interval": 5.0}):
        if frame["t"] == "scalar":
            sources.add(frame["source"])
        if frame["t"] == "queue":
            cells = len(frame["cells"])
            assert {cell["state"] for cell in frame["cells"]} == {"done"}
            assert (frame["done"], frame.get("error")) == (True, None)
        if (len(sources), cells) == (3500, 3500):
            assert peak_of(process.pid) < 250 * MIB
            break
    assert (len(sources), cells) == (3500, 3500)


def test_a_first_look_at_many_long_curves_is_sent_piece_by_piece(
    tmp_path: Path, agent: Agent
) -> None:
    """Each of 60 sources has 200 KB to say: no round of the agent holds all of it in memory."""
    rows = b"".join(b'{"step": %d, "loss": 1.0, "lr": 0.1, "time": 1.0}\n' % n for n in range(4000))
    runs = []
    for n in range(60):
        (tmp_path / f"r{n}").mkdir()
        (tmp_path / f"r{n}" / "metrics.jsonl").write_bytes(rows)
        runs.append(str(tmp_path / f"r{n}"))
    process = started(agent.command("watch"), agent)
    seen: dict[str, int] = {}
    for frame in frames_of(process, {"runs": runs, "interval": 5.0}):
        if frame["t"] == "scalar":
            seen[frame["run"]] = seen.get(frame["run"], 0) + len(frame["points"])
            if set(seen.values()) == {4000} and len(seen) == 60:
                assert peak_of(process.pid) < 90 * MIB
                break
    assert len(seen) == 60


@pytest.mark.parametrize("count", [10, 3500, 6000, 40_000])
def test_a_queue_frame_fits_and_never_passes_for_shorter_than_it_is(count: int) -> None:
    cell = {
        "cfg": "configs/" + "x" * 30, "task": "lm", "epochs": 20, "state": "done", "attempts": 1,
        "started": 1795253821.5, "ended": 1795253921.5, "exit_code": 0,
        "durable": "verified", "durable_path": "/mnt/" + "x" * 80,
        "out": "/workspace/" + "x" * 80, "log": "/workspace/" + "x" * 80, "best": 0.123456,
    }  # fmt: skip
    frame = {"t": "queue", "path": "/j", "at": 1.0, "runner_alive": False, "done": True}
    frame["cells"] = [dict(cell, name=f"cell-{n:05}") for n in range(count)]
    found = queue_state.shortened(frame, MIB)
    assert len(jsonline.encode_line(found)) <= MIB
    if found["cells"]:
        assert [each["name"] for each in found["cells"]] == [f"cell-{n:05}" for n in range(count)]
        assert all(each["state"] == "done" for each in found["cells"])
        assert found["done"] is True and "error" not in found
    else:
        assert count == 40_000
        assert found["done"] is False and "40000 cells" in found["error"]


@pytest.mark.parametrize("junk", [bytes(range(1, 10)), b"\x1b[31m", b"\xff", b'"\\', b"\n"])
def test_no_frame_of_a_log_is_above_the_limit(tmp_path: Path, junk: bytes) -> None:
    path = tmp_path / "log"
    path.write_bytes((junk * (MIB // len(junk)))[:MIB].replace(b"\x01", b"\n") + b"\n")
    follower = LogFollower(str(path), (path.stat().st_ino, 0), 0)
    end, longest = 0, 0
    while frame := follower.poll_frame():
        assert frame["start"] == end
        end = frame["end"]
        longest = max(longest, len(jsonline.encode_line(frame)))
    assert end == path.stat().st_size
    assert longest <= protocol.MAX_FRAME_BYTES


def test_no_frame_of_metrics_is_above_the_limit(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    wide = {"step": 1, **{f"{n}": 1e15 for n in range(9000)}}
    path.write_text((json.dumps(wide).replace("1000000000000000.0", "1e15") + "\n") * 20)
    follower = ScalarFollower("r", str(path), None)
    longest = count = 0
    while (frame := follower.poll()[0]) is not None:
        count += len(frame["points"])
        longest = max(longest, len(jsonline.encode_line(frame)))
    assert (count, longest <= protocol.MAX_FRAME_BYTES) == (20, True)


def test_a_name_without_an_end_is_told_of_in_a_frame_that_fits(
    tmp_path: Path, agent: Agent
) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    db = sqlite3.connect(folder / "mlflow.db")
    db.execute(
        "CREATE TABLE metrics (key TEXT, value FLOAT, timestamp BIGINT, run_uuid TEXT, step BIGINT, is_nan BOOLEAN)"
    )
    db.execute(
        "INSERT INTO metrics VALUES ('loss', 1.0, 1795253821902, ?, 1, 0)", ("n" * (2 * MIB),)
    )
    db.commit()
    db.close()
    channel = agent.watch(runs=[str(folder)], interval=5.0)
    frame = channel.expect(lambda frame: isinstance(frame, protocol.Scalars), "the curve")
    assert len(frame.run) < 1000
    channel.kill()


def test_the_first_line_and_the_controls_come_byte_by_byte_or_all_at_once(
    tmp_path: Path, agent: Agent
) -> None:
    log = tmp_path / "a.log"
    log.write_text("here\n")
    lines = json.dumps({"interval": 5.0, "pattern": "é" * 3000}) + "\n"
    lines += (
        json.dumps({"op": "follow", "path": str(log)})
        + "\n"
        + json.dumps({"op": "ping", "id": 7})
        + "\n"
    )
    for step in (1, 1 << 20):
        process = subprocess.Popen(
            agent.command("watch"),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=agent.env,
            bufsize=0,
        )
        assert process.stdin is not None and process.stdout is not None
        data = lines.encode()
        for at in range(0, len(data), step):
            process.stdin.write(data[at : at + step])
        seen: set[Any] = set()
        for line in process.stdout:
            frame = json.loads(line)
            seen.add((frame["t"], frame.get("id"), frame.get("path")))
            if {("pong", 7, None), ("log", None, str(log))} <= seen:
                break
        else:
            pytest.fail("no answer")
        process.kill()
        process.wait()
        process.stdin.close()
        process.stdout.close()


def test_a_control_line_that_comes_byte_by_byte_costs_no_square() -> None:
    reader, writer = os.pipe()
    inbox = ControlInbox(reader)
    line = b"x" * 60_000 + b"\n"
    began = time.process_time()
    for at in range(len(line)):
        os.write(writer, line[at : at + 1])
        curve_followers = inbox.read_lines()
    assert curve_followers == [line[:-1]]
    assert time.process_time() - began < 2.0
    assert not inbox.ended
    os.close(writer)
    assert inbox.read_lines() == [] and inbox.ended
    os.close(reader)


def test_the_configuration_may_have_the_cursors_of_28000_curves() -> None:
    cursors = {
        f"/workspace/{'x' * 100}/{n}#loss": {"inode": 1 << 62, "offset": 10**9}
        for n in range(28_000)
    }
    line = json.dumps({"scalar_cursors": cursors}).encode()
    assert 4 * MIB < len(line) < configs.MAX_LINE
    assert len(configs.parse_config(line)["scalar_cursors"]) == 28_000


def test_points_are_kept_up_to_a_bound_and_that_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(curve_followers, "MOST_POINTS", 1000)
    before = curve_followers.FoundSource.total
    for name in ("a", "b"):
        rows = "".join(
            f'{{"step": {n}, "loss": 1.0, "accuracy": 1, "unrelated": 2}}\n' for n in range(3000)
        )
        (tmp_path / f"{name}.jsonl").write_text(rows)
    scalars = curve_followers.FoundScalars("run", str(tmp_path), None, {})
    frames = scalars.poll()
    assert 1000 < curve_followers.FoundSource.total - before < 6000
    (event,) = scalars.poll()
    assert (event["kind"], event["level"]) == ("curves-cut", "warn")
    assert "more than 1000 points" in event["text"]
    assert scalars.poll() == []
    assert frames
    del scalars, frames
    assert curve_followers.FoundSource.total == before


def test_curves_of_one_file_are_kept_up_to_a_bound_and_that_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(merging, "MAX_SERIES", 50)
    many = {f"metric_{n}": 1.0 for n in range(99)}
    rows = [json.dumps({"step": n, "loss": 1.0} | many) for n in range(3)]
    (tmp_path / "a.jsonl").write_text("\n".join(rows) + "\n")
    scalars = curve_followers.FoundScalars("run", str(tmp_path), None, {})
    frames = scalars.poll()
    (event,) = [frame for frame in frames if frame["t"] == "event"]
    assert (event["kind"], event["level"]) == ("curves-cut", "warn")
    assert "a.jsonl has more than 5000 curves" in event["text"]
    sent = [frame["source"].rpartition("#")[2] for frame in frames if frame["t"] == "scalar"]
    assert len(sent) < 50 and sent[0] == "loss", "the measure first, and not all"
    assert scalars.poll() == []


def test_restarts_without_an_end_cost_no_square() -> None:
    store = SeriesStore()
    batch = ReadBatch("x", None)
    batch.points = [MetricPoint(f"m{n}", "step", 1.0, 1.0, None) for n in range(2000)]
    for _ in range(100_000):
        batch.add_restart(1.0, "again")
    began = time.process_time()
    store.apply_batch(batch)
    assert time.process_time() - began < 10.0
    assert MAX_STARTS < 100_000
