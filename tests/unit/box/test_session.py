"""What detached work lives in, and how old the box is."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from rgt_box import procstat
from rgt_box.sampling.session import SessionSampler

SCRIPT = """
import os, sys
sys.path.insert(0, sys.argv[1])
from rgt_box.sampling.session import SessionSampler
print(SessionSampler().read()["uptime_s"])
"""


def test_a_container_is_as_old_as_its_first_process() -> None:
    """In a new pid namespace with its own /proc the host's hours do not count."""
    user = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    remote = os.path.dirname(os.path.dirname(procstat.__file__))
    argv = ["unshare", *user, "--pid", "--fork", "--mount-proc", sys.executable, "-c", SCRIPT, remote]
    done = subprocess.run(argv, capture_output=True, text=True, check=True)
    with open("/proc/uptime") as file:
        host = float(file.read().split()[0])
    assert 0 <= float(done.stdout) < host


def test_a_machine_counts_from_its_own_start() -> None:
    first = procstat.read_stat(1)
    assert first is not None
    with open("/proc/uptime") as file:
        host = float(file.read().split()[0])
    expected = host - first.start / procstat.CLOCK_TICKS
    assert SessionSampler().read()["uptime_s"] == pytest.approx(expected, abs=60)
