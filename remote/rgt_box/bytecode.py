"""Cache the packed agent's compiled modules in one file next to it.

Python caches nothing that it imports from a zip file, and compiling takes most of a verb's start. A
process adds the modules it has compiled to ``rgt-box-HASH.TAG.code`` (TAG is that of the Python
version), and the next process only loads them. The file is trusted like the agent itself: only this
user may write to it and its directory. Its content has a checksum, because it is not flushed to the
disk before the rename. The cache is optional: if it is missing, damaged or cannot be written,
modules are compiled as usual.
"""

from __future__ import annotations

import _frozen_importlib as bootstrap
import _frozen_importlib_external as external
import marshal
import os
import stat
import sys
import zlib

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import CodeType, ModuleType
    from typing import Any

    Known = dict[str, tuple[bool, bytes]]

PACKAGES = ("rgt_box", "rgt_wire")
ANEW = "RGT_BEGUN_ANEW"
"""Environment variable with the pid of a process that has restarted itself, until the restart is
complete.
"""
MOST_BYTES, PIECE = 16 << 20, 64 << 10
"""Maximum bytes of the file, and of one read."""
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


class CachingImporter:
    """Finds the agent's modules, compiled if possible, and stores what had to be compiled.

    Args:
        loader: Loader of the zipapp's ``__main__``.

    Attributes:
        added: Whether something was compiled here and stored.
    """

    def __init__(self, loader: Any) -> None:
        self._loader = loader
        self._archive = str(loader.archive)
        self._folder = os.path.dirname(self._archive) or "."
        tag = sys.implementation.cache_tag
        if tag:
            self._path = f"{os.path.splitext(self._archive)[0]}.{tag}.code"
        else:
            self._path = ""
        self._kept: CodeCache | None = None
        self._starts = True
        """During the start many modules are loaded in a row, so the file stays open; later it is
        opened per module.
        """
        self._new: Known = {}
        self.added = False

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        """Return the spec of an agent module; None for all other modules."""
        # None lets the other finders of sys.meta_path search for it.
        if not name.startswith(PACKAGES):
            return None
        kept = self._kept or CodeCache(self._path, self._folder)
        found = kept.read_module(name) or self._compile_module(name)
        if self._starts:
            self._kept = kept
        else:
            kept.close()
        if found is None:
            return None
        is_package, code = found
        file = os.path.join(self._archive, _module_file(name, is_package))
        loader: Any = self
        spec = bootstrap.ModuleSpec(
            name, loader, origin=file, loader_state=code, is_package=is_package
        )
        # Sets ``__file__``, from which `place.code_root` finds the zipapp.
        spec.has_location = True
        if is_package:
            spec.submodule_search_locations = [os.path.dirname(file)]
        return spec

    def create_module(self, spec: Any) -> None:
        """Return None, for the default module creation."""

    def exec_module(self, module: ModuleType) -> None:
        """Run a module's code."""
        spec: Any = module.__spec__
        code = spec.loader_state
        spec.loader_state = None
        # marshal is not safe against hostile data; ownership was checked when the file was opened.
        exec(marshal.loads(code), module.__dict__)

    def get_source(self, name: str) -> str | None:
        """Return a module's source, for tracebacks."""
        found = self._read_source(name)
        if found is None:
            return None
        return found[1].decode()

    def get_data(self, path: str) -> bytes:
        """Return a file of the zipapp, for `pkgutil.get_data`.

        Raises:
            OSError: There is no such file.
        """
        data: bytes = self._loader.get_data(path)
        return data

    def _read_source(self, name: str) -> tuple[bool, bytes] | None:
        for is_package in (False, True):
            try:
                return is_package, self._loader.get_data(_module_file(name, is_package))
            except OSError:
                pass
        return None

    def _compile_module(self, name: str) -> tuple[bool, bytes] | None:
        found = self._read_source(name)
        if found is None:
            return None
        file = os.path.join(self._archive, _module_file(name, found[0]))
        # Without docstrings: they are never read in the zipapp, and would use memory as long as the
        # process lives.
        code: CodeType = compile(found[1], file, "exec", dont_inherit=True, optimize=2)
        self._new[name] = found[0], marshal.dumps(code)
        return self._new[name]

    def save_new_modules(self) -> None:
        """Add newly compiled modules to the file, unless the agent was removed meanwhile.

        Close it.
        """
        new = self._new
        self._new = {}
        if self._kept is not None:
            self._kept.close()
        self._kept = None
        self._starts = False
        if (
            not new
            or not self._path
            or sys.dont_write_bytecode
            # `remove` has deleted the agent: its cache must not appear again.
            or not os.path.lexists(self._archive)
        ):
            return
        # Not only the pid: machines that share a home directory may have the same one.
        temporary = "%s.%d-%s.tmp" % (self._path, os.getpid(), os.urandom(4).hex())
        try:
            if not _is_ours(os.stat(self._folder)):
                return
            kept = CodeCache(self._path, self._folder)
            data = _pack_cache(dict(kept.read_modules(), **new))
            kept.close()
            # O_EXCL does not follow a link that another user has planted.
            fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            with open(fd, "wb") as file:
                file.write(zlib.crc32(data).to_bytes(4, "big") + data)
            os.rename(temporary, self._path)
        except OSError:
            try:
                os.unlink(temporary)
            except OSError:
                pass
        else:
            self.added = True


