"""Every danger that is known of a platform has its clock: the table says which clock stands for which danger."""

from __future__ import annotations

import pytest

from rgt_tui.profiles import all_profiles

CLOCKS: dict[str, dict[str, str]] = {
    "autodl": {
        "stopped instance is auto-released": "auto-release of the stopped box",
        "low balance or arrears": "arrears",
        "data-disk storage rate while stopped": "data disk bills while stopped",
        "forgotten running instance": "forgotten box",
        "long-running nohup process": "long nohup job",
    },
    "runpod": {
        "stopped Pod bills its volume disk at double rate": "volume disk at double rate",
        "GPU rented away while stopped": "GPU rented to someone else",
        "account balance too low to cover runtime": "low balance",
        "long-stopped Pod removed": "removal of a long-stopped Pod",
        "Spot reclaim": "spot reclaim",
        "container disk fills": "container disk fills",
        "prepaid savings plan": "prepaid savings plan",
    },
    "vastai": {
        "stopped instance bills its disk": "disk bills while stopped",
        "bandwidth metering": "bandwidth is metered",
        "Volume outlives the instance": "Volume outlives the instance",
        "balance reaches zero": "zero balance",
        "host-set rental end date": "end date set by the host",
        "outbid or displaced by on-demand": "outbid",
        "stuck Scheduling": "stuck in Scheduling",
        "host disappears": "host disappears",
        "unbounded status poll": "waiting without an end",
    },
    "generic-ssh": {
        "forgotten box": "forgotten box",
        "SSH drop without detach": "SSH drops",
        "host reboot": "host reboots",
    },
}
"""Platform → known danger → ``what`` of its clock."""


@pytest.mark.parametrize("platform", sorted(all_profiles()))
def test_every_known_danger_has_its_own_clock(platform: str) -> None:
    clocks = [clock.what for clock in all_profiles()[platform].clocks]
    named = list(CLOCKS[platform].values())
    assert len(set(named)) == len(named), "one clock cannot stand for two dangers"
    assert not [what for what in named if what not in clocks]
    assert len(set(clocks)) == len(clocks)


def test_no_platform_of_the_table_is_missing() -> None:
    assert set(CLOCKS) == set(all_profiles())
