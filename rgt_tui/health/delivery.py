"""Delivers alerts to one sink.

Never twice if avoidable, retried until it works, without blocking others.
"""

from __future__ import annotations

import asyncio
import contextlib
import difflib
import math
import random
import re
import time
from collections.abc import Awaitable, Callable, Container, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import msgspec

from rgt_tui.health.alert_sinks import AlertSink, SinkError
from rgt_tui.health.condition import AlertRung, Condition
from rgt_tui.health.conditions import ALERTS, BY_ID, ended_text
from rgt_tui.health.mutes import SentAlert
from rgt_tui.language import translate
from rgt_tui.model import AlertEvent, AlertSettings, KindSettings, SinkSettings, how_many

_TIMES = re.compile(r"([01]?\d|2[0-3]):([0-5]\d)\s*-\s*([01]?\d|2[0-3]):([0-5]\d)")
DAY = 24 * 60
T = TypeVar("T")
Where = tuple[str | int, ...]

SINKS: dict[str, tuple[str, ...]] = {
    "bell": (),
    "desktop": (),
    "ntfy": ("url",),
    "webhook": ("url",),
    "apprise": ("url",),
    "command": ("argv",),
}
"""Kind of sink → its required settings."""
RUNG_LEVELS = ("info", "warn", "error")
"""Levels of alerts. Every alert is a warning or an error, so ``info`` means the same as ``warn``.
"""
_OWN = {"url": ("url_env", "url_file", "token_env"), "argv": ("argv",)}
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def parse_quiet_hours(text: str) -> tuple[int, int] | None:
    """Return ``22:00-07:00`` as minutes of the day (1320, 420).

    None if the text is not such a range.
    """
    match = _TIMES.fullmatch(text.strip())
    if match is None:
        return None
    hours = [int(part) for part in match.groups()]
    start, end = hours[0] * 60 + hours[1], hours[2] * 60 + hours[3]
    if start != end:
        return (start, end)
    return None


def minutes_left(text: str | None, minute: int) -> int:
    """Return how many minutes of the quiet hours are left at `minute` of the local day; 0 = not quiet."""
    if text is not None:
        found = parse_quiet_hours(text)
    else:
        found = None
    if found is None:
        return 0
    start, end = found
    if start < end:
        inside = start <= minute < end
    else:
        # Over midnight.
        inside = minute >= start or minute < end
    if inside:
        return (end - minute) % DAY
    return 0


LEVELS = {"error": 0, "warn": 1, "info": 2}
MAX_DIGEST_BYTES = 3500
"""Limit of a digest's text. ntfy turns a message above 4,096 bytes into an attachment
(https://docs.ntfy.sh/publish/#limitations), and the advice is still appended to the text.
"""


class DeliveryPlan(NamedTuple):
    """What to do now."""

    send: tuple[tuple[str, AlertEvent], ...]
    """Messages by key, in the order of the fleet."""
    forget: tuple[str, ...]
    """Keys that are over and need no message."""
    again_in: float | None
    """Seconds until a waiting message becomes due; None = nothing waits."""


def plan_delivery(
    active: Mapping[str, AlertEvent],
    told: Mapping[str, SentAlert],
    settings: SinkSettings,
    now: float,
    minute: int,
    ours: Iterable[str],
    held: Container[str] = (),
) -> DeliveryPlan:
    """Compare the active alerts with those already sent. Pure.

    An alert that began and ended while it could not be sent is never sent.

    Args:
        active: Key → the message of an active, unmuted alert.
        told: Key → what the sink was sent last.
        settings: Its table in the fleet file.
        now: Client clock.
        minute: Minute of the local day.
        ours: Key prefixes of the boxes that this rgt watches; sent messages about others are
            ignored.
        held: Keys of other active alerts that are not sent: muted, or replaced by something else.
            They are not over.
    """
    send: list[tuple[str, AlertEvent]] = []
    waits: list[float] = []
    quiet_s = 60.0 * minutes_left(settings.quiet_hours, minute)
    for key, event in active.items():
        if not is_wanted(event, settings):
            continue
        known = told.get(key)
        if known is not None and not known.over:
            # Delivered already, at this level or a worse one.
            if LEVELS[event.level] >= LEVELS[known.level]:
                continue
            event = msgspec.structs.replace(event, what="worse")
        elif known is not None and known.at + settings.every_s > now:
            waits.append(known.at + settings.every_s - now)
            continue
        # An error is sent in quiet hours as well.
        if quiet_s and event.level != "error":
            waits.append(quiet_s)
            continue
        send.append((key, event))
    forget = []
    mine = tuple(ours)
    for key, known in told.items():
        # Other keys belong to another rgt on this machine, which knows whether they are over.
        if key in active or key in held or not key.startswith(mine):
            continue
        if known.over:
            # Kept until then, so that an alert that flickers is not sent each time.
            if known.at + settings.every_s <= now:
                forget.append(key)
            else:
                waits.append(known.at + settings.every_s - now)
        elif not settings.resolved:
            forget.append(key)
        elif quiet_s:
            waits.append(quiet_s)
        else:
            send.append((key, build_resolved_event(key, now)))
    return DeliveryPlan(tuple(send), tuple(forget), min(waits) if waits else None)


