"""A file system that really hangs: a FUSE server that answers the mount and then nothing more."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import rgt_box

from rgt_tui.model import protocol
from tests.process.box.harness import PATIENCE, Agent, make_job, private_mount, until

# The kernel's include/uapi/linux/fuse.h: a header of 40 bytes, and the answer to FUSE_INIT (26).
SERVER = """
import ctypes, os, struct, sys
libc = ctypes.CDLL(None, use_errno=True)
fd = os.open("/dev/fuse", os.O_RDWR)
options = b"fd=%d,rootmode=40000,user_id=0,group_id=0,allow_other" % fd
if libc.mount(b"hung", os.fsencode(sys.argv[1]), b"fuse", 6, options):
    sys.exit(os.strerror(ctypes.get_errno()))
request = os.read(fd, 1 << 17)
_, opcode, unique = struct.unpack_from("<IIQ", request)
assert opcode == 26, opcode
answer = struct.pack("<IIIIHHIIHHI28x", 7, 31, 0, 0, 12, 9, 4096, 1, 0, 0, 0)
os.write(fd, struct.pack("<IiQ", 16 + len(answer), 0, unique) + answer)
print("mounted", flush=True)
while True:
    _, opcode = struct.unpack_from("<II", os.read(fd, 1 << 17))
    print("asked", opcode, flush=True)
"""
STATFS = 17


@pytest.fixture
def agent(agent_file: Path, tmp_path: Path, server: subprocess.Popen[str]) -> Iterator[Inside]:
    found = Inside(agent_file, tmp_path / "state")
    found.namespace = server.pid
    try:
        yield found
    finally:
        for channel in found.channels:
            channel.process.kill()
        server.kill()
        Agent.stop(Agent(agent_file, tmp_path / "state"))


@pytest.fixture
def server(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """In a mount namespace of its own, which goes away with the last process in it: nothing stays mounted."""
    mount = tmp_path / "hung"
    mount.mkdir()
    process = subprocess.Popen(
        [*private_mount("true"), sys.executable, "-c", SERVER, str(mount)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None and process.stderr is not None
    if process.stdout.readline() != "mounted\n":
        process.wait(PATIENCE)
        pytest.skip(f"no FUSE mount can be made here: {process.stderr.read().strip()[-200:]}")
    yield process
    process.kill()
    process.communicate()
    assert str(mount) not in Path("/proc/self/mounts").read_text()


class Inside(Agent):
    """An agent in the mount namespace of another process."""

    namespace: int

    def command(self, *words: str) -> list[str]:
        return ["nsenter", "-t", str(self.namespace), "-m", *super().command(*words)]


def test_a_mount_that_hangs_is_told_while_the_samples_go_on(
    agent: Inside, tmp_path: Path, server: subprocess.Popen[str]
) -> None:
    mount = str(tmp_path / "hung")

    def disk(frame: object) -> protocol.DiskReading | None:
        disks = frame.disks if isinstance(frame, protocol.Sample) else ()
        return next((disk for disk in disks if disk.mount == mount), None)

    def error(frame: object) -> str | None:
        found = disk(frame)
        return found.error if found is not None else None

    channel = agent.watch(interval=0.05, mounts=[mount])
    waiting = channel.expect(disk, "a sample of the mount")
    assert disk(waiting) == protocol.DiskReading(mount=mount, kind="fuse")
    assert server.stdout is not None
    assert server.stdout.readline() == f"asked {STATFS}\n"
    hung = channel.expect(error, "the timeout")
    assert error(hung) == "no answer for 5 s"
    assert (
        hung.seq - waiting.seq > 3
    )  # the sampler itself never waited for it, or this were the next one
    assert next(found for found in hung.disks if found.mount == "/").bytes_total
    os.kill(server.pid, signal.SIGSTOP)  # nor does a server that is merely stopped matter
    channel.expect(lambda frame: isinstance(frame, protocol.Sample) and frame.seq > hung.seq + 5)
    server.kill()
    gone = channel.expect(lambda frame: "no answer" not in (error(frame) or "no answer"), "the end")
    assert error(gone) in (
        "Software caused connection abort",
        "Transport endpoint is not connected",
    )
    channel.close()


def finished(job: Path, name: str) -> None:
    """Say in a job's state, as a runner does, that a cell has ended."""
    cell = {
        "name": name,
        "state": "done",
        "attempts": 1,
        "started": 1.0,
        "ended": 2.0,
        "exit_code": 0,
    }
    (job / "state.json").write_text(json.dumps({"at": 2.0, "cells": [cell]}))


