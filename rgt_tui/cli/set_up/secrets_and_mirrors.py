"""``rgt secret`` and ``rgt mirrors``: keys and tokens for runs, a box's package mirrors and proxy.

A secret is sent over standard input, never onto storage that others can read.
"""

from __future__ import annotations

import getpass
import shlex
import sys
from typing import Any

import msgspec

from rgt_tui.cli import running
from rgt_tui.cli.commands import FAILED, OK, USAGE
from rgt_tui.cli.opening import open_box
from rgt_tui.cli.printing import hint_expanded_tilde, print_error, print_json, print_lines
from rgt_tui.cli.set_up.bringing_arguments import MirrorsArguments, SecretArguments
from rgt_tui.fleet import connected_agent, durable_dirs
from rgt_tui.fleet.errands import (
    MirrorState,
    SecretAnswer,
    StoredSecret,
    request_mirrors,
    request_secret,
    send_platform_settings,
)
from rgt_tui.fleet.work.launching import job_directory
from rgt_tui.language import translate
from rgt_tui.model import BoxSpec, FrozenStruct, Profile, Secret, how_many
from rgt_tui.profiles import load_profile

MOST_SECRET_BYTES = 64 << 10
VARIABLES = {
    # The others only tune the download; alone they are no mirror (`_has_variable`).
    "hf": ("HF_ENDPOINT", "HF_HUB_DISABLE_XET", "HF_HUB_ENABLE_HF_TRANSFER"),
    "pip": (
        "PIP_INDEX_URL",
        "PIP_EXTRA_INDEX_URL",
        "PIP_TRUSTED_HOST",
        "UV_INDEX_URL",
        "UV_DEFAULT_INDEX",
    ),
    "conda": ("CONDA_CHANNELS", "CONDA_CHANNEL_ALIAS", "CONDA_DEFAULT_CHANNELS"),
}
"""Environment variables per kind of mirror; the first of each is the mirror itself."""
PROXY = "proxy"
KINDS = (*VARIABLES, PROXY)


def run_secret(arguments: SecretArguments) -> int:
    """Store, list or remove a secret; return the exit code."""
    # Exactly one of the two.
    if arguments.list_only == bool(arguments.name):
        print_error(translate("name the secret: rgt secret BOX NAME, or rgt secret BOX --list"))
        return USAGE
    if arguments.to is not None and not arguments.to.startswith("/"):
        print_error(translate("--to {to}: give an absolute directory on the box", to=arguments.to))
        return USAGE
    spec = open_box(arguments, trusted=True)
    value = None
    if not arguments.list_only and not arguments.remove:
        # Before connecting, so that a piped value is read even if the box is not reached.
        value = read_value(arguments.name or "")
        if value is None:
            print_error(translate("no value was given: it is read from standard input"))
            return USAGE
    return running.run_on_box(spec.name, send_secret(arguments, spec, value))


def read_value(name: str) -> Secret | None:
    """Return a value typed without echo or read from stdin, less one line end.

    None if it is empty.
    """
    if sys.stdin.isatty():
        text = getpass.getpass(f"{name}: ").encode()
    else:
        # One byte more than allowed, so that the agent refuses a longer one instead of storing a
        # part.
        text = sys.stdin.buffer.read(MOST_SECRET_BYTES + 1)
        # One line end only: `pass` and `echo` add it, and a key may end in a blank line of its own.
        text = text.removesuffix(b"\n").removesuffix(b"\r")
    if text:
        # Any bytes are allowed in a file; `rgt run` refuses those that JSON cannot carry.
        return Secret(text.decode("utf-8", "surrogateescape"))
    return None


async def send_secret(arguments: SecretArguments, spec: BoxSpec, value: Secret | None) -> int:
    """Store, list or remove a secret on a box; return the exit status."""
    durable = durable_dirs(spec, load_profile(spec.profile))
    # Storage that outlives the box would hand the key to the next tenant or to other machines.
    outlives = [word for path in durable for word in ("--durable", path)]
    async with connected_agent(spec, accept_new_host_keys=arguments.accept_new_host_key) as (
        connection,
        deployed,
    ):
        if arguments.list_only:
            kept = await request_secret(connection, deployed, "list", *outlives)
            jobs = [word for job in spec.jobs for word in ("--job", job)]
            # Keys that rgt did not store: in job files and the usual places of tools.
            found = await request_secret(connection, deployed, "find", *jobs, *outlives)
            return _print_secret_answer(
                arguments, spec, msgspec.structs.replace(kept, found=found.found)
            )
        words = ["--name", arguments.name or ""]
        if arguments.job:
            words += ["--job", job_directory(spec, arguments.job)]
        words += ["--all-cells"] * arguments.all_cells
        if arguments.remove:
            return _print_secret_answer(
                arguments, spec, await request_secret(connection, deployed, "remove", *words)
            )
        words += [*(["--to", arguments.to] if arguments.to else []), *outlives]
        return _print_secret_answer(
            arguments, spec, await request_secret(connection, deployed, "put", *words, value=value)
        )


