"""A file system that really hangs: a FUSE server that answers the mount and then nothing more."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from rgt_tui.model import protocol
from tests.process.box.harness import PATIENCE, Agent, private_mount

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
    agent_file: Path, tmp_path: Path, server: subprocess.Popen[str]
) -> None:
    agent = Inside(agent_file, tmp_path / "state")
    agent.namespace = server.pid
    mount = str(tmp_path / "hung")

    def disk(frame: object) -> protocol.Disk | None:
        disks = frame.disks if isinstance(frame, protocol.Sample) else ()
        return next((disk for disk in disks if disk.mount == mount), None)

    def error(frame: object) -> str | None:
        found = disk(frame)
        return found.error if found is not None else None

    try:
        channel = agent.watch(interval=0.05, mounts=[mount])
        waiting = channel.expect(disk, "a sample of the mount")
        assert disk(waiting) == protocol.Disk(mount=mount, kind="fuse")
        assert server.stdout is not None
        assert server.stdout.readline() == f"asked {STATFS}\n"
        hung = channel.expect(error, "the timeout")
        assert error(hung) == "no answer for 5 s"
        assert hung.seq - waiting.seq > 20  # the sampler itself never waited for it
        assert next(found for found in hung.disks if found.mount == "/").bytes_total
        os.kill(server.pid, signal.SIGSTOP)  # nor does a server that is merely stopped matter
        channel.expect(lambda frame: isinstance(frame, protocol.Sample) and frame.seq > hung.seq + 5)
        server.kill()
        gone = channel.expect(lambda frame: "no answer" not in (error(frame) or "no answer"), "the end")
        assert error(gone) in ("Software caused connection abort", "Transport endpoint is not connected")
        channel.close()
    finally:
        server.kill()
        Agent.stop(Agent(agent_file, tmp_path / "state"))
