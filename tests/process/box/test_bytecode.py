"""What the packed agent has compiled is kept beside it, believed only where it is its own, and never needed."""

from __future__ import annotations

import os
import shutil
import subprocess
import zlib
from importlib.util import MAGIC_NUMBER
from pathlib import Path

import pytest
from rgt_box.bytecode import ANEW

from tests.process.box.harness import Agent, pythons, until

VERB = ("manifest", "--help")
TRAP = b"usage: trapped"


@pytest.fixture
def packed(agent_file: Path, tmp_path: Path) -> Agent:
    """An agent in a directory of its own."""
    folder = tmp_path / "cache"
    folder.mkdir(mode=0o700)
    shutil.copy(agent_file, folder)
    return Agent(folder / agent_file.name, tmp_path / "state")


def kept(agent: Agent) -> list[Path]:
    return sorted(agent.path.parent.glob("*.code"))


def told(agent: Agent) -> bytes:
    done = agent.run(*VERB)
    assert (done.returncode, done.stderr) == (0, b"")
    return done.stdout.split(b"\n")[0]


def set_trap(agent: Agent, how: str) -> None:
    """Make a kept file that says something else, whole by its checksum; `how` says why it must not be believed."""
    [path] = kept(agent)
    data = path.read_bytes()[4:]
    assert b"usage: manifest" in data
    data = data.replace(b"usage: manifest", TRAP.ljust(15))
    sum_ = zlib.crc32(data) if how != "damaged" else 1
    path.write_bytes(sum_.to_bytes(4, "big") + data)
    if how == "open":
        path.chmod(0o620)
    elif how == "foreign":
        os.chown(path, 65534, 65534)
    elif how == "open folder":
        path.parent.chmod(0o777)
    elif how == "link":
        path.rename(path.with_name("elsewhere"))
        path.symlink_to("elsewhere")


@pytest.mark.parametrize("python", pythons(between=pytest.mark.full))
def test_each_python_keeps_its_own_and_runs_from_it(packed: Agent, python: str) -> None:
    packed.python = python
    assert told(packed).startswith(b"usage: manifest")
    [path] = kept(packed)
    assert path.stat().st_mode & 0o777 == 0o600
    before = path.stat()
    set_trap(packed, "none")
    assert (
        told(packed)
        == TRAP.ljust(15)
        + b" PATH... [--out FILE] [--cache FILE | --no-cache] [--no-hash [--job DIR]...]"
    )
    assert path.stat().st_ino == before.st_ino, "nothing was compiled anew"


@pytest.mark.parametrize("how", ["damaged", "open", "foreign", "open folder", "link"])
def test_what_another_could_have_written_or_is_damaged_is_not_run(packed: Agent, how: str) -> None:
    if how == "foreign" and os.geteuid() != 0:
        pytest.skip("needs root: it gives a file away")
    told(packed)
    set_trap(packed, how)
    assert told(packed).startswith(b"usage: manifest")
    if how != "open folder":  # it stays as it is: nothing is written there
        assert told(packed).startswith(b"usage: manifest")
        assert not kept(packed)[0].is_symlink() and TRAP not in kept(packed)[0].read_bytes()


@pytest.mark.parametrize("cut", [0, 3, 4, 100, -1])
def test_a_torn_file_is_compiled_anew(packed: Agent, cut: int) -> None:
    told(packed)
    [path] = kept(packed)
    whole = path.read_bytes()
    path.write_bytes(whole[:cut])
    assert told(packed).startswith(b"usage: manifest")
    assert zlib.crc32(path.read_bytes()[4:]).to_bytes(4, "big") == path.read_bytes()[:4]


def test_another_verb_adds_its_modules_and_the_name_of_another_python_is_no_key(
    packed: Agent,
) -> None:
    told(packed)
    [path] = kept(packed)
    first = path.read_bytes()
    assert packed.run("grep", "--help").returncode == 0
    assert (
        b"rgt_box.commands.grep" in path.read_bytes()
        and b"rgt_box.commands.manifest" in path.read_bytes()
    )
    data = first[4:].replace(MAGIC_NUMBER, b"\x01\x02\r\n").replace(b"usage: m", b"usage: x")
    path.write_bytes(zlib.crc32(data).to_bytes(4, "big") + data)
    assert told(packed).startswith(b"usage: manifest"), "another Python's"


