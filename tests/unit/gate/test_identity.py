"""The machine that we speak to is the instance that the call names, or nothing is sent."""

from __future__ import annotations

import msgspec
import pytest

from rgt_tui.gate import (
    SAID,
    check_identity,
    describe_recognised,
    evaluate_evidence,
    recognised,
)
from rgt_tui.gate.identity import MOUNTS, same_endpoint
from rgt_tui.model import (
    BillingVerb,
    BoxState,
    EvidenceItem,
    KubectlRoute,
    LinkState,
    Permit,
    ProviderRef,
)
from rgt_tui.profiles import all_profiles
from tests.unit.gate.builders import HELLO, METER, TICKS, against, box, evidence, items, spec, text

replace = msgspec.structs.replace
MUTE = replace(HELLO, identity={})
"""A box that does not say which instance it is."""
AT = replace(METER, ssh_host="203.0.113.9", ssh_port=40022)


@pytest.mark.parametrize("verb", list(BillingVerb))
def test_another_machine_is_refused_and_cannot_be_forfeited(verb: BillingVerb) -> None:
    """Evidence from one machine, and a call that would destroy another one."""
    found = evidence(
        box(hello=MUTE, peer=("127.0.0.1", 2222)), verb, meter=AT, forfeits=frozenset({"identity"})
    )
    assert against(found)[0] == "identity"
    assert found.forfeits == ()
    assert "wrong machine: rgt is connected to 127.0.0.1:2222" in text(found, "identity")
    assert "203.0.113.9:40022" in text(found, "identity")
    named = evidence(
        box(hello=replace(HELLO, identity={"RUNPOD_POD_ID": "other\x1b[2J"})),
        forfeits=frozenset({"identity"}),
    )
    assert against(named) == ["identity"] and named.forfeits == ()
    assert "wrong machine: the connected one calls itself other·[2J (RUNPOD_POD_ID)" in text(
        named, "identity"
    )


def test_what_the_box_calls_itself_counts_before_its_address() -> None:
    here = evidence(box(peer=("203.0.113.9", 40022)), meter=AT)
    assert against(here) == []
    assert text(here, "identity") == "the box calls itself k3v9 (RUNPOD_POD_ID)"
    assert text(evidence(box(peer=None), meter=AT), "identity") == text(here, "identity")


def test_a_box_that_is_reached_elsewhere_than_its_provider_says_is_shown_so_and_confirmed_so() -> (
    None
):
    here = evidence(box(peer=("203.0.113.9", 40022)), meter=AT)
    found = evidence(box(peer=("10.0.0.7", 22)), meter=AT)
    assert against(found) == []
    assert text(found, "identity").startswith(
        "the box calls itself k3v9 (RUNPOD_POD_ID); but SSH connects to 10.0.0.7:22, and the provider reports "
        "203.0.113.9:40022: "
    )
    facts = [items(each, "identity")[0].fact for each in (here, found)]
    assert facts[0] != facts[1], "a dry run that did not show it is not confirmed"
    other = evidence(box(peer=("10.0.0.8", 22)), meter=AT)
    assert items(other, "identity")[0].fact == facts[1], (
        "a proxy of several addresses is one and the same"
    )


def test_an_address_that_agrees_is_enough() -> None:
    found = evidence(box(hello=MUTE, peer=("203.0.113.9", 40022)), meter=AT)
    assert against(found) == []
    assert "the address is the provider's" in text(found, "identity")
    named = replace(AT, ssh_host="pod.example")
    state = box(hello=MUTE, peer=("203.0.113.9", 40022))
    assert (
        against(evidence(state, meter=named, addresses=frozenset({"203.0.113.9", "2001:db8::1"})))
        == []
    )
    assert not items(
        evidence(state, meter=named, addresses=frozenset({"203.0.113.10"})), "identity"
    )[0].forfeitable


@pytest.mark.parametrize(
    "fields",
    [
        {"hello": MUTE},
        {"hello": None},
        {"hello": replace(HELLO, identity={"SLURM_JOB_ID": "k3v9"})},
        {"hello": MUTE, "peer": ("203.0.113.9", 40022)},
        {"link": LinkState.UNREACHABLE},
    ],
)
def test_where_nothing_can_be_compared_the_instance_has_to_be_typed(
    fields: dict[str, object],
) -> None:
    state = box(**fields)
    found = evidence(state)
    assert "identity" in against(found)
    assert "no proof that this machine is k3v9" in text(found, "identity")
    every = frozenset(against(found))
    short = evidence(state, forfeits=every, typed=f"forfeit {len(every)} of autodl-demo")
    assert not isinstance(evaluate_evidence(short, TICKS), Permit)
    typed = evidence(state, forfeits=every, typed=f"forfeit {len(every)} of autodl-demo k3v9")
    assert isinstance(evaluate_evidence(typed, TICKS), Permit)


def test_what_a_connection_of_before_said_counts_no_more() -> None:
    """The box that once answered may have been reborn under its name."""
    lost = evidence(box(link=LinkState.UNREACHABLE, peer=("203.0.113.9", 40022)), meter=AT)
    assert "it cannot be queried" in text(lost, "identity")


