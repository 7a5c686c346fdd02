"""A bit is flipped, a file is cut, grown, exchanged or gone: it is told, and never loaded."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest
from rgt_train.checkpoint import (
    NAME,
    CheckpointDamaged,
    CheckpointStore,
    LoadedCheckpoint,
    verified_checkpoint,
)

from tests.process.train.harness import Zygote, checkpoint_of
from tests.torture.train.conftest import FULL

VALUES = {"epochs": 1, "steps_per_epoch": 12, "save_every": 4, "background": False}
NEWEST, BEFORE = 12, 8
POSITIONS = 3000 if FULL else 150
BITS = range(8) if FULL else (0,)
"""Bits of each byte of the manifest that are flipped; in the short form a random one."""


@pytest.fixture(scope="module")
def run(trainers: Zygote, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("damage") / "run"
    assert trainers.launch(out, VALUES).wait() == 0
    return out


@pytest.fixture
def newest(run: Path, quick_disk: Path) -> Path:
    return shutil.copytree(checkpoint_of(run, NEWEST), quick_disk / "newest", dirs_exist_ok=True)


def told(path: Path) -> bool:
    """Say whether the trainer refuses to load `path`, and lists it as damaged."""
    for look in (verified_checkpoint, lambda place: LoadedCheckpoint(place).close()):
        try:
            look(str(path))
        except CheckpointDamaged:
            continue
        return False
    return True


def flipped(data: bytes, at: int, bit: int) -> bytes:
    return data[:at] + bytes([data[at] ^ 1 << bit]) + data[at + 1 :]


def test_nothing_is_told_of_what_is_whole(newest: Path) -> None:
    assert not told(newest)


def test_any_bit(newest: Path) -> None:
    draw = random.Random(41)
    tried = 0
    for path in sorted(newest.iterdir()):
        data = path.read_bytes()
        if path.name == NAME:
            spots = [
                (at, bit if FULL else draw.randrange(8)) for at in range(len(data)) for bit in BITS
            ]
        else:
            header = range(min(64, len(data)))
            spots = [
                (at, draw.randrange(8))
                for at in [*header, *draw.choices(range(len(data)), k=POSITIONS)]
            ]
        for at, bit in spots:
            path.write_bytes(flipped(data, at, bit))
            assert told(newest), f"bit {bit} of byte {at} of {path.name}"
            tried += 1
        path.write_bytes(data)
    print(f"{tried} bits flipped, each found")
    assert not told(newest)


def test_any_cut(newest: Path) -> None:
    draw = random.Random(42)
    for path in sorted(newest.iterdir()):
        data = path.read_bytes()
        cuts = {0, 1, len(data) - 1, *(draw.randrange(len(data)) for _ in range(POSITIONS // 10))}
        for cut in cuts:
            path.write_bytes(data[:cut])
            assert told(newest), f"{path.name} cut to {cut}"
            path.write_bytes(data[:cut] + bytes(len(data) - cut))
            assert told(newest) or not any(data[cut:]), f"{path.name} zeroed from {cut}"
        path.write_bytes(data + b"\0")
        assert told(newest), f"{path.name} grown"
        path.unlink()
        assert told(newest), f"{path.name} gone"
        path.mkdir()
        assert told(newest), f"{path.name} a directory"
        path.rmdir()
        path.write_bytes(data)
    assert not told(newest)


def test_files_of_another_checkpoint(newest: Path, run: Path) -> None:
    """Each file is whole, but of another step: together they are no state that ever was."""
    for path in sorted(newest.iterdir()):
        data = path.read_bytes()
        other = (checkpoint_of(run, BEFORE) / path.name).read_bytes()
        path.write_bytes(other)
        assert told(newest), path.name
        path.write_bytes(data)


def test_the_one_before_is_taken(run: Path, quick_disk: Path) -> None:
    """For a bit of each file: the same launch goes back to the checkpoint before, and says which file it was."""
    for name in sorted(path.name for path in checkpoint_of(run, NEWEST).iterdir()):
        out = quick_disk / name
        shutil.copytree(run, out)
        path = checkpoint_of(out, NEWEST) / name
        path.write_bytes(flipped(path.read_bytes(), path.stat().st_size // 2, 3))
        found, complaints = CheckpointStore(out, 2).newest_good(verified_checkpoint)
        assert found is not None and found.step == BEFORE
        assert len(complaints) == 1 and name in complaints[0]
