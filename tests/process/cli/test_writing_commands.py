"""`rgt init`, `add` and `import`, run as a person does."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from rgt_tui.fleet.config import load_fleet
from tests import warm_rgt

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def rgt(tmp_path: Path) -> Run:
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("RGT_", "XDG_"))}

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        return warm_rgt.rgt(*words, cwd=tmp_path, env={**kept, "HOME": str(tmp_path)})

    return run


def test_init_never_overwrites(rgt: Run, tmp_path: Path) -> None:
    assert rgt("init").returncode == 0
    before = (tmp_path / "rgt.toml").read_bytes()
    again = rgt("init")
    assert (again.returncode, "already exists; not overwritten" in again.stderr) == (1, True)
    assert (tmp_path / "rgt.toml").read_bytes() == before
    assert rgt("init", "--path", "deep/er/fleet.toml").returncode == 0
    assert rgt("init", "--path", "/proc/x/rgt.toml").returncode == 1
    named = rgt("--fleet", "other.toml", "init")
    assert (tmp_path / "other.toml").read_bytes() == before
    assert "next: rgt --fleet other.toml add NAME HOST" in named.stdout


def test_add_appends_what_was_pasted_and_leaves_the_comments(rgt: Run, tmp_path: Path) -> None:
    rgt("init")
    before = (tmp_path / "rgt.toml").read_text()
    done = rgt(
        "add", "seeta", "ssh -p 12345 root@connect.westb.seetacloud.com", "--log", "~/exp/*.log"
    )
    assert (done.returncode, done.stderr) == (0, "")
    text = (tmp_path / "rgt.toml").read_text()
    assert text.startswith(before)
    assert text.removeprefix(before) == (
        '\n[boxes.seeta]\nhost = "connect.westb.seetacloud.com"\nport = 12345\nuser = "root"\nprofile = "autodl"\n'
        'logs = ["~/exp/*.log"]\n'
    )
    assert "rgt doctor seeta" in done.stdout


def test_add_begins_a_file_where_there_is_none(rgt: Run, tmp_path: Path) -> None:
    assert rgt("add", "lab", "lab-a100").returncode == 0
    assert (tmp_path / "rgt.toml").read_text() == '[boxes.lab]\nhost = "lab-a100"\n'
    assert (
        rgt(
            "add", "b", "h", "--fleet", "other.toml", "-p", "40022", "--profile", "vastai"
        ).returncode
        == 0
    )
    (spec,) = load_fleet(tmp_path / "other.toml")
    assert (spec.host, spec.port, spec.profile) == ("h", 40022, "vastai")
    done = rgt("add", "c", "ssh -i vast.pem -F my.conf root@1.2.3.4", "--fleet", "other.toml")
    spec = load_fleet(tmp_path / "other.toml")[-1]
    assert (spec.identity, spec.ssh_config) == (
        str(tmp_path / "vast.pem"),
        str(tmp_path / "my.conf"),
    )
    assert "next: rgt --fleet other.toml doctor c" in done.stdout


def test_add_refuses_and_changes_nothing(rgt: Run, tmp_path: Path) -> None:
    rgt("add", "lab", "lab-a100")
    before = (tmp_path / "rgt.toml").read_bytes()
    for words, code, said in (
        (("lab", "other"), 2, "rgt.toml:1: boxes.lab already exists"),
        (("a b", "other"), 2, "'a b' is not a valid box name"),
        (("x", "ssh -p"), 2, "needs a value"),
        (("x", "h", "--profile", "runpood"), 2, "did you mean 'runpod'"),
        (("x", "h", "-p", "0"), 2, "not a port"),
    ):
        done = rgt("add", *words)
        assert (done.returncode, said in done.stderr) == (code, True), done.stderr
    assert (tmp_path / "rgt.toml").read_bytes() == before


CONFIG = """
Host gpu-1 gpu-2 *.cluster
  User me
