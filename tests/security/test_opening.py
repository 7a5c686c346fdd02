"""Opening a file whose path somebody else chose."""

from __future__ import annotations

import errno
import os
import signal
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rgt_box import files

from tests.process.box.harness import until

NOBODY = 65534
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to act as a second user")


def content(path: str, follow_links: bool) -> bytes:
    with open(files.open_regular(path, follow_links=follow_links), "rb") as file:
        return file.read()


def descriptors() -> set[str]:
    """Return what this process has open: compared with `<=`, as an earlier test's may be collected meanwhile."""
    return set(os.listdir("/proc/self/fd"))


@pytest.mark.parametrize("follow_links", [True, False])
def test_a_regular_file_is_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, follow_links: bool
) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "log").write_bytes(b"x")
    assert content(str(tmp_path / "a" / "log"), follow_links) == b"x"
    monkeypatch.chdir(tmp_path)
    assert content("a/log", follow_links) == b"x"
    assert content("./a//../a/log", follow_links) == b"x"
    fd = files.open_regular("a/log", follow_links)
    assert os.get_inheritable(fd) is False
    os.close(fd)


@pytest.mark.parametrize("follow_links", [True, False])
def test_nothing_but_a_regular_file_is_opened(tmp_path: Path, follow_links: bool) -> None:
    os.mkfifo(tmp_path / "fifo")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "socket"))
        for path in [tmp_path, tmp_path / "fifo", tmp_path / "socket", "/dev/zero", "/dev/null"]:
            with pytest.raises(OSError, match="not a regular file"):
                files.open_regular(str(path), follow_links)
            assert files.read_file(str(path)) is None
    with pytest.raises(FileNotFoundError):
        files.open_regular(str(tmp_path / "none"), follow_links)
    with pytest.raises(NotADirectoryError):
        files.open_regular(f"/proc/{os.getpid()}/stat/x", follow_links)


@pytest.mark.parametrize("follow_links", [True, False])
def test_who_writes_to_a_pipe_never_sees_a_reader(tmp_path: Path, follow_links: bool) -> None:
    """One who waits in open(2) to write would be let in, and ended by SIGPIPE once we leave."""
    path = str(tmp_path / "fifo")
    os.mkfifo(path)
    opened = threading.Event()

    def write() -> None:
        os.close(os.open(path, os.O_WRONLY))
        opened.set()

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for _ in range(200):
            with pytest.raises(OSError, match="not a regular file"):
                files.open_regular(path, follow_links)
        assert not opened.is_set()
    finally:
        os.close(os.open(path, os.O_RDONLY))
        writer.join()


def given_to_nobody(*paths: Path) -> None:
    for path in paths:
        os.chown(path, NOBODY, NOBODY, follow_symlinks=False)