@pytest.mark.parametrize(
    "linked", ["", "queue.txt", "state.json", "job.json", "runner.lock", "lanes"]
)
def test_a_job_on_a_mount_that_hangs_is_named_while_the_samples_and_other_jobs_go_on(
    agent: Inside, tmp_path: Path, server: subprocess.Popen[str], linked: str
) -> None:
    """The whole directory hangs, or one file of it that is a link to there."""
    mount = tmp_path / "hung"
    good, bad = make_job(tmp_path / "good", ["true"], ["a"]), mount / "job"
    if linked:
        bad = make_job(tmp_path / "bad", ["true"], ["b"])
        (bad / linked).unlink(missing_ok=True)
        (bad / linked).symlink_to(mount / linked)

    def event(kind: str, text: str) -> Callable[[object], bool]:
        return lambda frame: (
            isinstance(frame, protocol.BoxEvent)
            and frame.kind == kind
            and frame.text.startswith(text)
        )

    channel = agent.watch(interval=0.05, jobs=[str(bad), str(good)])
    seen: list[object] = []

    def expect(condition: Callable[[object], bool], what: str) -> Any:
        """Return the first such frame, also of those that came before another: who tells it is not the same."""

        def noted(frame: object) -> bool:
            seen.append(frame)
            return condition(frame)

        return next(filter(condition, seen), None) or channel.expect(noted, what)

    first = expect(lambda frame: isinstance(frame, protocol.Sample), "a sample")
    told = expect(event("files-hang", f"{bad}: no answer for "), "that it hangs")
    assert told.text.endswith("the state of its queue is unknown")
    known = tmp_path / "state" / "recorder-queues.json"
    until(
        lambda: known.exists() and str(good) in json.loads(known.read_bytes()),
        "a look at the other job",
    )
    finished(good, "a")
    expect(event("cell-done", "a: "), "the end of the other job's cell")
    samples = [frame.seq for frame in seen if isinstance(frame, protocol.Sample)]
    assert samples[-1] - first.seq > 3  # none has waited for it, or this were the next one
    expect(event("files-hang", f"{bad} has not answered"), "what the logs wait for")
    if not linked:  # it stands in every sample as long as it lasts
        expect(
            lambda frame: (
                isinstance(frame, protocol.Sample)
                and any(disk.mount == str(mount) and disk.error for disk in frame.disks)
            ),
            "the mount as one that does not answer",
        )
    server.kill()
    expect(event("files-answer", f"{bad}: answers again"), "that it answers")


def within(server: subprocess.Popen[str], code: str, *words: str) -> Any:
    """Return what Python code prints as JSON in the mount namespace of the server."""
    process = subprocess.Popen(
        ["nsenter", "-t", str(server.pid), "-m", sys.executable, "-c", code, *words],
        env=os.environ | {"PYTHONPATH": str(Path(rgt_box.__file__).parents[1])},
        stdout=subprocess.PIPE,
    )
    assert process.stdout is not None
    with process:
        try:
            ready, _, _ = select.select([process.stdout], [], [], PATIENCE)
            return json.loads(process.stdout.readline()) if ready else pytest.fail("it waits")
        finally:
            server.kill()  # nothing that waits for it ends before
            process.kill()


SIGNS = """
import json, os, sys
from rgt_box.autostop import idle_clock, work_signs
from rgt_box.sampling.sampler import BoxSampler
signs = work_signs.WorkSigns(
    {"jobs": json.loads(sys.argv[1]), "results": json.loads(sys.argv[2])}, float(sys.argv[4])
)
sampler = BoxSampler(sys.argv[3])
print(json.dumps(signs.read_signs(idle_clock.read_clocks(), {}, sampler)["unknown"]), flush=True)
os._exit(0)
"""


@pytest.mark.parametrize("what", ["job", "results", "neither"])
def test_whether_a_box_works_is_unknown_while_its_jobs_or_results_do_not_answer(
    server: subprocess.Popen[str], tmp_path: Path, what: str
) -> None:
    (tmp_path / "state").mkdir()
    mount = tmp_path / "hung"
    jobs = (
        [str(mount / "job")]
        if what == "job"
        else [str(make_job(tmp_path / "good", ["true"], ["a"]))]
    )
    results = [str(mount / "*.pt")] if what == "results" else []
    wait = (
        "50" if what == "neither" else "0.5"
    )  # files that answer may be slow to do so on a busy machine
    told = within(
        server, SIGNS, json.dumps(jobs), json.dumps(results), str(tmp_path / "state"), wait
    )
    hung = [text for text in told if text.startswith("jobs and results")]
    assert hung == ["jobs and results cannot be checked: no answer yet"] * (what != "neither")


SERVES = """
import json, os, subprocess, sys
from rgt_box.sampling import quiet_signs
held = os.open(sys.argv[1], os.O_PATH)
code = "import sys; sys.stdin.read()"
pipe = subprocess.PIPE
server = subprocess.Popen(["sftp-server", "-c", code], executable=sys.executable, stdin=pipe, pass_fds=[held])
while quiet_signs.procstat.read_cmdline(server.pid)[:1] != ["sftp-server"]:
    pass
print(json.dumps([item["name"] for item in quiet_signs.transfers() if item["pid"] == server.pid]), flush=True)
server.kill()
os._exit(0)
"""


def test_a_server_of_files_whose_file_hangs_is_told_and_not_waited_for(
    server: subprocess.Popen[str], tmp_path: Path
) -> None:
    assert within(server, SERVES, str(tmp_path / "hung")) == ["sftp-server"]


ALONE = """
import json, os, sys
from rgt_box.streams import sample_source
config = {"jobs": [sys.argv[1]], "mounts": [], "pattern": None, "find": True, "interval": 0.1}
source = sample_source.LocalSource(sys.argv[2], config, None)
kinds, told = [], []
while not told:
    frames = [json.loads(record.payload) for record in source.read_records(1)]
    kinds += [frame["t"] for frame in frames]
    told = [frame["text"] for frame in frames if frame.get("kind") == "files-hang"]
print(json.dumps([kinds.count("sample"), told]), flush=True)
os._exit(0)
"""


def test_a_watch_without_a_recorder_samples_on_too(
    server: subprocess.Popen[str], tmp_path: Path
) -> None:
    (tmp_path / "state").mkdir()
    samples, (text,) = within(
        server, ALONE, str(tmp_path / "hung" / "job"), str(tmp_path / "state")
    )
    assert samples > 3  # or the first had waited for it, and this were the second
    assert text.startswith(f"{tmp_path / 'hung' / 'job'}: no answer for ")
