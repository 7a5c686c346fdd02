"""The filter language of the fleet: ``state:running gpu<50 platform:autodl cost>1 age>5m text``.

Pure.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from rgt_tui.language import translate
from rgt_tui.model import SYMBOLS
from rgt_tui.ui.box_status import status_label
from rgt_tui.ui.widgets.fleet_rows.fleet_cells import FleetRow
from rgt_tui.ui.widgets.fleet_rows.fleet_columns import FilterUnit, FilterValue, filter_values


class FilterError(Exception):
    """A term has no meaning; the message names it and lists what would work."""


Test = Callable[[FleetRow], bool | None]
"""Returns None if the value is unknown."""


class FleetFilter(NamedTuple):
    """A parsed filter."""

    tests: tuple[Test, ...] = ()
    save: str | None = None
    """Name to save it under."""
    drop: str | None = None
    """Name of a saved filter to delete."""
    source: str = ""
    """The text to save: the filter without its save and drop terms."""


class FilteredRows(NamedTuple):
    """The rows that match."""

    rows: list[FleetRow]
    total: int
    unknown: int
    """Rows left out only because a value is unknown."""

    @property
    def count_text(self) -> str:
        """How many are shown; empty if all are."""
        if len(self.rows) == self.total:
            return ""
        unknown = ""
        if self.unknown:
            unknown = translate(", {count} unknown", count=self.unknown)
        return translate(
            "{rows} of {total} shown{unknown}",
            rows=len(self.rows),
            total=self.total,
            unknown=unknown,
        )


def _account_name(row: FleetRow) -> str:
    provider = row.box.spec.provider
    if provider is None:
        return ""
    return f"{provider.kind} {provider.account}"


TEXTS: dict[str, Callable[[FleetRow], str]] = {
    "name": lambda row: row.name,
    "state": lambda row: f"{row.verdict.health.value} {status_label(row.box, row.verdict)[1]}",
    "platform": lambda row: f"{row.platform} {row.box.spec.profile}",
    "account": _account_name,
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
    # Texts are written with a colon, so numbers may be, too.
    ":": lambda a, b: a == b,
}
_EXAMPLES = {
    FilterUnit.PERCENT: "50",
    FilterUnit.TIME: "5m",
    FilterUnit.MONEY: "1.50",
    FilterUnit.PLAIN: "10",
}


def parse_filter(text: str, saved: Mapping[str, str] | None = None) -> FleetFilter:
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
            # From the word as typed, because a name keeps its case.
            name = word[5:]
            if not _NAME.fullmatch(name):
                raise FilterError(
                    translate(
                        "{word}: a name is letters, digits, . _ and -, such as {term}busy",
                        word=word,
                        term=term[:5],
                    )
                )
            if term.startswith("save:"):
                save = name
            else:
                drop = _saved_spelling(name, saved)
            continue
        source.append(word)
        if term.startswith("@"):
            test = _saved_filter_test(word.removeprefix("!")[1:], saved)
        else:
            test = _parse_term(term)
        tests.append(test if wanted else _invert_test(test))
    if save is not None and not tests:
        raise FilterError(
            translate(
                "save:{save} needs a filter to save, such as state:running save:{save}", save=save
            )
        )
    return FleetFilter(tuple(tests), save, drop, " ".join(source))


def filter_rows(rows: Sequence[FleetRow], asked: FleetFilter) -> FilteredRows:
    """Return the matching rows in their order."""
    shown: list[FleetRow] = []
    unknown = 0
    for row in rows:
        found = [test(row) for test in asked.tests]
        if all(found):
            shown.append(row)
        # A row with one False would not match anyway.
        elif False not in found:
            unknown += 1
    return FilteredRows(shown, len(rows), unknown)


def _invert_test(test: Test) -> Test:
    def inverted_test(row: FleetRow) -> bool | None:
        found = test(row)
        if found is None:
            return None
        return not found

    return inverted_test


def _saved_spelling(name: str, saved: Mapping[str, str] | None) -> str:
    """Return a name as it was saved; the typed case may differ."""
    found = next((one for one in saved or {} if one.casefold() == name.casefold()), None)
    if found is None:
        there = ", ".join(f"@{one}" for one in sorted(saved or {}, key=str.casefold))
        raise FilterError(
            translate(
                "no filter is kept as {name}; there are: {there}",
                name=name,
                there=there or translate("none yet: save:NAME keeps one"),
            )
        )
    return found


def _saved_filter_test(name: str, saved: Mapping[str, str] | None) -> Test:
    kept = dict(saved or {})
    # removed before parsing, because two filters could name each other
    text = kept.pop(_saved_spelling(name, saved))
    tests = parse_filter(text, kept).tests

    def all_of(row: FleetRow) -> bool | None:
        found = [test(row) for test in tests]
        # One False decides, even if other values are unknown.
        if False in found:
            return False
        if None in found:
            return None
        return True

    return all_of


def _parse_term(term: str) -> Test:
    parts = _TERM.fullmatch(term)
    if parts is None:
        return lambda row: any(term in _field_text(row, field) for field in FREE)
    field, op, value = parts["field"], parts["op"], parts["value"]
    if field in TEXTS:
        return _text_test(field, op, value)
    numbers = filter_values()
    if field in numbers:
        return _number_test(field, op, value, numbers[field])
    fields = ", ".join(sorted((*TEXTS, *numbers)))
    raise FilterError(
        translate(
            "{term}: there is no {field}; there are {fields}", term=term, field=field, fields=fields
        )
    )


def _field_text(row: FleetRow, field: str) -> str:
    return TEXTS[field](row).casefold()


def _text_test(field: str, op: str, value: str) -> Test:
    if op not in (":", "="):
        raise FilterError(
            translate(
                "{field}{op}{value}: {field} is a word: {field}:{value_2}",
                field=field,
                op=op,
                value=value,
                value_2=value or "WORD",
            )
        )
    wanted = [part for part in value.split(",") if part]
    if not wanted:
        raise FilterError(
            translate(
                "{field}{op}: a word is missing, such as {field}:{words}",
                field=field,
                op=op,
                words=_WORDS[field],
            )
        )
    # `account:?` are the boxes without one.
    if wanted == ["?"]:
        return lambda row: not _field_text(row, field).strip()
    return lambda row: any(part in _field_text(row, field) for part in wanted)


_WORDS = {
    "name": "gpu-1", "state": "running", "platform": "autodl", "account": "runpod",
    "alert": "inodes", "card": "4090",
}  # fmt: skip


def _number_test(field: str, op: str, value: str, of: FilterValue) -> Test:
    if value == "?" and op in (":", "="):
        return lambda row: of.read(row) is None
    wrong = FilterError(
        translate(
            "{term}: {field} is {kind}, such as {field}<{example}, or {field}:? for unknown",
            term=f"{field}{op}{value}",
            field=field,
            kind=translate(NUMBER_KINDS[of.unit]),
            example=_EXAMPLES[of.unit],
        )
    )
    currency = next((code for code, symbol in SYMBOLS.items() if symbol == value[:1]), None)
    if currency is not None and of.unit is FilterUnit.MONEY:
        value = value[1:]
    found = _NUMBER.fullmatch(value)
    if of.unit is FilterUnit.TIME:
        units = _SECONDS
    elif of.unit is FilterUnit.PERCENT:
        units = {"": 1.0, "%": 1.0}
    else:
        units = {"": 1.0}
    if found is None or found["unit"] not in units:
        raise wrong
    limit, compare = float(found["number"]) * units[found["unit"]], _COMPARE[op]

    def compare_value(row: FleetRow) -> bool | None:
        known = of.read(row)
        if known is None:
            return None
        # Amounts in different currencies cannot be compared.
        if currency is not None and of.currency is not None and of.currency(row) != currency:
            return False
        return compare(known, limit)

    return compare_value


NUMBER_KINDS = {
    FilterUnit.PERCENT: "a percentage",
    FilterUnit.TIME: "a time",
    FilterUnit.MONEY: "an amount",
    FilterUnit.PLAIN: "a number",
}
