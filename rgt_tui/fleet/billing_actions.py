"""Carries out a billing action: fresh evidence, the gate, the audit log, the seal, the provider's call, its outcome."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn, Unpack

from msgspec.structs import replace

from rgt_tui.fleet import box_evidence
from rgt_tui.fleet.box_evidence import Asking, Wanted
from rgt_tui.fleet.box_session import BoxSession
from rgt_tui.fleet.fleet_source import GateClosed, Given, NoControlPlane
from rgt_tui.fleet.meters import (
    SILENT,
    Meters,
    close_by_word,
    hand_over,
    is_click,
    not_silent,
    still_there,
    waiting_click,
)
from rgt_tui.gate import (
    JOURNAL,
    RECEIPTS,
    SETTLED,
    Action,
    ActionState,
    AuditEntry,
    AuditEvent,
    AuditFailed,
    AuditLog,
    Consent,
    Held,
    Journal,
    JournalFailed,
    OpenAction,
    Parked,
    ParkedEvidence,
    Receipt,
    ReceiptBook,
    Situation,
    Target,
    Told,
    changes,
    digest,
    evaluate,
    facts_digest,
    gather,
    objections,
    outdated,
    receipt_of,
    sealed,
    stands,
    target_of,
    tiers,
    under_seal,
    words,
    worth_keeping,
)
from rgt_tui.gate import review as make_review
from rgt_tui.model import (
    Evidence,
    EvidenceItem,
    Lifecycle,
    Link,
    Meter,
    Permit,
    Profile,
    Refusal,
    Review,
    Seal,
    StopPhase,
    StopProgress,
    Verb,
    steady,
)
from rgt_tui.profiles import action_for, path_survives
from rgt_tui.providers import Provider, carry_out
from rgt_tui.ssh import BoxError

LIST_SECONDS = 30.0
"""A review waits no longer for the box to list what could be lost where the next one may have it."""
UNSEAL_SECONDS = 5.0
"""A box that was stopped does not answer any more; nobody waits longer for that."""
LISTED_S = 20.0
"""A review makes do with a list that is no older."""
LATE_S = 10.0
"""A reading of the provider may be under way for as long: after that it is taken anew, and one that was under way when
a park was confirmed is older than the park."""
SLOW_S = 5.0
"""What was read before something that took longer is read again: it is no picture of now."""
READINGS = 3
"""A provider whose answer took too long is asked so often: the next one may be young enough to count."""
STATES = {
    StopPhase.REQUESTED: ActionState.ANSWERED,
    StopPhase.CONFIRMED: ActionState.CONFIRMED,
    StopPhase.METER_OFF: ActionState.OFF,
    StopPhase.FAILED: ActionState.FAILED,
    StopPhase.UNCONFIRMED: ActionState.UNKNOWN,
    StopPhase.YOURS: ActionState.YOURS,
}
"""What a step of the call is in the journal."""
Key = tuple[str, Verb]


@dataclass(frozen=True)
class _Act:
    """One action on its way."""

    given: Situation
    evidence: Evidence
    provider: Provider
    consent: Consent
    action: Action
    shown: str
    """SHA-256 of what the person was shown."""
    receipt: Receipt | None = None
    """What is known before the call, for the receipt."""


class Teardown:
    """Stops meters. Everything is read afresh, at the review and again at the call.

    Args:
        sessions: The boxes.
        profiles: Their platforms.
        meters: The providers.
        audit: The audit log; journal and parked evidence lie beside it.
        clock: Epoch seconds.
        readonly: Refuse every action.
        asking: Whom to ask of a box, of copies and of names.
        ticks: The steady clock.
    """

    def __init__(
        self,
        sessions: Mapping[str, BoxSession],
        profiles: Mapping[str, Profile],
        meters: Meters,
        audit: Path,
        clock: Callable[[], float],
        *,
        readonly: bool = False,
        asking: Asking | None = None,
        ticks: Callable[[], float] = steady,
    ) -> None:
        self._sessions = sessions
        self._profiles = profiles
        self._meters = meters
        self._audit = AuditLog(audit)
        self._journal = Journal(audit.parent / JOURNAL, clock=clock)
        self._parked = ParkedEvidence(audit.parent / "parked")
        self.receipts = ReceiptBook(audit.parent / RECEIPTS)
        self._clock = clock
        self._ticks = ticks
        self._readonly = readonly
        self._asking = asking or Asking()
        self._shown: dict[Key, Review] = {}
        """What a person saw last, by box and verb."""
        self._lists: dict[Key, asyncio.Task[Told]] = {}
        """Lists that boxes are making."""
        self._listed_last: dict[Key, Told] = {}
        self._newest_lists: dict[str, tuple[Wanted | None, frozenset[str]]] = {}
        """Of each box, what its newest list of results was made with, and the directories in it."""
        self._unsealable: dict[str, tuple[object, str]] = {}
        """Box → the agent (by its first words) that did not hold it still, and why."""
        self._kept: dict[Target, float] = {}
        """When the evidence of a park was kept, by the steady clock."""
        meters.told = self._told

    async def review(
        self,
        box: str,
        verb: Verb,
        *,
        patience: float | None = LIST_SECONDS,
        **said: Unpack[Given],
    ) -> Review:
        """Say what the action would do, and what prevents it.

        Args:
            box: Its name.
            verb: Park or destroy.
            patience: Seconds that the box may take to list what could be lost; None = as long as it needs.
            said: What the person gives up, sets aside or unlocks.

        Raises:
            GateClosed: the box has no control plane that rgt could ask.
        """
        provider = self._provider(box)
        consent = Consent(**said)
        # The box may be sampled slowly; the gate wants to see it as it is now.
        self._sessions[box].set_interval(self._sessions[box].state.spec.interval)
        given = await self._read(box, verb, provider)
        told = await self._listed(given, verb, patience)
        if self._ticks() - given.ticks > SLOW_S:
            given = await self._read(box, verb, provider)
        given = await self._with_park(replace(given, told=told), verb)
        review = self._review(given, verb, provider, gather(given, verb, consent))
        review = _with_open(review, await asyncio.to_thread(self._earlier, box), given.ticks)
        waits = await asyncio.to_thread(self._waits, box)
        if waits is not None:
            review = replace(review, waits=words(waits), waiting=waits.first.verb)
        self._shown[box, verb] = review
        return review

    async def keepers(self, box: str, verb: Verb) -> tuple[str, ...]:
        """Return the mounts that outlive the verb by the profile; where fleet file and provider differ, by the worse.

        Raises:
            GateClosed: the box has no control plane that rgt could ask.
        """
        given = await self._read(box, verb, self._provider(box))
        if given.profile is None or given.state.sample is None:
            return ()
        known, _ = tiers(given, verb)
        mounts = [
            disk.mount
            for disk in given.state.sample.disks
            if disk.error is None and not disk.read_only
        ]
        return tuple(
            mount for mount in mounts if path_survives(mount, given.profile, known, verb) is True
        )

    def listed_with(self, box: str, paths: tuple[str, ...]) -> Wanted | None:
        """Return what the newest list of the box's results was made with; None if it lacks one of these directories."""
        wanted, listed = self._newest_lists.get(box, (None, frozenset()))
        if paths and listed.issuperset(paths):
            return wanted
        return None

    def look_again(self, box: str) -> None:
        """Have the next review list the box's results again, because its copies have changed."""
        for key in [key for key in (*self._lists, *self._listed_last) if key[0] == box]:
            # One that is being made may have looked at the copies before; it ends by itself.
            self._lists.pop(key, None)
            self._listed_last.pop(key, None)

    def _earlier(self, box: str) -> str:
        """Say what an earlier rgt, or another one, has begun with a machine and nobody saw end; empty = nothing."""
        target = self._target(box)
        found, problems = self._journal.open_actions()
        # What never came to its call is closed by whoever acts next.
        begun = [one for one in found if one.last.state is not ActionState.INTENT]
        mine = [words(one) for one in begun if one.first.target == target]
        return "; ".join(mine or [problem for problem in problems if target.file_name in problem])

    def _waits(self, box: str) -> OpenAction | None:
        """Return the action that waits for the person's word; None = none, or the provider can be asked about it."""
        action = waiting_click(self._journal, self._target(box))
        if action is None or action.first.verb is None:
            return None
        if is_click(self._provider(box), action.first.verb):
            return action
        return None

    async def done(self, box: str) -> StopProgress:
        """Take the person's word that what waits for their click is done on the console; nothing is sent.

        Raises:
            GateClosed: nothing waits, the provider can be asked instead, the box still answers, or rgt only reads.
        """
        if self._readonly:
            raise GateClosed(("rgt was started with --readonly: it records no word of yours",))
        provider, session = self._provider(box), self._sessions[box]
        action = await asyncio.to_thread(waiting_click, self._journal, self._target(box))
        if action is None or action.first.verb is None:
            earlier = await asyncio.to_thread(self._earlier, box)
            raise GateClosed((earlier or f"nothing of {box} waits for a click",))
        if not is_click(provider, action.first.verb):
            raise GateClosed((f"{words(action)}: rgt asks its provider, which says how it ended",))
        await self._asking.reach(session)  # a silence that nobody has just tried to break is none
        seen = await provider.read(provider.instance)
        if session.state.link not in (*SILENT, Link.LIVE):
            raise GateClosed((not_silent(box, session.state.link, session.state.reason),))
        if session.state.link is Link.LIVE:
            # The line may be dead without anybody knowing it yet: only a sample taken from now on counts.
            since = await self._asking.look(session)
            newest = session.state.seen.sample
            if newest is not None and newest >= since:
                raise GateClosed((still_there(box),))
            seen = replace(seen, native_status="does not answer over SSH any more")
        now = self._clock()
        spent = session.state.meter.spent
        text = await close_by_word(
            self._journal, self._audit, self.receipts, action, seen, now, spent
        )
        session.set_open_action("")
        return StopProgress(phase=StopPhase.METER_OFF, at=now, text=text)

    async def execute(
        self,
        box: str,
        verb: Verb,
        typed: str,
        *,
        evidence_digest: str | None = None,
        ordered_at: float | None = None,
        **said: Unpack[Given],
    ) -> AsyncIterator[StopProgress]:
        """Carry the action out, if the gate allows it on evidence of this very moment.

        Args:
            box: Its name.
            verb: Park or destroy.
            typed: What the person typed.
            evidence_digest: `Review.digest` of another process's review that the order rests on.
            ordered_at: When the order was given, by the steady clock: the digest must be young then, however long box
                and provider take to be asked anew; None = now.
            said: What the person gives up, sets aside or unlocks.

        Raises:
            GateClosed: it does not, or the record cannot be written; nothing was sent.
        """
        ordered_at = self._ticks() if ordered_at is None else ordered_at
        provider = self._provider(box)
        consent = Consent(typed=typed, **said)
        with self._held(box, verb) as action:
            act = await self._judged(
                box, verb, provider, consent, action, evidence_digest, ordered_at
            )
            permit = await self._sealed(act)
            async for step in self._carry_out(act, permit):
                yield step

    @contextlib.contextmanager
    def _held(self, box: str, verb: Verb) -> Iterator[Action]:
        """Hold the instance, so that no other rgt acts on it meanwhile."""
        try:
            with self._journal.hold(self._target(box), box, verb) as action:
                if action.earlier is not None:
                    raise GateClosed((f"{words(action.earlier)}: that has to be settled first",))
                yield action
        except (Held, JournalFailed) as error:
            raise GateClosed((f"{error}. Nothing was sent.",)) from error

    async def _judged(
        self,
        box: str,
        verb: Verb,
        provider: Provider,
        consent: Consent,
        action: Action,
        evidence_digest: str | None,
        ordered_at: float,
    ) -> _Act:
        """Ask everything anew, let the gate judge it, and write down what is about to be done.

        Raises:
            GateClosed: the gate stays shut.
        """
        session = self._sessions[box]
        session.set_interval(session.state.spec.interval)
        given = await self._read(box, verb, provider)
        told = await self._ask(given, verb)
        since = await self._asking.look(session)
        given = await self._read(box, verb, provider)
        given = await self._with_park(replace(given, told=told, since=since), verb)
        evidence = gather(given, verb, consent)
        fresh = self._review(given, verb, provider, evidence)
        reasons = [text for _, text in objections(evidence, given.ticks)]
        seen = self._shown.get((box, verb))
        if evidence_digest is not None:
            why = outdated(evidence_digest, facts_digest(evidence), ordered_at)
            reasons += [why] if why is not None else []
        elif seen is not None:
            reasons += changes(seen, fresh)
        act = _Act(given, evidence, provider, consent, action, digest(seen or fresh))
        if reasons:
            await self._refuse(act, tuple(dict.fromkeys(reasons)))
        call = provider.describe(verb, evidence.instance)
        line = await self._note(act, AuditEvent.REQUESTED, call, required=True)
        await self._write(lambda: action.intend(call, evidence=facts_digest(evidence), audit=line))
        receipt = receipt_of(
            given, evidence, consent, fresh, action=action.id, call=call, audit=line
        )
        return dataclasses.replace(act, receipt=receipt)

    async def _sealed(self, act: _Act) -> Permit:
        """Have the box hold still, look at everything once more under the seal, and return the permit.

        Raises:
            GateClosed: something has changed, or the box does not hold still; the seal is open again.
        """
        box, verb, given = act.evidence.box, act.evidence.verb, act.given
        session = self._sessions[box]
        seal: Seal | None = None
        why = ""
        holds = given.unsealed is None and given.state.link is Link.LIVE
        try:
            if holds:
                try:
                    seal = await self._asking.seal(session, box_evidence.wanted(given, verb))
                except BoxError as error:
                    why = str(error)
                    self._unsealable[box] = (session.state.hello, why)
            again = await self._read(box, verb, act.provider)
            told = given.told
            if seal is not None and told.results is not None:
                told = replace(told, results=under_seal(told.results, seal))
            again = replace(
                again, told=told, since=given.since, parked=given.parked, unsealed=given.unsealed
            )
            last = gather(again, verb, act.consent)
            if holds:
                last = sealed(last, seal, why, again.ticks)
            verdict = evaluate(last, again.ticks, seal.nonce if seal is not None else "")
            if isinstance(verdict, Permit) and verdict.digest != facts_digest(act.evidence):
                verdict = Refusal(
                    reasons=("something changed while the box was made to hold still",)
                )
            if isinstance(verdict, Refusal):
                reasons = verdict.reasons
                await self._write(lambda: act.action.put(ActionState.REFUSED, "; ".join(reasons)))
                await self._refuse(act, reasons)
            call = act.provider.describe(verb, act.evidence.instance)
            await self._write(lambda: act.action.sent(call))
        except BaseException:
            await self._unseal(session, seal.nonce if seal is not None else "")
            raise
        return verdict

    async def _carry_out(self, act: _Act, permit: Permit) -> AsyncIterator[StopProgress]:
        session = self._sessions[permit.box]
        kept = False
        await self._keep_receipt(act)
        by_click = is_click(act.provider, permit.verb)
        if by_click:
            steps = hand_over(act.provider, permit, self._clock)
        else:
            steps = carry_out(act.provider, permit, clock=self._clock, sleep=asyncio.sleep)
        async for step in steps:
            line = await self._note(
                act, AuditEvent.ANSWER, f"{step.phase}: {step.text}", required=False
            )
            with contextlib.suppress(
                JournalFailed
            ):  # sent is sent: what is written now changes nothing of that
                await asyncio.to_thread(act.action.put, STATES[step.phase], step.text, audit=line)
            if step.phase is StopPhase.FAILED:
                await self._unseal(session, permit.seal)
            if step.phase in (StopPhase.CONFIRMED, StopPhase.METER_OFF) and not kept:
                kept = True
                await self._keep_park(act, permit)
            if step.phase is not StopPhase.REQUESTED and not by_click:
                self._meters.put(session, await act.provider.read(permit.instance))
            await self._finish_receipt(act, step)
            yield step
            if step.phase is StopPhase.YOURS:
                return  # The seal stays until it expires: the person clicks now.
        if (
            session.state.link is Link.LIVE
        ):  # it still answers: then its queue is not to wait for the seal's end
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(UNSEAL_SECONDS):
                    await self._unseal(session, permit.seal)

    async def _keep_receipt(self, act: _Act) -> None:
        """Write down what nobody can ask any more after the call; without it nothing but the receipt is missing."""
        if act.receipt is not None:
            with contextlib.suppress(OSError):
                await asyncio.to_thread(self.receipts.keep, act.receipt)

    async def _finish_receipt(self, act: _Act, step: StopProgress) -> None:
        spent = self._sessions[act.evidence.box].state.meter.spent
        state = STATES[step.phase]
        if state in SETTLED or state in (
            ActionState.CONFIRMED,
            ActionState.UNKNOWN,
            ActionState.YOURS,
        ):
            await asyncio.to_thread(
                self.receipts.finish, act.action.id, state, step.at, step.text, spent
            )

    def _provider(self, box: str) -> Provider:
        session, profile = self._sessions[box], self._profiles[box]
        if session.state.spec.provider is None and not profile.billed:
            text = (
                f"{box} has no control plane in the fleet file, and nothing bills on {profile.name}"
            )
            raise NoControlPlane((text,))
        try:
            return self._meters.acting(session)
        except ValueError as error:
            raise GateClosed((str(error),)) from error

    def _target(self, box: str) -> Target:
        return target_of(self._sessions[box].state.spec.billing_ref)

    async def _read(self, box: str, verb: Verb, provider: Provider) -> Situation:
        """Read the provider, and return what is known but for what the box is asked on purpose."""
        session = self._sessions[box]
        for _ in range(READINGS):
            asked = self._ticks()
            fresh = await provider.read(provider.instance)
            if session.state.spec.provider is None:
                meter = self._meters.of_person(session, fresh)
            else:
                self._meters.put(session, fresh)
                meter = session.state.meter
            if meter.error is not None or self._ticks() - asked <= LATE_S:
                break
        found = await self._asking.addresses(meter)
        unsealed = self._asking.unsealed(session)
        failed = self._unsealable.get(box)
        if unsealed is None and failed is not None:
            if failed[0] is session.state.hello:
                unsealed = failed[1]
            else:  # another connection may hold it still
                del self._unsealable[box]
        return Situation(
            state=session.state,
            meter=meter,
            meter_at=asked,
            profile=self._profiles[box],
            action=provider.action(verb),
            addresses=found,
            unsealed=unsealed,
            readonly=self._readonly,
            now=self._clock(),
            ticks=self._ticks(),
        )

    async def _ask(self, given: Situation, verb: Verb) -> Told:
        """Have the box list what could be lost, and look at every copy of it."""
        ref = given.state.spec.provider
        name, wanted = given.state.spec.name, box_evidence.wanted(given, verb)
        told = await box_evidence.ask(
            self._asking,
            self._sessions[name],
            ref.instance if ref is not None else "",
            self._ticks,
            wanted,
        )
        if told.results is not None:
            self._newest_lists[name] = (
                wanted,
                frozenset(group.path for group in told.results.groups),
            )
        return told

    async def _listed(self, given: Situation, verb: Verb, patience: float | None) -> Told:
        """Return a list that is not old. A review is made every other second: it waits only for the first one."""
        key = (given.state.spec.name, verb)
        last = self._listed_last.get(key)
        if last is not None and last.at is not None and given.ticks - last.at < LISTED_S:
            return last
        task = self._lists.get(key)
        if task is None:
            name = f"listing the results of {key[0]}"
            task = self._lists[key] = asyncio.create_task(self._ask(given, verb), name=name)
        done, _ = await asyncio.wait([task], timeout=patience)
        if not done:
            return Told(problem="the box is listing it", at=given.ticks)
        told = task.result()
        if self._lists.get(key) is task:  # else its copies have changed since it was begun
            del self._lists[key]
            if told.results is not None:
                self._listed_last[key] = told
        return told

    async def _with_park(self, given: Situation, verb: Verb) -> Situation:
        """Add what was known when rgt parked the box, where nobody can ask it now."""
        if verb is Verb.PARK or given.state.link is Link.LIVE:
            return given
        target = self._target(given.state.spec.name)
        parked = await asyncio.to_thread(self._parked.find, target)
        if parked is None or stands(parked, given.meter) is not None:
            return given
        box = given.state.spec.name
        told = await box_evidence.copies_of(
            self._asking, box, target.instance, parked.results, given.meter_at or given.ticks
        )
        return replace(given, parked=parked, told=told)

    async def _keep_park(self, act: _Act, permit: Permit) -> None:
        """Keep what is known of a box that was just parked; of one that was destroyed there is nothing to know."""
        given = act.given
        target = Target(kind=permit.kind, account=permit.account, instance=permit.instance)
        if permit.verb is Verb.DESTROY:
            await asyncio.to_thread(self._parked.forget, target)
            return
        found = given.told.results
        if found is None or not worth_keeping(act.evidence, permit.seal, found.generation):
            await asyncio.to_thread(self._parked.forget, target)
            return
        parked = Parked(
            target=target,
            box=permit.box,
            at=self._clock(),
            started=given.meter.started,
            tiers=given.meter.tiers,
            seal=permit.seal,
            results=found,
            queues=given.state.queues,
            checkpoints=given.state.checkpoints,
            clock_skew=given.state.clock_skew or 0.0,
        )
        self._kept[target] = self._ticks()
        # Without it a later destroy asks for more: nothing else depends on it.
        with contextlib.suppress(OSError, ValueError):
            await asyncio.to_thread(self._parked.keep, parked)

    def _told(self, session: BoxSession, meter: Meter) -> None:
        """Forget the evidence of a park once the machine runs again."""
        ref = session.state.spec.provider
        if ref is None or meter.error is not None:
            return
        if meter.lifecycle not in (Lifecycle.RUNNING, Lifecycle.STARTING):
            return
        target = Target(kind=ref.kind, account=ref.account, instance=ref.instance)
        # A reading that was under way while the park was confirmed is older than it.
        if self._ticks() - self._kept.get(target, -LATE_S) >= LATE_S:
            self._parked.forget(target)

    def _review(
        self, given: Situation, verb: Verb, provider: Provider, evidence: Evidence
    ) -> Review:
        action = action_for(given.profile, verb) if given.profile is not None else None
        return make_review(
            evidence,
            given,
            native_label=action.native_label if action is not None else provider.native_label(verb),
            will_send=provider.describe(verb, provider.instance),
            known=tiers(given, verb)[0],
            keeps_billing=provider.keeps_billing(verb, provider.instance),
        )

    async def _unseal(self, session: BoxSession, nonce: str) -> None:
        if nonce:
            with contextlib.suppress(BoxError):  # it opens by itself
                await self._asking.unseal(session, nonce)

    async def _refuse(self, act: _Act, reasons: tuple[str, ...]) -> NoReturn:
        await self._note(act, AuditEvent.REFUSED, "; ".join(reasons), required=False)
        raise GateClosed(reasons)

    async def _write(self, write: Callable[[], None]) -> None:
        try:
            await asyncio.to_thread(write)
        except JournalFailed as error:
            raise GateClosed((f"{error}. Nothing was sent.",)) from error

    async def _note(self, act: _Act, event: AuditEvent, text: str, *, required: bool) -> str:
        """Write a line of the audit log; return its hash."""
        evidence = act.evidence
        entry = AuditEntry(
            at=self._clock(),
            event=event,
            box=evidence.box,
            verb=evidence.verb,
            instance=evidence.instance,
            shown=act.shown,
            evidence=facts_digest(evidence),
            typed=evidence.typed,
            text=text,
        )
        try:
            return await asyncio.to_thread(self._audit.record, entry)
        except AuditFailed as error:
            if required:
                raise GateClosed((f"{error}. Nothing was sent.",)) from error
            return ""


OPEN = "open"
"""Kind of the item that names an action whose end nobody knows."""


def _with_open(review: Review, earlier: str, ticks: float) -> Review:
    """Add to a review that an earlier action has no end yet: the journal lets no second one begin."""
    if not earlier:
        return review
    text = f"{earlier}: that has to be settled first"
    item = EvidenceItem(key=OPEN, ok=False, text=text, at=ticks)
    return replace(review, items=(item, *review.items), refusals=(text, *review.refusals))
