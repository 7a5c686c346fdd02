"""``rgt verify``: what it finds, what it prints, what it leaves behind, and how it ends."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests import warm_rgt
from tests.process.box.harness import until
from tests.system.tree import ROOT, unpack
from tests.unit.transfer.hostile_files import FILES, TODAY, harmful, torch_zip, with_pickle

TRAINER = ROOT / "tests/fixtures/checkpoints/plain-python3.11.7.tar.gz"


@pytest.fixture
def results(tmp_path: Path) -> Path:
    """A directory with a checkpoint of every kind."""
    folder = tmp_path / "results"
    shutil.copytree(FILES, folder)
    unpack(TRAINER, folder / "ours")
    return folder


def run(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "XDG_STATE_HOME": str(folder.parent / "state")}
    return warm_rgt.rgt("verify", str(folder), *words, cwd=ROOT, env=env)


def verify(folder: Path, *words: str) -> dict[str, Any]:
    done = run(folder, "--json", "--no-torch", *words)
    assert done.stderr == ""
    found: dict[str, Any] = json.loads(done.stdout)
    assert done.returncode == (0 if found["ok"] else 1)
    assert list(found)[:4] == ["ok", "files", "bytes", "errors"]
    return found


def errors(found: dict[str, Any]) -> dict[str, str]:
    return {each["path"]: each["reason"] for each in found["errors"]}


def test_a_whole_directory_is_verified_and_says_so(results: Path) -> None:
    found = verify(results, "--expect", "6")
    assert (found["ok"], found["errors"]) == (True, [])
    assert {each["path"]: each["kind"] for each in found["checkpoints"]} == {
        "before-1.6.pt": "torch",
        "hf/checkpoint-5": "files of one directory",
        "ours/checkpoints/step-00000012-a1": "rgt_train",
        "sharded": "torch.distributed.checkpoint",
        "today.pt": "torch",
        "weights.safetensors": "safetensors",
    }
    assert found["files"] == sum(len(names) for _, _, names in os.walk(results)) - 1
    record = json.loads((results / "PULL_VERIFIED.json").read_bytes())
    assert record["ok"] and record["version"] and len(record["entries"]) == found["files"]
    unproven = {each["path"] for each in found["unproven"]}
    assert {"weights.safetensors", "before-1.6.pt", "sharded/.metadata"} <= unproven
    assert "today.pt" not in unproven
    assert verify(results)["unproven"] == found["unproven"]


def test_torch_loads_what_it_can(results: Path) -> None:
    pytest.importorskip("torch")
    done = run(results)
    assert done.returncode == 0, done.stdout
    assert "today.pt: torch: loaded by torch" in done.stdout
    assert "before-1.6.pt: torch: loaded by torch" in done.stdout
    assert done.stdout.endswith(" 6 complete checkpoints, 0 errors\n")


def test_too_few_checkpoints_and_an_empty_directory_are_errors(tmp_path: Path) -> None:
    folder = tmp_path / "results"
    folder.mkdir()
    assert errors(verify(folder)) == {".": "there is no file in it"}
    shutil.copy(TODAY, folder)
    assert (
        errors(verify(folder, "--expect", "2", "--renew"))["."]
        == "it has 1 complete checkpoint, expected: 2"
    )
    (folder / "last.pt").write_bytes(TODAY.read_bytes()[:-1])
    assert "it has 1 complete" in errors(verify(folder, "--expect", "2", "--renew"))["."]


def test_what_is_no_directory_is_a_wrong_command_line(tmp_path: Path) -> None:
    done = run(tmp_path / "none")
    assert (done.returncode, done.stdout) == (2, "")
    assert "No such file or directory" in done.stderr
    assert run(tmp_path, "--expect", "-1").returncode == 2


def test_a_pickle_that_runs_code_is_refused_with_its_name_and_not_run(
    results: Path, tmp_path: Path
) -> None:
    mark = tmp_path / "ran"
    (results / "a.pt").write_bytes(with_pickle(harmful(mark)))
    (results / "b.ckpt").write_bytes(harmful(mark, 4))
    (results / "c.bin").write_bytes(with_pickle(harmful(mark)))
    (results / "sharded/.metadata").write_bytes(harmful(mark))
    found = errors(verify(results))
    for name in ("a.pt", "b.ckpt", "c.bin", "sharded/.metadata"):
        assert found[name] == "its pickle names io.open: loading it would run that"
    if not mark.exists():
        done = run(results)
        assert done.returncode == 1 and "io.open" in done.stdout
    assert not mark.exists()


def test_one_flipped_byte_is_named_by_its_file(results: Path) -> None:
    """Also where the format has no checksum: the last verification knew the hash, and a second look does not forget."""
    verify(results)
    weights = results / "weights.safetensors"
    data = bytearray(weights.read_bytes())
    data[-1] ^= 1
    weights.write_bytes(data)
    for _ in range(2):
        found = verify(results)
        assert set(errors(found)) == {"weights.safetensors"}
        assert "no longer those that were verified on" in errors(found)["weights.safetensors"]
        assert not (results / "PULL_VERIFIED.json").exists()
        assert (results / "PULL_REFUSED.json").exists()
    data[-1] ^= 1
    weights.write_bytes(data)
    assert verify(results)["ok"]
    assert not (results / "PULL_REFUSED.json").exists()


def test_what_was_verified_and_is_gone_is_an_error_until_it_is_meant(results: Path) -> None:
    verify(results)
    (results / "today.pt").unlink()
    for _ in range(2):
        assert "it is missing now: it was verified on " in errors(verify(results))["today.pt"]
    assert verify(results, "--renew")["ok"]
    assert verify(results)["ok"]


def test_a_manifest_beside_the_files_says_what_they_are(results: Path) -> None:
    agent = [sys.executable, "-m", "rgt_box", "manifest", "hf", "--no-cache"]
    env = {**os.environ, "PYTHONPATH": str(ROOT / "remote")}
    made = subprocess.run(agent, cwd=results, env=env, capture_output=True, check=True).stdout
    manifest = results / "hf/.rgt-manifest.jsonl"
    manifest.write_bytes(made)
    found = verify(results)
    assert found["ok"]
    assert not [
        each
        for each in found["unproven"]
        if "safetensors" in each["path"] and each["path"].startswith("hf")
    ]
    (results / "hf/checkpoint-5/trainer_state.json").unlink()
    (results / "hf/checkpoint-5/model-00001-of-00002.safetensors").write_bytes(b"x")
    found = errors(verify(results, "--renew"))
    assert ".rgt-manifest.jsonl names it" in found["hf/checkpoint-5/trainer_state.json"]
    assert "hf/checkpoint-5/model-00001-of-00002.safetensors" in found
    manifest.write_bytes(b"".join(made.splitlines(keepends=True)[:-1]))
    assert "truncated" in errors(verify(results, "--renew"))["hf/.rgt-manifest.jsonl"]


def test_links_pipes_and_sockets_are_named_and_nothing_is_waited_for(
    results: Path, tmp_path: Path
) -> None:
    os.mkfifo(results / "pipe.pt")
    (results / "out.pt").symlink_to("/etc/passwd")
    (results / "up").symlink_to("..")
    (results / "nowhere").symlink_to("missing")
    (results / "latest.pt").symlink_to("today.pt")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(results / "sock"))
    found = errors(verify(results))
    assert found == {
        "pipe.pt": "it is a pipe",
        "sock": "it is a socket",
        "nowhere": "it is a link that leads nowhere",
        "out.pt": "it is a link to a target outside the directory",
        "up": "it is a link to a target outside the directory",
    }


def test_a_missing_part_of_a_checkpoint_is_named(results: Path) -> None:
    (results / "sharded/__0_0.distcp").unlink()
    (results / "hf/checkpoint-5/model-00002-of-00002.safetensors").unlink()
    ours = next((results / "ours/checkpoints").iterdir())
    (ours / "manifest.json").unlink()
    found = verify(results, "--expect", "6")
    assert "it is missing" in errors(found)["sharded/__0_0.distcp"]
    assert "it is missing" in errors(found)["hf/checkpoint-5/model-00002-of-00002.safetensors"]
    assert "it is missing" in errors(found)[f"ours/checkpoints/{ours.name}/manifest.json"]
    assert errors(found)["."] == "it has 3 complete checkpoints, expected: 6"


LITTLE = """
import sys
from rgt_tui.transfer import examine_child
examine_child.MEMORY = 300 << 20
sys.exit(examine_child.main())
"""


def test_a_file_that_needs_too_much_memory_ends_neither_its_process_nor_the_others(
    results: Path,
) -> None:
    many = b"\x80\x02" + b"]" * (16 << 20) + b"."
    (results / "big.pt").write_bytes(torch_zip({"data.pkl": many, "version": b"3"}))
    asked = [{"kind": "torch", "path": str(results / name)} for name in ("big.pt", "today.pt")]
    lines = "".join(json.dumps(each) + "\n" for each in asked)
    done = subprocess.run(
        [sys.executable, "-c", LITTLE],
        input=lines,
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
    )
    big, today = map(json.loads, done.stdout.splitlines())
    assert "memory" in big["trouble"][0][1]
    assert today["checked"]


def test_odd_names_are_shown_and_never_obeyed(results: Path) -> None:
    (results / "a\x1b[31m\n.pt").write_bytes(b"x")
    (results / os.fsdecode(b"\xff.pt")).write_bytes(b"x")
    done = run(results, "--no-torch")
    assert done.returncode == 1
    assert "\x1b" not in done.stdout
    found = verify(results)
    assert len(found["errors"]) == 2


def test_a_directory_that_cannot_be_written_to_is_not_verified(results: Path) -> None:
    (results / "PULL_VERIFIED.json").mkdir()
    found = verify(results, "--renew")
    assert "cannot be written" in errors(found)["PULL_VERIFIED.json"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_whoever_ends_it_waits_for_no_file_and_leaves_no_process(
    tmp_path: Path, number: signal.Signals
) -> None:
    folder = tmp_path / "results"
    folder.mkdir()
    with open(folder / "huge.safetensors", "wb") as file:
        header = b'{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}'
        file.write(len(header).to_bytes(8, "little") + header)
        file.truncate(1 << 42)  # a hole: days of zeros
    with open(folder / "metrics.jsonl", "wb") as file:
        file.truncate(1 << 42)
    process = subprocess.Popen(
        [sys.executable, "-m", "rgt_tui", "verify", str(folder), "--json"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=ROOT,
        env={**os.environ, "XDG_STATE_HOME": str(tmp_path)},
    )  # fmt: skip
    try:
        children: list[int] = []

        def looks() -> bool:
            assert process.poll() is None
            listed = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text()
            children[:] = map(int, listed.split())
            return any(reads(pid, "metrics.jsonl") for pid in children)

        until(looks, "its child reads", 300.0)
        process.send_signal(number)
        out, _ = process.communicate(timeout=300)
    finally:
        process.kill()
    assert process.returncode == (130 if number is signal.SIGINT else -number)
    assert out == b""
    assert not [name for name in os.listdir(folder) if name.startswith("PULL")]
    until(lambda: not any(runs(pid) for pid in children), "the end of its children", 300.0)


def reads(pid: int, name: str) -> bool:
    try:
        return any(
            os.readlink(f"/proc/{pid}/fd/{fd}").endswith(name)
            for fd in os.listdir(f"/proc/{pid}/fd")
        )
    except OSError:
        return False


def runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_every_cell_of_a_roster_has_a_checkpoint_that_loads(results: Path, tmp_path: Path) -> None:
    roster = tmp_path / "sweep.txt"
    roster.write_text("configs/ours.toml lm\n# configs/later.toml lm\n")
    (whole,) = {each["path"].partition("/")[0] for each in verify(results)["checkpoints"]} & {
        "ours"
    }
    assert whole == "ours"
    for path in results.iterdir():
        if path.name != "ours":
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    found = verify(results, "--renew", "--roster", str(roster))
    assert found["ok"] and found["cells"]["ours"] >= 1
    roster.write_text("configs/ours.toml lm\nconfigs/lost.toml lm\n")
    found = verify(results, "--roster", str(roster))
    assert not found["ok"] and found["cells"]["lost"] == 0
    said = run(results, "--no-torch", "--roster", str(roster))
    assert said.returncode == 1
    assert (
        "cell lost: no complete checkpoint that loads\nroster: 1 of 2 cells complete" in said.stdout
    )
    assert run(results, "--roster", str(tmp_path / "none.txt")).returncode == 2
    # The sweep of a job file is a roster, too.
    job = tmp_path / "job.toml"
    job.write_text('run = "train {cfg}"\ncells = ["configs/ours.toml", "configs/lost.toml"]\n')
    assert verify(results, "--roster", str(job))["cells"].keys() == {"ours", "lost"}
    job.write_text('run = "train"\n')
    assert run(results, "--roster", str(job)).returncode == 2
