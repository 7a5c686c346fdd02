"""Calls of the agent's ``autostop`` and ``sink`` verbs, and the record of boxes armed from here.

A missing, incomplete or invalid answer is an error: silence means neither "armed" nor "not armed".
"""

from __future__ import annotations

import contextlib
import hashlib
import math
import shlex
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TypeVar

import msgspec

from rgt_tui import files
from rgt_tui.fleet.fleet_source import GateClosed
from rgt_tui.gate import AuditEntry, AuditEvent, AuditLog, InstanceTarget
from rgt_tui.language import translate
from rgt_tui.model import (
    ArmAnswer,
    ArmedRecord,
    ArmRequest,
    AutostopStatus,
    BillingVerb,
    BoxSpec,
    Secret,
    SelfStopState,
    StopEvent,
    format_duration,
)
from rgt_tui.ssh import (
    BoxTransport,
    CommandFailed,
    DeployedAgent,
    RemoteCommandResult,
    decode_answer,
    extract_record,
    run_command,
)

Way = tuple[BoxTransport, DeployedAgent]
"""The open connection and its agent."""
SECONDS = 60.0
"""Limit for a call: arming lists results and queries the platform once."""
MOST_BYTES = 4 << 20
STORY_LINES = 200
COPY = "rgt-autostop.jsonl"
"""Name of the agent's copies of the story, in each directory that survives a stop."""
OK, REFUSED = 0, 1
"""Exit statuses that come with an answer."""
T = TypeVar("T")
ARMED = "armed"
"""Name of its directory, next to the audit log."""

Stamp = tuple[int, int]
"""Modification time in nanoseconds, and inode."""


async def request_rehearsal(way: Way, request: ArmRequest) -> ArmAnswer:
    """Return the expected result of arming. Nothing changes on the box.

    Raises:
        BoxError: no answer, or an unusable one.
    """
    return await _send_arm_request(way, "--rehearse", request)


async def request_arming(way: Way, request: ArmRequest) -> ArmAnswer:
    """Arm the box.

    Raises:
        BoxError: it is unknown whether it is armed now: query its status.
    """
    return await _send_arm_request(way, "--arm", request)


async def ask_status(way: Way) -> AutostopStatus:
    """Query the status of the box's self-stop.

    Raises:
        BoxError: no answer, or an unusable one.
    """
    return _checked_status(await _query_agent(way, ("autostop", "--status"), AutostopStatus))


async def request_disarming(way: Way) -> AutostopStatus:
    """Disarm the box.

    Raises:
        BoxError: it is unknown whether it is still armed: query its status.
    """
    return _checked_status(await _query_agent(way, ("autostop", "--disarm"), AutostopStatus))


async def request_postponement(way: Way, seconds: float) -> AutostopStatus:
    """Postpone the self-stop for this many seconds from now.

    Raises:
        BoxError: it is unknown whether it was postponed: query its status.
    """
    return _checked_status(
        await _query_agent(way, ("autostop", "--keep", f"{seconds:.0f}"), AutostopStatus)
    )


async def ask_story(
    way: Way, copies: Sequence[str] = (), lines: int = STORY_LINES
) -> tuple[StopEvent, ...]:
    """Query the box's records of its self-stop (the story), oldest first.

    Unreadable lines are skipped.

    Args:
        way: The connection to the box.
        copies: Directories that survive a stop, with a copy of the story: the original's disk may
            be new.
        lines: Maximum number, the newest.

    Raises:
        BoxError: no answer.
    """
    done = await _run_verb(way, ("autostop", "--story", "--lines", str(lines)))
    if done.status != OK:
        raise CommandFailed(f"rgt-box autostop --story: {done.words or f'exit {done.status}'}")
    out = [done.out]
    for folder in copies:
        path = shlex.quote(f"{folder.rstrip('/')}/{COPY}")
        words = f"test -f {path} && tail -n {lines} {path}"
        copied = await run_command(
            way[0], words, seconds=SECONDS, most_bytes=MOST_BYTES, name="reading a story"
        )
        out.append(copied.out if copied.status == OK else b"")
    found: dict[tuple[float, str, str], StopEvent] = {}
    for raw in b"\n".join(out).splitlines():
        try:
            event = decode_answer(extract_record(raw), StopEvent, "the line")
        except CommandFailed:
            continue
        if math.isfinite(event.at):
            found.setdefault((event.at, event.event, event.text), event)
    return tuple(sorted(found.values(), key=lambda event: event.at))[-lines:]


