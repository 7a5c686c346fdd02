"""Put the trainer on one box, outside of the fleet's sessions."""

from __future__ import annotations

import asyncio

from rgt_tui.fleet.reach import connected
from rgt_tui.model.box import BoxSpec
from rgt_tui.profiles import load_profile
from rgt_tui.ssh import Pushed, Unreachable, build_trainer, push


async def push_trainer(spec: BoxSpec, seconds: float, *, accept_new_host_keys: bool = False) -> Pushed:
    """Connect to a box, make sure that the trainer is there, and let go of it. Nobody is asked anything.

    Args:
        spec: The box.
        seconds: How long all of it may take.
        accept_new_host_keys: Whether the key of a host that is not known yet is accepted and kept.

    Raises:
        BoxError: it could not be reached, or the trainer could not be put there.
    """
    pythons = (spec.python,) if spec.python else load_profile(spec.profile).python
    try:
        async with (
            asyncio.timeout(seconds),
            connected(spec, accept_new_host_keys=accept_new_host_keys) as way,
        ):
            return await push(way, spec.name, build_trainer(), pythons)
    except TimeoutError as error:
        raise Unreachable(f"not done within {seconds:g} s") from error
