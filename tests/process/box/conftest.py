from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.process.box.harness import Agent


@pytest.fixture
def agent(agent_file: Path, tmp_path: Path) -> Iterator[Agent]:
    agent = Agent(agent_file, tmp_path / "state")
    yield agent
    agent.stop()
