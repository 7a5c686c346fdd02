"""Evidence for a billing action: read from the box, the pulled copies, and the name service."""

from __future__ import annotations

import asyncio
import math
import os
import socket
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

import msgspec

from rgt_tui.fleet.box_session import BoxSession
from rgt_tui.gate import CollectedResults, Situation, find_storage_tiers
from rgt_tui.language import translate
from rgt_tui.model import (
    DEFAULT_PATTERN,
    BillingVerb,
    BoxResults,
    BoxSpec,
    CopyProof,
    FrozenStruct,
    LinkState,
    Meter,
    ResultGroup,
    Seal,
    SkippedFiles,
    steady_time,
)
from rgt_tui.profiles import path_survives, stale_after
from rgt_tui.ssh import (
    BoxError,
    BoxTransport,
    CommandFailed,
    DeployedAgent,
    decode_answer,
    extract_record,
    run_command,
)
from rgt_tui.transfer import LedgerError, prove_loadable_copies


class EvidenceLimits(FrozenStruct):
    """How long a box may take to answer the gate's questions, in seconds."""

    sample_s: float = 20.0
    """Seconds to wait for a sample of a live box."""
    made_before_s: float = 300.0
    """Files this much older than the machine's creation, as reported by the provider, still count
    as made on it."""
    results_s: float = 300.0
    """Enough for a million files on a slow disk; 200,000 take a few seconds."""
    seal_s: float = 120.0
    """Seconds after which a seal expires, unless it is removed before."""
    unseal_s: float = 30.0
    """Seconds to wait for the removal of a seal."""


EVIDENCE_LIMITS = EvidenceLimits()

MOST_BYTES = 8 << 20
T = TypeVar("T")


async def wait_for_sample(box: BoxSession) -> float:
    """Wait for a sample taken from now on; return the time from which one counts (steady clock)."""
    if box.state.link is not LinkState.LIVE:
        # No sample can come; the gate then judges by what the provider says.
        return steady_time()
    return await box.wait_for_sample(max(EVIDENCE_LIMITS.sample_s, stale_after(box.state)))


async def try_to_connect(box: BoxSession) -> None:
    """Try to connect to a box that is not connected, and wait for the result."""
    await box.try_now(EVIDENCE_LIMITS.sample_s)


async def list_files_at_risk(box: BoxSession, wanted: ResultsRequest) -> BoxResults:
    """Have the box list files that could be lost.

    Raises:
        BoxError: no answer, or an unusable one.
    """
    connection, deployed = box.agent
    return await request_results(connection, deployed, box.state.spec, wanted)


async def seal_box(box: BoxSession, wanted: ResultsRequest) -> Seal:
    """Seal the box, so that nothing on it changes.

    Raises:
        BoxError: it is not sealed, or that is unknown.
    """
    connection, deployed = box.agent
    return await request_seal(connection, deployed, box.state.spec, wanted)


async def unseal_box(box: BoxSession, nonce: str) -> None:
    """Remove the seal. If that fails, the seal expires automatically.

    Raises:
        BoxError: it is unknown whether the seal is removed.
    """
    connection, deployed = box.agent
    await request_unseal(connection, deployed, nonce)


def find_seal_problem(box: BoxSession) -> str | None:
    """Return why a box cannot be sealed, or None."""
    try:
        _ = box.agent
    except BoxError as error:
        return str(error)
    return None


async def recheck_copies(
    box: str, instance: str, groups: Iterable[ResultGroup], *, env: Mapping[str, str] = os.environ
) -> tuple[CopyProof, ...]:
    """Check every local copy again.

    Args:
        box: Its name.
        instance: The provider's id of the machine.
        groups: Directories of the box.
        env: Environment with the location of rgt's state, which includes the ledger of pulled
            files.

    Raises:
        LedgerError: the ledger is unreadable.
    """
    return await asyncio.to_thread(
        partial(prove_loadable_copies, box, instance, tuple(groups), env=env)
    )


