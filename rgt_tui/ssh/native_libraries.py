"""Makes importing asyncssh fast: no compiler is started to find a missing native library.

asyncssh searches for liboqs and nettle with `ctypes.util.find_library`, which on Linux runs
ldconfig, gcc and ld, one after the other and for each name: a fifth of the import time of every
command that connects.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType

ASKED = frozenset({"oqs", "liboqs", "nettle", "libnettle", "libnettle-6"})
LOADERS_CACHE = "/etc/ld.so.cache"
"""The data that `ldconfig -p` prints."""
ANY_LINKERS = ("/lib", "/lib64", "/usr/lib", "/usr/lib64", "/usr/local/lib", "/usr/local/lib64")


def may_be_there(name: str, cache: str = LOADERS_CACHE) -> bool:
    """Return whether `find_library` may find a library; False only if loader and linker cannot.

    Args:
        name: As for `find_library`.
        cache: The loader's cache; if it cannot be read, nothing is ruled out.
    """
    file = f"lib{name}.so"
    try:
        if file.encode() in Path(cache).read_bytes():
            return True
    except OSError:
        return True
    given = (os.environ.get(what, "") for what in ("LD_LIBRARY_PATH", "LIBRARY_PATH"))
    machine = getattr(sys.implementation, "_multiarch", "")
    own = (f"{prefix}/lib" for prefix in (sys.prefix, sys.base_prefix))
    places = [
        *":".join(given).split(":"),
        *own,
        *ANY_LINKERS,
        *(f"{one}/{machine}" for one in ANY_LINKERS),
    ]
    return any(Path(place, file).exists() for place in places if place)


@contextmanager
def fast_library_search() -> Iterator[None]:
    """Make `find_library` fail fast for missing libraries, only for asyncssh's names."""
    import ctypes.util  # not needed before the first frame of the dashboard

    find = ctypes.util.find_library

    def find_known_library(name: str) -> str | None:
        if name in ASKED and not may_be_there(name):
            return None
        return find(name)

    ctypes.util.find_library = find_known_library
    try:
        yield
    finally:
        ctypes.util.find_library = find


class ImportsAsyncssh:
    """An import hook that is installed until asyncssh is imported."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the spec of asyncssh; None for any other module."""
        if name == "asyncssh":
            found = PathFinder.find_spec(name, path, target)
        else:
            found = None
        if found is None or found.loader is None:
            return None
        load = found.loader.exec_module

        def load_quickly(module: ModuleType) -> None:
            with fast_library_search():
                load(module)
            if self in sys.meta_path:
                sys.meta_path.remove(self)

        setattr(found.loader, "exec_module", load_quickly)  # noqa: B010  (a method, of this one loader)
        return found


def install_hook() -> None:
    """Install the hook, only on Linux, where the search is slow."""
    if sys.platform == "linux" and "asyncssh" not in sys.modules:
        sys.meta_path.insert(0, ImportsAsyncssh())
