"""Which hosts an ssh_config file names: its aliases, wildcards left out."""

from __future__ import annotations

import glob
from collections.abc import Iterator
from pathlib import Path

from rgt_tui.ssh.config import tokens, words
from rgt_tui.ssh.config.errors import ConfigError
from rgt_tui.ssh.config.reader import DEEPEST, Source
from rgt_tui.ssh.config.resolve import Surroundings


def aliases(around: Surroundings) -> tuple[str, ...]:
    """Return the names of all ``Host`` lines, in order of appearance, ``Include`` followed.

    Raises:
        ConfigError: a file is missing though named, cannot be read, or a line is wrong.
    """
    found: dict[str, None] = {}
    for source in around.sources:
        found.update(dict.fromkeys(_file(source, source.path, around, 0)))
    return tuple(found)


def _file(source: Source, path: Path, around: Surroundings, depth: int) -> Iterator[str]:
    if depth > DEEPEST:
        raise ConfigError(f"{path}: more than {DEEPEST} files include each other")
    try:
        text = path.read_text(encoding="utf-8", errors="surrogateescape")
    except FileNotFoundError:
        if source.must_exist and depth == 0:
            raise ConfigError(f"{path}: there is no such ssh_config file") from None
        return
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from error
    for number, line in enumerate(text.split("\n"), 1):
        name, rest = words.keyword(line)
        if name not in ("host", "include"):
            continue
        try:
            arguments = words.arguments(rest)
            paths = (
                [] if name == "host" else [p for word in arguments for p in _included(source, word, around)]
            )
        except ValueError as error:
            raise ConfigError(f"{path}:{number}: {name}: {error}") from error
        for included in paths:
            yield from _file(source, included, around, depth + 1)
        yield from (word for word in arguments if name == "host" and not set(word) & set("*?!"))


def _included(source: Source, pattern: str, around: Surroundings) -> list[Path]:
    expanded = tokens.path(pattern, {"%": "%", "d": around.home}, dict(around.env))
    return [Path(path) for path in sorted(glob.glob(str(source.base / expanded)))]  # noqa: PTH207
