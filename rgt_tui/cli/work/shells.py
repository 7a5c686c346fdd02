"""``rgt ssh`` and ``rgt exec``: a person's own shell on a box, and one command there."""

from __future__ import annotations

import asyncio
import os
import shlex
import shutil
import signal
from collections.abc import Sequence

from rgt_tui.cli import running
from rgt_tui.cli.commands import FAILED, INTERRUPTED, OK, UNREACHABLE, USAGE
from rgt_tui.cli.opening import open_box
from rgt_tui.cli.printing import complain
from rgt_tui.cli.work.work_arguments import ExecArguments, SshArguments
from rgt_tui.files import state_directory
from rgt_tui.fleet import connected
from rgt_tui.model import BoxSpec
from rgt_tui.profiles import load_profile
from rgt_tui.ssh import (
    AuthFailed,
    Deadline,
    NotCarried,
    Unreachable,
    by_hand,
    hops,
    pass_through,
    pinned_host_key,
)


def shell_line(words: Sequence[str]) -> str:
    """Return words for a box's login shell: a single one is a shell command line, several stay separate words."""
    return words[0] if len(words) == 1 else shlex.join(words)


def run_exec(arguments: ExecArguments) -> int:
    """Run one command on a box; return its exit status, or why there is none."""
    if not arguments.words:
        complain("which command? write it after --: rgt exec BOX -- nvidia-smi")
        return USAGE
    spec = open_box(arguments, trusted=True)
    return running.run_on_box(spec.name, _exec(spec, arguments))


async def _exec(spec: BoxSpec, arguments: ExecArguments) -> int:
    interrupted = asyncio.Event()
    began = False
    try:
        async with Deadline(arguments.timeout) as limit:
            accept = arguments.accept_new_host_key
            async with connected(spec, accept_new_host_keys=accept) as connection:
                limit.stop()  # the command itself may take as long as it likes
                began = True
                asyncio.get_running_loop().add_signal_handler(signal.SIGINT, interrupted.set)
                passed = await pass_through(connection, shell_line(arguments.words), interrupted)
    except TimeoutError as error:
        raise Unreachable(f"not reached within {arguments.timeout:g} s") from error
    except Unreachable as error:
        if not began:
            raise
        raise Unreachable(f"{error}; whether the command still runs there is not known") from error
    if passed.error is not None:
        raise passed.error
    if interrupted.is_set():
        return INTERRUPTED
    if passed.status is None:
        complain(f"{spec.name}: the box did not say how the command ended")
        return UNREACHABLE
    return passed.status


def run_ssh(arguments: SshArguments) -> int:
    """Become ``ssh``; return the exit status only where that is not possible."""
    spec = open_box(arguments, trusted=True)
    program = shutil.which("ssh")
    if program is None:
        complain("there is no ssh program on this machine: install OpenSSH's client, or use rgt exec")
        return FAILED
    found: list[str] = []

    async def look() -> int:
        found.extend(await way_of(spec, arguments))
        return OK

    # Passwords are left to ssh, which would ask for them again.
    code = running.run_on_box(spec.name, look(), secrets=False)
    if code == OK:
        rest = ["-t", *found, shell_line(arguments.words)] if arguments.words else found
        os.execv(program, ["ssh", *rest])
    return code


async def way_of(spec: BoxSpec, arguments: SshArguments) -> tuple[str, ...]:
    """Return the words behind ``ssh`` that lead to a box, held to the host key that rgt has verified there just now.

    Raises:
        BoxError: it cannot be reached. A login that only a person can do is no such error: ``ssh`` asks then.
    """
    try:
        async with (
            Deadline(arguments.timeout),
            connected(spec, accept_new_host_keys=arguments.accept_new_host_key) as connection,
        ):
            words = by_hand(connection)
            file = state_directory(os.environ) / "verified-hosts" / spec.name
            try:
                return (*pinned_host_key(connection, file), *words)
            except (OSError, NotCarried):
                return words  # the known_hosts files that rgt has read hold it
    except TimeoutError as error:
        raise Unreachable(f"not reached within {arguments.timeout:g} s") from error
    except AuthFailed:
        user = load_profile(spec.profile).launch.user
        steps = await asyncio.to_thread(hops, spec, user)
        return steps[-1].by_hand
