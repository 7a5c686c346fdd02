"""What stands in the state directory is run and believed: it must be this user's, and nobody else may put it there."""

from __future__ import annotations

import hashlib
import json
import os
import py_compile
import stat
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from rgt_box import files, landing, ownership, place
from rgt_box.commands import hashing
from rgt_box.queue import job_making
from rgt_box.sampling import gpu_nvml

from rgt_tui.fleet.config import editing
from rgt_tui.model import protocol
from tests.process.box.harness import Agent, master_log

NOBODY = 65534
pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to act as a second user")


def give(path: Path, uid: int = NOBODY, mode: int | None = None) -> Path:
    os.chown(path, uid, uid, follow_symlinks=False)
    if mode is not None:
        path.chmod(mode)
    return path


@pytest.fixture
def theirs(agent: Agent, tmp_path: Path) -> Path:
    """The state directory, made by another user before us; all may write to it."""
    agent.state.mkdir()
    agent.env["RGT_RAM_DIR"] = str(tmp_path)
    return give(agent.state, mode=0o777)


def test_the_directory_of_another_user_is_neither_written_to_nor_believed(
    agent: Agent, theirs: Path
) -> None:
    (theirs / "found.json").write_text(
        json.dumps({"boot": "b", "runs": [{"name": "planted", "key": 1}]})
    )
    (theirs / "recorder-config.json").write_text(json.dumps({"interval": 77.0}))
    before = sorted(path.name for path in theirs.iterdir())
    channel = agent.watch(interval=0.2, find=True)
    frames = channel.frames()
    hello = next(frames)
    assert any("belongs to nobody" in words for words in hello.limited), hello
    samples = 0
    for frame in frames:
        samples += isinstance(frame, protocol.Sample)
        assert not (
            isinstance(frame, protocol.FoundRuns)
            and any(run.name == "planted" for run in frame.runs)
        )
        assert not (isinstance(frame, protocol.BoxEvent) and frame.kind == "no-recorder")
        if samples == 3:
            break
    channel.kill()
    assert sorted(path.name for path in theirs.iterdir()) == before
    assert theirs.stat().st_uid == NOBODY


def test_one_of_ours_that_others_may_write_to_is_closed(agent: Agent, tmp_path: Path) -> None:
    agent.state.mkdir()
    agent.state.chmod(0o2777)
    assert agent.run("record").returncode == 0
    assert stat.S_IMODE(agent.state.stat().st_mode) == 0o2755
    ownership.ensure_private_folder(str(tmp_path / "a/b"))
    assert stat.S_IMODE((tmp_path / "a/b").stat().st_mode) == 0o700
    with pytest.raises(PermissionError, match="it belongs to nobody"):
        ownership.ensure_private_folder(str(give(tmp_path / "a/b")))


def test_nor_is_one_used_that_everybody_can_replace(tmp_path: Path) -> None:
    state = tmp_path / "open/cache/rgt"
    ownership.ensure_private_folder(str(state))
    (tmp_path / "open").chmod(0o777)
    with pytest.raises(PermissionError, match=f"everyone can write to {tmp_path}/open: chmod o-w"):
        ownership.ensure_private_folder(str(state))
    (tmp_path / "open").chmod(0o1777)
    ownership.ensure_private_folder(str(state))


@pytest.mark.parametrize("planted", ["file", "directory", "open", "ours"])
def test_hashes_that_another_user_could_write_prove_nothing(
    agent: Agent, tmp_path: Path, planted: str
) -> None:
    """A manifest is what a box is destroyed by."""
    result = tmp_path / "result"
    result.write_bytes(b"x")
    os.utime(result, (time.time() - 60,) * 2)
    time.sleep(0.1)  # a file that was changed just now is never taken from the cache
    agent.state.mkdir()
    cache = agent.state / "hashes.jsonl"
    key = ":".join(f"{number:x}" for number in hashing.content_key(result.stat()))
    cache.write_text(json.dumps({"k": key, "h": "0" * 64}) + "\n")
    cache.chmod(0o600)
    if planted == "file":
        give(cache)
    elif planted == "directory":
        give(agent.state)
    elif planted == "open":
        cache.chmod(0o666)
    out = agent.run("manifest", str(result)).stdout.decode()
    right = hashlib.sha256(b"x").hexdigest()
    assert (right in out, "0" * 64 in out) == (
        (False, True) if planted == "ours" else (True, False)
    )


