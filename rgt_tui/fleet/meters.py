"""What the boxes cost now: according to the control plane, or else to the price in the fleet file.

Such a price says only what was seen: while the box reports, it costs what the file says; once it does not, nobody knows
whether it is still charged, and *unknown* is never free.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Mapping

import msgspec
from msgspec.structs import replace

from rgt_tui.fleet.box_session import BoxSession
from rgt_tui.fleet.event_loop import Faults, Say, guarded
from rgt_tui.fleet.fleet_source import GateClosed
from rgt_tui.gate import (
    ActionState,
    AuditEntry,
    AuditEvent,
    AuditFailed,
    AuditLog,
    Held,
    Journal,
    JournalFailed,
    OpenAction,
    ReceiptBook,
    Target,
    words,
)
from rgt_tui.gate.audit import who
from rgt_tui.model import (
    CLICK,
    FLEET_FILE,
    BoxSpec,
    BoxState,
    Lifecycle,
    Link,
    Meter,
    MeterKind,
    Permit,
    StopPhase,
    StopProgress,
    Verb,
    moment,
    steady,
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
from rgt_tui.providers.console import SILENT_S, ConsoleBox, InBox, Sight, seen
from rgt_tui.ssh import BoxError

LONGEST_SECONDS = 300.0
"""Of a longer time between two readings nobody saw what the box did."""
WAITING = frozenset(
    {ActionState.SENT, ActionState.ANSWERED, ActionState.UNKNOWN, ActionState.YOURS}
)
"""States of an action that the person's word can end; `intent` alone never came to the console."""


def is_untold(spec: BoxSpec) -> bool:
    """Say whether a box's platform has no call that tells anything of it."""
    return spec.provider is not None and spec.provider.kind in UNTOLD


def is_priced(spec: BoxSpec) -> bool:
    """Say whether a box's meter is that of the fleet file, or of a platform that charges nothing."""
    return is_untold(spec) or (
        spec.provider is None and (spec.per_hour is not None or is_free(spec))
    )


def is_free(spec: BoxSpec) -> bool:
    """Say whether a box costs nothing: its platform takes no money, and nobody wrote down a price."""
    return spec.per_hour is None and not load_profile(spec.profile).billed


def metered(box: BoxState, now: float, passed: float) -> Meter:
    """Return the meter of a box that is free, or whose price is in the fleet file.

    What was spent counts from when some rgt first saw the box, and only while it was seen: it is a lower bound.

    Args:
        box: Its state, the meter so far included.
        now: Client clock.
        passed: Seconds since the reading before this one for which the box was seen, by a clock that nobody can set.
    """
    spec, old = box.spec, box.meter
    if old.source != FLEET_FILE:
        old = Meter(source=FLEET_FILE)
    seen = box.sample_at
    reports = _reports(box, now)
    if is_free(spec):
        return Meter(
            kind=MeterKind.NONE,
            lifecycle=Lifecycle.RUNNING if reports else Lifecycle.UNKNOWN,
            per_hour=0.0,
            compute_per_hour=0.0,
            storage_per_hour=0.0,
            currency=spec.currency,
            at=now,
            source=f"{load_profile(spec.profile).name}: nothing bills",
        )
    # The box was there when its newest sample was taken, also where the line is dead by now.
    until = now if reports else seen
    spent, since = old.spent, old.spent_since
    counts = until is not None and old.kind is MeterKind.COMPUTE_AND_STORAGE
    if counts and old.per_hour is not None and 0.0 < passed <= LONGEST_SECONDS:
        spent = (spent or 0.0) + old.per_hour * passed / 3600.0
    if not reports:
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


def _reports(box: BoxState, now: float) -> bool:
    seen = box.sample_at
    return box.link is Link.LIVE and seen is not None and now - seen <= stale_after(box)


