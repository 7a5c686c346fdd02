"""Record a real run of the demo into ``rgt_tui/demo/replay.jsonl.gz``, which `rgt demo` plays where it cannot run.

Usage: python -m scripts.record_demo [--for SECONDS] [--out FILE]

The boxes of `rgt demo --fleet-only` train; `rgt record` watches them as it would watch any. Afterwards the names of this
machine's directories are replaced in every line.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SHIPPED = ROOT / "rgt_tui" / "demo" / "replay.jsonl.gz"
LARGEST = 300_000
"""Bytes: everybody who installs rgt downloads them."""
INTERVAL_SECONDS = 2.0
RGT = [sys.executable, "-m", "rgt_tui"]


def record(seconds: float, folder: Path) -> bytes:
    """Run the demo's boxes, record them for a time, and return the lines."""
    fleet, out = folder / "fleet.toml", folder / "demo.jsonl"
    boxes = subprocess.Popen(
        [*RGT, "demo", "--fleet-only", "--write-fleet", str(fleet)], stdout=subprocess.PIPE, text=True
    )
    try:
        assert boxes.stdout is not None
        told = json.loads(boxes.stdout.readline())
        # Every second sample is as good to look at, and half as large.
        fleet.write_text(f"[defaults]\ninterval = {INTERVAL_SECONDS}\n\n{fleet.read_text()}")
        watch = [*RGT, "--fleet", str(fleet), "record", "--out", str(out), "--for", str(seconds)]
        subprocess.run(watch, env={**os.environ, **told["env"]}, check=True)
    finally:
        boxes.terminate()
        boxes.wait()
    return out.read_bytes()


def neutral(lines: bytes) -> bytes:
    """Return the lines without the directories and the host name of the machine that made them."""
    python = "/opt/rgt/bin/python"
    for directory in sorted(
        {str(Path(sys.executable)), os.path.realpath(sys.executable)}, key=len, reverse=True
    ):
        lines = lines.replace(directory.encode(), python.encode())
    for directory in (sys.prefix, sys.base_prefix, str(ROOT)):
        lines = lines.replace(directory.encode(), b"/opt/rgt")
    workspaces = re.escape(os.environ.get("TMPDIR", "/tmp").encode()) + rb"/rgt-demo-\d+/[0-9a-f]{8}"
    return re.sub(workspaces, b"/tmp/rgt-demo", lines)


def main() -> int:
    """Record, and say how large it is."""
    parser = argparse.ArgumentParser(description="Record the demo that is shipped.")
    parser.add_argument("--for", dest="seconds", type=float, default=180.0)
    parser.add_argument("--out", type=Path, default=SHIPPED)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        data = gzip.compress(neutral(record(arguments.seconds, Path(folder))), 9, mtime=0)
    if len(data) > LARGEST:
        sys.stderr.write(
            f"record_demo: {len(data):,} bytes are more than {LARGEST:,}; record for less time\n"
        )
        return 1
    arguments.out.write_bytes(data)
    sys.stderr.write(f"{arguments.out}: {len(data):,} bytes\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
