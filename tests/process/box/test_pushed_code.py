"""The agent's side of a push: a version of code that is in use stays, data in use are not replaced, full disks."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import subprocess
import time
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from rgt_box.commands.hashing import HashCache
from rgt_box.files import FileLock
from rgt_box.push import code_versions, push_command, push_staging
from rgt_box.queue import queue_state
from rgt_wire import block_packing

from rgt_tui.fleet.pushes import push_transport
from rgt_tui.transfer import IgnoreRules, read_tree
from tests.process.box.harness import Agent, until


def manifest(
    kind: str, place: Path, files: dict[str, bytes], mtime: int = 10**18, **more: Any
) -> bytes:
    rows = [
        [path, len(data), hashlib.sha256(data).hexdigest(), mtime, path.endswith(".sh")]
        for path, data in files.items()
    ]
    digest = hashlib.sha256(repr(rows).encode()).hexdigest()
    told = {
        "kind": kind,
        "place": str(place),
        "name": "exp",
        "digest": digest,
        "files": rows,
        "links": [],
        **more,
    }
    return json.dumps(told).encode()


def answer(agent: Agent, *words: str, stdin: bytes = b"", status: int = 0) -> dict[str, Any]:
    done = agent.run("push", *words, stdin=stdin)
    assert done.returncode == status, done.stderr.decode()
    return dict(json.loads(done.stdout)) if status == 0 else {"words": done.stderr.decode()}


def send(
    agent: Agent, plan: dict[str, Any], files: dict[str, bytes], status: int = 0
) -> dict[str, Any]:
    contents = {hashlib.sha256(data).hexdigest(): data for data in files.values()}
    stream = b"".join(
        f"{digest} {have} {len(contents[digest]) - have}\n".encode() + contents[digest][have:]
        for digest, have in plan["wanted"]
    )
    return answer(agent, "take", "--staging", plan["staging"], stdin=stream, status=status)


def pushed(
    agent: Agent, kind: str, place: Path, files: dict[str, bytes], **more: Any
) -> dict[str, Any]:
    plan = answer(agent, "plan", stdin=manifest(kind, place, files, **more))
    send(agent, plan, files)
    return answer(agent, "publish", "--staging", plan["staging"])


def version(place: Path, number: int) -> Path:
    """Make a version without the agent's command line."""
    # By its content its name is another one in each test: who names it in one is a doubt in all that run beside it.
    files = {
        "train.py": b"print(%d)\n" % number,
        "go.sh": b"#!/bin/sh\n",
        "of": str(place).encode(),
    }
    made = push_staging.PushManifest(json.loads(manifest("code", place, files)))
    push_staging.create_staging(made)
    for data in files.values():
        Path(push_staging.blob_path(made, hashlib.sha256(data).hexdigest())).write_bytes(data)
    name = code_versions.publish_version(made)
    code_versions.switch_link(made, name)
    push_staging.remove_folder(made.staging_folder)
    return place / name


def kept(place: Path, *jobs: Path) -> dict[str, str | None]:
    rows = code_versions.list_versions(str(place), [str(job) for job in jobs])
    return {Path(row["path"]).name: row["kept"] for row in rows}


def wait_until_kept(place: Path, version: Path, why: str) -> None:
    until(lambda: why in (kept(place)[version.name] or ""), why)


def prune(place: Path, *jobs: Path) -> None:
    words = [str(job) for job in jobs]
    code_versions.remove_unused(str(place), code_versions.list_versions(str(place), words), words)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "rgt-code"


@pytest.fixture
def old(place: Path) -> Path:
    """A version that is not the newest."""
    first = version(place, 1)
    version(place, 2)
    return first


def started(*words: object, cwd: Path) -> subprocess.Popen[bytes]:
    process = subprocess.Popen(list(map(str, words)), cwd=cwd, stdout=subprocess.PIPE)
    until(lambda: Path(f"/proc/{process.pid}/cwd").exists(), "the process")
    return process


@pytest.fixture
def ended() -> Iterator[list[subprocess.Popen[bytes]]]:
    found: list[subprocess.Popen[bytes]] = []
    yield found
    for process in found:
        process.kill()
        process.communicate()


