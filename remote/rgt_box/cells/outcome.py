"""How a cell ended, in words: by itself, by a signal, or by the kernel for lack of memory."""

from __future__ import annotations

import re
import signal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

PREEMPTED = 75
MISSING, NOT_EXECUTABLE = 127, 126
HINTS = {MISSING: ": command not found", NOT_EXECUTABLE: ": command cannot be executed"}

_KILLED = re.compile(
    rb"^(?:.*: line \d+: +|.*\[\d+\][-+ ]*)?(?:\d+ +)?Killed(?:\s{2,}.*| \(core dumped\).*)?$"
)
"""What shells write when a program of theirs got SIGKILL: a bare ``Killed``, or one with script, line and pid."""

LAST_LINES = 5


def signal_name(number: int) -> str:
    """Return ``SIGKILL`` for 9; ``signal 99`` for one that has no name here."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return "signal %d" % number


def says_killed(tail: bytes) -> bool:
    """Tell whether the last lines of a log hold a bare ``Killed``."""
    rows = [row.rstrip() for row in tail.splitlines() if row.strip()]
    return any(_KILLED.match(row) for row in rows[-LAST_LINES:])


def judge(status: int, stopped_by: str | None, oom: str | None = None, tail: bytes = b"") -> dict[str, Any]:
    """Turn a process's end into the fields of its cell.

    Args:
        status: As ``subprocess`` gives it: the exit status, negative for a signal.
        stopped_by: The signal that the runner was stopped with, if that is why the cell ended.
        oom: What the kernel's counter says: why it killed, "" = it did not, None = cannot be told.
        tail: The last bytes that the cell logged.

    Returns:
        ``state`` (done, failed or interrupted), ``exit_code``, ``signal`` and ``reason``.
    """
    name = signal_name(-status) if status < 0 else None
    found: dict[str, Any] = {"exit_code": status if status >= 0 else None, "signal": name, "reason": None}
    if status == 0:
        return dict(found, state="done")
    how = _how(status, name, oom, tail)
    if stopped_by:
        return dict(
            found,
            state="interrupted",
            reason="the queue was stopped by %s; the cell ended: %s" % (stopped_by, how),
        )
    if status == PREEMPTED:
        return dict(
            found, state="interrupted", reason="preempted (exit 75): it saved and wants to be launched again"
        )
    return dict(found, state="failed", reason=how)


def _how(status: int, name: str | None, oom: str | None, tail: bytes) -> str:
    """Return the end in words. Only the kernel's own counter makes it an out-of-memory kill."""
    if status == -signal.SIGKILL:
        if oom:
            return "killed by the kernel: %s" % oom
        doubt = "" if oom == "" else "; whether the kernel did it for lack of memory cannot be told here"
        return "killed by SIGKILL (9)%s" % doubt
    how = "killed by %s (%d)" % (name, -status) if name else "exit %d" % status
    if oom:
        return "%s: a process inside was killed by the kernel: %s" % (how, oom)
    inside = status - 128 if 128 < status < 193 else 0
    if not inside and says_killed(tail):
        how += ', and its log ends with a bare "Killed"'
        inside = int(signal.SIGKILL)
    if inside:
        return "%s: a process inside was killed by %s (%d)" % (how, signal_name(inside), inside)
    return how + HINTS.get(status, "")


def shown_exit(status: int) -> int:
    """Return the number for ``FINISHED … exit=N``: a signal counts 128 + its number, as in a shell."""
    return status if status >= 0 else 128 - status
