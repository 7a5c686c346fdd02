"""Reads from the bytecode of a loop which variables it carries on."""

from __future__ import annotations

import dis
import functools
import re
import types
from bisect import bisect_right
from typing import Any, NamedTuple, Sequence

_ACCESS = re.compile(r"(LOAD|STORE|DELETE)_(?:FAST|NAME|GLOBAL|DEREF|CLOSURE)(?!_AND_CLEAR)")
_JUMPS = ("JUMP_FORWARD", "JUMP_BACKWARD", "JUMP_ABSOLUTE", "JUMP_BACKWARD_NO_INTERRUPT", "JUMP")
_JUMP_CODES = frozenset((*dis.hasjrel, *dis.hasjabs))


def _list_accesses(step: dis.Instruction) -> list[tuple[str, str]]:
    """Return how an instruction accesses variables: (``LOAD``, ``STORE`` or ``DELETE``, name)."""
    names = step.argval
    if not isinstance(names, tuple):  # newer instructions access two variables
        names = (names,)
    return list(zip(_ACCESS.findall(step.opname), names))


@functools.lru_cache(maxsize=16)
def _list_steps(code: types.CodeType) -> Sequence[dis.Instruction]:
    return [*dis.get_instructions(code)]


@functools.lru_cache(maxsize=64)
def names_of_loop(code: types.CodeType, offset: int) -> set[str]:
    """Return the names that the innermost loop around the instruction at `offset` assigns."""
    steps = _list_steps(code)
    jumps = [
        (step.argval, step.offset)
        for step in steps
        if (step.opcode in dis.hasjrel or step.opcode in dis.hasjabs) and step.argval < step.offset
    ]
    start = max((first for first, last in jumps if first <= offset <= last), default=-1)
    end = max((last for first, last in jumps if first == start), default=-1)
    inside = [step for step in steps if start <= step.offset <= end]
    return {name for step in inside for kind, name in _list_accesses(step) if kind == "STORE"}


@functools.lru_cache(maxsize=64)
def counts_batches(code: types.CodeType, name: str) -> bool:
    """Return whether `code` calls ``next(name)`` as often as ``len`` or ``range`` says.

    It does not look for the end: by a default of ``next``, or by ``except StopIteration``.
    """
    names = {*code.co_names}
    if "StopIteration" in names or not {"len", "range"} & names:
        return False
    steps = [
        step for step in _list_steps(code) if step.opname not in ("PUSH_NULL", "PRECALL", "CACHE")
    ]
    for called, given, call in zip(steps, steps[1:], steps[2:]):
        reads = [read for kind, read in (*_list_accesses(called), *_list_accesses(given))]
        if reads == ["next", name] and call.opname.startswith("CALL") and call.argval == 1:
            return True
    return False


class _InstructionFlow(NamedTuple):
    """How the instructions of a code object pass variables on; sets of names as bits of a number.

    A long function has thousands of instructions, and each is looked at several times.
    """

    offsets: list[int]
    bits: dict[str, int]
    reads: list[int]
    writes: list[int]
    nexts: list[list[int]]
    leavers: list[int]
    """Number of each ``FOR_ITER``'s instruction after its loop, else -1."""
    by_loops: int
    """Names that are assigned by ``for`` alone."""


@functools.lru_cache(maxsize=16)
def _analyse_flow(code: types.CodeType) -> _InstructionFlow:
    steps = _list_steps(code)
    flow = _InstructionFlow([step.offset for step in steps], {}, [], [], [], [], 0)
    bits = flow.bits
    assigned = targets = 0
    by_loop = False
    for number, step in enumerate(steps):
        name_of_step = step.opname
        read = written = 0
        if name_of_step.startswith(("LOAD", "STORE", "DELETE")):
            for kind, name in _list_accesses(step):
                bit = bits.setdefault(name, 1 << len(bits))
                if kind != "LOAD":
                    written |= bit
                else:
                    read |= bit & ~written
        stores = written > 0 and "STORE" in name_of_step
        if stores and not by_loop:
            assigned |= written
        targets |= written
        is_loop = name_of_step == "FOR_ITER"
        by_loop = is_loop or (by_loop and (stores or name_of_step.startswith("UNPACK")))
        following = []
        leaver = -1
        if step.opcode in _JUMP_CODES:
            after = bisect_right(flow.offsets, step.argval) - 1
            if is_loop:
                leaver = after
            following.append(after)
        if name_of_step not in _JUMPS and not name_of_step.startswith(
            ("RETURN", "RAISE", "RERAISE")
        ):
            following.append(number + 1)
        flow.reads.append(read)
        flow.writes.append(written)
        flow.nexts.append([each for each in following if each < len(steps)])
        flow.leavers.append(leaver)
    return flow._replace(by_loops=targets & ~assigned)


@functools.lru_cache(maxsize=64)
def carried_names(code: types.CodeType, offset: int) -> set[str]:
    """Return the names that `code` may read after the instruction at `offset` before it assigns them.

    Those assigned by ``for`` alone are left out: their iterator says where it is.
    """
    flow = _analyse_flow(code)
    reads, writes = flow.reads, flow.writes
    at = bisect_right(flow.offsets, offset) - 1
    nexts = flow.nexts
    if flow.leavers[at] >= 0:  # of that loop the body alone, without the code after it
        nexts = [*nexts]
        nexts[at] = [each for each in nexts[at] if each != flow.leavers[at]]
    live = [0] * len(reads)
    # Backwards, until nothing changes: whether a name is read later depends on the following
    # instructions.
    changed = True
    while changed:
        changed = False
        for number in range(len(reads) - 1, -1, -1):
            after = 0
            for each in nexts[number]:
                after |= live[each]
            now = reads[number] | (after & ~writes[number])
            if now != live[number]:
                live[number] = now
                changed = True
    carried = 0
    for each in nexts[at]:
        carried |= live[each]
    carried &= ~flow.by_loops
    return {name for name, bit in flow.bits.items() if carried & bit and not name.startswith("__")}


def reads_first(function: Any, name: str) -> bool:
    """Return whether `function` reads the attribute `name` before it sets it."""
    code: Any = getattr(function, "__code__", "")
    for step in dis.get_instructions(code):
        if step.argval == name and step.opname.endswith("_ATTR"):
            return step.opname.startswith("LOAD")
    return False
