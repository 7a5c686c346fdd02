"""What a benchmark hands over, and how it is shown: a table for people, one JSON line for tools."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass


class BenchmarkError(Exception):
    """What was to be measured did not happen; the message says what was seen instead."""


@dataclass(frozen=True)
class Row:
    """One measured case."""

    case: str
    value: float
    unit: str
    ratio: float | None = None
    """`value` divided by that of the alternative."""
    of: str | None = None
    """The alternative that the ratio compares with."""
    goal: float | None = None
    """The most that `value` should be."""
    least: float | None = None
    """The least that `value` should be, where more is better."""
    ratio_goal: float | None = None
    """The most that `ratio` should be."""
    ratio_least: float | None = None
    """The least that `ratio` should be, where more is better."""

    def verdict(self) -> str:
        """Say what was aimed at and whether it was reached; empty where nothing was."""
        told = []
        for what, reached, most in (
            ("", self.value, self.goal),
            ("ratio ", self.ratio, self.ratio_goal),
        ):
            if most is not None and reached is not None:
                told.append(f"{what}≤ {most:g} {'met' if reached <= most else 'MISSED'}")
        if self.least is not None:
            told.append(f"≥ {self.least:g} {'met' if self.value >= self.least else 'MISSED'}")
        if self.ratio_least is not None and self.ratio is not None:
            told.append(
                f"ratio ≥ {self.ratio_least:g} "
                f"{'met' if self.ratio >= self.ratio_least else 'MISSED'}"
            )
        return ", ".join(told)


Run = Callable[[bool], Sequence[Row]]
"""A benchmark: takes `quick`, returns its rows."""


def number(value: float) -> str:
    """Three significant digits, thousands separated, no exponent."""
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def table(name: str, rows: Sequence[Row]) -> str:
    """The rows as aligned columns."""
    cells = [("case", "value", "unit", "ratio", "of", "goal")]
    for row in rows:
        if row.ratio is None:
            ratio = ""
        else:
            ratio = number(row.ratio)
        cells.append((row.case, number(row.value), row.unit, ratio, row.of or "", row.verdict()))
    widths = [max(len(line[column]) for line in cells) for column in range(5)]
    lines = [name]
    for case, value, unit, ratio, of, goal in cells:
        named = f"  {case:<{widths[0]}}  {value:>{widths[1]}} {unit:<{widths[2]}}"
        lines.append(f"{named}  {ratio:>{widths[3]}}  {of:<{widths[4]}}  {goal}".rstrip())
    return "\n".join(lines)


def as_json(name: str, rows: Sequence[Row]) -> str:
    """The rows as one line of JSON."""
    return json.dumps({"name": name, "rows": [asdict(row) for row in rows]})


def say(text: str) -> None:
    """A line about the progress, out of the way of the results."""
    print(text, file=sys.stderr, flush=True)


def main(name: str, run: Run, arguments: Sequence[str] | None = None) -> int:
    """The command line that every benchmark has."""
    parser = argparse.ArgumentParser(prog=f"python -m benchmarks.{name}")
    parser.add_argument(
        "--quick", action="store_true", help="fewer and shorter runs: ends within 60 s"
    )
    parser.add_argument(
        "--json", action="store_true", help="print the rows as JSON on the last line"
    )
    options = parser.parse_args(arguments)
    try:
        rows = run(options.quick)
    except BenchmarkError as error:
        say(f"{name}: {error}")
        return 1
    except KeyboardInterrupt:
        say(f"{name}: interrupted")
        return 130
    print(table(name, rows))
    if options.json:
        print(as_json(name, rows))
    sys.stdout.flush()
    return 0