async def addresses(meter: Meter) -> frozenset[str]:
    """Resolve the provider's SSH host to addresses; empty if it does not resolve."""
    if meter.ssh_host is None or meter.ssh_port is None:
        return frozenset()
    loop = asyncio.get_running_loop()
    try:
        resolve_seconds = 3.0
        async with asyncio.timeout(resolve_seconds):
            found = await loop.getaddrinfo(meter.ssh_host, meter.ssh_port, type=socket.SOCK_STREAM)
    # UnicodeError: the IDNA codec refuses names with empty or too long labels.
    except (OSError, UnicodeError, TimeoutError):
        return frozenset()
    return frozenset(str(entry[4][0]) for entry in found)


@dataclass(frozen=True)
class EvidenceQueries:
    """The queries of a billing action; tests replace them."""

    look: Callable[[BoxSession], Awaitable[float]] = wait_for_sample
    results: Callable[[BoxSession, ResultsRequest], Awaitable[BoxResults]] = list_files_at_risk
    seal: Callable[[BoxSession, ResultsRequest], Awaitable[Seal]] = seal_box
    unseal: Callable[[BoxSession, str], Awaitable[None]] = unseal_box
    unsealed: Callable[[BoxSession], str | None] = find_seal_problem
    copies: Callable[[str, str, Iterable[ResultGroup]], Awaitable[tuple[CopyProof, ...]]] = (
        recheck_copies
    )
    addresses: Callable[[Meter], Awaitable[frozenset[str]]] = addresses
    reach: Callable[[BoxSession], Awaitable[None]] = try_to_connect


def build_results_request(given: Situation, verb: BillingVerb) -> ResultsRequest:
    """Return the parameters of the box's list of results.

    It lists files named in the box's description or newer than the machine. Storage that survives
    the verb is left out: it may be huge, and nothing on it is at risk.
    """
    state = given.state
    since, no_since = created_at(given.meter, given.now, state.clock_skew)
    stays: tuple[str, ...] = ()
    if given.profile is not None:
        # Use the samples alone, so that the list under the seal has the same parameters.
        known, _ = find_storage_tiers(msgspec.structs.replace(given, told=CollectedResults()), verb)
        if state.sample is not None:
            disks = state.sample.disks
        else:
            disks = ()
        mounts = sorted({disk.mount for disk in disks if disk.error is None})
        # A park also lists files that a later destroy would delete, because a stopped box cannot be
        # queried.
        both = (verb, BillingVerb.DESTROY)
        stays = tuple(
            mount
            for mount in mounts
            if all(path_survives(mount, given.profile, known, one) is True for one in both)
        )
    return ResultsRequest(
        since=since, no_since=no_since, results=state.spec.results, survives=stays
    )


def created_at(meter: Meter, now: float, skew: float | None) -> tuple[float | None, str]:
    """Return the box time from which files count as made on the machine, or None and the reason.

    A wrong date or clock must make the list of results longer, never shorter.

    Args:
        meter: The provider's reading.
        now: The client's clock.
        skew: Seconds by which the box's clock is ahead of the client's; None = unknown.
    """
    created, started = meter.created, meter.started
    if created is None:
        return None, translate("the provider does not say when the machine was created")
    if created > now:
        return None, translate("the provider reports a creation time in the future")
    if started is not None and started < created - EVIDENCE_LIMITS.made_before_s:
        return None, translate("the provider reports a start before the creation")
    if skew is None or abs(skew) > EVIDENCE_LIMITS.made_before_s:
        return None, translate("the clock of the box is wrong or unknown")
    # Into the box's time, and rather too early: a file too many is only shown, one too few is lost.
    return created + min(0.0, skew) - EVIDENCE_LIMITS.made_before_s, ""


