"""``rgt mirrors``: the mirrors and the proxy of a box's platform, on or off, for jobs and login shells."""

from __future__ import annotations

import argparse
import shlex
import sys
from typing import Any

import msgspec

from rgt_tui.cli import running
from rgt_tui.cli.commands import FAILED, OK, USAGE
from rgt_tui.cli.opening import open_boxes
from rgt_tui.cli.printing import complain, json_line
from rgt_tui.fleet.box_settings import MirrorState, ask_mirrors, tell_platform
from rgt_tui.fleet.errands import reached
from rgt_tui.model.box import BoxSpec
from rgt_tui.model.profile import Profile
from rgt_tui.profiles import KINDS, MirrorFact, load_profile, mirror_facts
from rgt_tui.profiles.readings import how_many


def run_mirrors(arguments: argparse.Namespace) -> int:
    """Show or turn; return the exit code."""
    opened = open_boxes(arguments, [arguments.box], trusted=True)
    if opened is None:
        return USAGE
    (spec,) = opened[1]
    kinds: tuple[str, ...] = arguments.kinds or KINDS
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
    arguments: argparse.Namespace,
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
        sys.stdout.write(json_line(msgspec.to_builtins(body)).decode())
    else:
        for line in lines(spec.name, profile, facts, state):
            sys.stdout.write(line + "\n")
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
