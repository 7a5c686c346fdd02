"""Whether the demo's boxes can run on this machine, and which kind of sandbox it allows."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

from rgt_tui.demo.errors import DemoError

TRY_SECONDS = 10
MOUNTS = Path("/proc/self/mountinfo")


def unshare_prefix() -> tuple[str, ...]:
    """Return the ``unshare`` options that open a user namespace; none where we are root."""
    return () if os.geteuid() == 0 else ("--user", "--map-root-user")


def enter_user_prefix() -> tuple[str, ...]:
    """Return the ``nsenter`` options that go with `unshare_prefix`."""
    return () if os.geteuid() == 0 else ("--user", "--preserve-credentials")


def check_torch() -> None:
    """Make sure that the boxes can train.

    Raises:
        DemoError: torch is not installed beside rgt.
    """
    if importlib.util.find_spec("torch") is None:
        raise DemoError(
            f"torch is missing from {sys.executable}, and the demo really trains: "
            'pip install "rgt-tui[train]" (in a clone: make setup)'
        )


def root_is_a_mount_point() -> bool:
    """Tell whether ``/`` is one: in a chroot it need not be, and ``unshare --mount`` then fails even for root."""
    try:
        mounts = MOUNTS.read_text().splitlines()
    except OSError:
        return True
    return any(line.split()[4:5] == ["/"] for line in mounts)


def check() -> None:
    """Make sure that boxes can be made here.

    Raises:
        DemoError: with what is missing and what to do.
    """
    if not sys.platform.startswith("linux"):
        raise DemoError(
            "the demo's boxes are made of Linux namespaces; on this system use rgt with real boxes"
        )
    for tool in ("unshare", "nsenter"):
        if shutil.which(tool) is None:
            raise DemoError(f"`{tool}` is missing; install util-linux and start again")
    trial = ["unshare", *unshare_prefix(), "--mount", "--pid", "--uts", "--fork", "--kill-child"]
    trial += ["mount", "-t", "tmpfs", "-o", "size=4k", "tmpfs", "/mnt"]
    try:
        done = subprocess.run(trial, capture_output=True, text=True, timeout=TRY_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise DemoError(f"cannot try a namespace: {error}") from error
    if done.returncode == 0:
        return
    words = done.stderr.strip() or str(done.returncode)
    if not root_is_a_mount_point():
        raise DemoError(
            f"the root directory is not a mount point, as in a chroot, and namespaces need one ({words}); run the "
            "demo outside the chroot, or bind its directory onto itself before entering it: mount --bind DIR DIR"
        )
    raise DemoError(
        "this machine allows neither root nor user namespaces, of which the demo's boxes are made "
        f"({words}); run it as root, or allow unprivileged user namespaces"
    )
