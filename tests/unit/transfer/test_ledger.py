"""The ledger of what was pulled, and the proofs that rest on it."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import msgspec
import pytest
from rgt_box.commands.result_walk import FileGroup

from rgt_tui.model import CopyProof, ResultGroup
from rgt_tui.transfer import (
    FileRow,
    FileStamp,
    FolderRow,
    GoneRow,
    Ledger,
    LedgerError,
    fingerprint,
    ledger_path,
)
from rgt_tui.transfer.ledger import prove_copies, sha256_of


class World:
    """A box's directory ``/w/run`` that was pulled, below a state directory of its own."""

    def __init__(self, folder: Path) -> None:
        self.env = {"XDG_STATE_HOME": str(folder / "state"), "HOME": str(folder)}
        self.copies = folder / "copies"
        self.copies.mkdir()
        self.path = ledger_path("lab", self.env)

    def row(self, path: str, data: bytes = b"some bytes", instance: str = "pod-1") -> FileRow:
        local = self.copies / path.replace("/", "_")
        local.write_bytes(data)
        return FileRow(
            path=path,
            local=str(local),
            sha256=hashlib.sha256(data).hexdigest(),
            there=FileStamp(len(data), 1, 2, 3),
            here=FileStamp.from_stat(local.stat()),
            instance=instance,
        )

    def pulled(self, *rows: FileRow, path: str = "/w/run", **changes: object) -> None:
        folder = FolderRow(
            path=path,
            local=str(self.copies),
            fingerprint="f" * 64,
            files=len(rows),
            bytes=sum(row.there.size for row in rows),
            instance="pod-1",
        )
        ledger = Ledger(self.path)
        ledger.append_rows([*rows, msgspec.structs.replace(folder, **changes)])
        ledger.close()

    def proofs(self, *paths: str, instance: str = "pod-1") -> tuple[CopyProof, ...]:
        groups = [ResultGroup(path=path) for path in paths or ("/w/run",)]
        return prove_copies("lab", instance, groups, env=self.env)


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_a_whole_copy_is_proven_with_its_fingerprint(world: World) -> None:
    world.pulled(world.row("/w/run/a.pt"), world.row("/w/run/deep/b.pt", b"more"))
    (proof,) = world.proofs()
    assert (proof.path, proof.fingerprint, proof.files, proof.bytes, proof.errors) == (
        "/w/run", "f" * 64, 2, 14, (),
    )  # fmt: skip
    assert proof.checked is not None


def test_a_list_without_the_files_that_are_older_than_the_machine_is_proved_by_a_pull_of_all(
    world: World,
) -> None:
    rows = [
        msgspec.structs.replace(
            world.row(f"/w/run/{number}"), there=FileStamp(10, 1, number, number)
        )
        for number in range(4)
    ]
    world.pulled(*rows)

    def proved(*counted: FileRow, files: int | None = None) -> list[bool]:
        group = ResultGroup(
            path="/w/run", files=files or len(counted), fingerprint=fingerprint(counted)
        )
        found = prove_copies("lab", "pod-1", [group], env=world.env)
        return [proof.fingerprint == group.fingerprint and not proof.errors for proof in found]

    assert proved(*rows) == [True]
    assert proved(*rows[2:]) == [True]
    assert proved(rows[0], rows[3]) == [False], (
        "the older of them is none that a date would leave in"
    )
    changed = msgspec.structs.replace(rows[3], there=FileStamp(10, 1, 9, 3))
    assert proved(rows[2], changed) == [False]
    Path(rows[3].local).unlink()
    assert proved(*rows[2:]) == [False], "a copy that counts is gone"


def test_a_flipped_byte_is_named_by_its_file(world: World) -> None:
    row = world.row("/w/run/a.pt")
    world.pulled(row, world.row("/w/run/b.pt"))
    with open(row.local, "r+b") as file:
        file.write(b"S")
    (proof,) = world.proofs()
    assert [path for path, _ in proof.errors] == ["/w/run/a.pt"]
    assert "SHA-256" in proof.errors[0][1]


