"""A webhook: the event as JSON in the body of a POST."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from rgt_tui.alerts.sinks.base import address, from_env
from rgt_tui.alerts.sinks.http import post
from rgt_tui.model.alert import AlertEvent, SinkSettings


class Webhook:
    """Sends the fields of `AlertEvent`; a token goes into the header ``Authorization: Bearer``."""

    def __init__(self, settings: SinkSettings, env: Mapping[str, str]) -> None:
        self._settings = settings
        self._env = env

    async def send(self, event: AlertEvent) -> None:
        """Send one event; see `Sink.send`."""
        headers = {"Content-Type": "application/json"}
        if self._settings.token_env is not None:
            headers["Authorization"] = f"Bearer {from_env(self._settings.token_env, self._env).reveal()}"
        url = address(self._settings, self._env).reveal()
        await post(url, msgspec.json.encode(event), headers, timeout_s=self._settings.timeout_s)

    async def close(self) -> None:
        """Nothing is held."""
