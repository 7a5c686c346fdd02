"""The ``reap`` verb: lists and ends processes that hold a GPU but are unknown to its driver."""

from __future__ import annotations

import os
import re
import select
import signal
import sys
import time

from rgt_box import jsonline, options, place, procstat
from rgt_box.sampling import processes
from rgt_box.sampling.gpu import (
    GpuSampler,
    describe_user,
    device_prefix,
    find_card_holders,
    in_initial_namespace,
    is_onlooker,
    map_pids,
)
from rgt_box.sampling.processes import is_training
from rgt_box.sampling.sampler import DEFAULT_PATTERN

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from rgt_wire import JsonObject

POLITE, HARD = 5.0, 5.0
"""Seconds to wait after SIGTERM, and then after SIGKILL: a driver may take time to free memory."""


def end_process(pid: int, start: int) -> str | None:
    """End the process `pid` that started at `start` (clock ticks).

    With a pidfd (Linux 5.3, Python 3.9), the PID cannot be reused between the check and the signal.
    Without one, the check is made right before each signal.

    Returns:
        None when it has ended, else why not.
    """
    fd = open_process(pid)
    try:
        if not procstat.is_alive(pid, start):
            return "it has already ended, or its pid belongs to another process now"
        for number, patience in ((signal.SIGTERM, POLITE), (signal.SIGKILL, HARD)):
            try:
                send_to_process(fd, pid, number)
            except ProcessLookupError:
                return None
            except PermissionError:
                return "it belongs to another user"
            if _wait_for_exit(fd, pid, start, patience):
                return None
        return (
            "it does not end: it hangs in the kernel; only a restart of the machine or "
            "container helps"
        )
    finally:
        if fd is not None:
            os.close(fd)


def open_process(pid: int) -> int | None:
    """Return a pidfd, which always refers to this process; None if not supported."""
    opener: Any = getattr(os, "pidfd_open", None)
    if opener is None or not hasattr(signal, "pidfd_send_signal"):
        return None
    try:
        fd: int = opener(pid)
        return fd
    except OSError:
        return None


def send_to_process(fd: int | None, pid: int, number: int) -> None:
    """Send a signal to a process, through its pidfd if there is one."""
    if fd is None:
        os.kill(pid, number)
    else:
        sender: Any = getattr(signal, "pidfd_send_signal")  # noqa: B009 (Python 3.8 lacks it)
        sender(fd, number)


def _wait_for_exit(fd: int | None, pid: int, start: int, patience: float) -> bool:
    """Wait for the exit; a zombie counts as exited, because it holds no memory."""
    if fd is not None:
        return bool(select.select([fd], [], [], patience)[0])
    deadline = time.monotonic() + patience
    while procstat.is_alive(pid, start):
        if time.monotonic() >= deadline:
            return False
        time.sleep(0.02)
    return True


HELP = """
usage: reap [--pattern REGEX] [--job DIR ...] [--kill PID:START ...] [--unverified]

List the processes that have an NVIDIA GPU open, as one JSON object, and end those that are named. Without --kill
nothing is touched. "orphan" is true for a process that the driver does not list, false for one at work, null where
that is unknown (most containers: the driver reports PIDs of another namespace).

  --pattern REGEX    what identifies a training process by its command line (default: rgt_train); it is never ended
  --job DIR          processes of this queue's running cell are never ended either (may be repeated)
  --kill PID:START   end this process: SIGTERM, after 5 s SIGKILL; both numbers as "kill" shows them (may be repeated)
  --unverified       also end one whose "orphan" is null

Exit status: 0 no orphan is left, 1 there are orphans, or a process was not ended, 2 unknown.
"""

OK, TROUBLE, UNKNOWN = 0, 1, 2


