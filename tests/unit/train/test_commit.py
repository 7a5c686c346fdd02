"""Publishing, keeping and giving up checkpoints; no torch is needed for any of it."""

from __future__ import annotations

import errno
import hashlib
import mmap
import os
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import rgt_train.checkpoint.store as store_module
from hypothesis import given
from hypothesis import strategies as st
from rgt_train import UsageError
from rgt_train.checkpoint import (
    CheckpointItem,
    CheckpointStore,
    KeepPolicy,
    SaveJob,
    Unreadable,
    diskio,
    manifest,
    perform_job,
    publish,
    read_space,
    verified_checkpoint,
)
from rgt_train.checkpoint import store as retention


def save(
    store: CheckpointStore, step: int, data: bytes = b"data", kind: str = "step", **more: Any
) -> publish.SaveResult:
    about = {"best": {"step": step, "metric": "m", "value": 1.0}} if kind == "best" else {}
    job = SaveJob(kind, step, about, [("a", 0, len(data))], begun=time.monotonic(), **more)
    return perform_job(store, job, memoryview(data), b"{}")


def names(store: CheckpointStore) -> list[str]:
    return sorted(name for name in os.listdir(store.root) if name != "latest")


def test_keeps_the_last_k_and_best(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path, 3)
    for step in (5, 10, 15, 20):
        assert save(store, step, b"x" * step).error is None
    for data in (b"best", b"better"):
        save(store, 10, data, "best")
    assert store.list_steps() == [15, 20]
    assert names(store) == ["step-00000015-a3", "step-00000020-a3"]
    assert (tmp_path / "checkpoints" / "latest").read_text() == "step-00000020-a3\n"
    assert (tmp_path / "best" / "a").read_bytes() == b"better"
    assert manifest.verify_checkpoint(tmp_path / "best")["step"] == 10


def test_a_published_directory_is_never_written_again(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path, 1)
    for data in (b"old", b"new"):
        save(store, 7, data)
    assert names(store) == ["step-00000007-a1", "step-00000007-a1.1"]
    assert (tmp_path / "checkpoints/step-00000007-a1/a").read_bytes() == b"old"
    newest, complaints = CheckpointStore(tmp_path, 2).newest_good(verified_checkpoint)
    assert newest is not None
    assert (Path(newest.path).name, complaints) == ("step-00000007-a1.1", [])


