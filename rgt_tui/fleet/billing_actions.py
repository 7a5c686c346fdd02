"""Carry out a billing action: evidence, gate, audit log, seal, provider call, outcome."""

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
from rgt_tui.fleet.box_evidence import EvidenceQueries, ResultsRequest
from rgt_tui.fleet.box_session import BoxSession
from rgt_tui.fleet.fleet_source import ActionTerms, GateClosed, NoControlPlane
from rgt_tui.fleet.meters import (
    SILENT,
    FleetMeters,
    close_by_statement,
    find_answering_reason,
    find_not_silent_reason,
    is_click,
    report_console_steps,
    waiting_click,
)
from rgt_tui.gate import (
    JOURNAL,
    RECEIPTS,
    SETTLED,
    ActionState,
    AuditEntry,
    AuditEvent,
    AuditFailed,
    AuditLog,
    CollectedResults,
    Consent,
    InstanceLocked,
    InstanceTarget,
    Journal,
    JournaledAction,
    JournalFailed,
    OpenAction,
    ParkedEvidence,
    ParkRecord,
    Receipt,
    ReceiptBook,
    Situation,
    apply_seal,
    describe_open_action,
    evaluate_evidence,
    facts_digest,
    find_digest_problem,
    find_park_problem,
    find_storage_tiers,
    gather_evidence,
    hash_struct,
    list_review_changes,
    objections,
    receipt_of,
    target_of,
    under_seal,
    worth_keeping,
)
from rgt_tui.gate import build_review as make_review
from rgt_tui.language import record_text, translate
from rgt_tui.model import (
    ActionReview,
    BillingVerb,
    Evidence,
    EvidenceItem,
    Lifecycle,
    LinkState,
    Meter,
    Permit,
    Profile,
    Refusal,
    Seal,
    StopPhase,
    StopProgress,
    steady_time,
)
from rgt_tui.profiles import action_for, path_survives
from rgt_tui.providers import Provider, carry_out
from rgt_tui.ssh import BoxError

LIST_SECONDS = 30.0
"""How long a review waits for the box to list files at risk; the next review may get the list."""
LATE_S = 10.0
"""Maximum duration of a provider reading; a slower one is repeated. A reading that was under way
when a park was confirmed may be older than the park."""
STATES = {
    StopPhase.REQUESTED: ActionState.ANSWERED,
    StopPhase.CONFIRMED: ActionState.CONFIRMED,
    StopPhase.METER_OFF: ActionState.OFF,
    StopPhase.FAILED: ActionState.FAILED,
    StopPhase.UNCONFIRMED: ActionState.UNKNOWN,
    StopPhase.YOURS: ActionState.YOURS,
}
"""Journal state for each step of the call."""
Key = tuple[str, BillingVerb]


@dataclass(frozen=True)
class _ActionInProgress:
    """One action in progress."""

    given: Situation
    evidence: Evidence
    provider: Provider
    consent: Consent
    action: JournaledAction
    shown: str
    """SHA-256 of the text shown to the person."""
    receipt: Receipt | None = None
    """Facts known before the call, for the receipt."""


