"""Sweeps of one's own code on a box: the job is made, two jobs never share a directory, finished cells give room."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.process.box.harness import Agent, make_job, master_log
from tests.process.box.test_budget import disk as disk
from tests.unit.box.checkpoint_files import torch_file


@pytest.fixture
def box(agent: Agent, tmp_path: Path) -> Agent:
    """A box with a home directory of its own."""
    (tmp_path / "home").mkdir()
    agent.env["HOME"] = str(tmp_path / "home")
    return agent


def new(box: Agent, name: str, line: str, **asked: Any) -> tuple[int, dict[str, Any], str]:
    body = {"name": name, "line": line, "digest": line, **asked}
    done = box.run("queue", "new", stdin=json.dumps(body).encode())
    row = json.loads(done.stdout) if done.returncode == 0 else {}
    return done.returncode, row, done.stderr.decode()


def test_a_sweep_of_ones_own_code_is_made_filled_and_run(box: Agent, tmp_path: Path) -> None:
    code = tmp_path / "code"
    code.mkdir()
    for name in ("a", "b"):
        (code / f"{name}.yaml").write_text(name)
    line = 'cat {cfg} > "$RGT_OUT"/got; echo {epochs} {name} >> {out}/got'
    status, row, _ = new(box, "sweep", 'mkdir -p "$RGT_OUT"; ' + line, workdir=str(code))
    assert (status, row["made"], row["notes"]) == (0, True, [])
    job = row["folder"]
    assert job == str(tmp_path / "home/jobs/sweep")
    done = box.run("queue", "add", "--job", job, stdin=b"a.yaml run 3\nb.yaml run\n")
    assert json.loads(done.stdout)["added"] == ["a", "b"]
    assert box.run("queue", "check", "--job", job).returncode == 0
    assert box.run("queue", "run", "--job", job).returncode == 0
    out = tmp_path / "home/runs/sweep"
    assert [(out / name / "got").read_text() for name in ("a", "b")] == ["a3 a\n", "b20 b\n"]


def test_the_same_sweep_again_changes_nothing_and_another_one_is_refused_once_it_has_begun(
    box: Agent, tmp_path: Path
) -> None:
    assert new(box, "s", "true {cfg}")[1]["made"]
    assert not new(box, "s", "true {cfg}")[1]["made"]
    status, row, _ = new(box, "s", "echo {cfg}")
    assert (status, row["made"]) == (0, True), (
        "nothing has begun: the command may still be corrected"
    )
    (tmp_path / "home" / "c.yaml").write_text("")
    assert box.run("queue", "add", "--job", row["folder"], stdin=b"c.yaml run\n").returncode == 0
    assert box.run("queue", "run", "--job", row["folder"]).returncode == 0
    status, _, said = new(box, "s", "true {cfg}")
    assert status == 2
    assert "has started with another command or other code" in said


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("python train.py --config {conf}", "the unknown field {conf}; the fields are "),
        ("python train.py", "names neither {cfg} nor {name}"),
        ("  ", "there is no command to run"),
    ],
)
def test_a_command_that_makes_no_sweep_is_refused(
    box: Agent, tmp_path: Path, line: str, said: str
) -> None:
    status, _, words = new(box, "s", line)
    assert status == 2
    assert said in words
    assert not (tmp_path / "home" / "jobs").exists()


def test_cells_that_may_overwrite_each_other_are_noted(box: Agent) -> None:
    assert (
        "the cells overwrite each other"
        in new(box, "s", "python train.py --config {cfg}")[1]["notes"][0]
    )


def test_lines_for_a_job_that_is_not_there_are_refused_with_the_next_step(
    box: Agent, tmp_path: Path
) -> None:
    job = tmp_path / "home/jobs/sweep"
    done = box.run("queue", "add", "--job", str(job), stdin=b"a.yaml run\n")
    assert done.returncode == 2
    assert (
        f"there is no job {job} on this box; make it first: rgt queue BOX new sweep"
        in done.stderr.decode()
    )
    assert not job.exists()


@pytest.mark.parametrize("deeper", ["", "/more"])
def test_two_jobs_that_share_a_directory_are_refused_before_the_start(
    box: Agent, tmp_path: Path, deeper: str
) -> None:
    """Else cell c resumes from the other sweep's checkpoint."""
    shared = str(tmp_path / "runs" / "{name}")
    first = make_job(tmp_path / "home/jobs/one", ["touch", "{out}"], ["b", "c"], out=shared)
    second = make_job(tmp_path / "elsewhere/two", ["touch", "started"], ["c"], out=shared + deeper)
    done = box.run("queue", "check", "--job", str(second))
    assert done.returncode == 2
    assert f"where cell c of the job {first} writes" in done.stdout.decode()
    assert box.run("queue", "run", "--job", str(second)).returncode == 2
    assert not (second / "started").exists()
    settings = json.loads((second / "job.json").read_text())
    (second / "job.json").write_text(
        json.dumps({**settings, "out": str(tmp_path / "two" / "{name}")})
    )
    assert box.run("queue", "check", "--job", str(second)).returncode == 0


