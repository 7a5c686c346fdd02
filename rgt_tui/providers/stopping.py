"""Follows a billing action to its end: *requested → the provider confirms → meter off*, or error.

A 2xx means *requested*, never *stopped*: control planes accept a stop and keep running for a while,
or forever.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from types import MappingProxyType

import msgspec

from rgt_tui.language import translate
from rgt_tui.model import (
    BillingVerb,
    FrozenStruct,
    Lifecycle,
    Meter,
    MeterKind,
    Permit,
    ProviderRef,
    StopMethod,
    StopPhase,
    StopProgress,
    steady_time,
)
from rgt_tui.providers.answers import AnswerProof, action_proof
from rgt_tui.providers.control_plane import PermitRefused, Provider, ProviderError


class StopPaces(FrozenStruct):
    """How a stop is confirmed."""

    timeout_s: float = 180.0
    """Seconds for the provider to confirm; a stop normally takes a few."""
    poll_s: float = 2.0
    """Seconds between two readings of the machine's state."""
    conflict_polls: int = 4
    """Readings after a 409: the reported state may lag behind."""


STOP_PACES = StopPaces()


async def carry_out(
    provider: Provider,
    permit: Permit,
    *,
    clock: Callable[[], float],
    sleep: Callable[[float], Awaitable[None]],
    timeout_s: float = STOP_PACES.timeout_s,
    poll_s: float = STOP_PACES.poll_s,
    ticks: Callable[[], float] = steady_time,
) -> AsyncIterator[StopProgress]:
    """Send the call that the permit allows, once, and poll until the provider confirms.

    The last item is one of: ``meter-off`` (with what keeps billing), ``failed`` (nothing changed,
    or not as requested), ``unconfirmed`` (the state is unknown: a person must check the console).

    Args:
        provider: The control plane of the instance in the permit.
        permit: The gate's permit; its verb selects the call.
        clock: Returns Unix time, only for the steps' times: it may be set.
        sleep: Waits that many seconds.
        timeout_s: Seconds to wait for the confirmation.
        poll_s: Seconds between two readings.
        ticks: Returns seconds of a monotonic clock that includes sleep, for the timeout.
    """
    verb = permit.verb

    def build_progress(phase: StopPhase, text: str) -> StopProgress:
        return StopProgress(phase=phase, at=clock(), text=text)

    polls: int | None = None
    said = ""
    try:
        said = await (
            provider.stop(permit) if verb is BillingVerb.PARK else provider.destroy(permit)
        )
    except (PermitRefused, ProviderError) as error:
        said, proves = str(error), action_proof(provider.ref.kind, verb, error)
        # Only a documented refusal; after any other error the call counts as sent.
        if proves is AnswerProof.NOTHING:
            yield build_progress(StopPhase.FAILED, translate("nothing was done: {said}", said=said))
            return
        if proves is AnswerProof.ASK:
            # "Already stopped" and "no such machine" count only if a reading agrees.
            polls = STOP_PACES.conflict_polls
            yield build_progress(
                StopPhase.REQUESTED,
                translate("{said}: reading the state from the provider", said=said),
            )
        else:
            yield build_progress(
                StopPhase.REQUESTED,
                translate(
                    "sent, but not acknowledged ({said}): asking whether it was done", said=said
                ),
            )
    # an unexpected error of an adapter: the call may have been sent nevertheless
    except Exception as error:
        said = f"{type(error).__name__}: {error}"
        yield build_progress(
            StopPhase.REQUESTED,
            translate("sent, but not acknowledged ({said}): asking whether it was done", said=said),
        )
    else:
        yield build_progress(
            StopPhase.REQUESTED, translate("{said}: requested, not yet confirmed", said=said)
        )

    confirmed = False
    meter, shown = Meter(), Meter()
    # The pauses are counted as well, so that a stopped clock cannot cause endless polling.
    begun, waited = ticks(), 0.0
    while True:
        try:
            meter = await provider.read(permit.instance)
        except Exception as error:
            meter = Meter(
                at=clock(),
                error=translate(
                    "{name}: {error}; this is a fault of rgt",
                    name=type(error).__name__,
                    error=error,
                ),
            )
        if meter.error is None:
            # A failed reading must not erase the last state that the provider reported.
            shown = meter
        phase = judge_reading(verb, meter)
        if phase is StopPhase.FAILED:
            yield build_progress(
                phase, translate("the machine was destroyed, not parked: its disks are lost too")
            )
            return
        # Once: the meter may confirm the state long before it says what bills.
        if phase is not None and not confirmed:
            confirmed = True
            yield build_progress(
                StopPhase.CONFIRMED, f"{meter.source}: {meter.native_status or meter.lifecycle}"
            )
        if phase is StopPhase.METER_OFF:
            yield build_progress(
                phase, describe_remaining_bill(provider, verb, permit.instance, meter)
            )
            return
        # A reading that failed says nothing, so it does not use one up.
        if polls is not None and not confirmed and meter.error is None:
            polls -= 1
            if polls <= 0:
                yield build_progress(
                    StopPhase.FAILED,
                    translate(
                        "{said}; the provider reports {state}",
                        said=said,
                        state=meter.native_status or translate("nothing"),
                    ),
                )
                return
        if max(waited, ticks() - begun) >= timeout_s:
            yield build_progress(
                StopPhase.UNCONFIRMED,
                _describe_last_state(provider, meter, shown, confirmed, timeout_s),
            )
            return
        await sleep(poll_s)
        waited += poll_s


