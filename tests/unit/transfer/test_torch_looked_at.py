"""Files of torch.save: what is whole is found whole, everything else is refused, and nothing is run."""

from __future__ import annotations

import argparse
import collections
import contextlib
import io
import pickle
import zipfile
from pathlib import Path

import pytest

from rgt_tui.transfer import torch_files
from rgt_tui.transfer.file_stretch import FileRefused, OpenFileSection
from tests.unit.transfer.hostile_files import (
    FILES,
    TODAY,
    harmful,
    torch_zip,
    with_pickle,
    without_checksums,
)


def look(path: Path) -> torch_files.TorchFile:
    with OpenFileSection(path) as whole:
        return torch_files.examine_torch_file(whole)


def refused(tmp_path: Path, data: bytes) -> str:
    path = tmp_path / "file.pt"
    path.write_bytes(data)
    with pytest.raises(FileRefused) as caught:
        look(path)
    return str(caught.value)


def test_a_file_of_today_is_whole_by_its_checksums() -> None:
    assert look(TODAY) == torch_files.TorchFile(True, False, ())


def test_a_file_of_before_1_6_is_whole_by_its_lengths() -> None:
    assert look(FILES / "before-1.6.pt") == torch_files.TorchFile(False, True, ())


def packed_again(path: Path, **settings: int) -> bytes:
    """The same records by Python's own writer, which leaves other words in the heads."""
    out = io.BytesIO()
    with zipfile.ZipFile(path) as old, zipfile.ZipFile(out, "w") as new:
        for number, entry in enumerate(old.infolist()):
            info = zipfile.ZipInfo(entry.filename, (2026, 1, 1, number, 0, 0))
            for name, value in settings.items():
                setattr(info, name, value)
            new.writestr(info, old.read(entry))
    return out.getvalue()


@pytest.mark.parametrize(
    "settings", [{}, {"create_system": 0}, {"external_attr": 0o644 << 16}, {"create_version": 63}]
)
def test_a_file_that_was_packed_again_is_as_good(tmp_path: Path, settings: dict[str, int]) -> None:
    path = tmp_path / "again.pt"
    path.write_bytes(packed_again(TODAY, **settings))
    assert look(path) == torch_files.TorchFile(True, False, ())


def test_a_file_with_a_record_of_another_writer_is_as_good_and_its_other_heads_are_still_compared(
    tmp_path: Path,
) -> None:
    path = tmp_path / "more.pt"
    path.write_bytes(TODAY.read_bytes())
    with zipfile.ZipFile(path, "a") as archive:
        folder = archive.namelist()[0].partition("/")[0]
        archive.writestr(f"{folder}/notes", b"lr 0.1")
    assert look(path).checked
    data = bytearray(path.read_bytes())
    data[12] ^= 1  # the date of the first record
    assert "the date of its head" in refused(tmp_path, bytes(data))


def test_a_file_that_was_saved_without_checksums_is_whole_and_unproven(tmp_path: Path) -> None:
    path = tmp_path / "none.pt"
    path.write_bytes(without_checksums(TODAY))
    assert look(path) == torch_files.TorchFile(False, False, ())


@pytest.mark.parametrize(
    "name", ["optimizer.pt", "scheduler.pt", "rng_state.pth", "training_args.bin"]
)
def test_what_a_trainer_leaves_beside_the_weights_is_read(name: str) -> None:
    found = look(FILES / "hf/checkpoint-5" / name)
    assert found.checked
    assert bool(found.not_loadable) == (name in ("rng_state.pth", "training_args.bin"))


VALUES: dict[str, object] = {
    "args": argparse.Namespace(lr=0.1),
    "more": collections.defaultdict(dict, {1: {2: 3}}),
    "b": bytearray(b"1"),
}


