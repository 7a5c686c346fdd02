"""What a platform's profile stands in for, where the fleet file says nothing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from rgt_box.queue import queue_file

from rgt_tui.cli.set_up.adding import profile_defaults
from rgt_tui.cli.set_up.box_files import job_settings
from rgt_tui.fleet import FrameIntake
from rgt_tui.fleet.config import load_fleet
from rgt_tui.model import BoxSpec, BoxState
from rgt_tui.profiles import all_profiles, load_profile
from rgt_tui.ssh import DeployedTrainer

PUSHED = DeployedTrainer(
    "lab",
    "/c/rgt-train-1.pyz",
    "0" * 64,
    "/opt/py",
    "2.6",
    "/opt/py /c/rgt-train-1.pyz --out RUN",
    "",
)


def spec(**over: Any) -> BoxSpec:
    return BoxSpec("lab", "h", **over)


@pytest.mark.parametrize(
    ("text", "durable"),
    [
        ('profile = "autodl"', "/root/autodl-fs"),
        ('profile = "autodl"\ndurable = "/mnt/mine"', "/mnt/mine"),
        ('profile = "runpod"', None),
        ("", None),
    ],
)
def test_the_durable_directory_is_the_platforms_unless_the_file_names_one(
    tmp_path: Path, text: str, durable: str | None
) -> None:
    path = tmp_path / "rgt.toml"
    path.write_text(f'[boxes.lab]\nhost = "h"\n{text}\n')
    (box,) = load_fleet(path)
    assert box.durable == durable


def test_what_a_profile_stands_in_for_is_said() -> None:
    told = profile_defaults(load_profile("autodl"))
    assert told.startswith(
        "user root; python /root/miniconda3/bin/python; durable /root/autodl-fs; jobs get HF_"
    )
    assert profile_defaults(load_profile("generic-ssh")) == ""


@pytest.mark.parametrize("id_", sorted(all_profiles()))
def test_the_box_is_told_the_environment_of_its_platform(id_: str) -> None:
    """Nothing of another platform stays where a box has become one of this."""
    profile = load_profile(id_)
    asked = FrameIntake(spec(profile=id_), profile).build_config(BoxState(spec=spec()), 1.0, 0.0)
    assert asked.job_env == profile.overrides.env


@pytest.mark.parametrize("id_", sorted(all_profiles()))
def test_the_job_that_push_prints_can_be_run(tmp_path: Path, id_: str) -> None:
    settings = job_settings(PUSHED, spec(profile=id_))
    (tmp_path / "job.json").write_text(json.dumps(settings))
    (tmp_path / "queue.txt").write_text("a.json char_lm 3\n")
    job = queue_file.Job(str(tmp_path))
    assert job.problems == []
    (line,), problems = job.read_lines()
    assert problems == []
    command = job.command_of(line)
    assert command[:2] == ["/opt/py", "/c/rgt-train-1.pyz"]
    assert command[command.index("--out") + 1] == job.run_folder("a")
    data = load_profile(id_).overrides.data_dir or str(Path.home())
    assert job.run_folder("a") == f"{data}/runs/a"


def test_the_job_that_push_prints_has_the_platforms_paths_and_the_boxs_own_win() -> None:
    settings = job_settings(PUSHED, spec(profile="autodl"))
    assert settings["durable"] == "/root/autodl-fs/runs/{name}"
    assert settings["env"]["HF_ENDPOINT"] == "https://hf-mirror.com"
    assert (
        job_settings(PUSHED, spec(profile="autodl", durable="/mnt"))["durable"]
        == "/mnt/runs/{name}"
    )
    assert job_settings(PUSHED, spec())["durable"] is None
