"""Records how far each action on an instance got, so that no call is sent twice after a crash.

One append-only file and one lock per instance; a creation, which has no instance yet, uses those of
its account. Each state is on disk before the step it announces: `sent` before the bytes are sent.
The process that acts holds the lock from reading the evidence to the last answer, so a second rgt
reports who acts instead of acting too. Actions left open by an rgt that died are read from here;
they are checked at the provider and never sent again automatically.
"""

from __future__ import annotations

import contextlib
import enum
import errno
import fcntl
import hashlib
import os
import secrets
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from rgt_tui import files
from rgt_tui.files import sync_folder
from rgt_tui.gate.audit import (
    LONGEST,
    ROOM,
    AuditLine,
    AuditLog,
    HashChainCheck,
    default_path,
    find_user_and_host,
    verify_hash_chain,
)
from rgt_tui.language import record_text, translate
from rgt_tui.model import (
    BillingVerb,
    FrozenStruct,
    Offer,
    ProviderRef,
    RentalRequest,
    moment,
    steady_time,
)

JOURNAL = "journal"
"""Name of its directory, next to the audit log."""


class JournalFailed(Exception):
    """The journal cannot be read or written.

    Before a call, this refuses the action: nothing is sent.
    """


class InstanceLocked(Exception):
    """Another process acts on this instance; the message names it."""


class ActionState(enum.StrEnum):
    """How far an action got."""

    INTENT = "intent"
    """The gate gave its permit; nothing was sent."""
    SENT = "sent"
    """Written before the call goes out: from here on, the outcome is unknown until the provider is
    read.
    """
    ANSWERED = "answered"
    """The provider has answered: requested, not done."""
    CONFIRMED = "confirmed"
    """A reading shows the machine stopped or gone, but not yet what still bills. For a creation: it
    exists, and is not in the fleet file yet.
    """
    LISTED = "listed"
    """For a creation: the machine is in the fleet file."""
    YOURS = "yours"
    """A person was sent to the platform's console; only that person can report that it is done."""
    OFF = "off"
    """A reading shows that the compute meter is off."""
    REFUSED = "refused"
    """Nothing was sent, for certain."""
    FAILED = "failed"
    """It was not done, as proved by the provider's answer or a later reading."""
    UNKNOWN = "unknown"
    """Sent, with an unknown outcome; it stays open."""


_LATER = {
    ActionState.INTENT: ("sent", "refused"),
    ActionState.SENT: ("answered", "confirmed", "yours", "off", "refused", "failed", "unknown"),
    ActionState.YOURS: ("off", "failed"),
    ActionState.ANSWERED: ("confirmed", "off", "failed", "unknown"),
    ActionState.CONFIRMED: ("off", "listed", "failed", "unknown"),
    ActionState.UNKNOWN: ("confirmed", "off", "failed", "unknown"),
}
FOLLOWS = {state: frozenset(map(ActionState, _LATER.get(state, ()))) for state in ActionState}
"""Possible next states. `sent` follows only `intent`, so an action is sent once."""
_DONE = (ActionState.CONFIRMED, ActionState.OFF)
SETTLED = frozenset(state for state, later in FOLLOWS.items() if not later)
"""Final states: `off`, `listed`, `refused`, `failed`."""


class InstanceTarget(FrozenStruct, kw_only=True):
    """One instance of one account of one provider."""

    kind: str
    account: str
    instance: str
    """Empty = the account itself: a creation."""

    @property
    def file_name(self) -> str:
        """Base name of its files.

        A hash, because ids come from outside and may not be valid file names.
        """
        words = "\0".join((self.kind, self.account, self.instance))
        return hashlib.sha256(words.encode(errors="surrogatepass")).hexdigest()[:32]


def target_of(ref: ProviderRef) -> InstanceTarget:
    """Return the journal's key for a machine."""
    return InstanceTarget(kind=ref.kind, account=ref.account, instance=ref.instance)


class CreationRecord(FrozenStruct, kw_only=True, omit_defaults=True):
    """The request of a creation, needed to find the machine after a lost answer."""

    token: str
    """Part of the machine's name or label."""
    offer: Offer
    wish: RentalRequest
    base_url: str | None = None
    key_env: str | None = None