def is_wanted(event: AlertEvent, settings: SinkSettings) -> bool:
    """Return whether the sink's settings include this alert."""
    return (
        LEVELS[event.level] <= LEVELS[settings.min_level]
        and (not settings.kinds or event.kind in settings.kinds)
        and (not settings.boxes or event.box in settings.boxes)
    )


def includes_findings(settings: SinkSettings) -> bool:
    """Return whether the sink also gets findings.

    A finding then replaces the alerts that it covers.
    """
    return not settings.kinds or "finding" in settings.kinds


def build_resolved_event(key: str, now: float) -> AlertEvent:
    """Return the message that an alert has ended."""
    box, _, id_ = key.partition(" ")
    name = box.partition("@")[0]
    return AlertEvent(
        what="resolved", at=now, level="info", title=translate("{name}: resolved", name=name),
        text=ended_text(id_),
        box=name, id=id_, kind=id_.partition(":")[0],
    )  # fmt: skip


def build_digest_event(events: Sequence[AlertEvent], now: float) -> AlertEvent:
    """Return one message for many events."""
    worst = min((event.level for event in events), key=LEVELS.__getitem__)
    boxes = len({event.box for event in events if event.box})
    on = ""
    if boxes:
        on = translate(" on {boxes}", boxes=how_many(boxes, "box", "boxes"))
    ranked = sorted(events, key=lambda event: LEVELS[event.level])
    lines = _fit_lines([f"{event.title}: {event.text}" for event in ranked])
    return AlertEvent(
        what="digest", at=now, level=worst, title=how_many(len(events), "alert") + on,
        text="\n".join(lines),
        items=tuple(events),
    )  # fmt: skip


def _fit_lines(lines: Sequence[str]) -> list[str]:
    """Return the lines that fit into a message, and a last line with the number left out."""
    room = MAX_DIGEST_BYTES
    kept: list[str] = []
    for line in lines:
        # In bytes, as ntfy counts them.
        room -= len(line.encode(errors="replace")) + 1
        if room < 0:
            return [*kept, translate("… and {lines} more", lines=len(lines) - len(kept))]
        kept.append(line)
    return kept


GATHER_S = (2.0, 5.0)
"""Shortest and longest wait for more messages, in seconds: a failure on ten boxes at once becomes
one message. Random each time, so that of two rgt on one machine one is first and the other sees
what it has sent.
"""
FIRST_RETRY_S, LONGEST_RETRY_S = 5.0, 900.0
MARGIN_S = 2.0
"""Seconds beyond the sink's own time limit after which a hanging delivery is cancelled."""

Read = Callable[[], Awaitable[Mapping[str, SentAlert]]]
Note = Callable[[Mapping[str, SentAlert | None]], Awaitable[None]]


