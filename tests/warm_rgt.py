"""`rgt` in a process of its own without its start: forked by a server that has imported what the commands import.

The one server of a worker starts with the first `rgt`, and ends with the worker. What a test says of the start itself
(what is imported, and from where) it has to say of a real one.
"""

from __future__ import annotations

import atexit
import os
import subprocess
import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from tests.warm_python import WarmPython

IMPORTS = """
import importlib, asyncssh, httpx
from rgt_tui.cli.commands import COMMANDS, GROUPS
for name in {*(row.module for row in COMMANDS.values()), *GROUPS.values(), "gathering", "running"}:
    importlib.import_module(f"rgt_tui.cli.{name}")
from rgt_tui.handbook import shipped_pages
from rgt_tui.ssh import build_agent
shipped_pages()
build_agent()
"""
"""The modules of all commands, the pages of the handbook and the packed agent: what each `rgt` would load or make anew
from files that do not change."""
ENTRY = "import sys; del sys.path[0]; sys.argv[0] = 'rgt'; from rgt_tui.cli.entry import main; raise SystemExit(main())"
"""What the script `rgt` does: nothing is imported from the working directory."""


@cache
def server() -> WarmPython:
    """Return the one of this worker."""
    started = WarmPython(sys.executable, IMPORTS, os.environ)
    atexit.register(started.close)
    return started


def rgt(
    *words: str, cwd: Path, env: Mapping[str, str], timeout: float = 120.0
) -> subprocess.CompletedProcess[str]:
    """Run a command to its end, without a terminal and without stdin.

    Raises:
        subprocess.TimeoutExpired: it took longer, and was killed.
    """
    return server().run(["-c", ENTRY, *words], cwd=cwd, env=env, timeout=timeout)
