"""The demo's temporary directory, and cleanup after a demo that was killed.

Each demo owns one directory below ``<tmp>/rgt-demo-<uid>/`` and holds a lock on it while it runs.
The kernel releases the lock with the process, however it ends; so a directory with a free lock is a
leftover, and the next demo removes it with its memory cgroups and processes.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import shutil
import signal
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType


class DemoError(Exception):
    """The demo cannot start or continue; the message says why and what to do next."""


MARKER_ENV = "RGT_DEMO_ROOT"
"""Every process of a demo's boxes has this variable, so that leftovers are identified with
certainty.
"""

DYING_SECONDS = 10.0
"""Seconds to wait until a killed process has ended and its cgroup is empty."""
MIN_FREE_BYTES = 32 << 20


def base_dir() -> Path:
    """Return the parent directory of all demos of this user.

    Not `tempfile.gettempdir`: that silently uses another directory if the one of TMPDIR is full.
    """
    # The uid in the name: in a shared /tmp each user needs a directory of their own.
    return Path(os.environ.get("TMPDIR") or "/tmp") / f"rgt-demo-{os.getuid()}"


class Workspace:
    """One demo's directory, locked; use as a context manager."""

    def __init__(self) -> None:
        """Create and lock the directory.

        Raises:
            DemoError: The temporary file system is full, read-only, or another user's.
        """
        base = base_dir()
        try:
            base.mkdir(mode=0o700, exist_ok=True)
            _check_owner(base)
            _check_room(base)
            with _locked_base(base):
                # Before the own directory exists: it would look like a leftover until its lock is
                # taken.
                self.removed = clean_stale(base)
                self.path = base / os.urandom(4).hex()
                self.path.mkdir(mode=0o700)
                try:
                    self._lock = os.open(
                        self.path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600
                    )
                    fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except OSError:
                    shutil.rmtree(self.path, ignore_errors=True)
                    raise
        except OSError as error:
            raise DemoError(_explain_error(base, error)) from error
        self._cgroups: list[str] = []

    def note_cgroup(self, path: Path) -> None:
        """Record a cgroup that must be removed with this workspace, even by a later demo."""
        self._cgroups.append(str(path))
        # On disk at once: after a kill -9, only this file knows them.
        (self.path / "cgroups.json").write_text(json.dumps(self._cgroups))

    def close(self, seconds: float = DYING_SECONDS) -> None:
        """Remove the directory, its cgroups and processes; the boxes must have been stopped before.

        Args:
            seconds: Maximum time to wait for the cgroups to be empty. If one is not, the directory
                remains, and the next demo removes it.
        """
        _remove_workspace(self.path, seconds)
        # Last, because the lock protects the directory while it is being removed.
        os.close(self._lock)

    def __enter__(self) -> Workspace:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


@contextmanager
def _locked_base(base: Path) -> Iterator[None]:
    """Lock the directory of all demos, in which a new, unlocked one would look like a leftover."""
    fd = os.open(base, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)


def clean_stale(base: Path) -> int:
    """Remove the directories of demos that have ended; return their number."""
    removed = 0
    for path in sorted(base.iterdir()):
        if not path.is_dir():
            continue
        try:
            # Created if missing: its demo was killed before it had made one.
            lock = os.open(path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError:
            continue
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            continue  # alive
        else:
            kill_marked(str(path))
            _remove_workspace(path)
            removed += 1
        finally:
            os.close(lock)
    return removed


def kill_marked(root: str) -> int:
    """Kill every process whose environment marks it as the demo's at `root`.

    Return their number.
    """
    wanted = f"{MARKER_ENV}={root}".encode()
    killed = 0
    for entry in Path("/proc").glob("[0-9]*"):
        pid = int(entry.name)
        try:
            # The whole variable: a prefix would also match the directory of another demo.
            if pid != os.getpid() and wanted in (entry / "environ").read_bytes().split(b"\0"):
                os.kill(pid, signal.SIGKILL)
                killed += 1
        except OSError:
            continue
    return killed


def _remove_workspace(path: Path, seconds: float = DYING_SECONDS) -> None:
    deadline = time.monotonic() + seconds
    listed = path / "cgroups.json"
    if listed.exists():
        try:
            cgroups = json.loads(listed.read_text())
        except ValueError:
            cgroups = []
        if not all(_is_gone(Path(cgroup), deadline) for cgroup in reversed(cgroups)):
            return
    shutil.rmtree(path, ignore_errors=True)


def _is_gone(cgroup: Path, deadline: float) -> bool:
    """Remove a cgroup; return False if a process is still in it at the deadline.

    Killed processes may take a while to end.
    """
    while True:
        try:
            cgroup.rmdir()
            return True
        except OSError as error:
            # Gone already, or not ours to remove.
            if error.errno != errno.EBUSY:
                return True
            if time.monotonic() >= deadline:
                return False
        time.sleep(0.02)


def _check_owner(base: Path) -> None:
    # lstat: a link in a shared /tmp may lead to another user's directory.
    info = base.lstat()
    if not stat.S_ISDIR(info.st_mode) or info.st_uid != os.getuid():
        raise DemoError(
            f"{base} belongs to someone else; set TMPDIR to a directory of your own and start again"
        )


def _check_room(base: Path) -> None:
    room = os.statvfs(base)
    free = room.f_bavail * room.f_frsize
    if free < MIN_FREE_BYTES:
        raise OSError(
            errno.ENOSPC, f"{free // 1024:,} KiB free, {MIN_FREE_BYTES // 1024:,} KiB needed"
        )
    min_free_inodes = 512
    if room.f_files and room.f_favail < min_free_inodes:
        raise OSError(errno.ENOSPC, f"{room.f_favail:,} inodes free, {min_free_inodes:,} needed")


def _explain_error(base: Path, error: OSError) -> str:
    what = error.strerror or str(error)
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return (
            f"the temporary disk is full ({base}: {what}); free some space, or set TMPDIR to "
            "another disk"
        )
    if error.errno == errno.EROFS:
        return (
            f"the temporary disk is read-only ({base}); set TMPDIR to a directory that can be "
            "written"
        )
    return f"cannot create {base}: {what}; set TMPDIR to a directory that can be written"
