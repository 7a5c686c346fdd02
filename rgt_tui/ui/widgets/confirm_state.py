"""The teardown dialog without its looks: what is shown, what is enabled, and what each event changes.

Every transition returns a new value. Nothing here sends anything; `confirm` only says whether it may be sent.
"""

from __future__ import annotations

import enum
import re
import unicodedata
from dataclasses import dataclass, replace

from rgt_tui.model.evidence import EvidenceItem, Review, StopPhase, StopProgress, Verb

_NUMBERS = re.compile(r"\d[\d,.:]*")


def changes(before: Review, after: Review) -> tuple[str, ...]:
    """Return what a person must see before going on, a line each."""
    found: list[str] = []
    if before.instance != after.instance:
        found.append(f"instance {before.instance} → {after.instance}")
    if before.status != after.status:
        found.append(f"provider says {after.status}, was {before.status}")
    if before.will_send != after.will_send:
        found.append(f"will now send {after.will_send}")
    if before.irreversible != after.irreversible:
        found.append("now irreversible" if after.irreversible else "now reversible")
    if before.native_label != after.native_label:
        found.append(f"called {after.native_label}, was {before.native_label}")
    if (before.per_hour, before.currency, before.at_least) != (
        after.per_hour,
        after.currency,
        after.at_least,
    ):
        found.append("the price per hour changed")
    for name, old, new in (
        ("lost", before.lost, after.lost),
        ("kept", before.kept, after.kept),
        ("keeps billing", before.keeps_billing, after.keeps_billing),
    ):
        known, there = {_shape(text) for text in old}, {_shape(text) for text in new}
        found.extend(f"{name}, new: {text}" for text in new if _shape(text) not in known)
        found.extend(f"{name}, no longer: {text}" for text in old if _shape(text) not in there)
    known, there = {_shape(text) for text in before.refusals}, {_shape(text) for text in after.refusals}
    if there - known:
        found.append("newly refused; see above")
    if known - there:
        found.append("a refusal no longer applies")
    found.extend(_item_changes(before.items, after.items))
    return tuple(found)


def _item_changes(before: tuple[EvidenceItem, ...], after: tuple[EvidenceItem, ...]) -> list[str]:
    old = {item.key: item for item in before}
    found = []
    for item in after:
        known = old.pop(item.key, None)
        if known is None or known.ok != item.ok:
            found.append(f"{item.key} is proved now" if item.ok else f"{item.key} is no longer proved")
    found.extend(f"{key} is no longer checked" for key in old)
    return found


def _shape(text: str) -> str:
    """Return a text without its numbers, which may be ages and steps."""
    return _NUMBERS.sub("#", text)


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
    OFF = "off"
    """The provider says that the meter is off."""
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

    def armed(self, now: float) -> bool:
        """Whether input counts yet. A clock that was set back does not lock the dialog."""
        return not 0 <= now - self.guard_from < GUARD_SECONDS

    def name_fits(self) -> bool:
        """Whether the name is typed exactly: no trimming, no folding, no normalising."""
        return self.typed == self.box

    def blockers(self, now: float) -> tuple[str, ...]:
        """Say everything that keeps the button off, all at once; the name comes last."""
        if self.stage is Stage.SENDING:
            return ("a request is on its way",)
        if self.stage is not Stage.REVIEW:
            return ("the request has been sent",)
        found = ["another request for this box is still in progress"] if self.elsewhere else []
        if self.review_error is not None:
            found.append(f"the review failed: {self.review_error}")
        if self.review is None:
            found.append("the review is in progress")
        else:
            if self.review.box != self.box or self.review.verb is not self.verb:
                found.append("the review is for something else")
            if now - self.review.at > STALE_SECONDS:
                found.append("the review is too old")
            found.extend(self.review.refusals)
        if not self.name_fits():
            found.append("the name has not been typed")
        return tuple(found)

    def may_confirm(self, now: float) -> bool:
        """Whether the button is on."""
        return not self.blockers(now)

    def reviewed(self, review: Review, now: float) -> Confirm:
        """Take a new review; an answer for another verb than the one chosen is dropped."""
        if review.verb is not self.verb or review.box != self.box or self.stage is not Stage.REVIEW:
            return self
        new = changes(self.review, review) if self.review is not None else ()
        changed = (*self.changed, *(text for text in new if text not in self.changed))[-MOST_CHANGES:]
        return replace(
            self,
            review=review,
            review_error=None,
            changed=changed,
            guard_from=now if new else self.guard_from,
        )

    def review_failed(self, verb: Verb, text: str) -> Confirm:
        """Note that a review could not be made; the last one stays to be read, but does not count."""
        if verb is not self.verb or self.stage is not Stage.REVIEW:
            return self
        return replace(self, review_error=text)

    def enter(self, typed: str) -> Confirm:
        """Take what stands in the field."""
        return replace(self, typed=typed) if self.stage is Stage.REVIEW else self

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
        )

    def confirm(self, now: float) -> tuple[Confirm, bool]:
        """Press the button; return the new state, and whether the request may be made."""
        if not self.armed(now) or not self.may_confirm(now):
            return self, False
        return replace(self, stage=Stage.SENDING, closed=(), progress=(), trouble=None), True

    def gate_closed(self, reasons: tuple[str, ...], now: float) -> Confirm:
        """The gate refused at OK: nothing was sent, and the name must be typed again."""
        if self.progress:
            return self.call_failed("the gate closed after the request was made: " + "; ".join(reasons))
        return replace(self, stage=Stage.REVIEW, closed=reasons, typed="", guard_from=now)

    def progressed(self, step: StopProgress) -> Confirm:
        """Take one step of the request."""
        stage = {
            StopPhase.METER_OFF: Stage.OFF,
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
    """Say in what way a typed text is not the name; empty where it is, or while it still may become it."""
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
        return "longer than the name"
    char = typed[at]
    if not char.isascii():
        called = unicodedata.name(char, "no name").lower()
        return f"character {at + 1} is not the name's (U+{ord(char):04X}, {called})"
    return f"differs from the name at character {at + 1}"
