"""What is different between two reviews of the same action, in words. Ages and running sums are not differences."""

from __future__ import annotations

import re

from rgt_tui.model.evidence import EvidenceItem, Review

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
    if (before.per_hour, before.currency) != (after.per_hour, after.currency):
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
