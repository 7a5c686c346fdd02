"""Which recorders of a box are no longer needed, and the command that ends each."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence

import msgspec

from rgt_tui.cli.set_up.doctor_here import Status

LONG_UNWATCHED_S = 3600.0
"""A recorder without a client for less than this may be that of another computer which reconnects."""
MOST_NAMED = 5


class ListedRecorder(msgspec.Struct, frozen=True):
    """One line of the agent's ``record --list``."""

    pid: int
    folder: str
    own: bool = False
    watched: bool = False
    armed: bool = False
    jobs: int = 0
    unwatched_s: float | None = None

    @property
    def is_needed(self) -> bool:
        """Whether somebody uses it, or may: one whose last client is unknown is never called superfluous."""
        in_use = self.own or self.watched or self.armed or self.jobs > 0
        return in_use or self.unwatched_s is None or self.unwatched_s < LONG_UNWATCHED_S


def judge_recorders(found: Sequence[ListedRecorder], command: Callable[..., str]) -> tuple[Status, str, str]:
    """Return status, text and advice.

    Args:
        found: The recorders on the box.
        command: Makes the shell command that runs the agent there with these arguments.
    """
    unneeded = [recorder for recorder in found if not recorder.is_needed]
    if not unneeded:
        return Status.OK, f"{len(found)} running", ""
    named = [
        f"{recorder.folder} (pid {recorder.pid}, no client for {(recorder.unwatched_s or 0) / 3600:.0f} h)"
        for recorder in unneeded[:MOST_NAMED]
    ]
    ends = [
        f"RGT_STATE_DIR={shlex.quote(recorder.folder)} {command('record', '--stop')}"
        for recorder in unneeded[:MOST_NAMED]
    ]
    more = len(unneeded) - len(named)
    if more:
        named.append(f"{more} more")
    text = f"{len(unneeded)} of {len(found)} not needed: {'; '.join(named)}"
    return Status.WARN, text, f"end on the box: {' ; '.join(ends)}"
