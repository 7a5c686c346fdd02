"""What a front end may ask of a fleet, and the observers that are told what the fleet does."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol, TypedDict, Unpack, runtime_checkable

import msgspec

from rgt_tui.model import (
    BoxSpec,
    BoxState,
    CheckResult,
    FleetEvent,
    FleetState,
    Happenings,
    Moment,
    Night,
    PersonTick,
    Profile,
    Review,
    Spend,
    StopProgress,
    Timeline,
    Verb,
    Wanted,
)

if TYPE_CHECKING:
    from pathlib import Path

    from rgt_tui.fleet.box_logs import BoxLog
    from rgt_tui.fleet.kept_lines import KeptLines
    from rgt_tui.fleet.transfer_diary import TransferNote
    from rgt_tui.gate import Receipt
    from rgt_tui.profiles import Toll
    from rgt_tui.transfer.copying import PullProgress


class GateClosed(Exception):
    """A billing action was refused; `reasons` says why, all at once."""

    def __init__(self, reasons: tuple[str, ...]) -> None:
        super().__init__("; ".join(reasons))
        self.reasons = reasons


class NoControlPlane(GateClosed):
    """Only a person can stop this box's meter: rgt knows no control plane for it."""


class Pulled(msgspec.Struct, frozen=True, kw_only=True):
    """How a pull ended."""

    whole: bool
    """All that was asked for stands here, and everything there loads."""
    text: str
    """What came and where it is, or what is wrong, in one line."""


class Given(TypedDict, total=False):
    """What a person gives up, sets aside or unlocks by name, for review and call alike."""

    forfeits: frozenset[str]
    """Keys of evidence items (`EvidenceItem.key`) that are given up. One that needs no forfeit counts for nothing."""
    ignored: frozenset[str]
    """Keys of items whose files, which nobody owns, the person says are no result."""
    unprotect: str
    """What was typed to lift ``protected``."""


class Chronicle(Protocol):
    """What was kept of a fleet. A question waits for a disk, aside, and may end in an error that says what is wrong."""

    async def happened(self, wanted: Wanted, before: int | None, count: int) -> Happenings:
        """Return the last `count` events that are wanted, of those before number `before`; None = of all."""
        ...

    async def night(self, since: float, until: float, box: str | None) -> Night:
        """Return the facts of a stretch of time, of one box or of all."""
        ...

    async def timeline(self) -> Timeline:
        """Return all moments that were kept."""
        ...

    async def moment(self, n: int, at: float, full: frozenset[str]) -> Moment:
        """Return the state of the fleet at a moment.

        Args:
            n: Number of the last moment that was kept by then (`Timeline.ns`).
            at: Client clock.
            full: Boxes whose curves, logs and hours before are wanted, too.
        """
        ...


class NotOffered(Exception):
    """The fleet cannot do this; an attribute of it said so."""


