"""Alerts: a condition that holds and since when, what a sink is sent about it, and what a person may configure."""

from __future__ import annotations

import msgspec


class Alert(msgspec.Struct, frozen=True):
    """One condition that holds now."""

    id: str
    """Stable while the condition lasts, e.g. ``inodes:/workspace``; what stands before the first colon is its kind."""
    level: str
    """warn or error."""
    text: str
    """One line, with the reading that proves it."""
    word: str = ""
    """The one word that a row shows for it, e.g. ``inodes``."""
    since: float | None = None
    """Client clock of the rise; None where nobody keeps count."""
    muted: bool = False
    """Someone said to be quiet about it: still shown, dimmed; never sent to a sink."""

    @property
    def kind(self) -> str:
        """The rule that it comes from."""
        return self.id.partition(":")[0]


class AlertEvent(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a sink is told: an alert began, became worse or is over; or several of these at once."""

    what: str
    """raised, worse, resolved, digest or test."""
    at: float
    """Client clock, epoch seconds."""
    level: str
    """info, warn or error; of a digest, the worst in it."""
    title: str
    """One line, e.g. ``vast-1: inodes``."""
    text: str
    """One line with the reading; a digest has a line per alert."""
    box: str = ""
    id: str = ""
    kind: str = ""
    since: float | None = None
    advice: str = ""
    """What to do, in one line."""
    items: tuple[AlertEvent, ...] = ()
    """The events of a digest."""


class KindSettings(msgspec.Struct, frozen=True):
    """What the fleet file says of one kind of alert; None = as built in. Units are those of docs/alerts.md."""

    enabled: bool | None = None
    warn: float | None = None
    """Raise limit of level warn."""
    error: float | None = None
    clear_warn: float | None = None
    """Where the level ends again; None = as far from the raise limit as built in."""
    clear_error: float | None = None
    hold_s: float | None = None
    """Seconds for which it must be so before the alert rises."""
    quiet_s: float | None = None
    """Seconds for which it must be over before the alert ends."""


class SinkSettings(msgspec.Struct, frozen=True):
    """One table of ``[[sinks]]``. Addresses are secrets: the file says where they are kept, never what they are."""

    kind: str
    """bell, desktop, ntfy, webhook, command or apprise."""
    name: str = ""
    """For a person; empty = the kind."""
    url_env: str | None = None
    """Environment variable that holds the address."""
    url_file: str | None = None
    """File that holds it."""
    token_env: str | None = None
    """Environment variable that holds an access token (ntfy, webhook)."""
    argv: tuple[str, ...] = ()
    """The program of a ``command`` and its arguments; no shell looks at them."""
    timeout_s: float = 10.0
    min_level: str = "warn"
    kinds: tuple[str, ...] = ()
    """Only these kinds of alert; empty = all."""
    boxes: tuple[str, ...] = ()
    """Only these boxes; empty = all."""
    resolved: bool = False
    """Tell also that an alert is over."""
    quiet_hours: str | None = None
    """``22:00-07:00`` by the local clock: what is not an error waits for the end."""
    every_s: float = 600.0
    """At most one message per alert in so many seconds."""
    digest_over: int = 4
    """More than so many at once become one message."""


class AlertSettings(msgspec.Struct, frozen=True):
    """``[alerts.KIND]`` and ``[[sinks]]`` of the fleet file."""

    kinds: dict[str, KindSettings] = {}
    sinks: tuple[SinkSettings, ...] = ()
