"""``rgt ssh``, ``exec``, ``tunnel`` and ``code``: a shell on a box, a command, ports, an editor."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import quote

from rgt_tui import files
from rgt_tui.cli import running
from rgt_tui.cli.commands import FAILED, INTERRUPTED, OK, UNREACHABLE, USAGE
from rgt_tui.cli.opening import open_box
from rgt_tui.cli.printing import print_error, print_json, print_lines, wait_indicator
from rgt_tui.cli.work.work_arguments import (
    CodeArguments,
    ExecArguments,
    SshArguments,
    TunnelArguments,
)
from rgt_tui.fleet import connected, find_moved_address, provider_word
from rgt_tui.fleet.work.tunneling import BoxTunnels, CannotListen
from rgt_tui.language import translate
from rgt_tui.model import LOOPBACK, BoxSpec, Tunnel, is_exact_path, parse_tunnel
from rgt_tui.profiles import load_profile
from rgt_tui.ssh import (
    AuthFailed,
    BoxTransport,
    CommandFailed,
    NoCommands,
    PausableDeadline,
    SshHost,
    Unreachable,
    config_blocks,
    pass_through,
    quote_words,
    resolve_hops,
    run_command,
    terminal_words,
)

FILE = "ssh_config"
"""Name of rgt's own file in its configuration directory."""
BEGIN, END = "# rgt code: {name}, begin", "# rgt code: {name}, end"


def shell_line(words: Sequence[str]) -> str:
    """Return words for a box's login shell: one word is a command line, several are quoted."""
    if len(words) == 1:
        return words[0]
    return quote_words(*words)


def run_exec(arguments: ExecArguments) -> int:
    """Run one command on a box; return its exit status, or ours if it has none."""
    if not arguments.words:
        print_error(translate("which command? write it after --: rgt exec BOX -- nvidia-smi"))
        return USAGE
    spec = open_box(arguments, trusted=True)
    return running.run_on_box(spec.name, _run_command(spec, arguments))


async def _run_command(spec: BoxSpec, arguments: ExecArguments) -> int:
    interrupted = asyncio.Event()
    began = False
    try:
        async with PausableDeadline(arguments.timeout) as limit:
            accept = arguments.accept_new_host_key
            async with connected(spec, accept_new_host_keys=accept) as connection:
                limit.remove_limit()  # the command itself may run without a limit
                began = True
                # Only now: until the command runs, Ctrl-C ends rgt itself.
                asyncio.get_running_loop().add_signal_handler(signal.SIGINT, interrupted.set)
                passed = await pass_through(connection, shell_line(arguments.words), interrupted)
    except TimeoutError as error:
        raise Unreachable(
            translate("not reached within {timeout:g} s", timeout=arguments.timeout)
        ) from error
    except Unreachable as error:
        if not began:
            raise
        raise Unreachable(
            translate("{error}; unknown whether the command still runs there", error=error)
        ) from error
    # All output that arrived was written before.
    if passed.error is not None:
        raise passed.error
    if interrupted.is_set():
        return INTERRUPTED
    if passed.status is None:
        print_error(
            translate("{name}: the box did not report the command's exit status", name=spec.name)
        )
        return UNREACHABLE
    return passed.status


def run_ssh(arguments: SshArguments) -> int:
    """Replace this process by ``ssh`` or ``kubectl``; return the exit status only if that fails."""
    spec = open_box(arguments, trusted=True)
    if shutil.which(spec.transport) is None:
        print_error(
            translate(
                "there is no {transport} program on this machine: install it, or use rgt exec",
                transport=spec.transport,
            )
        )
        return FAILED
    found: list[str] = []

    async def find_connection() -> int:
        found.extend(await build_terminal_words(spec, arguments))
        return OK

    # Passwords are left to ssh, which would ask for them again.
    code = running.run_on_box(spec.name, find_connection(), secrets=False)
    if code == OK:
        # Replaced, not started: the terminal, its size and its signals then belong to ssh alone.
        os.execvp(found[0], found)
    return code


