"""The state of the teardown dialog: what is given up by name, shown and enabled, and what each event changes.

Every transition returns a new value. Nothing here sends anything; `confirm` only says whether it may be sent.
"""

from __future__ import annotations

import enum
import re
import unicodedata
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

from rgt_tui.model import EvidenceItem, Forfeit, Level, Review, StopPhase, StopProgress, Verb

_NUMBERS = re.compile(r"\d[\d,.:]*")
_SIZES = re.compile(r"\b\d[\d.,]* (?:B|kB|KiB|[MGT]i?B)\b")


class Change(NamedTuple):
    """One thing that is not as it was shown."""

    text: str
    shuts: bool = True
    """What was typed was typed for something else: it has to be typed again."""


def changes(before: Review, after: Review, *, chosen: bool = False) -> tuple[Change, ...]:
    """Return what a person must see before going on, a line each.

    Args:
        before: What was shown.
        after: What is to be shown.
        chosen: The person gave something up in between: what follows from that is no news.
    """
    found: list[Change] = []
    if before.instance != after.instance:
        found.append(Change(f"instance {before.instance} → {after.instance}"))
    if before.status != after.status:
        found.append(Change(f"provider says {after.status}, was {before.status}"))
    if before.will_send != after.will_send:
        found.append(Change(f"will now send {after.will_send}"))
    if before.native_label != after.native_label:
        found.append(Change(f"called {after.native_label}, was {before.native_label}"))
    if (before.per_hour, before.currency, before.at_least) != (
        after.per_hour,
        after.currency,
        after.at_least,
    ):
        found.append(Change("the price per hour changed"))
    for name, old, new in (
        ("lost", before.lost, after.lost),
        ("kept", before.kept, after.kept),
        ("keeps billing", before.keeps_billing, after.keeps_billing),
        ("without you", before.dangers, after.dangers),
    ):
        known, there = {_unsized(text) for text in old}, {_unsized(text) for text in new}
        found.extend(Change(f"{name}, new: {text}") for text in new if _unsized(text) not in known)
        found.extend(
            Change(f"{name}, no longer: {text}") for text in old if _unsized(text) not in there
        )
    if chosen:
        return tuple(found)
    if (before.irreversible, before.level) != (after.irreversible, after.level):
        found.append(
            Change(
                "now irreversible" if level_of(after) is Level.IRREVERSIBLE else "now reversible"
            )
        )
    elif (before.phrase, before.unprotect) != (after.phrase, after.unprotect):
        found.append(Change("something else has to be typed"))
    found.extend(_refusal_changes(before, after))
    found.extend(_item_changes(before.items, after.items))
    return tuple(found)


def level_of(review: Review) -> Level:
    """Return how much is at stake; the worse where a review says two things."""
    if review.irreversible:
        return Level.IRREVERSIBLE
    return review.level


def _refusal_changes(before: Review, after: Review) -> list[Change]:
    """Return the refusals that came and went; one that repeats a row of the evidence is a change of that row."""
    rows = {item.text for item in (*before.items, *after.items)}
    known, there = (
        {_shape(text) for text in before.refusals},
        {_shape(text) for text in after.refusals},
    )
    new = [text for text in after.refusals if _shape(text) not in known and text not in rows]
    gone = [text for text in before.refusals if _shape(text) not in there and text not in rows]
    return [
        *(Change(f"refused now: {text}", shuts=False) for text in new),
        *(Change(f"no longer refused: {text}", shuts=False) for text in gone),
    ]


def _item_changes(
    before: tuple[EvidenceItem, ...], after: tuple[EvidenceItem, ...]
) -> list[Change]:
    old = {item.key: item for item in before}
    kinds = {item.kind for item in after}
    found = []
    for item in after:
        known = old.pop(item.key, None)
        if known is None and not item.ok:
            found.append(Change(f"{item.key} blocks it now", shuts=False))
        elif known is not None and known.ok != item.ok:
            text = f"{item.key} is proved now" if item.ok else f"{item.key} is no longer proved"
            found.append(Change(text, shuts=False))
    for key, item in old.items():
        if not item.ok:
            found.append(Change(f"{key} no longer blocks it", shuts=False))
        elif item.kind not in kinds:
            found.append(Change(f"{key} is no longer checked"))
    return found


def _unsized(text: str) -> str:
    """Return a text without the sizes in it, which grow all the time."""
    return _SIZES.sub("#", text)


def _shape(text: str) -> str:
    """Return a text without its numbers, which may be ages and steps."""
    return _NUMBERS.sub("#", text)


CLOCK_S = 2.0
"""Seconds by which the age of the same file may seem to move, since two clocks are compared."""


