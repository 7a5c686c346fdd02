"""The ``seal`` and ``unseal`` verbs: keep queues from starting cells during a billing call.

A small separate process holds the locks that queue runners need, so no cell starts. When it is
signalled, times out or dies, the kernel releases the locks. So a crashed laptop leaves nothing
sealed.
"""

from __future__ import annotations

import errno
import os
import re
import signal
import sys
import time

from rgt_box import files, jsonline, options, ownership, place, procstat
from rgt_box.background import error_text
from rgt_box.commands import file_tree, results
from rgt_box.queue import queue_command, queue_file
from rgt_box.recorder import state_files
from rgt_box.sampling import gpu
from rgt_box.sampling.sampler import DEFAULT_PATTERN, BoxSampler, reading_timeout

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Iterator

    from rgt_wire import JsonObject

HELP = """
usage: seal [--seconds N] [--pattern REGEX] [options of results]

Take the locks of the queues, so that no runner starts a cell; check once more for any activity; and report what could
be lost: its files as one number, and the rest as results does. The seal expires after N seconds (default 120), or is
released by unseal.

Prints {"nonce", "generation", "at", "seconds", "skipped", "problems", "mounts", "busy"}: busy lists why the box is not
quiet.

Exit status: 0 sealed, 1 too much to list, 2 wrong command line, or a lock cannot be taken at all, 3 another
seal is in force.

Example: seal --job ~/jobs/sweep --seconds 120
"""
UNSEAL_HELP = """
usage: unseal NONCE

Release the seal that answered with this nonce: queue runners may start again.

Prints {"opened"}: false when it had already expired or been released.

Exit status: 0 released, 2 wrong command line, 3 it cannot be released (it expires automatically).

Example: unseal 0123456789abcdef0123456789abcdef
"""
OK, UNUSABLE, HELD = 0, 2, 3
LOCK = "seal.lock"
SECONDS, MOST_SECONDS = 120.0, 3600.0
LONGEST = 300
"""Maximum seconds of the check."""
LOOK = 3.0
"""Seconds for a driver to answer."""
INPUT = 300.0
"""Seconds after terminal input for which the user counts as present."""


def main(argv: list[str]) -> int:
    """Seal; returns the exit status."""
    spec = dict(results.SPEC, **{"--seconds": "float", "--pattern": "str"})
    found = options.parse_or_exit(argv, spec, HELP)
    if found["seconds"] is None:
        seconds = SECONDS
    else:
        seconds = found["seconds"]
    try:
        if not 0 < seconds <= MOST_SECONDS:
            raise ValueError("--seconds must be above 0, and at most %d" % MOST_SECONDS)
        re.compile(found["pattern"] or DEFAULT_PATTERN)
        if results.find_option_error(found):
            raise ValueError(results.find_option_error(found))
    except (ValueError, re.error) as error:
        print(f"{error} (see --help)", file=sys.stderr)
        return UNUSABLE
    # A check that hangs, as on a dead network disk, must not keep the queues locked: end the
    # process.
    signal.alarm(LONGEST)
    try:
        ownership.ensure_private_folder(place.state_dir())
        own = files.FileLock(os.path.join(place.state_dir(), LOCK))
        if not own.acquire():
            print(sealed_text(files.lock_holder(own.path)), file=sys.stderr)
            return HELD
        # The locks before the check: a cell that started in between would be missed.
        locks, busy = acquire_queues(found["job"])
    except OSError as error:
        print(
            f"cannot be sealed: {error.filename or 'a lock'}: {error_text(error)}", file=sys.stderr
        )
        return UNUSABLE
    busy += describe_activity(found)
    os.nice(results.NICE)
    answer = results.find_results(found)
    nonce = os.urandom(16).hex()
    try:
        hold_locks_in_child([own, *locks], nonce, seconds)
    except OSError as error:
        print(f"cannot be sealed: {error_text(error)}", file=sys.stderr)
        return UNUSABLE
    seal = {
        "nonce": nonce,
        "generation": answer["generation"],
        "at": round(time.time(), 3),
        "seconds": seconds,
        "skipped": answer["skipped"],
        "problems": answer["problems"],
        "mounts": answer["mounts"],
    }
    jsonline.print_frame(dict(seal, busy=busy))
    return OK


