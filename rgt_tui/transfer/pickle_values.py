"""Reads the values in a pickle without running it: no name is imported, nothing is called or built.

The opcodes are decoded by `pickletools`, which executes nothing; a small stack machine keeps the
values. Lists, texts and numbers become themselves, a class or function becomes its name, and a call
becomes a record of the call. Nested values are never compared, hashed or printed, so neither a
million levels nor a value that contains itself a million times costs more than its bytes.
"""

from __future__ import annotations

import pickletools
from collections.abc import Callable, Collection
from io import BytesIO
from typing import Any, NamedTuple

from rgt_tui.transfer.file_stretch import FileRefused
from rgt_tui.transfer.safe_names import ATTRIBUTE, OWNERS_OF_ATTRIBUTES, has_side_effects

MOST_BYTES = 256 << 20
"""Maximum size: a checkpoint's pickle has names and numbers, with its tensors stored outside."""


_PYTHON_2 = {"__builtin__": "builtins", "copy_reg": "copyreg"}
"""Up to protocol 2, pickles use the module names of Python 2."""


class BeyondCheckpoint(FileRefused):
    """A pickle names, or does, something that no checkpoint needs; it may still be undamaged."""


class PickleName(NamedTuple):
    """A class or function that a pickle names."""

    module: str
    name: str

    def __str__(self) -> str:
        return f"{self.module}.{self.name}"


class MadeObject:
    """The object that calling `what` with `arguments` and setting `state` would make."""

    __slots__ = ("arguments", "items", "state", "what")

    def __init__(self, what: PickleName, arguments: tuple[Any, ...]) -> None:
        self.what = what
        self.arguments = arguments
        self.state: Any = None
        self.items: list[tuple[Any, Any]] = []
        """Items that were set on it, as for a dictionary; for a list, values with the key None."""


class PairList:
    """A dictionary: keys and values, without hashing."""

    __slots__ = ("items",)

    def __init__(self) -> None:
        self.items: list[tuple[Any, Any]] = []

    def get(self, key: str) -> Any:
        """Return the last value of a text key, as a dictionary would; None = missing."""
        found = None
        for name, value in self.items:
            if isinstance(name, str) and name == key:
                found = value
        return found


class StorageReference(NamedTuple):
    """The reference of a pickle to a tensor's storage."""

    said: tuple[Any, ...]


class PickleContents(NamedTuple):
    """The content of one pickle."""

    value: Any
    names: frozenset[PickleName]
    stored: tuple[StorageReference, ...]
    made: tuple[MadeObject, ...]
    end: int
    """Its end offset in the file."""
    protocol: int


def read_pickle(file: BytesIO, allowed: Collection[tuple[str, str]]) -> PickleContents:
    """Return the values of the pickle at the current position of `file`.

    Args:
        file: The file; afterwards it is positioned after the pickle.
        allowed: Modules and names that the pickle may name.

    Raises:
        Beyond: it names anything else, or uses an opcode that no checkpoint has.
        FileRefused: it is damaged.
    """
    machine = _PickleMachine(allowed)
    try:
        # It yields up to STOP, so `file` then is at the next pickle.
        for opcode, argument, _ in pickletools.genops(file):
            step = _STEPS.get(opcode.name)
            if step is None:
                raise BeyondCheckpoint(
                    f"its pickle has the opcode {opcode.name}, which no checkpoint needs"
                )
            step(machine, argument)
    # Before the general one, which would call a refusal damage.
    except FileRefused:
        raise
    except MemoryError:
        raise FileRefused("its pickle needs more memory than a checkpoint's may") from None
    except Exception as error:  # a damaged pickle can raise anything
        raise FileRefused(
            f"its pickle is damaged: {type(error).__name__}: {str(error)[:120]}"
        ) from None
    if len(machine.stack) != 1 or machine.marks:
        raise FileRefused("its pickle is damaged: extra data at its end")
    return PickleContents(
        machine.stack[0],
        frozenset(machine.names),
        tuple(machine.stored),
        tuple(machine.made),
        file.tell(),
        machine.protocol,
    )


