"""Checks that the connected machine is the instance named in the call; else no evidence counts."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Mapping

from rgt_tui.language import translate
from rgt_tui.model import BY_HAND, BoxState, EvidenceItem, LinkState, Meter, quote_name
from rgt_tui.profiles import load_profile

IDENTITY = "identity"
GENERIC = "generic-ssh"
"""The profile of a box whose platform is not configured."""

SAID: dict[str, tuple[str, ...]] = {
    "runpod": ("RUNPOD_POD_ID",),  # docs.runpod.io/pods/templates/environment-variables, 2026-11
    "vastai": (
        "CONTAINER_ID",
        "VAST_CONTAINERLABEL",
    ),  # docs.vast.ai/guides/instances/docker-environment, 2026-11
    "featurize": ("FEATURIZE_INSTANCE_ID",),  # featurize 0.0.27 on PyPI, 2024-03
    "slurm": ("SLURM_JOB_ID",),  # sbatch(1), "OUTPUT ENVIRONMENT VARIABLES"
    "kubernetes": ("pod_uid",),
}
"""Provider kind → names under which its boxes report their instance id (`Hello.identity`)."""
MOUNTS = {
    "/root/autodl-tmp": "autodl",
    "/hy-tmp": "gpushare",
}
"""Mount points unique to one platform → its profile, which has the source."""
PREFIXES = {"VAST_CONTAINERLABEL": "C."}
"""Prefix of the id in that variable."""


def recognised(names: Iterable[str], mounts: Iterable[str]) -> tuple[str, str] | None:
    """Return the profile of the platform that a box seems to be on, and the evidence.

    None = unknown.

    Schedulers are considered last: their jobs run on machines of other platforms, too.

    Args:
        names: Names in `Hello.identity` of the box.
        mounts: Its mount points.
    """
    said, there = set(names), set(mounts)
    marks = {name: kind for kind, ways in SAID.items() for name in ways}
    first = [
        (kind, name)
        for name, kind in marks.items()
        if kind not in ("slurm", "kubernetes") and name in said
    ]
    found = [*first, *((kind, mount) for mount, kind in MOUNTS.items() if mount in there)]
    found += [
        (kind, name)
        for name, kind in marks.items()
        if kind in ("slurm", "kubernetes") and name in said
    ]
    if found:
        return found[0]
    return None


def describe_recognised(profile: str, mark: str) -> str:
    """Return the hint for a box without a profile. Only the person changes its profile."""
    return translate(
        'it seems to be a box of {name} ({mark}): with profile = "{profile}" in the fleet file '
        "rgt knows what survives a stop there, and its deadlines",
        name=load_profile(profile).name,
        mark=mark,
        profile=profile,
    )


def check_identity(
    state: BoxState,
    meter: Meter,
    kind: str,
    instance: str,
    at: float | None,
    addresses: frozenset[str] = frozenset(),
    *,
    on_it: bool = False,
) -> EvidenceItem:
    """Compare the box's own instance id with the provider's, or the connected address.

    A box with the right id may be reached at another address than the provider's, through a proxy,
    a jump host, a forwarded port or NAT, which cannot be distinguished from here. This is shown and
    confirmed with the rest; it does not refuse, because otherwise the meter of such a box could
    not be stopped.

    Args:
        state: The box.
        meter: The provider's current status.
        kind: The provider's kind.
        instance: The instance that the call will name.
        at: When the provider was read, on the steady clock.
        addresses: IP addresses of `Meter.ssh_host`, if that is a name.
        on_it: The call is a command on the box itself, and cannot affect another machine.
    """

    def build_item(
        ok: bool, text: str, fact: str, forfeitable: bool = False, *, doubt: bool = False
    ) -> EvidenceItem:
        return EvidenceItem(
            key=IDENTITY, ok=ok, text=text, at=at, fact=fact, forfeitable=forfeitable, doubt=doubt
        )

    if not instance:
        return build_item(
            False, translate("no provider instance is named in the fleet file"), "none"
        )
    live = state.link is LinkState.LIVE
    if kind == BY_HAND and live and state.peer is not None:
        text, fact = _describe_peer(state, state.peer)
        return build_item(True, text, fact)
    if live and state.hello is not None:
        said = _map_reported_ids(state.hello.identity, kind)
    else:
        said = {}
    wrong = {name: value for name, value in said.items() if value not in (instance, *meter.names)}
    if wrong:
        name, value = next(iter(wrong.items()))
        text = translate(
            "wrong machine: the connected one calls itself {value} ({name}), the call would go to "
            "{instance}; correct the host or the instance in the fleet file",
            value=quote_name(value, 80),
            name=name,
            instance=quote_name(instance, 80),
        )
        return build_item(False, text, f"{name}={value}")
    there = same_endpoint(meter.ssh_host, meter.ssh_port, state.peer if live else None, addresses)
    told = ours = ""
    if there is not None and state.peer is not None:
        told, ours = (
            _format_endpoint(str(meter.ssh_host), meter.ssh_port),
            _format_endpoint(*state.peer),
        )
    if said:
        name = next(iter(said))
        text, fact = (
            translate(
                "the box calls itself {instance} ({name})",
                instance=quote_name(instance, 80),
                name=name,
            ),
            f"{name}={instance}",
        )
        if there is False:
            text += translate(
                "; but SSH connects to {ours}, and the provider reports {told}: check whether a "
                "proxy, a hop or a forwarded port explains that",
                ours=ours,
                told=told,
            )
            fact += ", elsewhere"
        return build_item(True, text, fact, doubt=there is False)
    if live and on_it:
        return build_item(
            True,
            translate("the command runs on the machine that rgt is connected to"),
            "in the box",
        )
    if live and _is_pod_of_instance(state, kind, instance):
        text = translate(
            "the cluster runs rgt's commands in {instance} (kubectl exec)",
            instance=quote_name(instance, 80),
        )
        return build_item(True, text, f"kubectl exec in {instance}")
    if told:
        if there:
            return build_item(
                True,
                translate(
                    "the address is the provider's for {instance}: {told}",
                    instance=quote_name(instance, 80),
                    told=told,
                ),
                f"at {told}",
            )
        text = translate(
            "wrong machine: rgt is connected to {ours}, but the provider reports {instance} at "
            "{told}; correct the host or the instance in the fleet file",
            ours=ours,
            instance=quote_name(instance, 80),
            told=told,
        )
        return build_item(False, text, f"at {ours}, not {told}")
    why = translate("the box does not report its instance, and no address can be compared")
    if not live:
        why = translate(
            "the box is {link}, so it cannot be queried", link=translate(state.link.value)
        )
    return build_item(
        False,
        translate(
            "no proof that this machine is {instance}: {why}",
            instance=quote_name(instance, 80),
            why=why,
        ),
        "unproved",
        True,
    )


def _is_pod_of_instance(state: BoxState, kind: str, instance: str) -> bool:
    """Return whether the cluster that the call would go to itself leads rgt's commands to that pod."""
    route, ref = state.spec.kubectl, state.spec.provider
    if route is None or ref is None or route.context != ref.via:
        return False
    return kind == "kubernetes" and route.instance_id == instance


