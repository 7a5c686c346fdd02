"""`rgt doctor` against a real sshd: stable ids, advice, and no box that holds up another."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import shlex
import socket
import subprocess
import sys
import termios
from pathlib import Path
from typing import Any

import msgspec
import pytest

from rgt_tui.cli.set_up.doctor_box import WHERE, BoxDoctor, ListedRecorder, judge_recorders
from rgt_tui.cli.set_up.doctor_here import BOX_CHECKS
from rgt_tui.gate import recognised
from rgt_tui.model import BoxSpec, clean_decoded
from rgt_tui.ssh import HostKeyPolicy, build_agent, connect, deploy_agent, run_command
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
    "config.keys",
    "box.lab.dns", "box.lab.tcp", "box.lab.hostkey", "box.lab.login", "box.lab.shell", "box.lab.python",
    "box.lab.agent", "box.lab.disk", "box.lab.tmux", "box.lab.clock-skew", "box.lab.mounts", "box.lab.gpu",
    "box.lab.recorders", "box.lab.platform",
]  # fmt: skip
"""Scripts look for these: a change here breaks them."""


def test_the_ids_are_those_that_were_promised_and_a_good_box_has_no_failure(
    rgt: Rgt, lab: BoxSpec
) -> None:
    rgt.describe([replace(lab, mounts=("/",))])
    done = rgt.on("doctor", "--json")
    assert list(found(done)) == PROMISED
    results = words(done, "lab")
    reached = ("dns", "tcp", "hostkey", "login", "shell", "python", "agent")
    assert {check: results[check] for check in reached} == dict.fromkeys(reached, "ok")
    assert (results["clock-skew"], results["mounts"]) == ("ok", "ok")
    failed = [
        item
        for item in found(done).values()
        if item["status"] == "fail" and item["id"] != "box.lab.disk"
    ]
    assert failed == []


async def test_a_recorder_that_nobody_needs_is_listed_with_the_command_that_ends_it(
    lab: BoxSpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = tmp_path / "left home" / "state"
    connection = await connect(lab, policy=HostKeyPolicy.ASK)
    try:
        agent = await deploy_agent(connection, build_agent())
        begun = await run_command(
            connection, f"RGT_STATE_DIR={shlex.quote(str(state))} {agent.build_command('record')}"
        )
        assert begun.status == 0, begun.words
        new = (await BoxDoctor(lab, HostKeyPolicy.ASK).run_checks(90))[RECORDERS]
        assert (new.status, str(state) in new.text) == ("ok", False), new
        monkeypatch.setattr("rgt_tui.cli.set_up.doctor_box.LONG_UNWATCHED_S", 0.0)
        old = (await BoxDoctor(lab, HostKeyPolicy.ASK).run_checks(90))[RECORDERS]
        assert old.status == "warn", old
        pid = json.loads((state / "recorder.json").read_text())["pid"]
        assert f"{state} (pid {pid}" in old.text
        commands = old.advice.removeprefix("to stop them, on the box: ").split(" ; ")
        command = next(command for command in commands if str(state) in command)
        assert (await run_command(connection, command)).status == 0
        assert not (state / "recorder.json").exists()
    finally:
        await run_command(
            connection,
            f"RGT_STATE_DIR={shlex.quote(str(state))} {agent.build_command('record', '--stop')}",
        )
        connection.abort()


RECORDERS = list(BOX_CHECKS).index("recorders")


async def test_a_list_of_recorders_that_failed_is_not_an_empty_one(
    lab: BoxSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An agent of another version may not know the word."""
    monkeypatch.setattr(
        "rgt_tui.cli.set_up.doctor_box.LIST_RECORDERS", ("record", "--no-such-word")
    )
    finding = (await BoxDoctor(lab, HostKeyPolicy.ASK).run_checks(90))[RECORDERS]
    assert (finding.status, "--no-such-word" in finding.text) == ("warn", True), finding


@pytest.mark.parametrize(
    "use",
    [
        {"own": True},
        {"watched": True},
        {"armed": True},
        {"jobs": 1},
        {"unwatched_s": None},
        {"unwatched_s": 60.0},
    ],
)
def test_a_recorder_that_somebody_uses_is_not_called_superfluous(use: dict[str, Any]) -> None:
    idle = clean_decoded(ListedRecorder(pid=7, folder="/old\x1b]52;c;eA==\x07", unwatched_s=7200.0))
    status, text, advice = judge_recorders([idle], lambda *words: " ".join(("agent", *words)))
    assert (status, "\x1b" in text + advice, "2 h" in text) == ("warn", False, True)
    assert judge_recorders([replace(idle, **use)], " ".join)[0] == "ok"


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
    for box, check in (
        ("closed", "tcp"),
        ("nowhere", "dns"),
        ("newkey", "hostkey"),
        ("stranger", "login"),
    ):
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
    put = BoxDoctor._add_finding

    def quick_from_now_on(self: BoxDoctor, *found: Any) -> None:
        put(self, *found)
        monkeypatch.setattr("rgt_tui.cli.set_up.doctor_box.STEP_SECONDS", 2.0)

    monkeypatch.setattr(
        "rgt_tui.cli.set_up.doctor_box.STEP_SECONDS", 60.0
    )  # the name must be found, too
    monkeypatch.setattr(BoxDoctor, "_add_finding", quick_from_now_on)
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        port = silent.getsockname()[1]
        dns, tcp, *others = await BoxDoctor(replace(lab, port=port), HostKeyPolicy.ASK).run_checks(
            90
        )
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
async def test_a_box_that_answers_anything_fails_alone(
    lab: BoxSpec, kind: str, tmp_path: Path
) -> None:
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
    found = await BoxDoctor(replace(lab, python=str(ours)), HostKeyPolicy.ASK).run_checks(90)
    assert (tmp_path / "agent").exists(), found
    agent = next(item for item in found if item.id == "box.lab.agent")
    assert (agent.status, words in agent.text) == ("fail" if words else "ok", True), found


