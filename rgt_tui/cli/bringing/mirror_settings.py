"""``rgt mirrors``: turn a box's package mirrors and proxy on or off, for jobs and login shells.

Nothing is made up: where a profile has no fact, there is none.
"""

from __future__ import annotations

import shlex
from typing import Any

import msgspec

from rgt_tui.cli import running
from rgt_tui.cli.bringing.bringing_arguments import MirrorsArguments
from rgt_tui.cli.commands import FAILED, OK, USAGE
from rgt_tui.cli.opening import open_box
from rgt_tui.cli.printing import complain, print_json, print_lines
from rgt_tui.fleet import reached
from rgt_tui.fleet.box_settings import MirrorState, ask_mirrors, tell_platform
from rgt_tui.model import BoxSpec, Profile
from rgt_tui.profiles import how_many, load_profile

VARIABLES = {
    "hf": ("HF_ENDPOINT", "HF_HUB_DISABLE_XET", "HF_HUB_ENABLE_HF_TRANSFER"),
    "pip": ("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_TRUSTED_HOST", "UV_INDEX_URL", "UV_DEFAULT_INDEX"),
    "conda": ("CONDA_CHANNELS", "CONDA_CHANNEL_ALIAS", "CONDA_DEFAULT_CHANNELS"),
}
"""Kind → the variables of a profile's environment that are about it; the first of each is the mirror itself."""
PROXY = "proxy"
KINDS = (*VARIABLES, PROXY)


class MirrorFact(msgspec.Struct, frozen=True, kw_only=True):
    """What a platform has of one kind."""

    kind: str
    env: dict[str, str] = {}
    hook: str | None = None
    """Shell line that turns it on."""
    no_proxy: tuple[str, ...] = ()
    by_hand: tuple[str, ...] = ()
    """What the platform offers and rgt does not do: it could not be undone, or differs from box to box."""

    @property
    def settable(self) -> bool:
        """Rgt can turn it on and off."""
        return bool(self.env or self.hook)


def mirror_facts(profile: Profile) -> tuple[MirrorFact, ...]:
    """Return what a profile says of mirrors and proxy, one for each kind that it speaks of."""
    own, network = profile.overrides, profile.network
    found = []
    for kind, names in VARIABLES.items():
        env = {name: own.env[name] for name in names if name in own.env} if _has(own.env, names) else {}
        hand = tuple(text for text in network.mirrors if _speaks_of(kind, text)) if not env else ()
        found.append(MirrorFact(kind=kind, env=env, by_hand=hand))
    hand = (network.proxy_note,) if network.proxy_note and own.proxy_hook is None else ()
    found.append(MirrorFact(kind=PROXY, hook=own.proxy_hook, no_proxy=own.no_proxy, by_hand=hand))
    return tuple(fact for fact in found if fact.settable or fact.by_hand)


def _has(env: dict[str, str], names: tuple[str, ...]) -> bool:
    return names[0] in env or (names[0].startswith(("PIP", "CONDA")) and any(name in env for name in names))


def _speaks_of(kind: str, text: str) -> bool:
    return (kind in ("pip", "conda") and kind in text.lower()) or (kind == "hf" and "HF_ENDPOINT" in text)


def run_mirrors(arguments: MirrorsArguments) -> int:
    """Show or turn; return the exit code."""
    spec = open_box(arguments, trusted=True)
    kinds = arguments.kinds or KINDS
    unknown = [kind for kind in kinds if kind not in KINDS]
    if unknown:
        complain(f"--for {','.join(unknown)}: there are {', '.join(KINDS)}")
        return USAGE
    profile = load_profile(spec.profile)
    facts = {fact.kind: fact for fact in mirror_facts(profile) if fact.kind in kinds}
    if arguments.on:
        lacking = [kind for kind in arguments.kinds or () if kind not in facts or not facts[kind].settable]
        for kind in lacking:
            complain(f"{spec.name}: {without(kind, facts.get(kind), profile)}")
        if lacking or not any(fact.settable for fact in facts.values()):
            if not lacking:
                complain(f"{spec.name}: no mirror is known for {profile.name} that rgt could turn on")
            return FAILED
    return running.run_on_box(spec.name, _work(arguments, spec, profile, facts, kinds))


def without(kind: str, fact: MirrorFact | None, profile: Profile) -> str:
    """Return why a kind cannot be turned on."""
    if fact is None:
        return f"no mirror is known for {profile.name}: {kind}"
    return f"{kind}: yours to do on {profile.name}: {'; '.join(fact.by_hand)}"


async def _work(
    arguments: MirrorsArguments,
    spec: BoxSpec,
    profile: Profile,
    facts: dict[str, MirrorFact],
    kinds: tuple[str, ...],
) -> int:
    verb = "on" if arguments.on else "off" if arguments.off else "show"
    told: dict[str, Any] = {}
    if verb != "show":
        chosen = [fact for fact in facts.values() if fact.settable]
        told = {
            "for": [fact.kind for fact in chosen] if verb == "on" else list(kinds),
            "env": {fact.kind: fact.env for fact in chosen},
            "hooks": {"proxy": fact.hook, "no_proxy": fact.no_proxy}
            if (fact := facts.get("proxy")) is not None and fact.hook
            else {},
        }
    async with reached(spec, accept_new_host_keys=arguments.accept_new_host_key) as (connection, deployed):
        state = await tell_platform(connection, deployed, profile)
        if verb != "show":
            state = await ask_mirrors(connection, deployed, verb, told)
    if arguments.json:
        body = {"box": spec.name, "facts": list(facts.values()), **msgspec.to_builtins(state)}
        print_json(msgspec.to_builtins(body))
    else:
        for line in lines(spec.name, profile, facts, state):
            print_lines(line)
    for problem in state.problems:
        complain(f"{spec.name}: {problem}")
    return FAILED if state.problems else OK


def lines(name: str, profile: Profile, facts: dict[str, MirrorFact], state: MirrorState) -> list[str]:
    """Return what is printed, one line for each thing."""
    found = [f"{name}: {profile.name}, {how_many(len(facts), 'kind')} of mirror or proxy known"]
    if not facts:
        found = [f"{name}: no mirror is known for {profile.name}"]
    for fact in facts.values():
        what = [
            *(f"{key}={shlex.quote(value)}" for key, value in fact.env.items()),
            *([fact.hook] if fact.hook else []),
        ]
        if fact.settable:
            jobs = all(state.jobs.env.get(key) == value for key, value in fact.env.items())
            jobs = jobs and (fact.hook is None or state.jobs.hooks.get("proxy") == fact.hook)
            where = [word for word, yes in (("jobs", jobs), ("login", fact.kind in state.login.kinds)) if yes]
            found.append(
                f"  {fact.kind:<6} {'on for ' + ' and '.join(where) if where else 'off':<20} {'; '.join(what)}"
            )
        if fact.no_proxy:
            found.append(
                f"  {'':<6} {'never by the proxy':<20} loopback, the box, MASTER_ADDR, {', '.join(fact.no_proxy)}"
            )
        found += [f"  {fact.kind:<6} {'yours to do':<20} {text}" for text in fact.by_hand]
    if state.login.sourced_by:
        found.append(
            f"  login shells source {state.login.file} (a block in {', '.join(state.login.sourced_by)})"
        )
    return found
