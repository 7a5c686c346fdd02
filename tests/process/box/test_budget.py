"""Will it fit? Bytes and inodes on real tmpfs mounts, before the launch and before each cell."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from rgt_box.queue import disk_budget, queue_check
from rgt_box.queue.queue_file import Job

from tests.process.box.harness import Agent, make_job
from tests.unit.box.checkpoint_files import write

MIB = 1 << 20


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 8 MiB and 64 inodes."""
    mount = tmp_path / "disk"
    mount.mkdir()
    options = "size=8m,nr_inodes=64"
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", options, "none", str(mount)], check=False)
    if done.returncode:
        pytest.skip("mounting is not allowed here")
    yield mount
    subprocess.run(["umount", str(mount)], check=True)


def problems(job: Path, start: str | None = None) -> list[str]:
    return queue_check.check_queue(Job(str(job)), start).problems


def job_on(disk: Path, folder: Path, cells: str, **settings: Any) -> Path:
    settings = {"out": str(disk / "out" / "{name}"), **settings}
    return make_job(folder, ["true"], list(cells), **settings)


def test_bytes_that_do_not_fit_are_refused_with_the_whole_sum(disk: Path, tmp_path: Path) -> None:
    job = job_on(
        disk, tmp_path / "job", "abc", ckpt_bytes=2 * MIB, ckpt_inodes=1, scratch_bytes=3 * MIB
    )
    (text,) = problems(job)
    assert text.startswith(f"{job}/job.json:1: does not fit")
    for words in (
        f"({disk})",
        "8.4 MB free",
        "3 cells × 2.1 MB + 3.1 MB scratch",
        "free 1.0 MB there",
    ):
        assert words in text
    assert problems(job, "1") == []


def test_inodes_that_do_not_fit_are_refused(disk: Path, tmp_path: Path) -> None:
    job = job_on(disk, tmp_path / "job", "ab", ckpt_bytes=0, ckpt_inodes=30, scratch_inodes=10)
    (text,) = problems(job)
    assert "63 inodes free, 70 inodes needed (2 cells × 30 inodes + 10 inodes scratch" in text


def test_out_and_durable_on_one_disk_share_its_room(disk: Path, tmp_path: Path) -> None:
    sizes = {"ckpt_bytes": 2 * MIB, "ckpt_inodes": 1}
    both = job_on(disk, tmp_path / "both", "abc", durable=str(disk / "fs" / "{name}"), **sizes)
    (text,) = problems(both)
    assert 'disk of "out" and "durable"' in text
    assert "12.6 MB needed" in text
    apart = job_on(
        disk,
        tmp_path / "apart",
        "abc",
        out=str(disk / "apart" / "{name}"),
        durable=f"{tmp_path}/fs/{{name}}",
        **sizes,
    )
    assert problems(apart) == []


def test_a_place_that_cannot_be_written_is_refused_before_the_first_cell(
    disk: Path, tmp_path: Path
) -> None:
    durable = str(disk / "kept" / "{name}")
    job = make_job(tmp_path / "job", ["true"], ["a"], out=str(tmp_path / "{name}"), durable=durable)
    assert problems(job) == []
    subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
    (text,) = problems(job)
    assert text == (
        f'{job}/job.json:1: "durable" cannot be written: {disk}: Read-only file system; make it '
        "writable (mount it for writing, chown), or name another directory"
    )


def test_the_newest_checkpoint_tells_the_size_where_the_job_does_not(
    disk: Path, tmp_path: Path
) -> None:
    job = job_on(disk, tmp_path / "job", "abcd")
    found = queue_check.check_queue(Job(str(job)))
    assert (found.problems, len(found.notes)) == ([], 1)
    assert 'no checkpoint found and no "ckpt_bytes" and "ckpt_inodes"' in found.notes[0]
    old, new = (
        disk / "out" / "a" / "checkpoints" / "step-1",
        disk / "out" / "a" / "checkpoints" / "step-2",
    )
    for folder, size in ((old, 1), (new, 2 * MIB)):
        folder.mkdir(parents=True)
        (folder / "model").write_bytes(bytes(size))
    os.utime(old / "model", (1, 1))
    found = queue_check.check_queue(Job(str(job)))
    assert found.notes == []
    (text,) = found.problems
    assert f'the newest checkpoint, {new}; "ckpt_bytes" in job.json overrides it' in text
    # What a has written already is paid for: three more of 2 MiB do not fit into the 6 MiB less some pages.
    assert "4 cells × 2.1 MB minus 2.1 MB already there" in text


@pytest.mark.parametrize(
    ("files", "inodes"),
    [
        (["checkpoints/step-7/x@raw"], 2),
        (["checkpoint-500/model.safetensors", "checkpoint-500/optimizer.pt"], 3),
        (["weights/best.pt"], 1),
        (["d20/model_7.pt", "d20/optim_7_rank0.pt"], 2),
        (["notes.txt"], None),
        (["checkpoints/.tmp-step-9/x"], None),
    ],
)
def test_a_checkpoint_is_weighed_with_all_its_files(
    tmp_path: Path, files: list[str], inodes: int | None
) -> None:
    write(tmp_path, files)
    total = sum(path.stat().st_size for path in tmp_path.rglob("*") if path.is_file())
    found = disk_budget.newest_checkpoint([str(tmp_path)])
    assert (found[1:] if found else None) == ((total, inodes) if inodes else None)


def test_a_cell_that_would_not_fit_is_not_started_and_a_relaunch_goes_on(
    agent: Agent, disk: Path, tmp_path: Path
) -> None:
    fill = f"[ {{name}} != a ] || head -c {5 * MIB} /dev/zero > {disk}/junk"
    script = f"mkdir -p {{out}}; head -c {MIB} /dev/zero > {{out}}/best; {fill}"
    job = make_job(tmp_path / "job", ["sh", "-c", script], ["a", "b"], out=str(disk / "{name}"),
                   ckpt_bytes=3 * MIB, ckpt_inodes=2)  # fmt: skip
    done = agent.run("queue", "run", "--job", str(job))
    assert done.returncode == 74, done.stderr
    cells = {cell["name"]: cell for cell in json.loads((job / "state.json").read_bytes())["cells"]}
    assert [(cell["state"], cell["attempts"]) for cell in cells.values()] == [
        ("done", 1),
        ("waiting", 0),
    ]
    assert cells["b"]["reason"].startswith("not started: ")
    assert "2.1 MB free, 3.1 MB needed" in cells["b"]["reason"]
    log = (job / "master.log").read_text().splitlines()
    assert log[-1].startswith("STOPPED before b: ")
    assert "QUEUE DONE" not in log
    assert agent.run("queue", "run", "--job", str(job)).returncode == 2
    (disk / "junk").unlink()
    assert agent.run("queue", "run", "--job", str(job)).returncode == 0
    assert (job / "master.log").read_text().splitlines()[-1] == "QUEUE DONE"


def test_a_disk_that_is_full_of_inodes_stops_it_too(
    agent: Agent, disk: Path, tmp_path: Path
) -> None:
    script = f"cd {disk}; for i in $(seq 60); do : > $i; done"
    job = make_job(tmp_path / "job", ["sh", "-c", script], ["a", "b"], out=str(disk / "{name}"),
                   ckpt_bytes=1, ckpt_inodes=5)  # fmt: skip
    assert agent.run("queue", "run", "--job", str(job)).returncode == 74
    assert "inodes free, 5 inodes needed" in (job / "master.log").read_text()
