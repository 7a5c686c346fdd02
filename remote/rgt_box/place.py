"""Where the agent lives on a box: its state directory, its own file, and the identity of this boot."""

from __future__ import annotations

import os
import re
import sys

from rgt_box import procstat

_NAME = re.compile(r"rgt-box-([0-9a-f]{8,64})\.pyz$")


def state_dir() -> str:
    """Return the directory for the ring, locks and pid files; it need not exist yet."""
    own = os.environ.get("RGT_STATE_DIR")
    if own:
        return own
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return os.path.join(cache, "rgt")


def root() -> str:
    """Return the zipapp this code was loaded from, or the directory above the package in a source tree."""
    return os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def digest() -> str:
    """Return the content hash in the zipapp's file name (never computed here); ``dev`` in a source tree."""
    match = _NAME.search(root())
    return match.group(1) if match else "dev"


def command(*words: str) -> list[str]:
    """Return the command line that starts another agent process of the same code.

    ``-I -S``: nothing of the user's environment may shadow the standard library, and ``site`` costs start time.
    """
    path = root()
    if os.path.isdir(path):
        path = os.path.join(path, "rgt_box")
    return [sys.executable or "python3", "-I", "-S", path] + list(words)


def boot_id() -> str:
    """Return what identifies this boot: the kernel's boot id joined with the start of pid 1.

    A container that is restarted on a running kernel keeps the kernel's id but gets a new pid 1. Set
    ``RGT_BOOT_ID`` to play a reboot.
    """
    forced = os.environ.get("RGT_BOOT_ID")
    if forced:
        return forced
    kernel = (procstat.read_bytes("/proc/sys/kernel/random/boot_id", 64) or b"unknown").decode(
        "ascii", "replace"
    )
    first = procstat.read_stat(1)
    return "%s-%x" % (kernel.strip().replace("-", "")[:16], first.start if first else 0)
