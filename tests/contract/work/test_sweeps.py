"""``rgt queue BOX new``: a sweep of one's own code on two real sshds, by the documented commands alone."""

from __future__ import annotations

import json
import shutil
import socket
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from rgt_tui.model import BoxSpec
from tests.contract.cli.conftest import Rgt
from tests.contract.ssh.conftest import fresh_sshd
from tests.process.box.harness import master_log, until

TRAIN = """
import argparse, os, pathlib
flags = argparse.ArgumentParser()
flags.add_argument("--config")
flags.add_argument("--epochs", type=int)
given = flags.parse_args()
out = pathlib.Path(os.environ["RGT_OUT"])
out.mkdir(parents=True, exist_ok=True)
(out / "result.txt").write_text(pathlib.Path(given.config).read_text() + str(given.epochs))
"""
SWEEP = ("new", "sweep", "--push", "code", "--", "{py} train.py --config {cfg} --epochs {epochs}")


@pytest.fixture
def code(rgt: Rgt) -> Path:
    folder = rgt.folder / "code"
    (folder / "configs").mkdir(parents=True)
    (folder / "train.py").write_text(TRAIN)
    for name in ("a", "b"):
        (folder / "configs" / f"{name}.yaml").write_text(name)
    return folder


@pytest.fixture
def second(tmp_path: Path) -> Iterator[tuple[BoxSpec, Path]]:
    (tmp_path / "second").mkdir()
    with fresh_sshd(tmp_path / "second") as running:
        spec = msgspec.structs.replace(running.spec, name="b2", pattern="^no such training$")
        yield spec, running.folder / "home"


def test_boxes_with_different_code_start_nothing(
    rgt: Rgt, box: BoxSpec, home: Path, second: tuple[BoxSpec, Path], code: Path
) -> None:
    spec, other_home = second
    mixed = ("new", "mixed", *SWEEP[2:])
    rgt.describe([box, spec])
    assert rgt.on("queue", "lab", *mixed).returncode == 0
    (code / "train.py").write_text(TRAIN + "# another version")
    assert rgt.on("queue", "b2", *mixed).returncode == 0
    jobs = [each / "jobs/mixed" for each in (home, other_home)]
    versions = [Path(json.loads((job / "job.json").read_text())["workdir"]).name for job in jobs]
    (rgt.folder / "queue.txt").write_text("configs/a.yaml run\nconfigs/b.yaml run\n")
    for words in (["queue.txt"], []):
        refused = rgt.on("queue", "lab,b2", "run", *words, "--job", "mixed")
        assert refused.returncode == 1, refused.stderr
        assert f"lab has {versions[0]}, b2 has {versions[1]}" in refused.stderr
        assert "queue lab,b2 new mixed --push PATH -- 'COMMAND'" in refused.stderr
    assert not any((job / "state.json").exists() for job in jobs)
    # The command that is named makes them the same.
    assert rgt.on("queue", "lab,b2", *mixed).returncode == 0
    ran = rgt.on("queue", "lab,b2", "run", "queue.txt", "--job", "mixed", "--probe", "5")
    assert ran.returncode == 0, ran.stderr


def test_one_version_of_the_code_runs_on_two_boxes(
    rgt: Rgt, box: BoxSpec, home: Path, second: tuple[BoxSpec, Path], code: Path
) -> None:
    spec, other_home = second
    rgt.describe([box, spec])
    fresh = rgt.on("queue", "lab", "add", "configs/a.yaml", "--job", "sweep")
    assert fresh.returncode == 2
    assert "make it first: rgt queue BOX new sweep" in fresh.stderr
    made = rgt.on("queue", "lab,b2", *SWEEP)
    assert made.returncode == 0, made.stdout + made.stderr
    text = rgt.fleet.read_text()
    assert text.count('"~/jobs/sweep"') == 2
    jobs = [json.loads((each / "jobs/sweep/job.json").read_text()) for each in (home, other_home)]
    versions = {Path(job["workdir"]).name for job in jobs}
    assert len(versions) == 1
    assert (
        rgt.on("queue", "lab", "add", "configs/a.yaml", "configs/b.yaml 7").stdout
        == "lab: added a, b\n"
    )
    ran = rgt.on("queue", "lab", "run", "--probe", "5")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    job = home / "jobs/sweep"
    until(lambda: "QUEUE DONE" in master_log(job))
    results = {
        path.parent.name: path.read_text() for path in (home / "runs/sweep").glob("*/result.txt")
    }
    assert results == {"a": "a20", "b": "b7"}
    (code / "train.py").write_text(TRAIN + "# another version\n")
    later = rgt.on("queue", "lab,b2", *SWEEP)
    assert later.returncode == 2
    assert "lab: queue new: ~/jobs/sweep has started" in later.stderr.replace(str(home), "~")
    assert "the job is not on lab" in later.stderr


def test_a_job_that_the_fleet_file_does_not_name_is_kept_there_once_it_runs(
    rgt: Rgt, box: BoxSpec, home: Path
) -> None:
    job = home / "jobs" / "by-hand"
    job.mkdir(parents=True)
    (job / "a.yaml").write_text("")
    (job / "queue.txt").write_text("a.yaml x\n")
    settings = {
        "command": ["mkdir", "-p", "{out}"],
        "out": "runs/{name}",
        "ckpt_bytes": 0,
        "ckpt_inodes": 0,
    }
    (job / "job.json").write_text(json.dumps(settings))
    assert rgt.on("queue", "lab", "check", "--job", "by-hand").returncode == 0
    assert "by-hand" not in rgt.fleet.read_text()
    assert rgt.on("queue", "lab", "run", "--job", "by-hand", "--probe", "5").returncode == 0
    assert 'jobs = ["~/jobs/by-hand"]' in rgt.fleet.read_text()
    until(lambda: "QUEUE DONE" in master_log(job))
    shutil.rmtree(job)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("new", "sweep"), "which command? write it after --"),
        (("new", "--", "true {cfg}"), "new takes the name of the job"),
        (("new", "sweep", "--", "python train.py"), "names neither {cfg} nor {name}"),
        (("new", "s/x", "--", "true {cfg}"), "is not a valid job name"),
        (("status", "--", "true"), "status takes no command"),
        (
            ("new", "sweep", "--push", ".", "--env", "LR", "--", "true {cfg}"),
            "--env 'LR': write NAME=VALUE",
        ),
        (
            ("new", "sweep", "--job", "other", "--", "true {cfg}"),
            "new takes the name of the job instead of --job",
        ),
        (("run", "--push", "."), "only for new, as part of the job: --push"),
        (
            ("run", "--smoke", "true", "--retries", "2"),
            "only for new, as part of the job: --smoke and --retries",
        ),
    ],
)
def test_a_sweep_that_cannot_be_made_is_refused(
    rgt: Rgt, box: BoxSpec, words: tuple[str, ...], said: str
) -> None:
    done = rgt.on("queue", "lab", *words)
    assert done.returncode == 2
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_a_box_that_is_not_reached_is_no_refusal(rgt: Rgt, box: BoxSpec) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        rgt.describe([msgspec.structs.replace(box, port=closed.getsockname()[1])])
        done = rgt.on("queue", "lab", "new", "sweep", "--", "true {cfg}")
    assert done.returncode == 3, done.stderr
