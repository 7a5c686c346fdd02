"""Reads a host's ssh_config settings with ``ssh -G``, so that they mean the same as for ``ssh``.

``ssh -G`` does not tell whether a user or the default keys were named, so it reads a file of ours
that includes the user's: ours adds the platform's user at the end, where the first value counts,
and a key name that nobody has. Without an installed ``ssh``, asyncssh reads the files.
"""

from __future__ import annotations

import fnmatch
import functools
import getpass
import glob
import os
import re
import shlex
import signal
import stat
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from rgt_tui.files import open_named
from rgt_tui.language import translate
from rgt_tui.model import FrozenStruct, clean_text
from rgt_tui.ssh.box_transport import ConfigError

SYSTEM = Path("/etc/ssh")
NO_AGENT = "none"
"""As the `python` of a box: nothing is put on it, and its shell reads it."""
NO_FILE = "none"
SECONDS = 10.0
"""Time limit of ``ssh -G`` in seconds: a command of ``Match exec``, or a name server, may hang."""
NO_KEY = "/rgt/no-key-was-named"
"""Appended to the keys in ssh_config; if it is the only one, none was named."""
OF_ITS_OWN = "; give the jump host a separate entry with `ProxyJump none`"
"""Advice for a circular chain of jump hosts."""
NOTES = "rgt-notes"
"""Key of the notes about an answer."""
NO_SSH = (
    "no ssh on this machine that supports ssh -G: ssh_config was read by asyncssh, which "
    "supports fewer options"
)

Answer = Mapping[str, tuple[str, ...]]
"""Lower-case keyword → its values, as ``ssh -G`` prints them, if they differ from ssh's defaults.
"""
ALWAYS = ("hostname", "port", "user", "identityfile")
"""Keywords that are in every answer."""

_NAMING = re.compile(r'\s*"?(host|include)"?(?=[\s="])\s*(?:=\s*)?(.*)', re.IGNORECASE)
_CHANGING = re.compile(
    r"^\s*match\b.*\b(?:exec|localnetwork)\b|^\s*canonicalizehostname\b(?!\W+(?:no|false)\b)"
    r"|^[^#]*\$\{",
    re.IGNORECASE | re.MULTILINE,
)
"""Settings whose result may change without any file changing."""
_TELLING_APART = re.compile(r'^\s*"?match"?[\s="]|%C', re.IGNORECASE | re.MULTILINE)
"""Settings whose result may differ by host, without a matching ``Host`` line."""
_PLAIN = re.compile(r"[a-z0-9][a-z0-9.-]*")
"""A host name that ssh uses literally."""
ANYBODY, ANY_PORT, ANY_USER = "rgt-any-host", "64999", "rgt-any-user"
"""Placeholders for all hosts that no line of the files distinguishes: they share one query."""


class ConfigSource(FrozenStruct):
    """One file to start from."""

    path: Path
    base: Path
    """Base directory of relative includes."""
    private: bool = False
    """Others must not be able to write to it, because it may name commands to run."""
    must_exist: bool = False


class Surroundings(FrozenStruct):
    """The ssh_config files, and the environment in which they are read."""

    sources: tuple[ConfigSource, ...]
    home: str
    local_user: str
    env: Mapping[str, str]

    @property
    def ssh_folder(self) -> Path:
        """The directory of the user's own files."""
        return Path(self.home) / ".ssh"


def surroundings(
    ssh_config: str | None = None, env: Mapping[str, str] | None = None
) -> Surroundings:
    """Describe this machine.

    Args:
        ssh_config: One file to use exclusively; None = ``~/.ssh/config`` and
            ``/etc/ssh/ssh_config``; ``none`` = no file.
        env: The environment; None = the process's.
    """
    env = dict(os.environ if env is None else env)
    home = env.get("HOME") or str(Path.home())
    ssh = Path(home) / ".ssh"
    if ssh_config is None:
        sources: tuple[ConfigSource, ...] = (
            ConfigSource(ssh / "config", ssh, private=True),
            ConfigSource(SYSTEM / "ssh_config", SYSTEM),
        )
    elif ssh_config == NO_FILE:
        sources = ()
    else:
        file = Path(expand_path(ssh_config, {"%": "%", "d": home}, env)).absolute()
        sources = (ConfigSource(file, ssh, must_exist=True),)
    return Surroundings(sources, home, env.get("LOGNAME") or env.get("USER") or _login_user(), env)