class SinkDelivery:
    """The delivery to one sink. `set_active` sets the active alerts; `run` sends them.

    Args:
        sink: The destination.
        settings: Its table.
        read: Returns what it was sent, also by another rgt on this machine.
        note: Records what it was sent now; None forgets the key.
        trouble: Called with the reason when delivery fails, and with None when it works again.
        is_muted: Returns whether a key was muted meanwhile, perhaps in another rgt; called after
            `read`.
        clock: Returns Unix time.
        gather_s: Shortest and longest wait for more.
        rng: For that wait and the retries.
    """

    def __init__(
        self,
        sink: AlertSink,
        settings: SinkSettings,
        *,
        read: Read,
        note: Note,
        trouble: Callable[[str | None], None],
        is_muted: Callable[[str], bool] = lambda _: False,
        clock: Callable[[], float] = time.time,
        gather_s: tuple[float, float] = GATHER_S,
        rng: random.Random | None = None,
    ) -> None:
        self.settings = settings
        self.failures = 0
        self._sink = sink
        self._read = read
        self._note = note
        self._trouble = trouble
        self._is_muted = is_muted
        self._clock = clock
        self._gather_s = gather_s
        self._rng = rng or random.Random()
        self._active: Mapping[str, AlertEvent] = {}
        self._ours: tuple[str, ...] = ()
        self._held: frozenset[str] = frozenset()
        self._poke = asyncio.Event()

    def set_active(
        self,
        active: Mapping[str, AlertEvent],
        ours: tuple[str, ...],
        held: frozenset[str] = frozenset(),
    ) -> None:
        """Set the messages for the boxes whose keys begin with `ours`, and the other active keys.

        Returns at once; the mapping is copied.
        """
        self._active, self._ours, self._held = dict(active), ours, held
        self._poke.set()

    async def run(self) -> None:
        """Deliver until cancelled."""
        wait: float | None = None
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait):
                    await self._poke.wait()
            if not self.failures:
                await asyncio.sleep(self._rng.uniform(*self._gather_s))
            # After the wait: what arrived meanwhile is part of this round.
            self._poke.clear()
            wait = await self._deliver_round()
            if self.failures:
                # Messages that arrive meanwhile wait for the same retry.
                await asyncio.sleep(wait or 0.0)
                self._poke.set()

    async def _deliver_round(self) -> float | None:
        """Send all due alerts; return the seconds until the next round."""
        try:
            again = await self._send_due()
        except Exception as error:  # not even a sink's bug may end its delivery
            self.failures += 1
            self._trouble(failure_reason(error))
            pause = min(LONGEST_RETRY_S, FIRST_RETRY_S * 2.0 ** (self.failures - 1))
            return pause * self._rng.uniform(0.5, 1.0)
        if self.failures:
            self.failures = 0
            self._trouble(None)
        return again

    async def _send_due(self) -> float | None:
        now = self._clock()
        local = time.localtime(now)
        # Before each round: another rgt may have sent it since.
        told = await self._read()
        muted = {key for key in self._active if self._is_muted(key)}
        due = plan_delivery(
            {key: event for key, event in self._active.items() if key not in muted},
            told,
            self.settings,
            now,
            local.tm_hour * 60 + local.tm_min,
            self._ours,
            self._held | muted,
        )
        if due.forget:
            await self._note(dict.fromkeys(due.forget))
        if len(due.send) > self.settings.digest_over:
            await self._send_event(build_digest_event([event for _, event in due.send], now))
            # Only after it was sent: a message twice is better than none.
            await self._note({key: _build_sent_alert(event, now) for key, event in due.send})
        else:
            for key, event in due.send:
                await self._send_event(event)
                # After each: if the next one fails, this one must not be sent again.
                await self._note({key: _build_sent_alert(event, now)})
        return due.again_in

    async def _send_event(self, event: AlertEvent) -> None:
        async with asyncio.timeout(self.settings.timeout_s + MARGIN_S):
            await self._sink.send(event)


def failure_reason(error: Exception) -> str:
    """Return the reason of a failure without any address.

    Only our own errors are known to contain none.
    """
    if isinstance(error, TimeoutError):
        return translate("it does not answer in time")
    if isinstance(error, SinkError):
        return str(error)
    # Without its text, which may have the address.
    return f"{type(error).__name__}"


def _build_sent_alert(event: AlertEvent, now: float) -> SentAlert:
    return SentAlert(level=event.level, at=now, over=event.what == "resolved")


# Reads and checks ``[alerts.KIND]`` and ``[[sinks]]`` of the fleet file, without any I/O.


class SettingsError(ValueError):
    """A table is wrong; `where` is the path of the key in the file. The text repeats no secret."""

    def __init__(self, where: Where, words: str) -> None:
        super().__init__(words)
        self.where = where
        self.words = words


