"""The state of the teardown dialog: what is forfeited, shown and enabled, and its transitions.

Every transition returns a new value. Nothing here sends anything; `press_confirm` only returns
whether the request may be sent.
"""

from __future__ import annotations

import enum
import re
import unicodedata
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

from rgt_tui.language import translate
from rgt_tui.model import (
    ActionReview,
    BillingVerb,
    EvidenceItem,
    Forfeit,
    RiskLevel,
    StopPhase,
    StopProgress,
)

_NUMBERS = re.compile(r"\d[\d,.:]*")
_SIZES = re.compile(r"\b\d[\d.,]* (?:B|kB|KiB|[MGT]i?B)\b")


class ReviewChange(NamedTuple):
    """A difference from the previously shown review."""

    text: str
    shuts: bool = True
    """Whether the typed text is cleared, because it was typed for something else."""


def find_changes(
    before: ActionReview, after: ActionReview, *, chosen: bool = False
) -> tuple[ReviewChange, ...]:
    """Return the changes that the person must see before continuing, a line each.

    Args:
        before: The review that was shown.
        after: The review to show.
        chosen: Whether the person forfeited something in between; the consequences are not
            reported.
    """
    found: list[ReviewChange] = []
    if before.instance != after.instance:
        found.append(
            ReviewChange(
                translate(
                    "instance {before} → {after}", before=before.instance, after=after.instance
                )
            )
        )
    if before.status != after.status:
        found.append(
            ReviewChange(
                translate(
                    "provider says {status}, was {status_2}",
                    status=after.status,
                    status_2=before.status,
                )
            )
        )
    if before.will_send != after.will_send:
        found.append(
            ReviewChange(translate("will now send {will_send}", will_send=after.will_send))
        )
    if before.native_label != after.native_label:
        found.append(
            ReviewChange(
                translate(
                    "called {native_label}, was {native_label_2}",
                    native_label=after.native_label,
                    native_label_2=before.native_label,
                )
            )
        )
    if (before.per_hour, before.currency, before.at_least) != (
        after.per_hour,
        after.currency,
        after.at_least,
    ):
        found.append(ReviewChange(translate("the price per hour changed")))
    for name, old, new in (
        (translate("lost"), before.lost, after.lost),
        (translate("kept"), before.kept, after.kept),
        (translate("keeps billing"), before.keeps_billing, after.keeps_billing),
        (translate("without you"), before.dangers, after.dangers),
    ):
        # Only sizes may change unnoticed: a directory with another number is another directory.
        known, there = {_drop_sizes(text) for text in old}, {_drop_sizes(text) for text in new}
        found.extend(
            ReviewChange(translate("{name}, new: {words}", name=name, words=text))
            for text in new
            if _drop_sizes(text) not in known
        )
        found.extend(
            ReviewChange(translate("{name}, no longer: {words}", name=name, words=text))
            for text in old
            if _drop_sizes(text) not in there
        )
    # A new choice changes level, phrase and evidence by itself: that is no news.
    if chosen:
        return tuple(found)
    if (before.irreversible, before.level) != (after.irreversible, after.level):
        if level_of(after) is RiskLevel.IRREVERSIBLE:
            found.append(ReviewChange(translate("now irreversible")))
        else:
            found.append(ReviewChange(translate("now reversible")))
    elif (before.phrase, before.unprotect) != (after.phrase, after.unprotect):
        found.append(ReviewChange(translate("the text to type has changed")))
    found.extend(_refusal_changes(before, after))
    found.extend(_item_changes(before.items, after.items))
    return tuple(found)


def level_of(review: ActionReview) -> RiskLevel:
    """Return how much is at stake; the worse level if the review is inconsistent."""
    if review.irreversible:
        return RiskLevel.IRREVERSIBLE
    return review.level


def _refusal_changes(before: ActionReview, after: ActionReview) -> list[ReviewChange]:
    """Return new and removed refusals, except those that repeat a row of the evidence."""
    rows = {item.text for item in (*before.items, *after.items)}
    known, there = (
        {_drop_numbers(text) for text in before.refusals},
        {_drop_numbers(text) for text in after.refusals},
    )
    new = [text for text in after.refusals if _drop_numbers(text) not in known and text not in rows]
    gone = [
        text for text in before.refusals if _drop_numbers(text) not in there and text not in rows
    ]
    return [
        *(ReviewChange(translate("refused now: {words}", words=text), shuts=False) for text in new),
        *(
            ReviewChange(translate("no longer refused: {words}", words=text), shuts=False)
            for text in gone
        ),
    ]


