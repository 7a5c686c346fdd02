"""Findings, checks, what could be lost on a box, and the evidence and permit of a billing action."""

from __future__ import annotations

import enum
import time

import msgspec

from rgt_tui.model.plain import Exact
from rgt_tui.model.protocol import Name


class ResultGroup(msgspec.Struct, frozen=True, kw_only=True):
    """The files of one directory of a box, without those of directories below it that are groups of their own."""

    path: Name
    """Absolute, on the box."""
    owner: str = ""
    """``cell NAME``, ``run NAME``, ``results GLOB``, or ``job DIR`` for the logs and the state of a queue; empty =
    nobody's."""
    files: int = 0
    bytes: int = 0
    newest: float = 0.0
    """Newest ctime, by the box's clock."""
    newest_path: Name = ""
    fingerprint: Exact = ""
    """SHA-256 over path, size, mtime, ctime and inode of every file: the same as long as none of them changes, wherever
    they are grouped alike. docs/agent.md says how it is made."""
    problem: str | None = None
    """Why not all of it could be looked at; such a group proves nothing."""


class Skipped(msgspec.Struct, frozen=True, kw_only=True):
    """Files that count as nobody's result, and the rule for it: caches, packages, the system's own."""

    rule: str
    files: int = 0
    """0 where nobody counted them: of storage that outlives the instance."""
    bytes: int = 0
    newest: float = 0.0
    """Newest ctime, by the box's clock."""
    newest_path: Name = ""
    proved: bool = False
    """More than the place of the files says so: a list of a package, a hash in their names, a time, a person."""


class Mounted(msgspec.Struct, frozen=True, kw_only=True):
    """One row of the box's mount table."""

    path: Name
    kind: str = ""
    """Type of the file system."""
    device: Exact = ""
    """``major:minor``: two mounts of one device are the same storage."""


IGNORED_RULE = "rule:"
"""Before the name of a rule that a person ignores: in `BoxSpec.ignore`, and in the key of its `EvidenceItem`."""


class Results(msgspec.Struct, frozen=True, kw_only=True):
    """Everything on a box that a verb could take: the answer of the agent's ``results``."""

    at: float
    """The box's clock."""
    generation: Exact
    """SHA-256 over the fingerprints of all groups."""
    since: float | None = None
    """Files on the root disk that nobody owns and whose ctime is older came with the image; None = unknown, so all are
    listed."""
    no_since: str = ""
    """Why the provider's word for when the machine was created does not count."""
    groups: tuple[ResultGroup, ...] = ()
    skipped: tuple[Skipped, ...] = ()
    problems: tuple[str, ...] = ()
    """What could not be looked at: then nothing says that the list is whole."""
    mounts: tuple[Mounted, ...] = ()
    """What can hold files on the box, by its own mount table."""


class Seal(msgspec.Struct, frozen=True, kw_only=True):
    """A box's promise to hold still for one billing call: no queue runner starts a cell under it."""

    nonce: Exact
    generation: Exact
    """Of the `Results` at the moment of sealing."""
    at: float
    """The box's clock."""
    seconds: float
    """How long it holds, unless it is opened before."""
    skipped: tuple[Skipped, ...]
    problems: tuple[str, ...]
    mounts: tuple[Mounted, ...]
    """As in the `Results` at that moment. The decision rests on them, too, and the generation does not cover them."""
    busy: tuple[str, ...] = ()
    """Why the box is not quiet, seen in the last look under the seal; empty = it is."""


class CopyProof(msgspec.Struct, frozen=True, kw_only=True):
    """A verified copy of one directory of a box, off the box or on storage that outlives it."""

    path: Name
    """Of the directory on the box."""
    fingerprint: str
    """`ResultGroup.fingerprint` at the time of the copy: another one now means that the box has newer files."""
    where: str
    """The directory of the copy."""
    files: int = 0
    bytes: int = 0
    checkpoints: int = 0
    """How many of them were loaded."""
    errors: tuple[tuple[str, str], ...] = ()
    """``(path, reason)`` of what the copy lacks or holds damaged; empty = it was verified whole."""
    sha256: str = ""
    """SHA-256 of the copy as a whole: of the lines ``HASH  NAME`` of its files, as sha256sum prints them, in the order
    of their names below `where`."""
    checked: float | None = None
    """When the copy itself was last looked at, by `rgt_tui.model.evidence.steady`."""


