"""A copy proves nothing while nobody has looked whether the checkpoints in it load."""

from __future__ import annotations

import hashlib
import os
import random
import shutil
import tracemalloc
from pathlib import Path

import msgspec
import pytest

from rgt_tui.model import CopyProof, ResultGroup
from rgt_tui.transfer import (
    FileRow,
    FileStamp,
    FolderRow,
    Ledger,
    iterate_copies,
    ledger_path,
    prove_loadable_copies,
    verify_directory,
)
from rgt_tui.transfer.verified_record import read_record
from tests.unit.transfer.hostile_files import FILES
from tests.unit.transfer.test_flipped_bytes import content_of_zip


class Pulled:
    """The fixtures as if they had come from ``/w`` of a box, a group for each of their directories."""

    def __init__(self, folder: Path) -> None:
        self.env = {"XDG_STATE_HOME": str(folder / "state"), "HOME": str(folder)}
        self.root = folder / "copies"
        shutil.copytree(FILES, self.root)
        self.told()

    def told(self) -> None:
        """Write into the ledger what stands there."""
        ledger = Ledger(ledger_path("lab", self.env))
        for place, _, names in os.walk(self.root):
            inside = os.path.relpath(place, self.root)
            there = "/w" if inside == "." else f"/w/{inside}"
            rows = [
                self.row(Path(place, name), f"{there}/{name}")
                for name in names
                if not name.startswith("PULL_")
            ]
            ledger.append_rows(rows)
            ledger.append_rows(
                [
                    FolderRow(
                        path=there, local=place, fingerprint="f", files=len(rows), instance="pod-1",
                        bytes=sum(row.there.size for row in rows),
                    )
                ]
            )  # fmt: skip
        ledger.close()

    def row(self, local: Path, path: str) -> FileRow:
        stamp = FileStamp.from_stat(local.stat())
        digest = hashlib.sha256(local.read_bytes()).hexdigest()
        return FileRow(
            path=path, local=str(local), sha256=digest, there=stamp, here=stamp, instance="pod-1"
        )

    def rows(self) -> list[FileRow]:
        ledger = Ledger(ledger_path("lab", self.env))
        ledger.close()
        return list(ledger.file_rows())

    def proof(self, path: str) -> CopyProof:
        groups = [
            ResultGroup(path=each)
            for each in ("/w", "/w/sharded", "/w/hf", "/w/hf/checkpoint-5", "/w/logs")
        ]
        return next(
            each
            for each in prove_loadable_copies("lab", "pod-1", groups, env=self.env)
            if each.path == path
        )


@pytest.fixture
def pulled(tmp_path: Path) -> Pulled:
    return Pulled(tmp_path)


def test_checkpoints_that_nobody_looked_at_prove_nothing_and_logs_need_no_look(
    pulled: Pulled,
) -> None:
    for path in ("/w", "/w/sharded", "/w/hf/checkpoint-5"):
        ((_, reason),) = pulled.proof(path).errors
        assert "rgt verify" in reason
    assert (pulled.proof("/w/logs").errors, pulled.proof("/w/logs").checkpoints) == ((), 0)


def test_what_was_looked_at_and_has_not_changed_is_proven(pulled: Pulled) -> None:
    found = verify_directory(pulled.root, pulled=pulled.rows(), with_torch=False)
    assert found.ok
    assert not [each for each in found.unproven if "checksums" in each.reason], (
        "the pull's hashes prove these"
    )
    for path, count in (("/w", 3), ("/w/sharded", 1), ("/w/hf/checkpoint-5", 1)):
        assert (pulled.proof(path).errors, pulled.proof(path).checkpoints) == ((), count), path


def test_a_flipped_byte_and_a_missing_file_are_found_by_what_the_pull_knew(pulled: Pulled) -> None:
    weights = pulled.root / "weights.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1] + b"\xff")
    (pulled.root / "logs/metrics.jsonl").unlink()
    found = verify_directory(pulled.root, pulled=pulled.rows(), with_torch=False)
    assert {each.path for each in found.errors} == {"weights.safetensors", "logs/metrics.jsonl"}
    assert [path for path, _ in pulled.proof("/w").errors] == ["/w/weights.safetensors"] * 2
    assert [path for path, _ in pulled.proof("/w/logs").errors] == ["/w/logs/metrics.jsonl"]
    assert pulled.proof("/w/sharded").errors == ()


def test_a_checkpoint_that_came_damaged_from_the_box_is_no_proof(pulled: Pulled) -> None:
    today = pulled.root / "today.pt"
    today.write_bytes(today.read_bytes()[:-1])
    pulled.told()
    assert not verify_directory(pulled.root, pulled=pulled.rows(), with_torch=False).ok
    ((path, reason),) = pulled.proof("/w").errors
    assert path == "/w/today.pt" and "does not pass" in reason and "truncated" in reason


def test_a_newer_file_needs_a_look_of_its_own(pulled: Pulled) -> None:
    verify_directory(pulled.root, pulled=pulled.rows(), with_torch=False)
    shutil.copy(pulled.root / "hf/checkpoint-5/optimizer.pt", pulled.root / "today.pt")
    pulled.told()
    ((path, reason),) = pulled.proof("/w").errors
    assert path == "/w/today.pt" and "was not checked since it was pulled" in reason
    assert verify_directory(pulled.root, pulled=pulled.rows(), with_torch=False).ok, (
        "the pull vouches for the new bytes"
    )
    assert pulled.proof("/w").errors == ()


