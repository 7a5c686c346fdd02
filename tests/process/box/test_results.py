"""The results verb on real trees: whose files there are, what is left out, and that nothing is ever lost on the way."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import pytest

from rgt_tui.model import BoxResults, ResultGroup
from rgt_tui.ssh import remote_root
from tests.process.box.harness import Agent, make_job, private_mount, until
from tests.security.conftest import open_folder as open_folder

Groups = dict[str, ResultGroup]


def results(agent: Agent, root: Path, *words: str, home: Path | None = None) -> BoxResults:
    env = {
        "RGT_ROOTS": str(root),
        "HOME": str(home or root / "home"),
        "XDG_CACHE_HOME": str(root.parent / "cache"),
    }
    done = agent.run("results", *words, env=env)
    assert (done.returncode, done.stderr) == (0, b"")
    return msgspec.json.decode(done.stdout, type=BoxResults)


def groups(found: BoxResults) -> Groups:
    return {group.path: group for group in found.groups}


def put(path: Path, text: str = "x") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def fingerprint(*paths: Path) -> str:
    total = 0
    for path in paths:
        at = os.lstat(path)
        text = b"%s\0%d\0%d\0%d\0%d" % (
            os.fsencode(path),
            at.st_size,
            at.st_mtime_ns,
            at.st_ctime_ns,
            at.st_ino,
        )
        total += int.from_bytes(hashlib.sha256(text).digest(), "big")
    return hashlib.sha256(b"%d:%064x" % (len(paths), total % (1 << 256))).hexdigest()


@pytest.fixture
def box(tmp_path: Path) -> Path:
    root = tmp_path / "box"
    root.mkdir()
    return root


def test_cells_runs_globs_and_nobody_have_their_groups(agent: Agent, box: Path) -> None:
    job = make_job(box / "job", ["true"], ["a", "b"])
    put(box / "job/out/a/best/model.pt")
    put(box / "job/out/a/metrics.jsonl", "12345")
    put(box / "job/logs/a.log")
    put(box / "runs/r1/deep/er/ckpt.pt")
    put(box / "kept/one.csv")
    put(box / "left/behind.pt")
    words = ["--job", str(job), "--run", str(box / "runs/*"), "--results", str(box / "ke*")]
    found = results(agent, box, *words)
    owners = {group.path: (group.owner, group.files, group.bytes) for group in found.groups}
    assert owners == {
        str(box / "job"): (
            f"job {job}",
            4,
            (job / "job.json").stat().st_size + (job / "queue.txt").stat().st_size,
        ),
        str(box / "job/out/a"): ("cell a", 2, 6),
        str(box / "job/logs"): (f"job {job}", 1, 1),
        str(box / "runs/r1"): ("run r1", 1, 1),
        str(box / "kept"): (f"results {box / 'ke*'}", 1, 1),
        str(box / "left"): ("", 1, 1),
    }
    assert found.problems == ()


def test_a_fingerprint_is_what_the_docs_say_and_moves_with_every_change(
    agent: Agent, box: Path
) -> None:
    one, two = put(box / "run/a.pt"), put(box / "run/sub/b.pt")
    first = results(agent, box, "--run", str(box / "run"))
    assert groups(first)[str(box / "run")].fingerprint == fingerprint(one, two)
    assert results(agent, box, "--run", str(box / "run")).generation == first.generation
    was = os.stat(two)
    two.write_text("y")  # same size; same mtime, as a copy tool may leave it
    os.utime(two, ns=(was.st_atime_ns, was.st_mtime_ns))
    second = results(agent, box, "--run", str(box / "run"))
    assert groups(second)[str(box / "run")].fingerprint == fingerprint(one, two)
    assert len({first.generation, second.generation}) == 2
    os.rename(one, box / "run/c.pt")
    assert results(agent, box, "--run", str(box / "run")).generation not in (
        first.generation,
        second.generation,
    )


def results_on_young_box(agent: Agent, root: Path, *words: str) -> BoxResults:
    """Run `results` where every process is younger than this call: in a process namespace of its own."""
    flags = [] if os.geteuid() == 0 else ["-U", "-r"]
    alone = ["unshare", *flags, "--mount", "--pid", "--fork", "--mount-proc"]
    env = agent.env | {
        "RGT_ROOTS": str(root),
        "HOME": str(root / "home"),
        "XDG_CACHE_HOME": str(root.parent),
    }
    command = [*alone, *agent.command("results", *words)]
    done = subprocess.run(command, capture_output=True, env=env, check=False)
    assert (done.returncode, done.stderr) == (0, b"")
    return msgspec.json.decode(done.stdout, type=BoxResults)


@pytest.fixture
def made(box: Path) -> float:
    """When a machine was created whose image holds data/old.pt."""
    os.utime(put(box / "data/old.pt"), (1, 1))
    made = os.stat(box / "data/old.pt").st_ctime + 0.001
    until(lambda: time.time() > made + 0.05)
    return made


def test_only_what_changed_since_the_instance_was_made_counts(
    agent: Agent, box: Path, made: float
) -> None:
    old = put(box / "data/new.pt")
    os.utime(old, (1, 1))  # an old mtime alone, as `cp -p` and `tar` leave it, makes no file old
    found = results_on_young_box(agent, box, "--since", repr(made))
    data = groups(found)[str(box / "data")]
    assert (data.files, data.newest_path, found.since, found.no_since) == (1, str(old), made, "")
    (older,) = [item for item in found.skipped if item.rule == "older than the machine"]
    assert (older.files, older.bytes, older.newest_path) == (1, 1, str(box / "data/old.pt"))
    assert groups(results(agent, box))[str(box / "data")].files == 2


@pytest.mark.parametrize("words", [("--run", "data"), ("--results", "data/*.pt")])
def test_a_date_hides_nothing_that_somebody_owns(
    agent: Agent, box: Path, made: float, words: tuple[str, str]
) -> None:
    found = results_on_young_box(agent, box, words[0], str(box / words[1]), "--since", repr(made))
    assert [(group.path, group.files) for group in found.groups] == [(str(box / "data"), 1)]


def test_a_date_that_something_on_the_box_contradicts_hides_nothing(
    agent: Agent, box: Path, made: float
) -> None:
    """SkyPilot's `launched_at` moves with every launch; a clock that was wrong at the boot dates files too early."""
    put(box / "data/new.pt")
    future = time.time() + 1000
    found = results_on_young_box(agent, box, "--since", repr(future))
    assert (found.since, groups(found)[str(box / "data")].files) == (None, 2)
    assert "in the future" in found.no_since
    older = results(agent, box, "--since", repr(made))  # the processes of this test are older
    assert (older.since, groups(older)[str(box / "data")].files) == (None, 2)
    assert "the oldest process is older than the machine" in older.no_since


