"""`rgt run BOX --on-start` against a real sshd: shown, installed, removed, and only after a yes."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from rgt_tui.cli.work.on_start import hook_words
from rgt_tui.model import BoxSpec
from rgt_tui.profiles import load_profile
from tests.contract.cli.conftest import Rgt
from tests.contract.ssh.conftest import RealSshd, running_sshd
from tests.process.box.harness import private_mount

TABLES = "/var/spool/cron/crontabs"


@pytest.fixture
def cron_box(tmp_path: Path) -> Iterator[RealSshd]:
    """A box with a real crontab of its own, which has one line, and a process that looks like cron."""
    if os.geteuid() != 0:
        pytest.skip("needs a crontab of its own")
    around = private_mount(
        f"mount -t tmpfs none {TABLES}", f"chgrp crontab {TABLES}", f"chmod 1730 {TABLES}"
    )
    (tmp_path / "sshd").mkdir()
    with (
        running_sshd(tmp_path / "sshd", around) as running,
        subprocess.Popen(["cron", "1000"], executable="/bin/sleep") as cron,
    ):
        yield running
        cron.kill()


def test_it_is_shown_installed_and_removed(rgt: Rgt, lab: BoxSpec, cron_box: RealSshd) -> None:
    rgt.describe([msgspec.structs.replace(cron_box.spec, name="lab", pattern=lab.pattern)])

    def table() -> str:
        return rgt.on("exec", "lab", "--", "crontab", "-l").stdout

    written = rgt.on("exec", "lab", "--", "echo '5 4 * * * true' | crontab -")
    assert written.returncode == 0, written.stderr
    started = rgt.on("run", "lab", "--name", "one", "--", "true")
    assert started.returncode == 0, started.stderr
    shown = rgt.on("run", "lab", "--on-start", "show")
    assert shown.returncode == 0, shown.stderr
    assert "lab: hook    not installed\nlab: into    this user's crontab:\n" in shown.stdout
    asked = rgt.on("run", "lab", "--on-start")
    assert asked.returncode == 1 and "in a script: --yes" in asked.stderr
    assert "@reboot /bin/sh " in asked.stdout, "what would be done is shown before the question"
    assert "jobs/one: done" in asked.stdout
    assert table() == "5 4 * * * true\n"
    done = rgt.on("run", "lab", "--on-start", "--yes")
    assert done.returncode == 0, done.stderr
    assert " run lab --on-start remove\n" in done.stdout
    filled = table()
    assert filled.startswith("5 4 * * * true\n@reboot /bin/sh ")
    again = rgt.on("run", "lab", "--on-start", "--yes", "--json")
    assert json.loads(again.stdout)["installed"] is True and table() == filled
    hook = filled.splitlines()[1].partition(" ")[2].partition("  #")[0]
    ran = subprocess.run(["sh", "-c", hook], env={}, capture_output=True, check=False, timeout=60)
    log = cron_box.folder / "home/.config/rgt/on-start/on-start.log"
    assert ran.returncode == 0 and "jobs/one: done" in log.read_text()
    removed = rgt.on("run", "lab", "--on-start", "remove", "--yes")
    assert removed.returncode == 0, removed.stderr
    assert table() == "5 4 * * * true\n"


def test_where_the_platform_does_it_nothing_is_installed(rgt: Rgt, lab: BoxSpec) -> None:
    rgt.describe([msgspec.structs.replace(lab, profile="slurm")])
    refused = rgt.on("run", "lab", "--on-start", "--yes")
    assert refused.returncode == 1 and "asks for --requeue" in refused.stderr


@pytest.mark.parametrize(
    ("profile", "words"),
    [
        ("vastai", ["--kinds", "file", "--file", "/root/onstart.sh"]),
        ("runpod", ["--kinds", "command", "--keep-in", "/workspace/.rgt-on-start"]),
        ("generic-ssh", ["--kinds", "systemd,cron"]),
    ],
)
def test_each_platform_has_its_own_hook(profile: str, words: list[str]) -> None:
    spec = BoxSpec(name="lab", host="h", profile=profile, jobs=("/root/jobs/a",))
    found = hook_words(load_profile(profile), spec)
    assert found == ["on-start", *words, "--job", "/root/jobs/a"]