def _item_changes(
    before: tuple[EvidenceItem, ...], after: tuple[EvidenceItem, ...]
) -> list[ReviewChange]:
    old = {item.key: item for item in before}
    kinds = {item.kind for item in after}
    found = []
    for item in after:
        known = old.pop(item.key, None)
        if known is None and not item.ok:
            found.append(ReviewChange(translate("{key} blocks it now", key=item.key), shuts=False))
        elif known is not None and known.ok != item.ok:
            if item.ok:
                text = translate("{key} is proved now", key=item.key)
            else:
                text = translate("{key} is no longer proved", key=item.key)
            found.append(ReviewChange(text, shuts=False))
    for key, item in old.items():
        if not item.ok:
            found.append(ReviewChange(translate("{key} no longer blocks it", key=key), shuts=False))
        # Nothing of this kind is checked any more: a proof is missing.
        elif item.kind not in kinds:
            found.append(ReviewChange(translate("{key} is no longer checked", key=key)))
    return found


def _drop_sizes(text: str) -> str:
    """Return a text without its sizes, which change all the time."""
    return _SIZES.sub("#", text)


def _drop_numbers(text: str) -> str:
    """Return a text without its numbers, which may be ages or steps."""
    return _NUMBERS.sub("#", text)


def _make_forfeit(item: EvidenceItem) -> Forfeit:
    return Forfeit(
        key=item.key,
        # The fact decides later whether the item has changed; without one, its text does.
        fact=item.fact or item.text,
        text=item.text,
        bytes=item.bytes,
        newest=item.newest,
    )


@dataclass(frozen=True)
class ItemChoice:
    """The forfeited and the ignored items, and the phrase typed to lift ``protected``."""

    forfeits: tuple[Forfeit, ...] = ()
    """As they were when the person forfeited them."""
    ignored: tuple[Forfeit, ...] = ()
    """Files that no run owns, as they were when the person marked them as no result."""
    unprotect: str = ""

    @property
    def forfeit_keys(self) -> frozenset[str]:
        """Keys for `rgt_tui.fleet.FleetSource.review_action`."""
        return frozenset(one.key for one in self.forfeits)

    @property
    def ignored_keys(self) -> frozenset[str]:
        """Keys for `rgt_tui.fleet.FleetSource.review_action`."""
        return frozenset(one.key for one in self.ignored)

    def give_up(self, item: EvidenceItem) -> tuple[ItemChoice, str]:
        """Forfeit an item, or undo that; also return a message, empty if the row shows it."""
        if item.key in self.forfeit_keys:
            return replace(self, forfeits=_without_key(self.forfeits, item.key)), ""
        if item.ok:
            return self, translate(
                "{kind} is proved: there is nothing to give up", kind=translate(item.kind)
            )
        if not item.forfeitable:
            return self, translate("{kind} cannot be given up", kind=translate(item.kind))
        # An item is either given up or ignored.
        ignored = _without_key(self.ignored, item.key)
        return replace(self, forfeits=(*self.forfeits, _make_forfeit(item)), ignored=ignored), ""

    def toggle_ignored(self, item: EvidenceItem) -> tuple[ItemChoice, str]:
        """Mark an item's files as no result, or undo that; also return a message."""
        if item.key in self.ignored_keys:
            return replace(self, ignored=_without_key(self.ignored, item.key)), ""
        if not item.ignorable:
            return self, translate(
                "{kind}: only unclaimed files can be ignored", kind=translate(item.kind)
            )
        if item.ok:
            return self, translate(
                "{kind} is proved already: these files are no result", kind=translate(item.kind)
            )
        forfeits = _without_key(self.forfeits, item.key)
        return replace(self, ignored=(*self.ignored, _make_forfeit(item)), forfeits=forfeits), ""

    def still_meant(self, review: ActionReview) -> tuple[ItemChoice, tuple[str, ...]]:
        """Drop choices whose item has changed since; also return a line for each of them."""
        items = {item.key: item for item in review.items}
        dropped: list[str] = []
        forfeits, ignored = [], []
        for one in self.forfeits:
            item = items.get(one.key)
            if item is None:
                dropped.append(
                    translate("no longer given up, it no longer exists: {words}", words=one.text)
                )
            elif item.ok:
                dropped.append(
                    translate("no longer given up, it is proved now: {words}", words=item.text)
                )
            # Given up as it was: later changes were not meant.
            elif (item.fact or item.text) != one.fact:
                dropped.append(
                    translate("no longer given up, it has changed: {words}", words=item.text)
                )
            else:
                forfeits.append(one)
        for one in self.ignored:
            item = items.get(one.key)
            if item is not None and _other_files(one, item):
                dropped.append(
                    translate("no longer ignored, it has changed: {words}", words=item.text)
                )
            else:
                ignored.append(one)
        if not dropped:
            return self, ()
        return replace(self, forfeits=tuple(forfeits), ignored=tuple(ignored)), tuple(dropped)


