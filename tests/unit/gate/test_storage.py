"""Which tier a path lies on: the longest mount point, and the worst of several candidates."""

from __future__ import annotations

import pytest

from rgt_tui.model import BillingAction, BillingVerb, Overrides, Profile, StorageTier
from rgt_tui.profiles import action_for, path_survives, tier_survives, tiers_of
from tests.unit.gate.builders import PROFILE


def profile(*tiers: StorageTier, billing: tuple[BillingAction, ...] = ()) -> Profile:
    return Profile(
        id="x",
        name="X",
        kind="ssh-rental",
        confidence="from-docs",
        top_danger="-",
        overrides=Overrides(detach="tmux"),
        tiers=tiers,
        billing=billing,
    )


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("/workspace", "volume-disk"),
        ("/workspace/a/b", "volume-disk"),
        ("/workspace2", "container-disk"),
        ("/", "container-disk"),
        ("/net/./x", "network-volume"),
    ],
)
def test_the_longest_mount_point_holds_the_path(path: str, name: str) -> None:
    assert [tier.name for tier in tiers_of(path, PROFILE, {})] == [name]


@pytest.mark.parametrize(
    "path", ["", "x", "~/x", "/net/../root", "//net/x", "s3://bucket/x", "./net"]
)
def test_a_path_that_is_not_plain_lies_nowhere(path: str) -> None:
    assert tiers_of(path, PROFILE, {}) == ()
    assert path_survives(path, PROFILE, {}, BillingVerb.DESTROY) is None


@pytest.mark.parametrize(
    ("fates", "answer"),
    [
        ((True, True), True),
        ((True, None), None),
        ((True, False), False),
        ((None, False), False),
        ((None,), None),
    ],
)
def test_the_worst_candidate_counts(fates: tuple[bool | None, ...], answer: bool | None) -> None:
    tiers = [
        StorageTier(f"t{number}", ("/d",), survives_destroy=fate)
        for number, fate in enumerate(fates)
    ]
    assert path_survives("/d/x", profile(*tiers), {}, BillingVerb.DESTROY) is answer


def test_where_action_and_tier_disagree_the_worse_counts() -> None:
    action = BillingAction("v", "V", "destroy", True, None, False, keeps=("a", "b"), loses=("c",))
    assert (
        tier_survives(StorageTier("a", survives_destroy=False), BillingVerb.DESTROY, action)
        is False
    )
    assert tier_survives(StorageTier("b"), BillingVerb.DESTROY, action) is True
    assert (
        tier_survives(StorageTier("c", survives_destroy=True), BillingVerb.DESTROY, action) is False
    )


def test_what_is_kept_for_some_hours_or_not_surely_is_not_counted_on() -> None:
    action = BillingAction(
        "v", "V", "park", True, keeps=("a",), uncertain=("b", "c"), keeps_for_s={"d": 86_400.0}
    )
    fates = {
        name: tier_survives(StorageTier(name, survives_stop=True), BillingVerb.PARK, action)
        for name in "abcd"
    }
    assert fates == {"a": True, "b": None, "c": None, "d": False}
    assert tier_survives(StorageTier("c", survives_stop=False), BillingVerb.PARK, action) is False


def test_of_several_actions_the_one_that_stops_the_meter_is_taken() -> None:
    pause = BillingAction("pause", "Pause", "park", False, False, True)
    stop = BillingAction("stop", "Stop", "park", True, False, True)
    assert action_for(profile(billing=(pause, stop)), BillingVerb.PARK) is stop
    assert action_for(profile(billing=(pause,)), BillingVerb.PARK) is pause
    assert action_for(profile(), BillingVerb.DESTROY) is None