def parse_alerts(alerts: Any, sinks: Any) -> AlertSettings:
    """Check the two tables as TOML returns them (None if the file lacks one).

    Raises:
        SettingsError: with the key, what is wrong with it, and the closest known name.
    """
    if alerts is None:
        tables = {}
    else:
        tables = _require_table(("alerts",), alerts)
    _refuse_unknown_keys(("alerts",), tables, tuple(BY_ID), translate("kind of alert"))
    kinds = {
        id_: _parse_kind(id_, _require_table(("alerts", id_), table))
        for id_, table in tables.items()
    }
    if sinks is not None and not isinstance(sinks, list):
        raise SettingsError(("sinks",), translate("must be a list of tables: write [[sinks]]"))
    made_of = [_require_table(("sinks", place), table) for place, table in enumerate(sinks or ())]
    made = [_parse_sink(place, table) for place, table in enumerate(made_of)]
    names = [sink.name for sink in made]
    for place, name in enumerate(names):
        if name in names[:place]:
            key = ("name",) if made_of[place].get("name") else ()
            raise SettingsError(
                ("sinks", place, *key),
                translate("a second sink is called {name!r}; give it another name", name=name),
            )
    return AlertSettings(kinds=kinds, sinks=tuple(made))


def alert_rows(settings: AlertSettings) -> tuple[Condition, ...]:
    """Return the enabled rows of the table, with the limits that are set."""
    found = []
    for kind in ALERTS:
        own = settings.kinds.get(kind.id)
        if own is None:
            found.append(kind)
        elif own.enabled is not False:
            found.append(_apply_kind_settings(kind, own))
    return tuple(found)


def _apply_kind_settings(kind: Condition, own: KindSettings) -> Condition:
    rungs = tuple(
        _apply_rung_limits(rung, *_limits_of_level(own, rung.level)) for rung in kind.rungs
    )
    return msgspec.structs.replace(
        kind,
        rungs=rungs,
        hold_s=kind.hold_s if own.hold_s is None else own.hold_s,
        quiet_s=kind.quiet_s if own.quiet_s is None else own.quiet_s,
    )


def _limits_of_level(own: KindSettings, level: str) -> tuple[float | None, float | None]:
    if level == "warn":
        return (own.warn, own.clear_warn)
    return (own.error, own.clear_error)


def _apply_rung_limits(rung: AlertRung, at: float | None, clear: float | None) -> AlertRung:
    raised = rung.at if at is None else at
    return AlertRung(
        # The distance between the two limits stays, or a raised limit could end below its own
        # clear.
        rung.level,
        raised,
        raised + (rung.clear - rung.at) if clear is None else clear,
    )


def _parse_kind(id_: str, table: dict[str, Any]) -> KindSettings:
    where: Where = ("alerts", id_)
    _refuse_unknown_keys(where, table, KindSettings.__struct_fields__, "key")
    own = _converted(where, table, KindSettings)
    kind = BY_ID[id_]
    levels = {rung.level for rung in kind.rungs}
    for key in ("warn", "error", "clear_warn", "clear_error"):
        value = getattr(own, key)
        if value is None:
            continue
        level = key.removeprefix("clear_")
        if level not in levels:
            raise SettingsError(
                (*where, key),
                translate(
                    "{id} has no level {level}; it has {levels}",
                    id=id_,
                    level=level,
                    levels=", ".join(sorted(levels)),
                ),
            )
        if kind.unit == "yes" or kind.rises:
            raise SettingsError(
                (*where, key), translate("{id} has no limit to set: it is active or not", id=id_)
            )
        if not math.isfinite(value) or value < 0:
            raise SettingsError(
                (*where, key), translate("must be a number, 0 or more ({unit})", unit=kind.unit)
            )
    for key in ("hold_s", "quiet_s"):
        value = getattr(own, key)
        if value is not None and (not math.isfinite(value) or value < 0):
            raise SettingsError((*where, key), translate("must be a number of seconds, 0 or more"))
    _check_limit_order(where, _apply_kind_settings(kind, own))
    return own


