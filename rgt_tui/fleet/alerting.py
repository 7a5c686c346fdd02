"""The fleet's alerts: judged, remembered across restarts of rgt, muted, and sent to the sinks."""

from __future__ import annotations

import asyncio
import contextlib
import copy
import functools
import os
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from rgt_tui.files import LOCK_S
from rgt_tui.fleet.changes import MUTED
from rgt_tui.fleet.event_loop import run_guarded
from rgt_tui.health import (
    GATHER_S,
    AlertMute,
    AlertSink,
    AlertState,
    BoxAlertNotes,
    BoxFacts,
    RememberedBox,
    SentAlert,
    SinkDelivery,
    StoredAlerts,
    ThreadRunner,
    active_alerts,
    alert_began,
    alert_ended,
    alert_message,
    alert_rows,
    alerts_stamp,
    alerts_to_show,
    build_sink,
    clock_set,
    first_contact_notices,
    includes_findings,
    is_alert_muted,
    key_of,
    mark_muted,
    mute_changes,
    mute_covers,
    mute_event,
    mute_is_over,
    park_confirmed,
    put_mute,
    record_stop_request,
    restore_alert_state,
    sort_alerts,
    step_alerts,
    update_alerts,
)
from rgt_tui.language import translate
from rgt_tui.model import (
    Alert,
    AlertEvent,
    AlertSettings,
    BillingVerb,
    BoxSpec,
    BoxState,
    FleetEvent,
    FrozenStruct,
    LinkState,
    ReducedHistory,
    RowSparklines,
    StopPhase,
    StopProgress,
    clean_text,
)
from rgt_tui.profiles import load_profile


class AlertingPaces(FrozenStruct):
    """How often boxes are judged, and how long the alerts' file may take, in seconds."""

    save_s: float = 2.0
    """Seconds until a change is written to disk."""
    reread_s: float = 5.0
    """Seconds between two checks whether another rgt changed the file."""
    disk_s: float = LOCK_S + 5.0
    """A disk that does not answer this long hangs: alerts continue in memory only."""
    judge_s: float = 5.0
    """Seconds between two judgements of an unchanged box: ages grow without new data."""
    soonest_s: float = 1.0
    """Seconds between two judgements of a changing box, unless a change is urgent."""
    open_s: float = 5.0
    """Seconds to wait for a disk at the start and the end."""


ALERTING_PACES = AlertingPaces()


replace = msgspec.structs.replace

Change = Callable[[StoredAlerts], StoredAlerts]


def _for_journal(event: FleetEvent) -> FleetEvent:
    """Mark an event as muted, so that only the journal gets it."""
    return replace(event, text=translate(MUTED, event=event.text), muted=True)


