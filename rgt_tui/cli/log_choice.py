"""Which log is meant: a path, a run's, or the newest that the box has."""

from __future__ import annotations

import argparse
import asyncio
import difflib
import shlex
import sys
import time
from collections.abc import Callable
from pathlib import PurePosixPath

from rgt_tui.cli.gathering import gather
from rgt_tui.cli.printing import json_line
from rgt_tui.fleet.reach import reached
from rgt_tui.model.box import BoxSpec, BoxState, Link
from rgt_tui.model.plain import clean
from rgt_tui.ssh.cat import CatFailed, FileListed, listed
from rgt_tui.ssh.connect import hops
from rgt_tui.ssh.ssh_errors import Unreachable

SHOWN = 5
NAMED = 20
"""Names that a message holds."""
PANE = "tmux:"
"""How the "path" of a pane's screen begins."""


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
    log = of_run(box, wanted) if wanted is not None and not arguments.list else None
    if log is not None:
        return log
    async with reached(spec) as (connection, deployed):
        found = await listed(connection, deployed, (wanted,) if wanted else tuple(known(box)))
    if wanted is not None and not arguments.list:
        if not found:
            raise CatFailed(unknown(box, wanted))
        return str(wanted)
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
    """Tell what can only be a path from what may be the name of a run: ``exp/train`` is one of a found training."""
    return word.startswith(("/", "~", "./", "../")) or any(char in word for char in "*?[")


def known(box: BoxState) -> list[str]:
    """Return the paths of a box's logs: those that are followed, and those of its runs."""
    logs = [log for logs in runs(box).values() for log in logs]
    paths = dict.fromkeys([*logs, *(view.path for view in box.logs), *box.spec.logs])
    return [path for path in paths if not path.startswith(PANE)]


def runs(box: BoxState) -> dict[str, tuple[str, ...]]:
    """Return the runs of a box as `rgt status` names them, each with what it prints to, the first the best."""
    cells = {cell.name: (cell.log,) if cell.log else () for queue in box.queues for cell in queue.cells}
    found = {run.name: (*((run.log,) if run.log else ()), *run.logs) for run in box.found}
    names = dict.fromkeys((*cells, *(run.name for run in box.runs), *found))
    return {clean(name): cells.get(name) or found.get(name) or () for name in names}


def of_run(box: BoxState, name: str) -> str | None:
    """Return the log of the run called so; None where no such run, and no log of that name, is known.

    Raises:
        CatFailed: there is such a run, but nothing that it prints is in a file.
    """
    logs = runs(box).get(clean(name))
    path = next((log for log in logs or () if not log.startswith(PANE)), None)
    if path is None:
        path = next(
            (log for log in known(box) if name in (PurePosixPath(log).name, PurePosixPath(log).stem)), None
        )
    if path is None and logs:
        pane = logs[0].removeprefix(PANE)
        raise CatFailed(
            f"{clean(name)} prints to the tmux pane {clean(pane)} alone, and no file holds that: `rgt` shows its "
            f"screen; to keep what comes, run on the box: tmux pipe-pane -o -t {shlex.quote(pane)} 'cat >> ~/train.log'"
        )
    if path is None and logs is not None:
        raise CatFailed(
            f"of {clean(name)} no log is known; if there is one, name its path{others(box, name)}"
        )
    return path


def unknown(box: BoxState, name: str) -> str:
    """Return what is said of a name that is no run's, no log's and no file's."""
    word = clean(name)
    return (
        f"no run, log or file is called {word}{others(box, name)}; a file that will come is waited for with "
        f"--follow and its path: {shlex.quote(f'./{word}')}"
    )


def others(box: BoxState, name: str) -> str:
    """Return the names that there are, those most like `name` first."""
    there = list(dict.fromkeys((*runs(box), *(clean(PurePosixPath(log).name) for log in known(box)))))
    if not there:
        return "; there are no runs and no logs that rgt knows of"
    near = difflib.get_close_matches(clean(name), there, NAMED, 0.0)
    more = f" and {len(there) - NAMED} more (rgt status {box.spec.name} --json)" if len(there) > NAMED else ""
    return f"; there are: {', '.join(near)}{more}"


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
