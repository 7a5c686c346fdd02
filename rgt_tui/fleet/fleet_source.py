"""The interface between a front end and a fleet, and the observers that a fleet notifies."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn, Protocol, TypedDict, Unpack, runtime_checkable

from rgt_tui.model import (
    ActionReview,
    BillingVerb,
    BoxSpec,
    BoxState,
    CheckResult,
    EventFilter,
    FleetEvent,
    FleetMoment,
    FleetSpend,
    FleetState,
    FrozenStruct,
    Happenings,
    NightFacts,
    PersonTick,
    Profile,
    StopProgress,
    Timeline,
)

if TYPE_CHECKING:
    from pathlib import Path

    from rgt_tui.fleet.box_logs import BoxLog
    from rgt_tui.fleet.kept_lines import KeptLines
    from rgt_tui.fleet.transfer_diary import TransferNote
    from rgt_tui.fleet.work.fix_trials import FixTrials
    from rgt_tui.gate import Receipt
    from rgt_tui.profiles import TransferCost
    from rgt_tui.transfer.copying import PullProgress


class GateClosed(Exception):
    """A billing action was refused; `reasons` lists every reason."""

    def __init__(self, reasons: tuple[str, ...]) -> None:
        super().__init__("; ".join(reasons))
        self.reasons = reasons


class NoControlPlane(GateClosed):
    """rgt knows no control plane for this box: only a person can stop its billing."""


class PullResult(FrozenStruct, kw_only=True):
    """The result of a pull."""

    whole: bool
    """Everything requested was copied, and every copied file loads."""
    text: str
    """One line: the copied files and their directory, or the error."""


class ActionTerms(TypedDict, total=False):
    """What a person forfeits, ignores or unlocks by name; the same for review and execution."""

    forfeits: frozenset[str]
    """Keys of evidence items (`EvidenceItem.key`) that are forfeited. A key whose item needs no
    forfeit has no effect."""
    ignored: frozenset[str]
    """Keys of items whose files belong to no run and which the person declares to be no results."""
    unprotect: str
    """The text typed to lift ``protected``."""


class Chronicle(Protocol):
    """The recorded history of a fleet.

    Each method reads the disk in a worker thread; its error message gives the cause.
    """

    async def read_event_page(
        self, wanted: EventFilter, before: int | None, count: int
    ) -> Happenings:
        """Return the last `count` wanted events numbered below `before`; None = no upper bound."""
        ...

    async def read_night(self, since: float, until: float, box: str | None) -> NightFacts:
        """Return the facts of a time span, of one box or of all."""
        ...

    async def read_timeline(self) -> Timeline:
        """Return all recorded moments."""
        ...

    async def read_moment(self, n: int, at: float, full: frozenset[str]) -> FleetMoment:
        """Return the state of the fleet at a moment.

        Args:
            n: Number of the last moment recorded by then (`Timeline.ns`).
            at: Client clock.
            full: Boxes whose curves, logs and hourly history are included.
        """
        ...


class NotOffered(Exception):
    """The fleet does not support this call, as one of its attributes says."""


class FleetSource(Protocol):
    """A running fleet or a substitute for one. Subclasses declare what else they support."""

    # Class attributes, so that the screens can ask before there is a fleet.
    plays_back: bool = False
    """It is a recording: its time can be paused and sped up."""
    keeps_logs: bool = False
    """It buffers all lines of a log that is being read; other fleets only have `LogView`."""
    keeps_transfers: bool = False
    """It knows current and past transfers of every rgt of this person; other fleets know only their
    own."""
    runs_checks: bool = False
    """A person can tick and run its checks. Those of a recording do not change."""

    @property
    def chronicle(self) -> Chronicle | None:
        """The recorded history of the fleet; None = nothing is recorded."""
        ...

    @property
    def state(self) -> FleetState:
        """The newest state."""
        ...

    def subscribe(self, callback: Callable[[FleetState], None]) -> Callable[[], None]:
        """Call `callback` with every new state; return the unsubscriber.

        There are at most about 10 states a second.
        """
        ...

    def now(self) -> float:
        """The clock of all client times in the state (epoch seconds)."""
        ...

    def profile_of(self, box: str) -> Profile:
        """Return the profile of a box."""
        ...

    def evaluate_checks(self, box: str) -> tuple[CheckResult, ...]:
        """Evaluate the lifecycle checks of a box on its live state; return them in order of id."""
        ...

    def focus_box(self, box: str | None) -> None:
        """Set the box that is on screen: it is sampled fast, the others slowly."""
        ...

    def set_looking(self, looking: bool) -> None:
        """Set whether the screen is being watched; otherwise the boxes are polled less often."""
        ...

    def follow_log(self, box: str, path: str) -> None:
        """Follow one more log file of a box."""
        ...

    def set_box_paused(self, box: str, paused: bool) -> None:
        """Disconnect from a box until it is resumed, or reconnect.

        Its training continues either way.
        """
        ...

    def retry_box(self, box: str) -> None:
        """Connect to an unreachable box now, without waiting for the next scheduled attempt."""
        ...

    def set_interval(self, box: str, seconds: float | None) -> None:
        """Set the seconds between two samples of a box; None = as the fleet file says."""
        ...

    def mute_alert(self, box: str, alert: str, seconds: float | None) -> None:
        """Mute an alert id or a kind of alerts of a box.

        Args:
            box: Its name.
            alert: An alert's id, or its kind.
            seconds: How long; 0 = unmute, None = until the alert ends.
        """
        ...

    def answer_question(self, question: int, text: str | None) -> None:
        """Answer one of `FleetState.questions`; None refuses.

        An unknown or already answered number has no effect.
        """
        ...

    async def review_action(
        self,
        box: str,
        verb: BillingVerb,
        **given: Unpack[ActionTerms],
    ) -> ActionReview:
        """Gather what a person must see before a billing action; reads the provider again.

        Args:
            box: Its name.
            verb: Park or destroy.
            given: What the person forfeits, ignores or unlocks.
        """
        ...

    def execute_action(
        self,
        box: str,
        verb: BillingVerb,
        typed: str,
        *,
        evidence_digest: str | None = None,
        **given: Unpack[ActionTerms],
    ) -> AsyncIterator[StopProgress]:
        """Gather fresh evidence, pass it to the gate, send the call, and report until confirmed.

        Args:
            box: Its name.
            verb: Park or destroy.
            typed: What the person typed: `ActionReview.phrase`, exactly.
            evidence_digest: `ActionReview.digest` of a review by another process on which this
                order is based; None = the review that this fleet showed last.
            given: As for the review.

        Raises:
            GateClosed: on the first iteration, when the evidence does not suffice. Nothing was
                sent.
        """
        ...

    async def confirm_done(self, box: str) -> StopProgress:
        """Accept the person's statement that the pending console action is done. Nothing is sent.

        Raises:
            GateClosed: no action waits for that, or the box still answers.
        """
        ...

    async def find_receipt(self, box: str) -> Receipt | None:
        """Return the newest receipt of a billing action on a box, or None."""
        ...

    async def pull_directories(
        self,
        box: str,
        paths: tuple[str, ...],
        on_progress: Callable[[PullProgress], None],
        on_plan: Callable[[str], None],
        agree: Callable[[TransferCost], Awaitable[bool]],
    ) -> PullResult:
        """Copy directories from a box and verify the copy.

        Cancelling keeps the files copied so far.

        Args:
            box: Its name.
            paths: Directories on the box; empty = its results.
            on_progress: Called several times a second.
            on_plan: Called before the first byte with a description of the download and its traffic
                costs.
            agree: Called then, unless the traffic is known to be free; False = fetch nothing.

        Raises:
            Exception: the pull is impossible or broke off; the message says why and what to do.
        """
        ...

    async def start(self) -> None:
        """Begin to connect."""
        ...

    async def stop(self) -> None:
        """Disconnect from every box. Programs on the boxes keep running."""
        ...

    def delay_while_busy(self, busy: Callable[[], bool]) -> None:
        """Briefly delay incoming box data while `busy` reports that a key press must be painted."""
        return

    @property
    def is_playback_paused(self) -> bool:
        """Whether a recording is paused."""
        return False

    @property
    def speed(self) -> float:
        """Playback speed: seconds of a recording per second."""
        return 1.0

    @property
    def position(self) -> float:
        """Seconds since the beginning of the recording."""
        return 0.0

    @property
    def length(self) -> float | None:
        """Length of the recording in seconds; None = not known yet."""
        return None

    def set_playback_paused(self, held: bool) -> None:
        """Pause or resume the recording."""
        raise NotOffered

    def set_speed(self, speed: float) -> None:
        """Set the playback speed in seconds of the recording per second."""
        raise NotOffered

    def seek_to(self, position: float) -> None:
        """Go to a position in the recording, earlier or later, in seconds since its beginning."""
        raise NotOffered

    @property
    def shown_moment(self) -> float | None:
        """Client clock of the displayed earlier moment; None = now is displayed."""
        return None

    @property
    def shows_past_moment(self) -> bool:
        """Whether an earlier moment is displayed: time is fixed, and nothing can be changed."""
        return self.shown_moment is not None

    @property
    def moment_text(self) -> str:
        """The displayed earlier moment as text."""
        return ""

    @property
    def why_nothing(self) -> str:
        """Why nothing can be changed here, and what to do instead; empty = changes are possible."""
        return ""

    def keep_log(self, box: str, path: str) -> KeptLines | None:
        """Buffer all lines of a log from now on; None = no such log, or nothing is buffered.

        Each call must be followed by one call of `leave_log`.
        """
        return None

    def leave_log(self, box: str, path: str) -> None:
        """Keep only the newest lines again once the last reader has called this."""
        return

    def box_log(self, box: str, path: str) -> BoxLog | None:
        """Return a log on its box, to read and search lines that are not buffered here.

        None = there is no box to query.
        """
        return None

    def shell_words(self, box: str, command: str = "") -> tuple[str, ...]:
        """Return the program and its arguments that open a terminal on a box.

        ``ssh`` accepts the verified host key only. `command` = for the box's shell; empty = the
        shell.

        Raises:
            NotOffered: it is not connected now; the message says why.
        """
        raise NotOffered

    async def transfers(self) -> tuple[TransferNote, ...]:
        """Return all remembered transfers, the newest first; reads the disk in a worker thread.

        Raises:
            OSError: they cannot be read.
        """
        raise NotOffered

    @property
    def audit_file(self) -> Path | None:
        """Path of the audit log; None = not created yet."""
        return None

    async def store_tick(self, box: str, check: str, tick: PersonTick) -> str | None:
        """Store a person's tick of a check; return an error message, or None on success."""
        raise NotOffered

    def runnable_command(self, box: str, check: str) -> str | None:
        """Return the command that runs a check, as one would type it.

        None = the check has no read-only command.
        """
        return None

    async def run_check(self, box: str, check: str, on_line: Callable[[str], None]) -> int:
        """Run a check's command; return its exit status. Cancelling ends the command.

        Args:
            box: Name of the box.
            check: Its id.
            on_line: Called with each line that it prints.

        Raises:
            NotRunnable: it cannot be run; the message says why.
        """
        raise NotOffered

    async def run_command(self, words: tuple[str, ...], on_line: Callable[[str], None]) -> int:
        """Run ``rgt`` with words that a person has typed; return its exit status.

        Cancelling ends the command here; what it has started on a box keeps running.

        Args:
            words: Its arguments: pull, push, run or queue, and theirs.
            on_line: Called with each line that it prints.

        Raises:
            NotOffered: these boxes are a recording or an earlier moment.
            NotRunnable: it cannot be run from here; the message says why.
        """
        raise NotOffered

    def fix_trials(self, box: str) -> FixTrials:
        """Return what runs the steps of a fix on a box.

        Raises:
            NotOffered: these boxes are a recording or an earlier moment, or this one has left the
                fleet.
        """
        raise NotOffered


