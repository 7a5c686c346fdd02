"""Watch a box with the best it can do: the agent, a plain shell, or a shell in a terminal."""

from __future__ import annotations

from collections.abc import Callable

import asyncssh
import msgspec

from rgt_tui.model.protocol import Frame, WatchConfig
from rgt_tui.ssh.bundle import AgentBundle
from rgt_tui.ssh.channel import Channel, open_channel
from rgt_tui.ssh.deploy import deploy
from rgt_tui.ssh.errors import DeployFailed, NoCommands, NoPython
from rgt_tui.ssh.limited.probe import Probe, open_probe

NO_HISTORY = (
    "no log, no curve, no queue and no history, and processes by their command lines only: these need the agent on "
    "the box"
)
NO_FILES = "no file transfer (SFTP, scp): push results to storage from the box, or use the direct TCP address"


class Watching(msgspec.Struct, frozen=True):
    """A running stream of frames, and what does not work on this box."""

    channel: Channel | Probe
    limited: tuple[str, ...] = ()


async def watch(
    connection: asyncssh.SSHClientConnection,
    bundle: AgentBundle,
    pythons: tuple[str, ...],
    config: WatchConfig,
    on_frame: Callable[[Frame], None],
    on_bad: Callable[[int], None],
    on_line: Callable[[bytes], None] | None = None,
    on_waiting: Callable[[], None] | None = None,
) -> Watching:
    """Put the agent on the box and start it; where that cannot be, read the box with its shell.

    Args:
        connection: An open connection.
        bundle: The agent.
        pythons: Interpreters to try first.
        config: See `open_channel`, as the callbacks.
        on_frame: Called from the event loop, in order of arrival.
        on_bad: Called with the number of lines that were no frames.
        on_line: Called with every line as it came.
        on_waiting: See `open_channel`; a shell is read as it comes.

    Raises:
        NoCommands: the box gives no shell at all.
        ProbeFailed: the shell could not be used.
        CommandFailed: the box does not answer in time.
    """
    terminal = False
    limited: tuple[str, ...]
    try:
        deployed = await deploy(connection, bundle, pythons)
    except NoPython as error:
        limited = (f"{error}; {NO_HISTORY}",)
    except DeployFailed as error:
        limited = (f"{error}; mend that and press retry; until then {NO_HISTORY}",)
    except NoCommands as error:
        terminal = True
        limited = (f"{error}: a terminal only (proxied SSH); {NO_HISTORY}", NO_FILES)
    else:
        command = deployed.command("watch")
        channel = await open_channel(connection, command, config, on_frame, on_bad, on_line, on_waiting)
        return Watching(channel, (deployed.note,) if deployed.note else ())
    probe = await open_probe(
        connection, config, on_frame, on_bad, on_line, terminal=terminal, limited=limited
    )
    return Watching(probe, limited)
