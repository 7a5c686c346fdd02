"""How a cell ended, in words."""

from __future__ import annotations

import signal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

PREEMPTED = 75
MISSING, NOT_EXECUTABLE = 127, 126


def signal_name(number: int) -> str:
    """Return ``SIGKILL`` for 9; ``signal 99`` for one that has no name here."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return "signal %d" % number


def judge(status: int, stopped_by: str | None) -> dict[str, Any]:
    """Turn a process's end into the fields of its cell.

    Args:
        status: As ``subprocess`` gives it: the exit status, negative for a signal.
        stopped_by: The signal that the runner was stopped with, if that is why the cell ended.

    Returns:
        ``state`` (done, failed or interrupted), ``exit_code``, ``signal`` and ``reason``.
    """
    name = signal_name(-status) if status < 0 else None
    found: dict[str, Any] = {"exit_code": status if status >= 0 else None, "signal": name, "reason": None}
    if status == 0:
        return dict(found, state="done")
    how = "killed by %s (%d)" % (name, -status) if name else "exit %d" % status
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
    return dict(found, state="failed", reason=how + HINTS.get(status, _shell_hint(status)))


HINTS = {
    -9: ", most often by the kernel for lack of memory",
    MISSING: ": command not found",
    NOT_EXECUTABLE: ": command cannot be executed",
}


def _shell_hint(status: int) -> str:
    if 128 < status < 193:
        return ": a process inside was killed by %s (%d)" % (signal_name(status - 128), status - 128)
    return ""


def shown_exit(status: int) -> int:
    """Return the number for ``FINISHED … exit=N``: a signal counts 128 + its number, as in a shell."""
    return status if status >= 0 else 128 - status
