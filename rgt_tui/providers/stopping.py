"""Carries out a billing action to its end: *requested → the provider confirms → meter off*, or the trouble.

A 2xx is *requested*, never *stopped*: control planes accept a stop and stay running for a while, or for ever.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Awaitable, Callable

from rgt_tui.model.evidence import Permit, StopPhase, StopProgress, Verb
from rgt_tui.model.money import Lifecycle, Meter, MeterKind
from rgt_tui.providers.control_plane import (
    Conflict,
    NotFound,
    PermitRefused,
    Provider,
    ProviderError,
    Unreachable,
)

TIMEOUT_S = 180.0
"""Seconds for the provider to confirm; a stop normally takes a few."""
POLL_S = 2.0
CONFLICT_POLLS = 4
"""Readings after a 409: a state that lags behind may still turn out to be the one we want."""


async def carry_out(
    provider: Provider,
    permit: Permit,
    *,
    clock: Callable[[], float],
    sleep: Callable[[float], Awaitable[None]],
    timeout_s: float = TIMEOUT_S,
    poll_s: float = POLL_S,
) -> AsyncIterator[StopProgress]:
    """Send the call that the permit allows, once, and poll until the provider confirms.

    The last item is one of: ``meter-off`` (with what keeps billing), ``failed`` (nothing changed, or not what
    was asked for), ``unconfirmed`` (the state is unknown: a person must look at the console).

    Args:
        provider: The control plane of the very instance that the permit names.
        permit: What the gate gave out; its verb says which call is sent.
        clock: Epoch seconds.
        sleep: Waits that many seconds.
        timeout_s: How long to wait for the confirmation, seconds.
        poll_s: Pause between two readings, seconds.
    """
    verb = permit.verb

    def step(phase: StopPhase, text: str) -> StopProgress:
        return StopProgress(phase=phase, at=clock(), text=text)

    polls: int | None = None
    said = ""
    try:
        said = await (provider.stop(permit) if verb is Verb.PARK else provider.destroy(permit))
        yield step(StopPhase.REQUESTED, f"{said}: requested, not yet confirmed")
    except (PermitRefused, ProviderError) as error:
        said = str(error)
        if isinstance(error, Conflict | NotFound):
            # "Already stopped" and "no such machine" count only after a reading agrees.
            polls = CONFLICT_POLLS
            yield step(StopPhase.REQUESTED, f"{said}: asking the provider for the present state")
        elif isinstance(error, Unreachable) and error.sent:
            yield step(
                StopPhase.REQUESTED, f"sent, but not acknowledged ({said}): asking whether it was done"
            )
        else:
            yield step(StopPhase.FAILED, f"nothing was done: {said}")
            return

    confirmed = False
    meter = Meter()
    # Whichever goes furthest: a clock may be set or stand still, and a computer that sleeps stops the other.
    started, begun, waited = clock(), time.monotonic(), 0.0
    while True:
        meter = await provider.read(permit.instance)
        if meter.error is None:
            if verb is Verb.PARK and meter.lifecycle is Lifecycle.GONE:
                yield step(StopPhase.FAILED, "the machine is gone, not parked: its disks went with it")
                return
            wanted = Lifecycle.STOPPED if verb is Verb.PARK else Lifecycle.GONE
            if meter.lifecycle is wanted and not confirmed:
                confirmed = True
                yield step(StopPhase.CONFIRMED, f"{meter.source}: {meter.native_status or wanted.value}")
            if confirmed and meter.kind in (MeterKind.NONE, MeterKind.STORAGE_ONLY):
                yield step(StopPhase.METER_OFF, _meter_off(provider, verb, permit.instance, meter))
                return
        if polls is not None and not confirmed and meter.error is None:
            polls -= 1
            if polls <= 0:
                yield step(
                    StopPhase.FAILED, f"{said}; the provider says {meter.native_status or 'nothing of it'}"
                )
                return
        if max(waited, clock() - started, time.monotonic() - begun) >= timeout_s:
            yield step(StopPhase.UNCONFIRMED, _unconfirmed(provider, meter, confirmed, timeout_s))
            return
        await sleep(poll_s)
        waited += poll_s


def _meter_off(provider: Provider, verb: Verb, instance: str, meter: Meter) -> str:
    if meter.kind is MeterKind.NONE:
        return "compute off, nothing found that keeps billing"
    rest = "; ".join(provider.keeps_billing(verb, instance)) or "storage"
    return f"compute off; keeps billing: {rest}"


def _unconfirmed(provider: Provider, meter: Meter, confirmed: bool, timeout_s: float) -> str:
    last = meter.error or meter.native_status or "no reading"
    what = "stopped, but not what still bills" if confirmed else "not confirmed"
    where = provider.console_url
    return f"state unknown after {timeout_s:.0f} s ({what}; last: {last}), check the console: {where}"
