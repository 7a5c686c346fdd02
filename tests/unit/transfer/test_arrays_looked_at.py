"""Arrays and pickles that are no checkpoint of torch's: NumPy's files, GGUF, HDF5, and what anybody pickled."""

from __future__ import annotations

import collections
import io
import os
import pickle
import struct
import subprocess
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rgt_tui.transfer import array_files, torch_files
from rgt_tui.transfer.file_stretch import FileRefused, FileSection, OpenFileSection
from rgt_tui.transfer.safe_names import has_side_effects
from tests.system.tree import ROOT
from tests.unit.transfer.hostile_files import TODAY, harmful
from tests.unit.transfer.test_flipped_bytes import damages

FIXTURES = ROOT / "tests/fixtures/array_files"
HDF5 = sorted(FIXTURES.glob("*.h5"))
GGUF = sorted(FIXTURES.glob("*.gguf"))
RECORD = np.dtype([("a", "<i4"), ("b", "<f8", (2,)), ("c", [("d", "u1")]), ("e", "<U3")])


def look(examine: Callable[[FileSection], Any], path: Path, data: bytes) -> Any:
    path.write_bytes(data)
    with OpenFileSection(path) as whole:
        return examine(whole)


def why(examine: Callable[[FileSection], Any], path: Path, data: bytes) -> str:
    with pytest.raises(FileRefused) as caught:
        look(examine, path, data)
    return str(caught.value)


def npy(array: Any, **how: Any) -> bytes:
    out = io.BytesIO()
    np.save(out, array, **how)
    return out.getvalue()


def npz(save: Callable[..., None] = np.savez, **arrays: Any) -> bytes:
    out = io.BytesIO()
    save(out, **arrays)
    return out.getvalue()


def with_header(text: str, data: bytes = b"", version: bytes = b"\1\0") -> bytes:
    return b"\x93NUMPY" + version + struct.pack("<H", len(text)) + text.encode() + data


ARRAYS = [
    np.arange(12.0).reshape(3, 4),
    np.asfortranarray(np.ones((3, 4), dtype="f2")),
    np.zeros((0, 3)),
    np.float32(3),
    np.array(["ab", "cdef"]),
    np.array(["2020-01-01"], dtype="M8[ns]"),
    np.zeros(3, dtype=RECORD),
    np.zeros(2, dtype=np.dtype([("a", "u1"), ("b", "<f8")], align=True)),
    np.ones(2, dtype=">c16"),
]


@pytest.mark.parametrize("array", ARRAYS, ids=lambda array: f"{array.dtype.str}{array.shape}")
def test_an_array_has_the_length_that_its_header_says_or_is_refused(
    tmp_path: Path, array: Any
) -> None:
    path, data = tmp_path / "a.npy", npy(array)
    assert look(array_files.examine_npy, path, data) is False
    assert "after the end of its array: 1 byte" in why(array_files.examine_npy, path, data + b"\0")
    for length in range(len(data)):
        assert why(array_files.examine_npy, path, data[:length])


def test_a_flipped_bit_in_the_header_of_an_array_is_found_or_leaves_its_length(
    tmp_path: Path,
) -> None:
    path = tmp_path / "a.npy"
    for what, data in damages(npy(np.arange(6.0)), "npy"):
        try:
            look(array_files.examine_npy, path, data)
        except FileRefused:
            continue
        assert what.startswith("bit"), what


def test_an_array_of_objects_is_named_and_not_unpickled(tmp_path: Path) -> None:
    mark = tmp_path / "ran"
    header = "{'descr': '|O', 'fortran_order': False, 'shape': (1,), }\n"
    assert (
        look(array_files.examine_npy, tmp_path / "a.npy", with_header(header, harmful(mark)))
        is True
    )
    inner = npy(np.zeros(1, dtype=[("a", "O"), ("b", "i4")]), allow_pickle=True)
    assert look(array_files.examine_npy, tmp_path / "a.npy", inner) is True
    data = npz(np.savez_compressed, good=np.zeros(3), bad=np.array([{}], dtype=object))
    assert look(array_files.examine_npz, tmp_path / "a.npz", data) == ("bad",)
    assert not mark.exists()


