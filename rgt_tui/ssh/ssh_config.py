"""What ssh_config says about a host, as answered by ``ssh -G``, so that it means the same as for ``ssh``.

Two things ``ssh -G`` does not tell, and so its answer is made from a file of ours that includes the person's: whether
a user was named at all (ours names the platform's behind everything else, where the first value counts), and whether
the default keys were named (ours adds one that nobody has). Where no ``ssh`` is installed asyncssh reads the files.
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

import msgspec

from rgt_tui.files import open_named
from rgt_tui.model import clean
from rgt_tui.ssh.ssh_errors import ConfigError

SYSTEM = Path("/etc/ssh")
NO_FILE = "none"
DEEPEST = 16
"""Files that may include each other, as in OpenSSH."""
SECONDS = 10.0
"""An ``ssh -G`` that takes longer is given up, with an error: a command of ``Match exec``, or a name server, hangs."""
NO_KEY = "/rgt/no-key-was-named"
"""Stands behind the keys that ssh_config names; alone, it has named none."""
OF_ITS_OWN = "; give the jump host an entry of its own with `ProxyJump none`"
"""What to do about a chain of jump hosts that leads in a circle."""
NOTES = "rgt-notes"
"""Key of what is to be said of an answer."""
NO_SSH = "no ssh on this machine that answers ssh -G: ssh_config was read by asyncssh, which knows fewer options"

Answer = Mapping[str, tuple[str, ...]]
"""Lower-case keyword → its values, as ``ssh -G`` prints them, where they are not ssh's defaults."""
ALWAYS = ("hostname", "port", "user", "identityfile")
"""What is in every answer."""

_NAMING = re.compile(r'\s*"?(host|include)"?(?=[\s="])\s*(?:=\s*)?(.*)', re.IGNORECASE)
_CHANGING = re.compile(
    r"^\s*match\b.*\b(?:exec|localnetwork)\b|^\s*canonicalizehostname\b(?!\W+(?:no|false)\b)|^[^#]*\$\{",
    re.IGNORECASE | re.MULTILINE,
)
"""What may mean something else at the next time, though no file has changed."""
_TELLING_APART = re.compile(r'^\s*"?match"?[\s="]|%C', re.IGNORECASE | re.MULTILINE)
"""What may mean something else for each host, without a ``Host`` line that fits it."""
_PLAIN = re.compile(r"[a-z0-9][a-z0-9.-]*")
"""A host that ssh takes as it is written."""
ANYBODY, ANY_PORT, ANY_USER = "rgt-any-host", "64999", "rgt-any-user"
"""Stand for all hosts that no line of the files tells apart: they are asked for once, together."""


class Source(msgspec.Struct, frozen=True):
    """One file to start from."""

    path: Path
    base: Path
    """Where relative includes are looked for."""
    private: bool = False
    """Others must not be able to write to it: it may name commands to run."""
    must_exist: bool = False


class Surroundings(msgspec.Struct, frozen=True):
    """Where the files are, and whose they are."""

    sources: tuple[Source, ...]
    home: str
    local_user: str
    env: Mapping[str, str]

    @property
    def ssh(self) -> Path:
        """The directory of the user's own files."""
        return Path(self.home) / ".ssh"


def surroundings(
    ssh_config: str | None = None, env: Mapping[str, str] | None = None
) -> Surroundings:
    """Describe this machine.

    Args:
        ssh_config: One file that is used alone; None = ``~/.ssh/config`` and ``/etc/ssh/ssh_config``; ``none`` =
            no file.
        env: The environment; None = the process's.
    """
    env = dict(os.environ if env is None else env)
    home = env.get("HOME") or str(Path.home())
    ssh = Path(home) / ".ssh"
    if ssh_config is None:
        sources: tuple[Source, ...] = (
            Source(ssh / "config", ssh, private=True),
            Source(SYSTEM / "ssh_config", SYSTEM),
        )
    elif ssh_config == NO_FILE:
        sources = ()
    else:
        file = Path(expand(ssh_config, {"%": "%", "d": home}, env)).absolute()
        sources = (Source(file, ssh, must_exist=True),)
    return Surroundings(sources, home, env.get("LOGNAME") or env.get("USER") or _user(), env)


@functools.cache
def _user() -> str:
    """Return who runs this process, as the user database says; it may be asked over a network."""
    return getpass.getuser()


class Scan(msgspec.Struct, frozen=True):
    """What the files name, without regard to which of it counts for whom."""

    aliases: tuple[str, ...]
    stamps: tuple[tuple[object, ...], ...]
    """Of each file: as long as they are the same, so are the answers, unless `changing`."""
    changing: bool
    notes: tuple[str, ...]
    patterns: tuple[str, ...] = ()
    """All words of the ``Host`` lines."""
    telling_apart: bool = False
    """Something else than a ``Host`` line may make a difference between two hosts."""