@pytest.mark.parametrize(
    ("protocol", "said"),
    [
        (2, {"argparse.Namespace", "builtins.dict", "collections.defaultdict"}),
        (4, {"pickle protocol 4"}),
    ],
)
def test_what_torchs_own_loader_does_not_take_is_said_and_no_error(
    tmp_path: Path, protocol: int, said: set[str]
) -> None:
    path = tmp_path / "file.pt"
    path.write_bytes(with_pickle(pickle.dumps(VALUES, protocol)))
    found = look(path)
    assert found.checked and said <= set(found.not_loadable)


def test_names_of_python_2_are_those_of_today(tmp_path: Path) -> None:
    path = tmp_path / "file.pt"
    path.write_bytes(with_pickle(pickle.dumps({"b": bytearray(b"1"), "s": {1}}, 2)))
    assert look(path).not_loadable == ()


@pytest.mark.parametrize("protocol", [2, 4, 5])
def test_a_pickle_that_runs_code_is_refused_and_not_run(tmp_path: Path, protocol: int) -> None:
    mark = tmp_path / "ran"
    assert "io.open" in refused(tmp_path, with_pickle(harmful(mark, protocol)))
    assert "io.open" in refused(tmp_path, harmful(mark, protocol))
    assert not mark.exists()


@pytest.mark.parametrize(
    "data",
    [
        b"cos\nsystem\n(S'true'\ntR.",  # protocol 0
        b"\x80\x02(S'true'\nios\nsystem\n.",  # INST
        b"\x80\x02(cos\nsystem\nS'true'\no.",  # OBJ
        b"\x80\x04\x8c\x02os\x8c\x06system\x93\x8c\x04true\x85R.",
        b"\x80\x02ctorch._utils\n_rebuild_tensor_v2\ncos\nsystem\n\x85R.",
        b"\x80\x02cbuiltins\ngetattr\nctorch\nTensor\nX\x05\x00\x00\x00apply\x86R.",
        b"\x80\x02cbuiltins\ngetattr\nctorch.distributed.checkpoint.metadata\n_MEM_FORMAT_ENCODING\nX\x09\x00\x00\x00"
        b"__class__\x86R.",
        b"\x80\x02cbuiltins\neval\nX\x01\x00\x00\x001\x85R.",
        b"\x80\x02ctorch.nn.modules.linear\nLinear\n)\x81.",
        b"\x80\x02}(X\x01\x00\x00\x00aK\x01u)R.",  # calls a dictionary
        b"\x80\x02ccollections\nOrderedDict\n)R)R.",  # calls what a call made
        b"\x80\x02ccollections\nOrderedDict\n}b.",  # sets the state of a class
        b"\x80\x02\x82\x01.",  # an extension of copyreg
        b"\x80\x02X\x01\x00\x00\x00aQ.",  # refers to no storage
        b"\x80\x05\x97.",  # a buffer out of band
    ],
)  # fmt: skip
def test_every_way_to_name_or_call_something_is_refused(tmp_path: Path, data: bytes) -> None:
    assert refused(tmp_path, with_pickle(data))
    assert refused(tmp_path, data)


