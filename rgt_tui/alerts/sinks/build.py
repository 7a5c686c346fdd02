"""From a table of the fleet file to the sink that it describes."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from rgt_tui.alerts.sinks.apprise import Apprise
from rgt_tui.alerts.sinks.base import Sink
from rgt_tui.alerts.sinks.command import Command
from rgt_tui.alerts.sinks.ntfy import Ntfy
from rgt_tui.alerts.sinks.terminal import Bell, Desktop
from rgt_tui.alerts.sinks.webhook import Webhook
from rgt_tui.model.alert import SinkSettings

MAKERS: dict[str, Callable[[SinkSettings, Mapping[str, str]], Sink]] = {
    "apprise": Apprise,
    "bell": Bell,
    "command": Command,
    "desktop": Desktop,
    "ntfy": Ntfy,
    "webhook": Webhook,
}


def build(settings: SinkSettings, env: Mapping[str, str]) -> Sink:
    """Return the sink; nothing is sent, and no secret is looked up yet."""
    return MAKERS[settings.kind](settings, env)