class JournalRecord(FrozenStruct, kw_only=True, omit_defaults=True):
    """One line: an action has reached a state."""

    action: str
    """Random; the same for all lines of one action."""
    state: ActionState
    at: float
    """Unix time."""
    steady: float
    """Seconds on the steady clock; comparable if `boot` is the same."""
    boot: str
    box: str
    verb: BillingVerb | None = None
    """None = a creation."""
    target: InstanceTarget
    who: str
    pid: int
    text: str = ""
    """The call, or the provider's answer. Never a key."""
    evidence: str = ""
    """SHA-256 of the evidence behind the permit."""
    seal: str = ""
    """Nonce of the box's seal."""
    audit: str = ""
    """SHA-256 of the line written to the audit log, so that the journal confirms that line."""
    rent: CreationRecord | None = None
    """Set in the `intent` of a creation."""
    machine: str = ""
    """For a creation: the id of the new machine, once known."""


class OpenAction(FrozenStruct, kw_only=True):
    """An action that was begun and whose end was never recorded."""

    first: JournalRecord
    """Its `intent`."""
    last: JournalRecord

    def seconds_since_state(self, now: float, ticks: float, boot: str) -> float:
        """Return the seconds since its last state by the steady clock.

        After a reboot, by the wall clock.

        The wall clock may have been wrong then: a record of this computer is at least as old as its
        uptime.
        """
        past = ticks - self.last.steady
        # The steady clock counts from the boot, so values of two boots cannot be compared.
        if boot == self.last.boot and past >= 0:
            return past
        # After a reboot of this machine at least the time since the boot has passed, even if the
        # wall clock was set back.
        return max(0.0, now - self.last.at, ticks if self.last.who == find_user_and_host() else 0.0)


class JournaledAction:
    """An action in progress, made by `Journal.lock_instance`. Each method returns once its line is on disk.

    Raises:
        JournalFailed: the line was not written, or the state cannot follow the previous one.
    """

    def __init__(
        self,
        journal: Journal,
        target: InstanceTarget,
        box: str,
        verb: BillingVerb | None,
        earlier: OpenAction | None,
    ) -> None:
        self.earlier = earlier
        """An earlier action that is still open; it must be settled first."""
        self._journal = journal
        self._target, self._box, self._verb = target, box, verb
        self._last: JournalRecord | None = None

    @property
    def state(self) -> ActionState | None:
        """The current state; None = nothing is written yet."""
        if self._last is None:
            return None
        return self._last.state

    @property
    def id(self) -> str:
        """The action's id in the journal; empty = nothing is written yet."""
        if self._last is None:
            return ""
        return self._last.action

    def record_intent(
        self,
        text: str,
        *,
        evidence: str = "",
        seal: str = "",
        audit: str = "",
        rent: CreationRecord | None = None,
    ) -> None:
        """Record that the gate gave its permit for this call.

        Refused while an earlier action is open.
        """
        if self._last is not None:
            raise JournalFailed(translate("this action has already started; nothing was sent"))
        # Its outcome is unknown: a second call might meet another state than the person was shown.
        if self.earlier is not None:
            raise JournalFailed(
                translate(
                    "{earlier}: settle that first; nothing was sent",
                    earlier=describe_open_action(self.earlier),
                )
            )
        record = self._journal.build_record(
            self._target, self._box, self._verb, secrets.token_hex(8), ActionState.INTENT, text
        )
        record = msgspec.structs.replace(
            record, evidence=evidence, seal=seal, audit=audit, rent=rent
        )
        # The provider's answer must fit as well, so a full disk refuses before the call, not after
        # it.
        self._journal.append_record(record, room=ROOM)
        self._last = record

    def record_state(
        self, state: ActionState, text: str = "", *, machine: str = "", audit: str = ""
    ) -> None:
        """Record that the action has reached a state.

        Args:
            state: The state.
            text: The call, or the provider's answer.
            machine: The id of the created machine.
            audit: As in `JournalRecord`.
        """
        if self._last is None:
            raise JournalFailed(translate("an action begins with its intent; nothing was sent"))
        self._last = self._journal.append_next_state(self._last, state, text, machine, audit)

    def record_sent(self, call: str) -> None:
        """Record that the call goes out. After this returns, the bytes may be sent once."""
        self.record_state(ActionState.SENT, call)

    def settle_earlier(
        self, state: ActionState, text: str, *, machine: str = "", audit: str = ""
    ) -> None:
        """Record how the earlier open action ended; the arguments are those of `record_state`."""
        if self.earlier is None:
            raise JournalFailed(translate("no earlier action is open"))
        last = self._journal.append_next_state(self.earlier.last, state, text, machine, audit)
        if state in SETTLED:
            self.earlier = None
        else:
            self.earlier = msgspec.structs.replace(self.earlier, last=last)


