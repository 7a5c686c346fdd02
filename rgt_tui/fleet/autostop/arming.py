"""Arm a box to stop itself: check for objections, show them, and send the request once its name was typed.

What is written down is written before it is sent: an arming that cannot be recorded is not made.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from rgt_tui.fleet.autostop import autostop_verbs
from rgt_tui.fleet.autostop.autostop_verbs import ArmedBook, Keeping
from rgt_tui.fleet.autostop.self_stops import erased, known_objections, promises, wrong_machine
from rgt_tui.fleet.engine import Fleet
from rgt_tui.fleet.fleet_source import GateClosed
from rgt_tui.gate import AuditEvent, AuditLog
from rgt_tui.gate.audit import who
from rgt_tui.model import (
    ArmAnswer,
    Armed,
    ArmRequest,
    AutostopStatus,
    BoxSpec,
    EndsBy,
    HolderId,
    Mode,
    Profile,
    Review,
    StopWay,
    Verb,
    short_command,
)
from rgt_tui.profiles import age
from rgt_tui.providers import own_stop

NO_INSTANCE = "-"
"""Of a box without a provider, which can only ask."""
WARN_S = 600.0
"""So long before the end a box warns; of a short limit a third."""


class NotNamed(Exception):
    """An accepted process does not exist; the message says which ones do."""


class Wish(msgspec.Struct, frozen=True, kw_only=True):
    """What the person wants."""

    mode: Mode
    action: EndsBy
    limit_s: float
    inspect_s: float = 0.0
    accept: tuple[str, ...] = ()
    """Pids of idle holders; of a lease, names of runs that do not save."""


@dataclass(frozen=True)
class Rehearsal:
    """What would come of arming, as it was asked just now."""

    spec: BoxSpec
    wish: Wish
    request: ArmRequest | None
    """None where it could not even be put together."""
    answer: ArmAnswer | None
    """The box's; None = it was not asked."""
    review: Review | None
    """What a park would keep, lose and leave billing."""
    reasons: tuple[str, ...]
    """Why it is not armed, all at once."""
    key_words: str
    """What it would stop itself with."""
    key_proof: str = ""
    """How the box proves that it may stop itself with that."""

    @property
    def promises(self) -> tuple[str, ...]:
        """What is true of every armed box."""
        return promises(self.wish.mode, self.wish.action)

    @property
    def erased(self) -> tuple[str, ...]:
        """Results of which a park would take the only copy, by what is known now."""
        if self.review is not None:
            return erased(self.review)
        return ()


