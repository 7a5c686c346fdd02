"""Measures ``rgt triage`` and ``rgt scalars`` on the blind sets, by the labels in ``tests/fixtures/blind``.

``--misses`` also lists each case that is not right, with what was found; ``--later`` measures the
second set, whose kept-back cases are counted on their own and not listed, and the third.
``--fourth seen`` and ``--fourth kept_back`` measure the two halves of the fourth set;
``--fifth seen``, ``--fifth kept_back`` and ``--sixth`` those of metric files only;
``--seventh seen`` and ``--seventh kept_back`` that of logs alone.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

BLIND = Path(__file__).resolve().parents[1] / "tests" / "fixtures" / "blind"


def read_cases(kind: str) -> list[dict[str, Any]]:
    """Return the cases of ``failures``, ``healthy``, ``metrics``, ``hosts``, or ``second/failures``."""
    text = (BLIND / f"{kind}.jsonl").read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines()]


def run_rgt(*arguments: str) -> list[dict[str, Any]]:
    """Run a command of rgt; return the JSON objects that it prints, one a line."""
    done = subprocess.run(
        (sys.executable, "-m", "rgt_tui", *arguments), capture_output=True, check=False
    )
    return [json.loads(line) for line in done.stdout.splitlines()]


def triage_cases(cases: Sequence[Mapping[str, Any]], folder: Path) -> dict[str, list[str]]:
    """Return the pages that rgt names for each case's log, the best first."""
    names = []
    for case in cases:
        path = folder / f"{case['case']}.log"
        path.write_text(case["log"], encoding="utf-8", newline="")
        names.append(str(path))
    objects = run_rgt("triage", "--json", *names)
    return {
        Path(report["file"]).stem: [finding["gotcha"] for finding in report["findings"]]
        for report in objects
    }


def judge_failure(case: Mapping[str, Any], found: Sequence[str], places: int) -> bool:
    """Return whether a right page is among the first ``places`` findings."""
    if not found:
        return "none" in case["first"]
    return bool(set(case["first"]) & set(found[:places]))


def plain_name(name: str) -> str:
    """Return a figure's name in lower case, with one blank for everything that is no letter or digit."""
    return re.sub(r"[^a-z0-9]+", " ", name.lower()).strip()


def judge_series(expected: Mapping[str, Any], found: Iterable[Mapping[str, Any]]) -> bool:
    """Return whether one of the found series has a right name, axis, number of points and last point."""
    for series in found:
        tag = plain_name(series["tag"])
        named = any(
            tag == name or tag.endswith(f" {name}") or plain_name(series["metric"] or "") == name
            for name in map(plain_name, expected["names"])
        )
        # Rows that are only counted were labelled before they had an axis of their own.
        kinds = {series["x"], "step"} if series["x"] == "row" else {series["x"]}
        if not named or kinds.isdisjoint(expected["x"]):
            continue
        if series["points"] not in expected["points"]:
            continue
        if any(same_point(series["last"], point) for point in expected["last"]):
            return True
    return False


def same_point(found: Sequence[Any], expected: Sequence[float]) -> bool:
    """Return whether two points are the same up to rounding."""
    return all(
        isinstance(one, int | float) and abs(one - other) <= 1e-6 * max(1.0, abs(other))
        for one, other in zip(found, expected, strict=True)
    )


def read_metric_file(case: Mapping[str, Any], folder: Path) -> list[dict[str, Any]]:
    """Return the series that rgt finds in a case's file."""
    inside = folder / case["case"]
    inside.mkdir()
    path = inside / case["name"]
    path.write_text(case["text"], encoding="utf-8", newline="")
    return run_rgt("scalars", "--json", str(path))


class Miss(NamedTuple):
    """A case that is not right."""

    place: str
    """``second``, ``miss``, ``alarm`` or ``metric``."""
    case: Mapping[str, Any]
    found: Any
    expected: Any