async def run_on(box: BoxSession, command: str) -> int | None:
    """Run a command on a box over the open connection; return its exit status, None if the connection was lost.

    Raises:
        ProviderError: there is no connection; nothing was sent.
    """
    import asyncssh

    try:
        connection, _ = box.agent
    except BoxError as error:
        raise ProviderError(f"{error}; nothing was sent", sent=False) from None
    try:
        done = await connection.run(command, stdin=asyncssh.DEVNULL, timeout=COMMAND_SECONDS)
    except (asyncssh.Error, OSError, TimeoutError):
        return None
    return done.exit_status


COMMAND_SECONDS = 30.0
"""For a command that switches a box off: the line is lost on the way, or it never answers."""
COUNT_SECONDS = 5.0
"""Between two looks at the boxes whose price the fleet file tells."""
SOON_SECONDS = 0.5
"""The same while one of them has only just begun to answer, or connects."""


class Meters:
    """Polls the providers. A reading that fails keeps the last good one, with the reason and its growing age.

    Args:
        sessions: The boxes.
        seconds: Between two readings.
        clock: Epoch seconds.
        say: Told of faults.
        env: Where the providers' keys are looked for; None = the process's environment.
        ticks: Seconds of a clock that nobody can set, and that also runs while the computer sleeps.
    """

    def __init__(
        self,
        sessions: Mapping[str, BoxSession],
        *,
        seconds: float,
        clock: Callable[[], float],
        say: Say,
        env: Mapping[str, str] | None = None,
        ticks: Callable[[], float] = steady,
    ) -> None:
        self._sessions: list[BoxSession] = []
        self._priced: list[BoxSession] = []
        self._others = asyncio.Event()
        """There are other boxes than before."""
        self.watch(sessions)
        self._seconds = seconds
        self._clock = clock
        self._say = say
        self._fault = Faults(say).tell
        self.told: Callable[[BoxSession, Meter], None] = lambda box, meter: None
        """Told of every reading of a provider."""
        self.polled: Callable[[], None] = lambda: None
        """Called when all accounts have been listed, or could not be."""
        self.providers = Providers(clock=clock, env=env)
        self._books: dict[str, BookCheck | None] = {}
        self._ticks = ticks
        self._counted: dict[str, float] = {}
        """Box → until when its fleet-file price was counted, by `ticks`."""

    def watch(self, sessions: Mapping[str, BoxSession]) -> None:
        """Read the meters of these boxes from now on."""
        self._sessions = [
            session
            for session in sessions.values()
            if session.state.spec.provider is not None and not is_untold(session.state.spec)
        ]
        self._priced = [session for session in sessions.values() if is_priced(session.state.spec)]
        self._others.set()

    def provider(self, box: BoxSession) -> Provider | None:
        """Return the control plane of a box, or None where it has none."""
        ref = box.state.spec.provider
        found = None if ref is None else self.providers.open(ref)
        if isinstance(found, ConsoleBox):
            found.sight = lambda: self._sight(box)
        if isinstance(found, InBox):
            found.run = lambda command: run_on(box, command)
        return found

    def acting(self, box: BoxSession) -> Provider:
        """Return what carries out a billing action: the box's control plane, else a person on the console.

        Raises:
            UnknownProvider: there is no adapter for the provider of its description.
        """
        found = self.provider(box)
        if found is None:
            spec = box.state.spec
            found = ConsoleBox(spec.billing_ref, load_profile(spec.profile), self._clock)
            found.sight = lambda: self._sight(box)
        return found

    def of_person(self, box: BoxSession, seen: Meter) -> Meter:
        """Return the meter of a box without a provider for an action: what it costs is not changed by asking."""
        return replace(
            box.state.meter,
            actions=seen.actions,
            native_status=seen.native_status,
            at=seen.at,
            error=None,
        )

    def _sight(self, box: BoxSession) -> Sight:
        heard = box.state.sample_at
        silent = heard is None or self._clock() - heard > max(SILENT_S, stale_after(box.state))
        return Sight(answers=box.state.link is Link.LIVE and not silent, heard=heard)

    def _with_tiers(self, box: BoxSession, fresh: Meter) -> Meter:
        """Return a reading with what the provider says of the machine's disks."""
        if fresh.error is not None:
            return fresh
        try:
            provider = self.provider(box)
        except ValueError:
            return fresh
        if provider is None:
            return fresh
        return replace(fresh, tiers=provider.tiers(provider.instance))

    def put(self, box: BoxSession, fresh: Meter) -> Meter:
        """Store a reading in the box's state; return what is shown."""
        name = box.state.spec.name
        fresh = self._with_tiers(box, fresh)
        if is_untold(box.state.spec):
            # What it costs says the fleet file alone, and what it would take, its platform's words.
            fresh = replace(
                self._metered(box.state, self._clock()),
                actions=fresh.actions,
                native_status=fresh.native_status,
            )
        self._books[name], fresh = checked(self._books.get(name), fresh)
        self.told(box, fresh)
        shown = keep_last_good(box.state.meter, fresh)
        if shown != box.state.meter:
            box.set_meter(shown)
        return shown

    async def run(self) -> None:
        """Read until cancelled."""
        async with asyncio.TaskGroup() as both:
            for doing, work in (
                ("counting by the fleet file's prices", self._counting),
                ("asking the providers", self._asking),
            ):
                both.create_task(guarded(doing, work, self._say), name=doing)

    async def _counting(self) -> None:
        while True:
            self.count()
            await asyncio.sleep(
                min(SOON_SECONDS, COUNT_SECONDS) if self._waits() else COUNT_SECONDS
            )

    def _waits(self) -> bool:
        """Tell whether a box has begun to answer that is not counted yet: whoever looks once shall see its price."""
        return any(
            session.state.link in (Link.CONNECTING, Link.LIVE)
            and session.state.meter.kind is MeterKind.UNKNOWN
            for session in self._priced
        )

    async def _asking(self) -> None:
        while True:
            self._others.clear()
            try:
                await self.read_all()
            except Exception as error:
                self._fault("reading the meters", error)
                words = f"rgt: {type(error).__name__}: {error}; this is a fault of rgt"
                for session in self._sessions:
                    self.put(session, Meter(at=self._clock(), error=words))
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._seconds):
                    await self._others.wait()

    def count(self) -> None:
        """Bring the meters of the boxes up to date whose price the fleet file tells."""
        now = self._clock()
        for session in self._priced:
            try:
                meter = self._metered(session.state, now)
                if is_untold(session.state.spec):
                    meter = replace(meter, native_status=seen(self._sight(session), now)[1])
                if meter != session.state.meter:
                    session.set_meter(meter)
            except (
                Exception
            ) as error:  # what one box says must not keep the others from being counted
                self._fault(f"counting what {session.state.spec.name} costs", error)

    def _metered(self, box: BoxState, now: float) -> Meter:
        """Return the meter by the fleet file's price, with the time since this rgt counted last."""
        until = self._ticks() if _reports(box, now) else box.seen.sample
        last = self._counted.get(box.spec.name)
        if until is not None:
            self._counted[box.spec.name] = until
        return metered(box, now, 0.0 if until is None or last is None else until - last)

    async def read_all(self) -> None:
        """Ask the providers once, if there are any."""
        if not self._sessions:
            return
        refs = [session.state.spec.provider for session in self._sessions]
        try:
            meters = await self.providers.poll(ref for ref in refs if ref is not None)
        except ValueError as error:
            for session in self._sessions:
                self.put(session, Meter(at=self._clock(), error=str(error)))
            return
        for session in self._sessions:
            ref = session.state.spec.provider
            if ref is not None and ref in meters:
                self.put(session, meters[ref])
        self.polled()

    async def close(self) -> None:
        """Close the connections to the providers."""
        await self.providers.close()


