"""Take rgt off one box, outside of the fleet's sessions: the agent there does it, and says what stays and why."""

from __future__ import annotations

import asyncio

import msgspec

from rgt_tui.fleet.reach import reached
from rgt_tui.model.box import BoxSpec
from rgt_tui.model.plain import clean
from rgt_tui.ssh import CommandFailed, Unreachable, record, run

COMMAND_SECONDS = 120.0
"""Slurm may have to be asked for a hundred scripts."""


class Thing(msgspec.Struct, frozen=True):
    """One thing of rgt's on a box."""

    path: str
    bytes: int
    what: str
    kept: str | None = None
    """Why it stays; None = it goes."""


class Removal(msgspec.Struct, frozen=True):
    """What was removed, or would be."""

    refused: tuple[str, ...]
    """Why nothing was touched."""
    failed: tuple[str, ...]
    """What could not be removed, and why."""
    bytes: int
    things: tuple[Thing, ...] = ()

    @property
    def whole(self) -> bool:
        """Nothing stays."""
        return not (self.refused or self.failed or any(thing.kept for thing in self.things))


async def remove_agent(
    spec: BoxSpec,
    seconds: float,
    *,
    old: bool = False,
    dry_run: bool = False,
    accept_new_host_keys: bool = False,
) -> Removal:
    """Connect to a box and let the agent remove rgt from it. Nobody is asked anything.

    Args:
        spec: The box.
        seconds: How long all of it may take.
        old: Only agents of other versions.
        dry_run: Only look.
        accept_new_host_keys: Whether the key of a host that is not known yet is accepted and kept.

    Raises:
        BoxError: it could not be reached, or the agent gave no answer that can be used.
    """
    words = [word for job in spec.jobs for word in ("--job", job)]
    words += ["--old"] * old + ["--dry-run"] * dry_run
    try:
        async with (
            asyncio.timeout(seconds),
            reached(spec, accept_new_host_keys=accept_new_host_keys) as (connection, deployed),
        ):
            command = deployed.command("remove", *words)
            done = await run(connection, command, seconds=COMMAND_SECONDS, name="removing rgt")
    except TimeoutError as error:
        raise Unreachable(f"not done within {seconds:g} s") from error
    return parsed(done.out, done.words)


def parsed(out: bytes, words: str) -> Removal:
    """Read what the agent has printed.

    Raises:
        CommandFailed: it cannot be used; what was removed is then not known.
    """
    lines = [line for raw in out.splitlines() if (line := record(raw))]
    try:
        things = tuple(msgspec.json.decode(line, type=Thing) for line in lines[:-1])
        end = msgspec.json.decode(lines[-1], type=Removal)
    except (IndexError, msgspec.DecodeError, RecursionError) as error:
        raise CommandFailed(f"the agent's answer cannot be used: {words or error}") from error
    return msgspec.structs.replace(
        end,
        things=tuple(
            Thing(clean(thing.path), thing.bytes, clean(thing.what), thing.kept and clean(thing.kept))
            for thing in things
        ),
        refused=tuple(map(clean, end.refused)),
        failed=tuple(map(clean, end.failed)),
    )
