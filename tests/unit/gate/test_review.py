"""What a person is shown, and what makes it out of date."""

from __future__ import annotations

import msgspec

from rgt_tui.gate import build_review, find_storage_tiers, list_review_changes
from rgt_tui.model import (
    ActionReview,
    BillingVerb,
    BoxState,
    DiskReading,
    Meter,
    MeterKind,
    RiskLevel,
)
from rgt_tui.profiles import load_profile
from tests.unit.gate.builders import (
    METER,
    NOW,
    PROFILE,
    TICKS,
    box,
    cell,
    evidence,
    group,
    proof,
    sample,
    situation,
    spec,
    told,
)

replace = msgspec.structs.replace


def made(
    verb: BillingVerb = BillingVerb.DESTROY,
    state: BoxState | None = None,
    meter: Meter = METER,
    bills: tuple[str, ...] | None = None,
    known: dict[str, str] | None = None,
    says: dict[str, object] | None = None,
    **fields: object,
) -> ActionReview:
    fields = {"meter": meter, "tiers": known or {}, **fields}
    given = situation(state, verb, **fields)
    found = evidence(state, verb, **{"typed": "", **fields, **(says or {})})
    return build_review(
        found,
        given,
        native_label="Terminate",
        will_send="DELETE https://x/v2/pods/k3v9",
        known=find_storage_tiers(given, verb)[0],
        keeps_billing=bills,
    )


def test_a_destroy_names_what_is_lost_kept_and_billed() -> None:
    seen = made()
    assert "volume-disk (/workspace, 38.2 GB used)" in seen.lost
    assert "container-disk (/)" in seen.lost
    assert "odd (/odd): not in the profile, so count it as lost" in seen.lost
    assert seen.kept == ("network-volume (/net)",)
    assert (
        seen.keeps_billing[0]
        == "network-volume, if there is one: it outlives the box; price unknown"
    )
    assert seen.irreversible
    assert (seen.per_hour, seen.spent, seen.status) == (1.40, 3.0, "RUNNING")
    assert seen.will_send == "DELETE https://x/v2/pods/k3v9"


def test_a_park_keeps_the_volume_and_says_its_price() -> None:
    seen = made(BillingVerb.PARK)
    assert not seen.irreversible
    assert any(line.startswith("volume-disk (/workspace") for line in seen.kept)
    assert "volume-disk: $0.20 per GB and month (2026-08)" in seen.keeps_billing


def test_what_the_platform_does_without_the_person_is_said_before_the_call() -> None:
    """A park starts the clocks; what nothing can watch for is said with either verb."""
    real = {id_: load_profile(id_) for id_ in ("autodl", "vastai")}
    parked, destroyed = made(BillingVerb.PARK, profile=real["autodl"]), made(profile=real["vastai"])
    assert parked.dangers[0].startswith("15d 0h after a stop: auto-release of the stopped box")
    assert any("data disk bills while stopped" in text for text in parked.dangers)
    assert [text.split(" (")[0] for text in destroyed.dangers] == [
        "Volume outlives the instance",
        "bandwidth is metered",
    ]
    (tidal,) = made(profile=real["autodl"]).dangers
    assert "tidal" in tidal
    assert tidal.endswith(" (2026-08)")
    assert all(text.endswith(" (2026-06)") for text in destroyed.dangers)
    assert made(profile=load_profile("generic-ssh")).dangers == ()
    assert made(profile=None).dangers == ()


def test_the_providers_own_prices_take_precedence() -> None:
    assert made(bills=("volume disk: $0.0274/h",)).keeps_billing == ("volume disk: $0.0274/h",)
    assert made(bills=()).keeps_billing == ()


def test_a_tier_that_the_provider_rules_out_is_not_listed() -> None:
    seen = made(known={"/": "container-disk", "/workspace": "volume-disk", "/net": "volume-disk"})
    assert seen.kept == ()
    assert made(known={"/": "container-disk"}).kept == (), "promised a tier that is not mounted"
    assert made(known={"/net": "network-volume"}).kept == ("network-volume (/net)",)


def test_the_untyped_name_is_not_a_refusal_and_everything_else_is() -> None:
    assert made().refusals == ()
    seen = made(state=box(cell(durable="failed", durable_path=None)))
    assert len(seen.refusals) == 1
    assert "gpt-a" in seen.refusals[0]


def test_unknown_is_never_shown_as_free() -> None:
    lost = Meter(at=NOW, error="timed out")
    seen = made(meter=lost, bills=())
    assert seen.keeps_billing == (
        "the provider does not report current charges: check its console afterwards",
    )
    assert seen.status == "unknown: timed out"
    assert seen.per_hour is None
    seen = made(BillingVerb.PARK, meter=replace(METER, storage_per_hour=None), bills=())
    assert seen.keeps_billing == ("storage, price unknown",)
    assert made(meter=replace(METER, kind=MeterKind.NONE), bills=()).keeps_billing == ()


def test_parts_without_a_price_are_named_and_the_price_is_a_lower_bound() -> None:
    seen = made(
        BillingVerb.PARK, meter=replace(METER, at_least=True, unpriced=("volume disk",)), bills=()
    )
    assert (seen.at_least, seen.spent_at_least) == (True, False)
    assert seen.keeps_billing == ("price unknown: volume disk",)


