"""What a billing action asks a box: to list the results it would lose, and to hold still meanwhile.

Each question is one command of the agent on a connection that stands. No answer, half an answer and one that makes no
sense are errors in words: nothing here ever takes silence for "there is nothing".
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TypeVar

import asyncssh
import msgspec

from rgt_tui.model import DEFAULT_PATTERN, BoxSpec, ResultGroup, Results, Seal, Skipped
from rgt_tui.ssh import CommandFailed, Deployed, decoded, record, run

RESULTS_SECONDS = 300.0
"""A million files on a slow disk; 200,000 take a few seconds."""
SEAL_SECONDS = 120.0
"""How long a seal holds, unless it is opened before."""
UNSEAL_SECONDS = 30.0
MOST_BYTES = 8 << 20
NONCE_LENGTH = 32
T = TypeVar("T")


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
    words = ("seal", "--seconds", f"{hold:g}", *_pattern(spec), *results_words(spec, wanted or Wanted()))
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
    return ["--pattern", spec.pattern] if spec.pattern and spec.pattern != DEFAULT_PATTERN else []


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
        connection, deployed.command(*words), seconds=seconds, most_bytes=MOST_BYTES, name=f"rgt-box {verb}"
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
