"""`rgt run --job`: the card of the box is compared with the job's before anything is sent there."""

from __future__ import annotations

import json
from pathlib import Path

from rgt_tui.model import BoxSpec
from tests.contract.cli.conftest import Rgt
from tests.contract.ssh.conftest import RealSshd
from tests.contract.work.test_box_tools import box as box
from tests.contract.work.test_box_tools import sshd as sshd


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
