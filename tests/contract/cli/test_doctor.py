"""`rgt doctor` against a real sshd: stable ids, advice, and no box that holds up another."""

from __future__ import annotations

import json
import os
import re
import shlex
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from rgt_tui.cli.set_up.doctor_box import WHERE, BoxDoctor
from rgt_tui.cli.set_up.doctor_here import BOX_CHECKS
from rgt_tui.gate import recognised
from rgt_tui.model.box import BoxSpec
from rgt_tui.ssh import Policy
from tests.contract.cli.conftest import Rgt
from tests.contract.ssh.conftest import RealSshd
from tests.free_ports import free_port
from tests.system.tree import ROOT

replace = msgspec.structs.replace


def found(done: subprocess.CompletedProcess[str]) -> dict[str, dict[str, Any]]:
    return {item["id"]: item for item in map(json.loads, done.stdout.splitlines())}


def words(done: subprocess.CompletedProcess[str], box: str) -> dict[str, str]:
    prefix = f"box.{box}."
    return {
        key.removeprefix(prefix): item["status"]
        for key, item in found(done).items()
        if key.startswith(prefix)
    }


PROMISED = [
    "client.python", "client.terminal", "client.ssh-agent", "client.ssh-config", "config.file", "config.secrets",
    "box.lab.dns", "box.lab.tcp", "box.lab.hostkey", "box.lab.login", "box.lab.python", "box.lab.agent",
    "box.lab.disk", "box.lab.tmux", "box.lab.clock-skew", "box.lab.mounts", "box.lab.gpu",
    "box.lab.platform",
]  # fmt: skip
"""Scripts look for these: a change here breaks them."""


def test_the_ids_are_those_that_were_promised_and_a_good_box_has_no_failure(rgt: Rgt, lab: BoxSpec) -> None:
    rgt.describe([replace(lab, mounts=("/",))])
    done = rgt.on("doctor", "--json")
    assert list(found(done)) == PROMISED
    results = words(done, "lab")
    reached = ("dns", "tcp", "hostkey", "login", "python", "agent")
    assert {check: results[check] for check in reached} == dict.fromkeys(reached, "ok")
    assert (results["clock-skew"], results["mounts"]) == ("ok", "ok")
    failed = [
        item for item in found(done).values() if item["status"] == "fail" and item["id"] != "box.lab.disk"
    ]
    assert failed == []


def test_the_ids_are_documented() -> None:
    text = (ROOT / "docs" / "commands.md").read_text(encoding="utf-8")
    named = set(re.findall(r"^\| `([a-z.-]+)` \|", text.split("## Doctor")[1], re.MULTILINE))
    assert {*BOX_CHECKS, *(check for check in PROMISED if not check.startswith("box."))} <= named


def test_what_fails_is_said_with_advice_and_skips_what_follows(
    rgt: Rgt, lab: BoxSpec, real_sshd: RealSshd
) -> None:
    (rgt.folder / "unknown").touch()
    rgt.describe(
        [
            lab,
            replace(lab, name="closed", port=free_port()),
            replace(lab, name="nowhere", host="nowhere.invalid"),
            replace(lab, name="newkey", known_hosts=str(rgt.folder / "unknown")),
            replace(lab, name="stranger", identity=str(real_sshd.folder / "stranger")),
            replace(lab, name="mounts", mounts=("/", "/not/there")),
        ]
    )
    done = rgt.on("doctor", "--json", "--timeout", "60", timeout=120)
    assert done.returncode == 1
    everything = found(done)
    for box, check in (("closed", "tcp"), ("nowhere", "dns"), ("newkey", "hostkey"), ("stranger", "login")):
        results = words(done, box)
        place = list(BOX_CHECKS).index(check)
        assert results[check] == "fail", (box, results)
        assert set(list(results.values())[place + 1 :]) == {"skip"}
        assert everything[f"box.{box}.{check}"]["advice"]
    assert words(done, "mounts")["mounts"] == "fail"
    assert "/not/there" in everything["box.mounts.mounts"]["text"]
    assert words(done, "lab")["login"] == "ok"


