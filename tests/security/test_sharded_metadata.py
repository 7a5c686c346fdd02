"""The one pickle that a resume reads: whoever can write a checkpoint must not be able to run or to change anything."""

from __future__ import annotations

import builtins
import io
import os
import pickle
import struct
from pathlib import Path
from typing import Any

import pytest
import torch
from rgt_train import UsageError
from rgt_train.checkpoint import CheckpointDamaged, UnknownFormat
from rgt_train.ranks import dcp_reader
from torch.distributed.checkpoint import filesystem, metadata
from torch.distributed.checkpoint.state_dict_saver import save as save_sharded

ENUM = ("torch.distributed.checkpoint.metadata", "_MEM_FORMAT_ENCODING")
NAMES = [*dcp_reader.STANDS_FOR, ("torch", "float32")]


def text(value: str) -> bytes:
    return pickle.BINUNICODE + struct.pack("<I", len(value.encode())) + value.encode()


def named(module: str, name: str) -> bytes:
    return text(module) + text(name) + pickle.STACK_GLOBAL


def built(target: bytes, state: bytes) -> bytes:
    """Return a pickle that sets `state` on what `target` leaves on the stack."""
    return pickle.PROTO + b"\x04" + target + state + pickle.BUILD + pickle.STOP


def called(function: bytes, *args: bytes) -> bytes:
    return (
        pickle.PROTO
        + b"\x04"
        + function
        + pickle.MARK
        + b"".join(args)
        + pickle.TUPLE
        + pickle.REDUCE
        + pickle.STOP
    )


class Bomb:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.system, ("touch exploded",)


def test_metadata_that_wants_more_than_records_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UnknownFormat, match=r"asks for (posix|os)\.system"):
        dcp_reader.parse_metadata(pickle.dumps(Bomb()))
    assert not (tmp_path / "exploded").exists()


def everything() -> dict[str, dict[str, Any]]:
    """Return the attributes of all classes and functions that the names of the table have in torch, and of ours."""
    theirs = [getattr(metadata, name, None) for _, name in NAMES] + [filesystem._StorageInfo]
    found: list[Any] = [
        *theirs,
        *dcp_reader.STANDS_FOR.values(),
        dcp_reader._PickleRecord,
        torch.serialization._get_layout,
    ]
    return {repr(one): dict(vars(one)) for one in found if hasattr(one, "__dict__")}


@pytest.mark.parametrize("where", ["dict", "slots"])
@pytest.mark.parametrize("name", NAMES, ids=lambda name: ".".join(name))
def test_no_class_can_be_changed(name: tuple[str, str], where: str) -> None:
    """BUILD takes whatever is on the stack, a class as well: it would be changed for the whole process."""
    before = everything()
    pair = text("__init__") + text("owned") + pickle.SETITEM
    state = pickle.EMPTY_DICT + pair
    if where == "slots":
        state = pickle.NONE + state + pickle.TUPLE2
    with pytest.raises((CheckpointDamaged, UnknownFormat)):
        dcp_reader.parse_metadata(built(named(*name), state))
    assert everything() == before


@pytest.mark.parametrize(
    ("owner", "name"),
    [
        (("builtins", "getattr"), "__self__"),
        (("torch", "Size"), "__class__"),
        (ENUM, "__class__"),
        (ENUM, "__subclasses__"),
        (ENUM, "__init__"),
        (ENUM, "mro"),
    ],
)
def test_attributes_are_never_taken(owner: tuple[str, str], name: str) -> None:
    """Python 3.11.2 asks for ``getattr``; what it stands for here takes nothing from anything."""
    data = called(named("builtins", "getattr"), named(*owner), text(name))
    found = dcp_reader._Unpickler(io.BytesIO(data)).load()
    assert type(found) is dcp_reader._AttributeRecord
    with pytest.raises(CheckpointDamaged):
        dcp_reader.parse_metadata(data)


def test_nothing_of_builtins_but_getattr_and_that_not_itself() -> None:
    names = [name for name in dir(builtins) if ("builtins", name) in dcp_reader.STANDS_FOR]
    assert names == ["getattr"]
    assert getattr not in dcp_reader.STANDS_FOR.values()
    for made in dcp_reader.STANDS_FOR.values():
        assert made in (dict, torch.Size) or type(made) is dcp_reader._SealedMeta, made


@pytest.fixture
def theirs(tmp_path: Path) -> Any:
    save_sharded({"w": torch.ones(3)}, checkpoint_id=str(tmp_path), no_dist=True)
    return pickle.loads((tmp_path / ".metadata").read_bytes())


def only(values: Any) -> Any:
    return next(iter(values.values()))


@pytest.mark.parametrize(
    "name", ["../../etc/passwd", "/etc/passwd", "__0_0/../x", "state.json", "__0\0", ""]
)
def test_tensors_are_read_from_verified_files_alone(theirs: Any, name: str) -> None:
    only(theirs.storage_data).relative_path = name
    with pytest.raises(CheckpointDamaged, match="file name"):
        dcp_reader.parse_metadata(pickle.dumps(theirs))


def test_no_transformation_of_the_bytes(theirs: Any) -> None:
    only(theirs.storage_data).transform_descriptors = ["zstd"]
    with pytest.raises(CheckpointDamaged, match="transformation"):
        dcp_reader.parse_metadata(pickle.dumps(theirs))


@pytest.mark.parametrize("size", [torch.Size([-1]), [3], (3,), "3", None])
def test_sizes_are_sizes(theirs: Any, size: Any) -> None:
    only(theirs.state_dict_metadata).size = size
    with pytest.raises(CheckpointDamaged, match=r"holds a (Size|list|tuple|str|NoneType)"):
        dcp_reader.parse_metadata(pickle.dumps(theirs))


@pytest.mark.parametrize("change", ["state_dict_metadata", "storage_data", "planner_data"])
@pytest.mark.parametrize("value", [None, [], 7, {7: 7}, {"w": {"w": "w"}}])
def test_fields_of_another_kind_are_damage(theirs: Any, change: str, value: Any) -> None:
    setattr(theirs, change, value)
    data = pickle.dumps(theirs)
    if change == "planner_data":
        assert dcp_reader.parse_metadata(data).planner_data is None, "nothing that a load needs"
        return
    with pytest.raises(CheckpointDamaged):
        dcp_reader.parse_metadata(data)


def test_an_unknown_class_is_no_damage(theirs: Any, tmp_path: Path) -> None:
    """Damage is passed over for an older checkpoint; what another version wrote must not be."""
    theirs.planner_data = Exception
    (tmp_path / ".metadata").write_bytes(pickle.dumps(theirs))
    with pytest.raises(
        UsageError,
        match=r"/\.metadata asks for builtins\.Exception.*It is intact: finish the run with",
    ):
        dcp_reader.SafeReader(tmp_path).read_metadata()
