from __future__ import annotations

import ctypes
import json
import os
import shutil
import signal
import subprocess
import sys
import zipapp
import zipfile
from pathlib import Path
from typing import Any

import msgspec
import pytest
from rgt_box import place
from rgt_box.recorder import control, state_files

from rgt_tui.model import protocol
from rgt_tui.ssh import read_frame
from tests.process.box.harness import PATIENCE, Agent, private_mount, until


def status(agent: Agent) -> dict[str, object]:
    done = agent.run("record", "--status")
    assert done.returncode == 0, done.stderr
    found: dict[str, object] = json.loads(done.stdout)
    return found


def test_there_is_one_recorder_however_often_it_is_started(agent: Agent) -> None:
    starts = [
        subprocess.Popen(agent.command("record"), stdout=subprocess.PIPE, env=agent.env)
        for _ in range(4)
    ]
    pids = {json.loads(process.communicate(timeout=60)[0])["pid"] for process in starts}
    assert pids == {status(agent)["pid"]}
    assert agent.start("record", "--foreground").wait(60) == 3


@pytest.mark.parametrize("gone", ["its state directory", "its home"])
def test_one_whose_directory_is_gone_ends_and_makes_none_again(agent: Agent, gone: str) -> None:
    """A home that was removed came back, and the recorder ran on for days."""
    assert agent.run("record").returncode == 0
    pid = agent.recorder_pid()
    assert pid is not None
    folder = agent.state if gone == "its state directory" else agent.state.parent
    away = folder.with_name(folder.name + "-away")
    folder.rename(away)  # at once, and complete
    shutil.rmtree(away)
    until(lambda: not Path(f"/proc/{pid}").exists(), "the recorder has ended")
    assert not agent.state.exists()