def main(argv: list[str]) -> int:
    """Run the verb; returns the exit status."""
    spec = {"--pattern": "str", "--job": "list", "--kill": "list", "--unverified": "flag"}
    found = options.parse_or_exit(argv, spec, HELP)
    try:
        pattern = re.compile(found["pattern"] or DEFAULT_PATTERN)
        named = [parse_process("--kill", text) for text in found["kill"]]
    except (re.error, ValueError) as problem:
        print(f"{problem} (see --help)", file=sys.stderr)
        return UNKNOWN
    # Seconds for the driver to answer.
    wait = 10.0
    gpus, why = GpuSampler(None, place.state_dir()).read_raw(wait)
    holders = list_gpu_holders(gpus, pattern, processes.LiveCells(found["job"]).read())
    report: JsonObject = {
        "at": round(time.time(), 3),
        "why": why or why_orphans_unknown(gpus, holders),
    }
    report.update(holders=holders, ended=[], refused=[])
    for pid, start in named:
        refusal = why_not_end(holders, pid, start, found["unverified"]) or end_process(pid, start)
        name = "%d:%d" % (pid, start)
        if refusal:
            report["refused"].append({"kill": name, "why": refusal})
        else:
            report["ended"].append(name)
    jsonline.print_frame(report)
    return exit_status(report)


def parse_process(option: str, text: str) -> tuple[int, int]:
    """Parse ``PID:START``.

    Raises:
        ValueError: for anything else; a PID alone does not identify a process.
    """
    pid, separator, start = text.partition(":")
    if not separator or not pid.isdigit() or not start.isdigit():
        raise ValueError(f"{option} needs PID:START (as reap lists it), not {text!r}")
    return int(pid), int(start)


def list_gpu_holders(
    gpus: list[JsonObject], pattern: re.Pattern[str], cells: dict[int, str]
) -> list[JsonObject]:
    """Return every process that has a GPU open, with its details.

    Args:
        gpus: The driver's readings, with its process lists.
        pattern: Matches the command line of a training process.
        cells: pid of a running cell → its name.
    """
    start = device_prefix()
    comparable = map_pids(gpus, start, in_initial_namespace())
    if not gpus or any("listed" not in gpu for gpu in gpus):
        comparable = None  # an unlisted process may be listed on the card that does not answer
    listed = {user["pid"] for gpu in gpus for user in gpu.get("procs") or []}
    boot = procstat.boot_time()
    found = []
    for pid, cards in sorted(find_card_holders(start).items()):
        who = describe_user(pid, boot)
        words = procstat.read_cmdline(pid)
        # Monitors such as nvidia-smi keep the card open without using it.
        if who is None or is_onlooker(words):
            continue
        ticks = procstat.start_ticks(pid)
        who.update(
            kill="%d:%d" % (pid, ticks or 0),
            cards=sorted(cards),
            rss=procstat.resident_bytes(pid),
            run=cells.get(processes.cell_session(pid, cells) or 0),
            training=is_training(words, pattern),
            orphan=(pid not in listed) if comparable else None,
        )
        found.append(who)
    return found


def why_orphans_unknown(gpus: list[JsonObject], holders: list[JsonObject]) -> str | None:
    """Return why orphans cannot be identified; None if they can."""
    if not gpus:
        return "no NVIDIA driver answers"
    if any(holder["orphan"] is None for holder in holders):
        return (
            "the driver's list of processes is empty, incomplete, or uses the PIDs of another "
            "namespace"
        )
    return None


def why_not_end(holders: list[JsonObject], pid: int, start: int, unverified: bool) -> str | None:
    """Return why a process must not be ended; None if it may be."""
    holder = next((holder for holder in holders if holder["pid"] == pid), None)
    if pid in (1, os.getpid(), os.getppid()) or holder is None:
        return "it has no GPU open"
    if holder["kill"] != "%d:%d" % (pid, start):
        return f"it is another process now: it started at {holder['kill'].partition(':')[2]}"
    if holder["training"] or holder["run"]:
        return "it is the training"
    if holder["orphan"] is False:
        return "the driver lists it: it is working"
    if holder["orphan"] is None and not unverified:
        return "unknown whether it is an orphan (--unverified ends it anyway)"
    return None


def exit_status(report: JsonObject) -> int:
    """Return the exit status of a report."""
    ended = set(report["ended"])
    left = [holder for holder in report["holders"] if holder["kill"] not in ended]
    if report["refused"] or any(holder["orphan"] for holder in left):
        return TROUBLE
    if report["why"] and not ended:
        return UNKNOWN
    return OK
