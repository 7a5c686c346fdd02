"""Run a check or work on request: the command that a person would type, in a process of its own.

For a check only read-only commands are run: none that bills, ends, copies, starts or removes
anything.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shlex
import signal
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from rgt_tui.health import CHECKS
from rgt_tui.language import translate
from rgt_tui.model import FrozenStruct, clean_text

LOOKS: Mapping[str, frozenset[str]] = {
    "doctor": frozenset(),
    "gpu-health": frozenset(),
    "grep": frozenset(),
    "reap": frozenset(),
    "verify": frozenset(),
    "queue": frozenset(("check", "status", "reconcile")),
}
"""Read-only commands. If verbs are listed, the command's last word must be one of them. ``rgt
reap`` without ``--kill`` only lists."""


class CheckLimits(FrozenStruct):
    """How long a command of the handbook may run, and how much of its output is shown."""

    run_s: float = 900.0
    """Seconds after which the command is killed."""
    line_characters: int = 2_000
    lines: int = 5_000
    """Further lines of a command's output are counted, not shown."""
    grace_s: float = 3.0
    """Seconds between the signal to end and the kill."""


CHECK_LIMITS = CheckLimits()


STARTABLE: frozenset[str] = frozenset(("pull", "push", "run", "queue", "code", "autostop", "lease"))
"""Commands that a person can start from a screen: they bill nothing, and end nothing now. The last
two arm a box only if its name is typed after ``--confirm``."""


class NotRunnable(Exception):
    """A check cannot be run from here; the message says why."""


def check_arguments(check: str, box: str, copies: Path | None = None) -> tuple[str, ...] | None:
    """Return the arguments of ``rgt`` that run a check; None if it has no read-only command.

    Args:
        check: Its id.
        box: Name of the box.
        copies: Where results are pulled to, a directory for each box.
    """
    found = next((one.command for one in CHECKS if one.id == check), "")
    words = shlex.split(found)
    if (
        len(words) < 3
        or words[0] != "rgt"
        or words[1] not in LOOKS
        or any(w.startswith("--") for w in words)
    ):
        return None
    verbs = LOOKS[words[1]]
    if verbs and words[-1] not in verbs:
        return None
    if words[1] == "verify":
        return ("verify", str((copies or Path("pulled")) / box))
    return tuple(box if word == "{box}" else word for word in words[1:])


async def run_check_command(
    words: tuple[str, ...],
    fleet_file: Path,
    on_line: Callable[[str], None],
    env: Mapping[str, str] = os.environ,
) -> int:
    """Run ``rgt``; return its exit status.

    When cancelled, or after `CheckLimits.run_s`, the process and its children are killed.

    Args:
        words: Arguments of ``rgt``.
        fleet_file: The file that describes the box.
        on_line: Called with each line that it prints.
        env: Its environment.

    Raises:
        NotRunnable: it cannot be started, or took too long.
    """
    if words[0] == "verify":
        chosen = []
    else:
        chosen = ["--fleet", str(fleet_file)]
    try:
        process = await asyncio.create_subprocess_exec(
            # -P: import nothing from the current directory.
            *(sys.executable, "-P", "-m", "rgt_tui", words[0], *chosen, *words[1:]),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            start_new_session=True,
            env={**env, "NO_COLOR": "1", "TERM": "dumb", "COLUMNS": "160"},
        )
    except OSError as error:
        raise NotRunnable(
            translate("cannot be started: {strerror}", strerror=error.strerror or error)
        ) from error
    try:
        async with asyncio.timeout(CHECK_LIMITS.run_s):
            assert process.stdout is not None
            await _forward_lines(process.stdout, on_line)
            return await process.wait()
    except TimeoutError:
        raise NotRunnable(
            translate("ended: it took longer than {run_s:g} s", run_s=CHECK_LIMITS.run_s)
        ) from None
    finally:
        await asyncio.shield(_end_process(process))


async def _forward_lines(stream: asyncio.StreamReader, on_line: Callable[[str], None]) -> None:
    """Pass on the lines, limited in length and number."""
    rest, count = b"", 0
    while chunk := await stream.read(65_536):
        *whole, rest = (rest + chunk).split(b"\n")
        rest = rest[: CHECK_LIMITS.line_characters]
        for row in whole:
            count += 1
            if count <= CHECK_LIMITS.lines:
                on_line(clean_text(row[: CHECK_LIMITS.line_characters].decode("utf-8", "replace")))
    if rest and count < CHECK_LIMITS.lines:
        on_line(clean_text(rest.decode("utf-8", "replace")))
    if count > CHECK_LIMITS.lines:
        on_line(translate("and {count:,} more lines", count=count - CHECK_LIMITS.lines))


async def _end_process(process: asyncio.subprocess.Process) -> None:
    for number in (signal.SIGTERM, signal.SIGKILL):
        if process.returncode is not None:
            return
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(process.wait(), CHECK_LIMITS.grace_s)