class AlertFile:
    """The state file of the alerts. If the disk fails, only the next rgt's memory is lost.

    Args:
        path: The file; None = in memory only.
        clock: Epoch seconds.
        trouble: Called with the reason when it cannot be read or written, and with None when it
            works again.
        remuted: Called when another rgt has muted or unmuted something.
    """

    def __init__(
        self,
        path: Path | None,
        clock: Callable[[], float],
        trouble: Callable[[str | None], None],
        remuted: Callable[[], None] = lambda: None,
    ) -> None:
        self.stored = StoredAlerts()
        self._path = path
        self._clock = clock
        self._trouble = trouble
        self._remuted = remuted
        self._disk = ThreadRunner()
        self._stamp = (0, 0)
        self._changes: list[Change] = []
        self._poke = asyncio.Event()
        self._lock = asyncio.Lock()

    async def load_file(self) -> None:
        """Read the file."""
        await self._sync_file()

    def store_box_alerts(self, box: str, notes: BoxAlertNotes) -> None:
        """Store the alerts of a box."""
        # Changes are functions, not values: they apply to what another rgt has written meanwhile.
        self._apply_change(lambda stored: replace(stored, boxes={**stored.boxes, box: notes}))

    def mark_platform_seen(self, platform: str, now: float) -> None:
        """Store that the dangers of a platform were reported."""
        # An earlier time wins: two rgt may meet the platform at once.
        self._apply_change(lambda stored: replace(stored, met={platform: now, **stored.met}))

    def store_mute(self, box: str, what: str, seconds: float | None) -> None:
        """Store a mute; see `rgt_tui.health.mutes.put_mute`."""
        now = self._clock()
        self._apply_change(
            lambda stored: replace(stored, mutes=put_mute(stored.mutes, box, what, seconds, now))
        )

    def remove_mutes(self, ended: tuple[AlertMute, ...]) -> None:
        """Remove mutes that have ended, unless they were renewed meanwhile."""
        gone = set(ended)
        self._apply_change(
            lambda stored: replace(stored, mutes=tuple(m for m in stored.mutes if m not in gone))
        )

    async def read_sent_alerts(self, sink: str) -> Mapping[str, SentAlert]:
        """Return the messages sent to a sink, by this rgt or another one."""
        await self._sync_file()
        return self.stored.told.get(sink, {})

    def is_muted(self, key: str) -> bool:
        """Return whether ``BOX ALERT`` is muted, according to the last read of the file."""
        box, _, id_ = key.partition(" ")
        return is_alert_muted(self.stored.mutes, box, id_, self._clock())

    async def store_sent_alerts(self, sink: str, news: Mapping[str, SentAlert | None]) -> None:
        """Store messages sent to a sink; None removes one.

        It is on disk when this returns, so that no message is sent twice.
        """
        self._apply_change(functools.partial(_with_sent_alerts, sink=sink, news=dict(news)))
        await self._sync_file()

    async def run(self) -> None:
        """Write own changes, and read those of another rgt, until cancelled."""
        while True:
            # A change ends the pause early; otherwise the file is checked for those of another rgt.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(ALERTING_PACES.reread_s):
                    await self._poke.wait()
            if self._poke.is_set():
                # Changes come in groups; one write is enough for them.
                await asyncio.sleep(ALERTING_PACES.save_s)
                self._poke.clear()
                await self._sync_file()
            elif self._changes or await self._is_another():
                await self._sync_file()

    async def _is_another(self) -> bool:
        """Return whether another rgt has changed the file since the last read.

        Also true on a read error: the following read reports it.
        """
        path = self._path
        if path is None:
            return False
        try:
            return (
                await self._disk.run_in_thread(lambda: alerts_stamp(path), ALERTING_PACES.disk_s)
                != self._stamp
            )
        except OSError:
            # A file that cannot be read is written again, or its trouble is reported.
            return True

    async def close(self) -> None:
        """Write the remaining changes."""
        if self._changes:
            await self._sync_file()

    def _apply_change(self, change: Change) -> None:
        # At once in memory; the disk follows, even if it hangs for now.
        self.stored = change(self.stored)
        if self._path is not None:
            self._changes.append(change)
            self._poke.set()

    async def _sync_file(self) -> None:
        """Apply our changes to the present content of the file, and use the result."""
        path = self._path
        if path is None:
            return
        async with self._lock:
            changes, self._changes = self._changes, []
            change, now = _chain_changes(changes), self._clock()

            def read_and_update() -> tuple[tuple[int, int], StoredAlerts]:
                return alerts_stamp(path), update_alerts(path, change, now)

            try:
                seen, made = await self._disk.run_in_thread(read_and_update, ALERTING_PACES.disk_s)
            except BaseException as error:
                # Also when cancelled: applying a change twice is harmless.
                self._changes = changes + self._changes
                if not isinstance(error, Exception):
                    raise
                self._trouble(
                    translate(
                        "{path} cannot be saved: {error}", path=path, error=_describe_error(error)
                    )
                )
                return
            mutes, self._stamp = self.stored.mutes, seen
            # Changes made during the write are not in the file yet.
            self.stored = _chain_changes(self._changes)(made)
            self._trouble(None)
            if self.stored.mutes != mutes:
                self._remuted()


def _describe_error(error: Exception) -> str:
    if isinstance(error, OSError):
        return (
            error.strerror
            or str(error)
            or translate("the disk has not answered for {limit:g} s", limit=ALERTING_PACES.disk_s)
        )
    return translate(
        "{name}: {error}; this is a fault of rgt", name=type(error).__name__, error=error
    )


