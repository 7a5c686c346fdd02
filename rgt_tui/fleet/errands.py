"""One-off calls of a box's agent outside the fleet's sessions, and the connections for them.

They put the trainer on a box, change its mirrors, proxy and secrets for runs, or remove rgt from
it.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any, TypeVar

import asyncssh
import msgspec

from rgt_tui.fleet.connector import endpoint_from
from rgt_tui.language import translate
from rgt_tui.model import BoxSpec, ExposedToken, FrozenStruct, Meter, Profile, Secret, clean_decoded
from rgt_tui.profiles import load_profile
from rgt_tui.providers import ProviderError
from rgt_tui.ssh import (
    BoxError,
    BoxTransport,
    CommandFailed,
    DeployedAgent,
    DeployedTrainer,
    HostKeyPolicy,
    HostKeyRefused,
    MovedAddress,
    PausableDeadline,
    Unreachable,
    build_agent,
    build_trainer,
    connect_box,
    connection_label,
    decode_answer,
    deploy_agent,
    deploy_trainer,
    extract_record,
    run_command,
)


@contextlib.asynccontextmanager
async def connected(
    spec: BoxSpec, *, accept_new_host_keys: bool = False
) -> AsyncIterator[BoxTransport]:
    """Connect to a box, and disconnect afterwards.

    Where the described address fails, the address reported by its provider is tried.

    Raises:
        BoxError: it could not be reached, or the connection was lost.
    """
    if accept_new_host_keys:
        policy = HostKeyPolicy.ACCEPT_NEW
    else:
        policy = HostKeyPolicy.ASK
    connection = await _connect_box(spec, policy)
    try:
        yield connection
    except BoxError:
        raise
    except (asyncssh.Error, OSError) as error:
        # asyncssh's own errors have no errno. An OSError with one, while the connection is open,
        # has a local cause: standard output is full, or its reader is gone.
        if isinstance(error, OSError) and error.errno is not None and not connection.is_closed():
            raise
        words = str(error) or type(error).__name__
        raise Unreachable(
            translate(
                "{transport}: {connection}: the connection was lost: {words}",
                transport=spec.transport,
                connection=connection_label(connection),
                words=words,
            )
        ) from error
    finally:
        connection.abort()


@contextlib.asynccontextmanager
async def connected_agent(
    spec: BoxSpec, *, accept_new_host_keys: bool = False
) -> AsyncIterator[tuple[BoxTransport, DeployedAgent]]:
    """Like `connected`, with the agent deployed.

    Args:
        spec: The box.
        accept_new_host_keys: Accept an unknown host key.

    Raises:
        BoxError: as `connected`, or the agent could not be deployed.
    """
    # As slow as the login: run both.
    packing = asyncio.ensure_future(asyncio.to_thread(build_agent))
    try:
        async with connected(spec, accept_new_host_keys=accept_new_host_keys) as connection:
            pythons = (spec.python,) if spec.python else load_profile(spec.profile).overrides.python
            yield connection, await deploy_agent(connection, await packing, pythons)
    finally:
        await asyncio.gather(packing, return_exceptions=True)


async def _connect_box(spec: BoxSpec, policy: HostKeyPolicy) -> BoxTransport:
    user = load_profile(spec.profile).launch.user
    try:
        return await connect_box(spec, policy=policy, default_user=user)
    except (Unreachable, HostKeyRefused) as error:
        meter = await provider_word(spec)
        if meter is None:
            raise
        place = find_moved_address(spec, meter)
        if place is not None:
            try:
                return await connect_box(spec, policy=policy, default_user=user, elsewhere=place)
            except Unreachable as other:
                raise Unreachable(
                    translate(
                        "{error}; also not at the address from {source}: {other}",
                        error=error,
                        source=place.source,
                        other=other,
                    )
                ) from other
        if meter.error is not None or isinstance(error, HostKeyRefused):
            raise
        raise Unreachable(f"{error}; {meter_text(meter)}") from error


async def provider_word(spec: BoxSpec) -> Meter | None:
    """Read a box's state from its provider once; None = it has none that can be queried."""
    if spec.provider is None:
        return None
    from rgt_tui.providers import UNTOLD, Providers, UnknownProvider

    if spec.provider.kind in UNTOLD:
        return None
    providers = Providers()
    try:
        return await providers.open_control_plane(spec.provider).read(spec.provider.instance)
    except (UnknownProvider, ProviderError):
        return None
    finally:
        await providers.close()