def test_a_job_that_was_launched_from_anywhere_is_known(box: Agent, tmp_path: Path) -> None:
    shared = str(tmp_path / "runs" / "{name}")
    first = make_job(tmp_path / "far/away/one", ["mkdir", "-p", "{out}"], ["c"], out=shared)
    assert box.run("queue", "run", "--job", str(first)).returncode == 0
    second = make_job(tmp_path / "two", ["true"], ["c"], out=shared)
    assert str(first) in box.run("queue", "check", "--job", str(second)).stdout.decode()


@pytest.mark.skipif(shutil.which("git") is None, reason="needs git")
def test_code_that_was_not_pushed_has_the_version_of_its_git_checkout(
    box: Agent, tmp_path: Path
) -> None:
    code = tmp_path / "lab"
    (code / "sub").mkdir(parents=True)
    who = ("-c", "user.name=a", "-c", "user.email=a@b.example")

    def run_git(*words: str) -> str:
        done = subprocess.run(["git", *who, *words], cwd=code, capture_output=True, check=True)
        return done.stdout.decode().strip()

    def version() -> str | None:
        job = make_job(tmp_path / "job", ["true"], ["c"], workdir=str(code / "sub"))
        frame = json.loads(box.run("queue", "status", "--job", str(job)).stdout)
        found: str | None = frame.get("code")
        return found

    assert version() is None
    run_git("init", "-q")
    run_git("commit", "-q", "--allow-empty", "-m", "one")
    assert version() == f"lab-{run_git('rev-parse', 'HEAD')[:12]}"
    run_git("pack-refs", "--all")
    assert version() == f"lab-{run_git('rev-parse', 'HEAD')[:12]}"
    run_git("commit", "-q", "--allow-empty", "-m", "two")
    run_git("checkout", "-q", "--detach", "HEAD")
    assert version() == f"lab-{run_git('rev-parse', 'HEAD')[:12]}"


@pytest.mark.skipif(shutil.which("git") is None, reason="needs git")
def test_linked_work_trees_and_edits_are_seen_in_the_version_of_a_checkout(
    box: Agent, tmp_path: Path
) -> None:
    code, linked, marker = tmp_path / "lab", tmp_path / "wt", tmp_path / "ran"
    code.mkdir()
    who = ("-c", "user.name=a", "-c", "user.email=a@b.example")

    def run_git(*words: str, at: Path = code) -> str:
        done = subprocess.run(["git", *who, *words], cwd=at, capture_output=True, check=True)
        return done.stdout.decode().strip()

    def version(folder: Path) -> str:
        job = make_job(tmp_path / "job", ["true"], ["c"], workdir=str(folder))
        frame = json.loads(box.run("queue", "status", "--job", str(job)).stdout)
        return str(frame.get("code"))

    run_git("init", "-q")
    (code / "train.py").write_text("lr = 1\n")
    (code / "old.py").write_text("")
    run_git("add", ".")
    run_git("commit", "-q", "-m", "one")
    run_git("worktree", "add", "-q", "-b", "try", str(linked))
    run_git("commit", "-q", "--allow-empty", "-m", "two", at=linked)
    run_git("pack-refs", "--all")
    first, second = run_git("rev-parse", "HEAD")[:12], run_git("rev-parse", "HEAD", at=linked)[:12]
    # Nothing of the repository's configuration may run.
    run_git("config", "core.fsmonitor", f"touch {marker}; false")
    index = (code / ".git/index").read_bytes()
    assert (version(code), version(linked)) == (f"lab-{first}", f"wt-{second}")
    for folder in (code, linked):
        (folder / "train.py").write_text("lr = 2\n")
        edited = version(folder)
        (folder / "old.py").unlink()
        both = version(folder)
        assert re.fullmatch(r"(lab|wt)-[0-9a-f]{12}\+edits-[0-9a-f]{12}", both)
        assert edited.partition("+")[0] == both.partition("+")[0] and edited != both
    assert version(code).rpartition("-")[2] == version(linked).rpartition("-")[2], "the same edits"
    (code / "train.py").write_text("lr = 1\n")
    (code / "old.py").write_text("")
    os.utime(code / "train.py", (1, 1))
    assert version(code) == f"lab-{first}", "the content counts, not its time"
    assert (code / ".git/index").read_bytes() == index
    assert not marker.exists()


def test_the_interpreter_is_filled_into_the_smoke_command(box: Agent, tmp_path: Path) -> None:
    line = '{py} -c \'import sys; print(sys.executable, "{cfg}", "${HOME}")\''
    job = make_job(
        tmp_path / "job", ["true"], ["a"], smoke=line, py=sys.executable, detach="setsid"
    )
    assert box.run("launch", "--job", str(job), "--seconds", "10").returncode == 0
    assert (job / "logs/smoke.log").read_text().startswith(f"{sys.executable} {{cfg}}")