def test_a_record_that_others_may_write_or_that_is_damaged_proves_nothing(pulled: Pulled) -> None:
    found = verify_directory(pulled.root, pulled=pulled.rows(), with_torch=False)
    record = pulled.root / "PULL_VERIFIED.json"
    record.chmod(0o666)
    assert "can be written by everyone" in pulled.proof("/w").errors[0][1]
    record.chmod(0o600)
    record.write_bytes(record.read_bytes()[:-9])
    assert "is invalid" in pulled.proof("/w").errors[0][1]
    record.write_bytes(msgspec.json.encode(msgspec.structs.replace(found, format=99)))
    assert "format 99" in pulled.proof("/w").errors[0][1]


def test_a_record_that_came_from_the_box_proves_nothing_and_is_not_overwritten(
    pulled: Pulled,
) -> None:
    assert verify_directory(pulled.root, pulled=pulled.rows(), with_torch=False).ok
    record = pulled.root / "PULL_VERIFIED.json"
    ledger = Ledger(ledger_path("lab", pulled.env))
    ledger.append_rows([pulled.row(record, "/w/PULL_VERIFIED.json")])
    ledger.close()
    assert "not checked yet" in pulled.proof("/w").errors[-1][1]
    before = record.read_bytes()
    found = verify_directory(pulled.root, pulled=pulled.rows(), with_torch=False)
    assert [each.path for each in found.errors] == ["PULL_VERIFIED.json"]
    assert record.read_bytes() == before


@pytest.mark.parametrize("seed", range(3))
def test_whatever_is_flipped_in_all_files_at_once_nothing_damaged_is_called_proven(
    tmp_path: Path, seed: int
) -> None:
    chosen = random.Random(seed)
    root = tmp_path / "results"
    shutil.copytree(FILES, root)
    before = {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}
    for path, data in before.items():
        damaged = bytearray(data)
        damaged[chosen.randrange(len(data))] ^= 1 << chosen.randrange(8)
        path.write_bytes(damaged)
    found = verify_directory(root, with_torch=seed == 0)
    said = {each.path for each in (*found.errors, *found.unproven)}
    record = read_record(root)
    assert record is not None
    for entry in record.entries:
        path = root / entry.path
        if entry.proof == "checksums" and path.suffix in (".pt", ".pth", ".bin"):
            path.with_suffix(".before").write_bytes(before[path])
            assert content_of_zip(path) == content_of_zip(path.with_suffix(".before")), entry.path
    for path in before:
        name = str(path.relative_to(root))
        proven = [entry for entry in record.entries if entry.path == name and entry.proof]
        unread = path.suffix == ".distcp" and f"{path.parent.name}/.metadata" in {
            each.path for each in found.errors
        }
        assert name in said or proven or unread or path.suffix in (".json", ".jsonl", ".md"), name


def bytes_held(root: Path, count: int) -> int:
    """The most that a second verification of so many files holds at once; the first has left its record.

    Of three: `pathlib` interns the names of files, and once in a hundred times the table of all that this process has
    interned is made anew: in one that has run other tests 8 MB, which are no file's.
    """
    for number in range(count):
        folder = root / f"run-{number % 20:02}"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"sample-{number:05}.txt").write_bytes(b"%d" % number)
    rows = [
        FileRow(
            path=f"/w/{path.relative_to(root)}",
            local=str(path),
            sha256=hashlib.sha256(path.read_bytes()).hexdigest(),
            there=FileStamp.from_stat(path.lstat()),
            here=FileStamp.from_stat(path.lstat()),
        )
        for path in root.rglob("*.txt")
    ]
    book = root.with_name(f"{root.name}.jsonl")
    Ledger(book).append_rows(rows)
    del rows
    assert verify_directory(root, pulled=iterate_copies(book), with_torch=False).ok
    most = []
    for _ in range(3):
        tracemalloc.start()
        try:
            found = verify_directory(root, pulled=iterate_copies(book), with_torch=False)
            most.append(tracemalloc.get_traced_memory()[1])
        finally:
            tracemalloc.stop()
        assert found.ok and (found.files, found.only_hashed) == (count, 0)
    return min(most)


def test_what_a_verification_holds_of_each_file_is_small(tmp_path: Path) -> None:
    """Results of months are hundreds of thousands of files."""
    few, many = bytes_held(tmp_path / "few", 300), bytes_held(tmp_path / "many", 2300)
    assert (many - few) / 2000 < 1000


def test_a_best_checkpoint_that_was_not_pulled_is_noted(tmp_path: Path) -> None:
    def reasons() -> dict[str, str]:
        result = verify_directory(tmp_path, with_torch=False)
        return {one.path: one.reason for one in result.unproven if "best" in one.reason}

    for step, best in ((10, "checkpoint-10"), (30, "checkpoint-20")):
        folder = tmp_path / "run" / f"checkpoint-{step}"
        folder.mkdir(parents=True)
        (folder / "trainer_state.json").write_text(
            f'{{"global_step": {step}, "best_model_checkpoint": "/workspace/run/{best}", "log_history": []}}'
        )
    state = "run/checkpoint-30/trainer_state.json"
    assert reasons() == {
        state: "it names checkpoint-20 as the best checkpoint, which is not in this copy"
    }
    (tmp_path / "run" / "checkpoint-20").mkdir()
    (tmp_path / "run" / "checkpoint-20" / "config.json").write_text("{}")
    assert reasons() == {}
