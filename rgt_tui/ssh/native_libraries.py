"""Makes importing asyncssh cheap: no compiler is started to find out that a native library is missing.

It asks for liboqs and nettle by `ctypes.util.find_library`, which on Linux starts ldconfig, gcc and ld, one after the
other and for each of their names: a fifth of what the import costs, for every command that connects.
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
"""What `ldconfig -p` prints."""
ANY_LINKERS = ("/lib", "/lib64", "/usr/lib", "/usr/lib64", "/usr/local/lib", "/usr/local/lib64")


def may_be_there(name: str, cache: str = LOADERS_CACHE) -> bool:
    """Say whether `find_library` may find a library; no only where neither the loader knows it nor a linker sees it.

    Args:
        name: As for `find_library`.
        cache: The loader's; where it cannot be read, nothing is ruled out.
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
def told_quickly() -> Iterator[None]:
    """Have `find_library` rule out what is not there by itself, for the names that asyncssh asks for and no other."""
    import ctypes.util  # before the first frame of the dashboard nobody needs it

    find = ctypes.util.find_library

    def quick(name: str) -> str | None:
        if name in ASKED and not may_be_there(name):
            return None
        return find(name)

    ctypes.util.find_library = quick
    try:
        yield
    finally:
        ctypes.util.find_library = find


class ImportsAsyncssh:
    """An import hook that is in place until asyncssh is imported."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return how asyncssh is loaded; None for any other module."""
        found = PathFinder.find_spec(name, path, target) if name == "asyncssh" else None
        if found is None or found.loader is None:
            return None
        load = found.loader.exec_module

        def load_quickly(module: ModuleType) -> None:
            with told_quickly():
                load(module)
            if self in sys.meta_path:
                sys.meta_path.remove(self)

        setattr(found.loader, "exec_module", load_quickly)  # noqa: B010  (a method, of this one loader)
        return found


def begin() -> None:
    """Install the hook; only on Linux is such a search expensive."""
    if sys.platform == "linux" and "asyncssh" not in sys.modules:
        sys.meta_path.insert(0, ImportsAsyncssh())
