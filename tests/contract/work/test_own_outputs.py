"""A script that knows nothing of rgt: whatever it writes below the code that was pushed for it comes home."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from rgt_tui.model import BoxSpec
from tests.contract.cli.conftest import Rgt
from tests.contract.ssh.conftest import fresh_sshd

SCRIPT = """
import os, pathlib, sys
out = pathlib.Path(sys.argv[1])
out.mkdir(parents=True, exist_ok=True)
(out / "best.pt").write_bytes(b"weights" * 1000)
pathlib.Path("notes.txt").write_text("by hand")
pathlib.Path("settings.yaml").write_text("lr: 0.2")  # pushed, and changed by the job
for cache in (".cache/thing", "__pycache__"):
    pathlib.Path(cache).mkdir(parents=True, exist_ok=True)
    pathlib.Path(cache, "cached.bin").write_bytes(b"c" * 5000)
print("loss 0.5")
"""


@pytest.fixture
def box(rgt: Rgt, tmp_path: Path) -> Iterator[BoxSpec]:
    """A box with everything in its home directory, as most rentals have it."""
    folder = tmp_path / "sshd"
    folder.mkdir()
    with fresh_sshd(folder) as running:
        (folder / "box").rmdir()
        (folder / "box").symlink_to("home")
        (folder / "home/.bashrc").write_text(f"export TMUX_TMPDIR={folder}\n")
        spec = msgspec.structs.replace(running.spec, name="lab", pattern="^no such training$")
        rgt.describe([spec])
        yield spec
        subprocess.run(
            ["tmux", "kill-server"],
            env={"TMUX_TMPDIR": str(folder)},
            capture_output=True,
            check=False,
        )


@pytest.fixture
def code(rgt: Rgt) -> Path:
    folder = rgt.folder / "exp"
    folder.mkdir()
    (folder / "train.py").write_text(SCRIPT)
    (folder / "settings.yaml").write_text("lr: 0.1")
    (folder / "model.py").write_text("layers = 2")
    return folder


def came(rgt: Rgt, box: BoxSpec) -> dict[str, str]:
    """Return the files here that were pulled from the pushed code, by their names below it, with their paths."""
    found = {}
    for path in (rgt.folder / "pulled/lab").rglob("*"):
        inside = str(path).partition("/rgt-code/")[2].partition("/")[2]
        if path.is_file() and inside:
            found[inside] = str(path)
    return found


def ran(rgt: Rgt, code: Path, *words: str) -> None:
    done = rgt.on("run", "lab", "--push", str(code), "--wait", "--", "python3", "train.py", *words)
    assert done.returncode == 0, done.stdout + done.stderr


def test_what_a_script_writes_next_to_its_code_is_pulled_and_verified(
    rgt: Rgt, box: BoxSpec, code: Path
) -> None:
    ran(rgt, code, "outputs3")
    done = rgt.on("pull", "lab")
    assert done.returncode == 0, done.stdout + done.stderr
    files = came(rgt, box)
    assert set(files) == {"outputs3/best.pt", "notes.txt", "settings.yaml"}, (
        "pushed files and caches stay"
    )
    assert Path(files["outputs3/best.pt"]).read_bytes() == b"weights" * 1000
    assert Path(files["settings.yaml"]).read_text() == "lr: 0.2"
    assert "caches (" in done.stdout
    verified = rgt("verify", "pulled/lab", "--json")
    # Not a file of torch.save, which is what its name promises: found, so it is looked at.
    assert any("outputs3/best.pt" in row["path"] for row in json.loads(verified.stdout)["errors"])


def test_files_that_nobody_claims_keep_a_pull_from_being_complete(
    rgt: Rgt, box: BoxSpec, code: Path
) -> None:
    ran(rgt, code, "outputs")
    home = Path(str(box.identity)).parent / "home"
    (home / "elsewhere").mkdir()
    (home / "elsewhere/big.bin").write_bytes(bytes(1_200_000))
    done = rgt.on("pull", "lab")
    assert done.returncode == 1, done.stdout
    assert "incomplete: 1.2 MB in 1 directory claimed by no job, run or `results`" in done.stderr
    assert f"unclaimed: {home}/elsewhere: 1 file, 1.2 MB" in done.stderr
    assert "outputs/best.pt" in came(rgt, box), "what is claimed comes all the same"
    assert rgt.on("pull", "lab", "--unclaimed", "2M").returncode == 0
    assert rgt.on("pull", "lab", "--dry-run").returncode == 1
    # Brought by hand, it is here; so is one that the fleet file ignores.
    assert rgt.on("pull", "lab", str(home / "elsewhere")).returncode == 0
    assert rgt.on("pull", "lab").returncode == 0
    (home / "more").mkdir()
    (home / "more/big.bin").write_bytes(bytes(1_200_000))
    assert rgt.on("pull", "lab").returncode == 1
    jobs = ["~/jobs/" + path.name for path in (home / "jobs").iterdir()]
    rgt.describe([msgspec.structs.replace(box, jobs=tuple(jobs), ignore=(f"{home}/more",))])
    done = rgt.on("pull", "lab")
    assert done.returncode == 0, done.stderr


def test_a_directory_below_the_code_that_the_fleet_file_ignores_is_not_the_jobs(
    rgt: Rgt, box: BoxSpec, code: Path
) -> None:
    ran(rgt, code, "outputs")
    home = Path(str(box.identity)).parent / "home"
    (version,) = [path for path in (home / "rgt-code").iterdir() if path.name.startswith("exp-")]
    (version / "data").mkdir()
    (version / "data/set.bin").write_bytes(bytes(2_000_000))
    jobs = ["~/jobs/" + path.name for path in (home / "jobs").iterdir()]
    rgt.describe([msgspec.structs.replace(box, jobs=tuple(jobs), ignore=(f"{version}/data",))])
    done = rgt.on("pull", "lab")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "data/set.bin" not in came(rgt, box)
    assert f"{version}: complete here, 3 files" in done.stdout
    os.utime(version / "model.py")
    assert rgt.on("pull", "lab").returncode == 0, (
        "a pushed file that was only touched is what was pushed"
    )


def test_the_durable_copy_has_what_the_script_wrote_next_to_its_code(
    rgt: Rgt, box: BoxSpec, code: Path, tmp_path: Path
) -> None:
    durable = tmp_path / "volume"
    durable.mkdir()
    rgt.describe([msgspec.structs.replace(box, durable=str(durable))])
    ran(rgt, code, "outputs")
    (copy,) = (durable / "runs").iterdir()
    files = {str(path.relative_to(copy)) for path in copy.rglob("*") if path.is_file()}
    wrote = {"rgt-work/outputs/best.pt", "rgt-work/notes.txt", "rgt-work/settings.yaml"}
    assert files == wrote | {"rgt-cell.log", ".rgt-manifest.jsonl"}
    told = json.loads(rgt.on("status", "lab", "--json").stdout)
    assert [run["state"] for run in told["runs"]] == ["done"]


def test_a_command_in_the_home_directory_has_no_durable_copy_and_says_why(
    rgt: Rgt, box: BoxSpec, tmp_path: Path
) -> None:
    (tmp_path / "volume").mkdir()
    rgt.describe([msgspec.structs.replace(box, durable=str(tmp_path / "volume"))])
    done = rgt.on("run", "lab", "--wait", "--", "echo made > ~/there.txt")
    assert done.returncode == 0, done.stderr
    assert "is shared: push" in done.stdout