Include more/*.conf
Host github.com
  User git
Host seeta
  HostName connect.westb.seetacloud.com
Match host x
  User y
Host "odd name"
  HostName 1.2.3.4
Host *
  ServerAliveInterval 30
"""


@pytest.fixture
def config(tmp_path: Path) -> Path:
    ssh = tmp_path / ".ssh"
    (ssh / "more").mkdir(parents=True)
    (ssh / "config").write_text(CONFIG)
    (ssh / "more" / "a.conf").write_text("Host inside !not ?x\n  HostName h\n")
    for file in (ssh / "config", ssh / "more" / "a.conf"):
        file.chmod(0o600)
    return ssh / "config"


def test_import_lists_and_writes_only_when_told(rgt: Run, tmp_path: Path, config: Path) -> None:
    listed = rgt("import")
    assert listed.returncode == 0, listed.stderr
    tables = [line for line in listed.stdout.splitlines() if line.startswith("[")]
    assert tables == ["[boxes.gpu-1]", "[boxes.gpu-2]", "[boxes.inside]", "[boxes.seeta]"]
    assert "'odd name' was left out" in listed.stderr
    assert 'profile = "autodl"' in listed.stdout
    assert not (tmp_path / "rgt.toml").exists()
    written = rgt("import", "gpu-*", "seeta", "--write")
    assert written.returncode == 0
    specs = load_fleet(tmp_path / "rgt.toml")
    assert [(spec.name, spec.host, spec.profile) for spec in specs] == [
        ("gpu-1", "gpu-1", "generic-ssh"), ("gpu-2", "gpu-2", "generic-ssh"), ("seeta", "seeta", "autodl"),
    ]  # fmt: skip
    again = rgt("import", "gpu-*", "--write")
    assert (again.returncode, "nothing to import" in again.stderr) == (1, True)


def test_import_of_another_file_keeps_its_name(rgt: Run, tmp_path: Path) -> None:
    (tmp_path / "work.conf").write_text("Host a\n  ProxyJump gate\n")
    assert rgt("import", "--config", "work.conf", "--write").returncode == 0
    (spec,) = load_fleet(tmp_path / "rgt.toml")
    assert spec.ssh_config == str(tmp_path / "work.conf")


def test_import_says_what_is_wrong(rgt: Run, tmp_path: Path) -> None:
    missing = rgt("import", "--config", "none.conf")
    assert (missing.returncode, "no such ssh_config file" in missing.stderr) == (2, True)
    (tmp_path / "bad.conf").write_text('Host a\nHost "open\n')
    bad = rgt("import", "--config", "bad.conf")
    assert (bad.returncode, "bad.conf:2" in bad.stderr) == (2, True)


def test_a_host_that_no_box_can_have_is_left_out_and_named(rgt: Run, tmp_path: Path) -> None:
    (tmp_path / "odd.conf").write_text("Host gpu/a plain\n")
    done = rgt("import", "--config", "odd.conf", "--write")
    assert (done.returncode, "'gpu/a' was left out" in done.stderr) == (0, True)
    assert [spec.name for spec in load_fleet(tmp_path / "rgt.toml")] == ["plain"]
    (tmp_path / "rgt.toml").write_bytes(b'# \xff\n[boxes.lab]\nhost = "x"\n')
    again = rgt("import", "--config", "odd.conf", "plain")
    assert (again.returncode, "is not UTF-8 text (byte 2)" in again.stderr) == (2, True)


def test_json_says_what_was_written(rgt: Run, tmp_path: Path, config: Path) -> None:
    assert json.loads(rgt("init", "--json").stdout) == {"path": "rgt.toml"}
    added = json.loads(rgt("add", "lab", "h", "--json").stdout)
    assert added == {"box": "lab", "host": "h", "file": str(tmp_path / "rgt.toml")}
    listed = [json.loads(line) for line in rgt("import", "gpu-*", "--json").stdout.splitlines()]
    assert [(item["box"], item["file"]) for item in listed] == [("gpu-1", None), ("gpu-2", None)]
    written = [
        json.loads(line) for line in rgt("import", "seeta", "--json", "--write").stdout.splitlines()
    ]
    assert [(item["box"], item["profile"]) for item in written] == [("seeta", "autodl")]
