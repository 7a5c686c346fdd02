"""Findings, checks, files at risk on a box, and the evidence and permit of a billing action."""

from __future__ import annotations

import enum
import time

import msgspec

from rgt_tui.language import load_text, store_text
from rgt_tui.model.plain import Exact, FrozenStruct
from rgt_tui.model.protocol import Name


class ResultGroup(FrozenStruct, kw_only=True):
    """The files of one directory of a box, except those in subdirectories that are other groups."""

    path: Name
    """Absolute, on the box."""
    owner: str = ""
    """``cell NAME``, ``run NAME``, ``results GLOB``, or ``job DIR`` for the logs and the state of a
    queue; empty = no owner."""
    files: int = 0
    bytes: int = 0
    # ctime, because a program may set mtime back (tar, rsync -t, a copied checkpoint).
    newest: float = 0.0
    """Newest ctime, by the box's clock."""
    newest_path: Name = ""
    # Exact: it is compared, so cleaning must not touch it.
    fingerprint: Exact = ""
    """SHA-256 over path, size, mtime, ctime and inode of every file: equal as long as none of them
    changes, on any machine with the same grouping. docs/agent.md describes it."""
    problem: str | None = None
    """Why some of it could not be read; such a group proves nothing."""


class SkippedFiles(FrozenStruct, kw_only=True):
    """Files excluded from the results, and the rule for it: caches, packages, system files."""

    rule: str
    files: int = 0
    """0 = not counted: on storage that survives the instance."""
    bytes: int = 0
    newest: float = 0.0
    """Newest ctime, by the box's clock."""
    newest_path: Name = ""
    proved: bool = False
    """The exclusion is proved by more than the path: a package's file list, a hash in the names, a
    time, or a person."""


class MountRow(FrozenStruct, kw_only=True):
    """One row of the box's mount table."""

    path: Name
    kind: str = ""
    """Type of the file system."""
    # Not the path: a bind mount shows the same storage in two places.
    device: Exact = ""
    """``major:minor``: two mounts of one device are the same storage."""


# A path can never begin with it, since paths here are absolute.
IGNORED_RULE = "rule:"
"""Prefix of a rule that a person ignores: in `BoxSpec.ignore`, and in the key of its
`EvidenceItem`."""


class BoxResults(FrozenStruct, kw_only=True):
    """All files on a box that a verb could delete: the answer of the agent's ``results``."""

    at: float
    """The box's clock."""
    generation: Exact
    """SHA-256 over the fingerprints of all groups."""
    since: float | None = None
    """Files on the root disk without an owner and with an older ctime came with the image; None =
    unknown, so all are listed."""
    no_since: str = ""
    """Why the machine's creation time reported by the provider was not used."""
    groups: tuple[ResultGroup, ...] = ()
    skipped: tuple[SkippedFiles, ...] = ()
    problems: tuple[str, ...] = ()
    """Paths that could not be read: the list may then be incomplete."""
    mounts: tuple[MountRow, ...] = ()
    """Storage that can contain files on the box, by its own mount table."""


class Seal(FrozenStruct, kw_only=True):
    """A box's guarantee for one billing call: no queue runner starts a cell while it is sealed."""

    nonce: Exact
    generation: Exact
    """Of the `BoxResults` at the time of sealing."""
    at: float
    """The box's clock."""
    seconds: float
    """Seconds until it expires."""
    # Without defaults: a seal from an agent that does not send them must not decode.
    skipped: tuple[SkippedFiles, ...]
    problems: tuple[str, ...]
    mounts: tuple[MountRow, ...]
    """As in the `BoxResults` at that time. They also matter for the decision, but the generation
    does not cover them."""
    busy: tuple[str, ...] = ()
    """Why the box is busy, by the last check under the seal; empty = it is quiet."""


class CopyProof(FrozenStruct, kw_only=True):
    """A verified copy of one directory of a box, elsewhere or on storage that survives the box."""

    path: Name
    """Path of the directory on the box."""
    fingerprint: str
    """`ResultGroup.fingerprint` at the time of the copy: if it differs now, the box has newer
    files."""
    where: str
    """The directory of the copy."""
    files: int = 0
    bytes: int = 0
    checkpoints: int = 0
    """Number of checkpoints that were loaded."""
    # A damaged copy stays in the list, so that the gate can name the file.
    errors: tuple[tuple[str, str], ...] = ()
    """``(path, reason)`` of files missing or damaged in the copy; empty = the complete copy was
    verified."""
    sha256: str = ""
    """SHA-256 of the entire copy: of the lines ``HASH  NAME`` of its files, as printed by
    sha256sum, in the order of their names below `where`."""
    checked: float | None = None
    """When the copy itself was last checked, by `rgt_tui.model.evidence.steady`."""


