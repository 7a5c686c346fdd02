"""What holds after a power loss: which calls reach the disk, in which order, and what is never written over."""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rgt_train.checkpoint import (
    ALIGN,
    diskio,
    fsync_dir,
    make_dirs,
    remove_path,
    replace_file,
    round_up_to_block,
    write_all,
    write_file,
    write_region,
)

SIZE = (1 << 20) + 123
"""Large enough for O_DIRECT, and no whole number of blocks."""


class Calls:
    """The calls that make something durable, by the path that they were made for, in their order."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.made: list[tuple[str, str]] = []
        self.refused: dict[str, int] = {}
        for name in ("fsync", "fdatasync", "replace", "rename", "unlink"):
            patch.setattr(os, name, self._wrap(name, getattr(os, name)))

    def _wrap(self, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(what: Any, *more: Any, **named: Any) -> Any:
            path = (
                os.readlink(f"/proc/self/fd/{what}")
                if isinstance(what, int)
                else os.fspath(more[0] if more else what)
            )
            self.made.append((name, os.path.basename(path)))
            if name in self.refused:
                raise OSError(self.refused[name], os.strerror(self.refused[name]))
            return real(what, *more, **named)

        return wrapped


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Calls:
    return Calls(monkeypatch)


def fds() -> int:
    """Return how many files are open; garbage of other tests may close some at any time."""
    return len(os.listdir("/proc/self/fd"))


class TestDirectories:
    def test_a_directory_is_synced(self, tmp_path: Path, calls: Calls) -> None:
        before = fds()
        fsync_dir(tmp_path)
        assert calls.made == [("fsync", tmp_path.name)]
        assert fds() <= before

    @pytest.mark.parametrize("number", [errno.EINVAL, errno.ENOTSUP])
    def test_one_that_cannot_be_synced_is_accepted(
        self, tmp_path: Path, calls: Calls, number: int
    ) -> None:
        before = fds()
        calls.refused["fsync"] = number
        fsync_dir(tmp_path)
        assert fds() <= before

    def test_one_that_fails_is_named(self, tmp_path: Path, calls: Calls) -> None:
        calls.refused["fsync"] = errno.EIO
        with pytest.raises(OSError, match=f"Input/output error: '{tmp_path}'") as caught:
            fsync_dir(tmp_path)
        assert caught.value.errno == errno.EIO

    def test_a_file_is_no_directory(self, tmp_path: Path) -> None:
        (tmp_path / "file").touch()
        with pytest.raises(NotADirectoryError):
            fsync_dir(tmp_path / "file")

    def test_every_name_on_the_way_is_synced(self, tmp_path: Path, calls: Calls) -> None:
        make_dirs(tmp_path / "a" / "b")
        assert (tmp_path / "a" / "b").is_dir()
        assert calls.made[-2:] == [("fsync", tmp_path.name), ("fsync", "a")]
        calls.made.clear()
        make_dirs(tmp_path / "a" / "b")
        assert calls.made == [("fsync", "a")], "whoever made it may have been killed before that"

    def test_a_parent_that_cannot_be_synced_is_not_ours(self, tmp_path: Path, calls: Calls) -> None:
        calls.refused["fsync"] = errno.EIO
        make_dirs(tmp_path / "a")
        assert (tmp_path / "a").is_dir()

    def test_what_is_in_the_way_is_told(self, tmp_path: Path) -> None:
        (tmp_path / "a").touch()
        with pytest.raises(OSError, match="a"):
            make_dirs(tmp_path / "a" / "b")


class TestFiles:
    def test_a_file_is_synced_and_its_mode_is_everybodys(
        self, tmp_path: Path, calls: Calls
    ) -> None:
        before = fds()
        write_file(tmp_path / "a", b"content")
        assert (tmp_path / "a").read_bytes() == b"content"
        assert calls.made == [("fsync", "a")]
        assert (tmp_path / "a").stat().st_mode & 0o777 == 0o644 & ~_umask()
        assert fds() <= before

    def test_a_published_file_is_never_written_again(self, tmp_path: Path) -> None:
        write_file(tmp_path / "a", b"old")
        with pytest.raises(FileExistsError):
            write_file(tmp_path / "a", b"new")
        assert (tmp_path / "a").read_bytes() == b"old"
        (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
        with pytest.raises(FileExistsError):
            write_file(tmp_path / "link", b"new")
        assert not (tmp_path / "elsewhere").exists(), "nor through a link that somebody laid there"

    def test_all_of_it_is_written(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        real = os.write
        monkeypatch.setattr(os, "write", lambda fd, data: real(fd, bytes(data)[:3]))
        write_file(tmp_path / "a", b"0123456789")
        assert (tmp_path / "a").read_bytes() == b"0123456789"

    def test_a_refused_write_names_the_file(self, tmp_path: Path) -> None:
        with pytest.raises(OSError, match="Bad file descriptor: 'x'"):
            write_all(-1, b"a", "x")

    def test_replaced_by_a_synced_file_and_then_the_directory(
        self, tmp_path: Path, calls: Calls
    ) -> None:
        (tmp_path / "a").write_bytes(b"old")
        (tmp_path / ".tmp-a").write_bytes(b"of a killed one")
        replace_file(tmp_path / "a", b"new")
        assert (tmp_path / "a").read_bytes() == b"new"
        assert calls.made == [
            ("unlink", ".tmp-a"),
            ("fsync", ".tmp-a"),
            ("replace", "a"),
            ("fsync", tmp_path.name),
        ]
        assert os.listdir(tmp_path) == ["a"]

    def test_a_bare_name_is_replaced_in_the_working_directory(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, calls: Calls
    ) -> None:
        monkeypatch.chdir(tmp_path)
        replace_file("a", b"new")
        assert calls.made[-1] == ("fsync", tmp_path.name)

    @pytest.mark.parametrize("call", ["fsync", "replace"])
    def test_what_could_not_be_replaced_is_as_it_was(
        self, tmp_path: Path, calls: Calls, call: str
    ) -> None:
        (tmp_path / "a").write_bytes(b"old")
        calls.refused[call] = errno.EIO
        with pytest.raises(OSError, match="Input/output"):
            replace_file(tmp_path / "a", b"new")
        assert (tmp_path / "a").read_bytes() == b"old"
        assert os.listdir(tmp_path) == ["a"]

    def test_removing(self, tmp_path: Path) -> None:
        (tmp_path / "kept" / "in").mkdir(parents=True)
        (tmp_path / "link").symlink_to(tmp_path / "kept")
        (tmp_path / "tree" / "in").mkdir(parents=True)
        (tmp_path / "file").touch()
        for name in ("link", "tree", "file", "nothing"):
            remove_path(tmp_path / name)
        assert os.listdir(tmp_path) == ["kept"]
        assert os.listdir(tmp_path / "kept") == ["in"], "a link goes, not what it leads to"


@pytest.fixture
def memory() -> memoryview:
    mapped = mmap.mmap(-1, round_up_to_block(SIZE))
    mapped[:] = os.urandom(len(mapped))
    return memoryview(mapped)


@pytest.fixture(params=["direct", "cached", "refused on the way", "short on the way"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """How the bytes get to the disk; a file system without O_DIRECT is made to look as if it had it."""
    if request.param == "cached":
        monkeypatch.setattr(diskio, "_set_direct", lambda fd, on: False)
        return "cached"
    monkeypatch.setattr(diskio, "CHUNK", 256 << 10)
    monkeypatch.setattr(diskio, "_set_direct", lambda fd, on: True)
    real, calls = os.write, [0]

    def write(fd: int, data: Any) -> int:
        calls[0] += 1
        if calls[0] == 2 and request.param == "refused on the way":
            raise OSError(errno.EINVAL, "Invalid argument")
        return real(
            fd, bytes(data)[:-5] if calls[0] == 2 and request.param == "short on the way" else data
        )

    monkeypatch.setattr(os, "write", write)
    return str(request.param)


class TestRegions:
    def test_a_file_is_as_long_as_asked_and_not_as_its_blocks(
        self, tmp_path: Path, memory: memoryview, way: str, calls: Calls
    ) -> None:
        before = fds()
        write_region(tmp_path / "a", memory, SIZE)
        assert (tmp_path / "a").read_bytes() == bytes(memory[:SIZE])
        assert calls.made[-1] == ("fsync", "a"), "its length, too"
        assert fds() <= before

    @pytest.mark.parametrize("refusal", ["refused", "short"])
    def test_what_the_disk_does_not_take_directly_goes_through_the_cache(
        self, tmp_path: Path, memory: memoryview, monkeypatch: pytest.MonkeyPatch, refusal: str
    ) -> None:
        """From there on, without the flag: no later write would be taken either."""
        flags: list[bool] = []
        real = os.write

        def write(fd: int, data: Any) -> int:
            flags.append(bool(fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_DIRECT))
            if len(flags) == 2 and refusal == "refused":
                raise OSError(errno.EINVAL, "Invalid argument")
            if len(flags) == 2:
                fcntl.fcntl(fd, fcntl.F_SETFL, fcntl.fcntl(fd, fcntl.F_GETFL) & ~os.O_DIRECT)
                done = real(fd, bytes(data)[:-5])
                fcntl.fcntl(fd, fcntl.F_SETFL, fcntl.fcntl(fd, fcntl.F_GETFL) | os.O_DIRECT)
                return done
            return real(fd, data)

        monkeypatch.setattr(diskio, "CHUNK", 512 << 10)
        monkeypatch.setattr(os, "write", write)
        write_region(tmp_path / "a", memory, SIZE)
        assert (tmp_path / "a").read_bytes() == bytes(memory[:SIZE])
        assert flags == (
            [True, True, *[False] * (len(flags) - 2)]
            if takes_direct(tmp_path)
            else [False] * len(flags)
        )

    def test_small_files_and_odd_memory_do_without(
        self, tmp_path: Path, memory: memoryview, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        asked: list[bool] = []
        real = diskio._set_direct

        def ask(fd: int, on: bool) -> bool:
            asked.append(on)
            return real(fd, on)

        monkeypatch.setattr(diskio, "_set_direct", ask)
        write_region(tmp_path / "small", memory, (1 << 20) - 1)
        write_region(tmp_path / "odd", memory[:SIZE], SIZE)
        assert asked == []
        write_region(tmp_path / "large", memory, 1 << 20)
        assert asked == [True]

    def test_with_the_real_flag(self, tmp_path: Path, memory: memoryview) -> None:
        for size in (0, 1, ALIGN, SIZE - 124, SIZE - 123, SIZE):
            write_region(tmp_path / str(size), memory, size)
            assert (tmp_path / str(size)).read_bytes() == bytes(memory[:size])

    def test_memory_without_a_whole_last_block_is_written_as_well(self, tmp_path: Path) -> None:
        data = os.urandom(SIZE)
        write_region(tmp_path / "a", memoryview(data), SIZE)
        assert (tmp_path / "a").read_bytes() == data

    def test_what_is_there_is_never_written_over(self, tmp_path: Path, memory: memoryview) -> None:
        (tmp_path / "a").write_bytes(b"old")
        with pytest.raises(FileExistsError, match="a"):
            write_region(tmp_path / "a", memory, SIZE)
        assert (tmp_path / "a").read_bytes() == b"old"

    def test_a_refused_write_names_the_file(
        self, tmp_path: Path, memory: memoryview, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        tried: list[int] = []

        def refuse(*_: Any) -> int:
            tried.append(1)
            raise OSError(errno.ENOSPC, "No space left on device")

        monkeypatch.setattr(os, "write", refuse)
        with pytest.raises(OSError, match=f"No space left on device: '{tmp_path}/a'") as caught:
            write_region(tmp_path / "a", memory, SIZE)
        assert caught.value.errno == errno.ENOSPC
        assert tried == [1], "what is full is not tried another way"

    def test_the_cache_is_flushed_and_left_on_the_way(
        self, tmp_path: Path, memory: memoryview, monkeypatch: pytest.MonkeyPatch, calls: Calls
    ) -> None:
        left: list[tuple[int, int]] = []
        monkeypatch.setattr(diskio, "_set_direct", lambda fd, on: False)
        monkeypatch.setattr(diskio, "CHUNK", 128 << 10)
        monkeypatch.setattr(diskio, "_FLUSH", 256 << 10)
        monkeypatch.setattr(
            os, "posix_fadvise", lambda fd, at, length, how: left.append((at, length))
        )
        write_region(tmp_path / "a", memory, SIZE)
        step = 256 << 10
        assert left == [(number * step, step) for number in range(4)]
        assert calls.made == [*[("fdatasync", "a")] * 4, ("fsync", "a")]

    def test_blocks(self) -> None:
        assert [round_up_to_block(size) for size in (0, 1, ALIGN - 1, ALIGN, ALIGN + 1)] == [
            0,
            ALIGN,
            ALIGN,
            ALIGN,
            2 * ALIGN,
        ]


def takes_direct(place: Path) -> bool:
    """Say whether the file system knows O_DIRECT; tmpfs does not."""
    try:
        os.close(os.open(place / "probe", os.O_WRONLY | os.O_CREAT | os.O_DIRECT))
    except OSError:
        return False
    return True


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
