"""What a billing action needs to know: read from the box, from the pulled copies, and from the name service."""

from __future__ import annotations

import asyncio
import math
import os
import socket
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

import asyncssh
import msgspec

from rgt_tui.fleet.box_session import BoxSession
from rgt_tui.gate import Situation, Told, tiers
from rgt_tui.model import (
    DEFAULT_PATTERN,
    BoxSpec,
    CopyProof,
    Link,
    Meter,
    ResultGroup,
    Results,
    Seal,
    Skipped,
    Verb,
    steady,
)
from rgt_tui.profiles import path_survives, stale_after
from rgt_tui.ssh import BoxError, CommandFailed, Deployed, decoded, record, run
from rgt_tui.transfer import LedgerError, proofs

LOOK_SECONDS = 20.0
"""A box that has not told a sample by then tells none."""
RESOLVE_SECONDS = 3.0
MADE_BEFORE_S = 300.0
"""Files that are so much older than the provider's word for when the machine was made still count as made on it."""
RESULTS_SECONDS = 300.0
"""A million files on a slow disk; 200,000 take a few seconds."""
SEAL_SECONDS = 120.0
"""How long a seal holds, unless it is opened before."""
UNSEAL_SECONDS = 30.0
MOST_BYTES = 8 << 20
NONCE_LENGTH = 32
T = TypeVar("T")


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
            results=found,
            at=at,
            proofs=await asking.copies(box.state.spec.name, instance, found.groups),
        )
    except (LedgerError, OSError) as error:
        return Told(results=found, at=at, proofs_problem=str(error))


async def copies_of(asking: Asking, box: str, instance: str, known: Results, at: float) -> Told:
    """Look at every copy of what a box once listed that cannot be asked now."""
    try:
        return Told(results=known, at=at, proofs=await asking.copies(box, instance, known.groups))
    except (LedgerError, OSError) as error:
        return Told(results=known, at=at, proofs_problem=str(error))


# What a billing action asks a box: to list the results it would lose, and to hold still meanwhile.
#
# Each question is one command of the agent on a connection that stands. No answer, half an answer and one
# that makes no sense are errors in words: nothing here ever takes silence for "there is nothing".


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """What counts as a result of a box, beyond what its description names."""

    since: float | None = None
    """Box clock of the instance's creation: older files came with the image. None = unknown: all count."""
    no_since: str = ""
    """Why it is unknown."""
    results: tuple[str, ...] = ()
    """Globs of the fleet file that name results."""
    ignore: tuple[str, ...] = ()
    """Globs that a person has said to be no results."""
    survives: tuple[str, ...] = ()
    """Directories on storage that outlives the verb: they are not walked."""


async def ask_results(
    connection: asyncssh.SSHClientConnection,
    deployed: Deployed,
    spec: BoxSpec,
    wanted: Wanted | None = None,
    *,
    seconds: float = RESULTS_SECONDS,
) -> Results:
    """Ask which files on a box could be lost.

    Args:
        connection: To the box.
        deployed: Where its agent stands.
        spec: The box.
        wanted: What counts as a result.
        seconds: How long the box may take.

    Raises:
        BoxError: no answer, or one that cannot be used: what is on the box is then not known.
    """
    words = ("results", *results_words(spec, wanted or Wanted()))
    return _checked_results(await _ask(connection, deployed, words, Results, seconds))


def results_of(line: bytes) -> Results:
    """Return what a line that `rgt-box results` printed says.

    Raises:
        CommandFailed: it cannot be used.
    """
    return _checked_results(decoded(line, Results, "rgt-box results: the answer"))


