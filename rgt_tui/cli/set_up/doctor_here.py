"""The checks of ``rgt doctor`` on this machine and the fleet file; the ids of checks are stable."""

from __future__ import annotations

import asyncio
import enum
import os
import shutil
import stat
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

# Heavy, but this module is only loaded by `rgt doctor`, which connects anyway.
import asyncssh

from rgt_tui import files
from rgt_tui.cli.dashboard import DUMB
from rgt_tui.cli.opening import NONE_FOUND, UNTRUSTED
from rgt_tui.files import find_in_env_files
from rgt_tui.fleet.config import FleetConfig, FleetFileError, FleetFilePlace, open_place
from rgt_tui.fleet.config.value_checks import usual_name
from rgt_tui.language import translate
from rgt_tui.model import FrozenStruct, how_many
from rgt_tui.providers import ProviderError, Providers, UnknownProvider
from rgt_tui.ssh import (
    NO_FILE,
    NO_SSH,
    ConfigError,
    HostRequest,
    expand_path,
    resolve_host,
    scan_config,
    surroundings,
)
from rgt_tui.ssh.login import load_identity


class DoctorStatus(enum.StrEnum):
    """The result of a check."""

    OK = "ok"
    WARN = "warn"
    """It works, but not as it should."""
    FAIL = "fail"
    SKIP = "skip"
    """Not done, because another check failed or it does not apply."""


class DoctorFinding(FrozenStruct):
    """The result of one check, with its text."""

    id: str
    status: DoctorStatus
    text: str
    """What was found, in one line."""
    advice: str = ""
    """What to do about it; empty if there is nothing to do."""
    box: str | None = None
    """None = about this machine or the fleet file."""


BOX_CHECKS: dict[str, str] = {
    "dns": "the host name of the first hop has an address",
    "tcp": "its port answers as an SSH server",
    "hostkey": "the host keys of every hop match known_hosts",
    "login": "the box accepts the login",
    "shell": "the login shell runs commands, soon and without much output of its own",
    "python": "a Python that can run the agent",
    "agent": "the agent is installed and answers",
    "disk": "free bytes and inodes for rgt and the training",
    "tmux": "tmux, setsid or Slurm, so that work survives a lost connection",
    "clock-skew": "the box's clock against ours",
    "mounts": "the mount points that the fleet file or the profile names",
    "gpu": "the GPUs and where their readings come from",
    "recorders": "recorders on the box that are no longer needed",
    "platform": "the profile matches the detected platform",
}
"""In the order of execution; the full id is ``box.NAME.CHECK``."""


def box_id(box: str, check: str) -> str:
    """Return the full id of a box's check."""
    return f"box.{box}.{check}"


# With a real host's name, lines that match other hosts would not be evaluated.
NOBODY = "rgt-check"
"""A host name that matches no entry: errors in a line show up with any name."""
# The fleet shows GPUs and alerts from 80 columns on (docs/screens/fleet.md).
SMALLEST = (80, 24)


def check_python() -> DoctorFinding:
    """Check the Python that runs rgt."""
    version = ".".join(map(str, sys.version_info[:3]))
    # A finding even though it cannot fail: reports of bugs contain it.
    return DoctorFinding(
        "client.python",
        DoctorStatus.OK,
        translate("Python {version} at {executable}", version=version, executable=sys.executable),
    )


def check_terminal() -> DoctorFinding:
    """Check whether the dashboard can be drawn here."""
    name = "client.terminal"
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        return DoctorFinding(
            name,
            DoctorStatus.SKIP,
            translate("not a terminal; the dashboard needs one, the commands do not"),
        )
    kind = os.environ.get("TERM", "")
    size = shutil.get_terminal_size()
    if kind in ("", *DUMB):
        return DoctorFinding(
            name,
            DoctorStatus.FAIL,
            translate("TERM is {kind!r}", kind=kind),
            translate("set TERM, e.g. export TERM=xterm-256color"),
        )
    # Not the locale's name: what counts is how Python writes to this terminal.
    encoding = (sys.stdout.encoding or "").lower()
    if encoding.replace("-", "") != "utf8":
        advice = translate("use a UTF-8 locale, e.g. export LC_ALL=C.UTF-8")
        return DoctorFinding(
            name,
            DoctorStatus.WARN,
            translate("the terminal's encoding is {encoding}", encoding=encoding or "unknown"),
            advice,
        )
    # The only sign of 24-bit colours that terminals agree on; without it nothing is wrong.
    colours = os.environ.get("COLORTERM") in ("truecolor", "24bit")
    text = (
        f"{kind}, {size.columns}×{size.lines}, "
        f"{'24-bit colours' if colours else 'colours as TERM declares'}"
    )
    if size.columns < SMALLEST[0] or size.lines < SMALLEST[1]:
        return DoctorFinding(
            name, DoctorStatus.WARN, text, translate("make the window at least 80×24")
        )
    return DoctorFinding(name, DoctorStatus.OK, text)


