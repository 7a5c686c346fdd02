"""Which results a stop brings to storage that survives it, and which are there."""

from __future__ import annotations

import json
import os
import uuid
from pathlib import Path
from typing import Any

import pytest
from rgt_box.autostop import result_copies
from rgt_box.commands import file_tree, mirror, result_walk, results
from rgt_box.recorder import state_files


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RGT_STATE_DIR", str(tmp_path / "state"))


def test_a_durable_directory_within_the_results_is_not_copied_into_itself(tmp_path: Path) -> None:
    work = tmp_path / "exp"
    durable = work / "durable"
    for path in (work / "r.txt", durable / "cell/best.pt", work / "durable-not/x"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(path.name)
    for _ in range(2):
        saved = result_copies.copy_results([], [str(work)], [], [str(durable)])
        assert saved.problems == []
    copies = durable / result_copies.FOLDER
    names = {str(path.relative_to(copies)) for path in copies.rglob("*") if path.is_file()}
    assert names == {str(path).lstrip("/") for path in (work / "r.txt", work / "durable-not/x")}


@pytest.mark.skipif(
    not os.path.isdir("/dev/shm") or os.stat("/dev/shm").st_dev == os.stat("/dev").st_dev,
    reason="no file system is mounted within another here",
)
def test_what_is_on_a_disk_that_is_mounted_within_a_durable_directory_is_copied(
    tmp_path: Path,
) -> None:
    folder = Path("/dev/shm") / f"rgt-test-{uuid.uuid4().hex}"
    folder.mkdir()
    try:
        (folder / "r.txt").write_text("result")
        assert not result_copies.is_kept(str(folder), ["/dev"])
        assert result_copies.is_kept(str(folder), ["/dev", "/dev/shm"])
        assert not result_copies.is_kept(str(folder / "gone"), ["/dev/shm"])
        saved = result_copies.copy_results([], [str(folder)], [], [str(tmp_path), "/dev"])
        assert saved.problems == []
        copy = tmp_path / result_copies.FOLDER / str(folder / "r.txt").lstrip("/")
        assert copy.read_text() == "result"
    finally:
        (folder / "r.txt").unlink()
        folder.rmdir()


def found(tmp_path: Path, **fields: Any) -> None:
    """Write down a run that the recorder has found."""
    run = {
        "name": "train",
        "key": 1,
        "pid": os.getpid(),
        "ticks": 1,
        "started": 1.0,
        "cwd": str(tmp_path),
    }
    (tmp_path / "state").mkdir(exist_ok=True)
    (tmp_path / "state" / state_files.FOUND).write_text(json.dumps({"runs": [run | fields]}))


def copies_in(folder: Path) -> set[str]:
    return {path.name for path in folder.rglob("*") if path.is_file()}


def test_a_log_that_was_deleted_is_no_result_and_no_file_that_has_its_descriptor_now(
    tmp_path: Path,
) -> None:
    """A pid, and with it ``/proc/PID/fd/N``, may be another process's as soon as the run has ended."""
    (tmp_path / "theirs").mkdir()
    with (tmp_path / "theirs/other.log").open("w") as other:
        gone = f"/proc/{os.getpid()}/fd/{other.fileno()}"
        (tmp_path / "out").mkdir()
        (tmp_path / "out/metrics.csv").write_text("1")
        found(tmp_path, logs=[gone, "/proc/1/fd/9999"], files=[str(tmp_path / "out/metrics.csv")])
        assert result_copies.list_sources([], []) == [str(tmp_path / "out/metrics.csv")]
        owners = results.build_owners([], [], [])
        assert owners.alone == {os.fsencode(tmp_path / "out"): "run train"}
        of_the_kernel = result_copies.list_sources([], ["/proc/self/status", "/sys/kernel"])
        assert of_the_kernel == [str(tmp_path / "out/metrics.csv")]


def test_what_a_run_has_written_in_a_container_is_not_taken_for_saved(tmp_path: Path) -> None:
    """Its path leads there only as long as that process lives, and may be one of this box as well."""
    (tmp_path / "out").mkdir()
    hidden = f"/proc/{os.getpid()}/root{tmp_path}/out"
    found(tmp_path, dirs=[hidden, str(tmp_path / "out")])
    saved = result_copies.copy_results([], [], [], [str(tmp_path)])
    assert saved.problems == [f"{hidden}: is in a container, from which nothing can be copied"]
    assert results.build_owners([], [], []).whole == {os.fsencode(tmp_path / "out"): "run train"}
    assert result_copies.copy_results([], [], ["/proc/*/root/*"], [str(tmp_path)]).problems == []


def test_a_file_that_is_renamed_while_others_are_copied_is_copied_under_its_new_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    work, durable, copy_file = tmp_path / "work", tmp_path / "durable", mirror.copy_file
    (work / "below").mkdir(parents=True)
    for name in ("a", "b.tmp", "below/c"):
        (work / name).write_text(name)

    def rename(entry: file_tree.TreeEntry, *rest: Any) -> dict[str, Any]:
        if entry.path == b"a" and (work / "b.tmp").exists():
            (work / "b.tmp").rename(work / "Z")
            (work / "below").rename(work / "0")
        return copy_file(entry, *rest)

    monkeypatch.setattr(mirror, "copy_file", rename)
    saved = result_copies.copy_results([], [str(work)], [], [str(durable)])
    assert (saved.problems, copies_in(durable)) == ([], {"a", "Z", "c"})


def test_files_that_never_stop_coming_and_going_are_not_saved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    work, copy_file = tmp_path / "work", mirror.copy_file
    work.mkdir()
    for name in ("a", "b0"):
        (work / name).write_text(name)

    def rename(entry: file_tree.TreeEntry, *rest: Any) -> dict[str, Any]:
        if entry.path == b"a":
            (old,) = work.glob("b*")
            old.rename(work / f"b{int(old.name[1:]) + 1}")
        return copy_file(entry, *rest)

    monkeypatch.setattr(mirror, "copy_file", rename)
    saved = result_copies.copy_results([], [str(work)], [], [str(tmp_path / "durable")])
    assert saved.problems == [f"{work}: files were added or removed while they were copied"]


def test_the_kernels_own_files_within_results_are_not_copied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A root directory that was made for a chroot has a /proc of its own: kcore there has 128 TB."""
    work, durable = tmp_path / "work", tmp_path / "durable"
    for name in ("root/proc/kcore", "root/r.txt"):
        (work / name).parent.mkdir(parents=True, exist_ok=True)
        (work / name).write_text(name)
    row = f"30 20 0:5 / {work}/root/proc rw - proc proc rw\n"
    monkeypatch.setattr(result_walk, "read_mounts", lambda: result_walk.MountTable(row.encode()))
    saved = result_copies.copy_results([], [str(work)], [], [str(durable)])
    assert (saved.problems, copies_in(durable)) == ([], {"r.txt"})


def test_a_result_that_cannot_be_read_prevents_a_stop_and_one_that_is_gone_does_not(
    tmp_path: Path,
) -> None:
    unread, gone, durable = tmp_path / "unread", tmp_path / "gone", tmp_path / "durable"
    unread.symlink_to(unread)  # ELOOP, as a broken disk has EIO
    gone.symlink_to(tmp_path / "nothing")
    durable.mkdir()
    assert result_copies.copy_results([], [str(gone)], [], [str(durable)]).problems == []
    saved = result_copies.copy_results([], [str(unread)], [], [str(durable)])
    assert len(saved.problems) == 1 and saved.problems[0].startswith(f"{unread}"), saved