def meter_text(meter: Meter) -> str:
    """Return the text of a provider's reading."""
    return meter.state_text()


def find_moved_address(spec: BoxSpec, meter: Meter) -> MovedAddress | None:
    """Return the address reported by the provider, if it differs from the described one."""
    told = endpoint_from(meter)
    if told is None or told == (spec.host, spec.port):
        return None
    return MovedAddress(*told, meter.source)


class RemovedItem(FrozenStruct):
    """One file or directory of rgt on a box."""

    path: str
    bytes: int
    what: str
    kept: str | None = None
    """Why it is kept; None = it is removed."""


class RemovalResult(FrozenStruct):
    """Files that were removed, or would be."""

    refused: tuple[str, ...]
    """Why nothing was touched."""
    failed: tuple[str, ...]
    """What could not be removed, and why."""
    bytes: int
    things: tuple[RemovedItem, ...] = ()

    @property
    def is_complete(self) -> bool:
        """Whether nothing of rgt is left."""
        return not (self.refused or self.failed or any(thing.kept for thing in self.things))


async def remove_agent(
    spec: BoxSpec,
    seconds: float,
    *,
    old: bool = False,
    dry_run: bool = False,
    accept_new_host_keys: bool = False,
) -> RemovalResult:
    """Connect to a box and have the agent remove rgt from it, without prompting.

    Args:
        spec: The box.
        seconds: Limit for the entire removal.
        old: Only agents of other versions.
        dry_run: Only report.
        accept_new_host_keys: Accept and store the key of an unknown host.

    Raises:
        BoxError: it could not be reached, or the agent's answer is unusable.
    """
    words = [word for job in spec.jobs for word in ("--job", job)]
    words += ["--old"] * old + ["--dry-run"] * dry_run
    try:
        async with (
            PausableDeadline(seconds),
            connected_agent(spec, accept_new_host_keys=accept_new_host_keys) as (
                connection,
                deployed,
            ),
        ):
            command = deployed.build_command("remove", *words)
            # Slurm may have to be queried for a hundred scripts.
            command_seconds = 120.0
            done = await run_command(
                connection, command, seconds=command_seconds, name="removing rgt"
            )
    except TimeoutError as error:
        raise Unreachable(translate("not done within {seconds:g} s", seconds=seconds)) from error
    return parse_removal(done.out, done.words)


def parse_removal(out: bytes, words: str) -> RemovalResult:
    """Parse the agent's output.

    Raises:
        CommandFailed: it is unusable, so it is unknown which files were removed.
    """
    lines = [line for raw in out.splitlines() if (line := extract_record(raw))]
    try:
        things = tuple(msgspec.json.decode(line, type=RemovedItem) for line in lines[:-1])
        end = msgspec.json.decode(lines[-1], type=RemovalResult)
    except (IndexError, msgspec.DecodeError, RecursionError) as error:
        raise CommandFailed(
            translate("invalid answer from the agent: {words}", words=words or error)
        ) from error
    return clean_decoded(msgspec.structs.replace(end, things=things))


async def push_trainer(
    spec: BoxSpec, seconds: float, *, accept_new_host_keys: bool = False
) -> DeployedTrainer:
    """Connect to a box, make sure that the trainer is there, and disconnect, without prompting.

    Args:
        spec: The box.
        seconds: Limit for the entire operation.
        accept_new_host_keys: Accept and store the key of an unknown host.

    Raises:
        BoxError: it could not be reached, or the trainer could not be put there.
    """
    pythons = (spec.python,) if spec.python else load_profile(spec.profile).overrides.python
    try:
        async with (
            PausableDeadline(seconds),
            connected(spec, accept_new_host_keys=accept_new_host_keys) as way,
        ):
            return await deploy_trainer(way, spec.name, build_trainer(), pythons)
    except TimeoutError as error:
        raise Unreachable(translate("not done within {seconds:g} s", seconds=seconds)) from error


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