@pytest.mark.parametrize("name", [".dockerenv", "dev/null"])
def test_a_container_that_is_older_than_its_date_makes_the_date_unknown(
    agent: Agent, box: Path, name: str
) -> None:
    first = os.stat(put(box / name)).st_ctime
    put(box / "data/new.pt")
    until(lambda: time.time() > first + 2.2)  # beyond the seconds that two clocks may differ by
    found = results_on_young_box(agent, box, "--since", repr(first + 2.1))
    assert found.since is None and "is older than the machine" in found.no_since
    assert groups(found)[str(box / "data")].files == 1


def test_a_run_that_began_before_its_machine_makes_the_date_unknown(
    agent: Agent, box: Path, made: float
) -> None:
    run = {
        "name": "sft",
        "key": 1,
        "pid": 1,
        "ticks": 1,
        "started": made - 60,
        "ended": 2.0,
        "cwd": str(box),
    }
    agent.state.mkdir()
    (agent.state / "found.json").write_text(json.dumps({"boot": "x", "runs": [run]}))
    found = results_on_young_box(agent, box, "--since", repr(made))
    assert found.since is None and "a run is older than the machine" in found.no_since


CACHES = (
    "home/.cache/matplotlib/fontlist.txt",
    "home/.cache/pip/http/abc",
    "home/.cache/huggingface/hub/models--x/blobs/0123abcd",
    "home/.npm/_cacache/index",
    "home/.ssh/known_hosts",
    "home/.bash_history",
    "home/venv/bin/activate",
    "work/__pycache__/a.pyc",
    "home/venv/lib/python3.11/site-packages/torch/weights.pt",
    "work/node_modules/x/y.js",
)


