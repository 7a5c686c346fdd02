"""What a front end may ask of a fleet, and what those are told who look at what it does."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol, TypedDict, Unpack, runtime_checkable

import msgspec

from rgt_tui.model.box import BoxSpec, BoxState
from rgt_tui.model.evidence import CheckResult, Review, StopProgress, Verb
from rgt_tui.model.fleet import FleetEvent, FleetState, Spend
from rgt_tui.model.profile import Profile

if TYPE_CHECKING:
    from rgt_tui.profiles.traffic_price import Toll
    from rgt_tui.transfer.copying import PullProgress


class GateClosed(Exception):
    """A billing action was refused; `reasons` says why, all at once."""

    def __init__(self, reasons: tuple[str, ...]) -> None:
        super().__init__("; ".join(reasons))
        self.reasons = reasons


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


class FleetSource(Protocol):
    """A running fleet."""

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
        """Say whether anybody looks at the screen at all; while nobody does, less is asked of the boxes."""
        ...

    def follow(self, box: str, path: str) -> None:
        """Follow one more log file of a box."""
        ...

    def pause(self, box: str, paused: bool) -> None:
        """Disconnect from a box and leave it alone, or connect again. Its training goes on either way."""
        ...

    def retry(self, box: str) -> None:
        """Connect to an unreachable box now instead of at the end of its wait."""
        ...

    def set_interval(self, box: str, seconds: float | None) -> None:
        """Sample a box every so many seconds from now on; None = as its description says."""
        ...

    def mute(self, box: str, alert: str, seconds: float | None) -> None:
        """Be quiet about an alert id (or a whole kind) of a box for so long; 0 = speak again, None = until it ends."""
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
        """Gather the evidence anew, ask the gate, send the call, and report until the provider confirms.

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
        """Disconnect from every box. What runs on the boxes goes on."""
        ...


@runtime_checkable
class Playback(Protocol):
    """A fleet source whose time can be held and sped up: a recording."""

    @property
    def held(self) -> bool:
        """Whether its time stands still."""
        ...

    @property
    def speed(self) -> float:
        """Its seconds per second."""
        ...

    def hold(self, held: bool) -> None:
        """Let its time stand still, or go on."""
        ...

    def set_speed(self, speed: float) -> None:
        """Let so many of its seconds pass per second from now on."""
        ...


Tap = Callable[[str, float, bytes], None]
"""Called with box, client clock and one raw line as it came over the wire, before it is decoded."""

Remember = Callable[[Sequence[BoxSpec]], Awaitable[Mapping[str, BoxState]]]
"""Returns what an earlier rgt knew, by box; boxes that it knew nothing of are left out."""


class Observer(Protocol):
    """Told of every published state. It must not block: whatever writes to a disk does so in a thread of its own."""

    def published(self, state: FleetState, changed: tuple[tuple[BoxState, BoxState], ...]) -> None:
        """Take in a new fleet state and the boxes that changed, as pairs (old, new)."""
        ...

    def happened(self, events: tuple[FleetEvent, ...]) -> None:
        """Take in what happened, in words."""
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

    def news(self) -> tuple[FleetEvent, ...]:
        """Return what it has to say, once; such as that nothing can be kept, and why."""
        ...
