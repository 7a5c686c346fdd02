"""tmux's panes: what they are called, and into which file one is piped by ``pipe-pane``."""

from __future__ import annotations

from rgt_box import background, ownership
from rgt_box.background import Background
from rgt_box.found import outputs

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Mapping, NamedTuple

    from rgt_box.found.run import Run
    from rgt_box.found.trees import Node

    class Pane(NamedTuple):
        """One pane."""

        name: str
        """``SESSION:WINDOW.PANE``."""
        piped: bool
else:
    from collections import namedtuple

    Pane = namedtuple("Pane", "name piped")

TIMEOUT, FIRST = 5.0, 0.5
"""Seconds for an answer, and for the first one, so that a pane has its name from the start."""

FORMAT = "#{pane_id} #{pane_pipe} #{session_name}:#{window_index}.#{pane_index}"


def ask(socket: str | None, words: list[str], timeout: float) -> str:
    """Return what the tmux server behind a socket answers; "" where it is not this user's own, or fails.

    Args:
        socket: None for the usual one, of which tmux itself sees to it that it is this user's.
        words: The command.
        timeout: Seconds; see `background.try_program` for what it raises.
    """
    if socket is not None:
        socket = ownership.own_socket(socket)
        if socket is None:
            return ""
    return background.run_program(["tmux", *(["-S", socket] if socket else []), *words], timeout)


def parse(text: str) -> dict[str, Pane]:
    """Return pane id → pane of what ``list-panes`` prints in our format."""
    found = {}
    for line in text.splitlines():
        words = line.split(" ", 2)
        if len(words) == 3 and words[0].startswith("%"):
            found[words[0]] = Pane(words[2][:200], words[1] == "1")
    return found


class Panes:
    """The panes of the servers in which trainings run.

    Args:
        seconds: Between two looks, which happen in a thread.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._servers: dict[str | None, Background] = {}

    def look(self, run: Run, nodes: Mapping[int, Node], below: Mapping[int, list[int]]) -> None:
        """Name a run's pane, and add the file into which it is piped to the run's logs."""
        if run.pane is None or background.which("tmux") is None:
            return
        asked = run.socket in self._servers
        if not asked:
            socket, words = run.socket, ["list-panes", "-a", "-F", FORMAT]
            self._servers[socket] = Background(
                lambda: parse(ask(socket, words, TIMEOUT)), self._seconds, TIMEOUT * 2
            )
        panes, _ = self._servers[run.socket].poll(0.0 if asked else FIRST)
        mine = (panes or {}).get(run.pane)
        if mine is None:
            return
        run.place = mine.name
        if mine.piped:
            files = _piped(run, nodes, below)
            # Which of several pipes is this pane's, only tmux knows.
            if sum(pane.piped for pane in panes.values()) == 1 and len(files) == 1:
                run.logs = files + [path for path in run.logs if path not in files]
                run.silent = ""


def _piped(run: Run, nodes: Mapping[int, Node], below: Mapping[int, list[int]]) -> list[str]:
    """Return the files that programs write which the tmux server started for its pipes: they stand on no terminal."""
    at = run.pid
    while at in nodes and nodes[at].kind != "border":
        at = nodes[at].ppid
    found: list[str] = []
    queue = list(below.get(at, []))
    for pid in queue:
        files = outputs.open_files(pid) or []
        if any(item.target.startswith("/dev/pts/") for item in files):
            continue
        queue += below.get(pid, [])[: max(0, 64 - len(queue))]
        found += [item.target for item in files if item.fd > 0 and item.writes and outputs.is_file(item)]
    return list(dict.fromkeys(found))
