"""What the boxes cost now, from the control plane or from the price in the fleet file.

A fleet-file price counts only while the box reports. When it does not, it is unknown whether it is
still billed, and *unknown* is never treated as free.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Mapping

import msgspec
from msgspec.structs import replace

from rgt_tui.fleet.box_session import BoxSession
from rgt_tui.fleet.event_loop import FaultReporter, Say, run_guarded
from rgt_tui.fleet.fleet_source import GateClosed
from rgt_tui.gate import (
    ActionState,
    AuditEntry,
    AuditEvent,
    AuditFailed,
    AuditLog,
    InstanceLocked,
    InstanceTarget,
    Journal,
    JournalFailed,
    OpenAction,
    ReceiptBook,
    describe_open_action,
)
from rgt_tui.gate.audit import find_user_and_host
from rgt_tui.language import translate
from rgt_tui.model import (
    CLICK,
    FLEET_FILE,
    BillingVerb,
    BoxSpec,
    BoxState,
    FrozenStruct,
    Lifecycle,
    LinkState,
    Meter,
    MeterKind,
    Permit,
    StopPhase,
    StopProgress,
    moment,
    steady_time,
)
from rgt_tui.profiles import load_profile, stale_after
from rgt_tui.providers import (
    UNTOLD,
    PermitRefused,
    Provider,
    ProviderError,
    Providers,
    keep_last_good,
)
from rgt_tui.providers.console import (
    SILENT_S,
    BoxSighting,
    ConsoleBox,
    SelfStoppingBox,
    judge_sighting,
)
from rgt_tui.ssh import BoxError


class MeterLimits(FrozenStruct):
    """Which readings of a meter can be compared."""

    longest_gap_s: float = 300.0
    """After a gap of more seconds between two readings, what the box did in between is unknown."""
    count_s: float = 5.0
    """Seconds between two counts of the boxes with a fleet-file price."""
    least_compared_s: float = 1800.0
    """Seconds that must be compared before a difference is reported: late bookings would weigh too
    much."""
    cent: float = 0.01
    """Differences up to this much money are rounding."""


METER_LIMITS = MeterLimits()

WAITING = frozenset(
    {ActionState.SENT, ActionState.ANSWERED, ActionState.UNKNOWN, ActionState.YOURS}
)
"""States of an action that a person's statement can end. An `intent` never reached the console."""


def lacks_status_call(spec: BoxSpec) -> bool:
    """Return whether a box's platform has no API call that reports on the box."""
    return spec.provider is not None and spec.provider.kind in UNTOLD


def is_priced(spec: BoxSpec) -> bool:
    """Return whether a box's costs come from the fleet file, or its platform is free."""
    return lacks_status_call(spec) or (
        spec.provider is None and (spec.per_hour is not None or is_free(spec))
    )


def is_free(spec: BoxSpec) -> bool:
    """Return whether a box costs nothing: a free platform, and no price in the fleet file."""
    return spec.per_hour is None and not load_profile(spec.profile).billed


def build_local_meter(box: BoxState, now: float, passed: float) -> Meter:
    """Return the meter of a box that is free, or whose price is in the fleet file.

    The amount counts from when any rgt first saw the box, and only while it was seen: a lower
    bound.

    Args:
        box: Its state, including the meter so far.
        now: Client clock.
        passed: Seconds since the previous reading during which the box was seen, by the steady
            clock.
    """
    spec, old = box.spec, box.meter
    # Amounts of another source, such as a provider that was removed since, are not continued.
    if old.source != FLEET_FILE:
        old = Meter(source=FLEET_FILE)
    seen = box.sample_at
    reports = _is_reporting(box, now)
    if is_free(spec):
        return Meter(
            kind=MeterKind.NONE,
            lifecycle=Lifecycle.RUNNING if reports else Lifecycle.UNKNOWN,
            per_hour=0.0,
            compute_per_hour=0.0,
            storage_per_hour=0.0,
            currency=spec.currency,
            at=now,
            source=translate("{name}: nothing is billed", name=load_profile(spec.profile).name),
        )
    # The box existed when its newest sample was taken, even if the connection is dead by now.
    until = now if reports else seen
    spent, since = old.spent, old.spent_since
    counts = until is not None and old.kind is MeterKind.COMPUTE_AND_STORAGE
    # At the old price: the new one applies from this reading on.
    if counts and old.per_hour is not None and 0.0 < passed <= METER_LIMITS.longest_gap_s:
        spent = (spent or 0.0) + old.per_hour * passed / 3600.0
    if not reports:
        # Unchanged while the box stays away, so that nothing is published.
        if old.kind is MeterKind.UNKNOWN and old.at is not None:
            return old
        return Meter(
            per_hour=spec.per_hour,
            spent=spent,
            spent_since=since,
            currency=spec.currency,
            at=until if until is not None else now,
            source=FLEET_FILE,
            spent_at_least=True,
        )
    return Meter(
        kind=MeterKind.COMPUTE_AND_STORAGE,
        lifecycle=Lifecycle.RUNNING,
        per_hour=spec.per_hour,
        spent=spent if spent is not None or spec.per_hour is None else 0.0,
        spent_since=since if since is not None else now,
        currency=spec.currency,
        at=now,
        source=FLEET_FILE,
        spent_at_least=True,
    )


