"""The pure and the file-level parts below the cell runner."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path
from typing import Any

import pytest
from rgt_box import files, procstat
from rgt_box.commands import reconcile
from rgt_box.queue import (
    cell_process,
    durable_copy,
    queue_check,
    queue_edit,
    queue_file,
    queue_state,
    runner,
)
from rgt_box.queue.queue_file import Job

from rgt_tui.model import QueueCell
from rgt_tui.profiles import stopped_by_person
from tests.process.box.harness import make_job


def test_queue_lines() -> None:
    lines, problems = queue_file.parse_queue(
        b"# head\n\nc/a.toml  lm 3 # note\n c/b.yaml seg\nplain det", "q"
    )
    assert [(line.name, line.cfg, line.task, line.epochs) for line in lines] == [
        ("a", "c/a.toml", "lm", 3),
        ("b", "c/b.yaml", "seg", None),
        ("plain", "plain", "det", None),
    ]
    assert problems == []


def test_the_command_is_filled_in_and_other_braces_stay(tmp_path: Path) -> None:
    command = ["{py}", "{cfg}", "{task}:{epochs}", "{name}", "{out}", "{durable}", '{"json": 1}']
    job = Job(
        str(make_job(tmp_path, command, ["a"], durable="fs/{name}", py="/opt/py", out="out/{name}"))
    )
    ((line,), _) = job.read_lines()
    assert job.command_of(line) == [
        "/opt/py", "a.toml", "lm:20", "a", f"{tmp_path}/out/a", f"{tmp_path}/fs/a", '{"json": 1}',
    ]  # fmt: skip


def test_the_default_command_is_the_trainer(tmp_path: Path) -> None:
    make_job(tmp_path, [], ["a"])
    (tmp_path / "job.json").write_text('{"out": "/o/{name}", "py": null}')
    job = Job(str(tmp_path))
    ((line,), _) = job.read_lines()
    words = "-m rgt_train --config a.toml --task lm --epochs 20 --out /o/a"
    assert " ".join(job.command_of(line)[1:]) == words


@pytest.mark.parametrize(
    "text", ["", "[]", "nonsense", '{"command": "x"}', '{"out": 5}', '{"out": "/x"}']
)
def test_a_broken_job_file_is_a_problem_not_a_crash(tmp_path: Path, text: str) -> None:
    (tmp_path / "job.json").write_text(text)
    assert Job(str(tmp_path)).problems


@pytest.mark.parametrize(
    ("status", "stopped", "state", "reason"),
    [
        (0, None, "done", None),
        (0, "SIGTERM", "done", None),
        (75, None, "interrupted", "preempted"),
        (75, "SIGTERM", "interrupted", "stopped by SIGTERM"),
        (-9, None, "failed", "killed by SIGKILL (9); unknown whether the kernel killed it"),
        (
            -15,
            "SIGTERM",
            "interrupted",
            "the queue was stopped by SIGTERM; the cell ended: killed by SIGTERM (15)",
        ),
        (1, None, "failed", "exit 1"),
        (137, None, "failed", "exit 137: a process inside was killed by SIGKILL (9)"),
        (255, None, "failed", "exit 255"),
    ],
)
def test_outcomes(status: int, stopped: str | None, state: str, reason: str | None) -> None:
    found = cell_process.classify_exit(status, stopped)
    assert found["state"] == state
    assert reason is None or reason in found["reason"]


def test_signals_without_a_name() -> None:
    assert cell_process.signal_name(63) == "signal 63"
    assert (cell_process.format_exit_status(-9), cell_process.format_exit_status(3)) == (137, 3)


def run_directory(folder: Path) -> Path:
    (folder / "best").mkdir(parents=True)
    (folder / "best" / "model").write_text("weights")
    (folder / "metrics.jsonl").write_text("{}\n")
    (folder / "scratch").write_text("not kept")
    return folder


def test_a_durable_copy_replaces_the_old_one_and_leaves_nothing_beside_it(tmp_path: Path) -> None:
    out, target = run_directory(tmp_path / "out"), tmp_path / "fs" / "a"
    for text in ("weights", "better"):
        (out / "best" / "model").write_text(text)
        assert durable_copy.copy_verified(str(out), queue_file.KEEP, str(target)) == [
            "best",
            "metrics.jsonl",
        ]
        assert (target / "best" / "model").read_text() == text
    assert sorted(os.listdir(target)) == [durable_copy.MANIFEST, "best", "metrics.jsonl"]
    assert os.listdir(tmp_path / "fs") == ["a"]


def test_a_link_is_kept_as_what_it_points_to(tmp_path: Path) -> None:
    out = run_directory(tmp_path / "out")
    (out / "best").rename(out / "step-1")
    (out / "best").symlink_to("step-1")
    durable_copy.copy_verified(str(out), ["best"], str(tmp_path / "fs"))
    assert (tmp_path / "fs" / "best" / "model").read_text() == "weights"
    assert not (tmp_path / "fs" / "best").is_symlink()


def test_a_file_that_became_a_link_after_it_was_found_is_not_copied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not even by a link of our own, which a copy otherwise follows."""
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "best.pt").write_bytes(b"weights")
    (tmp_path / "secret").write_bytes(b"private key")
    foresee = durable_copy._check_room

    def swap(pairs: list[tuple[durable_copy.SourceFile, str]], temporary: str) -> None:
        foresee(pairs, temporary)
        (tmp_path / "out" / "best.pt").unlink()
        (tmp_path / "out" / "best.pt").symlink_to(tmp_path / "secret")

    monkeypatch.setattr(durable_copy, "_check_room", swap)
    with pytest.raises(durable_copy.CopyFailed, match="another file took its place"):
        durable_copy.copy_verified(str(tmp_path / "out"), ["best.pt"], str(tmp_path / "copy"))
    assert not (tmp_path / "copy").exists()