def test_caches_and_packages_are_left_out_and_counted(agent: Agent, box: Path) -> None:
    for name in CACHES:
        put(box / name)
    put(box / "home/venv/pyvenv.cfg")
    put(
        box / "home/venv/lib/python3.11/site-packages/torch-2.dist-info/RECORD",
        "torch/weights.pt,,1\n",
    )
    found = results(agent, box)
    assert found.groups == ()
    assert sum(item.files for item in found.skipped) == len(CACHES) + 2
    assert {item.rule: item.proved for item in found.skipped} == {
        "caches": False,
        "compiled Python": True,
        "downloads": True,
        "in package directories, in no package's list": False,
        "node_modules": False,
        "packages, by their lists of files": True,
        "Python environments": False,
        "settings of programs": False,
        "start-up files and histories of shells": False,
    }
    (shells,) = [
        item for item in found.skipped if item.rule == "start-up files and histories of shells"
    ]
    assert shells.newest_path == str(box / "home/.bash_history")
    assert shells.newest == pytest.approx(os.stat(shells.newest_path).st_ctime)


HIDDEN = (
    "home/.cache/huggingface/hub/my-finetune/model.safetensors",
    "home/.cache/mine/pytorch_model.bin",
    "home/.config/ckpt.pt",
    "home/.best.pt",
    "home/venv/out/metrics.jsonl",
    "work/.pytest_cache/last.ckpt",
    "x/events.out.tfevents.17.host.1.0",
)


def test_no_rule_hides_a_checkpoint_outside_of_packages(agent: Agent, box: Path) -> None:
    for name in HIDDEN:
        put(box / name)
    put(box / "home/venv/pyvenv.cfg")
    found = results(agent, box)
    assert sum(group.files for group in found.groups) == len(HIDDEN)
    assert {group.path for group in found.groups} == {str((box / name).parent) for name in HIDDEN}


def test_in_a_runs_directory_nothing_is_a_cache(agent: Agent, box: Path) -> None:
    for name in (".cache/state", ".config/run.yaml", "venv/pyvenv.cfg", ".hydra/config.yaml"):
        put(box / "run" / name)
    put(box / "run/code/__pycache__/a.pyc")
    found = results(agent, box, "--run", str(box / "run"))
    assert [(group.owner, group.files) for group in found.groups] == [("run run", 4)]
    assert [(item.rule, item.files) for item in found.skipped] == [("compiled Python", 1)]


def test_what_a_person_ignores_is_left_out_by_name_and_shown(agent: Agent, box: Path) -> None:
    put(box / "data/train/1.npy")
    put(box / "data/keep.pt")
    found = results(agent, box, "--ignore", str(box / "data/train"), "--ignore", "*.tmp")
    assert [(group.path, group.files) for group in found.groups] == [(str(box / "data"), 1)]
    assert [(item.rule, item.files, item.bytes) for item in found.skipped] == [
        (f"ignored: {box}/data/train", 1, 1)
    ]


def test_what_outlives_the_instance_is_not_walked_but_named(agent: Agent, box: Path) -> None:
    """Where it really is storage of its own: in the demo's sandboxes, a tmpfs under a name that says so."""
    (box / "volume").mkdir()
    (box / "memory").mkdir()
    prefix = private_mount(
        f"mount -t tmpfs rgt-demo-disk {box}/volume", f"echo 1 > {box}/volume/model.pt",
        f"mount -t tmpfs none {box}/memory", f"echo 1 > {box}/memory/model.pt",
    )  # fmt: skip
    survives = [
        word for name in ("volume", "memory", "gone") for word in ("--survives", str(box / name))
    ]
    command = [*prefix, *agent.command("results", *survives)]
    done = subprocess.run(
        command, capture_output=True, env=agent.env | {"RGT_ROOTS": str(box)}, check=True
    )
    found = msgspec.json.decode(done.stdout, type=BoxResults)
    assert [group.path for group in found.groups] == [str(box / "memory")]
    assert [item.rule for item in found.skipped] == [f"outlives the instance: {box}/volume"]
    table = {row.path: row for row in found.mounts}
    assert table[str(box / "memory")].kind == "tmpfs"
    assert table[str(box / "memory")].device != table["/"].device != ""


