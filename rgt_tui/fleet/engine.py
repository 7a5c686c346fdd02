"""The fleet: all sessions together, published a few times a second as one immutable state."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import shlex
import shutil
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

import msgspec

from rgt_tui.fleet import box_evidence, connector
from rgt_tui.fleet.alerting import FleetAlerting
from rgt_tui.fleet.attention import MemoryBudget, SamplingPaces
from rgt_tui.fleet.autostop import ARMED, ArmedBook, SelfStops
from rgt_tui.fleet.billing_actions import LIST_SECONDS, Teardown
from rgt_tui.fleet.box_evidence import EvidenceQueries
from rgt_tui.fleet.box_logs import BoxLog
from rgt_tui.fleet.box_session import BoxSession
from rgt_tui.fleet.check_runs import STARTABLE, NotRunnable, check_arguments, run_check_command
from rgt_tui.fleet.config.following import FleetFileFollower
from rgt_tui.fleet.connector import ConnectLimit
from rgt_tui.fleet.event_loop import reduce_collection, run_guarded
from rgt_tui.fleet.fleet_source import (
    AccountingObserver,
    ActionTerms,
    Chronicle,
    FleetObserver,
    FleetSource,
    NotOffered,
    PullResult,
    Remember,
    Tap,
)
from rgt_tui.fleet.history.morning_report import ENDED, add_costs
from rgt_tui.fleet.kept_lines import KeptLines
from rgt_tui.fleet.meters import FleetMeters, describe_own_step
from rgt_tui.fleet.open_actions import OpenActions
from rgt_tui.fleet.publisher import Publisher, Questions
from rgt_tui.fleet.unlisted import AccountWatch
from rgt_tui.gate import JOURNAL, AuditLog, Journal, Receipt
from rgt_tui.health import evaluate_checks
from rgt_tui.language import translate
from rgt_tui.model import (
    ActionReview,
    BillingVerb,
    BoxSpec,
    BoxState,
    CheckResult,
    CheckStatus,
    FleetState,
    FrozenStruct,
    PersonTick,
    Profile,
    StopPhase,
    StopProgress,
)
from rgt_tui.profiles import ProfileError, load_profile, seen_at
from rgt_tui.ssh import (
    BoxTransport,
    DeployedAgent,
    HostKeyPolicy,
    LoginAnswers,
    Unreachable,
    build_agent,
    terminal_words,
)
from rgt_tui.store import TicksError, save_tick, ticks_of, with_ticks

if TYPE_CHECKING:
    from rgt_tui.fleet.transfer_diary import TransferNote
    from rgt_tui.fleet.work.fix_trials import FixTrials
    from rgt_tui.profiles import TransferCost
    from rgt_tui.transfer.copying import PullProgress


class EnginePaces(FrozenStruct):
    """How often the engine's own tasks run, in seconds."""

    meter_s: float = 20.0
    """Seconds between two readings of the providers' meters."""
    clock_s: float = 2.0
    """Seconds between two reads of the computer's own clocks."""
    stop_s: float = 5.0
    """Tasks that have not ended after this many seconds are abandoned."""


ENGINE_PACES = EnginePaces()


log = logging.getLogger("rgt.fleet")


