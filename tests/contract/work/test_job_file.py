"""`rgt run --job`: the card of the box is compared with the job's before anything is sent there."""

from __future__ import annotations

import json
from pathlib import Path

from rgt_tui.model import BoxSpec
from tests.contract.cli.conftest import Rgt
from tests.contract.ssh.conftest import RealSshd
from tests.contract.work.test_box_tools import box as box
from tests.contract.work.test_box_tools import sshd as sshd
from tests.process.box.harness import master_log, until


def write_job(rgt: Rgt, gpu: str, more: str = "") -> str:
    code = rgt.folder / "project"
    code.mkdir(exist_ok=True)
    (code / "train.py").write_text("import os; print(os.environ['LR'], os.environ['KEY'])\n")
    path = code / "job.toml"
    path.write_text(
        'run = ["python3", "train.py"]\nname = "asked"\nsmoke = "test -e train.py"\npush = "."\n'
        f'secrets = ["KEY"]\nresults = ["best.pt"]\n{more}'
        f"[resources]\ngpu = {gpu}\n[env]\nLR = 3e-4\n"
    )
    rgt.env["KEY"] = "hidden-value"
    return str(path)


def test_a_job_file_starts_on_a_card_that_is_large_enough(
    rgt: Rgt, box: BoxSpec, sshd: RealSshd
) -> None:
    job = write_job(rgt, '{ memory = "80GB+" }')
    done = rgt.on("run", "lab", "--job", job)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "lab: card   1 × NVIDIA Stub 80GB\n" in done.stdout
    assert "lab: smoke  passed in" in done.stdout
    assert "first line: 0.0003" in done.stdout and "hidden-value" not in done.stdout, done.stdout
    settings = json.loads((sshd.folder / "home/jobs/asked/job.json").read_text())
    assert settings["env"]["LR"] == "0.0003"
    assert "best.pt" in json.dumps(settings)


def test_a_smaller_card_is_refused_before_anything_is_sent(
    rgt: Rgt, box: BoxSpec, sshd: RealSshd
) -> None:
    job = write_job(rgt, '{ memory = "24GB+", count = 2 }')
    assert "smaller than the job asks for" in rgt.on("run", "lab", "--job", job).stderr
    job = write_job(rgt, '{ memory = "96GB+" }')
    Path(job).write_text(Path(job).read_text().replace("asked", "smaller"))
    done = rgt.on("run", "lab", "--job", job)
    assert done.returncode == 1, done.stdout
    assert "its card is smaller than the job asks for: 1 × NVIDIA Stub 80GB" in done.stderr
    assert "nothing was started" in done.stderr
    assert not (sshd.folder / "home/jobs/smaller").exists()
    forced = rgt.on("run", "lab", "--job", job, "--force", "--name", "forced")
    assert forced.returncode == 0, forced.stdout + forced.stderr
    assert "lab: card   1 × NVIDIA Stub 80GB, asked for 1 × 96GB+" in forced.stderr


def test_an_unknown_card_needs_consent(rgt: Rgt, box: BoxSpec, sshd: RealSshd) -> None:
    job = write_job(rgt, '"Card of tomorrow"')
    Path(job).write_text(Path(job).read_text().replace("asked", "unknown"))
    done = rgt.on("run", "lab", "--job", job)
    assert done.returncode == 1 and "--force starts it anyway" in done.stderr, done.stderr
    assert not (sshd.folder / "home/jobs/unknown").exists()
    assert rgt.on("run", "lab", "--job", job, "--force").returncode == 0


def test_a_job_file_that_cannot_be_used_ends_before_the_box_is_asked(rgt: Rgt) -> None:
    sweep = write_job(rgt, '"A100"', 'cells = ["a.yaml"]\n')
    done = rgt.on("run", "nowhere", "--job", sweep)
    assert done.returncode == 2 and "rgt queue nowhere run --job" in done.stderr
    wrong = write_job(rgt, '"A100"', "cell = 1\n")
    done = rgt.on("run", "nowhere", "--job", wrong)
    assert done.returncode == 2 and "cell: unknown key; did you mean cells?" in done.stderr