@needs_root
def test_links_of_ones_own_of_root_and_of_the_owner_of_the_file_are_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``/workspace → /mnt/x`` is root's, ``~/out → /data/out`` a colleague's whose file it leads to."""
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "log").write_bytes(b"x")
    (tmp_path / "folder").symlink_to("real")
    (tmp_path / "whole").symlink_to(tmp_path / "real")
    (tmp_path / "real" / "link").symlink_to("../folder/log")
    paths = [
        "folder/log",
        "real/link",
        "folder/link",
        "folder/../real/log",
        "whole/../folder/./link",
    ]
    for path in paths:
        assert content(str(tmp_path / path), follow_links=False) == b"x"
    monkeypatch.chdir(tmp_path)
    assert content("whole/log", follow_links=False) == b"x"
    given_to_nobody(*tmp_path.rglob("*"))
    for path in paths:
        assert content(str(tmp_path / path), follow_links=False) == b"x"


@needs_root
def test_a_link_of_another_user_does_not_lead_to_a_file_that_is_not_theirs(tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(b"secret")
    (tmp_path / "secrets").mkdir()
    (tmp_path / "secrets" / "log").write_bytes(b"secret")
    evil = tmp_path / "evil"
    evil.mkdir()
    (evil / "log").symlink_to(tmp_path / "secret")
    (evil / "near").symlink_to("../secret")
    (evil / "out").symlink_to(tmp_path / "secrets")
    (evil / "hop").symlink_to("log")
    given_to_nobody(evil, *evil.iterdir())
    (tmp_path / "own").symlink_to("evil/log")  # one of ours that leads on through one of theirs
    for path in ["evil/log", "evil/near", "evil/out/log", "evil/hop", "own"]:
        with pytest.raises(OSError, match="another user's symbolic link") as raised:
            files.open_regular(str(tmp_path / path), follow_links=False)
        assert raised.value.errno == errno.ELOOP
        assert content(str(tmp_path / path), follow_links=True) == b"secret"


def test_links_that_lead_nowhere_end(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "one").symlink_to("two")
    (tmp_path / "two").symlink_to("one")
    (tmp_path / "here").symlink_to(".")
    (tmp_path / "log").write_bytes(b"x")
    for path in ["loop", "one", "loop/log"]:
        with pytest.raises(OSError, match="Too many levels") as raised:
            files.open_regular(str(tmp_path / path), follow_links=False)
        assert raised.value.errno == errno.ELOOP
    assert content(str(tmp_path / "/".join(["here"] * 40 + ["log"])), follow_links=False) == b"x"
    with pytest.raises(OSError, match="Too many levels"):
        files.open_regular(str(tmp_path / "/".join(["here"] * 41 + ["log"])), follow_links=False)


def test_no_descriptor_stays_open(tmp_path: Path) -> None:
    (tmp_path / "here").symlink_to(tmp_path)
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "log").write_bytes(b"x")
    before = descriptors()
    for name in ["here/here/log", "here/loop", "here", "log/x", "here/none"]:
        try:
            os.close(files.open_regular(str(tmp_path / name), follow_links=False))
        except OSError:
            continue
    assert descriptors() <= before


def test_a_file_that_only_a_process_still_has_is_opened_by_its_descriptor(tmp_path: Path) -> None:
    path = tmp_path / "log"
    with path.open("w+b") as file:
        file.write(b"x")
        file.flush()
        path.unlink()
        for process in (os.getpid(), "self"):
            assert content(f"/proc/{process}/fd/{file.fileno()}", follow_links=False) == b"x"
    reader, writer = os.pipe()
    with pytest.raises(OSError, match="not a regular file"):
        files.open_regular(f"/proc/self/fd/{reader}", follow_links=False)
    os.close(reader)
    os.close(writer)


def test_what_a_process_has_open_is_looked_at_and_opened_as_one_thing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its process may put something else under the number at any moment: a device acts when it is opened."""
    (tmp_path / "log").write_bytes(b"x")
    os.mkfifo(tmp_path / "fifo")
    number = os.open(tmp_path / "log", os.O_RDONLY)
    real, reached = os.open, []

    def swapped(name: str, flags: int, **more: Any) -> int:
        if not flags & os.O_PATH:
            pipe = real(tmp_path / "fifo", os.O_PATH)
            os.dup2(pipe, number)
            os.close(pipe)
        fd = real(name, flags, **more)
        reached.append((os.readlink(f"/proc/self/fd/{fd}"), bool(flags & os.O_PATH)))
        return fd

    monkeypatch.setattr(os, "open", swapped)
    assert content(f"/proc/self/fd/{number}", follow_links=False) == b"x"
    assert (str(tmp_path / "fifo"), False) not in reached
    monkeypatch.setattr(os, "open", real)
    os.close(number)


