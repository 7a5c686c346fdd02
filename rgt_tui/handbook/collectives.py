"""Which rank did not come to which collective, from what the ranks have written down. Pure.

Two sources: the dumps of torch's flight recorder, one a rank
(https://docs.pytorch.org/tutorials/unstable/flight_recorder_tutorial.html), already read as plain values, and the text
of NCCL's own client ``ncclras`` (https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting/ras.html).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from rgt_tui.model.figures import noun

SURE, LIKELY, MAYBE = 0.95, 0.8, 0.5
MOST_NAMED = 6
SAME_SIZES = frozenset(
    ("all_reduce", "allreduce", "broadcast", "reduce", "all_gather", "allgather", "_all_gather_base",
     "reduce_scatter", "_reduce_scatter_base", "allreduce_coalesced")
)  # fmt: skip
"""Collectives to which every rank brings as much."""
_TO_ONE = re.compile(r"\b(?:send|recv)\b")


class Call(NamedTuple):
    """A collective that a rank has come to."""

    name: str
    """As the recorder writes it, without the library: ``all_reduce``."""
    sizes: str
    dtypes: str
    done: bool
    where: str
    """The innermost line that is not torch's own, where it was recorded; else ""."""

    def __str__(self) -> str:
        told = f"{self.name} of {self.sizes}" if self.sizes else self.name
        return told + (f" {self.dtypes}" if self.dtypes else "") + (f" at {self.where}" if self.where else "")


class RankDump(NamedTuple):
    """What one rank has written down: group → number of the collective in it → the call."""

    rank: int
    groups: Mapping[str, Mapping[int, Call]]
    members: frozenset[int]
    """The ranks of the job, where it says so."""


class Verdict(NamedTuple):
    """What the dumps of some ranks show together."""

    text: str
    confidence: float


def dump_of(value: Any, rank: int) -> RankDump:
    """Return what a dump of the flight recorder says.

    Args:
        value: It; of everything that has keys only ``get`` is called.
        rank: Which rank's it is: the file's name says it, its content does not.

    Raises:
        ValueError: It is no such dump.
    """
    entries = _get(value, "entries")
    if not isinstance(entries, list) or not isinstance(_get(value, "version"), str):
        raise ValueError("no dump of torch's flight recorder: it has no entries and version")
    groups: dict[str, dict[int, Call]] = {}
    for entry in entries:
        number, name = _get(entry, "collective_seq_id"), _get(entry, "profiling_name")
        if type(number) is not int or not isinstance(name, str) or _TO_ONE.search(name):
            continue
        groups.setdefault(_group(entry), {})[number] = Call(
            name.partition(":")[2] or name,
            _listed(_get(entry, "input_sizes")),
            _listed(_get(entry, "input_dtypes")),
            bool(_get(entry, "retired")) or _get(entry, "state") == "completed",
            _where(_get(entry, "frames")),
        )
    return RankDump(rank, groups, _members(_get(value, "pg_config")))


def compared(dumps: Sequence[RankDump]) -> list[Verdict]:
    """Return what is wrong between the ranks, group by group; [] = every collective is matched and through."""
    ranks = {dump.rank for dump in dumps}
    missing = sorted(frozenset().union(*(dump.members for dump in dumps)) - ranks)
    names = dict.fromkeys(name for dump in dumps for name in dump.groups)
    found = [
        verdict
        for name in names
        for verdict in _of_group(
            name, {dump.rank: dump.groups[name] for dump in dumps if name in dump.groups}
        )
    ]
    if found and missing:
        first, *rest = found
        found = [first._replace(text=f"{first.text}; no dump of {in_words(missing)} was given"), *rest]
    return found


def _of_group(name: str, calls: Mapping[int, Mapping[int, Call]]) -> Iterator[Verdict]:
    for number in sorted(set().union(*calls.values())):
        here = {rank: mine[number] for rank, mine in calls.items() if number in mine}
        for differ in (_names, _sizes, _dtypes):
            kinds: dict[str, list[int]] = {}
            for rank, call in here.items():
                kinds.setdefault(differ(call), []).append(rank)
            if len(kinds) > 1:
                told = ", ".join(
                    f"{in_words(sorted(ranks))} {here[ranks[0]]}" for ranks in sorted(kinds.values(), key=len)
                )
                yield Verdict(f"the ranks do not agree on collective {number} of {name}: {told}", SURE)
                return
    last = {rank: max(mine) for rank, mine in calls.items()}
    lowest, highest = min(last.values()), max(last.values())
    waiting = [rank for rank, mine in calls.items() if not mine[last[rank]].done and last[rank] > lowest]
    if waiting:
        number = lowest + 1
        absent = sorted(rank for rank in last if last[rank] == lowest)
        there = next((mine[number] for mine in calls.values() if number in mine), None)
        yield Verdict(
            f"{in_words(absent)} did not come to collective {number} of {name}"
            + (f" ({there})" if there is not None else "")
            + f": the last there is {lowest}; {in_words(sorted(waiting))} "
            f"wait{'s' * (len(waiting) == 1)} in {_numbers(last, waiting)}",
            SURE if len(calls) > 1 else MAYBE,
        )
    elif lowest == highest and not any(mine[lowest].done for mine in calls.values()):
        call = next(iter(calls.values()))[lowest]
        at = f"collective {lowest} of {name} ({call})"
        if len(calls) == 1:
            text = f"rank {next(iter(calls))} waits in {at}: who is missing, the dumps of the other ranks say"
            yield Verdict(text, MAYBE)
        else:
            text = f"{in_words(sorted(calls))} have all come to {at}, and none is through"
            yield Verdict(f"{text}: a rank that is not here, the network, or a card", LIKELY)