@pytest.mark.parametrize(
    ("header", "reason"),
    [
        ("{'descr': '<f8', 'fortran_order': False, 'shape': (-1,)}", "shape is not valid"),
        ("{'descr': '<f8', 'fortran_order': False, 'shape': (True,)}", "shape is not valid"),
        ("{'descr': '<f8', 'fortran_order': False, 'shape': 3}", "shape is not valid"),
        ("{'descr': '<f8', 'fortran_order': 0, 'shape': (3,)}", "missing or invalid"),
        ("{'descr': '<f8', 'shape': (3,)}", "missing or invalid"),
        ("{'descr': '<z8', 'fortran_order': False, 'shape': (3,)}", "'<z8' is not valid"),
        ("{'descr': '<f' + '8', 'fortran_order': False, 'shape': (3,)}", "missing or invalid"),
        ("{'descr': [('a',)], 'fortran_order': False, 'shape': (3,)}", "a field of its dtype is not valid"),
        ("{'descr': [('a', '<f8', -2)], 'fortran_order': False, 'shape': (3,)}", "no shape"),
        ("{'descr': 8, 'fortran_order': False, 'shape': (3,)}", "dtype is not valid"),
        ("{'descr': '<f8', 'fortran_order': False, 'shape': (10**9,)}", "missing or invalid"),
        ("{'descr': '<f8', 'fortran_order': False, 'shape': (1000000000, 1000000000)}", "truncated"),
        ("{'descr': " + "[" * 30_000, "missing or invalid"),
        ("{'descr': " + "[('a', " * 20 + "'<f8'" + ")]" * 20 + ", 'fortran_order': False, 'shape': ()}", "too deep"),
        ("__import__('os').system('true')", "missing or invalid"),
    ],
)  # fmt: skip
def test_a_wrong_header_of_an_array_is_refused(tmp_path: Path, header: str, reason: str) -> None:
    assert reason in why(array_files.examine_npy, tmp_path / "a.npy", with_header(header))


def test_a_header_that_the_format_does_not_have_is_refused(tmp_path: Path) -> None:
    assert "version 9.0" in why(
        array_files.examine_npy, tmp_path / "a", with_header("{}", version=b"\x09\0")
    )
    longest = b"\x93NUMPY\2\0" + struct.pack("<I", 1 << 30)
    assert "claims a header" in why(array_files.examine_npy, tmp_path / "a", longest)


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_every_damage_to_an_archive_of_arrays_is_found_or_changes_no_array(
    tmp_path: Path, save: Callable[..., None]
) -> None:
    path = tmp_path / "a.npz"
    wanted = {"w": np.random.default_rng(1).random((8, 8)), "b": np.zeros(40)}
    source = npz(save, **wanted)
    refused = 0
    for what, data in damages(source, save.__name__):
        try:
            look(array_files.examine_npz, path, data)
        except FileRefused:
            refused += 1
            continue
        assert what.startswith("bit"), f"{what} was taken for whole"
        with np.load(path) as found:
            assert all((found[name] == array).all() for name, array in wanted.items()), what
    assert refused > 250


def archive(name: str, data: bytes, method: int = zipfile.ZIP_STORED) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", method) as zipped:
        zipped.writestr(name, data)
    return out.getvalue()


def test_a_record_that_is_no_array_of_its_length_is_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    assert "record w.npy: it does not begin" in why(
        array_files.examine_npz, path, archive("w.npy", b"text")
    )
    short = archive("w.npy", npy(np.zeros(9))[:-8])
    assert "record w.npy: it is truncated" in why(array_files.examine_npz, path, short)
    assert "is called '../w.npy'" in why(array_files.examine_npz, path, archive("../w.npy", b""))
    packed = archive("w.npy", npy(np.zeros(9)), zipfile.ZIP_LZMA)
    assert "in a way that its writer never does" in why(array_files.examine_npz, path, packed)
    assert look(array_files.examine_npz, path, archive("notes.txt", b"anything")) == ()


def test_a_bomb_is_never_unpacked_beyond_what_it_says(tmp_path: Path) -> None:
    """A record of 64 MiB that says 100 bytes of itself, at both places."""
    data = bytearray(archive("w.npy", bytes(64 << 20), zipfile.ZIP_DEFLATED))
    for place in (data.index(b"PK\1\2") + 24, data.index(b"PK\3\4") + 22):
        assert data[place : place + 4] == struct.pack("<I", 64 << 20)
        data[place : place + 4] = struct.pack("<I", 100)
    assert "more data than its header states" in why(
        array_files.examine_npz, tmp_path / "a.npz", bytes(data)
    )


