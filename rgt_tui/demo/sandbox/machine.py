"""One sandboxed machine: boot it, run commands on it, pull its plug, boot it again."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
from pathlib import Path

from rgt_tui.demo.plan import DemoBox
from rgt_tui.demo.sandbox import cgroup, modes, tree
from rgt_tui.demo.sandbox.keeper import Keeper
from rgt_tui.demo.sandbox.room import HERE, Room
from rgt_tui.demo.workspace import MARKER_ENV, Workspace

DIRECTORIES = ("/proc", "/tmp", "/root", "/var/tmp", "/run", "/mnt")


class Machine:
    """A box's processes live in its own pid namespace: with its first process they all end."""

    def __init__(self, box: DemoBox, room: Room, workspace: Workspace, remote: Path) -> None:
        self.box = box
        self._room = room
        self._marker = str(workspace.path)
        self._keeper = Keeper(box.name)
        self._remote = remote
        self._mountpoint = workspace.path / "roots" / box.name
        self._cgroup = cgroup.create(f"rgt-demo-{workspace.path.name}-{box.name}", box.memory_limit)
        if self._cgroup is not None:
            workspace.note_cgroup(self._cgroup)

    @property
    def running(self) -> bool:
        """Whether the machine is on."""
        return self._keeper.running

    @property
    def pid(self) -> int:
        """Pid of the machine's first process, as this side sees it."""
        return self._keeper.pid

    async def boot(self) -> None:
        """Start the machine with its disks.

        Raises:
            DemoError: when the sandbox cannot be built.
        """
        root_disk = next(disk for disk in self.box.disks if disk.path == "/")
        self._mountpoint.mkdir(parents=True, exist_ok=True)
        root = self._room.disk(self.box.name, "/") if root_disk.survives_reboot else self._mountpoint
        disks = [
            (str(self._room.disk(self.box.name, disk.path)), disk.path, False)
            for disk in self.box.disks
            if disk.path != "/"
        ]
        config = {
            "root": str(root),
            "ephemeral": None
            if root_disk.survives_reboot
            else {"size": root_disk.size, "inodes": root_disk.inodes},
            "binds": [*tree.binds(self._remote), *disks],
            "links": tree.system_links(),
            "dirs": DIRECTORIES,
            "hostname": self.box.name,
            "cgroups": [str(self._cgroup)] if self._cgroup is not None else [],
        }
        script = [sys.executable, "-I", "-S", str(HERE / "box_init.py"), json.dumps(config)]
        spaces = ["unshare", "--mount", "--pid", "--uts", "--fork", "--kill-child"]
        await self._keeper.start(
            [*self._room.enter(), *spaces, *script], {**os.environ, MARKER_ENV: self._marker}
        )

    def command(self, shell_command: str | None, *, terminal: str | None = None) -> list[str]:
        """Return the argument list that runs a shell command (None = a login shell) on the machine."""
        env = tree.environment(MARKER_ENV, self._marker)
        if terminal:
            env["TERM"] = terminal
        inside = ["nsenter", "--target", str(self.pid), *modes.enter_user_prefix()]
        inside += [
            "--mount",
            "--pid",
            "--uts",
            f"--root=/proc/{self.pid}/root",
            f"--wd=/proc/{self.pid}/root/root",
        ]
        inside += ["env", "-i", *(f"{key}={value}" for key, value in env.items())]
        inside += ["/bin/bash", "-l"] if shell_command is None else ["/bin/sh", "-c", shell_command]
        if self._cgroup is None:
            return inside
        # The machine's memory limit must hold for what a login starts, too.
        return ["/bin/sh", "-c", 'echo 0 > "$0/cgroup.procs" && exec "$@"', str(self._cgroup), *inside]

    async def run(self, shell_command: str, stdin: bytes = b"") -> str:
        """Run a command and return its output.

        Raises:
            RuntimeError: when it fails, with its own words.
        """
        process = await asyncio.create_subprocess_exec(
            *self.command(shell_command),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
        )
        out, err = await process.communicate(stdin)
        if process.returncode != 0:
            raise RuntimeError(
                f"{self.box.name}: `{shell_command}` ended with {process.returncode}: {err.decode()}"
            )
        return out.decode()

    async def unplug(self) -> None:
        """Kill everything on the machine at once; its surviving disks stay."""
        await self._keeper.stop()

    async def scrap(self) -> None:
        """Unplug for good and remove the memory cgroup."""
        await self.unplug()
        if self._cgroup is not None:
            for _ in range(50):
                with contextlib.suppress(OSError):
                    self._cgroup.rmdir()
                    return
                if not self._cgroup.exists():
                    return
                # The kernel empties the cgroup a moment after the last process has been reaped.
                await asyncio.sleep(0.02)