def _is_reporting(box: BoxState, now: float) -> bool:
    seen = box.sample_at
    return box.link is LinkState.LIVE and seen is not None and now - seen <= stale_after(box)


async def run_on(box: BoxSession, command: str) -> int | None:
    """Run a command on a box over the open connection; return its exit status.

    None = the connection was lost.

    Raises:
        ProviderError: there is no connection; nothing was sent.
    """
    from rgt_tui.ssh import run_command

    try:
        connection, _ = box.agent
    except BoxError as error:
        raise ProviderError(
            translate("{error}; nothing was sent", error=error), sent=False
        ) from None
    try:
        # Limit for a command that switches a box off: the connection may be lost meanwhile, or
        # never answer.
        command_seconds = 30.0
        done = await run_command(connection, command, seconds=command_seconds)
    except BoxError:
        return None
    return done.status


class FleetMeters:
    """Polls the providers. A failed reading keeps the last good one, with the error and its age.

    Args:
        sessions: The boxes.
        seconds: Between two readings.
        clock: Epoch seconds.
        say: Called with messages about faults.
        env: Variables with the providers' keys; None = the process's environment.
        ticks: Seconds of a clock that cannot be set, and that also runs while the computer sleeps.
    """

    def __init__(
        self,
        sessions: Mapping[str, BoxSession],
        *,
        seconds: float,
        clock: Callable[[], float],
        say: Say,
        env: Mapping[str, str] | None = None,
        ticks: Callable[[], float] = steady_time,
    ) -> None:
        self._sessions: list[BoxSession] = []
        self._priced: list[BoxSession] = []
        self._others = asyncio.Event()
        """Set when the set of boxes has changed."""
        self.watch_boxes(sessions)
        self._seconds = seconds
        self._clock = clock
        self._say = say
        self._fault = FaultReporter(say).report_fault
        self.told: Callable[[BoxSession, Meter], None] = lambda box, meter: None
        """Called with every reading of a provider."""
        self.polled: Callable[[], None] = lambda: None
        """Called after every attempt to list all accounts."""
        self.providers = Providers(clock=clock, env=env)
        self._books: dict[str, BookCheck | None] = {}
        self._ticks = ticks
        self._counted: dict[str, float] = {}
        """Box → time up to which its fleet-file price was counted, by `ticks`."""

    def watch_boxes(self, sessions: Mapping[str, BoxSession]) -> None:
        """Read the meters of these boxes from now on."""
        self._sessions = [
            session
            for session in sessions.values()
            if session.state.spec.provider is not None and not lacks_status_call(session.state.spec)
        ]
        self._priced = [session for session in sessions.values() if is_priced(session.state.spec)]
        self._others.set()

    def open_provider(self, box: BoxSession) -> Provider | None:
        """Return the control plane of a box, or None."""
        ref = box.state.spec.provider
        if ref is None:
            found = None
        else:
            found = self.providers.open_control_plane(ref)
        if isinstance(found, ConsoleBox):
            found.sight = lambda: self._read_sight(box)
        if isinstance(found, SelfStoppingBox):
            found.run = lambda command: run_on(box, command)
        return found

    def action_provider(self, box: BoxSession) -> Provider:
        """Return the executor of a billing action: the control plane, or a person on the console.

        Raises:
            UnknownProvider: there is no adapter for the provider in its description.
        """
        found = self.open_provider(box)
        if found is None:
            spec = box.state.spec
            found = ConsoleBox(spec.billing_ref, load_profile(spec.profile), self._clock)
            found.sight = lambda: self._read_sight(box)
        return found

    def meter_without_provider(self, box: BoxSession, seen: Meter) -> Meter:
        """Return the meter of a box without a provider, updated with an action's reading.

        The reading does not change the costs.
        """
        return replace(
            box.state.meter,
            actions=seen.actions,
            native_status=seen.native_status,
            at=seen.at,
            error=None,
        )

    def _read_sight(self, box: BoxSession) -> BoxSighting:
        heard = box.state.sample_at
        silent = heard is None or self._clock() - heard > max(SILENT_S, stale_after(box.state))
        return BoxSighting(answers=box.state.link is LinkState.LIVE and not silent, heard=heard)

    def _with_tiers(self, box: BoxSession, fresh: Meter) -> Meter:
        """Add the provider's information about the machine's disks to a reading."""
        if fresh.error is not None:
            return fresh
        try:
            provider = self.open_provider(box)
        # A mistake in the fleet file's provider, which the reading already reports.
        except ValueError:
            return fresh
        if provider is None:
            return fresh
        return replace(fresh, tiers=provider.list_tiers(provider.instance))

    def store_reading(self, box: BoxSession, fresh: Meter) -> Meter:
        """Store a reading in the box's state; return the displayed meter."""
        name = box.state.spec.name
        fresh = self._with_tiers(box, fresh)
        if lacks_status_call(box.state.spec):
            # The costs come from the fleet file alone; the actions come from the platform's
            # description.
            fresh = replace(
                self._count_meter(box.state, self._clock()),
                actions=fresh.actions,
                native_status=fresh.native_status,
            )
        self._books[name], fresh = extend_book_check(self._books.get(name), fresh)
        # The raw reading: an action that is followed must see the error, not the last good state.
        self.told(box, fresh)
        shown = keep_last_good(box.state.meter, fresh)
        if shown != box.state.meter:
            box.set_meter(shown)
        return shown

    async def run(self) -> None:
        """Poll and count until cancelled."""
        async with asyncio.TaskGroup() as both:
            for doing, work in (
                ("counting by the fleet file's prices", self._run_counting),
                ("asking the providers", self._run_polling),
            ):
                # Two tasks: a provider that answers slowly must not stop the counting.
                both.create_task(run_guarded(doing, work, self._say), name=doing)

    async def _run_counting(self) -> None:
        # The same while one of them connects or has just begun to answer.
        soon_seconds = 0.5
        while True:
            self.count_prices()
            pause = METER_LIMITS.count_s
            if self._has_uncounted():
                pause = min(soon_seconds, pause)
            await asyncio.sleep(pause)

    def _has_uncounted(self) -> bool:
        """Return whether a box that has begun to answer is not counted yet.

        Then counting runs more often, so that even a single look at the fleet shows the price.
        """
        return any(
            session.state.link in (LinkState.CONNECTING, LinkState.LIVE)
            and session.state.meter.kind is MeterKind.UNKNOWN
            for session in self._priced
        )

    async def _run_polling(self) -> None:
        while True:
            # Before the reading: a box added meanwhile is read at once.
            self._others.clear()
            try:
                await self.read_all()
            except Exception as error:
                self._fault("reading the meters", error)
                words = translate(
                    "rgt: {name}: {error}; this is a fault of rgt",
                    name=type(error).__name__,
                    error=error,
                )
                for session in self._sessions:
                    self.store_reading(session, Meter(at=self._clock(), error=words))
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._seconds):
                    await self._others.wait()

    def count_prices(self) -> None:
        """Update the meters of the boxes with a fleet-file price."""
        now = self._clock()
        for session in self._priced:
            try:
                meter = self._count_meter(session.state, now)
                if lacks_status_call(session.state.spec):
                    meter = replace(
                        meter, native_status=judge_sighting(self._read_sight(session), now)[1]
                    )
                if meter != session.state.meter:
                    session.set_meter(meter)
            except Exception as error:  # one faulty box must not stop the counting of others
                self._fault(f"counting what {session.state.spec.name} costs", error)

    def _count_meter(self, box: BoxState, now: float) -> Meter:
        """Return the meter by the fleet-file price, including the time since the last count."""
        # Until its newest sample only: what it did in its silence is unknown.
        until = self._ticks() if _is_reporting(box, now) else box.seen.sample
        last = self._counted.get(box.spec.name)
        if until is not None:
            self._counted[box.spec.name] = until
        return build_local_meter(box, now, 0.0 if until is None or last is None else until - last)

    async def read_all(self) -> None:
        """Poll the providers once, if there are any."""
        if not self._sessions:
            return
        refs = [session.state.spec.provider for session in self._sessions]
        try:
            meters = await self.providers.poll_meters(ref for ref in refs if ref is not None)
        except ValueError as error:
            for session in self._sessions:
                self.store_reading(session, Meter(at=self._clock(), error=str(error)))
            return
        for session in self._sessions:
            ref = session.state.spec.provider
            if ref is not None and ref in meters:
                self.store_reading(session, meters[ref])
        self.polled()

    async def close(self) -> None:
        """Close the connections to the providers."""
        await self.providers.close()