class FleetSource(Protocol):
    """A running fleet, or what is shown in place of one; a subclass says what it can do besides."""

    plays_back: bool = False
    """A recording: its time can be held and sped up."""
    keeps_logs: bool = False
    """It keeps all lines of a log that is read; others have no more than `LogView`."""
    keeps_transfers: bool = False
    """It knows what every rgt of this person copies and has copied; others know only their own."""
    runs_checks: bool = False
    """A person can tick and run its checks; a recording's are as they were."""

    @property
    def chronicle(self) -> Chronicle | None:
        """What was kept of the fleet; None = nothing is."""
        ...

    @property
    def state(self) -> FleetState:
        """The newest state."""
        ...

    def subscribe(self, callback: Callable[[FleetState], None]) -> Callable[[], None]:
        """Call `callback` with every new state (at most about 10 a second); return the way to stop."""
        ...

    def now(self) -> float:
        """The client clock that all client times in the state are measured by (epoch seconds)."""
        ...

    def profile(self, box: str) -> Profile:
        """The profile of a box."""
        ...

    def checks(self, box: str) -> tuple[CheckResult, ...]:
        """The lifecycle checks of a box, evaluated now from its live state, in order of their ids."""
        ...

    def focus(self, box: str | None) -> None:
        """Say which box is on screen, so that it is sampled fast and the others slowly."""
        ...

    def look(self, looking: bool) -> None:
        """Say whether anybody looks at the screen; while nobody does, the boxes are asked less."""
        ...

    def follow(self, box: str, path: str) -> None:
        """Follow one more log file of a box."""
        ...

    def pause(self, box: str, paused: bool) -> None:
        """Disconnect from a box and leave it alone, or connect again. Its training continues either way."""
        ...

    def retry(self, box: str) -> None:
        """Connect to an unreachable box now instead of at the end of its wait."""
        ...

    def set_interval(self, box: str, seconds: float | None) -> None:
        """Sample a box every so many seconds from now on; None = as its description says."""
        ...

    def mute(self, box: str, alert: str, seconds: float | None) -> None:
        """Mute an alert id (or a whole kind) of a box for so long; 0 = unmute, None = until it ends."""
        ...

    def answer(self, question: int, text: str | None) -> None:
        """Answer one of `FleetState.questions`; None refuses. An unknown or answered number does nothing."""
        ...

    async def review(
        self,
        box: str,
        verb: Verb,
        **given: Unpack[Given],
    ) -> Review:
        """Gather what a person must see before a billing action; re-reads the provider.

        Args:
            box: Its name.
            verb: Park or destroy.
            given: What the person gives up, sets aside or unlocks.
        """
        ...

    def execute(
        self,
        box: str,
        verb: Verb,
        typed: str,
        *,
        evidence_digest: str | None = None,
        **given: Unpack[Given],
    ) -> AsyncIterator[StopProgress]:
        """Gather fresh evidence, ask the gate, send the call, and report until the provider confirms.

        Args:
            box: Its name.
            verb: Park or destroy.
            typed: What the person typed: `Review.phrase`, exactly.
            evidence_digest: `Review.digest` of the review that this is to be based on, where another process made it;
                None = what this fleet showed last.
            given: As for the review.

        Raises:
            GateClosed: on the first iteration, when the evidence does not suffice. Nothing was sent.
        """
        ...

    async def done(self, box: str) -> StopProgress:
        """Take the person's word that what waits for their click on the console is done. Nothing is sent.

        Raises:
            GateClosed: nothing waits for that, or the box still answers.
        """
        ...

    async def receipt(self, box: str) -> Receipt | None:
        """Return the newest receipt of a billing action on a box; None = there is none."""
        ...

    async def pull(
        self,
        box: str,
        paths: tuple[str, ...],
        on_progress: Callable[[PullProgress], None],
        on_plan: Callable[[str], None],
        agree: Callable[[Toll], Awaitable[bool]],
    ) -> Pulled:
        """Copy directories of a box here and verify the copy; cancelled, it keeps what has come.

        Args:
            box: Its name.
            paths: On the box; empty = what its results are.
            on_progress: Called some times a second.
            on_plan: Told what will be fetched, and what its traffic costs, before the first byte.
            agree: Asked then, where the traffic is not known to be free; False = nothing is fetched.

        Raises:
            Exception: nothing can be pulled, or no more; the message says why and what to do.
        """
        ...

    async def start(self) -> None:
        """Begin to connect."""
        ...

    async def stop(self) -> None:
        """Disconnect from every box. What runs on the boxes continues."""
        ...

    def give_way(self, busy: Callable[[], bool]) -> None:
        """Let what boxes send wait, for a moment at most, while `busy` says that a key is to be painted."""
        return

    @property
    def held(self) -> bool:
        """Whether a recording is paused."""
        return False

    @property
    def speed(self) -> float:
        """Seconds of a recording per second."""
        return 1.0

    @property
    def position(self) -> float:
        """Seconds since its beginning."""
        return 0.0

    @property
    def length(self) -> float | None:
        """Seconds that it lasts; None while that is not known."""
        return None

    def hold(self, held: bool) -> None:
        """Pause or resume it."""
        raise NotOffered

    def set_speed(self, speed: float) -> None:
        """Let so many of its seconds pass per second from now on."""
        raise NotOffered

    @property
    def moment(self) -> float | None:
        """Client clock of the earlier moment that is shown; None = now is shown."""
        return None

    @property
    def is_past(self) -> bool:
        """Whether an earlier moment is shown: its time does not move, and nothing can be changed."""
        return self.moment is not None

    @property
    def moment_text(self) -> str:
        """When `moment` is."""
        return ""

    @property
    def why_nothing(self) -> str:
        """Why nothing can be changed here, and what to do instead; empty = it can."""
        return ""

    def keep_log(self, box: str, path: str) -> KeptLines | None:
        """Keep all lines of a log from now on; None = this box has no such log, or none is kept.

        Each call is to be answered by one of `leave_log`.
        """
        return None

    def leave_log(self, box: str, path: str) -> None:
        """Keep only the newest lines once nobody reads it."""
        return

    def box_log(self, box: str, path: str) -> BoxLog | None:
        """Return a log on its box, to read and to search what is not kept here; None = there is no box to ask."""
        return None

    async def transfers(self) -> tuple[TransferNote, ...]:
        """Return all that is remembered, the newest first; asked of the disk, aside.

        Raises:
            OSError: it cannot be read.
        """
        raise NotOffered

    @property
    def audit_file(self) -> Path | None:
        """Where; None = nowhere yet."""
        return None

    async def tick(self, box: str, check: str, tick: PersonTick) -> str | None:
        """Keep what a person says of a check; return why that failed, in words, or None."""
        raise NotOffered

    def runnable(self, box: str, check: str) -> str | None:
        """Return the command that runs a check, as one would type it; None where there is none that only looks."""
        return None

    async def run_check(self, box: str, check: str, on_line: Callable[[str], None]) -> int:
        """Run a check's command; return its exit status. Cancelled, it is ended.

        Args:
            box: Name of the box.
            check: Its id.
            on_line: Told of each line that it prints.

        Raises:
            NotRunnable: it cannot be run; the message says why.
        """
        raise NotOffered


