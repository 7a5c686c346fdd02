"""Paths that another user's training names: its links show the agent, which may read everything, nothing of root's."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from rgt_box.discovery import script_look
from rgt_box.sampling import rank_waits

from rgt_tui.model import protocol
from tests.process.box.harness import Agent, Channel, until
from tests.security.conftest import NOBODY, training

pytestmark = [
    pytest.mark.serial,  # the agent looks at every process there is: other tests' trainings would be in the way
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to act as a second user"),
]

WRITES = """
log, metrics = open("run.log", "w", 1), open("metrics.csv", "w", 1)
print("epoch 1 begins", file=log)
print("step,loss\\n1,0.5\\n2,0.25", file=metrics)
"""


@pytest.fixture
def secrets(open_folder: Path) -> Path:
    """What only root may read."""
    folder = open_folder / "secrets"
    folder.mkdir(mode=0o700)
    (folder / "run.log").write_text("s3cret\n")
    (folder / "metrics.jsonl").write_text(
        "".join(json.dumps({"step": n, "loss": 0.123}) + "\n" for n in range(9))
    )
    return folder


def seen(channel: Channel, looks: int) -> tuple[set[str], set[float], set[str]]:
    """Lines of logs, losses, and named sources, up to so many samples."""
    lines: set[str] = set()
    losses: set[float] = set()
    sources: set[str] = set()
    for frame in channel.frames():
        if isinstance(frame, protocol.LogLines):
            lines.update(frame.lines)
        elif isinstance(frame, protocol.Scalars):
            values = [point.values.get("loss") for point in frame.points]
            losses.update(value for value in values if isinstance(value, float))
        elif isinstance(frame, protocol.FoundRuns):
            sources.update(source for run in frame.runs for source in run.sources)
        looks -= isinstance(frame, protocol.Sample)
        if looks <= 0:
            break
    return lines, losses, sources


@pytest.mark.parametrize("uid", [NOBODY, 0], ids=["theirs", "ours"])
def test_a_directory_that_is_a_link_to_one_of_root_s_shows_nothing_of_it(
    agent: Agent, home_of_nobody: Path, secrets: Path, uid: int
) -> None:
    os.chown(home_of_nobody, uid, uid)
    (home_of_nobody / "out").symlink_to(secrets)
    os.chown(home_of_nobody / "out", uid, uid, follow_symlinks=False)
    agent.env["RGT_FIND_SECONDS"] = "0.5"
    touch = "open('mark', 'w').close()" if uid else "os.utime('out/metrics.jsonl')"
    with training(home_of_nobody, "", real=uid, effective=uid, code=touch):
        os.utime(secrets / "metrics.jsonl")
        lines, losses, sources = seen(agent.watch(interval=0.2, find=True), 60)
    mine = str(home_of_nobody / "out/metrics.jsonl") in sources
    assert (mine, losses) == ((False, set()) if uid else (True, {0.123}))
    assert "s3cret" not in lines


def test_a_log_that_is_swapped_for_a_link_is_not_read_on(
    agent: Agent, home_of_nobody: Path, secrets: Path
) -> None:
    agent.env["RGT_FIND_SECONDS"] = "0.5"
    with training(home_of_nobody, "", code=WRITES):
        channel = agent.watch(interval=0.2, find=True)
        before: set[str] = set()
        while "epoch 1 begins" not in before:
            before |= seen(channel, 1)[0]
        for name, target in (("run.log", "run.log"), ("metrics.csv", "metrics.jsonl")):
            # Theirs from the first moment that it stands there: a link of root's own is followed.
            link = home_of_nobody / f"{name}.new"
            link.symlink_to(secrets / target)
            os.chown(link, NOBODY, NOBODY, follow_symlinks=False)
            link.rename(home_of_nobody / name)
        lines, losses, _ = seen(channel, 40)
    assert "s3cret" not in lines
    assert 0.123 not in losses


@pytest.mark.parametrize("verb", ["cat", "grep"])
def test_nor_do_the_verbs_that_read_what_was_found(
    agent: Agent, home_of_nobody: Path, secrets: Path, verb: str
) -> None:
    link = home_of_nobody / "run.log"
    link.symlink_to(secrets / "run.log")
    words = {"cat": ["cat", "--path", str(link)], "grep": ["grep", "s3c", str(link)]}[verb]
    assert "s3cret" in agent.run(*words).stdout.decode()
    os.chown(link, NOBODY, NOBODY, follow_symlinks=False)
    done = agent.run(*words)
    assert "s3cret" not in done.stdout.decode()
    assert "another user's symbolic link" in (done.stdout + done.stderr).decode()


def waits_for_a_reader(writer: threading.Thread) -> bool:
    """Tell whether a thread sleeps in the opening of a pipe, and not for its turn in the interpreter."""
    where = Path(f"/proc/self/task/{writer.native_id}/wchan").read_text()
    return where not in ("", "0") and "futex" not in where


@contextmanager
def who_waits_to_write(pipe: Path) -> Iterator[threading.Event]:
    """Set once somebody opens the pipe to read: so would a device be opened, and a watchdog begin to count."""
    opened = threading.Event()

    def write() -> None:
        os.close(os.open(pipe, os.O_WRONLY))
        opened.set()

    writer = threading.Thread(target=write)
    writer.start()
    try:
        until(lambda: waits_for_a_reader(writer), "the writer")
        yield opened
    finally:
        reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
        writer.join()  # who closes the reader before finds a writer that comes to the pipe after it
        os.close(reader)


def test_a_script_that_is_a_link_to_something_else_is_not_looked_at(
    home_of_nobody: Path, secrets: Path
) -> None:
    (secrets / "train.py").write_text("Trainer().train(resume_from_checkpoint=True)")
    link, pipe = home_of_nobody / "train.py", home_of_nobody / "pipe"
    link.symlink_to(secrets / "train.py")
    read = script_look.script_text
    assert read("train.py", str(home_of_nobody), "") is not None, "a link of root's own is followed"
    os.chown(link, NOBODY, NOBODY, follow_symlinks=False)
    assert read("train.py", str(home_of_nobody), "") is None
    os.mkfifo(pipe)
    link.unlink()
    for make in (link.symlink_to, link.hardlink_to):
        make(pipe)
        with who_waits_to_write(pipe) as opened:
            assert read("train.py", str(home_of_nobody), "") is None
            assert not opened.is_set()
        link.unlink()
    assert read("x\0.py", str(home_of_nobody), "") is None


FORGES = """
import os, sys, time
os.chroot(sys.argv[1])
os.chdir("/")
os.setgid(65534)
os.setuid(65534)
held = os.open("memfd:rgt-heartbeat (deleted)", os.O_PATH)
print(held, flush=True)
time.sleep(600)
"""


def test_a_file_that_is_only_called_like_a_heartbeat_is_not_opened(
    open_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a mount namespace of his own anybody may give a file that name: a pipe, or a device of the box."""
    pipe = open_folder / "memfd:rgt-heartbeat (deleted)"
    os.mkfifo(pipe, 0o666)
    monkeypatch.setattr(
        rank_waits, "HEARTBEAT_LINK", str(pipe)
    )  # here it is seen by its whole path
    words = [sys.executable, "-c", FORGES, str(open_folder)]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        number = int(process.stdout.readline())
        assert rank_waits.find_heartbeat(process.pid) == f"/proc/{process.pid}/fd/{number}"
        with who_waits_to_write(pipe) as opened:
            assert rank_waits.read_phase(f"/proc/{process.pid}/fd/{number}", 0, 2) is None
            assert not opened.is_set()
    finally:
        process.send_signal(signal.SIGKILL)
        process.communicate()