LEAST_SECONDS = 1800.0
"""Before so much was compared nothing is said: what is booked late would weigh too much."""
LAG_SECONDS = 600.0
"""The books may lag by so much: RunPod's billing runs every 5 minutes, and a reading may be a minute old."""
STORAGE_LAG_SECONDS = 3600.0
"""So much for storage: a network volume is booked by the hour (https://docs.runpod.io/pods/pricing)."""
SHARE = 0.02
"""Of the own count: what rounding, and a price that moved between two readings, may make."""
CENT = 0.01


class BookCheck(msgspec.Struct, frozen=True, kw_only=True):
    """The comparison so far."""

    since: float
    """Client clock of its beginning."""
    base: float
    """What the books said then."""
    currency: str
    own: float = 0.0
    """Counted by rgt since."""
    slack: float = 0.0
    """The most that the books may lag behind, by the highest prices seen."""
    last: Meter
    """The newest reading, up to which `own` counts."""
    differ: float | None = None
    """The books less `own` at their last reading, if that is more than lag and rounding explain."""


def checked(before: BookCheck | None, meter: Meter) -> tuple[BookCheck | None, Meter]:
    """Return the comparison with one more reading, and the reading with its result.

    Nothing is compared while the price is a lower bound, or the state is not known: then the own count says nothing.
    """
    if meter.error is not None:
        return before, meter
    if (
        meter.booked is None
        or meter.at is None
        or meter.per_hour is None
        or meter.at_least
        or meter.kind is MeterKind.UNKNOWN
    ):
        return None, meter
    if before is None or not _goes_on(before, meter):
        fresh = BookCheck(since=meter.at, base=meter.booked, currency=meter.currency, last=meter)
        return msgspec.structs.replace(fresh, slack=_slack(meter)), meter
    passed = meter.at - (before.last.at or 0.0)
    now = msgspec.structs.replace(
        before,
        own=before.own + (before.last.per_hour or 0.0) * passed / 3600.0,
        slack=max(before.slack, _slack(meter)),
        last=meter,
    )
    if meter.booked_at != before.last.booked_at and meter.at - now.since >= LEAST_SECONDS:
        now = msgspec.structs.replace(now, differ=_difference(now, meter.booked))
    if now.differ is None:
        return now, meter
    return now, msgspec.structs.replace(
        meter, books_differ=now.differ, books_differ_since=now.since
    )