def test_a_folder_that_takes_nothing_and_an_agent_that_has_gone_cost_nothing(packed: Agent) -> None:
    packed.path.parent.chmod(0o777)
    assert told(packed).startswith(b"usage: manifest")
    assert kept(packed) == []
    packed.path.parent.chmod(0o700)
    (packed.path.parent / f"{packed.path.stem}.cpython-311.code").mkdir()
    assert told(packed).startswith(b"usage: manifest")
    assert not list(packed.path.parent.glob("*.tmp"))


def test_a_traceback_shows_the_source(packed: Agent) -> None:
    code = """
import sys, zipimport
sys.path.insert(0, sys.argv[1])
from rgt_box import bytecode
bytecode.install_importer(zipimport.zipimporter(sys.argv[1]))
from rgt_box import options
bytecode.save_compiled()
import traceback
try:
    options.parse_options(["--x", "1"], {"--x": "no kind"}, "")
except KeyError:
    traceback.print_exc()
"""
    for _ in range(2):
        words = [packed.python, "-I", "-S", "-c", code, str(packed.path)]
        done = subprocess.run(words, capture_output=True, check=False)
        assert b"KeyError" in done.stderr and b"return kinds[kind](value)" in done.stderr
        assert len(kept(packed)) == 1


def begun_anew(pid: int) -> bool:
    """Whether a process was begun a second time; in its environment as the kernel has it, for it forgets that."""
    return f"{ANEW}={pid}".encode() in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")


def test_what_runs_for_days_begins_anew_once_after_it_was_compiled(packed: Agent) -> None:
    for first in (True, False):
        channel = packed.watch(interval=0.2)
        assert b'"hello"' in next(channel.lines())
        pid = until(packed.recorder_pid, "the recorder")
        assert pid is not None
        assert [begun_anew(number) for number in (channel.process.pid, pid)] == [first, first]
        channel.close()
        packed.stop()


def test_where_nothing_is_kept_nothing_is_begun_anew(packed: Agent) -> None:
    packed.path.parent.chmod(0o777)
    channel = packed.watch(interval=0.2)
    assert b'"hello"' in next(channel.lines())
    assert not begun_anew(channel.process.pid)
    channel.close()
    packed.stop()


def test_a_file_that_can_be_written_and_never_read_costs_one_more_beginning(packed: Agent) -> None:
    code = """
import os, sys, zipimport
sys.path.insert(0, sys.argv[1])
from rgt_box import bytecode
bytecode.install_importer(zipimport.zipimporter(sys.argv[1]))
from rgt_box import place
place.agent_command = lambda *_: [sys.executable, "-I", "-S", "-c", *sys.orig_argv[4:]]
bytecode.MOST_BYTES = 1
print("begun", flush=True)
bytecode.restart_without_source()
print(os.environ.get(bytecode.ANEW))
"""
    words = [packed.python, "-I", "-S", "-c", code, str(packed.path)]
    done = subprocess.run(words, capture_output=True, check=False, timeout=60)
    assert done.stdout.split() == [b"begun", b"begun", b"None"], done.stderr


def test_removing_the_agent_removes_it_and_nothing_puts_it_back(packed: Agent) -> None:
    packed.env.update(HOME=str(packed.path.parent.parent), RGT_SPARE_DIRS="", PATH="/nonexistent")
    packed.env["XDG_CACHE_HOME"] = str(packed.path.parent.parent / "xdg")
    (packed.path.parent.parent / "xdg").mkdir()
    place = packed.path.parent.parent / "xdg/rgt"
    packed.path.parent.rename(place)
    packed.path = place / packed.path.name
    told(packed)
    assert len(kept(packed)) == 1
    done = packed.run("remove")
    assert done.returncode == 0, done.stdout
    assert b"its compiled modules" in done.stdout
    assert not place.exists()
