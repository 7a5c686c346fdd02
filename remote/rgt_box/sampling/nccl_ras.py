"""Query NCCL's client ``ncclras`` about a hung launch: twice, reported if nothing moved in between.

It runs only after all local ranks of the launch have waited for a while, and not again until they
move. If NCCL's counts have moved, the launch makes progress and is left alone, for a longer time
each time. The query runs in a resource-limited child process, because any local process could be
listening on NCCL's port. JSON output exists since NCCL 2.28.7
(https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting/ras.html).
"""

from __future__ import annotations

import os
import re
import time

from rgt_box import background, ownership, procstat
from rgt_box.confined_child import WALL, AnswerPending, ChildDied, ConfinedChild

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Mapping, Sequence

    from rgt_wire import JsonObject

PROGRAM = "ncclras"
STANDS_S, APART_S = 30.0, 10.0
"""Seconds that all ranks must wait before the first query, and seconds between two queries."""
REST, LONGEST_REST = 300.0, 3600.0
"""Seconds without queries after a failure or after the counts moved: initial value, and maximum
after doubling.
"""
ANSWER_S, TIMEOUT_S = 3, 6.0
"""Seconds that NCCL waits for its other processes, and that the program may take."""
MOST_GROUPS, MOST_RANKS, LONGEST = 8, 6, 100
MAPS = 4 << 20
_ADDRESS = re.compile(r"([A-Za-z0-9_.-]{1,100}|\[[0-9A-Fa-f:.]{2,60}\]):([0-9]{1,5})")


def ras_address_words(env: Mapping[str, str]) -> list[str] | None:
    """Return the arguments for the address where a process's NCCL listens.

    Return None if it is turned off.
    """
    if env.get("NCCL_RAS_ENABLE") == "0":
        return None
    found = _ADDRESS.fullmatch(env.get("NCCL_RAS_ADDR", ""))
    if found:
        return ["-h", found[1].strip("[]"), "-p", found[2]]
    return []


def new_child() -> ConfinedChild:
    """Return the child process that serves all launches."""
    made = ConfinedChild(__name__)
    made.patience = WALL + 1.0
    return made


class RasWatch:
    """Queries NCCL about one launch; use it in a separate thread."""

    def __init__(self, asked: ConfinedChild) -> None:
        self._child = asked
        self._first: tuple[float, Any] | None = None
        self._until = float("-inf")
        self._rest = REST
        self._told: JsonObject | None = None
        self._done = False

    def poll_stuck_launch(
        self, stood: float, ranks: Mapping[int, int], world: int, where: Sequence[str]
    ) -> JsonObject | None:
        """Return NCCL's reduced report on a launch, in its own format.

        Return None if there is nothing useful yet.

        Args:
            stood: Seconds that all local ranks have waited.
            ranks: Their pids → rank numbers.
            world: Total number of ranks.
            where: Arguments from `ras_address_words`.
        """
        now = time.monotonic()
        if stood < STANDS_S:
            self._first = None
            self._told = None
            self._done = False
            return None
        if (
            self._done
            or now < self._until
            or (self._first is not None and now - self._first[0] < APART_S)
        ):
            return self._told
        counts, told = self._query_nccl(ranks, world, where)
        if counts is None or (self._first is not None and counts != self._first[1]):
            # The counts moved, or there was no answer: do not disturb a launch that makes progress.
            self._first = None
            self._until = now + self._rest
            self._rest = min(LONGEST_REST, 2 * self._rest)
        elif self._first is None:
            self._first = (now, counts)
        else:
            self._told = told
            self._done = True
            self._rest = REST
        return self._told

    def _query_nccl(
        self, ranks: Mapping[int, int], world: int, where: Sequence[str]
    ) -> tuple[Any, JsonObject | None]:
        program = background.which(PROGRAM)
        if (
            program is None
            or not all(map(ownership.is_own_process, ranks))
            # The port may belong to another user's job; without NCCL here there is nothing to ask.
            or not any(map(has_nccl, ranks))
        ):
            return None, None
        if ownership.why_unsafe(os.path.dirname(os.path.realpath(program))):
            return None, None
        words = [program, "-f", "json", "-t", str(ANSWER_S), *where]
        pids = [[pid, rank] for pid, rank in sorted(ranks.items())]
        try:
            answer = self._child.request_answer(
                {
                    "words": words,
                    "seconds": TIMEOUT_S,
                    "pids": pids,
                    "world": world,
                    "at": time.monotonic(),
                }
            )
        except (AnswerPending, ChildDied, OSError):
            return None, None
        return answer["counts"], answer["told"]


