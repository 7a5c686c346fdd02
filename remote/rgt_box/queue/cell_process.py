"""Start one cell as a process, wait for it, and classify its end by status, signal or OOM kill."""

from __future__ import annotations

import errno
import os
import re
import signal
import sys
import time

from rgt_box import files, place, procstat
from rgt_box.background import which
from rgt_box.recorder import state_files
from rgt_box.sampling import cgroup
from rgt_box.sampling.cgroup import parse_fields

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable

    from rgt_wire import JsonObject

PREEMPTED = 75
MISSING, NOT_EXECUTABLE = 127, 126
HINTS = {MISSING: ": command not found", NOT_EXECUTABLE: ": command cannot be executed"}

_KILLED = re.compile(
    rb"^(?:.*: line \d+: +|.*\[\d+\][-+ ]*)?(?:\d+ +)?Killed(?:\s{2,}.*| \(core dumped\).*)?$"
)
"""What a shell prints when its child gets SIGKILL: a bare ``Killed``, or one with script, line and
pid.
"""


def signal_name(number: int) -> str:
    """Return the signal's name, such as ``SIGKILL`` for 9; ``signal 99`` if it has none."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return "signal %d" % number


def ends_with_killed(tail: bytes) -> bool:
    """Return whether one of the last lines of a log is the shell's ``Killed`` message."""
    rows = [row.rstrip() for row in tail.splitlines() if row.strip()]
    last_lines = 5
    return any(_KILLED.match(row) for row in rows[-last_lines:])


_NO_PYTHON = re.compile(rb"(?:^|[\s:/])python: (?:command )?not found|cannot start python: ", re.M)
"""The error messages of bash, dash and this module."""


def python_hint(path: str) -> str:
    """Return a hint if PATH has ``python3`` but no ``python``; otherwise "".

    Args:
        path: The PATH of the command.
    """
    if which("python", path) or not which("python3", path):
        return ""
    return f"there is no python on this box, but a {which('python3', path)}: write python3"


def describe_missing_python(status: int, tail: bytes, path: str) -> str:
    """Return `python_hint` if the command failed because ``python`` was not found; otherwise ""."""
    hint = ""
    if status == MISSING and _NO_PYTHON.search(tail):
        hint = python_hint(path)
    if hint:
        return f": {hint}"
    return ""


def classify_exit(
    status: int, stopped_by: str | None, oom: str | None = None, tail: bytes = b"", path: str = ""
) -> JsonObject:
    """Return the fields of a cell whose process has ended.

    Args:
        status: As ``subprocess`` reports it: the exit status, negative for a signal.
        stopped_by: Name of the signal that stopped the runner, if that is why the cell ended.
        oom: From the kernel's counter: why it killed, "" if it did not, None if unknown.
        tail: The last bytes that the cell logged.
        path: Its PATH.

    Returns:
        ``state`` (done, failed or interrupted), ``exit_code``, ``signal`` and ``reason``.
    """
    if status < 0:
        name = signal_name(-status)
    else:
        name = None
    found: JsonObject = {
        "exit_code": status if status >= 0 else None,
        "signal": name,
        "reason": None,
    }
    if status == 0:
        return dict(found, state="done")
    how = _describe_exit(status, name, oom, tail) + describe_missing_python(status, tail, path)
    if stopped_by:
        return dict(
            found,
            state="interrupted",
            reason=f"the queue was stopped by {stopped_by}; the cell ended: {how}",
        )
    if status == PREEMPTED:
        return dict(
            found,
            state="interrupted",
            reason="preempted (exit 75): it saved and can be launched again",
        )
    return dict(found, state="failed", reason=how)


def _describe_exit(status: int, name: str | None, oom: str | None, tail: bytes) -> str:
    """Describe how the process ended.

    Only the kernel's own counter makes it an out-of-memory kill.
    """
    if status == -signal.SIGKILL:
        if oom:
            return f"killed by the kernel: {oom}"
        if oom == "":
            doubt = ""
        else:
            doubt = "; unknown whether the kernel killed it for lack of memory"
        return f"killed by SIGKILL (9){doubt}"
    if name:
        how = "killed by %s (%d)" % (name, -status)
    else:
        how = "exit %d" % status
    if oom:
        return f"{how}: a process inside was killed by the kernel: {oom}"
    inside = 0
    # A shell reports a child that was killed by signal N as 128 + N; there are 64 signals.
    if 128 < status < 193:
        inside = status - 128
    if not inside and ends_with_killed(tail):
        how += ', and its log ends with a bare "Killed"'
        inside = int(signal.SIGKILL)
    if inside:
        return "%s: a process inside was killed by %s (%d)" % (how, signal_name(inside), inside)
    return how + HINTS.get(status, "")