def test_saves_and_looks_leave_no_file_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A long training saves thousands of times."""
    store, before = CheckpointStore(tmp_path, 2), set(os.listdir("/proc/self/fd"))
    for step in range(4):
        path = save(store, step).path
        assert path is not None
        manifest.open_verified(path).release()
    assert set(os.listdir("/proc/self/fd")) <= before  # garbage of other tests may close some
    last = str(path)

    def late(self: manifest.VerifiedFiles, name: str, place: str) -> None:
        add(self, name, place)
        raise manifest.CheckpointDamaged("changed meanwhile")

    add = manifest.VerifiedFiles.map_file
    monkeypatch.setattr(manifest.VerifiedFiles, "map_file", late)
    with pytest.raises(manifest.CheckpointDamaged) as caught:
        manifest.open_verified(last)
    assert set(os.listdir("/proc/self/fd")) <= before, (
        "nor where it ends in an error that somebody keeps"
    )
    assert caught


def test_a_failed_write_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = CheckpointStore(tmp_path, 1)
    save(store, 1)

    def refuse(path: str, *_: Any) -> None:
        Path(path).touch()
        raise OSError(errno.EIO, "Input/output error", path)

    monkeypatch.setattr(publish, "write_region", refuse)
    done = save(store, 2)
    failure = done.to_exception()
    assert isinstance(failure, OSError)
    assert (failure.errno, Path(str(failure.filename)).name) == (errno.EIO, "a")
    assert names(store) == ["step-00000001-a1"]


def test_a_checksum_that_cannot_be_made_is_told_as_what_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise MemoryError("no memory for it")

    monkeypatch.setattr(manifest, "file_facts", refuse)
    store = CheckpointStore(tmp_path, 1)
    assert str(save(store, 2).to_exception()) == "MemoryError: no memory for it"
    assert names(store) == []


def test_a_pointer_that_cannot_be_moved_is_taken_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = CheckpointStore(tmp_path, 1)
    save(store, 1)

    def refuse(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(publish, "replace_file", refuse)
    assert save(store, 2).error is None
    assert not (tmp_path / "checkpoints" / "latest").exists()


def flip(path: Path, at: float = 0.5) -> None:
    data = bytearray(path.read_bytes())
    data[int(len(data) * at)] ^= 1
    path.write_bytes(data)


FILES = ("manifest.json", "a", "state.json")


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("more", [b"\0", b"x" * 5000])
def test_a_file_that_grew_is_damaged(tmp_path: Path, name: str, more: bytes) -> None:
    """Its checksums are right as far as they go."""
    save(CheckpointStore(tmp_path, 1), 7, os.urandom(300))
    path = tmp_path / "checkpoints/step-00000007-a1"
    with (path / name).open("ab") as file:
        file.write(more)
    with pytest.raises(manifest.CheckpointDamaged, match=name):
        manifest.verify_checkpoint(path)
    with pytest.raises(manifest.CheckpointDamaged, match=name):
        manifest.open_verified(path)


@pytest.mark.parametrize("sums", [[], ["00000000"] * 2])
def test_every_byte_has_a_checksum(tmp_path: Path, sums: list[str]) -> None:
    """A manifest that covers less than the file would let the rest pass unread."""
    (tmp_path / "a").write_bytes(b"data")
    facts = {"size": 4, "crc32": sums, "chunk": manifest.CHUNK}
    (tmp_path / "manifest.json").write_bytes(manifest.build_manifest(1, {"a": facts}, {}))
    with pytest.raises(manifest.CheckpointDamaged, match=f"a: {len(sums)} checksums for 4 bytes"):
        manifest.verify_checkpoint(tmp_path)


def test_each_rank_looks_at_its_share_of_the_files(tmp_path: Path) -> None:
    save(CheckpointStore(tmp_path, 1), 7, os.urandom(300))
    path = tmp_path / "checkpoints/step-00000007-a1"
    flip(path / "a")
    share = manifest.open_verified(path, only={"state.json"})
    assert {name: bytes(view) for name, view in share.views.items()} == {"state.json": b"{}"}
    share.release()
    with pytest.raises(manifest.CheckpointDamaged, match="a: crc32"):
        manifest.open_verified(path, only={"a"})


def test_a_file_that_goes_between_the_look_and_the_mapping_is_damage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save(CheckpointStore(tmp_path, 1), 7)
    path = tmp_path / "checkpoints/step-00000007-a1"
    real = manifest.VerifiedFiles.map_file

    def late(self: manifest.VerifiedFiles, name: str, place: str) -> None:
        if name == "state.json":
            os.unlink(place)
        real(self, name, place)

    monkeypatch.setattr(manifest.VerifiedFiles, "map_file", late)
    with pytest.raises(manifest.CheckpointDamaged, match=r"state\.json: No such file"):
        manifest.open_verified(path)


def test_a_file_system_that_maps_nothing_is_read_into_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = os.urandom(10_000)
    save(CheckpointStore(tmp_path, 1), 7, data)
    real = mmap.mmap

    def refuse(fd: int, size: int, **named: Any) -> mmap.mmap:
        if fd != -1:
            raise OSError(refused, os.strerror(refused))
        return real(fd, size, **named)

    monkeypatch.setattr(mmap, "mmap", refuse)
    refused = errno.ENODEV
    found = manifest.open_verified(tmp_path / "checkpoints/step-00000007-a1")
    assert bytes(found.views["a"]) == data
    refused = errno.ENOMEM
    with pytest.raises((manifest.CheckpointDamaged, Unreadable), match="Cannot allocate memory"):
        manifest.open_verified(tmp_path / "checkpoints/step-00000007-a1")


def test_a_wiped_disk_counts_on_from_the_launch_that_wrote_the_checkpoint(tmp_path: Path) -> None:
    """No name may be used twice, though the ledger that knew the attempts is gone."""
    old = CheckpointStore(tmp_path, 4)
    job = SaveJob("step", 7, {"attempt": 4}, [("a", 0, 4)], begun=time.monotonic())
    made = perform_job(old, job, memoryview(b"data"), b"{}").checkpoint()
    assert made is not None
    for attempt, expected in ((1, 5), (9, 9)):
        store = CheckpointStore(tmp_path, attempt)
        store.continue_attempts(made)
        assert store.attempt == expected


def test_a_manifest_that_does_not_read_back_is_not_published(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A disk that takes other bytes than it was given, and says nothing."""
    store = CheckpointStore(tmp_path, 1)
    save(store, 1)
    real = diskio.write_file
    monkeypatch.setattr(
        publish, "write_file", lambda path, data: real(path, data.replace(b'"step"', b'"stop"'))
    )
    failure = save(store, 2).to_exception()
    assert isinstance(failure, OSError) and failure.errno == errno.EIO
    assert str(failure.filename).endswith(".tmp-2-1/manifest.json")
    assert names(store) == ["step-00000001-a1"]
    assert (tmp_path / "checkpoints" / "latest").read_text() == "step-00000001-a1\n"
    monkeypatch.setattr(publish, "write_file", lambda path, data: None)
    failure = save(store, 2).to_exception()
    assert isinstance(failure, OSError) and failure.errno == errno.ENOENT


