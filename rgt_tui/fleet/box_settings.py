"""Settings of a box for its runs: mirrors, proxy and secrets, each changed by one agent command."""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

from rgt_tui.language import translate
from rgt_tui.model import BoxSpec, ExposedToken, FrozenStruct, Profile, Secret
from rgt_tui.ssh import (
    BoxTransport,
    CommandFailed,
    DeployedAgent,
    decode_answer,
    extract_record,
    run_command,
)

MOST_BYTES = 1 << 20
T = TypeVar("T")


class JobSettings(FrozenStruct):
    """Settings that apply to cells started from now on."""

    env: dict[str, str] = {}
    hooks: dict[str, Any] = {}
    off: tuple[str, ...] = ()
    """Names of variables and hooks that a person has turned off."""


class LoginSettings(FrozenStruct):
    """Settings that apply to new login shells."""

    file: str | None = None
    kinds: tuple[str, ...] = ()
    sourced_by: tuple[str, ...] = ()


class MirrorState(FrozenStruct):
    """Which mirrors are on."""

    jobs: JobSettings = JobSettings()
    login: LoginSettings = LoginSettings()
    problems: tuple[str, ...] = ()


async def request_mirrors(
    connection: BoxTransport,
    deployed: DeployedAgent,
    verb: str,
    told: dict[str, Any],
) -> MirrorState:
    """Show a box's mirrors, or turn some on or off.

    Args:
        connection: To the box.
        deployed: The agent there.
        verb: show, on, off or tell.
        told: The command's JSON input: the mirrors to turn on or off.

    Raises:
        BoxError: no answer, or an unusable one.
    """
    command = deployed.build_command("mirrors", verb)
    done = await run_command(
        connection,
        command,
        data=msgspec.json.encode(told),
        most_bytes=MOST_BYTES,
        name="setting mirrors",
    )
    found = decode_answer_line(done.out, done.words, MirrorState)
    hooks = {name: value for name, value in found.jobs.hooks.items() if isinstance(value, str)}
    return msgspec.structs.replace(found, jobs=msgspec.structs.replace(found.jobs, hooks=hooks))


async def send_platform_settings(
    connection: BoxTransport, deployed: DeployedAgent, profile: Profile
) -> MirrorState:
    """Send a box its platform's settings for the cells of jobs; every rgt that watches it does so.

    Raises:
        BoxError: no answer, or an unusable one.
    """
    return await request_mirrors(connection, deployed, "tell", platform_settings(profile))


def platform_settings(profile: Profile) -> dict[str, Any]:
    """Return a platform's settings for the cells of jobs: variables and proxy commands."""
    own = profile.overrides
    hooks = {"env": own.env_hook, "proxy": own.proxy_hook, "no_proxy": own.no_proxy}
    return {"env": dict(own.env), "hooks": hooks}


class StoredSecret(FrozenStruct):
    """A secret stored on a box, without its value."""

    name: str
    path: str
    job: str | None = None
    """The job whose cells get it; None = it is only a file."""
    problem: str | None = None


class SecretAnswer(FrozenStruct):
    """The result of a change to a secret, or the list of secrets."""

    put: StoredSecret | None = None
    removed: tuple[StoredSecret, ...] = ()
    secrets: tuple[StoredSecret, ...] = ()
    found: tuple[ExposedToken, ...] = ()
    """Keys found in the usual places."""
    refused: str | None = None


def durable_dirs(spec: BoxSpec, profile: Profile) -> tuple[str, ...]:
    """Return the directories that outlive the box or are shared: no secret may be stored there."""
    mounts = [
        mount
        for tier in profile.tiers
        if tier.role == "durable" or tier.survives_destroy is True
        for mount in tier.mounts
    ]
    named = [spec.durable, profile.overrides.durable_dir]
    return tuple(
        dict.fromkeys([*mounts, *(path for path in named if path and path.startswith(("/", "~")))])
    )


async def request_secret(
    connection: BoxTransport,
    deployed: DeployedAgent,
    verb: str,
    *words: str,
    value: Secret | None = None,
) -> SecretAnswer:
    """Store, list, remove or find secrets on a box. The value is sent over standard input.

    Args:
        connection: To the box.
        deployed: The agent there.
        verb: put, list, remove or find.
        words: Its options.
        value: The secret to store.

    Raises:
        BoxError: no answer, or an unusable one.
    """
    if value is None:
        data = b""
    else:
        data = value.reveal().encode("utf-8", "surrogateescape")
    command = deployed.build_command("secret", verb, *words)
    done = await run_command(
        connection, command, data=data, most_bytes=MOST_BYTES, name="the secret"
    )
    return decode_answer_line(done.out, done.words, SecretAnswer)


def decode_answer_line(out: bytes, words: str, kind: type[T]) -> T:
    """Decode the last line of the agent's output.

    Raises:
        CommandFailed: it is unusable; the message includes the box's own output.
    """
    lines = [line for raw in out.splitlines() if (line := extract_record(raw))]
    if not lines:
        raise CommandFailed(
            translate("the agent gave no answer: {words}", words=words or "it says nothing")
        )
    return decode_answer(lines[-1], kind, "the agent's answer")