def _print_secret_answer(arguments: SecretArguments, spec: BoxSpec, answer: SecretAnswer) -> int:
    if arguments.json:
        print_json({"box": spec.name, **msgspec.to_builtins(answer)})
    else:
        for line in secret_lines(spec.name, answer):
            print_lines(line)
    if answer.refused is not None:
        # After the answer, which may also have a row that succeeded.
        print_error(f"{spec.name}: {answer.refused}{hint_expanded_tilde(arguments.job)}")
        return FAILED
    return OK


ALL_JOBS = "*"
"""The agent's name for all jobs of a box."""


def _describe_owner(row: StoredSecret) -> str:
    if row.job == ALL_JOBS:
        return translate("cells of every job")
    return translate("cells of {job}", job=row.job)


def secret_lines(box: str, answer: SecretAnswer) -> list[str]:
    """Return the printed result, one line per item; values are not known here."""
    found = []
    if answer.put is not None:
        if answer.put.job:
            whose = translate("for the {put}", put=_describe_owner(answer.put))
        else:
            whose = translate("in a file")
        found.append(f"{box}: {answer.put.name} {whose}: {answer.put.path}")
    found += [f"{box}: removed {row.path}" for row in answer.removed]
    for row in answer.secrets:
        if row.job:
            whose = _describe_owner(row)
        else:
            whose = "file"
        found.append(
            f"{box}: {row.name}  {row.path}  ({whose}){f': {row.problem}' if row.problem else ''}"
        )
    for token in answer.found:
        found.append(
            f"{box}: found {token.path}: {token.why}; "
            f"{token.open or translate('only you can read it')}"
        )
    if not (found or answer.refused):
        found.append(translate("{box}: no stored secret, and none in the usual places", box=box))
    return found


# ``rgt mirrors``: turn a box's package mirrors and proxy on or off, for jobs and login shells.
#
# Nothing is guessed: without a fact in the profile, nothing is set.


class MirrorFact(FrozenStruct, kw_only=True):
    """A platform's mirror or proxy of one kind."""

    kind: str
    env: dict[str, str] = {}
    hook: str | None = None
    """Shell line that turns it on."""
    no_proxy: tuple[str, ...] = ()
    by_hand: tuple[str, ...] = ()
    """Offered by the platform but not set by rgt: it could not be undone, or differs between
    boxes."""

    @property
    def is_settable(self) -> bool:
        """Whether rgt can turn it on and off."""
        return bool(self.env or self.hook)


def mirror_facts(profile: Profile) -> tuple[MirrorFact, ...]:
    """Return the mirrors and the proxy in a profile, one fact per kind that it mentions."""
    own, network = profile.overrides, profile.network
    found = []
    for kind, names in VARIABLES.items():
        if _has_variable(own.env, names):
            env = {name: own.env[name] for name in names if name in own.env}
        else:
            env = {}
        if not env:
            hand = tuple(text for text in network.mirrors if _speaks_of(kind, text))
        else:
            hand = ()
        found.append(MirrorFact(kind=kind, env=env, by_hand=hand))
    if network.proxy_note and own.proxy_hook is None:
        hand = (network.proxy_note,)
    else:
        hand = ()
    found.append(MirrorFact(kind=PROXY, hook=own.proxy_hook, no_proxy=own.no_proxy, by_hand=hand))
    return tuple(fact for fact in found if fact.is_settable or fact.by_hand)


def _has_variable(env: dict[str, str], names: tuple[str, ...]) -> bool:
    return names[0] in env or (
        # pip and conda have several variables that each name a mirror alone; HF has only
        # HF_ENDPOINT.
        names[0].startswith(("PIP", "CONDA")) and any(name in env for name in names)
    )


def _speaks_of(kind: str, text: str) -> bool:
    return (kind in ("pip", "conda") and kind in text.lower()) or (
        kind == "hf" and "HF_ENDPOINT" in text
    )


