"""The judge: only complete, fresh and exact evidence opens the gate, and nothing else builds a permit."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

import rgt_tui
from rgt_tui.gate import digest, evaluate
from rgt_tui.gate.decision import PERMIT_S, REQUIRED
from rgt_tui.model.evidence import Evidence, EvidenceItem, Permit, Refusal, Verb
from tests.unit.gate.builders import NOW, evidence

replace = msgspec.structs.replace


def refusal(found: Evidence, now: float = NOW) -> str:
    result = evaluate(found, now, now)
    assert isinstance(result, Refusal), result
    return " | ".join(result.reasons)


@pytest.mark.parametrize("verb", list(Verb))
def test_complete_evidence_gives_a_permit_for_exactly_this(verb: Verb) -> None:
    found = evidence(verb=verb)
    permit = evaluate(found, NOW, NOW)
    assert isinstance(permit, Permit)
    assert permit == Permit(
        "autodl-demo",
        verb,
        "k3v9",
        digest(found),
        NOW + PERMIT_S,
        kind="runpod",
        account="default@vendor",
        nonce=permit.nonce,
    )
    again = evaluate(found, NOW, NOW)
    assert isinstance(again, Permit) and permit.nonce and again.nonce not in ("", permit.nonce)


@pytest.mark.parametrize("key", REQUIRED)
def test_every_item_is_required(key: str) -> None:
    found = evidence()
    found = replace(found, items=tuple(item for item in found.items if item.key != key))
    assert key in refusal(found)


@pytest.mark.parametrize("key", REQUIRED)
def test_one_bad_item_is_enough_and_a_second_good_one_does_not_heal_it(key: str) -> None:
    found = evidence()
    bad = EvidenceItem(key, False, f"{key} is bad", at=NOW)
    assert refusal(replace(found, items=(*found.items, bad))) == f"{key} is bad"


def test_all_reasons_come_at_once() -> None:
    found = evidence()
    items = tuple(replace(item, ok=False, text=item.key) for item in found.items)
    assert refusal(replace(found, items=items)) == " | ".join(REQUIRED)


def test_further_evidence_must_hold_too() -> None:
    found = evidence()
    extra = EvidenceItem("loads", False, "1 checkpoint does not load", at=NOW)
    assert refusal(replace(found, items=(*found.items, extra))) == "1 checkpoint does not load"


@pytest.mark.parametrize(("later", "why"), [(10.5, "quiet"), (15.5, "provider"), (-5.0, "quiet")])
def test_old_or_future_readings_refuse(later: float, why: str) -> None:
    assert why in refusal(evidence(), NOW + later)


@pytest.mark.parametrize("at", [None, float("nan"), float("inf")])
def test_a_reading_without_a_sane_time_refuses(at: float | None) -> None:
    found = evidence()
    items = tuple(replace(item, at=at) if item.key == "quiet" else item for item in found.items)
    assert "quiet" in refusal(replace(found, items=items))


def test_a_forged_name_item_does_not_get_past_the_name() -> None:
    found = evidence(typed="something else")
    items = tuple(replace(item, ok=True) if item.key == "name" else item for item in found.items)
    assert "exact name" in refusal(replace(found, items=items))


def test_no_instance_no_permit() -> None:
    assert "no provider instance" in refusal(replace(evidence(), instance=""))


@given(st.text(max_size=20))
def test_only_the_exact_name_opens(typed: str) -> None:
    assert isinstance(evaluate(evidence(typed=typed), NOW, NOW), Permit) == (typed == "autodl-demo")


def test_the_digest_depends_on_every_word_and_not_on_the_run() -> None:
    found = evidence()
    assert digest(found) == digest(evidence())
    items = (replace(found.items[0], text=found.items[0].text + "."), *found.items[1:])
    assert digest(replace(found, items=items)) != digest(found)
    assert digest(replace(found, typed="x")) != digest(found)


def test_nobody_else_builds_a_permit() -> None:
    root = Path(rgt_tui.__file__).parent
    builders = {
        str(path.relative_to(root))
        for path in root.rglob("*.py")
        if re.search(
            r"(?<!class )\bPermit\(|\bPermit\b.*(convert|decode|replace)\(|replace\(permit", path.read_text()
        )
    }
    assert builders == {"gate/decision.py"}
