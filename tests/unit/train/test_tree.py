"""Any state becomes JSON and tensors in safetensors files, and back again with the same bits."""

from __future__ import annotations

import json
import math
import pathlib
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from rgt_train.checkpoint import ArenaLayout, Collected, SharedArena, encoding, safetensors, spec_of
from torch.testing._internal.two_tensor import TwoTensor

keys = st.one_of(st.text(), st.integers(), st.booleans(), st.none(), st.floats(allow_nan=False))
values = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(),
        st.floats(),
        st.text(),
        st.binary(),
        st.complex_numbers(),
    ),
    lambda inner: st.one_of(
        st.lists(inner),
        st.tuples(inner, inner),
        st.dictionaries(keys, inner),
        st.dictionaries(st.just("$"), inner),
        st.dictionaries(keys, inner).map(OrderedDict),
        st.lists(st.integers()).map(Counter),
        st.sets(st.integers()),
        st.frozensets(st.text()),
    ),
    max_leaves=20,
)


def refuse(*_: Any) -> Any:
    raise AssertionError("no tensor here")


def same(left: Any, right: Any) -> bool:
    if type(left) is not type(right):
        return False
    if isinstance(left, dict):
        pairs = zip(left.items(), right.items(), strict=True)
        return len(left) == len(right) and all(same(list(a), list(b)) for a, b in pairs)
    if isinstance(left, list | tuple):
        return len(left) == len(right) and all(map(same, left, right))
    if isinstance(left, float):
        return left == right or (math.isnan(left) and math.isnan(right))
    if isinstance(left, complex):
        return same(left.real, right.real) and same(left.imag, right.imag)
    return bool(left == right)


@given(values)
def test_plain_values_come_back(value: Any) -> None:
    back = encoding.decode_value(
        json.loads(json.dumps(encoding.encode_value(value, refuse))), refuse
    )
    assert same(back, value)


def test_rarer_values() -> None:
    kept: dict[str, torch.Tensor] = {}

    def put(path: str, tensor: torch.Tensor) -> str:
        kept[path] = tensor
        return path

    counts: defaultdict[str, int] = defaultdict(int, {"a": 1})
    value: dict[str, Any] = {
        "dtype": torch.bfloat16, "device": torch.device("cpu"), "size": torch.Size([2, 3]), "counts": counts,
        "array": numpy.arange(6, dtype=numpy.int16).reshape(2, 3), "scalar": numpy.float64(0.1),
        "complex": [numpy.complex64(1 + 2j), numpy.complex128(complex(math.nan, -0.0))],
        "parameter": torch.nn.Parameter(torch.ones(2)), "list": [torch.zeros(1), (torch.ones(1),)],
    }  # fmt: skip
    back = encoding.decode_value(
        json.loads(json.dumps(encoding.encode_value(value, put, "x"))), kept.__getitem__
    )
    assert set(kept) == {"x/array", "x/parameter", "x/list/0", "x/list/1/0"}
    assert (back["dtype"], back["device"], back["size"]) == (
        value["dtype"],
        value["device"],
        value["size"],
    )
    assert back["counts"] == {"a": 1}
    assert (back["array"].dtype, back["array"].tolist()) == (numpy.int16, [[0, 1, 2], [3, 4, 5]])
    assert (type(back["scalar"]), back["scalar"]) == (numpy.float64, 0.1)
    assert [type(each) for each in back["complex"]] == [numpy.complex64, numpy.complex128]
    assert [each.tobytes() for each in back["complex"]] == [
        each.tobytes() for each in value["complex"]
    ]
    assert isinstance(back["parameter"], torch.nn.Parameter)


@pytest.mark.parametrize(
    ("value", "told"),
    [
        ({"a": {"path": pathlib.Path("x")}}, "a/path is a pathlib"),
        ([lambda: 1], "/0 is a builtins.function"),
        ({object(): 1}, "has a key of type object"),
        ({"a": type("Odd", (dict,), {})()}, "a is a Odd"),
        ({"a": numpy.longdouble(1)}, "a is a NumPy float128, which has more digits"),
        ({"a": numpy.zeros(2, numpy.longdouble)}, "a is a NumPy array of float128"),
    ],
)
def test_objects_are_refused_by_name(value: Any, told: str) -> None:
    with pytest.raises(encoding.CannotStore, match=told):
        encoding.encode_value(value, refuse)


def test_nothing_but_the_listed_kinds_is_ever_made() -> None:
    with pytest.raises(ValueError, match="unknown kind of value 'object'"):
        encoding.decode_value({"$": "object", "of": "os.system"}, refuse)
    allowed = {
        "tuple", "size", "set", "frozenset", "dict", "ordered", "counter", "bytes", "complex", "dtype", "device",
        "numpy", "scalar",
    }  # fmt: skip
    assert set(encoding._DECODERS) == allowed