class Journal:
    """The journals of all instances, in one directory of mode 0700."""

    def __init__(self, folder: Path, *, clock: Callable[[], float] = time.time) -> None:
        self.folder = folder
        self._clock = clock

    @contextlib.contextmanager
    def lock_instance(
        self, target: InstanceTarget, box: str, verb: BillingVerb | None
    ) -> Iterator[JournaledAction]:
        """Lock the instance for one action, without waiting.

        No other process can act on it meanwhile.

        Without a verb, the account is locked for a creation: while one is open, no other can begin.

        Raises:
            InstanceLocked: another process acts on it.
            JournalFailed: the journal cannot be read or written.
        """
        path = self._journal_path(target)
        with self._wrap_os_errors(path):
            self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            lock = os.open(
                # A file of its own: the journal could be moved away while it is locked.
                path.with_suffix(".lock"),
                os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW,
                0o600,
            )
        try:
            with self._wrap_os_errors(path):
                try:
                    # A lock of the kernel: it ends with the process, however that dies.
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    raise InstanceLocked(_describe_holder(lock, target)) from None
                _write_holder(lock, box, verb, self._clock())
            earlier = _newest_open_action(self._read_records(path))
            if earlier is not None and earlier.last.state is ActionState.INTENT:
                # We have the lock, so the process that wrote it is gone, and it never reached the
                # call.
                self.append_next_state(
                    earlier.last,
                    ActionState.REFUSED,
                    translate("rgt ended before the call: nothing was sent"),
                )
                earlier = None
            yield JournaledAction(self, target, box, verb, earlier)
        finally:
            os.close(lock)

    def open_actions(self) -> tuple[tuple[OpenAction, ...], tuple[str, ...]]:
        """Return the open actions, oldest first, and messages about files that cannot be read.

        An action of a living process is open as well; `lock_instance` distinguishes the two.
        """
        found, problems = [], []
        try:
            paths = sorted(self.folder.glob("*.jsonl"))
        except OSError as error:
            return (), (
                translate(
                    "{folder} cannot be read ({strerror})",
                    folder=self.folder,
                    strerror=error.strerror,
                ),
            )
        for path in paths:
            try:
                action = _newest_open_action(self._read_records(path))
            # One unreadable journal must not hide the open actions of other instances.
            except JournalFailed as error:
                problems.append(str(error))
                continue
            if action is not None:
                found.append(action)
        return tuple(sorted(found, key=lambda one: one.last.at)), tuple(problems)

    def iterate_audited(self) -> Iterator[JournalRecord]:
        """Yield the records of all actions that name a line of the audit log.

        Raises:
            JournalFailed: a file cannot be read.
        """
        for path in sorted(self.folder.glob("*.jsonl")):
            yield from (record for record in self._read_records(path) if record.audit)

    def list_parks(self) -> tuple[JournalRecord, ...]:
        """Return the `sent` record of each instance whose newest action is a confirmed park.

        Unreadable files are skipped; `open_actions` reports them.
        """
        found = []
        for path in sorted(self.folder.glob("*.jsonl")):
            with contextlib.suppress(JournalFailed):
                records = self._read_records(path)
                if records and records[-1].verb is BillingVerb.PARK and records[-1].state in _DONE:
                    mine = [record for record in records if record.action == records[-1].action]
                    # The sending counts: from then on the machine may have been stopped.
                    found.append(
                        next((one for one in mine if one.state is ActionState.SENT), mine[0])
                    )
        return tuple(found)

    def build_record(
        self,
        target: InstanceTarget,
        box: str,
        verb: BillingVerb | None,
        action: str,
        state: ActionState,
        text: str,
    ) -> JournalRecord:
        """Return a record with the current time and process."""
        return JournalRecord(
            action=action,
            state=state,
            at=self._clock(),
            steady=steady_time(),
            boot=read_boot_id(),
            box=box,
            verb=verb,
            target=target,
            who=find_user_and_host(),
            pid=os.getpid(),
            text=record_text(text),
        )

    def append_next_state(
        self, last: JournalRecord, state: ActionState, text: str, machine: str = "", audit: str = ""
    ) -> JournalRecord:
        """Append the next state of an action; the caller holds the lock.

        Raises:
            JournalFailed: it cannot follow, or cannot be written.
        """
        if state not in FOLLOWS[last.state]:
            raise JournalFailed(
                translate(
                    "{state} cannot follow {state_2}: nothing is sent twice",
                    state=state,
                    state_2=last.state,
                )
            )
        record = self.build_record(last.target, last.box, last.verb, last.action, state, text)
        record = msgspec.structs.replace(record, machine=machine or last.machine, audit=audit)
        # No room is required here: `intent` has already checked that later lines fit.
        self.append_record(record)
        return record

    def append_record(self, record: JournalRecord, room: int = 0) -> None:
        """Append one line and fsync it.

        Raises:
            JournalFailed: it was not written.
        """
        path = self._journal_path(record.target)
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        with self._wrap_os_errors(path):
            fd = os.open(path, flags, 0o600)
            try:
                # An existing file may be readable to others.
                os.fchmod(fd, 0o600)
                stat = os.fstatvfs(fd)
                # Some file systems (some FUSE ones) report no blocks at all; skip the check there.
                if stat.f_blocks and stat.f_bavail * stat.f_frsize < room:
                    raise OSError(errno.ENOSPC, "No space left on device")
                end = _truncate_torn_line(fd)
                data = msgspec.json.encode(record) + b"\n"
                try:
                    # Not written in several parts: a part on disk could be taken for the whole
                    # state.
                    if os.write(fd, data) != len(data):
                        raise OSError(errno.ENOSPC, "No space left on device")
                    os.fsync(fd)
                    # A new file's name is on the disk only once its directory is.
                    if not end:
                        _sync_folder_names(self.folder)
                except OSError:
                    # The caller learns that nothing was recorded, so nothing may remain.
                    os.ftruncate(fd, end)
                    raise
            finally:
                os.close(fd)

    def _read_records(self, path: Path) -> list[JournalRecord]:
        with self._wrap_os_errors(path):
            try:
                with files.open_regular(path, follow=False) as file:
                    data = file.read()
            except FileNotFoundError:
                return []
        # A last line without its line feed was never completely on disk, so its step did not
        # happen.
        lines = data.split(b"\n")[:-1]
        try:
            return [msgspec.json.decode(line, type=JournalRecord) for line in lines]
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            number = next(i for i, line in enumerate(lines, 1) if not _is_record(line))
            raise JournalFailed(
                translate(
                    "line {number} of the journal {path} cannot be read, so open actions are "
                    "unknown; check the provider's console, then move the file away",
                    number=number,
                    path=path,
                )
            ) from None

    def _journal_path(self, target: InstanceTarget) -> Path:
        return self.folder / f"{target.file_name}.jsonl"

    @contextlib.contextmanager
    def _wrap_os_errors(self, path: Path) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            why = error.strerror or type(error).__name__
            raise JournalFailed(
                translate(
                    "the journal {path} cannot be used ({why}); free space or fix its permissions",
                    path=path,
                    why=why,
                )
            ) from error