class Arming:
    """Arms the boxes of a started fleet.

    Args:
        fleet: It.
        audit: Where it is written down.
        book: Where it is remembered.
        readonly: Refuse.
    """

    def __init__(
        self, fleet: Fleet, audit: AuditLog, book: ArmedBook, *, readonly: bool = False
    ) -> None:
        self._fleet = fleet
        self._audit = audit
        self._book = book
        self._readonly = readonly

    async def rehearse(self, spec: BoxSpec, wish: Wish) -> Rehearsal:
        """Ask platform, provider, gate and box what speaks against it. Nothing changes anywhere.

        Raises:
            BoxError: the box was not reached, or gave no answer.
            NotNamed: something is accepted by a pid that is none of its holders.
        """
        profile = self._fleet.profile(spec.name)
        review: Review | None = None
        if spec.provider is not None and not spec.untrusted:
            with contextlib.suppress(GateClosed):
                review = await self._fleet.review(spec.name, Verb.PARK)
        reasons = list(known_objections(spec, profile, wish.action, readonly=self._readonly))
        if wish.action is EndsBy.PARK:
            reasons += wrong_machine(review)
        found = own_stop(spec.provider)
        words, proof = "", ""
        if found is not None and wish.action is EndsBy.PARK:
            words, proof = found.what, found.proof
        way = self._fleet.agent(spec.name)
        request = await self._request(spec, wish, found.way if found is not None else None)
        if request.stop is None and wish.action is EndsBy.PARK:
            return Rehearsal(spec, wish, request, None, review, tuple(reasons), words, proof)
        answer = await autostop_verbs.rehearse(way, request)
        if wish.accept and wish.mode is Mode.IDLE:
            request = msgspec.structs.replace(
                request, accept_holders=accepted(answer.status, wish.accept)
            )
            answer = await autostop_verbs.rehearse(way, request)
        reasons += answer.reasons
        return Rehearsal(
            spec, wish, request, answer, review, tuple(dict.fromkeys(reasons)), words, proof
        )

    async def arm(self, rehearsed: Rehearsal, typed: str) -> ArmAnswer:
        """Arm the box, if there are no objections and its name was typed.

        Raises:
            GateClosed: it is not armed, and why.
            BoxError: whether it is armed is not known.
            AuditFailed: it cannot be written down; nothing was sent.
        """
        spec, request = rehearsed.spec, rehearsed.request
        if rehearsed.reasons or request is None:
            raise GateClosed(rehearsed.reasons or ("nothing was rehearsed",))
        if typed != spec.name:
            raise GateClosed((f"what was typed is not {spec.name!r}: nothing was armed",))
        written = Keeping(spec, self._audit, self._book, clock=self._fleet.now)
        written.note(AuditEvent.REQUESTED, request.boot, f"arm: {words_of(request)}", typed)
        answer = await autostop_verbs.arm(self._fleet.agent(spec.name), request)
        if not answer.ok:
            written.note(AuditEvent.REFUSED, request.boot, "; ".join(answer.reasons))
            raise GateClosed(answer.reasons or ("the box refuses, without saying why",))
        meter = self._fleet.state.box(spec.name)
        costs = meter.meter if meter is not None else None
        ref = spec.provider
        armed = Armed(
            box=spec.name,
            kind=ref.kind if ref is not None else "",
            account=ref.account if ref is not None else "",
            instance=request.instance,
            boot=request.boot,
            mode=request.mode,
            action=request.action,
            limit_s=request.limit_s,
            at=self._fleet.now(),
            who=who(),
            per_hour=costs.compute_per_hour if costs is not None else None,
            currency=costs.currency if costs is not None else "USD",
            durable=request.durable,
        )
        with contextlib.suppress(OSError, TimeoutError):  # it is armed, whatever this disk says
            self._book.arm(spec, armed)
        written.note(AuditEvent.ARMED, request.boot, f"armed: {words_of(request)}")
        return answer

    async def _request(self, spec: BoxSpec, wish: Wish, way: StopWay | None) -> ArmRequest:
        state = self._fleet.state.box(spec.name)
        hello = state.hello if state is not None else None
        sample = state.sample if state is not None else None
        park = wish.action is EndsBy.PARK
        stays: tuple[str, ...] = ()
        with contextlib.suppress(GateClosed):
            stays = await self._fleet.keepers(spec.name, Verb.PARK)
        idle, lease = (wish.limit_s, 0.0) if wish.mode is Mode.IDLE else (0.0, wish.limit_s)
        return ArmRequest(
            mode=wish.mode,
            action=wish.action,
            boot=hello.boot if hello is not None else "",
            instance=spec.provider.instance if spec.provider is not None else NO_INSTANCE,
            box=spec.name,
            idle_s=idle,
            lease_s=lease,
            warn_s=min(WARN_S, wish.limit_s / 3.0),
            inspect_s=wish.inspect_s,
            stop=way if park else None,
            jobs=spec.jobs,
            results=(*spec.results, *spec.runs),
            ignore=spec.ignore,
            mounts=tuple(disk.mount for disk in sample.disks if disk.error is None)
            if sample
            else (),
            pattern=spec.pattern,
            durable=tuple(
                sorted(stays, key=lambda mount: rank(mount, spec, self._fleet.profile(spec.name)))
            ),
            accept_unsaving=wish.accept if wish.mode is Mode.LEASE else (),
        )


def rank(mount: str, spec: BoxSpec, profile: Profile) -> tuple[int, str]:
    """Rank a mount among those that survive a park: copies go to the first, to ``/`` last of all."""
    for place, path in enumerate(
        (spec.durable, profile.overrides.data_dir, profile.overrides.durable_dir)
    ):
        if path is not None and mount != "/" and f"{path}/".startswith(f"{mount.rstrip('/')}/"):
            return place, mount
    return (9 if mount == "/" else 5), mount


def accepted(status: AutostopStatus, words: Sequence[str]) -> tuple[HolderId, ...]:
    """Return the idle holders that a person accepts by pid: this very process each, not whatever has the pid later.

    Raises:
        NotNamed: one of them is no holder.
    """
    holders = {str(one.pid): one for one in status.holders}
    unknown = [word for word in words if word not in holders]
    if unknown:
        known = (
            ", ".join(f"{one.pid} ({short_command(one.cmd)[:60]})" for one in status.holders)
            or "there is none"
        )
        raise NotNamed(
            f"no idle process that holds memory has the pid {', '.join(unknown)}; {known}"
        )
    return tuple(holders[word].id for word in dict.fromkeys(words))


def words_of(request: ArmRequest) -> str:
    """Say what a request arms a box with, for the audit log."""
    does = "parks itself" if request.action is EndsBy.PARK else "calls for a person"
    when = "when idle for" if request.mode is Mode.IDLE else "at the end of a lease of"
    accepts = [f"pid {one.pid}" for one in request.accept_holders] + list(request.accept_unsaving)
    more = f", accepting {', '.join(accepts)}" if accepts else ""
    return f"{does} {when} {age(request.limit_s)}{more}, for boot {request.boot}"
