"""The demo's boxes: isolated, really small, and gone without a trace."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import fcntl
import json
import os
import shlex
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from rgt_tui.demo import DemoError, LocalAutodl, embedded
from rgt_tui.demo.plan import BOXES, FILL_DIR, DemoBox
from rgt_tui.demo.sandboxes import DiskNamespace, SandboxMachine
from rgt_tui.demo.stories import FILL_SCRIPT
from rgt_tui.demo.workspace import MARKER_ENV, Workspace, clean_stale, kill_marked
from rgt_tui.providers import own_stop
from rgt_tui.ssh import remote_root
from tests.process.box.harness import until

VAST = next(box for box in BOXES if box.name == "vast-demo")
RUNPOD = next(box for box in BOXES if box.name == "runpod-demo")


@pytest.fixture(autouse=True)
def own_tmp(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "a temporary folder"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    return folder


@pytest.fixture
async def machine() -> AsyncIterator[SandboxMachine]:
    with Workspace() as workspace:
        room = DiskNamespace(workspace.path, (VAST,))
        await room.start()
        machine = SandboxMachine(VAST, room, workspace, remote_root())
        try:
            await machine.boot()
            yield machine
        finally:
            await machine.remove_machine()
            await room.stop()


def marked(root: str) -> list[int]:
    """Pids of all processes that belong to the demo at `root`."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if f"{MARKER_ENV}={root}".encode() in (entry / "environ").read_bytes():
                found.append(int(entry.name))
        except OSError:
            continue
    return found


async def test_a_box_sees_only_its_own_processes_and_its_own_name(machine: SandboxMachine) -> None:
    pids = (await machine.run("ls -d /proc/[0-9]*")).split()
    assert "/proc/1" in pids
    assert len(pids) < 8
    assert (await machine.run("hostname")).strip() == "vast-demo"


async def test_a_box_has_its_own_shared_memory(machine: SandboxMachine) -> None:
    with tempfile.NamedTemporaryFile(dir="/dev/shm", prefix="rgt-test-of-the-machine-") as foreign:
        assert (
            await machine.run("ls -A /dev/shm; echo kept > /dev/shm/own; cat /dev/shm/own")
        ).split() == ["kept"]
        assert not (Path(foreign.name).parent / "own").exists()


async def test_inodes_really_run_out_while_bytes_are_free(machine: SandboxMachine) -> None:
    with pytest.raises(RuntimeError, match="No space left on device"):
        await machine.run("i=0; while i=$((i+1)); : > /workspace/f$i; do :; done; exit 1")
    said = await machine.run(
        "stat -f -c '%d %a' /workspace; rm -f /workspace/f1; echo x > /workspace/again"
    )
    free_inodes, free_blocks = map(int, said.split()[:2])
    assert free_inodes == 0
    assert free_blocks > 1000


async def test_the_demos_dump_takes_also_what_a_save_gives_back(machine: SandboxMachine) -> None:
    """A save that runs when the disk fills removes the previous checkpoint afterwards: that must not leave room."""
    fill = FILL_SCRIPT.format(dir=FILL_DIR).replace("sleep 0.15", ":")
    script = shlex.quote(fill.replace("tries=300", "tries=20"))
    taken = "i=0; while [ $i -lt 5 ]; do i=$((i+1)); : > /workspace/old$i; done"
    full = "until [ $(stat -f -c %d /workspace) = 0 ]; do sleep 0.05; done"
    start = f"sh -c {script} & until [ -d {FILL_DIR} ]; do sleep 0.05; done"
    said = await machine.run(
        f"{taken}; {start}; {full}; rm /workspace/old*; wait; stat -f -c %d /workspace"
    )
    assert said.split()[-1] == "0"
    # It ends when its files are removed while it runs.
    endless = shlex.quote(fill.replace("tries=300", "tries=9999"))
    removed = f"rm -rf {FILL_DIR}"
    said = await machine.run(
        f"{removed}; sh -c {endless} & {full}; {removed}; wait; stat -f -c %d /workspace"
    )
    assert int(said.split()[-1]) > 4000


async def test_the_system_is_read_only_on_a_box(machine: SandboxMachine) -> None:
    with pytest.raises(RuntimeError, match="Read-only"):
        await machine.run("touch /usr/rgt-was-here")


