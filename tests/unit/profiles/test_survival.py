"""Which tier a path belongs to; in doubt the one that survives less."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rgt_tui.model import BillingVerb, DiskReading
from rgt_tui.profiles import (
    all_profiles,
    list_unmounted,
    load_profile,
    path_survives,
    tier_of,
    tiers_of,
    watched_mounts,
)


@pytest.mark.parametrize(
    ("id_", "path", "tier"),
    [
        ("autodl", "/", "system"),
        ("autodl", "/root/autodl-tmp", "data"),
        ("autodl", "/root/autodl-tmp/", "data"),
        ("autodl", "/root/autodl-tmp/proj/run", "data"),
        ("autodl", "/root/autodl-tmpfoo", "system"),
        ("autodl", "/root/autodl-fs/ckpt", "shared-fs"),
        ("vastai", "/workspace/x", "container-disk"),
        ("vastai", "/root", "container-disk"),
        ("runpod", "/workspace/x", "volume-disk"),
        ("runpod", "/runpod-volume/x", "network-volume"),
        ("runpod", "/root", "container-disk"),
        ("generic-ssh", "/mnt/data", "root"),
    ],
)
def test_longest_mount_wins(id_: str, path: str, tier: str) -> None:
    found = tier_of(load_profile(id_), path)
    assert found is not None
    assert found.name == tier


@given(st.sampled_from(sorted(all_profiles())), st.text(alphabet="/abrotuldf-sw.k", max_size=40))
def test_no_choice_survives_more_than_another_on_the_same_mount(id_: str, rest: str) -> None:
    profile = load_profile(id_)
    found = tier_of(profile, "/" + rest)
    if found is None:
        return
    worth = {False: 0, None: 1, True: 2}
    candidates = tiers_of("/" + rest, profile, {})
    assert found in candidates
    assert all(
        worth[found.survives_destroy] <= worth[other.survives_destroy] for other in candidates
    )


def test_what_the_fleet_file_says_beats_the_guess_of_the_profile() -> None:
    profile = load_profile("vastai")
    known = {"/mnt/volume": "volume", "/": "container-disk"}
    found = tier_of(profile, "/mnt/volume/final", known=known)
    assert found is not None
    assert found.name == "volume"
    other = tier_of(profile, "/workspace", known=known)
    assert other is not None
    assert other.name == "container-disk"


def test_a_shorter_word_of_the_fleet_file_does_not_hide_a_longer_mount_of_the_profile() -> None:
    found = tier_of(load_profile("autodl"), "/root/autodl-fs/x", known={"/": "system"})
    assert found is not None
    assert found.name == "shared-fs"


def test_a_tier_that_the_profile_lacks_is_not_known() -> None:
    assert tier_of(load_profile("vastai"), "/mnt/v", known={"/mnt/v": "no-such-tier"}) is None


def disk(mount: str, on: str | None = None, **over: object) -> DiskReading:
    return msgspec.structs.replace(DiskReading(mount=mount, on=on), **over)


@pytest.mark.parametrize(
    ("id_", "disks", "known", "told"),
    [
        # Lambda without a file system, Gpushare on an unmarked machine: the path is there, the disk is not.
        ("lambda", (disk("/"), disk("/lambda/nfs", "/")), {}, {"/lambda/nfs": "local-nvme"}),
        ("gpushare", (disk("/hy-netdisk", "/"),), {}, {"/hy-netdisk": "system"}),
        ("runpod", (disk("/workspace", "/"),), {}, {"/workspace": "container-disk"}),
        ("gpushare", (disk("/hy-netdisk"),), {}, {}),
        (
            "autodl",
            (disk("/root/autodl-fs", "/autodl-fs/data"),),
            {},
            {},
        ),  # a link to a mount of its own
        (
            "lambda",
            (disk("/lambda/nfs", "/"),),
            {"/lambda/nfs": "nfs-filesystem"},
            {},
        ),  # somebody knows better
        ("lambda", (disk("/mnt/mine", "/"),), {}, {}),  # no path of the profile
        ("vastai", (disk("/workspace", "/"),), {}, {}),  # the same disk either way
        ("gpushare", (disk("/hy-netdisk", "/", error="stale"),), {}, {}),  # nobody could look
        (
            "slurm",
            (disk("/scratch", "/"),),
            {},
            {"/scratch": ""},
        ),  # nothing is known of its root disk
    ],
)
def test_a_path_where_nothing_is_mounted_is_part_of_the_disk_around_it(
    id_: str, disks: tuple[DiskReading, ...], known: dict[str, str], told: dict[str, str]
) -> None:
    assert list_unmounted(load_profile(id_), disks, known) == told


def test_nothing_is_safe_in_a_directory_that_only_looks_like_durable_storage() -> None:
    profile = load_profile("gpushare")
    told = list_unmounted(profile, (disk("/hy-netdisk", "/"),), {})
    assert path_survives("/hy-netdisk/run", profile, told, BillingVerb.DESTROY) is False
    assert path_survives("/hy-netdisk/run", profile, {}, BillingVerb.DESTROY) is True
    slurm = load_profile("slurm")
    told = list_unmounted(slurm, (disk("/scratch", "/"),), {})
    assert path_survives("/scratch/run", slurm, told, BillingVerb.DESTROY) is None


def test_a_box_whose_data_disk_may_be_anywhere_is_watched_on_every_data_mount() -> None:
    assert watched_mounts((), load_profile("generic-ssh")) == ("/", "*")
    assert watched_mounts(("/data",), load_profile("generic-ssh")) == ("/data",)
    assert watched_mounts((), load_profile("autodl")) == (
        "/",
        "/root/autodl-tmp",
        "/root/autodl-fs",
    )
