"""Billing actions that an earlier rgt left unfinished.

They are shown at the start and checked with the provider, and their outcome is recorded. This
module never sends a billing action.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping

from msgspec.structs import replace

from rgt_tui.fleet.box_session import BoxSession
from rgt_tui.fleet.event_loop import Say
from rgt_tui.fleet.meters import FleetMeters, is_click
from rgt_tui.fleet.renting.rental import (
    SEARCH_PACES,
    MachineRental,
    account_target,
    market_of,
    ref_of,
)
from rgt_tui.gate import (
    RECEIPTS,
    ActionState,
    AuditEntry,
    AuditEvent,
    AuditFailed,
    AuditLog,
    InstanceLocked,
    InstanceTarget,
    Journal,
    JournaledAction,
    JournalFailed,
    JournalRecord,
    OpenAction,
    ReceiptBook,
    describe_open_action,
    read_boot_id,
    target_of,
)
from rgt_tui.language import translate
from rgt_tui.model import BillingVerb, Lifecycle, Meter, MeterKind, StopPhase, steady_time
from rgt_tui.providers import (
    Provider,
    ProviderError,
    UnknownProvider,
    describe_remaining_bill,
    judge_reading,
)

SETTLE_SECONDS = 180.0
"""A machine unchanged this long after the call was not stopped by it; a stop normally takes a few
seconds."""


def outcome_of_action(
    action: OpenAction, meter: Meter, age: float
) -> tuple[ActionState, str] | None:
    """Return an open action's outcome according to a reading, and its text; None = not known yet.

    Args:
        action: It was sent, according to the journal.
        meter: A later reading of its machine.
        age: Seconds since its last state.
    """
    first, last = action.first, action.last
    shown = meter.native_status or meter.lifecycle.value
    if first.verb is None:
        return None
    phase = judge_reading(first.verb, meter)
    if phase is StopPhase.METER_OFF:
        return ActionState.OFF, f"{meter.source}: {shown}"
    if phase is StopPhase.CONFIRMED and first.verb is BillingVerb.DESTROY:
        # The journal proves that the machine existed, even if this process has never seen it.
        return (
            ActionState.OFF,
            translate(
                "{source}: gone; unknown whether a volume or the like is still billed",
                source=meter.source,
            ),
        )
    if phase is StopPhase.CONFIRMED:
        new = last.state is not ActionState.CONFIRMED
        if new:
            return (ActionState.CONFIRMED, f"{meter.source}: {shown}")
        return None
    if phase is StopPhase.FAILED:
        return ActionState.FAILED, translate(
            "{source}: destroyed, not parked: its disks are lost too", source=meter.source
        )
    # An unknown state proves neither that it was done nor that it was not.
    if meter.error is None and meter.lifecycle is not Lifecycle.UNKNOWN and age >= SETTLE_SECONDS:
        return ActionState.FAILED, translate(
            "{source}: {shown} {age:.0f} s later, so it was not done",
            source=meter.source,
            shown=shown,
            age=age,
        )
    return None


class OpenActions:
    """Follows the open actions in the journal until the outcome of each is known.

    Args:
        journal: Where actions are.
        audit: Where their outcomes are recorded.
        sessions: The boxes of the fleet; an action on any other machine is only reported.
        meters: Reads the machines.
        clock: Epoch seconds.
        say: Called with messages about open actions and their outcomes.
        parked: Called with a parked box and since when (client clock): at the start of `run`, and
            when a park is confirmed.
    """

    def __init__(
        self,
        journal: Journal,
        audit: AuditLog,
        sessions: Mapping[str, BoxSession],
        meters: FleetMeters,
        *,
        clock: Callable[[], float],
        say: Say,
        parked: Callable[[str, float], None] = lambda box, at: None,
    ) -> None:
        self._parked = parked
        self._journal = journal
        self._audit = audit
        self._receipts = ReceiptBook(audit.path.parent / RECEIPTS)
        self._sessions = sessions
        self._meters = meters
        self._clock = clock
        self._say = say
        self._said: set[str] = set()
        self.asked = asyncio.Event()
        """Set when everything open at the start has been checked once."""

    async def run(self) -> None:
        """Check until cancelled."""
        await self.recall_parks()
        every_seconds = 5.0
        # Seconds between two checks while no action is open, or only old ones.
        seldom_seconds = 30.0
        while True:
            now, ticks, started = self._clock(), steady_time(), read_boot_id()
            ages = [
                action.seconds_since_state(now, ticks, started)
                for action in await self.check_actions()
            ]
            self.asked.set()
            young = any(age < SETTLE_SECONDS for age in ages)
            await asyncio.sleep(every_seconds if young else seldom_seconds)

    async def recall_parks(self) -> None:
        """Report which boxes earlier rgt processes have parked.

        A box without a provider is identified by its name.
        """
        for record in await asyncio.to_thread(self._journal.list_parks):
            for name, session in list(self._sessions.items()):
                spec = session.state.spec
                by_name = spec.provider is None and name == record.box
                if by_name or target_of(spec.billing_ref) == record.target:
                    self._parked(name, record.at)

    async def check_actions(self) -> tuple[OpenAction, ...]:
        """Check every open action once; return those that are still open."""
        found, problems = await asyncio.to_thread(self._journal.open_actions)
        for problem in problems:
            self._say_once(problem, problem, "error")
        still = []
        for action in found:
            try:
                if await self._is_open(action):
                    still.append(action)
            except InstanceLocked as held:
                # Our own action is shown by its dialog.
                if action.last.pid != os.getpid():
                    self._say_once(
                        f"{action.first.action} held",
                        f"{describe_open_action(action)}: {held}",
                        "info",
                    )
            except JournalFailed as error:
                self._say_once(str(error), str(error), "error")
                still.append(action)
        for session in list(self._sessions.values()):
            here = [
                describe_open_action(one)
                for one in still
                if self._find_shown_session(one) is session
            ]
            session.set_open_action("; ".join(here))
        return tuple(still)

    async def _is_open(self, action: OpenAction) -> bool:
        """Check one action under its lock and record its outcome; return whether it stays open."""
        first = action.first
        if first.rent is not None:
            return await self._settle_creation(action)
        session = self._find_session(first.target)
        if session is None:
            self._say_once(
                first.action,
                translate(
                    "{action}; its machine is not in this fleet file, so check its console",
                    action=describe_open_action(action),
                ),
                "warn",
            )
            return True
        provider = self._meters.action_provider(session)
        holding = self._journal.lock_instance(first.target, first.box, first.verb)
        # In a thread, as it waits for the disk; the lock belongs to its descriptor, not to the
        # thread.
        held = await asyncio.to_thread(holding.__enter__)
        try:
            if held.earlier is None:
                # Another rgt has settled it, or its call was never sent and `hold` has recorded
                # that.
                if action.last.state is ActionState.INTENT:
                    self._say_once(
                        first.action,
                        translate(
                            "{action}: rgt ended before the call, nothing was sent",
                            action=describe_open_action(action),
                        ),
                        "warn",
                    )
                return False
            if is_click(provider, first.verb or BillingVerb.DESTROY):
                self._say_once(first.action, describe_open_action(held.earlier), "warn")
                return True
            asking = translate("rgt polls the provider; it is not sent again")
            self._say_once(first.action, f"{describe_open_action(held.earlier)}; {asking}", "warn")
            return not await self._settle_by_reading(held, held.earlier, session, provider)
        finally:
            await asyncio.to_thread(holding.__exit__, None, None, None)

    async def _settle_by_reading(
        self, held: JournaledAction, action: OpenAction, session: BoxSession, provider: Provider
    ) -> bool:
        meter = await provider.read(action.first.target.instance)
        self._meters.store_reading(session, meter)
        result = outcome_of_action(
            action, meter, action.seconds_since_state(self._clock(), steady_time(), read_boot_id())
        )
        if result is None:
            return False
        state, text = result
        assert action.first.verb is not None
        if state is ActionState.OFF and meter.kind in (MeterKind.STORAGE_ONLY, MeterKind.NONE):
            instance = action.first.target.instance
            remaining = describe_remaining_bill(provider, action.first.verb, instance, meter)
            text = f"{text}; {remaining}"
        line = await asyncio.to_thread(self._write_audit, action.first, state, text)
        await asyncio.to_thread(held.settle_earlier, state, text, audit=line)
        await asyncio.to_thread(
            self._receipts.finish_receipt,
            action.first.action,
            state,
            self._clock(),
            text,
            meter.spent,
        )
        done = state in (ActionState.OFF, ActionState.CONFIRMED)
        if done and action.first.verb is BillingVerb.PARK:
            self._parked(session.state.spec.name, action.first.at)
        self._say(
            f"{action.first.verb} of {action.first.box} ({action.first.target.instance}): {state}: "
            f"{text}",
            "info" if done else "error",
        )
        # A confirmed park stays open until a reading says what still bills.
        return state is not ActionState.CONFIRMED

    async def _settle_creation(self, action: OpenAction) -> bool:
        """Look for a creation's outcome, under its account's lock; return whether it stays open.

        Nothing is sent.
        """
        first = action.first
        rental = MachineRental(
            self._meters.providers, self._journal, self._audit, clock=self._clock, find_seconds=0.0
        )
        ref = ref_of(action)
        holding = rental.lock_account(ref, first.box)
        creation = await asyncio.to_thread(holding.__enter__)
        try:
            earlier = creation.earlier
            if earlier is None or earlier.first.rent is None:
                if action.last.state is ActionState.INTENT:
                    self._say_once(
                        first.action,
                        translate(
                            "{action}: rgt ended before the call, nothing was sent",
                            action=describe_open_action(action),
                        ),
                        "warn",
                    )
                return False
            self._say_once(
                first.action,
                translate(
                    "{earlier}; searching for it, not sent again",
                    earlier=describe_open_action(earlier),
                ),
                "warn",
            )
            token, machine = earlier.first.rent.token, earlier.last.machine
            if machine and self._find_session(replace(first.target, instance=machine)) is not None:
                await rental.record_listed(
                    creation, first.box, token, machine, translate("the fleet file")
                )
                self._say(
                    translate("renting {box}: {machine} is a box", box=first.box, machine=machine),
                    "info",
                )
                return False
            market = market_of(self._meters.providers, ref)
            if earlier.last.state is ActionState.CONFIRMED:
                if await market.find_by_token(token):
                    return True  # settled when it is accepted or ended
                await rental.record_nothing_made(
                    creation,
                    first.box,
                    token,
                    translate("{machine} was in the list, but no longer is", machine=machine),
                )
                self._say(
                    translate(
                        "renting {box}: {machine} no longer exists", box=first.box, machine=machine
                    ),
                    "info",
                )
                return False
            age = earlier.seconds_since_state(self._clock(), steady_time(), read_boot_id())
            taken = await rental.find_machine(creation, market, first.box, token, seconds=0.0)
            if taken.machine is not None:
                advice = translate(
                    "rgt up {box} adds it to the fleet, and sends nothing again", box=first.box
                )
                self._say(
                    translate(
                        "renting {box}: {id} exists and is billed: {advice}",
                        box=first.box,
                        id=taken.machine.id,
                        advice=advice,
                    ),
                    "error",
                )
            elif age >= SEARCH_PACES.find_s:
                late = translate(
                    "{names}; rgt up {box} shows how to settle it",
                    names="; ".join(taken.reasons),
                    box=first.box,
                )
                self._say_once(
                    f"{first.action} late", f"{describe_open_action(earlier)}: {late}", "error"
                )
            return True
        except (ProviderError, UnknownProvider) as error:
            self._say_once(
                f"{first.action} {error}", f"{describe_open_action(action)}: {error}", "error"
            )
            return True
        finally:
            await asyncio.to_thread(holding.__exit__, None, None, None)

    def _find_shown_session(self, action: OpenAction) -> BoxSession | None:
        """Return the box on which to show an open action.

        For a creation that is a box of its name, one of its account, or any box.
        """
        session = self._find_session(action.first.target)
        if session is not None or action.first.rent is None:
            return session
        own = account_target(ref_of(action))
        for box in list(self._sessions.values()):
            ref = box.state.spec.provider
            if box.state.spec.name == action.first.box or (
                ref is not None and account_target(ref) == own
            ):
                return box
        # Of no box: shown with the first one rather than nowhere, as the machine may be billed.
        return next(iter(self._sessions.values()), None)

    def _write_audit(self, first: JournalRecord, state: ActionState, text: str) -> str:
        """Write a line of the audit log; return its hash, or "" if it could not be written."""
        entry = AuditEntry(
            at=self._clock(),
            event=AuditEvent.ANSWER,
            box=first.box,
            verb=first.verb,
            instance=first.target.instance,
            evidence=first.evidence,
            text=translate("{state}, found later: {words}", state=state, words=text),
        )
        try:
            return self._audit.record_entry(entry)
        except AuditFailed as error:
            self._say_once(str(error), str(error), "error")
            # The outcome is recorded in the journal even if the audit log cannot be written.
            return ""

    def _find_session(self, target: InstanceTarget) -> BoxSession | None:
        for session in list(self._sessions.values()):
            if target_of(session.state.spec.billing_ref) == target:
                return session
        return None

    def _say_once(self, key: str, text: str, level: str) -> None:
        if key not in self._said:
            self._said.add(key)
            self._say(text, level)