def steady() -> float:
    """Return the seconds of a clock that nobody can set and that also runs while the computer sleeps.

    Linux has such a clock (``clock_gettime(2)``, CLOCK_BOOTTIME); elsewhere the monotonic one serves.
    """
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


class Severity(enum.StrEnum):
    """How bad a finding is, worst first."""

    FATAL = "fatal"
    DEGRADING = "degrading"
    SILENT_WRONG = "silent-wrong"
    COST = "cost"

    @property
    def level(self) -> str:
        """Level of the alert and of the event: an error is what ends a run, or spoils it unseen."""
        if self in (Severity.FATAL, Severity.SILENT_WRONG):
            return "error"
        return "warn"


class Fix(msgspec.Struct, frozen=True):
    """One step out of trouble."""

    text: str
    command: str | None = None
    """A command to run on the box; it is shown, never run by itself."""


class Finding(msgspec.Struct, frozen=True):
    """A diagnosis: which gotcha, what proves it, and what to do."""

    gotcha: str
    """Stable id of the handbook entry, e.g. ``U7``."""
    title: str
    severity: Severity
    resource: str
    """What ran out or broke, e.g. ``inodes of /workspace``."""
    evidence: str
    """The very line of the log, or the reading, that proves it."""
    where: str
    """Where the evidence stands: a log path, or ``sample`` or ``scalars``."""
    fixes: tuple[Fix, ...] = ()
    never: str | None = None
    """What must not be done."""
    reading: str | None = None
    """The live reading beside the line, e.g. ``4,096 of 4,096 inodes used (bytes 3%)``."""
    run: str | None = None
    step: int | None = None
    since: float = 0.0
    """Client clock when it was first seen."""
    cleared: bool = False
    """True when the cause is gone, but the run has not shown yet that it goes on."""
    action: str = ""
    """What to do now, of a closed set (`rgt_tui.handbook.Action`); it is advice, nothing is done by rgt."""
    confidence: float | None = None
    """0 to 1: how sure it is; None = nobody has said."""
    line_no: int | None = None
    """Which line of its log `evidence` is, from 1; None = a reading, or the log was not followed from its beginning."""
    guess: bool = False
    """What an exception is probably about that no page knows; that stands before it, and is the alert."""


class CheckStatus(enum.StrEnum):
    """Result of one check."""

    PASSED = "passed"
    FAILED = "failed"
    WARN = "warn"
    WAITING = "waiting"
    """Nothing to evaluate yet."""
    PERSON = "person"
    """Only a person can say."""


class CheckResult(msgspec.Struct, frozen=True):
    """One item of the lifecycle with its evidence and the age of that evidence."""

    id: str
    """e.g. ``4.3``."""
    phase: int
    title: str
    status: CheckStatus
    evidence: str
    at: float | None = None
    """Client clock of the evidence; None where there is none."""
    command: str = ""
    """What to type to check it anew, or to bring it about; empty = there is nothing."""
    by: str = ""
    """Who ticked it; empty = nobody has, or its readings alone prove it."""
    advice: str = ""
    """What would be cheaper or safer by what was measured, with its figures; it changes no status."""


class PersonTick(msgspec.Struct, frozen=True, kw_only=True):
    """What a person said of a check that only a person can judge."""

    ticked: bool
    """False = it was taken back."""
    at: float
    """Client clock."""
    by: str
    note: str = ""


class Verb(enum.StrEnum):
    """The two ways to stop a meter."""

    PARK = "park"
    DESTROY = "destroy"

    @property
    def done_word(self) -> str:
        """State of a box after it, in a word."""
        if self is Verb.PARK:
            return "parked"
        return "destroyed"


