"""One trainer per directory: two writers would prune and overwrite each other's checkpoints."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import signal
import socket
import time
import weakref
from typing import Any, Mapping

from rgt_train.checkpoint.diskio import StrPath
from rgt_train.exits import UsageError

_POLL_S = 0.005


def boot_id() -> str:
    """Return an id that changes when the machine reboots; empty without one."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return ""


def start_ticks(pid: int) -> int | None:
    """Return when process `pid` started, in clock ticks since boot; None if it does not run."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            # The name in parentheses may contain spaces; after it, field 0 is the state (proc(5)).
            fields = file.read().rpartition(b")")[2].split()
    except OSError:
        return None
    if fields[0] in (b"Z", b"X"):
        return None
    # Field 22 of proc(5), starttime.
    return int(fields[19])


def describe_process(pid: int) -> dict[str, Any]:
    """Return facts that distinguish process `pid` from a later one with the same number."""
    return {"pid": pid, "start": start_ticks(pid), "boot": boot_id()}


def is_alive(facts: Mapping[str, Any]) -> bool:
    """Return whether the process that `describe_process` described still runs on this machine."""
    known = facts.get("start")
    return (
        # None would equal None: an unknown process must not look alive.
        known is not None
        and facts.get("boot") == boot_id()
        and start_ticks(int(facts["pid"])) == known
    )


def is_exiting(facts: Mapping[str, Any]) -> bool:
    """Return whether the described process was killed but still exists, releasing its memory."""
    if not is_alive(facts):
        return False
    try:
        place = f"/proc/{int(facts['pid'])}"
        with open(f"{place}/stat", "rb") as stat, open(f"{place}/status", "rb") as status:
            return is_dying(stat.read(), status.read())
    except OSError:
        return False


def is_dying(stat: bytes, status: bytes) -> bool:
    """Return whether a process is exiting, or has a pending SIGKILL.

    Args:
        stat: Its ``/proc/PID/stat``.
        status: Its ``/proc/PID/status``.
    """
    flags = int(stat.rpartition(b")")[2].split()[6])
    # Both the thread's and the process's pending signals.
    lines = [
        line.split() for line in status.splitlines() if line.startswith((b"SigPnd:", b"ShdPnd:"))
    ]
    killed = any(int(mask, 16) & 1 << (signal.SIGKILL - 1) for _, mask in lines)
    # Flag of an exiting process (Linux, include/linux/sched.h).
    pf_exiting = 0x4
    return killed or bool(flags & pf_exiting)


def kill_processes(processes: list[Mapping[str, Any]], seconds: float) -> list[int]:
    """Kill the processes that are still alive and wait until they are gone; return their ids."""
    ended = []
    for facts in processes:
        if is_alive(facts):
            try:
                os.kill(int(facts["pid"]), signal.SIGKILL)
            except OSError:
                continue
            ended.append(int(facts["pid"]))
    deadline = time.monotonic() + seconds
    while any(is_alive(facts) for facts in processes) and time.monotonic() < deadline:
        time.sleep(_POLL_S)
    return ended


NAME = "run.lock"
_FENCE_S = 10.0
_POLL_S = 0.005
_OPEN: dict[str, str] = {}
"""Lock file that this process holds → when it was taken."""
_NO_LOCKS = (errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS)


class RunLock:
    """Holds an exclusive `flock` on ``OUT/run.lock`` until `close` or the end of its processes.

    The kernel drops it with the processes, however they end, so there is no stale lock to clean.
    The writer process shares it: while it lives, no other launch looks for the newest checkpoint.
    If its trainer is dead (killed a moment ago), the writer is ended here first: a writer of a dead
    attempt must not publish later. Children made by fork (data loader workers) close their copy, or
    an orphaned worker would lock out the next launch.

    Attributes:
        exclusive: Whether the file system has locks at all.
        fenced: Process ids of the helpers of a dead attempt that were ended.

    Raises:
        UsageError: Another live trainer holds it; the text names it.
        OSError: The file cannot be made.
    """

    def __init__(self, out: StrPath) -> None:
        self.path = os.path.realpath(os.path.join(out, NAME))
        # The lock would refuse it, too, but the message would name this very process.
        if self.path in _OPEN:
            raise UsageError(
                f"this process has a Run of {os.fspath(out)} already, made at {_OPEN[self.path]}: "
                "use that one, or call its close() first (in a notebook, before the cell is run "
                "again)"
            )
        # Never unlinked: a process that waits on the old inode would lock another file than the
        # next one.
        self._fd = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o644)
        self.exclusive = True
        self.fenced: list[int] = []
        self._facts: dict[str, Any] = {}
        try:
            # Before the lock is taken, as `_write_owner` replaces the content.
            former = self._read_previous_owner()
            if not self._try_lock():
                self._end_helpers(former)
                if not self._wait_for_lock(former):
                    raise UsageError(
                        "another trainer is running in "
                        f"{os.fspath(out)}{_owner_text(self._read_previous_owner())}; two would "
                        "overwrite each other. Wait for it, stop it, or give another --out"
                    )
            elif not self.exclusive:
                self._end_helpers(former)
        except BaseException:
            self.close()
            raise
        self._facts = {
            **describe_process(os.getpid()),
            "host": socket.gethostname(),
            "since": time.time(),
            "helpers": [],
        }
        self._write_owner()
        _OPEN[self.path] = time.strftime("%H:%M:%S")
        _drop_in_children(self)

    @property
    def fd(self) -> int:
        """The descriptor that a helper process inherits."""
        return self._fd

    def note_helper(self, pid: int) -> None:
        """Record a helper process, so that the next attempt can end it if it outlives us."""
        self._facts["helpers"].append(describe_process(pid))
        self._write_owner()

    def close(self) -> None:
        """Release the lock (again is harmless); helpers must have ended before."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
            _OPEN.pop(self.path, None)

    def _try_lock(self) -> bool:
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno in _NO_LOCKS:
                self.exclusive = False  # better to train without a lock than not at all
                return True
            # NFS answers EACCES instead of EWOULDBLOCK.
            if error.errno not in (errno.EWOULDBLOCK, errno.EACCES):
                raise
            return False
        return True

    def _end_helpers(self, former: Mapping[str, Any]) -> None:
        """End the helpers of a dead attempt."""
        if former and not is_alive(former):
            self.fenced = kill_processes(list(former.get("helpers", [])), _FENCE_S)
            self._orphaned = True

    _orphaned = False

    def _wait_for_lock(self, former: Mapping[str, Any]) -> bool:
        """Wait for the lock if its holder is dead or exiting, which may take a while."""
        begun = time.monotonic()
        dying_s = 60.0
        while not self._try_lock():
            if not self._orphaned:
                self._end_helpers(former)
                if self._orphaned:
                    begun = time.monotonic()
            if self._orphaned:
                limit = _FENCE_S
            elif is_exiting(former):
                limit = dying_s
            else:
                limit = 0.0
            if time.monotonic() - begun >= limit:
                return False
            time.sleep(_POLL_S)
        return True

    def _write_owner(self) -> None:
        text = (json.dumps(self._facts) + "\n").encode()
        try:
            # In one write: another launch that is refused the lock must not find an empty file.
            os.pwrite(self._fd, text.ljust(os.fstat(self._fd).st_size), 0)
            os.ftruncate(self._fd, len(text))
        except OSError:
            return  # the lock itself holds; only its label is missing, e.g. on a full disk

    def _read_previous_owner(self) -> dict[str, Any]:
        try:
            facts = json.loads(os.pread(self._fd, 65536, 0))
            return {**facts, "pid": int(facts["pid"])}
        except (OSError, ValueError, KeyError, TypeError):
            return {}


def _owner_text(facts: Mapping[str, Any]) -> str:
    try:
        since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(float(facts["since"])))
        return f" (pid {int(facts['pid'])} on {facts['host']}, since {since})"
    except (ValueError, KeyError, TypeError):
        return ""


def _drop_in_children(lock: RunLock) -> None:
    reference: "weakref.ref[RunLock]" = weakref.ref(lock)

    def after_fork() -> None:
        held: RunLock | None = reference()
        if held is not None:
            held.close()

    # It can never be unregistered, so it must not keep a closed lock alive.
    os.register_at_fork(after_in_child=after_fork)