def steady_time() -> float:
    """Return the seconds of a clock that cannot be set and also runs while the computer sleeps.

    Linux has such a clock (``clock_gettime(2)``, CLOCK_BOOTTIME); elsewhere the monotonic clock is
    used.
    """
    # CLOCK_MONOTONIC stops during a suspend on Linux: a permit would outlive a night.
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


class Severity(enum.StrEnum):
    """Severity of a finding, worst first."""

    FATAL = "fatal"
    DEGRADING = "degrading"
    SILENT_WRONG = "silent-wrong"
    COST = "cost"

    @property
    def alert_level(self) -> str:
        """Level of the alert and event: error if it ends a run or silently spoils it."""
        if self in (Severity.FATAL, Severity.SILENT_WRONG):
            # Silently wrong results cost more than a crash, which a person notices.
            return "error"
        return "warn"


class FixStep(FrozenStruct):
    """One step of a solution."""

    text: str
    command: str | None = None
    """A command to run on the box; rgt runs it only on request, and only if it looks."""


class Finding(FrozenStruct):
    """A diagnosis: the gotcha, its proof, and what to do."""

    gotcha: str
    """Stable id of the handbook entry, e.g. ``U7``."""
    title: str
    severity: Severity
    resource: str
    """The resource that ran out or broke, e.g. ``inodes of /workspace``."""
    evidence: str
    """The log line or reading that proves it."""
    where: str
    """Source of the evidence: a log path, ``sample`` or ``scalars``."""
    fixes: tuple[FixStep, ...] = ()
    never: str | None = None
    """What must not be done."""
    reading: str | None = None
    """The live reading in addition to the line, e.g. ``4,096 of 4,096 inodes used (bytes 3%)``."""
    run: str | None = None
    step: int | None = None
    since: float = 0.0
    """Client clock when it was first seen."""
    cleared: bool = False
    """True when the cause is gone, but the run has not made progress yet."""
    action: str = ""
    """Recommended action from a fixed set (`rgt_tui.handbook.Action`); rgt does not carry it
    out."""
    confidence: float | None = None
    """0 to 1: how certain it is; None = unknown."""
    line_no: int | None = None
    """Line number of `evidence` in its log, from 1; None = a reading, or the log was not followed
    from its beginning."""
    # Guesses come from hints of the handbook, see `LogJudge`.
    guess: bool = False
    """The probable subject of an exception without a handbook page. A finding with a page takes
    precedence, and is the alert."""

    def as_stored(self) -> Finding:
        """Return the finding as records keep it, without a language; see `in_language`."""
        if self.reading is None:
            return self
        return msgspec.structs.replace(self, reading=store_text(self.reading))

    def in_language(self) -> Finding:
        """Return a recorded finding with its reading in the person's language."""
        if self.reading is None:
            return self
        return msgspec.structs.replace(self, reading=load_text(self.reading))


class CheckStatus(enum.StrEnum):
    """Result of one check."""

    PASSED = "passed"
    FAILED = "failed"
    WARN = "warn"
    WAITING = "waiting"
    """Nothing to evaluate yet."""
    PERSON = "person"
    """Only a person can decide."""


class CheckResult(FrozenStruct):
    """One lifecycle check with its evidence and the evidence's age."""

    id: str
    """e.g. ``4.3``."""
    phase: int
    title: str
    status: CheckStatus
    evidence: str
    at: float | None = None
    """Client clock of the evidence; None = no evidence."""
    command: str = ""
    """Command to check it again, or to fulfil it; empty = no command."""
    by: str = ""
    """The person who ticked it; empty = not ticked, or proved by readings alone."""
    advice: str = ""
    """A cheaper or safer option according to the measurements; it does not change the status."""


class PersonTick(FrozenStruct, kw_only=True):
    """A person's answer to a check that only a person can judge."""

    ticked: bool
    """False = it was withdrawn."""
    at: float
    """Client clock."""
    by: str
    note: str = ""


