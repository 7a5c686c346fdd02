"""Reads from the bytecode of a loop which variables it carries from one step to the next."""

from __future__ import annotations

import dis
import functools
import re
import types
from bisect import bisect_right
from typing import Sequence

_ACCESS = re.compile(r"(LOAD|STORE|DELETE)_(?:FAST|NAME|GLOBAL|DEREF|CLOSURE)(?!_AND_CLEAR)")
_JUMPS = ("JUMP_FORWARD", "JUMP_BACKWARD", "JUMP_ABSOLUTE", "JUMP_BACKWARD_NO_INTERRUPT", "JUMP")


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


@functools.lru_cache(maxsize=64)
def carried_names(code: types.CodeType, offset: int) -> set[str]:
    """Return the names that `code` may read after the instruction at `offset` before it assigns them.

    Those assigned by ``for`` alone are left out: their iterator says where it is.
    """
    steps = _list_steps(code)
    offsets = [step.offset for step in steps]
    at = bisect_right(offsets, offset) - 1
    bits: dict[str, int] = {}  # sets of names as numbers: a long function has thousands of them
    reads: list[int] = []
    writes: list[int] = []
    nexts: list[list[int]] = []
    assigned = 0
    by_loop = False
    for number, step in enumerate(steps):
        read = written = 0
        for kind, name in _list_accesses(step):
            bit = bits.setdefault(name, 1 << len(bits))
            if kind != "LOAD":
                written |= bit
            else:
                read |= bit & ~written
        stores = "STORE" in step.opname and written > 0
        if stores and not by_loop:
            assigned |= written
        by_loop = step.opname == "FOR_ITER" or (
            by_loop and (stores or step.opname.startswith("UNPACK"))
        )
        following = []
        is_loop = step.opname == "FOR_ITER" and number == at
        jumps = step.opcode in dis.hasjrel or step.opcode in dis.hasjabs
        if jumps and not is_loop:  # of that loop the body alone, without the code after it
            following.append(bisect_right(offsets, step.argval) - 1)
        if step.opname not in _JUMPS and not step.opname.startswith(("RETURN", "RAISE", "RERAISE")):
            following.append(number + 1)
        reads.append(read)
        writes.append(written)
        nexts.append([each for each in following if each < len(steps)])
    live = [0] * len(steps)
    # Backwards, until nothing changes: whether a name is read later depends on the following
    # instructions.
    changed = True
    while changed:
        changed = False
        for number in reversed(range(len(steps))):
            after = 0
            for each in nexts[number]:
                after |= live[each]
            now = reads[number] | (after & ~writes[number])
            if now != live[number]:
                live[number], changed = now, True
    carried = targets = 0
    for each in nexts[at]:
        carried |= live[each]
    for written in writes:
        targets |= written
    carried &= ~(targets & ~assigned)
    return {name for name, bit in bits.items() if carried & bit and not name.startswith("__")}