async def test_a_port_that_takes_the_connection_and_says_nothing_is_given_up(
    lab: BoxSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    put = BoxDoctor._put

    def quick_from_now_on(self: BoxDoctor, *found: Any) -> None:
        put(self, *found)
        monkeypatch.setattr("rgt_tui.cli.set_up.doctor_box.STEP_SECONDS", 2.0)

    monkeypatch.setattr("rgt_tui.cli.set_up.doctor_box.STEP_SECONDS", 60.0)  # the name must be found, too
    monkeypatch.setattr(BoxDoctor, "_put", quick_from_now_on)
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        port = silent.getsockname()[1]
        dns, tcp, *others = await BoxDoctor(replace(lab, port=port), Policy.ASK).check(90)
    assert (dns.status, tcp.status, bool(tcp.advice)) == ("ok", "fail", True)
    assert tcp.text == f"127.0.0.1:{port}: no answer within 2 s"
    assert {item.status for item in others} == {"skip"}


FLOODS = {
    "nested": ("print('[' * 100000)", "the agent sends no sample"),
    "endless": ("while True: print('x' * 4096)", "taking a sample printed more than 4 MiB"),
    "greeted": ("print(end='\\033]0;box\\007', flush=True); main()", ""),
}
"""What stands where the agent was → the words of the check that fails."""


@pytest.mark.parametrize("kind", FLOODS)
async def test_a_box_that_answers_anything_fails_alone(lab: BoxSpec, kind: str, tmp_path: Path) -> None:
    """A `python` that is one, but for what it prints in the agent's place."""
    script, words = FLOODS[kind]
    ours = tmp_path / "python"
    ours.write_text(
        f"#!/bin/bash\nexport PYTHONHOME={sys.base_prefix}\n"
        f'case "$*" in *" sample "*) printf "%s" "$1" > {tmp_path}/agent\n'
        f'  exec {shlex.quote(sys.executable)} {tmp_path}/agent.py "$@";; esac\n'
        f'exec -a "$0" {shlex.quote(sys.executable)} "$@"\n'
    )
    ours.chmod(0o755)
    # Behind Python's own options stands the agent.
    skip = "next(at for at, word in enumerate(sys.argv) if at and not word.startswith('-'))"
    main = f"def main(): del sys.argv[:{skip}]; runpy.run_path(sys.argv[0], run_name='__main__')"
    (tmp_path / "agent.py").write_text(f"import runpy, sys\n{main}\n{script}\n")
    found = await BoxDoctor(replace(lab, python=str(ours)), Policy.ASK).check(90)
    assert (tmp_path / "agent").exists(), found
    agent = next(item for item in found if item.id == "box.lab.agent")
    assert (agent.status, words in agent.text) == ("fail" if words else "ok", True), found


async def test_a_mistake_of_rgt_itself_is_a_finding_of_that_box(
    lab: BoxSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("made up")

    monkeypatch.setattr("rgt_tui.cli.set_up.doctor_box.judge", broken)
    (failed,) = (item for item in await BoxDoctor(lab, Policy.ASK).check(90) if item.status == "fail")
    assert (failed.text, "bug in rgt" in failed.advice) == ("rgt: RuntimeError: made up", True)


def test_without_a_usable_fleet_file_the_rest_is_still_checked(rgt: Rgt) -> None:
    rgt.fleet.write_text("[boxes.lab]\nhots = 1\n")
    done = rgt.on("doctor", "--json")
    assert done.returncode == 1
    results = found(done)
    assert (results["config.file"]["status"], results["config.secrets"]["status"]) == ("fail", "skip")
    assert f"{rgt.fleet}:2:" in results["config.file"]["text"]
    assert results["client.python"]["status"] == "ok"


def test_the_text_ends_with_a_summary(rgt: Rgt, lab: BoxSpec) -> None:
    done = rgt.on("doctor")
    assert re.search(r"^ok +box\.lab\.login +as ", done.stdout, re.MULTILINE)
    assert re.fullmatch(r"\d+ ok(, \d+ warn)?(, \d+ fail)?(, \d+ skip)?", done.stdout.splitlines()[-1])


def test_what_tells_a_platform_comes_without_values() -> None:
    env = {
        "PATH": os.environ["PATH"],
        "RUNPOD_POD_ID": "k3v9",
        "SLURM_JOB_ID": "",
        "OTHER": "RUNPOD_POD_ID=1",
    }
    done = subprocess.run(["sh", "-c", WHERE], env=env, capture_output=True, text=True, check=True)
    lines = done.stdout.splitlines()
    assert "RUNPOD_POD_ID" in lines and "/" in lines
    assert "SLURM_JOB_ID" not in lines and "k3v9" not in done.stdout
    assert recognised(lines, lines) == ("runpod", "RUNPOD_POD_ID")
