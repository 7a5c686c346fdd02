"""The shipped profiles: they decode, and they say the facts that decide about people's data and money."""

from __future__ import annotations

import pytest

from rgt_tui.health import BY_ID
from rgt_tui.model import ClockMode, ClockStart, DangerClock
from rgt_tui.profiles import ProfileError, all_profiles, load_profile

DAY = 86400.0


PLATFORMS = (
    "autodl",
    "colab",
    "digitalocean",
    "featurize",
    "generic-ssh",
    "gpushare",
    "kaggle",
    "kubernetes",
    "lambda",
    "lanrui",
    "local",
    "matpool",
    "paperspace-core",
    "paperspace-gradient",
    "runpod",
    "slurm",
    "vastai",
)


def test_every_platform_is_there() -> None:
    assert tuple(all_profiles()) == PLATFORMS


def test_the_same_profile_is_loaded_once() -> None:
    assert load_profile("runpod") is load_profile("runpod")


def test_what_is_returned_can_be_changed_without_harm() -> None:
    all_profiles().clear()
    assert "autodl" in all_profiles()


@pytest.mark.parametrize("id_", PLATFORMS)
def test_every_profile_names_its_danger_and_its_sources(id_: str) -> None:
    profile = load_profile(id_)
    assert len(profile.top_danger) > 40
    assert profile.sources
    assert all(source.url or source.cited_as for source in profile.sources)


@pytest.mark.parametrize(
    ("id_", "park", "destroy"),
    [("autodl", "关机", "释放"), ("runpod", "Stop", "Terminate"), ("vastai", "Stop", "Destroy")],
)
def test_the_verbs_carry_the_platforms_own_words(id_: str, park: str, destroy: str) -> None:
    labels = {
        action.kind: action.native_label
        for action in load_profile(id_).billing
        if action.kind != "other"
    }
    assert labels == {"park": park, "destroy": destroy}


@pytest.mark.parametrize(
    ("id_", "tier", "stop", "destroy", "bills"),
    [
        ("autodl", "system", True, False, None),
        ("autodl", "data", True, False, True),
        ("autodl", "shared-fs", True, True, True),
        ("runpod", "container-disk", False, False, False),
        ("runpod", "volume-disk", True, False, True),
        ("runpod", "network-volume", True, True, True),
        ("vastai", "container-disk", True, False, True),
        ("vastai", "volume", True, True, True),
        ("vastai", "cloud-sync", True, True, None),
        ("generic-ssh", "root", None, False, None),
        ("generic-ssh", "block-volume", None, None, None),
    ],
)
def test_what_survives_and_what_bills(
    id_: str, tier: str, stop: bool | None, destroy: bool | None, bills: bool | None
) -> None:
    found = next((one for one in load_profile(id_).tiers if one.name == tier), None)
    assert found is not None
    assert (found.survives_stop, found.survives_destroy, found.bills_while_stopped) == (
        stop,
        destroy,
        bills,
    )


def test_a_destroy_never_keeps_a_tier_that_does_not_survive_it() -> None:
    for profile in all_profiles().values():
        for action in profile.billing:
            if action.kind == "destroy":
                kept = [tier for tier in profile.tiers if tier.name in action.keeps]
                assert all(tier.survives_destroy for tier in kept), (profile.id, action.verb)
                lost = [tier for tier in profile.tiers if tier.name in action.loses]
                assert not any(tier.survives_destroy for tier in lost), (profile.id, action.verb)


def test_a_park_loses_exactly_what_a_stop_empties() -> None:
    for profile in all_profiles().values():
        for action in profile.billing:
            if action.kind == "park":
                emptied = {tier.name for tier in profile.tiers if tier.survives_stop is False}
                assert {*action.loses, *action.keeps_for_s} == emptied, profile.id


@pytest.mark.parametrize(
    ("id_", "seconds", "approx"), [("autodl", 15 * DAY, False), ("runpod", 30 * DAY, True)]
)
def test_the_clocks_that_a_stop_starts(id_: str, seconds: float, approx: bool) -> None:
    timed = [clock for clock in load_profile(id_).clocks if clock.counts_from is ClockStart.STOP]
    assert [(clock.after_s, clock.is_approximate) for clock in timed] == [(seconds, approx)]


CLOCKS = [
    pytest.param(clock, id=f"{p.id}: {clock.what}")
    for p in all_profiles().values()
    for clock in p.clocks
]


@pytest.mark.parametrize("clock", CLOCKS)
def test_every_clock_has_a_mode_and_what_its_mode_needs(clock: DangerClock) -> None:
    """A countdown has a beginning, a tripwire an alert that is really there, a charge the state in which it runs."""
    needs = {
        "countdown": clock.counts_from,
        "charge": clock.runs,
        "tripwire": clock.watched_by,
        "notice": "nothing",
    }
    assert needs[clock.mode]
    if clock.mode is ClockMode.TRIPWIRE:
        assert clock.watched_by in BY_ID
    assert clock.claims
    assert all(claim.url or claim.cited_as for claim in clock.claims)


def test_vast_does_not_say_what_becomes_of_an_ended_rental_and_the_worse_counts() -> None:
    (clock,) = [clock for clock in load_profile("vastai").clocks if clock.what == "ended rental"]
    assert clock.after_s == 48 * 3600
    assert clock.dispute_text is not None
    assert "48 h" in clock.dispute_text
    assert "host cleans up" in clock.dispute_text


def test_grace_of_a_preemption() -> None:
    assert load_profile("runpod").interruption.spot_grace_s == 5
    assert load_profile("vastai").interruption.spot_grace_s == 0
    assert load_profile("autodl").interruption.spot_grace_s is None


def test_unknown_stays_unknown() -> None:
    terminate = next(
        action for action in load_profile("runpod").billing if action.verb == "terminate"
    )
    assert terminate.stops_storage_meter is None
    assert load_profile("generic-ssh").billing[0].stops_gpu_meter is None


@pytest.mark.parametrize(
    ("typed", "meant"), [("runpood", "runpod"), ("vast", "vastai"), ("generic", "generic-ssh")]
)
def test_a_wrong_name_gets_the_nearest(typed: str, meant: str) -> None:
    with pytest.raises(ProfileError, match=f"'{typed}'; did you mean '{meant}'"):
        load_profile(typed)


@pytest.mark.parametrize("name", ["../runpod", "/etc/passwd", "", "runpod.toml"])
def test_a_name_is_never_a_path(name: str) -> None:
    with pytest.raises(ProfileError, match="no profile is called"):
        load_profile(name)