@pytest.mark.parametrize("source", HDF5, ids=lambda path: path.name)
def test_a_file_of_hdf5_reaches_as_far_as_it_says(tmp_path: Path, source: Path) -> None:
    path, data = tmp_path / "a.h5", source.read_bytes()
    look(array_files.examine_hdf5, path, data)
    look(array_files.examine_hdf5, path, data + bytes(100))
    for length in {*range(1, 700), len(data) - 1}:
        assert why(array_files.examine_hdf5, path, data[:length])


def test_a_file_of_hdf5_that_was_not_closed_or_is_none_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.h5"
    data = bytearray((FIXTURES / "latest.h5").read_bytes())
    data[11] |= 1
    assert "was not closed" in why(array_files.examine_hdf5, path, bytes(data))
    data[8] = 77
    assert "version 77" in why(array_files.examine_hdf5, path, bytes(data))
    data[8], data[9] = 2, 200
    assert "addresses of 200 bytes" in why(array_files.examine_hdf5, path, bytes(data))
    assert "another format" in why(array_files.examine_hdf5, path, bytes(5000))


@pytest.mark.parametrize("source", GGUF, ids=lambda path: path.name)
def test_the_tensors_of_gguf_lie_within_the_file(tmp_path: Path, source: Path) -> None:
    path, data = tmp_path / "a.gguf", source.read_bytes()
    assert look(array_files.examine_gguf, path, data) == ()
    assert "after its end: 1 byte" in why(array_files.examine_gguf, path, data + b"\0")
    padding = 64  # at most, behind the last tensor
    for length in range(len(data) - padding):
        assert why(array_files.examine_gguf, path, data[:length])


@pytest.mark.parametrize("source", GGUF, ids=lambda path: path.name)
def test_a_flipped_bit_of_gguf_ends_in_nothing_but_a_refusal(tmp_path: Path, source: Path) -> None:
    for _, data in damages(source.read_bytes(), source.name):
        try:
            look(array_files.examine_gguf, tmp_path / "a.gguf", data)
        except FileRefused:
            continue


def text(value: bytes) -> bytes:
    return struct.pack("<Q", len(value)) + value


def tensor(name: bytes, shape: tuple[int, ...], kind: int, offset: int) -> bytes:
    sizes = struct.pack(f"<I{len(shape)}Q", len(shape), *shape)
    return text(name) + sizes + struct.pack("<IQ", kind, offset)


def gguf(
    tensors: list[bytes], pairs: list[bytes] | None = None, data: int = 0, version: int = 3
) -> bytes:
    pairs = pairs or []
    head = (
        b"GGUF"
        + struct.pack("<IQQ", version, len(tensors), len(pairs))
        + b"".join([*pairs, *tensors])
    )
    return head + bytes(-len(head) % 32) + bytes(data)


@pytest.mark.parametrize(
    ("file", "reason"),
    [
        (
            gguf([tensor(b"a", (8,), 0, 0), tensor(b"b", (8,), 0, 0)], data=64),
            "the one before it ends at 32",
        ),
        (gguf([tensor(b"a", (8,), 0, 0), tensor(b"a", (8,), 0, 32)], data=64), "two tensors"),
        (gguf([tensor(b"a", (8,), 0, 3)], data=64), "not a multiple of 32"),
        (gguf([tensor(b"a", (8,), 0, 1 << 62)], data=64), "truncated"),
        (gguf([tensor(b"a", (1 << 62, 1 << 62), 0, 0)], data=64), "truncated"),
        (gguf([tensor(b"a", (33,), 8, 0)], data=64), "not whole blocks of 32"),
        (gguf([tensor(b"a", (1,) * 9, 0, 0)], data=64), "9 dimensions"),
        (gguf([], [text(b"k") + struct.pack("<I", 13)]), "type 13"),
        (gguf([], [text(b"k") + struct.pack("<IIQ", 9, 4, 1 << 60)]), "truncated in its header"),
        (gguf([], [text(b"k") + struct.pack("<IIQ", 9, 8, 1 << 60)]), "truncated in its header"),
        (
            gguf([], [text(b"k") + struct.pack("<I", 9) + struct.pack("<IQ", 9, 1) * 40]),
            "arrays in arrays",
        ),
        (gguf([], [text(b"general.alignment") + struct.pack("<II", 4, 0)]), "alignment is 0"),
        (gguf([], [struct.pack("<Q", 1 << 40)]), "claims a text of"),
        (gguf([], version=1), "version 1"),
        (b"GGUF" + struct.pack("<IQQ", 3, 1 << 60, 0), "truncated in its header"),
    ],
)
def test_a_wrong_header_of_gguf_is_refused(tmp_path: Path, file: bytes, reason: str) -> None:
    assert reason in why(array_files.examine_gguf, tmp_path / "a.gguf", file)


