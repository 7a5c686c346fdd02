from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from rgt_box import place
from rgt_box.recorder import ring
from rgt_box.recorder.ring_history import HistoryStore

from rgt_tui.model import protocol
from tests.process.box.harness import Agent, decode, make_job, until
from tests.unit.box.checkpoint_files import safetensors_file, torch_file


def is_sample(frame: Any) -> bool:
    return isinstance(frame, protocol.Sample)


def test_hello_then_samples_then_the_end_of_stdin_ends_it(agent: Agent) -> None:
    channel = agent.watch(interval=0.05)
    frames = []
    for frame in channel.frames():
        frames.append(frame)
        if sum(map(is_sample, frames)) == 5:
            break
    hello = frames[0]
    assert isinstance(hello, protocol.Hello)
    assert (hello.proto, hello.agent) == (
        protocol.PROTOCOL_VERSION,
        agent.path.stem.removeprefix("rgt-box-"),
    )
    assert hello.pid == channel.process.pid
    samples = [frame for frame in frames if is_sample(frame)]
    assert [sample.seq for sample in samples] == list(range(samples[0].seq, samples[0].seq + 5))
    assert {sample.boot for sample in samples} == {hello.boot}
    assert samples[0].mem.host_total > 0
    assert samples[0].disks[0].mount == "/"
    assert samples[0].agent_rss > 0
    assert channel.close() == 0
    assert not list(agent.state.glob("watch-*.json"))
    assert agent.recorder_pid() is not None


def test_a_broken_stdout_ends_it(agent: Agent) -> None:
    channel = agent.watch(interval=10)
    channel.sync()
    assert channel.process.stdout is not None
    channel.process.stdout.close()
    assert channel.process.wait(60) == 0


@pytest.mark.parametrize(
    "line",
    [
        b"nonsense\n",
        b"[]\n",
        b"{}",
        b'{"interval": -1}\n',
        b'{"jobs": "x"}\n',
        b'{"log_cursors": {"a": 1}}\n',
        b'{"proto": 99}\n',
        b"\xff\xfe\n",
        b'{"interval": 1e999}\n',
        b'{"tail": "all"}\n',
        b'{"samples_after": 5}\n',
        b'{"mounts": ["a\\u0000b"]}\n',
        b"[" * 100000 + b"\n",
    ],
)
def test_a_bad_configuration_is_told_and_exits_2(agent: Agent, line: bytes) -> None:
    done = agent.run("watch", stdin=line)
    frame = decode(done.stdout)
    assert (done.returncode, frame.kind, frame.level) == (2, "bad-config", "error")
    assert done.stderr == b""


def test_control_lines(agent: Agent, tmp_path: Path) -> None:
    log = tmp_path / "x.log"
    log.write_text("one\n")
    channel = agent.watch(interval=60)
    channel.sync()
    assert channel.process.stdin is not None
    channel.process.stdin.write(
        b'nonsense\n{"op":"dance"}\n{"op":"follow"}\n{"op":"interval","seconds":-4}\n'
    )
    channel.send({"op": "follow", "path": str(log)})
    assert channel.expect(lambda f: isinstance(f, protocol.LogLines)).lines == ("one",)
    channel.send({"op": "unfollow", "path": str(log)})
    channel.sync(2)
    with log.open("a") as file:
        file.write("two\n")
    assert not any(isinstance(frame, protocol.LogLines) for frame in channel.sync(3))
    channel.send({"op": "interval", "seconds": 0.05})
    first = channel.expect(is_sample)
    assert channel.expect(is_sample).seq == first.seq + 1
    channel.close()


def test_a_reconnect_gets_what_happened_in_between(agent: Agent) -> None:
    channel = agent.watch(interval=0.05)
    last = channel.expect(is_sample)
    channel.kill()
    pid = agent.recorder_pid()
    cursor = {"boot": last.boot, "seq": last.seq}
    ring = agent.state / "ring"

    def recorded() -> bool:
        return b" %d {" % (last.seq + 5) in b"".join(path.read_bytes() for path in ring.iterdir())

    until(recorded, "samples without a watcher")
    channel = agent.watch(interval=0.05, samples_after=cursor)
    sample = channel.expect(is_sample)
    assert (sample.seq, sample.skipped) == (last.seq + 1, 0)
    assert agent.recorder_pid() == pid
    channel.close()


