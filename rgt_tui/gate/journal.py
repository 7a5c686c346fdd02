"""What was begun with an instance and how far it got, so that a crash does no harm and no call is sent twice.

One append-only file and one lock per instance; a creation, which has no instance yet, has those of its account. Every
state is on the disk before what it announces happens: `sent` before the bytes go out. Whoever wants to act holds the
lock from the first look at the evidence to the last answer, so that a second rgt is told who acts instead of acting as
well. What an rgt that died left open is read from here; it is asked for at the provider and never sent again by itself.
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
from rgt_tui.gate.audit import LONGEST, ROOM, AuditLine, AuditLog, Chain, default_path, verify, who
from rgt_tui.model import Offer, ProviderRef, Verb, Wish, moment, steady

JOURNAL = "journal"
"""Name of its directory, beside the audit log."""


class JournalFailed(Exception):
    """The journal cannot be read or written. Before a call this refuses the action: nothing is sent."""


class Held(Exception):
    """Another process acts on this instance; the message says which."""


class ActionState(enum.StrEnum):
    """How far an action came."""

    INTENT = "intent"
    """The gate has opened; nothing was sent."""
    SENT = "sent"
    """Written before the call goes out: from here on nobody knows without asking."""
    ANSWERED = "answered"
    """The provider has answered: requested, not done."""
    CONFIRMED = "confirmed"
    """A reading shows the machine stopped or gone, and what still bills is not known yet; of a creation: it is there,
    and no box names it yet."""
    LISTED = "listed"
    """Of a creation: the fleet file names the machine."""
    YOURS = "yours"
    """A person was sent to the platform's console; only their word says that it is done."""
    OFF = "off"
    """A reading shows that the compute meter is off."""
    REFUSED = "refused"
    """Nothing was sent, for certain."""
    FAILED = "failed"
    """It was not done: the provider's answer or a later reading proves that."""
    UNKNOWN = "unknown"
    """Sent, and nobody knows yet what came of it; it stays open."""


_LATER = {
    ActionState.INTENT: ("sent", "refused"),
    ActionState.SENT: ("answered", "confirmed", "yours", "off", "refused", "failed", "unknown"),
    ActionState.YOURS: ("off", "failed"),
    ActionState.ANSWERED: ("confirmed", "off", "failed", "unknown"),
    ActionState.CONFIRMED: ("off", "listed", "failed", "unknown"),
    ActionState.UNKNOWN: ("confirmed", "off", "failed", "unknown"),
}
FOLLOWS = {state: frozenset(map(ActionState, _LATER.get(state, ()))) for state in ActionState}
"""What may come after a state. Nothing leads to `sent` but `intent`: an action is sent once."""
_DONE = (ActionState.CONFIRMED, ActionState.OFF)
SETTLED = frozenset(state for state, later in FOLLOWS.items() if not later)
"""States after which nothing is open: `off`, `listed`, `refused`, `failed`."""


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """One instance at one account of one provider."""

    kind: str
    account: str
    instance: str
    """Empty = the account itself: a creation."""

    @property
    def file_name(self) -> str:
        """Name of its files, without the ending; ids are a stranger's words and no file names."""
        words = "\0".join((self.kind, self.account, self.instance))
        return hashlib.sha256(words.encode(errors="surrogatepass")).hexdigest()[:32]


def target_of(ref: ProviderRef) -> Target:
    """Return whose journal a machine's is."""
    return Target(kind=ref.kind, account=ref.account, instance=ref.instance)


