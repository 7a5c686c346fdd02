"""Whether a box may be armed to park itself, and the outcome for armed boxes.

The only request sent is to a box that is back: for its records of its own stop.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterator, Mapping

from msgspec.structs import replace

from rgt_tui.fleet.autostop.autostop_verbs import ArmedBook, Stamp, Way, ask_story
from rgt_tui.fleet.box_session import BoxSession
from rgt_tui.gate import ReceiptBook, receipt_of_self_stop
from rgt_tui.gate.identity import IDENTITY
from rgt_tui.health import describe_hung_runs
from rgt_tui.health.facts import provider_word
from rgt_tui.language import translate
from rgt_tui.model import (
    ActionReview,
    ArmedRecord,
    AutostopMode,
    BillingVerb,
    BoxSpec,
    BoxState,
    EndAction,
    Lifecycle,
    LinkState,
    Profile,
    SelfStopState,
    StopEvent,
    parse_idle_condition,
)
from rgt_tui.profiles import (
    ProfileError,
    action_for,
    describe_missing_verb,
    load_profile,
    no_agent,
    tier_survives,
)
from rgt_tui.providers import own_stop
from rgt_tui.ssh import BoxError

STOPPING = "autostop-stopping"
"""Kind of the event that announces a box's stop."""
UNDONE = ("autostop-kept", "autostop-failed", "autostop-disarmed")
"""Kinds of the events that withdraw the announcement."""
CANNOT = "not armed: this box cannot stop itself"
RESULT_ROLES = ("data", "durable")
"""Roles of a platform's storage that is meant for results; its system disk is not."""


class SelfStops:
    """Keeps `BoxState.self_stop` up to date.

    Args:
        book: Stores which boxes were armed.
        sessions: The boxes.
        clock: Epoch seconds.
        ask: Queries a box for its story.
        receipts: Where the receipt of a box that parked itself is written; None = nowhere.
    """

    def __init__(
        self,
        book: ArmedBook,
        sessions: Mapping[str, BoxSession],
        *,
        clock: Callable[[], float],
        ask: Callable[[Way, tuple[str, ...]], Awaitable[tuple[StopEvent, ...]]] = ask_story,
        receipts: ReceiptBook | None = None,
    ) -> None:
        self._book = book
        self._sessions = sessions
        self._clock = clock
        self._ask = ask
        self._receipts = receipts
        self._stamps: dict[str, Stamp | None] = {}
        self._due: dict[str, float] = {}
        """Box → when to query its story again, if it did not answer."""
        self._one_look = asyncio.Lock()

    async def run(self) -> None:
        """Check until cancelled."""
        every_seconds = 1.0
        # Seconds between checks while no box is armed, the same as for the fleet file. Each check
        # reads the disk in a thread.
        unarmed_seconds = 2.0
        while True:
            await self.check_boxes()
            armed = any(session.state.self_stop is not None for session in self._sessions.values())
            await asyncio.sleep(every_seconds if armed else unarmed_seconds)

    async def check_boxes(self) -> None:
        """Check every box once; a one-off command awaits this."""
        async with self._one_look:
            await self._check_all()

    async def _check_all(self) -> None:
        sessions = list(self._sessions.items())  # boxes may be added or removed meanwhile
        stamps = await asyncio.to_thread(
            self._book.list_stamps, (session.state.spec for _, session in sessions)
        )
        for name, session in sessions:
            stamp = stamps.get(name)
            if stamp is None and name in self._stamps and self._stamps[name] is None:
                continue  # nearly always: there is no record, and there was none
            if name not in self._stamps or stamp != self._stamps[name]:
                self._stamps[name] = stamp
                if stamp is None:
                    found = None
                else:
                    found = await asyncio.to_thread(self._book.find_record, session.state.spec)
                session.set_self_stop(found)
            if session.state.self_stop is not None:
                await self._check_box(session, session.state.self_stop)

    async def _check_box(self, session: BoxSession, known: SelfStopState) -> None:
        box, now = session.state, self._clock()
        after = update_from_state(known, box, now)
        if is_back(after, box) and now >= self._due.get(box.spec.name, 0.0):
            after = await self._read_story(session, after, now)
        if after is not known:
            await self._store_record(session, known, after)
        if known.off_at is None and after.off_at is not None and self._receipts is not None:
            with contextlib.suppress(OSError, ProfileError):
                profile = load_profile(box.spec.profile)
                receipt = receipt_of_self_stop(session.state, profile, after.off_at)
                await asyncio.to_thread(self._receipts.save_receipt, receipt)

    async def _read_story(
        self, session: BoxSession, known: SelfStopState, now: float
    ) -> SelfStopState:
        try:
            kept = tuple(dict.fromkeys(path for one in known.armed for path in one.durable))
            story = await self._ask(session.agent, kept)
        except BoxError:
            # Seconds before a box that did not send its story is queried again.
            ask_again_seconds = 30.0
            self._due[session.state.spec.name] = now + ask_again_seconds
            return known
        return add_story(known, session.state, story, now)

    async def _store_record(
        self, session: BoxSession, before: SelfStopState, after: SelfStopState
    ) -> None:
        """Store the record, unless another rgt changed it: then its record is used."""
        spec = session.state.spec
        try:
            kept = await asyncio.to_thread(
                self._book.change_record, spec, lambda found: after if found == before else found
            )
            self._stamps[spec.name] = self._book.read_stamp(spec)
        except (OSError, TimeoutError):
            kept = after  # keep it in memory: only the next rgt lacks it
        session.set_self_stop(kept)