def test_the_profile_s_note_and_ways_are_part_of_the_review() -> None:
    stop = replace(PROFILE.billing[0], note="It may not come back.", how=("console: Stop",))
    seen = made(BillingVerb.PARK, profile=replace(PROFILE, billing=(stop, PROFILE.billing[1])))
    assert (seen.note, seen.how) == ("It may not come back. (not dated)", ("console: Stop",))
    vast = made(BillingVerb.PARK, profile=load_profile("vastai"))
    assert vast.note is not None
    assert vast.note.endswith(" (2026-06)")
    assert vast.checked.startswith("what Stop does (2026-0")
    assert (made(profile=None).note, made(profile=None).how) == (None, ())


def test_a_park_at_runpod_asks_to_pull_first() -> None:
    """A stopped pod may not start for days, and its volume disk is out of reach until it does."""
    runpod = load_profile("runpod")
    park = made(BillingVerb.PARK, profile=runpod)
    assert park.first is not None
    assert park.first.startswith("pull what lies on the volume disk")
    assert "without a GPU" not in (park.note or "")
    assert made(BillingVerb.DESTROY, profile=runpod).first is None, "there the evidence demands it"
    assert made(BillingVerb.PARK, profile=load_profile("vastai")).first is None


def test_an_unknown_profile_counts_everything_as_lost() -> None:
    seen = made(profile=None)
    assert seen.lost == ("everything on the box: its platform is unknown",)
    assert seen.irreversible
    assert seen.refusals


def test_a_change_between_the_review_and_ok_is_named() -> None:
    shown = made()
    assert list_review_changes(shown, made()) == ()
    assert list_review_changes(shown, replace(made(), at=NOW + 9, spent=4.0)) == ()
    moved = made(meter=replace(METER, native_status="EXITED"))
    assert list_review_changes(shown, moved) == (
        "the provider's status was RUNNING and is EXITED now",
    )
    undone = made(state=box(cell(), cell("b", state="failed")))
    assert list_review_changes(shown, undone) == ()
    running = made(state=box(cell(), cell("b", state="running")), known=None)
    assert list_review_changes(shown, running) == ()
    assert list_review_changes(shown, replace(shown, instance="other")) != ()
    assert list_review_changes(shown, replace(shown, will_send="DELETE y")) == (
        "the call is now DELETE y",
    )
    assert list_review_changes(shown, replace(shown, keeps_billing=("more",))) == (
        "what keeps billing has changed: more",
    )


def test_what_is_lost_or_kept_now_and_was_not_shown_shuts_the_gate_again() -> None:
    shown = made()
    more = made(known={"/": "container-disk", "/workspace": "volume-disk"})
    assert any(
        "no longer kept: network-volume (/net)" in line for line in list_review_changes(shown, more)
    )
    assert any(
        "kept now, but not in the review" in line for line in list_review_changes(more, shown)
    )
    _, *others = sample().disks
    grown = box(
        sample=sample(disks=(DiskReading(mount="/workspace", bytes_used=39_900_000_000), *others))
    )
    assert made(state=grown).lost != shown.lost
    assert list_review_changes(shown, made(state=grown)) == (), "sizes grow all the time"
    assert list_review_changes(shown, replace(shown, lost=(*shown.lost, "the other volume"))) == (
        "lost now, but not in the review: the other volume",
    )


def test_what_is_given_up_must_be_what_was_shown() -> None:
    lone = group("/workspace/x", owner="")
    says: dict[str, object] = {"forfeits": frozenset({"results:/workspace/x"})}
    shown = made(told=told(group(), lone), says=says)
    assert shown.refusals == ()
    assert [forfeit.key for forfeit in shown.forfeits] == ["results:/workspace/x"]
    assert shown.forfeits[0].bytes == lone.bytes
    assert list_review_changes(shown, made(told=told(group(), lone), says=says)) == ()
    newer = replace(lone, fingerprint="other")
    assert any(
        "differs from the review" in line
        for line in list_review_changes(shown, made(told=told(group(), newer), says=says))
    )
    assert any(
        "given up now" in line
        for line in list_review_changes(made(told=told(group(), lone)), shown)
    )
    pulled = made(told=told(group(), lone, proofs=(proof("/workspace/x"),)), says=says)
    assert pulled.forfeits == () and pulled.phrase == "autodl-demo"


def test_the_review_says_what_has_to_be_typed_and_how_grave_it_is() -> None:
    seen = made()
    assert (seen.level, seen.phrase, seen.unprotect) == (RiskLevel.IRREVERSIBLE, "autodl-demo", "")
    assert made(BillingVerb.PARK).level is RiskLevel.METER
    lone = told(group(), group("/root/x", owner=""))
    forced = made(BillingVerb.PARK, told=lone, says={"forfeits": frozenset({"results:/root/x"})})
    assert (forced.level, forced.phrase) == (RiskLevel.IRREVERSIBLE, "forfeit 1 of autodl-demo")
    assert forced.irreversible
    guarded = made(state=box(spec=spec(protected=True)))
    assert guarded.unprotect == "unprotect autodl-demo"
    assert guarded.refusals


def test_an_items_age_is_counted_by_the_steady_clock_and_goes_on_while_it_is_shown() -> None:
    seen = made()
    ages = {item.kind: seen.item_age_s(item, NOW + 3) for item in seen.items}
    assert ages["queue"] == 503.0
    assert ages["quiet"] == 4.0
    assert ages["results"] == 5.0
    assert seen.item_age_s(replace(seen.items[0], at=None), NOW) is None
    assert seen.item_age_s(seen.items[0], NOW - 7200) == TICKS - (seen.items[0].at or 0.0)