def test_one_whose_agent_file_is_gone_ends_and_says_why(agent: Agent, tmp_path: Path) -> None:
    packed = tmp_path / "rgt-box-0123456789abcdef.pyz"
    zipapp.create_archive(
        Path(place.code_root()), packed, main="rgt_box.__main__:main", filter=only_agent
    )
    words = [sys.executable, "-I", "-S", str(packed), "record"]
    done = subprocess.run(
        words, env=agent.env, capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stderr
    pid = agent.recorder_pid()
    assert pid is not None
    packed.unlink()
    until(lambda: not Path(f"/proc/{pid}").exists(), "the recorder has ended")


def only_agent(path: Path) -> bool:
    return path.parts[0] in ("rgt_box", "rgt_wire") and "__pycache__" not in path.parts


def test_who_starts_one_at_the_same_moment_as_another_leaves_it_its_status(
    agent: Agent, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The recorder of the other one begins after it was seen that none runs, and says once that it does."""
    assert agent.run("record").returncode == 0
    looks = iter([False])
    really = control.is_running
    monkeypatch.setattr(control, "is_running", lambda folder: next(looks, True) and really(folder))
    ended = tmp_path / "ended"
    told = ["/bin/sh", "-c", f'"$@"; echo $? >{ended}', "sh"]
    monkeypatch.setattr(place, "agent_command", lambda *words: [*told, *agent.command(*words)])
    monkeypatch.setenv("RGT_STATE_DIR", str(agent.state))
    pid = agent.recorder_pid()
    found = control.ensure_running(str(agent.state))
    assert found is not None and found["pid"] == pid
    assert until(lambda: ended.exists() and ended.read_text()) == "3\n"
    assert status(agent)["pid"] == pid


def test_one_that_takes_over_is_stopped_as_well(
    agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two have been started: the second gets the lock when the first one leaves."""
    assert agent.run("record").returncode == 0
    first = agent.recorder_pid()
    later: list[subprocess.Popen[bytes]] = []
    really = os.kill

    def kill(pid: int, number: int) -> None:
        really(pid, number)
        if number == signal.SIGTERM and pid == first:
            until(lambda: not control.is_running(str(agent.state)))
            later.append(agent.start("record", "--foreground"))
            until(lambda: control.live_status(str(agent.state)))

    monkeypatch.setattr(os, "kill", kill)
    assert control.stop_recorder(str(agent.state), within=PATIENCE)
    assert later[0].wait(PATIENCE) == 0


def test_a_failure_of_before_does_not_stand_for_the_one_that_starts_now(agent: Agent) -> None:
    agent.state.mkdir(exist_ok=True)
    old = {
        "pid": 1,
        "ticks": 0,
        "error": "the ring in /old cannot be written: No space left on device",
    }
    (agent.state / state_files.STATUS).write_text(json.dumps(old))
    done = agent.run("record")
    assert done.returncode == 0, done.stderr
    assert "error" not in json.loads(done.stdout)


def test_it_is_a_daemon_of_its_own_session(agent: Agent) -> None:
    agent.run("record")
    pid = agent.recorder_pid()
    assert pid is not None
    assert os.getsid(pid) != os.getsid(0)
    assert os.path.samefile(f"/proc/{pid}/cwd", "/")
    assert {os.readlink(f"/proc/{pid}/fd/{fd}") for fd in (0, 1, 2)} == {"/dev/null"}


def test_stop_ends_it_and_is_no_error_without_one(agent: Agent) -> None:
    agent.run("record")
    pid = agent.recorder_pid()
    agent.stop_recorder()
    assert not Path(f"/proc/{pid}").exists() or agent.recorder_pid() is None
    assert agent.run("record", "--stop").returncode == 0
    assert agent.run("record", "--status").returncode == 1


def other_agent(agent: Agent, folder: Path, version: int = state_files.VERSION) -> Agent:
    """An agent of another build, whose recorder calls itself `version`."""
    path = folder / f"rgt-box-00000000dead{version:04x}.pyz"
    with zipfile.ZipFile(agent.path) as packed, zipfile.ZipFile(path, "w") as changed:
        for name in packed.namelist():
            text = packed.read(name)
            if name == "rgt_box/recorder/state_files.py":
                text = text.replace(
                    b"VERSION = %d" % state_files.VERSION, b"VERSION = %d" % version
                )
            changed.writestr(name, text)
    return Agent(path, agent.state)


def test_clients_of_different_versions_share_the_newest_recorder(
    agent: Agent, tmp_path: Path
) -> None:
    agent.run("record")
    first = agent.recorder_pid()
    newer = other_agent(agent, tmp_path, state_files.VERSION + 1)
    newer.run("record")
    pids = []
    for _ in range(3):
        channels = {"new": newer.watch(interval=0.05), "old": agent.watch(interval=0.05)}
        for channel in channels.values():
            channel.expect(lambda frame: isinstance(frame, protocol.Sample))
        pids.append(agent.recorder_pid())
        for channel in channels.values():
            channel.close()
    assert len(set(pids)) == 1
    assert pids[0] != first
    assert status(agent)["version"] == state_files.VERSION + 1


def test_a_recorder_of_the_same_version_goes_on(agent: Agent, tmp_path: Path) -> None:
    agent.run("record")
    first = agent.recorder_pid()
    channel = other_agent(agent, tmp_path).watch(interval=0.05)
    assert channel.expect(lambda frame: isinstance(frame, protocol.Sample))
    assert agent.recorder_pid() == first
    channel.close()


def test_two_clients_at_once_get_the_same_samples(agent: Agent) -> None:
    channels = [agent.watch(interval=0.05), agent.watch(interval=0.05, packed_lines=True)]
    lines = [channel.lines() for channel in channels]
    found: list[dict[int, protocol.Sample]] = [{}, {}]
    # By turns: either of them may have begun so much later that the first samples of the other are not among its own.
    while len(found[0].keys() & found[1].keys()) <= 10:
        for samples, rest in zip(found, lines, strict=True):
            frame = next(
                frame for frame in map(read_frame, rest) if isinstance(frame, protocol.Sample)
            )
            samples[frame.seq] = msgspec.structs.replace(frame, skipped=0)
    shared = found[0].keys() & found[1].keys()
    assert all(found[0][seq] == found[1][seq] for seq in shared)
    for channel in channels:
        channel.close()


def test_a_stale_lock_file_with_a_foreign_pid_harms_nobody(agent: Agent) -> None:
    bystander = subprocess.Popen(["sleep", "1000"])
    try:
        agent.state.mkdir()
        (agent.state / state_files.LOCK).write_text(json.dumps({"pid": bystander.pid, "ticks": 1}))
        agent.run("record")
        agent.stop()
        assert bystander.poll() is None
    finally:
        bystander.kill()
        bystander.wait()


def test_it_ends_by_itself_when_nobody_watches(agent: Agent) -> None:
    agent.run("record", "--idle-hours", "0.00001")
    until(lambda: agent.run("record", "--status").returncode == 1, "the end")


def test_what_no_longer_watches_is_forgotten(agent: Agent) -> None:
    channel = agent.watch(interval=0.05)
    channel.sync()
    assert len(list(agent.state.glob("watch-*.json"))) == 1
    channel.process.send_signal(signal.SIGKILL)
    channel.kill()
    until(lambda: not list(agent.state.glob("watch-*.json")))


REFUSALS = [("size=40k", "No space left on device"), ("size=1m,ro", "Read-only file system")]


def run_in(agent: Agent, options: str, folder: Path, memory: Path) -> list[dict[str, Any]]:
    """Watch for a moment with a state directory on a file system of its own; returns the frames."""
    folder.mkdir()
    found = folder.parent / "frames"
    found.touch()
    feed = (
        f"""echo '{{"interval": 0.05}}'; while [ $(wc -l < {found}) -lt 8 ]; do sleep 0.02; done"""
    )
    script = f'({feed}) | "$@" watch > {found}; "$@" record --stop; true'
    enter = private_mount(f"mount -t tmpfs -o {options} none {folder}")
    env = agent.env | {"RGT_STATE_DIR": str(folder), "RGT_RAM_DIR": str(memory)}
    subprocess.run(
        [*enter, "sh", "-c", script, "sh", *agent.command()],
        env=env,
        timeout=60,
        check=True,
    )
    return [json.loads(line) for line in found.read_bytes().splitlines()]


@pytest.mark.parametrize(("options", "why"), REFUSALS)
def test_without_room_on_disk_the_history_is_kept_in_memory(
    agent: Agent, tmp_path: Path, options: str, why: str
) -> None:
    memory = tmp_path / "memory"
    memory.mkdir()
    frames = run_in(agent, options, tmp_path / "state", memory)
    (event,) = [frame for frame in frames if frame.get("kind") == "history-in-memory"]
    assert why in event["text"]
    numbers = [frame["seq"] for frame in frames if frame["t"] in ("sample", "event")]
    assert len(numbers) > 3
    assert numbers == list(range(1, len(numbers) + 1))
    assert list(memory.glob("rgt-*/ring/*.seg"))


@pytest.mark.parametrize(("options", "why"), REFUSALS)
def test_without_any_room_the_watch_samples_by_itself_and_says_so(
    agent: Agent, tmp_path: Path, options: str, why: str
) -> None:
    frames = run_in(agent, options, tmp_path / "state", tmp_path / "nowhere")
    (event,) = [frame for frame in frames if frame["t"] == "event"]
    assert (event["kind"], why in event["text"]) == ("no-recorder", True)
    numbers = [frame["seq"] for frame in frames if frame["t"] == "sample"]
    assert len(numbers) > 3
    assert numbers == list(range(1, len(numbers) + 1))
    assert any("no recorder" in text for text in frames[0]["limited"])


def test_a_disk_that_fills_up_does_not_stop_the_recorder(agent: Agent, tmp_path: Path) -> None:
    mount = tmp_path / "state"
    mount.mkdir()
    config = json.dumps({"interval": 0.05, "mounts": [str(mount)]})
    wait = "while [ $(%s ../frames) -lt %d ]; do sleep 0.02; done"
    (tmp_path / "frames").touch()
    some, full = wait % ("wc -l <", 10), wait % ("""grep -c '"bytes_free":0[,}]'""", 7)
    feed = f"(echo '{config}'; {some}; cat /dev/zero > fill; {full}) 2>/dev/null"
    script = feed + ' | "$@" watch > ../frames; "$@" record --stop; true'
    enter = private_mount(f"mount -t tmpfs -o size=3m none {mount}", f"cd {mount}")
    env = agent.env | {"RGT_STATE_DIR": str(mount), "RGT_RAM_DIR": str(tmp_path)}
    subprocess.run(
        [*enter, "sh", "-c", script, "sh", *agent.command()], env=env, timeout=60, check=True
    )
    frames = [json.loads(line) for line in (tmp_path / "frames").read_bytes().splitlines()]
    numbers = [frame["seq"] for frame in frames if frame["t"] in ("sample", "event")]
    assert numbers == list(range(1, len(numbers) + 1))
    disks = [
        disk for frame in frames for disk in frame.get("disks", []) if disk["mount"] == str(mount)
    ]
    assert len([disk for disk in disks if disk["bytes_free"] == 0]) > 5


def test_configurations_of_all_watchers_are_merged() -> None:
    entries = [
        {
            "config": {
                "interval": 5,
                "mounts": ["/a"],
                "jobs": [],
                "notices": ["ec2"],
                "pattern": "x",
                "gpu_trace": "t",
                "find": True,
            }
        },
        {
            "config": {
                "interval": 0.001,
                "mounts": ["/b", "/a"],
                "jobs": ["j"],
                "pattern": "y",
                "gpu_trace": None,
            }
        },
    ]
    assert control.merge_configs(entries, {}) == {
        "interval": control.MIN_INTERVAL,
        "mounts": ["/a", "/b"],
        "jobs": ["j"],
        "notices": ["ec2"],
        "pattern": "y",
        "gpu_trace": "t",
        "find": True,
    }
    assert control.merge_configs([], {"interval": 3}) == {"interval": 3}


@pytest.mark.parametrize(
    ("due", "interval", "now", "expected"),
    [(10, 1, 10.2, 11), (10, 1, 13.5, 14), (10, 1, 4.0, 5.0), (10, 1, 11, 11)],
)
def test_ticks_keep_their_grid_and_missed_ones_are_left_out(
    due: float, interval: float, now: float, expected: float
) -> None:
    assert state_files.next_tick(due, interval, now) == expected


def test_what_an_armed_stop_has_left_behind_goes_where_nothing_is_armed(agent: Agent) -> None:
    agent.state.mkdir(parents=True, exist_ok=True)
    left = agent.state / "autostop-state.json"
    left.write_text("{}")
    assert agent.run("record").returncode == 0
    until(lambda: not left.exists(), "a look at it")


FREED = """
import os
from rgt_box import procstat

assert not procstat.release_freed_memory(), "ctypes is not loaded for it"
import ctypes

held = [bytes(4000) for _ in range(20000)]
held = held[::100]
before = procstat.resident_bytes(os.getpid())
print(procstat.release_freed_memory(), before - procstat.resident_bytes(os.getpid()))
"""


def test_what_is_free_between_things_that_are_held_goes_back_to_the_system() -> None:
    done = subprocess.run([sys.executable, "-c", FREED], capture_output=True, text=True, check=True)
    if not hasattr(ctypes.CDLL(None), "malloc_trim"):
        assert done.stdout.split()[0] == "False", "there is no such call in this libc"
        return
    assert done.stdout.split()[0] == "True"
    assert int(done.stdout.split()[1]) > 40_000_000, "of some 80 MB one in a hundred pieces is held"