def _goes_on(before: BookCheck, meter: Meter) -> bool:
    passed = (meter.at or 0.0) - (before.last.at or 0.0)
    shrunk = (meter.booked or 0.0) < (before.last.booked or 0.0) - CENT
    return 0.0 <= passed <= LONGEST_SECONDS and meter.currency == before.currency and not shrunk


def _slack(meter: Meter) -> float:
    storage = meter.storage_per_hour or 0.0
    return ((meter.per_hour or 0.0) * LAG_SECONDS + storage * STORAGE_LAG_SECONDS) / 3600.0


def _difference(check: BookCheck, booked: float) -> float | None:
    differ = booked - check.base - check.own
    if abs(differ) > check.slack + SHARE * check.own + CENT:
        return differ
    return None


# Billing actions that a person carries out on the platform's console, because no provider can be asked.
#
# The gate judges such a box as any other. Only the last step differs: rgt sends nothing, says what to click,
# and leaves the action open until the person says that it is done. Silence of the box closes nothing by
# itself, and while the box answers nobody's word does.


def is_click(provider: Provider, verb: Verb) -> bool:
    """Tell whether a person carries the action out, since the platform has no call for it."""
    return provider.action(verb) == CLICK


async def hand_over(
    provider: Provider, permit: Permit, clock: Callable[[], float]
) -> AsyncIterator[StopProgress]:
    """Use the permit up, and say what the person is to click; nothing is sent and nothing is polled."""
    try:
        said = await (
            provider.stop(permit) if permit.verb is Verb.PARK else provider.destroy(permit)
        )
    except (PermitRefused, ProviderError) as error:
        yield StopProgress(phase=StopPhase.FAILED, at=clock(), text=f"nothing was done: {error}")
        return
    again = f"; once the console shows that it is done: rgt down {permit.box} --done"
    yield StopProgress(phase=StopPhase.YOURS, at=clock(), text=f"{said}{again}")


