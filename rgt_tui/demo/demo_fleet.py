"""The demo as a fleet source: the boxes and the engine that watches them, started together."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TYPE_CHECKING, Unpack

from rgt_tui.demo.embedded import EmbeddedFleet, run_with_deadline
from rgt_tui.demo.stories import StoryDirector
from rgt_tui.fleet import ActionTerms, Chronicle, Fleet, FleetSource, HistoryRecorder, PullResult
from rgt_tui.fleet.config.editing import dump_fleet
from rgt_tui.gate import Receipt
from rgt_tui.model import (
    ActionReview,
    BillingVerb,
    CheckResult,
    FleetState,
    PersonTick,
    Profile,
    StopProgress,
)
from rgt_tui.store import FleetHistory

if TYPE_CHECKING:
    from pathlib import Path

    from rgt_tui.fleet import FixTrials, TransferNote
    from rgt_tui.fleet.box_logs import BoxLog
    from rgt_tui.fleet.kept_lines import KeptLines
    from rgt_tui.profiles import TransferCost
    from rgt_tui.transfer.copying import PullProgress

# Local servers have no rate limit to respect, and a price should move while a person watches.
METER_SECONDS = 5.0
log = logging.getLogger("rgt.demo")


class DemoFleet(FleetSource):
    """The embedded fleet."""

    keeps_logs = keeps_transfers = runs_checks = True

    def __init__(self, *, port_base: int | None = None, follow_advice: bool = False) -> None:
        self.embedded = EmbeddedFleet(port_base=port_base)
        self._follow_advice = follow_advice
        self._fleet: Fleet | None = None
        self._is_watched = False
        """The engine was started, and not yet stopped."""
        self._director: asyncio.Task[None] | None = None
        self._subscribers: list[Callable[[FleetState], None]] = []

    @property
    def state(self) -> FleetState:
        """The newest state; empty until the boxes are up."""
        if self._fleet is not None:
            return self._fleet.state
        return FleetState(at=time.time())

    @property
    def chronicle(self) -> Chronicle | None:
        """The stored history of the fleet."""
        if self._fleet is not None:
            return self._fleet.chronicle
        return None

    @property
    def audit_file(self) -> Path | None:
        """Where the demo writes its billing actions, separate from the user's own."""
        if self._fleet is not None:
            return self._fleet.audit_file
        return None

    def now(self) -> float:
        """The client clock."""
        return time.time()

    def subscribe(self, callback: Callable[[FleetState], None]) -> Callable[[], None]:
        """Call `callback` with every new state; return a function that ends the subscription."""
        self._subscribers.append(callback)
        return lambda: self._subscribers.remove(callback) if callback in self._subscribers else None

    def profile_of(self, box: str) -> Profile:
        """The profile of a box."""
        return self._running_fleet.profile_of(box)

    def evaluate_checks(self, box: str) -> tuple[CheckResult, ...]:
        """The lifecycle checks of a box."""
        return self._running_fleet.evaluate_checks(box)

    def focus_box(self, box: str | None) -> None:
        """Set which box is on screen."""
        if self._fleet is not None:
            self._fleet.focus_box(box)

    def set_looking(self, looking: bool) -> None:
        """Set whether a user is watching."""
        if self._fleet is not None:
            self._fleet.set_looking(looking)

    def follow_log(self, box: str, path: str) -> None:
        """Follow one more log."""
        self._running_fleet.follow_log(box, path)

    def keep_log(self, box: str, path: str) -> KeptLines | None:
        """Keep all lines of a log from now on."""
        return self._running_fleet.keep_log(box, path)

    def leave_log(self, box: str, path: str) -> None:
        """Keep only its newest lines again."""
        if self._fleet is not None:
            self._fleet.leave_log(box, path)

    def box_log(self, box: str, path: str) -> BoxLog:
        """Return a log on its box."""
        return self._running_fleet.box_log(box, path)

    def shell_words(self, box: str, command: str = "") -> tuple[str, ...]:
        """Return the program and its arguments that open a terminal on a box."""
        return self._running_fleet.shell_words(box, command)

    async def run_command(self, words: tuple[str, ...], on_line: Callable[[str], None]) -> int:
        """Run a command that a person has typed."""
        return await self._running_fleet.run_command(words, on_line)

    def fix_trials(self, box: str) -> FixTrials:
        """Return what runs the steps of a fix on a box."""
        return self._running_fleet.fix_trials(box)

    def set_box_paused(self, box: str, paused: bool) -> None:
        """Disconnect from a box, or connect again."""
        self._running_fleet.set_box_paused(box, paused)

    def retry_box(self, box: str) -> None:
        """Connect now."""
        self._running_fleet.retry_box(box)

    def set_interval(self, box: str, seconds: float | None) -> None:
        """Set the sampling interval of a box in seconds."""
        self._running_fleet.set_interval(box, seconds)

    def mute_alert(self, box: str, alert: str, seconds: float | None) -> None:
        """Mute an alert."""
        self._running_fleet.mute_alert(box, alert, seconds)

    def answer_question(self, question: int, text: str | None) -> None:
        """Answer a question."""
        self._running_fleet.answer_question(question, text)

    async def review_action(
        self,
        box: str,
        verb: BillingVerb,
        **given: Unpack[ActionTerms],
    ) -> ActionReview:
        """Collect what a user must see before a billing action."""
        return await self._running_fleet.review_action(box, verb, **given)

    def execute_action(
        self,
        box: str,
        verb: BillingVerb,
        typed: str,
        *,
        evidence_digest: str | None = None,
        **given: Unpack[ActionTerms],
    ) -> AsyncIterator[StopProgress]:
        """Carry out a billing action, if the gate allows it."""
        return self._running_fleet.execute_action(
            box, verb, typed, evidence_digest=evidence_digest, **given
        )

    async def confirm_done(self, box: str) -> StopProgress:
        """Record that the user has done it by hand."""
        return await self._running_fleet.confirm_done(box)

    async def find_receipt(self, box: str) -> Receipt | None:
        """Return the newest receipt of a box."""
        return await self._running_fleet.find_receipt(box)

    async def pull_directories(
        self,
        box: str,
        paths: tuple[str, ...],
        on_progress: Callable[[PullProgress], None],
        on_plan: Callable[[str], None],
        agree: Callable[[TransferCost], Awaitable[bool]],
    ) -> PullResult:
        """Copy directories of a box into the demo's own directory, and verify the copy."""
        return await self._running_fleet.pull_directories(box, paths, on_progress, on_plan, agree)

    async def transfers(self) -> tuple[TransferNote, ...]:
        """Return the demo's transfers, newest first."""
        return await self._running_fleet.transfers()

    async def store_tick(self, box: str, check: str, tick: PersonTick) -> str | None:
        """Store a user's answer to a check for the demo's lifetime."""
        return await self._running_fleet.store_tick(box, check, tick)

    def runnable_command(self, box: str, check: str) -> str | None:
        """Return the command that runs a check."""
        return self._running_fleet.runnable_command(box, check)

    async def run_check(self, box: str, check: str, on_line: Callable[[str], None]) -> int:
        """Run a check's command."""
        return await self._running_fleet.run_check(box, check, on_line)

    async def start(self) -> None:
        """Start the boxes, then the engine, then the stories.

        Raises:
            DemoError: With the missing requirement and what to do.
        """
        try:
            await self.embedded.start()
            assert self.embedded.workspace is not None
            folder = self.embedded.workspace.path
            # A separate history that is deleted with the demo and never mixed with the user's own.
            memory = HistoryRecorder(FleetHistory(folder / "history.db"))
            self._fleet = Fleet(
                self.embedded.specs,
                audit=folder / "audit.jsonl",
                copies=folder / "pulled",
                env={**self.embedded.env, "XDG_STATE_HOME": str(folder)},
                meter_seconds=METER_SECONDS,
                observers=(memory,),
                whole=True,
                fleet_file=folder / "fleet.toml",
            )
            (folder / "fleet.toml").write_text(dump_fleet(self.embedded.specs))
            # Before its start, so that the screen sees the first state, too.
            self._fleet.subscribe(self._pass_on)
            self._is_watched = True
            await self._fleet.start()
        # Also at a cancellation: namespaces and mounts would else outlive the demo.
        except BaseException:
            await self.stop()
            raise
        # Last: a story that begins before the engine watches would be missed.
        director = StoryDirector(
            self.embedded, lambda: self.state, follow_advice=self._follow_advice
        )
        self._director = asyncio.create_task(director.run(), name="director")
        self._director.add_done_callback(_log_failure)

    async def stop(self) -> None:
        """Stop everything within seconds, even with hanging boxes; nothing of the demo remains."""
        director, self._director = self._director, None
        watched, self._is_watched = self._is_watched, False
        works: list[Awaitable[object]] = []
        if director is not None:
            director.cancel()
            works.append(asyncio.wait([director]))
        if self._fleet is not None and watched:
            works.append(self._fleet.stop())
        # While the engine disconnects, since a hanging box would keep its connection open.
        stop_seconds = 2.0
        await run_with_deadline(*works, self.embedded.kill(), seconds=stop_seconds)
        await self.embedded.stop()

    @property
    def _running_fleet(self) -> Fleet:
        if self._fleet is None:
            # The error that a fleet raises for an unknown box, which the screens handle.
            raise KeyError("the demo's boxes are not up yet")
        return self._fleet

    def _pass_on(self, state: FleetState) -> None:
        # A copy: a callback may end its own subscription.
        for callback in list(self._subscribers):
            callback(state)


def _log_failure(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and task.exception() is not None:
        log.error("the demo's stories ended early: %r", task.exception())