def test_a_copy_that_reads_back_different_is_refused_and_the_old_one_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, target = run_directory(tmp_path / "out"), tmp_path / "fs"
    durable_copy.copy_verified(str(out), ["best"], str(target))
    (out / "best" / "model").write_text("newer")
    monkeypatch.setattr(durable_copy, "_hash_file", lambda _: "0")
    with pytest.raises(durable_copy.CopyFailed, match="reads back different"):
        durable_copy.copy_verified(str(out), ["best"], str(target))
    assert (target / "best" / "model").read_text() == "weights"
    assert sorted(os.listdir(tmp_path)) == ["fs", "out"]


def test_a_state_that_shrinks_on_a_full_disk_stays_readable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    path = tmp_path / "state.json"
    cells = [{"name": f"cell-{number}", "reason": "x" * 500} for number in range(60)]
    assert queue_state.store_state(str(path), {"cells": cells}) is None
    monkeypatch.setattr(files, "replace_file", full)
    for left in (cells[:5], cells[:55], []):
        assert queue_state.store_state(str(path), {"cells": left}) is None
        assert json.loads(path.read_bytes()) == {"cells": left}


def test_a_state_that_grows_on_a_full_disk_stays_readable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    def write_within(fd: int, data: bytes, at: int) -> int:
        return write(fd, data[: max(0, room[0] - at)], at)

    path, write, room = tmp_path / "state.json", os.pwrite, [20_000]
    few, many = (
        [{"name": f"cell-{n}", "reason": "x" * 500} for n in range(count)] for count in (5, 60)
    )
    assert queue_state.store_state(str(path), {"cells": few}) is None
    monkeypatch.setattr(files, "replace_file", full)
    monkeypatch.setattr(os, "pwrite", write_within)
    assert (
        queue_state.store_state(str(path), {"cells": many}) == "state.json: No space left on device"
    )
    assert json.loads(path.read_bytes()) == {"cells": few}
    room[0] = 1 << 20
    assert queue_state.store_state(str(path), {"cells": many}) is None
    assert json.loads(path.read_bytes()) == {"cells": many}


def test_a_result_that_cannot_be_read_is_not_left_out_of_a_copy(tmp_path: Path) -> None:
    out = run_directory(tmp_path / "out")
    (out / "best.pt").symlink_to("best.pt")  # ELOOP, as a broken disk has EIO
    with pytest.raises(durable_copy.CopyFailed, match=r"best\.pt"):
        durable_copy.copy_verified(str(out), ["best", "best.pt"], str(tmp_path / "copy"))
    (out / "best.pt").unlink()
    assert durable_copy.copy_verified(str(out), ["best", "best.pt"], str(tmp_path / "copy")) == [
        "best"
    ]


class Killed(BaseException):
    """The process ends here: nothing after it runs."""


