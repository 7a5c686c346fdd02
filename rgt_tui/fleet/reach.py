"""Reach one box for one errand: a connection, outside of the fleet's sessions. Nobody is asked anything."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator

import asyncssh

from rgt_tui.fleet.approach import endpoint_from
from rgt_tui.model.box import BoxSpec
from rgt_tui.model.money import Meter
from rgt_tui.model.plain import clean
from rgt_tui.profiles import load_profile
from rgt_tui.providers import ProviderError
from rgt_tui.ssh import (
    BoxError,
    Deployed,
    Elsewhere,
    HostKeyRefused,
    Policy,
    Unreachable,
    build_agent,
    connect,
    deploy,
    where,
)


@contextlib.asynccontextmanager
async def connected(
    spec: BoxSpec, *, accept_new_host_keys: bool = False
) -> AsyncIterator[asyncssh.SSHClientConnection]:
    """Connect to a box, at the address that its provider tells where the described one fails, and hang up afterwards.

    Raises:
        BoxError: on the way there, or because the connection was lost in the midst of the errand.
    """
    policy = Policy.ACCEPT_NEW if accept_new_host_keys else Policy.ASK
    connection = await _connect(spec, policy)
    try:
        yield connection
    except BoxError:
        raise
    except (asyncssh.Error, OSError) as error:
        words = clean(str(error)) or type(error).__name__
        raise Unreachable(f"ssh: {where(connection)}: the connection broke off: {words}") from error
    finally:
        connection.abort()


@contextlib.asynccontextmanager
async def reached(
    spec: BoxSpec, *, accept_new_host_keys: bool = False
) -> AsyncIterator[tuple[asyncssh.SSHClientConnection, Deployed]]:
    """As `connected`, with the agent in place.

    Raises:
        BoxError: as `connected`, or the agent could not be put there.
    """
    async with connected(spec, accept_new_host_keys=accept_new_host_keys) as connection:
        pythons = (spec.python,) if spec.python else load_profile(spec.profile).python
        yield connection, await deploy(connection, build_agent(), pythons)


async def _connect(spec: BoxSpec, policy: Policy) -> asyncssh.SSHClientConnection:
    user = load_profile(spec.profile).user
    try:
        return await connect(spec, policy=policy, default_user=user)
    except (Unreachable, HostKeyRefused) as error:
        meter = await provider_word(spec)
        if meter is None:
            raise
        place = elsewhere(spec, meter)
        if place is not None:
            try:
                return await connect(spec, policy=policy, default_user=user, elsewhere=place)
            except Unreachable as other:
                raise Unreachable(f"{error}; nor where {place.source} says that it is: {other}") from other
        if meter.error is not None or isinstance(error, HostKeyRefused):
            raise
        raise Unreachable(f"{error}; {says(meter)}") from error


async def provider_word(spec: BoxSpec) -> Meter | None:
    """Ask once what the provider says of a box; None where it has none that can be asked."""
    if spec.provider is None:
        return None
    from rgt_tui.providers import Providers, UnknownProvider

    providers = Providers()
    try:
        return await providers.open(spec.provider).read(spec.provider.instance)
    except (UnknownProvider, ProviderError):
        return None
    finally:
        await providers.close()


def says(meter: Meter) -> str:
    """Return a reading of the provider in words."""
    native = f" ({clean(meter.native_status)})" if meter.native_status else ""
    return f"{meter.source} says {meter.lifecycle.value}{native}"


def elsewhere(spec: BoxSpec, meter: Meter) -> Elsewhere | None:
    """Return where the provider says that a box answers, if that is not where it is described."""
    told = endpoint_from(meter)
    return None if told is None or told == (spec.host, spec.port) else Elsewhere(*told, meter.source)