async def collect_results(
    asking: EvidenceQueries,
    box: BoxSession,
    instance: str,
    ticks: Callable[[], float],
    what: ResultsRequest,
) -> CollectedResults:
    """List files that could be lost, and check every copy of them; errors are part of the answer.

    Args:
        asking: The queries.
        box: The box.
        instance: The provider's id of the machine.
        ticks: The steady clock.
        what: Defines which files are results.
    """
    at = ticks()
    try:
        found = await asking.results(box, what)
    except BoxError as error:
        return CollectedResults(problem=str(error), at=at)
    # The agent does not know why it got no time.
    if what.no_since and not found.no_since:
        found = msgspec.structs.replace(found, no_since=what.no_since)
    try:
        return CollectedResults(
            results=found,
            at=at,
            proofs=await asking.copies(box.state.spec.name, instance, found.groups),
        )
    except (LedgerError, OSError) as error:
        return CollectedResults(results=found, at=at, proofs_problem=str(error))


async def recheck_earlier_copies(
    asking: EvidenceQueries, box: str, instance: str, known: BoxResults, at: float
) -> CollectedResults:
    """Check every copy of an earlier list of results, because the box cannot be queried now."""
    try:
        return CollectedResults(
            results=known, at=at, proofs=await asking.copies(box, instance, known.groups)
        )
    except (LedgerError, OSError) as error:
        return CollectedResults(results=known, at=at, proofs_problem=str(error))


# Queries of a billing action to a box: list the results that it would lose, and seal it meanwhile.
#
# Each query is one command of the agent on an open connection. A missing, incomplete or invalid
# answer is an error: silence is never taken for "no files".


class ResultsRequest(FrozenStruct, kw_only=True):
    """Which files of a box are results, beyond its description."""

    since: float | None = None
    """Box clock of the instance's creation: older files came with the image. None = unknown: all
    count."""
    no_since: str = ""
    """Why `since` is unknown."""
    results: tuple[str, ...] = ()
    """Globs of the fleet file that name results."""
    ignore: tuple[str, ...] = ()
    """Globs that a person has declared to be no results."""
    survives: tuple[str, ...] = ()
    """Directories on storage that survives the verb: they are not searched."""


async def request_results(
    connection: BoxTransport,
    deployed: DeployedAgent,
    spec: BoxSpec,
    wanted: ResultsRequest | None = None,
    *,
    seconds: float = EVIDENCE_LIMITS.results_s,
) -> BoxResults:
    """Query which files on a box could be lost.

    Args:
        connection: To the box.
        deployed: Its agent.
        spec: The box.
        wanted: Defines which files are results.
        seconds: How long the box may take.

    Raises:
        BoxError: no answer, or an unusable one: the files on the box are then unknown.
    """
    words = ("results", *results_arguments(spec, wanted or ResultsRequest()))
    return _checked_results(await _query_agent(connection, deployed, words, BoxResults, seconds))


def decode_results(line: bytes) -> BoxResults:
    """Decode a line printed by `rgt-box results`.

    Raises:
        CommandFailed: it is unusable.
    """
    return _checked_results(decode_answer(line, BoxResults, "rgt-box results: the answer"))


async def request_seal(
    connection: BoxTransport,
    deployed: DeployedAgent,
    spec: BoxSpec,
    wanted: ResultsRequest | None = None,
    *,
    hold: float = EVIDENCE_LIMITS.seal_s,
    seconds: float = EVIDENCE_LIMITS.results_s,
) -> Seal:
    """Seal the box: queue runners start no cell until it is unsealed or `hold` seconds have passed.

    Args:
        connection: To the box.
        deployed: Its agent.
        spec: The box.
        wanted: The same as for `request_results`, otherwise the generations cannot be compared.
        hold: Seconds after which the seal expires.
        seconds: How long the box may take.

    Raises:
        BoxError: it is not sealed, or that is unknown; a seal expires automatically.
    """
    words = (
        "seal",
        "--seconds",
        f"{hold:g}",
        *_pattern_arguments(spec),
        *results_arguments(spec, wanted or ResultsRequest()),
    )
    seal = await _query_agent(connection, deployed, words, Seal, seconds)
    nonce_length = 32
    # The nonce goes into a command line and into the permit, so the box may not choose its form.
    if len(seal.nonce) != nonce_length or not seal.nonce.isalnum() or not seal.generation:
        raise CommandFailed(translate("invalid seal from the agent; it expires automatically"))
    # NaN would pass every comparison with a deadline.
    if not (math.isfinite(seal.at) and math.isfinite(seal.seconds)):
        raise CommandFailed(translate("the agent's seal has no time; it expires automatically"))
    if _has_impossible_numbers(seal.skipped):
        raise CommandFailed(
            translate("the agent's seal has invalid numbers; it expires automatically")
        )
    return seal


