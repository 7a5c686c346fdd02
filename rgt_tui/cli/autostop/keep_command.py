"""``rgt keep``: put off what a box would do to itself."""

from __future__ import annotations

import argparse
import sys
import time

from rgt_tui.cli import running
from rgt_tui.cli.autostop.arm_command import armed_book, audit_log
from rgt_tui.cli.autostop.autostop_lines import show_status, status_body
from rgt_tui.cli.commands import FAILED, OK, USAGE
from rgt_tui.cli.opening import open_boxes
from rgt_tui.cli.printing import complain, json_line, waiting
from rgt_tui.fleet import GateClosed
from rgt_tui.fleet.autostop.keeping import Keeping
from rgt_tui.fleet.errands import reached
from rgt_tui.gate import AuditFailed
from rgt_tui.model.box import BoxSpec


def run_keep(arguments: argparse.Namespace) -> int:
    """Put it off; return the exit status."""
    opened = open_boxes(arguments, [arguments.box], trusted=True)
    if opened is None:
        return USAGE
    (spec,) = opened[1]
    return running.run_on_box(spec.name, _keep(arguments, spec))


async def _keep(arguments: argparse.Namespace, spec: BoxSpec) -> int:
    keeping = Keeping(spec, audit_log(), armed_book(), clock=time.time)
    try:
        with waiting(f"asking {spec.name} …"):
            async with reached(spec, accept_new_host_keys=arguments.accept_new_host_key) as way:
                status = await keeping.keep(way, arguments.length)
    except (GateClosed, AuditFailed) as closed:
        reasons = closed.reasons if isinstance(closed, GateClosed) else (f"{closed}. Nothing was sent.",)
        if arguments.json:
            body = {"ok": False, "box": spec.name, "reasons": reasons, "exit": FAILED}
            sys.stdout.write(json_line(body).decode())
        else:
            for reason in reasons:
                complain(reason)
        return FAILED
    if arguments.json:
        sys.stdout.write(json_line({**status_body(spec.name, status, ()), "exit": OK}).decode())
    else:
        show_status(spec.name, status, ())
    return OK