async def run_sink_verb(
    way: Way, words: Sequence[str], address: Secret | None = None, token: Secret | None = None
) -> RemoteCommandResult:
    """Run the agent's verb ``sink``.

    Address and token are sent over standard input, never on a command line.

    Raises:
        BoxError: the result is unknown.
    """
    lines = [one.reveal() for one in (address, token) if one is not None]
    return await _run_verb(way, ("sink", *words), "".join(f"{line}\n" for line in lines).encode())


async def _send_arm_request(way: Way, word: str, request: ArmRequest) -> ArmAnswer:
    found = await _query_agent(
        way, ("autostop", word), ArmAnswer, msgspec.json.encode(request) + b"\n"
    )
    return ArmAnswer(ok=found.ok, reasons=found.reasons, status=_checked_status(found.status))


async def _run_verb(way: Way, words: Sequence[str], data: bytes = b"") -> RemoteCommandResult:
    connection, deployed = way
    return await run_command(
        connection,
        deployed.build_command(*words),
        data=data,
        seconds=SECONDS,
        most_bytes=MOST_BYTES,
        name=f"rgt-box {words[0]}",
    )


async def _query_agent(way: Way, words: Sequence[str], kind: type[T], data: bytes = b"") -> T:
    done = await _run_verb(way, words, data)
    lines = [line for raw in done.out.splitlines() if (line := extract_record(raw))]
    if done.status not in (OK, REFUSED) or not lines:
        raise CommandFailed(f"rgt-box {' '.join(words[:2])}: {done.words or f'exit {done.status}'}")
    return decode_answer(lines[-1], kind, f"rgt-box {' '.join(words[:2])}: the answer")


def _checked_status(found: AutostopStatus) -> AutostopStatus:
    """Return the status if all its numbers are finite."""
    numbers = (
        found.since,
        found.limit_s,
        found.idle_s,
        found.unknown_s,
        found.stops_in_s,
        found.kept_until,
    )
    if any(number is not None and not math.isfinite(number) for number in numbers):
        raise CommandFailed(
            translate("rgt-box autostop: invalid answer: its numbers are out of range")
        )
    if found.lease is not None:
        _checked_status(found.lease)
    return found


class SelfStopControl:
    """Postpones and disarms self-stops, and records that.

    Args:
        spec: The box.
        audit: The audit log.
        book: Stores which boxes were armed.
        clock: Epoch seconds.
    """

    def __init__(
        self, spec: BoxSpec, audit: AuditLog, book: ArmedBook, *, clock: Callable[[], float]
    ) -> None:
        self._spec = spec
        self._audit = audit
        self._book = book
        self._clock = clock

    async def postpone(self, way: Way, seconds: float) -> AutostopStatus:
        """Postpone the box's self-stop.

        Raises:
            GateClosed: it is not armed, so there is nothing to postpone.
            BoxError: it is unknown whether it was postponed.
            AuditFailed: it cannot be recorded; nothing was sent.
        """
        before = await ask_status(way)
        if not is_armed(before):
            raise GateClosed(
                (translate("{name} is not armed: nothing to postpone", name=self._spec.name),)
            )
        boot = boot_of(before)
        self.write_audit(
            AuditEvent.REQUESTED,
            boot,
            translate("keep for {duration}: postpones its stop", duration=format_duration(seconds)),
        )
        after = await request_postponement(way, seconds)
        self.write_audit(
            AuditEvent.KEPT,
            boot,
            translate("kept for {duration}", duration=format_duration(seconds)),
        )
        return after

    async def disarm_box(self, way: Way) -> AutostopStatus:
        """Disarm a box. Also sent to a box that is not armed: it deletes its state.

        Raises:
            BoxError: it is unknown whether it is still armed.
            AuditFailed: it cannot be recorded; nothing was sent.
        """
        boot = boot_of(await ask_status(way))
        self.write_audit(AuditEvent.REQUESTED, boot, "disarm")
        after = await request_disarming(way)
        # It is disarmed, even if the local disk fails.
        with contextlib.suppress(OSError, TimeoutError):
            self._book.delete_record(self._spec)
        self.write_audit(AuditEvent.DISARMED, boot, "disarmed")
        return after

    def write_audit(self, event: AuditEvent, boot: str, text: str, typed: str = "") -> None:
        """Write one line of the audit log.

        Raises:
            AuditFailed: it could not be written.
        """
        ref = self._spec.provider
        self._audit.record_entry(
            AuditEntry(
                at=self._clock(),
                event=event,
                box=self._spec.name,
                verb=BillingVerb.PARK,
                instance=ref.instance if ref is not None else "",
                typed=typed,
                text=text,
                boot=boot,
            )
        )


