"""One flipped bit, one byte less: in a format with checksums it is found, in one without it is said to be unproven.

The positions are sampled by the file's name, the same ones in every run; no exception but the meant ones may escape.
"""

from __future__ import annotations

import contextlib
import os
import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rgt_tui.transfer import directory_contents, logged_files, safetensors_files, torch_files
from rgt_tui.transfer.file_stretch import FileRefused, FileSection, MemberFileError, OpenFileSection
from rgt_tui.transfer.zip_records import read_records
from tests.system.tree import ROOT, unpack
from tests.unit.transfer.hostile_files import FILES, TODAY

TRAINER = ROOT / "tests/fixtures/checkpoints/plain-python3.11.7.tar.gz"
SAMPLES = 250


def damages(data: bytes, seed: str) -> Iterator[tuple[str, bytes]]:
    """The file with one bit changed, and the file cut off, at sampled places; all of a short file's."""
    chosen = random.Random(seed)
    places = (
        range(len(data))
        if len(data) <= SAMPLES
        else sorted(chosen.sample(range(len(data)), SAMPLES))
    )
    for place in places:
        changed = bytearray(data)
        changed[place] ^= 1 << chosen.randrange(8)
        yield f"bit at {place}", bytes(changed)
    for length in (0, *places):
        yield f"cut at {length}", data[:length]


def content_of_zip(path: Path) -> dict[str, bytes]:
    with OpenFileSection(path) as whole:
        return {
            name: record.data.read(0, record.data.length)
            for name, record in read_records(whole).items()
        }


def in_file(look: Callable[[FileSection], object]) -> Callable[[Path], object]:
    def inner(path: Path) -> object:
        with OpenFileSection(path) as whole:
            return look(whole)

    return inner


ZIPS = (
    "today.pt",
    *(f"hf/checkpoint-5/{name}" for name in ("scheduler.pt", "rng_state.pth", "training_args.bin")),
)


@pytest.mark.parametrize("name", ZIPS)
def test_every_damage_to_a_torch_file_is_found(tmp_path: Path, name: str) -> None:
    copy = tmp_path / "copy.pt"
    for what, data in damages((FILES / name).read_bytes(), name):
        copy.write_bytes(data)
        with pytest.raises(FileRefused):
            in_file(torch_files.examine_torch_file)(copy)
            pytest.fail(f"{what} was taken for whole")


def test_each_single_bit_of_a_torch_file_is_found(tmp_path: Path) -> None:
    copy = tmp_path / "copy.pt"
    data = (FILES / "hf/checkpoint-5/scheduler.pt").read_bytes()
    copy.write_bytes(data)
    missed = []
    with copy.open("r+b", buffering=0) as file, OpenFileSection(copy) as whole:
        for place, byte in enumerate(data):
            for bit in range(8):
                os.pwrite(file.fileno(), bytes([byte ^ 1 << bit]), place)
                try:
                    torch_files.examine_torch_file(whole)
                except FileRefused as refused:
                    assert str(refused)
                    continue
                missed.append((place, bit))
            os.pwrite(file.fileno(), bytes([byte]), place)
        assert torch_files.examine_torch_file(whole).checked
    assert missed == []


def test_every_cut_of_the_older_form_is_found_and_its_content_is_never_called_proven(
    tmp_path: Path,
) -> None:
    copy = tmp_path / "copy.pt"
    for what, data in damages((FILES / "before-1.6.pt").read_bytes(), "legacy"):
        copy.write_bytes(data)
        try:
            found = in_file(torch_files.examine_torch_file)(copy)
        except FileRefused:
            continue
        assert isinstance(found, torch_files.TorchFile)
        assert not found.checked, what
        assert what.startswith("bit"), what


def test_every_cut_of_safetensors_is_found_and_its_header_is_held_against_its_length(
    tmp_path: Path,
) -> None:
    copy = tmp_path / "copy.safetensors"
    for what, data in damages((FILES / "weights.safetensors").read_bytes(), "safetensors"):
        copy.write_bytes(data)
        try:
            in_file(safetensors_files.examine_safetensors)(copy)
        except FileRefused:
            continue
        assert what.startswith("bit"), what


