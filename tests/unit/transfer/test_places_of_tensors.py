"""Every tensor lies within what is there: in a storage of a torch file, and in the parts of a sharded checkpoint."""

from __future__ import annotations

import hashlib
import json
import struct
import zlib
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rgt_tui.transfer import directory_contents, torch_files
from rgt_tui.transfer.file_stretch import FileRefused, MemberFileError, OpenFileSection
from rgt_tui.transfer.pickle_values import MadeObject, PairList, PickleName
from tests.unit.transfer.hostile_files import harmful, safetensors, torch_zip


def number(value: int) -> bytes:
    return b"J" + struct.pack("<i", value)


def numbers(*values: int) -> bytes:
    return b"(" + b"".join(map(number, values)) + b"t"


STORAGE = b"(X\7\0\0\0storagectorch\nFloatStorage\nX\1\0\0\0000X\3\0\0\0cpuK\4tQ"
"""Four numbers of four bytes, called 0."""


def tensor(offset: int, size: bytes, stride: bytes, storage: bytes = STORAGE) -> bytes:
    return (
        b"\x80\x02ctorch._utils\n_rebuild_tensor_v2\n("
        + storage
        + number(offset)
        + size
        + stride
        + b"\x89}tR."
    )


def look(folder: Path, pickle: bytes) -> torch_files.TorchFile:
    path = folder / "file.pt"
    path.write_bytes(torch_zip({"data.pkl": pickle, "version": b"3\n", "data/0": bytes(16)}))
    with OpenFileSection(path) as whole:
        return torch_files.examine_torch_file(whole)


@pytest.mark.parametrize(
    ("offset", "size", "stride"),
    [(0, (4,), (1,)), (3, (1,), (9,)), (0, (2, 2), (2, 1)), (9, (0,), (1,)), (3, (), ())],
)
def test_a_tensor_within_its_storage_is_whole(
    tmp_path: Path, offset: int, size: tuple[int, ...], stride: tuple[int, ...]
) -> None:
    assert look(tmp_path, tensor(offset, numbers(*size), numbers(*stride))).checked


@pytest.mark.parametrize(
    "pickle",
    [
        tensor(1, numbers(4), numbers(1)),
        tensor(0, numbers(3), numbers(2)),
        tensor(4, numbers(), numbers()),
        tensor(-1, numbers(1), numbers(1)),
        tensor(0, numbers(1), numbers(-1)),
        tensor(0, numbers(-1), numbers(1)),
        tensor(0, numbers(1, 1), numbers(1)),
        tensor(0, b"K\1", numbers(1)),
        tensor(0, numbers(1), b"N"),
        tensor(0, numbers(1), numbers(1), b"N"),
        tensor(0, numbers(1), numbers(1), STORAGE.replace(b"K\4", b"J\xff\xff\xff\xff")),
        tensor(0, numbers(1), numbers(1), STORAGE.replace(b"K\4", b"N")),
        tensor(0, numbers(1), numbers(1), STORAGE.replace(b"FloatStorage", b"Size")),
    ],
)
def test_a_tensor_beyond_its_storage_or_of_no_shape_is_refused(
    tmp_path: Path, pickle: bytes
) -> None:
    with pytest.raises(FileRefused):
        look(tmp_path, pickle)


# torch.distributed.checkpoint.


def made(kind: str, **state: Any) -> MadeObject:
    record = MadeObject(PickleName("torch.distributed.checkpoint.metadata", kind), ())
    record.state = PairList()
    record.state.items = list(state.items())
    return record


def pairs(*items: tuple[Any, Any]) -> PairList:
    found = PairList()
    found.items = list(items)
    return found


def size(*sizes: Any) -> MadeObject:
    return MadeObject(PickleName("torch", "Size"), (sizes,))


def chunk(offsets: Any, sizes: Any) -> MadeObject:
    return made("ChunkStorageMetadata", offsets=offsets, sizes=sizes)


def entry(whole: Any, *chunks: Any) -> MadeObject:
    return made("TensorStorageMetadata", size=whole, chunks=list(chunks))


def place(file: Any = "__0_0.distcp", offset: Any = 0, length: Any = 8) -> MadeObject:
    return made("_StorageInfo", relative_path=file, offset=offset, length=length)


