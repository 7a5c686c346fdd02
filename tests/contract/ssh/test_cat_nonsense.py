"""What stands in the agent's place may print anything: reading a log says so, and fails as one that cannot be read."""

from __future__ import annotations

from pathlib import Path

import pytest

from rgt_tui.ssh import CatFailed, DeployedAgent, connect, list_matching_files, stream_cat
from tests.contract.ssh.conftest import RealSshd


@pytest.mark.parametrize("line", ['{"t":"file","x":' + "[" * 60_000, '{"t":"nothing"}', '{"t":'])
async def test_nonsense_is_no_fault_of_rgt(real_sshd: RealSshd, tmp_path: Path, line: str) -> None:
    agent = tmp_path / "agent"
    agent.write_text(f"cat <<'END'\n{line}\nEND\n")
    deployed = DeployedAgent(python="sh", path=str(agent))
    async with await connect(real_sshd.spec) as connection:
        with pytest.raises(CatFailed, match="something that is not a record"):
            async for _ in stream_cat(connection, deployed, "--path", "x"):
                pass
        with pytest.raises(CatFailed, match="invalid file list"):
            await list_matching_files(connection, deployed, ("x",))