def killed_between_renames(out: Path, target: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Copy again, and end at the second of the two renames that replace the first copy."""
    durable_copy.copy_verified(str(out), ["best"], str(target))
    (out / "best" / "model").write_text("newer")
    rename = os.rename

    def rename_once(source: str, to: str) -> None:
        if to == str(target):
            raise Killed
        rename(source, to)

    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(os, "rename", rename_once)
        patch.setattr("shutil.rmtree", lambda *_, **__: None)
        durable_copy.copy_verified(str(out), ["best"], str(target))
    assert not target.exists()


@pytest.mark.parametrize("harm", ["none", "manifest", "file"])
def test_a_crash_between_the_renames_of_a_durable_copy_loses_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, harm: str
) -> None:
    out, target = run_directory(tmp_path / "out"), tmp_path / "fs" / "a"
    (tmp_path / "fs" / "a.old-7").mkdir(parents=True)  # the copy of another cell
    (tmp_path / "fs" / "a.old-7" / "model").write_text("of another")
    killed_between_renames(out, target, monkeypatch)
    (new,) = (tmp_path / "fs").glob("a.tmp-*")
    if harm == "manifest":
        (new / durable_copy.MANIFEST).unlink()
    elif harm == "file":
        (new / "best" / "model").unlink()
    found = Path(durable_copy.locate_copy(str(target)))
    assert (found / "best" / "model").read_text() == ("newer" if harm == "none" else "weights")
    # Even if the next copy fails, the one that was found has its name again.
    with monkeypatch.context() as patch:
        patch.setattr(durable_copy, "_hash_file", lambda _: "0")
        with pytest.raises(durable_copy.CopyFailed):
            durable_copy.copy_verified(str(out), ["best"], str(target))
    assert (target / "best" / "model").read_text() == ("newer" if harm == "none" else "weights")
    durable_copy.copy_verified(str(out), ["best"], str(target))
    assert (target / "best" / "model").read_text() == "newer"
    assert sorted(os.listdir(tmp_path / "fs")) == ["a", "a.old-7"]
    assert (tmp_path / "fs" / "a.old-7" / "model").read_text() == "of another"


def too_large(job: Job) -> None:
    with open(job.path("queue.txt"), "ab") as file:
        file.write(b"#" * (8 << 20) + b"\n")


def test_a_queue_file_that_is_too_large_is_named_and_its_cells_stay(tmp_path: Path) -> None:
    job = Job(str(make_job(tmp_path, ["true"], ["a", "b"])))
    journal = queue_state.QueueJournal(job)
    for cell in journal.reread_queue():
        cell.update(state="done")
    journal.save_state()
    too_large(job)
    assert job.read_lines() == (
        [],
        [f"{job.path('queue.txt')} cannot be read: it is larger than 8.4 MB"],
    )
    assert [cell["state"] for cell in journal.reread_queue()] == ["done", "done"]
    assert [line.name for line in journal.lines] == ["a", "b"]
    journal.save_state()
    frame = queue_state.queue_frame(job, "as/given")
    assert [(cell["name"], cell["state"]) for cell in frame["cells"]] == [
        ("a", "done"),
        ("b", "done"),
    ]
    assert "it is larger than 8.4 MB" in frame["error"]
    assert "it is larger than 8.4 MB" in str(queue_check.check_queue(job).problems)
    (problem,) = reconcile.reconcile([job])["problems"]
    assert "it is larger than 8.4 MB" in problem
    with pytest.raises(OSError, match="larger than"):
        queue_edit.comment_out_lines(job, ["a"], "not wanted")


def test_the_state_of_a_large_queue_is_read(tmp_path: Path) -> None:
    job = Job(str(make_job(tmp_path, ["true"], ["a"])))
    journal = queue_state.QueueJournal(job)
    journal.reread_queue()[0].update(state="done", told={"text": "x" * (9 << 20)})
    journal.save_state()
    assert queue_state.load_state(job)["cells"][0]["state"] == "done"


def test_a_run_that_the_runner_lost_is_shown_as_interrupted(tmp_path: Path) -> None:
    job = Job(str(make_job(tmp_path, ["true"], ["a", "b"])))
    state: dict[str, Any] = {
        "cells": [{"name": "a", "state": "running"}, {"name": "gone", "state": "done"}]
    }
    assert queue_state.store_state(job.path("state.json"), state) is None
    frame = queue_state.queue_frame(job, "as/given")
    assert [(cell["name"], cell["state"]) for cell in frame["cells"]] == [
        ("a", "interrupted"),
        ("b", "waiting"),
    ]
    assert frame["path"] == "as/given"


def test_a_state_is_overwritten_in_place_when_there_is_no_room_for_a_second(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "state.json"
    assert queue_state.store_state(str(path), {"n": 1}) is None
    inode, size = path.stat().st_ino, path.stat().st_size

    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(files, "replace_file", full)
    assert queue_state.store_state(str(path), {"n": 2, "more": "x" * 1000}) is None
    assert json.loads(path.read_bytes())["n"] == 2
    assert (path.stat().st_ino, path.stat().st_size) == (inode, size)
    path.unlink()
    assert queue_state.store_state(str(path), {"n": 3}) == "state.json: No such file or directory"


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b'{"cells": 5}', b'{"cells": [1, {"name": 4}]}', b"\0" * 100]
)
def test_a_broken_state_counts_as_none(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "state.json").write_bytes(content)
    assert queue_state.load_state(Job(str(tmp_path)))["cells"] == []


def test_a_lock_is_exclusive_and_visible(tmp_path: Path) -> None:
    path = str(tmp_path / "lock")
    first, second = files.FileLock(path), files.FileLock(path)
    assert not files.is_locked(path)
    assert first.acquire()
    first.write_owner({"pid": 1})
    assert (second.acquire(0.0), files.is_locked(path), files.lock_holder(path)) == (
        False,
        True,
        {"pid": 1},
    )
    first.release()
    assert second.acquire(0.0)
    second.release()


@pytest.mark.parametrize(
    "length", [0, 1, queue_state.BLOCK - 200, queue_state.BLOCK, 3 * queue_state.BLOCK]
)
def test_the_state_fills_whole_blocks_with_room_to_grow(length: int) -> None:
    """What is written in the place of it on a full disk needs no new block."""
    data = queue_state.padded_json({"x": "x" * length})
    assert len(data) % queue_state.BLOCK == 0
    assert data.endswith(b" \n")
    assert json.loads(data) == {"x": "x" * length}
    assert len(data) - len(data.rstrip()) >= queue_state.BLOCK // 4 - 1


def test_what_a_config_says_to_compare_runs_by() -> None:
    yaml = b"optim:\n  lr: 3e-4  # high\n  batch_size: 32\nseed: 7\napi_key: sk-123\nname: x\n"
    assert queue_file.read_config_settings(yaml) == {"lr": "3e-4", "batch": "32", "seed": "7"}
    toml = b'[a]\nlearning_rate = 0.001\nmodel.width = 64\noptimizer = "adamw"\nlayers = [1, 2]\n'
    assert queue_file.read_config_settings(toml) == {
        "lr": "0.001",
        "width": "64",
        "optimizer": "adamw",
    }
    assert queue_file.read_config_settings(b'{"lr": 1, "seed": 2,\n "dropout": 0.1}') == {
        "dropout": "0.1"
    }
    assert queue_file.read_config_settings(b'{\n "lr": 1e-3,\n "seed": 2\n}') == {
        "lr": "1e-3",
        "seed": "2",
    }


def test_what_a_config_says_twice_differently_it_does_not_say() -> None:
    assert queue_file.read_config_settings(b"lr: 1\nhead:\n  lr: 2\nseed: 3\nseed: 3\n") == {
        "seed": "3"
    }


@pytest.mark.parametrize(
    "data", [None, b"", b"\xff\xfe\x00", b"lr: " + b"9" * 100, b"lr:\n", b"seed = \x1b[31m"]
)
def test_a_config_that_says_nothing(data: bytes | None) -> None:
    assert queue_file.read_config_settings(data) == {}


def test_a_cell_tells_what_its_config_says(tmp_path: Path) -> None:
    job = Job(str(make_job(tmp_path, ["true"], ["a"])))
    ((line,), _) = job.read_lines()
    Path(job.config_path(line)).write_text("seed = 4\n")
    cell = queue_state.new_cell(job, line)
    runner.has_config_changed(job, line, cell)
    assert cell["told"] == {"seed": "4"}
    assert "told" in queue_state.CELL_FIELDS


def test_a_marker_is_a_line_of_its_own_also_after_a_disk_that_took_a_part_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """People and scripts look for ``FINISHED a exit=0`` as a whole line; lanes write to the same file meanwhile."""
    log = Path(make_job(tmp_path / "job", ["true"], ["a"])) / "master.log"
    journal, real, room = queue_state.QueueJournal(Job(str(log.parent))), os.write, [15]

    def fills_up(fd: int, data: bytes) -> int:
        if not os.readlink(f"/proc/self/fd/{fd}").endswith("master.log"):
            return real(fd, data)
        if not room[0]:
            raise OSError(errno.ENOSPC, "No space left on device")
        taken = real(fd, bytes(data)[: room[0]])
        room[0] -= taken
        return taken

    monkeypatch.setattr(os, "write", fills_up)
    journal.write_marker("RUNNING a")
    journal.write_marker("FINISHED a exit=0")
    with log.open("a") as lane:
        lane.write("NISHED b exit=1\n")  # what another lane gets in is not undone
    room[0] = 1000
    journal.write_marker("QUEUE DONE")
    assert log.read_text().splitlines()[0] == "RUNNING a"
    assert log.read_text().splitlines()[-2:] == ["FINISHED a exit=0", "QUEUE DONE"]
    with log.open("a") as torn:
        torn.write("FINI")  # what a power loss left
    queue_state.QueueJournal(Job(str(log.parent))).write_marker("FINISHED c exit=0")
    assert log.read_text().splitlines()[-2:] == ["FINI", "FINISHED c exit=0"]


def test_of_lines_that_a_full_disk_takes_a_part_of_none_is_added(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``b.toml lm 30`` cut off is ``b.toml lm 3``: a cell that would run, and pass for done."""
    folder = Path(make_job(tmp_path / "job", ["true"], ["a"]))
    before, real, room = (folder / "queue.txt").read_bytes(), os.write, [12]

    def fills_up(fd: int, data: bytes) -> int:
        if not room[0]:
            raise OSError(errno.ENOSPC, "No space left on device")
        taken = real(fd, bytes(data)[: room[0]])
        room[0] -= taken
        return taken

    monkeypatch.setattr(os, "write", fills_up)
    with pytest.raises(OSError, match="No space left"):
        queue_edit.add_lines(Job(str(folder)), b"b.toml lm 30\n")
    assert (folder / "queue.txt").read_bytes() == before
    room[0] = 1000
    assert queue_edit.add_lines(Job(str(folder)), b"b.toml lm 30\n")["added"] == ["b"]
    assert (folder / "queue.txt").read_bytes() == before + b"b.toml lm 30\n"


def test_a_queue_that_no_runner_would_read_is_not_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queue_edit, "MOST_BYTES", 60)
    queue = tmp_path / "queue.txt"
    queue.write_text("a.toml lm 30\n" * 3)
    before = queue.read_bytes()
    lines = [f"b{number}.toml lm 30".encode() for number in range(9)]
    for some, words in ((lines, "more than"), (lines[:2], "would become larger")):
        with pytest.raises(queue_edit.NotEdited, match=f"{words}.*nothing was added"):
            queue_edit.add_lines(Job(str(tmp_path)), b"\n".join(some))
    assert queue.read_bytes() == before


