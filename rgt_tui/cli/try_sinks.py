"""``rgt alerts test``: send one message to each sink, to see that alerts arrive."""

from __future__ import annotations

import argparse
import asyncio
import os
import socket
import sys
import time
from collections.abc import Sequence
from difflib import get_close_matches

from rgt_tui.cli import running
from rgt_tui.cli.commands import FAILED, OK, USAGE
from rgt_tui.cli.opening import open_fleet
from rgt_tui.cli.printing import complain, json_line
from rgt_tui.fleet.fleet_file import FleetFileError
from rgt_tui.health.alert_sinks import build
from rgt_tui.health.delivery import MARGIN_S, reason
from rgt_tui.model.alert import AlertEvent, SinkSettings
from rgt_tui.model.plain import clean


def run_alerts(arguments: argparse.Namespace) -> int:
    """Send; return the exit code."""
    try:
        config = open_fleet(arguments, trusted=True)
        named = {sink.name: sink for sink in config.alerts.sinks}
        if not named:
            raise FleetFileError(f"{config.path} has no [[sinks]]: alerts are on the screen alone")
        for name in arguments.sinks:
            if name not in named:
                near = get_close_matches(name, named, 1)
                hint = f"did you mean {near[0]!r}?" if near else f"it has: {', '.join(named)}"
                raise FleetFileError(f"{config.path} has no sink {name!r}; {hint}")
    except FleetFileError as error:
        complain(error)
        return USAGE
    chosen = [sink for name, sink in named.items() if not arguments.sinks or name in arguments.sinks]
    return running.run(_send(chosen, as_json=arguments.json))


async def _send(sinks: Sequence[SinkSettings], *, as_json: bool) -> int:
    problems = await asyncio.gather(*(_one(sink) for sink in sinks))
    for sink, problem in zip(sinks, problems, strict=True):
        if as_json:
            body = {"sink": sink.name, "kind": sink.kind, "sent": problem is None, "problem": problem}
            sys.stdout.write(json_line(body).decode())
        else:
            sys.stdout.write(
                clean(f"{sink.name}: {'sent' if problem is None else f'failed: {problem}'}") + "\n"
            )
    return OK if all(problem is None for problem in problems) else FAILED


async def _one(settings: SinkSettings) -> str | None:
    """Send one message; return why it was not delivered, or None."""
    text = f"a test of the sink {settings.name} from {socket.gethostname()}: nothing is wrong"
    event = AlertEvent(what="test", at=time.time(), level="info", title="rgt: test", text=text)
    sink = build(settings, os.environ)
    try:
        async with asyncio.timeout(settings.timeout_s + MARGIN_S):
            await sink.send(event)
    except Exception as error:  # whatever it is, the others are tried, and this one is named
        return reason(error)
    return None