class BookCheck(FrozenStruct, kw_only=True):
    """The comparison so far of the provider's books with rgt's own count."""

    since: float
    """Client clock of its start."""
    base: float
    """The booked amount at the start."""
    currency: str
    own: float = 0.0
    """Amount counted by rgt since then."""
    slack: float = 0.0
    """How much the books may lag, at the highest prices seen."""
    last: Meter
    """The newest reading, up to which `own` counts."""
    differ: float | None = None
    """Books minus `own` at their last reading, if lag and rounding do not explain it."""


def extend_book_check(before: BookCheck | None, meter: Meter) -> tuple[BookCheck | None, Meter]:
    """Return the comparison extended by one reading, and the reading with its result.

    Nothing is compared while the price is a lower bound or the state is unknown: the own count is
    unreliable then.
    """
    # A reading that failed neither continues nor breaks the comparison.
    if meter.error is not None:
        return before, meter
    if (
        # Without any of these the two sums would not cover the same things.
        meter.booked is None
        or meter.at is None
        or meter.per_hour is None
        or meter.at_least
        or meter.kind is MeterKind.UNKNOWN
    ):
        return None, meter
    if before is None or not _continues_check(before, meter):
        fresh = BookCheck(since=meter.at, base=meter.booked, currency=meter.currency, last=meter)
        return msgspec.structs.replace(fresh, slack=_booking_slack(meter)), meter
    passed = meter.at - (before.last.at or 0.0)
    now = msgspec.structs.replace(
        before,
        # At the price of the previous reading, which applied during that time.
        own=before.own + (before.last.per_hour or 0.0) * passed / 3600.0,
        # The highest so far: the books may still lack the expensive hours.
        slack=max(before.slack, _booking_slack(meter)),
        last=meter,
    )
    if (
        # Only at a new booking: between two of them the books cannot follow.
        meter.booked_at != before.last.booked_at
        and meter.at - now.since >= METER_LIMITS.least_compared_s
    ):
        now = msgspec.structs.replace(now, differ=_difference(now, meter.booked))
    if now.differ is None:
        return now, meter
    return now, msgspec.structs.replace(
        meter, books_differ=now.differ, books_differ_since=now.since
    )


