"""Files that somebody made to do harm, or that an accident made, written byte by byte."""

from __future__ import annotations

import io
import pickle
import struct
import zipfile
from collections.abc import Mapping
from pathlib import Path

from tests.system.tree import ROOT

FILES = ROOT / "tests/fixtures/checkpoint_files"
TODAY = FILES / "today.pt"


class Harm:
    """An object whose pickle leaves a file behind when it is loaded."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[object, ...]:
        return open, (str(self.mark), "w")


def torch_zip(records: Mapping[str, bytes], folder: str = "archive") -> bytes:
    """A zip file as torch writes it, with these records."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_STORED) as archive:
        for name, data in records.items():
            archive.writestr(f"{folder}/{name}", data)
    return out.getvalue()


def with_pickle(data: bytes) -> bytes:
    """A file of torch.save that consists of one pickle."""
    return torch_zip({"data.pkl": data, "version": b"3\n"})


def harmful(mark: Path, protocol: int = 2) -> bytes:
    """A pickle that makes the file `mark` when it is loaded."""
    return pickle.dumps({"model": Harm(mark)}, protocol)


def without_checksums(path: Path) -> bytes:
    """The file as torch leaves it after ``torch.serialization.set_crc32_options(False)``."""
    data = path.read_bytes()
    for entry in zipfile.ZipFile(path).infolist():
        data = data.replace(struct.pack("<I", entry.CRC), bytes(4))
    return data


def safetensors(header: bytes, data: bytes = b"") -> bytes:
    """A safetensors file."""
    return struct.pack("<Q", len(header)) + header + data