def test_every_damage_to_events_is_found_but_a_cut_between_two_records(tmp_path: Path) -> None:
    source = next((FILES / "logs").glob("events*"))
    data = source.read_bytes()
    ends = set()
    at = 0
    while at < len(data):
        at += 16 + int.from_bytes(data[at : at + 8], "little")
        ends.add(at)
    copy = tmp_path / "events"
    for what, damaged in damages(data, "events"):
        copy.write_bytes(damaged)
        try:
            in_file(logged_files.examine_events)(copy)
        except FileRefused:
            continue
        assert what.startswith("cut") and len(damaged) in ends, what


@pytest.mark.parametrize("name", [".metadata", "__0_0.distcp"])
def test_no_damage_to_a_sharded_checkpoint_escapes_as_anything_else(
    tmp_path: Path, name: str
) -> None:
    folder = tmp_path / "sharded"
    shutil.copytree(FILES / "sharded", folder)
    data = (folder / name).read_bytes()
    for what, damaged in damages(data, name):
        (folder / name).write_bytes(damaged)
        try:
            torch_files.examine_checkpoint(folder)
        except (MemberFileError, FileRefused):
            continue
        assert what.startswith("bit"), what
        if name != ".metadata":
            for part in set(_parts(folder)):
                before, after = (
                    data[part.offset :][: part.length],
                    damaged[part.offset :][: part.length],
                )
                assert before == after or _zip_content(tmp_path, before) == _zip_content(
                    tmp_path, after
                ), what


def _parts(folder: Path) -> tuple[torch_files.CheckpointPart, ...]:
    with OpenFileSection(folder / ".metadata") as metadata:
        return torch_files.read_parts(metadata)


def _zip_content(tmp_path: Path, data: bytes) -> dict[str, bytes]:
    (tmp_path / "part").write_bytes(data)
    return content_of_zip(tmp_path / "part")


@pytest.mark.parametrize(
    "name", ["manifest.json", "model.safetensors", "state.json", "trainer.safetensors"]
)
def test_every_damage_to_a_checkpoint_of_the_trainer_is_found(tmp_path: Path, name: str) -> None:
    unpack(TRAINER, tmp_path)
    folder = next((tmp_path / "checkpoints").iterdir())
    assert set(directory_contents.examine_trainer_checkpoint(folder)) >= {
        "manifest.json",
        "model.safetensors",
        "state.json",
    }
    data = (folder / name).read_bytes()
    for what, damaged in damages(data, name):
        (folder / name).write_bytes(damaged)
        with pytest.raises(MemberFileError):
            directory_contents.examine_trainer_checkpoint(folder)
            pytest.fail(what)
    (folder / name).unlink()
    with pytest.raises(MemberFileError, match="missing"):
        directory_contents.examine_trainer_checkpoint(folder)


def test_no_damage_to_an_index_or_a_log_escapes_as_anything_else(tmp_path: Path) -> None:
    folder = tmp_path / "hf"
    shutil.copytree(FILES / "hf/checkpoint-5", folder)
    index = folder / "model.safetensors.index.json"
    for _, damaged in damages(index.read_bytes(), "index"):
        index.write_bytes(damaged)
        with_trouble(safetensors_files.examine_index, index)
    lines = tmp_path / "metrics.jsonl"
    for _, damaged in damages((FILES / "logs/metrics.jsonl").read_bytes(), "lines"):
        lines.write_bytes(damaged)
        with_trouble(in_file(logged_files.examine_lines), lines)


def with_trouble(look: Callable[[Path], object], path: Path) -> None:
    with contextlib.suppress(FileRefused, MemberFileError):
        look(path)


def test_the_whole_files_are_found_whole() -> None:
    """Otherwise everything above would be refused for nothing."""
    in_file(torch_files.examine_torch_file)(TODAY)
    torch_files.examine_checkpoint(FILES / "sharded")
    safetensors_files.examine_index(FILES / "hf/checkpoint-5/model.safetensors.index.json")
    in_file(safetensors_files.examine_safetensors)(FILES / "weights.safetensors")
    in_file(logged_files.examine_lines)(FILES / "logs/metrics.jsonl")
    in_file(logged_files.examine_events)(next((FILES / "logs").glob("events*")))
