"""A kill before any single file operation of a save loses nothing that was published."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from tests.unit.train.harness import ENV, TIMEOUT


def test_a_kill_before_every_file_operation(tmp_path: Path) -> None:
    script = Path(__file__).with_name("every_call.py")
    done = subprocess.run(
        [sys.executable, str(script), str(tmp_path)], env=ENV, capture_output=True, text=True, timeout=TIMEOUT
    )
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["wrong"] is None, result
    assert result["calls"] > 40, result