class BillingVerb(enum.StrEnum):
    """The two billing actions."""

    PARK = "park"
    DESTROY = "destroy"

    @property
    def done_word(self) -> str:
        """State of a box afterwards, in a word."""
        if self is BillingVerb.PARK:
            return "parked"
        return "destroyed"


CLICK = "click"
"""Value in `Meter.actions` for an action that a person carries out on the platform's console."""


class RiskLevel(enum.StrEnum):
    """What an action can cost, which decides how strictly it must be confirmed; lowest first."""

    LOCAL = "local"
    """Only rgt itself changes."""
    RECOVERABLE = "recoverable"
    """A program on a box ends that can be started again."""
    METER = "meter"
    """Billing stops, and the data are kept."""
    IRREVERSIBLE = "irreversible"
    """Something is lost permanently."""


class EvidenceItem(FrozenStruct):
    """One line of the gate's evidence."""

    key: str
    """Its subject: ``quiet``, or ``quiet:runner /root/job`` if one kind has several items.
    Unique."""
    ok: bool
    text: str
    at: float | None = None
    """When this was read, on the clock of `steady_time`; None = unknown."""
    # Without it, a digest would change with every second of an age in the text.
    fact: str = ""
    """Text for the digest instead of `text`, if that contains changing ages or numbers; empty =
    `text`."""
    forfeitable: bool = False
    """A person may forfeit, by name (`key`), what it protects."""
    forfeited: bool = False
    """It was forfeited: it is not `ok`, but no longer blocks the action."""
    doubt: bool = False
    """It blocks nothing, but a person should read it: two sources disagree, or a setting has no
    effect."""
    ignorable: bool = False
    """It is about files without an owner: a person may declare by name that they are no results."""
    path: str = ""
    """Path of its directory on the box."""
    bytes: int | None = None
    """Bytes that would be lost."""
    newest: float | None = None
    """Client clock of its newest file, epoch seconds."""

    @property
    def kind(self) -> str:
        """The part of `key` before the colon."""
        return self.key.partition(":")[0]

    @property
    def is_blocking(self) -> bool:
        """Whether it keeps the gate closed."""
        # `doubt` is only for reading: it never blocks.
        return not self.ok and not self.forfeited


class Forfeit(FrozenStruct, kw_only=True):
    """One thing that a person forfeits by name, although nothing proves that it is dispensable."""

    key: str
    """Key of the `EvidenceItem`."""
    fact: str
    """What exactly was forfeited; a later, different fact was not."""
    text: str
    bytes: int | None = None
    newest: float | None = None
    """Client clock of its newest file."""


class Evidence(FrozenStruct):
    """All evidence of the gate for one box and verb."""

    box: str
    verb: BillingVerb
    instance: str
    items: tuple[EvidenceItem, ...]
    typed: str = ""
    """What the person typed."""
    kind: str = ""
    """Kind of the provider, such as ``runpod``."""
    account: str = ""
    """Account of the provider, `rgt_tui.model.box.ProviderRef.account`."""
    generation: str | None = None
    """Generation of the `rgt_tui.model.results.Results` that it is based on; None = they could not
    be listed."""

    @property
    def forfeits(self) -> tuple[Forfeit, ...]:
        """The forfeits in this evidence."""
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


class Refusal(FrozenStruct):
    """Why the gate stays closed, with all reasons at once."""

    reasons: tuple[str, ...]


# A value, not a flag: providers check it again before they send, so no caller can skip the gate.
class Permit(FrozenStruct):
    """Required by a provider's destructive call, and valid for one.

    Built by `rgt_tui.gate` alone.
    """

    box: str
    verb: BillingVerb
    instance: str
    digest: str
    """SHA-256 of the evidence it is based on."""
    # The steady clock, because a person may set the wall clock back.
    expires: float
    """On the clock of `steady_time`; a provider refuses an expired permit."""
    kind: str = ""
    """Kind of the provider."""
    account: str = ""
    """Account of the provider, `rgt_tui.model.box.ProviderRef.account`."""
    seal: str = ""
    """Nonce of the box's seal; empty = it could not be sealed, which was forfeited."""
    # Two permits from equal evidence must differ: each is good for one call.
    nonce: str = ""
    """Unique, so that a second use is detected and refused."""