def describe_open_action(action: OpenAction) -> str:
    """Describe in one line what is open."""
    first, last = action.first, action.last
    when = moment(last.at)
    if first.rent is not None:
        what = last.machine or f"token {first.rent.token}"
        return translate(
            "renting {box} at {kind} ({what}) is open since {when}: {state} by {who}",
            box=first.box,
            kind=first.target.kind,
            what=what,
            when=when,
            state=translate(last.state),
            who=last.who,
        )
    verb = translate(first.verb or "rent")
    if last.state is ActionState.YOURS:
        return translate(
            "{verb} of {box} ({instance}) waits since {when} for your click on the console; once "
            "the console shows it done: rgt down {box} --done",
            verb=verb,
            box=first.box,
            instance=first.target.instance,
            when=when,
        )
    return translate(
        "{verb} of {box} ({instance}) is open since {when}: {state} by {who}",
        verb=verb,
        box=first.box,
        instance=first.target.instance,
        when=when,
        state=translate(last.state),
        who=last.who,
    )


def read_boot_id() -> str:
    """Return an id that changes with every boot of this computer; empty without one."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        return ""


class _LockHolder(FrozenStruct):
    """The content of the lock file: the process that holds it."""

    pid: int
    who: str
    box: str
    verb: BillingVerb | None
    at: float


def _write_holder(lock: int, box: str, verb: BillingVerb | None, now: float) -> None:
    # Not a new file: the lock belongs to this inode.
    os.ftruncate(lock, 0)
    os.pwrite(
        lock, msgspec.json.encode(_LockHolder(os.getpid(), find_user_and_host(), box, verb, now)), 0
    )


def _describe_holder(lock: int, target: InstanceTarget) -> str:
    if target.instance:
        what = translate("the instance {instance}", instance=target.instance)
    else:
        what = translate(
            "the account {account} of {kind}", account=target.account, kind=target.kind
        )
    try:
        # It may be read just between the holder's lock and its writing.
        held = msgspec.json.decode(os.pread(lock, 4096, 0), type=_LockHolder)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return translate("another rgt is acting on {what}; wait for it to finish", what=what)
    doing = translate(
        "acts on {what} since {at} ({verb} of {box})",
        what=what,
        at=moment(held.at),
        verb=translate(held.verb or "rent"),
        box=held.box,
    )
    return translate(
        "process {pid} of {who} {doing}; wait for it to end",
        pid=held.pid,
        who=held.who,
        doing=doing,
    )


def _newest_open_action(records: list[JournalRecord]) -> OpenAction | None:
    """Return the newest action if it is open.

    Earlier ones cannot be, since the lock forbids a second.
    """
    # The lock forbids two open actions at once, so the last record decides.
    if not records or records[-1].state in SETTLED:
        return None
    last = records[-1]
    first = next(record for record in records if record.action == last.action)
    return OpenAction(first=first, last=last)


def _truncate_torn_line(fd: int) -> int:
    """Truncate an incomplete last line left by a crash, and return the end of the file."""
    end = os.fstat(fd).st_size
    if not end or os.pread(fd, 1, end - 1) == b"\n":
        return end
    # A line is never longer, so its beginning is in this part.
    tail = os.pread(fd, LONGEST, max(0, end - LONGEST))
    end = max(0, end - LONGEST) + tail.rfind(b"\n") + 1
    os.ftruncate(fd, end)
    return end


def _is_record(line: bytes) -> bool:
    try:
        msgspec.json.decode(line, type=JournalRecord)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False
    return True


def _sync_folder_names(folder: Path) -> None:
    """Fsync the directory and its parent, so that new names survive a crash."""
    # The parent as well: the folder itself may be new.
    for place in (folder, folder.parent):
        sync_folder(place)


def check_chain_and_journal(
    lines: Sequence[AuditLine], named: Sequence[JournalRecord]
) -> HashChainCheck:
    """Check the hashes, and that every line named in the journal exists.

    The second check detects a truncated end, which leaves the hashes intact.

    Args:
        lines: All lines of the log.
        named: `Journal.iterate_audited`, read before the log, so that lines written meanwhile do
            not seem missing.
    """
    chain = verify_hash_chain(iter(lines))
    if chain.broken is not None:
        return chain
    there = {line.hash for line in lines}
    # A chain of hashes cannot show that its end is missing; the journal knows which lines were
    # written.
    gone = next((record for record in named if record.audit not in there), None)
    if gone is None:
        return chain
    deed = translate(
        "{verb} of {box} at {at} ({state})",
        verb=translate(gone.verb or "rent"),
        box=gone.box,
        at=moment(gone.at),
        state=translate(gone.state),
    )
    why = translate("the line of {deed}, which the journal names, is missing or changed", deed=deed)
    return msgspec.structs.replace(chain, broken=chain.lines + 1, reason=why)


def read_checked(
    env: Mapping[str, str], path: Path | None = None
) -> tuple[list[AuditLine], HashChainCheck]:
    """Read and check a whole log, by default the user's own. It may block.

    Raises:
        AuditFailed: the log cannot be read.
        JournalFailed: the journal cannot be read.
    """
    log = AuditLog(default_path(env) if path is None else path)
    named = tuple(Journal(log.path.parent / JOURNAL).iterate_audited())
    lines = list(log.read_lines())
    return lines, check_chain_and_journal(lines, named)