CELLS = 'cells = ["configs/a.yaml", "configs/b.yaml seg 2", "configs/c.yaml"]\n'


def write_sweep(rgt: Rgt, gpu: str, name: str) -> str:
    path = Path(write_job(rgt, gpu, CELLS))
    text = path.read_text().replace('"asked"', f'"{name}"')
    line = "mkdir -p {out}; sh -c 'echo {cfg} {epochs} $LR $KEY > {out}/result.txt'"
    path.write_text(text.replace('["python3", "train.py"]', f'"""{line}"""'))
    for cell in "abc":
        (path.parent / "configs").mkdir(exist_ok=True)
        (path.parent / f"configs/{cell}.yaml").write_text(cell)
    return str(path)


def test_the_sweep_of_a_job_file(rgt: Rgt, box: BoxSpec, sshd: RealSshd) -> None:
    job, home = write_sweep(rgt, '{ memory = "24GB+" }', "sweep"), sshd.folder / "home"
    words = ("queue", "lab", "run", "--job", job, "--probe", "5")
    shown = rgt.on(*words, "--dry-run", "--names", "a", "b")
    assert shown.returncode == 0, shown.stdout + shown.stderr
    assert "lab: card   1 × NVIDIA Stub 80GB\n" in shown.stdout
    assert "lab: a, b" in shown.stdout and "dry run: nothing was pushed" in shown.stdout
    assert not (home / "jobs/sweep").exists()
    ran = rgt.on(*words, "--names", "a", "b")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    until(lambda: "QUEUE DONE" in master_log(home / "jobs/sweep"))
    results = {path.parent.name: path.read_text() for path in home.glob("runs/sweep/*/result.txt")}
    assert {name: text.split()[1:] for name, text in results.items()} == {
        "a": ["20", "0.0003", "hidden-value"],
        "b": ["2", "0.0003", "hidden-value"],
    }
    assert rgt.on("status", "lab").returncode == 0, "it is in the history from here on"
    pulled = rgt.folder / "pulled/lab/root/runs/sweep/c"
    pulled.mkdir(parents=True)
    (pulled / "result.txt").touch()
    skipped = rgt.on(*words, "--skip-existing", "--dry-run")
    assert skipped.returncode == 0, skipped.stderr
    assert f"left out: c (pulled to {pulled.relative_to(rgt.folder)})" in skipped.stdout
    assert (
        "lab: there already: a, b" in skipped.stdout
        or "left out: a (done on lab)" in skipped.stdout
    )
    wrong = rgt.on(*words, "--names", "x")
    assert wrong.returncode == 2 and "no cell is called x; there are: a, b, c" in wrong.stderr


def test_a_sweep_starts_nowhere_if_one_card_is_too_small(
    rgt: Rgt, box: BoxSpec, sshd: RealSshd
) -> None:
    job = write_sweep(rgt, '{ memory = "96GB+" }', "small-sweep")
    words = ("queue", "lab", "run", "--job", job, "--probe", "5")
    for more in ((), ("--dry-run",)):
        done = rgt.on(*words, *more)
        assert done.returncode == 1, done.stdout
        assert "its card is smaller than the job asks for" in done.stderr
        assert not (sshd.folder / "home/jobs/small-sweep").exists()
    assert rgt.on(*words, "--force").returncode == 0


def test_options_of_a_job_file_need_one(rgt: Rgt, box: BoxSpec) -> None:
    done = rgt.on("queue", "lab", "run", "--job", "sweep", "--dry-run", "--names", "a")
    assert done.returncode == 2
    assert "--names and --dry-run: only with a job file" in done.stderr
    job = write_sweep(rgt, '"24GB+"', "sweep")
    done = rgt.on("queue", "lab", "status", "--job", job)
    assert done.returncode == 2 and "a job file goes with run alone" in done.stderr
    none = rgt.on("queue", "lab", "run", "--job", write_job(rgt, '"24GB+"'))
    assert none.returncode == 2 and "has no cell" in none.stderr
