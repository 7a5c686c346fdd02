"""Secrets on a box: mode and place, the environment of cells alone, masked in frames; open keys are found."""

from __future__ import annotations

import json
import os
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from rgt_box import place, secret_store
from rgt_box.sampling import disks

from tests.process.box.harness import Agent, make_job

VALUE = "hunter2-correct-horse"
TOKEN = "hf_" + "aB3dE5fG7h" * 3


@pytest.fixture
def home(agent: Agent, tmp_path: Path) -> Path:
    made = tmp_path / "home"
    made.mkdir()
    agent.env.update(HOME=str(made))
    for name in ("XDG_CONFIG_HOME", "HF_HOME"):
        agent.env.pop(name, None)
    return made


def secret(agent: Agent, *words: object, value: str = "", status: int = 0) -> dict[str, Any]:
    done = agent.run("secret", *map(str, words), stdin=value.encode())
    assert done.returncode == status, done.stderr
    assert value == "" or value.encode() not in done.stdout + done.stderr
    return dict(json.loads(done.stdout)) if status < 2 else {"words": done.stderr.decode()}


def test_a_secret_is_a_file_that_nobody_else_reads(agent: Agent, home: Path) -> None:
    os.umask(os.umask(0))
    row = secret(agent, "put", "--name", "HF_TOKEN", value=VALUE)["put"]
    path = Path(row["path"])
    assert path == home / ".config/rgt/secrets/HF_TOKEN" and path.read_text() == VALUE
    assert (
        stat.S_IMODE(path.stat().st_mode) == 0o600
        and stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    )
    assert VALUE not in (agent.state / "secrets.json").read_text()
    assert secret(agent, "put", "--name", "HF_TOKEN", value="another-value")["put"] == row
    assert [each["problem"] for each in secret(agent, "list")["secrets"]] == [None]
    path.chmod(0o644)
    assert "set it again" in secret(agent, "list")["secrets"][0]["problem"]
    assert secret(agent, "remove", "--name", "HF_TOKEN")["removed"] == [row] and not path.exists()
    assert (
        "no secret of that name"
        in secret(agent, "remove", "--name", "HF_TOKEN", status=1)["refused"]
    )
    for name in ("A-B", "1A", "../x", ""):
        secret(agent, "put", "--name", name, value=VALUE, status=1 if name else 2)
    assert "1 to" in secret(agent, "put", "--name", "A", status=1)["refused"]


@pytest.fixture
def ramdisk(tmp_path: Path) -> Iterator[Path]:
    """A mount of a kind that other machines may have, as far as its name tells."""
    mount = tmp_path / "share"
    mount.mkdir()
    if os.geteuid() or subprocess.run(["mount", "-t", "ramfs", "x", mount], check=False).returncode:
        pytest.skip("nothing can be mounted here")
    yield mount
    subprocess.run(["umount", mount], check=True)


