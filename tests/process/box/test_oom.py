"""A real OOM kill in a real memory cgroup: the counter moves and the event comes."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from rgt_tui.model import protocol
from tests.process.box.harness import AgentInside, Channel, enter, memory_group

LIMIT = 96 << 20
HOG = "import time\nheld = []\nwhile True:\n    held.append(bytearray(4 << 20))\n"


@pytest.fixture
def group() -> Iterator[Path]:
    with memory_group("rgt-test", LIMIT) as folder:
        yield folder


def test_an_oom_kill_is_seen(agent_file: Path, tmp_path: Path, group: Path) -> None:
    agent = AgentInside(agent_file, tmp_path / "state", group)
    try:
        channel = Channel(agent, {"interval": 0.05})
        sample = channel.expect(lambda frame: isinstance(frame, protocol.Sample))
        assert sample.mem.limit == LIMIT
        assert 0 < sample.mem.used <= LIMIT
        # The largest process is the one that the kernel picks.
        hog = subprocess.run([*enter(group), sys.executable, "-c", HOG], check=False)
        assert hog.returncode == -9
        event = channel.expect(
            lambda frame: isinstance(frame, protocol.BoxEvent) and frame.kind == "oom-kill"
        )
        assert event.level == "error"
        assert "the container's limit of 0.1 GiB" in event.text
        after = channel.expect(lambda frame: isinstance(frame, protocol.Sample))
        assert after.mem.oom_kills == sample.mem.oom_kills + 1
        channel.close()
        # It came from the recorder and is in its ring: a client that was away gets it, in its place.
        again = Channel(
            agent, {"interval": 0.05, "samples_after": {"boot": sample.boot, "seq": sample.seq}}
        )
        kept = again.expect(
            lambda frame: isinstance(frame, protocol.BoxEvent) and frame.kind == "oom-kill"
        )
        assert kept == event
        assert sample.seq < kept.seq < after.seq
        again.close()
    finally:
        agent.stop()