Tap = Callable[[str, float, bytes], None]
"""Called with box, client clock and one raw line as received, before decoding."""

Remember = Callable[[Sequence[BoxSpec]], Awaitable[Mapping[str, BoxState]]]
"""Returns the states saved by an earlier rgt, by box; boxes unknown to it are left out."""


class FleetObserver(Protocol):
    """Notified of every published state.

    It must not block: disk writes belong in a thread of its own.
    """

    def published(self, state: FleetState, changed: tuple[tuple[BoxState, BoxState], ...]) -> None:
        """Receive a new fleet state and the boxes that changed, as pairs (old, new)."""
        ...

    def receive_events(self, events: tuple[FleetEvent, ...]) -> None:
        """Receive events as messages; an `AccountingObserver` also receives muted ones."""
        ...

    async def close(self) -> None:
        """Write out everything that is buffered."""
        ...


@runtime_checkable
class AccountingObserver(FleetObserver, Protocol):
    """An observer that accounts and records, and emits events itself at every published state."""

    @property
    def spend(self) -> FleetSpend | None:
        """The fleet's costs of today."""
        ...

    @property
    def chronicle(self) -> Chronicle | None:
        """The history that it has recorded."""
        ...

    def take_events(self) -> tuple[FleetEvent, ...]:
        """Return its own events, each once, such as that and why nothing can be recorded."""
        ...


