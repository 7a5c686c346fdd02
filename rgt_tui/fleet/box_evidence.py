"""Gathers what a billing action needs to know: from the box, from the pulled copies, and from the name service."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial

import msgspec

from rgt_tui.fleet.box_questions import Wanted, ask_results, ask_seal, ask_unseal
from rgt_tui.fleet.box_session import BoxSession
from rgt_tui.gate import Situation, Told, tiers
from rgt_tui.model import CopyProof, Link, Meter, ResultGroup, Results, Seal, Verb, steady
from rgt_tui.profiles import path_survives, stale_after
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


async def reach(box: BoxSession) -> None:
    """Try to connect to a box that is not connected, and wait for what comes of it."""
    await box.try_now(LOOK_SECONDS)


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
    reach: Callable[[BoxSession], Awaitable[None]] = reach


def wanted(given: Situation, verb: Verb) -> Wanted:
    """Return what the box is to list: what its description names, and all that is younger than the machine.

    Storage that outlives the verb is left out: it may be huge, and nothing on it is at stake.
    """
    state = given.state
    since, no_since = created_at(given.meter, given.now, state.clock_skew)
    stays: tuple[str, ...] = ()
    if given.profile is not None:
        # By the samples alone, so that the list under the seal is made as this one is.
        known, _ = tiers(msgspec.structs.replace(given, told=Told()), verb)
        disks = state.sample.disks if state.sample is not None else ()
        mounts = sorted({disk.mount for disk in disks if disk.error is None})
        # A park lists what a later destroy would take as well: nobody can ask a box that is off.
        both = (verb, Verb.DESTROY)
        stays = tuple(
            mount
            for mount in mounts
            if all(path_survives(mount, given.profile, known, one) is True for one in both)
        )
    return Wanted(since=since, no_since=no_since, results=state.spec.results, survives=stays)


def created_at(meter: Meter, now: float, skew: float | None) -> tuple[float | None, str]:
    """Return from when on files count as made on a machine, by its clock, or None and why that is unknown.

    A date or a clock that is wrong must make the list of results longer, never shorter.

    Args:
        meter: What the provider says.
        now: The client's clock.
        skew: How far the box's clock is ahead of the client's; None = unknown.
    """
    created, started = meter.created, meter.started
    if created is None:
        return None, "the provider does not say when the machine was created"
    if created > now:
        return None, "the provider says that the machine was created later than now"
    if started is not None and started < created - MADE_BEFORE_S:
        return None, "the provider says that the machine was started before it was created"
    if skew is None or abs(skew) > MADE_BEFORE_S:
        return None, "the clock of the box is wrong, or not known"
    return created + min(0.0, skew) - MADE_BEFORE_S, ""


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
    if what.no_since and not found.no_since:
        found = msgspec.structs.replace(found, no_since=what.no_since)
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