def _chain_changes(changes: list[Change]) -> Change:
    kept = tuple(changes)
    return lambda stored: functools.reduce(lambda now, change: change(now), kept, stored)


def _with_sent_alerts(
    stored: StoredAlerts, *, sink: str, news: Mapping[str, SentAlert | None]
) -> StoredAlerts:
    known = {**stored.told.get(sink, {}), **news}
    # Removed, not stored as None, so that the file does not grow with every alert.
    told = {key: what for key, what in known.items() if what is not None}
    return replace(stored, told={**stored.told, sink: told})


BALANCE = "balance"
"""The only kind of alert about an account instead of a box."""
_TOLD = frozenset((BALANCE,))
_NOTHING: frozenset[str] = frozenset()

Account = tuple[str, str | None, str | None]


class AccountAlerts:
    """Tracks which boxes have an alert about their account.

    Args:
        specs: The boxes, in the order of the fleet.
    """

    def __init__(self, specs: Sequence[BoxSpec] = ()) -> None:
        self._places: dict[str, tuple[Account, int]] = {
            spec.name: ((spec.provider.kind, spec.provider.base_url, spec.provider.key_env), place)
            for place, spec in enumerate(specs)
            if spec.provider is not None
        }
        self._told: set[tuple[Account, int]] = set()

    def record_alert(self, box: str, book: AlertState) -> None:
        """Record whether a box has the alert now."""
        place = self._places.get(box)
        if place is None:
            return
        # By the machine, not by the shown alert, which may be muted or hidden for this box.
        machine = book.machines.get(BALANCE, {}).get("")
        if machine is not None and machine.alert is not None:
            self._told.add(place)
        else:
            self._told.discard(place)

    def reported_elsewhere(self, box: str) -> frozenset[str]:
        """Return the ids of alerts already shown by an earlier box of the same account."""
        mine = self._places.get(box)
        if mine is None or not self._told:
            return _NOTHING
        account, own = mine
        # The first box of the fleet reports it, so ten boxes of one account raise one alert.
        if any(one == account and place < own for one, place in self._told):
            return _TOLD
        return _NOTHING


replace = msgspec.structs.replace
_NEW = AlertState()


