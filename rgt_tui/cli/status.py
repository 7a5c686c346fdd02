"""``rgt status``: connect once, and say in one line per box how it stands."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from rgt_tui.cli.arguments import (
    boxes_argument,
    command,
    fleet_option,
    host_key_option,
    json_option,
    timeout_option,
)
from rgt_tui.cli.commands import OK, TROUBLE, UNREACHABLE, USAGE, Subparsers

if TYPE_CHECKING:
    from rgt_tui.cli.status_line import StatusLine, Verdict
    from rgt_tui.model.alert import AlertSettings
    from rgt_tui.model.box import BoxSpec
    from rgt_tui.model.fleet import FleetState


def add_status(subparsers: Subparsers) -> None:
    """Declare the command."""
    parser = command(
        subparsers,
        "status",
        about="Connect to the boxes once and print a line for each, in the order of the fleet file.",
        examples=("rgt status", "rgt status lab --json | jq -r '.state + \" \" + .reason'"),
    )
    boxes_argument(parser)
    fleet_option(parser)
    json_option(parser, "print one JSON object per box")
    timeout_option(parser, 20.0)
    host_key_option(parser)


def run_status(arguments: argparse.Namespace) -> int:
    """Print how the boxes stand; return the exit code."""
    from rgt_tui.cli.opening import open_boxes

    opened = open_boxes(arguments, arguments.boxes)
    if opened is None:
        return USAGE
    config, specs = opened
    from rgt_tui.cli import running

    return running.run(_print(specs, config.alerts, arguments), boxes=len(specs))


async def _print(specs: Sequence[BoxSpec], alerts: AlertSettings, arguments: argparse.Namespace) -> int:
    from rgt_tui.cli.status_line import encode
    from rgt_tui.cli.status_text import text_line

    lines = await look(specs, alerts, arguments.timeout, arguments.accept_new_host_key)
    for line in lines:
        sys.stdout.write(encode(line).decode() if arguments.json else text_line(line) + "\n")
    return exit_code(line.verdict for line in lines)


async def look(
    specs: Sequence[BoxSpec], alerts: AlertSettings, seconds: float, accept_new_host_keys: bool
) -> list[StatusLine]:
    """Connect to these boxes once and return a line for each."""
    import time

    from rgt_tui.cli.gathering import gather

    state = await gather(specs, seconds, accept_new_host_keys=accept_new_host_keys, alerts=alerts)
    return lines_of(state, time.time())


def lines_of(state: FleetState, now: float) -> list[StatusLine]:
    """Return the line of every box, in order."""
    from rgt_tui.cli.status_line import status_line
    from rgt_tui.health import assess

    return [status_line(box, assess(box, now), now) for box in state.boxes]


def exit_code(verdicts: Iterable[Verdict]) -> int:
    """Return the exit code: trouble that is known weighs more than what is not known."""
    words = {verdict.value for verdict in verdicts}
    return TROUBLE if "escalate" in words else UNREACHABLE if "unknown" in words else OK