def sealed_text(holder: JsonObject) -> str:
    """Return the message that another seal is in force, and for how long."""
    left = float(holder.get("until") or 0.0) - time.time()
    return "this box has another active seal; it expires automatically %s" % (
        "within %d s" % (left + 1) if left > 0 else "as soon as its check is over"
    )


def acquire_queues(jobs: list[str]) -> tuple[list[files.FileLock], list[str]]:
    """Acquire each queue's lock; returns the locks, and descriptions of the busy queues.

    Raises:
        OSError: when a lock file is unusable, so that a runner could start.
    """
    locks = []
    busy = []
    for folder in dict.fromkeys(os.path.realpath(os.path.expanduser(folder)) for folder in jobs):
        job = queue_file.Job(folder)
        if not os.path.isdir(job.folder):
            continue  # no queue, so no runner
        held = files.FileLock(job.path("runner.lock"))
        # One second: a reader may hold the lock for an instant to look whether it is taken.
        if held.acquire(1.0):
            held.write_owner(
                {"seal": True, "pid": os.getpid(), "ticks": procstat.start_ticks(os.getpid())}
            )
            locks.append(held)
        else:
            busy.append(queue_command.busy_text(job))
        # Check after locking: a lane that starts now sees the lock and exits.
        busy += [f"{name} is running in a separate lane" for name in queue_command.busy_lanes(job)]
    return locks, busy


def describe_activity(found: JsonObject) -> list[str]:
    """Return descriptions of all activity on the box."""
    state = place.state_dir()
    sampler = BoxSampler(state, remember=False)
    pattern = found["pattern"] or DEFAULT_PATTERN
    sampler.configure({"jobs": found["job"], "pattern": pattern, "find": True, "mounts": []}, [])
    fields, events = sampler.read(wait=reading_timeout(LOOK))
    blind = [event["text"] for event in events if event["kind"] == "sampler-failed"]
    # What cannot be checked counts as busy: the seal precedes a call that may destroy the box.
    busy = [f"cannot be checked: {text}" for text in blind]
    known = set()
    for proc in fields.get("procs", []):
        known.add(proc["pid"])
        busy.append(
            "a training process is alive: pid %d, %s"
            % (proc["pid"], proc.get("run") or proc["cmd"])
        )
    for raw in state_files.read_found(state):
        pid = raw.get("pid")
        ticks = raw.get("ticks")
        if (
            isinstance(pid, int)
            and pid not in known
            and raw.get("ended") is None
            and procstat.is_alive(pid, ticks)
        ):
            busy.append("a training process is alive: pid %d, %s" % (pid, raw.get("name")))
    busy += find_unexplained_gpus(fields.get("gpus", []), known)
    for transfer in fields.get("transfers", []):
        busy.append("files are being copied: %s, pid %d" % (transfer["name"], transfer["pid"]))
    typed = time.time() - fields.get("input_at", 0.0)
    if "input_at" not in fields:
        busy.append("it is not known when somebody last typed at a terminal")
    elif typed < INPUT:  # also if later than now: the clock was set back
        busy.append("somebody typed at a terminal %d s ago" % max(0, typed))
    return busy


