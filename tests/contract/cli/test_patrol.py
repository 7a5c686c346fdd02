"""`rgt patrol`: read-only, bounded, a line per box also when nothing has changed."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import socket
import subprocess
from pathlib import Path

import msgspec
import pytest

from rgt_tui.model import BoxSpec
from tests.contract.cli.conftest import Rgt
from tests.contract.ssh.conftest import RealSshd
from tests.contract.ssh.servers import spec_of, sshd
from tests.contract.ssh.test_limited import without_python
from tests.free_ports import free_port
from tests.process.box.harness import make_job

replace = msgspec.structs.replace


def tree(folder: Path) -> dict[str, tuple[object, ...]]:
    """Everything below a directory: kind and permissions, owner, inode, times of content and status, and content.

    Of the agent's own files only that they are there: its recorder goes on writing and renaming them.
    """
    found: dict[str, tuple[object, ...]] = {}
    paths: list[Path] = []
    for place, folders, files in os.walk(folder):
        paths += [Path(place, name) for name in folders + files]
        folders[:] = [name for name in folders if Path(place, name) != folder / ".cache" / "rgt"]
    for path in sorted(paths):
        stat = path.lstat()
        content = hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else None
        times = (stat.st_mtime_ns, stat.st_ctime_ns) if path.is_file() else ()
        found[str(path.relative_to(folder))] = (
            stat.st_mode,
            stat.st_uid,
            stat.st_ino,
            times,
            content,
        )
    return found


def test_a_patrol_changes_nothing_on_a_box_but_the_agent_s_own_files(
    rgt: Rgt, lab: BoxSpec, real_sshd: RealSshd
) -> None:
    home = real_sshd.folder / "home"
    make_job(home / "job", ["true"], ["a"])
    (home / "train.log").write_text("step 1 loss 2\n")
    (home / ".cache").mkdir(exist_ok=True)
    before = tree(home)
    rgt.describe([replace(lab, jobs=(str(home / "job"),), logs=("~/train.log",))])
    assert rgt.on("patrol").returncode in (0, 1)
    after = tree(home)
    before.pop(".cache/rgt", None)
    assert after.pop(".cache/rgt", None), "the agent was never there"
    assert after == before
    shutil.rmtree(home / "job")


def test_a_line_per_box_also_when_nothing_has_changed(rgt: Rgt, lab: BoxSpec) -> None:
    first, second = rgt.on("patrol"), rgt.on("patrol")
    for done in (first, second):
        assert (done.returncode, done.stderr) == (0, "")
        assert re.fullmatch(
            r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d[+-]\d{4} healthy +lab +idle .*\n", done.stdout
        )


def test_what_cannot_be_told_ends_with_2(rgt: Rgt, lab: BoxSpec) -> None:
    rgt.describe([lab, replace(lab, name="dead", port=free_port())])
    done = rgt.on("patrol")
    assert done.returncode == 2
    assert [line.split()[1:3] for line in done.stdout.splitlines()] == [
        ["healthy", "lab"],
        ["unknown", "dead"],
    ]
    rgt.fleet.write_text("[boxes")
    assert rgt.on("patrol").returncode == 2
    assert rgt("patrol").returncode == 2


def test_json_lines_carry_the_verdict(rgt: Rgt, lab: BoxSpec) -> None:
    done = rgt.on("patrol", "--json")
    assert msgspec.json.decode(done.stdout.encode())["verdict"] == "healthy"


@pytest.mark.skipif(
    os.geteuid() != 0 or not shutil.which("unshare"), reason="needs a mount namespace"
)
def test_a_name_server_that_never_answers_does_not_hold_it(
    rgt: Rgt, lab: BoxSpec, tmp_path: Path
) -> None:
    """The library's look-up runs in a thread that cannot be stopped, and would hold the process for half a minute."""
    silent = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    try:
        silent.bind(("127.53.53.53", 53))
    except OSError:
        pytest.skip("port 53 cannot be had here")
    resolv = tmp_path / "resolv.conf"
    resolv.write_text("nameserver 127.53.53.53\noptions timeout:30 attempts:5\n")
    rgt.describe([replace(lab, host="nowhere.example.org")])
    script = 'mount --bind "$1" /etc/resolv.conf && shift && exec "$@"'
    command = ["unshare", "-m", "sh", "-c", script, "sh", str(resolv)]
    command += rgt.command("patrol", "--fleet", str(rgt.fleet), "--timeout", "2")
    with silent:
        done = subprocess.run(
            command, env=rgt.environment(), capture_output=True, text=True, timeout=100, check=False
        )
    if "mount:" in done.stderr:
        pytest.skip("nothing can be mounted here")
    assert done.returncode == 2
    assert "unknown" in done.stdout


def test_a_box_that_shows_no_process_is_unknown_in_every_command(rgt: Rgt, tmp_path: Path) -> None:
    """No Python there, and so no agent: that a plain shell sees no training is no proof that none runs."""
    place = tmp_path / "box"
    place.mkdir()
    options, wrapper = without_python(place)
    with sshd(place, options, wrapper=wrapper) as port:
        rgt.describe([replace(spec_of(place, port), name="bare", pattern="no such training")])
        patrol = rgt.on("patrol")
        status = rgt.on("status", "--json")
        metrics = rgt.on("metrics", "--once")
    assert (
        patrol.returncode,
        " unknown  bare " in patrol.stdout,
        "cannot see" in patrol.stdout,
    ) == (
        2,
        True,
        True,
    )
    line = msgspec.json.decode(status.stdout)
    assert (line["state"], line["verdict"], "cannot see" in line["reason"]) == (
        "unknown",
        "unknown",
        True,
    )
    assert 'rgt_box_state{box="bare",state="unknown"} 1' in metrics.stdout
    assert "rgt_training_processes" not in metrics.stdout