def update_from_state(known: SelfStopState, box: BoxState, now: float) -> SelfStopState:
    """Return the record updated by the newest state.

    The box may have announced its stop, or its provider may report it as stopped.

    Args:
        known: The record so far.
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
        if said[-1].kind == STOPPING:
            at = said[-1].at - (box.clock_skew or 0.0)
        else:
            at = None
        if at != known.stopping_at:
            known = replace(known, stopping_at=at)
    if known.off_at is None and provider_word(box, now) is Lifecycle.STOPPED:
        off = box.life.stopped_at if box.life.stopped_at is not None else box.meter.at
        known = replace(
            known, off_at=max(off if off is not None else now, max(one.at for one in known.armed))
        )
    return known


def is_back(known: SelfStopState, box: BoxState) -> bool:
    """Return whether a box is live after the armed boot and has not sent its story yet."""
    if (
        known.told_at is not None
        or not known.armed
        or box.link is not LinkState.LIVE
        or box.hello is None
    ):
        return False
    return box.remembered_at is None and all(one.boot != box.hello.boot for one in known.armed)


def add_story(
    known: SelfStopState, box: BoxState, story: tuple[StopEvent, ...], now: float
) -> SelfStopState:
    """Return the record with the story of a box that is back.

    Args:
        known: The record so far.
        box: The box.
        story: All of its records, oldest first.
        now: Client clock.
    """
    skew = box.clock_skew or 0.0
    # The story begins this long before arming, because the two clocks may differ.
    earlier_s = 120.0
    since = min(one.at for one in known.armed) + skew - earlier_s
    mine = tuple(event for event in story if event.at >= since)
    on_client = tuple(replace(event, at=event.at - skew) for event in mine)
    off = known.off_at
    asked = [event.at for event in on_client if event.event in ("intent", "answered")]
    if off is None and asked:
        off = asked[-1]
    return replace(
        known,
        story=on_client,
        told_at=now,
        off_at=off,
        saved=saved_cost(known.armed, off, box, now),
    )


def saved_cost(
    armed: tuple[ArmedRecord, ...], off: float | None, box: BoxState, now: float
) -> float | None:
    """Return the compute costs saved from the stop until the machine was started again.

    A lower bound: without the stop it would have billed until a person noticed, at an unknown time.
    None if the price or the time of the stop is unknown.
    """
    price = next((one.per_hour for one in armed if one.per_hour is not None), None)
    if price is None or off is None:
        return None
    started = box.meter.started
    if started is not None and off < started <= now:
        until = started
    else:
        until = now
    return round(max(0.0, until - off) / 3600.0 * price, 6)


# Whether a box may be armed to park itself, judged by its platform, the fleet file and the gate's
# evidence.
#
# Pure functions. Facts that only the box knows (its own key, running processes, their memory) are
# in its answer to the rehearsal.


def against_platform(profile: Profile, spec: BoxSpec) -> str | None:
    """Return why no box of a platform can park itself without losing results; None = it can.

    The park must certainly end the GPU's charge, keep every storage tier meant for results, and be
    possible with a key or a command of the box's own.
    """
    action = action_for(profile, BillingVerb.PARK)
    traps = [one for one in profile.billing if one.trap]
    if action is None or action.trap:
        why = describe_missing_verb(profile, BillingVerb.PARK) or translate(
            "{name} has no stop that ends the charges", name=profile.name
        )
    elif action.stops_gpu_meter is not True:
        why = translate(
            "by the profile, {native_label} is not certain to end the GPU's charge",
            native_label=action.native_label,
        )
    elif lost := [
        tier.name
        for tier in profile.tiers
        if tier.role in RESULT_ROLES and tier_survives(tier, BillingVerb.PARK, action) is not True
    ]:
        why = translate(
            "by the profile, {native_label} is not certain to keep {lost}",
            native_label=action.native_label,
            lost=", ".join(lost),
        )
    elif own_stop(spec.provider) is None:
        if spec.provider is not None:
            kind = spec.provider.kind
        else:
            kind = translate("none in the fleet file")
        why = translate(
            "no documented key on the box itself for {name} (provider: {kind})",
            name=profile.name,
            kind=kind,
        )
    else:
        return None
    shut = "".join(f"; {one.native_label}: {one.note}" for one in traps if one.note)
    return f"{translate(CANNOT)}: {why}{shut}"


def known_objections(
    spec: BoxSpec, profile: Profile, action: EndAction, *, readonly: bool = False
) -> Iterator[str]:
    """Return every objection to arming a box that is known without a query.

    Args:
        spec: The box.
        profile: Its platform.
        action: What the box would do.
        readonly: rgt was started with --readonly.
    """
    if readonly:
        yield "rgt was started with --readonly: it arms nothing and sends no billing action"
    if spec.untrusted:
        yield "the fleet file is not trusted: rgt trust"
    if action is EndAction.ASK:
        return
    platform = against_platform(profile, spec)
    if platform is not None:
        yield translate("{platform}. It can notify you instead: --ask", platform=platform)
    if spec.protected:
        yield translate(
            "{name} is protected in the fleet file: it must not stop itself; --ask "
            "notifies you instead",
            name=spec.name,
        )
    if spec.provider is None:
        yield translate(
            "the fleet file names no provider and instance, so it is unproven which machine this is"
        )


def self_stop_options(box: BoxState, profile: Profile) -> str | None:
    """Return the options with which a box can be armed: ``""`` to park itself, else ``--ask``.

    None if it cannot be armed at all, not even to notify a person.
    """
    if box.spec.untrusted or no_agent(box):
        return None
    if any(known_objections(box.spec, profile, EndAction.PARK)):
        return "--ask"
    return ""


def propose_self_stop(box: BoxState, profile: Profile, command: str, why: str) -> tuple[str, str]:
    """Return the arguments of ``rgt`` that arm a box as far as it can be armed, and why to run them.

    Args:
        box: The box.
        profile: Its platform.
        command: ``autostop`` or ``lease`` with its time, ``{box}`` for the name of the box.
        why: What the stop would save.

    Returns:
        The command is empty if the box cannot be armed at all: `why` says who must stop it.
    """
    name = box.spec.name
    options = self_stop_options(box, profile)
    if options is None:
        return "", translate(
            "{why}; the box can neither stop itself nor notify you: stop it yourself (rgt down "
            "{name})",
            why=why,
            name=name,
        )
    command = f"{command.format(box=name)} {options}".rstrip()
    if options:
        why = translate(
            "{why}; the box cannot stop itself: it notifies you (rgt notify {name}), and you stop "
            "it (rgt down {name})",
            why=why,
            name=name,
        )
    return command, why


def propose_hang_stop(box: BoxState, profile: Profile, now: float) -> tuple[str, str] | None:
    """Return the command that arms a box to count its hung runs as idle, and their evidence.

    None without evidence (`describe_hung_runs`).
    """
    evidence = describe_hung_runs(box, now)
    if not evidence:
        return None
    condition = ""
    if not parse_idle_condition(box.spec.idle_if or "never"):
        condition = " --idle-if no-progress"
    why = translate("{evidence}; it keeps the box on", evidence="; ".join(evidence))
    return propose_self_stop(box, profile, f"autostop {{box}} --idle 30m{condition}", why)


def wrong_machine(review: ActionReview | None) -> Iterator[str]:
    """Return why it is unproved that the connected machine is the one that would be stopped."""
    if review is None:
        yield translate("which machine this is could not be asked")
        return
    for item in review.items:
        if item.kind == IDENTITY and not item.ok:
            yield item.text


def list_erased_results(review: ActionReview) -> tuple[str, ...]:
    """Return the results whose only copy a park would delete, as known now."""
    return tuple(item.text for item in review.items if item.kind == "results" and item.is_blocking)


def describe_promises(mode: AutostopMode, action: EndAction) -> tuple[str, ...]:
    """Return statements that are true of every armed box."""
    if action is EndAction.PARK:
        stops = translate("the box itself, with its own key, and only a park: it never destroys")
    else:
        stops = translate("you alone: the box notifies you, and is still billed")
    if mode is AutostopMode.IDLE:
        during = translate("a box that is working is never stopped")
    elif action is EndAction.PARK:
        during = translate("it also stops what runs then: warning, SIGTERM, mirror, park")
    else:
        during = translate("what runs then continues: no SIGTERM, copy or park")
    return (
        translate("stopped by: {stops}", stops=stops),
        translate("this computer may sleep or be off: the box keeps its own clock"),
        translate("{during}; a reboot or a resume disarms it and is reported", during=during),
    )
