"""`rgt remove`: asks before it acts, says what goes and what stays, and forgets the box on request."""

from __future__ import annotations

import json
import os
import pty
import select
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.contract.cli.conftest import PATIENCE, Rgt
from tests.contract.ssh.conftest import RealSshd, running_sshd, stop_recorder
from tests.free_ports import free_port


@pytest.fixture
def fresh(rgt: Rgt, tmp_path: Path) -> Iterator[RealSshd]:
    """A box of its own, on which rgt has just been; the fleet file names a second one."""
    (tmp_path / "box").mkdir()
    with running_sshd(tmp_path / "box") as running:
        rgt.fleet.write_text(
            "# mine\n[boxes.lab]\n"
            f'host = "127.0.0.1"\nport = {running.port}\nuser = "{running.spec.user}"\n'
            f'identity = "{running.spec.identity}"\nknown_hosts = "{running.spec.known_hosts}"\nssh_config = "none"\n'
            f'python = "{running.spec.python}"\npattern = "^no such training$"\n\n'
            f'# gone for long\n[boxes.gone]\nhost = "127.0.0.1"\nport = {free_port()}\nssh_config = "none"\n'
        )
        assert rgt.on("status", "lab").returncode == 0
        yield running
        stop_recorder(running)


def cache(running: RealSshd) -> Path:
    return running.folder / "home/.cache/rgt"


def test_a_look_and_a_refusal_change_nothing_and_yes_takes_it_all(
    rgt: Rgt, fresh: RealSshd
) -> None:
    (fresh.folder / "home/job").mkdir()
    (fresh.folder / "home/job/result.json").write_text("{}")
    looked = rgt.on("remove", "lab", "--dry-run")
    assert (
        looked.returncode == 0 and "would be removed" in looked.stdout and "ring" in looked.stdout
    )
    refused = rgt.on("remove", "lab")
    assert refused.returncode == 1
    assert "cannot prompt here" in refused.stderr and "--yes" in refused.stderr
    assert list(cache(fresh).glob("rgt-box-*.pyz"))

    done = rgt.on("remove", "lab", "--yes")
    assert (done.returncode, done.stderr) == (0, "")
    assert "MB removed" in done.stdout and "(the history)" in done.stdout
    assert not cache(fresh).exists()
    assert (fresh.folder / "home/job/result.json").exists()
    assert "[boxes.lab]" in rgt.fleet.read_text()


def test_a_person_is_shown_what_goes_and_asked(rgt: Rgt, fresh: RealSshd) -> None:
    for answer, there in (("n", True), ("y", False)):
        master, slave = pty.openpty()
        process = subprocess.Popen(
            rgt.command("remove", "--fleet", str(rgt.fleet), "lab"),
            env=rgt.environment(), stdin=slave, stdout=subprocess.PIPE, stderr=slave,
        )  # fmt: skip
        said = b""
        while b"[y/N]" not in said:
            assert select.select([master], [], [], PATIENCE)[0], said
            said += os.read(master, 4096)
        os.write(master, f"{answer}\n".encode())
        out, _ = process.communicate(timeout=PATIENCE)
        os.close(slave)
        os.close(master)
        assert b"would be removed" in out
        assert (process.returncode == 1, cache(fresh).exists()) == (there, there)


def test_json_and_forget(rgt: Rgt, fresh: RealSshd) -> None:
    done = rgt.on("remove", "lab", "--yes", "--forget", "--json")
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    told = json.loads(done.stdout)
    assert (told["box"], told["dry_run"], told["refused"], told["failed"], told["forgotten"]) == (
        "lab", False, [], [], True,
    )  # fmt: skip
    assert told["bytes"] > 1 << 20 and {thing["kept"] for thing in told["things"]} == {None}
    text = rgt.fleet.read_text()
    assert text.startswith("# mine\n\n# gone for long\n[boxes.gone]") and "lab" not in text


def test_a_box_that_is_not_reached_is_not_forgotten_by_itself(rgt: Rgt, fresh: RealSshd) -> None:
    done = rgt.on("remove", "gone", "--yes", "--forget")
    assert (done.returncode, "--only-forget" in done.stderr) == (3, True)
    assert "[boxes.gone]" in rgt.fleet.read_text()
    assert rgt.on("remove", "gone", "--only-forget").returncode == 1
    done = rgt.on("remove", "gone", "--only-forget", "--yes")
    assert (done.returncode, done.stderr) == (0, "")
    assert "[boxes.gone]" not in rgt.fleet.read_text() and "[boxes.lab]" in rgt.fleet.read_text()
    assert rgt.on("remove", "gone", "--only-forget", "--yes").returncode == 2


def test_a_queue_that_runs_refuses(rgt: Rgt, fresh: RealSshd) -> None:
    agent = next(cache(fresh).glob("rgt-box-*.pyz"))
    code = "import time; print('up', flush=True); time.sleep(600)"
    words = [fresh.spec.python or "python3", "-c", code, str(agent), "queue", "run"]
    runner = subprocess.Popen(words, stdout=subprocess.PIPE)
    try:
        assert runner.stdout is not None and runner.stdout.readline() == b"up\n"
        done = rgt.on("remove", "lab", "--yes", "--forget")
    finally:
        runner.kill()
        runner.communicate()
    assert done.returncode == 1
    assert f"nothing was removed: the agent is busy: process {runner.pid} (queue)" in done.stderr
    assert agent.exists() and "[boxes.lab]" in rgt.fleet.read_text()
