"""Hosts that share a home directory, and containers that share the kernel and /dev/shm, too: each shows its own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from rgt_box import place, procstat
from rgt_box.recorder import state_files

from rgt_tui.model import protocol
from tests.process.box.harness import Agent, Channel, until

NODE = "rgt-test-node"
pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to make namespaces")


class Container(Agent):
    """An agent in namespaces of its own; its home directory and /dev/shm are those of all containers of a test."""

    def __init__(self, path: Path, shared: Path, memory: Path, hostname: str, before: str) -> None:
        super().__init__(path, shared / ".cache/rgt")
        self.env["HOME"] = str(shared)
        self.env["RGT_FIND_SECONDS"] = "0.5"
        for name in ("RGT_STATE_DIR", "XDG_CACHE_HOME"):
            self.env.pop(name, None)
        flags = ["--mount", "--pid", "--uts", "--fork", "--kill-child", "--mount-proc"]
        script = f"hostname {hostname} && mount --bind {memory} /dev/shm && {before} && echo up && exec sleep 1000"
        self.process = subprocess.Popen(
            ["unshare", *flags, "sh", "-ec", script], stdout=subprocess.PIPE
        )
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == b"up\n"
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        self.first = int(children.read_text().split()[0])
        self.began = procstat.start_ticks(self.first) or 0

    def inside(self, *words: str) -> list[str]:
        return ["nsenter", "--target", str(self.first), "--mount", "--pid", "--uts", "--", *words]

    def command(self, *words: str) -> list[str]:
        return self.inside(*super().command(*words))

    def recorder(self) -> dict[str, object] | None:
        done = self.run("record", "--status")
        return json.loads(done.stdout) if done.returncode == 0 else None

    def end(self) -> None:
        """All of it, as when a container is stopped."""
        for channel in self.channels:
            channel.process.kill()
            channel.process.wait()
        self.process.kill()
        self.process.wait()
        if self.process.stdout is not None:
            self.process.stdout.close()
        until(lambda: not Path(f"/proc/{self.first}").exists(), "the end of the container")


Make = Callable[..., Container]


@pytest.fixture
def shared(tmp_path: Path) -> Path:
    folder = tmp_path / "home"
    folder.mkdir()
    return folder


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[Path]:
    """What the containers have for /dev/shm."""
    folder = tmp_path / "shm"
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "shm", folder], check=True)
    yield folder
    subprocess.run(["umount", "--lazy", folder], check=True)


@pytest.fixture
def container(agent_file: Path, shared: Path, memory: Path) -> Iterator[Make]:
    made: list[Container] = []

    def make(hostname: str = NODE, before: str = "true") -> Container:
        if made:  # a boot is known by the tick in which its first process began
            until(
                lambda: (
                    time.clock_gettime(time.CLOCK_BOOTTIME) * procstat.CLOCK_TICKS
                    > made[-1].began + 1
                )
            )
        made.append(Container(agent_file, shared, memory, hostname, before))
        return made[-1]

    yield make
    for each in made:
        each.end()


def samples(channel: Channel, count: int = 3) -> tuple[protocol.Hello, list[str]]:
    """The greeting, and the events up to some samples."""
    frames = channel.frames()
    hello = next(frames)
    events = []
    for frame in frames:
        if isinstance(frame, protocol.BoxEvent):
            events.append(f"{frame.kind}: {frame.text}")
        count -= isinstance(frame, protocol.Sample)
        if not count:
            return hello, events
    raise AssertionError(f"no samples; events: {events}")


@pytest.mark.parametrize(
    "names", [(NODE + "-a", NODE + "-b"), (NODE, NODE)], ids=["two-names", "one-name"]
)
def test_each_has_a_recorder_of_its_own_and_shows_its_own_trainings(
    container: Make, tmp_path: Path, names: tuple[str, str]
) -> None:
    one, two = (container(name) for name in names)
    folder = tmp_path / f"exp{uuid.uuid4().hex[:8]}"
    folder.mkdir()
    (folder / "train.py").write_text("import time\ntime.sleep(1000)\n")
    with subprocess.Popen(
        one.inside(sys.executable, str(folder / "train.py")), cwd=folder
    ) as training:
        try:
            first = one.watch(interval=0.2, find=True)
            frame = first.expect(
                lambda frame: isinstance(frame, protocol.FoundRuns) and bool(frame.runs), "the run"
            )
            assert [folder.name in run.command for run in frame.runs] == [True]
            hello, events = samples(two.watch(interval=0.2, find=True))
            assert (hello.host, hello.limited) == (names[1], ())
            assert not [event for event in events if "no-recorder" in event or "training" in event]
            seen = two.channels[-1].sync()
            assert not [
                run for frame in seen if isinstance(frame, protocol.FoundRuns) for run in frame.runs
            ]
            pids = [box.recorder() for box in (one, two)]
            assert all(pids)
            assert samples(one.watch(interval=0.2, find=True))[0].limited == ()
        finally:
            training.send_signal(signal.SIGKILL)
    folders = sorted(path.name for path in one.state.glob("host-*"))
    assert len(folders) == 2
    owners = [json.loads((one.state / name / "host.json").read_bytes()) for name in folders]
    assert owners[0]["processes"] != owners[1]["processes"]


def test_each_stops_its_own_recorder(container: Make) -> None:
    one, two = container(), container()
    samples(one.watch())
    samples(two.watch())
    for channel in one.channels + two.channels:
        channel.kill()
    one.stop_recorder()
    assert one.recorder() is None
    assert two.recorder() is not None


def test_a_home_that_takes_nothing_leaves_each_its_own_history_in_memory(
    container: Make, shared: Path, memory: Path
) -> None:
    """The directory in /dev/shm was named after the path of the home alone, which containers have in common."""
    read_only = f"mount --bind {shared} {shared} && mount -o remount,bind,ro {shared}"
    (shared / ".cache/rgt").mkdir(parents=True)
    one, two = container(before=read_only), container(before=read_only)
    first, _ = samples(one.watch(interval=0.2), 10)
    hello, events = samples(two.watch(interval=0.2))
    assert hello.boot != first.boot
    assert not [event for event in events if "no-recorder" in event]
    assert "history is in memory" in str(hello.limited)
    frames = two.watch(interval=0.2, samples_after={"boot": "?", "seq": 0}).sync()
    told = {
        frame.boot
        for frame in frames
        if isinstance(frame, (protocol.Sample, protocol.BoxEvent)) and frame.seq
    }
    assert told <= {hello.boot}
    assert len([path for path in memory.iterdir() if path.name.startswith("rgt-0-")]) == 2


def test_history_goes_on_after_a_restart_of_the_container(container: Make) -> None:
    one = container()
    before, _ = samples(one.watch())
    one.end()
    again = container()
    channel = again.watch(samples_after={"boot": before.boot, "seq": 1})
    first = channel.expect(lambda frame: isinstance(frame, (protocol.Sample, protocol.BoxEvent)))
    assert (first.boot, first.seq) == (before.boot, 2)
    channel.expect(lambda frame: isinstance(frame, protocol.BoxEvent) and frame.kind == "rebooted")
    assert len(list(one.state.glob("host-*"))) == 1


def test_hosts_that_were_not_seen_for_long_are_forgotten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("RGT_STATE_DIR", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    mine = Path(place.state_dir())
    assert mine.parent == tmp_path / "rgt"
    old = time.time() - state_files.FORGET_HOSTS - 60
    for name in (mine.name, "host-old", "host-new", "other"):
        ring = mine.parent / name / "ring"
        ring.mkdir(parents=True)
        (ring / "000000000001.seg").touch()
        for path in (ring / "000000000001.seg", ring, ring.parent):
            os.utime(path, (old, old))
    os.utime(mine.parent / "host-new/ring/000000000001.seg")
    state_files.forget_hosts(str(mine))
    assert sorted(path.name for path in mine.parent.iterdir()) == sorted(
        [mine.name, "host-new", "other"]
    )
    monkeypatch.setenv("RGT_STATE_DIR", str(mine))
    os.utime(mine.parent / "host-new/ring/000000000001.seg", (old, old))
    state_files.forget_hosts(str(mine))
    assert (mine.parent / "host-new").exists()


def test_one_directory_forced_on_two_is_told(container: Make, tmp_path: Path) -> None:
    one, two = container(NODE + "-a"), container(NODE + "-b")
    for each in (one, two):
        each.env["RGT_STATE_DIR"] = str(tmp_path / "state")
    samples(one.watch())
    _, events = samples(two.watch())
    assert any("is in use by the recorder of rgt-test-node-a-" in event for event in events)
