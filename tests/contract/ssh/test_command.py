"""One command on a real box: its limits, and bytes that are no text."""

from __future__ import annotations

from collections.abc import AsyncIterator

import asyncssh
import pytest

from rgt_tui.ssh import CommandFailed, connect, run_command
from tests.contract.ssh.conftest import RealSshd


@pytest.fixture
async def box(real_sshd: RealSshd) -> AsyncIterator[asyncssh.SSHClientConnection]:
    async with await connect(real_sshd.spec) as connection:
        yield connection


async def test_bytes_that_are_no_text_survive(box: asyncssh.SSHClientConnection) -> None:
    done = await run_command(
        box, r"printf '\377\376ok'; printf 'bad \377\033[31m words\n' >&2; exit 3"
    )
    assert done.out == b"\xff\xfeok"
    assert done.words == "bad � words"
    assert done.status == 3


async def test_input_arrives(box: asyncssh.SSHClientConnection) -> None:
    data = bytes(range(256)) * 4096
    assert (await run_command(box, "cat", data=data)).out == data


async def test_gigabytes_are_cut_off_with_an_error(box: asyncssh.SSHClientConnection) -> None:
    with pytest.raises(CommandFailed, match="the list printed more than 1 MiB"):
        await run_command(box, "yes", most_bytes=1 << 20, name="the list")
    with pytest.raises(CommandFailed, match="printed more"):
        await run_command(box, "yes >&2", most_bytes=1 << 20)
    assert (await run_command(box, "echo still here")).out == b"still here\n"


async def test_what_does_not_end_is_hung_up_on(box: asyncssh.SSHClientConnection) -> None:
    with pytest.raises(CommandFailed, match=r"did not (begin|end) within 0\.3 s"):
        await run_command(box, "exec sleep 600", seconds=0.3)


async def test_a_command_that_does_not_read_its_input_is_no_error(
    box: asyncssh.SSHClientConnection,
) -> None:
    done = await run_command(box, "exit 4", data=b"x" * (4 << 20))
    assert done.status == 4
