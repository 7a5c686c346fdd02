"""``rgt agent build``: write the agent's zipapp."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from rgt_tui.cli.commands import FAILED, OK
from rgt_tui.ssh.bundle import build_agent


def run_agent(arguments: argparse.Namespace) -> int:
    """Write the zipapp; the same source gives the same bytes."""
    bundle = build_agent()
    try:
        Path(arguments.out).write_bytes(bundle.data)
    except OSError as error:
        sys.stderr.write(f"rgt: cannot write {arguments.out}: {error.strerror}\n")
        return FAILED
    sys.stdout.write(f"{arguments.out}  {len(bundle.data):,} bytes  sha256 {bundle.digest}\n")
    return OK