def _check_limit_order(where: Where, kind: Condition) -> None:
    """Refuse limits in the wrong order: such an alert would flicker or never end."""
    side, sign = ("below", 1.0) if not kind.below else ("above", -1.0)
    for rung in kind.rungs:
        if sign * rung.clear > sign * rung.at:
            words = translate(
                "clear_{level} {clear:g} must be {side} {level} {at:g}, or equal",
                level=rung.level,
                clear=rung.clear,
                side=side,
                at=rung.at,
            )
            raise SettingsError(where, words)
    limits = [sign * rung.at for rung in kind.rungs]
    if limits != sorted(limits):
        raise SettingsError(where, translate("the limit of error must be worse than that of warn"))


def _parse_sink(place: int, table: dict[str, Any]) -> SinkSettings:
    where: Where = ("sinks", place)
    _refuse_unknown_keys(where, table, SinkSettings.__struct_fields__, "key")
    sink = _converted(where, table, SinkSettings)
    if sink.kind not in SINKS:
        raise SettingsError(
            (*where, "kind"),
            translate("no such sink{kind}", kind=_suggest_nearest(sink.kind, tuple(SINKS))),
        )
    needs = SINKS[sink.kind]
    for what, keys in _OWN.items():
        for key in keys:
            if what not in needs and getattr(sink, key):
                raise SettingsError(
                    (*where, key), translate("a {kind} has no {key}", kind=sink.kind, key=key)
                )
    for key in ("url_env", "token_env"):
        name = getattr(sink, key)
        if name is not None and not _VARIABLE.fullmatch(name):
            raise SettingsError(
                (*where, key),
                translate("must be the name of an environment variable, never the secret itself"),
            )
    if "url" in needs and (sink.url_env is None) == (sink.url_file is None):
        raise SettingsError(
            where, translate("needs url_env or url_file (one of them), with its address")
        )
    if sink.url_file is not None and "://" in sink.url_file:
        raise SettingsError(
            (*where, "url_file"),
            translate("must be a file that contains the address, never the address itself"),
        )
    if "argv" in needs and (not sink.argv or not sink.argv[0]):
        raise SettingsError(
            where,
            translate('needs argv: the program and its arguments, such as argv = ["notify", "-v"]'),
        )
    if sink.min_level not in RUNG_LEVELS:
        raise SettingsError((*where, "min_level"), translate("must be warn or error"))
    for key in ("timeout_s", "every_s"):
        if not 0 < getattr(sink, key) <= 86400:
            raise SettingsError(
                (*where, key), translate("must be a number of seconds, above 0 and at most a day")
            )
    if sink.digest_over < 1:
        raise SettingsError((*where, "digest_over"), translate("must be 1 or more"))
    for at, kind in enumerate(sink.kinds):
        if kind not in BY_ID:
            words = translate(
                "{kind!r} is not a kind of alert{kind_2}",
                kind=kind,
                kind_2=_suggest_nearest(kind, tuple(BY_ID)),
            )
            raise SettingsError((*where, "kinds", at), words)
    if sink.quiet_hours is not None and parse_quiet_hours(sink.quiet_hours) is None:
        raise SettingsError(
            (*where, "quiet_hours"),
            translate('must be two times of the day, such as "22:00-07:00"'),
        )
    if sink.name:
        return sink
    return msgspec.structs.replace(sink, name=sink.kind)


def _require_table(where: Where, value: Any) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise SettingsError(where, translate("must be a table"))
    return dict(value)


def _refuse_unknown_keys(
    where: Where, table: Mapping[str, Any], known: Sequence[str], what: str
) -> None:
    for key in table:
        if key not in known:
            raise SettingsError(
                (*where, key),
                translate(
                    "unknown {what} {key!r}{hint}",
                    what=what,
                    key=key,
                    hint=_suggest_nearest(key, known),
                ),
            )


def _suggest_nearest(word: str, known: Sequence[str]) -> str:
    near = difflib.get_close_matches(word, known, 1)
    if near:
        return translate("; did you mean {near!r}?", near=near[0])
    return translate("; known are: {known}", known=", ".join(known))


def _converted(where: Where, table: dict[str, Any], kind: type[T]) -> T:
    try:
        return msgspec.convert(table, kind)
    except msgspec.ValidationError as error:
        words, _, place = str(error).partition(" - at ")
        key = re.search(r"\$\.([^.\[`]+)", place)
        raise SettingsError((*where, key.group(1)) if key else where, words) from None
