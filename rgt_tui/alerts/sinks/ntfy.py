"""ntfy: a push message to a phone or a browser. https://docs.ntfy.sh/publish/#publish-as-json."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import urlsplit, urlunsplit

import msgspec

from rgt_tui.alerts.sinks.base import SinkError, address, from_env, words_of
from rgt_tui.alerts.sinks.http import post
from rgt_tui.model.alert import AlertEvent, SinkSettings

PRIORITIES = {"error": 4, "warn": 3, "info": 2}
TAGS = {"error": "rotating_light", "warn": "warning", "info": "white_check_mark"}


class Ntfy:
    """Publishes as JSON to the server of the topic's address, so that titles may hold any letter."""

    def __init__(self, settings: SinkSettings, env: Mapping[str, str]) -> None:
        self._settings = settings
        self._env = env

    async def send(self, event: AlertEvent) -> None:
        """Publish one message; see `Sink.send`."""
        server, topic = split(address(self._settings, self._env).reveal())
        headers = {"Content-Type": "application/json"}
        if self._settings.token_env is not None:
            headers["Authorization"] = f"Bearer {from_env(self._settings.token_env, self._env).reveal()}"
        body = {
            "topic": topic,
            "title": event.title,
            "message": words_of(event),
            "priority": PRIORITIES[event.level],
            "tags": [TAGS[event.level]],
        }
        await post(server, msgspec.json.encode(body), headers, timeout_s=self._settings.timeout_s)

    async def close(self) -> None:
        """Nothing is held."""


def split(url: str) -> tuple[str, str]:
    """Return the server's address and the topic of ``https://ntfy.sh/topic``.

    Raises:
        SinkError: there is no topic in it.
    """
    try:
        parts = urlsplit(url)
    except ValueError:
        raise SinkError("its address is no http or https address") from None
    root, _, topic = parts.path.rstrip("/").rpartition("/")
    if not topic:
        raise SinkError("its address names no topic: it must be like https://ntfy.sh/your-topic")
    return urlunsplit((parts.scheme, parts.netloc, root + "/", "", "")), topic
