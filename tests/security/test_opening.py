"""Opening a file whose path somebody else chose."""

from __future__ import annotations

import errno
import os
import socket
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rgt_box import files


def content(path: str, follow_links: bool = True) -> bytes:
    with open(files.open_regular(path, follow_links=follow_links), "rb") as file:
        return file.read()


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
            assert files.read(str(path)) is None
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


def test_a_link_anywhere_in_a_path_is_followed_only_where_the_path_is_our_own(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "log").write_bytes(b"x")
    (tmp_path / "folder").symlink_to("real")
    (tmp_path / "real" / "link").symlink_to("log")
    (tmp_path / "real" / "loop").symlink_to("loop")
    for path in ["folder/log", "real/link", "real/loop", "folder/link", "folder/../real/log"]:
        with pytest.raises(OSError, match="symbolic link") as raised:
            files.open_regular(str(tmp_path / path), follow_links=False)
        assert raised.value.errno == errno.ELOOP
    assert content(str(tmp_path / "folder" / "link")) == b"x"


def test_a_path_that_is_swapped_between_look_and_opening_leads_nowhere_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The attacker wins the race each time: just after the look the file becomes a pipe or a link."""
    (tmp_path / "secret").write_bytes(b"secret")
    path, real = tmp_path / "log", os.open

    def swapping(make: Callable[[], None]) -> Callable[..., int]:
        def opened(name: str, *rest: int, **more: Any) -> int:
            if os.path.basename(name) == "log":
                path.unlink()
                make()
            return real(name, *rest, **more)

        return opened

    for make in (lambda: os.mkfifo(path), lambda: path.symlink_to("secret")):
        path.unlink(missing_ok=True)
        path.write_bytes(b"x")
        monkeypatch.setattr(os, "open", swapping(make))
        with pytest.raises(OSError, match=r"not a regular file|symbolic links"):
            files.open_regular(str(path), follow_links=False)
        monkeypatch.setattr(os, "open", real)
