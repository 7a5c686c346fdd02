"""`rgt status` against a real sshd: a line per box whatever happens, and exit statuses that can be relied on."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec

from rgt_tui.model import BoxSpec
from tests.contract.cli.conftest import Rgt
from tests.contract.ssh.conftest import RealSshd
from tests.free_ports import free_port
from tests.process.box.harness import make_job

replace = msgspec.structs.replace

PROMISED = ["box", "state", "reason", "age_s", "sample", "runs", "alerts", "meter"]


def lines(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def test_a_line_has_the_promised_keys_in_their_order(rgt: Rgt, lab: BoxSpec) -> None:
    done = rgt.on("status", "--json")
    assert (done.returncode, done.stderr) == (0, "")
    (line,) = lines(done.stdout)
    assert list(line)[:8] == PROMISED
    assert (line["box"], line["state"], line["runs"], line["alerts"]) == ("lab", "idle", [], [])
    assert line["sample"]["disks"][0]["mount"] == "/"
    assert line["age_s"] >= 0
    assert line["meter"]["kind"] == "unknown"


def test_the_text_is_one_plain_line_per_box(rgt: Rgt, lab: BoxSpec) -> None:
    done = rgt.on("status")
    assert done.returncode == 0
    assert re.fullmatch(r"lab +idle +\d+s old +no training process.*\n", done.stdout)
    assert "\x1b" not in done.stdout


def test_the_smallest_fleet_file_is_found_in_the_project(rgt: Rgt, real_sshd: RealSshd) -> None:
    """Nothing but a host: port, user, key and known_hosts come from ssh_config."""
    spec = real_sshd.spec
    ssh = rgt.folder / ".ssh"
    ssh.mkdir(mode=0o700)
    (ssh / "config").write_text(
        f"Host lab-a100\n  HostName {spec.host}\n  Port {spec.port}\n  User {spec.user}\n"
        f"  IdentityFile {spec.identity}\n  UserKnownHostsFile {spec.known_hosts}\n"
    )
    (ssh / "config").chmod(0o600)
    (rgt.folder / "rgt.toml").write_text('[boxes.lab]\nhost = "lab-a100"\n')
    assert rgt("trust", "--yes").returncode == 0
    done = rgt("status", "--json")
    assert (done.returncode in (0, 1), done.stderr) == (True, "")
    assert lines(done.stdout)[0]["link"] == "live"


def test_a_box_that_is_not_reached_has_its_line_too(rgt: Rgt, lab: BoxSpec) -> None:
    rgt.describe([replace(lab, name="dead", port=free_port()), lab])
    done = rgt.on("status", "--json")
    assert done.returncode == 3
    dead, alive = lines(done.stdout)
    assert (dead["box"], dead["state"], dead["sample"], dead["age_s"]) == (
        "dead",
        "unreachable",
        None,
        None,
    )
    assert "refused the connection" in dead["reason"]
    assert alive["state"] == "idle"
    assert rgt.on("status", "lab").returncode == 0


def test_a_box_that_never_answers_costs_the_timeout_and_no_more(rgt: Rgt, lab: BoxSpec) -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        rgt.describe([replace(lab, name="silent", port=silent.getsockname()[1]), lab])
        done = rgt.on("status", "--json", "--timeout", "8")
    assert done.returncode == 3
    first, second = lines(done.stdout)
    assert (first["state"], second["state"]) == ("connecting", "idle")


def test_a_box_is_printed_when_it_answers_and_waits_for_no_other(rgt: Rgt, lab: BoxSpec) -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        rgt.describe([replace(lab, name="silent", port=silent.getsockname()[1]), lab])
        started = rgt.start("status", "--timeout", "1h")
        assert started.stdout is not None
        first = started.stdout.readline().decode()
        assert first.startswith("lab ")
        assert started.poll() is None, "it still waits for the other box"
        started.terminate()
        started.communicate(timeout=60)


def test_a_failed_cell_is_trouble(rgt: Rgt, lab: BoxSpec) -> None:
    job = make_job(rgt.folder / "job", [sys.executable, "-c", "raise SystemExit(3)"], ["a", "b"])
    agent = ["-m", "rgt_box", "queue", "run", "--job", str(job)]
    root = str(Path(__file__).parents[3] / "remote")
    subprocess.run([sys.executable, *agent], env={**os.environ, "PYTHONPATH": root}, check=False)
    rgt.describe([replace(lab, jobs=(str(job),))])
    done = rgt.on("status", "--json")
    assert done.returncode == 1, done.stdout
    (line,) = lines(done.stdout)
    assert (line["state"], line["verdict"]) == ("trouble", "escalate")
    assert [(run["name"], run["state"], run["exit_code"]) for run in line["runs"]] == [
        ("a", "failed", 3),
        ("b", "failed", 3),
    ]
    assert {alert["id"] for alert in line["alerts"]} >= {"failed:a", "failed:b"}
    assert "failed" in rgt.on("status").stdout


def test_an_unknown_host_key_is_refused_until_it_is_accepted(
    rgt: Rgt, lab: BoxSpec, real_sshd: RealSshd
) -> None:
    known = rgt.folder / "known_hosts"
    rgt.describe([replace(lab, known_hosts=str(known))])
    refused = rgt.on("status", "--json")
    assert refused.returncode != 0
    assert "host key" in lines(refused.stdout)[0]["reason"]
    assert not known.exists() or not known.read_text()
    accepted = rgt.on("status", "--json", "--accept-new-host-key")
    assert accepted.returncode == 0, accepted.stdout
    assert (real_sshd.folder / "host_key.pub").read_text().split()[1] in known.read_text()
    assert rgt.on("status").returncode == 0


def test_a_changed_host_key_is_refused_also_with_the_option(
    rgt: Rgt, lab: BoxSpec, real_sshd: RealSshd
) -> None:
    known = rgt.folder / "known_hosts"
    stranger = (real_sshd.folder / "stranger.pub").read_text()
    known.write_text(f"[127.0.0.1]:{real_sshd.port} {stranger}")
    rgt.describe([replace(lab, known_hosts=str(known))])
    done = rgt.on("status", "--accept-new-host-key", "--json")
    assert done.returncode == 1
    assert lines(done.stdout)[0]["state"] == "trouble"
    assert known.read_text() == f"[127.0.0.1]:{real_sshd.port} {stranger}"


def test_what_is_wrong_with_the_command_line_ends_with_2(rgt: Rgt, lab: BoxSpec) -> None:
    unknown = rgt.on("status", "lob")
    assert (unknown.returncode, unknown.stdout) == (2, "")
    assert "did you mean 'lab'?" in unknown.stderr
    rgt.fleet.write_text('[boxes.lab]\nhots = "x"\n')
    broken = rgt.on("status")
    assert broken.returncode == 2
    assert f"{rgt.fleet}:2: unknown key 'hots'" in broken.stderr
    assert rgt("status").returncode == 2