def test_a_shared_or_durable_place_is_refused_and_another_named(
    agent: Agent, home: Path, ramdisk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    durable = home / "durable"
    durable.mkdir()
    link = home / "looks-local"
    link.symlink_to(durable)
    for to in (durable, durable / "deep" / "er", link):
        said = secret(
            agent, "put", "--name", "A", "--to", to, "--durable", durable, value=VALUE, status=1
        )["refused"]
        assert "outlives this box" in said and f"{home}/.config/rgt/secrets is suitable" in said
    assert list(durable.iterdir()) == []
    said = secret(agent, "put", "--name", "A", "--durable", home, value=VALUE)["put"]["path"]
    assert said.startswith(("/dev/shm/", "/var/lib/"))
    secret(agent, "remove", "--name", "A")
    Path(said).parent.rmdir()
    monkeypatch.setattr(disks, "LOCAL", frozenset(("ext4", "overlay", "tmpfs", "xfs", "btrfs")))
    assert f"is on ramfs ({ramdisk}), which other machines may read" in secret_store.why_unsuitable(
        str(ramdisk / "x"), []
    )
    monkeypatch.setattr(disks, "find_mount", lambda path, _: (str(home), "nfs4"))
    monkeypatch.setattr(place, "state_dir", lambda: str(agent.state))
    with pytest.raises(secret_store.SecretNotStored, match="no place on this machine"):
        secret_store.store_secret("A", b"x", None, None, [])


def test_cells_get_it_by_their_environment_alone(agent: Agent, home: Path, tmp_path: Path) -> None:
    show = ["sh", "-c", "tr '\\0' ' ' < /proc/$$/cmdline; echo; echo \"TOKEN is $MY_TOKEN.\""]
    job, other = make_job(tmp_path / "job", show, ["a"]), make_job(tmp_path / "other", show, ["a"])
    row = secret(agent, "put", "--name", "MY_TOKEN", "--job", job, value=VALUE)["put"]
    for each in (job, other):
        assert agent.run("queue", "run", "--job", str(each)).returncode == 0
    assert f"TOKEN is {VALUE}." in (job / "logs/a.log").read_text()
    assert "TOKEN is ." in (other / "logs/a.log").read_text()
    kept = [
        path
        for path in [*job.rglob("*"), *agent.state.rglob("*")]
        if path.is_file() and path.name != "a.log"
    ]
    assert not [path for path in kept if VALUE.encode() in path.read_bytes()]
    channel = agent.watch(interval=10, jobs=[str(job)])
    line = channel.expect(
        lambda frame: any("TOKEN is" in one for one in getattr(frame, "lines", ()))
    )
    assert any("TOKEN is ***." in one for one in line.lines) and not any(
        VALUE in one for one in line.lines
    )
    Path(row["path"]).unlink()
    again = make_job(tmp_path / "job", show, ["b"])
    done = agent.run("queue", "run", "--job", str(again))
    assert (
        b"the secret MY_TOKEN is not set" in done.stdout
        and b"it is missing: set it again" in done.stdout
    )


def test_another_users_file_is_no_secret_of_ours(agent: Agent, home: Path, tmp_path: Path) -> None:
    if os.geteuid():
        pytest.skip("needs a second user")
    job = make_job(tmp_path / "job", ["sh", "-c", 'echo "[$A]"'], ["a"])
    row = secret(agent, "put", "--name", "A", "--job", job, value=VALUE)["put"]
    os.chown(row["path"], 12345, 12345)
    agent.run("queue", "run", "--job", str(job))
    assert (job / "logs/a.log").read_text() == "[]\n"


def test_open_keys_are_found_and_their_values_are_not_told(
    agent: Agent, home: Path, tmp_path: Path
) -> None:
    job, durable = tmp_path / "job", home / "netdisk"
    files = {
        home / ".netrc": f"machine api.wandb.ai login user password {VALUE}\n",
        home / ".cache/huggingface/token": TOKEN,
        job / ".env": f"# keys\nWANDB_API_KEY={VALUE}\n",
        job / "job.json": json.dumps({"env": {"HF_TOKEN": TOKEN}}, indent=1),
        durable / ".env": f"TOKEN={TOKEN}",
        home / ".env": "EPOCHS=3\n",
    }
    for path, text in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(0o600)
    (job / ".env").chmod(0o644)
    done = agent.run("secret", "find", "--job", str(job), "--durable", str(durable))
    found = {Path(row["path"]): row for row in json.loads(done.stdout)["found"]}
    assert set(found) == set(files) - {home / ".env"}
    assert VALUE.encode() not in done.stdout and TOKEN.encode() not in done.stdout
    assert found[job / ".env"]["why"] == "a key or password in line 2"
    assert (
        "chmod 600" in found[job / ".env"]["open"]
        and "outlives this box" in found[durable / ".env"]["open"]
    )
    assert found[home / ".netrc"]["open"] is None
    channel = agent.watch(interval=10, jobs=[str(job)], durable=[str(durable)])
    hello = channel.expect(lambda frame: type(frame).__name__ == "Hello")
    assert {token.path for token in hello.exposed} == {str(path) for path in found}


@pytest.mark.parametrize(
    "text", ["", "EPOCHS=3", "tokenizer: gpt2", "max_tokens = 512", "# password: none here"]
)
def test_what_is_no_key(text: str) -> None:
    assert secret_store.describe_token("settings", text) == ""
