"""A packed stream that comes damaged ends its channel; the next one goes on without a gap."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import msgspec

from rgt_tui.ssh import build_agent, connect, deploy_agent, remote_command
from tests.contract.fleet.test_sessions import running
from tests.contract.ssh.servers import spec_of, sshd

DAMAGING = """
import os, sys
while True:
    data = os.read(0, 65536)
    if not data:
        break
    if os.path.exists(sys.argv[1]):
        data = b"\\xff" * 9 + data[9:]
    os.write(1, data)
"""

SHELL = """#!/bin/sh
# What the first watch says goes through a program that damages it when it is told to.
case $SSH_ORIGINAL_COMMAND in
*watch) mkdir {folder}/damaged 2>/dev/null && exec sh -c "$SSH_ORIGINAL_COMMAND | {damage} {folder}/now" ;;
esac
exec sh -c "$SSH_ORIGINAL_COMMAND"
"""


async def test_damage_costs_a_reconnect_and_no_sample(tmp_path: Path) -> None:
    (tmp_path / "damage.py").write_text(DAMAGING)
    (tmp_path / "shell").write_text(
        SHELL.format(folder=tmp_path, damage=f"{sys.executable} {tmp_path}/damage.py")
    )
    (tmp_path / "shell").chmod(0o755)
    home = (
        f'SetEnv "HOME={tmp_path}" "XDG_CACHE_HOME={tmp_path}/.cache" "PATH={os.environ["PATH"]}"'
    )
    with sshd(tmp_path, f"{home}\nForceCommand {tmp_path}/shell\n") as port:
        spec = msgspec.structs.replace(spec_of(tmp_path, port), interval=0.1)
        async with running(spec, folder=tmp_path) as run:
            before = await run.more()
            (tmp_path / "now").touch()
            lost = await run.until(lambda box: "damaged" in box.reason)
            again = await run.more()
        async with await connect(spec) as connection:
            deployed = await deploy_agent(connection, build_agent(), (sys.executable,))
            await remote_command.run_command(connection, deployed.build_command("record", "--stop"))
    assert lost.reason.startswith("ssh: the compressed stream from the box is damaged: ")
    assert before.counters.connects == 1
    assert again.counters.connects == 2
    assert (again.counters.gaps, again.counters.duplicates) == (0, 0)