MIB = 1 << 20


def sweep_that_fills(disk: Path, folder: Path, **settings: Any) -> Path:
    """Make a job of four cells, each of which writes two checkpoints of 1.2 MiB to a disk of 8 MiB."""
    model = folder.parent / "model.pt"
    model.write_bytes(torch_file({"model": {"a.weight": 1}, "pad": "x" * (5 * MIB // 4)}))
    script = f"mkdir {{out}}; for i in best ckpt_10; do cp {model} {{out}}/$i.pt; done; echo 1 > {{out}}/log.txt"
    sizes = {
        "ckpt_bytes": 5 * MIB // 2,
        "ckpt_inodes": 4,
        "keep": ["."],
        "durable": str(folder / "copies/{name}"),
    }
    return make_job(
        folder, ["sh", "-c", script], list("abcd"), out=f"{disk}/{{name}}", **{**sizes, **settings}
    )


def test_finished_cells_give_their_room_to_the_next_one(
    box: Agent, disk: Path, tmp_path: Path
) -> None:
    job = sweep_that_fills(disk, tmp_path / "job", prune="keep-best")
    done = box.run("queue", "run", "--job", str(job))
    assert done.returncode == 0, done.stderr + done.stdout
    log = master_log(job)
    assert "PRUNE 1.3 MB of a: " in log and "(room for d)" in log
    assert f"PRUNED 1.3 MB of a: {disk}/a/ckpt_10.pt" in log
    left = {path.relative_to(disk).as_posix() for path in disk.rglob("*") if path.is_file()}
    assert {"a/best.pt", "a/log.txt", "d/best.pt", "d/ckpt_10.pt"} <= left
    assert "a/ckpt_10.pt" not in left
    assert (job / "copies/a/ckpt_10.pt").exists()
    cells = {cell["name"]: cell for cell in json.loads((job / "state.json").read_text())["cells"]}
    assert cells["a"]["pruned"] > MIB
    assert {cell["state"] for cell in cells.values()} == {"done"}


def test_room_is_made_for_all_that_a_cell_writes(box: Agent, disk: Path, tmp_path: Path) -> None:
    """A cell of several checkpoints would begin where one of them fits, and fill the disk."""
    job = sweep_that_fills(disk, tmp_path / "job", prune="keep-best", ckpt_bytes=None)
    done = box.run("queue", "run", "--job", str(job))
    assert done.returncode == 0, done.stderr + done.stdout
    assert "PRUNED 1.3 MB of a" in master_log(job) and "PRUNED 1.3 MB of b" in master_log(job)


def test_without_it_the_queue_stops_and_a_check_says_what_it_would_remove(
    box: Agent, disk: Path, tmp_path: Path
) -> None:
    job = sweep_that_fills(disk, tmp_path / "job", ckpt_bytes=2 * MIB)
    assert box.run("queue", "run", "--job", str(job)).returncode == 74
    before = sorted(path for path in disk.rglob("*"))
    settings = json.loads((job / "job.json").read_text())
    (job / "job.json").write_text(json.dumps({**settings, "prune": "keep-best"}))
    checked = box.run("queue", "check", "--job", str(job)).stdout.decode()
    assert "3 checkpoints of 3 finished cells, 3.9 MB may be removed" in checked
    assert "nothing is removed now" in checked
    assert sorted(path for path in disk.rglob("*")) == before


def test_nothing_goes_whose_copy_is_not_what_was_copied(
    box: Agent, disk: Path, tmp_path: Path
) -> None:
    job = sweep_that_fills(disk, tmp_path / "job", ckpt_bytes=2 * MIB)
    assert box.run("queue", "run", "--job", str(job)).returncode == 74
    settings = json.loads((job / "job.json").read_text())
    (job / "job.json").write_text(json.dumps({**settings, "prune": "keep-best"}))
    damaged = job / "copies/a/ckpt_10.pt"
    data = bytearray(damaged.read_bytes())
    data[-1] ^= 1
    damaged.write_bytes(data)
    (disk / "b/ckpt_10.pt").write_bytes(data)
    (job / "copies/c/.rgt-manifest.jsonl").write_text('{"path": "ckpt_10.pt", "si')
    assert box.run("queue", "run", "--job", str(job)).returncode in (2, 74)
    box.run("queue", "run", "--job", str(job))
    assert all((disk / name / "ckpt_10.pt").exists() for name in "abc")


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"prune": "all"}, 'must be "keep-best"'),
        ({"prune": "keep-best", "durable": None}, 'needs "durable"'),
    ],
)
def test_a_prune_that_could_lose_something_is_refused(
    box: Agent, tmp_path: Path, settings: dict[str, Any], said: str
) -> None:
    job = make_job(
        tmp_path / "job", ["true"], ["a"], **{"durable": str(tmp_path / "d/{name}"), **settings}
    )
    assert said in box.run("queue", "check", "--job", str(job)).stdout.decode()
