"""A state as JSON: nested plain values, with tensors named and kept elsewhere.

This makes a checkpoint safe to load: reading it back can only make the kinds of values listed here,
and nothing is unpickled. JSON keeps numbers exactly (Python writes floats so that they read back
with the same bits).

A checkpoint holds every tensor row by row, as other programs expect it. A fused optimizer walks
through parameter and moments together, in memory order: moments restored in another order would
meet the wrong weights. So the strides are stored with the tensor, and it is restored with the same
layout.

The `extra` of a run becomes plain values first (`OwnState`), and a load fills it in place.
"""

from __future__ import annotations

import base64
import copy
import sys
from collections import Counter, OrderedDict, deque
from typing import (
    Any,
    Callable,
    Mapping,
    MutableMapping,
    Protocol,
    Sequence,
)

import torch

from rgt_train.data.rng import random_state, restore_generator
from rgt_train.exits import UsageError


def unusual_strides(tensor: torch.Tensor) -> tuple[int, ...] | None:
    """Return the strides of `tensor` if it is not row by row; None also if it has gaps or overlaps.

    A tensor with gaps or overlaps is a view of another one. Its values are stored, not the memory
    it shares.
    """
    if tensor.layout is not torch.strided:
        return None  # refused elsewhere, by its name
    shape = tuple(tensor.shape)
    stride = tuple(tensor.stride())
    if stride == _row_major_strides(shape) or 0 in shape or not _is_dense(shape, stride):
        return None
    return stride


def with_strides(tensor: torch.Tensor, stride: Sequence[int]) -> torch.Tensor:
    """Return a copy of `tensor` whose memory is laid out by `stride`.

    Raises:
        ValueError: The strides do not fit a tensor of this shape without gaps and overlaps.
    """
    shape = tuple(tensor.shape)
    if len(stride) != len(shape) or not _is_dense(shape, stride):
        raise ValueError(f"strides {list(stride)} do not fit a tensor of shape {list(shape)}")
    result = torch.empty_strided(shape, list(stride), dtype=tensor.dtype, device=tensor.device)
    return result.copy_(tensor)


def _row_major_strides(shape: Sequence[int]) -> tuple[int, ...]:
    stride = []
    step = 1
    for length in reversed(shape):
        stride.append(step)
        # As in torch, where an axis of length 0 counts as 1 here.
        step *= max(1, length)
    return tuple(reversed(stride))


def _is_dense(shape: Sequence[int], stride: Sequence[int]) -> bool:
    """Return whether every memory position is used exactly once.

    Strides of length-1 axes are ignored.
    """
    step = 1
    for each, length in sorted(
        (each, length) for each, length in zip(stride, shape) if length != 1
    ):
        if each != step:
            return False
        step *= length
    return True


_TAG = "$"
Put = Callable[[str, torch.Tensor], str]
"""Takes a path in the state and its tensor, returns the name under which it is stored."""
Get = Callable[[str], torch.Tensor]
"""Returns the tensor stored under a name."""

DTYPES: dict[str, torch.dtype] = {
    str(kind).split(".", 1)[1]: kind
    for kind in (getattr(torch, name) for name in dir(torch))
    if isinstance(kind, torch.dtype)
}
"""Every dtype of this torch by its name (aliases such as ``half`` share one: ``float16``)."""


class CannotStore(TypeError):
    """The state holds something that could not be read back; the message names it and its path."""


class UnknownContent(UsageError, ValueError):
    """An intact checkpoint that holds something that this version, or this torch, does not know."""

    def __init__(self, what: str, name: str) -> None:
        super().__init__(
            f"the checkpoint holds an unknown {what} {name!r}, and is intact: finish the run with "
            "the versions of rgt_train and torch that wrote it, or give another --out"
        )


