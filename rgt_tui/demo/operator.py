"""The tenant of the demo's boxes: puts the jobs on them and launches the queues, over SSH, as a person would.

Every command here could be typed by hand. The identical launch command is always the way back.
"""

from __future__ import annotations

import io
import json
import shlex
import tarfile

import asyncssh

from rgt_tui.demo.plan import DemoBox
from rgt_tui.demo.sandbox.tree import CODE
from rgt_tui.model.box import BoxSpec
from rgt_tui.ssh.bundle import AgentBundle
from rgt_tui.ssh.connect import connect
from rgt_tui.ssh.deploy import deploy

COMMAND_SECONDS = 60
NICE = 15


class CommandFailed(Exception):
    """A command on a box ended with an error; the message has its own words."""


def text_of(output: str | bytes | None) -> str:
    """Return what a command printed as text; bad bytes are replaced."""
    return output if isinstance(output, str) else bytes(output or b"").decode(errors="replace")


async def run(connection: asyncssh.SSHClientConnection, command: str, data: bytes = b"") -> str:
    """Run a command on a box and return what it printed.

    Raises:
        CommandFailed: it ended with a status other than 0.
    """
    done = await connection.run(command, input=data, encoding=None, timeout=COMMAND_SECONDS)
    if done.exit_status != 0:
        words = text_of(done.stderr).strip()
        raise CommandFailed(f"`{command}` ended with {done.exit_status}: {words}")
    return text_of(done.stdout)


async def prepare(connection: asyncssh.SSHClientConnection, box: DemoBox, python: str) -> None:
    """Write the job of `box`: ``job.json``, ``queue.txt`` and the configs."""
    command = f"mkdir -p {shlex.quote(box.job)} && tar -xf - -C {shlex.quote(box.job)}"
    await run(connection, command, _archive(job_files(box, python)))


def job_files(box: DemoBox, python: str) -> dict[str, str]:
    """Return the files of a box's job directory, by relative path."""
    job = {
        "py": python,
        "out": f"{box.data}/runs/{{name}}",
        "durable": f"{box.durable}/final/{{name}}",
        "workdir": box.job,
        "retries": box.retries,
        "nice": NICE,
        "env": {
            "PYTHONPATH": CODE,
            "PYTHONDONTWRITEBYTECODE": "1",
            "OMP_NUM_THREADS": "1",
            "MKL_NUM_THREADS": "1",
        },
    }
    lines = [f"configs/{cell.name}.yaml char_lm {cell.epochs}" for cell in box.cells]
    files = {
        "job.json": json.dumps(job, indent=1),
        "queue.txt": "# cfg task epochs\n" + "\n".join(lines) + "\n",
    }
    for cell in box.cells:
        config = "".join(f"{key}: {value}\n" for key, value in cell.config.items())
        files[f"configs/{cell.name}.yaml"] = config
    return files


def _archive(files: dict[str, str]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, text in files.items():
            data = text.encode()
            info = tarfile.TarInfo(name)
            info.size = len(data)
            info.mode = 0o644
            archive.addfile(info, io.BytesIO(data))
    return buffer.getvalue()


async def launch(spec: BoxSpec, box: DemoBox, bundle: AgentBundle, python: str, *, prepared: bool) -> str:
    """Launch (or launch again) the queue of a box, detached; return what the box said.

    Args:
        spec: How to reach it.
        box: Its plan.
        bundle: The agent, which runs queues, too.
        python: The interpreter that has torch.
        prepared: Whether the job is on the box already.
    """
    connection = await connect(spec)
    try:
        deployed = await deploy(connection, bundle, (python,))
        if not prepared:
            await prepare(connection, box, python)
        return await run(connection, deployed.command("detach", "--job", box.job))
    finally:
        connection.close()


async def shell(spec: BoxSpec, command: str, data: bytes = b"") -> str:
    """Run one command on a box over a connection of its own."""
    connection = await connect(spec)
    try:
        return await run(connection, command, data)
    finally:
        connection.close()