NOTHING = ItemChoice()
"""Nothing is forfeited."""


def _without_key(several: tuple[Forfeit, ...], key: str) -> tuple[Forfeit, ...]:
    return tuple(one for one in several if one.key != key)


def _other_files(one: Forfeit, item: EvidenceItem) -> bool:
    """Return whether newer or other files exist. The text of an ignored item may differ anyway."""
    if item.bytes is not None and one.bytes is not None and item.bytes != one.bytes:
        return True
    # Seconds by which a file's age may seem to differ between reviews, because two clocks are
    # compared.
    clock_s = 2.0
    return item.newest is not None and one.newest is not None and item.newest > one.newest + clock_s


GUARD_SECONDS = 0.3
"""Seconds after opening, or after a change of the consequences, in which input is dropped."""
STALE_SECONDS = 15.0
"""Maximum age of a review in seconds."""


class DialogStage(enum.StrEnum):
    """The stages of the dialog."""

    REVIEW = "review"
    """The person reads the review and types the name."""
    SENDING = "sending"
    """A request was sent, and is being followed."""
    YOURS = "yours"
    """rgt sends nothing: the person acts on the provider's console, and then confirms it here."""
    OFF = "off"
    """The provider reports that billing stopped, or the person does if no provider can be asked."""
    UNKNOWN = "unknown"
    """Something was or may have been sent, and the result is unknown."""