def _named(item: EvidenceItem) -> Forfeit:
    return Forfeit(
        key=item.key,
        fact=item.fact or item.text,
        text=item.text,
        bytes=item.bytes,
        newest=item.newest,
    )


@dataclass(frozen=True)
class Choice:
    """What is given up, what is no result, and what was typed to lift ``protected``."""

    forfeits: tuple[Forfeit, ...] = ()
    """As they were when the person gave them up."""
    ignored: tuple[Forfeit, ...] = ()
    """Files that nobody owns, as they were when the person said that they are no result."""
    unprotect: str = ""

    @property
    def forfeit_keys(self) -> frozenset[str]:
        """For `rgt_tui.fleet.FleetSource.review`."""
        return frozenset(one.key for one in self.forfeits)

    @property
    def ignored_keys(self) -> frozenset[str]:
        """For `rgt_tui.fleet.FleetSource.review`."""
        return frozenset(one.key for one in self.ignored)

    def give_up(self, item: EvidenceItem) -> tuple[Choice, str]:
        """Give an item up, or take that back; return what is to be said besides, empty where the row says it."""
        if item.key in self.forfeit_keys:
            return replace(self, forfeits=_without(self.forfeits, item.key)), ""
        if item.ok:
            return self, f"{item.kind} holds: there is nothing to give up"
        if not item.forfeitable:
            return self, f"{item.kind} cannot be given up"
        ignored = _without(self.ignored, item.key)
        return replace(self, forfeits=(*self.forfeits, _named(item)), ignored=ignored), ""

    def ignore(self, item: EvidenceItem) -> tuple[Choice, str]:
        """Say that an item's files are no result, or take that back."""
        if item.key in self.ignored_keys:
            return replace(self, ignored=_without(self.ignored, item.key)), ""
        if not item.ignorable:
            return self, f"{item.kind}: only files that nobody owns can be ignored"
        if item.ok:
            return self, f"{item.kind} holds already: these files are no result"
        forfeits = _without(self.forfeits, item.key)
        return replace(self, ignored=(*self.ignored, _named(item)), forfeits=forfeits), ""

    def still_meant(self, review: Review) -> tuple[Choice, tuple[str, ...]]:
        """Drop what is another thing now than the person gave up; return what was dropped, a line each."""
        items = {item.key: item for item in review.items}
        dropped: list[str] = []
        forfeits, ignored = [], []
        for one in self.forfeits:
            item = items.get(one.key)
            if item is None:
                dropped.append(f"no longer given up, it is not there any more: {one.text}")
            elif item.ok:
                dropped.append(f"no longer given up, it holds now: {item.text}")
            elif (item.fact or item.text) != one.fact:
                dropped.append(f"no longer given up, it has changed: {item.text}")
            else:
                forfeits.append(one)
        for one in self.ignored:
            item = items.get(one.key)
            if item is not None and _other_files(one, item):
                dropped.append(f"no longer ignored, it has changed: {item.text}")
            else:
                ignored.append(one)
        if not dropped:
            return self, ()
        return replace(self, forfeits=tuple(forfeits), ignored=tuple(ignored)), tuple(dropped)


NOTHING = Choice()
"""Nothing is given up."""


def _without(several: tuple[Forfeit, ...], key: str) -> tuple[Forfeit, ...]:
    return tuple(one for one in several if one.key != key)


def _other_files(one: Forfeit, item: EvidenceItem) -> bool:
    """Tell whether files came since; what the gate says of an item that is ignored may differ in its words."""
    if item.bytes is not None and one.bytes is not None and item.bytes != one.bytes:
        return True
    return item.newest is not None and one.newest is not None and item.newest > one.newest + CLOCK_S


GUARD_SECONDS = 0.3
"""For this long after opening (or a change of what is at stake) no key and no click counts."""
STALE_SECONDS = 15.0
"""A review older than this does not count."""
MOST_CHANGES = 6


class Stage(enum.StrEnum):
    """Where the dialog stands."""

    REVIEW = "review"
    """Looking, and typing the name."""
    SENDING = "sending"
    """A request is on its way, or being followed."""
    YOURS = "yours"
    """rgt sends nothing: the person clicks on the console, and then says so here."""
    OFF = "off"
    """The provider says that the meter is off, or the person does where no provider can be asked."""
    UNKNOWN = "unknown"
    """Something was sent, or may have been, and nobody knows what came of it."""