HOLDING = "import sys,time; f=open(sys.argv[1]); print('ready', flush=True); time.sleep(600)"
MAPPING = (
    "import sys,time,mmap; f=open(sys.argv[1],'rb'); m=mmap.mmap(f.fileno(),0,access=mmap.ACCESS_READ); f.close();"
    "import os; [os.close(n) for n in range(3,9) if os.path.exists('/proc/self/fd/%d' % n)];"
    "print('ready', flush=True); time.sleep(600)"
)


def test_a_version_that_a_process_uses_stays(
    place: Path, old: Path, tmp_path: Path, ended: list[subprocess.Popen[bytes]]
) -> None:
    assert kept(place)[old.name] is None
    for words, cwd, why in (
        (("sleep", "600"), old, "works in"),
        (("python3", "-c", HOLDING, old / "train.py"), tmp_path, "open"),
        (("python3", "-c", MAPPING, old / "train.py"), tmp_path, "mapped"),
        (("python3", "-c", "import time; time.sleep(600)", old / "train.py"), tmp_path, "names it"),
        (
            ("python3", "-c", "import time; time.sleep(600)", place / "exp" / "train.py"),
            tmp_path,
            "which version",
        ),
    ):
        process = started(*words, cwd=cwd)
        ended.append(process)
        if HOLDING in words or MAPPING in words:
            assert process.stdout is not None and process.stdout.readline() == b"ready\n"
        wait_until_kept(place, old, why)
        prune(place)
        assert (old / "train.py").read_bytes() == b"print(1)\n"
        process.kill()
        process.wait()
    prune(place)
    assert not old.exists() and (place / "exp" / "train.py").read_bytes() == b"print(2)\n"


def test_a_version_that_a_queue_names_stays(place: Path, old: Path, tmp_path: Path) -> None:
    job = tmp_path / "job"
    job.mkdir()
    for name, text in (
        ("job.json", f'{{"workdir": "{old}"}}'),
        ("queue.txt", f"{old}/a.yaml lm\n"),
    ):
        (job / name).write_text(text)
        assert "the job in" in (kept(place, job)[old.name] or "")
        prune(place, job)
        assert old.exists()
        (job / name).unlink()
    (job / "job.json").write_text(f'{{"workdir": "{place}/exp"}}')
    assert "which version" in (kept(place, job)[old.name] or "")


def test_a_version_that_a_job_of_rgt_run_names_stays(
    agent: Agent, place: Path, old: Path, tmp_path: Path
) -> None:
    job = tmp_path / "home" / "jobs" / "train-1"
    job.mkdir(parents=True)
    (job / "job.json").write_text(f'{{"workdir": "{old}"}}')
    agent.env["HOME"] = str(tmp_path / "home")
    answer(agent, "prune", "--place", str(place))
    assert (old / "train.py").exists()


@pytest.mark.parametrize("name", ["results/loss.csv", "train.py", "link"])
def test_what_was_written_into_a_version_is_not_lost(place: Path, old: Path, name: str) -> None:
    (old / "__pycache__").mkdir()
    (old / "__pycache__" / "train.cpython-312.pyc").write_bytes(b"x")
    assert kept(place)[old.name] is None
    if name == "link":
        (old / name).symlink_to("train.py")
    else:
        (old / name).parent.mkdir(exist_ok=True)
        (old / name).write_text("print(7)\n")
    prune(place)
    assert "not pushed" in (kept(place)[old.name] or "") and (old / name).exists()


def test_a_version_whose_removal_was_killed_before_the_checks_gets_its_name_back(
    place: Path, old: Path
) -> None:
    (old / "result.txt").write_text("by a process that had just begun")
    aside = place / push_staging.FOLDER / f"out-{old.name}"
    old.rename(aside)
    later = time.time() + 2 * code_versions.UNFINISHED
    code_versions.unfinished(str(place), later, remove=True)
    assert (old / "result.txt").exists()
    assert not aside.exists()
    prune(place)
    assert "not pushed" in (kept(place)[old.name] or "")
    # Once it was checked, its record goes first: what is left then is removed.
    old.rename(aside)
    Path(push_staging.record_path(str(place), old.name)).unlink()
    code_versions.unfinished(str(place), later, remove=True)
    assert not aside.exists() and not old.exists()


