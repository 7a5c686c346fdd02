"""``rgt push --trainer``: put the resumable trainer on a box, and say how it is launched there."""

from __future__ import annotations

import argparse
import logging
import shlex
import sys

import msgspec

from rgt_tui.cli import running
from rgt_tui.cli.commands import FAILED, OK, UNREACHABLE, USAGE
from rgt_tui.cli.opening import open_boxes
from rgt_tui.cli.printing import complain, json_line
from rgt_tui.fleet.pushing import push_trainer
from rgt_tui.model.plain import clean
from rgt_tui.ssh.deploy import Pushed
from rgt_tui.ssh.ssh_errors import BoxError, CommandFailed, ConfigError, DeployFailed, NoCommands, NoPython


def run_push(arguments: argparse.Namespace) -> int:
    """Push; return the exit code."""
    opened = open_boxes(arguments, [arguments.box], trusted=True)
    if opened is None:
        return USAGE
    (spec,) = opened[1]

    logging.getLogger("asyncssh").setLevel(logging.CRITICAL)

    async def work() -> int:
        accept: bool = arguments.accept_new_host_key
        return tell(await push_trainer(spec, arguments.timeout, accept_new_host_keys=accept), arguments.json)

    try:
        return running.run(work())
    except (NoPython, NoCommands, DeployFailed, CommandFailed) as error:
        complain(f"{spec.name}: {clean(str(error))}")
        return FAILED
    except ConfigError as error:
        complain(f"{spec.name}: {clean(str(error))}")
        return USAGE
    except BoxError as error:
        complain(f"{spec.name}: {clean(str(error))}")
        return UNREACHABLE


def tell(pushed: Pushed, as_json: bool) -> int:
    """Print what is there now; return the exit code."""
    if as_json:
        body = {**msgspec.structs.asdict(pushed), "problem": pushed.problem}
        sys.stdout.write(json_line(body).decode())
    else:
        torch = f"torch {pushed.torch}" if pushed.torch else "no torch"
        python, path = shlex.quote(pushed.python), shlex.quote(pushed.path)
        for line in (
            f"{pushed.box}: {pushed.path}  sha256 {pushed.sha256[:16]}…",
            f"python    {pushed.python} ({torch})",
            f"launch    {pushed.launch}",
            f"try it    {python} {path} --smoke 2",
            f"your loop {pushed.library} {python} train.py",
        ):
            sys.stdout.write(clean(line) + "\n")
    if pushed.problem:
        complain(clean(f"{pushed.box}: {pushed.problem}"))
        return FAILED
    return OK
