"""Four levels, the phrases that have to be typed, and the digest that stands for facts alone."""

from __future__ import annotations

import msgspec
import pytest

from rgt_tui.gate import confirmation_phrase, facts_digest, find_digest_problem, unprotect_phrase
from rgt_tui.gate.decision import DIGEST_S, add_time_to_digest, level_of
from rgt_tui.model import BillingVerb, Evidence, Forfeit, ProviderRef, RiskLevel
from tests.unit.gate.builders import (
    METER,
    NOW,
    PROFILE,
    TICKS,
    box,
    cell,
    evidence,
    group,
    spec,
    told,
)

replace = msgspec.structs.replace


def forfeit(key: str) -> Forfeit:
    return Forfeit(key=key, fact="", text="")


def test_the_phrase_counts_what_is_given_up_and_names_the_instance_where_that_is_unproved() -> None:
    assert confirmation_phrase("lab", "k3v9") == "lab"
    assert confirmation_phrase("lab", "k3v9", (forfeit("queue:a"),)) == "forfeit 1 of lab"
    assert (
        confirmation_phrase("lab", "k3v9", (forfeit("queue:a"), forfeit("seal")))
        == "forfeit 2 of lab"
    )
    assert confirmation_phrase("lab", "k3v9", (forfeit("identity"),)) == "forfeit 1 of lab k3v9"
    assert unprotect_phrase("lab") == "unprotect lab"


def test_the_level_rises_with_what_can_be_lost() -> None:
    stop, terminate = PROFILE.billing
    assert level_of(BillingVerb.PARK, stop) is RiskLevel.METER
    assert level_of(BillingVerb.PARK, stop, (forfeit("queue:a"),)) is RiskLevel.IRREVERSIBLE
    assert level_of(BillingVerb.PARK, None) is RiskLevel.IRREVERSIBLE
    assert level_of(BillingVerb.PARK, replace(stop, reversible=False)) is RiskLevel.IRREVERSIBLE
    assert level_of(BillingVerb.DESTROY, terminate) is RiskLevel.IRREVERSIBLE
    assert (
        level_of(BillingVerb.DESTROY, replace(terminate, reversible=True)) is RiskLevel.IRREVERSIBLE
    )


SAME: list[dict[str, object]] = [
    {"now": NOW + 50},
    {"ticks": TICKS + 5, "meter_at": TICKS + 5},
    {"meter": replace(METER, spent=9.0, at=NOW + 5)},
    {"typed": "x"},
    {"unsealed": "no agent"},
]


@pytest.mark.parametrize("fields", SAME)
def test_the_digest_covers_no_time_no_age_and_nothing_typed(fields: dict[str, object]) -> None:
    assert facts_digest(evidence(None, BillingVerb.DESTROY, **fields)) == facts_digest(evidence())


def others() -> list[Evidence]:
    base = box()
    lone = told(group(), group("/workspace/x", owner=""))
    return [
        evidence(),
        evidence(verb=BillingVerb.PARK),
        evidence(box(spec=spec(name="other"))),
        evidence(box(spec=spec(provider=ProviderRef("runpod", "k3v9", key_env="OTHER")))),
        evidence(box(spec=spec(provider=ProviderRef("runpod", "other")))),
        evidence(replace(base, hello=None)),
        evidence(box(cell(), cell("b", state="failed"))),
        evidence(box(cell(), cell("b", state="failed")), forfeits=frozenset({"queue:b"})),
        evidence(meter=replace(METER, native_status="EXITED")),
        evidence(told=told(generation="g2")),
        evidence(told=lone),
        evidence(told=lone, ignored=frozenset({"results:/workspace/x"})),
        evidence(told=lone, forfeits=frozenset({"results:/workspace/x"})),
        evidence(told=told(group(), group("/workspace/x", owner="", fingerprint="new"))),
        evidence(readonly=True),
    ]


def test_the_digest_is_another_one_for_every_other_fact() -> None:
    digests = [facts_digest(one) for one in others()]
    assert len(set(digests)) == len(digests)
    assert facts_digest(evidence(told=told(group("/workspace/\udcff")))), "a name that is no text"


def test_a_dry_run_is_good_for_a_minute_of_this_start_of_the_computer() -> None:
    facts = facts_digest(evidence())
    made = add_time_to_digest(facts, TICKS)
    for age in (0.0, 0.9, DIGEST_S):
        assert find_digest_problem(made, facts, TICKS + age) is None
    for age in (DIGEST_S + 1.5, -5.0, 86_400.0, float("nan")):
        assert "older than 60 s" in str(find_digest_problem(made, facts, TICKS + age))
    assert "has changed since the dry run" in str(find_digest_problem(made, "0" * 64, TICKS))
    for nonsense in (
        "",
        facts,
        f"{facts}-",
        f"{facts}-x",
        f"{facts}-1e9",
        "-5000",
        f"{facts}-{'9' * 5000}",
    ):
        assert find_digest_problem(nonsense, facts, TICKS) is not None