class FleetAlerting:
    """Keeps the alerts of a fleet.

    Args:
        settings: Alert settings of the fleet file.
        path: File for mutes and sent messages; None = in memory only.
        env: Variables with the sinks' secrets; None = the process's environment.
        clock: Epoch seconds.
        sinks: Replace those described in `settings`, in the same order.
        gather_s: Shortest and longest time that a sink waits for more messages.
        greets: A person reads the events: report the dangers of a platform when it is first seen.
    """

    def __init__(
        self,
        settings: AlertSettings | None = None,
        *,
        path: Path | None = None,
        env: Mapping[str, str] | None = None,
        clock: Callable[[], float] = time.time,
        sinks: Sequence[AlertSink] | None = None,
        gather_s: tuple[float, float] = GATHER_S,
        greets: bool = False,
    ) -> None:
        settings = settings or AlertSettings()
        self.alerts: tuple[Alert, ...] = ()
        """Alerts that belong to no single box."""
        self._kinds = alert_rows(settings)
        self._greets = greets
        self._clock = clock
        self._wake: Callable[[], None] = lambda: None
        self._books: dict[str, AlertState] = {}
        self._seen: dict[str, tuple[BoxState, float]] = {}
        """Box → its state at the last judgement, including alerts, and the time."""
        self._behind: set[str] = set()
        """Boxes that have changed since."""
        self._keys: dict[str, str] = {}
        """Box → its key in the file, because two fleets may have boxes of the same name."""
        self._accounts = AccountAlerts()
        self._active: dict[str, dict[str, AlertEvent]] = {}
        self._beneath: dict[str, dict[str, AlertEvent]] = {}
        """The same for sinks without findings: with the alerts that a finding covers."""
        self._held: dict[str, frozenset[str]] = {}
        """Box → keys of all its alerts, including those that no sink receives."""
        self._left: dict[str, frozenset[str]] = {}
        """Box → ids of alerts that were active but not shown when an earlier rgt ended, until the
        box is seen again."""
        self._met: set[AlertMute] = set()
        """Mutes whose alert has been active."""
        self._muted: tuple[AlertMute, ...] = ()
        """The mutes at the last report of changes."""
        self._opened_at = 0.0
        self._news: list[FleetEvent] = []
        self._checked = 0.0
        self._tasks: list[asyncio.Task[None]] = []
        self._file = AlertFile(
            path,
            clock,
            partial(self._set_own_alert, "alerts-file", "the state file of the alerts"),
            self._apply_foreign_mutes,
        )
        environment = os.environ if env is None else env
        made = [build_sink(one, environment) for one in settings.sinks] if sinks is None else sinks
        self._deliveries = [
            SinkDelivery(
                sink,
                one,
                read=partial(self._file.read_sent_alerts, one.name),
                note=partial(self._file.store_sent_alerts, one.name),
                trouble=partial(self._set_own_alert, f"sink:{one.name}", f"sink {one.name}"),
                is_muted=self._file.is_muted,
                clock=clock,
                gather_s=gather_s,
            )
            for one, sink in zip(settings.sinks, made, strict=True)
        ]

    async def start_delivery(
        self, specs: Sequence[BoxSpec], wake: Callable[[], None] = lambda: None
    ) -> None:
        """Load the state left by an earlier rgt, and begin to deliver.

        Args:
            specs: The boxes of the fleet.
            wake: Called to publish soon, although no box changed.
        """
        self._wake = wake
        self._opened_at = self._clock()
        self._keys = {spec.name: key_of(spec) for spec in specs}
        self._accounts = AccountAlerts(specs)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(ALERTING_PACES.open_s):
                await self._file.load_file()
        self._restore_alerts(self._keys)
        work = [(f"notifying the sink {one.settings.name}", one.run) for one in self._deliveries]
        work.append(("keeping the state file of the alerts", self._file.run))
        self._tasks = [
            asyncio.create_task(run_guarded(doing, run, self._add_event), name=doing)
            for doing, run in work
        ]

    def set_boxes(self, specs: Sequence[BoxSpec]) -> None:
        """Keep the alerts of these boxes from now on.

        The alerts of a box that leaves stay on disk for the next rgt.
        """
        before, self._keys = self._keys, {spec.name: key_of(spec) for spec in specs}
        self._accounts = AccountAlerts(specs)
        gone = [name for name, key in before.items() if self._keys.get(name) != key]
        books: tuple[dict[str, Any], ...] = (
            self._books,
            self._seen,
            self._active,
            self._beneath,
            self._held,
        )
        # A box that is described in another way is a new one: its key has changed.
        for book in (*books, self._left):
            for name in gone:
                book.pop(name, None)
        self._behind.difference_update(gone)
        for name, known in self._books.items():
            self._accounts.record_alert(name, known)
        self._restore_alerts([name for name, key in self._keys.items() if before.get(name) != key])

    def _restore_alerts(self, names: Iterable[str]) -> None:
        """Load the alerts left by an earlier rgt for some boxes."""
        known = {kind.id for kind in self._kinds}
        for name in names:
            key = self._keys[name]
            notes = self._file.stored.boxes.get(key)
            if notes is not None:
                # The settings may have switched kinds off since.
                kept = [alert.in_language() for alert in notes.alerts if alert.kind in known]
                self._books[name] = restore_alert_state(
                    kept, RememberedBox(past=notes.past), self._clock(), notes.covered
                )
                self._accounts.record_alert(name, self._books[name])
                self._left[name] = frozenset(notes.covered)
                self._pass_to_sinks(
                    name, mark_muted(self._file.stored.mutes, key, sort_alerts(kept), self._clock())
                )

    async def close(self) -> None:
        """Save the state. The next rgt sends messages that are still pending."""
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(ALERTING_PACES.open_s):
                await self._file.close()

    def has_pending_boxes(self, now: float) -> bool:
        """Return whether a box must be judged although it sent nothing."""
        # A negative age counts, too: a clock that was set back must not stop the judging.
        return bool(self._behind) or any(
            not 0.0 <= now - at < ALERTING_PACES.judge_s for _, at in self._seen.values()
        )

    def boxes_to_judge(self, now: float) -> frozenset[str]:
        """Return the boxes that must be judged now: skipped before, or unchanged for a while.

        Checks at most once a second; otherwise returns an empty set.
        """
        if 0.0 <= now - self._checked < ALERTING_PACES.soonest_s:
            return frozenset()
        self._checked = now
        old = {
            name
            for name, (_, at) in self._seen.items()
            if not 0.0 <= now - at < ALERTING_PACES.judge_s
        }
        return frozenset(old | self._behind)

    def judge_box(
        self, box: BoxState, now: float, like: BoxFacts | None = None
    ) -> tuple[BoxState, list[FleetEvent]]:
        """Return `box` with its alerts, and the events of alerts that began or ended.

        A box is judged at most once a second, unless the link, a queue, the meter or a finding
        changed.

        Args:
            box: Its state, including findings.
            now: Client clock.
            like: The result of `facts_of`, if already known.
        """
        name = box.spec.name
        last = self._seen.get(name)
        if (
            last is not None
            and 0.0 <= now - last[1] < ALERTING_PACES.soonest_s
            and _has_no_urgent_change(last[0], box)
        ):
            # Judged later, so that no state is left out for good.
            self._behind.add(name)
            return box, []
        self._behind.discard(name)
        before = self._books.get(name, _NEW)
        # Before the step, which leaves these out of what it reports as new.
        elsewhere = self._accounts.reported_elsewhere(name)
        book, raised, cleared = step_alerts(before, box, now, self._kinds, elsewhere, like)
        self._books[name] = book
        self._accounts.record_alert(name, book)
        shown = self._mark_muted(box, alerts_to_show(book, box.findings, elsewhere), now)
        fresh = last is None or not box.alerts_kept
        changed = fresh or shown != box.alerts or box.life != book.memory.past
        quiet = {alert.id for alert in (*shown, *box.alerts) if alert.muted}
        # Only a box that is seen again can end the alerts of an earlier rgt.
        if box.link is LinkState.LIVE and box.sample is not None:
            self._left.pop(name, None)
        held = book.machines is not before.machines and _alert_ids(book) != _alert_ids(before)
        if raised or cleared or fresh or held or _sink_facts(shown) != _sink_facts(box.alerts):
            self._pass_to_sinks(name, shown)
            self._save_alerts(name, shown, now)
        # Only saved: sinks get alerts, not the life of the machine.
        elif book.memory.past != before.memory.past:
            self._save_alerts(name, shown, now)
        if changed:
            box = replace(box, alerts=shown, alerts_kept=True, life=book.memory.past)
        # Without the parts that are not compared: they would be kept in memory twice.
        self._seen[name] = (_strip_uncompared(box), now)
        told = [(alert.id, alert_began(name, alert, now)) for alert in raised]
        told += [(alert.id, alert_ended(name, alert, now)) for alert in cleared]
        events = [
            _for_journal(event) if id_ in quiet else event
            for id_, event in told
            if event is not None
        ]
        return box, [*events, *self._platform_notices(box, now)]

    def make_copy(self, clock: Callable[[], float]) -> FleetAlerting:
        """Return a copy that judges independently, by another clock; the state file is shared."""
        # A replay judges earlier moments, and must not move the alerts of now.
        made = copy.copy(self)
        made._clock = clock
        # One level deep: the values are immutable.
        for name, value in vars(self).items():
            if isinstance(value, dict | set):
                setattr(made, name, value.copy())
        return made

    def clock_set(self, seconds: float) -> None:
        """Adjust to a change of the client's clock, so that the ages of alerts stay the same.

        Args:
            seconds: How far the clock was set, positive = forward.
        """
        if seconds:
            self._books = {name: clock_set(book, seconds) for name, book in self._books.items()}
            self._judge_again()

    def _platform_notices(self, box: BoxState, now: float) -> list[FleetEvent]:
        """Return a platform's dangers as events, once, when its first box is live."""
        platform = box.spec.profile
        if not self._greets or box.link is not LinkState.LIVE or platform in self._file.stored.met:
            return []
        # Before the events: a second box of the platform must not repeat them.
        self._file.mark_platform_seen(platform, now)
        profile = load_profile(platform)
        told = [
            clean_text(translate("{name}: {notice}", name=profile.name, notice=text))
            for text in first_contact_notices(profile)
        ]
        return [
            FleetEvent(at=now, box=box.spec.name, text=text, about=f"platform:{platform}")
            for text in told
        ]

    def take_events(self) -> list[FleetEvent]:
        """Return events about sinks and mutes, each once."""
        news, self._news = self._news, []
        return news

    def mute_alert(self, box: str, what: str, seconds: float | None) -> None:
        """Mute an alert id or a kind of alert on a box; 0 = unmute, None = until it is over."""
        self._file.store_mute(self._box_key(box), what, seconds)
        self._report_mutes()
        self._judge_again(box)

    def _apply_foreign_mutes(self) -> None:
        """Apply mutes changed by another rgt."""
        self._report_mutes()
        self._judge_again()

    def _report_mutes(self) -> None:
        """Report changes of the mutes since the last report.

        Mutes by an earlier rgt are not reported.
        """
        before, self._muted = self._muted, self._file.stored.mutes
        if before == self._muted:
            return
        names = {key: name for name, key in self._keys.items()}
        for key, at, what, text in mute_changes(
            before, self._muted, self._opened_at, self._clock()
        ):
            if key in names:
                self._news.append(mute_event(names[key], at, what, text))

    def _judge_again(self, *boxes: str) -> None:
        """Judge these boxes again at once, or all if none is given, because mutes have changed."""
        for box in boxes or tuple(self._seen):
            if box in self._seen:
                # Time 0: as if it had not been judged for long.
                self._seen[box] = (self._seen[box][0], 0.0)
                self._behind.add(box)
        self._checked = 0.0
        self._wake()

    def record_stop_request(self, box: str, verb: BillingVerb) -> None:
        """Record that a stop was requested here.

        Then the provider's *stopped* raises no alert.
        """
        book = self._books.get(box, _NEW)
        past = record_stop_request(book.memory.past, verb.value)
        self._books[box] = replace(book, memory=replace(book.memory, past=past))
        self._save_alerts(
            box, self._seen[box][0].alerts if box in self._seen else (), self._clock()
        )

    def record_park(self, box: str, at: float) -> None:
        """Record a confirmed park through rgt: the platform's danger clocks count from now on."""
        book = self._books.get(box, _NEW)
        past = park_confirmed(book.memory.past, at)
        if past is book.memory.past:
            return
        self._books[box] = replace(book, memory=replace(book.memory, past=past))
        self._save_alerts(
            box, self._seen[box][0].alerts if box in self._seen else (), self._clock()
        )

    async def watch_action(
        self, box: str, verb: BillingVerb, steps: AsyncIterator[StopProgress]
    ) -> AsyncIterator[StopProgress]:
        """Forward the steps of a billing action; record when it was sent and a park confirmed."""
        confirmed = False
        async for progress in steps:
            if progress.phase is StopPhase.REQUESTED:
                self.record_stop_request(box, verb)
            if (
                progress.phase in (StopPhase.CONFIRMED, StopPhase.METER_OFF)
                and verb is BillingVerb.PARK
                and not confirmed
            ):
                confirmed = True
                self.record_park(box, progress.at)
            yield progress

    def _box_key(self, name: str) -> str:
        return self._keys.get(name, name)

    def _save_alerts(self, name: str, shown: tuple[Alert, ...], now: float) -> None:
        """Save the alerts of a box for the next rgt."""
        book = self._books[name]
        seen = {alert.id for alert in shown} - book.hushed
        covered = sorted(alert.id for alert in active_alerts(book) if alert.id not in seen)
        self._file.store_box_alerts(
            self._box_key(name),
            BoxAlertNotes(
                tuple(alert.as_stored() for alert in shown), book.memory.past, now, tuple(covered)
            ),
        )

    def _mark_muted(
        self, box: BoxState, alerts: tuple[Alert, ...], now: float
    ) -> tuple[Alert, ...]:
        """Mark muted alerts; remove mutes that have ended."""
        mutes = self._file.stored.mutes
        if not mutes:
            return alerts
        key, live = self._box_key(box.spec.name), box.link is LinkState.LIVE
        own = [mute for mute in mutes if mute.box == key]
        held = active_alerts(self._books[box.spec.name])
        self._met.update(mute for mute in own if any(mute_covers(mute, alert) for alert in held))
        ended = tuple(
            mute for mute in own if mute_is_over(mute, held, now, met=mute in self._met, live=live)
        )
        if ended:
            self._met.difference_update(ended)
            self._file.remove_mutes(ended)
            self._report_mutes()
        marked = mark_muted(self._file.stored.mutes, key, alerts, now)
        if marked is not alerts:
            return sort_alerts(marked)
        return alerts

    def _pass_to_sinks(self, name: str, alerts: Sequence[Alert]) -> None:
        """Pass a box's alerts to the sinks.

        A muted or hidden alert is not sent, but does not count as ended either.
        """
        if not self._deliveries:
            return
        key = self._box_key(name)
        book = self._books[name]
        now = self._clock()
        telling = [alert for alert in alerts if not alert.muted and alert.id not in book.hushed]
        self._active[name] = {f"{key} {a.id}": alert_message(name, a, now) for a in telling}
        whole = mark_muted(
            self._file.stored.mutes,
            key,
            alerts_to_show(book, (), self._accounts.reported_elsewhere(name)),
            now,
        )
        self._beneath[name] = {
            f"{key} {a.id}": alert_message(name, a, now) for a in whole if not a.muted
        }
        # Held: neither new nor over, so that a sink does not report the end of a muted alert.
        ids = {alert.id for alert in active_alerts(book)} | self._left.get(name, _NOTHING)
        self._held[name] = frozenset(f"{key} {id_}" for id_ in ids)
        # A sink's memory has alerts of other fleets, too: only keys with these beginnings are ours
        # to end.
        ours = tuple(f"{self._box_key(box)} " for box in self._active)
        held = frozenset().union(*self._held.values())
        for one in self._deliveries:
            if includes_findings(one.settings):
                active = self._active
            else:
                active = self._beneath
            one.set_active(
                {key: event for told in active.values() for key, event in told.items()}, ours, held
            )

    def _add_event(self, text: str, level: str) -> None:
        self._news.append(FleetEvent(at=self._clock(), box="", text=text, level=level))
        self._wake()

    def _set_own_alert(self, id_: str, who: str, reason: str | None) -> None:
        """Keep an alert about a sink or the state file itself; it is only shown on screen."""
        old = next((alert for alert in self.alerts if alert.id == id_), None)
        rest = tuple(alert for alert in self.alerts if alert.id != id_)
        now = self._clock()
        if reason is None:
            if old is None:
                return
            self.alerts = rest
            self._news.append(
                FleetEvent(at=now, box="", text=translate("{who} works again", who=who))
            )
        else:
            text = translate("{name}: {notice}", name=who, notice=reason)
            if old is None:
                self._news.append(FleetEvent(at=now, box="", text=text, level="warn"))
            elif old.text == text:
                return
            since = now if old is None else old.since
            self.alerts = (*rest, Alert(id_, "warn", text, word="sink", since=since))
        self._wake()


def _sink_facts(alerts: tuple[Alert, ...]) -> set[tuple[str, str, bool]]:
    """Return the parts of alerts that a sink receives, so that a new reading alone is no change."""
    return {(alert.id, alert.level, alert.muted) for alert in alerts}


def _alert_ids(book: AlertState) -> set[str]:
    return {alert.id for alert in active_alerts(book)}


def _strip_uncompared(box: BoxState) -> BoxState:
    """Drop parts that `_has_no_urgent_change` does not compare, to save memory with hundreds of boxes."""
    return replace(
        box,
        sample=None,
        rings=RowSparklines(),
        past=ReducedHistory(),
        recent=ReducedHistory(),
        runs=(),
        found=(),
        checkpoints=(),
        logs=(),
    )


def _has_no_urgent_change(old: BoxState, new: BoxState) -> bool:
    """Return whether no urgent part of the state has changed."""
    return (
        old.link is new.link
        and old.queues is new.queues
        and old.meter is new.meter
        and old.account is new.account
        and old.open_action == new.open_action
        and old.self_stop is new.self_stop
        and old.events is new.events
        and old.findings == new.findings
        and old.alerts == new.alerts
        and new.alerts_kept
    )