def encode_value(value: Any, put: Put, path: str = "") -> Any:
    """Return `value` in a form that `json.dumps` accepts; each tensor in it goes to `put`.

    Raises:
        CannotStore: It holds an object that is neither a tensor nor plain.
    """
    if value is None or isinstance(value, (bool, str)):
        return value
    # Not isinstance: NumPy's float64 is a float and must come back as what it was.
    if type(value) is int or type(value) is float:
        return value
    if isinstance(value, torch.Tensor):
        name = put(path, value)
        facts: dict[str, Any] = {_TAG: "tensor", "of": name}
        if isinstance(value, torch.nn.Parameter):
            if value.requires_grad:
                facts["parameter"] = "grad"
            else:
                facts["parameter"] = "frozen"
        stride = unusual_strides(value)
        if stride is not None:
            facts["stride"] = list(stride)
        return facts
    if isinstance(value, dict):
        return _encode_dict(value, put, path)
    if isinstance(value, (list, tuple)) and type(value) in _SEQUENCES:
        items = [encode_value(item, put, f"{path}/{number}") for number, item in enumerate(value)]
        if type(value) is list:
            return items
        return {_TAG: _SEQUENCES[type(value)], "of": items}
    if isinstance(value, (set, frozenset)):
        items = [
            encode_value(item, put, f"{path}/{number}")
            # A set has no order of its own, and equal states must give equal bytes.
            for number, item in enumerate(sorted(value, key=repr))
        ]
        return {_TAG: type(value).__name__, "of": items}
    return _encode_rare(value, put, path)


def decode_value(value: Any, get: Get) -> Any:
    """Return the value that was passed to `encode_value`.

    Raises:
        UnknownContent: It holds something that this version does not know.
    """
    if isinstance(value, list):
        return [decode_value(item, get) for item in value]
    if not isinstance(value, dict):
        return value
    if _TAG not in value:
        return {key: decode_value(item, get) for key, item in value.items()}
    kind = value[_TAG]
    content = value["of"]
    if kind == "tensor":
        tensor = get(content)
        if "stride" in value:
            tensor = with_strides(tensor, value["stride"])
        if "parameter" in value:
            return torch.nn.Parameter(tensor, requires_grad=value["parameter"] == "grad")
        return tensor
    if kind in _DECODERS:
        return _DECODERS[kind](content, get)
    raise UnknownContent("kind of value", str(kind))


def _encode_dict(value: dict[Any, Any], put: Put, path: str) -> Any:
    if type(value) not in (dict, OrderedDict, Counter) and not hasattr(value, "default_factory"):
        raise CannotStore(
            f"{path or 'the state'} is a {type(value).__name__}, which cannot be stored"
        )
    kind = _DICTS.get(type(value), "dict")
    # JSON turns other keys into text, so they are stored as pairs.
    if kind == "dict" and all(type(key) is str for key in value) and _TAG not in value:
        return {
            key: encode_value(item, put, f"{path}/{key}" if path else key)
            for key, item in value.items()
        }
    pairs: list[tuple[Any, Any]] = []
    for key, item in value.items():
        if not isinstance(key, (str, int, float, bool, tuple, type(None))):
            raise CannotStore(
                f"{path or 'the state'} has a key of type {type(key).__name__}, which cannot be "
                "stored"
            )
        pairs.append(
            (
                encode_value(key, put, path),
                encode_value(item, put, f"{path}/{key}" if path else str(key)),
            )
        )
    return {_TAG: kind, "of": pairs}


def _encode_rare(value: Any, put: Put, path: str) -> Any:
    if isinstance(value, (bytes, bytearray)):
        return {_TAG: "bytes", "of": base64.b64encode(bytes(value)).decode()}
    if isinstance(value, torch.dtype):
        return {_TAG: "dtype", "of": str(value).split(".", 1)[1]}
    if isinstance(value, torch.device):
        return {_TAG: "device", "of": str(value)}
    numpy: Any = sys.modules.get("numpy")
    if numpy is not None and isinstance(value, numpy.ndarray) and value.dtype.kind in "biufc":
        return {_TAG: "numpy", "of": encode_value(_from_numpy(value, path), put, path)}
    if numpy is not None and isinstance(value, numpy.generic) and value.dtype.kind in "biufc":
        return {_TAG: "scalar", "of": [value.dtype.str, _plain_number(value, path)]}
    if isinstance(value, complex):
        return {_TAG: "complex", "of": [value.real, value.imag]}
    if isinstance(value, (int, float)):  # an IntEnum or similar: only its number matters
        if isinstance(value, int):
            return int(value)
        return float(value)
    raise CannotStore(
        f"{path or 'the state'} is a {type(value).__module__}.{type(value).__qualname__}; only "
        "tensors, numbers, text and containers of them can be stored safely"
    )


