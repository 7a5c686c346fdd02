"""A billing action from the fleet's side: fresh evidence, the gate, the audit log, the call, the confirmation."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path

from rgt_tui.fleet.box_session import BoxSession
from rgt_tui.fleet.fleet_source import GateClosed
from rgt_tui.fleet.meters import Meters
from rgt_tui.gate import AuditEntry, AuditEvent, AuditFailed, AuditLog, changes, digest, evaluate, gather
from rgt_tui.gate import review as make_review
from rgt_tui.model.evidence import Evidence, Permit, Refusal, Review, StopPhase, StopProgress, Verb, steady
from rgt_tui.model.profile import Profile
from rgt_tui.profiles.survival import action_for
from rgt_tui.providers import Provider, carry_out


class Teardown:
    """Stops meters. Everything it asks about is read anew, at the review and again at the call."""

    def __init__(
        self,
        sessions: Mapping[str, BoxSession],
        profiles: Mapping[str, Profile],
        meters: Meters,
        audit: Path,
        clock: Callable[[], float],
        *,
        readonly: bool = False,
    ) -> None:
        self._sessions = sessions
        self._profiles = profiles
        self._meters = meters
        self._audit = AuditLog(audit)
        self._clock = clock
        self._readonly = readonly
        self._shown: dict[tuple[str, Verb], Review] = {}
        """What a person saw last, by box and verb."""

    async def review(
        self,
        box: str,
        verb: Verb,
        *,
        forfeits: frozenset[str] = frozenset(),
        ignored: frozenset[str] = frozenset(),
        unprotect: str = "",
    ) -> Review:
        """Say what the action would do, and what stands against it.

        Raises:
            GateClosed: the box has no control plane that rgt could ask.
        """
        provider = self._provider(box)
        # The box may be sampled slowly; the gate wants to see it as it is now.
        self._sessions[box].set_interval(self._sessions[box].state.spec.interval)
        evidence = await self._gather(box, verb, provider, typed="")
        review = self._review(box, verb, provider, evidence)
        self._shown[box, verb] = review
        return review

    async def execute(
        self,
        box: str,
        verb: Verb,
        typed: str,
        *,
        forfeits: frozenset[str] = frozenset(),
        ignored: frozenset[str] = frozenset(),
        unprotect: str = "",
        evidence_digest: str | None = None,
    ) -> AsyncIterator[StopProgress]:
        """Carry the action out, if the gate allows it on evidence of this very moment.

        Raises:
            GateClosed: it does not, or the audit log cannot be written; nothing was sent.
        """
        provider = self._provider(box)
        evidence = await self._gather(box, verb, provider, typed)
        fresh = self._review(box, verb, provider, evidence)
        seen = self._shown.get((box, verb))
        shown = digest(seen or fresh)
        verdict = evaluate(evidence, self._clock(), steady())
        reasons = changes(seen, fresh) if seen is not None else ()
        if isinstance(verdict, Refusal) or reasons:
            refused = verdict.reasons if isinstance(verdict, Refusal) else ()
            reasons = tuple(dict.fromkeys((*refused, *reasons)))
            await self._note(evidence, AuditEvent.REFUSED, "; ".join(reasons), shown, required=False)
            raise GateClosed(reasons)
        call = provider.describe(verb, evidence.instance)
        await self._note(evidence, AuditEvent.REQUESTED, call, shown, required=True)
        async for step in self._carry_out(box, provider, verdict):
            await self._note(evidence, AuditEvent.ANSWER, f"{step.phase}: {step.text}", shown, required=False)
            yield step

    async def _carry_out(self, box: str, provider: Provider, permit: Permit) -> AsyncIterator[StopProgress]:
        session = self._sessions[box]
        steps = carry_out(provider, permit, clock=self._clock, sleep=asyncio.sleep)
        async for step in steps:
            if step.phase is not StopPhase.REQUESTED:
                self._meters.put(session, await provider.read(permit.instance))
            yield step

    def _provider(self, box: str) -> Provider:
        try:
            provider = self._meters.provider(self._sessions[box])
        except ValueError as error:
            raise GateClosed((str(error),)) from error
        if provider is None:
            profile = self._profiles[box]
            raise GateClosed(
                (
                    f"{box} has no control plane in the fleet file, so rgt cannot stop its meter: "
                    f"do it by hand in {profile.name}'s own console",
                )
            )
        return provider

    async def _gather(self, box: str, verb: Verb, provider: Provider, typed: str) -> Evidence:
        session = self._sessions[box]
        self._meters.put(session, await provider.read(provider.instance))
        state = session.state
        return gather(
            state,
            state.meter,
            self._profiles[box],
            verb,
            self._clock(),
            action=provider.action(verb),
            typed=typed,
            known_tiers=self._tiers(box, provider),
        )

    def _review(self, box: str, verb: Verb, provider: Provider, evidence: Evidence) -> Review:
        state = self._sessions[box].state
        action = action_for(self._profiles[box], verb)
        return make_review(
            evidence,
            state,
            state.meter,
            self._profiles[box],
            native_label=action.native_label if action is not None else provider.native_label(verb),
            will_send=provider.describe(verb, provider.instance),
            now=self._clock(),
            keeps_billing=provider.keeps_billing(verb, provider.instance),
            known_tiers=self._tiers(box, provider),
        )

    def _tiers(self, box: str, provider: Provider) -> dict[str, str]:
        """What the fleet file says about a mount point is a person's word and beats the provider's guess."""
        return {**provider.tiers(provider.instance), **self._sessions[box].state.spec.tiers}

    async def _note(
        self, evidence: Evidence, event: AuditEvent, text: str, shown: str, *, required: bool
    ) -> None:
        entry = AuditEntry(
            at=self._clock(),
            event=event,
            box=evidence.box,
            verb=evidence.verb,
            instance=evidence.instance,
            shown=shown,
            evidence=digest(evidence),
            typed=evidence.typed,
            text=text,
        )
        try:
            await asyncio.to_thread(self._audit.record, entry)
        except AuditFailed as error:
            if required:
                raise GateClosed((f"{error}. Nothing was sent.",)) from error