def has_nccl(pid: int) -> bool:
    """Return whether a process has NCCL loaded."""
    return b"libnccl" in (procstat.read_whole("/proc/%d/maps" % pid, MAPS) or b"")


def answer(request: JsonObject) -> JsonObject:
    """Run the child's part of `RasWatch.poll_stuck_launch`."""
    import json

    try:
        text = background.try_program(request["words"], request["seconds"]) or ""
        # The program may print lines in front of its JSON.
        value = json.loads(text[text.index("{") :])
        told, counts = reduce_answer(value, dict(request["pids"]), request["world"])
    except Exception:  # no such option, no listener, or an invalid answer
        return {"counts": None, "told": None}
    return {"counts": counts, "told": told}


def reduce_answer(
    value: Any, pids: Mapping[int, int], world: int
) -> tuple[JsonObject | None, list[Any] | None]:
    """Return the conspicuous ranks of an answer, by number in the launch, and comparable counts.

    Communicators without any of these processes belong to another job and are ignored.
    """
    groups: list[JsonObject] = []
    counts: list[Any] = []
    for group in value["communicators"]:
        ranks = [_rank_row(one) for one in group["ranks"]]
        missing = [_rank_row(one) for one in group["missing_ranks"]]
        if not any(one["pid"] in pids for one in ranks):
            continue
        if group["size"] != world:
            if len({one["host"] for one in ranks + missing}) > 1:
                continue  # part of a job on several machines: its rank numbers are unknown
            ranks = [dict(one, rank=pids[one["pid"]]) for one in ranks if one["pid"] in pids]
            missing = [dict(one, rank=pids[one["pid"]]) for one in missing if one["pid"] in pids]
        counts.append([[one["rank"], one["collective_counts"]] for one in ranks])
        odd: dict[int, JsonObject] = {}
        for what in sorted({what for one in ranks for what in one["collective_counts"]}):
            done = [one["collective_counts"].get(what, 0) for one in ranks]
            # Ranks with fewer calls than the others are the ones that the others wait for.
            least = min(done)
            most = max(done)
            behind = [one for one, count in zip(ranks, done) if count == least]
            ahead = [one for one, count in zip(ranks, done) if count == most]
            if least < most:
                for one in behind[:MOST_RANKS] + ahead[:1]:
                    row = odd.setdefault(one["rank"], dict(one, collective_counts={}))
                    row["collective_counts"][what] = one["collective_counts"].get(what, 0)
        if odd or missing:
            groups.append(
                {
                    "size": group["size"],
                    "ranks": list(odd.values()),
                    "missing_ranks": missing[:MOST_RANKS],
                }
            )
    if not counts:
        return None, None
    found = {
        "nccl_version": str(value.get("nccl_version"))[:LONGEST],
        "communicators": groups[:MOST_GROUPS],
    }
    return (found if groups else None), counts


def _rank_row(one: JsonObject) -> JsonObject:
    status = one.get("status") or {}
    counts = one.get("collective_counts") or {}
    return {
        "rank": int(one["rank"]),
        "pid": int(one["pid"]),
        "host": str(one["host"])[:LONGEST],
        "nvml_dev": int(one["nvml_dev"]),
        "status": {"considered_dead": status.get("considered_dead") is True},
        "collective_counts": {
            str(what)[:LONGEST]: int(count) for what, count in list(counts.items())[:64]
        },
    }
