"""What a sink is, and where its address comes from. Addresses are secrets: a topic or a hook is its own password."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Protocol
from urllib.parse import urlsplit

from rgt_tui.model.alert import AlertEvent, SinkSettings
from rgt_tui.model.secret import Secret as Secret

MAX_SECRET_BYTES = 64 << 10


class SinkError(Exception):
    """It was not delivered. The message says why and what to do; it holds no address, key or answer's body."""


class Sink(Protocol):
    """Somewhere to tell a person."""

    async def send(self, event: AlertEvent) -> None:
        """Deliver one message, or fail.

        Raises:
            SinkError: it was not delivered, as far as can be told.
        """
        ...

    async def close(self) -> None:
        """Let go of what is held."""
        ...


def from_env(name: str, env: Mapping[str, str]) -> Secret:
    """Return the secret of an environment variable.

    Raises:
        SinkError: it is not set.
    """
    value = env.get(name, "").strip()
    if not value:
        raise SinkError(f"the environment variable {name} is not set: export it before rgt is started")
    return Secret(value)


def address(settings: SinkSettings, env: Mapping[str, str]) -> Secret:
    """Return the sink's address, read at each use, so that it can be changed while rgt runs.

    Raises:
        SinkError: the variable is not set, or the file cannot be read.
    """
    if settings.url_env is not None:
        return from_env(settings.url_env, env)
    if settings.url_file is None:
        raise SinkError("has neither url_env nor url_file")
    path = Path(settings.url_file).expanduser()
    try:
        with path.open(encoding="utf-8") as file:
            text = file.read(MAX_SECRET_BYTES).strip()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
        raise SinkError(f"cannot read {path}: {why}") from None
    if not text:
        raise SinkError(f"{path} is empty: write the address into it")
    return Secret(text)


def host_of(url: str) -> str:
    """Return the host of an address, the one part of it that may be shown."""
    try:
        return urlsplit(url).hostname or "its server"
    except ValueError:
        return "its server"


def words_of(event: AlertEvent) -> str:
    """Return the body of a message for a person: the reading, and what to do."""
    return f"{event.text}\n→ {event.advice}" if event.advice else event.text