def scan(around: Surroundings) -> Scan:
    """Look through the files, ``Include`` followed; the aliases are the names of ``Host`` lines, wildcards left out.

    Raises:
        ConfigError: a file is missing though named, cannot be read, or could be written to by others.
    """
    return _Scanner(around).scan()


class _Scanner:
    def __init__(self, around: Surroundings) -> None:
        self._around = around
        self._aliases: dict[str, None] = {}
        self._stamps: dict[tuple[object, ...], None] = {}
        self._notes: list[str] = []
        self._changing = False
        self._patterns: dict[str, None] = {}
        self._telling_apart = False

    def scan(self) -> Scan:
        for source in self._around.sources:
            self._file(source, source.path, 0)
        return Scan(
            tuple(self._aliases),
            tuple(self._stamps),
            self._changing,
            tuple(self._notes),
            tuple(self._patterns),
            self._telling_apart,
        )

    def _file(self, source: Source, path: Path, depth: int) -> None:
        try:
            status = path.stat()
            lines, changing, telling_apart = _lines(
                path, status.st_ino, status.st_mtime_ns, status.st_size
            )
        except FileNotFoundError:
            if source.must_exist and depth == 0:
                raise ConfigError(f"{path}: no such ssh_config file") from None
            self._stamps[str(path),] = None
            return
        except OSError as error:
            raise ConfigError(f"{path}: {error.strerror}") from error
        exposed = status.st_uid not in (0, os.getuid()) or status.st_mode & 0o022
        if source.private and stat.S_ISREG(status.st_mode) and exposed:
            raise ConfigError(
                f"{path}: others may write to it, and it can name commands to run; "
                f"chmod go-w {shlex.quote(str(path))}"
            )
        self._stamps[str(path), status.st_ino, status.st_mtime_ns, status.st_size] = None
        self._changing = self._changing or changing
        self._telling_apart = self._telling_apart or telling_apart
        for number, name, words in lines:
            if name == "host":
                self._aliases.update((word, None) for word in words if not set(word) & set("*?!"))
                self._patterns.update(dict.fromkeys(words))
            elif depth < DEEPEST:  # deeper, ssh itself says what is wrong
                for included in self._included(source, words, f"{path}:{number}"):
                    self._file(source, included, depth + 1)

    def _included(self, source: Source, patterns: tuple[str, ...], at: str) -> Iterator[Path]:
        around = self._around
        for pattern in patterns:
            try:
                expanded = expand(pattern, {"%": "%", "d": around.home}, around.env)
            except ValueError as error:
                raise ConfigError(f"{at}: include: {error}") from error
            if source.base != around.ssh and not Path(expanded).is_absolute():
                self._notes.append(f"{at}: a relative Include is looked for in ~/.ssh")
            yield from (Path(found) for found in sorted(glob.glob(str(source.base / expanded))))  # noqa: PTH207


