"""A platform's own command as a control plane: run without a shell, with time and output limits.

Platforms with a tool of their own (Slurm, kubectl) get their logins and plugins from it. A missing
command was not sent; once it has started, the outcome is unknown until a reading shows it.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shlex
from collections.abc import Mapping, Sequence

from rgt_tui.language import translate
from rgt_tui.model import FrozenStruct
from rgt_tui.providers.control_plane import BadAnswer, Unreachable, make_printable

MOST = 16 << 20
"""Maximum bytes of output: a large cluster's list of one person's jobs or pods is some MiB."""
SSH = ("ssh", "-T", "-o", "BatchMode=yes", "-o", "ConnectTimeout=8", "-o", "ForwardAgent=no")
"""Connects to another machine, without prompts, using ssh_config for everything else."""


class CommandResult(FrozenStruct):
    """The result of a command."""

    status: int
    out: str
    err: str
    """The last line of its stderr, printable: tools print warnings first and the error last."""


class CommandLine:
    """Runs a platform's commands, here or on another machine.

    Args:
        via: A host of ssh_config on which they run; None = here.
        env: Their environment.
        timeout_s: Time limit for each.
    """

    def __init__(self, via: str | None, env: Mapping[str, str], *, timeout_s: float) -> None:
        self._via = via
        self._env = dict(env)
        self._timeout_s = timeout_s

    @property
    def location(self) -> str:
        """Where they run, as text."""
        if self._via is None:
            return "this machine"
        return make_printable(self._via, 80)

    def format_command(self, words: Sequence[str]) -> str:
        """Return a command as a person would type it here."""
        return shlex.join(self._full_command(words))

    def _full_command(self, words: Sequence[str]) -> tuple[str, ...]:
        if self._via is None:
            return tuple(words)
        # ssh joins its words with spaces, and the login node's shell splits them again.
        return (*SSH, "--", self._via, shlex.join(words))

    async def run(self, *words: str) -> CommandResult:
        """Run one command until it ends.

        Raises:
            Unreachable: it does not exist (`sent` False), took too long, or the connection was
                lost.
            BadAnswer: it printed too much.
        """
        full = self._full_command(words)
        try:
            process = await asyncio.create_subprocess_exec(
                *full,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                env=self._env,
                # A group of its own, so that ssh's helpers end with it at the time limit.
                start_new_session=True,
            )
        except OSError as error:
            if error.errno:
                why = os.strerror(error.errno)
            else:
                why = str(error)
            raise Unreachable(
                translate("{full} cannot be started here: {why}", full=full[0], why=why), sent=False
            ) from None
        try:
            async with asyncio.timeout(self._timeout_s):
                out, err = await asyncio.gather(
                    _read_bounded(process.stdout), _read_bounded(process.stderr)
                )
                status = await process.wait()
        except TimeoutError:
            raise Unreachable(
                translate(
                    "{words} on {location} did not end within {timeout_s:.0f} s; its outcome "
                    "is unknown",
                    words=words[0],
                    location=self.location,
                    timeout_s=self._timeout_s,
                )
            ) from None
        finally:
            if process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, 9)
                await process.wait()
        if out is None or err is None:
            raise BadAnswer(
                translate(
                    "{words} on {location} printed more than {value} MiB",
                    words=words[0],
                    location=self.location,
                    value=MOST >> 20,
                )
            )
        told = [row for row in err.decode(errors="replace").splitlines() if row.strip()]
        said = ""
        if told:
            said = make_printable(told[-1])
        # ssh's own exit status if it could not connect, or lost the connection.
        lost = 255
        if self._via is not None and status == lost:
            raise Unreachable(
                translate(
                    "ssh {location}: {said}; the state is unknown",
                    location=self.location,
                    said=said or "no connection",
                )
            )
        if self._via is not None and status == 127:
            raise Unreachable(
                translate(
                    "{words} is not installed on {location}: {said}",
                    words=words[0],
                    location=self.location,
                    said=said,
                ),
                sent=False,
            )
        return CommandResult(status, out.decode(errors="replace"), said)


async def _read_bounded(stream: asyncio.StreamReader | None) -> bytes | None:
    """Return all output of a stream; None if it is too much."""
    assert stream is not None
    parts: list[bytes] = []
    size = 0
    while part := await stream.read(1 << 16):
        size += len(part)
        if size > MOST:
            return None
        parts.append(part)
    return b"".join(parts)
