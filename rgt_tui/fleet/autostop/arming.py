"""Arm a box to stop itself: check for objections, show them, and send the request once confirmed.

A request is recorded before it is sent: without a record nothing is armed.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from rgt_tui.fleet.autostop import autostop_verbs
from rgt_tui.fleet.autostop.autostop_verbs import ArmedBook, SelfStopControl
from rgt_tui.fleet.autostop.self_stops import (
    describe_promises,
    known_objections,
    list_erased_results,
    wrong_machine,
)
from rgt_tui.fleet.engine import Fleet
from rgt_tui.fleet.fleet_source import GateClosed
from rgt_tui.gate import AuditEvent, AuditLog
from rgt_tui.gate.audit import find_user_and_host
from rgt_tui.language import english_texts, translate
from rgt_tui.model import (
    ActionReview,
    ArmAnswer,
    ArmedRecord,
    ArmRequest,
    AutostopMode,
    AutostopStatus,
    BillingVerb,
    BoxSpec,
    EndAction,
    FrozenStruct,
    HolderId,
    Profile,
    StopMethod,
    format_duration,
    short_command,
)
from rgt_tui.providers import own_stop

NO_INSTANCE = "-"
"""Instance of a box without a provider, which can only notify a person."""


class UnknownProcess(Exception):
    """An accepted pid does not exist; the message lists the existing ones."""


class ArmingChoice(FrozenStruct, kw_only=True):
    """The person's request."""

    mode: AutostopMode
    action: EndAction
    limit_s: float
    inspect_s: float = 0.0
    no_progress_s: float = 0.0
    no_progress_source: str = ""
    """The option or the file that sets `no_progress_s`; empty = neither."""
    accept: tuple[str, ...] = ()
    """Pids of idle processes; for a lease, names of runs that do not save."""


@dataclass(frozen=True)
class Rehearsal:
    """The expected result of arming, as just checked."""

    spec: BoxSpec
    wish: ArmingChoice
    request: ArmRequest | None
    """None = it could not be built."""
    answer: ArmAnswer | None
    """The box's answer; None = the box was not queried."""
    review: ActionReview | None
    """What a park would keep, lose and leave billing."""
    reasons: tuple[str, ...]
    """Reasons why it cannot be armed, all at once."""
    key_words: str
    """The key or command that it would stop itself with."""
    key_proof: str = ""
    """How the box proves that it is allowed to stop itself with that."""

    @property
    def promise_lines(self) -> tuple[str, ...]:
        """Statements that are true of every armed box."""
        return describe_promises(self.wish.mode, self.wish.action)

    @property
    def erased_results(self) -> tuple[str, ...]:
        """Results whose only copy a park would delete, as known now."""
        if self.review is not None:
            return list_erased_results(self.review)
        return ()