@functools.lru_cache(maxsize=64)
def _lines(
    path: Path, *_stamp: object
) -> tuple[tuple[tuple[int, str, tuple[str, ...]], ...], bool, bool]:
    """Return number, keyword and words of the ``Host`` and ``Include`` lines of a file, and `Scan`'s two flags.

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


def ask(
    host: str, options: tuple[str, ...], default_user: str | None, around: Surroundings
) -> Answer:
    """Return what ssh_config says of a host; empty where there is no file. It may run commands of ``Match exec``.

    Args:
        host: As the person wrote it.
        options: For ``ssh``: ``-p`` and ``-l``.
        default_user: Counts where no file names a user.
        around: The files.

    Raises:
        ConfigError: a file is wrong, or it took too long; ssh's own words name file and line.
    """
    if not around.sources:
        return {}
    found = scan(around)
    if host.startswith("-"):  # never an option of ssh
        raise ConfigError(f"{host!r} is not a valid host name")
    lines = [f'Include "{glob.escape(str(source.path))}"' for source in around.sources]
    lines += [
        "Host *",
        *([f'User "{default_user}"'] if default_user else []),
        f"IdentityFile {NO_KEY}",
    ]
    text = "\n".join(lines) + "\n"
    try:
        if found.changing:
            answer = _ask(host, options, text, around.env)
        else:
            path = around.env.get("PATH", os.defpath)
            common = _common(host, options, text, path, found)
            answer = common or _recalled(host, options, text, path, found.stamps)
    except (FileNotFoundError, PermissionError):
        answer = _read_by_asyncssh(host, options, default_user, around)
    return {**answer, NOTES: (*answer.get(NOTES, ()), *found.notes)}


def _ask(host: str, options: tuple[str, ...], text: str, env: Mapping[str, str]) -> Answer:
    usual = defaults()
    with tempfile.NamedTemporaryFile("w", prefix="rgt-ssh-", errors="surrogateescape") as file:
        file.write(text)
        file.flush()
        answer = _run(("-F", file.name, *options), host, env)
    return {key: value for key, value in answer.items() if value != usual.get(key) or key in ALWAYS}


@functools.lru_cache(maxsize=1024)
def _recalled(host: str, options: tuple[str, ...], text: str, path: str, _stamps: object) -> Answer:
    return _ask(host, options, text, {"PATH": path})


def _common(
    host: str, options: tuple[str, ...], text: str, path: str, found: Scan
) -> Answer | None:
    """Return what the files say of every host that none of their lines tells apart, for this one.

    An ``ssh -G`` costs 8 ms of processor time: a fleet of hundreds of boxes has one entry for all, or none.

    Returns:
        None where a line may mean this host, or its name, port or user could be a part of another value.
    """
    if found.telling_apart or not _PLAIN.fullmatch(host) or _fits(host, found.patterns):
        return None
    if _fits(ANYBODY, found.patterns):
        return None
    given = dict(zip(options[::2], options[1::2], strict=True))
    if given.keys() - {"-p", "-l"}:
        return None
    anyone = {"-p": ANY_PORT, "-l": ANY_USER}
    asked = tuple(word for name in options[::2] for word in (name, anyone[name]))
    try:
        answer = _recalled(ANYBODY, asked, text, path, found.stamps)
    except ConfigError:
        return None  # said again, with the name of the host
    if "proxyjump" in answer:
        return None  # to the jump host itself it may not lead, as ssh says
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


def _fits(host: str, patterns: tuple[str, ...]) -> bool:
    """Say whether a ``Host`` line may mean `host` more than any other; rather once too often."""
    words = (pattern.lower() for pattern in patterns if pattern != "*")
    return any(
        "," in word or "[" in word or fnmatch.fnmatchcase(host, word.lstrip("!")) for word in words
    )


@functools.cache
def defaults() -> Answer:
    """Return what ``ssh -G`` says where no file says anything.

    Raises:
        FileNotFoundError: there is no ``ssh``, or one that has no ``-G`` (before OpenSSH 6.8, and dropbear's).
    """
    try:
        return _run(("-F", NO_FILE), "localhost", os.environ)
    except ConfigError as error:
        raise FileNotFoundError(str(error)) from error


def _run(options: tuple[str, ...], host: str, env: Mapping[str, str]) -> Answer:
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
            f"ssh_config, for {host}: ssh -G did not end within {SECONDS:g} s; a command of Match exec may hang"
        ) from None
    if process.returncode != 0:
        words = [clean(line) for line in err.splitlines() if line and "terminating, " not in line]
        said = "; ".join(words[:3]) or "ssh -G failed"
        raise ConfigError(
            f"ssh_config, for {host}: {said}" + (OF_ITS_OWN if "jumphost loop" in said else "")
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
        raise ConfigError(f"ssh_config, for {host}: {error}") from error
    found = {"User": default_user or around.local_user, **read.get_options(False)}
    answer: dict[str, tuple[str, ...]] = {NOTES: (NO_SSH,)}
    words = {True: "yes", False: "no", None: "none"}
    for option, value in found.items():
        values = value if isinstance(value, list) else [value]
        said = tuple(words[one] if isinstance(one, bool | None) else str(one) for one in values)
        if said and not said[0].startswith(("+", "-", "^")):  # changes to lists that only ssh knows
            answer[option.lower()] = said
    return answer


_TOKEN = re.compile(r"%(.?)", re.DOTALL)
_VARIABLE = re.compile(r"\$\{([^}]*)\}")


def percent(text: str, table: Mapping[str, str]) -> str:
    """Replace ``%h`` and its kin.

    Raises:
        ValueError: a token is unknown.
    """

    def value(found: re.Match[str]) -> str:
        if found[1] not in table:
            raise ValueError(
                f"the token {found[0]!r} is not known here (a % as such is written %%)"
            )
        return table[found[1]]

    return _TOKEN.sub(value, text)


def environment(text: str, env: Mapping[str, str]) -> str:
    """Replace ``${NAME}``.

    Raises:
        ValueError: a variable is not set.
    """

    def value(found: re.Match[str]) -> str:
        if found[1] not in env:
            raise ValueError(f"the environment variable {found[1]} is not set")
        return env[found[1]]

    return _VARIABLE.sub(value, text)


def expand(text: str, table: Mapping[str, str], env: Mapping[str, str]) -> str:
    """Return the path that a value names: tokens, variables, ``~``.

    Raises:
        ValueError: a token or variable is unknown.
    """
    expanded = environment(percent(text, table), env)
    if expanded == "~" or expanded.startswith("~/"):
        return table["d"] + expanded[1:]
    # Another user's home, ~name/…, is the system's business.
    return os.path.expanduser(expanded)  # noqa: PTH111 (a Path would drop a trailing slash)
