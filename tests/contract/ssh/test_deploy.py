"""Putting the agent on a real box, over a real sshd."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from rgt_tui.model import clean_text
from rgt_tui.ssh import DeployFailed, NoPython, build_agent, connect, deploy_agent
from tests.contract.ssh.conftest import RealSshd

replace = msgspec.structs.replace


async def test_the_agent_is_written_once_under_its_hash(real_sshd: RealSshd) -> None:
    bundle = build_agent()
    async with await connect(real_sshd.spec) as connection:
        first = await deploy_agent(connection, bundle, (real_sshd.spec.python or "",))
        before = Path(first.path).stat()
        second = await deploy_agent(connection, bundle, (real_sshd.spec.python or "",))
        done = await connection.run(first.build_command("sample"), encoding=None)
    assert first == second
    after = Path(first.path).stat()
    assert (before.st_ino, before.st_mtime_ns) == (after.st_ino, after.st_mtime_ns)
    assert Path(first.path).read_bytes() == bundle.data
    assert bundle.filename in first.path
    assert done.stdout, done
    assert msgspec.json.decode(done.stdout)["t"] == "sample"


async def test_a_damaged_transfer_is_found_on_the_box(real_sshd: RealSshd) -> None:
    bundle = build_agent()
    damaged = replace(bundle, filename="rgt-box-damaged.pyz", data=bundle.data[:-1])
    async with await connect(real_sshd.spec) as connection:
        with pytest.raises(DeployFailed, match="damaged"):
            await deploy_agent(connection, damaged, (real_sshd.spec.python or "",))
    assert not list((real_sshd.folder / "home/.cache/rgt").glob("rgt-box-damaged*"))


async def test_a_folder_that_cannot_be_made_is_said_in_the_box_s_words(real_sshd: RealSshd) -> None:
    bundle = replace(build_agent(), filename="blocked/agent.pyz")
    blocked = real_sshd.folder / "home/.cache/rgt/blocked"
    blocked.parent.mkdir(parents=True, exist_ok=True)
    blocked.write_text("a file where a folder should be")
    async with await connect(real_sshd.spec) as connection:
        with pytest.raises(DeployFailed, match=r"File exists|Not a directory"):
            await deploy_agent(connection, bundle, (real_sshd.spec.python or "",), spare=False)


@pytest.mark.parametrize(("row", "words"), [
    (r"RGT\t/usr/bin/python3\t/tmp/\033]52;c;aGk=\007x\t1", "/tmp/x"),
    (r"RGT\t/usr/bin/\342\200\256nohtyp\t/tmp/x\t1", "/usr/bin/nohtyp"),
])  # fmt: skip
async def test_a_path_that_a_terminal_would_obey_is_refused_and_not_repeated(
    real_sshd: RealSshd, tmp_path: Path, row: str, words: str
) -> None:
    python = tmp_path / "python"
    python.write_text(
        f"#!/bin/sh\ncase \"$*\" in *version_info*) echo 311;; *) printf '{row}\\n';; esac\n"
    )
    python.chmod(0o755)
    async with await connect(real_sshd.spec) as connection:
        with pytest.raises(DeployFailed) as error:
            await deploy_agent(connection, build_agent(), (str(python),))
    assert words in str(error.value) and clean_text(str(error.value)) == str(error.value)


async def test_rows_of_another_shape_are_no_python(real_sshd: RealSshd, tmp_path: Path) -> None:
    python = tmp_path / "python"
    python.write_text(
        "#!/bin/sh\ncase \"$*\" in *version_info*) echo 311;; *) printf 'RGT\\ta\\tb\\tc\\td\\nRGT\\n';; esac\n"
    )
    python.chmod(0o755)
    async with await connect(real_sshd.spec) as connection:
        with pytest.raises(NoPython):
            await deploy_agent(connection, build_agent(), (str(python),))