def test_what_is_not_known_keeps(place: Path, old: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def nobody(*_: object) -> code_versions.PathUsers:
        held = code_versions.PathUsers()
        held.doubts.append("what process 7 uses cannot be read")
        return held

    monkeypatch.setattr(code_versions, "find_users", nobody)
    rows = code_versions.remove_unused(str(place), code_versions.list_versions(str(place), []), [])
    assert all("process 7" in row["kept"] for row in rows) and old.exists()


def test_who_begins_to_use_it_in_between_gets_it_back(
    place: Path, old: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = code_versions.list_versions(str(place), [])
    (chosen,) = [row for row in rows if row["path"] == str(old)]
    assert chosen["kept"] is None
    real = code_versions.find_users

    def just_begun(paths: list[str], jobs: list[str]) -> code_versions.PathUsers:
        held = real(paths, jobs)
        held.add_user(paths[-1], "process 8 works in it")
        return held

    monkeypatch.setattr(code_versions, "find_users", just_begun)
    code_versions.remove_unused(str(place), rows, [])
    assert chosen["kept"] == "process 8 works in it" and (old / "train.py").exists()


def test_what_is_written_into_it_in_between_is_not_lost(
    place: Path, old: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = code_versions.list_versions(str(place), [])
    real = code_versions.find_users

    def writing(paths: list[str], jobs: list[str]) -> code_versions.PathUsers:
        (Path(paths[-1]) / "loss.csv").write_text("1\n")
        return real(paths, jobs)

    monkeypatch.setattr(code_versions, "find_users", writing)
    code_versions.remove_unused(str(place), rows, [])
    assert (old / "loss.csv").read_text() == "1\n"


def test_pruning_follows_no_link_and_touches_nothing_else(
    agent: Agent, place: Path, old: Path, tmp_path: Path
) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("x")
    (place / "exp-000000000000").mkdir()
    (place / "other").mkdir()
    (place / ".rgt-push" / "in-old").symlink_to(tmp_path / "mine")
    os.utime(place / ".rgt-push" / "in-old", (1, 1), follow_symlinks=False)
    answer(agent, "prune", "--place", str(place))
    assert not old.exists() and (tmp_path / "mine" / "thesis.txt").exists()
    assert (place / "exp-000000000000").is_dir() and (place / "other").is_dir()
    assert (place / "exp" / "train.py").read_bytes() == b"print(2)\n"


def test_unfinished_pushes_go_after_a_day(agent: Agent, place: Path) -> None:
    plan = answer(agent, "plan", stdin=manifest("code", place, {"a": b"x" * 100}))
    staging = Path(plan["staging"])
    send(agent, plan, {"a": b"x" * 100})
    assert answer(agent, "prune", "--place", str(place))["unfinished"] == [] and staging.exists()
    for path in [staging, *staging.rglob("*")]:
        os.utime(path, (1, 1))
    assert answer(agent, "list", "--place", str(place))["unfinished"][0]["path"] == str(staging)
    answer(agent, "prune", "--place", str(place))
    assert not staging.exists()


def test_a_newer_version_on_the_box_is_not_replaced_silently(agent: Agent, tmp_path: Path) -> None:
    place = tmp_path / "data"
    files = {"exp/a.bin": b"one", "exp/b.bin": b"two"}
    assert pushed(agent, "data", place, files)["placed"] == 2
    assert (place / "exp/a.bin").stat().st_mtime_ns == 10**18
    assert pushed(agent, "data", place, files) | {"path": ""} == {
        "damaged": [], "refused": [], "same": 2, "placed": 0, "path": "",
    }  # fmt: skip
    (place / "exp/a.bin").write_bytes(b"mine")
    newer = {"exp/a.bin": b"uno", "exp/b.bin": b"due"}
    found = pushed(agent, "data", place, newer, mtime=2 * 10**18)
    assert found["placed"] == 2  # older on the box by the clock of the source
    (place / "exp/a.bin").write_bytes(b"mine")
    found = pushed(agent, "data", place, files)
    assert [row[0] for row in found["refused"]] == ["exp/a.bin", "exp/b.bin"]
    assert (place / "exp/a.bin").read_bytes() == b"mine"
    assert pushed(agent, "data", place, files, replace=True)["placed"] == 2
    assert (place / "exp/a.bin").read_bytes() == b"one"


@pytest.mark.parametrize("how", [HOLDING, MAPPING])
def test_what_a_process_has_open_is_not_replaced(
    agent: Agent, tmp_path: Path, how: str, ended: list[subprocess.Popen[bytes]]
) -> None:
    place = tmp_path / "data"
    pushed(agent, "data", place, {"a.bin": b"one", "b.bin": b"two"})
    process = started("python3", "-c", how, place / "a.bin", cwd=tmp_path)
    ended.append(process)
    assert process.stdout is not None and process.stdout.readline() == b"ready\n"
    new = {"a.bin": b"uno", "b.bin": b"due"}
    found = pushed(agent, "data", place, new, mtime=2 * 10**18, replace=True)
    assert [row[0] for row in found["refused"]] == ["a.bin"] and str(process.pid) in found[
        "refused"
    ][0][1]
    assert (place / "a.bin").read_bytes() == b"one" and (place / "b.bin").read_bytes() == b"due"


def test_what_may_be_open_is_not_replaced_unasked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unseen(_: list[str]) -> code_versions.PathUsers:
        held = code_versions.PathUsers()
        held.doubts.append("what process 7 uses cannot be read")
        return held

    monkeypatch.setattr(code_versions, "find_open_paths", unseen)
    (tmp_path / "a.bin").write_bytes(b"old")
    os.utime(tmp_path / "a.bin", (1, 1))
    for replace in (False, True):
        told = json.loads(manifest("data", tmp_path, {"a.bin": b"new"}, replace=replace))
        found = push_command.sort_data(push_staging.PushManifest(told), HashCache(None))
        assert found.going == (["a.bin"] if replace else [])
        assert [why for _, why in found.refused] == (
            [] if replace else ["what process 7 uses cannot be read"]
        )


def test_data_stay_in_their_place(agent: Agent, tmp_path: Path) -> None:
    place = tmp_path / "data"
    place.mkdir()
    (tmp_path / "out").mkdir()
    (place / "exp").symlink_to(tmp_path / "out")
    (place / "dir").mkdir()
    (place / "file").write_text("x")
    files = {"exp/a": b"1", "dir": b"2", "file/b": b"3", "good/c": b"4"}
    found = pushed(agent, "data", place, files)
    assert {row[0] for row in found["refused"]} == {"exp/a", "dir", "file/b"} and found[
        "placed"
    ] == 1
    assert list((tmp_path / "out").iterdir()) == []
    found = pushed(agent, "data", place, {"dir": b"2"}, mtime=4 * 10**18)
    assert found["refused"] == [["dir", "what is there is not a regular file"]]
    for path in ("../up", "/abs", "a//b", "a/../b", ".rgt-push/x", ""):
        assert (
            "not a path below"
            in answer(agent, "plan", stdin=manifest("data", place, {path: b"x"}), status=2)["words"]
        )


def test_pieces_that_nobody_asked_for_are_refused(agent: Agent, place: Path) -> None:
    data = b"x" * 100
    plan = answer(agent, "plan", stdin=manifest("code", place, {"a": data}))
    digest = hashlib.sha256(data).hexdigest()
    for head in (
        f"{digest} 50 50",
        f"{'0' * 64} 0 3",
        f"{digest} 0 101",
        "../../x 0 3",
        f"{digest} -5 3",
    ):
        done = agent.run(
            "push", "take", "--staging", plan["staging"], stdin=head.encode() + b"\n" + data
        )
        assert done.returncode == 2 and b"not requested" in done.stderr
    assert answer(agent, "publish", "--staging", plan["staging"])["damaged"] == [digest]
    assert not (place / "exp").exists()


def test_what_is_cut_off_goes_on_and_wrong_bytes_do_not_count(agent: Agent, place: Path) -> None:
    files = {"a": os.urandom(1000)}
    digest = hashlib.sha256(files["a"]).hexdigest()
    plan = answer(agent, "plan", stdin=manifest("code", place, files))
    answer(
        agent,
        "take",
        "--staging",
        plan["staging"],
        stdin=f"{digest} 0 1000\n".encode() + files["a"][:400],
    )
    plan = answer(agent, "plan", stdin=manifest("code", place, files))
    assert plan["wanted"] == [[digest, 400]] and plan["room"]["needed_bytes"] == 600
    blob = Path(plan["staging"]) / "blobs" / digest
    blob.write_bytes(b"y" * 400)
    send(agent, plan, files)
    assert answer(agent, "publish", "--staging", plan["staging"])["damaged"] == [digest]
    plan = answer(agent, "plan", stdin=manifest("code", place, files))
    assert plan["wanted"] == [[digest, 0]]
    send(agent, plan, files)
    path = answer(agent, "publish", "--staging", plan["staging"])["path"]
    assert (Path(path) / "a").read_bytes() == files["a"]


def opened_by(pid: int) -> set[str]:
    found = set()
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # closed meanwhile
            found.add(os.readlink(entry))
    return found


def test_bytes_of_a_killed_push_that_come_behind_the_plan_are_waited_for(
    agent: Agent, place: Path
) -> None:
    data = os.urandom(1000)
    digest = hashlib.sha256(data).hexdigest()
    told = manifest("code", place, {"a": data})
    staging = answer(agent, "plan", stdin=told)["staging"]
    blob, killed = Path(staging) / "blobs" / digest, FileLock(f"{staging}/take.lock")
    blob.write_bytes(data[:400])
    assert killed.acquire()
    assert answer(agent, "plan", stdin=told)["wanted"] == [[digest, 400]]
    blob.write_bytes(data[:700])
    words = agent.command("push", "take", "--staging", staging)
    again = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=agent.env)
    until(lambda: f"{staging}/take.lock" in opened_by(again.pid))
    killed.release()
    out, _ = again.communicate(f"{digest} 400 600\n".encode() + data[400:])
    assert json.loads(out) == {"took": 300}
    path = answer(agent, "publish", "--staging", staging)["path"]
    assert (Path(path) / "a").read_bytes() == data


@pytest.fixture
def tiny(tmp_path: Path) -> Iterator[Path]:
    mount = tmp_path / "tiny"
    mount.mkdir()
    if (
        os.geteuid()
        or subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "size=1m,nr_inodes=64", "x", mount]
        ).returncode
    ):
        pytest.skip("no tmpfs can be mounted here")
    yield mount
    subprocess.run(["umount", mount], check=True)