@pytest.mark.parametrize("planted", ["file", "directory", "open", "link", "ours"])
def test_code_that_another_user_could_write_is_not_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, planted: str
) -> None:
    mark = tmp_path / "mark"
    (tmp_path / "planted.py").write_text(f"open({str(mark)!r}, 'w').close()")
    state = tmp_path / "state"
    state.mkdir(mode=0o700)
    name = f"pynvml-{place.agent_digest()}-{sys.implementation.cache_tag}.pyc"
    cached = state / name
    py_compile.compile(str(tmp_path / "planted.py"), str(cached), doraise=True)
    cached.chmod(0o600)
    if planted == "link":
        cached.rename(tmp_path / name)
        cached.symlink_to(tmp_path / name)
    elif planted != "ours":
        give(state if planted == "directory" else cached, 0 if planted == "open" else NOBODY, None)
        if planted == "open":
            cached.chmod(0o622)
    monkeypatch.delitem(sys.modules, "pynvml", raising=False)
    gpu_nvml.load_pynvml(str(state))
    monkeypatch.delitem(sys.modules, "pynvml", raising=False)
    assert mark.exists() == (planted == "ours")


def test_a_link_that_lies_where_a_file_is_to_be_written_is_not_written_through(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    precious = tmp_path / "precious"
    precious.write_bytes(b"precious")
    monkeypatch.setattr(os, "urandom", bytes)  # so that the name is known
    (tmp_path / f"state.json.tmp-{files.unique_suffix()}").symlink_to(precious)
    with pytest.raises(FileExistsError):
        files.replace_file(str(tmp_path / "state.json"), b"new")
    monkeypatch.undo()
    files.replace_file(str(tmp_path / "state.json"), b"new")
    assert (precious.read_bytes(), (tmp_path / "state.json").read_bytes()) == (b"precious", b"new")
    assert not (tmp_path / "state.json").is_symlink()
    (tmp_path / "lock").symlink_to(precious)
    with pytest.raises(OSError, match="symbolic links"):
        files.FileLock(str(tmp_path / "lock")).acquire()
    assert precious.read_bytes() == b"precious"


def publish(path: Path, data: bytes) -> None:
    """Publish a directory with one file."""
    with suppress(FileExistsError):
        job_making.publish_folder(str(path), {"a": data})


@pytest.mark.parametrize(
    "write",
    [
        lambda path, data: files.replace_file(str(path), data),
        lambda path, data: landing.write_durably(str(path), data),
        lambda path, data: editing.write_atomically(path, data.decode()),
        publish,
    ],
    ids=["replace_file", "write_durably", "write_atomically", "publish_folder"],
)
def test_two_machines_with_the_same_pid_may_write_to_a_shared_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, write: Callable[[Path, bytes], None]
) -> None:
    """The other one writes completely between our write and our rename: it has this process's pid."""
    path, others = tmp_path / "shared", [b"theirs"]
    rename = os.rename

    def rename_after_the_other(source: str, target: str) -> None:
        if Path(target) == path and others:
            write(path, others.pop())
        rename(source, target)

    monkeypatch.setattr(os, "rename", rename_after_the_other)
    monkeypatch.setattr(Path, "rename", rename_after_the_other)
    write(path, b"ours")
    assert not others
    written = path / "a" if path.is_dir() else path
    # A directory is only published where there is none.
    assert written.read_bytes() == (b"theirs" if path.is_dir() else b"ours")
    assert os.listdir(tmp_path) == ["shared"]


def test_an_environment_is_not_handed_on_in_a_directory_of_another_user(
    agent: Agent, tmp_path: Path
) -> None:
    """It holds keys."""
    from tests.process.box.harness import make_job, until

    job = make_job(tmp_path / "job", ["true"], ["a"])
    agent.state.mkdir()
    give(agent.state, mode=0o777)
    agent.env.update(RGT_RAM_DIR=str(tmp_path), TMUX_TMPDIR=str(tmp_path))
    done = agent.run("detach", "--job", str(job))
    assert b"it belongs to nobody" in done.stderr
    assert json.loads(done.stdout)["how"] != "tmux"
    until(lambda: master_log(job).endswith("QUEUE DONE\n"), "the end of the queue")
    assert not list(agent.state.iterdir())
