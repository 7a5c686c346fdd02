"""Which log is meant: a path, a run's, or the newest that the box has."""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from collections.abc import Callable
from pathlib import PurePosixPath

from rgt_tui.cli.gathering import gather
from rgt_tui.cli.json_line import json_line
from rgt_tui.fleet.reach import reached
from rgt_tui.model.box import BoxSpec, BoxState, Link
from rgt_tui.model.plain import clean
from rgt_tui.ssh.cat import CatFailed, FileListed, listed
from rgt_tui.ssh.connect import hops
from rgt_tui.ssh.errors import Unreachable

SHOWN = 5


async def choose(spec: BoxSpec, arguments: argparse.Namespace, say: Callable[[str], None]) -> str | None:
    """Return the path on the box; None when only a list was asked for, which is printed.

    Raises:
        CatFailed: there is no such log.
        ConfigError: ssh_config, or the box's entry in the fleet file, is wrong.
        BoxError: the box cannot be reached.
    """
    wanted = arguments.log
    if wanted is not None and is_path(wanted) and not arguments.list:
        return str(wanted)
    state = await gather([spec], arguments.timeout, accept_new_host_keys=arguments.accept_new_host_key)
    box = state.boxes[0]
    if box.link is not Link.LIVE:
        await asyncio.to_thread(
            hops, spec
        )  # a mistake in ssh_config is one of the person's, and no box far away
        raise Unreachable(clean(box.reason))
    if wanted is not None and not arguments.list:
        return of_run(box, wanted) or str(wanted)
    async with reached(spec) as (connection, deployed):
        found = await listed(connection, deployed, (wanted,) if wanted else tuple(known(box)))
    if arguments.list:
        for file in found:
            if arguments.json:
                sys.stdout.write(json_line(file).decode())
                continue
            stamp = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(file.mtime))
            sys.stdout.write(f"{stamp} {file.size:>14,} {clean(file.path)}\n")
        return None
    return newest(found, spec.name, say)


def is_path(word: str) -> bool:
    """Tell a path from the name of a run."""
    return "/" in word or word.startswith("~") or any(char in word for char in "*?[")


def known(box: BoxState) -> list[str]:
    """Return the paths of a box's logs: those that are followed, and those of its cells."""
    cells = [cell.log for queue in box.queues for cell in queue.cells if cell.log]
    return list(dict.fromkeys([*cells, *(view.path for view in box.logs), *box.spec.logs]))


def of_run(box: BoxState, name: str) -> str | None:
    """Return the log of the run called so; None where no such run, and no log of that name, is known."""
    for queue in box.queues:
        for cell in queue.cells:
            if cell.name == name and cell.log:
                return cell.log
    return next(
        (path for path in known(box) if name in (PurePosixPath(path).name, PurePosixPath(path).stem)), None
    )


def newest(found: tuple[FileListed, ...], name: str, say: Callable[[str], None]) -> str:
    """Return the log that was written last, and say which it is where there are several.

    Raises:
        CatFailed: there is none.
    """
    if not found:
        raise CatFailed(
            f"no log was found; name a path (rgt logs {name} '~/exp/train.log'), or set logs = [\"~/exp/*.log\"]"
        )
    if len(found) > 1:
        others = ", ".join(clean(file.path) for file in found[1 : 1 + SHOWN])
        more = f" and {len(found) - 1 - SHOWN} more" if len(found) - 1 > SHOWN else ""
        say(f"{clean(found[0].path)} is the newest of {len(found)} logs; also: {others}{more}")
    return found[0].path