def test_a_full_disk(agent: Agent, tiny: Path) -> None:
    big = answer(agent, "plan", stdin=manifest("data", tiny / "d", {"a": b"x" * (2 << 20)}))
    assert big["room"]["needed_bytes"] == 2 << 20 and big["room"]["free_bytes"] <= 1 << 20
    many = answer(
        agent, "plan", stdin=manifest("code", tiny / "d", {str(n): b"%d" % n for n in range(100)})
    )
    assert many["room"]["needed_inodes"] > many["room"]["free_inodes"]
    assert not (tiny / "d").exists()
    files = {"a": os.urandom(700 << 10)}
    plan = answer(agent, "plan", stdin=manifest("code", tiny / "d", files))
    (tiny / "filler").write_bytes(b"x" * (500 << 10))  # somebody else was quicker
    assert "No space left" in send(agent, plan, files, status=74)["words"]
    assert not (tiny / "d" / "exp").exists()
    (tiny / "filler").unlink()
    plan = answer(agent, "plan", stdin=manifest("code", tiny / "d", files))
    assert plan["wanted"][0][1] > 0
    send(agent, plan, files)
    path = answer(agent, "publish", "--staging", plan["staging"])["path"]
    assert (Path(path) / "a").read_bytes() == files["a"] and not any(
        (tiny / "d/.rgt-push").glob("in-*")
    )