CLICK = "click"
"""The provider's word (`Meter.actions`) for an action that a person carries out on the platform's console."""


class Level(enum.StrEnum):
    """How much an action can cost, and with it how much is asked of the person; the least first."""

    LOCAL = "local"
    """Nothing but rgt itself changes."""
    RECOVERABLE = "recoverable"
    """Something on a box ends that can be started again."""
    METER = "meter"
    """The meter stops, and the data stay."""
    IRREVERSIBLE = "irreversible"
    """Something is gone for ever."""


class EvidenceItem(msgspec.Struct, frozen=True):
    """One line of what the gate needs to know."""

    key: str
    """What it is about: ``quiet``, or ``quiet:runner /root/job`` where one kind has several items. No two are equal."""
    ok: bool
    text: str
    at: float | None = None
    """When this was read, on the clock of `steady`; None = nobody knows."""
    fact: str = ""
    """What a digest covers in the place of `text`, where that holds ages or numbers that move; empty = `text`."""
    forfeitable: bool = False
    """A person may give up what it protects, by name (`key`)."""
    forfeited: bool = False
    """Somebody did: it is not `ok`, and does not block the action any more."""
    doubt: bool = False
    """It prevents nothing, and a person should look at it: two sources disagree, or something counts for nothing."""
    ignorable: bool = False
    """These are files that nobody owns: a person may say by name that they are no result."""
    path: str = ""
    """Of the directory on the box that it is about."""
    bytes: int | None = None
    """What would be lost."""
    newest: float | None = None
    """Client clock of the newest file of it, epoch seconds."""

    @property
    def kind(self) -> str:
        """The part of `key` before the colon."""
        return self.key.partition(":")[0]

    @property
    def blocks(self) -> bool:
        """Whether it keeps the gate shut."""
        return not self.ok and not self.forfeited


