"""Platform by platform: what outlives which verb, which verbs there are, and whether they stop the meter.

The tables stand here by themselves, written from the facts and not from the files: what is said of people's data has to
be changed in two places.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from rgt_tui.model import BillingVerb, ClockMode, ClockStart, Profile, format_duration
from rgt_tui.profiles import (
    action_for,
    all_profiles,
    describe_missing_verb,
    list_kept_charges,
    list_manual_steps,
    load_profile,
    path_survives,
    tier_survives,
)

PARK, DESTROY = BillingVerb.PARK, BillingVerb.DESTROY
DAY, HOUR = 86400.0, 3600.0
KEPT, LOST, OPEN = True, False, None

FATES = [
    ("lambda", "/home/ubuntu/run", OPEN, LOST),
    ("lambda", "/lambda/nfs/shared/run", OPEN, KEPT),
    ("paperspace-core", "/home/paperspace/run", KEPT, LOST),
    ("paperspace-gradient", "/storage/run", KEPT, KEPT),
    ("paperspace-gradient", "/notebooks/run", KEPT, LOST),
    ("paperspace-gradient", "/usr/local/lib/python3", LOST, LOST),
    ("digitalocean", "/root/run", OPEN, LOST),
    ("matpool", "/root/run", OPEN, LOST),
    ("matpool", "/mnt/run", KEPT, KEPT),
    ("gpushare", "/root/run", LOST, LOST),
    ("gpushare", "/hy-tmp/run", LOST, LOST),
    ("gpushare", "/hy-netdisk/run", KEPT, KEPT),
    ("gpushare", "/hy-nas/run", KEPT, OPEN),
    ("featurize", "/home/featurize/run", OPEN, LOST),
    ("featurize", "/home/featurize/models", OPEN, LOST),
    ("featurize", "/home/featurize/work", OPEN, KEPT),
    ("featurize", "/cloud/run", OPEN, KEPT),
    ("lanrui", "/home/user/run", LOST, LOST),
    ("lanrui", "/home/user/datadisk/run", KEPT, LOST),
    ("lanrui", "/home/user/netdisk/data/run", KEPT, KEPT),
    ("slurm", "/scratch/alice/run", KEPT, KEPT),
    ("slurm", "/home/alice/run", OPEN, OPEN),  # where $HOME is mounted, the site decides
    ("slurm", "/tmp/job/run", OPEN, OPEN),
    ("kubernetes", "/checkpoints/run", KEPT, KEPT),
    ("kubernetes", "/workspace/run", LOST, LOST),
    ("colab", "/content/run", LOST, LOST),
    ("colab", "/content/drive/MyDrive/run", KEPT, KEPT),
    ("kaggle", "/kaggle/working/run", OPEN, OPEN),  # only a commit that succeeds keeps it
    ("kaggle", "/kaggle/temp/run", LOST, LOST),
    ("local", "/home/me/run", KEPT, OPEN),
]


@pytest.mark.parametrize(("id_", "path", "park", "destroy"), FATES)
def test_what_outlives_which_verb(
    id_: str, path: str, park: bool | None, destroy: bool | None
) -> None:
    profile = load_profile(id_)
    assert path_survives(path, profile, {}, PARK) is park
    assert path_survives(path, profile, {}, DESTROY) is destroy


NONE = None
VERBS = [
    ("lambda", NONE, ("Terminate", True)),
    ("paperspace-core", ("Shut down", True), ("Deactivate", True)),
    ("paperspace-gradient", ("Stop", True), ("Delete notebook", True)),
    ("digitalocean", NONE, ("Destroy", True)),
    ("matpool", NONE, ("停止并释放", True)),
    ("gpushare", ("关机", True), ("释放", True)),
    ("featurize", NONE, ("实例归还", True)),
    ("lanrui", ("停止", True), NONE),
    ("slurm", NONE, ("scancel", True)),
    ("kubernetes", ("suspend the Job", False), ("kubectl delete job", False)),  # the node costs on
    ("colab", NONE, NONE),
    ("kaggle", NONE, NONE),
    ("local", NONE, NONE),
]
"""What parks and what destroys, by the platform's own word, and whether the GPU's meter stops."""


@pytest.mark.parametrize(("id_", "park", "destroy"), VERBS)
def test_which_verbs_there_are(
    id_: str, park: tuple[str, bool] | None, destroy: tuple[str, bool] | None
) -> None:
    profile = load_profile(id_)
    for verb, wanted in ((PARK, park), (DESTROY, destroy)):
        action = action_for(profile, verb)
        assert (None if action is None else (action.native_label, action.stops_gpu_meter)) == wanted


def test_a_park_stops_the_meter_and_can_be_undone() -> None:
    """Power off at DigitalOcean is not offered as a park. At Kubernetes the meter is the node's: the gate says so."""
    for profile in all_profiles().values():
        for action in profile.billing:
            if action.kind == "park":
                assert action.stops_gpu_meter is (profile.id != "kubernetes"), (
                    profile.id,
                    action.verb,
                )
                assert action.reversible is not False, (profile.id, action.verb)


