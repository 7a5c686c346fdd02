"""Record a real run of the demo into ``rgt_tui/demo/replay.jsonl.gz``, which `rgt demo` plays where it cannot run.

Usage: python -m scripts.record_demo [--out FILE]

The boxes of `rgt demo --fleet-only` train; `rgt record` watches them as it would watch any.
Afterwards the names of this machine's directories are replaced in every line.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SHIPPED = ROOT / "rgt_tui" / "demo" / "replay.jsonl.gz"
LARGEST = 300_000
"""Bytes: everybody who installs rgt downloads them."""
INTERVAL_SECONDS = 3.0
LONGEST_SECONDS = 400.0
STORIES = ("spot-lm resumed", "inodes of /workspace", "gpt-d done")
"""What `rgt record` says when they happen."""
DIGITS = re.compile(rb"(\.\d{5})\d+")
RGT = [sys.executable, "-m", "rgt_tui"]


def record(folder: Path) -> bytes:
    """Run the demo's boxes, record them until the three stories have happened, and return the lines."""
    fleet, out = folder / "fleet.toml", folder / "demo.jsonl"
    boxes = subprocess.Popen(
        [*RGT, "demo", "--fleet-only", "--write-fleet", str(fleet)],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert boxes.stdout is not None
        told = json.loads(boxes.stdout.readline())
        # Fewer samples are as good to look at, and smaller.
        fleet.write_text(f"[defaults]\ninterval = {INTERVAL_SECONDS}\n\n{fleet.read_text()}")
        words = [
            *RGT,
            "--fleet",
            str(fleet),
            "record",
            "--out",
            str(out),
            "--for",
            str(LONGEST_SECONDS),
        ]
        watching = subprocess.Popen(
            words, env={**os.environ, **told["env"]}, stderr=subprocess.PIPE, text=True
        )
        assert watching.stderr is not None
        missing = set(STORIES)
        for line in watching.stderr:
            sys.stderr.write(line)
            told_now = {story for story in missing if story in line}
            missing -= told_now
            if told_now and not missing:
                watching.send_signal(signal.SIGINT)
        watching.wait()
        if missing:
            raise SystemExit(
                f"record_demo: not seen within {LONGEST_SECONDS:g} s: {', '.join(missing)}"
            )
    finally:
        boxes.terminate()
        boxes.wait()
    return out.read_bytes()


def neutral(lines: bytes) -> bytes:
    """Return the lines without the directories of the machine that made them, and with fewer digits, to be small."""
    python = "/opt/rgt/bin/python"
    for directory in sorted(
        {str(Path(sys.executable)), os.path.realpath(sys.executable)}, key=len, reverse=True
    ):
        lines = lines.replace(directory.encode(), python.encode())
    for directory in (sys.prefix, sys.base_prefix, str(ROOT)):
        lines = lines.replace(directory.encode(), b"/opt/rgt")
    workspaces = (
        re.escape(os.environ.get("TMPDIR", "/tmp").encode()) + rb"/rgt-demo-\d+/[0-9a-f]{8}"
    )
    # The agent cuts long command lines, and with them the names.
    cut = [
        str(Path(directory))[:end]
        for directory in (ROOT, sys.prefix, sys.base_prefix)
        for end in range(5, 80)
    ]
    for name in sorted({name for name in cut if name.count("/") > 1}, key=len, reverse=True):
        lines = lines.replace(name.encode() + b'",', b'/opt/rgt",')
    return DIGITS.sub(rb"\1", re.sub(workspaces, b"/tmp/rgt-demo", lines))


def main() -> int:
    """Record, and say how large it is."""
    parser = argparse.ArgumentParser(description="Record the demo that is shipped.")
    parser.add_argument("--out", type=Path, default=SHIPPED)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        data = gzip.compress(neutral(record(Path(folder))), 9, mtime=0)
    if len(data) > LARGEST:
        sys.stderr.write(f"record_demo: {len(data):,} bytes are more than {LARGEST:,}\n")
        return 1
    arguments.out.write_bytes(data)
    sys.stderr.write(f"{arguments.out}: {len(data):,} bytes\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
