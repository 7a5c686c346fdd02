"""Reads and checks ``[alerts.KIND]`` and ``[[sinks]]`` of the fleet file, without any I/O."""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from rgt_tui.health.condition import Condition, Rung
from rgt_tui.health.conditions import ALERTS, BY_ID
from rgt_tui.health.delivery import window
from rgt_tui.model import AlertSettings, KindSettings, SinkSettings

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
"""Kind of sink → what it cannot do without."""
LEVELS = ("info", "warn", "error")
"""Every alert is a warning or an error: ``info`` is as much as ``warn``."""
_OWN = {"url": ("url_env", "url_file", "token_env"), "argv": ("argv",)}
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class SettingsError(ValueError):
    """A table is wrong; `where` is the path of the key in the file. The words repeat no value of a secret."""

    def __init__(self, where: Where, words: str) -> None:
        super().__init__(words)
        self.where = where
        self.words = words


def parse_alerts(alerts: Any, sinks: Any) -> AlertSettings:
    """Check the two tables as TOML gives them (None where the file has none).

    Raises:
        SettingsError: with the key, what is wrong with it, and the nearest known word.
    """
    tables = {} if alerts is None else _table(("alerts",), alerts)
    _known(("alerts",), tables, tuple(BY_ID), "kind of alert")
    kinds = {id_: _kind(id_, _table(("alerts", id_), table)) for id_, table in tables.items()}
    if sinks is not None and not isinstance(sinks, list):
        raise SettingsError(("sinks",), "must be a list of tables: write [[sinks]]")
    made_of = [_table(("sinks", place), table) for place, table in enumerate(sinks or ())]
    made = [_sink(place, table) for place, table in enumerate(made_of)]
    names = [sink.name for sink in made]
    for place, name in enumerate(names):
        if name in names[:place]:
            key = ("name",) if made_of[place].get("name") else ()
            raise SettingsError(
                ("sinks", place, *key), f"a second sink is called {name!r}; give it another name"
            )
    return AlertSettings(kinds=kinds, sinks=tuple(made))


def alert_rows(settings: AlertSettings) -> tuple[Condition, ...]:
    """Return the rows of the table that count, with the limits that are set."""
    found = []
    for kind in ALERTS:
        own = settings.kinds.get(kind.id)
        if own is None:
            found.append(kind)
        elif own.enabled is not False:
            found.append(_row(kind, own))
    return tuple(found)


def _row(kind: Condition, own: KindSettings) -> Condition:
    rungs = tuple(_rung(rung, *_limits(own, rung.level)) for rung in kind.rungs)
    return msgspec.structs.replace(
        kind,
        rungs=rungs,
        hold_s=kind.hold_s if own.hold_s is None else own.hold_s,
        quiet_s=kind.quiet_s if own.quiet_s is None else own.quiet_s,
    )


def _limits(own: KindSettings, level: str) -> tuple[float | None, float | None]:
    return (own.warn, own.clear_warn) if level == "warn" else (own.error, own.clear_error)


def _rung(rung: Rung, at: float | None, clear: float | None) -> Rung:
    raised = rung.at if at is None else at
    return Rung(rung.level, raised, raised + (rung.clear - rung.at) if clear is None else clear)


def _kind(id_: str, table: dict[str, Any]) -> KindSettings:
    where: Where = ("alerts", id_)
    _known(where, table, KindSettings.__struct_fields__, "key")
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
                (*where, key), f"{id_} has no level {level}; it has {', '.join(sorted(levels))}"
            )
        if kind.unit == "yes" or kind.rises:
            raise SettingsError((*where, key), f"{id_} has no limit to set: it holds or not")
        if not math.isfinite(value) or value < 0:
            raise SettingsError((*where, key), f"must be a number, 0 or more ({kind.unit})")
    for key in ("hold_s", "quiet_s"):
        value = getattr(own, key)
        if value is not None and (not math.isfinite(value) or value < 0):
            raise SettingsError((*where, key), "must be a number of seconds, 0 or more")
    _sound(where, _row(kind, own))
    return own