def run_mirrors(arguments: MirrorsArguments) -> int:
    """Show, turn on or turn off; return the exit code."""
    spec = open_box(arguments, trusted=True)
    kinds = arguments.kinds or KINDS
    unknown = [kind for kind in kinds if kind not in KINDS]
    if unknown:
        print_error(f"--for {','.join(unknown)}: there are {', '.join(KINDS)}")
        return USAGE
    profile = load_profile(spec.profile)
    facts = {fact.kind: fact for fact in mirror_facts(profile) if fact.kind in kinds}
    if arguments.on:
        # Without --for, kinds that the platform lacks are skipped; those that a person named must
        # exist.
        lacking = [
            kind
            for kind in arguments.kinds or ()
            if kind not in facts or not facts[kind].is_settable
        ]
        for kind in lacking:
            print_error(f"{spec.name}: {explain_unavailable(kind, facts.get(kind), profile)}")
        if lacking or not any(fact.is_settable for fact in facts.values()):
            if not lacking:
                print_error(
                    translate(
                        "{name}: no mirror is known for {name_2} that rgt could turn on",
                        name=spec.name,
                        name_2=profile.name,
                    )
                )
            return FAILED
    return running.run_on_box(spec.name, _turn_mirrors(arguments, spec, profile, facts, kinds))


def explain_unavailable(kind: str, fact: MirrorFact | None, profile: Profile) -> str:
    """Return why a kind cannot be turned on."""
    if fact is None:
        return translate("no mirror is known for {name}: {kind}", name=profile.name, kind=kind)
    return translate(
        "{kind}: you have to do this yourself on {name}: {by_hand}",
        kind=kind,
        name=profile.name,
        by_hand="; ".join(fact.by_hand),
    )


async def _turn_mirrors(
    arguments: MirrorsArguments,
    spec: BoxSpec,
    profile: Profile,
    facts: dict[str, MirrorFact],
    kinds: tuple[str, ...],
) -> int:
    if arguments.on:
        verb = "on"
    elif arguments.off:
        verb = "off"
    else:
        verb = "show"
    told: dict[str, Any] = {}
    if verb != "show":
        chosen = [fact for fact in facts.values() if fact.is_settable]
        told = {
            # Off also removes a kind that the profile no longer knows.
            "for": [fact.kind for fact in chosen] if verb == "on" else list(kinds),
            "env": {fact.kind: fact.env for fact in chosen},
            "hooks": {"proxy": fact.hook, "no_proxy": fact.no_proxy}
            if (fact := facts.get("proxy")) is not None and fact.hook
            else {},
        }
    async with connected_agent(spec, accept_new_host_keys=arguments.accept_new_host_key) as (
        connection,
        deployed,
    ):
        # Jobs use the profile's mirrors whether or not this command turns on those of login shells.
        state = await send_platform_settings(connection, deployed, profile)
        if verb != "show":
            state = await request_mirrors(connection, deployed, verb, told)
    if arguments.json:
        body = {"box": spec.name, "facts": list(facts.values()), **msgspec.to_builtins(state)}
        print_json(msgspec.to_builtins(body))
    else:
        for line in mirror_lines(spec.name, profile, facts, state):
            print_lines(line)
    for problem in state.problems:
        print_error(f"{spec.name}: {problem}")
    if state.problems:
        return FAILED
    return OK


def mirror_lines(
    name: str, profile: Profile, facts: dict[str, MirrorFact], state: MirrorState
) -> list[str]:
    """Return the printed result, one line per item."""
    found = [
        translate(
            "{name}: {name_2}, {facts} of mirror or proxy known",
            name=name,
            name_2=profile.name,
            facts=how_many(len(facts), "kind"),
        )
    ]
    if not facts:
        found = [
            translate("{name}: no mirror is known for {name_2}", name=name, name_2=profile.name)
        ]
    for fact in facts.values():
        what = [
            *(f"{key}={shlex.quote(value)}" for key, value in fact.env.items()),
            *([fact.hook] if fact.hook else []),
        ]
        if fact.is_settable:
            jobs = all(state.jobs.env.get(key) == value for key, value in fact.env.items())
            jobs = jobs and (fact.hook is None or state.jobs.hooks.get("proxy") == fact.hook)
            where = [
                word
                for word, yes in (("jobs", jobs), ("login", fact.kind in state.login.kinds))
                if yes
            ]
            found.append(
                f"  {fact.kind:<6} {'on for ' + ' and '.join(where) if where else 'off':<20} "
                f"{'; '.join(what)}"
            )
        # The agent adds the first three itself for every job.
        if fact.no_proxy:
            found.append(
                translate(
                    "  {value:<6} {value_2:<20} loopback, the box, MASTER_ADDR, {no_proxy}",
                    value="",
                    value_2="not proxied",
                    no_proxy=", ".join(fact.no_proxy),
                )
            )
        found += [
            f"  {fact.kind:<6} {translate('do it yourself'):<20} {text}" for text in fact.by_hand
        ]
    if state.login.sourced_by:
        found.append(
            translate(
                "  login shells source {file} (a block in {sourced_by})",
                file=state.login.file,
                sourced_by=", ".join(state.login.sourced_by),
            )
        )
    return found