class RentPermit(FrozenStruct, kw_only=True):
    """Required by a creation call, and valid for one. Built by `rgt_tui.gate` alone."""

    box: str
    """The machine's name in the fleet file."""
    kind: str
    """Kind of the provider."""
    account: str
    """Account of the provider, `rgt_tui.model.box.ProviderRef.account`."""
    offer: str
    """Id of the offer that the person has seen."""
    per_hour: float | None
    """The agreed maximum price of compute and disk; None = the platform shows no price in
    advance."""
    currency: str
    spot: bool
    token: str
    """Part of the machine's name or label, by which it is searched for after a lost answer."""
    expires: float
    """On the clock of `steady_time`."""


class StopPhase(enum.StrEnum):
    """Progress of a billing action. A 2xx answer is *requested*, never *stopped*."""

    REQUESTED = "requested"
    CONFIRMED = "confirmed"
    METER_OFF = "meter-off"
    # Not a failure: the call may have worked, so nothing may be sent again.
    UNCONFIRMED = "unconfirmed"
    FAILED = "failed"
    YOURS = "yours"
    """rgt sends nothing: the person clicks on the platform's console, and reports that it is
    done."""


class StopProgress(FrozenStruct):
    """One step of a billing action."""

    phase: StopPhase
    at: float
    text: str


class ActionReview(FrozenStruct):
    """What a person must see before a billing action.

    It is made again when the dialog opens and at OK.
    """

    box: str
    verb: BillingVerb
    native_label: str
    """The platform's name of the verb."""
    instance: str
    irreversible: bool
    # Part of the permit, because an offer's price can rise between reading and renting.
    per_hour: float | None
    spent: float | None
    currency: str
    lost: tuple[str, ...]
    """What will be lost, a line each; empty = nothing, by the profile."""
    kept: tuple[str, ...]
    keeps_billing: tuple[str, ...]
    """What costs money afterwards, a line each."""
    items: tuple[EvidenceItem, ...]
    refusals: tuple[str, ...]
    """Why the gate is closed now (except that the name is not typed yet)."""
    will_send: str
    """The exact API call."""
    status: str
    """The provider's present state of the machine, read for this review."""
    at: float
    """Client clock, epoch seconds."""
    steady_at: float = 0.0
    """The same moment on the clock of `steady_time`, for the items' ages."""
    level: RiskLevel = RiskLevel.IRREVERSIBLE
    phrase: str = ""
    """What must be typed, exactly; longer if something is forfeited."""
    forfeits: tuple[Forfeit, ...] = ()
    """The forfeited items; `phrase` counts them."""
    unprotect: str = ""
    """What must be typed in addition, because of ``protected`` in the fleet file; empty = nothing,
    or already typed."""
    digest: str = ""
    """Identifies this evidence for `rgt_tui.fleet.FleetSource.execute`, for 60 s as long as no fact
    changes."""
    at_least: bool = False
    """`per_hour` is a lower bound."""
    spent_at_least: bool = False
    spent_estimated: bool = False
    """`spent` is a lower bound (`spent_at_least`), or an estimate (`spent_estimated`)."""
    first: str | None = None
    """What a person should do before a park, although it is not required, such as a pull."""
    note: str | None = None
    """Note about the verb in the platform's profile, e.g. that the GPU may be gone at the next
    start."""
    how: tuple[str, ...] = ()
    """How to do the same without rgt: on the console, or with the platform's own command or
    call."""
    by_hand: bool = False
    """Without a provider: `status` is observed from here, and the person clicks."""
    waits: str = ""
    """An earlier action that waits for the person's report that it is done; empty = none."""
    waiting: BillingVerb | None = None
    """The verb of that action."""
    dangers: tuple[str, ...] = ()
    """What the platform does later without you, and risks that cannot be monitored, a line each."""
    checked: str = ""
    """When the profile's facts about the action and the storage were last checked."""
    outdated: tuple[str, ...] = ()
    """Facts of the profile that were last checked too long ago, a line per month."""

    def item_age_s(self, item: EvidenceItem, now: float) -> float | None:
        """Return the age of an item in seconds; None = unknown.

        Args:
            item: One of `items`.
            now: Client clock, epoch seconds.
        """
        if item.at is None:
            return None
        # Two clocks: the steady one between reading and review, the wall clock since then.
        return max(0.0, self.steady_at - item.at) + max(0.0, now - self.at)
