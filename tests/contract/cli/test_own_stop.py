"""``rgt autostop``, ``lease``, ``keep`` and ``notify``: what is refused at once, and what a real box says."""

from __future__ import annotations

import json
import socket
import subprocess
from pathlib import Path

import msgspec
import pytest

from rgt_tui.cli import FAILED, OK, UNREACHABLE, USAGE
from rgt_tui.model import BoxSpec, ProviderRef
from tests.contract.cli.conftest import Rgt
from tests.contract.ssh.conftest import fresh_sshd

replace = msgspec.structs.replace
NOWHERE = BoxSpec(
    name="lab", host="127.0.0.1", port=1, profile="lambda", provider=ProviderRef("lambda", "i-1")
)


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        (NOWHERE, "not armed: this box cannot stop itself"),
        (
            replace(NOWHERE, profile="runpod", provider=ProviderRef("runpod", "p"), protected=True),
            "protected",
        ),
        (replace(NOWHERE, profile="runpod", provider=None), "names no provider"),
    ],
)
def test_what_is_known_beforehand_is_refused_without_a_connection(
    rgt: Rgt, spec: BoxSpec, says: str
) -> None:
    rgt.describe([spec])
    for words in (("autostop", "lab", "--idle", "45m"), ("lease", "lab", "8h")):
        done = rgt.on(*words, "--confirm", "lab", "--json")
        body = json.loads(done.stdout)
        assert (done.returncode, body["ok"], body["armed"]) == (FAILED, False, False), done.stderr
        assert any(says in reason for reason in body["reasons"])
    said = rgt.on("autostop", "lab", "--idle", "45m", "--dry-run")
    assert said.returncode == FAILED
    assert "lab: nothing was armed" in said.stderr


def test_a_box_that_is_not_reached_is_not_a_box_that_refuses(rgt: Rgt) -> None:
    rgt.describe([NOWHERE])
    for words in (
        ("autostop", "lab", "--idle", "45m", "--ask", "--confirm", "lab", "--timeout", "5"),
        ("autostop", "lab", "--status"),
        ("keep", "lab", "2h"),
    ):
        assert rgt.on(*words).returncode == UNREACHABLE, words


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("autostop", "lab"), "one of the arguments"),
        (("autostop", "lab", "--idle", "45m"), "cannot prompt here"),
        (("autostop", "lab", "--idle", "soon", "--dry-run"), "is not a time"),
        (("autostop", "lab", "--status", "--accept", "7"), "add --idle TIME"),
        (
            ("autostop", "lab", "--idle", "45m", "--dry-run", "--confirm", "lab"),
            "nothing to confirm",
        ),
        (("lease", "lab", "8h"), "cannot prompt here"),
        (("notify", "lab"), "there was no address on standard input"),
    ],
)
def test_a_wrong_command_line_sends_nothing(rgt: Rgt, words: tuple[str, ...], says: str) -> None:
    rgt.describe([NOWHERE])
    done = rgt.on(*words)
    assert (done.returncode, says in done.stderr) == (USAGE, True), done.stderr


def test_readonly_arms_and_disarms_nothing(rgt: Rgt) -> None:
    rgt.describe([NOWHERE])
    for words in (
        ("autostop", "lab", "--idle", "45m", "--ask", "--confirm", "lab"),
        ("autostop", "lab", "--disarm"),
    ):
        done = rgt.on(*words, "--readonly")
        assert (done.returncode, "--readonly" in done.stderr) == (FAILED, True), done.stderr


def test_a_real_box_that_may_only_ask_is_armed_kept_and_disarmed_in_writing(
    rgt: Rgt, lab: BoxSpec
) -> None:
    before = json.loads(rgt.on("autostop", "lab", "--status", "--json").stdout)
    assert (before["armed"], before["state"]) == (False, "none")
    assert rgt.on("keep", "lab", "2h").returncode == FAILED
    wrong = rgt.on("autostop", "lab", "--idle", "45m", "--ask", "--confirm", "LAB", "--json")
    assert (wrong.returncode, json.loads(wrong.stdout)["armed"]) == (FAILED, False)
    armed = rgt.on("autostop", "lab", "--idle", "45m", "--ask", "--confirm", "lab", "--json")
    assert (armed.returncode, json.loads(armed.stdout)["armed"]) == (OK, True), armed.stderr
    kept = json.loads(rgt.on("keep", "lab", "2h", "--json").stdout)
    assert kept["kept_until"] is not None
    gone = json.loads(rgt.on("autostop", "lab", "--disarm", "--json").stdout)
    assert gone["armed"] is False
    lines = [json.loads(line) for line in rgt("audit", "--json").stdout.splitlines()]
    boot = json.loads(armed.stdout)["boot"]
    assert {line["boot"] for line in lines} == {boot}
    assert [line["event"] for line in lines][::2] == ["requested"] * 3
    assert [line["event"] for line in lines][1::2] == ["armed", "kept", "disarmed"]
    assert "complete" in rgt("audit", "--verify").stdout


def test_the_fleet_file_has_the_default_of_what_counts_as_idle(rgt: Rgt, lab: BoxSpec) -> None:
    rgt.describe([msgspec.structs.replace(lab, idle_if="no-progress=2h")])
    arming = ("autostop", "lab", "--idle", "45m", "--ask", "--dry-run")
    said = rgt.on(*arming)
    assert "nothing advanced for 2h00 (idle_if of the fleet file)" in said.stdout, said.stderr
    for words, seconds, source in (
        ((), 7200.0, "idle_if of the fleet file"),
        (("--idle-if", "no-progress=30m"), 1800.0, "--idle-if"),
        (("--idle-if", "never"), 0.0, "--idle-if"),
    ):
        body = json.loads(rgt.on(*arming, *words, "--json").stdout)
        assert (body["no_progress_s"], body["no_progress_source"]) == (seconds, source), words


def test_what_a_login_shell_prints_is_no_part_of_the_answer(rgt: Rgt, tmp_path: Path) -> None:
    (tmp_path / "shell").write_text('#!/bin/sh\necho Welcome\nexec sh -c "$SSH_ORIGINAL_COMMAND"\n')
    (tmp_path / "shell").chmod(0o755)
    with fresh_sshd(tmp_path, f"ForceCommand {tmp_path}/shell\n") as greeting:
        rgt.describe([msgspec.structs.replace(greeting.spec, name="lab")])
        done = rgt.on("notify", "lab", "--status")
    assert (done.returncode, done.stdout) == (0, "lab: it has no address to notify\n"), done.stderr


def test_an_address_is_set_shown_tried_and_removed_in_words(rgt: Rgt, lab: BoxSpec) -> None:
    def notify(*words: str, given: str | None = None) -> tuple[int, str, str]:
        with rgt.start("notify", "lab", *words, stdin=subprocess.PIPE) as process:
            out, err = process.communicate(given.encode() if given else None)
        return process.returncode, out.decode(), err.decode()

    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]  # nothing answers there once it is closed
    set_up = notify(given=f"http://127.0.0.1:{port}/secret\n")
    assert set_up[:2] == (OK, "lab: it notifies 127.0.0.1 (webhook)\n"), set_up
    assert notify("--status")[:2] == (OK, "lab: it notifies 127.0.0.1 (webhook)\n")
    code, out, err = notify("--test")
    assert (code, out) == (FAILED, "")
    assert err.startswith("rgt: lab: ") and "refused" in err and not {*"{}"} & {*err}, err
    assert "secret" not in out + err
    assert notify("--remove")[:2] == (OK, "lab: it has no address to notify\n")
