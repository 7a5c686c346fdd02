"""The demo as a fleet source: the boxes and the engine that watches them, started together."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from rgt_tui.demo.embedded import EmbeddedFleet, run_with_deadline
from rgt_tui.demo.stories import StoryDirector
from rgt_tui.fleet import Chronicle, Fleet, HistoryRecorder
from rgt_tui.fleet.config.editing import dump_fleet
from rgt_tui.model import FleetState
from rgt_tui.store import FleetHistory

# Local servers have no rate limit to respect, and a price should move while a person watches.
METER_SECONDS = 5.0
FORWARDED = (
    "answer_question", "box_log", "confirm_done", "evaluate_checks", "execute_action",
    "find_receipt", "fix_trials", "follow_log", "keep_log", "mute_alert", "profile_of",
    "pull_directories", "retry_box", "review_action", "run_check", "run_command",
    "runnable_command", "set_box_paused", "set_interval", "shell_words", "store_tick", "transfers",
)  # fmt: skip
"""Methods of the engine that the demo has, too."""
log = logging.getLogger("rgt.demo")


if TYPE_CHECKING:
    from pathlib import Path

    # With every method that is forwarded to it.
    from rgt_tui.fleet import Fleet as _Forwarding
else:
    from rgt_tui.fleet import FleetSource as _Forwarding


class DemoFleet(_Forwarding):
    """The embedded fleet; what is not defined here is done by the engine, once the boxes are up."""

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
    def audit_file(self) -> Path | None:  # type: ignore[override]  # none before the boxes are up
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

    def focus_box(self, box: str | None) -> None:
        """Set which box is on screen."""
        if self._fleet is not None:
            self._fleet.focus_box(box)

    def set_looking(self, looking: bool) -> None:
        """Set whether a user is watching."""
        if self._fleet is not None:
            self._fleet.set_looking(looking)

    def leave_log(self, box: str, path: str) -> None:
        """Keep only its newest lines again."""
        if self._fleet is not None:
            self._fleet.leave_log(box, path)

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

    def _pass_on(self, state: FleetState) -> None:
        # A copy: a callback may end its own subscription.
        for callback in list(self._subscribers):
            callback(state)


def _forward_call(name: str) -> Callable[..., Any]:
    def forwarded(demo: DemoFleet, *given: Any, **named: Any) -> Any:
        if demo._fleet is None:
            # The error that a fleet raises for an unknown box, which the screens handle.
            raise KeyError("the demo's boxes are not up yet")
        return getattr(demo._fleet, name)(*given, **named)

    return forwarded


for name in FORWARDED:
    setattr(DemoFleet, name, _forward_call(name))


def _log_failure(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and task.exception() is not None:
        log.error("the demo's stories ended early: %r", task.exception())
