"""Compiled modules of the packed agent, in one file beside it.

Python keeps nothing of what it imports from a zip file, and compiling is most of a verb's start. What a process has
compiled it adds to ``rgt-box-HASH.TAG.code``, TAG being that of the Python; the next one only loads it. The file is
believed as the agent itself is: it and its directory are this user's alone to write to. Its content carries a checksum,
for it is not brought to the disk before it takes its name. Nothing depends on it: where it is missing, damaged, or
cannot be written, modules are compiled as ever.
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

PACKAGE = "rgt_box"
MOST_BYTES = 16 << 20
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


class Importer:
    """Finds the agent's modules, compiled if possible, and keeps what had to be compiled.

    Args:
        loader: Of the zipapp's ``__main__``.
    """

    def __init__(self, loader: Any) -> None:
        self._loader, self._archive = loader, str(loader.archive)
        self._folder = os.path.dirname(self._archive) or "."
        tag = sys.implementation.cache_tag
        self._path = "%s.%s.code" % (os.path.splitext(self._archive)[0], tag) if tag else ""
        self._known = self._read()
        self._new: Known = {}

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        """Return how a module of the agent is loaded; None for every other one."""
        if not name.startswith(PACKAGE):
            return None
        found = self._known.pop(name, None) or self._compiled(name)
        if found is None:
            return None
        is_package, code = found
        file = os.path.join(self._archive, _file(name, is_package))
        loader: Any = self
        spec = bootstrap.ModuleSpec(name, loader, origin=file, loader_state=code, is_package=is_package)
        spec.has_location = True
        if is_package:
            spec.submodule_search_locations = [os.path.dirname(file)]
        return spec

    def create_module(self, spec: Any) -> None:
        """Have the usual module made."""

    def exec_module(self, module: ModuleType) -> None:
        """Run a module's code."""
        spec: Any = module.__spec__
        code, spec.loader_state = spec.loader_state, None
        exec(marshal.loads(code), module.__dict__)

    def get_source(self, name: str) -> str | None:
        """Return a module's source, for tracebacks."""
        found = self._source(name)
        return None if found is None else found[1].decode()

    def get_data(self, path: str) -> bytes:
        """Return a file of the zipapp, for `pkgutil.get_data`.

        Raises:
            OSError: there is none.
        """
        data: bytes = self._loader.get_data(path)
        return data

    def _source(self, name: str) -> tuple[bool, bytes] | None:
        for is_package in (False, True):
            try:
                return is_package, self._loader.get_data(_file(name, is_package))
            except OSError:
                pass
        return None

    def _compiled(self, name: str) -> tuple[bool, bytes] | None:
        found = self._source(name)
        if found is None:
            return None
        file = os.path.join(self._archive, _file(name, found[0]))
        code: CodeType = compile(found[1], file, "exec", dont_inherit=True)
        self._new[name] = found[0], marshal.dumps(code)
        return self._new[name]

    def save(self) -> None:
        """Add what was compiled to the file, unless the agent has been removed meanwhile."""
        new, self._new = self._new, {}
        if not new or not self._path or sys.dont_write_bytecode or not os.path.lexists(self._archive):
            return
        temporary = "%s.%d.tmp" % (self._path, os.getpid())
        try:
            if not _is_ours(os.stat(self._folder)):
                return
            data = marshal.dumps((_key(), dict(self._read(), **new)))
            fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            with open(fd, "wb") as file:
                file.write(zlib.crc32(data).to_bytes(4, "big") + data)
            os.rename(temporary, self._path)
        except OSError:
            try:
                os.unlink(temporary)
            except OSError:
                pass

    def _read(self) -> Known:
        """Return what the file holds; {} where it is not ours, not whole, or another Python's."""
        try:
            fd = os.open(self._path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
            try:
                seen = os.fstat(fd)
                if not (stat.S_ISREG(seen.st_mode) and _is_ours(seen) and _is_ours(os.stat(self._folder))):
                    return {}
                data = memoryview(os.pread(fd, MOST_BYTES, 0))
            finally:
                os.close(fd)
        except OSError:
            return {}
        if zlib.crc32(data[4:]).to_bytes(4, "big") != data[:4]:
            return {}
        try:
            key, known = marshal.loads(data[4:])
        except (EOFError, ValueError, TypeError):
            return {}
        return known if key == _key() else {}


def install(loader: Any) -> None:
    """Have the agent's modules found this way from now on; unpacked, Python does so by itself."""
    if hasattr(loader, "archive"):
        sys.meta_path.insert(0, Importer(loader))


def save() -> None:
    """Keep what was compiled by now."""
    for found in sys.meta_path:
        if isinstance(found, Importer):
            found.save()


def _file(name: str, is_package: bool) -> str:
    return name.replace(".", "/") + ("/__init__.py" if is_package else ".py")


def _is_ours(seen: os.stat_result) -> bool:
    return seen.st_uid == os.geteuid() and not seen.st_mode & _OTHERS_WRITE


def _key() -> tuple[bytes, int]:
    return external.MAGIC_NUMBER, sys.flags.optimize