def test_the_fastest_watcher_sets_the_pace_and_its_end_gives_it_back(agent: Agent) -> None:
    slow = agent.watch(interval=30, mounts=["/dev/shm"])
    slow.sync()
    fast = agent.watch(interval=0.05, mounts=["/tmp"])
    fast.expect(
        lambda f: is_sample(f) and {d.mount for d in f.disks} == {"/", "/dev/shm", "/tmp"},
        "both mounts",
    )

    def interval() -> float:
        return float(json.loads((agent.state / "recorder-config.json").read_bytes())["interval"])

    until(lambda: interval() == 0.05)
    assert fast.close() == 0
    until(lambda: interval() == 30.0)
    slow.close()


def test_a_job_is_followed_by_itself(agent: Agent, tmp_path: Path) -> None:
    job = make_job(tmp_path / "job", ["true"], ["a", "b"])
    out = job / "out" / "a"
    (out / "checkpoints" / "step-00000320").mkdir(parents=True)
    (out / "checkpoints" / "step-00000320" / "manifest.json").write_text(json.dumps({"step": 320}))
    (out / "checkpoints" / "step-00000320" / "model.safetensors").write_bytes(
        safetensors_file(["a.weight"], {})
    )
    (out / "checkpoints" / ".tmp-9").mkdir()
    rows: list[dict[str, Any]] = [
        {"event": "start", "step": 0, "total_steps": 2400, "time": 1790000001.0}
    ]
    rows += [
        {"step": n, "epoch": 0.5, "time": 1790000002.0, "loss": 3.0, "lr": "nan"}
        for n in range(1, 1201)
    ]
    rows += [
        {"event": "resume", "step": 320, "reason": "SIGTERM", "time": 1790000003.0},
        {
            "event": "checkpoint-failed",
            "step": 812,
            "error": "OSError",
            "resource": "inodes",
            "mount": "/w",
            "time": 1790000004,
        },
    ]
    (out / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (job / "logs").mkdir()
    (job / "logs" / "a.log").write_text("hello\n")
    channel = agent.watch(interval=1, jobs=[str(job)])
    frames: list[Any] = []

    def complete(frame: Any) -> bool:
        frames.append(frame)
        return (
            {"QueueState", "Checkpoints", "LogLines"} <= {type(x).__name__ for x in frames}
            and any(
                isinstance(x, protocol.BoxEvent) and x.kind == "checkpoint-failed" for x in frames
            )
            and sum(len(x.points) for x in frames if isinstance(x, protocol.Scalars)) == 1201
        )

    channel.expect(complete)
    queue = next(frame for frame in frames if isinstance(frame, protocol.QueueState))
    assert [(cell.name, cell.state) for cell in queue.cells] == [("a", "waiting"), ("b", "waiting")]
    assert (queue.path, queue.runner_alive) == (str(job), False)
    scalars = [frame for frame in frames if isinstance(frame, protocol.Scalars)]
    assert all(len(frame.points) <= 500 for frame in scalars)
    assert [frame.start for frame in scalars] == [0, *(frame.end for frame in scalars[:-1])]
    assert scalars[0].points[0].values == {"total_steps": 2400.0}
    assert scalars[0].points[1] == protocol.ScalarPoint(
        step=1, at=1790000002.0, epoch=0.5, values={"loss": 3.0, "lr": "nan"}
    )
    assert scalars[-1].resumes == ((320, "SIGTERM"),)
    event = next(
        frame
        for frame in frames
        if isinstance(frame, protocol.BoxEvent) and frame.kind == "checkpoint-failed"
    )
    assert event.text == "a: step 812: OSError (inodes of /w)"
    assert event.seq == 0, "it stands outside the sequence of the ring"
    (checkpoint,) = next(frame for frame in frames if isinstance(frame, protocol.Checkpoints)).items
    assert (checkpoint.step, checkpoint.bytes, checkpoint.best) == (
        320,
        13 + len(safetensors_file(["a.weight"], {})),
        False,
    )
    with (job / "queue.txt").open("a") as file:
        file.write("c.toml lm 5\n")
    queue = channel.expect(lambda f: isinstance(f, protocol.QueueState) and len(f.cells) == 3)
    assert queue.cells[-1].epochs == 5
    channel.close()


SCRIPT = """
import pathlib, time
outputs = pathlib.Path("outputs")
outputs.mkdir()
whole = pathlib.Path("model.bytes").read_bytes()
(outputs / "best.pt").write_bytes(whole)
(outputs / "ckpt_20.pt").write_bytes(whole[:3000])
while not pathlib.Path("go").exists():
    time.sleep(0.01)
(outputs / "ckpt_20.pt").write_bytes(whole)
while pathlib.Path("go").exists():
    time.sleep(0.01)
"""


def test_checkpoints_of_a_script_that_knows_nothing_of_rgt_are_seen_where_it_works(
    agent: Agent, tmp_path: Path
) -> None:
    code = tmp_path / "code"
    code.mkdir()
    (code / "train.py").write_text(SCRIPT)
    (code / "pretrained.pt").write_bytes(torch_file({"model": {"a.weight": 1}}))
    os.utime(code / "pretrained.pt", (1e9, 1e9))
    (code / "model.bytes").write_bytes(torch_file({"model": {"a.weight": 1}, "epoch": 3}))
    job = make_job(tmp_path / "job", [sys.executable, "train.py"], ["a"], workdir=str(code))
    (code / "a.toml").write_text("")
    runner = agent.start("queue", "run", "--job", str(job))
    channel = agent.watch(interval=1, jobs=[str(job)])

    def saved(frame: Any) -> bool:
        return isinstance(frame, protocol.Checkpoints)

    half = channel.expect(lambda frame: saved(frame) and frame.writing)
    assert [(Path(one.path).name, one.epoch, one.best) for one in half.items] == [
        ("best.pt", 3, True)
    ]
    assert [(one.path, one.step) for one in half.writing] == [
        (str(code / "outputs/ckpt_20.pt"), 20)
    ]
    assert "ends too early" in (half.writing[0].why or "")
    (code / "go").touch()
    whole = channel.expect(lambda frame: saved(frame) and not frame.writing)
    assert [Path(one.path).name for one in whole.items] == ["best.pt", "ckpt_20.pt"]
    (code / "go").unlink()
    assert runner.wait(30) == 0
    channel.close()


def test_a_client_that_asks_for_differences_gets_whole_samples_in_plain_lines(agent: Agent) -> None:
    """As a client of before does, which knows nothing of compression."""
    channel = agent.watch(interval=0.05, delta=True)
    hello = channel.expect(lambda frame: isinstance(frame, protocol.Hello))
    assert not hello.packed_lines
    assert all(channel.expect(is_sample).mem.host_total for _ in range(3))
    channel.close()


def test_a_slow_reader_gets_the_newest_and_an_exact_count(agent: Agent, tmp_path: Path) -> None:
    channel = agent.watch(interval=0.05)
    first = channel.expect(is_sample)
    (tmp_path / "flood.log").write_text("first\n")
    channel.send({"op": "follow", "path": str(tmp_path / "flood.log")})
    samples = [first]
    for frame in channel.frames():
        if isinstance(frame, protocol.LogLines):
            break
        samples += [frame] if is_sample(frame) else []
    with (tmp_path / "flood.log").open("a") as file:
        file.writelines(f"line {n} {'x' * 80}\n" for n in range(200000))
        file.flush()
        # Nobody reads: the pipe, then the bounded buffer fill up, while the recorder goes on.
        until(lambda: ring_seq(agent) > first.seq + 20)
    lines, skipped, newest = 0, 0, ""
    for frame in channel.frames():
        if isinstance(frame, protocol.LogLines):
            lines, skipped, newest = (
                lines + len(frame.lines),
                skipped + frame.skipped,
                frame.lines[-1],
            )
        elif is_sample(frame):
            samples.append(frame)
        if newest.startswith("line 199999 ") and samples[-1].seq > first.seq + 20:
            break
    assert lines + skipped == 200000
    assert skipped > 0
    gaps = sum(after.seq - before.seq - 1 for before, after in itertools.pairwise(samples))
    assert sum(sample.skipped for sample in samples) >= gaps
    channel.close()


def ring_seq(agent: Agent) -> int:
    found = 0
    for path in (agent.state / "ring").glob("*.seg"):
        with suppress(FileNotFoundError):  # the oldest goes where a new one begins
            for row in path.read_bytes().split(b"\n"):
                words = row.split(b" ", 3)
                if len(words) == 4 and words[2].isdigit():
                    found = max(found, int(words[2]))
    return found


def test_a_dead_recorder_is_replaced_and_the_numbers_go_on(agent: Agent) -> None:
    channel = agent.watch(interval=0.05)
    last = channel.expect(is_sample)
    pid = agent.recorder_pid()
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    again = channel.expect(
        lambda f: isinstance(f, protocol.BoxEvent) and f.kind == "agent-started", "a new recorder"
    )
    assert again.seq > last.seq
    assert channel.expect(is_sample).seq == again.seq + 1
    assert agent.recorder_pid() != pid
    channel.close()


def test_a_wiped_state_directory_never_reuses_numbers(agent: Agent) -> None:
    channel = agent.watch(interval=0.05)
    last = channel.expect(lambda f: is_sample(f) and f.seq > 8)
    channel.close()
    agent.stop()
    subprocess.run(["rm", "-rf", str(agent.state)], check=True)
    channel = agent.watch(interval=0.05, samples_after={"boot": last.boot, "seq": last.seq})
    assert channel.expect(is_sample).seq > last.seq
    channel.close()


def test_a_reboot_starts_a_new_sequence_and_says_so(agent: Agent) -> None:
    agent.env["RGT_BOOT_ID"] = "first"
    channel = agent.watch(interval=0.05)
    last = channel.expect(lambda f: is_sample(f) and f.seq > 4)
    channel.close()
    agent.stop()
    agent.env["RGT_BOOT_ID"] = "second"
    channel = agent.watch(interval=0.05, samples_after={"boot": last.boot, "seq": last.seq})
    event = channel.expect(lambda f: isinstance(f, protocol.BoxEvent) and f.kind == "rebooted")
    assert (event.boot, event.seq) == ("second", 1)
    assert channel.expect(is_sample).boot == "second"
    channel.close()


def test_history_then_numbers_without_a_hole(agent: Agent) -> None:
    channel = agent.watch(interval=0.05)
    seen: list[int] = []
    for frame in channel.frames():
        if isinstance(frame, (protocol.Sample, protocol.BoxEvent)):
            seen.append(frame.seq)
        if len(seen) >= 10:
            break
    assert seen == list(range(seen[0], seen[0] + 10))
    channel.close()


def test_what_happened_to_the_cells_while_nobody_watched_is_told_in_order(
    agent: Agent, tmp_path: Path
) -> None:
    job = make_job(tmp_path / "job", ["sh", "-c", "test {name} = a"], ["a", "b"])
    channel = agent.watch(interval=0.05, jobs=[str(job)])
    queue = channel.expect(lambda f: isinstance(f, protocol.QueueState))
    assert [cell.state for cell in queue.cells] == ["waiting", "waiting"]
    last = channel.expect(is_sample)
    known = agent.state / "recorder-queues.json"
    until(known.exists, "the recorder's first look at the queue")
    channel.kill()
    assert agent.run("queue", "run", "--job", str(job)).returncode == 1
    until(lambda: json.loads(known.read_bytes())[str(job)]["cells"]["b"] == ["failed", 1])
    cursor = {"boot": last.boot, "seq": last.seq}
    for history in (None, {"seconds": 60, "points": 10}):
        channel = agent.watch(interval=0.05, samples_after=cursor, history=history)
        events: list[str] = []
        while len(events) < 5:
            event = channel.expect(lambda f: isinstance(f, protocol.BoxEvent) and f.seq)
            events += [event.text.split(",")[0]] if event.kind.startswith(("cell", "queue")) else []
        first, done_a, *rest = events
        assert (first, done_a) == ("a: running", "a: done")
        assert rest[:2] == ["b: running", "b: failed"]
        channel.kill()


def test_a_long_absence_is_summed_up_when_asked(agent: Agent) -> None:
    store = HistoryStore(str(agent.state), place.boot_id())
    for seq in range(1, 1001):
        disk = {"mount": "/", "bytes_used": seq % 100, "bytes_total": 100}
        past = {
            "t": "sample",
            "at": 1e9 + seq,
            "session": {"uptime_s": float(seq)},
            "disks": [disk],
        }
        store.append_frame(ring.SAMPLE, past)
        if seq % 100 == 0:
            event = {
                "t": "event",
                "at": 1e9,
                "kind": "cell-done",
                "text": str(seq),
                "level": "info",
            }
            store.append_frame(ring.EVENT, event)
    cursor = {"boot": place.boot_id(), "seq": 5}
    channel = agent.watch(
        interval=0.05, samples_after=cursor, history={"seconds": 1e9, "points": 50}
    )
    history: protocol.RecordedHistory | None = None
    samples: list[protocol.Sample] = []
    events: list[str] = []
    for frame in channel.frames():
        if isinstance(frame, protocol.RecordedHistory):
            history = frame
        elif isinstance(frame, protocol.BoxEvent):
            events.append(frame.text)
        elif is_sample(frame):
            samples.append(frame)
        if history and len(samples) > 130:
            break
    assert history is not None
    assert samples[0].skipped > 800
    assert samples[0].seq + len(samples) - 1 > 1010
    assert events[:10] == [str(seq) for seq in range(100, 1001, 100)]
    assert sum(row.count for row in history.rows) >= 1000
    assert "disk:/" in history.names
    channel.close()


def test_paths_in_the_home_directory_are_understood(agent: Agent, tmp_path: Path) -> None:
    """As the fleet file of the README writes them."""
    make_job(tmp_path / "jobs" / "sweep", ["true"], ["a"])
    (tmp_path / "exp").mkdir()
    (tmp_path / "exp" / "one.log").write_text("hello\n")
    agent.env["HOME"] = str(tmp_path)
    channel = agent.watch(interval=1, jobs=["~/jobs/sweep"], logs=["~/exp/*.log"])
    wanted: dict[type, Any] = {}

    def complete(frame: Any) -> bool:
        wanted.setdefault(type(frame), frame)
        return {protocol.QueueState, protocol.LogLines} <= set(wanted)

    channel.expect(complete)
    assert [cell.name for cell in wanted[protocol.QueueState].cells] == ["a"]
    assert wanted[protocol.LogLines].lines == ("hello",)
    channel.close()


def test_what_was_found_is_only_told_to_who_asked(agent: Agent, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("import time\ntime.sleep(1000)")
    with (tmp_path / "run.log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "train.py"], cwd=tmp_path, stdout=log, stderr=log
        )
    try:
        asks = agent.watch(find=True, interval=0.05)
        asks.expect(
            lambda frame: (
                isinstance(frame, protocol.FoundRuns)
                and process.pid in [run.pid for run in frame.runs]
            )
        )
        older = agent.watch(interval=0.05)
        older.expect(
            lambda frame: (
                isinstance(frame, protocol.Sample)
                and process.pid in [proc.pid for proc in frame.procs]
            )
        )
        assert not any(isinstance(frame, protocol.FoundRuns) for frame in older.sync())
        assert (asks.close(), older.close()) == (0, 0)
    finally:
        process.kill()
        process.wait()