def judge_reading(verb: BillingVerb, meter: Meter) -> StopPhase | None:
    """Return what one reading proves about a verb that was sent; None = nothing yet.

    ``failed``: a machine that should be parked is gone. ``confirmed``: stopped or gone, but what
    bills is unknown.
    """
    if meter.error is not None:
        return None
    if verb is BillingVerb.PARK and meter.lifecycle is Lifecycle.GONE:
        return StopPhase.FAILED
    if meter.lifecycle is not (Lifecycle.STOPPED if verb is BillingVerb.PARK else Lifecycle.GONE):
        return None
    off = meter.kind in (MeterKind.NONE, MeterKind.STORAGE_ONLY)
    if off:
        return StopPhase.METER_OFF
    return StopPhase.CONFIRMED


def describe_remaining_bill(
    provider: Provider, verb: BillingVerb, instance: str, meter: Meter
) -> str:
    """Return what still bills after the meter is off."""
    if meter.kind is MeterKind.NONE:
        return translate("compute off, no other charges found")
    rest = "; ".join(provider.list_kept_charges(verb, instance)) or translate("storage")
    # If something else bills (a node under a pod), ending the machine alone saves nothing.
    if meter.compute_per_hour == 0 or not meter.unpriced:
        head = translate("compute off")
    else:
        head = translate("off")
    return translate("{head}; keeps billing: {rest}", head=head, rest=rest)


def _describe_last_state(
    provider: Provider, meter: Meter, shown: Meter, confirmed: bool, timeout_s: float
) -> str:
    """Return the last state that the provider reported, and the current error."""
    if shown.at is not None:
        last = translate("last shown: {state}", state=shown.native_status or shown.lifecycle)
    else:
        last = translate("never shown")
    trouble = ""
    if meter.error is not None:
        trouble = translate("; now: {error}", error=meter.error)
    if confirmed:
        what = translate("stopped, but not the remaining charges")
    else:
        what = translate("not confirmed")
    return translate(
        "state unknown after {timeout_s:.0f} s ({what}; {last}{trouble}), check the console: "
        "{console_url}",
        timeout_s=timeout_s,
        what=what,
        last=last,
        trouble=trouble,
        console_url=provider.console_url,
    )


class OwnStop(FrozenStruct, kw_only=True):
    """A platform's way for a machine to stop itself."""

    way: StopMethod
    """Its `url` is the vendor's own server."""
    what: str
    """Description, for the person who arms it."""
    proof: str
    """How the box proves, before it is armed, that it may stop itself. A read would need another
    permission.
    """
    source: str
    """Web page and month."""


_SHUTDOWN = OwnStop(
    way=StopMethod(kind="command", command=("/usr/bin/shutdown",)),
    what="the platform's own /usr/bin/shutdown",
    proof="the program and one of the platform's marks are there, and only root can change it",
    source="https://www.autodl.com/docs/instance_pro_api/ (2026-08)",
)
OWN_STOPS = MappingProxyType(
    {
        "runpod": OwnStop(
            way=StopMethod(kind="runpod", url="https://api.runpod.io"),
            what="RUNPOD_API_KEY, the pod's own key, which RunPod puts into its environment",
            proof="a start of the running pod: RunPod checks the right to act, and refuses with 409",
            source="https://docs.runpod.io/runpodctl/overview (2026-06)",
        ),
        "vastai": OwnStop(
            way=StopMethod(kind="vastai", url="https://console.vast.ai"),
            what="CONTAINER_API_KEY, the instance's own key, which vast.ai puts into its "
            "environment",
            proof="the running instance is set to running, which changes nothing",
            source="https://docs.vast.ai/guides/instances/docker-environment (2026-11)",
        ),
        "autodl": _SHUTDOWN,
        "autodl-inbox": _SHUTDOWN,
    }
)
"""Kind of provider → how its boxes stop themselves. No documented way is known for other kinds."""


def own_stop(ref: ProviderRef | None) -> OwnStop | None:
    """Return how a box stops itself, using the fleet file's server; None = no documented way."""
    if ref is not None:
        found = OWN_STOPS.get(ref.kind)
    else:
        found = None
    if found is None or ref is None or not found.way.url or not ref.base_url:
        return found
    return msgspec.structs.replace(
        found, way=msgspec.structs.replace(found.way, url=ref.base_url.rstrip("/"))
    )