@functools.cache
def _login_user() -> str:
    """Return the process's user from the user database.

    Cached, as it may be queried over a network.
    """
    return getpass.getuser()


class ConfigScan(FrozenStruct):
    """The names in the files, regardless of which apply to which host."""

    aliases: tuple[str, ...]
    stamps: tuple[tuple[object, ...], ...]
    """Stamp of each file: while they are unchanged, so are the answers, unless `changing`."""
    changing: bool
    notes: tuple[str, ...]
    patterns: tuple[str, ...] = ()
    """All words of the ``Host`` lines."""
    telling_apart: bool = False
    """Something other than a ``Host`` line may distinguish two hosts."""


def scan_config(around: Surroundings) -> ConfigScan:
    """Scan the files and their includes; aliases are the names of ``Host`` lines without wildcards.

    Raises:
        ConfigError: a named file is missing, a file cannot be read, or others could write to it.
    """
    return _ConfigScanner(around).scan()


class _ConfigScanner:
    def __init__(self, around: Surroundings) -> None:
        self._around = around
        self._aliases: dict[str, None] = {}
        self._stamps: dict[tuple[object, ...], None] = {}
        self._notes: list[str] = []
        self._changing = False
        self._patterns: dict[str, None] = {}
        self._telling_apart = False

    def scan(self) -> ConfigScan:
        for source in self._around.sources:
            self._scan_file(source, source.path, 0)
        return ConfigScan(
            tuple(self._aliases),
            tuple(self._stamps),
            self._changing,
            tuple(self._notes),
            tuple(self._patterns),
            self._telling_apart,
        )

    def _scan_file(self, source: ConfigSource, path: Path, depth: int) -> None:
        try:
            status = path.stat()
            lines, changing, telling_apart = _naming_lines(
                path, status.st_ino, status.st_mtime_ns, status.st_size
            )
        except FileNotFoundError:
            if source.must_exist and depth == 0:
                raise ConfigError(translate("{path}: no such ssh_config file", path=path)) from None
            self._stamps[str(path),] = None
            return
        except OSError as error:
            raise ConfigError(f"{path}: {error.strerror}") from error
        exposed = status.st_uid not in (0, os.getuid()) or status.st_mode & 0o022
        if source.private and stat.S_ISREG(status.st_mode) and exposed:
            raise ConfigError(
                translate(
                    "{path}: others may write to it, and it can name commands to run; chmod go-w "
                    "{path_2}",
                    path=path,
                    path_2=shlex.quote(str(path)),
                )
            )
        self._stamps[str(path), status.st_ino, status.st_mtime_ns, status.st_size] = None
        self._changing = self._changing or changing
        self._telling_apart = self._telling_apart or telling_apart
        # Maximum depth of includes, as in OpenSSH.
        deepest = 16
        for number, name, words in lines:
            if name == "host":
                self._aliases.update((word, None) for word in words if not set(word) & set("*?!"))
                self._patterns.update(dict.fromkeys(words))
            elif depth < deepest:  # deeper includes are reported by ssh itself
                for included in self._iterate_includes(source, words, f"{path}:{number}"):
                    self._scan_file(source, included, depth + 1)

    def _iterate_includes(
        self, source: ConfigSource, patterns: tuple[str, ...], at: str
    ) -> Iterator[Path]:
        around = self._around
        for pattern in patterns:
            try:
                expanded = expand_path(pattern, {"%": "%", "d": around.home}, around.env)
            except ValueError as error:
                raise ConfigError(
                    translate("{at}: include: {error}", at=at, error=error)
                ) from error
            if source.base != around.ssh_folder and not Path(expanded).is_absolute():
                self._notes.append(
                    translate("{at}: a relative Include is looked for in ~/.ssh", at=at)
                )
            yield from (Path(found) for found in sorted(glob.glob(str(source.base / expanded))))  # noqa: PTH207


@functools.lru_cache(maxsize=64)
def _naming_lines(
    path: Path, *_stamp: object
) -> tuple[tuple[tuple[int, str, tuple[str, ...]], ...], bool, bool]:
    """Return number, keyword and words of ``Host`` and ``Include`` lines, and `ConfigScan`'s two flags.

    Raises:
        ConfigError: a quote is not closed.
    """
    with open_named(path) as file:
        text = file.read().decode("utf-8", "surrogateescape")
    lines = []
    for number, line in enumerate(text.split("\n"), 1):
        found = _NAMING.fullmatch(line.rstrip())
        if found is not None:
            try:
                words = tuple(shlex.split(found[2], comments=True))
            except ValueError as error:
                raise ConfigError(f"{path}:{number}: {found[1]}: {error}") from error
            lines.append((number, found[1].lower(), words))
    return tuple(lines), _CHANGING.search(text) is not None, _TELLING_APART.search(text) is not None