async def ask_seal(
    connection: asyncssh.SSHClientConnection,
    deployed: Deployed,
    spec: BoxSpec,
    wanted: Wanted | None = None,
    *,
    hold: float = SEAL_SECONDS,
    seconds: float = RESULTS_SECONDS,
) -> Seal:
    """Seal the box: no queue runner starts a cell until the seal is opened, or `hold` seconds have passed.

    Args:
        connection: To the box.
        deployed: Where its agent stands.
        spec: The box.
        wanted: As for `ask_results`, or the generations cannot be compared.
        hold: Seconds after which it opens by itself.
        seconds: How long the box may take.

    Raises:
        BoxError: it is not sealed, for the reason given; or whether it is, is not known: it opens by itself then.
    """
    words = (
        "seal",
        "--seconds",
        f"{hold:g}",
        *_pattern(spec),
        *results_words(spec, wanted or Wanted()),
    )
    seal = await _ask(connection, deployed, words, Seal, seconds)
    if len(seal.nonce) != NONCE_LENGTH or not seal.nonce.isalnum() or not seal.generation:
        raise CommandFailed("the agent's answer is not a seal; it expires by itself")
    if not (math.isfinite(seal.at) and math.isfinite(seal.seconds)):
        raise CommandFailed("the agent answered a seal without a time; it expires by itself")
    if _is_odd(seal.skipped):
        raise CommandFailed("the agent answered a seal with odd numbers; it expires by itself")
    return seal


async def ask_unseal(
    connection: asyncssh.SSHClientConnection,
    deployed: Deployed,
    nonce: str,
    *,
    seconds: float = UNSEAL_SECONDS,
) -> bool:
    """Open a seal.

    Returns:
        True; False when it had been opened already, by its time or by another.

    Raises:
        BoxError: whether it is open is not known: it opens by itself.
    """
    answer = await _ask(connection, deployed, ("unseal", nonce), _Opened, seconds)
    return answer.opened


class _Opened(msgspec.Struct, frozen=True):
    opened: bool


def _pattern(spec: BoxSpec) -> list[str]:
    if spec.pattern and spec.pattern != DEFAULT_PATTERN:
        return ["--pattern", spec.pattern]
    return []


def results_words(spec: BoxSpec, wanted: Wanted) -> list[str]:
    """Return the command line of `rgt-box results`, without the verb."""
    words = [word for job in spec.jobs for word in ("--job", job)]
    words += [word for path in spec.runs for word in ("--run", path)]
    words += [word for glob in wanted.results for word in ("--results", glob)]
    words += [word for glob in wanted.ignore for word in ("--ignore", glob)]
    words += [word for glob in spec.ignore if glob.startswith("/") for word in ("--disown", glob)]
    words += [word for path in wanted.survives for word in ("--survives", path)]
    return words + ([] if wanted.since is None else ["--since", repr(float(wanted.since))])


async def _ask(
    connection: asyncssh.SSHClientConnection,
    deployed: Deployed,
    words: Sequence[str],
    kind: type[T],
    seconds: float,
) -> T:
    verb = words[0]
    done = await run(
        connection,
        deployed.command(*words),
        seconds=seconds,
        most_bytes=MOST_BYTES,
        name=f"rgt-box {verb}",
    )
    lines = [line for raw in done.out.splitlines() if (line := record(raw))]
    if done.status != 0 or not lines:
        why = done.words or f"exit {done.status}"
        raise CommandFailed(f"rgt-box {verb}: {why}")
    return decoded(lines[-1], kind, f"rgt-box {verb}: the answer")


def _checked_results(found: Results) -> Results:
    """Return the answer, if it can be true."""
    is_odd = not math.isfinite(found.at) or _is_odd(found.groups) or _is_odd(found.skipped)
    if not found.generation or is_odd:
        raise CommandFailed(
            "rgt-box results: the answer cannot be used: it lacks its generation, or has odd numbers"
        )
    if any(not group.fingerprint or not group.path.startswith("/") for group in found.groups):
        raise CommandFailed(
            "rgt-box results: the answer cannot be used: a directory in it has no name or fingerprint"
        )
    return found


def _is_odd(rows: Sequence[ResultGroup | Skipped]) -> bool:
    """Tell whether numbers of the box cannot be true."""
    return any(not math.isfinite(row.newest) or row.files < 0 or row.bytes < 0 for row in rows)
