"""The numbers of a zip file, forged one by one: what contradicts itself is refused, whatever a reader makes of it."""

from __future__ import annotations

import zlib
from pathlib import Path
from typing import NamedTuple

import pytest

from rgt_tui.transfer import zip_records
from rgt_tui.transfer.file_stretch import FileRefused, OpenFileSection

DATA, NAME = b"weights", b"a/0"


class Forged(NamedTuple):
    """A zip file of one stored record, as torch writes it; each number can be another."""

    crc: int = zlib.crc32(DATA)
    size: int = len(DATA)
    name_length: int = len(NAME)
    records: int = 1
    """Of both ends, unless `short_count` says something else."""
    short_count: int | None = None
    directory_off: int = 0
    """By how many bytes the short end is beside the 64-bit one."""
    disks: int = 1
    end64_magic: bytes = b"PK\x06\x06"
    end64_size: int = 44
    end64_disk: int = 0
    end64_first: int = 0
    end64_here: int | None = None
    locator_disk: int = 0
    locator_off: int = 0

    def bytes(self) -> bytes:
        local = zip_records._LOCAL.pack(
            b"PK\x03\x04", 20, 0, 0, 0, 0, self.crc, self.size, self.size, len(NAME), 0
        )
        records = local + NAME + DATA
        true = zlib.crc32(DATA), len(DATA), len(DATA)
        entry = zip_records._ENTRY.pack(
            b"PK\x01\x02", 20, 20, 0, 0, 0, 0, *true, self.name_length, 0, 0, 0, 0, 0, 0
        )
        entry += NAME
        here = self.records if self.end64_here is None else self.end64_here
        end64 = zip_records._END64.pack(
            self.end64_magic, self.end64_size, 45, 45, self.end64_disk, self.end64_first, here, self.records,
            len(entry), len(records),
        )  # fmt: skip
        where = len(records) + len(entry) + self.locator_off
        locator = zip_records._LOCATOR.pack(b"PK\x06\x07", self.locator_disk, where, self.disks)
        short = min(self.records, 0xFFFF) if self.short_count is None else self.short_count
        begin = len(records) + self.directory_off
        end = zip_records._END.pack(b"PK\x05\x06", 0, 0, short, short, len(entry), begin, 0)
        return records + entry + end64 + locator + end


def found(tmp_path: Path, data: bytes) -> dict[str, bytes]:
    (tmp_path / "file.pt").write_bytes(data)
    with OpenFileSection(tmp_path / "file.pt") as whole:
        return {
            name: b"".join(record.iterate_pieces())
            for name, record in zip_records.read_records(whole).items()
        }


def test_what_is_not_forged_is_read(tmp_path: Path) -> None:
    assert found(tmp_path, Forged().bytes()) == {"a/0": DATA}
    assert found(tmp_path, Forged(short_count=0xFFFF).bytes()) == {
        "a/0": DATA
    }  # "see the 64-bit end"


def test_a_file_of_no_records_is_too_short_for_a_64_bit_end(tmp_path: Path) -> None:
    assert found(tmp_path, zip_records._END.pack(b"PK\x05\x06", 0, 0, 0, 0, 0, 0, 0)) == {}


@pytest.mark.parametrize(
    ("forged", "told"),
    [
        (Forged(short_count=2), "its two directory ends disagree"),
        (Forged(directory_off=-1), "its two directory ends disagree"),
        (Forged(records=1 << 40, short_count=0xFFFF), "it claims to have 1,099,511,627,776 records"),
        (Forged(records=2), "its directory ends inside an entry"),
        (Forged(name_length=len(NAME) + 1), "its directory ends inside an entry"),
        (Forged(name_length=len(NAME) - 1), "its directory is longer than its entries"),
        (Forged(crc=1), "says something else of itself"),
        (Forged(size=len(DATA) - 1), "says something else of itself"),
        (Forged(disks=2), "the place of its 64-bit directory end is wrong"),
        (Forged(locator_disk=1), "the place of its 64-bit directory end is wrong"),
        (Forged(locator_off=-1), "the place of its 64-bit directory end is wrong"),
        (Forged(end64_magic=b"PK\x06\x05"), "its 64-bit directory end is damaged"),
        (Forged(end64_size=45), "its 64-bit directory end is damaged"),
        (Forged(end64_disk=1), "its 64-bit directory end is damaged"),
        (Forged(end64_first=1), "its 64-bit directory end is damaged"),
        (Forged(end64_here=2), "its 64-bit directory end is damaged"),
    ],
)  # fmt: skip
def test_what_contradicts_itself_is_refused(tmp_path: Path, forged: Forged, told: str) -> None:
    with pytest.raises(FileRefused, match=told):
        found(tmp_path, forged.bytes())