Make = Callable[[], torch.Tensor]
LAYOUTS: dict[str, tuple[Make, bool]] = {
    "rows": (lambda: torch.randn(3, 4), False),
    "number": (lambda: torch.tensor(1.0), False),
    "empty": (lambda: torch.empty(0, 4).t(), False),
    "transposed": (lambda: torch.randn(4, 6).t(), True),
    "channels last": (lambda: torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last), True),
    "one channel": (lambda: torch.randn(2, 1, 4, 5).to(memory_format=torch.channels_last), True),
    "gaps": (lambda: torch.randn(4, 6)[:, :3], False),
    "one number everywhere": (lambda: torch.ones(1).expand(5), False),
}


@pytest.mark.parametrize("name", LAYOUTS)
def test_memory_is_laid_out_as_it_was(name: str) -> None:
    make, told = LAYOUTS[name]
    tensor = make()
    kept: dict[str, torch.Tensor] = {}

    def put(path: str, value: torch.Tensor) -> str:
        kept[path] = value.contiguous().clone(memory_format=torch.contiguous_format)
        return path

    encoded = json.loads(json.dumps(encoding.encode_value({"t": tensor}, put)))
    assert ("stride" in encoded["t"]) == told
    back = encoding.decode_value(encoded, kept.__getitem__)["t"]
    assert torch.equal(back, tensor)
    assert not told or back.stride() == tensor.stride()
    encoded["t"]["stride"] = [7] * (tensor.dim() + 1)
    with pytest.raises(ValueError, match="do not fit"):
        encoding.decode_value(encoded, kept.__getitem__)


def two_tensor() -> torch.Tensor:
    return TwoTensor(torch.ones(2), torch.ones(2))  # type: ignore[no-untyped-call]


@pytest.mark.parametrize(
    ("tensor", "told"),
    [
        (lambda: torch.empty(2, device="meta"), "w is on the meta device"),
        (lambda: torch.nn.LazyLinear(3).weight, "w has no shape yet"),
        (lambda: torch.eye(3).to_sparse(), r"w is a torch.sparse_coo tensor"),
        (two_tensor, "w is a TwoTensor tensor"),
    ],
)
def test_a_tensor_that_would_not_come_back_is_refused_by_its_name(tensor: Make, told: str) -> None:
    with pytest.raises(encoding.CannotStore, match=told):
        Collected().add_tensor("f", "w", tensor(), False)


def test_two_tensors_of_one_name_are_refused() -> None:
    found = Collected()
    state = {"a/b": torch.ones(1), "a": {"b": torch.zeros(1)}}
    with pytest.raises(
        encoding.CannotStore, match="two tensors would both be kept as ema/a/b in f"
    ):
        encoding.encode_value(
            state, lambda path, tensor: found.add_tensor("f", path, tensor, False), "ema"
        )


TENSORS: dict[str, Make] = {
    "zero-dim": lambda: torch.tensor(3.5, dtype=torch.float64),
    "empty": lambda: torch.empty(0, 4),
    "odd": lambda: torch.arange(7, dtype=torch.uint8),
    "bool": lambda: torch.tensor([True, False, True]),
    "half": lambda: torch.randn(3, dtype=torch.float16),
    "bf16": lambda: torch.randn(5, dtype=torch.bfloat16),
    "float8": lambda: torch.randn(5).to(torch.float8_e4m3fn),
    "complex": lambda: torch.randn(2, 2, dtype=torch.complex128),
    "transposed": lambda: torch.randn(4, 6).t(),
    "channels last": lambda: torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last),
    "big": lambda: torch.randn(3000),
    "nan": lambda: torch.tensor([math.nan, -math.inf, -0.0]),
}


def test_every_kind_of_tensor_lies_in_the_files(tmp_path: Path) -> None:
    tensors = {name: make() for name, make in TENSORS.items()}
    specs = [
        spec_of("a" if number % 3 else "b", name, t)
        for number, (name, t) in enumerate(tensors.items())
    ]
    arena = SharedArena(ArenaLayout(specs))
    arena.touch_pages()
    arena.wait_touched()
    for spec in specs:
        arena.tensor_at(arena.layout.slots[spec.file, spec.key]).copy_(tensors[spec.key])
    found: dict[str, torch.Tensor] = {}
    for region in arena.layout.regions:
        assert region.offset % 4096 == 0
        path = tmp_path / region.file
        path.write_bytes(arena.whole_memory()[region.offset : region.offset + region.size])
        found.update(safetensors.read_tensors(memoryview(bytearray(path.read_bytes()))))
    for name, tensor in tensors.items():
        assert (found[name].dtype, found[name].shape) == (tensor.dtype, tensor.shape), name
        raw = [
            bytes(t.contiguous().view(-1).view(torch.uint8).tolist()) if t.numel() else b""
            for t in (found[name], tensor)
        ]
        assert raw[0] == raw[1], name
    arena.close()


def test_a_file_that_is_cut_is_no_file() -> None:
    with pytest.raises(ValueError, match="too short"):
        safetensors.read_tensors(memoryview(b"1234"))
    with pytest.raises(ValueError, match="cut off"):
        safetensors.read_tensors(memoryview((99).to_bytes(8, "little") + b"{}"))