def parts(
    monkeypatch: pytest.MonkeyPatch, entries: PairList, places: PairList
) -> tuple[torch_files.CheckpointPart, ...]:
    whole = made("Metadata", state_dict_metadata=entries, storage_data=places)
    monkeypatch.setattr(torch_files, "read_single_pickle", lambda *_: SimpleNamespace(value=whole))
    return torch_files.read_parts(None)  # type: ignore[arg-type]


HALVES = (chunk(size(0), size(2)), chunk(size(2), size(2)))
INDEXES = tuple(made("MetadataIndex", fqn="w", offset=size(at)) for at in (0, 2))


def test_the_parts_of_a_whole_tensor_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    places = pairs((INDEXES[0], place()), (INDEXES[1], place(offset=8)))
    found = parts(monkeypatch, pairs(("w", entry(size(4), *HALVES))), places)
    assert [(part.offset, part.length) for part in found] == [(0, 8), (8, 8)]


@pytest.mark.parametrize(
    ("entries", "places"),
    [
        (pairs(("w", entry(size(4), *HALVES))), pairs((INDEXES[0], place()))),
        (pairs(("w", entry(size(4), HALVES[0]))), pairs((INDEXES[0], place()))),
        (pairs(("w", entry(size(3), *HALVES))), pairs(*((index, place()) for index in INDEXES))),
        (pairs(("w", entry(size(4, 1), *HALVES))), pairs(*((index, place()) for index in INDEXES))),
        (pairs(("w", entry(size(10**30), *HALVES))), pairs()),
        (pairs(("w", entry(size(-1)))), pairs()),
        (pairs(("w", entry("4"))), pairs()),
        (pairs((1, entry(size(0)))), pairs()),
        (pairs(("w", 1)), pairs()),
        (pairs(("w", made("Metadata"))), pairs()),
        (pairs(), pairs((INDEXES[0], place(offset=-1)))),
        (pairs(), pairs((INDEXES[0], place(length=None)))),
        (pairs(), pairs((INDEXES[0], place(file=7)))),
        (pairs(), pairs((made("MetadataIndex", fqn=7), place()))),
        (pairs(), pairs(("w", place()))),
        (pairs(), pairs((INDEXES[0], "w"))),
        (pairs(), 7),
    ],
)
def test_parts_that_are_missing_or_lie_beyond_are_refused(
    monkeypatch: pytest.MonkeyPatch, entries: PairList, places: PairList
) -> None:
    with pytest.raises(FileRefused):
        parts(monkeypatch, entries, places)


# rgt_train.


def checkpoint(folder: Path, files: dict[str, bytes], **changes: Any) -> None:
    facts = {
        name: {"size": len(data), "chunk": 1 << 24, "crc32": [f"{zlib.crc32(data):08x}"]} | changes
        for name, data in files.items()
    }
    for name, data in files.items():
        (folder / name).write_bytes(data)
    body: dict[str, Any] = {"format": 2, "step": 1, "files": facts}
    text = json.dumps(body, sort_keys=True, indent=1) + "\n"
    body["digest"] = hashlib.sha256(text.encode()).hexdigest()
    (folder / "manifest.json").write_text(json.dumps(body, sort_keys=True, indent=1) + "\n")


def test_a_manifest_that_vouches_for_what_is_no_checkpoint_is_not_believed(tmp_path: Path) -> None:
    for name, data, words in (
        (".metadata", harmful(tmp_path / "ran"), "io.open"),
        ("model.safetensors", safetensors(b"[]"), "brace"),
        ("state.json", b"{", "not JSON"),
    ):
        checkpoint(tmp_path, {name: data})
        with pytest.raises(MemberFileError, match=words) as caught:
            directory_contents.examine_trainer_checkpoint(tmp_path)
        assert caught.value.name == name
    assert not (tmp_path / "ran").exists()


def test_the_sha256_of_a_best_checkpoint_is_compared_too(tmp_path: Path) -> None:
    data = b"{}"
    checkpoint(tmp_path, {"state.json": data}, sha256=hashlib.sha256(data).hexdigest())
    assert directory_contents.examine_trainer_checkpoint(tmp_path) == (
        "manifest.json",
        "state.json",
    )
    checkpoint(tmp_path, {"state.json": data}, sha256="0" * 64)
    with pytest.raises(MemberFileError, match="SHA-256"):
        directory_contents.examine_trainer_checkpoint(tmp_path)