def skip_pickle(file: BytesIO) -> None:
    """Move `file` past the pickle at its current position, with any objects in it.

    Raises:
        FileRefused: it is damaged, or cut off, or loading it would run something.
    """
    texts: list[Any] = []
    """The values pushed last: the name of a class or function consists of two texts."""
    memo: dict[int, Any] = {}
    try:
        for opcode, said, _ in pickletools.genops(file):
            argument: Any = said
            # Names also come from the memo: without it, a dangerous one could hide there.
            if opcode.name in ("MEMOIZE", "BINPUT", "LONG_BINPUT", "PUT"):
                if texts:
                    memo[len(memo) if argument is None else int(argument)] = texts[-1]
                else:
                    memo[len(memo) if argument is None else int(argument)] = None
                continue
            if opcode.name in ("BINGET", "LONG_BINGET", "GET"):
                argument = memo.get(int(argument))
            if opcode.name in ("GLOBAL", "INST"):
                named = argument.split(" ", 1)
            else:
                named = texts[-2:]
            if opcode.name in ("GLOBAL", "INST", "STACK_GLOBAL") and all(
                type(one) is str for one in named
            ):
                module, name = _PYTHON_2.get(named[0], named[0]), named[-1]
                if has_side_effects(module, name):
                    raise FileRefused(
                        f"its pickle names {module}.{name}: loading it would run that"
                    )
            # Two suffice, and a pickle may have millions of opcodes.
            texts = [*texts[-1:], argument]
    except FileRefused:
        raise
    except Exception as error:  # a damaged pickle can raise anything
        raise FileRefused(
            f"its pickle is damaged: {type(error).__name__}: {str(error)[:120]}"
        ) from None


class _PickleMachine:
    """The stack of a pickle that is inspected, not executed."""

    def __init__(self, allowed: Collection[tuple[str, str]]) -> None:
        self.allowed = allowed
        self.stack: list[Any] = []
        self.marks: list[list[Any]] = []
        self.memo: dict[int, Any] = {}
        self.names: dict[PickleName, None] = {}
        self.stored: list[StorageReference] = []
        self.made: list[MadeObject] = []
        self.protocol = 0

    def push_value(self, value: Any) -> None:
        self.stack.append(value)

    def push_name(self, module: Any, name: Any) -> None:
        if type(module) is not str or type(name) is not str:
            raise FileRefused("its pickle makes up the name of what it calls")
        # Before the comparison: `__builtin__.eval` is `builtins.eval`.
        module = _PYTHON_2.get(module, module)
        if (module, name) not in self.allowed:
            if has_side_effects(module, name):
                kind = FileRefused
            else:
                kind = BeyondCheckpoint
            raise kind(f"its pickle names {module}.{name}: loading it would run that")
        found = PickleName(module, name)
        self.names[found] = None
        self.push_value(found)

    def since_mark(self) -> list[Any]:
        found = self.stack
        self.stack = self.marks.pop()
        return found

    def push_call(self, what: Any, arguments: Any) -> None:
        if type(what) is not PickleName or type(arguments) is not tuple:
            raise FileRefused(
                "its pickle calls what is not a class or function of the allowed ones"
            )
        # getattr on a class that is listed would otherwise reach anything through its attributes.
        if what == ATTRIBUTE and not (
            len(arguments) == 2
            and type(arguments[0]) is PickleName
            and arguments[0] in OWNERS_OF_ATTRIBUTES
            and type(arguments[1]) is str
            and arguments[1].isidentifier()
            and not arguments[1].startswith("__")
        ):
            raise FileRefused("its pickle asks for an attribute of something that is not an enum")
        made = MadeObject(what, arguments)
        self.made.append(made)
        self.push_value(made)

    def set_object_state(self) -> None:
        state = self.stack.pop()
        target = self.stack[-1]
        if type(target) is not MadeObject:
            raise FileRefused("its pickle sets the state of something that it did not make")
        target.state = state

    def set_items(self, pairs: list[tuple[Any, Any]]) -> None:
        target = self.stack[-1]
        if type(target) is not MadeObject and type(target) is not PairList:
            raise FileRefused("its pickle sets items of what is not a dictionary")
        target.items.extend(pairs)

    def append_values(self, values: list[Any]) -> None:
        target = self.stack[-1]
        if type(target) is list:
            target.extend(values)
        elif type(target) is MadeObject:
            target.items.extend((None, value) for value in values)
        else:
            raise FileRefused("its pickle appends to what is not a list")

    def push_storage(self) -> None:
        said = self.stack.pop()
        if type(said) is not tuple or not said or said[0] != "storage":
            raise FileRefused("its pickle refers to something other than a tensor's storage")
        found = StorageReference(said)
        self.stored.append(found)
        self.push_value(found)


def _two_by_two(values: list[Any]) -> list[tuple[Any, Any]]:
    if len(values) % 2:
        raise FileRefused("its pickle is damaged: a key without a value")
    return list(zip(values[::2], values[1::2], strict=True))


def _set_item(machine: _PickleMachine, _: Any) -> None:
    value, key = machine.stack.pop(), machine.stack.pop()
    machine.set_items([(key, value)])


def _append_one(machine: _PickleMachine, _: Any) -> None:
    value = machine.stack.pop()
    machine.append_values([value])


def _reduce_call(machine: _PickleMachine, _: Any) -> None:
    arguments, what = machine.stack.pop(), machine.stack.pop()
    machine.push_call(what, arguments)


