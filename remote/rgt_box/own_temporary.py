"""Temporary directories of the agent, recognised by name, and removed later if it was killed."""

from __future__ import annotations

import contextlib
import os
import re
import tempfile
import time

from rgt_box import landing, place, procstat

_NAME = re.compile(r"rgt-tmp-(\d+)-(\d+)-(\d+)-\w+")
"""With the PID namespace, the pid, and its start time in ticks."""


def make_folder() -> str:
    """Create an empty directory and return its path; remove those of killed processes.

    Raises:
        OSError: It cannot be created.
    """
    remove_leftovers()
    pid = os.getpid()
    # Containers may share /tmp, so a pid is unique only together with its namespace.
    owner = place.namespace(), pid, procstat.start_ticks(pid) or 0
    return tempfile.mkdtemp(prefix="rgt-tmp-%d-%d-%d-" % owner)


def list_own_folders() -> list[str]:
    """Return the existing ones that are not links and that only this user can access."""
    folder = tempfile.gettempdir()
    try:
        names = os.listdir(folder)
    except OSError:
        return []
    paths = [os.path.join(folder, name) for name in names if _NAME.fullmatch(name)]
    return [path for path in paths if landing.is_private(path)]


def remove_leftovers() -> None:
    """Remove those whose process has ended."""
    for path in list_own_folders():
        if _is_left(path):
            import shutil  # here: it loads three compressors

            shutil.rmtree(path, ignore_errors=True)


def _is_left(path: str) -> bool:
    match = _NAME.fullmatch(os.path.basename(path))
    if match is None:
        return False
    namespace, pid, ticks = map(int, match.groups())
    if namespace == place.namespace():
        return not procstat.is_alive(pid, ticks)
    with contextlib.suppress(OSError):
        # Seconds after which a directory of another container is removed: whether its process is
        # alive is not visible from here.
        kept_s = 86400.0
        return time.time() - os.stat(path).st_mtime > kept_s
    return False