class Renting(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The request of a creation: by what a lost answer is looked for, and where."""

    token: str
    """Stands in the machine's name or label."""
    offer: Offer
    wish: Wish
    base_url: str | None = None
    key_env: str | None = None


class Record(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One line: an action has come to a state."""

    action: str
    """Random; the same for all lines of one action."""
    state: ActionState
    at: float
    """Epoch seconds."""
    steady: float
    """Seconds of a clock that nobody sets; comparable where `boot` is the same."""
    boot: str
    box: str
    verb: Verb | None = None
    """None = a creation."""
    target: Target
    who: str
    pid: int
    text: str = ""
    """The call, or what the provider said. Never a key."""
    evidence: str = ""
    """SHA-256 of the evidence that the permit rests on."""
    seal: str = ""
    """Nonce of the box's seal."""
    audit: str = ""
    """SHA-256 of the line of the audit log that was written for it: by that, too, that line is vouched for."""
    rent: Renting | None = None
    """Of the `intent` of a creation."""
    machine: str = ""
    """Of a creation: the id of what was made, as soon as it is known."""


class OpenAction(msgspec.Struct, frozen=True, kw_only=True):
    """An action that was begun and whose end was never written down."""

    first: Record
    """Its `intent`."""
    last: Record

    def age(self, now: float, ticks: float, boot: str) -> float:
        """Return the seconds since its last state by the steady clock; after a restart by the wall clock.

        That clock may have been wrong when it was written: what this computer wrote is older than its present start.
        """
        past = ticks - self.last.steady
        if boot == self.last.boot and past >= 0:
            return past
        return max(0.0, now - self.last.at, ticks if self.last.who == who() else 0.0)


class Action:
    """An action under way; made by `Journal.hold`. Every method has its line on the disk when it returns.

    Raises:
        JournalFailed: the line is not there, or the state cannot follow the one before.
    """

    def __init__(
        self,
        journal: Journal,
        target: Target,
        box: str,
        verb: Verb | None,
        earlier: OpenAction | None,
    ) -> None:
        self.earlier = earlier
        """What was still open when this one began; it has to be settled first."""
        self._journal = journal
        self._target, self._box, self._verb = target, box, verb
        self._last: Record | None = None

    @property
    def state(self) -> ActionState | None:
        """How far it came; None = nothing is written yet."""
        if self._last is None:
            return None
        return self._last.state

    @property
    def id(self) -> str:
        """The action's id in the journal; empty = nothing is written yet."""
        if self._last is None:
            return ""
        return self._last.action

    def intend(
        self,
        text: str,
        *,
        evidence: str = "",
        seal: str = "",
        audit: str = "",
        rent: Renting | None = None,
    ) -> None:
        """Write that the gate has opened for this call. An earlier action that is open forbids it."""
        if self._last is not None:
            raise JournalFailed("this action has begun already; nothing was sent")
        if self.earlier is not None:
            raise JournalFailed(
                f"{words(self.earlier)}: that has to be settled first; nothing was sent"
            )
        record = self._journal.record(
            self._target, self._box, self._verb, secrets.token_hex(8), ActionState.INTENT, text
        )
        record = msgspec.structs.replace(
            record, evidence=evidence, seal=seal, audit=audit, rent=rent
        )
        self._journal.append(record, room=ROOM)
        self._last = record

    def put(
        self, state: ActionState, text: str = "", *, machine: str = "", audit: str = ""
    ) -> None:
        """Write that the action has come to a state; `machine` is what was created, `audit` as in `Record`."""
        if self._last is None:
            raise JournalFailed("an action begins with its intent; nothing was sent")
        self._last = self._journal.follow(self._last, state, text, machine, audit)

    def sent(self, call: str) -> None:
        """Write that the call goes out now: the bytes may be sent once this has returned, and never again."""
        self.put(ActionState.SENT, call)

    def settle(self, state: ActionState, text: str, *, machine: str = "", audit: str = "") -> None:
        """Write how the earlier action that was open ended; the rest as in `put`."""
        if self.earlier is None:
            raise JournalFailed("no earlier action is open")
        last = self._journal.follow(self.earlier.last, state, text, machine, audit)
        self.earlier = (
            None if state in SETTLED else msgspec.structs.replace(self.earlier, last=last)
        )


class Journal:
    """The journals of all instances, below one directory of mode 0700."""

    def __init__(self, folder: Path, *, clock: Callable[[], float] = time.time) -> None:
        self.folder = folder
        self._clock = clock

    @contextlib.contextmanager
    def hold(self, target: Target, box: str, verb: Verb | None) -> Iterator[Action]:
        """Lock the instance for one action, without waiting; nobody else can act on it meanwhile.

        Without a verb it is the account that is held, for a creation: while one of its creations is open, none begins.

        Raises:
            Held: another process acts on it.
            JournalFailed: the journal cannot be read or written.
        """
        path = self._path(target)
        with self._failing(path):
            self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            lock = os.open(
                path.with_suffix(".lock"),
                os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW,
                0o600,
            )
        try:
            with self._failing(path):
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    raise Held(_holder(lock, target)) from None
                _sign(lock, box, verb, self._clock())
            earlier = _open_of(self._read(path))
            if earlier is not None and earlier.last.state is ActionState.INTENT:
                # The lock is ours, so whoever wrote it is no more, and never came to the call.
                self.follow(
                    earlier.last, ActionState.REFUSED, "rgt ended before the call: nothing was sent"
                )
                earlier = None
            yield Action(self, target, box, verb, earlier)
        finally:
            os.close(lock)

    def open_actions(self) -> tuple[tuple[OpenAction, ...], tuple[str, ...]]:
        """Return what is open, oldest first, and what cannot be read, in words.

        An action that a living process works on is open as well; `hold` tells the two apart.
        """
        found, problems = [], []
        try:
            paths = sorted(self.folder.glob("*.jsonl"))
        except OSError as error:
            return (), (f"{self.folder} cannot be read ({error.strerror})",)
        for path in paths:
            try:
                action = _open_of(self._read(path))
            except JournalFailed as error:
                problems.append(str(error))
                continue
            if action is not None:
                found.append(action)
        return tuple(sorted(found, key=lambda one: one.last.at)), tuple(problems)

    def audited(self) -> Iterator[Record]:
        """Return the records of all actions that name a line of the audit log.

        Raises:
            JournalFailed: a file cannot be read.
        """
        for path in sorted(self.folder.glob("*.jsonl")):
            yield from (record for record in self._read(path) if record.audit)

    def parks(self) -> tuple[Record, ...]:
        """Return, of each instance whose newest action is a park that was confirmed, the line before its call.

        A file that cannot be read says nothing here; `open_actions` names it.
        """
        found = []
        for path in sorted(self.folder.glob("*.jsonl")):
            with contextlib.suppress(JournalFailed):
                records = self._read(path)
                if records and records[-1].verb is Verb.PARK and records[-1].state in _DONE:
                    mine = [record for record in records if record.action == records[-1].action]
                    found.append(
                        next((one for one in mine if one.state is ActionState.SENT), mine[0])
                    )
        return tuple(found)

    def record(
        self,
        target: Target,
        box: str,
        verb: Verb | None,
        action: str,
        state: ActionState,
        text: str,
    ) -> Record:
        """Return a line of this moment and this process."""
        return Record(
            action=action,
            state=state,
            at=self._clock(),
            steady=steady(),
            boot=boot(),
            box=box,
            verb=verb,
            target=target,
            who=who(),
            pid=os.getpid(),
            text=text,
        )

    def follow(
        self, last: Record, state: ActionState, text: str, machine: str = "", audit: str = ""
    ) -> Record:
        """Append the next state of an action; its caller holds the lock.

        Raises:
            JournalFailed: it cannot follow, or cannot be written.
        """
        if state not in FOLLOWS[last.state]:
            raise JournalFailed(f"{state} cannot follow {last.state}: nothing is sent twice")
        record = self.record(last.target, last.box, last.verb, last.action, state, text)
        record = msgspec.structs.replace(record, machine=machine or last.machine, audit=audit)
        # What comes after the call must find room, too: `intent` has asked for it.
        self.append(record)
        return record

    def append(self, record: Record, room: int = 0) -> None:
        """Append one line and wait until it is on the disk.

        Raises:
            JournalFailed: it is not there.
        """
        path = self._path(record.target)
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        with self._failing(path):
            fd = os.open(path, flags, 0o600)
            try:
                os.fchmod(fd, 0o600)
                stat = os.fstatvfs(fd)
                # A file system that reports no blocks at all (some FUSE ones) cannot be asked for its room.
                if stat.f_blocks and stat.f_bavail * stat.f_frsize < room:
                    raise OSError(errno.ENOSPC, "No space left on device")
                end = _whole(fd)
                data = msgspec.json.encode(record) + b"\n"
                try:
                    if os.write(fd, data) != len(data):
                        raise OSError(errno.ENOSPC, "No space left on device")
                    os.fsync(fd)
                    if not end:
                        _keep_names(self.folder)
                except OSError:
                    os.ftruncate(fd, end)
                    raise
            finally:
                os.close(fd)

    def _read(self, path: Path) -> list[Record]:
        with self._failing(path):
            try:
                with files.open_regular(path, follow=False) as file:
                    data = file.read()
            except FileNotFoundError:
                return []
        # A last line without its line feed was never on the disk as a whole: what it announces did not happen.
        lines = data.split(b"\n")[:-1]
        try:
            return [msgspec.json.decode(line, type=Record) for line in lines]
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            number = next(i for i, line in enumerate(lines, 1) if not _reads(line))
            raise JournalFailed(
                f"line {number} of the journal {path} cannot be read, so what is open is unknown; "
                "look at the provider's console, then move the file away"
            ) from None

    def _path(self, target: Target) -> Path:
        return self.folder / f"{target.file_name}.jsonl"

    @contextlib.contextmanager
    def _failing(self, path: Path) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            why = error.strerror or type(error).__name__
            raise JournalFailed(
                f"the journal {path} cannot be used ({why}); make room or correct its rights"
            ) from error


def words(action: OpenAction) -> str:
    """Say in one line what is open."""
    first, last = action.first, action.last
    when = moment(last.at)
    if first.rent is not None:
        what = last.machine or f"token {first.rent.token}"
        return f"renting {first.box} at {first.target.kind} ({what}) is open since {when}: {last.state} by {last.who}"
    if last.state is ActionState.YOURS:
        return (
            f"{first.verb} of {first.box} ({first.target.instance}) waits since {when} for your click on the console: "
            f"rgt down {first.box} --done once it shows that it is done"
        )
    return f"{first.verb} of {first.box} ({first.target.instance}) is open since {when}: {last.state} by {last.who}"


def boot() -> str:
    """Return what is another after every start of this computer; empty where it does not say."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        return ""


class _Holder(msgspec.Struct, frozen=True):
    """What stands in the lock file: who holds it, for others to read."""

    pid: int
    who: str
    box: str
    verb: Verb | None
    at: float


def _sign(lock: int, box: str, verb: Verb | None, now: float) -> None:
    os.ftruncate(lock, 0)
    os.pwrite(lock, msgspec.json.encode(_Holder(os.getpid(), who(), box, verb, now)), 0)


def _holder(lock: int, target: Target) -> str:
    if target.instance:
        what = f"the instance {target.instance}"
    else:
        what = f"the account {target.account} of {target.kind}"
    try:
        held = msgspec.json.decode(os.pread(lock, 4096, 0), type=_Holder)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return f"another rgt acts on {what} now; wait for it to end"
    doing = f"acts on {what} since {moment(held.at)} ({held.verb or 'rent'} of {held.box})"
    return f"process {held.pid} of {held.who} {doing}; wait for it to end"


def _open_of(records: list[Record]) -> OpenAction | None:
    """Return the newest action if it is open; an earlier one cannot be, since the lock forbids a second."""
    if not records or records[-1].state in SETTLED:
        return None
    last = records[-1]
    first = next(record for record in records if record.action == last.action)
    return OpenAction(first=first, last=last)


def _whole(fd: int) -> int:
    """Cut off half a line that a crash left behind, and return the end of the file."""
    end = os.fstat(fd).st_size
    if not end or os.pread(fd, 1, end - 1) == b"\n":
        return end
    tail = os.pread(fd, LONGEST, max(0, end - LONGEST))
    end = max(0, end - LONGEST) + tail.rfind(b"\n") + 1
    os.ftruncate(fd, end)
    return end


def _reads(line: bytes) -> bool:
    try:
        msgspec.json.decode(line, type=Record)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False
    return True


def _keep_names(folder: Path) -> None:
    """Bring the name of a new file, and that of a new directory, to the disk."""
    for place in (folder, folder.parent):
        sync_folder(place)


def whole_chain(lines: Sequence[AuditLine], named: Sequence[Record]) -> Chain:
    """Follow the hashes, and look for the lines that the journal names: a log whose end was cut off has whole hashes.

    Args:
        lines: All of the log.
        named: `Journal.audited`, read before the log: what is written meanwhile must not seem to be missing.
    """
    chain = verify(iter(lines))
    if chain.broken is not None:
        return chain
    there = {line.hash for line in lines}
    gone = next((record for record in named if record.audit not in there), None)
    if gone is None:
        return chain
    deed = f"{gone.verb or 'rent'} of {gone.box} at {moment(gone.at)} ({gone.state})"
    why = f"the line of {deed}, which the journal names, is not there as it was written"
    return msgspec.structs.replace(chain, broken=chain.lines + 1, reason=why)


def read_checked(env: Mapping[str, str], path: Path | None = None) -> tuple[list[AuditLine], Chain]:
    """Read a whole log, by default that of the person, and check it. It may block.

    Raises:
        AuditFailed: the log cannot be read.
        JournalFailed: the journal cannot be read.
    """
    log = AuditLog(default_path(env) if path is None else path)
    named = tuple(Journal(log.path.parent / JOURNAL).audited())
    lines = list(log.lines())
    return lines, whole_chain(lines, named)
