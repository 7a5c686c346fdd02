"""Start, find, replace and stop the recorder from another process."""

from __future__ import annotations

import os
import signal
import time
import warnings

from rgt_box import files, lock, ownership, place, procstat
from rgt_box.history import home, layout

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

READY_WITHIN = 3.0
STOPPED_WITHIN = 5.0
TRIES = 3
"""An older client may be quicker to start its recorder where a newer one has just stopped one."""


def detach(words: list[str], log: str | None = None) -> None:
    """Start a process that nobody waits for: own session, no terminal, no inherited descriptor.

    Args:
        words: The command line.
        log: File to append its output to; discarded by default.
    """
    # Python 3.12 warns of forks beside threads; this child does nothing but exec.
    warnings.filterwarnings("ignore", category=DeprecationWarning, message=".*fork.*")
    child = os.fork()
    if child:
        os.waitpid(child, 0)
        return
    try:
        os.setsid()
        if os.fork():
            os._exit(0)
        null = os.open(os.devnull, os.O_RDWR)
        out = null if log is None else os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        for target, source in ((0, null), (1, out), (2, out)):
            os.dup2(source, target)
        os.closerange(3, 256)
        os.chdir("/")
        os.execv(words[0], words)
    finally:
        os._exit(127)


def status(folder: str) -> dict[str, Any] | None:
    """Return the status of the live recorder; None when there is none or it is not ready yet."""
    found = home.read_status(folder, layout.STATUS)
    return None if found is None or found.get("error") else found


def failure(folder: str) -> str | None:
    """Return why the last recorder could not write, if that is what ended it."""
    error = home.read_json(folder, layout.STATUS).get("error")
    return str(error) if error else None


def is_running(folder: str) -> bool:
    """Tell whether a recorder holds the lock."""
    return any(lock.is_held(os.path.join(where, layout.LOCK)) for where in home.places(folder))


def elsewhere(folder: str) -> str | None:
    """Return whose recorder holds the lock, if it is another host's or container's."""
    owner = files.read_json(os.path.join(folder, place.OWNER), 4096)
    if owner is None or owner == place.identity() or not is_running(folder):
        return None
    return "%s is in use by the recorder of %s; set another RGT_STATE_DIR here" % (folder, owner.get("host"))


def signal_recorder(folder: str, number: int) -> bool:
    """Send a signal to the recorder, whose pid is only trusted together with its start time."""
    for where in home.places(folder):
        found = lock.holder(os.path.join(where, layout.LOCK))
        pid = int(found.get("pid") or 0)
        if procstat.is_alive(pid, found.get("ticks")):
            try:
                os.kill(pid, number)
            except OSError:
                continue
            return True
    return False


def stop(folder: str, within: float = STOPPED_WITHIN) -> bool:
    """Ask the recorder to stop and wait for it.

    Returns:
        True when none is running any more.
    """
    deadline = time.monotonic() + within
    asked = False
    while is_running(folder):
        if time.monotonic() > deadline:
            return False
        asked = asked or signal_recorder(folder, signal.SIGTERM)
        time.sleep(0.01)
    return True


def ensure(folder: str, idle_hours: float | None = None) -> dict[str, Any] | None:
    """Make sure that a recorder runs that is no older than this code.

    Args:
        folder: The state directory.
        idle_hours: Handed to a recorder that has to be started.

    Returns:
        Its status; None when it cannot run here (`failure` may say why).
    """
    found: dict[str, Any] | None = None
    for _ in range(TRIES):
        if is_running(folder):
            found = status(folder) or _await_status(folder)
            if found is not None and not layout.is_older(found):
                return found
            if found is not None and not stop(folder):
                return found  # an old recorder that does not go is better than none
        found = _start(folder, idle_hours)
        if found is None or not layout.is_older(found):
            return found
    return found


def _start(folder: str, idle_hours: float | None) -> dict[str, Any] | None:
    """Start a recorder; returns the status of the one that runs then, which may be another client's."""
    if unwritable(folder) and home.ram(folder, make=True) is None:
        return None
    words = place.command("record", "--foreground")
    if idle_hours is not None:
        words += ["--idle-hours", "%g" % idle_hours]
    home.unlink(folder, layout.STATUS)
    detach(words)
    return _await_status(folder)


def unwritable(folder: str) -> str | None:
    """Return why nothing can be written into the state directory, if so."""
    try:
        ownership.take(folder)
        files.replace(os.path.join(folder, "probe"), b"probe\n")
        files.unlink(os.path.join(folder, "probe"))
    except OSError as error:
        return "the ring in %s cannot be written: %s" % (folder, error.strerror)
    return None


def _await_status(folder: str) -> dict[str, Any] | None:
    deadline = time.monotonic() + READY_WITHIN
    while time.monotonic() < deadline:
        found = status(folder)
        if found is not None:
            return found
        if failure(folder):
            return None
        time.sleep(0.005)
    return None