def measure_logs(
    failures: Sequence[Mapping[str, Any]], healthy: Sequence[Mapping[str, Any]], folder: Path
) -> list[Miss]:
    """Print the figures of the failures and the healthy logs; return what is not right first."""
    found = triage_cases([*failures, *healthy], folder)
    misses = []
    for case in failures:
        pages = found[case["case"]]
        if judge_failure(case, pages, 1):
            continue
        place = "miss"
        if judge_failure(case, pages, 2):
            place = "second"
        misses.append(Miss(place, case, pages, case["first"]))
    lost = sum(miss.place == "miss" for miss in misses)
    alarms = [Miss("alarm", case, pages, []) for case in healthy if (pages := found[case["case"]])]
    print_share("failures: a right page first", len(failures) - len(misses), len(failures))
    print_share("failures: a right page among two", len(failures) - lost, len(failures))
    if healthy:
        print_share("healthy logs with a finding", len(alarms), len(healthy))
    return misses + alarms


def measure_metrics(cases: Sequence[Mapping[str, Any]], folder: Path) -> list[Miss]:
    """Print the figures of the metric files; return those that are not read right."""
    misses = []
    first = 0
    for case in cases:
        series = read_metric_file(case, folder)
        missing = [expected for expected in case["series"] if not judge_series(expected, series)]
        first += case["series"][0] not in missing
        if missing:
            got = [[line[key] for key in ("tag", "x", "points", "last")] for line in series]
            misses.append(Miss("metric", case, got, missing))
    print_share("metric files: every series right", len(cases) - len(misses), len(cases))
    print_share("metric files: the first series right", first, len(cases))
    return misses


def print_share(what: str, right: int, of: int) -> None:
    """Print one figure."""
    print(f"{what:42} {right:3d} of {of:3d}  {100 * right / of:5.1f} %")


def measure_later(folder: Path) -> list[Miss]:
    """Print the figures of the later sets; return the misses but those of the part kept back."""
    failures, healthy = read_cases("second/failures"), read_cases("second/healthy")
    misses = []
    for kept_back, title in ((False, "seen"), (True, "kept back")):
        print(f"second set, {title}")
        found = measure_logs(
            [case for case in failures if case["kept_back"] == kept_back],
            [case for case in healthy if case["kept_back"] == kept_back],
            folder,
        )
        if not kept_back:
            misses = found
    print("third set")
    return [*misses, *measure_logs(read_cases("third/failures"), (), folder)]


def read_half(kind: str, half: str) -> list[dict[str, Any]]:
    """Return the cases of one half of a set, ``seen`` or ``kept_back``; see `read_cases`."""
    return [case for case in read_cases(kind) if case["kept_back"] == (half == "kept_back")]


def measure_half(number: str, half: str, folder: Path) -> list[Miss]:
    """Print the figures of one half of the ``fourth`` or ``seventh`` set; return its misses."""
    failures, healthy = (read_half(f"{number}/{kind}", half) for kind in ("failures", "healthy"))
    return measure_logs(failures, healthy, folder)


def main() -> None:
    """Measure, and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--misses", action="store_true", help="list the cases that are not right")
    parser.add_argument("--later", action="store_true", help="measure the second and third set")
    parser.add_argument(
        "--fourth", choices=("seen", "kept_back"), help="measure half of the fourth"
    )
    parser.add_argument("--fifth", choices=("seen", "kept_back"), help="measure half of the fifth")
    parser.add_argument("--sixth", action="store_true", help="measure the sixth set")
    parser.add_argument(
        "--seventh", choices=("seen", "kept_back"), help="measure half of the seventh"
    )
    wanted = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if wanted.fourth:
            misses = measure_half("fourth", wanted.fourth, folder)
            misses += measure_metrics(read_half("fourth/metrics", wanted.fourth), folder)
        elif wanted.fifth:
            misses = measure_metrics(read_half("fifth/metrics", wanted.fifth), folder)
        elif wanted.sixth:
            misses = measure_metrics(read_cases("sixth/metrics"), folder)
        elif wanted.seventh:
            misses = measure_half("seventh", wanted.seventh, folder)
        elif wanted.later:
            misses = measure_later(folder)
        else:
            misses = measure_logs(read_cases("failures"), read_cases("healthy"), folder)
            misses += measure_metrics(read_cases("metrics"), folder)
    if wanted.misses:
        for miss in misses:
            print(f"{miss.place:6} {miss.case['case']} {miss.case['about']}")
            print(f"       found {miss.found}")
            print(f"       right {miss.expected}")


if __name__ == "__main__":
    main()
