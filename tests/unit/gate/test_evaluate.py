"""The judge: only complete, fresh and exact evidence opens the gate, and nothing else builds a permit."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

import rgt_tui
from rgt_tui.gate import apply_seal, confirmation_phrase, evaluate_evidence, facts_digest
from rgt_tui.gate.decision import MAX_AGE_S, PERMIT_S, REQUIRED
from rgt_tui.model import BillingVerb, CopyProgram, Evidence, EvidenceItem, Permit, Refusal, Seal
from tests.unit.gate.builders import NOW, TICKS, box, cell, evidence, sample

replace = msgspec.structs.replace


def refusal(found: Evidence, ticks: float = TICKS) -> str:
    result = evaluate_evidence(found, ticks)
    assert isinstance(result, Refusal), result
    return " | ".join(result.reasons)


@pytest.mark.parametrize("verb", list(BillingVerb))
def test_complete_evidence_gives_a_permit_for_exactly_this(verb: BillingVerb) -> None:
    found = evidence(verb=verb)
    permit = evaluate_evidence(found, TICKS, "the seal")
    assert isinstance(permit, Permit)
    assert permit == Permit(
        "autodl-demo",
        verb,
        "k3v9",
        facts_digest(found),
        TICKS + PERMIT_S,
        kind="runpod",
        account="default@vendor",
        seal="the seal",
        nonce=permit.nonce,
    )
    again = evaluate_evidence(found, TICKS)
    assert isinstance(again, Permit) and permit.nonce and again.nonce not in ("", permit.nonce)


@pytest.mark.parametrize("key", REQUIRED)
def test_every_item_is_required(key: str) -> None:
    found = evidence()
    found = replace(found, items=tuple(item for item in found.items if item.key != key))
    assert key in refusal(found)


@pytest.mark.parametrize("key", REQUIRED)
def test_one_bad_item_is_enough_and_a_second_good_one_does_not_heal_it(key: str) -> None:
    found = evidence()
    bad = EvidenceItem(key, False, f"{key} is bad", at=TICKS)
    assert refusal(replace(found, items=(*found.items, bad))) == f"{key} is bad"


def test_all_reasons_come_at_once() -> None:
    found = evidence()
    items = tuple(replace(item, ok=False, text=item.key) for item in found.items)
    assert refusal(replace(found, items=items)) == " | ".join(REQUIRED)


def test_further_evidence_must_hold_too() -> None:
    found = evidence()
    extra = EvidenceItem("loads", False, "1 checkpoint does not load", at=TICKS)
    assert refusal(replace(found, items=(*found.items, extra))) == "1 checkpoint does not load"


@pytest.mark.parametrize(
    ("later", "why"),
    [(9.5, "quiet"), (15.5, "provider"), (15.5, "identity"), (599.0, "results"), (-5.0, "quiet")],
)
def test_old_or_future_readings_refuse(later: float, why: str) -> None:
    assert f"{why}: the reading is" in refusal(evidence(), TICKS + later)


@pytest.mark.parametrize("kind", MAX_AGE_S)
@pytest.mark.parametrize("at", [None, float("nan"), float("inf")])
def test_a_reading_without_a_sane_time_refuses(kind: str, at: float | None) -> None:
    found = evidence()
    items = tuple(replace(item, at=at) if item.kind == kind else item for item in found.items)
    assert kind in refusal(replace(found, items=items))


def test_a_wall_clock_that_steps_makes_nothing_fresh() -> None:
    for now in (NOW - 7200, NOW + 7200):
        assert isinstance(evaluate_evidence(evidence(now=now), TICKS), Permit)
        assert "old" in refusal(evidence(now=now), TICKS + 30)


def test_a_forged_name_item_does_not_get_past_the_name() -> None:
    found = evidence(typed="something else")
    items = tuple(replace(item, ok=True) if item.key == "name" else item for item in found.items)
    assert "not exactly 'autodl-demo'" in refusal(replace(found, items=items))


def test_no_instance_no_permit() -> None:
    assert "no provider instance" in refusal(replace(evidence(), instance=""))


FAILED = box(cell(), cell("b", state="failed"))


def test_what_is_forfeited_by_name_stands_against_it_no_more_and_asks_for_a_longer_phrase() -> None:
    wanted = frozenset({"queue:b"})
    assert refusal(evidence(FAILED)) == "b is failed, not done"
    assert "something is given up" in refusal(evidence(FAILED, forfeits=wanted))
    found = evidence(FAILED, forfeits=wanted, typed="forfeit 1 of autodl-demo")
    assert isinstance(evaluate_evidence(found, TICKS), Permit)
    assert [forfeit.key for forfeit in found.forfeits] == ["queue:b"]
    forged = tuple(replace(item, ok=True) if item.key == "name" else item for item in found.items)
    assert "forfeit 1 of" in refusal(replace(found, items=forged, typed="autodl-demo"))


def test_a_forfeit_of_what_is_in_order_or_not_there_counts_for_nothing() -> None:
    found = evidence(forfeits=frozenset({"queue", "quiet", "no such item"}))
    assert found.forfeits == ()
    assert isinstance(evaluate_evidence(found, TICKS), Permit)


def test_what_may_not_be_forfeited_stays_against_it() -> None:
    found = evidence(typed="")
    every = frozenset(item.key for item in found.items)
    assert not evidence(typed="", forfeits=every).forfeits
    wrong = EvidenceItem("identity", False, "wrong machine", at=TICKS, forfeited=True)
    items = tuple(wrong if item.key == "identity" else item for item in evidence().items)
    forged = replace(evidence(), items=items)
    typed = confirmation_phrase("autodl-demo", "k3v9", forged.forfeits)
    assert refusal(
        replace(forged, typed=typed)
    ) == "wrong machine | the typed text is not the box's name" or (
        "wrong machine" in refusal(replace(forged, typed=typed))
    )


SEAL = Seal(nonce="n", generation="g1", at=NOW, seconds=120.0, skipped=(), problems=(), mounts=())


def test_the_seal_must_find_the_box_as_it_was_listed_and_quiet() -> None:
    found = evidence()
    assert isinstance(evaluate_evidence(apply_seal(found, SEAL, "", TICKS), TICKS), Permit)
    other = apply_seal(found, replace(SEAL, generation="g2"), "", TICKS)
    assert "files on the box have changed since they were listed" in refusal(other)
    busy = apply_seal(found, replace(SEAL, busy=("pid 7 trains",)), "", TICKS)
    assert "seen when it was sealed: pid 7 trains" in refusal(busy)
    lone = box(sample=sample(transfers=(CopyProgram(pid=5, name="rsync"),)))
    given_up = evidence(
        lone, forfeits=frozenset({"quiet:transfer 5"}), typed="forfeit 1 of autodl-demo"
    )
    still = apply_seal(given_up, replace(SEAL, busy=("rsync runs",)), "", TICKS)
    assert isinstance(evaluate_evidence(still, TICKS), Permit), "what runs and is given up runs on"
    changed = apply_seal(given_up, replace(SEAL, generation="g2"), "", TICKS)
    assert "files on the box have changed" in refusal(changed)
    assert "could not be sealed for the call: timed out" in refusal(
        apply_seal(found, None, "timed out", TICKS)
    )
    assert facts_digest(apply_seal(found, SEAL, "", TICKS)) == facts_digest(found), (
        "the seal is no fact of the box"
    )


@given(st.text(max_size=20))
def test_only_the_exact_name_opens(typed: str) -> None:
    assert isinstance(evaluate_evidence(evidence(typed=typed), TICKS), Permit) == (
        typed == "autodl-demo"
    )


def test_nobody_else_builds_a_permit() -> None:
    root = Path(rgt_tui.__file__).parent
    builders = {
        str(path.relative_to(root))
        for path in root.rglob("*.py")
        if re.search(
            r"(?<!class )\bPermit\(|\bPermit\b.*(convert|decode|replace)\(|replace\(permit",
            path.read_text(),
        )
    }
    assert builders == {"gate/decision.py"}
