"""Reads from the code of a loop which variables it carries on, and which of them it only prints."""

from __future__ import annotations

import ast
import dis
import functools
import os
import re
import types
from bisect import bisect_right
from collections import Counter
from typing import Any, Iterable, Iterator, NamedTuple, Sequence

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


# Which variables of a loop reach nothing but the console: a relaunch prints another running mean,
# and trains the same. Read from the source, which is compared with the code that runs, so that an
# edited file, or a notebook's cell, gives no answer.

_DISPLAYS = frozenset(("set_description", "set_description_str", "set_postfix", "set_postfix_str"))
"""Methods of a progress bar."""
_FILLS = frozenset(("append", "appendleft", "extend", "add", "clear", "update"))
_FUNCTIONS = frozenset(
    ("abs", "float", "format", "int", "len", "max", "min", "repr", "round", "sorted", "str", "sum")
)
_METHODS = frozenset(
    (
        "exp",
        "format",
        "get",
        "item",
        "items",
        "join",
        "keys",
        "log",
        "mean",
        "median",
        "sqrt",
        "std",
        "tensor",
        "values",
    )
)
"""Functions and methods that only compute."""
_MAKERS = frozenset(("Counter", "deque", "dict", "float", "int", "list", "set", "str"))
_INSPECTING = frozenset(("eval", "exec", "globals", "locals", "vars"))


def is_only_printed(codes: Sequence[types.CodeType], name: str) -> bool:
    """Return whether nothing but the console depends on the variable `name`.

    Args:
        codes: All functions and modules that have a variable of this name; none says no.
        name: The variable, which they read and assign.
    """
    return bool(codes) and all(_is_only_printed_by(code, name) for code in codes)


@functools.lru_cache(maxsize=64)
def _is_only_printed_by(code: types.CodeType, name: str) -> bool:
    scope = _find_scope(code, local=name in code.co_varnames + code.co_cellvars)
    if scope is None:
        return False
    nodes = [*ast.walk(scope)]
    stored = {
        node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    }
    functions = {getattr(node, "name", "") for node in nodes if isinstance(node, ast.FunctionDef)}
    if "print" in stored | functions or any(
        isinstance(node, ast.Name) and node.id in _INSPECTING for node in nodes
    ):
        return False
    # A value that is changed in place may be the memory of a weight, unless it was made as a plain
    # one.
    printed = stored - (_filled_names(nodes) - _plain_names(nodes))
    while name in printed:
        used = {*_find_uses(scope.body, printed)} & printed
        if not used:
            return True
        printed -= used
    return False


def _find_scope(code: types.CodeType, *, local: bool) -> Any:
    """Return the syntax tree of the function or module whose code is `code`; None if unknown.

    Args:
        code: The code.
        local: Whether a variable of a function is local to it; else that of its module is returned.
    """
    parsed = _parse_file(code.co_filename)
    if parsed is None:
        return None
    tree, compiled = parsed
    same = (code.co_name, code.co_firstlineno, code.co_code)
    if (compiled.co_name, compiled.co_firstlineno, compiled.co_code) == same:
        return tree
    if not any(
        (each.co_name, each.co_firstlineno, each.co_code) == same for each in _inner_codes(compiled)
    ):
        return None
    if not local:
        return tree
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.name == code.co_name:
            lines = [node.lineno, *(decorator.lineno for decorator in node.decorator_list)]
            if code.co_firstlineno == min(lines):
                return node
    return None


@functools.lru_cache(maxsize=4)
def _parse_file(path: str) -> tuple[ast.Module, types.CodeType] | None:
    if not os.path.isfile(path):
        return None
    try:
        with open(path, "rb") as file:
            source = file.read()
        return ast.parse(source), compile(source, path, "exec", dont_inherit=True)
    except (OSError, SyntaxError, ValueError):
        return None


def _inner_codes(code: types.CodeType) -> Iterator[types.CodeType]:
    for each in code.co_consts:
        if isinstance(each, types.CodeType):
            yield each
            yield from _inner_codes(each)


def _find_uses(statements: Sequence[ast.stmt], printed: set[str]) -> Iterator[str]:
    """Yield the names that `statements` read for anything but the console and `printed` names."""
    for statement in statements:
        if _is_quiet(statement, printed):
            # without the body of an `if`, which is quiet as well
            yield from _reads_of_calls(statement, printed)
            continue
        for field in ast.iter_child_nodes(statement):
            if not isinstance(field, (ast.stmt, ast.ExceptHandler)):
                yield from _names_in(field)
        for _, value in ast.iter_fields(statement):
            if isinstance(value, list):
                for each in value:
                    if isinstance(each, ast.stmt):
                        yield from _find_uses([each], printed)
                    elif isinstance(getattr(each, "body", None), list):  # of an except or a case
                        yield from _find_uses(each.body, printed)
                        for inside in ast.iter_child_nodes(each):
                            if not isinstance(inside, ast.stmt):
                                yield from _names_in(inside)