async def check_ssh_agent() -> DoctorFinding:
    """Check the SSH agent and its keys."""
    name = "client.ssh-agent"
    path = os.environ.get("SSH_AUTH_SOCK")
    if not path:
        return DoctorFinding(
            name, DoctorStatus.SKIP,
            translate("SSH_AUTH_SOCK is not set; keys are read from their files"),
            translate("keys with a passphrase need an agent: eval $(ssh-agent); ssh-add"),
        )  # fmt: skip
    # A forwarded agent whose connection is gone accepts and never answers.
    agent_seconds = 5.0
    try:
        async with asyncio.timeout(agent_seconds):
            async with asyncssh.connect_agent(path) as agent:
                keys = list(await agent.get_keys())
    # ValueError: a path with a NUL, or longer than a socket's address allows.
    except (OSError, asyncssh.Error, ValueError, TimeoutError) as error:
        words = str(error) or translate(
            "no answer within {agent_seconds:g} s", agent_seconds=agent_seconds
        )
        return DoctorFinding(
            name,
            DoctorStatus.WARN,
            translate("the agent at {path} does not answer: {words}", path=path, words=words),
            translate("start a new ssh-agent"),
        )
    if not keys:
        return DoctorFinding(
            name,
            DoctorStatus.WARN,
            translate("the agent has no key"),
            "ssh-add ~/.ssh/id_ed25519",
        )
    return DoctorFinding(name, DoctorStatus.OK, how_many(len(keys), "key"))


def check_ssh_config() -> DoctorFinding:
    """Check every line of the user's ssh_config, as for an unknown host; ``Match exec`` is run."""
    name = "client.ssh-config"
    try:
        around = surroundings()
        found = scan_config(around).aliases
        # `ssh -G` itself reports wrong lines, so the messages are OpenSSH's.
        notes = resolve_host(HostRequest(NOBODY), around).notes
    except ConfigError as error:
        return DoctorFinding(
            name,
            DoctorStatus.FAIL,
            str(error),
            translate("correct that line; `ssh -G HOST` shows what OpenSSH makes of it"),
        )
    text = "; ".join((translate("{hosts} named", hosts=how_many(len(found), "host")), *notes))
    if NO_SSH in notes:
        return DoctorFinding(
            name,
            DoctorStatus.WARN,
            text,
            translate("install OpenSSH's client, e.g. apt install openssh-client"),
        )
    return DoctorFinding(name, DoctorStatus.OK, text)


async def check_machine() -> list[DoctorFinding]:
    """Return the findings of all checks of this machine."""
    return [
        check_python(),
        check_terminal(),
        await check_ssh_agent(),
        # In a thread, because a `Match exec` may take long.
        await asyncio.to_thread(check_ssh_config),
    ]


def check_fleet_file(place: FleetFilePlace | None) -> tuple[DoctorFinding, FleetConfig | None]:
    """Check the fleet file; also return its contents if it can be used."""
    name = "config.file"
    if place is None:
        # Its first sentence; the second one explains what the advice already says.
        text = translate(NONE_FOUND).splitlines()[0].rstrip(".。")
        return DoctorFinding(
            name, DoctorStatus.FAIL, text, translate("rgt init, then rgt add NAME HOST")
        ), None
    try:
        config = open_place(place)
    except FleetFileError as error:
        return DoctorFinding(
            name,
            DoctorStatus.FAIL,
            str(error),
            translate("correct that line; docs/fleet-file.md has every key"),
        ), None
    if config.doubt is not None:
        return DoctorFinding(name, DoctorStatus.WARN, config.doubt, translate(UNTRUSTED)), config
    count = f"{place.path}: {how_many(len(config.boxes), 'box', 'boxes')}"
    if config.warnings:
        return DoctorFinding(
            name,
            DoctorStatus.WARN,
            f"{count}; {'; '.join(config.warnings)}",
            translate("remove one of the two"),
        ), config
    return DoctorFinding(name, DoctorStatus.OK, count), config


def check_secrets(config: FleetConfig | None, env: Mapping[str, str]) -> DoctorFinding:
    """Check that the variables and files that the file names for secrets exist; show no value."""
    name = "config.secrets"
    if config is None:
        return DoctorFinding(name, DoctorStatus.SKIP, translate("there is no usable fleet file"))
    named = list(_list_named_sources(config))
    found = [problem for item in named if (problem := _find_problem(item, env)) is not None]
    # Missing ones hide loose permissions: first things first, one line of advice.
    missing = [text for status, text in found if status is DoctorStatus.FAIL]
    if missing:
        return DoctorFinding(
            name,
            DoctorStatus.FAIL,
            "; ".join(missing),
            translate("export the variable, or create the file, before rgt starts"),
        )
    if found:
        loose = "; ".join(text for _, text in found)
        return DoctorFinding(
            name,
            DoctorStatus.WARN,
            loose,
            translate("chmod 600 the file; name the right one if it is not a key"),
        )
    text = translate("none named")
    if named:
        text = translate("{named} named, all present", named=len(named))
    return DoctorFinding(name, DoctorStatus.OK, text)