def in_words(ranks: Sequence[int]) -> str:
    """Return ``ranks 0, 1 and 5 more``."""
    more = f" and {len(ranks) - MOST_NAMED} more" if len(ranks) > MOST_NAMED else ""
    return f"{noun(len(ranks), 'rank')} {', '.join(map(str, ranks[:MOST_NAMED]))}{more}"


def _numbers(last: Mapping[int, int], ranks: Sequence[int]) -> str:
    found = sorted({last[rank] for rank in ranks})
    return str(found[0]) if len(found) == 1 else f"{found[0]} to {found[-1]}"


def _names(call: Call) -> str:
    return call.name


def _sizes(call: Call) -> str:
    return call.sizes if call.name in SAME_SIZES else ""


def _dtypes(call: Call) -> str:
    return call.dtypes if call.name in SAME_SIZES else ""


def _get(value: Any, key: str) -> Any:
    found = getattr(value, "get", None)
    return found(key) if found is not None else None


def _group(entry: Any) -> str:
    told = _get(entry, "process_group")
    words = [word for word in told if isinstance(word, str)] if isinstance(told, (list, tuple)) else []
    name, what = (*words, "", "")[:2]
    return f"group {name or '?'}" + (f" ({what})" if what not in ("", "undefined") else "")


def _listed(value: Any) -> str:
    """Return sizes, or names of types, as one text; one of a single entry without its brackets."""
    if not isinstance(value, (list, tuple)):
        return ""
    parts = [
        "[" + ", ".join(str(size) for size in part if type(size) is int) + "]"
        if isinstance(part, (list, tuple))
        else part
        for part in value[:MOST_NAMED]
        if isinstance(part, (list, tuple, str))
    ]
    return ", ".join(dict.fromkeys(parts)) + (" …" if len(value) > MOST_NAMED else "")


def _where(frames: Any) -> str:
    for frame in frames if isinstance(frames, list) else ():
        file, line = _get(frame, "filename"), _get(frame, "line")
        if isinstance(file, str) and type(line) is int and "/torch/" not in file:
            return f"{file}:{line}"
    return ""


def _members(config: Any) -> frozenset[int]:
    """Return the ranks of the largest group that is described."""
    groups = (
        config.values() if isinstance(config, Mapping) else [one for _, one in getattr(config, "items", ())]
    )
    told = [_get(group, "ranks") for group in groups]
    found = [frozenset(map(int, re.findall(r"\d{1,7}", text))) for text in told if isinstance(text, str)]
    return max(found, key=len, default=frozenset())


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
    missing: list[str] = []
    counts: dict[int, list[tuple[int, str]]] = {}
    last = -1
    for line in map(str.strip, text.splitlines()):
        if found := _HEADING.fullmatch(line):
            heading, last = found[1], -1
        elif (found := _PROCESS.fullmatch(line)) and heading in _SILENT:
            card = f" ({found[3]})" if found[3] else ""
            lost.append(f"process {found[1]} on {found[2]}{card} {_SILENT[heading]}")
        elif found := _MISSING.fullmatch(line):
            missing += re.findall(r"\d+", found[1])
        elif found := _DIFFERENT.fullmatch(line):
            what = found[1]
        elif found := _COUNT.match(line):
            last = int(found[1] or 0)
            counts.setdefault(last, [])
        elif found := _ONE.fullmatch(line):
            counts.setdefault(int(found[2]), []).append((int(found[1]), found[3] or ""))
        elif (found := _LISTED.fullmatch(line)) and last in counts:
            counts[last].append((int(found[1]), found[2]))
    verdicts = []
    if lost or missing:
        ranks = [in_words(sorted(set(map(int, missing))))] if missing else []
        verdicts.append(Verdict("; ".join([*ranks, *lost[:MOST_NAMED]]) + ": NCCL has no data of it", SURE))
    if len(counts) > 1:
        low, behind = min(counts), counts[min(counts)]
        who = in_words([rank for rank, _ in behind]) if behind else "some ranks"
        at = f" ({behind[0][1]})" if behind and behind[0][1] else ""
        text = f"{who}{at} came to {what} operation {low}, others to {max(counts)}"
        verdicts.append(Verdict(f"{text}: a hang only if a second look shows the same numbers", MAYBE))
    return verdicts