class ReadOnlyFleet(FleetSource):
    """Recorded boxes: a recording, or an earlier moment.

    It refuses every change, with the reason `why_nothing`.
    """

    def notify_refusal(self) -> None:
        """Notify the person of the reason, unless the screen has checked `why_nothing`."""

    def focus_box(self, box: str | None) -> None:
        """Do nothing: no box is sampled."""

    def set_looking(self, looking: bool) -> None:
        """Do nothing: no box is sampled."""

    def follow_log(self, box: str, path: str) -> None:
        """Do nothing: only recorded lines are shown."""

    def set_box_paused(self, *_: Any, **__: Any) -> None:
        """Refuse."""
        self.notify_refusal()

    retry_box = set_interval = mute_alert = answer_question = set_box_paused

    async def review_action(self, *_: Any, **__: Any) -> NoReturn:
        """Refuse.

        Raises:
            GateClosed: always.
        """
        raise GateClosed((self.why_nothing,))

    confirm_done = pull_directories = review_action

    def execute_action(self, *_: Any, **__: Any) -> NoReturn:
        """Refuse.

        Raises:
            GateClosed: always.
        """
        raise GateClosed((self.why_nothing,))

    async def find_receipt(self, box: str) -> Receipt | None:
        """Return None: a recording contains no receipts."""
        return None


