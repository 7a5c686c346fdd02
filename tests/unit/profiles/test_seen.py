"""Whether a person was shown a platform's page is remembered for the page as it was; what to say before renting."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from rgt_tui import language
from rgt_tui.model import (
    BillingAction,
    Interruption,
    NetworkFacts,
    Overrides,
    Profile,
    StorageTier,
    TrafficFacts,
)
from rgt_tui.profiles import before_renting, load_profile, mark_seen, seen_at, shown_path


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    return {"HOME": str(tmp_path), "XDG_STATE_HOME": str(tmp_path / "state")}


def test_a_page_is_seen_once_it_was_shown_and_another_one_is_not(env: dict[str, str]) -> None:
    runpod, vast = load_profile("runpod"), load_profile("vastai")
    assert seen_at(runpod, env) is None
    mark_seen(runpod, 100.0, env)
    assert (seen_at(runpod, env), seen_at(vast, env)) == (100.0, None)
    mark_seen(vast, 200.0, env)
    assert (seen_at(runpod, env), seen_at(vast, env)) == (100.0, 200.0)


def test_a_fact_that_has_changed_since_has_not_been_seen(env: dict[str, str]) -> None:
    profile = load_profile("autodl")
    mark_seen(profile, 100.0, env)
    first, *rest = profile.billing
    other = msgspec.structs.replace(
        profile, billing=(msgspec.structs.replace(first, stops_gpu_meter=False), *rest)
    )
    assert seen_at(other, env) is None
    mark_seen(other, 200.0, env)
    assert (seen_at(other, env), seen_at(profile, env)) == (200.0, None)


def test_a_page_that_was_read_in_another_language_has_been_seen(
    env: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    mark_seen(load_profile("autodl"), 100.0, env)
    monkeypatch.setattr(language, "_current_catalogue", lambda: language.load_catalogue("zh_CN"))
    chinese = load_profile("autodl")
    assert chinese != load_profile("autodl", english=True)
    assert seen_at(chinese, env) == 100.0


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"version": 2}', '{"pages": {"runpod": {"at": 1}}}', "\xff"]
)
def test_a_damaged_file_means_that_nothing_was_seen_and_is_written_anew(
    env: dict[str, str], text: str
) -> None:
    profile, path = load_profile("runpod"), shown_path(env)
    path.parent.mkdir(parents=True)
    path.write_text(text, encoding="latin-1")
    assert seen_at(profile, env) is None
    mark_seen(profile, 100.0, env)
    assert seen_at(profile, env) == 100.0


def test_what_cannot_be_recorded_has_not_been_seen(env: dict[str, str]) -> None:
    profile = load_profile("runpod")
    Path(env["XDG_STATE_HOME"]).write_text("a file where the directory belongs")
    with pytest.raises(NotADirectoryError):
        mark_seen(profile, 100.0, env)
    assert seen_at(profile, env) is None


def bare(**over: object) -> Profile:
    base = Profile(
        id="x", name="X", kind="ssh", confidence="from-docs", top_danger="the danger",
        overrides=Overrides(detach="tmux"),
        billing=(BillingAction("stop", "Stop", "park", True), BillingAction("end", "End", "destroy", True)),
        network=NetworkFacts(traffic=TrafficFacts(metered=False, note="free")),
    )  # fmt: skip
    return msgspec.structs.replace(base, **over)


def test_where_there_is_nothing_to_say_only_the_danger_is_said() -> None:
    assert before_renting(bare()) == ("the danger",)


@pytest.mark.parametrize(
    ("over", "said"),
    [
        (
            {"tiers": (StorageTier("nfs", region_lock=True, scope="region"),)},
            "nfs is bound to where it is made (region)",
        ),
        ({"billing": (BillingAction("end", "End", "destroy", True),)}, "only End can end it"),
        ({"billing": (BillingAction("stop", "Stop", "park", None),)}, "nothing here ends it"),
        ({"billing": ()}, "nothing here ends it"),
        ({"network": NetworkFacts()}, "unknown whether traffic costs money"),
        (
            {"network": NetworkFacts(traffic=TrafficFacts(metered=True, note="by the GB"))},
            "traffic costs money: by the GB",
        ),
        (
            {"interruption": Interruption(spot_available=True)},
            "the time between warning and end is unknown",
        ),
        (
            {"interruption": Interruption(spot_available=True, spot_grace_s=0)},
            "taken away: without a warning",
        ),
        (
            {"interruption": Interruption(spot_available=True, spot_grace_s=5)},
            "5 s after a warning",
        ),
    ],
)
def test_what_binds_or_bills_is_said_before_renting(over: dict[str, object], said: str) -> None:
    assert any(said in text for text in before_renting(bare(**over)))


def test_a_trap_is_said_before_renting() -> None:
    trap = BillingAction("off", "Power off", "other", trap=True)
    profile = bare(billing=(*bare().billing, trap))
    assert before_renting(profile)[1:] == ("Power off does not end the bill",)


def test_the_region_of_a_volume_is_said_for_the_platforms_that_bind_it() -> None:
    assert any("network-volume is bound" in text for text in before_renting(load_profile("runpod")))
    assert any("shared-fs is bound" in text for text in before_renting(load_profile("autodl")))