async def request_unseal(
    connection: BoxTransport,
    deployed: DeployedAgent,
    nonce: str,
    *,
    seconds: float = EVIDENCE_LIMITS.unseal_s,
) -> bool:
    """Remove a seal.

    Returns:
        True; False if it had expired or was removed already.

    Raises:
        BoxError: it is unknown whether it is removed; it expires automatically.
    """
    answer = await _query_agent(connection, deployed, ("unseal", nonce), _OpenedAnswer, seconds)
    return answer.opened


class _OpenedAnswer(FrozenStruct):
    opened: bool


def _pattern_arguments(spec: BoxSpec) -> list[str]:
    if spec.pattern and spec.pattern != DEFAULT_PATTERN:
        return ["--pattern", spec.pattern]
    return []


def results_arguments(spec: BoxSpec, wanted: ResultsRequest) -> list[str]:
    """Return the command line of `rgt-box results`, without the verb."""
    words = [word for job in spec.jobs for word in ("--job", job)]
    runs = spec.runs
    # The only run of a Job of one command; the cells of a sweep are known by its job directory.
    if spec.kubectl is not None and spec.kubectl.job and not spec.jobs:
        runs += (spec.kubectl.results_directory,)
    words += [word for path in runs for word in ("--run", path)]
    words += [word for glob in wanted.results for word in ("--results", glob)]
    words += [word for glob in wanted.ignore for word in ("--ignore", glob)]
    words += [word for glob in spec.ignore if glob.startswith("/") for word in ("--disown", glob)]
    words += [word for path in wanted.survives for word in ("--survives", path)]
    # repr: the shortest text that gives the same float again.
    return words + ([] if wanted.since is None else ["--since", repr(float(wanted.since))])


async def _query_agent(
    connection: BoxTransport,
    deployed: DeployedAgent,
    words: Sequence[str],
    kind: type[T],
    seconds: float,
) -> T:
    verb = words[0]
    done = await run_command(
        connection,
        deployed.build_command(*words),
        seconds=seconds,
        most_bytes=MOST_BYTES,
        name=f"rgt-box {verb}",
    )
    lines = [line for raw in done.out.splitlines() if (line := extract_record(raw))]
    if done.status != 0 or not lines:
        why = done.words or f"exit {done.status}"
        raise CommandFailed(f"rgt-box {verb}: {why}")
    # The last: start-up files may print something that looks like a record.
    return decode_answer(lines[-1], kind, f"rgt-box {verb}: the answer")


def _checked_results(found: BoxResults) -> BoxResults:
    """Return the answer if its values are plausible."""
    is_odd = (
        not math.isfinite(found.at)
        or _has_impossible_numbers(found.groups)
        or _has_impossible_numbers(found.skipped)
    )
    if not found.generation or is_odd:
        raise CommandFailed(
            translate(
                "rgt-box results: invalid answer: its generation is missing, or its numbers are "
                "out of range"
            )
        )
    if any(not group.fingerprint or not group.path.startswith("/") for group in found.groups):
        raise CommandFailed(
            translate("rgt-box results: invalid answer: a directory has no name or fingerprint")
        )
    return found


def _has_impossible_numbers(rows: Sequence[ResultGroup | SkippedFiles]) -> bool:
    """Return whether the box sent impossible numbers."""
    return any(not math.isfinite(row.newest) or row.files < 0 or row.bytes < 0 for row in rows)