class Forfeit(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that a person gives up by name, although nothing shows that it could be spared."""

    key: str
    """Of the `EvidenceItem`."""
    fact: str
    """What exactly was given up; another one later was not."""
    text: str
    bytes: int | None = None
    newest: float | None = None
    """Client clock of the newest file of it."""


class Evidence(msgspec.Struct, frozen=True):
    """Everything the gate looks at for one box and verb."""

    box: str
    verb: Verb
    instance: str
    items: tuple[EvidenceItem, ...]
    typed: str = ""
    """What the person typed."""
    kind: str = ""
    """Of the provider, such as ``runpod``."""
    account: str = ""
    """Of the provider, `rgt_tui.model.box.ProviderRef.account`."""
    generation: str | None = None
    """Of the `rgt_tui.model.results.Results` that it rests on; None = nobody could list them."""

    @property
    def forfeits(self) -> tuple[Forfeit, ...]:
        """What is given up by this."""
        return tuple(
            Forfeit(
                key=item.key,
                fact=item.fact or item.text,
                text=item.text,
                bytes=item.bytes,
                newest=item.newest,
            )
            for item in self.items
            if item.forfeited
        )


class Refusal(msgspec.Struct, frozen=True):
    """Why the gate stays closed, with all reasons at once."""

    reasons: tuple[str, ...]


class Permit(msgspec.Struct, frozen=True):
    """The only value with which a provider's destructive call can be made, once. Built by `rgt_tui.gate` alone."""

    box: str
    verb: Verb
    instance: str
    digest: str
    """SHA-256 of the evidence it rests on."""
    expires: float
    """On the clock of `steady`; a provider refuses an expired permit."""
    kind: str = ""
    """Of the provider."""
    account: str = ""
    """Of the provider, `rgt_tui.model.box.ProviderRef.account`."""
    seal: str = ""
    """Nonce of the seal that the box is under; empty = none could be had, and that was forfeited."""
    nonce: str = ""
    """No other permit has it: whoever has seen it refuses it the second time."""


class RentPermit(msgspec.Struct, frozen=True, kw_only=True):
    """The only value with which a creation call can be made, once. Built by `rgt_tui.gate` alone."""

    box: str
    """The name that the fleet file will give the machine."""
    kind: str
    """Of the provider."""
    account: str
    """Of the provider, `rgt_tui.model.box.ProviderRef.account`."""
    offer: str
    """Id of the offer that the person has seen."""
    per_hour: float | None
    """What the person agreed to pay at most, compute and disk; None = the platform tells no price before."""
    currency: str
    spot: bool
    token: str
    """What the machine's name or label will hold, by which a lost answer is looked for."""
    expires: float
    """On the clock of `steady`."""


class StopPhase(enum.StrEnum):
    """How far a billing action has come. A 2xx is *requested*, never *stopped*."""

    REQUESTED = "requested"
    CONFIRMED = "confirmed"
    METER_OFF = "meter-off"
    UNCONFIRMED = "unconfirmed"
    FAILED = "failed"
    YOURS = "yours"
    """rgt sends nothing: the click on the platform's console is the person's, and so is the word that it is done."""


class StopProgress(msgspec.Struct, frozen=True):
    """One step of a billing action, as it happens."""

    phase: StopPhase
    at: float
    text: str


class Review(msgspec.Struct, frozen=True):
    """What a person must see before a billing action: made fresh when the dialog opens, and again at OK."""

    box: str
    verb: Verb
    native_label: str
    """The platform's own word for the verb."""
    instance: str
    irreversible: bool
    per_hour: float | None
    spent: float | None
    currency: str
    lost: tuple[str, ...]
    """What will be gone, a line each; empty = nothing, by the profile."""
    kept: tuple[str, ...]
    keeps_billing: tuple[str, ...]
    """What goes on costing money afterwards, a line each."""
    items: tuple[EvidenceItem, ...]
    refusals: tuple[str, ...]
    """Why the gate is closed now (the name not yet typed is not among them)."""
    will_send: str
    """The exact API call."""
    status: str
    """The provider's present state of the machine, re-read for this review."""
    at: float
    """Client clock, epoch seconds."""
    steady_at: float = 0.0
    """The same moment on the clock of `steady`, by which the items' ages are counted."""
    level: Level = Level.IRREVERSIBLE
    phrase: str = ""
    """What must be typed, exactly; longer where something is forfeited."""
    forfeits: tuple[Forfeit, ...] = ()
    """What is given up by name; `phrase` counts them."""
    unprotect: str = ""
    """What must be typed besides, since the fleet file says ``protected``; empty = nothing, or it was."""
    digest: str = ""
    """Names this evidence for `rgt_tui.fleet.FleetSource.execute`, for 60 s as long as no fact changes."""
    at_least: bool = False
    """`per_hour` is a lower bound."""
    spent_at_least: bool = False
    spent_estimated: bool = False
    """`spent` is a lower bound."""
    first: str | None = None
    """What a person should do before a park, although the gate does not demand it, such as a pull."""
    note: str | None = None
    """What the platform's profile says of the verb, e.g. that the GPU may be gone at the next start."""
    how: tuple[str, ...] = ()
    """How a person does the same without rgt: the console's word, the platform's own command or call."""
    by_hand: bool = False
    """There is no provider: `status` is what is seen from here, and the click is the person's."""
    waits: str = ""
    """An earlier action that waits for the person's word that it is done on the console; empty = there is none."""
    waiting: Verb | None = None
    """The verb of that action."""
    dangers: tuple[str, ...] = ()
    """What the platform then does by itself, and what nothing can watch for, a line each."""

    def age(self, item: EvidenceItem, now: float) -> float | None:
        """Return how old an item is, in seconds; None where unknown.

        Args:
            item: One of `items`.
            now: Client clock, epoch seconds.
        """
        if item.at is None:
            return None
        return max(0.0, self.steady_at - item.at) + max(0.0, now - self.at)