def format_exit_status(status: int) -> int:
    """Return the number for ``FINISHED … exit=N``: 128 + N for a signal N, as in a shell."""
    if status >= 0:
        return status
    return 128 - status


STOP = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1)
RESTORED = ("SIGPIPE", "SIGXFSZ")
"""Signals that Python ignores; they are reset so that the cell does not inherit this."""


def block_signals() -> None:
    """Block stop signals, so that they arrive only in `next_signal`, not during bookkeeping."""
    signal.pthread_sigmask(signal.SIG_BLOCK, set(STOP) | {signal.SIGCHLD})


def next_signal(timeout: float) -> int | None:
    """Wait for a stop signal or the end of a child; return the stop signal, None otherwise."""
    got = signal.sigtimedwait(set(STOP) | {signal.SIGCHLD}, timeout)
    if got is not None and got.si_signo in STOP:
        return got.si_signo
    return None


class CellProcess:
    """A cell's process, forked but blocked until `start_command`.

    Its pid is recorded before it runs. If the runner dies first, the pipe closes and the cell exits
    without having run.

    Args:
        words: Its command.
        cwd: Its working directory.
        env: Its whole environment.
        log: File that its output is appended to; os.devnull if the file cannot be opened.
        nice: Its niceness.

    Raises:
        OSError: The process cannot be created.
    """

    def __init__(
        self, words: list[str], cwd: str, env: dict[str, str], log: str, nice: int
    ) -> None:
        try:
            out = files.open_appending(log, 0o644)
        except OSError:
            # A full disk must not keep a cell from running: its results matter more than its log.
            out = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
        gate, self._gate = os.pipe()
        # Otherwise the child would print the buffered text, too.
        sys.stdout.flush()
        self.pid = os.fork()
        if not self.pid:
            _exec_cell(words, cwd, env, out, nice, gate, self._gate)
        # The parent's copies: with them open, the cell would never see the end of its pipe.
        os.close(out)
        os.close(gate)
        # With the start time the PID stays unique, even after it is reused.
        self.ticks = procstat.start_ticks(self.pid)

    def start_command(self) -> None:
        """Let the cell's command start."""
        os.write(self._gate, b"g")
        os.close(self._gate)

    def wait(self, on_stop: Callable[[float], None] | None = None) -> tuple[int, int | None]:
        """Wait for the cell to end, and forward stop signals to it.

        The signal goes to the cell's main process only: data loader workers killed by it would
        spoil the save. After a stop or a failure, the rest of the process group is killed so that
        it keeps no GPU memory.

        Args:
            on_stop: Called once with the time (epoch seconds), after a stop signal was forwarded.

        Returns:
            (exit status, negative for a signal; the stop signal that the runner received, if any).
        """
        stopped: int | None = None
        deadline = float("inf")
        while True:
            status = self._poll_exit()
            if status is not None:
                break
            got = next_signal(min(1.0, max(0.01, deadline - time.monotonic())))
            # The second signal kills: the person does not want to wait for the save. A machine that
            # is taken away sends its own after ours.
            if got is not None and stopped is None:
                stopped = got
                deadline = time.monotonic() + stop_grace_seconds()
                # SIGHUP came from a closed terminal, SIGUSR1 from Slurm; trainers save on SIGTERM.
                if got in (signal.SIGHUP, signal.SIGUSR1):
                    got = signal.SIGTERM
                send_signal(self.pid, got)
                if on_stop is not None:
                    on_stop(time.time())
            elif time.monotonic() >= deadline or (got is not None and not is_taken_away()):
                send_signal(-self.pid, signal.SIGKILL)
        if stopped or status:
            # Loader workers and shells outlive their parent and would keep the card's memory.
            sweep_session(self.pid)
        return status, stopped

    def _poll_exit(self) -> int | None:
        pid, status = os.waitpid(self.pid, os.WNOHANG)
        if not pid:
            return None
        if os.WIFSIGNALED(status):
            # os.waitpid instead of subprocess: the cell was forked before its command was known to
            # run.
            return -os.WTERMSIG(status)
        return os.WEXITSTATUS(status)


def _exec_cell(
    words: list[str], cwd: str, env: dict[str, str], out: int, nice: int, gate: int, other: int
) -> None:
    """Turn the forked child into the cell. Never returns."""
    status = NOT_EXECUTABLE
    try:
        os.close(other)
        # A group of its own, so that the rest of it can be killed, and a closed terminal does not
        # reach it.
        os.setsid()
        for name in RESTORED:
            signal.signal(getattr(signal, name), signal.SIG_DFL)
        # The runner blocks them, and exec keeps the mask: the cell could never be stopped.
        signal.pthread_sigmask(signal.SIG_UNBLOCK, set(STOP) | {signal.SIGCHLD})
        null = os.open(os.devnull, os.O_RDONLY)
        for target, source in ((0, null), (1, out), (2, out)):
            os.dup2(source, target)
        if nice:
            try:
                os.nice(nice)
            except OSError:
                pass  # only a privileged user may raise the priority
        if os.read(gate, 1) != b"g":
            # The runner died before it recorded this cell, so the command must not run.
            os._exit(PREEMPTED)
        os.chdir(cwd)
        os.execvpe(words[0], words, env)
    except OSError as error:
        if error.errno == errno.ENOENT:
            status = MISSING
        else:
            status = NOT_EXECUTABLE
        os.write(2, (f"cannot start {words[0]}: {error}\n").encode("utf-8", "replace"))
    finally:
        os._exit(status)


