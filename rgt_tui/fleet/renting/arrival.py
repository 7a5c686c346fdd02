"""After the creation of a machine: compare it with the offer, and wait until its SSH answers."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable

from rgt_tui.language import translate
from rgt_tui.model import (
    FrozenStruct,
    Lifecycle,
    Offer,
    RentalRequest,
    RentalTerms,
    format_duration,
    format_money,
    how_many,
    steady_time,
)
from rgt_tui.model.gpu_names import same_gpu
from rgt_tui.providers import Instance, Market, ProviderError

SSH_SECONDS = 600.0
"""A machine that does not answer by then is useless, but bills."""
BANNER_SECONDS = 5.0
LOST_MACHINE = {
    Lifecycle.ERROR: "the platform calls it broken",
    Lifecycle.STOPPED: "the platform calls it stopped",
    Lifecycle.GONE: "the platform calls it gone",
}


class MachineArrival(FrozenStruct, kw_only=True):
    """The state of a new machine."""

    machine: Instance
    """As last listed."""
    reached: bool
    """Its SSH answers."""
    why: str = ""
    """Why it does not answer."""
    differs: tuple[str, ...] = ()
    """Differences from the agreement, one line each."""


def agreement(offer: Offer, wish: RentalRequest) -> RentalTerms:
    """Return the part of the request that the fleet file stores."""
    return RentalTerms(
        spot=wish.spot,
        max_per_hour=wish.max_per_hour if wish.max_per_hour is not None else offer.per_hour,
        currency=offer.currency,
        gpu=wish.gpu,
        gpu_count=wish.gpu_count,
    )


def differences(offer: Offer, wish: RentalRequest, machine: Instance) -> tuple[str, ...]:
    """Return a machine's differences from the agreement. Pure function.

    Properties that the platform does not report are skipped.
    """
    meter, found = machine.meter, []
    if meter.per_hour is not None:
        now = f"{format_money(meter.per_hour, meter.currency, meter.at_least)}/h"
        then = f"{format_money(offer.per_hour, offer.currency)}/h"
        # Tolerated share by which a price may exceed the agreed one: platforms round hourly prices.
        rounding = 0.005
        if meter.currency != offer.currency:
            found.append(
                translate(
                    "it is billed in {currency} ({now}), agreed: {agreed}",
                    currency=meter.currency,
                    now=now,
                    agreed=offer.currency,
                )
            )
        elif offer.per_hour is not None and not meter.per_hour <= offer.per_hour * (1.0 + rounding):
            found.append(translate("it costs {now}, agreed: {then}", now=now, then=then))
    if meter.spot is not None and meter.spot is not offer.spot:
        kinds = {True: "spot", False: "on-demand"}
        found.append(
            translate(
                "it is billed as {kind}, agreed: {agreed}",
                kind=kinds[meter.spot],
                agreed=kinds[offer.spot],
            )
        )
    other = machine.gpu is not None and machine.gpu != offer.gpu
    if (
        machine.gpu is not None
        and other
        and not same_gpu(wish.gpu, machine.gpu, offer.gpu_memory_gb)
    ):
        found.append(translate("it has {gpu}, agreed: {agreed}", gpu=machine.gpu, agreed=offer.gpu))
    if machine.gpu_count is not None and machine.gpu_count != offer.gpu_count:
        found.append(
            translate(
                "it has {gpus}, agreed: {agreed}",
                gpus=how_many(machine.gpu_count, "GPU"),
                agreed=offer.gpu_count,
            )
        )
    return tuple(found)


async def wait_for_ssh(
    market: Market,
    machine: Instance,
    offer: Offer,
    wish: RentalRequest,
    token: str,
    *,
    seconds: float = SSH_SECONDS,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ticks: Callable[[], float] = steady_time,
    say: Callable[[str], None] = lambda text: None,
    seen: Callable[[Instance], Awaitable[None]] | None = None,
) -> MachineArrival:
    """Wait until a machine's SSH answers; meanwhile compare it with the agreement.

    Args:
        market: Lists the machine.
        machine: As returned by the creation.
        offer: The accepted offer.
        wish: The request.
        token: Part of the machine's name.
        seconds: Maximum wait.
        sleep: Sleeps for a number of seconds.
        ticks: The steady clock.
        say: Called with progress messages, and at once with differences from the agreement.
        seen: Called once, when a list contains the machine for the first time.
    """
    begun, waited, told = ticks(), 0.0, ""
    differs: tuple[str, ...] = ()
    why = translate("the list does not show it yet")
    every_seconds = 5.0
    while True:
        fresh = await _find_listed(market, machine.id, token)
        if fresh is not None:
            if seen is not None:
                await seen(fresh)
                seen = None
            machine = fresh
            why = _describe_status(machine)
            new = differences(offer, wish, machine)
            for text in new:
                if text not in differs:
                    say(f"NOT AS AGREED: {text}")
            differs = new
            if machine.host is not None and await ssh_answers(machine.host, machine.port or 22):
                return MachineArrival(machine=machine, reached=True, differs=differs)
            if machine.meter.lifecycle in LOST_MACHINE and machine.meter.error is None:
                return MachineArrival(machine=machine, reached=False, why=why, differs=differs)
        if why != told:
            told = why
            say(why)
        passed = max(waited, ticks() - begun)
        if passed >= seconds:
            return MachineArrival(
                machine=machine,
                reached=False,
                why=translate(
                    "no SSH after {duration}: {why}", duration=format_duration(passed), why=why
                ),
                differs=differs,
            )
        await sleep(every_seconds)
        waited += every_seconds


async def _find_listed(market: Market, instance: str, token: str) -> Instance | None:
    try:
        found = await market.find_by_token(token)
    except ProviderError:
        return None
    return next((one for one in found if one.id == instance), None)


def _describe_status(machine: Instance) -> str:
    status = machine.meter.native_status or machine.meter.lifecycle.value
    if machine.meter.lifecycle in LOST_MACHINE:
        return f"{translate(LOST_MACHINE[machine.meter.lifecycle])} ({status})"
    if machine.host is None:
        return translate("{status}, no SSH address yet", status=status)
    return translate(
        "{status}, {host}:{port} does not answer yet",
        status=status,
        host=machine.host,
        port=machine.port or 22,
    )


async def ssh_answers(host: str, port: int) -> bool:
    """Return whether an SSH server answers there."""
    writer: asyncio.StreamWriter | None = None
    try:
        async with asyncio.timeout(BANNER_SECONDS):
            reader, writer = await asyncio.open_connection(host, port)
            # A server may send other lines first (RFC 4253, 4.2); its version string is among the
            # first few.
            for _ in range(20):
                if (await reader.readline()).startswith(b"SSH-"):
                    return True
    except (OSError, TimeoutError, ValueError):
        return False
    finally:
        if writer is not None:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()
    return False
