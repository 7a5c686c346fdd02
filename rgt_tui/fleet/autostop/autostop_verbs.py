"""Calls of the agent's ``autostop`` and ``sink`` verbs: arm, disarm, put off, and read the status and the story.

No answer, half an answer and one that makes no sense are errors in words: silence is neither "armed" nor "not armed".
"""

from __future__ import annotations

import contextlib
import math
import shlex
from collections.abc import Callable, Sequence
from typing import TypeVar

import asyncssh
import msgspec

from rgt_tui.fleet.autostop.armed_book import ArmedBook
from rgt_tui.fleet.fleet_source import GateClosed
from rgt_tui.gate import AuditEntry, AuditEvent, AuditLog
from rgt_tui.model import (
    ArmAnswer,
    ArmRequest,
    AutostopStatus,
    BoxSpec,
    Secret,
    StopEvent,
    Verb,
)
from rgt_tui.profiles import age
from rgt_tui.ssh import CommandFailed, Deployed, Done, decoded, record, run

Way = tuple[asyncssh.SSHClientConnection, Deployed]
"""The connection that stands, and the agent at its end."""
SECONDS = 60.0
"""Arming lists results and asks the platform once."""
MOST_BYTES = 4 << 20
STORY_LINES = 200
COPY = "rgt-autostop.jsonl"
"""What the agent calls its copy of the story, in each directory that outlives a stop."""
OK, REFUSED = 0, 1
"""Exit statuses that come with an answer."""
T = TypeVar("T")


async def rehearse(way: Way, request: ArmRequest) -> ArmAnswer:
    """Ask what would come of arming. Nothing changes on the box.

    Raises:
        BoxError: no answer, or one that cannot be used.
    """
    return await _armed(way, "--rehearse", request)


async def arm(way: Way, request: ArmRequest) -> ArmAnswer:
    """Arm the box.

    Raises:
        BoxError: whether it is armed now is not known: ask for its status.
    """
    return await _armed(way, "--arm", request)


async def ask_status(way: Way) -> AutostopStatus:
    """Ask for the status of its own stop.

    Raises:
        BoxError: no answer, or one that cannot be used.
    """
    return _status(await _ask(way, ("autostop", "--status"), AutostopStatus))


async def disarm(way: Way) -> AutostopStatus:
    """Take back what it was armed with.

    Raises:
        BoxError: whether it still is is not known: ask for its status.
    """
    return _status(await _ask(way, ("autostop", "--disarm"), AutostopStatus))


async def keep(way: Way, seconds: float) -> AutostopStatus:
    """Put its stop off, from now on for so long.

    Raises:
        BoxError: whether it was is not known: ask for its status.
    """
    return _status(await _ask(way, ("autostop", "--keep", f"{seconds:.0f}"), AutostopStatus))


async def ask_story(way: Way, copies: Sequence[str] = (), lines: int = STORY_LINES) -> tuple[StopEvent, ...]:
    """Ask what the box has written down about its own stop, oldest first; a line that cannot be read is left out.

    Args:
        way: To the box.
        copies: Directories that have outlived a stop, with a copy of the story: the disk of the original may be new.
        lines: The newest so many.

    Raises:
        BoxError: no answer.
    """
    done = await _run(way, ("autostop", "--story", "--lines", str(lines)))
    if done.status != OK:
        raise CommandFailed(f"rgt-box autostop --story: {done.words or f'exit {done.status}'}")
    out = [done.out]
    for folder in copies:
        path = shlex.quote(f"{folder.rstrip('/')}/{COPY}")
        words = f"test -f {path} && tail -n {lines} {path}"
        copied = await run(way[0], words, seconds=SECONDS, most_bytes=MOST_BYTES, name="reading a story")
        out.append(copied.out if copied.status == OK else b"")
    found: dict[tuple[float, str, str], StopEvent] = {}
    for raw in b"\n".join(out).splitlines():
        try:
            event = decoded(record(raw), StopEvent, "the line")
        except CommandFailed:
            continue
        if math.isfinite(event.at):
            found.setdefault((event.at, event.event, event.text), event)
    return tuple(sorted(found.values(), key=lambda event: event.at))[-lines:]