@needs_root
def test_links_inside_of_a_container_stay_inside(tmp_path: Path) -> None:
    """A process of another root: ``/proc/PID/root`` leads to its files, and its links mean its own tree."""
    inside = tmp_path / "inside"
    (inside / "data").mkdir(parents=True)
    (inside / "data" / "log").write_bytes(b"inside")
    (inside / "absolute").symlink_to("/data/log")
    (inside / "upwards").symlink_to("../../../../data/log")
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "log").write_bytes(b"outside")
    child = os.fork()
    if not child:
        os.chroot(inside)
        signal.pause()
        os._exit(0)
    try:
        until(lambda: os.readlink(f"/proc/{child}/root") == str(inside))
        for name in ["data/log", "absolute", "upwards", "../data/log", "data/../../data/log"]:
            assert content(f"/proc/{child}/root/{name}", follow_links=False) == b"inside"
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def test_a_path_that_is_swapped_between_look_and_opening_leads_nowhere_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The attacker wins the race each time: just after the look the file becomes a pipe or a link."""
    (tmp_path / "secret").write_bytes(b"secret")
    path, real = tmp_path / "log", os.open

    def swapping(make: Callable[[], None]) -> Callable[..., int]:
        def opened(name: str, flags: int, **more: Any) -> int:
            if name == "log" and not flags & os.O_PATH:
                path.unlink()
                make()
            return real(name, flags, **more)

        return opened

    for make in (lambda: os.mkfifo(path), lambda: path.symlink_to("secret")):
        path.unlink(missing_ok=True)
        path.write_bytes(b"x")
        monkeypatch.setattr(os, "open", swapping(make))
        before = descriptors()
        with pytest.raises(OSError, match=r"not a regular file|symbolic links"):
            files.open_regular(str(path), follow_links=False)
        assert descriptors() <= before
        monkeypatch.setattr(os, "open", real)


def opened(opener: files.CachedOpener, path: Path) -> bytes:
    with open(opener.open_file(str(path)), "rb") as file:
        return file.read()


def test_who_opens_many_files_walks_to_their_directory_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a", "b"):
        (tmp_path / name).write_text(name)
    walks: list[str] = []
    real = files.open_folder

    def open_folder(path: str) -> int:
        walks.append(path)
        return real(path)

    monkeypatch.setattr(files, "open_folder", open_folder)
    opener = files.CachedOpener()
    assert [opened(opener, tmp_path / name) for name in "aba"] == [b"a", b"b", b"a"]
    assert walks == [str(tmp_path)]
    opener.close()


def test_a_kept_directory_lets_nothing_in_that_the_walk_refuses(tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(b"secret")
    there = tmp_path / "there"
    there.mkdir()
    (there / "good").write_bytes(b"good")
    (there / "evil").symlink_to(tmp_path / "secret")
    os.mkfifo(there / "fifo")
    opener = files.CachedOpener()
    assert opened(opener, there / "good") == b"good"
    for name, why in (
        ("evil", "symbolic link"),
        ("fifo", "not a regular file"),
        ("none", "No such file"),
        ("", "now a directory"),
        ("..", "now a directory"),
    ):
        with pytest.raises(OSError, match=why):
            opener.open_file(f"{there}/{name}")
        assert opened(opener, there / "good") == b"good"
    opener.close()


def test_a_directory_is_opened_through_no_link(tmp_path: Path) -> None:
    """A walk resolves its root first; what takes the place of a part of it after that is not followed."""
    home = tmp_path / "home"
    (home / "runs").mkdir(parents=True)
    (home / "file").write_bytes(b"x")
    (tmp_path / "link").symlink_to(home)
    before = descriptors()
    os.close(files.open_folder(str(home / "runs")))
    os.close(files.open_folder("/"))
    for path in ("link", "link/runs"):
        with pytest.raises(OSError, match="symbolic link"):
            files.open_folder(str(tmp_path / path))
    for path, kind in (("home/file", NotADirectoryError), ("home/none", FileNotFoundError)):
        with pytest.raises(kind):
            files.open_folder(str(tmp_path / path))
    assert descriptors() <= before


def test_a_directory_that_was_exchanged_is_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 100.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    (tmp_path / "at").mkdir()
    (tmp_path / "at" / "log").write_bytes(b"old")
    opener = files.CachedOpener()
    assert opened(opener, tmp_path / "at" / "log") == b"old"
    (tmp_path / "at").rename(tmp_path / "away")
    (tmp_path / "at").mkdir()
    (tmp_path / "at" / "log").write_bytes(b"new")
    now += files.KEPT_SECONDS
    assert opened(opener, tmp_path / "at" / "log") == b"new"
    opener.close()
