"""A command that asks one box one question, against an agent that packs much into few bytes: memory stays small."""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from rgt_tui.model import BoxSpec
from tests.contract.cli.conftest import Rgt

MOST_MIB = 150
FRAMES = 12

FLOOD = """
import json, sys, time, zlib

def send(frame):
    sys.stdout.buffer.write(zlib.compress(json.dumps(frame).encode() + b"\\n", 1))

hello = {"t": "hello", "proto": 1, "agent": "0" * 16, "boot": "b", "host": "h", "python": "3.11.0", "pid": 1,
         "at": time.time(), "packed_lines": True}
print(json.dumps(hello), flush=True)
for n in range(int(sys.argv[1])):
    now = time.time()
    send({"t": "log", "path": "/log%d" % n, "inode": 1, "start": 0, "end": 9, "lines": ["x" * 1000] * 1000})
    cells = [{"name": "c%d" % k, "cfg": "x" * 90, "task": "t", "state": "running"} for k in range(6000)]
    send({"t": "queue", "path": "/q%d" % n, "at": now, "cells": cells})
    items = [{"path": "/c/%d" % k + "x" * 90, "step": k, "bytes": k, "at": now} for k in range(6000)]
    send({"t": "ckpt", "run": "r%d" % n, "at": now, "items": items})
    points = [[k, now, None, {"m%d" % k: 1.0}] for k in range(20000)]
    send({"t": "scalar", "run": "s%d" % n, "source": "/s%d" % n, "inode": 1, "start": 0, "end": 9, "points": points})
    sys.stdout.flush()
send({"t": "pong", "id": 0, "at": now, "looked": True})
send({"t": "sample", "boot": "b", "seq": 1, "at": now})
sys.stdout.flush()
open(sys.argv[2], "w").close()
sys.stdin.read()
"""
"""Prints four frames of about 0.7 MB in each round, packed into a hundredth of that."""
LAUNCHER = """
import os, subprocess, sys
child = subprocess.Popen(sys.argv[1:], stdout=subprocess.DEVNULL)
print(os.wait4(child.pid, 0)[2].ru_maxrss)
"""
"""Starts the command from a small process: otherwise the memory of pytest, which is forked, is counted as well."""


@pytest.mark.parametrize(
    "words",
    [
        ("lease", "lab", "8h"),
        # It asks its question by the same function.
        pytest.param(("autostop", "lab", "--idle", "45m"), marks=pytest.mark.full),
    ],
)
def test_frames_that_inflate_cost_a_rehearsal_little_memory(
    rgt: Rgt, lab: BoxSpec, tmp_path: Path, words: tuple[str, ...]
) -> None:
    python, sent = tmp_path / "python", tmp_path / "sent"
    (tmp_path / "flood.py").write_text(FLOOD)
    python.write_text(
        f"#!/bin/bash\nexport PYTHONHOME={sys.base_prefix}\n"
        f'case "$*" in *" watch"*) exec {shlex.quote(sys.executable)} {tmp_path}/flood.py {FRAMES} {sent};; esac\n'
        f'exec -a "$0" {shlex.quote(sys.executable)} "$@"\n'
    )
    python.chmod(0o755)
    rgt.describe([msgspec.structs.replace(lab, python=str(python))])
    options = ("--ask", "--dry-run", "--json", "--timeout", "25")
    command = [*rgt.command(words[0], "--fleet", str(rgt.fleet), *words[1:]), *options]
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", LAUNCHER, *command],
        cwd=rgt.folder,
        env=rgt.environment(),
        capture_output=True,
        text=True,
        check=True,
        timeout=240,
    )
    peak = int(done.stdout) / 1024
    assert sent.exists(), done.stderr
    assert peak < MOST_MIB, f"{peak:.0f} MiB"