class PlatformAccount(FrozenStruct):
    """A platform for which an API key is available."""

    kind: str
    name: str
    """The platform's usual name."""
    variable: str
    """Environment variable that contains the key."""


class Beginnings(FrozenStruct, kw_only=True):
    """Possible boxes and accounts found on this computer, without sending anything."""

    hosts: tuple[str, ...] = ()
    """Names that the boxes would get."""
    accounts: tuple[PlatformAccount, ...] = ()
    path: str = ""
    """Path of the fleet file that would be written."""
    trouble: str = ""
    """Why part of the search failed."""


class FirstSteps(Protocol):
    """Ways to create a first fleet.

    Each may take seconds and raises an error with the cause; then nothing was written.
    """

    async def find_beginnings(self) -> Beginnings:
        """Search this computer for hosts and API keys to start with."""
        ...

    async def choose_demo(self) -> str:
        """Choose the demo; return the text to show."""
        ...

    async def take_hosts(self) -> str:
        """Write the hosts of ssh_config into the fleet file; return a message."""
        ...

    async def import_account(self, kind: str) -> str:
        """Query a platform for the account's machines, and write them into the fleet file."""
        ...

    async def paste(self, text: str) -> str:
        """Write the box of a pasted ssh line into the fleet file."""
        ...

    def make_chosen_fleet(self) -> FleetSource:
        """Create the chosen fleet."""
        ...