class Teardown:
    """Stops billing. Everything is read again, both at the review and at the call.

    Args:
        sessions: The boxes.
        profiles: Their platforms.
        meters: The providers.
        audit: The audit log; the journal and parked evidence are in the same directory.
        clock: Epoch seconds.
        readonly: Refuse every action.
        asking: Queries boxes, copies and host names.
        ticks: The steady clock.
    """

    def __init__(
        self,
        sessions: Mapping[str, BoxSession],
        profiles: Mapping[str, Profile],
        meters: FleetMeters,
        audit: Path,
        clock: Callable[[], float],
        *,
        readonly: bool = False,
        asking: EvidenceQueries | None = None,
        ticks: Callable[[], float] = steady_time,
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
        self._asking = asking or EvidenceQueries()
        self._shown: dict[Key, ActionReview] = {}
        """The last review shown to a person, by box and verb."""
        self._lists: dict[Key, asyncio.Task[CollectedResults]] = {}
        """Result lists that boxes are making."""
        self._listed_last: dict[Key, CollectedResults] = {}
        self._newest_lists: dict[str, tuple[ResultsRequest | None, frozenset[str]]] = {}
        """For each box, the parameters of its newest result list and the directories in it."""
        self._unsealable: dict[str, tuple[object, str]] = {}
        """Box → the agent (its hello message) that could not seal the box, and why."""
        self._kept: dict[InstanceTarget, float] = {}
        """When the evidence of a park was stored, by the steady clock."""
        meters.told = self._drop_stale_park

    async def review_action(
        self,
        box: str,
        verb: BillingVerb,
        *,
        patience: float | None = LIST_SECONDS,
        **said: Unpack[ActionTerms],
    ) -> ActionReview:
        """Return what the action would do, and what prevents it.

        Args:
            box: Its name.
            verb: Park or destroy.
            patience: Seconds that the box may take to list files at risk; None = no limit.
            said: What the person forfeits, ignores or unlocks.

        Raises:
            GateClosed: the box has no control plane that rgt could query.
        """
        provider = self._provider_of(box)
        consent = Consent(**said)
        # The box may be sampled slowly, but the gate needs a current sample.
        self._sessions[box].set_interval(self._sessions[box].state.spec.interval)
        given = await self._read_situation(box, verb, provider)
        told = await self._recent_results(given, verb, patience)
        # A reading followed by a step longer than this is repeated, because it may be outdated.
        slow_s = 5.0
        if self._ticks() - given.ticks > slow_s:
            given = await self._read_situation(box, verb, provider)
        given = await self._with_park(replace(given, told=told), verb)
        review = self._build_review(given, verb, provider, gather_evidence(given, verb, consent))
        review = _with_open(
            review, await asyncio.to_thread(self._describe_unfinished, box), given.ticks
        )
        waits = await asyncio.to_thread(self._find_waiting_click, box)
        if waits is not None:
            review = replace(review, waits=describe_open_action(waits), waiting=waits.first.verb)
        # What a person types later agrees to exactly this.
        self._shown[box, verb] = review
        return review

    async def surviving_mounts(self, box: str, verb: BillingVerb) -> tuple[str, ...]:
        """Return the mounts that survive the verb according to the profile.

        Where fleet file and provider differ, the worse case applies.

        Raises:
            GateClosed: the box has no control plane that rgt could query.
        """
        given = await self._read_situation(box, verb, self._provider_of(box))
        if given.profile is None or given.state.sample is None:
            return ()
        known, _ = find_storage_tiers(given, verb)
        mounts = [
            disk.mount
            for disk in given.state.sample.disks
            if disk.error is None and not disk.read_only
        ]
        return tuple(
            mount for mount in mounts if path_survives(mount, given.profile, known, verb) is True
        )

    def listed_with(self, box: str, paths: tuple[str, ...]) -> ResultsRequest | None:
        """Return the parameters of the newest list of the box's results.

        None = the list lacks one of these directories.
        """
        wanted, listed = self._newest_lists.get(box, (None, frozenset()))
        if paths and listed.issuperset(paths):
            return wanted
        return None

    def invalidate_results(self, box: str) -> None:
        """Make the next review list the box's results again, because its copies have changed."""
        for key in [key for key in (*self._lists, *self._listed_last) if key[0] == box]:
            # A list being made may have read the old copies. Its task ends without being awaited.
            self._lists.pop(key, None)
            self._listed_last.pop(key, None)

    def _describe_unfinished(self, box: str) -> str:
        """Describe actions on a machine that any rgt left unfinished; empty = none."""
        target = self._target_of(box)
        found, problems = self._journal.open_actions()
        # An intent whose call was never sent is closed by the next action on the machine.
        begun = [one for one in found if one.last.state is not ActionState.INTENT]
        mine = [describe_open_action(one) for one in begun if one.first.target == target]
        return "; ".join(mine or [problem for problem in problems if target.file_name in problem])

    def _find_waiting_click(self, box: str) -> OpenAction | None:
        """Return the action that waits for the person's statement.

        None = no such action, or the provider can be queried about it.
        """
        action = waiting_click(self._journal, self._target_of(box))
        if action is None or action.first.verb is None:
            return None
        if is_click(self._provider_of(box), action.first.verb):
            return action
        return None

    async def confirm_done(self, box: str) -> StopProgress:
        """Accept the person's statement that the console action is done; nothing is sent.

        Raises:
            GateClosed: no action waits, the provider can be queried instead, the box still answers,
                or rgt is read-only.
        """
        if self._readonly:
            raise GateClosed(
                (
                    translate(
                        "rgt was started with --readonly: it does not record your confirmation"
                    ),
                )
            )
        provider, session = self._provider_of(box), self._sessions[box]
        action = await asyncio.to_thread(waiting_click, self._journal, self._target_of(box))
        if action is None or action.first.verb is None:
            earlier = await asyncio.to_thread(self._describe_unfinished, box)
            raise GateClosed(
                (earlier or translate("{box} has no action that waits for a click", box=box),)
            )
        if not is_click(provider, action.first.verb):
            raise GateClosed(
                (
                    translate(
                        "{action}: rgt asks its provider for the result",
                        action=describe_open_action(action),
                    ),
                )
            )
        await self._asking.reach(session)  # silence only counts after an attempt to connect
        seen = await provider.read(provider.instance)
        if session.state.link not in (*SILENT, LinkState.LIVE):
            raise GateClosed(
                (find_not_silent_reason(box, session.state.link, session.state.reason),)
            )
        if session.state.link is LinkState.LIVE:
            # The connection may be dead unnoticed: only a sample taken from now on counts.
            since = await self._asking.look(session)
            newest = session.state.seen.sample
            if newest is not None and newest >= since:
                raise GateClosed((find_answering_reason(box),))
            seen = replace(seen, native_status=translate("no longer answers over SSH"))
        now = self._clock()
        spent = session.state.meter.spent
        text = await close_by_statement(
            self._journal, self._audit, self.receipts, action, seen, now, spent
        )
        session.set_open_action("")
        return StopProgress(phase=StopPhase.METER_OFF, at=now, text=text)

    async def execute_action(
        self,
        box: str,
        verb: BillingVerb,
        typed: str,
        *,
        evidence_digest: str | None = None,
        ordered_at: float | None = None,
        **said: Unpack[ActionTerms],
    ) -> AsyncIterator[StopProgress]:
        """Carry the action out, if the gate allows it on current evidence.

        Args:
            box: Its name.
            verb: Park or destroy.
            typed: What the person typed.
            evidence_digest: `ActionReview.digest` of another process's review on which the order is
                based.
            ordered_at: When the order was given, by the steady clock. The digest must be recent at
                that time, however long the new queries to box and provider take. None = now.
            said: What the person forfeits, ignores or unlocks.

        Raises:
            GateClosed: the gate refuses, or the record cannot be written; nothing was sent.
        """
        if ordered_at is None:
            ordered_at = self._ticks()
        provider = self._provider_of(box)
        consent = Consent(typed=typed, **said)
        with self._locked_action(box, verb) as action:
            act = await self._judge_action(
                box, verb, provider, consent, action, evidence_digest, ordered_at
            )
            permit = await self._seal_and_permit(act)
            async for step in self._carry_out(act, permit):
                yield step

    @contextlib.contextmanager
    def _locked_action(self, box: str, verb: BillingVerb) -> Iterator[JournaledAction]:
        """Lock the instance so that no other rgt acts on it meanwhile."""
        try:
            with self._journal.lock_instance(self._target_of(box), box, verb) as action:
                if action.earlier is not None:
                    raise GateClosed(
                        (
                            translate(
                                "{earlier}: settle that first",
                                earlier=describe_open_action(action.earlier),
                            ),
                        )
                    )
                yield action
        except (InstanceLocked, JournalFailed) as error:
            raise GateClosed((translate("{error}. Nothing was sent.", error=error),)) from error

    async def _judge_action(
        self,
        box: str,
        verb: BillingVerb,
        provider: Provider,
        consent: Consent,
        action: JournaledAction,
        evidence_digest: str | None,
        ordered_at: float,
    ) -> _ActionInProgress:
        """Read everything again, let the gate judge it, and record the intended call.

        Raises:
            GateClosed: the gate refuses.
        """
        session = self._sessions[box]
        session.set_interval(session.state.spec.interval)
        given = await self._read_situation(box, verb, provider)
        # First the slow list, so that the sample after it is fresh when the gate judges.
        told = await self._collect_results(given, verb)
        since = await self._asking.look(session)
        given = await self._read_situation(box, verb, provider)
        given = await self._with_park(replace(given, told=told, since=since), verb)
        evidence = gather_evidence(given, verb, consent)
        fresh = self._build_review(given, verb, provider, evidence)
        reasons = [text for _, text in objections(evidence, given.ticks)]
        seen = self._shown.get((box, verb))
        if evidence_digest is not None:
            why = find_digest_problem(evidence_digest, facts_digest(evidence), ordered_at)
            reasons += [why] if why is not None else []
        elif seen is not None:
            reasons += list_review_changes(seen, fresh)
        act = _ActionInProgress(
            given, evidence, provider, consent, action, hash_struct(seen or fresh)
        )
        if reasons:
            await self._refuse_action(act, tuple(dict.fromkeys(reasons)))
        call = provider.describe_call(verb, evidence.instance)
        # Before the intent, which names the line: without an audit nothing is sent.
        line = await self._write_audit(act, AuditEvent.REQUESTED, call, required=True)
        await self._write_journal(
            lambda: action.record_intent(call, evidence=facts_digest(evidence), audit=line)
        )
        receipt = receipt_of(
            given, evidence, consent, fresh, action=action.id, call=call, audit=line
        )
        return dataclasses.replace(act, receipt=receipt)

    async def _seal_and_permit(self, act: _ActionInProgress) -> Permit:
        """Seal the box, check everything again under the seal, and return the permit.

        Raises:
            GateClosed: something has changed, or the box cannot be sealed; the seal is removed
                again.
        """
        box, verb, given = act.evidence.box, act.evidence.verb, act.given
        session = self._sessions[box]
        seal: Seal | None = None
        why = ""
        holds = given.unsealed is None and given.state.link is LinkState.LIVE
        try:
            if holds:
                try:
                    seal = await self._asking.seal(
                        session, box_evidence.build_results_request(given, verb)
                    )
                except BoxError as error:
                    why = str(error)
                    self._unsealable[box] = (session.state.hello, why)
            # Sealing takes minutes on a slow disk, so everything is judged once more, under the
            # seal.
            again = await self._read_situation(box, verb, act.provider)
            told = given.told
            if seal is not None and told.results is not None:
                told = replace(told, results=under_seal(told.results, seal))
            again = replace(
                again, told=told, since=given.since, parked=given.parked, unsealed=given.unsealed
            )
            last = gather_evidence(again, verb, act.consent)
            if holds:
                last = apply_seal(last, seal, why, again.ticks)
            verdict = evaluate_evidence(last, again.ticks, seal.nonce if seal is not None else "")
            # The person has agreed to the earlier facts only.
            if isinstance(verdict, Permit) and verdict.digest != facts_digest(act.evidence):
                verdict = Refusal(
                    reasons=(translate("something changed while the box was made to hold still"),)
                )
            if isinstance(verdict, Refusal):
                reasons = verdict.reasons
                await self._write_journal(
                    lambda: act.action.record_state(ActionState.REFUSED, "; ".join(reasons))
                )
                await self._refuse_action(act, reasons)
            call = act.provider.describe_call(verb, act.evidence.instance)
            # The last thing before the call: after a crash it counts as sent.
            await self._write_journal(lambda: act.action.record_sent(call))
        # Also when cancelled: the box's queue must not wait until the seal expires.
        except BaseException:
            await self._remove_seal(session, seal.nonce if seal is not None else "")
            raise
        return verdict

    async def _carry_out(
        self, act: _ActionInProgress, permit: Permit
    ) -> AsyncIterator[StopProgress]:
        session = self._sessions[permit.box]
        kept = False
        await self._keep_receipt(act)
        by_click = is_click(act.provider, permit.verb)
        if by_click:
            steps = report_console_steps(act.provider, permit, self._clock)
        else:
            steps = carry_out(act.provider, permit, clock=self._clock, sleep=asyncio.sleep)
        async for step in steps:
            line = await self._write_audit(
                act,
                AuditEvent.ANSWER,
                f"{step.phase}: {record_text(step.text)}",
                required=False,
            )
            with contextlib.suppress(
                JournalFailed
            ):  # the call was sent: a failed journal write cannot undo it
                await asyncio.to_thread(
                    act.action.record_state, STATES[step.phase], step.text, audit=line
                )
            if step.phase is StopPhase.FAILED:
                await self._remove_seal(session, permit.seal)
            if step.phase in (StopPhase.CONFIRMED, StopPhase.METER_OFF) and not kept:
                kept = True
                await self._keep_park(act, permit)
            # Right after the request the state is still the old one.
            if step.phase is not StopPhase.REQUESTED and not by_click:
                self._meters.store_reading(session, await act.provider.read(permit.instance))
            await self._finish_receipt(act, step)
            yield step
            if step.phase is StopPhase.YOURS:
                return  # The seal stays until it expires: the person clicks now.
        if (
            session.state.link is LinkState.LIVE
        ):  # it still answers: its queue must not wait for the seal to expire
            with contextlib.suppress(TimeoutError):
                # Limit for unsealing: a stopped box no longer answers.
                unseal_seconds = 5.0
                async with asyncio.timeout(unseal_seconds):
                    await self._remove_seal(session, permit.seal)

    async def _keep_receipt(self, act: _ActionInProgress) -> None:
        """Store facts that cannot be queried after the call.

        If that fails, only the receipt is missing.
        """
        if act.receipt is not None:
            with contextlib.suppress(OSError):
                await asyncio.to_thread(self.receipts.save_receipt, act.receipt)

    async def _finish_receipt(self, act: _ActionInProgress, step: StopProgress) -> None:
        spent = self._sessions[act.evidence.box].state.meter.spent
        state = STATES[step.phase]
        if state in SETTLED or state in (
            ActionState.CONFIRMED,
            ActionState.UNKNOWN,
            ActionState.YOURS,
        ):
            await asyncio.to_thread(
                self.receipts.finish_receipt, act.action.id, state, step.at, step.text, spent
            )

    def _provider_of(self, box: str) -> Provider:
        session, profile = self._sessions[box], self._profiles[box]
        if session.state.spec.provider is None and not profile.billed:
            text = translate(
                "{box} has no control plane in the fleet file, and nothing is billed on {name}",
                box=box,
                name=profile.name,
            )
            raise NoControlPlane((text,))
        try:
            return self._meters.action_provider(session)
        except ValueError as error:
            raise GateClosed((str(error),)) from error

    def _target_of(self, box: str) -> InstanceTarget:
        return target_of(self._sessions[box].state.spec.billing_ref)

    async def _read_situation(self, box: str, verb: BillingVerb, provider: Provider) -> Situation:
        """Read the provider, and return everything known except the box's own lists (`CollectedResults`)."""
        session = self._sessions[box]
        # How many readings to try when answers take too long; a later one may be fresh enough.
        readings = 3
        for _ in range(readings):
            asked = self._ticks()
            fresh = await provider.read(provider.instance)
            if session.state.spec.provider is None:
                meter = self._meters.meter_without_provider(session, fresh)
            else:
                self._meters.store_reading(session, fresh)
                meter = session.state.meter
            if meter.error is not None or self._ticks() - asked <= LATE_S:
                # Fast enough, or an error, which the gate refuses in any case.
                break
        found = await self._asking.addresses(meter)
        unsealed = self._asking.unsealed(session)
        failed = self._unsealable.get(box)
        if unsealed is None and failed is not None:
            if failed[0] is session.state.hello:
                unsealed = failed[1]
            else:  # another connection may be able to seal it
                del self._unsealable[box]
        return Situation(
            state=session.state,
            meter=meter,
            meter_at=asked,
            profile=self._profiles[box],
            action=provider.native_action(verb),
            addresses=found,
            unsealed=unsealed,
            readonly=self._readonly,
            now=self._clock(),
            ticks=self._ticks(),
        )

    async def _collect_results(self, given: Situation, verb: BillingVerb) -> CollectedResults:
        """Make the box list files at risk, and inspect every copy of it."""
        ref = given.state.spec.provider
        name, wanted = given.state.spec.name, box_evidence.build_results_request(given, verb)
        told = await box_evidence.collect_results(
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

    async def _recent_results(
        self, given: Situation, verb: BillingVerb, patience: float | None
    ) -> CollectedResults:
        """Return a recent list.

        A review is made every other second, so it waits up to `patience` and otherwise returns
        without the list; the task continues for the next review.
        """
        key = (given.state.spec.name, verb)
        last = self._listed_last.get(key)
        # Maximum age in seconds of a list that a review reuses.
        listed_s = 20.0
        if last is not None and last.at is not None and given.ticks - last.at < listed_s:
            return last
        task = self._lists.get(key)
        if task is None:
            name = f"listing the results of {key[0]}"
            task = self._lists[key] = asyncio.create_task(
                self._collect_results(given, verb), name=name
            )
        # wait, not wait_for, which would cancel the list: the next review takes it.
        done, _ = await asyncio.wait([task], timeout=patience)
        if not done:
            return CollectedResults(problem=translate("the box is listing it"), at=given.ticks)
        told = task.result()
        if self._lists.get(key) is task:  # otherwise its copies changed meanwhile
            del self._lists[key]
            if told.results is not None:
                self._listed_last[key] = told
        return told

    async def _with_park(self, given: Situation, verb: BillingVerb) -> Situation:
        """Add the evidence stored when rgt parked the box, unless the box can be queried now."""
        if verb is BillingVerb.PARK or given.state.link is LinkState.LIVE:
            return given
        target = self._target_of(given.state.spec.name)
        parked = await asyncio.to_thread(self._parked.find_record, target)
        if parked is None or find_park_problem(parked, given.meter) is not None:
            return given
        box = given.state.spec.name
        told = await box_evidence.recheck_earlier_copies(
            self._asking, box, target.instance, parked.results, given.meter_at or given.ticks
        )
        return replace(given, parked=parked, told=told)

    async def _keep_park(self, act: _ActionInProgress, permit: Permit) -> None:
        """Store the evidence of a box just parked; delete that of a destroyed box."""
        given = act.given
        target = InstanceTarget(kind=permit.kind, account=permit.account, instance=permit.instance)
        if permit.verb is BillingVerb.DESTROY:
            await asyncio.to_thread(self._parked.delete_record, target)
            return
        found = given.told.results
        if found is None or not worth_keeping(act.evidence, permit.seal, found.generation):
            await asyncio.to_thread(self._parked.delete_record, target)
            return
        parked = ParkRecord(
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
        # Without it a later destroy requires more evidence; nothing else depends on it.
        with contextlib.suppress(OSError, ValueError):
            await asyncio.to_thread(self._parked.save_record, parked)

    def _drop_stale_park(self, session: BoxSession, meter: Meter) -> None:
        """Delete the evidence of a park once the machine runs again."""
        ref = session.state.spec.provider
        if ref is None or meter.error is not None:
            return
        if meter.lifecycle not in (Lifecycle.RUNNING, Lifecycle.STARTING):
            return
        target = InstanceTarget(kind=ref.kind, account=ref.account, instance=ref.instance)
        # A reading that was under way while the park was confirmed may be older than the park.
        if self._ticks() - self._kept.get(target, -LATE_S) >= LATE_S:
            self._parked.delete_record(target)

    def _build_review(
        self, given: Situation, verb: BillingVerb, provider: Provider, evidence: Evidence
    ) -> ActionReview:
        if given.profile is not None:
            action = action_for(given.profile, verb)
        else:
            action = None
        return make_review(
            evidence,
            given,
            native_label=action.native_label if action is not None else provider.native_label(verb),
            will_send=provider.describe_call(verb, provider.instance),
            known=find_storage_tiers(given, verb)[0],
            keeps_billing=provider.list_kept_charges(verb, provider.instance),
        )

    async def _remove_seal(self, session: BoxSession, nonce: str) -> None:
        if nonce:
            with contextlib.suppress(BoxError):  # the seal expires automatically
                await self._asking.unseal(session, nonce)

    async def _refuse_action(self, act: _ActionInProgress, reasons: tuple[str, ...]) -> NoReturn:
        await self._write_audit(act, AuditEvent.REFUSED, "; ".join(reasons), required=False)
        raise GateClosed(reasons)

    async def _write_journal(self, write: Callable[[], None]) -> None:
        try:
            await asyncio.to_thread(write)
        except JournalFailed as error:
            raise GateClosed((translate("{error}. Nothing was sent.", error=error),)) from error

    async def _write_audit(
        self, act: _ActionInProgress, event: AuditEvent, text: str, *, required: bool
    ) -> str:
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
            return await asyncio.to_thread(self._audit.record_entry, entry)
        except AuditFailed as error:
            if required:
                raise GateClosed((translate("{error}. Nothing was sent.", error=error),)) from error
            return ""


OPEN = "open"
"""Key of the item for an action whose outcome is unknown."""


def _with_open(review: ActionReview, earlier: str, ticks: float) -> ActionReview:
    """Add an earlier unfinished action to a review.

    The journal allows no second action until it is settled.
    """
    if not earlier:
        return review
    text = translate("{earlier}: settle that first", earlier=earlier)
    item = EvidenceItem(key=OPEN, ok=False, text=text, at=ticks)
    return replace(review, items=(item, *review.items), refusals=(text, *review.refusals))