class BoxArming:
    """Arms the boxes of a started fleet.

    Args:
        fleet: The fleet.
        audit: The audit log.
        book: Stores which boxes were armed.
        readonly: Refuse.
    """

    def __init__(
        self, fleet: Fleet, audit: AuditLog, book: ArmedBook, *, readonly: bool = False
    ) -> None:
        self._fleet = fleet
        self._audit = audit
        self._book = book
        self._readonly = readonly

    async def rehearse_arming(self, spec: BoxSpec, wish: ArmingChoice) -> Rehearsal:
        """Query platform, provider, gate and box for objections. Nothing is changed.

        Raises:
            BoxError: the box was not reached, or gave no answer.
            UnknownProcess: an accepted pid does not belong to an idle process.
        """
        profile = self._fleet.profile_of(spec.name)
        review: ActionReview | None = None
        if spec.provider is not None and not spec.untrusted:
            # Without a review the other objections are still worth knowing; `wrong_machine` adds
            # its own.
            with contextlib.suppress(GateClosed):
                review = await self._fleet.review_action(spec.name, BillingVerb.PARK)
        reasons = list(known_objections(spec, profile, wish.action, readonly=self._readonly))
        if wish.action is EndAction.PARK:
            reasons += wrong_machine(review)
        found = own_stop(spec.provider)
        words, proof = "", ""
        if found is not None and wish.action is EndAction.PARK:
            words, proof = found.what, found.proof
        way = self._fleet.agent_of(spec.name)
        request = await self._build_request(spec, wish, found.way if found is not None else None)
        # No key or command to stop with: the box need not be asked.
        if request.stop is None and wish.action is EndAction.PARK:
            return Rehearsal(spec, wish, request, None, review, tuple(reasons), words, proof)
        answer = await autostop_verbs.request_rehearsal(way, request)
        # Twice: only the first answer has the ids of the processes that a person names by pid.
        if wish.accept and wish.mode is AutostopMode.IDLE:
            request = msgspec.structs.replace(
                request, accept_holders=holders_by_pid(answer.status, wish.accept)
            )
            answer = await autostop_verbs.request_rehearsal(way, request)
        reasons += answer.reasons
        return Rehearsal(
            spec, wish, request, answer, review, tuple(dict.fromkeys(reasons)), words, proof
        )

    async def arm_box(self, rehearsed: Rehearsal, typed: str) -> ArmAnswer:
        """Arm the box, if there are no objections and its name was typed.

        Raises:
            GateClosed: it is not armed, with the reasons.
            BoxError: it is unknown whether it is armed.
            AuditFailed: it cannot be recorded; nothing was sent.
        """
        spec, request = rehearsed.spec, rehearsed.request
        # Checked once more here: the caller may have shown something else.
        if rehearsed.reasons or request is None:
            raise GateClosed(rehearsed.reasons or (translate("nothing was rehearsed"),))
        if typed != spec.name:
            raise GateClosed(
                (translate("the typed text is not {name!r}: nothing was armed", name=spec.name),)
            )
        written = SelfStopControl(spec, self._audit, self._book, clock=self._fleet.now)
        # Before the request: a box that is armed without a record would stop unexplained.
        written.write_audit(
            AuditEvent.REQUESTED, request.boot, f"arm: {describe_request(request)}", typed
        )
        answer = await autostop_verbs.request_arming(self._fleet.agent_of(spec.name), request)
        if not answer.ok:
            written.write_audit(AuditEvent.REFUSED, request.boot, "; ".join(answer.reasons))
            raise GateClosed(answer.reasons or (translate("the box refuses without a reason"),))
        meter = self._fleet.state.find_box(spec.name)
        if meter is not None:
            costs = meter.meter
        else:
            costs = None
        ref = spec.provider
        armed = ArmedRecord(
            box=spec.name,
            kind=ref.kind if ref is not None else "",
            account=ref.account if ref is not None else "",
            instance=request.instance,
            boot=request.boot,
            mode=request.mode,
            action=request.action,
            limit_s=request.limit_s,
            at=self._fleet.now(),
            who=find_user_and_host(),
            per_hour=costs.compute_per_hour if costs is not None else None,
            currency=costs.currency if costs is not None else "USD",
            durable=request.durable,
            no_progress_s=request.no_progress_s,
        )
        # It is armed, even if the local disk fails.
        with contextlib.suppress(OSError, TimeoutError):
            self._book.record_arming(spec, armed)
        written.write_audit(AuditEvent.ARMED, request.boot, f"armed: {describe_request(request)}")
        return answer

    async def _build_request(
        self, spec: BoxSpec, wish: ArmingChoice, way: StopMethod | None
    ) -> ArmRequest:
        state = self._fleet.state.find_box(spec.name)
        boot = ""
        if state is not None and state.hello is not None:
            boot = state.hello.boot
        mounts: tuple[str, ...] = ()
        if state is not None and state.sample is not None:
            # A mount that hangs would block the box's own check of its results.
            disks = state.sample.disks
            mounts = tuple(disk.mount for disk in disks if disk.error is None)
        park = wish.action is EndAction.PARK
        stays: tuple[str, ...] = ()
        with contextlib.suppress(GateClosed):
            stays = await self._fleet.surviving_mounts(spec.name, BillingVerb.PARK)
        idle, lease = (wish.limit_s, 0.0) if wish.mode is AutostopMode.IDLE else (0.0, wish.limit_s)
        # A box warns this many seconds before the end, or after two thirds of a short limit.
        warn_s = 600.0
        return ArmRequest(
            mode=wish.mode,
            action=wish.action,
            boot=boot,
            instance=spec.provider.instance if spec.provider is not None else NO_INSTANCE,
            box=spec.name,
            idle_s=idle,
            lease_s=lease,
            warn_s=min(warn_s, wish.limit_s / 3.0),
            inspect_s=wish.inspect_s,
            no_progress_s=wish.no_progress_s,
            stop=way if park else None,
            jobs=spec.jobs,
            results=(*spec.results, *spec.runs),
            ignore=spec.ignore,
            mounts=mounts,
            pattern=spec.pattern,
            durable=tuple(
                sorted(
                    stays,
                    key=lambda mount: mount_rank(mount, spec, self._fleet.profile_of(spec.name)),
                )
            ),
            accept_unsaving=wish.accept if wish.mode is AutostopMode.LEASE else (),
        )


def mount_rank(mount: str, spec: BoxSpec, profile: Profile) -> tuple[int, str]:
    """Return the sort key of a mount that survives a park.

    Copies go to the first mount; ``/`` comes last.
    """
    for place, path in enumerate(
        (spec.durable, profile.overrides.data_dir, profile.overrides.durable_dir)
    ):
        # The deepest known place first: `/` contains every path, so it proves nothing.
        if path is not None and mount != "/" and f"{path}/".startswith(f"{mount.rstrip('/')}/"):
            return place, mount
    return (9 if mount == "/" else 5), mount


def holders_by_pid(status: AutostopStatus, words: Sequence[str]) -> tuple[HolderId, ...]:
    """Return the idle processes that a person accepts by pid.

    The ids identify these processes, so a later process with the same pid is not accepted.

    Raises:
        UnknownProcess: a pid does not belong to an idle process.
    """
    holders = {str(one.pid): one for one in status.holders}
    unknown = [word for word in words if word not in holders]
    if unknown:
        known = (
            ", ".join(f"{one.pid} ({short_command(one.cmd)[:60]})" for one in status.holders)
            or "there is none"
        )
        raise UnknownProcess(
            translate(
                "no idle process with memory in use has the pid {unknown}; {known}",
                unknown=", ".join(unknown),
                known=known,
            )
        )
    return tuple(holders[word].id for word in dict.fromkeys(words))


@english_texts()
def describe_request(request: ArmRequest) -> str:
    """Describe what a request arms a box with, for the audit log."""
    if request.action is EndAction.PARK:
        does = translate("parks itself")
    else:
        does = translate("calls for a person")
    if request.mode is AutostopMode.IDLE:
        when = translate("when idle for")
    else:
        when = translate("at the end of a lease of")
    accepts = [f"pid {one.pid}" for one in request.accept_holders] + list(request.accept_unsaving)
    more = ""
    if accepts:
        more = translate(", accepting {names}", names=", ".join(accepts))
    if request.no_progress_s:
        more += translate(
            ", or live runs without progress for {duration}",
            duration=format_duration(request.no_progress_s),
        )
    return translate(
        "{does} {when} {duration}{more}, for boot {boot}",
        does=does,
        when=when,
        duration=format_duration(request.limit_s),
        more=more,
        boot=request.boot,
    )
