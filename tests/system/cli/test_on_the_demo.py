"""The commands from end to end: a real fleet that trains, watched by a second `rgt` through a fleet file."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.torture.demo.demo_process import RGT, DemoProcess, demo, leftovers

pytestmark = pytest.mark.serial

BOXES = {"autodl-demo", "runpod-demo", "vast-demo"}


class Fleet:
    """A demo's boxes, and `rgt` on them."""

    def __init__(self, running: DemoProcess, tmp: Path) -> None:
        assert running.process.stdout is not None
        self.told: dict[str, Any] = json.loads(running.process.stdout.readline())
        self.env = {
            **os.environ,
            **self.told["env"],
            "HOME": str(tmp),
            "RGT_FLEET": self.told["fleet"],
        }

    def __call__(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*RGT, *words], env=self.env, capture_output=True, text=True, timeout=120, check=False
        )


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    tmp = tmp_path_factory.mktemp("demo")
    with demo(tmp / "tmp", "--fleet-only", "--write-fleet", str(tmp / "fleet.toml")) as running:
        yield Fleet(running, tmp)
        running.process.terminate()
        running.process.wait(60)
    assert leftovers(tmp / "tmp") == []


def test_status_tells_of_every_box(fleet: Fleet) -> None:
    done = fleet("status", "--json", "--timeout", "60")
    told = [json.loads(line) for line in done.stdout.splitlines()]
    lines = {line["box"]: line for line in told if "box" in line}
    assert done.returncode in (0, 1), done.stderr
    assert set(lines) == BOXES
    accounts = [line for line in told if "box" not in line]
    assert accounts and not any(account["unlisted"] for account in accounts), accounts
    for line in lines.values():
        assert line["link"] == "live", line
        assert line["sample"]["gpus"][0]["sim"] is True
        assert line["runs"], line
        assert (line["meter"]["kind"], line["meter"]["error"]) == ("compute+storage", None)
        assert line["meter"]["per_hour"] > 0


def test_a_log_is_the_file_on_the_box(fleet: Fleet) -> None:
    listed = fleet("logs", "autodl-demo", "--list")
    assert listed.returncode == 0, listed.stderr
    assert "/root/jobs/sweep/master.log" in [
        line.split()[-1] for line in listed.stdout.splitlines()
    ]
    by_name = fleet("logs", "autodl-demo", "gpt-a", "--from-start")
    by_path = fleet("logs", "autodl-demo", "~/jobs/sweep/logs/gpt-a.log", "--from-start")
    assert by_path.returncode == by_name.returncode == 0, by_name.stderr
    assert by_name.stdout, by_name.stderr
    assert by_path.stdout.startswith(by_name.stdout)


def test_files_are_copied_to_a_box_s_own_disks_with_scp(fleet: Fleet, tmp_path: Path) -> None:
    box = tomllib.loads(Path(fleet.told["fleet"]).read_text())["boxes"]["autodl-demo"]
    (tmp_path / "sent").write_text("to a box\n")
    options = (
        f"-P{box['port']}", f"-i{box['identity']}", "-Fnone", "-oBatchMode=yes",
        f"-oUserKnownHostsFile={box['known_hosts']}",
    )  # fmt: skip
    target = f"{box['user']}@{box['host']}:/root/autodl-tmp/sent"
    for words in ((str(tmp_path / "sent"), target), (target, str(tmp_path / "back"))):
        done = subprocess.run(
            ["scp", *options, *words], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
    assert (tmp_path / "back").read_text() == "to a box\n"
    assert not Path("/root/autodl-tmp/sent").exists(), "that is the box's disk, not ours"


def test_patrol_doctor_and_metrics_agree_that_the_boxes_are_there(fleet: Fleet) -> None:
    """One of the boxes is preempted by and by: then nothing can be told of it."""
    patrol = fleet("patrol", "--timeout", "60")
    verdicts = {line.split()[2]: line.split()[1] for line in patrol.stdout.splitlines()}
    assert set(verdicts) == BOXES
    worst = {"escalate": 1, "unknown": 2, "healthy": 0}
    assert patrol.returncode == next(
        code for word, code in worst.items() if word in verdicts.values()
    )
    assert verdicts["autodl-demo"] == "healthy"
    doctor = fleet("doctor", "autodl-demo", "vast-demo", "--json")
    failed = [
        line for line in map(json.loads, doctor.stdout.splitlines()) if line["status"] == "fail"
    ]
    assert [line for line in failed if not line["id"].endswith(".disk")] == []
    metrics = fleet("metrics", "--once", "--timeout", "60")
    up = {
        sample.labels["box"]: sample.value
        for family in text_string_to_metric_families(metrics.stdout)
        for sample in family.samples
        if family.name == "rgt_box_up"
    }
    assert set(up) == BOXES
    assert (up["autodl-demo"], up["vast-demo"]) == (1.0, 1.0)


def test_watch_tells_what_happens(fleet: Fleet) -> None:
    process = subprocess.Popen(
        [*RGT, "watch", "--json", "--for", "300"],
        env=fleet.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout is not None
    seen: dict[str, int] = {}
    for text in process.stdout:
        line = json.loads(text)
        if line["link"] == "live":
            seen[line["box"]] = seen.get(line["box"], 0) + 1
        if set(seen) == BOXES and min(seen.values()) >= 2:
            break
    process.terminate()
    _, said = process.communicate(timeout=60)
    assert (process.returncode, said) == (0, "")
    assert set(seen) == BOXES


def test_the_entry_that_the_documents_name_is_the_one_that_was_tested() -> None:
    done = subprocess.run(
        [str(Path(sys.executable).with_name("rgt")), "--version"], capture_output=True, check=False
    )
    assert done.returncode == 0
