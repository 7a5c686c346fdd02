"""Whether a box may be armed to park itself, and what became of those that were.

Nothing is sent but one question to a box that has come back: what it wrote down about its own stop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping

from msgspec.structs import replace

from rgt_tui.fleet.autostop.autostop_verbs import ArmedBook, Stamp, Way, ask_story
from rgt_tui.fleet.box_session import BoxSession
from rgt_tui.gate.identity import IDENTITY
from rgt_tui.health.facts import provider_word
from rgt_tui.model import (
    Armed,
    BoxSpec,
    BoxState,
    EndsBy,
    Lifecycle,
    Link,
    Mode,
    Profile,
    Review,
    SelfStop,
    StopEvent,
    Verb,
)
from rgt_tui.profiles import action_for, lacking, survives
from rgt_tui.providers import own_stop
from rgt_tui.ssh import BoxError

EVERY_SECONDS = 1.0
UNARMED_SECONDS = 2.0
"""While no box is armed: as often as the fleet file is looked after. Each look asks the disk, aside."""
ASK_AGAIN_SECONDS = 30.0
"""A box that did not answer about its story is asked again so much later."""
STOPPING = "autostop-stopping"
"""Kind of the event with which a box says that it stops now."""
UNDONE = ("autostop-kept", "autostop-failed", "autostop-disarmed")
"""Kinds with which it says that it does not, after all."""
EARLIER_S = 120.0
"""A story is told from so long before the arming on: the two clocks may differ."""
CANNOT = "not armed: this box cannot stop itself"
RESULT_ROLES = ("data", "durable")
"""What a platform means for results; its system disk is not for them."""


class SelfStops:
    """Keeps `BoxState.self_stop` true.

    Args:
        book: What is remembered.
        sessions: The boxes.
        clock: Epoch seconds.
        ask: Asks a box for its story.
    """

    def __init__(
        self,
        book: ArmedBook,
        sessions: Mapping[str, BoxSession],
        *,
        clock: Callable[[], float],
        ask: Callable[[Way, tuple[str, ...]], Awaitable[tuple[StopEvent, ...]]] = ask_story,
    ) -> None:
        self._book = book
        self._sessions = sessions
        self._clock = clock
        self._ask = ask
        self._stamps: dict[str, Stamp | None] = {}
        self._due: dict[str, float] = {}
        """Box → when it is asked for its story again, if it did not answer."""
        self._one_look = asyncio.Lock()

    async def run(self) -> None:
        """Look until cancelled."""
        while True:
            await self.look()
            armed = any(session.state.self_stop is not None for session in self._sessions.values())
            await asyncio.sleep(EVERY_SECONDS if armed else UNARMED_SECONDS)

    async def look(self) -> None:
        """Look at every box once: a command that is run once waits for this."""
        async with self._one_look:
            await self._look()

    async def _look(self) -> None:
        sessions = list(self._sessions.items())  # boxes come and go
        stamps = await asyncio.to_thread(
            self._book.stamps, (session.state.spec for _, session in sessions)
        )
        for name, session in sessions:
            stamp = stamps.get(name)
            if stamp is None and name in self._stamps and self._stamps[name] is None:
                continue  # nearly always: nothing is remembered of it, and nothing was
            if name not in self._stamps or stamp != self._stamps[name]:
                self._stamps[name] = stamp
                if stamp is None:
                    found = None
                else:
                    found = await asyncio.to_thread(self._book.find, session.state.spec)
                session.set_self_stop(found)
            if session.state.self_stop is not None:
                await self._one(session, session.state.self_stop)

    async def _one(self, session: BoxSession, known: SelfStop) -> None:
        box, now = session.state, self._clock()
        after = seen(known, box, now)
        if is_back(after, box) and now >= self._due.get(box.spec.name, 0.0):
            after = await self._told(session, after, now)
        if after is not known:
            await self._keep(session, known, after)

    async def _told(self, session: BoxSession, known: SelfStop, now: float) -> SelfStop:
        try:
            kept = tuple(dict.fromkeys(path for one in known.armed for path in one.durable))
            story = await self._ask(session.agent, kept)
        except BoxError:
            self._due[session.state.spec.name] = now + ASK_AGAIN_SECONDS
            return known
        return told(known, session.state, story, now)

    async def _keep(self, session: BoxSession, before: SelfStop, after: SelfStop) -> None:
        """Write it down, unless another rgt has changed it meanwhile: the next look then takes that over."""
        spec = session.state.spec
        try:
            kept = await asyncio.to_thread(
                self._book.change, spec, lambda found: after if found == before else found
            )
            self._stamps[spec.name] = self._book.stamp(spec)
        except (OSError, TimeoutError):
            kept = after  # a disk that fails costs the next rgt the memory, and this one nothing
        session.set_self_stop(kept)


def seen(known: SelfStop, box: BoxState, now: float) -> SelfStop:
    """Return what is known after the newest state: the box said that it stops, or its provider that it is off.

    Args:
        known: Before.
        box: The state.
        now: Client clock.
    """
    if known.told_at is not None or not known.armed:
        return known
    boots = {one.boot for one in known.armed}
    said = [
        event for event in box.events if event.kind in (STOPPING, *UNDONE) and event.boot in boots
    ]
    if said:
        at = said[-1].at - (box.clock_skew or 0.0) if said[-1].kind == STOPPING else None
        if at != known.stopping_at:
            known = replace(known, stopping_at=at)
    if known.off_at is None and provider_word(box, now) is Lifecycle.STOPPED:
        off = box.life.stopped_at if box.life.stopped_at is not None else box.meter.at
        known = replace(
            known, off_at=max(off if off is not None else now, max(one.at for one in known.armed))
        )
    return known


def is_back(known: SelfStop, box: BoxState) -> bool:
    """Tell whether a box answers again after the boot that it was armed for, and has not told its story yet."""
    if (
        known.told_at is not None
        or not known.armed
        or box.link is not Link.LIVE
        or box.hello is None
    ):
        return False
    return box.remembered_at is None and all(one.boot != box.hello.boot for one in known.armed)


def told(known: SelfStop, box: BoxState, story: tuple[StopEvent, ...], now: float) -> SelfStop:
    """Return what is known once a box that is back has told its story.

    Args:
        known: Before.
        box: It.
        story: All that it has written down, oldest first.
        now: Client clock.
    """
    skew = box.clock_skew or 0.0
    since = min(one.at for one in known.armed) + skew - EARLIER_S
    mine = tuple(event for event in story if event.at >= since)
    on_client = tuple(replace(event, at=event.at - skew) for event in mine)
    off = known.off_at
    asked = [event.at for event in on_client if event.event in ("intent", "answered")]
    if off is None and asked:
        off = asked[-1]
    return replace(
        known, story=on_client, told_at=now, off_at=off, saved=saved(known.armed, off, box, now)
    )


def saved(armed: tuple[Armed, ...], off: float | None, box: BoxState, now: float) -> float | None:
    """Return what the compute would have cost from the stop until the machine was started again: at least so much.

    Without the stop it would have billed until somebody looked; nobody knows when that would have been. None where the
    price is not known, or when it stopped.
    """
    price = next((one.per_hour for one in armed if one.per_hour is not None), None)
    if price is None or off is None:
        return None
    started = box.meter.started
    until = started if started is not None and off < started <= now else now
    return round(max(0.0, until - off) / 3600.0 * price, 6)


# Whether a box may be armed to park itself, judged by its platform, the fleet file and the gate's evidence.
#
# Pure. What only the box can tell (its own key, what runs, what holds memory) it says itself when arming is
# rehearsed.


def against_platform(profile: Profile, spec: BoxSpec) -> str | None:
    """Say why no box of a platform can park itself without losing results; None = nothing speaks against it.

    Only a park that surely ends the GPU's charge counts, that keeps every tier on which results are meant to lie, and
    that the box can carry out with a key or a command of its own.
    """
    action = action_for(profile, Verb.PARK)
    traps = [one for one in profile.billing if one.trap]
    if action is None or action.trap:
        why = lacking(profile, Verb.PARK) or f"{profile.name} has no stop that ends the bill"
    elif action.stops_gpu_meter is not True:
        why = f"by the profile, {action.native_label} is not certain to end the GPU's charge"
    elif lost := [
        tier.name
        for tier in profile.tiers
        if tier.role in RESULT_ROLES and survives(tier, Verb.PARK, action) is not True
    ]:
        why = f"by the profile, {action.native_label} is not certain to keep {', '.join(lost)}"
    elif own_stop(spec.provider) is None:
        kind = spec.provider.kind if spec.provider is not None else "none in the fleet file"
        why = f"no source names a key of its own for a box of {profile.name} (provider: {kind})"
    else:
        return None
    shut = "".join(f"; {one.native_label}: {one.note}" for one in traps if one.note)
    return f"{CANNOT}: {why}{shut}"


def known_objections(
    spec: BoxSpec, profile: Profile, action: EndsBy, *, readonly: bool = False
) -> Iterator[str]:
    """Say everything that keeps a box from being armed and that is known without asking anybody.

    Args:
        spec: The box.
        profile: Its platform.
        action: What it is to do.
        readonly: rgt was started so.
    """
    if readonly:
        yield "rgt was started with --readonly: it arms nothing, and stops no meter"
    if spec.untrusted:
        yield "the fleet file is not trusted: rgt trust"
    if action is EndsBy.ASK:
        return
    platform = against_platform(profile, spec)
    if platform is not None:
        yield f"{platform}. It can call you instead: --ask"
    if spec.protected:
        yield f"{spec.name} is protected in the fleet file: it must not stop by itself; --ask calls you instead"
    if spec.provider is None:
        yield "the fleet file names no provider and instance, so nothing proves which machine this is"


def wrong_machine(review: Review | None) -> Iterator[str]:
    """Say why it is not proved that the machine which we speak to is the one that would be stopped."""
    if review is None:
        yield "which machine this is could not be asked"
        return
    for item in review.items:
        if item.kind == IDENTITY and not item.ok:
            yield item.text


def erased(review: Review) -> tuple[str, ...]:
    """Return the results of which a park, by what is known now, would take the only copy."""
    return tuple(item.text for item in review.items if item.kind == "results" and item.blocks)


def promises(mode: Mode, action: EndsBy) -> tuple[str, ...]:
    """Return what is true of every armed box."""
    if action is EndsBy.PARK:
        stops = "the box itself, with its own key, and only a park: it never destroys"
    else:
        stops = "you alone: the box notifies you, and keeps billing"
    if mode is Mode.IDLE:
        during = "a box that is working is never stopped"
    elif action is EndsBy.PARK:
        during = "it also ends what runs then: warned, SIGTERM, mirrored, parked"
    else:
        during = "what runs then goes on: nothing is sent SIGTERM, copied or parked"
    return (
        f"stopped by: {stops}",
        "this computer may sleep, or be off: the box keeps its own clock, and your absence stops nothing",
        f"{during}; a reboot or a resume disarms it, and says so",
    )