@dataclass(frozen=True)
class Confirm:
    """The whole state of the dialog."""

    box: str
    verb: Verb
    guard_from: float
    """Client clock of the opening, or of the last change of what is at stake."""
    offered: tuple[Verb, ...] = (Verb.DESTROY,)
    review: Review | None = None
    review_error: str | None = None
    by_hand: bool = False
    """Nobody but a person can stop this meter: there is nothing to type and nothing to press."""
    changed: tuple[str, ...] = ()
    """What differs from what the person saw before, newest last."""
    typed: str = ""
    stage: Stage = Stage.REVIEW
    closed: tuple[str, ...] = ()
    """Why the gate refused at OK. Nothing was sent."""
    progress: tuple[StopProgress, ...] = ()
    trouble: str | None = None
    """What went wrong after OK."""
    elsewhere: bool = False
    """A request for this box is already being followed, from a dialog that was closed."""
    choice: Choice = NOTHING
    """What the person gives up by name."""
    reviewed_for: Choice = NOTHING
    """What was given up when `review` was asked for."""
    told: str = ""
    """The answer to the last key that could do nothing."""
    pulling: bool = False
    """Results are being pulled from the box."""

    def armed(self, now: float) -> bool:
        """Whether input counts yet. A clock that was set back does not lock the dialog."""
        return not 0 <= now - self.guard_from < GUARD_SECONDS

    @property
    def wanted(self) -> str:
        """What is to be typed next, exactly; empty = nothing."""
        review = self.review
        if review is None:
            return self.box
        asks = level_of(review) in {Level.METER, Level.IRREVERSIBLE}
        return review.unprotect or review.phrase or (self.box if asks else "")

    @property
    def protected(self) -> bool:
        """Whether a protection is to be lifted before anything else."""
        return self.review is not None and bool(self.review.unprotect)

    def name_fits(self) -> bool:
        """Whether all is typed exactly: no trimming, no folding, no normalising."""
        return not self.protected and self.typed == self.wanted

    def blockers(self, now: float) -> tuple[str, ...]:
        """Say everything that keeps the button off, all at once; the name comes last."""
        if self.stage is Stage.SENDING:
            return ("a request is on its way",)
        if self.stage is Stage.YOURS:
            return ("the click on the console is yours",)
        if self.stage is not Stage.REVIEW:
            return ("the request has been sent",)
        found = ["another request for this box is still in progress"] if self.elsewhere else []
        if self.pulling:
            found.append("results are being pulled from this box")
        if self.review_error is not None:
            found.append(f"the review failed: {self.review_error}")
        if self.review is None:
            found.append("the review is in progress")
        else:
            if self.review.box != self.box or self.review.verb is not self.verb:
                found.append("the review is for something else")
            if now - self.review.at > STALE_SECONDS:
                found.append("the review is too old")
            if self.reviewed_for != self.choice:
                found.append("the review is being made again")
            elif not self.choice.forfeit_keys >= {one.key for one in self.review.forfeits}:
                found.append("the review gives up what you did not")
            found.extend(self.review.refusals)
        if self.protected:
            found.append("the fleet file says that this box is protected")
        elif not self.name_fits():
            found.append(
                "the name has not been typed"
                if self.wanted == self.box
                else "the phrase has not been typed"
            )
        return tuple(found)

    def may_confirm(self, now: float) -> bool:
        """Whether the button is on."""
        return not self.blockers(now)

    def reviewed(self, review: Review, now: float, choice: Choice | None = None) -> Confirm:
        """Take a new review; an answer for another verb or choice than the present one is dropped.

        Args:
            review: As it came.
            now: The client clock.
            choice: What was given up when it was asked for; None = what is now.
        """
        asked = self.choice if choice is None else choice
        if review.verb is not self.verb or review.box != self.box or self.stage is not Stage.REVIEW:
            return self
        if asked != self.choice:
            return self
        new: tuple[Change, ...] = ()
        if self.review is not None:
            new = changes(self.review, review, chosen=self.reviewed_for != asked)
        meant, dropped = asked.still_meant(review)
        new += tuple(Change(text) for text in dropped)
        changed = (*self.changed, *(one.text for one in new if one.text not in self.changed))[
            -MOST_CHANGES:
        ]
        return replace(
            self,
            review=review,
            stage=Stage.YOURS if review.waits else self.stage,
            verb=review.waiting or self.verb,
            reviewed_for=asked,
            choice=meant,
            review_error=None,
            changed=changed,
            typed="" if any(one.shuts for one in new) else self.typed,
            guard_from=now if new else self.guard_from,
        )

    def give_up(self, key: str, now: float) -> Confirm:
        """Give up an item of the evidence by name, or take that back."""
        return self._choose_item(key, now, Choice.give_up)

    def ignore(self, key: str, now: float) -> Confirm:
        """Say that the files of an item are no result, or take that back."""
        return self._choose_item(key, now, Choice.ignore)

    def _choose_item(
        self, key: str, now: float, way: Callable[[Choice, EvidenceItem], tuple[Choice, str]]
    ) -> Confirm:
        """What was typed was typed for something else, and the review is to be made anew."""
        item = self.item(key)
        if self.stage is not Stage.REVIEW or item is None:
            return self
        choice, told = way(self.choice, item)
        if choice == self.choice:
            return replace(self, told=told)
        return replace(self, choice=choice, told=told, typed="", closed=(), guard_from=now)

    def item(self, key: str) -> EvidenceItem | None:
        """Return an item of the review."""
        items = self.review.items if self.review is not None else ()
        return next((item for item in items if item.key == key), None)

    def lift(self, now: float) -> Confirm:
        """Lift the protection of the box, if just that is typed."""
        review = self.review
        if review is None or not self.protected or self.typed != review.unprotect:
            return self
        return replace(
            self, choice=replace(self.choice, unprotect=self.typed), typed="", guard_from=now
        )

    def review_failed(self, verb: Verb, text: str) -> Confirm:
        """Note that a review could not be made; the last one stays to be read, but does not count."""
        if verb is not self.verb or self.stage is not Stage.REVIEW:
            return self
        return replace(self, review_error=text)

    def enter(self, typed: str) -> Confirm:
        """Take what stands in the field."""
        if self.stage is Stage.REVIEW:
            return replace(self, typed=typed, told="")
        return self

    def choose(self, verb: Verb, now: float) -> Confirm:
        """Take another verb: its review is to be made, and the name to be typed again."""
        if self.stage is not Stage.REVIEW or verb is self.verb or verb not in self.offered:
            return self
        return replace(
            self,
            verb=verb,
            review=None,
            review_error=None,
            changed=(),
            closed=(),
            typed="",
            guard_from=now,
            choice=NOTHING,
            reviewed_for=NOTHING,
            told="",
        )

    def confirm(self, now: float) -> tuple[Confirm, bool]:
        """Press the button; return the new state, and whether the request may be made."""
        if not self.armed(now) or not self.may_confirm(now):
            return self, False
        return replace(self, stage=Stage.SENDING, closed=(), progress=(), trouble=None), True

    def gate_closed(self, reasons: tuple[str, ...], now: float) -> Confirm:
        """The gate refused at OK: nothing was sent, and the name must be typed again."""
        if self.progress:
            return self.call_failed(
                "the gate closed after the request was made: " + "; ".join(reasons)
            )
        return replace(self, stage=Stage.REVIEW, closed=reasons, typed="", guard_from=now)

    def progressed(self, step: StopProgress) -> Confirm:
        """Take one step of the request."""
        stage = {
            StopPhase.METER_OFF: Stage.OFF,
            StopPhase.YOURS: Stage.YOURS,
            StopPhase.UNCONFIRMED: Stage.UNKNOWN,
            StopPhase.FAILED: Stage.UNKNOWN,
        }.get(step.phase, self.stage)
        bad = stage is Stage.UNKNOWN
        return replace(
            self,
            stage=stage,
            progress=(*self.progress, step),
            trouble=step.text if bad else self.trouble,
        )

    def not_done(self, reasons: tuple[str, ...]) -> Confirm:
        """The person's word that it is done on the console does not count; it still waits for the click."""
        return replace(self, told="; ".join(reasons))

    def call_failed(self, text: str) -> Confirm:
        """The call broke off: whether it arrived is not known."""
        return replace(self, stage=Stage.UNKNOWN, trouble=text)

    def ended(self) -> Confirm:
        """There will be no further step. Without the last word of the provider the state is unknown."""
        if self.stage is Stage.SENDING:
            return self.call_failed("the provider has not said that the meter is off")
        return self

    @property
    def in_flight(self) -> bool:
        """Whether a request goes on if the dialog is closed now."""
        return self.stage is Stage.SENDING


def mismatch(typed: str, name: str) -> str:
    """Say in what way a typed text is not what was asked for; empty where it is, or while it still may become it."""
    if typed == name or (typed and name.startswith(typed)):
        return ""
    if not typed:
        return ""
    if typed.strip() == name:
        return "an extra space"
    if typed.casefold() == name.casefold():
        return "upper and lower case differ"
    at = next((i for i, (a, b) in enumerate(zip(typed, name, strict=False)) if a != b), len(name))
    if at >= len(name):
        return "longer than what is asked for"
    char = typed[at]
    if not char.isascii():
        called = unicodedata.name(char, "no name").lower()
        return f"character {at + 1} is not the one asked for (U+{ord(char):04X}, {called})"
    return f"differs from what is asked for at character {at + 1}"
