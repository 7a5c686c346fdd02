"""Temporary directories of the agent: known as its own by their name, and removed by a later agent if it was killed."""

from __future__ import annotations

import contextlib
import os
import re
import tempfile
import time

from rgt_box import landing, place, procstat

KEPT_S = 86400.0
"""Seconds after which one of another container is removed, too: whether that process lives cannot be seen from here."""
_NAME = re.compile(r"rgt-tmp-(\d+)-(\d+)-(\d+)-\w+")
"""With the namespace of processes, the pid, and its start in ticks."""


def make() -> str:
    """Make an empty directory, and remove those whose process was killed; return its path.

    Raises:
        OSError: it cannot be made.
    """
    collect()
    pid = os.getpid()
    owner = place.namespace(), pid, procstat.start_ticks(pid) or 0
    return tempfile.mkdtemp(prefix="rgt-tmp-%d-%d-%d-" % owner)


def listed() -> list[str]:
    """Return those that are there: no link, and nobody else can read or write in them."""
    folder = tempfile.gettempdir()
    try:
        names = os.listdir(folder)
    except OSError:
        return []
    paths = [os.path.join(folder, name) for name in names if _NAME.fullmatch(name)]
    return [path for path in paths if landing.is_private(path)]


def collect() -> None:
    """Remove those whose process has ended."""
    for path in listed():
        if _is_left(path):
            import shutil  # here: it brings three packers along

            shutil.rmtree(path, ignore_errors=True)


def _is_left(path: str) -> bool:
    match = _NAME.fullmatch(os.path.basename(path))
    if match is None:
        return False
    namespace, pid, ticks = map(int, match.groups())
    if namespace == place.namespace():
        return not procstat.is_alive(pid, ticks)
    with contextlib.suppress(OSError):
        return time.time() - os.stat(path).st_mtime > KEPT_S
    return False