def _describe_peer(state: BoxState, peer: tuple[str, int]) -> tuple[str, str]:
    """Return how a person finds the machine on its console if no provider names it.

    And the facts.
    """
    hello = state.hello
    names = {name for ways in SAID.values() for name in ways}
    if hello:
        marks = [
            f"{name}={quote_name(value, 80)}"
            for name, value in hello.identity.items()
            if name in names
        ]
    else:
        marks = []
    facts = [
        _format_endpoint(*peer),
        *([quote_name(hello.host, 80)] if hello is not None else []),
        *marks,
    ]
    text = translate(
        "rgt is connected to {names}: find this machine on the console, rgt cannot compare it "
        "there",
        names=", ".join(facts),
    )
    return text, " ".join(facts)


def _map_reported_ids(identity: Mapping[str, str], kind: str) -> dict[str, str]:
    """Return the instance ids that the box reports, by name."""
    return {
        name: identity[name].removeprefix(PREFIXES.get(name, ""))
        for name in SAID.get(kind, ())
        if identity.get(name)
    }


def same_endpoint(
    host: str | None,
    port: int | None,
    peer: tuple[str, int] | None,
    addresses: frozenset[str] = frozenset(),
) -> bool | None:
    """Return whether we are connected to the provider's address for the machine; None = unknown.

    Args:
        host: Name or address from the provider.
        port: Port from the provider.
        peer: Address and port that our connection leads to.
        addresses: IP addresses of `host`, if that is a name.
    """
    if host is None or port is None or peer is None:
        return None
    ours = _parse_address(peer[0])
    literal = _parse_address(host)
    theirs = (
        {literal} if literal is not None else {_parse_address(text) for text in addresses} - {None}
    )
    # A name that was not resolved cannot be compared with an address.
    if ours is None or not theirs:
        return None
    # The port matters: behind one address of a host there are many containers.
    return ours in theirs and peer[1] == port


def _parse_address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        found = ipaddress.ip_address(text.strip("[]").partition("%")[0])
    except ValueError:
        return None
    if isinstance(found, ipaddress.IPv6Address):
        # A dual-stack socket reports ::ffff:1.2.3.4 where the provider says 1.2.3.4.
        mapped = found.ipv4_mapped
    else:
        mapped = None
    return mapped or found


def _format_endpoint(host: str, port: int | None) -> str:
    shown = quote_name(host, 80)
    if ":" in shown:
        return f"[{shown}]:{port}"
    return f"{shown}:{port}"