def _sound(where: Where, kind: Condition) -> None:
    """Refuse limits the wrong way round: such an alert would flicker or never end."""
    side, sign = ("below", 1.0) if not kind.below else ("above", -1.0)
    for rung in kind.rungs:
        if sign * rung.clear > sign * rung.at:
            words = f"clear_{rung.level} {rung.clear:g} must be {side} {rung.level} {rung.at:g}, or equal"
            raise SettingsError(where, words)
    limits = [sign * rung.at for rung in kind.rungs]
    if limits != sorted(limits):
        raise SettingsError(where, "the limit of error must be worse than that of warn")


def _sink(place: int, table: dict[str, Any]) -> SinkSettings:
    where: Where = ("sinks", place)
    _known(where, table, SinkSettings.__struct_fields__, "key")
    sink = _converted(where, table, SinkSettings)
    if sink.kind not in SINKS:
        raise SettingsError((*where, "kind"), f"no such sink{_near(sink.kind, tuple(SINKS))}")
    needs = SINKS[sink.kind]
    for what, keys in _OWN.items():
        for key in keys:
            if what not in needs and getattr(sink, key):
                raise SettingsError((*where, key), f"a {sink.kind} has no {key}")
    for key in ("url_env", "token_env"):
        name = getattr(sink, key)
        if name is not None and not _VARIABLE.fullmatch(name):
            raise SettingsError(
                (*where, key), "must be the name of an environment variable, never the secret itself"
            )
    if "url" in needs and (sink.url_env is None) == (sink.url_file is None):
        raise SettingsError(where, "needs url_env or url_file, one of them: where its address is kept")
    if sink.url_file is not None and "://" in sink.url_file:
        raise SettingsError((*where, "url_file"), "must be a file that holds the address, never the address")
    if "argv" in needs and (not sink.argv or not sink.argv[0]):
        raise SettingsError(
            where, 'needs argv: the program and its arguments, such as argv = ["notify", "-v"]'
        )
    if sink.min_level not in LEVELS:
        raise SettingsError((*where, "min_level"), "must be warn or error")
    for key in ("timeout_s", "every_s"):
        if not 0 < getattr(sink, key) <= 86400:
            raise SettingsError((*where, key), "must be a number of seconds, above 0 and at most a day")
    if sink.digest_over < 1:
        raise SettingsError((*where, "digest_over"), "must be 1 or more")
    for at, kind in enumerate(sink.kinds):
        if kind not in BY_ID:
            words = f"{kind!r} is not a kind of alert{_near(kind, tuple(BY_ID))}"
            raise SettingsError((*where, "kinds", at), words)
    if sink.quiet_hours is not None and window(sink.quiet_hours) is None:
        raise SettingsError((*where, "quiet_hours"), 'must be two times of the day, such as "22:00-07:00"')
    return sink if sink.name else msgspec.structs.replace(sink, name=sink.kind)


def _table(where: Where, value: Any) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise SettingsError(where, "must be a table")
    return dict(value)


def _known(where: Where, table: Mapping[str, Any], known: Sequence[str], what: str) -> None:
    for key in table:
        if key not in known:
            raise SettingsError((*where, key), f"unknown {what} {key!r}{_near(key, known)}")


def _near(word: str, known: Sequence[str]) -> str:
    near = difflib.get_close_matches(word, known, 1)
    return f"; did you mean {near[0]!r}?" if near else f"; known are: {', '.join(known)}"


def _converted(where: Where, table: dict[str, Any], kind: type[T]) -> T:
    try:
        return msgspec.convert(table, kind)
    except msgspec.ValidationError as error:
        words, _, place = str(error).partition(" - at ")
        key = re.search(r"\$\.([^.\[`]+)", place)
        raise SettingsError((*where, key.group(1)) if key else where, words) from None