class BaseFleet(FleetSource):
    """Common part of a running and a replayed fleet: sessions whose states are published.

    Args:
        profiles: Box → its platform.
        clock: Epoch seconds; for a replay, the recording's clock.
        alerting: Keeps the alerts.
        observers: Notified of every published state and every event; closed by `stop`.
        asks: A person answers `FleetState.questions`; otherwise each is refused at once, with the
            reason.
    """

    def __init__(
        self,
        profiles: Mapping[str, Profile],
        clock: Callable[[], float],
        alerting: FleetAlerting,
        observers: Sequence[FleetObserver],
        *,
        asks: bool = False,
    ) -> None:
        self._profiles = profiles
        self._clock = clock
        self._alerting = alerting
        self._observers = tuple(observers)
        self._questions = Questions(clock, self._wake_publisher, attended=asks)
        self._publisher = Publisher(clock, self._questions, alerting, observers)
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def state(self) -> FleetState:
        """The newest published state."""
        return self._publisher.state

    def now(self) -> float:
        """Return the client clock."""
        return self._clock()

    def subscribe(self, callback: Callable[[FleetState], None]) -> Callable[[], None]:
        """Call `callback` with every new state; return the unsubscriber."""
        return self._publisher.subscribe(callback)

    def delay_while_busy(self, busy: Callable[[], bool]) -> None:
        """Briefly delay incoming box data while `busy` reports that a key press must be painted."""
        self._publisher.busy = busy

    def profile_of(self, box: str) -> Profile:
        """Return the profile of a box."""
        return self._profiles[box]

    def evaluate_checks(self, box: str) -> tuple[CheckResult, ...]:
        """Evaluate the lifecycle checks of a box now."""
        # A box may have left the fleet file since the screen was drawn.
        found = self.state.find_box(box)
        if found is None:
            return ()
        profile = self.profile_of(box)
        return evaluate_checks(found, profile, self.now(), page_seen=seen_at(profile) is not None)

    @property
    def chronicle(self) -> Chronicle | None:
        """The recorded history of the fleet; None = nothing is recorded."""
        return next(
            (one.chronicle for one in self._observers if isinstance(one, AccountingObserver)), None
        )

    def answer_question(self, question: int, text: str | None) -> None:
        """Answer a question."""
        self._questions.answer_question(question, text)

    def publish_now(self) -> None:
        """Publish all changes now, without waiting for the next time."""
        self._publisher.publish_all()

    def _start_tasks(self, works: Mapping[str, Callable[[], Awaitable[None]]]) -> None:
        for doing, work in works.items():
            self._tasks.append(
                asyncio.create_task(
                    run_guarded(doing, work, self._publisher.publish_message), name=doing
                )
            )

    async def stop(self) -> None:
        """Disconnect, within seconds even if something hangs.

        Programs on the boxes keep running.
        """
        # Taken away first, so that a second call of `stop` finds nothing.
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.cancel()
        self._questions.close()
        if tasks:
            # Not gather: a task that swallows its cancellation would keep the program from ending.
            _, stuck = await asyncio.wait(tasks, timeout=ENGINE_PACES.stop_s)
            for task in stuck:
                log.warning("%s does not stop and is abandoned", task.get_name())
        closers = (
            *self._list_closers(),
            self._alerting.close,
            *(one.close for one in self._observers),
        )
        # At once, so that one that hangs does not use up the time of the others.
        await asyncio.gather(*(self._close_within_limit(close) for close in closers))

    def _list_closers(self) -> tuple[Callable[[], Awaitable[None]], ...]:
        return ()

    async def _close_within_limit(self, close: Callable[[], Awaitable[None]]) -> None:
        try:
            # Seconds to write out buffered data.
            close_seconds = 10.0
            async with asyncio.timeout(close_seconds):
                await close()
        # One that fails to close must not keep the others open.
        except Exception:
            log.exception("%s did not close", getattr(close, "__qualname__", close))

    def _wake_publisher(self) -> None:
        self._publisher.publish_soon()