async def test_unplugging_kills_everything_and_disks_survive_the_boot(
    machine: SandboxMachine,
) -> None:
    await machine.run(
        "echo kept > /workspace/a; nohup setsid sleep 1000 >/dev/null 2>&1 </dev/null & "
    )
    await machine.power_off()
    assert not machine.is_running
    await machine.boot()
    assert (await machine.run("cat /workspace/a")).strip() == "kept"
    assert "sleep" not in await machine.run("cat /proc/[0-9]*/comm 2>/dev/null; :")


async def test_a_disk_that_does_not_survive_is_empty_after_a_boot() -> None:
    with Workspace() as workspace:
        room = DiskNamespace(workspace.path, (RUNPOD,))
        await room.start()
        machine = SandboxMachine(RUNPOD, room, workspace, remote_root())
        try:
            await machine.boot()
            await machine.run("echo x > /root/lost; echo y > /workspace/kept")
            await machine.power_off()
            await machine.boot()
            assert (
                await machine.run("ls /root/lost 2>/dev/null; cat /workspace/kept")
            ).split() == ["y"]
        finally:
            await machine.remove_machine()
            await room.stop()


async def test_the_memory_limit_kills_in_the_box_alone(machine: SandboxMachine) -> None:
    if machine._cgroup is None:
        pytest.fail("this machine gives no memory cgroup; the OOM story cannot be checked")
    hog = shlex.join([sys.executable, "-c", f"x = bytearray({VAST.memory_limit * 2})"])
    with pytest.raises(RuntimeError, match=r"Killed|ended with (137|-9)"):
        await machine.run(hog)
    assert machine.is_running


async def test_the_whole_machine_counts_towards_its_memory_limit(machine: SandboxMachine) -> None:
    assert machine._cgroup is not None
    inside = (machine._cgroup / "cgroup.procs").read_text().split()
    assert str(machine.pid) in inside


async def test_nothing_is_left_after_the_end() -> None:
    with Workspace() as workspace:
        path = workspace.path
        room = DiskNamespace(path, (VAST,))
        await room.start()
        machine = SandboxMachine(VAST, room, workspace, remote_root())
        cgroup = machine._cgroup
        await machine.boot()
        await machine.run("nohup setsid sleep 1000 >/dev/null 2>&1 </dev/null &")
        assert marked(str(path))
        await machine.remove_machine()
        await room.stop()
    assert not marked(str(path))
    assert not path.exists()
    assert cgroup is None or not cgroup.exists()
    assert str(path) not in Path("/proc/self/mountinfo").read_text()


KILLED = """
import asyncio, sys
from rgt_tui.ssh.bundle import remote_root
from rgt_tui.demo.plan import BOXES, FILL_DIR
from rgt_tui.demo.sandboxes import SandboxMachine
from rgt_tui.demo.sandboxes import DiskNamespace
from rgt_tui.demo.stories import FILL_SCRIPT
from rgt_tui.demo.workspace import Workspace

async def main():
    workspace = Workspace()
    room = DiskNamespace(workspace.path, BOXES[:1])
    await room.start()
    machine = SandboxMachine(BOXES[0], room, workspace, remote_root())
    await machine.boot()
    await machine.run("nohup setsid sleep 1000 >/dev/null 2>&1 </dev/null &")
    print(workspace.path, flush=True)
    await asyncio.sleep(1000)

asyncio.run(main())
"""


