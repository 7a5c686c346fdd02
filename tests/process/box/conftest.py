from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from rgt_tui.ssh import build_agent
from tests.process.box.harness import Agent


@pytest.fixture(scope="session")
def agent_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    bundle = build_agent()
    path = tmp_path_factory.mktemp("agent") / bundle.filename
    path.write_bytes(bundle.data)
    return path


@pytest.fixture
def agent(agent_file: Path, tmp_path: Path) -> Iterator[Agent]:
    agent = Agent(agent_file, tmp_path / "state")
    yield agent
    agent.stop()
