"""Where a run writes now: its logs, its files of metrics, the directories it was given."""

from __future__ import annotations

import os

from rgt_box import procstat
from rgt_box.found import arguments, outputs
from rgt_box.found.trees import Node

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Mapping

    from rgt_box.found.outputs import Open, Streams
    from rgt_box.found.run import Run
    from rgt_box.found.table import Table

PROCESSES = 16
"""Of a run that are asked for their files at a look: the ranks, hardly ever more on one box."""
LOGS, FILES = 4, 200
WANDB_OWN = ("debug.log", "debug-internal.log", "debug-core.log", "core-debug.log")
"""What wandb writes about itself."""
NO_ACCESS = "its open files cannot be read: it is another user's"


def look(run: Run, table: Table, nodes: Mapping[int, Node], below: Mapping[int, list[int]]) -> None:
    """Bring a live run's logs, files and directories up to date.

    What was seen once stays: a file that is opened for a moment, again and again, is still the run's.
    """
    mine = outputs.open_files(run.pid)
    if mine is None:
        run.notes = [note for note in run.notes if note != NO_ACCESS] + [NO_ACCESS]
        run.silent = NO_ACCESS
        return
    near = _near(run, table, nodes, below)
    streams = outputs.follow_streams(run.pid, mine, near, {pid: _name(nodes[pid]) for pid in near})
    inside = procstat.root_of(run.pid)
    logs = [
        inside + path if path.startswith("/") and path not in streams.deleted else path
        for path in streams.logs
    ]
    run.deleted = dict(streams.deleted)
    for pid in _writers(run, nodes):
        for item in mine if pid == run.pid else outputs.open_files(pid) or []:
            _sort_in(run, inside, item, logs)
    run.logs = logs[:LOGS]
    _told(run, table, inside)
    run.silent = "" if logs else _silence(run, streams)


def _name(node: Node) -> str:
    return os.path.basename(node.words[0]) if node.words else ""


def _near(run: Run, table: Table, nodes: Mapping[int, Node], below: Mapping[int, list[int]]) -> list[int]:
    """Return the processes that may read what the run prints: those of its shell, and of its process group."""
    known = table.known(run.pid)
    found = table.group(known.stat.group) if known is not None else []
    at = nodes[run.pid].ppid if run.pid in nodes else 0
    while at in nodes and nodes[at].kind == "wrapper":
        found += below.get(at, [])
        at = nodes[at].ppid
    return [pid for pid in dict.fromkeys(found) if pid != run.pid][:64]


def _writers(run: Run, nodes: Mapping[int, Node]) -> list[int]:
    """Return the processes of a run that may write metrics: not what a loader forked, as long as others are there."""
    first = [pid for pid in run.pids if pid == run.pid or nodes[nodes[pid].ppid].words != nodes[pid].words]
    return (first + [pid for pid in run.pids if pid not in first])[:PROCESSES]


def _sort_in(run: Run, inside: str, item: Open, logs: list[str]) -> None:
    path = inside + item.target
    if item.fd < 3 or not item.writes or item.deleted or not outputs.is_file(item):
        return
    if outputs.is_metrics(item.target):
        if path not in run.files and len(run.files) < FILES:
            run.files.append(path)
    elif outputs.is_log(item.target) and path not in logs and os.path.basename(path) not in WANDB_OWN:
        logs.append(path)


def _told(run: Run, table: Table, inside: str) -> None:
    known = table.known(run.pid)
    if known is not None and run.cwd:
        dirs = arguments.written_dirs(known.command.args, run.cwd)
        run.dirs = [inside + path for path in dirs]


def _silence(run: Run, streams: Streams) -> str:
    """Say why there is no log, and what to do about it."""
    if streams.terminal is None:
        return "no log file: %s" % (streams.other or "its output is closed")
    if run.session == "tmux" and run.pane:
        return (
            "no log file; it prints to tmux pane %s, whose screen is shown as far as tmux keeps it: use tmux pipe-pane "
            "-t %s 'cat >> FILE' to keep every line" % (run.place or run.pane, run.pane)
        )
    if run.session == "tmux":
        return (
            "no log file; it prints to a tmux that is not asked, because it is another user's or a container's: "
            "2>&1 | tee FILE would keep its lines"
        )
    how = "C-a H logs a screen window" if run.session == "screen" else "2>&1 | tee FILE would keep its lines"
    return "no log file: it prints to the terminal %s, which cannot be read; %s" % (streams.terminal[5:], how)