def test_odd_names_special_files_and_loops_do_no_harm(agent: Agent, box: Path) -> None:
    put(box / "d/f.pt")
    (box / "d/self").symlink_to(".")
    (box / "d/up").symlink_to(box)
    (box / "d/out").symlink_to("/etc")
    os.mkfifo(box / "d/pipe")
    odd = os.path.join(os.fsencode(box), b"\xff\x1b[31m")
    os.mkdir(odd)
    with open(os.path.join(odd, b"\xfe.pt"), "wb") as file:
        file.write(b"1234")
    with socket.socket(socket.AF_UNIX) as unix:
        unix.bind(str(box / "d/sock"))
        found = results(agent, box)
    assert sorted((group.files, group.bytes) for group in found.groups) == [(1, 1), (1, 4)]
    assert found.problems == ()
    (strange,) = [group for group in found.groups if group.bytes == 4]
    assert "\N{REPLACEMENT CHARACTER}" in strange.path and strange.newest_path.endswith(
        "\N{REPLACEMENT CHARACTER}.pt"
    )


@pytest.mark.skipif(os.geteuid() != 0, reason="becomes another user")
def test_what_cannot_be_read_is_a_problem_and_no_empty_directory(
    agent: Agent, open_folder: Path
) -> None:
    box = open_folder / "box"
    put(box / "run/model.pt")
    put(box / "run/secret/other.pt")
    put(box / "theirs/x.pt")
    for closed in (box / "run/secret", box / "theirs"):
        closed.chmod(0o700)
    program = Path(
        shutil.copy(agent.path, open_folder)
    )  # where it lies only we come, and any pytest sees to that
    program.chmod(0o644)
    state = open_folder / "nobodys"
    command = [
        "setpriv",
        "--reuid",
        "65534",
        "--regid",
        "65534",
        "--clear-groups",
        "/usr/bin/python3",
        "-I",
        "-S",
    ]
    env = agent.env | {"RGT_ROOTS": str(box), "HOME": "/nonexistent", "RGT_STATE_DIR": str(state)}
    done = subprocess.run(
        [*command, str(program), "results", "--run", str(box / "run")],
        capture_output=True,
        env=env,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = msgspec.json.decode(done.stdout, type=BoxResults)
    assert sorted(found.problems) == [
        f"{box}/run/secret: Permission denied",
        f"{box}/theirs: Permission denied",
    ]
    assert groups(found)[str(box / "run")].problem == f"{box}/run/secret: Permission denied"
    assert groups(found)[str(box / "run")].files == 1


def test_many_directories_of_nobody_are_one_and_none_is_lost(agent: Agent, box: Path) -> None:
    for number in range(40):
        put(box / f"data/train/class{number}/1.npy")
        put(box / f"data/train/class{number}/deep/2.npy")
    put(box / "job-like/a.pt")
    put(box / "job-like/b/c.pt")
    found = groups(results(agent, box))
    assert {path: group.files for path, group in found.items()} == {
        str(box / "data/train"): 80,
        str(box / "job-like"): 1,
        str(box / "job-like/b"): 1,
    }
    everything = list((box / "data/train").rglob("*.npy"))
    assert found[str(box / "data/train")].fingerprint == fingerprint(*everything)


MANY = """
import os, resource, subprocess, sys
for folder in range(5000):
    path = "%s/a%d/b%d/c%d" % (sys.argv[1], folder % 10, folder % 100, folder)
    os.makedirs(path)
    for number in range(10):
        os.close(os.open("%s/%d" % (path, number), os.O_CREAT | os.O_WRONLY))
subprocess.run(sys.argv[2:], check=True)
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
"""


def test_fifty_thousand_files_take_little_memory(agent: Agent, box: Path) -> None:
    in_memory = private_mount(f"mount -t tmpfs -o nr_inodes=100000 none {box}")
    words = [*in_memory, agent.python, "-c", MANY, str(box), *agent.command("results")]
    done = subprocess.run(
        words, capture_output=True, env=agent.env | {"RGT_ROOTS": str(box)}, check=True
    )
    answer, peak = done.stdout.splitlines()
    found = msgspec.json.decode(answer, type=BoxResults)
    assert sum(group.files for group in found.groups) == 50_000
    assert len(found.groups) <= 300
    assert int(peak) < 64 << 10  # KiB


def test_groups_end_at_mounts_and_of_what_cannot_be_written_only_results_count(
    agent: Agent, box: Path
) -> None:
    put(box / "run/a.pt")
    for name in ("run/scratch", "host", "data"):
        (box / name).mkdir(parents=True, exist_ok=True)
    put(box / "data/shown.pt")
    put(box / "data/notes.txt")
    prefix = private_mount(
        f"mount -t tmpfs none {box}/run/scratch", f"echo 1 > {box}/run/scratch/b.pt",
        f"mount --bind {box}/data {box}/host", f"mount -o remount,bind,ro {box}/host",
        f"mkdir {box}/proc", f"mount -t proc none {box}/proc",
    )  # fmt: skip
    env = agent.env | {"RGT_ROOTS": str(box)}
    done = subprocess.run(
        [*prefix, *agent.command("results", "--run", str(box / "run"))],
        capture_output=True,
        env=env,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = msgspec.json.decode(done.stdout, type=BoxResults)
    assert {group.path: (group.owner, group.files) for group in found.groups} == {
        str(box / "run"): ("run run", 1),
        str(box / "run/scratch"): ("run run", 1),
        str(box / "data"): ("", 2),
        str(box / "host"): ("", 1),
    }
    assert [(item.rule, item.files) for item in found.skipped] == [("mounted read-only", 1)]


LOOKS = """
import sys
sys.path.insert(0, sys.argv[1])
from rgt_box.commands import result_walk
from rgt_box.sampling import disks
last = sys.argv[2]
assert last.encode() in result_walk.read_mounts().points, "results"
assert (last, "tmpfs") in disks.mount_table(), "disks"
"""


def test_a_long_table_of_mounts_is_read_to_its_end(tmp_path: Path) -> None:
    """The kernel gives a page of it at a time, as for some 40 mounts: a container with GPUs has more."""
    last = tmp_path / "m" / "79"
    mounts = f"for i in $(seq 1 79); do mkdir -p {tmp_path}/m/$i; mount -t tmpfs none {tmp_path}/m/$i; done"
    words = [*private_mount(mounts), sys.executable, "-c", LOOKS, str(remote_root()), str(last)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_a_training_that_was_found_has_its_directories_also_after_its_end(
    agent: Agent, box: Path
) -> None:
    put(box / "out/sft/checkpoint-5/model.safetensors")
    put(box / "logs/sft.log")
    run = {
        "name": "proj/sft",
        "key": 1,
        "pid": 1,
        "ticks": 1,
        "started": 1.0,
        "ended": 2.0,
        "cwd": str(box),
    }
    run |= {"dirs": [str(box / "out/sft")], "logs": [str(box / "logs/sft.log")]}
    agent.state.mkdir()
    (agent.state / "found.json").write_text(json.dumps({"boot": "x", "runs": [run]}))
    found = results(agent, box)
    assert {group.path: group.owner for group in found.groups} == {
        str(box / "out/sft"): "run proj/sft",
        str(box / "logs"): "run proj/sft",
    }


def test_what_a_found_training_saved_where_it_works_is_its_own(agent: Agent, box: Path) -> None:
    """Its arguments name no directory: its checkpoints and metrics show where it writes."""
    work, now = box / "work", time.time()
    old = [
        put(work / "lightning_logs/version_2/checkpoints/epoch=1-step=9.ckpt"),
        put(work / "data/MNIST/train-images"),
        put(work / "runs/detect/train3/results.csv", "epoch,loss\n1,2.5\n"),
    ]
    for path in old:
        os.utime(path, (now - 9000, now - 9000))
    put(work / "lightning_logs/version_3/hparams.yaml")
    put(work / "lightning_logs/version_3/checkpoints/epoch=4-step=250.ckpt")
    put(work / "multirun/0/metrics.csv", "epoch,step,train_loss\n0,1,2.5\n0,2,2.4\n")
    put(work / "multirun/0/.hydra/overrides.yaml")
    # Fetched by the training itself: beside its checkpoints, but no result.
    put(work / "exp/dataset/shard.bin")
    put(work / "exp/ckpt/model_100.pt")
    run = {"name": "work/main", "key": 1, "pid": 1, "ticks": 1, "started": now - 600, "seen": now}
    run |= {"cwd": str(work), "ended": now + 60}
    agent.state.mkdir()
    (agent.state / "found.json").write_text(json.dumps({"boot": "x", "runs": [run]}))
    owners = {group.path[len(str(work)) + 1 :]: group.owner for group in results(agent, box).groups}
    assert owners == {
        "lightning_logs/version_2/checkpoints": "",
        "lightning_logs/version_3": "run work/main",
        "data/MNIST": "",
        "runs/detect/train3": "",
        "multirun": "run work/main",
        "exp/dataset": "",
        "exp/ckpt": "run work/main",
    }


@pytest.mark.parametrize("older", [1000, 2 << 20], ids=["code", "a data set"])
def test_what_lies_beside_a_loose_checkpoint_is_claimed_with_it_unless_it_is_data(
    agent: Agent, box: Path, older: int
) -> None:
    work, now = box / "work", time.time()
    put(work / "model_epoch30.pth")
    put(work / "before.bin", "x" * older)
    os.utime(work / "before.bin", (now - 9000, now - 9000))
    run = {"name": "work/main", "key": 1, "pid": 1, "ticks": 1, "started": now - 600, "seen": now}
    agent.state.mkdir()
    (agent.state / "found.json").write_text(
        json.dumps({"boot": "x", "runs": [run | {"cwd": str(work), "ended": now + 60}]})
    )
    (group,) = results(agent, box).groups
    assert (group.path, group.files) == (str(work), 2)
    assert group.owner == ("run work/main" if older == 1000 else "")


def test_what_lay_beside_a_log_before_the_training_began_is_no_result_if_it_is_data(
    agent: Agent, box: Path
) -> None:
    """By the ctime, which no program sets: the training begins in the future here, and writes then."""
    work, began = box / "work", time.time() + 100
    large = "x" * (2 << 20)
    inputs = [
        put(work / name, large)
        for name in ("corpus.tar", "train.npy", "x_val.npz", "dataset.jsonl")
    ]
    # Code, and what an earlier training may have written.
    earlier = (
        "train.py",
        "model_best.pth",
        "preds.npy",
        "train_loss.npy",
        "cifar10.npz",
        "old.log",
        "train.tar",
        "wiki.jsonl",
    )
    kept = [put(work / name, large) for name in earlier[1:]]
    kept.append(put(work / earlier[0], "pass"))
    written = [put(work / name, large) for name in ("data.tar", "train.log", "model_9.pth")]
    for path in written:
        os.utime(path, (began + 50, began + 50))
    run = {"name": "work/main", "key": 1, "pid": 1, "ticks": 1, "started": began, "cwd": str(work)}
    run |= {"logs": [str(work / "train.log")], "seen": began + 60, "ended": began + 60}
    agent.state.mkdir()
    (agent.state / "found.json").write_text(json.dumps({"boot": "x", "runs": [run]}))
    found = results(agent, box)
    (group,) = found.groups
    assert (group.path, group.owner) == (str(work), "run work/main")
    assert group.files == len(kept) + len(written)
    (left_out,) = [row for row in found.skipped if "older than the training" in row.rule]
    assert (left_out.files, left_out.proved) == (len(inputs), False)
    # The same without the log: the loose checkpoint is the run's.
    del run["logs"]
    (agent.state / "found.json").write_text(json.dumps({"boot": "x", "runs": [run]}))
    for path in kept[:-1]:
        path.unlink()
    (group,) = results(agent, box).groups
    assert (group.owner, group.files) == ("run work/main", 1 + len(written))