def _call_with_names(machine: _PickleMachine, _: Any) -> None:
    named, arguments, what = machine.stack.pop(), machine.stack.pop(), machine.stack.pop()
    if type(named) is not PairList:
        raise FileRefused("its pickle is damaged: named arguments that are not a dictionary")
    machine.push_call(what, arguments)


def _push_global(machine: _PickleMachine, argument: str) -> None:
    machine.push_name(*argument.split(" ", 1))


def _named_on_stack(machine: _PickleMachine, _: Any) -> None:
    name, module = machine.stack.pop(), machine.stack.pop()
    machine.push_name(module, name)


def _push_mark(machine: _PickleMachine, _: Any) -> None:
    machine.marks.append(machine.stack)
    machine.stack = []


def _tuple_of(count: int) -> Callable[[_PickleMachine, Any], None]:
    def make_tuple(machine: _PickleMachine, _: Any) -> None:
        if len(machine.stack) < count:
            raise FileRefused("its pickle is damaged: a tuple of missing values")
        # A slice longer than the stack would silently be shorter, hence the test.
        machine.stack[-count:] = [tuple(machine.stack[-count:])]

    return make_tuple


def _note_protocol(machine: _PickleMachine, argument: int) -> None:
    machine.protocol = max(machine.protocol, argument)


def _pop_mark(machine: _PickleMachine, _: Any) -> None:
    machine.since_mark()


def _pairs_since_mark(machine: _PickleMachine, _: Any) -> None:
    found = PairList()
    found.items = _two_by_two(machine.since_mark())
    machine.push_value(found)


def _memoize(machine: _PickleMachine, index: int | None) -> None:
    machine.memo[len(machine.memo) if index is None else index] = machine.stack[-1]


_STEPS: dict[str, Callable[[_PickleMachine, Any], None]] = {
    **dict.fromkeys(("FRAME", "STOP"), lambda machine, argument: None),
    "PROTO": _note_protocol,
    **dict.fromkeys(
        (
            "BININT", "BININT1", "BININT2", "LONG1", "LONG4", "BINFLOAT", "BINUNICODE",
            "SHORT_BINUNICODE",
            "BINUNICODE8", "BINSTRING", "SHORT_BINSTRING", "BINBYTES", "SHORT_BINBYTES",
            "BINBYTES8", "BYTEARRAY8",
        ),
        _PickleMachine.push_value,
    ),
    "NONE": lambda machine, _: machine.push_value(None),
    "NEWTRUE": lambda machine, _: machine.push_value(True),
    "NEWFALSE": lambda machine, _: machine.push_value(False),
    "EMPTY_DICT": lambda machine, _: machine.push_value(PairList()),
    "EMPTY_LIST": lambda machine, _: machine.push_value([]),
    # Lists for sets, because values are never hashed here.
    "EMPTY_SET": lambda machine, _: machine.push_value([]),
    "EMPTY_TUPLE": lambda machine, _: machine.push_value(()),
    "TUPLE": lambda machine, _: machine.push_value(tuple(machine.since_mark())),
    "TUPLE1": _tuple_of(1),
    "TUPLE2": _tuple_of(2),
    "TUPLE3": _tuple_of(3),
    "LIST": lambda machine, _: machine.push_value(machine.since_mark()),
    "FROZENSET": lambda machine, _: machine.push_value(machine.since_mark()),
    "DICT": _pairs_since_mark,
    "MARK": _push_mark,
    "POP": lambda machine, _: machine.stack.pop(),
    "POP_MARK": _pop_mark,
    "DUP": lambda machine, _: machine.push_value(machine.stack[-1]),
    "APPEND": _append_one,
    "APPENDS": lambda machine, _: machine.append_values(machine.since_mark()),
    "ADDITEMS": lambda machine, _: machine.append_values(machine.since_mark()),
    "SETITEM": _set_item,
    "SETITEMS": lambda machine, _: machine.set_items(_two_by_two(machine.since_mark())),
    "BINPUT": _memoize,
    "LONG_BINPUT": _memoize,
    "MEMOIZE": _memoize,
    "BINGET": lambda machine, index: machine.push_value(machine.memo[index]),
    "LONG_BINGET": lambda machine, index: machine.push_value(machine.memo[index]),
    "GLOBAL": _push_global,
    "STACK_GLOBAL": _named_on_stack,
    "REDUCE": _reduce_call,
    # To make an object and to call a function is one thing here: neither is done.
    "NEWOBJ": _reduce_call,
    "NEWOBJ_EX": _call_with_names,
    "BUILD": lambda machine, _: machine.set_object_state(),
    "BINPERSID": lambda machine, _: machine.push_storage(),
}  # fmt: skip
"""Opcodes that a checkpoint may have. Not allowed: INST and OBJ, which torch never writes, the text
opcodes of protocol 0, textual persistent ids, extension registries and out-of-band buffers.
"""
