"""The seal: no runner starts a cell under it, it opens by every way that there is, and it says what still happens."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest
from rgt_box.commands.seal import find_unexplained_gpus

from rgt_tui.model import Seal
from rgt_tui.ssh import remote_root
from tests.process.box.harness import Agent, Channel, make_job, until
from tests.process.box.nvml_driver import build_driver, make_devices


@pytest.fixture
def still(agent: Agent, tmp_path: Path) -> Iterator[Agent]:
    """An agent on a box where nobody types and little lies about; no seal outlives the test."""
    (tmp_path / "box").mkdir()
    agent.env |= {
        "RGT_ROOTS": str(tmp_path / "box"),
        "RGT_TERMINALS": "",
        "HOME": str(tmp_path / "home"),
    }
    yield agent
    holder = lock(agent)
    if holder.get("pid") and Path(f"/proc/{holder['pid']}").exists():
        os.kill(holder["pid"], signal.SIGKILL)


def lock(agent: Agent) -> dict[str, Any]:
    try:
        found = json.loads((agent.state / "seal.lock").read_text() or "{}")
    except FileNotFoundError:
        return {}
    assert isinstance(found, dict)
    return found


def seal(agent: Agent, *words: str) -> Seal:
    done = agent.run("seal", *words)
    assert done.returncode == 0, done.stderr
    return msgspec.json.decode(done.stdout, type=Seal)


def quiet(found: Seal) -> list[str]:
    """Return what speaks against a call, without what other tests do on the same machine."""
    return [
        line
        for line in found.busy
        if "files are being copied" not in line and "training process" not in line
    ]


def unseal(agent: Agent, nonce: str) -> bool:
    done = agent.run("unseal", nonce)
    assert done.returncode == 0, done.stderr
    return bool(json.loads(done.stdout)["opened"])


def status(agent: Agent, job: Path) -> dict[str, Any]:
    found = json.loads(agent.run("queue", "status", "--job", str(job)).stdout)
    assert isinstance(found, dict)
    return found


def test_no_runner_begins_under_a_seal_and_one_does_after_it(still: Agent, tmp_path: Path) -> None:
    job = make_job(tmp_path / "box/job", ["true"], ["a"])
    found = seal(still, "--job", str(job))
    assert (quiet(found), found.seconds, len(found.nonce)) == ([], 120.0, 32)
    for words in (["queue", "run"], ["queue", "cell", "--index", "0"], ["detach"]):
        refused = still.run(*words, "--job", str(job))
        assert refused.returncode in (2, 3)
        assert b"sealed for a billing action" in refused.stderr
    assert status(still, job).get("runner_alive", False) is False
    assert status(still, job)["cells"][0]["state"] == "waiting"
    assert unseal(still, found.nonce) is True
    assert still.run("queue", "run", "--job", str(job)).returncode == 0
    assert status(still, job)["done"] is True
    assert unseal(still, found.nonce) is False


def test_a_watcher_sees_no_runner_where_a_seal_holds_the_lock(still: Agent, tmp_path: Path) -> None:
    job = make_job(tmp_path / "box/job", ["true"], ["a"])
    found = seal(still, "--job", str(job))
    channel: Channel = still.watch(jobs=[str(job)])
    frame = channel.expect(lambda frame: type(frame).__name__ == "QueueState")
    assert frame.runner_alive is False
    assert unseal(still, found.nonce)


def test_a_live_runner_is_busy_and_goes_on(still: Agent, tmp_path: Path) -> None:
    job = make_job(tmp_path / "box/job", ["sleep", "1000"], ["a", "b"])
    runner = still.start("queue", "run", "--job", str(job))
    try:
        until(lambda: status(still, job)["cells"][0]["state"] == "running")
        found = seal(still, "--job", str(job))
        assert any(
            f"a runner (pid {runner.pid}) is already active on {job}" == line for line in found.busy
        )
        assert runner.poll() is None
        assert unseal(still, found.nonce)
    finally:
        runner.terminate()
        runner.communicate()


def test_a_lane_at_work_is_busy(still: Agent, tmp_path: Path) -> None:
    job = make_job(tmp_path / "box/job", ["sleep", "1000"], ["a", "b"])
    lane = still.start("queue", "cell", "--job", str(job), "--index", "1")
    try:
        until(lambda: (job / "lanes/b.json").exists())
        found = seal(still, "--job", str(job))
        assert "b is running in a separate lane" in found.busy
        assert unseal(still, found.nonce)
    finally:
        lane.terminate()
        lane.communicate()


def test_a_second_seal_is_refused_until_the_first_one_is_open(still: Agent) -> None:
    first = seal(still)
    refused = still.run("seal")
    assert refused.returncode == 3
    assert b"this box has another active seal; it expires automatically within" in refused.stderr
    assert unseal(still, "0" * 32) is False, "a nonce that is not its own opens nothing"
    assert still.run("seal").returncode == 3
    assert unseal(still, first.nonce)
    second = seal(still)
    assert second.nonce != first.nonce
    assert unseal(still, first.nonce) is False
    assert unseal(still, second.nonce)


def test_no_process_is_ended_for_a_file_that_anybody_may_write_to(
    still: Agent, tmp_path: Path
) -> None:
    nonce, other = "a" * 32, subprocess.Popen(["sleep", "1000"])
    try:
        ticks = int(Path(f"/proc/{other.pid}/stat").read_text().rpartition(")")[2].split()[19])
        still.state.mkdir()
        path = still.state / "seal.lock"
        path.write_text(
            json.dumps({"seal": True, "pid": other.pid, "ticks": ticks, "nonce": nonce})
        )
        assert unseal(still, nonce) is False, "nobody holds the lock"
        with path.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            path.chmod(0o666)
            assert unseal(still, nonce) is False
            assert other.poll() is None
            path.chmod(0o600)
            assert unseal(still, nonce) is True
        assert other.wait() == -signal.SIGTERM
    finally:
        other.kill()
        other.wait()


def test_it_opens_by_itself(still: Agent, tmp_path: Path) -> None:
    job = make_job(tmp_path / "box/job", ["true"], ["a"])
    seal(still, "--job", str(job), "--seconds", "0.2")
    until(lambda: still.run("queue", "run", "--job", str(job)).returncode == 0, "its end")


def test_it_opens_when_its_holder_is_killed(still: Agent, tmp_path: Path) -> None:
    job = make_job(tmp_path / "box/job", ["true"], ["a"])
    seal(still, "--job", str(job))
    os.kill(lock(still)["pid"], signal.SIGKILL)
    until(lambda: still.run("queue", "run", "--job", str(job)).returncode == 0)
    assert unseal(still, seal(still).nonce)


def test_it_outlives_who_asked_for_it_and_a_hang_up(still: Agent) -> None:
    process = subprocess.Popen(
        still.command("seal"), stdout=subprocess.PIPE, env=still.env, start_new_session=True
    )
    assert process.stdout is not None
    nonce = json.loads(process.stdout.readline())["nonce"]
    process.wait()
    for number in (signal.SIGHUP, signal.SIGINT):
        os.kill(lock(still)["pid"], number)
    assert still.run("seal").returncode == 3
    assert unseal(still, nonce)


def test_its_generation_is_that_of_results_and_moves_with_a_new_checkpoint(
    still: Agent, tmp_path: Path
) -> None:
    job = make_job(tmp_path / "box/job", ["true"], ["a"])
    (job / "out/a").mkdir(parents=True)
    before = json.loads(still.run("results", "--job", str(job)).stdout)["generation"]
    first = seal(still, "--job", str(job))
    assert first.generation == before
    assert unseal(still, first.nonce)
    (job / "out/a/model.pt").write_text("newer")
    second = seal(still, "--job", str(job))
    assert second.generation != before
    assert unseal(still, second.nonce)


def test_what_still_happens_is_said(still: Agent, tmp_path: Path) -> None:
    source = tmp_path / "train.py"
    source.write_text("import time\ntime.sleep(1000)\n")
    training = subprocess.Popen([sys.executable, str(source), "--epochs", "3"])
    held, kept = os.openpty()
    os.write(held, b"typed\n")
    os.read(kept, 100)
    copier = subprocess.Popen(["bash", "-c", "exec -a rsync sleep 1000"])
    still.env |= {"RGT_TERMINALS": os.ttyname(kept)}
    try:
        # Between fork and exec, and for a moment of exec itself, a process is not yet what it will be.
        until(lambda: Path(f"/proc/{copier.pid}/cmdline").read_bytes().startswith(b"rsync"))
        until(lambda: b"train.py" in Path(f"/proc/{training.pid}/cmdline").read_bytes())
        found = seal(still)
        assert any(f"training process is alive: pid {training.pid}," in line for line in found.busy)
        assert f"files are being copied: rsync, pid {copier.pid}" in found.busy
        assert any(line.startswith("somebody typed at a terminal") for line in found.busy)
        assert unseal(still, found.nonce)
    finally:
        for process in (training, copier):
            process.kill()
            process.wait()
        os.close(held)
        os.close(kept)


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_driver(tmp_path_factory.mktemp("driver"))


def cards(found: Seal) -> list[str]:
    return [line for line in found.busy if line.startswith("GPU")]


def test_memory_that_nobody_explains_is_said_and_a_card_that_is_silent(
    still: Agent, driver: Path, tmp_path: Path
) -> None:
    still.env |= {
        "LD_LIBRARY_PATH": str(driver),
        "RGT_NVIDIA_DEVICES": make_devices(tmp_path),
        "RGT_KMSG": "/dev/null",
    }
    found = seal(still)
    assert cards(found) == [
        "GPU 0: 60.0 GiB are used by an unknown process, utilisation 93%",
        "GPU 1 does not answer: GPU is lost",
    ]
    assert unseal(still, found.nonce)
    still.env |= {"STUB_USERS": f"4194000:{60 << 30}", "STUB_COUNT": "1"}
    found = seal(still)
    assert cards(found) == ["GPU 0: 60.0 GiB are used by pid 4194000, utilisation 93%"]
    assert unseal(still, found.nonce)


@pytest.mark.parametrize(
    ("card", "said"),
    [
        ({"vram_used": 1 << 29}, 0),
        ({"vram_used": (1 << 30) - 1}, 0),
        ({"vram_used": 1 << 30}, 1),
        ({"vram_used": 70 << 30, "util": None}, 1),
        ({"vram_used": 70 << 30, "sim": True}, 0),
        ({"vram_used": None}, 0),
        ({"vram_used": 70 << 30, "procs": [{"pid": 7, "bytes": 70 << 30, "mapped": True}]}, 0),
        ({"vram_used": 70 << 30, "procs": [{"pid": 7, "bytes": 70 << 30}]}, 1),
        ({"vram_used": 70 << 30, "procs": [{"pid": 7, "bytes": 60 << 30, "mapped": True}]}, 1),
        ({"vram_used": 70 << 30, "procs": [{"pid": 8, "bytes": 70 << 30, "mapped": True}]}, 1),
    ],
)
def test_only_memory_of_a_known_training_is_explained(card: dict[str, Any], said: int) -> None:
    lines = list(find_unexplained_gpus([{"index": 0, "util": 0.0, **card}], {7}))
    assert len(lines) == said
    assert not any("pid 7" in line for line in lines)


def test_a_training_that_only_the_recorder_knows_is_said(still: Agent, tmp_path: Path) -> None:
    process = subprocess.Popen(["sleep", "1000"])
    try:
        ticks = int(Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[19])
        run = {
            "name": "proj/quiet",
            "key": 1,
            "pid": process.pid,
            "ticks": ticks,
            "started": time.time(),
        }
        still.state.mkdir()
        (still.state / "found.json").write_text(json.dumps({"boot": "x", "runs": [run]}))
        found = seal(still)
        assert f"a training process is alive: pid {process.pid}, proj/quiet" in found.busy
        assert unseal(still, found.nonce)
    finally:
        process.kill()
        process.wait()


def test_a_queue_whose_lock_cannot_be_had_is_not_sealed(still: Agent, tmp_path: Path) -> None:
    job = make_job(tmp_path / "box/job", ["true"], ["a"])
    os.mkfifo(job / "runner.lock")
    fd = os.open(job / "runner.lock", os.O_RDWR)
    try:
        refused = still.run("seal", "--job", str(job))
        assert refused.returncode == 2
        assert b"cannot be sealed" in refused.stderr and b"runner.lock" in refused.stderr
        assert refused.stdout == b""
    finally:
        os.close(fd)


@pytest.mark.parametrize(
    "words", [["--seconds", "0"], ["--seconds", "nan"], ["--seconds", "1e9"], ["--pattern", "("]]
)
def test_nonsense_is_refused_before_anything_is_taken(still: Agent, words: list[str]) -> None:
    refused = still.run("seal", *words)
    assert (refused.returncode, refused.stdout) == (2, b"")
    assert not (still.state / "seal.lock").exists()


def opened_by(pid: int) -> set[str]:
    found = set()
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):  # closed meanwhile
            found.add(os.readlink(entry))
    return found


def test_the_holder_holds_nothing_but_its_locks(still: Agent, tmp_path: Path) -> None:
    job = make_job(tmp_path / "box/job", ["true"], ["a"])
    found = seal(still, "--job", str(job))
    pid = lock(still)["pid"]
    wanted = {"/dev/null", str(job / "runner.lock"), str(still.state / "seal.lock")}
    until(
        lambda: opened_by(pid) == wanted, "that it has closed all else"
    )  # by what it told that it holds, at last
    with (job / "runner.lock").open("rb") as file, pytest.raises(BlockingIOError):
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    assert unseal(still, found.nonce)


HANGS = """
import sys, time
sys.path.insert(0, sys.argv[1])
from rgt_box.commands import results, seal
seal.LONGEST = 1
results.find_results = lambda found: time.sleep(1000)
seal.main(["--job", sys.argv[2]])
"""


def test_a_look_that_hangs_frees_the_queue(still: Agent, tmp_path: Path) -> None:
    job = make_job(tmp_path / "box/job", ["true"], ["a"])
    words = [sys.executable, "-c", HANGS, str(remote_root()), str(job)]
    hung = subprocess.run(words, capture_output=True, env=still.env, timeout=60, check=False)
    assert (hung.returncode, hung.stdout) == (-signal.SIGALRM, b"")
    assert still.run("queue", "run", "--job", str(job)).returncode == 0
    assert unseal(still, seal(still).nonce)