def test_best_alone_has_the_hash_that_copies_are_compared_by(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path, 1)
    for kind, path in (
        ("step", tmp_path / "checkpoints/step-00000007-a1"),
        ("best", tmp_path / "best"),
    ):
        save(store, 7, b"weights", kind)
        for name, facts in manifest.read_manifest(path)["files"].items():
            expected = (
                hashlib.sha256((path / name).read_bytes()).hexdigest() if kind == "best" else None
            )
            assert facts.get("sha256") == expected, (kind, name)


class TestInterruptedSwap:
    """A kill between the two renames of ``best``: one of them is put back, and only if every byte of it is right."""

    def place(self, tmp_path: Path, *, new: bool, old: bool) -> CheckpointStore:
        store = CheckpointStore(tmp_path, 1)
        targets = {b"old": ".old-best-1", b"new": ".tmp-best-5-1"}
        for data in targets:
            save(store, 5, data, "best")
            (tmp_path / "best").rename(tmp_path / data.decode())
        for data, target in targets.items():
            (tmp_path / data.decode()).rename(tmp_path / "checkpoints" / target)
        if not new:
            flip(tmp_path / "checkpoints/.tmp-best-5-1/a")
        if not old:
            flip(tmp_path / "checkpoints/.old-best-1/a")
        return CheckpointStore(tmp_path, 2)

    @pytest.mark.parametrize(
        ("new", "old", "found"),
        [(True, True, b"new"), (False, True, b"old"), (True, False, b"new")],
    )
    def test_the_new_one_if_it_is_whole_else_the_old(
        self, tmp_path: Path, new: bool, old: bool, found: bytes
    ) -> None:
        store = self.place(tmp_path, new=new, old=old)
        gone = store.remove_leftovers()
        assert (tmp_path / "best" / "a").read_bytes() == found
        manifest.verify_checkpoint(tmp_path / "best")
        assert gone == [".old-best-1" if found == b"new" else ".tmp-best-5-1"]
        assert names(store) == []

    def test_what_was_published_is_not_deleted_where_nothing_is_whole(self, tmp_path: Path) -> None:
        store = self.place(tmp_path, new=False, old=False)
        assert store.remove_leftovers() == [".tmp-best-5-1"]
        with pytest.raises(manifest.CheckpointDamaged):
            manifest.verify_checkpoint(tmp_path / "best")
        assert store.newest_good(verified_checkpoint)[0] is None
        assert (tmp_path / "best" / "a").exists()

    def test_one_of_another_format_is_put_back_and_refused_later(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with monkeypatch.context() as patch:
            patch.setattr(manifest, "FORMAT", 3)
            store = self.place(tmp_path, new=False, old=True)
        store.remove_leftovers()
        with pytest.raises(UsageError, match="format 3, this version reads format 2"):
            store.newest_good(verified_checkpoint)
        assert (tmp_path / "best" / "a").read_bytes() == b"old"

    def test_a_best_that_is_there_stays(self, tmp_path: Path) -> None:
        store = self.place(tmp_path, new=True, old=True)
        save(store, 9, b"published", "best")
        assert (tmp_path / "best" / "a").read_bytes() == b"published"
        CheckpointStore(tmp_path, 3).remove_leftovers()
        assert (tmp_path / "best" / "a").read_bytes() == b"published"
        assert names(store) == []


def test_a_best_that_is_damaged_by_then_is_no_last_resort(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path, 1)
    save(store, 5, b"weights", "best")
    assert CheckpointStore(tmp_path, 2).newest_good(verified_checkpoint)[0] is not None
    flip(tmp_path / "best" / "a")
    found, complaints = CheckpointStore(tmp_path, 2).newest_good(verified_checkpoint)
    assert found is None
    assert (
        len(complaints) == 1 and f"{tmp_path}/best is damaged, not used: a: crc32" in complaints[0]
    )


def test_every_bit_counts(tmp_path: Path) -> None:
    save(CheckpointStore(tmp_path, 1), 7, os.urandom(300))
    path = tmp_path / "checkpoints/step-00000007-a1"
    for name in ("manifest.json", "a", "state.json"):
        raw = (path / name).read_bytes()
        for bit in range(0, 8 * len(raw), 7):
            data = bytearray(raw)
            data[bit // 8] ^= 1 << bit % 8
            (path / name).write_bytes(data)
            with pytest.raises(manifest.CheckpointDamaged, match=name):
                manifest.verify_checkpoint(path)
        (path / name).write_bytes(raw)
    assert manifest.verify_checkpoint(path)["step"] == 7


def test_another_format_is_an_error_not_damage(tmp_path: Path) -> None:
    path = tmp_path / "checkpoints" / "step-00000020"
    path.mkdir(parents=True)
    (path / "model.pt").write_bytes(b"weights")
    body = manifest.build_manifest(20, {}, {})
    old = manifest.FORMAT
    try:
        manifest.FORMAT = 1
        body = manifest.build_manifest(20, {}, {})
    finally:
        manifest.FORMAT = old
    (path / "manifest.json").write_bytes(body)
    with pytest.raises(UsageError, match="format 1, this version reads format 2"):
        CheckpointStore(tmp_path, 1).newest_good(verified_checkpoint)
    assert path.exists()


class TestFullDisk:
    def test_worthless_things_go_first_and_the_newest_never(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        store = CheckpointStore(tmp_path, 1, KeepPolicy(3))
        for step in (1, 2, 3):
            save(store, step)
        (tmp_path / "checkpoints" / ".damaged-step-00000009-a1-1").mkdir()
        real = diskio.write_region
        needed = [4]

        def full(path: str, view: memoryview, size: int) -> None:
            if len(os.listdir(store.root)) > needed[0]:
                raise OSError(errno.ENOSPC, "No space left on device", path)
            real(path, view, size)

        monkeypatch.setattr(publish, "write_region", full)
        # The directory holds latest, the damaged one, three good ones and the temporary: six.
        timid = save(store, 4)
        assert timid.error is not None
        assert timid.notes == ("no room for step 4: gave up .damaged-step-00000009-a1-1",)
        assert names(store) == [f"step-0000000{n}-a1" for n in (1, 2, 3)]
        bold = save(store, 4, give_up=True)
        assert bold.error is None
        assert [note.rsplit(" ", 1)[1] for note in bold.notes] == ["step-00000001-a1"]
        needed[0] = 0
        hopeless = save(store, 5, give_up=True)
        assert hopeless.error is not None
        assert names(store) == ["step-00000004-a1"]

    @pytest.mark.parametrize("small", [True, False])
    def test_room_for_two_with_keep_2(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, small: bool
    ) -> None:
        """A disk that never had room for a third keeps one; one that others fill for now keeps both."""
        store = CheckpointStore(tmp_path, 1)
        real = diskio.write_region

        def full(path: str, view: memoryview, size: int) -> None:
            if len(store.list_steps()) > 1:
                raise OSError(errno.ENOSPC, "No space left on device", path)
            real(path, view, size)

        monkeypatch.setattr(publish, "write_region", full)
        facts = read_space(tmp_path)
        left = replace(facts, bytes_free=10 if small else 1 << 30)
        monkeypatch.setattr(store_module, "read_space", lambda path: left)
        for step in (1, 2):
            assert save(store, step).error is None
        third = save(store, 3)
        if not small:
            assert third.error is not None and third.notes == ()
            assert store.list_steps() == [1, 2]
            return
        assert third.error is None
        assert third.notes == (
            "there is no room for keep=2: from here on one checkpoint is kept; gave up step-00000001-a1",
        )
        assert save(store, 4).notes == save(store, 5).notes == ()
        assert store.list_steps() == [5]


def items() -> st.SearchStrategy[list[CheckpointItem]]:
    one = st.tuples(st.integers(0, 50), st.integers(1, 3), st.integers(0, 1), st.floats(0, 1e6))
    return st.lists(one, max_size=12, unique_by=lambda fields: fields[:3]).map(
        lambda found: [CheckpointItem(*f[:3], f"{f[0]}-{f[1]}-{f[2]}", f[3]) for f in found]
    )


@given(items(), st.integers(1, 5), st.sampled_from([0.0, 0.5, 24.0]))
def test_retention_keeps_what_it_promises(
    found: list[CheckpointItem], last: int, hours: float
) -> None:
    policy = KeepPolicy(last, hours)
    gone = retention.find_unprotected(found, policy)
    stays = [item for item in sorted(found) if item not in gone]
    assert stays[-last:] == sorted(found)[-last:]
    if hours:
        buckets = {int(item.at // (3600 * hours)) for item in found}
        assert {int(item.at // (3600 * hours)) for item in stays} == buckets
        assert len(stays) <= last + len(buckets)
    else:
        assert len(stays) == min(last, len(found))
    assert retention.find_unprotected(stays, policy) == [], "keeping is stable"
    order = retention.by_ascending_value(found, policy)
    assert {item.name for item in order} == {item.name for item in sorted(found)[:-1]}, (
        "all but the newest"
    )
    assert len(order) == max(0, len(found) - 1)
    assert order[: len(gone)] == gone, "what nobody keeps is worth least"
