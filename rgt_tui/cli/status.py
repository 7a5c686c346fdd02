"""``rgt status``: connect once, and say in one line per box how it stands."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterable, Sequence

from rgt_tui.cli import running
from rgt_tui.cli.commands import OK, TROUBLE, UNREACHABLE, USAGE
from rgt_tui.cli.gathering import gather
from rgt_tui.cli.opening import open_boxes
from rgt_tui.cli.status_line import StatusLine, Verdict, encode, status_line
from rgt_tui.cli.status_text import text_line
from rgt_tui.health import assess
from rgt_tui.model.alert import AlertSettings
from rgt_tui.model.box import BoxSpec
from rgt_tui.model.fleet import FleetState


def run_status(arguments: argparse.Namespace) -> int:
    """Print how the boxes stand; return the exit code."""
    opened = open_boxes(arguments, arguments.boxes)
    if opened is None:
        return USAGE
    config, specs = opened

    return running.run(_print(specs, config.alerts, arguments), boxes=len(specs))


async def _print(specs: Sequence[BoxSpec], alerts: AlertSettings, arguments: argparse.Namespace) -> int:
    lines = await look(specs, alerts, arguments.timeout, arguments.accept_new_host_key)
    for line in lines:
        sys.stdout.write(encode(line).decode() if arguments.json else text_line(line) + "\n")
    return exit_code(line.verdict for line in lines)


async def look(
    specs: Sequence[BoxSpec], alerts: AlertSettings, seconds: float, accept_new_host_keys: bool
) -> list[StatusLine]:
    """Connect to these boxes once and return a line for each."""
    state = await gather(specs, seconds, accept_new_host_keys=accept_new_host_keys, alerts=alerts)
    return lines_of(state, time.time())


def lines_of(state: FleetState, now: float) -> list[StatusLine]:
    """Return the line of every box, in order."""
    return [status_line(box, assess(box, now), now) for box in state.boxes]


def exit_code(verdicts: Iterable[Verdict]) -> int:
    """Return the exit code: trouble that is known weighs more than what is not known."""
    words = {verdict.value for verdict in verdicts}
    return TROUBLE if "escalate" in words else UNREACHABLE if "unknown" in words else OK