def _is_quiet(statement: ast.stmt, printed: set[str]) -> bool:
    """Return whether a statement only prints, and changes `printed` names."""
    if isinstance(statement, ast.If):
        return all(_is_quiet(each, printed) for each in (*statement.body, *statement.orelse))
    if isinstance(statement, ast.Assign):
        targets = [node for target in statement.targets for node in _targets_in(target)]
    elif isinstance(statement, (ast.AugAssign, ast.AnnAssign)):
        targets = [*_targets_in(statement.target)]
    elif isinstance(statement, ast.Expr):
        return _is_display(statement.value, printed)
    else:
        return isinstance(statement, ast.Pass)
    return all(isinstance(node, ast.Name) and node.id in printed for node in targets)


def _targets_in(target: ast.expr) -> Iterator[ast.expr]:
    if isinstance(target, (ast.Tuple, ast.List)):
        for each in target.elts:
            yield from _targets_in(each)
    else:
        yield target


def _is_display(value: ast.expr, printed: set[str]) -> bool:
    if not isinstance(value, ast.Call):
        return isinstance(value, ast.Constant)  # a docstring
    called = value.func
    if isinstance(called, ast.Name):
        return called.id == "print" and not any(each.arg == "file" for each in value.keywords)
    if not isinstance(called, ast.Attribute):
        return False
    holder = called.value
    filled = isinstance(holder, ast.Name) and holder.id in printed and called.attr in _FILLS
    return filled or called.attr in _DISPLAYS or ast.dump(called) == _TQDM_WRITE


_TQDM_WRITE = ast.dump(ast.parse("tqdm.write", mode="eval").body)


def _reads_of_calls(statement: ast.stmt, printed: set[str]) -> Iterator[str]:
    """Yield the names in a quiet statement that a call may use for something else."""
    allowed = None
    if isinstance(statement, ast.Expr):
        allowed = statement.value
    for node in ast.walk(statement):
        if isinstance(node, ast.Call) and node is not allowed:
            quiet = isinstance(node.func, ast.Name) and node.func.id in _FUNCTIONS
            quiet = quiet or (isinstance(node.func, ast.Attribute) and node.func.attr in _METHODS)
            inside = isinstance(statement, ast.If) and _is_display(node, printed)
            if not quiet and not inside:
                yield from _names_in(node)
        elif isinstance(node, (ast.NamedExpr, ast.Lambda, ast.Await, ast.Yield, ast.YieldFrom)):
            yield from _names_in(statement)


def _names_in(node: ast.AST) -> Iterable[str]:
    """Return the names that are read in `node`."""
    return [
        each.id
        for each in ast.walk(node)
        if isinstance(each, ast.Name) and not isinstance(each.ctx, ast.Store)
    ]


def _is_constant(node: ast.expr) -> bool:
    """Return whether an expression makes a new plain value."""
    if isinstance(node, ast.Tuple):
        return all(map(_is_constant, node.elts))
    if isinstance(node, ast.UnaryOp):
        return _is_constant(node.operand)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        return node.func.id in _MAKERS
    return isinstance(node, (ast.List, ast.Dict, ast.Set, ast.Constant, ast.JoinedStr))


def _plain_names(nodes: Iterable[ast.AST]) -> set[str]:
    """Return the names to which only new plain values are assigned."""
    plain: Counter[str] = Counter()
    stored: Counter[str] = Counter()
    for node in nodes:
        if isinstance(node, ast.arg):
            stored[node.arg] += 1
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            stored[node.id] += 1
        elif isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
            plain[node.target.id] += 1
        elif isinstance(node, ast.Assign) and _is_constant(node.value):
            for target in node.targets:
                plain.update(each.id for each in _targets_in(target) if isinstance(each, ast.Name))
    return {name for name, count in stored.items() if plain[name] == count}


def _filled_names(nodes: Iterable[ast.AST]) -> set[str]:
    """Return the names whose values may be changed in place."""
    filled: set[str] = set()
    for node in nodes:
        holder: Any = None
        if isinstance(node, ast.AugAssign):
            holder = node.target
        elif isinstance(node, ast.Attribute) and node.attr in _FILLS:
            holder = node.value
        if isinstance(holder, ast.Name):
            filled.add(holder.id)
    return filled