async def build_terminal_words(spec: BoxSpec, arguments: SshArguments) -> tuple[str, ...]:
    """Return the program and its arguments: ``ssh``, pinned to the verified host key, or ``kubectl``.

    Raises:
        BoxError: It cannot be reached. A login that needs a person is no error: ``ssh`` will ask.
    """
    command = ""
    if arguments.words:
        command = shell_line(arguments.words)
    try:
        async with (
            PausableDeadline(arguments.timeout),
            connected(spec, accept_new_host_keys=arguments.accept_new_host_key) as connection,
        ):
            return terminal_words(connection, spec.name, command)
    except TimeoutError as error:
        raise Unreachable(
            translate("not reached within {timeout:g} s", timeout=arguments.timeout)
        ) from error
    # ssh may have a login that rgt has not: an agent's prompt, a hardware key, a password.
    except AuthFailed:
        # kubectl has no prompt for a login.
        if spec.kubectl is not None:
            raise
        user = load_profile(spec.profile).launch.user
        steps = await asyncio.to_thread(resolve_hops, spec, user)
        if command:
            return ("ssh", "-t", *steps[-1].by_hand, command)
        return ("ssh", *steps[-1].by_hand)


# ``rgt tunnel``: ports of a box on this machine's loopback address.


def run_tunnel(arguments: TunnelArguments) -> int:
    """Forward ports until Ctrl-C; return the exit status."""
    spec = open_box(arguments, trusted=True)
    try:
        # Ports of the command line replace those of the file: a person may want just one.
        tunnels = [parse_tunnel(text) for text in arguments.ports or spec.tunnels]
    except ValueError as error:
        print_error(error)
        return USAGE
    if not tunnels:
        print_error(
            translate(
                'which port? rgt tunnel {name} 6006, or tunnels = ["6006"] in the fleet file',
                name=spec.name,
            )
        )
        return USAGE
    return running.run_on_box(spec.name, _run_tunnel(arguments, spec, tunnels))


async def _run_tunnel(arguments: TunnelArguments, spec: BoxSpec, tunnels: list[Tunnel]) -> int:
    over, up = asyncio.Event(), asyncio.Event()
    running.until_signalled(over)
    accept = arguments.accept_new_host_key
    work = BoxTunnels(
        spec,
        tunnels,
        lambda words: print_error(f"{spec.name}: {words}"),
        accept_new_host_keys=accept,
    )
    try:
        try:
            # Before connecting: the ports are chosen at once, and stay while the box is
            # reconnected.
            ports = await work.listen()
        except CannotListen as error:
            print_error(error.strerror)
            return FAILED
        carrying = asyncio.ensure_future(work.run(up.set))
        stopped, ready = asyncio.ensure_future(over.wait()), asyncio.ensure_future(up.wait())
        with wait_indicator(translate("connecting to {name} …", name=spec.name)):
            await asyncio.wait({carrying, stopped, ready}, return_when=asyncio.FIRST_COMPLETED)
        if ready.done():
            print_ports(arguments, spec, ports)
        await asyncio.wait({carrying, stopped}, return_when=asyncio.FIRST_COMPLETED)
        for task in (stopped, ready):
            task.cancel()
        if carrying.done():
            # Raises if the box refuses the login now; it ends in no other way.
            carrying.result()
        carrying.cancel()
        await asyncio.gather(carrying, return_exceptions=True)
        return OK
    finally:
        await work.close()


def print_ports(arguments: TunnelArguments, spec: BoxSpec, ports: list[tuple[Tunnel, int]]) -> None:
    """Print the local address of each tunnel."""
    for tunnel, port in ports:
        if tunnel.host:
            url = f"http://{LOOPBACK}:{port}/"
        else:
            # Without a remote host the tunnel is a SOCKS proxy.
            url = f"socks5://{LOOPBACK}:{port}"
        if arguments.json:
            body = {
                "box": spec.name,
                "url": url,
                "local": port,
                "wanted": tunnel.local,
                "to": str(tunnel),
            }
            print_json(body)
        else:
            if port == tunnel.local:
                taken = ""
            else:
                taken = translate("  ({local} is taken here)", local=tunnel.local)
            print_lines(f"{spec.name}: {url}  →  {tunnel.remote_end}{taken}")
    sys.stdout.flush()


# ``rgt code``: what an editor needs to open a directory on a box.


def run_code(arguments: CodeArguments) -> int:
    """Print it, and write it if requested; return the exit status."""
    spec = open_box(arguments, trusted=True)
    if spec.kubectl is not None:
        print_error(
            translate(
                "{name}: rgt code is for boxes reached by SSH; VS Code opens a pod with its "
                "Kubernetes extension (Attach Visual Studio Code), namespace {namespace}",
                name=spec.name,
                namespace=spec.kubectl.namespace,
            )
        )
        return USAGE
    return running.run_on_box(spec.name, _open_editor(arguments, spec))


