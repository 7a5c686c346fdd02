"""Checks of this machine."""

from __future__ import annotations

import asyncio
import os
import shutil
import sys

import asyncssh

from rgt_tui.cli.doctoring.finding import Finding, Status
from rgt_tui.ssh.resolve import Wanted, resolve
from rgt_tui.ssh.ssh_config import NO_SSH, scan, surroundings
from rgt_tui.ssh.ssh_errors import ConfigError

AGENT_SECONDS = 5.0
NOBODY = "rgt-check"
"""A host that nobody has; what is wrong with a line shows with any."""
SMALLEST = (80, 24)


def python() -> Finding:
    """The Python that runs rgt."""
    version = ".".join(map(str, sys.version_info[:3]))
    return Finding("client.python", Status.OK, f"Python {version} at {sys.executable}")


def terminal() -> Finding:
    """Whether the dashboard can be drawn here."""
    name = "client.terminal"
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        return Finding(name, Status.SKIP, "this is no terminal; the dashboard needs one, the commands do not")
    kind = os.environ.get("TERM", "")
    size = shutil.get_terminal_size()
    if kind in ("", "dumb"):
        return Finding(name, Status.FAIL, f"TERM is {kind!r}", "set TERM, e.g. export TERM=xterm-256color")
    encoding = (sys.stdout.encoding or "").lower()
    if encoding.replace("-", "") != "utf8":
        advice = "use a UTF-8 locale, e.g. export LC_ALL=C.UTF-8"
        return Finding(
            name, Status.WARN, f"the terminal is written to as {encoding or 'nothing known'}", advice
        )
    colours = os.environ.get("COLORTERM") in ("truecolor", "24bit")
    text = f"{kind}, {size.columns}×{size.lines}, {'24-bit colours' if colours else 'colours as TERM says'}"
    if size.columns < SMALLEST[0] or size.lines < SMALLEST[1]:
        return Finding(name, Status.WARN, text, "make the window at least 80×24")
    return Finding(name, Status.OK, text)


async def ssh_agent() -> Finding:
    """The SSH agent and its keys."""
    name = "client.ssh-agent"
    path = os.environ.get("SSH_AUTH_SOCK")
    if not path:
        return Finding(
            name, Status.SKIP, "SSH_AUTH_SOCK is not set; keys are read from their files",
            "keys with a passphrase need an agent: eval $(ssh-agent); ssh-add",
        )  # fmt: skip
    try:
        async with asyncio.timeout(AGENT_SECONDS):
            async with asyncssh.connect_agent(path) as agent:
                keys = list(await agent.get_keys())
    except (OSError, asyncssh.Error, ValueError, TimeoutError) as error:
        words = str(error) or f"no answer within {AGENT_SECONDS:g} s"
        return Finding(
            name, Status.WARN, f"the agent at {path} does not answer: {words}", "start a new ssh-agent"
        )
    if not keys:
        return Finding(name, Status.WARN, "the agent has no key", "ssh-add ~/.ssh/id_ed25519")
    return Finding(name, Status.OK, f"{len(keys)} key{'s' if len(keys) > 1 else ''}")


def ssh_config() -> Finding:
    """The user's ssh_config: ssh reads every line of it, as for a host that no block names. It runs ``Match exec``."""
    name = "client.ssh-config"
    try:
        around = surroundings()
        found = scan(around).aliases
        notes = resolve(Wanted(NOBODY), around).notes
    except ConfigError as error:
        return Finding(
            name, Status.FAIL, str(error), "correct that line; `ssh -G HOST` shows what OpenSSH makes of it"
        )
    text = "; ".join((f"{len(found)} host{'' if len(found) == 1 else 's'} named", *notes))
    if NO_SSH in notes:
        return Finding(name, Status.WARN, text, "install OpenSSH's client, e.g. apt install openssh-client")
    return Finding(name, Status.OK, text)


async def check() -> list[Finding]:
    """Return the findings of all checks of this machine."""
    return [python(), terminal(), await ssh_agent(), await asyncio.to_thread(ssh_config)]