def test_after_kill_9_the_kernel_ends_the_boxes_and_the_next_demo_removes_the_rest() -> None:
    process = subprocess.Popen([sys.executable, "-c", KILLED], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    root = process.stdout.readline().strip()
    assert marked(root)
    process.send_signal(signal.SIGKILL)
    process.wait()
    deadline = time.monotonic() + 90
    while marked(root) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert marked(root) == []
    assert Path(root).exists()
    with Workspace() as workspace:
        assert workspace.removed == 1
    assert not Path(root).exists()


def test_a_process_that_carries_the_mark_of_a_dead_demo_is_killed_and_no_other(
    own_tmp: Path,
) -> None:
    mine, other = str(own_tmp / "dead"), str(own_tmp / "dead2")
    children = [
        subprocess.Popen(["sleep", "1000"], env={**os.environ, MARKER_ENV: root})
        for root in (mine, other)
    ]
    try:
        # A child that has just begun to be `sleep` shows no environment for an instant.
        until(
            lambda: all(
                child.pid in marked(root)
                for child, root in zip(children, (mine, other), strict=True)
            )
        )
        assert kill_marked(mine) == 1
        assert children[0].wait(60) == -signal.SIGKILL
        assert children[1].poll() is None
    finally:
        for child in children:
            child.kill()
            child.wait()


def test_two_demos_do_not_touch_each_other() -> None:
    with Workspace() as first, Workspace() as second:
        assert first.path != second.path
        assert clean_stale(first.path.parent) == 0
        assert first.path.exists()
        assert second.path.exists()


def test_one_that_starts_between_anothers_directory_and_its_lock_leaves_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made: list[Workspace] = []
    others: list[threading.Thread] = []
    really = fcntl.flock

    def flock(fd: int, how: int) -> None:
        if not others and os.readlink(f"/proc/self/fd/{fd}").endswith("/lock"):
            others.append(threading.Thread(target=lambda: made.append(Workspace())))
            others[0].start()
            others[0].join(0.5)  # it waits, or it has taken the directory away
        really(fd, how)

    monkeypatch.setattr(fcntl, "flock", flock)
    with Workspace() as first:
        others[0].join(60)
        with made[0] as second:
            assert first.path.exists() and second.path.exists()
            assert (first.removed, second.removed) == (0, 0)


def test_a_killed_process_is_waited_for_before_its_cgroup_counts_as_in_use(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with Workspace() as workspace:
        workspace.note_cgroup(tmp_path / "group")
        dying = iter([True, True])

        def rmdir(path: Path) -> None:
            if next(dying, False):
                raise OSError(errno.EBUSY, os.strerror(errno.EBUSY))

        monkeypatch.setattr(Path, "rmdir", rmdir)
    assert not workspace.path.exists() and next(dying, None) is None


def test_a_full_temporary_disk_is_named_with_the_way_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rgt_tui.demo.workspace.MIN_FREE_BYTES", 1 << 60)
    with pytest.raises(DemoError, match=r"temporary disk is full.*TMPDIR"):
        Workspace()


def test_a_directory_of_someone_else_is_refused(own_tmp: Path) -> None:
    (own_tmp / f"rgt-demo-{os.getuid()}").symlink_to("/")
    with pytest.raises(DemoError, match="belongs to someone else"):
        Workspace()


def test_every_tier_of_the_plan_is_one_of_its_profile() -> None:
    from rgt_tui.profiles import load_profile

    for box in BOXES:
        names = {tier.name for tier in load_profile(box.profile).tiers}
        assert {disk.tier for disk in box.disks} <= names
        assert box.data in {disk.path for disk in box.disks}
        assert box.durable in {disk.path for disk in box.disks}
        assert msgspec.json.encode(box)


ALLOWED = """import json, sys; sys.path.insert(0, "/tmp/agent.pyz")
from rgt_box.autostop import own_stop
stop, instance = json.loads(sys.argv[1])
print(own_stop.prove_stop_right(own_stop.OwnStop(stop, instance))[0])
"""


@pytest.mark.parametrize("box", BOXES, ids=lambda box: box.name)
async def test_a_box_may_stop_itself_as_on_its_platform(box: DemoBox, agent_file: Path) -> None:
    async with embedded.EmbeddedFleet((box,)) as fleet:
        machine = fleet.machines[box.name]
        await machine.run("cat > /tmp/agent.pyz", agent_file.read_bytes())
        found = own_stop(fleet.find_box_spec(box.name).provider)
        assert found is not None
        asked = json.dumps([msgspec.to_builtins(found.way), box.instance])
        assert await machine.run(shlex.join([sys.executable, "-c", ALLOWED, asked])) == "True\n"


async def test_autodl_s_own_shutdown_ends_the_charge() -> None:
    (box,) = (box for box in BOXES if box.profile == "autodl")
    async with embedded.EmbeddedFleet((box,)) as fleet:
        machine, plane = fleet.machines[box.name], fleet.find_control_plane(box.name)
        assert isinstance(plane, LocalAutodl)
        plane.settle_s = 0.0
        shown = await machine.run("stat -c '%U %a' /usr/bin/shutdown && test -x /usr/bin/env")
        assert shown == "root 755\n"
        with contextlib.suppress(RuntimeError):  # it ends with the container
            await machine.run("/usr/bin/shutdown")
        off = plane.containers[box.instance]
        await asyncio.to_thread(until, lambda: off.status == "shutdown")
        assert not machine.is_running
