"""A box that can park itself: a pid namespace with a first process of its own, and a platform that switches it off.

Its processes see only each other, as in a rented container, so that what else this machine does is no work of the box.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

import pytest

from rgt_tui.demo import LocalRunPod, LocalServer, LocalVast, MachineChange
from tests.process.box.harness import Agent, until

INIT = """
import os, signal
signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
print("up", flush=True)
while True:
    try:
        os.wait()
    except ChildProcessError:
        signal.sigtimedwait({signal.SIGCHLD}, 1.0)
"""
"""The first process: it reaps what loses its parent, as a container's does."""
NSENTER, UNSHARE = shutil.which("nsenter") or "", shutil.which("unshare") or ""
KEY, POD, INSTANCE = "rpa_podscoped0123456789abcdef", "k3v9q0x1fake01", 31415926
Found = TypeVar("Found")


class ParkingBox(Agent):
    """An agent in a pid namespace of its own.

    Args:
        path: The agent's file.
        folder: Where everything of the box stands.
        given: Environment of the first process, as the platform would set it.
    """

    def __init__(self, path: Path, folder: Path, given: dict[str, str]) -> None:
        super().__init__(path, folder / "state")
        self.folder, self.durable = folder, folder / "volume"
        self.durable.mkdir(parents=True, exist_ok=True)
        (folder / "home").mkdir(exist_ok=True)
        for name in ("RUNPOD_API_KEY", "RUNPOD_POD_ID", "CONTAINER_API_KEY", "CONTAINER_ID"):
            self.env.pop(name, None)
        self.env |= {
            "HOME": str(folder / "home"),
            "RGT_TERMINALS": "",
            "PATH": str(
                folder / "bin"
            ),  # no Slurm, whose program waits for a daemon that this box does not have
            "RGT_AUTOSTOP_PACE": "0.002",
            "RGT_FIND_SECONDS": "1",
            "RGT_RAM_DIR": str(folder / "home"),
        }
        (folder / "bin").mkdir(exist_ok=True)
        self.given = given
        self.init = 0
        self.is_arming = threading.Lock()
        """Held while the box is being armed: its platform waits for that, or the answer would die with the box."""
        self.boot_up()

    def boot_up(self) -> None:
        """Start the first process: another life of the box."""
        self._outer = subprocess.Popen(
            [
                UNSHARE,
                "--pid",
                "--fork",
                "--kill-child",
                "--mount-proc",
                sys.executable,
                "-I",
                "-S",
                "-c",
                INIT,
            ],
            env=self.env | self.given,
            stdout=subprocess.PIPE,
        )
        assert self._outer.stdout is not None
        assert self._outer.stdout.readline() == b"up\n"
        children = (
            Path(f"/proc/{self._outer.pid}/task/{self._outer.pid}/children").read_text().split()
        )
        self.init = int(children[0])

    def power_off(self) -> None:
        """End every process of the box at once, as a platform does."""
        with suppress(ProcessLookupError):
            os.kill(self.init, signal.SIGKILL)
        self._outer.wait(60)

    @property
    def on(self) -> bool:
        return self._outer.poll() is None

    def command(self, *words: str) -> list[str]:
        return self.inside(*super().command(*words))

    def inside(self, *words: str) -> list[str]:
        """Return a command line that runs on the box."""
        return [NSENTER, "-t", str(self.init), "-m", "-p", "--", *words]

    def spawn(self, *words: str, **given: Any) -> subprocess.Popen[bytes]:
        """Start a program on the box."""
        return subprocess.Popen(
            self.inside(*words),
            env=self.env,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
            **given,
        )

    def boot(self) -> str:
        code = "from rgt_box import place; print(place.boot_id())"
        words = [self.python, "-c", f"import sys; sys.path.insert(0, {str(self.path)!r}); {code}"]
        done = subprocess.run(self.inside(*words), env=self.env, capture_output=True, check=True)
        return done.stdout.decode().strip()

    def request(self, **changed: Any) -> dict[str, Any]:
        return {
            "mode": "idle", "action": "park", "idle_s": 1.0, "lease_s": 3.0, "warn_s": 0.3, "boot": self.boot(),
            "instance": POD, "box": "lab", "durable": [str(self.durable)], "jobs": [],
        } | changed  # fmt: skip

    def arm(self, *, rehearse: bool = False, **changed: Any) -> dict[str, Any]:
        line = json.dumps(self.request(**changed)).encode() + b"\n"
        with self.is_arming:
            done = self.run("autostop", "--rehearse" if rehearse else "--arm", stdin=line)
        assert done.stderr == b"", done.stderr
        found = json.loads(done.stdout)
        assert done.returncode == (0 if found["ok"] else 1)
        assert isinstance(found, dict)
        return found

    @contextmanager
    def recorder_held(self) -> Iterator[None]:
        """Stop the recorder for a while: what is armed meanwhile is not carried out before the block is over."""
        assert self.run("record").returncode == 0
        number = self.recorder_outside()
        os.kill(number, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(number, signal.SIGCONT)

    def autostop(self, *words: str) -> dict[str, Any]:
        done = self.run("autostop", *words)
        assert done.returncode == 0, done.stderr
        found = json.loads(done.stdout)
        assert isinstance(found, dict)
        return found

    def story(self) -> list[dict[str, Any]]:
        try:
            lines = (self.state / "autostop.jsonl").read_bytes().splitlines()
        except FileNotFoundError:
            return []
        return [json.loads(line) for line in lines]

    def told(self, event: str) -> list[str]:
        """Return what the story says of an event."""
        return [line["text"] for line in self.story() if line["event"] == event]

    def kill_recorder(self) -> None:
        """Kill it without a word, as the kernel does for lack of memory."""
        os.kill(self.recorder_outside(), signal.SIGKILL)
        until(lambda: not self.holds("recorder.lock"), "the end of the recorder")

    def recorder_outside(self) -> int:
        """Return the pid of the recorder as this test sees it; for a moment of its start it has no words."""
        return int(
            until(
                lambda: self.pid_outside(lambda words: "record" in words), "the recorder's process"
            )
        )

    def holds(self, lock: str) -> bool:
        """Tell whether a process holds a lock of the state directory."""
        done = subprocess.run(["flock", "-n", str(self.state / lock), "true"], check=False)
        return done.returncode != 0

    def pid_outside(self, wanted: Any) -> int:
        """Return the pid, as this test sees it, of the agent's process whose words are wanted; 0 for none."""
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit():
                continue
            try:
                words = (entry / "cmdline").read_bytes().decode().split("\0")
                state = (entry / "environ").read_bytes()
                name = (entry / "comm").read_text()
            except OSError:
                continue
            ours = f"RGT_STATE_DIR={self.state}".encode() in state.split(b"\0")
            if ours and "nsenter" not in name and str(self.path) in words and wanted(words):
                return int(entry.name)
        return 0

    def stop(self) -> None:
        for channel in self.channels:
            channel.process.kill()
            channel.process.wait()
        self.power_off()


@contextmanager
def serving(plane: LocalServer) -> Iterator[LocalServer]:
    """A platform that answers from a thread of its own."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()

    def wait(work: Coroutine[Any, Any, Found]) -> Found:
        return asyncio.run_coroutine_threadsafe(work, loop).result(30)

    wait(plane.start())
    try:
        yield plane
    finally:
        wait(plane.stop())
        loop.call_soon_threadsafe(loop.stop)
        thread.join(60)
        loop.close()


@contextmanager
def pod(path: Path, folder: Path, **given: Any) -> Iterator[tuple[ParkingBox, LocalRunPod]]:
    """A box that is a pod of RunPod's, and its platform, whose Stop really ends its processes."""
    boxes: list[ParkingBox] = []

    def change(what: MachineChange) -> None:
        if what.action == "stop":
            with boxes[0].is_arming:
                boxes[0].power_off()

    plane = LocalRunPod(settle_s=0, on_change=change, **given)
    plane.add_pod(POD, "lab")
    plane.machine_keys[KEY] = POD
    folder.mkdir(exist_ok=True)
    with serving(plane):
        boxes.append(ParkingBox(path, folder, {"RUNPOD_API_KEY": KEY, "RUNPOD_POD_ID": POD}))
        try:
            yield boxes[0], plane
        finally:
            boxes[0].stop()


@contextmanager
def vast(path: Path, folder: Path) -> Iterator[tuple[ParkingBox, LocalVast]]:
    """The same at vast.ai."""
    boxes: list[ParkingBox] = []

    def change(what: MachineChange) -> None:
        if what.action == "stop":
            with boxes[0].is_arming:
                boxes[0].power_off()

    plane = LocalVast(settle_s=0, on_change=change)
    plane.add_instance(INSTANCE, "lab")
    plane.machine_keys[KEY] = str(INSTANCE)
    folder.mkdir(exist_ok=True)
    with serving(plane):
        boxes.append(
            ParkingBox(path, folder, {"CONTAINER_API_KEY": KEY, "CONTAINER_ID": str(INSTANCE)})
        )
        try:
            yield boxes[0], plane
        finally:
            boxes[0].stop()


STOP = b'"stop'
"""In the body of a request for a stop, at RunPod and at vast.ai: a trial of the key has another one."""


def stops_sent(plane: LocalServer) -> int:
    """Return how many requests for a stop a platform has received."""
    return sum(STOP in body for body in plane.bodies)


def by_runpod(plane: LocalServer) -> dict[str, Any]:
    """Return ``stop`` of a request."""
    return {"kind": "runpod", "url": plane.base_url}


def needs_namespaces() -> None:
    """Skip where no pid namespace can be made."""
    if os.geteuid() != 0:
        pytest.skip("pid namespaces need root")
