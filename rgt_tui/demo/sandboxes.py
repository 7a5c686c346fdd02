"""The demo boxes' sandboxes: whether this machine allows them, their disks, their processes."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

from rgt_tui.demo.plan import DemoBox
from rgt_tui.demo.workspace import MARKER_ENV, DemoError, Workspace

HERE = Path(__file__).parent
CONFIG_ENV = "RGT_DEMO_BOX"
"""Environment variable with the box's configuration for `box_init.py`, as JSON."""
MOUNTS = Path("/proc/self/mountinfo")


def unshare_prefix() -> tuple[str, ...]:
    """Return the ``unshare`` options for a user namespace; () as root."""
    if os.geteuid() == 0:
        return ()
    return ("--user", "--map-root-user")


def enter_user_prefix() -> tuple[str, ...]:
    """Return the ``nsenter`` options that match `unshare_prefix`."""
    if os.geteuid() == 0:
        return ()
    return ("--user", "--preserve-credentials")


def check_torch() -> None:
    """Check that the boxes can train.

    Raises:
        DemoError: torch is not installed next to rgt.
    """
    if importlib.util.find_spec("torch") is None:
        raise DemoError(
            f"torch is missing from {sys.executable}, and the demo really trains: "
            "pip install torch (in a clone: make setup)"
        )


def root_is_a_mount_point() -> bool:
    """Return whether ``/`` is a mount point.

    If not (in a chroot), ``unshare --mount`` fails even for root.
    """
    try:
        mounts = MOUNTS.read_text().splitlines()
    except OSError:
        return True
    return any(line.split()[4:5] == ["/"] for line in mounts)