def _continues_check(before: BookCheck, meter: Meter) -> bool:
    passed = (meter.at or 0.0) - (before.last.at or 0.0)
    # Books that shrink were corrected, or begin a new period.
    shrunk = (meter.booked or 0.0) < (before.last.booked or 0.0) - METER_LIMITS.cent
    return (
        0.0 <= passed <= METER_LIMITS.longest_gap_s
        and meter.currency == before.currency
        and not shrunk
    )


def _booking_slack(meter: Meter) -> float:
    storage = meter.storage_per_hour or 0.0
    # How far the books may lag: RunPod's billing runs every 5 minutes, and a reading may be a
    # minute old.
    lag_seconds = 600.0
    # How far storage may lag: a network volume is booked hourly
    # (https://docs.runpod.io/pods/pricing).
    storage_lag_seconds = 3600.0
    return ((meter.per_hour or 0.0) * lag_seconds + storage * storage_lag_seconds) / 3600.0


def _difference(check: BookCheck, booked: float) -> float | None:
    differ = booked - check.base - check.own
    # Tolerated share of the own count, for rounding and prices that change between two readings.
    share = 0.02
    if abs(differ) > check.slack + share * check.own + METER_LIMITS.cent:
        return differ
    return None


# Billing actions that a person carries out on the platform's console, because no provider can be
# queried.
#
# The gate judges such a box like any other. Only the last step differs: rgt sends nothing, shows
# what to click, and leaves the action open until the person reports that it is done. A silent box
# alone does not close the action, and while the box answers, the person's report is refused.


def is_click(provider: Provider, verb: BillingVerb) -> bool:
    """Return whether a person carries the action out because the platform has no call for it."""
    return provider.native_action(verb) == CLICK


async def report_console_steps(
    provider: Provider, permit: Permit, clock: Callable[[], float]
) -> AsyncIterator[StopProgress]:
    """Use up the permit and report what the person must click; nothing is sent or polled."""
    try:
        said = await (
            provider.stop(permit) if permit.verb is BillingVerb.PARK else provider.destroy(permit)
        )
    except (PermitRefused, ProviderError) as error:
        yield StopProgress(
            phase=StopPhase.FAILED,
            at=clock(),
            text=translate("nothing was done: {error}", error=error),
        )
        return
    again = translate(
        "; once the console shows that it is done: rgt down {box} --done", box=permit.box
    )
    yield StopProgress(phase=StopPhase.YOURS, at=clock(), text=f"{said}{again}")