@pytest.mark.parametrize(
    "data",
    [b"\x80\x02" + b"]" * 1_000_000 + b"a" * 999_999 + b".", b"\x80\x02" + b"(" * 1_000_000 + b"."],
    ids=["nested", "marks"],
)
def test_a_million_levels_cost_no_more_than_their_bytes(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "deep.pt"
    path.write_bytes(with_pickle(data))
    with contextlib.suppress(FileRefused):  # either is well, as long as it comes back
        look(path)


def test_a_value_that_holds_itself_again_and_again_is_not_followed(tmp_path: Path) -> None:
    doubling = b"\x80\x02)" + b"q\x00h\x00\x86" * 100 + b"."
    path = tmp_path / "bomb.pt"
    path.write_bytes(with_pickle(doubling))
    assert look(path).checked


LENGTHS = (
    b"\x8a\xff" + b"\xff" * 255,
    b"\x8b\xff\xff\xff\x7f",
    b"X\xff\xff\xff\xff",
    b"B\xff\xff\xff\xff",
)


@pytest.mark.parametrize("number", LENGTHS)
def test_a_length_beyond_the_file_is_refused(tmp_path: Path, number: bytes) -> None:
    assert refused(tmp_path, with_pickle(b"\x80\x02" + number))


# Zip files.


def test_a_compressed_record_is_refused_before_it_is_unpacked(tmp_path: Path) -> None:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("archive/data.pkl", b"\0" * (64 << 20))
    assert "compressed" in refused(tmp_path, out.getvalue())


def test_a_file_with_two_directories_is_refused(tmp_path: Path) -> None:
    harm = with_pickle(harmful(tmp_path / "ran"))
    for data in (harm + TODAY.read_bytes(), TODAY.read_bytes() + harm):
        assert refused(tmp_path, data)
    one, other = (
        torch_zip({"a": b"x"}),
        torch_zip({"data.pkl": pickle.dumps(1, 2), "version": b"3"}),
    )
    assert refused(tmp_path, one + other)


def test_a_record_that_calls_itself_something_else_is_refused(tmp_path: Path) -> None:
    data = TODAY.read_bytes()
    assert "something else of itself" in refused(
        tmp_path, data.replace(b"today/version", b"today/Version", 1)
    )


def test_a_record_that_begins_with_another_checksum_is_refused(tmp_path: Path) -> None:
    """The checksum stands three times: before the record, behind it, and in the directory."""
    data = bytearray(TODAY.read_bytes())
    data[14] = 1
    assert "another checksum" in refused(tmp_path, bytes(data))


def test_two_records_of_one_name_are_refused(tmp_path: Path) -> None:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr("archive/data.pkl", b"a")
        with pytest.warns(UserWarning, match="Duplicate"):
            archive.writestr("archive/data.pkl", b"b")
    assert "two records" in refused(tmp_path, out.getvalue())


def test_records_that_share_their_bytes_are_refused(tmp_path: Path) -> None:
    """So a small file is made to unpack to a large one without compression of its own."""
    data = torch_zip({"data.pkl": pickle.dumps(1, 2), "version": b"3"})
    directory = data.index(b"PK\x01\x02")
    second = data.index(b"PK\x01\x02", directory + 1)
    assert refused(tmp_path, data[:second] + data[directory:second] + data[second:])


@pytest.mark.parametrize("size", [10**18, 2**63, 2**64 - 1])
def test_a_size_of_ten_to_the_eighteenth_is_refused(tmp_path: Path, size: int) -> None:
    data = bytearray(TODAY.read_bytes())
    wide = data.index(b"PK\x06\x06")
    for field in (24, 32, 40, 48):
        changed = data.copy()
        changed[wide + field : wide + field + 8] = (size % 2**64).to_bytes(8, "little")
        assert refused(tmp_path, bytes(changed))


def test_a_storage_that_is_missing_or_short_is_refused(tmp_path: Path) -> None:
    with zipfile.ZipFile(TODAY) as archive:
        records = {name.partition("/")[2]: archive.read(name) for name in archive.namelist()}
    assert "missing" in refused(
        tmp_path, torch_zip({k: v for k, v in records.items() if k != "data/0"})
    )
    assert "its tensors need" in refused(
        tmp_path, torch_zip({**records, "data/0": records["data/0"][:-4]})
    )


def test_code_of_torchscript_is_refused(tmp_path: Path) -> None:
    assert "TorchScript" in refused(
        tmp_path, torch_zip({"data.pkl": b"", "version": b"3", "code/a.py": b""})
    )


def test_a_raw_file_is_refused(tmp_path: Path) -> None:
    assert "first bytes" in refused(tmp_path, b"\0" * 100)
    assert "empty" in refused(tmp_path, b"")


def test_a_file_of_before_1_6_that_is_cut_off_or_longer_is_refused(tmp_path: Path) -> None:
    data = (FILES / "before-1.6.pt").read_bytes()
    assert "truncated" in refused(tmp_path, data[:-1])
    assert "after its end" in refused(tmp_path, data + b"\0")
