"""A fleet that exists only in memory, with a clock that the test moves, with the builders of `boxes` at hand."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import msgspec

from rgt_tui.fleet import Chronicle, FleetSource, GateClosed, PullResult, TransferNote
from rgt_tui.gate import Receipt
from rgt_tui.model import (
    ActionReview,
    BillingVerb,
    CheckResult,
    EvidenceItem,
    FleetState,
    Forfeit,
    PersonTick,
    Profile,
    RiskLevel,
    StopPhase,
    StopProgress,
)
from rgt_tui.profiles import TransferCost
from rgt_tui.store import with_ticks
from rgt_tui.transfer.copying import PullProgress
from tests.ui.boxes import (
    GIB,
    LOG,
    NOW,
    cell,
    curve,
    default_checks,
    demo_state,
    disk,
    gpu,
    inode_finding,
    lost_box,
    many_boxes,
    meter,
    profile,
    queue,
    run,
    running_box,
    sample,
    spec,
    stale_box,
    trouble_box,
    warn_box,
    wave,
)

__all__ = [
    "GIB",
    "LOG",
    "NOW",
    "FakeFleet",
    "cell",
    "curve",
    "default_checks",
    "demo_state",
    "disk",
    "gpu",
    "inode_finding",
    "lost_box",
    "many_boxes",
    "meter",
    "profile",
    "queue",
    "run",
    "running_box",
    "sample",
    "spec",
    "stale_box",
    "trouble_box",
    "warn_box",
    "wave",
]


def _judged(item: EvidenceItem, forfeits: frozenset[str], ignored: frozenset[str]) -> EvidenceItem:
    """Do with an item what the gate does."""
    if item.key in ignored and item.ignorable:
        return msgspec.structs.replace(item, ok=True, text=f"no result, by name: {item.text}")
    given = item.key in forfeits and item.forfeitable and not item.ok
    return msgspec.structs.replace(item, forfeited=given)


class FakeFleet(FleetSource):
    """Implements `FleetSource`; tests push states and move the clock."""

    fleet_file: Path | None = Path("/fleets/test.toml")
    chronicle: Chronicle | None = None
    why_nothing: str = ""
    keeps_transfers = runs_checks = True

    def __init__(self, state: FleetState | None = None, *, at: float = NOW) -> None:
        self._state = demo_state(at) if state is None else state
        self._now = at
        self._callbacks: list[Callable[[FleetState], None]] = []
        self.focused: list[str | None] = []
        self.followed: list[tuple[str, str]] = []
        self.told: list[tuple[object, ...]] = []
        self.started = 0
        self.stopped = 0
        self.executed: list[tuple[str, BillingVerb, str]] = []
        self.review_changes: dict[str, object] = {}
        self.reviewed: list[tuple[BillingVerb, frozenset[str], frozenset[str], str]] = []
        self.protected = False
        self.pulls: list[tuple[str, tuple[str, ...]]] = []
        self.pull_looks: tuple[PullProgress, ...] = (
            PullProgress(phase="pulling", bytes=GIB, bytes_done=GIB),
        )
        self.pull_gate: asyncio.Event | None = None
        self.pull_end: PullResult | Exception = PullResult(
            whole=True, text="3 files, 3.0 GB verified in pulled/vast-demo"
        )
        self.pull_toll: TransferCost | None = None
        self.pulls_stopped = 0
        self.progress_gate: asyncio.Event | None = None
        self.steps: tuple[StopPhase, ...] = (
            StopPhase.REQUESTED,
            StopPhase.CONFIRMED,
            StopPhase.METER_OFF,
        )
        self.check_results: tuple[CheckResult, ...] = default_checks(at)
        self.ticks: dict[str, tuple[PersonTick, ...]] = {}
        self.tick_trouble: str | None = None
        self.runs: dict[str, tuple[str, ...] | Exception] = {}
        """By check: what its run prints, or why it cannot be run."""
        self.run_gate: asyncio.Event | None = None
        self.done_asked = 0
        self.fail_done: Exception | None = None
        self.receipts: dict[str, Receipt] = {}
        self.notes: tuple[TransferNote, ...] | OSError = ()
        """What other rgts copy, or why that is not known."""

    @property
    def state(self) -> FleetState:
        return self._state

    def subscribe(self, callback: Callable[[FleetState], None]) -> Callable[[], None]:
        self._callbacks.append(callback)
        return lambda: self._callbacks.remove(callback)

    def push(self, state: FleetState) -> None:
        """Publish a new state."""
        self._state = state
        for callback in list(self._callbacks):
            callback(state)

    def change(self, box: str, **changes: object) -> None:
        """Publish a state in which one box differs."""
        boxes = tuple(
            msgspec.structs.replace(b, **changes) if b.spec.name == box else b
            for b in self._state.boxes
        )
        self.push(msgspec.structs.replace(self._state, boxes=boxes, at=self._now))

    def advance(self, seconds: float) -> None:
        """Move the clock; nothing else happens."""
        self._now += seconds

    def now(self) -> float:
        return self._now

    def profile_of(self, box: str) -> Profile:
        found = self._state.find_box(box)
        return profile(found.spec.profile if found else "generic-ssh")

    def evaluate_checks(self, box: str) -> tuple[CheckResult, ...]:
        return with_ticks(self.check_results, self.ticks)

    async def store_tick(self, box: str, check: str, tick: PersonTick) -> str | None:
        self.told.append(("tick", box, check, tick))
        if self.tick_trouble is not None:
            return self.tick_trouble
        self.ticks[check] = (*self.ticks.get(check, ()), tick)
        return None

    def runnable_command(self, box: str, check: str) -> str | None:
        return f"rgt doctor {box}" if check in self.runs else None

    async def run_check(self, box: str, check: str, on_line: Callable[[str], None]) -> int:
        found = self.runs[check]
        if isinstance(found, Exception):
            raise found
        try:
            for row in found:
                on_line(row)
            if self.run_gate is not None:
                await self.run_gate.wait()
        except asyncio.CancelledError:
            self.told.append(("cancelled", check))
            raise
        return 0

    def focus_box(self, box: str | None) -> None:
        self.focused.append(box)

    def set_looking(self, looking: bool) -> None:
        self.told.append(("looking", looking))

    def follow_log(self, box: str, path: str) -> None:
        self.followed.append((box, path))

    def set_box_paused(self, box: str, paused: bool) -> None:
        self.told.append(("pause", box, paused))

    def retry_box(self, box: str) -> None:
        self.told.append(("retry", box))

    def set_interval(self, box: str, seconds: float | None) -> None:
        self.told.append(("interval", box, seconds))

    def mute_alert(self, box: str, alert: str, seconds: float | None) -> None:
        self.told.append(("mute", box, alert, seconds))

    def answer_question(self, question: int, text: str | None) -> None:
        self.told.append(("answer", question, text))

    async def review_action(
        self,
        box: str,
        verb: BillingVerb,
        *,
        forfeits: frozenset[str] = frozenset(),
        ignored: frozenset[str] = frozenset(),
        unprotect: str = "",
    ) -> ActionReview:
        self.reviewed.append((verb, forfeits, ignored, unprotect))
        base = ActionReview(
            box,
            verb,
            "Destroy" if verb is BillingVerb.DESTROY else "Stop",
            "9918231",
            verb is BillingVerb.DESTROY,
            0.42,
            1.11,
            "USD",
            ("/workspace  38.2 GB  (everything on the box)",)
            if verb is BillingVerb.DESTROY
            else (),
            () if verb is BillingVerb.DESTROY else ("/workspace",),
            () if verb is BillingVerb.DESTROY else ("storage $0.02/h",),
            (
                EvidenceItem("roster", True, "3 cells, 3 accounted for", self._now),
                EvidenceItem("manifest", True, "214 files, 38.2 GB", self._now - 9),
                EvidenceItem("pulled", True, "214 of 214, sha256 equal", self._now - 9),
                EvidenceItem("loads", True, "3 checkpoints loaded, 0 refused", self._now - 12),
                EvidenceItem("quiet", True, "no training process, queue done", self._now),
                EvidenceItem("provider", True, "running, re-read just now", self._now),
            ),
            (),
            "DELETE /instances/9918231/",
            "running",
            self._now,
            self._now,
            level=RiskLevel.IRREVERSIBLE if verb is BillingVerb.DESTROY else RiskLevel.METER,
        )
        base = msgspec.structs.replace(base, **self.review_changes)
        items = tuple(_judged(item, forfeits, ignored) for item in base.items)
        given = tuple(
            Forfeit(key=i.key, fact=i.fact or i.text, text=i.text, bytes=i.bytes, newest=i.newest)
            for i in items
            if i.forfeited
        )
        against = tuple(item.text for item in items if item.is_blocking)
        asked = f"unprotect {box}" if self.protected and unprotect != f"unprotect {box}" else ""
        return msgspec.structs.replace(
            base,
            items=items,
            refusals=(*base.refusals, *against, *((f"{box} is protected",) if asked else ())),
            forfeits=given,
            phrase=f"forfeit {len(given)} of {box}" if given else box,
            level=RiskLevel.IRREVERSIBLE if given else base.level,
            irreversible=base.irreversible or bool(given),
            unprotect=asked,
        )

    async def execute_action(
        self,
        box: str,
        verb: BillingVerb,
        typed: str,
        *,
        forfeits: frozenset[str] = frozenset(),
        ignored: frozenset[str] = frozenset(),
        unprotect: str = "",
        evidence_digest: str | None = None,
    ) -> AsyncIterator[StopProgress]:
        review = await self.review_action(
            box, verb, forfeits=forfeits, ignored=ignored, unprotect=unprotect
        )
        if review.refusals or typed != review.phrase:
            raise GateClosed(review.refusals or ("the name typed is not the name of the box",))
        self.executed.append((box, verb, typed))
        for phase in self.steps:
            if self.progress_gate is not None:
                await self.progress_gate.wait()
            yield StopProgress(phase, self._now, phase.value)

    async def confirm_done(self, box: str) -> StopProgress:
        self.done_asked += 1
        if self.fail_done is not None:
            raise self.fail_done
        return StopProgress(StopPhase.METER_OFF, self._now, "done on the console")

    async def find_receipt(self, box: str) -> Receipt | None:
        return self.receipts.get(box)

    async def pull_directories(
        self,
        box: str,
        paths: tuple[str, ...],
        on_progress: Callable[[PullProgress], None],
        on_plan: Callable[[str], None],
        agree: Callable[[TransferCost], Awaitable[bool]],
    ) -> PullResult:
        self.pulls.append((box, paths))
        on_plan("3 of 3 files, 3.0 GB, to pulled/vast-demo")
        try:
            if self.pull_toll is not None:
                assert await agree(self.pull_toll)
            for look in self.pull_looks:
                on_progress(look)
            if self.pull_gate is not None:
                await self.pull_gate.wait()
        except asyncio.CancelledError:
            self.pulls_stopped += 1
            raise
        if isinstance(self.pull_end, Exception):
            raise self.pull_end
        return self.pull_end

    async def transfers(self) -> tuple[TransferNote, ...]:
        if isinstance(self.notes, OSError):
            raise self.notes
        return self.notes

    async def start(self) -> None:
        self.started += 1

    async def stop(self) -> None:
        self.stopped += 1
