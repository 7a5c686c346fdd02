"""``rgt patrol``: one read-only look for a timer job, with a line per box also when nothing has changed."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from rgt_tui.cli.exits import OK, TROUBLE, UNKNOWN
from rgt_tui.cli.options import (
    Commands,
    boxes_argument,
    command,
    fleet_option,
    host_key_option,
    json_option,
    timeout_option,
)

if TYPE_CHECKING:
    from rgt_tui.cli.status_line import Verdict
    from rgt_tui.model.alert import AlertSettings
    from rgt_tui.model.box import BoxSpec


def add_parser(commands: Commands) -> None:
    """Declare the command."""
    parser = command(
        commands,
        "patrol",
        brief="one read-only look, for cron",
        about="Look at every box once and print a line for each, also when nothing has changed: its verdict\n"
        "(healthy, escalate, unknown), its state and why. It changes nothing on a box beyond rgt's own files\n"
        "there: the agent below ~/.cache/rgt, and the recorder with its bounded history.",
        examples=(
            "*/30 * * * *  rgt patrol --fleet ~/exp/rgt.toml >> ~/patrol.log || mail -s rgt me < ~/patrol.log",
            "rgt patrol --json --timeout 60",
        ),
    )
    boxes_argument(parser)
    fleet_option(parser)
    json_option(parser, "print one JSON object per box")
    timeout_option(parser, 30.0)
    host_key_option(parser)


def run(arguments: argparse.Namespace) -> int:
    """Look once; return the exit code."""
    # Whoever reads the exit status must not take a mistake of ours for "healthy" or "escalate".
    try:
        return _look(arguments)
    except BrokenPipeError:
        raise  # whoever calls this knows what it means
    except Exception as error:
        import contextlib
        import traceback

        from rgt_tui.cli.opening import complain
        from rgt_tui.cli.output import drop_output

        with contextlib.suppress(OSError):  # standard error may be on the same full disk
            traceback.print_exc()
            complain(f"could not tell: rgt itself has failed ({type(error).__name__}), see above")
        drop_output()
        return UNKNOWN


def _look(arguments: argparse.Namespace) -> int:
    from rgt_tui.cli.opening import open_boxes

    opened = open_boxes(arguments, arguments.boxes, trusted=True)
    if opened is None:
        return UNKNOWN
    config, specs = opened
    from rgt_tui.cli import running

    return running.run(_tick(specs, config.alerts, arguments), boxes=len(specs))


async def _tick(specs: Sequence[BoxSpec], alerts: AlertSettings, arguments: argparse.Namespace) -> int:
    import time

    from rgt_tui.cli.status import look
    from rgt_tui.cli.status_line import encode
    from rgt_tui.cli.status_text import text_line

    lines = await look(specs, alerts, arguments.timeout, arguments.accept_new_host_key)
    stamp = time.strftime("%Y-%m-%dT%H:%M:%S%z")
    for line in lines:
        text = f"{stamp} {line.verdict.value:<8} {text_line(line)}\n"
        sys.stdout.write(encode(line).decode() if arguments.json else text)
    sys.stdout.flush()  # a full disk or a reader that has gone is noticed here, where it counts as "could not tell"
    return exit_code(line.verdict for line in lines)


def exit_code(verdicts: Iterable[Verdict]) -> int:
    """Return the exit code: what is known to need a person weighs more than what is not known."""
    words = {verdict.value for verdict in verdicts}
    return TROUBLE if "escalate" in words else UNKNOWN if "unknown" in words else OK
