"""The system's ``ssh`` as a pipe for bulk data, pinned to the verified host key and login.

asyncssh decrypts in Python, in the same process that hashes and writes; ``ssh`` does it in C, in
parallel. ``ssh`` decides nothing: it reads no configuration, prompts nobody, and knows one host
key, the one verified on the open connection, and one login key, the one that the server accepted
there. If it cannot be restricted like that (jump hosts, a ProxyCommand, certificates, passwords,
keys with a passphrase or a touch), it is not used.
"""

from __future__ import annotations

import base64
import contextlib
import fcntl
import os
import re
import shutil
import stat
import subprocess
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

import asyncssh

from rgt_tui.files import replace_file, state_directory
from rgt_tui.ssh.box_transport import BoxTransport
from rgt_tui.ssh.connection import ssh_arguments
from rgt_tui.ssh.hop import CIPHERS_FIRST, KEX_FIRST, keepalive
from rgt_tui.ssh.login import Login, load_identity
from rgt_tui.ssh.login_shell import reads_commands_from_stdin
from rgt_tui.ssh.ssh_route import SshHost

PIPE_BYTES = 1 << 20
"""Size of its output pipe: it continues while received data is written."""
FOLDER = "rgt-ssh-"
"""Prefix of the directory with the files for `ssh`, followed by the process id of its creator."""
ALIAS = "rgt-verified"
"""The name in the one line of its known_hosts file."""
LOGIN_SECONDS = 10
PINNED = (
    "BatchMode=yes", "StrictHostKeyChecking=yes", "GlobalKnownHostsFile=/dev/null",
    f"HostKeyAlias={ALIAS}",
    "UpdateHostKeys=no", "CheckHostIP=no", "VerifyHostKeyDNS=no", "IdentitiesOnly=yes",
    "PreferredAuthentications=publickey", "PubkeyAuthentication=yes", "ControlMaster=no",
    "ControlPath=none",
    "ClearAllForwardings=yes", "ForwardAgent=no", "ForwardX11=no", "PermitLocalCommand=no",
    "LogLevel=ERROR",
    f"ConnectTimeout={LOGIN_SECONDS}",
)  # fmt: skip
_PLAIN = re.compile(r"[\w/.,:+@=-]+(?: [\w/.,:+@=-]+)*")
"""Paths in which ``ssh`` expands nothing; those with blanks are quoted."""
_HOST_KEY = re.compile(
    "host key verification failed|host identification has changed", re.IGNORECASE
)


class NotCarried(Exception):
    """This route cannot carry bulk data; the message says why."""


class BulkClient:
    """Starts commands on one box.

    Args:
        words: The command line up to the command.
        folder: Directory of the files that it names; deleted by `close`.
    """

    def __init__(self, words: tuple[str, ...], folder: tempfile.TemporaryDirectory[str]) -> None:
        self._words, self._folder = words, folder

    def start_command(self, command: str) -> subprocess.Popen[bytes]:
        """Start a command for the login shell of the box; it blocks briefly.

        Raises:
            NotCarried: the program cannot be started.
        """
        env = {
            name: value
            for name, value in os.environ.items()
            if name not in ("DISPLAY", "SSH_ASKPASS")
        }
        try:
            # In its own session: without a terminal for prompts, and unaffected by Ctrl-C.
            process = subprocess.Popen(
                [*self._words, command],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env={**env, "SSH_ASKPASS_REQUIRE": "never"},
                start_new_session=True,
            )
        except OSError as error:
            raise NotCarried(f"ssh cannot be started ({error.strerror or error})") from error
        # Linux only; the usual 64 KiB would make ssh wait whenever a block is being written.
        if process.stdout is not None and hasattr(fcntl, "F_SETPIPE_SZ"):
            # this user has reached the kernel's limit of bytes in pipes
            with contextlib.suppress(OSError):
                fcntl.fcntl(process.stdout.fileno(), fcntl.F_SETPIPE_SZ, PIPE_BYTES)
        return process

    def close(self) -> None:
        """Delete its files; they contain no secret."""
        self._folder.cleanup()