def describe_own_step(verb: BillingVerb, step: StopProgress) -> tuple[str, str] | None:
    """Return event text and level for a step of a person's own action; None = no event."""
    if step.phase is StopPhase.REQUESTED:
        return translate(
            "{verb} sent by you: {words}", verb=translate(verb), words=step.text
        ), "info"
    if step.phase is StopPhase.YOURS:
        return translate(
            "{verb} left to you: {words}", verb=translate(verb), words=step.text
        ), "info"
    if step.phase is StopPhase.METER_OFF:
        return translate(
            "{done_word} by you: {words}", done_word=translate(verb.done_word), words=step.text
        ), "info"
    if step.phase in (StopPhase.FAILED, StopPhase.UNCONFIRMED):
        return translate(
            "unknown whether {done_word}: {words}",
            done_word=translate(verb.done_word),
            words=step.text,
        ), "error"
    return None


def waiting_click(journal: Journal, target: InstanceTarget) -> OpenAction | None:
    """Return the open action on a machine that only a person can close, or None."""
    found, _ = journal.open_actions()
    mine = (one for one in found if one.first.target == target and one.first.verb is not None)
    return next((one for one in mine if one.last.state in WAITING), None)


SILENT = frozenset({LinkState.UNREACHABLE, LinkState.REFUSED_KEY})
"""Links of a box that may be off: no answer, or another machine with another host key at its
address."""


def find_not_silent_reason(box: str, link: LinkState, reason: str) -> str:
    """Return why a person's statement is refused: rgt has not seen the box silent."""
    if link is LinkState.REFUSED_LOGIN:
        why = translate(
            "{box} answers, and refuses the login ({reason}), so it is not off",
            box=box,
            reason=reason,
        )
    elif link is LinkState.PAUSED:
        why = translate(
            "{box} is paused by you, so rgt cannot check whether it still answers: resume it",
            box=box,
        )
    else:
        why = translate(
            "still unknown whether {box} answers ({reason}): confirm again",
            box=box,
            reason=reason or link.value,
        )
    return translate(
        "{why}. If you have seen on the console that it is off: rgt audit --box {box} --seen off",
        why=why,
        box=box,
    )


def find_answering_reason(box: str) -> str:
    """Return why a person's statement is refused: the box still answers."""
    return translate(
        "{box} still answers over SSH, so it is not off: check the console, then confirm again. "
        "If you will not click it: rgt audit --box {box} --seen on",
        box=box,
    )


async def close_by_statement(
    journal: Journal,
    audit: AuditLog,
    receipts: ReceiptBook,
    action: OpenAction,
    seen: Meter,
    now: float,
    spent: float | None = None,
) -> str:
    """Record the person's statement that the action is done; return the recorded text.

    Args:
        journal: Where the action is open.
        audit: Where the statement is recorded.
        receipts: Where facts known before the click are kept.
        action: The open action.
        seen: The current reading of the box.
        now: Client clock.
        spent: The box's costs so far, if known.

    Raises:
        GateClosed: it could not be recorded; the action stays open.
    """
    first = action.first
    text = translate(
        "done on the console, confirmed by {who}; seen from here: "
        "{native_status}; evidence of {at}, not checked again",
        who=find_user_and_host(),
        native_status=seen.native_status or translate("nothing"),
        at=moment(first.at),
    )

    def write_answer() -> None:
        with journal.lock_instance(first.target, first.box, first.verb) as held:
            if held.earlier is None or held.earlier.first.action != first.action:
                raise GateClosed(
                    (
                        translate(
                            "{action}: settled by someone else", action=describe_open_action(action)
                        ),
                    )
                )
            entry = AuditEntry(
                at=now,
                event=AuditEvent.ANSWER,
                box=first.box,
                verb=first.verb,
                instance=first.target.instance,
                evidence=first.evidence,
                text=f"{ActionState.OFF}: {text}",
            )
            held.settle_earlier(ActionState.OFF, text, audit=audit.record_entry(entry))

    try:
        await asyncio.to_thread(write_answer)
    except (AuditFailed, JournalFailed, InstanceLocked) as error:
        raise GateClosed((str(error),)) from error
    await asyncio.to_thread(
        receipts.finish_receipt, first.action, ActionState.OFF, now, text, spent
    )
    return text