def test_each_platform_has_its_own_name_for_the_instance() -> None:
    for kind, name, value in (
        ("vastai", "CONTAINER_ID", "123"),
        ("vastai", "VAST_CONTAINERLABEL", "C.123"),
        ("slurm", "SLURM_JOB_ID", "123"),
        ("kubernetes", "pod_uid", "123"),
    ):
        state = box(
            hello=replace(HELLO, identity={name: value}),
            spec=spec(provider=ProviderRef(kind, "123")),
        )
        assert items(evidence(state), "identity")[0].ok, (kind, name)
        wrong = box(
            hello=replace(HELLO, identity={name: value}),
            spec=spec(provider=ProviderRef(kind, "124")),
        )
        assert not items(evidence(wrong), "identity")[0].forfeitable
    both = {"CONTAINER_ID": "123", "VAST_CONTAINERLABEL": "C.9"}
    state = box(
        hello=replace(HELLO, identity=both), spec=spec(provider=ProviderRef("vastai", "123"))
    )
    assert not items(evidence(state), "identity")[0].ok, "of two names both must agree"
    assert set(SAID) >= {"runpod", "vastai"}


@pytest.mark.parametrize(
    ("host", "port", "peer", "answer"),
    [
        ("203.0.113.9", 22, ("203.0.113.9", 22), True),
        ("203.0.113.9", 22, ("::ffff:203.0.113.9", 22), True),
        ("2001:db8::1", 22, ("2001:0db8:0::1", 22), True),
        ("203.0.113.9", 22, ("203.0.113.9", 23), False),
        ("203.0.113.9", 22, ("203.0.113.8", 22), False),
        ("pod.example", 22, ("203.0.113.9", 22), None),
        (None, 22, ("203.0.113.9", 22), None),
        ("203.0.113.9", None, ("203.0.113.9", 22), None),
        ("203.0.113.9", 22, None, None),
        ("203.0.113.9", 22, ("not an address", 22), None),
    ],
)
def test_two_endpoints_agree_differ_or_cannot_be_compared(
    host: str | None, port: int | None, peer: tuple[str, int] | None, answer: bool | None
) -> None:
    assert same_endpoint(host, port, peer) is answer


@pytest.mark.parametrize(
    ("names", "mounts", "found"),
    [
        (("RUNPOD_POD_ID",), ("/workspace",), ("runpod", "RUNPOD_POD_ID")),
        (("CONTAINER_ID",), (), ("vastai", "CONTAINER_ID")),
        (("FEATURIZE_INSTANCE_ID",), (), ("featurize", "FEATURIZE_INSTANCE_ID")),
        ((), ("/", "/root/autodl-tmp"), ("autodl", "/root/autodl-tmp")),
        ((), ("/hy-tmp",), ("gpushare", "/hy-tmp")),
        (("SLURM_JOB_ID",), (), ("slurm", "SLURM_JOB_ID")),
        (("pod_uid", "RUNPOD_POD_ID"), (), ("runpod", "RUNPOD_POD_ID")),
        (("pod_uid",), ("/root/autodl-tmp",), ("autodl", "/root/autodl-tmp")),
        (("HOSTNAME",), ("/", "/workspace", "/data"), None),
    ],
)
def test_what_a_box_seems_to_be(
    names: tuple[str, ...], mounts: tuple[str, ...], found: tuple[str, str] | None
) -> None:
    assert recognised(names, mounts) == found
    if found is not None:
        assert f'profile = "{found[0]}"' in describe_recognised(*found)


@pytest.mark.parametrize("mount", MOUNTS)
def test_a_mount_that_tells_a_platform_is_in_its_profile_and_in_no_other(mount: str) -> None:
    have = {
        profile.id
        for profile in all_profiles().values()
        if any(mount in tier.mounts for tier in profile.tiers)
    }
    assert have == {MOUNTS[mount]}


def test_a_pod_is_the_one_that_the_same_cluster_runs_commands_in() -> None:
    route = KubectlRoute(context="prod", namespace="ml", job="lm")
    ref = ProviderRef(kind="kubernetes", instance="ml/job/lm", via="prod")
    state = box(hello=MUTE, peer=None)
    here = replace(state, spec=replace(state.spec, kubectl=route, provider=ref))

    def judge(state: BoxState, names: tuple[str, ...] = ()) -> EvidenceItem:
        meter = replace(METER, names=names)
        return check_identity(state, meter, "kubernetes", "ml/job/lm", 0.0)

    found = judge(here)
    assert (found.ok, found.text) == (
        True,
        "the cluster runs rgt's commands in ml/job/lm (kubectl exec)",
    )
    elsewhere = replace(here.spec, provider=replace(ref, via="test"))
    assert not judge(replace(here, spec=elsewhere)).ok, "another cluster has such a Job, too"
    other = replace(here.spec, kubectl=replace(route, job="other"))
    assert not judge(replace(here, spec=other)).ok
    assert not judge(replace(here, link=LinkState.UNREACHABLE)).ok
    named = replace(here, hello=replace(HELLO, identity={"pod_uid": "u1"}))
    assert not judge(named, ("u2",)).ok, "the pod says itself that it is another one"