def is_armed(status: AutostopStatus) -> bool:
    """Return whether a box is armed in any mode."""
    return status.armed or (status.lease is not None and status.lease.armed)


def boot_of(status: AutostopStatus) -> str:
    """Return the boot that a box is armed for; empty = it is not armed."""
    return status.boot or (status.lease.boot if status.lease is not None else None) or ""


# Local records of armed boxes, because a machine that has stopped itself cannot report that.
#
# There is one JSON file per instance, in a directory next to the journal. It survives restarts of
# rgt, this computer and the box; a person's `--disarm`, or arming again, deletes or replaces it.


class ArmedBook:
    """The files, in one directory of mode 0700."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def find_record(self, spec: BoxSpec) -> SelfStopState | None:
        """Return the record of a box's instance; None = not armed from here, or disarmed.

        An unreadable file counts as None: the box itself reports its armed state.
        """
        try:
            with files.open_regular(self._record_path(spec), follow=False) as file:
                return msgspec.json.decode(file.read(MOST_BYTES), type=SelfStopState)
        except (OSError, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return None

    def list_stamps(self, specs: Iterable[BoxSpec]) -> dict[str, Stamp]:
        """Return the stamps of the recorded boxes among these.

        One directory listing covers all of them, because few boxes of a fleet are armed.
        """
        try:
            names = frozenset(path.name for path in self.folder.iterdir())
        except OSError:
            return {}
        found = {}
        for spec in specs if names else ():
            path = self._record_path(spec)
            if path.name in names and (stamp := self.read_stamp(spec)) is not None:
                found[spec.name] = stamp
        return found

    def read_stamp(self, spec: BoxSpec) -> Stamp | None:
        """Return a stamp that changes with the file, or None without a file.

        The file is read only when its stamp has changed.
        """
        with contextlib.suppress(OSError):
            status = self._record_path(spec).stat()
            return status.st_mtime_ns, status.st_ino
        return None

    def change_record(
        self, spec: BoxSpec, change: Callable[[SelfStopState | None], SelfStopState | None]
    ) -> SelfStopState | None:
        """Replace a record by the result of `change`, and return that; None deletes it.

        Raises:
            OSError: it cannot be written and is unchanged.
            TimeoutError: another rgt holds the lock.
        """
        path = self._record_path(spec)
        with files.locked_file(path):
            before = self.find_record(spec)
            after = change(before)
            if after is None:
                path.unlink(missing_ok=True)
            elif after != before:
                files.replace_file(path, msgspec.json.encode(after))
        return after

    def record_arming(self, spec: BoxSpec, armed: ArmedRecord) -> SelfStopState:
        """Record that a box was armed. An earlier arming in the same mode is replaced.

        Raises:
            OSError: it cannot be written.
            TimeoutError: another rgt holds the lock.
        """

        def add_arming(before: SelfStopState | None) -> SelfStopState:
            same_life = before is not None and before.told_at is None and before.off_at is None
            if before and same_life:
                others = [one for one in before.armed if one.mode != armed.mode]
            else:
                others = []
            return SelfStopState(armed=(*(one for one in others if one.boot == armed.boot), armed))

        found = self.change_record(spec, add_arming)
        assert found is not None
        return found

    def delete_record(self, spec: BoxSpec) -> None:
        """Delete the record, because a person disarmed the box.

        Raises:
            OSError: it cannot be deleted.
            TimeoutError: another rgt holds the lock.
        """
        self.change_record(spec, lambda _: None)

    def _record_path(self, spec: BoxSpec) -> Path:
        ref = spec.provider
        if ref is not None:
            name = InstanceTarget(
                kind=ref.kind, account=ref.account, instance=ref.instance
            ).file_name
        else:
            name = hashlib.sha256(f"box\0{spec.name}".encode(errors="surrogatepass")).hexdigest()[
                :32
            ]
        return self.folder / f"{name}.json"
