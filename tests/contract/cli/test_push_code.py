"""`rgt push BOX PATH` against a real sshd: versions of code, what stays here, cut off anywhere."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rgt_tui.fleet import read_notes
from rgt_tui.model import BoxSpec
from tests.contract.cli.conftest import PATIENCE, Rgt
from tests.contract.ssh.conftest import RealSshd


@pytest.fixture
def place(real_sshd: RealSshd, request: pytest.FixtureRequest) -> Path:
    name: str = request.node.originalname
    return real_sshd.folder / "home" / name


@pytest.fixture
def project(tmp_path: Path) -> Path:
    top = tmp_path / "my project"
    (top / "lib").mkdir(parents=True)
    (top / "train.py").write_text("import time\ntime.sleep(600)\n")
    (top / "lib" / "net work.py").write_text("WIDTH = 8\n")
    (top / "go.sh").write_text("#!/bin/sh\nexec python train.py\n")
    (top / "go.sh").chmod(0o755)
    (top / "same").symlink_to("lib")
    (top / ".env").write_text("TOKEN=secret")
    return top


def push(rgt: Rgt, *words: object) -> dict[str, Any]:
    done = rgt.on("push", "lab", *map(str, words), "--json")
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))


def test_a_version_never_changes_and_the_link_follows(
    rgt: Rgt, lab: BoxSpec, project: Path, place: Path
) -> None:
    first = push(rgt, project, "--to", place)
    folder, link = Path(first["path"]), Path(first["link"])
    assert folder == place / f"my_project-{first['digest'][:12]}" and link == place / "my_project"
    assert (link / "lib" / "net work.py").read_text() == "WIDTH = 8\n" and os.readlink(
        folder / "same"
    ) == "lib"
    assert os.access(folder / "go.sh", os.X_OK) and not (folder / ".env").exists()
    assert [each["path"] for each in first["left_out"]] == [".env"]
    assert (folder / "train.py").stat().st_mtime_ns == (project / "train.py").stat().st_mtime_ns
    inode = (folder / "train.py").stat().st_ino
    (note,) = read_notes(rgt.environment())
    assert (note.kind, note.paths, note.to, note.whole) == (
        "push code",
        (str(project),),
        str(folder),
        True,
    )

    running = subprocess.Popen(["sleep", "600"], cwd=link)
    try:
        again = push(rgt, project, "--to", place)
        assert again["path"] == first["path"] and again["sent"] == 0
        (project / "train.py").write_text("print('new')\n")
        second = push(rgt, project, "--to", place)
        assert second["sent"] == len("print('new')\n")
        assert (link / "train.py").read_text() == "print('new')\n"
        assert (Path(f"/proc/{running.pid}/cwd") / "train.py").read_text().startswith("import time")
        assert (folder / "train.py").stat().st_ino == inode
        other = Path(second["path"]) / "lib" / "net work.py"
        assert other.stat().st_ino != (folder / "lib" / "net work.py").stat().st_ino
    finally:
        running.kill()
        running.wait()


def test_what_stands_there_already_is_left_alone(
    rgt: Rgt, lab: BoxSpec, project: Path, place: Path
) -> None:
    own = place / "my_project"
    own.mkdir(parents=True)
    (own / "mine").write_text("x")
    done = rgt.on("push", "lab", str(project), "--to", str(place))
    assert done.returncode == 1 and f"{own} already exists" in done.stderr
    assert (own / "mine").read_text() == "x" and not (place / ".rgt-push").exists()
    own.rename(place / "elsewhere")
    own.symlink_to("elsewhere")
    done = rgt.on("push", "lab", str(project), "--to", str(place))
    assert done.returncode == 1 and "which rgt did not make" in done.stderr
    assert os.readlink(own) == "elsewhere"


def test_a_version_that_was_changed_there_is_not_believed(
    rgt: Rgt, lab: BoxSpec, project: Path, place: Path
) -> None:
    first = push(rgt, project, "--to", place)
    script = Path(first["path"]) / "train.py"
    script.write_text("changed on the box")
    second = push(rgt, project, "--to", place)
    assert second["path"] == first["path"] + ".2" and script.read_text() == "changed on the box"
    assert (Path(second["link"]) / "train.py").read_text().startswith("import time")


def test_a_person_is_told_where_and_what(
    rgt: Rgt, lab: BoxSpec, project: Path, place: Path
) -> None:
    (project / "queue.txt").write_bytes(b"a.yaml lm\r\n")
    done = rgt.on("push", "lab", str(project), "--to", str(place))
    assert (
        done.returncode == 0
        and f"lab: {place}/my_project-" in done.stdout
        and "sha256" in done.stdout
    )
    assert ".env (by its name (.env))" in done.stdout and "looks like a secret: .env" in done.stderr
    assert "Windows line endings" in done.stderr and "queue.txt" in done.stderr
    push(rgt, project, "--to", place, "--fix-crlf")
    assert (place / "my_project" / "queue.txt").read_bytes() == b"a.yaml lm\n"
    assert (project / "queue.txt").read_bytes() == b"a.yaml lm\r\n"
    dry = rgt.on("push", "lab", str(project), "--to", str(place / "no"), "--dry-run")
    assert dry.returncode == 0 and "would be sent" in dry.stdout and not (place / "no").exists()
    for words in (["no/such"], [], [str(project), "--to", "relative"], ["--list", str(project)]):
        assert rgt.on("push", "lab", *words).returncode in (1, 2)


BIG = 24 << 20


@pytest.fixture
def big(project: Path) -> Iterator[Path]:
    (project / "weights.bin").write_bytes(os.urandom(BIG))
    yield project


def test_a_large_file_is_sent(rgt: Rgt, lab: BoxSpec, big: Path, place: Path) -> None:
    found = push(rgt, big, "--to", place)
    assert (Path(found["path"]) / "weights.bin").read_bytes() == (big / "weights.bin").read_bytes()
    assert not any((place / ".rgt-push").glob("in-*"))


def killed_in_the_middle(rgt: Rgt, big: Path, place: Path) -> bool:
    """Kill a push of a large file while it comes; False where all of it was there by then."""
    process = rgt.start("push", "lab", str(big), "--to", str(place))
    until = time.monotonic() + PATIENCE
    while not 1 << 20 <= arrived(place) < BIG:
        assert time.monotonic() < until
        if process.poll() is not None:
            break
    process.kill()
    process.wait()
    return 1 << 20 <= arrived(place) < BIG


def arrived(place: Path) -> int:
    parts = [0]
    for path in (place / ".rgt-push").glob("in-*/blobs/*"):
        with contextlib.suppress(FileNotFoundError):  # it takes its name just now
            parts.append(path.stat().st_size)
    return max(parts)


def test_killed_in_the_middle_it_goes_on(rgt: Rgt, lab: BoxSpec, big: Path, place: Path) -> None:
    push(rgt, big, "--to", place, "--exclude", "weights.bin")  # the agent is there, and a version
    link = os.readlink(place / "my_project")
    for _ in range(10):
        if killed_in_the_middle(rgt, big, place):
            break
        push(rgt, big, "--to", place)  # too late: another file
        link = os.readlink(place / "my_project")
        (big / "weights.bin").write_bytes(os.urandom(BIG))
    else:
        pytest.fail("no push was ever in its middle")
    assert os.readlink(place / "my_project") == link
    found = push(rgt, big, "--to", place)
    assert (Path(found["link"]) / "weights.bin").read_bytes() == (big / "weights.bin").read_bytes()
    assert found["sent"] < BIG


def test_what_was_damaged_on_the_way_is_sent_again(
    rgt: Rgt, lab: BoxSpec, big: Path, place: Path
) -> None:
    """Half of it is there, of another content: that it is long enough proves nothing."""
    dry = push(rgt, big, "--to", place, "--dry-run")
    blobs = place / ".rgt-push" / f"in-my_project-{dry['digest'][:12]}" / "blobs"
    blobs.mkdir(parents=True, mode=0o700)
    digest = subprocess.run(
        ["sha256sum", big / "weights.bin"], capture_output=True, text=True
    ).stdout.split()[0]
    for path in (blobs.parent.parent, blobs.parent):
        path.chmod(0o700)
    (blobs / digest).write_bytes(b"x" * (BIG // 2))
    found = push(rgt, big, "--to", place)
    assert (Path(found["link"]) / "weights.bin").read_bytes() == (big / "weights.bin").read_bytes()


def test_versions_are_listed_and_pruned(rgt: Rgt, lab: BoxSpec, project: Path, place: Path) -> None:
    paths = []
    for number in range(3):
        (project / "train.py").write_text(f"print({number})\n")
        paths.append(Path(push(rgt, project, "--to", place)["path"]))
    (paths[1] / "results.csv").write_text("loss\n")
    listed = push(rgt, "--list", "--to", place)
    kept = {Path(row["path"]): row["kept"] for row in listed["versions"]}
    assert (
        kept[paths[0]] is None
        and "results.csv" in kept[paths[1]]
        and "points to it" in kept[paths[2]]
    )
    refused = rgt.on("push", "lab", "--prune", "--to", str(place))
    assert refused.returncode == 1 and all(path.exists() for path in paths)
    done = rgt.on("push", "lab", "--prune", "--to", str(place), "--yes")
    assert done.returncode == 0 and done.stdout.count("removed") == 1
    assert [path.exists() for path in paths] == [False, True, True]


def test_data_go_to_their_place_and_what_is_in_use_stays(
    rgt: Rgt, lab: BoxSpec, tmp_path: Path, place: Path
) -> None:
    data = tmp_path / "set"
    (data / "checkpoints").mkdir(parents=True)
    (data / "checkpoints" / "a.bin").write_bytes(b"one")
    (data / "b.bin").write_bytes(b"two")
    found = push(rgt, data, "--data", "--to", place)
    assert found["path"] == str(place / "set") and found["refused"] == []
    assert (place / "set/checkpoints/a.bin").read_bytes() == b"one"
    (data / "b.bin").write_bytes(b"new")
    os.utime(data / "b.bin", ns=(1, 1))
    done = rgt.on("push", "lab", str(data), "--data", "--to", str(place))
    assert (
        done.returncode == 1
        and "not replaced: set/b.bin: the file on the box is newer" in done.stderr
    )
    assert (place / "set/b.bin").read_bytes() == b"two"
    assert push(rgt, data, "--data", "--to", place, "--replace-newer")["refused"] == []
    assert (place / "set/b.bin").read_bytes() == b"new"
    lost = rgt.on("push", "lab", str(data), "--data")
    assert lost.returncode == 1 and "name one with --to DIR" in lost.stderr