def _from_numpy(array: Any, path: str) -> torch.Tensor:
    try:
        # from_numpy shares memory, and warns for a read-only array.
        return torch.from_numpy(array.copy())
    except TypeError as error:
        raise CannotStore(
            f"{path or 'the state'} is a NumPy array of {array.dtype}: {error}"
        ) from error


def _plain_number(value: Any, path: str) -> Any:
    """Return the number in a NumPy scalar; both parts of a complex one."""
    number = value.item()
    # A longdouble has no exact form in JSON.
    if not isinstance(number, (bool, int, float, complex)):
        raise CannotStore(
            f"{path or 'the state'} is a NumPy {value.dtype}, which has more digits than can be "
            "stored"
        )
    if isinstance(number, complex):
        return [number.real, number.imag]
    return number


def _decode_number(content: Any) -> Any:
    kind, number = content
    if isinstance(number, list):
        number = complex(*number)
    return _import_numpy().dtype(kind).type(number)


def _dtype_of(name: str) -> torch.dtype:
    if name not in DTYPES:
        raise UnknownContent("dtype", name)
    return DTYPES[name]


def _import_numpy() -> Any:
    import numpy

    return numpy


_DICTS: dict[type, str] = {OrderedDict: "ordered", Counter: "counter"}
_SEQUENCES = {list: "list", tuple: "tuple", torch.Size: "size"}
_DECODERS: dict[str, Callable[[Any, Get], Any]] = {
    "tuple": lambda items, get: tuple(decode_value(item, get) for item in items),
    "size": lambda items, get: torch.Size(items),
    "set": lambda items, get: {decode_value(item, get) for item in items},
    "frozenset": lambda items, get: frozenset(decode_value(item, get) for item in items),
    "dict": lambda pairs, get: {
        decode_value(key, get): decode_value(item, get) for key, item in pairs
    },
    "counter": lambda pairs, get: Counter(
        {decode_value(key, get): decode_value(item, get) for key, item in pairs}
    ),
    "ordered": lambda pairs, get: OrderedDict(
        (decode_value(key, get), decode_value(item, get)) for key, item in pairs
    ),
    "bytes": lambda text, get: base64.b64decode(text),
    "complex": lambda parts, get: complex(*parts),
    "dtype": lambda name, get: _dtype_of(name),
    "device": lambda name, get: torch.device(name),
    "numpy": lambda content, get: decode_value(content, get).numpy(),
    "scalar": lambda content, get: _decode_number(content),
}


class Stateful(Protocol):
    """Anything that can be saved and restored: an optimizer, a scheduler, a GradScaler, an EMA."""

    def state_dict(self) -> dict[str, Any]:
        """Return the state."""

    def load_state_dict(self, state_dict: dict[str, Any]) -> Any:
        """Take the state over."""