def find_unexplained_gpus(gpus: list[JsonObject], known: set[int]) -> Iterator[str]:
    """Yield cards whose memory use no training process explains, and cards that do not answer.

    Args:
        gpus: GPUs of a sample.
        known: Training processes that are already reported.
    """
    for card in gpus:
        used = card.get("vram_used")
        users = card.get("procs") or []
        if card.get("error"):
            yield "GPU %d does not answer: %s" % (card["index"], card["error"])
            continue
        if card.get("sim") or not isinstance(used, int) or used < gpu.UNEXPLAINED:
            continue
        trains = bool(users) and all(user.get("mapped") and user["pid"] in known for user in users)
        if trains and gpu.unexplained(card) < gpu.UNEXPLAINED:
            continue
        named = [
            user["pid"]
            for user in [*users, *(card.get("orphans") or [])]
            if user["pid"] not in known
        ]
        if named:
            who = f"pid {', '.join(map(str, named))}"
        else:
            who = "an unknown process"
        if card.get("util") is not None:
            share = f"{card['util']:.0f}%"
        else:
            share = "unknown"
        yield "GPU %d: %.1f GiB are used by %s, utilisation %s" % (
            card["index"],
            used / 2**30,
            who,
            share,
        )


def hold_locks_in_child(locks: list[files.FileLock], nonce: str, seconds: float) -> None:
    """Fork a background process that holds the locks, so that this process may exit.

    Raises:
        OSError: That process ended before it was ready: nothing is sealed.
    """
    read, write = os.pipe()
    child = os.fork()
    if child:
        os.close(write)
        # Only the first child: the one that holds the locks is adopted by pid 1.
        os.waitpid(child, 0)
        ready = os.read(read, 1)  # wait until the child handles signals
        os.close(read)
        if not ready:
            raise OSError(errno.ECHILD, "the process that holds the seal ended at once")
        return
    try:
        # Blocked before the parent learns that the seal is ready: a signal right after that is
        # taken by sigtimedwait and not lost.
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGINT, signal.SIGHUP})
        # Apart from the session of the SSH connection, which ends with a SIGHUP.
        os.setsid()
        os.close(read)
        if os.fork():
            os._exit(0)
        # Open standard streams would keep the SSH connection from closing.
        null = os.open(os.devnull, os.O_RDWR)
        for target in (0, 1, 2):
            os.dup2(null, target)
        # A working directory on a disk would keep that disk from being unmounted.
        os.chdir("/")
        until = time.time() + seconds
        value = {
            "seal": True,
            "pid": os.getpid(),
            "ticks": procstat.start_ticks(os.getpid()),
            "until": until,
        }
        for lock in locks:
            lock.write_owner(dict(value, nonce=nonce) if lock is locks[0] else value)
        deadline = time.monotonic() + seconds
        os.write(write, b".")
        os.close(write)
        left = seconds
        while left > 0:
            got = signal.sigtimedwait({signal.SIGTERM, signal.SIGINT, signal.SIGHUP}, left)
            if got is not None and got.si_signo == signal.SIGTERM:
                break
            left = deadline - time.monotonic()
        # Release the queues first, so that they are free when the seal is gone.
        for lock in reversed(locks):
            lock.write_owner({})
            lock.release()
    finally:
        os._exit(0)


def unseal(argv: list[str]) -> int:
    """Release a seal; returns the exit status."""
    words, _ = file_tree.parse_words(argv, {}, UNSEAL_HELP)
    if len(words) != 1:
        return file_tree.print_usage_error("unseal: NONCE is required")
    path = os.path.join(place.state_dir(), LOCK)
    # A user who can write to the file could choose which process is signalled.
    if ownership.is_ours(path) and files.is_locked(path):
        holder = files.lock_holder(path)
    else:
        holder = {}
    pid = holder.get("pid")
    ticks = holder.get("ticks")
    opened = (
        holder.get("nonce") == words[0] and isinstance(pid, int) and procstat.is_alive(pid, ticks)
    )
    if opened:
        try:
            os.kill(int(pid or 0), signal.SIGTERM)
        except ProcessLookupError:
            opened = False
        opened_within = 10.0
        deadline = time.monotonic() + opened_within
        while procstat.is_alive(int(pid or 0), ticks) and time.monotonic() < deadline:
            time.sleep(0.01)
        if procstat.is_alive(int(pid or 0), ticks):
            print("the seal cannot be released; it expires automatically", file=sys.stderr)
            return HELD
    jsonline.print_frame({"opened": opened})
    return OK
