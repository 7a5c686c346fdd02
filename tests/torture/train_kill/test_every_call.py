"""A kill, or a failure, of any single file operation of a save loses nothing that was published."""

from __future__ import annotations

import errno
import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.unit.train.harness import ENV, TIMEOUT


@pytest.mark.parametrize("how", ["kill", errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EMFILE, errno.EIO])
def test_at_every_file_operation(tmp_path: Path, how: str | int) -> None:
    script = Path(__file__).with_name("every_call.py")
    done = subprocess.run(
        [sys.executable, str(script), str(tmp_path), str(how)],
        env=ENV,
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
    )
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["wrong"] is None, result
    assert result["calls"] > 40, result