def check_provider_keys(config: FleetConfig | None) -> DoctorFinding:
    """Check that each account of the fleet has a key, and say where it is; show no value."""
    name = "config.keys"
    specs = () if config is None else config.boxes
    refs = {
        (spec.provider.kind, spec.provider.account): spec.provider
        for spec in specs
        if spec.provider
    }
    providers = Providers()
    used, missing = [], []
    for ref in refs.values():
        try:
            # Platforms without an API have no client, and so no key.
            http = getattr(providers.find_account(ref), "http", None)
            if http is not None and http.key_place:
                used.append(f"{ref.kind}: {http.key_place}")
        except (ProviderError, UnknownProvider) as error:
            missing.append(f"{ref.kind}: {error}")
    if missing:
        return DoctorFinding(
            name,
            DoctorStatus.FAIL,
            "; ".join((*missing, *used)),
            translate(
                "export the variable, or write it into .env next to the fleet file (chmod 600)"
            ),
        )
    if not used:
        return DoctorFinding(name, DoctorStatus.SKIP, translate("no box has a provider with a key"))
    for path in files.ENV_FILES:
        is_used = any(text.endswith(f" in {path}") for text in used)
        if is_used and path.stat().st_mode & 0o077:
            said = translate("; others may read {path}", path=path)
            return DoctorFinding(
                name, DoctorStatus.WARN, "; ".join(used) + said, f"chmod 600 {path}"
            )
    return DoctorFinding(name, DoctorStatus.OK, "; ".join(used))


class _NamedSource(NamedTuple):
    """A variable or file that the fleet file names."""

    who: str
    key: str
    value: str
    what: str
    """variable, file, or identity."""


def _list_named_sources(config: FleetConfig) -> Iterator[_NamedSource]:
    for spec in config.boxes:
        # Only keys named in the file; the usual variables are checked by `check_provider_keys`.
        if spec.provider is not None and spec.provider.key_env:
            yield _NamedSource(
                f"boxes.{spec.name}.provider", "key_env", spec.provider.key_env, "variable"
            )
        if spec.identity:
            yield _NamedSource(f"boxes.{spec.name}", "identity", spec.identity, "identity")
    for place, sink in enumerate(config.alerts.sinks):
        for key in ("url_env", "token_env"):
            if getattr(sink, key):
                yield _NamedSource(f"sinks[{place}]", key, getattr(sink, key), "variable")
        if sink.url_file:
            yield _NamedSource(f"sinks[{place}]", "url_file", sink.url_file, "file")


def _find_problem(item: _NamedSource, env: Mapping[str, str]) -> tuple[DoctorStatus, str] | None:
    """Return the problem of one of them: it is missing (fail), or others can read it (warn)."""
    who = f"{item.who}: {item.key}"
    if item.what == "variable":
        # An empty variable counts as missing: exporting one is a common way to disable a key.
        if env.get(item.value) or find_in_env_files((item.value,))[0]:
            return None
        # A key pasted instead of its variable's name must not be repeated on the screen.
        if usual_name(item.value):
            problem = translate("{who} names {name!r}, which is not set", who=who, name=item.value)
        else:
            problem = translate("{who} names a variable that is not set", who=who)
        return DoctorStatus.FAIL, problem
    if item.what == "identity":
        found = _key_problem(item.value, env)
    else:
        found = _file_problem(item.value)
    if found is None:
        return None
    return (found[0], f"{who} = {item.value!r}: {found[1]}")


def _key_problem(value: str, env: Mapping[str, str]) -> tuple[DoctorStatus, str] | None:
    """Check a key file: a public key suffices if the SSH agent has the private one."""
    try:
        home = surroundings(NO_FILE, env).home
        # As ssh expands the key IdentityFile.
        found = load_identity(expand_path(value, {"%": "%", "d": home}, env))
    except ValueError as error:
        return DoctorStatus.FAIL, str(error)
    if found.missing:
        if found.public is not None:
            return None
        return (DoctorStatus.FAIL, found.problem or translate("there is no such file"))
    if found.problem is None:
        return None
    return (DoctorStatus.WARN, found.problem)


def _file_problem(value: str) -> tuple[DoctorStatus, str] | None:
    try:
        file = Path(value).expanduser()
        mode = stat.S_IMODE(file.stat().st_mode)
    except (OSError, RuntimeError) as error:
        return DoctorStatus.FAIL, getattr(error, "strerror", None) or str(error)
    if not os.access(file, os.R_OK):
        return DoctorStatus.FAIL, translate("cannot be read")
    # ssh refuses such a private key; for files of sinks it is a warning.
    if mode & 0o077:
        return (DoctorStatus.WARN, translate("others can read it (mode {mode:o})", mode=mode))
    return None