Tap = Callable[[str, float, bytes], None]
"""Called with box, client clock and one raw line as it came over the wire, before it is decoded."""

Remember = Callable[[Sequence[BoxSpec]], Awaitable[Mapping[str, BoxState]]]
"""Returns what an earlier rgt knew, by box; boxes that it knew nothing of are left out."""


class Observer(Protocol):
    """Notified of every published state. It must not block: disk writes belong in a thread of its own."""

    def published(self, state: FleetState, changed: tuple[tuple[BoxState, BoxState], ...]) -> None:
        """Receive a new fleet state and the boxes that changed, as pairs (old, new)."""
        ...

    def happened(self, events: tuple[FleetEvent, ...]) -> None:
        """Receive events, in words; a `Keeper` also those that are muted."""
        ...

    async def close(self) -> None:
        """Bring what is held to its place."""
        ...


@runtime_checkable
class Keeper(Observer, Protocol):
    """An observer that keeps count and has something to say itself; asked with every published state."""

    @property
    def spend(self) -> Spend | None:
        """What the fleet has cost today."""
        ...

    @property
    def chronicle(self) -> Chronicle | None:
        """What it has kept."""
        ...

    def news(self) -> tuple[FleetEvent, ...]:
        """Return what it has to say, once; such as that nothing can be kept, and why."""
        ...


class ReadOnlyFleet(FleetSource):
    """Recorded boxes: a recording, or an earlier moment. It refuses every change, for the reason `why_nothing`."""

    def refuse(self) -> None:
        """Notify the person of the reason; a screen that checks `why_nothing` first needs no notice."""

    def focus(self, box: str | None) -> None:
        """Nothing: no box is sampled."""

    def look(self, looking: bool) -> None:
        """Nothing: no box is sampled."""

    def follow(self, box: str, path: str) -> None:
        """Nothing: only recorded lines are shown."""

    def pause(self, box: str, paused: bool) -> None:
        """Refuse."""
        self.refuse()

    def retry(self, box: str) -> None:
        """Refuse."""
        self.refuse()

    def set_interval(self, box: str, seconds: float | None) -> None:
        """Refuse."""
        self.refuse()

    def mute(self, box: str, alert: str, seconds: float | None) -> None:
        """Refuse."""
        self.refuse()

    def answer(self, question: int, text: str | None) -> None:
        """Refuse."""
        self.refuse()

    async def review(self, box: str, verb: Verb, **given: Unpack[Given]) -> Review:
        """Refuse.

        Raises:
            GateClosed: always.
        """
        raise GateClosed((self.why_nothing,))

    async def execute(
        self,
        box: str,
        verb: Verb,
        typed: str,
        *,
        evidence_digest: str | None = None,
        **given: Unpack[Given],
    ) -> AsyncIterator[StopProgress]:
        """Refuse.

        Raises:
            GateClosed: always.
        """
        raise GateClosed((self.why_nothing,))
        yield  # pragma: no cover - makes it the iterator that it is said to be

    async def done(self, box: str) -> StopProgress:
        """Refuse.

        Raises:
            GateClosed: always.
        """
        raise GateClosed((self.why_nothing,))

    async def receipt(self, box: str) -> Receipt | None:
        """Return None: a recording shows what was, and has no papers."""
        return None

    async def pull(
        self,
        box: str,
        paths: tuple[str, ...],
        on_progress: Callable[[PullProgress], None],
        on_plan: Callable[[str], None],
        agree: Callable[[Toll], Awaitable[bool]],
    ) -> Pulled:
        """Refuse.

        Raises:
            GateClosed: always.
        """
        raise GateClosed((self.why_nothing,))


class Account(msgspec.Struct, frozen=True):
    """A platform whose key is available."""

    kind: str
    name: str
    """As people call the platform."""
    variable: str
    """Holds the key."""


class Beginnings(msgspec.Struct, frozen=True, kw_only=True):
    """What was found on this computer; nothing was sent for it."""

    hosts: tuple[str, ...] = ()
    """Names that the boxes would have."""
    accounts: tuple[Account, ...] = ()
    path: str = ""
    """The fleet file that would be written."""
    trouble: str = ""
    """Why something could not be looked for."""


class FirstSteps(Protocol):
    """Ways to a first fleet. Each may take a while, and raises what is wrong; then nothing was written."""

    async def look(self) -> Beginnings:
        """Find what could be a start, on this computer alone."""
        ...

    async def demo(self) -> str:
        """Choose the demo; return the text to show."""
        ...

    async def take_hosts(self) -> str:
        """Write the hosts of ssh_config into the fleet file; return what to say."""
        ...

    async def take_account(self, kind: str) -> str:
        """Ask a platform for the machines of the account, and write them into the fleet file."""
        ...

    async def paste(self, text: str) -> str:
        """Write the box of a pasted ssh line into the fleet file."""
        ...

    def make(self) -> FleetSource:
        """Make the fleet that was chosen."""
        ...