def test_a_runner_knows_that_a_person_asked_it_to_stop(tmp_path: Path) -> None:
    job = Job(str(make_job(tmp_path, ["true"], ["a"])))
    own, ticks = os.getpid(), procstat.start_ticks(os.getpid())
    assert ticks is not None and not queue_state.is_stopped_by_person(job)
    queue_state.note_stop(
        job, own, ticks + 1
    )  # left by a stop of an earlier runner with this number
    assert not queue_state.is_stopped_by_person(job)
    queue_state.note_stop(job, own, ticks)
    assert queue_state.is_stopped_by_person(job)
    ended = cell_process.classify_exit(75, queue_state.BY_PERSON)
    assert stopped_by_person(
        QueueCell(name="a", cfg="a", task="lm", state=ended["state"], reason=ended["reason"])
    )
    by_machine = cell_process.classify_exit(75, "SIGTERM")
    assert not stopped_by_person(
        QueueCell(name="a", cfg="a", task="lm", state="interrupted", reason=by_machine["reason"])
    )
    queue_state.withdraw_stop(job)
    assert not queue_state.is_stopped_by_person(job)


def test_lines_that_are_there_are_no_reason_to_refuse_and_each_byte_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queue_edit, "MOST_BYTES", 60)
    queue = tmp_path / "queue.txt"
    known = "a.toml lm 30\nb.toml lm 30\nc.toml lm 30"
    queue.write_text(known)
    again = queue_edit.add_lines(Job(str(tmp_path)), known.encode())
    assert again == {"added": [], "there": ["a", "b", "c"]}
    # 38 bytes are there; the line gets a newline before it and one behind it.
    fits, exceeds = ("d" * size + ".toml lm 30" for size in (9, 10))
    with pytest.raises(queue_edit.NotEdited, match="would become larger"):
        queue_edit.add_lines(Job(str(tmp_path)), exceeds.encode())
    assert queue.read_text() == known
    queue_edit.add_lines(Job(str(tmp_path)), fits.encode())
    assert queue.read_text() == known + "\n" + fits + "\n"
    assert queue.stat().st_size == 60