class CodeCache:
    """The cache file, of which only requested modules are read; empty if it is not trusted.

    Layout: checksum, length of the index, index, modules.

    Args:
        path: The file.
        folder: Its directory.
    """

    def __init__(self, path: str, folder: str) -> None:
        self._fd = -1
        self._at = 0
        """Offset of the modules in the file."""
        self._index: dict[str, tuple[bool, int, int]] = {}
        """Name → whether it is a package, its offset among the modules, its length."""
        try:
            # O_NONBLOCK: a pipe in its place would block the open.
            self._fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
            seen = os.fstat(self._fd)
            if stat.S_ISREG(seen.st_mode) and _is_ours(seen) and _is_ours(os.stat(folder)):
                self._read_index(seen.st_size)
        except OSError:
            pass

    def _read_index(self, size: int) -> None:
        head = os.pread(self._fd, 8, 0)
        if (
            len(head) < 8
            or size > MOST_BYTES
            or head[:4] != self._content_checksum().to_bytes(4, "big")
        ):
            return
        length = int.from_bytes(head[4:], "big")
        try:
            key, index = marshal.loads(os.pread(self._fd, length, 8))
        # marshal raises any of them for damaged data.
        except (EOFError, ValueError, TypeError):
            return
        if key == _interpreter_key():
            self._at = 8 + length
            self._index = index

    def _content_checksum(self) -> int:
        """Return the content's checksum.

        It is read in pieces: a large buffer would not be returned to the system.
        """
        found = 0
        at = 4
        while True:
            data = os.pread(self._fd, PIECE, at)
            if not data:
                return found
            found = zlib.crc32(data, found)
            at = at + len(data)

    def read_module(self, name: str) -> tuple[bool, bytes] | None:
        """Return whether a module is a package, and its code; None if it is not cached."""
        row = self._index.get(name)
        if row is None:
            return None
        return (row[0], os.pread(self._fd, row[2], self._at + row[1]))

    def read_modules(self) -> Known:
        """Return all modules."""
        return {
            name: (row[0], os.pread(self._fd, row[2], self._at + row[1]))
            for name, row in self._index.items()
        }

    def close(self) -> None:
        """Close the file; `read_module` then finds nothing."""
        self._index = {}
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def _pack_cache(known: Known) -> bytes:
    index = {}
    at = 0
    for name, (is_package, code) in known.items():
        index[name] = is_package, at, len(code)
        at += len(code)
    head = marshal.dumps((_interpreter_key(), index))
    codes = [code for _, code in known.values()]
    return b"".join([len(head).to_bytes(4, "big"), head, *codes])


def install_importer(loader: Any) -> None:
    """Find the agent's modules this way from now on; does nothing in an unpacked source tree."""
    if hasattr(loader, "archive"):
        # In front of zipimport, which would find the same modules uncompiled.
        sys.meta_path.insert(0, CachingImporter(loader))


def save_compiled() -> None:
    """Store the modules compiled so far."""
    for found in _importers():
        found.save_new_modules()


def restart_without_source(*words: str) -> None:
    """Store the compiled modules, and restart this process to free the memory of compiling.

    That is more than a MiB for the days that a recorder runs; it costs 30 ms at the first start of
    an agent.

    Args:
        words: Its command line.
    """
    from rgt_box import (
        place,
    )  # here: this module is imported first, to store what the others are compiled to

    save_compiled()
    begun = os.environ.pop(ANEW, "")
    if any(found.added for found in _importers()) and begun != str(os.getpid()) and sys.executable:
        os.environ[ANEW] = str(os.getpid())  # restart only once, whether or not the file was stored
        os.execv(sys.executable, place.agent_command(*words))


def _importers() -> list[CachingImporter]:
    return [found for found in sys.meta_path if isinstance(found, CachingImporter)]


def _module_file(name: str, is_package: bool) -> str:
    return name.replace(".", "/") + ("/__init__.py" if is_package else ".py")


def _is_ours(seen: os.stat_result) -> bool:
    return seen.st_uid == os.geteuid() and not seen.st_mode & _OTHERS_WRITE


def _interpreter_key() -> tuple[bytes, int]:
    return external.MAGIC_NUMBER, sys.flags.optimize
