"""Gathers what a billing action needs to know: from the box, from the pulled copies, and from the name service."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial

from rgt_tui.fleet.box_questions import Wanted, ask_results, ask_seal, ask_unseal
from rgt_tui.fleet.box_session import BoxSession
from rgt_tui.gate import Situation, Told, tiers
from rgt_tui.model.box import Link
from rgt_tui.model.evidence import CopyProof, ResultGroup, Results, Seal, Verb, steady
from rgt_tui.model.money import Meter
from rgt_tui.profiles.readings import stale_after
from rgt_tui.profiles.survival import path_survives
from rgt_tui.ssh import BoxError
from rgt_tui.transfer import LedgerError, proofs

LOOK_SECONDS = 20.0
"""A box that has not told a sample by then tells none."""
RESOLVE_SECONDS = 3.0
MADE_BEFORE_S = 300.0
"""Files that are so much older than the provider's word for when the machine was made still count as made on it."""


async def look(box: BoxSession) -> float:
    """Wait for a sample that the box takes from now on; return since when one counts, by the steady clock."""
    if box.state.link is not Link.LIVE:
        return steady()
    return await box.look(max(LOOK_SECONDS, stale_after(box.state)))


async def results(box: BoxSession, wanted: Wanted) -> Results:
    """Have the box list what could be lost.

    Raises:
        BoxError: no answer, or one that cannot be used.
    """
    connection, deployed = box.agent
    return await ask_results(connection, deployed, box.state.spec, wanted)


async def seal(box: BoxSession, wanted: Wanted) -> Seal:
    """Seal the box, so that nothing on it changes.

    Raises:
        BoxError: it does not, or whether it does is not known.
    """
    connection, deployed = box.agent
    return await ask_seal(connection, deployed, box.state.spec, wanted)


async def unseal(box: BoxSession, nonce: str) -> None:
    """Open the seal. If that fails, the seal expires by itself.

    Raises:
        BoxError: whether it is open is not known.
    """
    connection, deployed = box.agent
    await ask_unseal(connection, deployed, nonce)


def unsealed(box: BoxSession) -> str | None:
    """Say why a box cannot be sealed; None = it can."""
    try:
        _ = box.agent
    except BoxError as error:
        return str(error)
    return None


async def copies(
    box: str, instance: str, groups: Iterable[ResultGroup], *, env: Mapping[str, str] = os.environ
) -> tuple[CopyProof, ...]:
    """Look at every copy here again.

    Args:
        box: Its name.
        instance: What the provider calls the machine.
        groups: Directories of the box.
        env: Where the state of rgt lies, in which stands what was pulled.

    Raises:
        LedgerError: what was pulled is not known.
    """
    return await asyncio.to_thread(partial(proofs, box, instance, tuple(groups), env=env))


async def addresses(meter: Meter) -> frozenset[str]:
    """Resolve the provider's SSH host to addresses; none where it does not resolve."""
    if meter.ssh_host is None or meter.ssh_port is None:
        return frozenset()
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(RESOLVE_SECONDS):
            found = await loop.getaddrinfo(meter.ssh_host, meter.ssh_port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError, TimeoutError):
        return frozenset()
    return frozenset(str(entry[4][0]) for entry in found)


@dataclass(frozen=True)
class Asking:
    """Whom a billing action asks."""

    look: Callable[[BoxSession], Awaitable[float]] = look
    results: Callable[[BoxSession, Wanted], Awaitable[Results]] = results
    seal: Callable[[BoxSession, Wanted], Awaitable[Seal]] = seal
    unseal: Callable[[BoxSession, str], Awaitable[None]] = unseal
    unsealed: Callable[[BoxSession], str | None] = unsealed
    copies: Callable[[str, str, Iterable[ResultGroup]], Awaitable[tuple[CopyProof, ...]]] = copies
    addresses: Callable[[Meter], Awaitable[frozenset[str]]] = addresses


def wanted(given: Situation, verb: Verb) -> Wanted:
    """Return what the box is to list: what its description names, and all that is younger than the machine.

    Storage that outlives the verb is left out: it may be huge, and nothing on it is at stake.
    """
    state, since = given.state, given.meter.created
    if since is not None:
        # A clock that is wrong, ours or the box's, must make the list longer, never shorter.
        since += min(0.0, state.clock_skew or 0.0) - MADE_BEFORE_S
    stays: tuple[str, ...] = ()
    if given.profile is not None:
        known, _ = tiers(given, verb)
        disks = state.sample.disks if state.sample is not None else ()
        mounts = sorted({disk.mount for disk in disks if disk.error is None})
        # A park lists what a later destroy would take as well: nobody can ask a box that is off.
        both = (verb, Verb.DESTROY)
        stays = tuple(
            mount
            for mount in mounts
            if all(path_survives(mount, given.profile, known, one) is True for one in both)
        )
    return Wanted(since=since, results=state.spec.results, survives=stays)


async def ask(
    asking: Asking, box: BoxSession, instance: str, ticks: Callable[[], float], what: Wanted
) -> Told:
    """List what could be lost and look at every copy of it; trouble is an answer, too.

    Args:
        asking: Whom to ask.
        box: The box.
        instance: What the provider calls it.
        ticks: The steady clock.
        what: What counts as a result.
    """
    at = ticks()
    try:
        found = await asking.results(box, what)
    except BoxError as error:
        return Told(problem=str(error), at=at)
    try:
        return Told(
            results=found, at=at, proofs=await asking.copies(box.state.spec.name, instance, found.groups)
        )
    except (LedgerError, OSError) as error:
        return Told(results=found, at=at, proofs_problem=str(error))


async def copies_of(asking: Asking, box: str, instance: str, known: Results, at: float) -> Told:
    """Look at every copy of what a box once listed that cannot be asked now."""
    try:
        return Told(results=known, at=at, proofs=await asking.copies(box, instance, known.groups))
    except (LedgerError, OSError) as error:
        return Told(results=known, at=at, proofs_problem=str(error))