def refuses_host(words: str) -> bool:
    """Return whether ``ssh`` ended because the host key differs from the verified one."""
    return _HOST_KEY.search(words) is not None


def bulk_client(connection: BoxTransport, env: Mapping[str, str] = os.environ) -> BulkClient:
    """Return a client that reaches the same box through ``ssh`` with the connection's proven keys.

    Args:
        connection: Open, with verified host key and login.
        env: Environment with the PATH.

    Raises:
        NotCarried: ``ssh`` is missing, or cannot be restricted to that host key and login.
    """
    program = shutil.which("ssh", path=env.get("PATH"))
    if program is None:
        raise NotCarried("there is no ssh program on this machine")
    host, login = connection.get_extra_info("rgt_host"), connection.get_extra_info("rgt_login")
    peer = connection.get_extra_info("peername")
    if not isinstance(host, SshHost) or not isinstance(login, Login) or not isinstance(peer, tuple):
        raise NotCarried("how the login was done is not known")
    # Jump hosts would need pinned keys and logins of their own.
    if connection.get_extra_info("rgt_below") is not None or host.proxy_command is not None:
        raise NotCarried("the way there leads through another host or program")
    # There the command given to ssh would not run; it has to be typed into a shell.
    if reads_commands_from_stdin(connection):
        raise NotCarried("a start-up file on the box replaces the login shell")
    key = None
    if isinstance(connection, asyncssh.SSHClientConnection):
        key = connection.get_server_host_key()
    if key is None:
        raise NotCarried("the host key is not known")
    # A client that was killed leaves its directory, with the name of its process in it.
    remove_left_folders()
    folder = tempfile.TemporaryDirectory(prefix=f"{FOLDER}{os.getpid()}-")
    try:
        identity = _find_identity(login, Path(folder.name))
        # The key that asyncssh has verified on the open connection; ssh needs no other.
        line = f"{ALIAS} {key.export_public_key('openssh').decode().strip()}\n"
        known = Path(folder.name) / "known_hosts"
        known.write_text(line, encoding="ascii")
        words = _ssh_arguments(program, host, peer, key, identity, known)
    except BaseException:
        folder.cleanup()
        raise
    return BulkClient(words, folder)


def remove_left_folders() -> None:
    """Delete the directories of processes killed an hour ago or more; they contain a public key.

    A process of another container that shares the directory looks like an ended one; hence the
    hour.
    """
    left_s = 3600.0
    for path in Path(tempfile.gettempdir()).glob(f"{FOLDER}*-*"):
        pid = path.name.removeprefix(FOLDER).partition("-")[0]
        try:
            status = path.lstat()
            if (
                not pid.isdecimal()
                or status.st_uid != os.geteuid()
                or not stat.S_ISDIR(status.st_mode)
            ):
                continue
            if time.time() - status.st_mtime < left_s:
                continue
            os.kill(int(pid), 0)
        except ProcessLookupError:
            shutil.rmtree(path, ignore_errors=True)
        except (OSError, OverflowError):
            continue  # it is already gone, or the process belongs to another user


def pinned_host_key(connection: asyncssh.SSHClientConnection, file: Path) -> tuple[str, ...]:
    """Return options that pin a person's own ``ssh`` to the host key verified by a connection.

    Args:
        connection: An open connection.
        file: Where to store the key; an existing file is replaced.

    Raises:
        NotCarried: the key is unknown, or ``ssh`` cannot be given that file name.
        OSError: the file cannot be written.
    """
    key = connection.get_server_host_key()
    if key is None:
        raise NotCarried("the host key is not known")
    name = _quote_path(file)
    file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    # Replaced, not appended to: the last verified key is the only one that counts.
    replace_file(file, f"{ALIAS} {key.export_public_key('openssh').decode().strip()}\n".encode())
    said = (
        "StrictHostKeyChecking=yes", f"HostKeyAlias={ALIAS}", f"UserKnownHostsFile={name}",
        "GlobalKnownHostsFile=/dev/null", "UpdateHostKeys=no", "CheckHostIP=no",
    )  # fmt: skip
    return tuple(word for option in said for word in ("-o", option))


