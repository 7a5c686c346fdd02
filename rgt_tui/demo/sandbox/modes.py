"""Which kind of sandbox this machine allows."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

from rgt_tui.demo.errors import DemoError

TRY_SECONDS = 10


def unshare_prefix() -> tuple[str, ...]:
    """Return the ``unshare`` options that open a user namespace; none where we are root."""
    return () if os.geteuid() == 0 else ("--user", "--map-root-user")


def enter_user_prefix() -> tuple[str, ...]:
    """Return the ``nsenter`` options that go with `unshare_prefix`."""
    return () if os.geteuid() == 0 else ("--user", "--preserve-credentials")


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
    if done.returncode != 0:
        raise DemoError(
            "this machine allows neither root nor user namespaces, of which the demo's boxes are made "
            f"({done.stderr.strip() or done.returncode}); run it as root, or allow unprivileged user namespaces"
        )