class Fleet(BaseFleet):
    """A running fleet; see `rgt_tui.fleet.fleet_source.FleetSource` for the methods."""

    keeps_logs = keeps_transfers = runs_checks = True

    def __init__(
        self,
        specs: Sequence[BoxSpec],
        *,
        audit: Path,
        clock: Callable[[], float] = time.time,
        env: Mapping[str, str] | None = None,
        meter_seconds: float = ENGINE_PACES.meter_s,
        remember: Remember | None = None,
        observers: Sequence[FleetObserver] = (),
        tap: Tap | None = None,
        asks: bool = False,
        policy: HostKeyPolicy = HostKeyPolicy.ASK,
        alerting: FleetAlerting | None = None,
        readonly: bool = False,
        copies: Path | None = None,
        whole: bool = False,
        following: FleetFileFollower | None = None,
        fleet_file: Path | None = None,
        budget: MemoryBudget | None = None,
    ) -> None:
        """Describe the fleet; nothing connects before `start`.

        Args:
            specs: The boxes; names are unique.
            audit: The log of billing actions; the journal of their states is in the same directory.
            clock: Epoch seconds.
            env: Variables with the providers' keys; None = the process's environment.
            meter_seconds: Pause between two readings of the meters.
            remember: Returns the boxes' states saved by an earlier rgt, to be shown at once.
            observers: Notified of every published state and every event; closed by `stop`. A
                `AccountingObserver` also emits events.
            tap: Called with every raw line of every box.
            asks: A person answers `FleetState.questions`; otherwise each is refused at once, with
                the reason.
            policy: Whether to accept unknown host keys.
            alerting: Keeps the alerts and notifies the sinks; None = default settings, in memory,
                without sinks.
            readonly: Refuse every billing action.
            copies: Where results are pulled to, a directory for each box; None = ``pulled`` in the
                working directory.
            whole: These are all boxes of the fleet file, so other billed items of their accounts
                are searched for.
            following: The fleet file, whose changes are applied; None = the boxes do not change.
            fleet_file: The fleet file passed to commands that are run; None = no command can be
                run.
            budget: Memory limits of each box; None = defaults.

        Raises:
            ProfileError: a box names a profile that does not exist.
        """
        # The profiles first: an unknown one must fail before anything is opened.
        super().__init__(
            {spec.name: load_profile(spec.profile) for spec in specs},
            clock,
            alerting if alerting is not None else FleetAlerting(clock=clock),
            observers,
            asks=asks,
        )
        self._remember = remember
        self._following = following
        self._fleet_file = fleet_file
        # One limit, one set of answers and one bundle for all boxes, also those that are added
        # later.
        self._new_session = partial(
            BoxSession,
            bundle=build_agent(),
            limit=ConnectLimit(),
            clock=clock,
            on_change=self._publisher.mark_changed,
            ask=self._questions.publish_question if asks else None,
            tap=tap,
            answers=LoginAnswers(),
            policy=policy,
            budget=budget,
        )
        self._sessions = {
            spec.name: self._new_session(spec, self._profiles[spec.name], boxes=len(specs))
            for spec in specs
        }
        """In the order of the fleet file; changed in place, because other objects share it."""
        self._specs = {spec.name: spec for spec in specs}
        self._watching: dict[str, asyncio.Task[None]] = {}
        self._busy: dict[str, int] = {}
        """Box → number of its running billing actions, reviews and pulls."""
        self._over = asyncio.Event()
        """Set when one of them has ended."""
        self._whole = whole
        self._meters = FleetMeters(
            self._sessions,
            seconds=meter_seconds,
            clock=clock,
            say=self._publisher.publish_message,
            env=env,
        )
        # Commands that rgt starts need PATH and HOME, too, not only the keys.
        self._env = {**os.environ, **(env or {})}
        self._audit_file = audit
        self._teardown = Teardown(
            self._sessions,
            self._profiles,
            self._meters,
            audit,
            clock,
            asking=EvidenceQueries(copies=partial(box_evidence.recheck_copies, env=self._env)),
            readonly=readonly,
        )
        self._open = OpenActions(
            Journal(audit.parent / JOURNAL, clock=clock),
            AuditLog(audit),
            self._sessions,
            self._meters,
            clock=clock,
            say=self._publisher.publish_message,
            parked=self._alerting.record_park,
        )
        self._self_stops = SelfStops(
            ArmedBook(audit.parent / ARMED),
            self._sessions,
            clock=clock,
            receipts=self._teardown.receipts,
        )
        self._accounts = AccountWatch(
            self._sessions if whole else {},
            self._meters.providers,
            clock=clock,
            told=self._publisher.show_accounts,
        )
        # Bills are shown with the meters they belong to.
        self._meters.polled = self._accounts.publish_bills
        self._publisher.set_boxes(self._sessions)
        self._copies = copies
        self._paces = SamplingPaces(self._sessions)
        self._collect_again: Callable[[], None] | None = None

    def shell_words(self, box: str, command: str = "") -> tuple[str, ...]:
        """Return the program and its arguments that open a terminal on a box."""
        try:
            words = terminal_words(self._sessions[box].connection, box, command, self._env)
        except Unreachable as error:
            raise NotOffered(str(error)) from error
        if shutil.which(words[0]) is None:
            raise NotOffered(
                translate("there is no {words} program on this machine: install it", words=words[0])
            )
        return words

    def evaluate_checks(self, box: str) -> tuple[CheckResult, ...]:
        """Evaluate the lifecycle checks of a box now, with a person's ticks."""
        found = super().evaluate_checks(box)
        try:
            return with_ticks(found, ticks_of(self._sessions[box].state.spec, self._env))
        except TicksError as error:
            # Only checks of a person lose something by it; the others are measured.
            told = {
                CheckStatus.PERSON: translate("unknown whether it is ticked: {error}", error=error)
            }
            return tuple(
                msgspec.structs.replace(one, evidence=told.get(one.status, one.evidence))
                for one in found
            )

    async def store_tick(self, box: str, check: str, tick: PersonTick) -> str | None:
        """Store a person's tick of a check."""
        try:
            await asyncio.to_thread(
                save_tick, self._sessions[box].state.spec, check, tick, self._env
            )
        except TicksError as error:
            return str(error)
        return None

    def runnable_command(self, box: str, check: str) -> str | None:
        """Return the command that runs a check, as one would type it."""
        words = check_arguments(check, box, self._copies)
        if words is None:
            return None
        return f"rgt {shlex.join(words)}"

    async def run_check(self, box: str, check: str, on_line: Callable[[str], None]) -> int:
        """Run a check's command in a separate process."""
        words = check_arguments(check, box, self._copies)
        if words is None:
            raise NotRunnable(translate("no command that only looks belongs to it"))
        return await self._run_rgt(words, on_line)

    async def run_command(self, words: tuple[str, ...], on_line: Callable[[str], None]) -> int:
        """Run a command that a person has typed in a separate process."""
        if words[0] not in STARTABLE:
            raise NotRunnable(
                translate(
                    "only {startable} run here: type it in a shell",
                    startable=", ".join(sorted(STARTABLE)),
                )
            )
        return await self._run_rgt(words, on_line)

    async def _run_rgt(self, words: tuple[str, ...], on_line: Callable[[str], None]) -> int:
        if self._fleet_file is None:
            raise NotRunnable(
                translate("these boxes are in no fleet file; type the command yourself")
            )
        # The command would read the same file, and its settings decide which programs run.
        if any(session.state.spec.untrusted for session in self._sessions.values()):
            raise NotRunnable(translate("the fleet file is not trusted: rgt trust"))
        return await run_check_command(words, self._fleet_file, on_line, self._env)

    def fix_trials(self, box: str) -> FixTrials:
        """Return what runs the steps of a fix on a box."""
        from rgt_tui.fleet.work.fix_trials import FixTrials

        session = self._sessions.get(box)
        if session is None:
            raise NotOffered  # it has left the fleet file
        return FixTrials(
            lambda: session.agent,
            lambda: session.state,
            AuditLog(self._audit_file),
            lambda text, level: self._publisher.publish_message(text, level, box=box),
            self.now,
        )

    def focus_box(self, box: str | None) -> None:
        """Sample the focused box fast; in a large fleet, slow down the others after a while."""
        self._paces.focus_box(box)

    def set_looking(self, looking: bool) -> None:
        """Set whether the screen is being watched; otherwise the boxes are polled less often."""
        self._paces.set_looking(looking)

    def follow_log(self, box: str, path: str) -> None:
        """Follow one more log file of a box."""
        self._sessions[box].follow_log(path)

    def keep_log(self, box: str, path: str) -> KeptLines | None:
        """Buffer all lines of a log from now on."""
        session = self._sessions.get(box)
        if session is None:
            return None
        return session.intake.keep_log(session.state, path)

    def leave_log(self, box: str, path: str) -> None:
        """Keep only the newest lines again once the last reader has called this."""
        # The screen may close a log of a box that has just left the fleet file.
        if box in self._sessions:
            self._sessions[box].intake.leave_log(path)

    def box_log(self, box: str, path: str) -> BoxLog:
        """Return a log on its box."""
        return BoxLog(lambda: self.agent_of(box), path)

    def set_box_paused(self, box: str, paused: bool) -> None:
        """Disconnect from a box until it is resumed, or reconnect."""
        self._sessions[box].set_paused(paused)

    def retry_box(self, box: str) -> None:
        """Connect now."""
        self._sessions[box].retry_now()

    def set_interval(self, box: str, seconds: float | None) -> None:
        """Set the seconds between samples of a box.

        None = by its description and by attention.
        """
        self._paces.set_interval_of(box, seconds)

    def mute_alert(self, box: str, alert: str, seconds: float | None) -> None:
        """Mute or unmute an alert."""
        if box in self._sessions:
            self._alerting.mute_alert(box, alert, seconds)

    async def review_action(
        self,
        box: str,
        verb: BillingVerb,
        *,
        patience: float | None = LIST_SECONDS,
        **given: Unpack[ActionTerms],
    ) -> ActionReview:
        """Gather what a person must see before a billing action.

        `patience` is that of `Teardown.review_action`.
        """
        # Not removed meanwhile: the review is about this connection's evidence.
        with self._keep_while_busy(box):
            return await self._teardown.review_action(box, verb, patience=patience, **given)

    def execute_action(
        self,
        box: str,
        verb: BillingVerb,
        typed: str,
        *,
        evidence_digest: str | None = None,
        ordered_at: float | None = None,
        **given: Unpack[ActionTerms],
    ) -> AsyncIterator[StopProgress]:
        """Carry out a billing action, if the gate allows it.

        `ordered_at` is that of `Teardown.execute_action`.
        """
        steps = self._teardown.execute_action(
            box, verb, typed, evidence_digest=evidence_digest, ordered_at=ordered_at, **given
        )
        return self._while_occupied(
            box, self._announced(box, verb, self._alerting.watch_action(box, verb, steps))
        )

    async def _announced(
        self, box: str, verb: BillingVerb, steps: AsyncIterator[StopProgress]
    ) -> AsyncIterator[StopProgress]:
        """Forward the steps of a billing action; publish the person's own actions as events."""
        async for step in steps:
            said = describe_own_step(verb, step)
            if said is not None:
                about = ENDED
                if step.phase in (StopPhase.REQUESTED, StopPhase.YOURS):
                    about = ""
                self._publisher.publish_message(*said, box=box, about=about)
            yield step

    async def confirm_done(self, box: str) -> StopProgress:
        """Accept the person's statement about a console action; see `Teardown.confirm_done`."""
        with self._keep_while_busy(box):
            step = await self._teardown.confirm_done(box)
        self._publisher.publish_message(
            translate("closed by you: {words}", words=step.text), box=box, about=ENDED
        )
        return step

    async def find_receipt(self, box: str) -> Receipt | None:
        """Return the newest receipt of a billing action on a box."""
        book = self._teardown.receipts
        found = await asyncio.to_thread(book.find_newest, box)
        return await add_costs(book, found, self.chronicle)

    async def _while_occupied(
        self, box: str, steps: AsyncIterator[StopProgress]
    ) -> AsyncIterator[StopProgress]:
        with self._keep_while_busy(box):
            async for step in steps:
                yield step

    @contextlib.contextmanager
    def _keep_while_busy(self, box: str) -> Iterator[None]:
        """Keep a box removed from the fleet file until its running work has ended."""
        self._busy[box] = self._busy.get(box, 0) + 1
        try:
            yield
        finally:
            self._busy[box] -= 1
            self._over.set()

    def agent_of(self, box: str) -> tuple[BoxTransport, DeployedAgent]:
        """The open connection to a box and its agent, for requests outside the stream.

        Raises:
            Unreachable: there is no connection now, or the box has left the fleet file.
            NoCommands: only a plain shell answers there.
        """
        if box not in self._sessions:
            raise Unreachable(translate("{box} has left the fleet file", box=box))
        return self._sessions[box].agent

    async def surviving_mounts(self, box: str, verb: BillingVerb) -> tuple[str, ...]:
        """Return the mounts of a box that certainly survive a billing action.

        Raises:
            GateClosed: the box has no control plane that rgt could query.
        """
        return await self._teardown.surviving_mounts(box, verb)

    async def pull_directories(
        self,
        box: str,
        paths: tuple[str, ...],
        on_progress: Callable[[PullProgress], None],
        on_plan: Callable[[str], None],
        agree: Callable[[TransferCost], Awaitable[bool]],
    ) -> PullResult:
        """Copy directories from a box over separate connections, and verify the copy."""
        from rgt_tui.fleet.pulls.pulling import PULLED, pull_and_verify

        destination = (self._copies or Path(PULLED)) / box
        state = self._sessions[box].state
        with self._keep_while_busy(box):
            try:
                return await pull_and_verify(
                    state.spec,
                    paths,
                    destination,
                    on_progress,
                    on_plan,
                    agree,
                    state.meter,
                    self._teardown.listed_with(box, paths),
                    self._env,
                )
            finally:
                # Also after a failure: a part may have been copied.
                self._teardown.invalidate_results(box)

    @property
    def audit_file(self) -> Path:
        """The log of billing actions."""
        return self._audit_file

    async def transfers(self) -> tuple[TransferNote, ...]:
        """Return current and past transfers of every rgt of this person, the newest first."""
        from rgt_tui.fleet.transfer_diary import read_notes

        return await asyncio.to_thread(read_notes, self._env)

    async def wait_for_open_actions(self) -> None:
        """Wait until actions left open by an earlier rgt were checked once with their provider."""
        await self._open.asked.wait()

    async def self_stops_seen(self) -> None:
        """Check the self-stops of armed boxes now, including the boxes' own reports."""
        await self._self_stops.check_boxes()

    async def wait_for_accounts(self) -> None:
        """Wait until every account was queried once for billed items that belong to no box."""
        await self._accounts.asked.wait()

    @property
    def fleet_file(self) -> Path | None:
        """The file that describes the boxes, or None."""
        return self._fleet_file

    async def start(self) -> None:
        """Show the states saved by an earlier rgt, and begin to connect."""
        # Before the sinks: an alert of an earlier rgt must be known, or it is sent once more.
        await self._load_states()
        await self._alerting.start_delivery(
            [session.state.spec for session in self._sessions.values()], self._wake_publisher
        )
        self._collect_again = reduce_collection(len(self._sessions))
        self._watch_boxes(*self._sessions)
        works: dict[str, Callable[[], Awaitable[None]]] = {
            "looking after what is open": self._open.run,
            "reading the meters": self._meters.run,
            "looking for bills outside the fleet": self._accounts.run,
            "looking after boxes that stop themselves": self._self_stops.run,
            "publishing": self._publisher.run,
            "telling boxes how often to sample": self._paces.run,
            "looking at the clock": self._watch_clocks,
        }
        if self._following is not None:
            works["following the fleet file"] = partial(self._follow_file, self._following)
        self._start_tasks(works)

    def _watch_boxes(self, *names: str) -> None:
        works = {f"watching {name}": self._sessions[name].run for name in names}
        before = len(self._tasks)
        self._start_tasks(works)
        # `_start_tasks` appends one task for each, in this order.
        self._watching.update(zip(names, self._tasks[before:], strict=True))

    async def _follow_file(self, file: FleetFileFollower) -> None:
        while True:
            specs = await file.wait_for_change(self._publisher.publish_message)
            try:
                await self.set_boxes(specs)
            except ProfileError as error:
                self._publisher.publish_message(
                    translate("{error}; the boxes stay as they were", error=error), "error"
                )

    async def set_boxes(self, specs: Sequence[BoxSpec]) -> None:
        """Watch these boxes from now on. A box with the same description is not disturbed.

        A box that was removed or described differently ends; first, its running billing action,
        review or pull is awaited.

        Raises:
            ProfileError: a box names a profile that does not exist; nothing has changed.
        """
        wanted = {spec.name: spec for spec in specs}
        self._profiles = {
            **self._profiles,
            **{name: load_profile(spec.profile) for name, spec in wanted.items()},
        }
        leaving = [name for name, spec in self._specs.items() if wanted.get(name) != spec]
        fresh = [name for name in wanted if name not in self._specs]
        again = [name for name in leaving if name in wanted]
        parts = (
            ("new", fresh),
            (translate("described in another way"), again),
            ("gone", set(leaving) - set(again)),
        )
        told = "; ".join(f"{what}: {', '.join(sorted(names))}" for what, names in parts if names)
        if not told:
            return
        self._publisher.publish_message(translate("the fleet file has changed: {told}", told=told))
        # New boxes at once; those that leave may have to finish an action first.
        await self._begin_boxes(wanted, fresh)
        # A box in the middle of a billing action or a pull stays: its outcome must be seen.
        while any(self._busy.get(name) for name in leaving):
            self._over.clear()
            await self._over.wait()
        tasks = [self._watching.pop(name) for name in leaving]
        for task in tasks:
            task.cancel()
            self._tasks.remove(task)
        if tasks:
            await asyncio.wait(tasks, timeout=ENGINE_PACES.stop_s)
        for name in leaving:
            # Only now: until their tasks have ended, they still publish.
            del self._sessions[name], self._specs[name]
        await self._begin_boxes(wanted, again)

    async def _begin_boxes(self, wanted: Mapping[str, BoxSpec], names: Sequence[str]) -> None:
        """Add boxes, sort all in the order of the fleet file, and begin to connect to new ones."""
        made = {
            name: self._new_session(wanted[name], self._profiles[name], boxes=len(wanted))
            for name in names
        }
        self._specs.update((name, wanted[name]) for name in names)
        for name, state in (
            await self._recall_states([*self._specs.values()]) if made else {}
        ).items():
            if name in made:
                made[name].restore_state(state)
        both = {**self._sessions, **made}
        # The file's order, then boxes that left the file and are still busy.
        order = [
            *(name for name in wanted if name in both),
            *(name for name in both if name not in wanted),
        ]
        # In place and without an await in between: other objects share the dict.
        self._sessions.clear()
        self._sessions.update((name, both[name]) for name in order)
        self._alerting.set_boxes([session.state.spec for session in self._sessions.values()])
        self._meters.watch_boxes(self._sessions)
        self._accounts.watch_boxes(self._sessions if self._whole else {})
        self._publisher.replace_boxes(self._sessions)
        self._paces.boxes_changed()
        self._watch_boxes(*names)

    async def stop(self) -> None:
        """Disconnect, within seconds even if something hangs.

        Programs on the boxes keep running.
        """
        await super().stop()
        if self._collect_again is not None:
            self._collect_again()
            self._collect_again = None

    def _list_closers(self) -> tuple[Callable[[], Awaitable[None]], ...]:
        return (self._meters.close,)

    async def _load_states(self) -> None:
        """Load the saved states."""
        for name, state in (await self._recall_states([*self._specs.values()])).items():
            self._sessions[name].restore_state(state)
        self._publisher.reset_published()
        self.publish_now()

    async def _recall_states(self, specs: Sequence[BoxSpec]) -> Mapping[str, BoxState]:
        """Return the saved states. A disk that hangs or returns invalid data delays nothing."""
        if self._remember is not None:
            # Saved states are a convenience: a damaged store must not delay or prevent the start.
            with contextlib.suppress(Exception):
                # Longest wait for the saved states.
                recall_seconds = 3.0
                async with asyncio.timeout(recall_seconds):
                    return await self._remember(specs)
        return {}

    async def _watch_clocks(self) -> None:
        """Detect sleep of the computer and changes of its clock, and correct the affected times."""
        before = connector.read_clocks(self._clock())
        while True:
            await asyncio.sleep(ENGINE_PACES.clock_s)
            after = connector.read_clocks(self._clock())
            jump = connector.clock_jump(before, after)
            before = after
            if jump is not None:
                self._publisher.publish_message(jump.event_text, "warn")
                self._alerting.clock_set(jump.moved)
                for session in self._sessions.values():
                    session.recover_from_sleep(jump.moved)