def stop_grace_seconds() -> float:
    """Return the seconds between asking a cell to stop and killing it."""
    try:
        return float(os.environ.get("RGT_STOP_GRACE", ""))
    except ValueError:
        # Seconds that a stopped cell gets to save before it is killed; ``RGT_STOP_GRACE`` overrides
        # it.
        return 120.0


def is_taken_away() -> bool:
    """Return whether the platform has announced that it takes this machine away."""
    return state_files.read_notice(place.state_dir()) is not None


def send_signal(pid: int, number: int) -> bool:
    """Send a signal to a process, or to a group as ``-pid``; return False if it is gone."""
    try:
        os.kill(pid, number)
    except OSError:
        return False
    return True


def sweep_session(leader: int) -> None:
    """End the rest of a cell's process group: SIGTERM, then SIGKILL after at most 5 seconds."""
    deadline = time.monotonic() + min(5.0, stop_grace_seconds())
    send_signal(-leader, signal.SIGTERM)
    # Signal 0 only asks whether the group still exists.
    while send_signal(-leader, 0):
        if time.monotonic() >= deadline:
            send_signal(-leader, signal.SIGKILL)
            return
        time.sleep(0.02)


def wait_for_orphan(pid: int, ticks: Any) -> int | None:
    """Wait for a cell that an earlier runner left running: two writers would corrupt its directory.

    Returns:
        None once it has ended, or the stop signal received meanwhile (it was forwarded to the
        cell).
    """
    while procstat.is_alive(pid, ticks):
        got = next_signal(0.2)
        if got is not None:
            send_signal(pid, signal.SIGTERM)
            deadline = time.monotonic() + stop_grace_seconds()
            while procstat.is_alive(pid, ticks) and time.monotonic() < deadline:
                time.sleep(0.05)
            sweep_session(pid)
            return got
    return None


CGROUP_FILES = {
    1: {"events": "memory.oom_control", "limit": "memory.limit_in_bytes"},
    2: {"events": "memory.events", "limit": "memory.max"},
}
NO_LIMIT = 1 << 60
"""cgroup v1 expresses "no limit" as the largest multiple of the page size."""


class MemoryCgroup:
    """The memory cgroup of this process, which all its cells share.

    Args:
        place: Location of the controller; None if it was not found.
    """

    def __init__(self, place: cgroup.CgroupFolders | None) -> None:
        self._levels = place.levels if place else []
        if place:
            self._names = CGROUP_FILES[place.version]
        else:
            self._names = {}

    def count_oom_kills(self) -> int | None:
        """Return how many processes of this cgroup the kernel has killed; None if unknown.

        cgroup v1 counts only the kills at this level, v2 also those below it. In both cases the
        nearest level with a counter is the right one: a higher level may include other containers.
        """
        for level in self._levels:
            data = procstat.read_bytes(os.path.join(level, self._names["events"]))
            count = parse_fields(data or b"").get("oom_kill")
            if count is not None:
                return count
        return None

    def limit_bytes(self) -> int | None:
        """Return the tightest limit in bytes; None if no limit is set."""
        limits = [NO_LIMIT]
        for level in self._levels:
            data = procstat.read_bytes(os.path.join(level, self._names["limit"])) or b""
            if data.strip().isdigit():
                limits.append(int(data))
        if min(limits) < NO_LIMIT:
            return min(limits)
        return None


class OomWatch:
    """Compares the kernel's OOM-kill counter before and after one cell."""

    def __init__(self) -> None:
        self._memory = MemoryCgroup(cgroup.locate_own_controller("memory"))
        self._before = self._memory.count_oom_kills()

    def oom_kill_reason(self) -> str | None:
        """Return why the kernel killed a process, "" if it did not, None if this is unknown."""
        now = self._memory.count_oom_kills()
        if now is None or self._before is None:
            return None
        if now <= self._before:
            return ""
        limit = self._memory.limit_bytes()
        if limit:
            where = "limit %.1f GiB" % (limit / 2**30)
        else:
            where = "no limit is set: the host itself ran out"
        return f"out of memory in the container ({where})"
