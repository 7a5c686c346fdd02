"""The recorder's files, their locations and content, and the clock that recorder and watch share.

They are in the state directory or, while that cannot be written, in a directory on a file system in
memory, named after the first so that every process of this user finds it. It is small, because
training needs that memory, and is emptied as soon as possible.
"""

from __future__ import annotations

import functools
import os
import time
import zlib

from rgt_box import PROTO, files, landing, ownership, place, procstat

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from rgt_wire import JsonObject


RAM_BYTES = 4 << 20
"""Size of the ring in memory: about an hour of samples, or many more events."""

FORGET_HOSTS = 14 * 86400.0
"""Seconds after which a host's history is removed: cluster nodes and containers come and go under
new names.
"""


JOBS_FILE, JOBS_LOCK = "launched.json", "launched.lock"
MOST_JOBS = 32
"""Number of jobs remembered, the newest: each costs the recorder a few system calls per second
until it is done.
"""


def memory_folder(folder: str, make: bool = False) -> str | None:
    """Return the directory in memory that replaces `folder`, or None.

    Args:
        folder: The state directory.
        make: Also create it if it is missing.
    """
    name = _name_in_memory(folder, _device_and_inode(folder), place.boot_and_namespace())
    own = os.environ.get("RGT_RAM_DIR")
    for base in [own] if own else ["/dev/shm", "/run/user/%d" % os.getuid()]:
        path = os.path.join(base, name)
        if make:
            try:
                os.mkdir(path, 0o700)
            except OSError:
                pass
        if landing.is_private(path):
            return path
    return None


@functools.lru_cache(maxsize=8)
def _name_in_memory(folder: str, which: tuple[int, int] | None, life: str) -> str:
    """Return the name of the directory in memory that replaces `folder`.

    Containers may share /dev/shm and have the same path to a state directory, so the name includes
    the life of the box.
    """
    whose = f"{os.path.realpath(folder)}\0{life}"
    return "rgt-%d-%08x" % (os.getuid(), zlib.crc32(whose.encode("utf-8", "surrogateescape")))


def _device_and_inode(folder: str) -> tuple[int, int] | None:
    """Return the device and inode of a directory; None if it does not exist."""
    try:
        found = os.stat(folder)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def state_folders(folder: str) -> list[str]:
    """Return the directories with the recorder's files; the first one is on disk if it is ours."""
    memory = memory_folder(folder)
    if ownership.is_another_users(folder):
        lasting = []
    else:
        lasting = [folder]
    if memory is None:
        return lasting
    return [*lasting, memory]


def is_there(folder: str, names: tuple[str, ...]) -> bool:
    """Return whether one of these files exists."""
    return any(
        files.signature(os.path.join(where, name))
        for where in state_folders(folder)
        for name in names
    )


def forget_hosts(folder: str) -> None:
    """Remove the history (64 MiB each) of other hosts in this home that wrote nothing for long."""
    for path in place.neighbours(folder):
        ring = os.path.join(path, place.RING)
        try:
            written = max(
                os.stat(item).st_mtime for item in [path, *_list_paths(path), *_list_paths(ring)]
            )
        except OSError:
            continue  # another host is removing it
        if time.time() - written > FORGET_HOSTS and not files.is_locked(
            os.path.join(path, place.LOCK)
        ):
            import shutil  # here: it loads three compressors, and most recorders remove nothing

            shutil.rmtree(path, ignore_errors=True)


def _list_paths(folder: str) -> list[str]:
    try:
        return [os.path.join(folder, name) for name in os.listdir(folder)]
    except OSError:
        return []


def write_json(folder: str, name: str, value: JsonObject) -> bool:
    """Write a small file to disk or memory; return False if neither is writable."""
    try:
        ownership.ensure_private_folder(folder)
        files.write_json(os.path.join(folder, name), value)
    except OSError:
        memory = memory_folder(folder, make=True)
        if memory is None:
            return False
        try:
            files.write_json(os.path.join(memory, name), value)
        except OSError:
            return False
        return True
    memory = memory_folder(folder)
    if memory is not None:
        # Readers prefer memory, so an older copy there would hide this one.
        files.unlink_if_exists(os.path.join(memory, name))
    return True


def read_json(folder: str, name: str) -> JsonObject:
    """Return a small file's content, from memory if it is there, as that is newer.

    Return {} if missing.
    """
    for where in reversed(state_folders(folder)):
        found = files.read_json(os.path.join(where, name))
        if found is not None:
            return found
    return {}


def read_found(folder: str) -> list[JsonObject]:
    """Return the training runs that the recorder has found, as they are stored."""
    return read_json(folder, FOUND).get("runs") or []


def read_status(folder: str, name: str) -> JsonObject | None:
    """Return the status that a live process has written, or None."""
    for where in state_folders(folder):
        found = files.read_json(os.path.join(where, name))
        if found is not None and procstat.is_alive(int(found.get("pid") or 0), found.get("ticks")):
            return found
    return None


def unlink_everywhere(folder: str, name: str) -> None:
    """Remove a small file in all locations."""
    for where in state_folders(folder):
        files.unlink_if_exists(os.path.join(where, name))