def check_sandboxes() -> None:
    """Check that boxes can be created here.

    Raises:
        DemoError: With the missing requirement and what to do.
    """
    if not sys.platform.startswith("linux"):
        raise DemoError(
            "the demo's boxes are made of Linux namespaces; on this system use rgt with real boxes"
        )
    for tool in ("unshare", "nsenter"):
        if shutil.which(tool) is None:
            raise DemoError(f"`{tool}` is missing; install util-linux and start again")
    # Tried for real: a kernel can refuse namespaces in many ways (sysctl, seccomp, LSM).
    trial = ["unshare", *unshare_prefix(), "--mount", "--pid", "--uts", "--fork", "--kill-child"]
    trial += ["mount", "-t", "tmpfs", "-o", "size=4k", "tmpfs", "/mnt"]
    try:
        try_seconds = 10
        done = subprocess.run(
            trial, capture_output=True, text=True, timeout=try_seconds, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise DemoError(f"cannot try a namespace: {error}") from error
    if done.returncode == 0:
        return
    words = done.stderr.strip() or str(done.returncode)
    if not root_is_a_mount_point():
        raise DemoError(
            "the root directory is not a mount point, as in a chroot, and namespaces need one "
            f"({words}); run the demo outside the chroot, or bind its directory onto itself before "
            "entering it: mount --bind DIR DIR"
        )
    raise DemoError(
        "this machine allows neither root nor user namespaces, of which the demo's boxes are made "
        f"({words}); run it as root, or allow unprivileged user namespaces"
    )


def own_memory_cgroup() -> tuple[Path, int] | None:
    """Return the directory of this process's memory cgroup and the version (1 or 2), or None."""
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        number, controllers, path = line.split(":", 2)
        if "memory" in controllers.split(","):
            return Path("/sys/fs/cgroup/memory" + path), 1
        if number == "0" and Path("/sys/fs/cgroup/cgroup.controllers").exists():
            return Path("/sys/fs/cgroup" + path), 2
    return None


def create_cgroup(name: str, limit_bytes: int) -> Path | None:
    """Create a memory cgroup with a limit; None if this machine does not permit it.

    In v2 a cgroup with its own processes cannot delegate a controller to children, except the root;
    there the new one is created directly below the root.
    """
    found = own_memory_cgroup()
    if found is None:
        return None
    parent, version = found
    if version == 1:
        path = parent / name
    else:
        path = Path("/sys/fs/cgroup") / name
    if version == 1:
        limit = "memory.limit_in_bytes"
    else:
        limit = "memory.max"
    try:
        path.mkdir()
        (path / limit).write_text(str(limit_bytes))
    except OSError:
        with contextlib.suppress(OSError):
            path.rmdir()
        return None
    return path


SYSTEM = ("usr", "bin", "sbin", "lib", "lib32", "lib64", "libx32", "etc", "opt", "nix")
CODE = "/root/code"
"""Path of the trainer on the box."""
PACKAGE_LISTS = ("/var/lib/dpkg", "/var/lib/pacman")
"""Package databases that list the system's packaged files."""
TRACES = "/root/.gpu-traces"
"""Path of the GPU traces on the box."""


def system_links() -> list[tuple[str, str]]:
    """Return ``(path, text)`` of the top-level symbolic links of a merged-/usr system."""
    return [
        (f"/{name}", str(Path(f"/{name}").readlink()))
        for name in SYSTEM
        if Path(f"/{name}").is_symlink()
    ]


def list_binds(remote: Path) -> list[tuple[str, str, bool]]:
    """Return ``(source, target, read_only)`` of the system, the interpreter and the trainer."""
    tops = [
        f"/{name}"
        for name in SYSTEM
        if Path(f"/{name}").is_dir() and not Path(f"/{name}").is_symlink()
    ]
    shown = [(top, top, True) for top in (*tops, *filter(os.path.isdir, PACKAGE_LISTS))]
    for path in sorted({str(Path(p).resolve()) for p in (sys.prefix, sys.base_prefix)}, key=len):
        # A Python outside of the system's directories, such as pyenv's, must be bound as well.
        if not any(path == top or path.startswith(top + "/") for top, _, _ in shown):
            shown.append((path, path, True))
    # The trainer, and its shared package with the agent.
    shown += [
        (str(remote / package), f"{CODE}/{package}", True) for package in ("rgt_train", "rgt_wire")
    ]
    shown.append((str(HERE / "traces"), TRACES, True))
    shown += [("/dev", "/dev", False), ("/sys", "/sys", False)]
    return shown


def login_environment(marker: str, root: str) -> dict[str, str]:
    """Return the initial environment of a login on a box."""
    return {
        "HOME": "/root",
        "USER": "root",
        "LOGNAME": "root",
        "SHELL": "/bin/bash",
        "LANG": "C.UTF-8",
        "PATH": f"{sys.prefix}/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        # The default history would not fit on the demo's small disks.
        "RGT_RING_BYTES": str(8 << 20),
        "RGT_TERMINALS": "",  # hides the host's terminals, which are visible here
        marker: root,
    }


END_SECONDS = 1
"""Seconds that a process of the demo gets to end; one that hangs is then killed."""


async def end_process(process: asyncio.subprocess.Process) -> None:
    """Terminate a process, and kill it after a moment: a stopped or hanging one ignores SIGTERM."""
    with contextlib.suppress(ProcessLookupError):
        process.terminate()
    await _wait_or_kill(process)


async def _wait_or_kill(process: asyncio.subprocess.Process) -> None:
    """Wait a moment for a process that was asked to end, then kill it."""
    try:
        async with asyncio.timeout(END_SECONDS):
            await process.wait()
    except TimeoutError:
        pass
    finally:
        # Also if the waiting itself is cancelled: no process may outlive the demo.
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
    await process.wait()


class KeeperProcess:
    """Starts a script that prints ``ready`` and ends when its standard input does.

    `pid` is the pid of the script itself, not of a wrapper such as ``unshare --fork`` around it.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.pid = 0
        self._process: asyncio.subprocess.Process | None = None

    async def start(self, argv: list[str], env: dict[str, str]) -> None:
        """Start it and wait for ``ready``.

        Raises:
            DemoError: The script ended first; its error message is included.
        """
        process = await asyncio.create_subprocess_exec(
            *argv,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=env,
            # Ctrl-C in the terminal must reach only the demo, which then stops its boxes in order.
            start_new_session=True,
        )
        self._process = process
        assert process.stdout is not None
        assert process.stderr is not None
        ready_seconds = 20
        try:
            line = await asyncio.wait_for(process.stdout.readline(), ready_seconds)
        except TimeoutError:
            await self.stop()
            raise DemoError(f"{self.name} did not start within {ready_seconds} s") from None
        except BaseException:
            await self.stop()
            raise
        if not line.startswith(b"ready"):
            words = (await process.stderr.read()).decode(errors="replace").strip().splitlines()
            await self.stop()
            raise DemoError(f"cannot make {self.name}: {words[-1] if words else 'no reason given'}")
        # nsenter needs a process inside of the new namespaces.
        self.pid = await asyncio.to_thread(_innermost_pid, process.pid)

    @property
    def is_running(self) -> bool:
        """Whether the process is alive."""
        return self._process is not None and self._process.returncode is None

    async def stop(self) -> None:
        """End it, and wait for its exit."""
        process, self._process = self._process, None
        if process is None:
            return
        if process.stdin is not None:
            process.stdin.close()
        await _wait_or_kill(process)


def _innermost_pid(pid: int) -> int:
    """Follow the only-child chain ``nsenter → unshare → script`` down to the script."""
    while True:
        try:
            children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        except OSError:
            return pid
        if not children:
            return pid
        pid = int(children[0])


class DiskNamespace:
    """A mount namespace with a tmpfs for every disk that survives a reboot."""

    def __init__(self, root: Path, boxes: tuple[DemoBox, ...]) -> None:
        self._root = root
        self._boxes = boxes
        self._keeper = KeeperProcess("the demo's disks")

    def disk_path(self, box: str, mount: str) -> Path:
        """Return the path of the disk that `box` mounts at `mount`."""
        return self._root / "disks" / box / (mount.strip("/").replace("/", "_") or "root")

    async def start(self) -> None:
        """Mount the disks."""
        disks = [
            {
                "path": str(self.disk_path(box.name, disk.path)),
                "size": disk.size,
                "inodes": disk.inodes,
            }
            for box in self._boxes
            for disk in box.disks
            if disk.survives_reboot
        ]
        script = [
            sys.executable,
            "-I",
            "-S",
            str(HERE / "box_init.py"),
            json.dumps({"disks": disks}),
        ]
        env = {**os.environ, MARKER_ENV: str(self._root)}
        await self._keeper.start(["unshare", *unshare_prefix(), "--mount", *script], env)

    def enter_prefix(self) -> list[str]:
        """Return the command prefix that runs something inside the room."""
        return ["nsenter", "--target", str(self._keeper.pid), *enter_user_prefix(), "--mount"]

    async def stop(self) -> None:
        """Remove the disks."""
        await self._keeper.stop()


DIRECTORIES = ("/proc", "/tmp", "/root", "/var/tmp", "/run", "/mnt")


class SandboxMachine:
    """A box's processes in their own pid namespace; all of them end with the first one."""

    def __init__(
        self, box: DemoBox, room: DiskNamespace, workspace: Workspace, remote: Path
    ) -> None:
        self.box = box
        self.programs: dict[str, str] = {}
        """Scripts that the platform adds to ``/usr/bin``, by name; for the next boot."""
        self._room = room
        self._programs_folder = workspace.path / "programs" / box.name
        self._marker = str(workspace.path)
        self._keeper = KeeperProcess(box.name)
        self._remote = remote
        self._mountpoint = workspace.path / "roots" / box.name
        self._cgroup = create_cgroup(f"rgt-demo-{workspace.path.name}-{box.name}", box.memory_limit)
        if self._cgroup is not None:
            workspace.note_cgroup(self._cgroup)

    @property
    def is_running(self) -> bool:
        """Whether the machine is on."""
        return self._keeper.is_running

    @property
    def pid(self) -> int:
        """Pid of the machine's first process in the host's namespace."""
        return self._keeper.pid

    async def boot(self) -> None:
        """Start the machine with its disks.

        Raises:
            DemoError: The sandbox cannot be built.
        """
        root_disk = next(disk for disk in self.box.disks if disk.path == "/")
        self._mountpoint.mkdir(parents=True, exist_ok=True)
        if root_disk.survives_reboot:
            root = self._room.disk_path(self.box.name, "/")
        else:
            root = self._mountpoint
        disks = [
            (str(self._room.disk_path(self.box.name, disk.path)), disk.path, False)
            for disk in self.box.disks
            if disk.path != "/"
        ]
        config = {
            "root": str(root),
            "ephemeral": None
            if root_disk.survives_reboot
            else {"size": root_disk.size, "inodes": root_disk.inodes},
            "binds": [*list_binds(self._remote), *disks],
            "links": system_links(),
            "dirs": DIRECTORIES,
            "programs": self._write_programs(),
            "hostname": self.box.name,
            "cgroups": [str(self._cgroup)] if self._cgroup is not None else [],
        }
        script = [sys.executable, "-I", "-S", str(HERE / "box_init.py")]
        spaces = ["unshare", "--mount", "--pid", "--uts", "--fork", "--kill-child"]
        await self._keeper.start(
            [*self._room.enter_prefix(), *spaces, *script],
            # Not an argument: the agent would take a command line with the trainer's directory for
            # a training.
            {**os.environ, MARKER_ENV: self._marker, CONFIG_ENV: json.dumps(config)},
        )

    def _write_programs(self) -> str:
        """Write the platform's programs; return their directory, or an empty text."""
        if not self.programs:
            return ""
        self._programs_folder.mkdir(parents=True, exist_ok=True)
        # As in an image: the agent runs only a program that no other user can change.
        self._programs_folder.chmod(0o755)
        for name, text in self.programs.items():
            path = self._programs_folder / name
            path.write_text(text)
            path.chmod(0o755)
        return str(self._programs_folder)

    def build_command(self, shell_command: str | None, *, terminal: str | None = None) -> list[str]:
        """Return the arguments that run a shell command (None: a login shell) on the machine."""
        env = login_environment(MARKER_ENV, self._marker) | self.box.environment
        if terminal:
            env["TERM"] = terminal
        # Marked, so that the demo's end kills it: nsenter runs outside the box, and stops when its
        # child is stopped.
        inside = ["env", f"{MARKER_ENV}={self._marker}"]
        inside += ["nsenter", "--target", str(self.pid), *enter_user_prefix()]
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
        # The machine's memory limit must apply to processes of a login, too.
        return [
            "/bin/sh",
            "-c",
            'echo 0 > "$0/cgroup.procs" && exec "$@"',
            str(self._cgroup),
            *inside,
        ]

    async def run(self, shell_command: str, stdin: bytes = b"") -> str:
        """Run a command and return its output.

        Raises:
            RuntimeError: It failed; the message has its error output.
        """
        process = await asyncio.create_subprocess_exec(
            *self.build_command(shell_command),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
        )
        out, err = await process.communicate(stdin)
        if process.returncode != 0:
            raise RuntimeError(
                f"{self.box.name}: `{shell_command}` ended with {process.returncode}: "
                f"{err.decode()}"
            )
        return out.decode()

    async def power_off(self) -> None:
        """Kill everything on the machine at once; its surviving disks remain."""
        await self._keeper.stop()

    async def remove_machine(self) -> None:
        """Unplug it permanently and remove the memory cgroup."""
        await self.power_off()
        if self._cgroup is not None:
            for _ in range(50):
                with contextlib.suppress(OSError):
                    self._cgroup.rmdir()
                    return
                if not self._cgroup.exists():
                    return
                # The kernel empties the cgroup a moment after the last process has been reaped.
                await asyncio.sleep(0.02)
