"""Finds the rank that did not join a collective, from torch's flight recorder or ``ncclras``. Pure.

Each rank writes a dump (https://docs.pytorch.org/tutorials/unstable/flight_recorder_tutorial.html),
given here as plain values: complete from a file, or reduced by the agent to the relevant entries.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from rgt_tui.model import noun

# Steps of confidence; a person sees them as percent.
SURE, LIKELY, MAYBE = 0.95, 0.8, 0.5
MOST_NAMED = 6
# In all_to_all and send/recv the amounts may differ between ranks, so a difference proves nothing.
SAME_SIZES = frozenset(
    ("all_reduce", "allreduce", "broadcast", "reduce", "all_gather", "allgather",
     "_all_gather_base",
     "reduce_scatter", "_reduce_scatter_base", "allreduce_coalesced")
)  # fmt: skip
"""Collectives to which every rank contributes the same amount."""
_TO_ONE = re.compile(r"\b(send|recv) (\d{1,7})(?:->|<-)(\d{1,7})$")
_NO_COLLECTIVE = re.compile(r"\b(?:send|recv)\b")
# Headings of ncclras' text output, with or without the address of its communicator.
_HEADING = re.compile(r"(?:#\d+-\d+ \([0-9a-f]+\) )?(DEAD|INCOMPLETE|MISMATCH|NOCOMM|TIMEOUT)")
_COUNT = re.compile(
    r"\d+ ranks? (?:has|have) launched up to operation (\d+)|(\d+ ranks?) (?:has"
    r"|have) not launched any"
)
_ONE = re.compile(r"Rank (\d+) has launched up to operation (\d+)(?: -- (.*))?")
_LISTED = re.compile(r"Rank (\d+) -- (.*)")
_PROCESS = re.compile(r"Process (\d+) on node (\S+)(?: managing (GPUs? [\d,]+))?")
_MISSING = re.compile(r"The missing ranks?: ([\d, ]+)")
_DIFFERENT = re.compile(r"Communicator ranks have different (\w+) operation counts")
# ncclras distinguishes a process that answers late from one that it has given up.
_SILENT = {"DEAD": "is taken for dead", "INCOMPLETE": "does not answer"}


class CollectiveCall(NamedTuple):
    """A collective that a rank has reached."""

    name: str
    """As recorded, without the library: ``all_reduce``."""
    sizes: str
    dtypes: str
    done: bool
    where: str
    """The innermost line outside of torch, if recorded; else ""."""

    def __str__(self) -> str:
        if self.sizes:
            told = f"{self.name} of {self.sizes}"
        else:
            told = self.name
        return (
            told
            + (f" {self.dtypes}" if self.dtypes else "")
            + (f" at {self.where}" if self.where else "")
        )


class PeerMessage(NamedTuple):
    """A message between two ranks that is not sent or not received yet."""

    sends: bool
    """False if the rank is the receiver."""
    peer: int
    call: CollectiveCall

    def __str__(self) -> str:
        what = " ".join(word for word in (self.call.sizes, self.call.dtypes) if word) or "something"
        at = ""
        if self.call.where:
            at = f" at {self.call.where}"
        return (
            f"{'sends' if self.sends else 'waits for'} {what} {'to' if self.sends else 'from'} "
            f"rank {self.peer}{at}"
        )


class RankDump(NamedTuple):
    """The dump of one rank."""

    rank: int
    groups: Mapping[str, Mapping[int, CollectiveCall]]
    """Group → sequence number of the collective → the call."""
    members: frozenset[int]
    """The ranks of the job, if recorded."""
    messages: Mapping[str, Sequence[PeerMessage]] = {}
    """Group → pending messages, in program order."""


class CollectiveVerdict(NamedTuple):
    """What the dumps of some ranks show together."""

    text: str
    confidence: float
    ranks: tuple[int, ...] = ()
    """The ranks that the others wait for, or that differ from the majority; () = unknown."""


def dump_of(value: Any, rank: int) -> RankDump:
    """Parse a dump of the flight recorder.

    Args:
        value: The dump; on mappings only ``get`` is called.
        rank: Its rank, known from the file's name, not its content.

    Raises:
        ValueError: it is not such a dump.
    """
    # Duck-typed: a pickle of a dump is read into mappings of our own.
    entries = _get_key(value, "entries")
    if not isinstance(entries, list) or not isinstance(_get_key(value, "version"), str):
        raise ValueError("no dump of torch's flight recorder: it has no entries and version")
    groups: dict[str, dict[int, CollectiveCall]] = {}
    for entry in entries:
        number, name = _get_key(entry, "collective_seq_id"), _get_key(entry, "profiling_name")
        # type(), because True is an int; messages between two ranks have numbers of their own.
        if type(number) is not int or not isinstance(name, str) or _is_to_one(entry, name):
            continue
        groups.setdefault(_describe_group(entry), {})[number] = _read_call(entry, name)
    members = _read_group_members(_get_key(value, "pg_config"))
    return RankDump(
        rank,
        groups,
        # The largest group is the whole job.
        max(members.values(), key=len, default=frozenset()),
        _find_pending_messages(entries, members),
    )


def _is_to_one(entry: Any, name: str) -> bool:
    return _get_key(entry, "is_p2p") is True or _NO_COLLECTIVE.search(name) is not None


def _read_call(entry: Any, name: str) -> CollectiveCall:
    return CollectiveCall(
        name.partition(":")[2] or name,
        _join_sizes(_get_key(entry, "input_sizes")),
        _join_sizes(_get_key(entry, "input_dtypes")),
        # Versions of torch mark an end in one field or the other.
        bool(_get_key(entry, "retired")) or _get_key(entry, "state") == "completed",
        _find_source_line(_get_key(entry, "frames")),
    )


def _find_pending_messages(
    entries: Sequence[Any], members: Mapping[str, frozenset[int]]
) -> dict[str, list[PeerMessage]]:
    """Return the pending messages by group.

    Of messages sent together, only the following ``coalesced`` entry of the same number is marked
    as done.
    """
    through = {
        (_describe_group(entry), _get_key(entry, "p2p_seq_id"))
        for entry in entries
        # Messages of one batch are only closed together, see above.
        if str(_get_key(entry, "profiling_name")).endswith(":coalesced")
        and _read_call(entry, "").done
    }
    found: dict[str, list[PeerMessage]] = {}
    for entry in entries:
        number, name = _get_key(entry, "p2p_seq_id"), _get_key(entry, "profiling_name")
        if isinstance(name, str):
            told = _TO_ONE.search(name)
        else:
            told = None
        if (
            told is None
            or type(number) is not int
            or (_describe_group(entry), number) in through
            or _read_call(entry, name).done
        ):
            continue
        ranks = sorted(
            members.get(_group_name(entry)) or max(members.values(), key=len, default=frozenset())
        )
        peer = int(told[3])  # its index within the group
        call = _read_call(entry, name)
        rank = peer
        if peer < len(ranks):
            rank = ranks[peer]
        found.setdefault(_describe_group(entry), []).append(
            PeerMessage(told[1] == "send", rank, call)
        )
    return found


def compare_dumps(dumps: Sequence[RankDump]) -> list[CollectiveVerdict]:
    """Return what is wrong between the ranks, the surest first.

    [] = everything matches, and all collectives are done.
    """
    ranks = {dump.rank for dump in dumps}
    # A rank without a dump may be the one that all others wait for.
    missing = sorted(frozenset().union(*(dump.members for dump in dumps)) - ranks)
    names = dict.fromkeys(name for dump in dumps for name in dump.groups)
    found = [
        verdict
        for name in names
        for verdict in _of_group(
            name, {dump.rank: dump.groups[name] for dump in dumps if name in dump.groups}, missing
        )
    ]
    found += _of_messages(dumps)
    found.sort(key=lambda verdict: -verdict.confidence)
    if found and missing:
        first, *rest = found
        found = [
            first._replace(text=f"{first.text}; no dump of {describe_ranks(missing)} was given"),
            *rest,
        ]
    return found


def _of_group(
    name: str, calls: Mapping[int, Mapping[int, CollectiveCall]], missing: Sequence[int]
) -> Iterator[CollectiveVerdict]:
    # From the oldest on: the first disagreement explains those after it.
    for number in sorted(set().union(*calls.values())):
        here = {rank: mine[number] for rank, mine in calls.items() if number in mine}
        # Names first: ranks in different collectives have different sizes, too.
        for differ in (_call_name, _call_sizes, _call_dtypes):
            kinds: dict[str, list[int]] = {}
            for rank, call in here.items():
                kinds.setdefault(differ(call), []).append(rank)
            if len(kinds) > 1:
                told = ", ".join(
                    f"{describe_ranks(sorted(ranks))} {here[ranks[0]]}"
                    for ranks in sorted(kinds.values(), key=len)
                )
                # The odd ranks are the minority; with two equal halves, neither is.
                few, most = sorted(map(len, kinds.values()))[-2:]
                odd = [rank for ranks in kinds.values() if len(ranks) < most for rank in ranks]
                text = f"the ranks do not agree on collective {number} of {name}: {told}"
                named_ranks: tuple[int, ...] = ()
                if few < most:
                    named_ranks = tuple(sorted(odd))
                yield CollectiveVerdict(text, SURE, named_ranks)
                return
    last = {rank: max(mine) for rank, mine in calls.items()}
    lowest, highest = min(last.values()), max(last.values())
    # Ahead of the slowest rank and not done: only those hang.
    waiting = [
        rank for rank, mine in calls.items() if not mine[last[rank]].done and last[rank] > lowest
    ]
    if waiting:
        number = lowest + 1
        absent = sorted(rank for rank in last if last[rank] == lowest)
        there = next((mine[number] for mine in calls.values() if number in mine), None)
        certainty = MAYBE
        if len(calls) > 1:
            certainty = SURE
        yield CollectiveVerdict(
            f"{describe_ranks(absent)} did not come to collective {number} of {name}"
            + (f" ({there})" if there is not None else "")
            + f": the last there is {lowest}, and {describe_ranks(sorted(waiting))} "
            f"wait{'s' * (len(waiting) == 1)} in {_format_number_range(last, waiting)}",
            certainty,
            tuple(absent),
        )
    # All came, none got through: the fault is in the transport or in a rank without a dump.
    elif lowest == highest and not any(mine[lowest].done for mine in calls.values()):
        call = next(iter(calls.values()))[lowest]
        at = f"collective {lowest} of {name} ({call})"
        if len(calls) == 1:
            text = (
                f"rank {next(iter(calls))} waits in {at}: who is missing, the dumps of the "
                "other ranks say"
            )
            yield CollectiveVerdict(text, MAYBE)
        else:
            text = f"{describe_ranks(sorted(calls))} have all come to {at}, and none is through"
            text = f"{text}: a rank that is not here, the network, or a card"
            named_ranks = ()
            if len(missing) <= len(calls):
                named_ranks = tuple(missing)
            yield CollectiveVerdict(text, LIKELY, named_ranks)


def _of_messages(dumps: Sequence[RankDump]) -> Iterator[CollectiveVerdict]:
    """Report messages without a counterpart; of a chain of waiting ranks, the last is named."""
    held: dict[int, dict[int, str]] = {}
    by_rank = {dump.rank: dump for dump in dumps}
    for dump in dumps:
        for group, mine in dump.messages.items():
            for peer in dict.fromkeys(message.peer for message in mine):
                if peer not in by_rank:
                    held.setdefault(dump.rank, {})[peer] = str(
                        next(one for one in mine if one.peer == peer)
                    )
                    continue
                theirs = [
                    one for one in by_rank[peer].messages.get(group, ()) if one.peer == dump.rank
                ]
                # Sends are matched with the peer's receives in program order, which NCCL requires
                # to agree.
                for sends in (True, False):
                    ours = [one for one in mine if one.peer == peer and one.sends is sends]
                    other = [one for one in theirs if one.sends is not sends]
                    for one, two in zip(ours, other, strict=False):
                        if sends and (one.call.sizes, one.call.dtypes) != (
                            two.call.sizes,
                            two.call.dtypes,
                        ):
                            text = (
                                f"rank {dump.rank} {one}, and rank {peer} {two}: they are not "
                                "the same"
                            )
                            yield CollectiveVerdict(text, SURE, tuple(sorted((dump.rank, peer))))
                    if len(ours) > len(other):
                        held.setdefault(dump.rank, {})[peer] = str(ours[len(other)])
    if held:
        yield _end_of_chain(held, by_rank)


def _end_of_chain(
    held: Mapping[int, Mapping[int, str]], by_rank: Mapping[int, RankDump]
) -> CollectiveVerdict:
    """Return the rank at the end of the chain; `held` is rank → peer → pending message."""
    rank = min(held)
    seen = [rank]
    # Ends at a rank that waits for none, or when it comes round to one that was seen.
    while (peer := next(iter(held[rank]))) in held and peer not in seen:
        rank = peer
        seen.append(rank)
    told = f"rank {rank} {held[rank][peer]}"
    if peer in held:
        ring = seen[seen.index(peer) :]
        words = "; ".join(
            f"rank {one} {next(iter(held[one].values()))}" for one in ring[:MOST_NAMED]
        )
        return CollectiveVerdict(
            f"{describe_ranks(sorted(ring))} wait for each other: {words}", SURE
        )
    behind = sorted(set(held) - {rank})
    rest = ""
    if behind:
        rest = f"; {describe_ranks(behind)} wait{'s' * (len(behind) == 1)} as well"
    if peer not in by_rank:
        return CollectiveVerdict(f"{told}, which has no counterpart here{rest}", MAYBE, (peer,))
    return CollectiveVerdict(
        f"{told}, which {_describe_other_action(by_rank[peer])}{rest}", SURE, (peer,)
    )


def _describe_other_action(dump: RankDump) -> str:
    """Return what a rank does instead of its part of a message."""
    for group, mine in dump.groups.items():
        number = max(mine)
        if not mine[number].done:
            return (
                f"has no counterpart to it: it waits in collective {number} of {group} "
                f"({mine[number]})"
            )
    for messages in dump.messages.values():
        return f"has no counterpart to it: it {messages[0]}"
    return "has reached no counterpart of it"


def describe_ranks(ranks: Sequence[int]) -> str:
    """Return ``ranks 0, 1 and 5 more``."""
    more = ""
    if len(ranks) > MOST_NAMED:
        more = f" and {len(ranks) - MOST_NAMED} more"
    return f"{noun(len(ranks), 'rank')} {', '.join(map(str, ranks[:MOST_NAMED]))}{more}"


def _format_number_range(last: Mapping[int, int], ranks: Sequence[int]) -> str:
    found = sorted({last[rank] for rank in ranks})
    if len(found) == 1:
        return str(found[0])
    return f"{found[0]} to {found[-1]}"


def _call_name(call: CollectiveCall) -> str:
    return call.name


def _call_sizes(call: CollectiveCall) -> str:
    if call.name in SAME_SIZES:
        return call.sizes
    return ""


def _call_dtypes(call: CollectiveCall) -> str:
    if call.name in SAME_SIZES:
        return call.dtypes
    return ""


def _get_key(value: Any, key: str) -> Any:
    found = getattr(value, "get", None)
    if found is not None:
        return found(key)
    return None


def _read_group_name(entry: Any) -> tuple[str, str]:
    told = _get_key(entry, "process_group")
    if isinstance(told, (list, tuple)):
        words = [word for word in told if isinstance(word, str)]
    else:
        words = []
    name, what = (*words, "", "")[:2]
    return name, what


def _group_name(entry: Any) -> str:
    return _read_group_name(entry)[0]


def _describe_group(entry: Any) -> str:
    name, what = _read_group_name(entry)
    return f"group {name or '?'}" + (f" ({what})" if what not in ("", "undefined") else "")


def _join_sizes(value: Any) -> str:
    """Return sizes, or type names, as one text without outer brackets."""
    if not isinstance(value, (list, tuple)):
        return ""
    parts: list[str] = []
    for part in value[:MOST_NAMED]:
        if isinstance(part, str):
            parts.append(part)
        elif isinstance(part, (list, tuple)):
            sizes = ", ".join(str(size) for size in part if type(size) is int)
            parts.append(f"[{sizes}]")
    return ", ".join(dict.fromkeys(parts)) + (" …" if len(value) > MOST_NAMED else "")


def _find_source_line(frames: Any) -> str:
    for frame in frames if isinstance(frames, list) else ():
        file, line = _get_key(frame, "filename"), _get_key(frame, "line")
        if isinstance(file, str) and type(line) is int and "/torch/" not in file:
            return f"{file}:{line}"
    return ""


def _read_group_members(config: Any) -> dict[str, frozenset[int]]:
    """Return the ranks of the described groups, by name."""
    groups = config.items() if isinstance(config, Mapping) else getattr(config, "items", ())
    told = [(name, _get_key(group, "ranks")) for name, group in groups]
    return {
        name: frozenset(map(int, re.findall(r"\d{1,7}", text)))
        for name, text in told
        if isinstance(name, str) and isinstance(text, str)
    }


# Reports of NCCL's client ``ncclras`` about a job: ranks that do not answer, or lag behind. Pure.
#
# https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting/ras.html; as text since
# NCCL 2.24, as JSON since 2.28.7.


def is_ncclras(text: str) -> bool:
    """Return whether a text is the output of ``ncclras``, or its end."""
    return "Communicators" in text and ("Job summary" in text or "Ranks    Status" in text)


def of_ncclras(text: str) -> list[CollectiveVerdict]:
    """Return what ``ncclras`` output shows: processes that do not answer, ranks that lag behind."""
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
    return _judge_communicator(missing, lost, {what: counts})


def is_ras_json(value: Any) -> bool:
    """Return whether a value is the output of ``ncclras -f json``."""
    return (
        isinstance(value, Mapping)
        and isinstance(value.get("communicators"), list)
        and "nccl_version" in value
    )


def of_ras_json(value: Mapping[str, Any], *, twice: bool = False) -> list[CollectiveVerdict]:
    """Return what the output of ``ncclras -f json`` shows, like `of_ncclras` for text.

    Args:
        value: The output.
        twice: A second query has shown the same.
    """
    found: list[CollectiveVerdict] = []
    for group in value["communicators"]:
        lost: list[str] = []
        missing: list[int] = []
        counts: dict[str, dict[int, list[tuple[int, str]]]] = {}
        for one in _list_rank_rows(group, "missing_ranks"):
            status = one.get("status")
            dead = isinstance(status, Mapping) and status.get("considered_dead") is True
            lost.append(f"{_describe_process(one)} {_SILENT['DEAD' if dead else 'INCOMPLETE']}")
            missing.append(one["rank"])
        for one in _list_rank_rows(group, "ranks"):
            done = one.get("collective_counts")
            for what, count in done.items() if isinstance(done, Mapping) else ():
                if type(count) is int:
                    counts.setdefault(what, {}).setdefault(count, []).append(
                        (one["rank"], _describe_process(one))
                    )
        found += _judge_communicator(missing, lost, counts, twice=twice)
    return found


def _list_rank_rows(group: Any, key: str) -> list[Mapping[str, Any]]:
    if isinstance(group, Mapping):
        rows = group.get(key)
    else:
        rows = None
    if isinstance(rows, list):
        return [one for one in rows if isinstance(one, Mapping) and type(one.get("rank")) is int]
    return []


def _describe_process(one: Mapping[str, Any]) -> str:
    return f"process {one.get('pid')} on {one.get('host')} (GPU {one.get('nvml_dev')})"


def _judge_communicator(
    missing: Sequence[int],
    lost: Sequence[str],
    counts: Mapping[str, Mapping[int, Sequence[tuple[int, str]]]],
    *,
    twice: bool = False,
) -> list[CollectiveVerdict]:
    """Return the verdicts about one communicator.

    Args:
        missing: Missing ranks.
        lost: Descriptions of missing processes.
        counts: Operation → count → ranks with that count.
        twice: A second query has shown the same.
    """
    verdicts = []
    if lost or missing:
        ranks = sorted(set(missing))
        words = [*([describe_ranks(ranks)] if ranks else []), *lost[:MOST_NAMED]]
        verdicts.append(
            CollectiveVerdict("; ".join(words) + ": NCCL has no data of it", SURE, tuple(ranks))
        )
    for what, by_count in counts.items():
        if len(by_count) > 1:
            low, behind = min(by_count), by_count[min(by_count)]
            ranks = sorted(rank for rank, _ in behind)
            at = ""
            if behind and behind[0][1]:
                at = f" ({behind[0][1]})"
            if ranks:
                who = describe_ranks(ranks)
            else:
                who = "some ranks"
            text = f"{who}{at} came to {what} operation {low}, others to {max(by_count)}"
            # Counters of ranks that are only slow differ for a moment, too.
            text += "" if twice else ": a hang only if a second look shows the same numbers"
            certainty = MAYBE
            if twice:
                certainty = LIKELY
            verdicts.append(CollectiveVerdict(text, certainty, tuple(ranks)))
    return verdicts
