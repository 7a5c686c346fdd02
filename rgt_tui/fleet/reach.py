"""Reach one box for one errand: a connection with the agent in place, outside of the fleet's sessions."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator

import asyncssh

from rgt_tui.model.box import BoxSpec
from rgt_tui.profiles import load_profile
from rgt_tui.ssh.bundle import build_agent
from rgt_tui.ssh.connect import connect
from rgt_tui.ssh.deploy import Deployed, deploy
from rgt_tui.ssh.hostkeys.policy import Policy


@contextlib.asynccontextmanager
async def reached(
    spec: BoxSpec, *, accept_new_host_keys: bool = False
) -> AsyncIterator[tuple[asyncssh.SSHClientConnection, Deployed]]:
    """Connect to a box, put the agent there, and let go of it afterwards. Nobody is asked anything.

    Raises:
        BoxError: on the way there.
    """
    profile = load_profile(spec.profile)
    policy = Policy.ACCEPT_NEW if accept_new_host_keys else Policy.ASK
    connection = await connect(spec, policy=policy, default_user=profile.user)
    try:
        pythons = (spec.python,) if spec.python else profile.python
        yield connection, await deploy(connection, build_agent(), pythons)
    finally:
        connection.abort()