def query_settings(
    host: str, options: tuple[str, ...], default_user: str | None, around: Surroundings
) -> Answer:
    """Return the ssh_config settings of a host; empty if there is no file. May run ``Match exec``.

    Args:
        host: As the person wrote it.
        options: For ``ssh``: ``-p`` and ``-l``.
        default_user: Used if no file names a user.
        around: The files.

    Raises:
        ConfigError: a file is wrong, or it took too long; ssh's own message names file and line.
    """
    if not around.sources:
        return {}
    found = scan_config(around)
    if host.startswith("-"):  # it must not be parsed as an option of ssh
        raise ConfigError(translate("{host!r} is not a valid host name", host=host))
    lines = [f'Include "{glob.escape(str(source.path))}"' for source in around.sources]
    lines += [
        "Host *",
        *([f'User "{default_user}"'] if default_user else []),
        f"IdentityFile {NO_KEY}",
    ]
    text = "\n".join(lines) + "\n"
    try:
        if found.changing:
            answer = _query_ssh(host, options, text, around.env)
        else:
            path = around.env.get("PATH", os.defpath)
            common = _shared_answer(host, options, text, path, found)
            answer = common or _query_ssh_cached(host, options, text, path, found.stamps)
    except (FileNotFoundError, PermissionError):
        answer = _read_by_asyncssh(host, options, default_user, around)
    return {**answer, NOTES: (*answer.get(NOTES, ()), *found.notes)}


def _query_ssh(host: str, options: tuple[str, ...], text: str, env: Mapping[str, str]) -> Answer:
    usual = default_settings()
    with tempfile.NamedTemporaryFile("w", prefix="rgt-ssh-", errors="surrogateescape") as file:
        file.write(text)
        file.flush()
        answer = _run_ssh_g(("-F", file.name, *options), host, env)
    return {key: value for key, value in answer.items() if value != usual.get(key) or key in ALWAYS}


@functools.lru_cache(maxsize=1024)
def _query_ssh_cached(
    host: str, options: tuple[str, ...], text: str, path: str, _stamps: object
) -> Answer:
    return _query_ssh(host, options, text, {"PATH": path})


def _shared_answer(
    host: str, options: tuple[str, ...], text: str, path: str, found: ConfigScan
) -> Answer | None:
    """Return the shared answer for hosts that no line distinguishes, adapted to this one.

    An ``ssh -G`` costs 8 ms of CPU time, and a fleet of hundreds of boxes has one entry for all, or
    none.

    Returns:
        None if a line may apply to this host only, or its name, port or user could be part of
        another value.
    """
    if found.telling_apart or not _PLAIN.fullmatch(host) or _may_apply(host, found.patterns):
        return None
    if _may_apply(ANYBODY, found.patterns):
        return None
    given = dict(zip(options[::2], options[1::2], strict=True))
    if given.keys() - {"-p", "-l"}:
        return None
    anyone = {"-p": ANY_PORT, "-l": ANY_USER}
    asked = tuple(word for name in options[::2] for word in (name, anyone[name]))
    try:
        answer = _query_ssh_cached(ANYBODY, asked, text, path, found.stamps)
    except ConfigError:
        return None  # repeated by the caller, with the name of the host
    if "proxyjump" in answer:
        return None  # ssh rejects a jump host that leads to itself
    own = {"host": (ANYBODY, host), "hostname": (ANYBODY, host)}
    own |= {"port": (ANY_PORT, given["-p"])} if "-p" in given else {}
    own |= {"user": (ANY_USER, given["-l"])} if "-l" in given else {}
    mine: dict[str, tuple[str, ...]] = {}
    for key, values in answer.items():
        theirs, ours = own.get(key, ("", ""))
        if values == (theirs,):
            mine[key] = (ours,)
        elif any(mark in value for value in values for mark in (ANYBODY, ANY_PORT, ANY_USER)):
            return None
        else:
            mine[key] = values
    return mine


def _may_apply(host: str, patterns: tuple[str, ...]) -> bool:
    """Return whether a ``Host`` line may apply to `host` specifically; errs on the side of True."""
    words = (pattern.lower() for pattern in patterns if pattern != "*")
    return any(
        "," in word or "[" in word or fnmatch.fnmatchcase(host, word.lstrip("!")) for word in words
    )


