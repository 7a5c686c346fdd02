"""What a person is shown, and what makes it out of date."""

from __future__ import annotations

import msgspec

from rgt_tui.gate import changes, review
from rgt_tui.model.box import BoxState
from rgt_tui.model.evidence import Review, Verb
from rgt_tui.model.money import Meter, MeterKind
from rgt_tui.model.profile import Profile
from rgt_tui.profiles import load_profile
from tests.unit.gate.builders import METER, NOW, PROFILE, box, cell, evidence

replace = msgspec.structs.replace


def made(
    verb: Verb = Verb.DESTROY,
    state: BoxState | None = None,
    meter: Meter = METER,
    profile: Profile | None = PROFILE,
    bills: tuple[str, ...] | None = None,
    known: dict[str, str] | None = None,
) -> Review:
    state = state or box()
    found = evidence(state, verb, meter=meter, profile=profile, typed="", known_tiers=known)
    return review(
        found,
        state,
        meter,
        profile,
        native_label="Terminate",
        will_send="DELETE https://x/v2/pods/k3v9",
        now=NOW,
        keeps_billing=bills,
        known_tiers=known,
    )


def test_a_destroy_names_what_is_lost_kept_and_billed() -> None:
    seen = made()
    assert "volume-disk (/workspace, 38.2 GB used)" in seen.lost
    assert "container-disk (/)" in seen.lost
    assert "odd (/odd): the profile does not say, so count it as lost" in seen.lost
    assert seen.kept == ("network-volume (/net)",)
    assert seen.keeps_billing[0] == "network-volume, if there is one: it outlives the box; price not known"
    assert seen.irreversible
    assert (seen.per_hour, seen.spent, seen.status) == (1.40, 3.0, "RUNNING")
    assert seen.will_send == "DELETE https://x/v2/pods/k3v9"


def test_a_park_keeps_the_volume_and_says_its_price() -> None:
    seen = made(Verb.PARK)
    assert not seen.irreversible
    assert any(line.startswith("volume-disk (/workspace") for line in seen.kept)
    assert "volume-disk: $0.20 per GB and month (2026-08)" in seen.keeps_billing


def test_what_the_platform_does_by_itself_is_said_before_the_call() -> None:
    """A park starts the clocks; what nothing can watch for is said with either verb."""
    real = {id_: load_profile(id_) for id_ in ("autodl", "vastai")}
    parked, destroyed = made(Verb.PARK, profile=real["autodl"]), made(profile=real["vastai"])
    assert parked.dangers[0].startswith("15d 0h after a stop: auto-release of the stopped box")
    assert any("data disk bills while stopped" in text for text in parked.dangers)
    assert [text.split(" (")[0] for text in destroyed.dangers] == [
        "Volume outlives the instance",
        "bandwidth is metered",
    ]
    assert made(profile=real["autodl"]).dangers == ()
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
    seen = made(state=box(cell(durable="failed")))
    assert len(seen.refusals) == 1
    assert "gpt-a" in seen.refusals[0]


def test_unknown_is_never_shown_as_free() -> None:
    lost = Meter(at=NOW, error="timed out")
    seen = made(meter=lost, bills=())
    assert seen.keeps_billing == (
        "the provider does not say what is billed now: check its console afterwards",
    )
    assert seen.status == "unknown: timed out"
    assert seen.per_hour is None
    seen = made(Verb.PARK, meter=replace(METER, storage_per_hour=None), bills=())
    assert seen.keeps_billing == ("storage, at a price that the provider did not say",)
    assert made(meter=replace(METER, kind=MeterKind.NONE), bills=()).keeps_billing == ()


def test_parts_without_a_price_are_named_and_the_price_is_a_lower_bound() -> None:
    seen = made(Verb.PARK, meter=replace(METER, at_least=True, unpriced=("volume disk",)), bills=())
    assert (seen.at_least, seen.spent_at_least) == (True, False)
    assert seen.keeps_billing == ("at a price that nobody said: volume disk",)


def test_the_profile_s_note_and_ways_are_part_of_the_review() -> None:
    stop = replace(PROFILE.billing[0], note="It may not come back.", how=("console: Stop",))
    seen = made(Verb.PARK, profile=replace(PROFILE, billing=(stop, PROFILE.billing[1])))
    assert (seen.note, seen.how) == ("It may not come back.", ("console: Stop",))
    assert (made(profile=None).note, made(profile=None).how) == (None, ())


def test_an_unknown_profile_counts_everything_as_lost() -> None:
    seen = made(profile=None)
    assert seen.lost == ("everything on the box: its platform is unknown",)
    assert seen.irreversible
    assert seen.refusals


def test_a_change_between_the_review_and_ok_is_named() -> None:
    shown = made()
    assert changes(shown, made()) == ()
    assert changes(shown, replace(made(), at=NOW + 9, spent=4.0)) == ()
    moved = made(meter=replace(METER, native_status="EXITED"))
    assert changes(shown, moved) == ("the provider said RUNNING, and says EXITED now",)
    undone = made(state=box(cell(durable="pending")))
    assert "no verified durable copy" in changes(shown, undone)[0]
    assert changes(shown, replace(shown, instance="other")) != ()
    assert changes(shown, replace(shown, will_send="DELETE y")) == ("the call is now DELETE y",)
    assert changes(shown, replace(shown, keeps_billing=("more",))) == (
        "what goes on billing has changed: more",
    )
