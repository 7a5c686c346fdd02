"""The filter language of the fleet: ``state:running gpu<50 platform:autodl cost>1 age>5m text``.

Pure.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from rgt_tui.profiles import SYMBOLS
from rgt_tui.ui.box_status import standing
from rgt_tui.ui.widgets.fleet_rows.fleet_cells import Row
from rgt_tui.ui.widgets.fleet_rows.fleet_columns import Unit, Value, values


class FilterError(Exception):
    """A term has no meaning; the message names it and lists what would work."""


Test = Callable[[Row], bool | None]
"""Returns None if the value is unknown."""


class Filter(NamedTuple):
    """A parsed filter."""

    tests: tuple[Test, ...] = ()
    save: str | None = None
    """Name to save it under."""
    drop: str | None = None
    """Name of a saved filter to delete."""
    source: str = ""
    """The text to save: the filter without its save and drop terms."""


class Filtered(NamedTuple):
    """The rows that match."""

    rows: list[Row]
    total: int
    unknown: int
    """Rows left out only because a value is unknown."""

    @property
    def words(self) -> str:
        """How many are shown; empty if all are."""
        if len(self.rows) == self.total:
            return ""
        unknown = f", {self.unknown} unknown" if self.unknown else ""
        return f"{len(self.rows)} of {self.total} shown{unknown}"


def _account(row: Row) -> str:
    provider = row.box.spec.provider
    if provider is None:
        return ""
    return f"{provider.kind} {provider.account}"


TEXTS: dict[str, Callable[[Row], str]] = {
    "name": lambda row: row.name,
    "state": lambda row: f"{row.verdict.health.value} {standing(row.box, row.verdict)[1]}",
    "platform": lambda row: f"{row.platform} {row.box.spec.profile}",
    "account": _account,
    "alert": lambda row: " ".join(f"{alert.word} {alert.text}" for alert in row.verdict.alerts),
    "card": lambda row: " ".join(gpu.name for gpu in row.box.sample.gpus) if row.box.sample else "",
}
FREE = ("name", "platform", "state", "alert")
"""Fields in which a word without a field is searched."""

_TERM = re.compile(r"(?P<field>[a-z0-9]+)(?P<op>:|<=|>=|<|>|=)(?P<value>.*)", re.DOTALL)
_NUMBER = re.compile(r"(?P<number>\d+(?:\.\d+)?|\.\d+)(?P<unit>[a-z%°]*)")
_SECONDS = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_NAME = re.compile(r"[\w.-]{1,32}")
_COMPARE: dict[str, Callable[[float, float], bool]] = {
    "<": lambda a, b: a < b,
    ">": lambda a, b: a > b,
    "<=": lambda a, b: a <= b,
    ">=": lambda a, b: a >= b,
    "=": lambda a, b: a == b,
    ":": lambda a, b: a == b,
}
_EXAMPLES = {Unit.PERCENT: "50", Unit.TIME: "5m", Unit.MONEY: "1.50", Unit.PLAIN: "10"}


def parse(text: str, saved: Mapping[str, str] | None = None) -> Filter:
    """Parse a filter. All terms must match; a term after ``!`` must not.

    Args:
        text: As typed.
        saved: Saved filters by name; ``@name`` inserts one.

    Raises:
        FilterError: A term has no meaning.
    """
    tests: list[Test] = []
    source: list[str] = []
    save = drop = None
    for word in text.split():
        term = word.casefold()
        wanted = not term.startswith("!")
        term = term.removeprefix("!")
        if not term:
            continue
        if wanted and term.startswith(("save:", "drop:")):
            name = word[5:]
            if not _NAME.fullmatch(name):
                raise FilterError(
                    f"{word}: a name is letters, digits, . _ and -, such as {term[:5]}busy"
                )
            save, drop = (name, drop) if term.startswith("save:") else (save, _kept_as(name, saved))
            continue
        source.append(word)
        test = _saved(word.removeprefix("!")[1:], saved) if term.startswith("@") else _test(term)
        tests.append(test if wanted else _inverse(test))
    if save is not None and not tests:
        raise FilterError(f"save:{save} needs a filter to save, such as state:running save:{save}")
    return Filter(tuple(tests), save, drop, " ".join(source))


def matching(rows: Sequence[Row], asked: Filter) -> Filtered:
    """Return the matching rows in their order."""
    shown: list[Row] = []
    unknown = 0
    for row in rows:
        found = [test(row) for test in asked.tests]
        if all(found):
            shown.append(row)
        elif False not in found:
            unknown += 1
    return Filtered(shown, len(rows), unknown)


def _inverse(test: Test) -> Test:
    def inverted(row: Row) -> bool | None:
        found = test(row)
        if found is None:
            return None
        return not found

    return inverted


def _kept_as(name: str, saved: Mapping[str, str] | None) -> str:
    """Return a name as it was saved; the typed case may differ."""
    found = next((one for one in saved or {} if one.casefold() == name.casefold()), None)
    if found is None:
        there = ", ".join(f"@{one}" for one in sorted(saved or {}, key=str.casefold))
        raise FilterError(
            f"no filter is kept as {name}; there are: {there or 'none yet: save:NAME keeps one'}"
        )
    return found


def _saved(name: str, saved: Mapping[str, str] | None) -> Test:
    kept = dict(saved or {})
    # removed before parsing, because two filters could name each other
    text = kept.pop(_kept_as(name, saved))
    tests = parse(text, kept).tests

    def all_of(row: Row) -> bool | None:
        found = [test(row) for test in tests]
        if False in found:
            return False
        if None in found:
            return None
        return True

    return all_of


def _test(term: str) -> Test:
    parts = _TERM.fullmatch(term)
    if parts is None:
        return lambda row: any(term in _text(row, field) for field in FREE)
    field, op, value = parts["field"], parts["op"], parts["value"]
    if field in TEXTS:
        return _text_test(field, op, value)
    numbers = values()
    if field in numbers:
        return _number_test(field, op, value, numbers[field])
    fields = ", ".join(sorted((*TEXTS, *numbers)))
    raise FilterError(f"{term}: there is no {field}; there are {fields}")


def _text(row: Row, field: str) -> str:
    return TEXTS[field](row).casefold()


def _text_test(field: str, op: str, value: str) -> Test:
    if op not in (":", "="):
        raise FilterError(f"{field}{op}{value}: {field} is a word: {field}:{value or 'WORD'}")
    wanted = [part for part in value.split(",") if part]
    if not wanted:
        raise FilterError(f"{field}{op}: a word is missing, such as {field}:{_WORDS[field]}")
    if wanted == ["?"]:
        return lambda row: not _text(row, field).strip()
    return lambda row: any(part in _text(row, field) for part in wanted)


_WORDS = {
    "name": "gpu-1", "state": "running", "platform": "autodl", "account": "runpod", "alert": "inodes", "card": "4090",
}  # fmt: skip


def _number_test(field: str, op: str, value: str, of: Value) -> Test:
    if value == "?" and op in (":", "="):
        return lambda row: of.read(row) is None
    wrong = FilterError(
        f"{field}{op}{value}: {field} is {_KINDS[of.unit]}, such as {field}<{_EXAMPLES[of.unit]}, or "
        f"{field}:? for unknown"
    )
    currency = next((code for code, symbol in SYMBOLS.items() if symbol == value[:1]), None)
    if currency is not None and of.unit is Unit.MONEY:
        value = value[1:]
    found = _NUMBER.fullmatch(value)
    if of.unit is Unit.TIME:
        units = _SECONDS
    elif of.unit is Unit.PERCENT:
        units = {"": 1.0, "%": 1.0}
    else:
        units = {"": 1.0}
    if found is None or found["unit"] not in units:
        raise wrong
    limit, compare = float(found["number"]) * units[found["unit"]], _COMPARE[op]

    def test(row: Row) -> bool | None:
        known = of.read(row)
        if known is None:
            return None
        if currency is not None and of.currency is not None and of.currency(row) != currency:
            return False
        return compare(known, limit)

    return test


_KINDS = {
    Unit.PERCENT: "a percentage",
    Unit.TIME: "a time",
    Unit.MONEY: "an amount",
    Unit.PLAIN: "a number",
}
