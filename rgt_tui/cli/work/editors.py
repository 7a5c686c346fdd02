"""``rgt code``: what an editor needs to open a directory on a box."""

from __future__ import annotations

import asyncio
import os
import re
from pathlib import Path
from urllib.parse import quote

import asyncssh

from rgt_tui import files
from rgt_tui.cli import running
from rgt_tui.cli.commands import FAILED, OK
from rgt_tui.cli.opening import open_box
from rgt_tui.cli.printing import complain, print_json, print_lines, waiting
from rgt_tui.cli.work.work_arguments import CodeArguments
from rgt_tui.fleet import connected, elsewhere, provider_word
from rgt_tui.model import BoxSpec, exact
from rgt_tui.profiles import load_profile
from rgt_tui.ssh import (
    AuthFailed,
    CommandFailed,
    Deadline,
    Host,
    NoCommands,
    Unreachable,
    config_blocks,
    hops,
    run,
)

FILE = "ssh_config"
"""Of rgt's own, in its directory of settings."""
BEGIN, END = "# rgt code: {name}, begin", "# rgt code: {name}, end"


def run_code(arguments: CodeArguments) -> int:
    """Print it, and write it where asked; return the exit status."""
    spec = open_box(arguments, trusted=True)
    return running.run_on_box(spec.name, _code(arguments, spec))


async def _code(arguments: CodeArguments, spec: BoxSpec) -> int:
    profile = load_profile(spec.profile)
    place, folder = None, arguments.dir or profile.overrides.data_dir
    try:
        with waiting(f"connecting to {spec.name} …"):
            async with (
                Deadline(arguments.timeout),
                connected(spec, accept_new_host_keys=arguments.accept_new_host_key) as connection,
            ):
                host = connection.get_extra_info("rgt_host")
                place = (host.host, host.port) if isinstance(host, Host) else None
                folder = folder or await _home(connection)
    except (Unreachable, AuthFailed, TimeoutError) as error:
        said = error if str(error) else f"not reached within {arguments.timeout:g} s"
        complain(f"{spec.name}: {said}; what follows is its way by the fleet file")
    steps = await asyncio.to_thread(hops, spec, profile.launch.user)
    if place is not None and place != (steps[-1].host.host, steps[-1].host.port):
        meter = await provider_word(spec)
        moved = elsewhere(spec, meter) if meter is not None else None
        steps = await asyncio.to_thread(hops, spec, profile.launch.user, moved)
    name = f"rgt-{spec.name}"
    block = config_blocks(name, steps)
    path = files.config_directory(os.environ) / FILE
    written = False
    if arguments.write:
        try:
            write_block(path, spec.name, block)
            written = True
        except OSError as error:
            complain(f"cannot write {path}: {error.strerror}")
            return FAILED
    tell(arguments, spec, name, block, folder, path if written else None, steps[-1].host)
    return OK


async def _home(connection: asyncssh.SSHClientConnection) -> str | None:
    try:
        done = await run(connection, "pwd", name="pwd")
    except (CommandFailed, NoCommands):
        return None
    lines = done.out.decode("utf-8", "replace").strip().splitlines()
    return lines[-1] if lines and lines[-1].startswith("/") and exact(lines[-1]) else None


def write_block(path: Path, name: str, block: str) -> None:
    """Write a box's blocks to rgt's own file, replacing its older ones; those of other boxes stay.

    Raises:
        OSError: it cannot be read or written; it is then as it was.
    """
    begin, end = BEGIN.format(name=name), END.format(name=name)
    with files.alone(path):
        try:
            before = path.read_text(encoding="utf-8")
        except FileNotFoundError:
            before = ""
        kept = re.sub(
            rf"^{re.escape(begin)}\n.*?^{re.escape(end)}\n\n?", "", before, flags=re.DOTALL | re.MULTILINE
        )
        files.publish(path, f"{kept}{begin}\n{block}{end}\n\n".encode())


def tell(
    arguments: CodeArguments,
    spec: BoxSpec,
    name: str,
    block: str,
    folder: str | None,
    written: Path | None,
    host: Host,
) -> None:
    """Print the block, and what each editor takes."""
    uri = f"vscode-remote://ssh-remote+{name}{quote(folder or '/')}"
    include = f"Include {written or files.config_directory(os.environ) / FILE}"
    if arguments.json:
        body = {
            "box": spec.name, "host": name, "ssh_config": block, "folder": folder, "uri": uri,
            "file": None if written is None else str(written), "include": include,
        }  # fmt: skip
        print_json(body)
        return
    shown = folder or "/"
    lines = [*block.splitlines(), ""]
    if written is None:
        lines += ["# in ~/.ssh/config, or in a file of rgt's own: --write", ""]
    else:
        lines += [
            f"# written to {written}; editors see it by this line at the top of ~/.ssh/config:",
            include,
            "",
        ]
    lines += [
        f"VS Code    code --folder-uri {uri}",
        f"Cursor     cursor --folder-uri {uri}",
        f"JetBrains  a new SSH connection: host {name} of ~/.ssh/config, or {host.user}@{host.host} port {host.port}"
        + (f", key {host.identities[0]}" if host.identities_given and host.identities else "")
        + f"; project directory {shown}",
        f"ssh        ssh {name}",
    ]
    print_lines(*lines)