def own_act(verb: Verb, step: StopProgress) -> tuple[str, str] | None:
    """Return the event, and its level, for a step of what the person does to a box; None = it is no news."""
    if step.phase is StopPhase.REQUESTED:
        return f"{verb} sent by you: {step.text}", "info"
    if step.phase is StopPhase.YOURS:
        return f"{verb} left to you: {step.text}", "info"
    if step.phase is StopPhase.METER_OFF:
        return f"{verb.done_word} by you: {step.text}", "info"
    if step.phase in (StopPhase.FAILED, StopPhase.UNCONFIRMED):
        return f"not known to be {verb.done_word}: {step.text}", "error"
    return None


def waiting_click(journal: Journal, target: Target) -> OpenAction | None:
    """Return the action on a machine whose end a person has to say; None = none is open."""
    found, _ = journal.open_actions()
    mine = (one for one in found if one.first.target == target and one.first.verb is not None)
    return next((one for one in mine if one.last.state in WAITING), None)


SILENT = frozenset({Link.UNREACHABLE, Link.REFUSED_KEY})
"""Links of a box that may be off: it does not answer, or another machine, of another host key, has its address."""


def not_silent(box: str, link: Link, reason: str) -> str:
    """Say why a person's word does not count: rgt has not seen the box silent."""
    if link is Link.REFUSED_LOGIN:
        why = f"{box} answers, and refuses the login ({reason}), so it is not off"
    elif link is Link.PAUSED:
        why = f"{box} is paused by you, so rgt does not check whether it still answers: resume it"
    else:
        why = f"it is not known yet whether {box} still answers ({reason or link.value}): say it again"
    return (
        f"{why}. If you have seen on the console that it is off: rgt audit --box {box} --seen off"
    )


def still_there(box: str) -> str:
    """Say why a person's word does not count: the box answers."""
    return (
        f"{box} still answers over SSH, so it is not off: look at the console, then say it again. "
        f"If the click is not going to be made: rgt audit --box {box} --seen on"
    )


async def close_by_word(
    journal: Journal,
    audit: AuditLog,
    receipts: ReceiptBook,
    action: OpenAction,
    seen: Meter,
    now: float,
    spent: float | None = None,
) -> str:
    """Write down that the person says that it is done; return the words for it.

    Args:
        journal: Where the action is open.
        audit: Where the word is recorded.
        receipts: Where what was known before the click is kept.
        action: The open one.
        seen: What is seen of the box now.
        now: Client clock.
        spent: What the box has cost by now, where that is known.

    Raises:
        GateClosed: it could not be written down; the action stays open.
    """
    first = action.first
    text = (
        f"done on the console, by the word of {who()}; seen from here: {seen.native_status or 'nothing'}; "
        f"evidence of {moment(first.at)}, not looked at again"
    )

    def write() -> None:
        with journal.hold(first.target, first.box, first.verb) as held:
            if held.earlier is None or held.earlier.first.action != first.action:
                raise GateClosed((f"{words(action)}: somebody else has settled it",))
            entry = AuditEntry(
                at=now,
                event=AuditEvent.ANSWER,
                box=first.box,
                verb=first.verb,
                instance=first.target.instance,
                evidence=first.evidence,
                text=f"{ActionState.OFF}: {text}",
            )
            held.settle(ActionState.OFF, text, audit=audit.record(entry))

    try:
        await asyncio.to_thread(write)
    except (AuditFailed, JournalFailed, Held) as error:
        raise GateClosed((str(error),)) from error
    await asyncio.to_thread(receipts.finish, first.action, ActionState.OFF, now, text, spent)
    return text