@functools.cache
def default_settings() -> Answer:
    """Return the output of ``ssh -G`` without any configuration.

    Raises:
        FileNotFoundError: there is no ``ssh``, or it lacks ``-G`` (before OpenSSH 6.8, and
            dropbear's).
    """
    try:
        return _run_ssh_g(("-F", NO_FILE), "localhost", os.environ)
    except ConfigError as error:
        raise FileNotFoundError(str(error)) from error


def _run_ssh_g(options: tuple[str, ...], host: str, env: Mapping[str, str]) -> Answer:
    process = subprocess.Popen(
        ["ssh", "-T", *options, "-G", "--", host],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=dict(env),
        start_new_session=True,
        text=True,
        errors="surrogateescape",
    )
    try:
        out, err = process.communicate(timeout=SECONDS)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        raise ConfigError(
            translate(
                "ssh_config, for {host}: ssh -G did not end within {seconds:g} s; a command of "
                "Match exec may hang",
                host=host,
                seconds=SECONDS,
            )
        ) from None
    if process.returncode != 0:
        words = [
            clean_text(line) for line in err.splitlines() if line and "terminating, " not in line
        ]
        said = "; ".join(words[:3]) or "ssh -G failed"
        raise ConfigError(
            translate("ssh_config, for {host}: {said}", host=host, said=said)
            + (OF_ITS_OWN if "jumphost loop" in said else "")
        )
    answer: dict[str, tuple[str, ...]] = {}
    for line in out.splitlines():
        key, _, value = line.partition(" ")
        answer[key] = (*answer.get(key, ()), value)
    return answer


def _read_by_asyncssh(
    host: str, options: tuple[str, ...], default_user: str | None, around: Surroundings
) -> Answer:
    from asyncssh.config import ConfigParseError, SSHClientConfig

    given = dict(zip(options[::2], options[1::2], strict=True))
    paths = [str(source.path) for source in around.sources if source.path.exists()]
    port = int(given["-p"]) if "-p" in given else ()
    try:
        read = SSHClientConfig.load(
            None, paths, False, False, False, around.local_user, given.get("-l", ()), host, port
        )
    except (ConfigParseError, OSError) as error:
        raise ConfigError(
            translate("ssh_config, for {host}: {error}", host=host, error=error)
        ) from error
    found = {"User": default_user or around.local_user, **read.get_options(False)}
    answer: dict[str, tuple[str, ...]] = {NOTES: (NO_SSH,)}
    words = {True: "yes", False: "no", None: "none"}
    for option, value in found.items():
        if isinstance(value, list):
            values = value
        else:
            values = [value]
        said = tuple(words[one] if isinstance(one, bool | None) else str(one) for one in values)
        # modifications of lists, which only ssh can apply
        if said and not said[0].startswith(("+", "-", "^")):
            answer[option.lower()] = said
    return answer


_TOKEN = re.compile(r"%(.?)", re.DOTALL)
_VARIABLE = re.compile(r"\$\{([^}]*)\}")


def replace_tokens(text: str, table: Mapping[str, str]) -> str:
    """Replace ``%h`` and similar tokens.

    Raises:
        ValueError: a token is unknown.
    """

    def token_value(found: re.Match[str]) -> str:
        if found[1] not in table:
            raise ValueError(
                translate(
                    "the token {found!r} is not supported here (write a literal % as %%)",
                    found=found[0],
                )
            )
        return table[found[1]]

    return _TOKEN.sub(token_value, text)


def environment(text: str, env: Mapping[str, str]) -> str:
    """Replace ``${NAME}``.

    Raises:
        ValueError: a variable is not set.
    """

    def variable_value(found: re.Match[str]) -> str:
        if found[1] not in env:
            raise ValueError(
                translate("the environment variable {found} is not set", found=found[1])
            )
        return env[found[1]]

    return _VARIABLE.sub(variable_value, text)


def expand_path(text: str, table: Mapping[str, str], env: Mapping[str, str]) -> str:
    """Return the path that a value means: tokens, variables and ``~`` expanded.

    Raises:
        ValueError: a token or variable is unknown.
    """
    expanded = environment(replace_tokens(text, table), env)
    if expanded == "~" or expanded.startswith("~/"):
        return table["d"] + expanded[1:]
    # The system resolves another user's home, ~name/….
    return os.path.expanduser(expanded)  # noqa: PTH111 (a Path would drop a trailing slash)
