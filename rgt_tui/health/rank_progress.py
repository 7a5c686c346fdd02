"""How far each rank of a training is by its heartbeat, and which one lags behind the others. Pure.

Our own trainer has one, and trainers of others with our callback. Whoever is in an earlier phase, or an earlier step,
than the rest is what they wait for: nothing that comes later in a step can wait for anything else. How long a step may
take is measured by the ranks.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from rgt_tui.model import Heartbeat, Proc

SOON_S = 20.0
"""For so long nothing may move before it is looked at who is behind."""
FACTOR, OVER_SLOWEST = 5.0, 1.5
"""Times a usual step, and the slowest so far, that one may take."""
MEASURED = 3
"""Steps from which on it is known how long one takes."""
UNMEASURED_S = 300.0
"""The same before: the first step compiles, loads and fills caches."""
ASIDE_S = 1800.0
"""For so long a rank may evaluate, save, begin or end: the others wait, and it is no hang."""

ORDER = {"data": 0, "loop": 1, "forward": 2, "backward": 3, "collective": 4, "optimizer": 5}
"""The phases of a step, the earlier first."""
EXACT = frozenset(("data", "forward", "backward", "optimizer"))
"""Phases of which it is known what belongs in them: of ``loop``, the person's own code, it is not."""
WORDS = {
    "loop": "in the code of its loop",
    "data": "waiting for its data",
    "forward": "in the forward pass",
    "backward": "in the backward pass",
    "collective": "in a collective",
    "optimizer": "in the optimizer",
    "checkpoint": "saving",
    "evaluation": "evaluating",
    "start": "starting",
    "end": "ending",
}


class Standing(NamedTuple):
    """How the ranks of a training compare with each other.

    Attributes:
        age: Seconds since when none of them has gone on to anything else.
        limit: Seconds that this may take.
        behind: Those that are least far.
        ahead: The others; () = all are at the same place.
        aside: One of them evaluates, saves, begins or ends.
    """

    age: float
    limit: float
    behind: tuple[Proc, ...]
    ahead: tuple[Proc, ...]
    aside: bool

    @property
    def phases(self) -> frozenset[str]:
        """The phases of those behind."""
        return frozenset(beat.phase for proc in self.behind if (beat := beat_of(proc)) is not None)

    @property
    def exact(self) -> bool:
        """Whether it is known what those behind are at."""
        return self.phases <= EXACT


def standing(ranks: Sequence[Proc]) -> Standing | None:
    """Compare the ranks; None where one of them has no heartbeat, or is in an unknown phase."""
    beats = [beat for proc in ranks if (beat := beat_of(proc)) is not None and beat.phase in WORDS]
    if not ranks or len(beats) < len(ranks):
        return None
    aside = [beat for beat in beats if beat.phase not in ORDER]
    if aside:
        oldest = min(beat.for_s for beat in aside)
        return Standing(oldest, ASIDE_S, (), (), aside=True)
    places = [(beat.step, ORDER[beat.phase]) for beat in beats]
    first = min(places)
    return Standing(
        min(beat.for_s for beat in beats),
        _limit(beats),
        tuple(proc for proc, place in zip(ranks, places, strict=True) if place == first),
        tuple(proc for proc, place in zip(ranks, places, strict=True) if place != first),
        aside=False,
    )


def beat_of(proc: Proc) -> Heartbeat | None:
    """Return the heartbeat of a rank."""
    return proc.dist.beat if proc.dist is not None else None


def in_words(proc: Proc) -> str:
    """Say what a rank is doing, such as ``in the forward pass of step 41 for 32 s``; "" = unknown."""
    beat = beat_of(proc)
    if beat is None or beat.phase not in WORDS:
        return ""
    of = f" of step {beat.step + 1}" if beat.phase in ORDER else f" after step {beat.step}"
    return f"{WORDS[beat.phase]}{of} for {beat.for_s:.0f} s"


def _limit(beats: Sequence[Heartbeat]) -> float:
    if min(beat.steps for beat in beats) < MEASURED:
        return UNMEASURED_S
    usual = FACTOR * max(beat.usual_s for beat in beats)
    slowest = OVER_SLOWEST * max(beat.slowest_s for beat in beats)
    return max(SOON_S, usual, min(slowest, UNMEASURED_S))
