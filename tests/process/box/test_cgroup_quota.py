"""A real quota in a real cpu cgroup: more threads than it has cores are throttled, and that is seen."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from rgt_box.sampling import cgroup
from rgt_box.sampling.cgroup import CpuSampler, oversubscribed
from rgt_box.sampling.processes import ProcSampler

from tests.process.box.harness import until

QUOTA = {
    1: {"cpu.cfs_period_us": "100000", "cpu.cfs_quota_us": "20000"},
    2: {"cpu.max": "20000 100000"},
}
CROWD = """
import hashlib, sys, threading
def work():
    while True: hashlib.sha256(bytes(1 << 20))
for _ in range(12): threading.Thread(target=work, daemon=True).start()
sys.stdin.read()
"""


@pytest.fixture
def group() -> Iterator[cgroup.CgroupFolders]:
    found = cgroup.locate_own_controller("cpu")
    if found is None:
        pytest.skip("no cpu controller")
    folder = Path(found.levels[-1]) / f"rgt-test-{os.getpid()}"
    try:
        folder.mkdir()
        for name, text in QUOTA[found.version].items():
            (folder / name).write_text(text)
    except OSError as error:
        if folder.exists():
            folder.rmdir()
        pytest.skip(f"no cpu cgroup with a quota can be made here: {error}")
    yield cgroup.CgroupFolders(found.version, [str(folder)])
    until(
        lambda: not (folder / "cgroup.procs").read_text().strip(),
        "the end of the group's processes",
    )
    folder.rmdir()


def test_a_crowd_of_threads_under_a_quota(group: cgroup.CgroupFolders) -> None:
    marker = f"pretended_training_{os.getpid()}"
    enter = ["sh", "-c", f'echo $$ > {group.levels[0]}/cgroup.procs && exec "$@"', "sh"]
    process = subprocess.Popen([*enter, sys.executable, "-c", CROWD, marker], stdin=subprocess.PIPE)
    try:
        cpu, procs = CpuSampler(group), ProcSampler(marker)
        first = cpu.read()
        assert (first["quota"], first["usable"]) == (0.2, 0.2)
        # One reading is judged, not two: between them the shell becomes the program, and has no words for a moment.
        until(
            lambda: [found["threads"] for found in ProcSampler(marker).read()] == [13],
            "the threads",
        )
        procs = ProcSampler(marker)
        until(lambda: oversubscribed(procs.read(), cpu.read()), "the throttling")
        assert cpu.read()["throttled_s"] > first["throttled_s"]
    finally:
        process.kill()
        process.communicate()