def test_a_copy_that_is_gone_short_or_a_link_is_named(world: World) -> None:
    rows = [world.row(f"/w/run/{name}") for name in "abc"]
    world.pulled(*rows)
    os.unlink(rows[0].local)
    os.truncate(rows[1].local, 3)
    os.rename(rows[2].local, rows[2].local + ".x")
    os.symlink(rows[2].local + ".x", rows[2].local)
    (proof,) = world.proofs()
    reasons = dict(proof.errors)
    assert "gone" in reasons["/w/run/a"]
    assert "3 bytes, not 10" in reasons["/w/run/b"]
    assert "no longer a regular file" in reasons["/w/run/c"]


def test_a_touched_copy_is_hashed_once_and_then_known(world: World) -> None:
    row = world.row("/w/run/a.pt")
    world.pulled(row)
    os.utime(row.local, ns=(5, 5))
    assert world.proofs()[0].errors == ()
    known = Ledger(world.path).find_file("/w/run/a.pt")
    assert known is not None
    assert known.here == FileStamp.from_stat(os.stat(row.local))


def test_a_copy_of_another_machine_of_that_name_proves_nothing(world: World) -> None:
    world.pulled(world.row("/w/run/a.pt"))
    assert world.proofs(instance="pod-2") == ()
    world.pulled(world.row("/w/run/a.pt", instance="pod-2"))
    (proof,) = world.proofs()
    assert proof.errors, "the directory's row is of one machine and its file's of another"


def test_a_directory_that_was_never_pulled_has_no_proof(world: World) -> None:
    world.pulled(world.row("/w/run/a.pt"))
    assert world.proofs("/w/other") == ()


def test_files_belong_to_the_deepest_directory(world: World) -> None:
    inner = world.row("/w/run/cell/a.pt")
    world.pulled(inner, path="/w/run/cell")
    world.pulled(world.row("/w/run/b.pt"))
    assert [(proof.path, proof.files, proof.errors) for proof in world.proofs("/w/run", "/w/run/cell")] == [
        ("/w/run", 1, ()), ("/w/run/cell", 1, ()),
    ]  # fmt: skip
    os.unlink(inner.local)
    outer, cell = world.proofs("/w/run", "/w/run/cell")
    assert outer.errors == ()
    assert cell.errors


def test_what_could_not_be_pulled_stays_an_error(world: World) -> None:
    world.pulled(world.row("/w/run/a.pt"), missing=(("/w/run/x", "is a link"),))
    assert world.proofs()[0].errors == (("/w/run/x", "is a link"),)


@pytest.mark.parametrize(
    "damage", [b'{"t":"fi', b"\x00\x00\x00\n", b'{"t":"file","path":7}\n', b"[" * 100_000]
)
def test_a_damaged_row_proves_nothing_and_spoils_no_other(world: World, damage: bytes) -> None:
    world.pulled(world.row("/w/run/a.pt"))
    with world.path.open("ab") as file:
        file.write(damage)
    world.pulled(world.row("/w/run/a.pt"), world.row("/w/run/b.pt"))
    ledger = Ledger(world.path)
    assert ledger.damaged == 1
    assert world.proofs()[0].files == 2
    lines = world.path.read_bytes().splitlines(keepends=True)
    world.path.write_bytes(b"".join(line for line in lines if b"b.pt" not in line))
    assert "pull it again" in world.proofs()[0].errors[0][1]


def test_a_file_that_left_the_box_is_no_longer_asked_for(world: World) -> None:
    row = world.row("/w/run/old.pt")
    world.pulled(row, world.row("/w/run/a.pt"))
    ledger = Ledger(world.path)
    ledger.append_rows([GoneRow(path=row.path)])
    ledger.close()
    world.pulled(world.row("/w/run/a.pt"))
    os.unlink(row.local)
    assert world.proofs()[0].errors == ()
    assert Ledger(world.path).find_copy(row.local) == row


