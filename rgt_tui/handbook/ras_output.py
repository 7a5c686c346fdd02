"""What NCCL's client ``ncclras`` reports of a job: ranks that do not answer, or lag behind the others. Pure.

https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting/ras.html; as text since NCCL 2.24, as JSON
since 2.28.7.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from rgt_tui.handbook.collectives import LIKELY, MAYBE, MOST_NAMED, SURE, Verdict, in_words

_HEADING = re.compile(r"(?:#\d+-\d+ \([0-9a-f]+\) )?(DEAD|INCOMPLETE|MISMATCH|NOCOMM|TIMEOUT)")
_COUNT = re.compile(
    r"\d+ ranks? (?:has|have) launched up to operation (\d+)|(\d+ ranks?) (?:has|have) not launched any"
)
_ONE = re.compile(r"Rank (\d+) has launched up to operation (\d+)(?: -- (.*))?")
_LISTED = re.compile(r"Rank (\d+) -- (.*)")
_PROCESS = re.compile(r"Process (\d+) on node (\S+)(?: managing (GPUs? [\d,]+))?")
_MISSING = re.compile(r"The missing ranks?: ([\d, ]+)")
_DIFFERENT = re.compile(r"Communicator ranks have different (\w+) operation counts")
_SILENT = {"DEAD": "is taken for dead", "INCOMPLETE": "does not answer"}


def is_ncclras(text: str) -> bool:
    """Tell whether a text is the output of ``ncclras``, or of its end."""
    return "Communicators" in text and ("Job summary" in text or "Ranks    Status" in text)


def of_ncclras(text: str) -> list[Verdict]:
    """Return what the output of ``ncclras`` shows: processes that do not answer, ranks that are behind the others."""
    heading, what = "", ""
    lost: list[str] = []
    missing: list[int] = []
    counts: dict[int, list[tuple[int, str]]] = {}
    last = -1
    for line in map(str.strip, text.splitlines()):
        if found := _HEADING.fullmatch(line):
            heading, last = found[1], -1
        elif (found := _PROCESS.fullmatch(line)) and heading in _SILENT:
            card = f" ({found[3]})" if found[3] else ""
            lost.append(f"process {found[1]} on {found[2]}{card} {_SILENT[heading]}")
        elif found := _MISSING.fullmatch(line):
            missing += map(int, re.findall(r"\d+", found[1]))
        elif found := _DIFFERENT.fullmatch(line):
            what = found[1]
        elif found := _COUNT.match(line):
            last = int(found[1] or 0)
            counts.setdefault(last, [])
        elif found := _ONE.fullmatch(line):
            counts.setdefault(int(found[2]), []).append((int(found[1]), found[3] or ""))
        elif (found := _LISTED.fullmatch(line)) and last in counts:
            counts[last].append((int(found[1]), found[2]))
    return _verdicts(missing, lost, {what: counts})


def is_ras_json(value: Any) -> bool:
    """Tell whether a value is what ``ncclras -f json`` has written."""
    return (
        isinstance(value, Mapping)
        and isinstance(value.get("communicators"), list)
        and "nccl_version" in value
    )


def of_ras_json(value: Mapping[str, Any], *, twice: bool = False) -> list[Verdict]:
    """Return what the output of ``ncclras -f json`` shows, as `of_ncclras` does of its text.

    Args:
        value: It.
        twice: A second look has shown the same.
    """
    found: list[Verdict] = []
    for group in value["communicators"]:
        lost: list[str] = []
        missing: list[int] = []
        counts: dict[str, dict[int, list[tuple[int, str]]]] = {}
        for one in _rows(group, "missing_ranks"):
            status = one.get("status")
            dead = isinstance(status, Mapping) and status.get("considered_dead") is True
            lost.append(f"{_process(one)} {_SILENT['DEAD' if dead else 'INCOMPLETE']}")
            missing.append(one["rank"])
        for one in _rows(group, "ranks"):
            done = one.get("collective_counts")
            for what, count in done.items() if isinstance(done, Mapping) else ():
                if type(count) is int:
                    counts.setdefault(what, {}).setdefault(count, []).append((one["rank"], _process(one)))
        found += _verdicts(missing, lost, counts, twice=twice)
    return found


def _rows(group: Any, key: str) -> list[Mapping[str, Any]]:
    rows = group.get(key) if isinstance(group, Mapping) else None
    return (
        [one for one in rows if isinstance(one, Mapping) and type(one.get("rank")) is int]
        if isinstance(rows, list)
        else []
    )


def _process(one: Mapping[str, Any]) -> str:
    return f"process {one.get('pid')} on {one.get('host')} (GPU {one.get('nvml_dev')})"


def _verdicts(
    missing: Sequence[int],
    lost: Sequence[str],
    counts: Mapping[str, Mapping[int, Sequence[tuple[int, str]]]],
    *,
    twice: bool = False,
) -> list[Verdict]:
    """Return what is told of one communicator: ranks and processes that are not there; operation → count → who."""
    verdicts = []
    if lost or missing:
        ranks = sorted(set(missing))
        words = [*([in_words(ranks)] if ranks else []), *lost[:MOST_NAMED]]
        verdicts.append(Verdict("; ".join(words) + ": NCCL has no data of it", SURE, tuple(ranks)))
    for what, by_count in counts.items():
        if len(by_count) > 1:
            low, behind = min(by_count), by_count[min(by_count)]
            ranks = sorted(rank for rank, _ in behind)
            at = f" ({behind[0][1]})" if behind and behind[0][1] else ""
            who = in_words(ranks) if ranks else "some ranks"
            text = f"{who}{at} came to {what} operation {low}, others to {max(by_count)}"
            text += "" if twice else ": a hang only if a second look shows the same numbers"
            verdicts.append(Verdict(text, LIKELY if twice else MAYBE, tuple(ranks)))
    return verdicts