@dataclass(frozen=True)
class ConfirmState:
    """The whole state of the dialog."""

    box: str
    verb: BillingVerb
    guard_from: float
    """Client clock of the opening, or of the last change of the consequences."""
    offered: tuple[BillingVerb, ...] = (BillingVerb.DESTROY,)
    review: ActionReview | None = None
    review_error: str | None = None
    by_hand: bool = False
    """Only a person can stop this billing: nothing can be typed or pressed."""
    changed: tuple[str, ...] = ()
    """Differences from what the person saw before, newest last."""
    typed: str = ""
    stage: DialogStage = DialogStage.REVIEW
    closed: tuple[str, ...] = ()
    """Why the gate refused after OK. Nothing was sent."""
    progress: tuple[StopProgress, ...] = ()
    trouble: str | None = None
    """The error after OK."""
    elsewhere: bool = False
    """Whether a closed dialog already follows a request for this box."""
    choice: ItemChoice = NOTHING
    """What the person forfeits or ignores."""
    reviewed_for: ItemChoice = NOTHING
    """The choice for which `review` was requested."""
    told: str = ""
    """Message for the last key that had no effect."""
    pulling: bool = False
    """Whether results are being pulled from the box."""

    def accepts_input(self, now: float) -> bool:
        """Return whether input counts yet. A clock that was set back does not lock the dialog."""
        return not 0 <= now - self.guard_from < GUARD_SECONDS

    @property
    def wanted_text(self) -> str:
        """The exact text to type next; empty = none."""
        review = self.review
        if review is None:
            return self.box
        asks = level_of(review) in {RiskLevel.METER, RiskLevel.IRREVERSIBLE}
        return review.unprotect or review.phrase or (self.box if asks else "")

    @property
    def is_protected(self) -> bool:
        """Whether the box's protection must be lifted first."""
        return self.review is not None and bool(self.review.unprotect)

    def name_fits(self) -> bool:
        """Return whether the text was typed exactly, without any trimming or case folding."""
        return not self.is_protected and self.typed == self.wanted_text

    def list_blockers(self, now: float) -> tuple[str, ...]:
        """Return every reason why the button is disabled; the name comes last."""
        if self.stage is DialogStage.SENDING:
            return (translate("a request is being sent"),)
        if self.stage is DialogStage.YOURS:
            return (translate("you have to click on the console"),)
        if self.stage is not DialogStage.REVIEW:
            return (translate("the request has been sent"),)
        if self.elsewhere:
            found = [translate("another request for this box is still in progress")]
        else:
            found = []
        if self.pulling:
            found.append(translate("results are being pulled from this box"))
        if self.review_error is not None:
            found.append(
                translate("the review failed: {review_error}", review_error=self.review_error)
            )
        if self.review is None:
            found.append(translate("the review is in progress"))
        else:
            if self.review.box != self.box or self.review.verb is not self.verb:
                found.append(translate("the review is for another action"))
            if now - self.review.at > STALE_SECONDS:
                found.append(translate("the review is too old"))
            if self.reviewed_for != self.choice:
                found.append(translate("the review is being repeated"))
            # A review that gives up more than the person did must never be confirmed.
            elif not self.choice.forfeit_keys >= {one.key for one in self.review.forfeits}:
                found.append(translate("the review gives up items that you did not"))
            found.extend(self.review.refusals)
        if self.is_protected:
            found.append(translate("the fleet file protects this box"))
        elif not self.name_fits():
            if self.wanted_text == self.box:
                found.append(translate("the name has not been typed"))
            else:
                found.append(translate("the phrase has not been typed"))
        return tuple(found)

    def may_confirm(self, now: float) -> bool:
        """Return whether the button is enabled."""
        return not self.list_blockers(now)

    def apply_review(
        self, review: ActionReview, now: float, choice: ItemChoice | None = None
    ) -> ConfirmState:
        """Apply a new review.

        A review for another verb or choice than the current one is dropped.

        Args:
            review: The review.
            now: The client clock.
            choice: The choice when it was requested; None = the current choice.
        """
        if choice is None:
            asked = self.choice
        else:
            asked = choice
        if (
            review.verb is not self.verb
            or review.box != self.box
            or self.stage is not DialogStage.REVIEW
        ):
            return self
        # It would be shown as the review of the current choice.
        if asked != self.choice:
            return self
        new: tuple[ReviewChange, ...] = ()
        if self.review is not None:
            new = find_changes(self.review, review, chosen=self.reviewed_for != asked)
        meant, dropped = asked.still_meant(review)
        new += tuple(ReviewChange(text) for text in dropped)
        # More would push money and losses out of a small terminal.
        most_changes = 6
        changed = (*self.changed, *(one.text for one in new if one.text not in self.changed))[
            -most_changes:
        ]
        # An earlier action waits for the person: the dialog continues with that one.
        stage: DialogStage = self.stage
        if review.waits:
            stage = DialogStage.YOURS
        typed = self.typed
        # The name was typed for other consequences: it has to be typed again.
        if any(one.shuts for one in new):
            typed = ""
        guard_from = self.guard_from
        if new:
            guard_from = now
        return replace(
            self,
            review=review,
            stage=stage,
            verb=review.waiting or self.verb,
            reviewed_for=asked,
            choice=meant,
            review_error=None,
            changed=changed,
            typed=typed,
            guard_from=guard_from,
        )

    def give_up(self, key: str, now: float) -> ConfirmState:
        """Forfeit an item of the evidence, or undo that."""
        return self._choose_item(key, now, ItemChoice.give_up)

    def toggle_ignored(self, key: str, now: float) -> ConfirmState:
        """Mark the files of an item as no result, or undo that."""
        return self._choose_item(key, now, ItemChoice.toggle_ignored)

    def _choose_item(
        self,
        key: str,
        now: float,
        way: Callable[[ItemChoice, EvidenceItem], tuple[ItemChoice, str]],
    ) -> ConfirmState:
        """Change the choice: the typed text is cleared, and a new review is needed."""
        item = self.find_item(key)
        if self.stage is not DialogStage.REVIEW or item is None:
            return self
        choice, told = way(self.choice, item)
        if choice == self.choice:
            return replace(self, told=told)
        return replace(self, choice=choice, told=told, typed="", closed=(), guard_from=now)

    def find_item(self, key: str) -> EvidenceItem | None:
        """Return the item of the review with a key, or None."""
        if self.review is not None:
            items = self.review.items
        else:
            items = ()
        return next((item for item in items if item.key == key), None)

    def lift_protection(self, now: float) -> ConfirmState:
        """Lift the protection of the box, if exactly its phrase was typed."""
        review = self.review
        if review is None or not self.is_protected or self.typed != review.unprotect:
            return self
        return replace(
            self, choice=replace(self.choice, unprotect=self.typed), typed="", guard_from=now
        )

    def review_failed(self, verb: BillingVerb, text: str) -> ConfirmState:
        """Record that a review failed. The last one stays readable, but is not valid."""
        # The answer for a verb that the person has left since.
        if verb is not self.verb or self.stage is not DialogStage.REVIEW:
            return self
        return replace(self, review_error=text)

    def enter_text(self, typed: str) -> ConfirmState:
        """Apply the text of the field."""
        if self.stage is DialogStage.REVIEW:
            return replace(self, typed=typed, told="")
        return self

    def choose_verb(self, verb: BillingVerb, now: float) -> ConfirmState:
        """Switch to another verb: its review must be made, and the name typed again."""
        if self.stage is not DialogStage.REVIEW or verb is self.verb or verb not in self.offered:
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

    def press_confirm(self, now: float) -> tuple[ConfirmState, bool]:
        """Press the button; return the new state, and whether the request may be sent."""
        if not self.accepts_input(now) or not self.may_confirm(now):
            return self, False
        return replace(self, stage=DialogStage.SENDING, closed=(), progress=(), trouble=None), True

    def gate_closed(self, reasons: tuple[str, ...], now: float) -> ConfirmState:
        """Record that the gate refused after OK: nothing was sent; the name must be typed again."""
        # Steps were reported, so something was sent.
        if self.progress:
            return self.call_failed(
                translate("the gate closed after the request was made: ") + "; ".join(reasons)
            )
        return replace(self, stage=DialogStage.REVIEW, closed=reasons, typed="", guard_from=now)

    def apply_step(self, step: StopProgress) -> ConfirmState:
        """Apply one step of the request."""
        stage = {
            StopPhase.METER_OFF: DialogStage.OFF,
            StopPhase.YOURS: DialogStage.YOURS,
            StopPhase.UNCONFIRMED: DialogStage.UNKNOWN,
            StopPhase.FAILED: DialogStage.UNKNOWN,
        }.get(step.phase, self.stage)
        bad = stage is DialogStage.UNKNOWN
        trouble = self.trouble
        if bad:
            trouble = step.text
        return replace(self, stage=stage, progress=(*self.progress, step), trouble=trouble)

    def not_done(self, reasons: tuple[str, ...]) -> ConfirmState:
        """Reject the person's confirmation, with the reasons.

        The dialog keeps waiting for the stop.
        """
        return replace(self, told="; ".join(reasons))

    def call_failed(self, text: str) -> ConfirmState:
        """Record that the call failed: whether it arrived is unknown."""
        return replace(self, stage=DialogStage.UNKNOWN, trouble=text)

    def end_request(self) -> ConfirmState:
        """End the request. Without the provider's final report the state is unknown."""
        if self.stage is DialogStage.SENDING:
            return self.call_failed(
                translate("the provider has not confirmed that the meter is off")
            )
        return self

    @property
    def in_flight(self) -> bool:
        """Whether a request continues if the dialog is closed now."""
        return self.stage is DialogStage.SENDING


def describe_mismatch(typed: str, name: str) -> str:
    """Return how a typed text differs from `name`; empty if it does not, or may still become it."""
    if typed == name or (typed and name.startswith(typed)):
        return ""
    if not typed:
        return ""
    if typed.strip() == name:
        return translate("an extra space")
    if typed.casefold() == name.casefold():
        return translate("upper and lower case differ")
    at = next((i for i, (a, b) in enumerate(zip(typed, name, strict=False)) if a != b), len(name))
    if at >= len(name):
        return translate("longer than the text to type")
    char = typed[at]
    # Letters of other scripts may look the same, so the character is named.
    if not char.isascii():
        called = unicodedata.name(char, translate("no name")).lower()
        return translate(
            "character {at} does not match (U+{char:04X}, {called})",
            at=at + 1,
            char=ord(char),
            called=called,
        )
    return translate("differs from the text to type at character {at}", at=at + 1)