async def _open_editor(arguments: CodeArguments, spec: BoxSpec) -> int:
    profile = load_profile(spec.profile)
    place, folder = None, arguments.dir or profile.overrides.data_dir
    try:
        with wait_indicator(translate("connecting to {name} …", name=spec.name)):
            async with (
                PausableDeadline(arguments.timeout),
                connected(spec, accept_new_host_keys=arguments.accept_new_host_key) as connection,
            ):
                host = connection.get_extra_info("rgt_host")
                if isinstance(host, SshHost):
                    # The address that was really used, which the provider may have changed.
                    place = (host.host, host.port)
                else:
                    place = None
                folder = folder or await _find_home(connection)
    # The block is useful without a connection, too: the box may only be off.
    except (Unreachable, AuthFailed, TimeoutError) as error:
        said = str(error)
        if not said:
            said = translate("not reached within {timeout:g} s", timeout=arguments.timeout)
        print_error(
            translate(
                "{name}: {said}; this is the connection from the fleet file",
                name=spec.name,
                said=said,
            )
        )
    steps = await asyncio.to_thread(resolve_hops, spec, profile.launch.user)
    if place is not None and place != (steps[-1].host.host, steps[-1].host.port):
        meter = await provider_word(spec)
        if meter is not None:
            moved = find_moved_address(spec, meter)
        else:
            moved = None
        steps = await asyncio.to_thread(resolve_hops, spec, profile.launch.user, moved)
    name = f"rgt-{spec.name}"
    block = config_blocks(name, steps)
    path = files.config_directory(os.environ) / FILE
    written = False
    if arguments.write:
        try:
            write_block(path, spec.name, block)
            written = True
        except OSError as error:
            print_error(
                translate("cannot write {path}: {strerror}", path=path, strerror=error.strerror)
            )
            return FAILED
    print_editor_help(
        arguments, spec, name, block, folder, path if written else None, steps[-1].host
    )
    return OK


async def _find_home(connection: BoxTransport) -> str | None:
    try:
        done = await run_command(connection, "pwd", name="pwd")
    except (CommandFailed, NoCommands):
        return None
    # The last line: a greeting of the login shell may come before it.
    lines = done.out.decode("utf-8", "replace").strip().splitlines()
    if lines and lines[-1].startswith("/") and is_exact_path(lines[-1]):
        return lines[-1]
    return None


def write_block(path: Path, name: str, block: str) -> None:
    """Write a box's blocks to rgt's own file, replacing its old ones; keep those of other boxes.

    Raises:
        OSError: It cannot be read or written; it is unchanged then.
    """
    # The box's name is in both marks, so that one box cannot remove another's block.
    begin, end = BEGIN.format(name=name), END.format(name=name)
    with files.locked_file(path):
        try:
            before = path.read_text(encoding="utf-8")
        except FileNotFoundError:
            before = ""
        kept = re.sub(
            # Shortest match: a lost end mark must not remove the blocks after it.
            rf"^{re.escape(begin)}\n.*?^{re.escape(end)}\n\n?",
            "",
            before,
            flags=re.DOTALL | re.MULTILINE,
        )
        files.replace_file(path, f"{kept}{begin}\n{block}{end}\n\n".encode())


def print_editor_help(
    arguments: CodeArguments,
    spec: BoxSpec,
    name: str,
    block: str,
    folder: str | None,
    written: Path | None,
    host: SshHost,
) -> None:
    """Print the block, and how to use it in each editor."""
    uri = f"vscode-remote://ssh-remote+{name}{quote(folder or '/')}"
    # rgt does not write into ~/.ssh/config, which belongs to the person.
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
        lines += [translate("# in ~/.ssh/config, or in a file of rgt's own: --write"), ""]
    else:
        lines += [
            translate(
                "# written to {written}; editors see it by this line at the top of ~/.ssh/config:",
                written=written,
            ),
            include,
            "",
        ]
    lines += [
        f"VS Code    code --folder-uri {uri}",
        f"Cursor     cursor --folder-uri {uri}",
        translate(
            "JetBrains  a new SSH connection: host {name} of ~/.ssh/config, or "
            "{user}@{host} port {port}",
            name=name,
            user=host.user,
            host=host.host,
            port=host.port,
        )
        + (
            translate(", key {path}", path=host.identities[0])
            if host.identities_given and host.identities
            else ""
        )
        + translate("; project directory {shown}", shown=shown),
        f"ssh        ssh {name}",
    ]
    print_lines(*lines)