def test_two_pushes_of_the_same_do_not_write_over_each_other(
    agent: Agent, place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(push_command, "TAKE_WAITS_S", 0.1)
    files = {"a": b"x" * 100}
    plan = answer(agent, "plan", stdin=manifest("code", place, files))
    held = FileLock(str(Path(plan["staging"]) / "take.lock"))
    assert held.acquire()
    assert push_command.main(["take", "--staging", plan["staging"]]) == 3
    assert "the same push is already running" in capsys.readouterr().err
    held.release()


def test_somebody_elses_staging_is_not_used(agent: Agent, place: Path) -> None:
    if os.geteuid():
        pytest.skip("needs a second user")
    (place / ".rgt-push").mkdir(parents=True)
    os.chown(place / ".rgt-push", 12345, 12345)
    said = answer(agent, "plan", stdin=manifest("code", place, {"a": b"x"}), status=2)["words"]
    assert "not this user's directory" in said


def test_packed_pieces_are_written_as_they_were(agent: Agent, place: Path) -> None:
    data = b"step 1 loss 2.5\n" * 1000
    files = {"a": data}
    digest = hashlib.sha256(data).hexdigest()
    plan = answer(agent, "plan", stdin=manifest("code", place, files))
    first, rest = zlib.compress(data[:700]), data[700:]
    stream = f"{digest} 0 700 {len(first)}\n".encode() + first
    again = f"{digest} 0 700 {len(first)}\n".encode() + first
    stream += again + f"{digest} 700 {len(rest)}\n".encode() + rest
    answer(agent, "take", "--staging", plan["staging"], stdin=stream)
    path = answer(agent, "publish", "--staging", plan["staging"])["path"]
    assert (Path(path) / "a").read_bytes() == data


@pytest.mark.parametrize(
    ("count", "body"),
    [
        (700, b"no stream"),
        (700, zlib.compress(b"x" * 699)),
        (700, zlib.compress(b"x" * 10_000_000)),
        (700, b"x" * (3 << 20)),
    ],
)
def test_a_packed_piece_of_another_length_is_refused(
    agent: Agent, place: Path, count: int, body: bytes
) -> None:
    data = os.urandom(1000)
    digest = hashlib.sha256(data).hexdigest()
    plan = answer(agent, "plan", stdin=manifest("code", place, {"a": data}))
    head = f"{digest} 0 {count} {len(body)}\n".encode()
    refused = answer(agent, "take", "--staging", plan["staging"], stdin=head + body, status=2)
    assert "a packed piece" in refused["words"]
    cut = answer(
        agent, "take", "--staging", plan["staging"],
        stdin=f"{digest} 0 700 100\n".encode() + zlib.compress(data[:700])[:50],
    )  # fmt: skip
    assert cut["took"] == 0, "the connection broke off in the middle of it"


def test_edits_in_a_pushed_version_are_seen_and_a_second_copy_is_the_same_code(place: Path) -> None:
    first = version(place, 1)
    name = first.name
    assert queue_state.code_version(str(first / "sub"), edits=True) == name
    (first / "notes.txt").write_text("not pushed, such as results")
    assert queue_state.code_version(str(first), edits=True) == name
    (first / "train.py").write_text("print(1)  # edited")
    edited = queue_state.code_version(str(first), edits=True)
    assert edited is not None and re.fullmatch(rf"{name}\+edits-[0-9a-f]{{12}}", edited)
    assert queue_state.code_version(str(first)) == name, "a frame of a stream reads no file"
    again = version(place, 1)
    assert again.name == f"{name}.2"
    assert queue_state.code_version(str(again), edits=True) == name


@pytest.mark.parametrize("packs", [False, True])
async def test_empty_files_arrive_whether_blocks_are_packed_or_not(
    agent: Agent, place: Path, tmp_path: Path, packs: bool
) -> None:
    files = {"pkg/__init__.py": b"", "train.py": b"step()\n" * 400_000}
    for path, data in files.items():
        (tmp_path / "src" / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "src" / path).write_bytes(data)
    tree = {file.sha256: file for file in read_tree(tmp_path / "src", IgnoreRules(())).files}
    plan = answer(agent, "plan", stdin=manifest("code", place, files))
    wanted = [(tree[digest], have) for digest, have in plan["wanted"]]
    packer = block_packing.BlockPacker() if packs else None
    pieces = push_transport._iterate_pieces(wanted, lambda _: None, packer)
    stream = b"".join([piece async for piece in pieces])
    answer(agent, "take", "--staging", plan["staging"], stdin=stream)
    done = answer(agent, "publish", "--staging", plan["staging"])
    assert done["damaged"] == [], done
    assert {path: (Path(done["path"]) / path).read_bytes() for path in files} == files