def test_a_tensor_of_a_type_that_nobody_here_knows_is_named(tmp_path: Path) -> None:
    file = gguf([tensor(b"a", (8,), 99, 0)], data=64)
    assert look(array_files.examine_gguf, tmp_path / "a.gguf", file) == ("type 99",)


class Own:
    """A class that is in no list."""


def test_a_pickle_of_anybody_s_objects_is_named_and_not_loaded(tmp_path: Path) -> None:
    path, mark = tmp_path / "a.pkl", tmp_path / "ran"

    def said(data: bytes) -> str:
        return str(look(torch_files.examine_pickle, path, data))

    plain = pickle.dumps({"a": [1, np.arange(3.0)], "b": collections.OrderedDict(c=2)}, 2)
    assert said(plain) == ""
    assert said(plain + plain) == ""
    assert "names tests.unit.transfer.test_arrays_looked_at.Own" in said(
        pickle.dumps(Own(), 5) + plain
    )
    assert "compressed" in said(b"\x1f\x8b" + bytes(40))
    assert said((TODAY.parent / "before-1.6.pt").read_bytes()) == ""
    assert not mark.exists()


class Deed:
    """An object whose pickle calls what it is given."""

    def __init__(self, what: object, *arguments: object) -> None:
        self.reduced = (what, arguments)

    def __reduce__(self) -> tuple[object, ...]:
        return self.reduced


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
@pytest.mark.parametrize("before", [(), (Own(),)], ids=["alone", "behind an own object"])
def test_a_pickle_that_does_something_when_it_is_loaded_is_refused(
    tmp_path: Path, protocol: int, before: tuple[object, ...]
) -> None:
    path, mark = tmp_path / "a.pkl", tmp_path / "ran"
    for what, said in (
        (Deed(open, str(mark), "w"), "io.open"),
        (Deed(os.system, f"touch {mark}"), "posix.system"),
        (Deed(eval, "1"), "builtins.eval"),
        (Deed(subprocess.Popen, ["touch", str(mark)]), ".Popen: loading it would run that"),
    ):
        data = pickle.dumps([*before, "x", what, what], protocol)
        assert said in why(torch_files.examine_pickle, path, data)
    assert not mark.exists()


def test_a_pickle_that_goes_a_roundabout_way_to_it_is_refused(tmp_path: Path) -> None:
    """By an attribute of another module, with an opcode that checkpoints have not, or by what it has kept."""
    path = tmp_path / "a.pkl"
    own = b"ctests.unit.transfer.test_arrays_looked_at\nOwn\n0"
    for data in (
        b"\x80\x04\x8c\x05numpy\x8c\x09os.system\x93.",
        b"\x80\x02(iposix\nsystem\n.",
        b"\x80\x02" + own + b"(S'true'\niposix\nsystem\n.",
        b"\x80\x04" + own + b"\x8c\x05posixq\x000\x8c\x06systemq\x010h\x00h\x01\x93.",
    ):
        assert why(torch_files.examine_pickle, path, data)


def test_plain_records_of_modules_that_also_act_are_nobody_s_deed() -> None:
    harmless = (
        ("io", "BytesIO"), ("os", "stat_result"), ("urllib.parse", "ParseResult"), ("sys", "version_info"),
        ("socket", "AddressFamily"), ("pandas.io.common", "get_handle"), ("builtins", "getattr"), ("own", "open"),
    )  # fmt: skip
    assert [name for name in harmless if has_side_effects(*name)] == []


@pytest.mark.parametrize("value", [{"a": list(range(99))}, Own()], ids=["plain", "own"])
def test_a_pickle_that_is_cut_off_is_refused(tmp_path: Path, value: object) -> None:
    data = pickle.dumps(value, 4)
    for length in range(1, len(data)):
        assert "damaged" in why(torch_files.examine_pickle, tmp_path / "a.pkl", data[:length])


def test_what_joblib_wrote_is_not_called_damaged(tmp_path: Path) -> None:
    """It writes the bytes of an array between the opcodes."""
    head = b"\x80\x04cjoblib.numpy_pickle\nNumpyArrayWrapper\n)\x81"
    found = look(torch_files.examine_pickle, tmp_path / "a.pkl", head + os.urandom(64) + b".")
    assert "joblib.numpy_pickle.NumpyArrayWrapper" in found