class OwnState:
    """A dictionary of a person's own values as an object with state.

    Args:
        values: Plain values, random generators, objects with `state_dict` and `load_state_dict`,
            and containers of them. A load changes it in place, and the containers and tensors in
            it, too. Keys missing in a checkpoint stay unchanged.
    """

    def __init__(self, values: MutableMapping[str, Any]) -> None:
        self.values = values

    def state_dict(self) -> dict[str, Any]:
        """Return the values, and the state of objects."""
        return {name: _copy_state(value) for name, value in self.values.items()}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take the values over."""
        for name, value in state_dict.items():
            self.values[name] = _fill_value(self.values.get(name), value)


class LooseTensors:
    """Tensors that optimizers change and that belong to no module, as an object with state.

    Args:
        tensors: By name; a load changes them in place.
    """

    def __init__(self, tensors: Mapping[str, torch.Tensor]) -> None:
        self.tensors = dict(tensors)

    def state_dict(self) -> dict[str, Any]:
        """Return the tensors."""
        return {name: tensor.detach() for name, tensor in self.tensors.items()}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Set the tensors.

        Raises:
            ValueError: There are others, or they have other shapes.
        """
        if {n: t.shape for n, t in state_dict.items()} != {
            n: t.shape for n, t in self.tensors.items()
        }:
            raise ValueError("the optimizers have other tensors outside of the models")
        with torch.no_grad():
            for name, tensor in self.tensors.items():
                tensor.copy_(state_dict[name])


def tensor_ids(value: Any) -> set[int]:
    """Return the ids of the tensors in `value` and in its containers."""
    if isinstance(value, torch.Tensor):
        return {id(value)}
    if isinstance(value, Mapping):
        value = list(value.values())
    if isinstance(value, (list, tuple, deque)):
        return set().union(*map(tensor_ids, value))
    return set()


def own_state(extra: Any) -> Stateful | None:
    """Return the state that a person gave as `extra`, as an object with state.

    Raises:
        UsageError: It is neither that nor a dictionary.
    """
    if extra is None or (hasattr(extra, "state_dict") and hasattr(extra, "load_state_dict")):
        found: Stateful | None = extra
        return found
    if isinstance(extra, MutableMapping):
        return OwnState(extra)
    raise UsageError(
        f"extra is a {type(extra).__name__}: give a dictionary, or an object with state_dict and "
        "load_state_dict"
    )


def _copy_state(value: Any) -> Any:
    """Return the state of one of a person's values: a copy, with the state of objects in it."""
    if hasattr(value, "load_state_dict"):
        return value.state_dict()
    state = random_state(value)
    if state is not None:
        return state
    if isinstance(value, (list, deque)):
        return [_copy_state(entry) for entry in value]
    if type(value) is tuple:
        return tuple(_copy_state(entry) for entry in value)
    if isinstance(value, dict):
        kept = copy.copy(value)
        kept.update({key: _copy_state(entry) for key, entry in value.items()})
        return kept
    return copy.deepcopy(value)


def _fill_value(here: Any, saved: Any) -> Any:
    """Return `here` with the content `saved`, or `saved` if `here` is nothing that can be filled."""
    numpy: Any = sys.modules.get("numpy")
    if hasattr(here, "load_state_dict"):
        here.load_state_dict(saved)
    elif random_state(here) is not None:
        restore_generator(here, saved)
    elif isinstance(here, torch.Tensor) and isinstance(saved, torch.Tensor):
        if (here.shape, here.dtype) != (saved.shape, saved.dtype):
            return saved
        # In place: the loop, or a compiled graph, may hold this very tensor.
        with torch.no_grad():
            here.copy_(saved)
    elif numpy is not None and isinstance(here, numpy.ndarray) and isinstance(saved, numpy.ndarray):
        if (here.shape, here.dtype) != (saved.shape, saved.dtype):
            return saved
        here[...] = saved
    elif isinstance(here, MutableMapping) and isinstance(saved, Mapping):
        values = {key: _fill_value(here.get(key), entry) for key, entry in saved.items()}
        here.clear()
        here.update(values)
    elif isinstance(here, (list, deque)) and isinstance(saved, list):
        entries = [*here, *[None] * len(saved)]
        filled = [_fill_value(*pair) for pair in zip(entries, saved)]
        here.clear()
        here.extend(filled)
    elif isinstance(here, set) and isinstance(saved, set):
        here.clear()
        here.update(saved)
    elif type(here) is tuple and type(saved) is tuple and len(here) == len(saved):
        return tuple(map(_fill_value, here, saved))
    else:
        return saved
    return here
