"""Which boxes may be armed to park themselves, and why the others may not."""

from __future__ import annotations

import msgspec
import pytest

from rgt_tui.cli.autostop.arm_command import show_rehearsal
from rgt_tui.fleet.autostop import against_platform
from rgt_tui.fleet.autostop.arming import ArmingChoice, Rehearsal
from rgt_tui.fleet.autostop.self_stops import CANNOT, known_objections, wrong_machine
from rgt_tui.model import (
    ArmAnswer,
    ArmRequest,
    AutostopMode,
    AutostopStatus,
    BillingVerb,
    BoxSpec,
    EndAction,
    OwnKeyCheck,
    ProviderRef,
)
from rgt_tui.profiles import load_profile
from rgt_tui.providers import OWN_STOPS, own_stop
from tests.unit.gate.builders import HELLO, box
from tests.unit.gate.test_review import made

replace = msgspec.structs.replace


def spec(profile: str, kind: str | None = None, **more: object) -> BoxSpec:
    made = BoxSpec(
        name="lab", host="h", profile=profile, provider=ProviderRef(kind or profile, "i-1")
    )
    return replace(made, **more)


@pytest.mark.parametrize(
    ("profile", "kind"),
    [("runpod", None), ("vastai", None), ("autodl", "autodl"), ("autodl", "autodl-inbox")],
)
def test_a_platform_whose_park_keeps_all_results_may_be_armed(
    profile: str, kind: str | None
) -> None:
    assert against_platform(load_profile(profile), spec(profile, kind)) is None
    assert list(known_objections(spec(profile, kind), load_profile(profile), EndAction.PARK)) == []


@pytest.mark.parametrize(
    ("profile", "says"),
    [
        ("lambda", "only terminate"),
        ("digitalocean", "only"),
        ("gpushare", "hy-tmp"),
        ("featurize", "shutdown"),
        ("kubernetes", "is not certain to end"),
        ("lanrui", "no documented key"),
        ("paperspace-core", "no documented key"),
        ("generic-ssh", "no action"),
        ("local", "nothing bills"),
        ("slurm", "no action"),
    ],
)
def test_any_other_is_refused_with_its_reason_and_may_ask(profile: str, says: str) -> None:
    (reason,) = known_objections(spec(profile), load_profile(profile), EndAction.PARK)
    assert reason.startswith(CANNOT)
    assert says.casefold() in reason.casefold()
    assert reason.endswith("--ask")
    assert list(known_objections(spec(profile), load_profile(profile), EndAction.ASK)) == []


def test_a_shutdown_inside_the_machine_that_bills_on_is_named() -> None:
    assert "shutdown inside the machine" in str(
        against_platform(load_profile("lambda"), spec("lambda"))
    )
    assert "Power off" in str(against_platform(load_profile("digitalocean"), spec("digitalocean")))


@pytest.mark.parametrize(
    ("over", "says"),
    [
        ({"protected": True}, "protected"),
        ({"untrusted": True}, "rgt trust"),
        ({"provider": None}, "cannot stop itself"),
    ],
)
def test_a_box_that_must_not_is_refused(over: dict[str, object], says: str) -> None:
    found = list(
        known_objections(replace(spec("runpod"), **over), load_profile("runpod"), EndAction.PARK)
    )
    assert any(says in text for text in found)


def test_readonly_arms_nothing_at_all() -> None:
    for action in EndAction:
        assert any(
            "--readonly" in text
            for text in known_objections(
                spec("runpod"), load_profile("runpod"), action, readonly=True
            )
        )


def test_asking_needs_neither_platform_nor_provider() -> None:
    assert (
        list(
            known_objections(
                spec("lambda", provider=None, protected=True), load_profile("lambda"), EndAction.ASK
            )
        )
        == []
    )


def test_a_machine_that_is_not_proved_to_be_the_instance_is_refused() -> None:
    def said(identity: dict[str, str]) -> list[str]:
        return list(
            wrong_machine(made(BillingVerb.PARK, box(hello=replace(HELLO, identity=identity))))
        )

    assert said({"RUNPOD_POD_ID": "k3v9"}) == []
    assert len(list(wrong_machine(None))) == 1
    (wrong,) = said({"RUNPOD_POD_ID": "another"})
    assert "wrong machine" in wrong
    (silent,) = said({})
    assert "no proof" in silent


def test_the_server_is_the_vendor_s_own_unless_the_fleet_file_names_one() -> None:
    assert OWN_STOPS["runpod"].way.url == "https://api.runpod.io"
    here = own_stop(ProviderRef("runpod", "p", base_url="http://127.0.0.1:9/"))
    assert here is not None
    assert here.way.url == "http://127.0.0.1:9"
    shutdown = own_stop(ProviderRef("autodl", "p", base_url="http://127.0.0.1:9"))
    assert shutdown is not None
    assert (shutdown.way.url, shutdown.way.command) == ("", ("/usr/bin/shutdown",))
    assert own_stop(None) is None
    assert all(found.proof for found in OWN_STOPS.values())
    assert own_stop(ProviderRef("lambda", "p")) is None


def test_a_dry_run_of_a_lease_that_only_asks_promises_no_stop(
    capsys: pytest.CaptureFixture[str],
) -> None:
    request = ArmRequest(
        mode=AutostopMode.LEASE,
        action=EndAction.ASK,
        lease_s=8 * 3600,
        boot="b-1",
        instance="",
        box="lab",
    )
    status = AutostopStatus(saving=("gpt-a",), unsaving=("gpt-b",))
    wish = ArmingChoice(mode=AutostopMode.LEASE, action=EndAction.ASK, limit_s=8 * 3600)
    answer = ArmAnswer(ok=True, status=status)
    show_rehearsal(Rehearsal(spec("generic-ssh"), wish, request, answer, None, (), ""), 0.0)
    printed = capsys.readouterr().out
    assert "notifies you and stops nothing, after 8h" in printed
    assert "rgt notify lab" in printed
    assert "what runs then continues: no SIGTERM" in printed
    for promise in ("saves at SIGTERM", "also ends", "blocks it now", "unless accepted"):
        assert promise not in printed, printed


def test_a_dry_run_says_how_the_key_is_proved_and_what_the_proof_showed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    found = own_stop(ProviderRef("runpod", "p"))
    assert found is not None
    wish = ArmingChoice(mode=AutostopMode.IDLE, action=EndAction.PARK, limit_s=2700)
    tried = AutostopStatus(
        key=OwnKeyCheck(proved=False, text="its key may read this instance, but not stop it")
    )
    for answer, words in (
        (None, "proof: not asked; it would be a start of the running pod"),
        (
            ArmAnswer(ok=False, status=tried),
            "proof: its key may read this instance, but not stop it",
        ),
    ):
        show_rehearsal(
            Rehearsal(spec("runpod"), wish, None, answer, None, (), found.what, found.proof), 0.0
        )
        assert words in " ".join(capsys.readouterr().out.split())