TRAPS = {
    "lambda": "shutdown inside the machine",
    "digitalocean": "Power off",
    "featurize": "shutdown on the box",
}


@pytest.mark.parametrize(("id_", "label"), TRAPS.items())
def test_what_only_looks_like_a_stop_is_a_trap(id_: str, label: str) -> None:
    (trap,) = [action for action in load_profile(id_).billing if action.trap]
    assert trap.native_label == label
    assert trap.stops_gpu_meter is not True


COUNTDOWNS = [
    ("gpushare", {("stop", 10 * DAY), ("stop", DAY), ("balance", 15 * DAY)}),
    ("paperspace-gradient", {("start", 6 * HOUR), ("start", 12 * HOUR)}),
    ("colab", {("start", 12 * HOUR)}),
    ("kaggle", {("start", 9 * HOUR), ("quota", None)}),
    ("slurm", {("walltime", None)}),
    ("kubernetes", {("end_date", None)}),
    ("lambda", set()),
    ("digitalocean", set()),
    ("lanrui", set()),
]


@pytest.mark.parametrize(("id_", "wanted"), COUNTDOWNS)
def test_what_runs_down_by_itself(id_: str, wanted: set[tuple[str, float | None]]) -> None:
    found = {
        (None if clock.counts_from is None else clock.counts_from.value, clock.after_s)
        for clock in load_profile(id_).clocks
        if clock.mode is ClockMode.COUNTDOWN
    }
    assert found == wanted


CHARGES = [
    ("digitalocean", "stopped"),
    ("paperspace-core", "stopped"),
    ("lanrui", "stopped"),
    ("lanrui", "always"),
    ("gpushare", "always"),
    ("paperspace-gradient", "always"),
]


@pytest.mark.parametrize(("id_", "runs"), CHARGES)
def test_what_goes_on_costing_money(id_: str, runs: str) -> None:
    assert [clock for clock in load_profile(id_).clocks if clock.runs == runs]


def test_a_quota_is_no_time_that_begins_when_it_is_used_up() -> None:
    quotas = [
        clock
        for profile in all_profiles().values()
        for clock in profile.clocks
        if clock.counts_from is ClockStart.QUOTA
    ]
    assert quotas
    assert all(clock.after_s is None for clock in quotas)


def test_where_sources_differ_the_worse_is_what_counts() -> None:
    disputes = {
        profile.id: [
            clock.dispute_text for clock in profile.clocks if clock.dispute_text is not None
        ]
        for profile in all_profiles().values()
    }
    assert "outlive the machine" in disputes["paperspace-core"][0]
    assert "removes them as well" in disputes["paperspace-core"][0]
    assert "no data disk bills" in disputes["gpushare"][0]
    assert all(
        len(one.sides) >= 2 and one.counts
        for p in all_profiles().values()
        for one in p.contradictions
    )


def test_nobody_can_be_told_that_a_durable_place_is_safe_which_is_not() -> None:
    """The directory that stands in for `durable` outlives a destroy, or a verb that ends the machine does not exist."""
    for profile in all_profiles().values():
        durable = profile.overrides.durable_dir
        if durable is not None:
            answer = path_survives(durable, profile, {}, DESTROY)
            assert answer is not False, profile.id
            assert answer is True or profile.id == "kaggle", profile.id


PAGE = Path(__file__).parents[3] / "docs" / "profiles.md"
AFTER = {ClockStart.STOP: " after the stop", ClockStart.START: " after the start"}


LACKING = [
    (
        "lambda",
        PARK,
        "Lambda Cloud has no action that would park a box: only Terminate ends the bill "
        "(shutdown inside the machine does not)",
    ),
    (
        "digitalocean",
        PARK,
        "DigitalOcean has no action that would park a box: only Destroy ends the bill (Power off does not)",
    ),
    (
        "matpool",
        PARK,
        "Matpool has no action that would park a box: only 停止并释放 (stop and release) ends the bill",
    ),
    (
        "slurm",
        PARK,
        "Slurm has no action that would park a box: nothing bills there; scancel ends it",
    ),
    (
        "local",
        DESTROY,
        "Local workstation has no action that would destroy a box: nothing bills there",
    ),
    ("colab", PARK, "Google Colab has no action that would park a box: nothing bills there"),
    (
        "lanrui",
        DESTROY,
        "LanRui has no action that would destroy a box: to spend nothing at all takes "
        "停止 (stop), then 销毁数据盘 (destroy the data disk), and less than 10 GB on the netdisk",
    ),
]