async def test_a_mistake_of_rgt_itself_is_a_finding_of_that_box(
    lab: BoxSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("made up")

    monkeypatch.setattr("rgt_tui.cli.set_up.doctor_box.judge_sample", broken)
    (failed,) = (
        item
        for item in await BoxDoctor(lab, HostKeyPolicy.ASK).run_checks(90)
        if item.status == "fail"
    )
    assert (failed.text, "bug in rgt" in failed.advice) == ("rgt: RuntimeError: made up", True)


def test_without_a_usable_fleet_file_the_rest_is_still_checked(rgt: Rgt) -> None:
    rgt.fleet.write_text("[boxes.lab]\nhots = 1\n")
    done = rgt.on("doctor", "--json")
    assert done.returncode == 1
    results = found(done)
    assert (results["config.file"]["status"], results["config.secrets"]["status"]) == (
        "fail",
        "skip",
    )
    assert f"{rgt.fleet}:2:" in results["config.file"]["text"]
    assert results["client.python"]["status"] == "ok"


def test_the_text_ends_with_a_summary(rgt: Rgt, lab: BoxSpec) -> None:
    done = rgt.on("doctor")
    assert re.search(r"^ok +box\.lab\.login +as ", done.stdout, re.MULTILINE)
    assert re.fullmatch(
        r"\d+ ok(, \d+ warn)?(, \d+ fail)?(, \d+ skip)?", done.stdout.splitlines()[-1]
    )


def test_a_refused_login_names_how_a_key_gets_onto_this_platform(
    rgt: Rgt, real_sshd: RealSshd
) -> None:
    stranger = str(real_sshd.folder / "stranger")
    rgt.describe([replace(real_sshd.spec, name="pool", profile="matpool", identity=stranger)])
    login = found(rgt.on("doctor", "--json"))["box.pool.login"]
    assert login["status"] == "fail"
    assert "once per machine: ssh-copy-id -p PORT root@HOST" in login["advice"]


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


def on_terminal(rgt: Rgt, *words: str) -> tuple[int, subprocess.Popen[bytes]]:
    """Start a command on a terminal of 80 columns; return the terminal's other end."""
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (24, 80))
    env = {**rgt.environment(), "TERM": "xterm", "NO_COLOR": "1"}
    env.pop("COLUMNS")
    started = subprocess.Popen(
        rgt.command(words[0], "--fleet", str(rgt.fleet), *words[1:]),
        cwd=rgt.folder, env=env, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True,
    )  # fmt: skip
    os.close(theirs)
    return ours, started


def read_until(terminal: int, pattern: str, seen: str = "") -> str:
    while not re.search(pattern, seen):
        ready, _, _ = select.select([terminal], [], [], 60)
        assert ready, seen
        try:
            seen += os.read(terminal, 4096).decode()
        except OSError:  # the command has ended
            break
    return seen


@pytest.mark.parametrize("words", [("doctor", "lab"), ("exec", "lab", "--", "echo", "hello")])
def test_on_a_terminal_the_first_contact_shows_the_host_key_and_asks(
    rgt: Rgt, lab: BoxSpec, real_sshd: RealSshd, words: tuple[str, ...]
) -> None:
    known = rgt.folder / "unknown"
    rgt.describe([replace(lab, known_hosts=str(known))])
    key = (real_sshd.folder / "host_key.pub").read_text()
    shown = subprocess.run(
        ["ssh-keygen", "-lf", "-"], input=key, capture_output=True, text=True, check=True
    ).stdout.split()[1]

    terminal, started = on_terminal(rgt, *words)
    seen = read_until(terminal, "to refuse: ")
    assert shown in seen
    os.write(terminal, b"no\n")
    refused = read_until(terminal, "no such text", seen)[len(seen) :]
    assert started.wait(60) != 0
    os.close(terminal)
    assert shown in refused
    assert "nobody" not in refused
    assert not known.exists()

    terminal, started = on_terminal(rgt, *words)
    read_until(terminal, "to refuse: ")
    os.write(terminal, b"yes\n")
    accepted = read_until(terminal, "no such text")  # what the terminal echoes is a "yes" alone
    assert started.wait(60) in (0, 1), accepted
    os.close(terminal)
    assert ("as known" if words[0] == "doctor" else "hello") in accepted
    assert key.split()[1] in known.read_text()