LOCK, RING = place.LOCK, place.RING
STATUS, CONFIG = "recorder.json", "recorder-config.json"
ARMED, STOP_STATE, SINK = "autostop.json", "autostop-state.json", "sink.json"
"""Files of `rgt_box.autostop`, which is loaded if one of them exists."""
FOUND = "found.json"
PREEMPTION = "preemption.json"
SLURM = "Slurm"
"""Source of a notice that a job ends; the machine stays."""
SUBMITTED_FROM = "RGT_SUBMITTED_FROM"
"""Variable with boot and state directory of the host that submitted the job: its recorder reports
the end of the job, too, because people watch the login node, not the node of the job.
"""
KNOWN_QUEUES = "recorder-queues.json"
"""The recorder's last known state of each queue."""

VERSION = 6
"""Increased when the recorder records something new."""


def read_notice(
    folder: str, kept_s: float = 600.0, kept_of_job_s: float = 60.0
) -> JsonObject | None:
    """Return the stored notice of this boot; None without one, or if it is long over.

    Args:
        folder: The state directory.
        kept_s: Seconds after the end for which a notice still counts.
        kept_of_job_s: The same for a notice of Slurm, after which the machine is still there.
    """
    found = read_json(folder, PREEMPTION)
    if found.get("boot") != place.boot_id():
        return None
    ends = found.get("ends")
    at = found.get("at")
    known = [value for value in (ends, at) if isinstance(value, (int, float))]
    last = max(known, default=0.0)
    if found.get("source") == SLURM:
        kept_s = kept_of_job_s
    if time.time() - last > kept_s:
        return None
    return found


class ClockWatch:
    """Detects changes of the clock; time in which the machine was suspended is not one."""

    def __init__(self) -> None:
        self._ahead = self._wall_clock_lead()

    @staticmethod
    def _wall_clock_lead() -> float:
        # A process stopped between the two reads gets too small a value, so use the maximum.
        return max(time.time() - time.clock_gettime(time.CLOCK_BOOTTIME) for _ in range(3))

    def read_jump(self) -> float:
        """Return the seconds by which the clock changed since the last call; 0 if it did not."""
        ahead = self._wall_clock_lead()
        jump = ahead - self._ahead
        # Seconds by which the clock must change to be reported.
        jump_limit = 5.0
        if abs(jump) < jump_limit:
            return 0.0  # slow NTP corrections add up until they are reported
        self._ahead = ahead
        return jump


def next_tick(due: float, interval: float, now: float) -> float:
    """Return the next time on the grid of `due`; missed ticks are skipped."""
    due += interval
    if due < now:
        # A box that was suspended must not make up for hours of samples.
        due += interval * (int((now - due) / interval) + 1)
    return min(due, now + interval)


def describe_self() -> JsonObject:
    """Return what identifies this process and its code."""
    pid = os.getpid()
    return {
        "pid": pid,
        "ticks": procstat.start_ticks(pid),
        "digest": place.agent_digest(),
        "proto": PROTO,
        "version": VERSION,
    }


def is_older(status: JsonObject) -> bool:
    """Return whether a recorder must be replaced by one of this code.

    Only an older one is: two clients of different versions must not keep replacing each other's
    recorder. A newer one continues and serves this client, too.
    """
    proto = int(status.get("proto") or 0)
    version = int(status.get("version") or 0)
    return (proto, version) < (PROTO, VERSION)


# The jobs launched on this box, which the recorder knows even if no client has named them.
#
# `launch` and the runner write a job's directory into one file of the state directory before
# anything starts. The recorder then sees its cells begin and end without a client, and their
# processes are never taken for a training of unknown origin, whose exit status would be unknown.


def register_job(job: str) -> None:
    """Record that a job is about to be launched.

    Does nothing if the state directory is not writable.

    Args:
        job: Its directory.
    """
    folder = place.state_dir()
    try:
        ownership.ensure_private_folder(folder)
        held = files.FileLock(os.path.join(folder, JOBS_LOCK))
        lock_wait_s = 2.0
        if not held.acquire(lock_wait_s):
            return
    except OSError:
        return
    try:
        kept = _read_jobs(folder)
        # Removed first, so that it moves to the end.
        kept.pop(os.path.abspath(job), None)
        kept[os.path.abspath(job)] = round(time.time(), 3)
        newest = sorted(kept.items(), key=lambda item: item[1])[-MOST_JOBS:]
        write_json(folder, JOBS_FILE, {"jobs": dict(newest)})
    finally:
        held.release()


def known_launched_jobs() -> list[str]:
    """Return the directories of the remembered jobs that were launched here."""
    return list(_read_jobs(place.state_dir()))


def _read_jobs(folder: str) -> dict[str, float]:
    jobs = read_json(folder, JOBS_FILE).get("jobs")
    found: dict[str, float] = {}
    if not isinstance(jobs, dict):
        return found
    for path, at in jobs.items():
        if isinstance(at, (int, float)) and os.path.isabs(path):
            found[path] = float(at)
    return found


class LaunchedJobs:
    """The registered jobs, reread only when the file changes.

    Args:
        folder: The state directory.
    """

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._seen: Any = ()
        self._jobs: dict[str, float] = {}

    def read(self) -> dict[str, float]:
        """Return directory → time of the job's last launch."""
        seen = [
            files.signature(os.path.join(where, JOBS_FILE)) for where in state_folders(self._folder)
        ]
        if seen != self._seen:
            self._seen, self._jobs = seen, _read_jobs(self._folder)
        return self._jobs