@pytest.mark.parametrize(("id_", "verb", "words"), LACKING)
def test_a_verb_that_a_platform_lacks_says_what_there_is_instead(
    id_: str, verb: BillingVerb, words: str
) -> None:
    assert describe_missing_verb(load_profile(id_), verb) == words
    assert list_manual_steps(action_for(load_profile(id_), verb)) == ()


def test_a_verb_that_a_platform_has_is_not_lacking() -> None:
    assert (
        describe_missing_verb(load_profile("gpushare"), PARK)
        == describe_missing_verb(load_profile("lambda"), DESTROY)
        == ""
    )
    assert (
        describe_missing_verb(load_profile("generic-ssh"), PARK)
        == "Generic SSH box has no action that would park a box"
    )


def test_by_hand_says_what_comes_first_and_when_it_is_done() -> None:
    labels = [label for label, _ in list_manual_steps(action_for(load_profile("slurm"), DESTROY))]
    assert labels == ["by hand", "note", "done when"]
    first, way, *_ = list_manual_steps(action_for(load_profile("matpool"), DESTROY))
    assert (first[0], way) == ("first", ("by hand", "console: 停止并释放 (stop and release)"))
    ((_, unsaid), *_) = list_manual_steps(action_for(load_profile("generic-ssh"), DESTROY))
    assert unsaid == "the provider's own stop or destroy"


def test_storage_that_costs_nothing_is_not_on_the_bill_after_the_end() -> None:
    assert list_kept_charges(load_profile("slurm"), DESTROY) == ()
    (left,) = list_kept_charges(load_profile("lambda"), DESTROY)
    assert (
        left
        == "nfs-filesystem, if there is one: it outlives the box; $0.20 per GiB and month (2026-06)"
    )
    assert [
        line.partition(",")[0] for line in list_kept_charges(load_profile("digitalocean"), DESTROY)
    ] == [
        "volume",
        "snapshot",
    ]
    assert [
        line.partition(",")[0]
        for line in list_kept_charges(load_profile("paperspace-core"), DESTROY)
    ] == [
        "snapshot",
        "custom-template",
    ]


def soonest(profile: Profile) -> str:
    """Return the clock that ends first of itself; where there is none, what goes on costing money."""
    ends = [clock for clock in profile.clocks if clock.mode is ClockMode.COUNTDOWN]
    timed = [clock for clock in ends if clock.counts_from in AFTER]
    if timed:
        first = min(timed, key=lambda clock: clock.after_s or 0.0)
        about = "about " if first.is_approximate else ""
        return f"{about}{format_duration(first.after_s)}{AFTER[first.counts_from or ClockStart.STOP]}: {first.what}"
    if ends:
        return ends[0].what
    charges = [clock.what for clock in profile.clocks if clock.mode is ClockMode.CHARGE]
    return f"never; {charges[0]}" if charges else "never"


def row(profile: Profile) -> str:
    """Return the first cells of a platform's row in docs/profiles.md."""
    actions = [action_for(profile, verb) for verb in (PARK, DESTROY)]
    labels = ["–" if one is None else one.native_label for one in actions]
    on = [
        ", the meter goes on" if one is not None and one.stops_gpu_meter is False else ""
        for one in actions
    ]
    labels = [label + more for label, more in zip(labels, on, strict=True)]
    cells = (f"`{profile.id}`", profile.name, *labels, outliving(profile), soonest(profile))
    return f"| {' | '.join(cells)} |"


def outliving(profile: Profile) -> str:
    """Return which storage outlives a destroy; what nobody says is no "no"."""
    fates = {
        tier.name: tier_survives(tier, DESTROY, action_for(profile, DESTROY))
        for tier in profile.tiers
    }
    if set(fates.values()) == {None}:
        return "–"
    kept = [name for name, fate in fates.items() if fate]
    perhaps = [f"perhaps {name}" for name, fate in fates.items() if fate is None]
    return ", ".join(kept + perhaps) or "nothing"


@pytest.mark.parametrize("id_", all_profiles())
def test_the_table_of_the_docs_says_what_the_profile_says(id_: str) -> None:
    assert f"\n{row(load_profile(id_))} " in PAGE.read_text(encoding="utf-8")
