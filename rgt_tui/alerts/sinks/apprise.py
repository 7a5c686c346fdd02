"""Apprise (optional extra ``rgt-tui[apprise]``): mail, chat and push services. https://github.com/caronc/apprise."""

from __future__ import annotations

from collections.abc import Mapping

from rgt_tui.alerts.aside import Aside
from rgt_tui.alerts.sinks.base import Secret, SinkError, address, words_of
from rgt_tui.alerts.sinks.http import hush
from rgt_tui.model.alert import AlertEvent, SinkSettings

TYPES = {"error": "failure", "warn": "warning", "info": "success"}


class Apprise:
    """One or more of Apprise's addresses, a line each. Its calls block, some without end, so they run in a thread."""

    def __init__(self, settings: SinkSettings, env: Mapping[str, str]) -> None:
        self._settings = settings
        self._env = env
        self._aside = Aside()

    async def send(self, event: AlertEvent) -> None:
        """Notify all of the addresses; see `Sink.send`."""
        addresses = address(self._settings, self._env)
        seconds = self._settings.timeout_s
        try:
            await self._aside.call(lambda: _notify(addresses, event), seconds)
        except TimeoutError:
            raise SinkError(
                f"a service of Apprise has not answered within {seconds:g} s and is still being waited for"
            ) from None

    async def close(self) -> None:
        """Nothing is held."""


def _notify(addresses: Secret, event: AlertEvent) -> None:
    try:
        import apprise
    except ImportError:
        raise SinkError('Apprise is not installed: pip install "rgt-tui[apprise]"') from None
    hush()
    notifier = apprise.Apprise()
    for place, line in enumerate(addresses.reveal().split(), 1):
        if not notifier.add(line):
            raise SinkError(f"Apprise does not know its address number {place}")
    try:
        done = notifier.notify(body=words_of(event), title=event.title, notify_type=TYPES[event.level])
    except Exception as error:  # whatever a plug-in raises: its words may hold the address
        raise SinkError(f"Apprise failed ({type(error).__name__})") from None
    if not done:
        raise SinkError(f"Apprise could not deliver to all of its {len(notifier)} addresses")