def terminal_words(
    connection: BoxTransport, box: str, command: str = "", env: Mapping[str, str] = os.environ
) -> tuple[str, ...]:
    """Return the program and its arguments that open a person's terminal at a connection's far end.

    Args:
        connection: An open connection.
        box: Name of the box.
        command: Command line for the box's shell; empty = the shell itself.
        env: The process's environment.
    """
    words: tuple[str, ...] | None = connection.get_extra_info("rgt_terminal")
    if words is not None:
        return (*words, "sh", "-c", command or 'exec "$(command -v bash || command -v sh)"')
    assert isinstance(connection, asyncssh.SSHClientConnection)
    arguments = pinned_ssh_arguments(connection, box, env)
    if command:
        return ("ssh", "-t", *arguments, command)
    return ("ssh", *arguments)


def pinned_ssh_arguments(
    connection: asyncssh.SSHClientConnection, box: str, env: Mapping[str, str] = os.environ
) -> tuple[str, ...]:
    """Return the arguments of a person's own ``ssh`` to the place of an open connection.

    Its verified host key is stored in rgt's state directory. If that is impossible, ``ssh`` finds
    the key in the known_hosts files that the connection has read.

    Args:
        connection: An open connection.
        box: Name of the box.
        env: The process's environment.
    """
    words = ssh_arguments(connection)
    try:
        return (*pinned_host_key(connection, state_directory(env) / "verified-hosts" / box), *words)
    except (OSError, NotCarried):
        return words


def _ssh_arguments(
    program: str,
    host: SshHost,
    peer: tuple[str, int],
    key: asyncssh.SSHKey,
    identity: str,
    known: Path,
) -> tuple[str, ...]:
    algorithms = [name.decode() for name in key.sig_algorithms if name != b"ssh-rsa"]
    alive = keepalive(host)
    options = [
        *PINNED,
        f"HostKeyAlgorithms={','.join(algorithms)}",
        f"UserKnownHostsFile={_quote_path(known)}",
        f"IdentityAgent={_quote_path(Path(host.agent)) if host.agent else 'none'}",
        f"Ciphers={host.ciphers or CIPHERS_FIRST}",
        f"KexAlgorithms={host.kex or KEX_FIRST}",
        *([f"MACs={host.macs}"] if host.macs else []),
        f"Compression={'yes' if host.compression else 'no'}",
        f"ServerAliveInterval={max(1, round(alive['keepalive_interval']))}",
        f"ServerAliveCountMax={alive['keepalive_count_max']}",
    ]
    said = [word for option in options for word in ("-o", option)]
    if host.bind_address:
        bind = ["-b", host.bind_address]
    else:
        bind = []
    address, port = peer[:2]
    return (
        # -F none: no configuration file may add a command, a forwarding or another key. -e none:
        # binary data must not be read for escapes.
        program, "-F", "none", "-T", "-a", "-x", "-e", "none", *said, *bind,
        "-i", identity, "-l", host.user, "-p", str(port), "--", address,
    )  # fmt: skip


def _find_identity(login: Login, folder: Path) -> str:
    """Return the file that identifies the key that the server accepted."""
    key = login.used
    if key is None:
        raise NotCarried("the login was not by a key alone")
    if key.certified:
        raise NotCarried("the login is by a certificate")
    if key.type.startswith(("sk-", "webauthn-")):
        raise NotCarried("the key needs a touch for every login")
    if key.path is None:  # the agent has it: the public half selects it
        public = folder / "identity.pub"
        public.write_text(f"{key.type} {base64.b64encode(key.public).decode()}\n", encoding="ascii")
        return str(public)
    # BatchMode: ssh could not ask for the passphrase.
    if load_identity(key.path).key is None:
        raise NotCarried("the key has a passphrase and is in no SSH agent")
    if not _PLAIN.fullmatch(key.path):
        raise NotCarried("the name of the key's file has characters that ssh expands")
    return key.path


def _quote_path(path: Path) -> str:
    text = str(path)
    if not _PLAIN.fullmatch(text):
        raise NotCarried(f"{text} has characters that ssh expands")
    if " " in text:
        return f'"{text}"'
    return text