async def sink(
    way: Way, words: Sequence[str], address: Secret | None = None, token: Secret | None = None
) -> Done:
    """Run the agent's verb ``sink``; address and token are sent over standard input, never on a command line.

    Raises:
        BoxError: what came of it is not known.
    """
    lines = [one.reveal() for one in (address, token) if one is not None]
    return await _run(way, ("sink", *words), "".join(f"{line}\n" for line in lines).encode())


async def _armed(way: Way, word: str, request: ArmRequest) -> ArmAnswer:
    found = await _ask(way, ("autostop", word), ArmAnswer, msgspec.json.encode(request) + b"\n")
    return ArmAnswer(ok=found.ok, reasons=found.reasons, status=_status(found.status))


async def _run(way: Way, words: Sequence[str], data: bytes = b"") -> Done:
    connection, deployed = way
    return await run(
        connection,
        deployed.command(*words),
        data=data,
        seconds=SECONDS,
        most_bytes=MOST_BYTES,
        name=f"rgt-box {words[0]}",
    )


async def _ask(way: Way, words: Sequence[str], kind: type[T], data: bytes = b"") -> T:
    done = await _run(way, words, data)
    lines = [line for raw in done.out.splitlines() if (line := record(raw))]
    if done.status not in (OK, REFUSED) or not lines:
        raise CommandFailed(f"rgt-box {' '.join(words[:2])}: {done.words or f'exit {done.status}'}")
    return decoded(lines[-1], kind, f"rgt-box {' '.join(words[:2])}: the answer")


def _status(found: AutostopStatus) -> AutostopStatus:
    """Return it, if all its numbers are finite."""
    numbers = (found.since, found.limit_s, found.idle_s, found.unknown_s, found.stops_in_s, found.kept_until)
    if any(number is not None and not math.isfinite(number) for number in numbers):
        raise CommandFailed("rgt-box autostop: the answer cannot be used: it has odd numbers")
    if found.lease is not None:
        _status(found.lease)
    return found


class Keeping:
    """Puts off and takes back, in writing.

    Args:
        spec: The box.
        audit: Where it is written down.
        book: What is remembered of it.
        clock: Epoch seconds.
    """

    def __init__(
        self, spec: BoxSpec, audit: AuditLog, book: ArmedBook, *, clock: Callable[[], float]
    ) -> None:
        self._spec = spec
        self._audit = audit
        self._book = book
        self._clock = clock

    async def keep(self, way: Way, seconds: float) -> AutostopStatus:
        """Put the box's stop off.

        Raises:
            GateClosed: it is not armed, so there is nothing to put off.
            BoxError: whether it was put off is not known.
            AuditFailed: it cannot be written down; nothing was sent.
        """
        before = await ask_status(way)
        if not is_armed(before):
            raise GateClosed((f"{self._spec.name} is not armed: there is nothing to put off",))
        boot = boot_of(before)
        self.note(AuditEvent.REQUESTED, boot, f"keep for {age(seconds)}: puts its own stop off")
        after = await keep(way, seconds)
        self.note(AuditEvent.KEPT, boot, f"kept for {age(seconds)}")
        return after

    async def disarm(self, way: Way) -> AutostopStatus:
        """Take back what a box is armed with. One that is not armed is asked all the same: it forgets what it has.

        Raises:
            BoxError: whether it is still armed is not known.
            AuditFailed: it cannot be written down; nothing was sent.
        """
        boot = boot_of(await ask_status(way))
        self.note(AuditEvent.REQUESTED, boot, "disarm")
        after = await disarm(way)
        with contextlib.suppress(OSError, TimeoutError):  # it is disarmed, whatever this disk says
            self._book.forget(self._spec)
        self.note(AuditEvent.DISARMED, boot, "disarmed")
        return after

    def note(self, event: AuditEvent, boot: str, text: str, typed: str = "") -> None:
        """Write one line.

        Raises:
            AuditFailed: it is not there.
        """
        ref = self._spec.provider
        self._audit.record(
            AuditEntry(
                at=self._clock(),
                event=event,
                box=self._spec.name,
                verb=Verb.PARK,
                instance=ref.instance if ref is not None else "",
                typed=typed,
                text=text,
                boot=boot,
            )
        )


def is_armed(status: AutostopStatus) -> bool:
    """Tell whether a box is armed in any mode."""
    return status.armed or (status.lease is not None and status.lease.armed)


def boot_of(status: AutostopStatus) -> str:
    """Return the boot that a box is armed for; empty where it is not."""
    return status.boot or (status.lease.boot if status.lease is not None else None) or ""
