"""`rgt queue` on one box and on two: real sshds, real queues, a box that is killed."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from rgt_tui.model import BoxSpec
from tests.contract.cli.conftest import Rgt
from tests.contract.ssh.conftest import RealSshd, fresh_sshd
from tests.process.box.harness import master_log, until

COMMAND = [
    "sh",
    "-c",
    "echo {name} >> ran; mkdir -p {out}; while [ -e hold ]; do sleep 0.05; done; echo {task} > {out}/best",
]


def make(folder: Path, *lines: str, **settings: object) -> Path:
    """Make a job whose cells write a file and end."""
    job = folder / "sweep"
    job.mkdir(parents=True)
    (folder / "durable").mkdir()
    for name in "abcdefgh":
        (job / f"{name}.yaml").write_text(f"name: {name}\n")
    (job / "queue.txt").write_text("".join(f"{line}\n" for line in lines) or "# none yet\n")
    body = {
        "command": COMMAND,
        "out": "runs/{name}",
        "durable": f"{folder}/durable/{{name}}",
        "ckpt_bytes": 0,
        **settings,
    }
    (job / "job.json").write_text(json.dumps(body))
    return job


def over(job: Path) -> bool:
    path = job / "master.log"
    return path.exists() and path.read_text().endswith("QUEUE DONE\n")


def test_one_box(rgt: Rgt, box: BoxSpec, tmp_path: Path) -> None:
    job = make(tmp_path, "a.yaml x 1")
    rgt.describe([msgspec.structs.replace(box, jobs=(str(job),))])
    done = rgt.on("queue", "lab", "add", "b.yaml x 1", "c.yaml y 1")
    assert (done.returncode, done.stdout) == (0, "lab: added b, c\n"), done.stderr
    taken = rgt.on("queue", "lab", "add", "b.yaml other 1")
    assert taken.returncode == 2 and "'b' is taken" in taken.stderr
    (job / "a.yaml").write_bytes(b"name: a\r\n")
    wrong = rgt.on("queue", "lab", "check")
    assert wrong.returncode == 2 and "Windows line endings" in wrong.stdout
    mended = rgt.on("queue", "lab", "check", "--fix")
    assert (
        mended.returncode == 0
        and "lab: fixed: " in mended.stdout
        and "3 cells, nothing wrong" in mended.stdout
    )
    ran = rgt.on("queue", "lab", "run", "--from", "b", "--probe", "5")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    until(lambda: "QUEUE NOT DONE" in master_log(job))
    status = rgt.on("queue", "lab", "status")
    assert status.returncode == 0 and "lab: waiting     a (x, 1 epoch)" in status.stdout
    missing = rgt.on("queue", "lab", "reconcile")
    assert missing.returncode == 1 and "lab: never-ran  a" in missing.stdout
    assert rgt.on("queue", "lab", "run").returncode == 0
    until(lambda: over(job))
    whole = rgt.on("queue", "lab", "reconcile", "--json")
    assert whole.returncode == 0 and json.loads(whole.stdout)["counts"] == {"ok": 3}
    assert (job / "ran").read_text().split() == ["b", "c", "a"]
    (tmp_path / "durable/b/best").write_text("other\n")
    lost = rgt.on("queue", "lab", "reconcile")
    assert lost.returncode == 1 and "lab: damaged    b" in lost.stdout
    assert rgt.on("queue", "lab", "run", "--again", "b").returncode == 0
    until(lambda: (job / "ran").read_text().split()[3:] == ["b"] and over(job))
    until(lambda: rgt.on("queue", "lab", "reconcile").returncode == 0)


def test_a_smoke_command_of_the_job_is_its_gate(rgt: Rgt, box: BoxSpec, tmp_path: Path) -> None:
    job = make(tmp_path, "a.yaml x 1", smoke="echo no gpu; exit 4")
    rgt.describe([msgspec.structs.replace(box, jobs=(str(job),))])
    done = rgt.on("queue", "lab", "run")
    assert (
        done.returncode == 1
        and "smoke  FAILED: exit 4" in done.stdout
        and not (job / "ran").exists()
    )


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("lab", "add"), "add takes lines"),
        (("lab", "check"), "which of its jobs?"),
        (("lab", "status", "x"), "takes no 'x'"),
        (("lib", "status"), "did you mean 'lab'?"),
        (("lab", "run", "nowhere.txt", "--job", "one"), "cannot read nowhere.txt"),
        (("lab", "run", "--hand-over", "lab", "--job", "one"), "cannot take over its own"),
    ],
)
def test_what_makes_no_sense_is_2(
    rgt: Rgt, box: BoxSpec, words: tuple[str, ...], said: str
) -> None:
    rgt.describe([msgspec.structs.replace(box, jobs=("~/jobs/one", "~/jobs/two"))])
    done = rgt.on("queue", *words)
    assert done.returncode == 2 and said in done.stderr


def test_status_lists_all_jobs_of_the_box(
    rgt: Rgt, box: BoxSpec, tmp_path: Path, home: Path
) -> None:
    job = make(tmp_path, "a.yaml x 1")
    done = rgt.on("run", "lab", "--name", "elsewhere", "--", "true")
    assert done.returncode == 0, done.stderr
    rgt.describe([msgspec.structs.replace(box, jobs=(str(job),))])
    told = rgt.on("queue", "lab", "status")
    assert told.returncode == 0, told.stderr
    assert f"lab: job {job}\nlab:   waiting     a (x" in told.stdout
    assert f"lab: job {home}/jobs/elsewhere, which the fleet file does not name\n" in told.stdout
    rows = [
        json.loads(line) for line in rgt.on("queue", "lab", "status", "--json").stdout.splitlines()
    ]
    assert {str(job), f"{home}/jobs/elsewhere"} <= {row["job"] for row in rows}
    one = rgt.on("queue", "lab", "status", "--job", str(job)).stdout
    assert "elsewhere" not in one and "lab: waiting     a (x" in one


@pytest.fixture(scope="module")
def second(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealSshd]:
    folder = tmp_path_factory.mktemp("second")
    with fresh_sshd(folder) as running:
        (folder / "home/.bashrc").write_text("tmux() { return 1; }\n")
        yield running


class Pair:
    """Two boxes with a job of the same name."""

    def __init__(self, rgt: Rgt, first: RealSshd, second: RealSshd, folder: Path) -> None:
        self.rgt = rgt
        self.jobs = {name: make(folder / name, detach="setsid") for name in "ab"}
        self.specs = {
            name: msgspec.structs.replace(
                sshd.spec, name=name, pattern="^no such training$", jobs=(str(self.jobs[name]),)
            )
            for name, sshd in (("a", first), ("b", second))
        }
        rgt.describe(list(self.specs.values()))

    def ran(self, name: str) -> list[str]:
        path = self.jobs[name] / "ran"
        return path.read_text().split() if path.exists() else []

    def lines(self, name: str) -> list[str]:
        rows = (self.jobs[name] / "queue.txt").read_text().splitlines()
        return [row for row in rows if not row.startswith("#")]


@pytest.fixture
def pair(rgt: Rgt, worker: RealSshd, second: RealSshd, tmp_path: Path) -> Pair:
    return Pair(rgt, worker, second, tmp_path)


def test_one_file_over_two_boxes(pair: Pair) -> None:
    """A config that took long on one box makes it the only one of its share; nothing is added twice."""
    rgt, path = pair.rgt, pair.rgt.folder / "sweep.txt"
    path.write_text("a.yaml x 1\nb.yaml x 1\nc.yaml x 1\nd.yaml x 1\n")
    done = rgt.on("queue", "a,b", "run", str(path), "--probe", "1")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "split evenly: no finished cell, so no cost per cell" in done.stdout
    assert sorted(map(len, (pair.lines("a"), pair.lines("b")))) == [2, 2]
    until(lambda: over(pair.jobs["a"]) and over(pair.jobs["b"]))
    again = rgt.on("queue", "a,b", "run", str(path), "--probe", "1")
    assert again.returncode == 0 and "there already: " in again.stdout, again.stdout + again.stderr
    assert sorted(pair.ran("a") + pair.ran("b")) == ["a", "b", "c", "d"]
    whole = rgt.on("queue", "a,b", "reconcile", "--json")
    assert whole.returncode == 0, whole.stdout
    assert {cell["status"] for cell in json.loads(whole.stdout)["cells"]} == {"ok"}
    # What has finished says now what a cell costs.
    for name, seconds in (("a", 100.0), ("b", 1.0)):
        state = json.loads((pair.jobs[name] / "state.json").read_text())
        for cell in state["cells"]:
            cell["ended"] = cell["started"] + seconds
        (pair.jobs[name] / "state.json").write_text(json.dumps(state))
    path.write_text("e.yaml x 1\nf.yaml x 1\n")
    measured = rgt.on("queue", "a,b", "run", str(path), "--probe", "1")
    assert "cost: 2 by its task" in measured.stdout and "assumed equal" in measured.stdout
    until(lambda: len(pair.ran("a") + pair.ran("b")) == 6)


def test_a_box_that_has_only_cells_of_an_earlier_attempt_is_started(pair: Pair) -> None:
    """A launch that failed left its lines there: the box would bill with nothing running."""
    rgt, path = pair.rgt, pair.rgt.folder / "sweep.txt"
    (pair.jobs["b"] / "queue.txt").write_text("b.yaml x 1\n")
    path.write_text("a.yaml x 1\nb.yaml x 1\n")
    done = rgt.on("queue", "a,b", "run", str(path), "--probe", "1")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "b: there already: b" in done.stdout and "a: a" in done.stdout, done.stdout
    until(lambda: over(pair.jobs["a"]) and over(pair.jobs["b"]))
    # A box whose cells are done has nothing to start.
    path.write_text("b.yaml x 1\nc.yaml x 1\n")
    (pair.jobs["a"] / "hold").touch()
    more = rgt.on("queue", "a,b", "run", str(path), "--probe", "1")
    assert more.returncode == 0, more.stdout + more.stderr
    (pair.jobs["a"] / "hold").unlink()
    until(lambda: len(pair.ran("a") + pair.ran("b")) == 3)
    assert pair.ran("b").count("b") == 1


def test_the_fleet_is_reconciled(pair: Pair) -> None:
    rgt = pair.rgt
    for name, cells in (("a", "abc"), ("b", "cd")):
        (pair.jobs[name] / "queue.txt").write_text("".join(f"{cell}.yaml x 1\n" for cell in cells))
    assert rgt.on("queue", "a", "run", "--probe", "1").returncode == 0
    until(lambda: over(pair.jobs["a"]))
    (pair.jobs["a"].parent / "durable/b/best").write_text("other\n")
    done = rgt.on("queue", "a,b", "reconcile")
    assert done.returncode == 1
    rows = done.stdout.splitlines()
    job_a, job_b = pair.jobs["a"], pair.jobs["b"]
    assert (
        rows[0].startswith("damaged    b  on a")
        and rows[1].strip() == f"rgt queue a run --again b --job {job_a}"
    )
    assert (
        rows[2].startswith("duplicate  c  on a, b")
        and rows[3].strip() == f"rgt queue b take-out c --job {job_b}"
    )
    assert rows[4].startswith(("never-ran  d  on b", "missing    d  on b"))
    assert rows[5].strip() == f"rgt queue b run --job {job_b}"
    assert rows[6] == "ok         a  on a"
    for command in (rows[1], rows[3], rows[5]):
        assert (
            rgt.on(
                *command.split()[1:], *(["--probe", "1"] if " run " in command else [])
            ).returncode
            == 0
        )
    until(lambda: rgt.on("queue", "a,b", "reconcile").returncode == 0)
    assert sorted(pair.ran("a") + pair.ran("b")) == ["a", "b", "b", "c", "d"]


def test_cells_of_a_box_that_still_answers(pair: Pair) -> None:
    rgt, hold = pair.rgt, pair.jobs["a"] / "hold"
    hold.touch()
    (pair.jobs["a"] / "queue.txt").write_text("a.yaml x 1\nb.yaml x 1\n")
    assert rgt.on("queue", "a", "run", "--probe", "1").returncode == 0
    refused = rgt.on("queue", "b", "run", "--hand-over", "a")
    assert refused.returncode == 1 and "its runner is active" in refused.stderr
    assert pair.lines("b") == []
    pid = json.loads((pair.jobs["a"] / "state.json").read_text())["runner_pid"]
    assert (
        rgt.on(
            "exec", "a", "--", f"kill {pid}; while kill -0 {pid} 2>/dev/null; do sleep 0.05; done"
        ).returncode
        == 0
    )
    hold.unlink()
    done = rgt.on("queue", "b", "run", "--hand-over", "a", "--probe", "1")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "a: no longer run there: a, b" in done.stdout
    until(lambda: over(pair.jobs["b"]))
    assert pair.lines("a") == [] and pair.lines("b") == [
        "a.yaml x 1  # from a",
        "b.yaml x 1  # from a",
    ]
    assert pair.ran("b") == ["a", "b"]


def test_cells_of_a_box_that_is_gone(pair: Pair, tmp_path: Path) -> None:
    """A spot kill: the box does not answer. Nothing is handed over before somebody says that it is off."""
    rgt = pair.rgt
    (pair.jobs["a"] / "queue.txt").write_text("a.yaml x 1\nb.yaml x 1\n")
    (tmp_path / "third").mkdir()
    with fresh_sshd(tmp_path / "third") as third:
        spot = msgspec.structs.replace(
            third.spec, name="a", jobs=pair.specs["a"].jobs, pattern=pair.specs["a"].pattern
        )
        rgt.describe([spot, pair.specs["b"]])
        seen = rgt.start("watch", "a", "--for", "300", "--json")
        assert seen.stdout is not None
        while b'"name":"b"' not in (line := seen.stdout.readline()):
            assert line, "it has ended before"
        seen.send_signal(
            signal.SIGTERM
        )  # an rgt that has seen its queue, and has written that down
        seen.communicate(timeout=60)
    unknown = rgt.on("queue", "b", "run", "--hand-over", "a")
    assert unknown.returncode in (1, 3) and pair.lines("b") == []
    assert "Unreachable does not mean stopped" in unknown.stderr
    lost = rgt.on("queue", "a,b", "reconcile")
    assert (
        lost.returncode in (1, 3)
        and "it may still run" in lost.stderr
        and "unknown    a  on a" in lost.stdout
    )
    done = rgt.on("queue", "b", "run", "--hand-over", "a", "--confirm", "a", "--probe", "1")
    assert done.returncode == 0, done.stdout + done.stderr
    until(lambda: over(pair.jobs["b"]))
    assert pair.ran("b") == ["a", "b"]
    # It comes back, with its old queue: what others ran is not run again.
    rgt.describe([pair.specs["a"], pair.specs["b"]])
    back = rgt.on("queue", "a", "run", "--probe", "1")
    assert "a: no longer run there: a, b" in back.stdout
    assert pair.lines("a") == [] and pair.ran("a") == []
