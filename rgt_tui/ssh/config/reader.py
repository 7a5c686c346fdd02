"""Read ssh_config files for one host: Host, Match and Include decide which lines count; the first value wins."""

from __future__ import annotations

import glob
import os
import shlex
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from rgt_tui.ssh.config import patterns, tokens, words
from rgt_tui.ssh.config.errors import ConfigError
from rgt_tui.ssh.config.options import NOT_HONOURED, OPTIONS, UNUSED

DEEPEST = 16
"""Files that may include each other."""


class Source(msgspec.Struct, frozen=True):
    """One file to start from."""

    path: Path
    base: Path
    """Where relative includes are looked for."""
    private: bool = False
    """Others must not be able to write to it: it may name commands to run."""
    must_exist: bool = False


class Reader:
    """Collects the options of one host over one or two passes.

    Args:
        original: The host as the person wrote it.
        condition: Evaluates one condition of ``Match``: called with name, argument and this reader.
        env: The environment.
        home: The home directory.
    """

    def __init__(
        self,
        original: str,
        condition: Callable[[str, str, Reader], bool],
        env: dict[str, str],
        home: str,
    ) -> None:
        self.original = original
        self.values: dict[str, Any] = {}
        self.lists: dict[str, list[str]] = {}
        self.notes: list[str] = []
        self.final = False
        """The second pass, which ``Match final`` asks for."""
        self.wants_final = False
        self._condition = condition
        self._env = env
        self._home = home

    def read(self, source: Source) -> None:
        """Read one file and what it includes.

        Raises:
            ConfigError: it is missing though named, cannot be read, or a line is wrong.
        """
        self._file(source, source.path, True, True, 0)

    def _file(self, source: Source, path: Path, active: bool, ever: bool, depth: int) -> None:
        if depth > DEEPEST:
            raise ConfigError(f"{path}: more than {DEEPEST} files include each other")
        try:
            text = path.read_text(encoding="utf-8", errors="surrogateescape")
            status = path.stat()
        except FileNotFoundError:
            if source.must_exist and depth == 0:
                raise ConfigError(f"{path}: there is no such ssh_config file") from None
            return
        except OSError as error:
            raise ConfigError(f"{path}: {error.strerror}") from error
        exposed = status.st_uid not in (0, os.getuid()) or status.st_mode & 0o022
        if source.private and stat.S_ISREG(status.st_mode) and exposed:
            raise ConfigError(
                f"{path}: others may write to it, and it can name commands to run; "
                f"chmod go-w {shlex.quote(str(path))}"
            )
        for number, line in enumerate(text.split("\n"), 1):
            name, rest = words.keyword(line)
            if not name:
                continue
            try:
                active = self._line(source, name, rest, active, ever, depth, f"{path}:{number}")
            except ValueError as error:
                raise ConfigError(f"{path}:{number}: {name}: {error}") from error

    def _line(
        self, source: Source, name: str, rest: str, active: bool, ever: bool, depth: int, at: str
    ) -> bool:
        """Take in one line; return whether the lines behind it count."""
        if name == "host":
            # The second pass goes by the name that the first one has led to.
            name = self.values["hostname"] if self.final else self.original
            return ever and patterns.any_of(_some(words.arguments(rest)), name)
        if name == "match":
            return self._match(words.arguments(rest), ever)
        if name == "include":
            for pattern in _some(words.arguments(rest)):
                for path in self._included(source, pattern):
                    self._file(source, path, active, ever and active, depth + 1)
            return active
        option = OPTIONS.get(name)
        if option is None:
            if active and name in NOT_HONOURED and rest.strip().lower() not in UNUSED:
                self.notes.append(f"{at}: {name} is not honoured by rgt")
            return active
        value = option.read([rest] if option.raw else words.arguments(rest))
        if active and value is not None:  # ``none`` for a time leaves it open, as in OpenSSH
            self._store(option.field, value, option.adds)
        return active

    def _store(self, field: str, value: Any, adds: bool) -> None:
        if adds:
            items = self.lists.setdefault(field, [])
            if value not in items:
                items.append(value)
        elif field in ("proxy_jump", "proxy_command"):
            # Two ways of one thing: whichever comes first. ``ProxyJump none`` bars a later ProxyJump alone.
            taken = {"proxy_jump", "proxy_command"} & self.values.keys()
            barred = field == "proxy_command" and self.values.get("proxy_jump", "").lower() == "none"
            if not taken or (barred and field not in taken):
                self.values[field] = value
        else:
            self.values.setdefault(field, value)

    def _match(self, terms: list[str], ever: bool) -> bool:
        result = ever
        if not terms:
            raise ValueError("needs a condition")
        terms = list(terms)
        only = len(terms) == 1
        while terms:
            term = terms.pop(0)
            negated = term.startswith("!")
            name, equals, value = term.removeprefix("!").partition("=")
            name = name.lower()
            if name == "all":
                if not only and terms:
                    raise ValueError("'all' stands alone, or behind 'canonical' or 'final'")
                holds = True
            elif name in ("canonical", "final"):
                self.wants_final = self.wants_final or name == "final"
                holds = self.final
            else:
                if not equals:
                    if not terms:
                        raise ValueError(f"{name!r} needs an argument")
                    value = terms.pop(0)
                # What was decided against is not evaluated: an `exec` would run for nothing.
                holds = result and self._condition(name, value, self)
                if not result:
                    continue
            result = result and holds != negated
        return result

    def _included(self, source: Source, pattern: str) -> list[Path]:
        expanded = tokens.path(pattern, {"%": "%", "d": self._home}, self._env)
        # An absolute path replaces the base; sorted, as OpenSSH does.
        return [Path(path) for path in sorted(glob.glob(str(source.base / expanded)))]  # noqa: PTH207


def _some(arguments: list[str]) -> list[str]:
    if not arguments:
        raise ValueError("needs an argument")
    return arguments