def test_names_that_are_no_utf8_come_back_as_they_are(world: World) -> None:
    name = os.fsdecode(b"/w/run/caf\xe9.pt")
    row = world.row(name)
    world.pulled(row)
    assert Ledger(world.path).find_file(name) == row
    assert world.proofs()[0].errors == ()


def test_a_ledger_that_others_may_write_is_refused(world: World) -> None:
    world.pulled(world.row("/w/run/a.pt"))
    world.path.chmod(0o666)
    with pytest.raises(LedgerError, match="chmod go-w"):
        world.proofs()


def test_a_name_of_a_box_leads_nowhere_else(world: World) -> None:
    assert ledger_path("../../x", world.env).parent == world.path.parent


def test_a_full_disk_under_the_ledger_is_named(world: World) -> None:
    world.path.parent.mkdir(parents=True)
    world.path.symlink_to("/dev/full")
    with pytest.raises(LedgerError, match=r"lab\.jsonl"):
        Ledger(world.path).append_rows([GoneRow(path="/x")])


def test_a_row_that_was_cut_off_on_a_full_disk_spoils_not_the_next(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, cut, last = (world.row(f"/w/run/{name}.pt") for name in "abc")
    ledger, write = Ledger(world.path), os.write
    ledger.append_rows([first])

    def write_some(handle: int, data: bytes) -> int:
        if len(data) < 100:
            raise OSError(28, "No space left on device")
        return write(handle, bytes(data)[:-50])

    with monkeypatch.context() as patched:
        patched.setattr(os, "write", write_some)
        with pytest.raises(LedgerError):
            ledger.append_rows([cut])
    ledger.append_rows([last])
    ledger.close()
    again = Ledger(world.path)
    assert [row.path for row in again.file_rows()] == [first.path, last.path]
    assert again.damaged == 1


def test_a_row_is_known_as_soon_as_it_is_written(world: World) -> None:
    ledger = Ledger(world.path)
    row = world.row("/w/run/a.pt")
    ledger.append_rows([row])
    assert ledger.find_file("/w/run/a.pt") == ledger.find_copy(row.local) == row
    ledger.close()


def test_the_fingerprint_is_the_one_that_the_agent_reckons(world: World) -> None:
    group, rows = FileGroup(), []
    for number in range(200):
        path = os.fsdecode(b"/w/caf\xe9/%d" % number)
        local = world.copies / str(number)
        local.write_bytes(b"x" * number)
        group.add_file(os.fsencode(path), local.stat())
        rows.append(
            FileRow(
                path=path,
                local=str(local),
                sha256="",
                there=FileStamp.from_stat(local.stat()),
                here=FileStamp(0, 0, 0, 0),
            )
        )
        assert fingerprint(rows) == group.fingerprint()


def test_all_of_a_directory_is_proven_by_its_files_alone(world: World) -> None:
    """What counts is what stands here now: no row of the directory is needed where the fingerprint fits."""
    rows = [world.row("/w/run/a.pt"), world.row("/w/run/b.pt")]
    ledger = Ledger(world.path)
    ledger.append_rows(rows)
    ledger.close()
    group = ResultGroup(path="/w/run", fingerprint=fingerprint(rows))
    (proof,) = prove_copies("lab", "pod-1", [group], env=world.env)
    assert (proof.fingerprint, proof.files, proof.errors) == (group.fingerprint, 2, ())
    assert prove_copies("lab", "pod-2", [group], env=world.env) == ()
    os.unlink(rows[0].local)
    assert [path for path, _ in prove_copies("lab", "pod-1", [group], env=world.env)[0].errors] == [
        "/w/run/a.pt"
    ]


def test_a_file_that_is_shorter_than_it_was_has_no_hash(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"12345")
    assert sha256_of(path, 3)[0] == hashlib.sha256(b"123").hexdigest()
    with pytest.raises(OSError, match="shorter"):
        sha256_of(path, 6)
