"""What the dashboard's main thread did between a key and its paint, for the table of the slowest keys.

`record` runs in the dashboard: it notes each change from one activity to another, in a file.
    `Timeline` reads
the file in the benchmark; both use the monotonic clock of the machine, so the times of keys fit.
"""

from __future__ import annotations

import atexit
import functools
import gc
import struct
import time
from array import array
from bisect import bisect_right
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

FILE = "RGT_BENCH_TRACE"
"""Environment variable: the file that the dashboard writes."""
ACTIVITIES = (
    *("wait", "handling", "mount", "styles", "layout", "data", "draw", "render", "write"),
    "garbage",
)
"""`wait`: the event loop has nothing to do; before the first other activity the key is being read,
after the last one the bytes are on their way to the terminal. `handling`: messages and handlers.
`data`: the boxes change.
`draw`: a screen makes its lines from a state. `render`: cells and their escape sequences."""
SPLIT = ("read", *ACTIVITIES[1:], "wait", "terminal", "others")
"""What is printed of a key: its activities in CPU time, and the time in which other threads or
programs ran.
"""
ENTRY = struct.Struct("=ddB")


class _Recorder:
    """Notes changes of the activity of the thread that runs the event loop."""

    def __init__(self) -> None:
        self._times = array("d")
        self._cpu = array("d")
        self._now = array("B")
        self._stack = [ACTIVITIES.index("handling")]

    def _note(self) -> None:
        self._times.append(time.perf_counter())
        self._cpu.append(time.thread_time())
        self._now.append(self._stack[-1])

    def begin(self, activity: int) -> None:
        self._stack.append(activity)
        self._note()

    def end(self) -> None:
        self._stack.pop()
        self._note()

    def note_garbage(self, phase: str, _: object) -> None:
        if phase == "start":
            self.begin(ACTIVITIES.index("garbage"))
        else:
            self.end()

    def write(self, path: Path) -> None:
        entries = zip(self._times, self._cpu, self._now, strict=True)
        path.write_bytes(b"".join(ENTRY.pack(*one) for one in entries))


def _wrap(recorder: _Recorder, owner: Any, name: str, activity: str) -> None:
    number, plain = ACTIVITIES.index(activity), getattr(owner, name)

    @functools.wraps(plain)
    def timed(*args: Any, **named: Any) -> Any:
        recorder.begin(number)
        try:
            return plain(*args, **named)
        finally:
            recorder.end()

    setattr(owner, name, timed)


def _timed_steps(recorder: _Recorder, activity: int, coroutine: Any) -> Generator[Any, Any, Any]:
    """Drive a coroutine; only the steps that it runs itself count, and not the time that it waits."""
    steps, sent, error = coroutine.__await__(), None, None
    while True:
        recorder.begin(activity)
        try:
            yielded = steps.send(sent) if error is None else steps.throw(error)
        except StopIteration as stop:
            return stop.value
        finally:
            recorder.end()
        sent, error = None, None
        try:
            sent = yield yielded
        except BaseException as thrown:  # a cancelled task
            error = thrown


class _Steps:
    def __init__(self, make: Callable[[], Generator[Any, Any, Any]]) -> None:
        self._make = make

    def __await__(self) -> Generator[Any, Any, Any]:
        return self._make()


def _wrap_coroutine(recorder: _Recorder, owner: Any, name: str, activity: str) -> None:
    number, plain = ACTIVITIES.index(activity), getattr(owner, name)

    @functools.wraps(plain)
    async def timed(*args: Any, **named: Any) -> Any:
        return await _Steps(lambda: _timed_steps(recorder, number, plain(*args, **named)))

    setattr(owner, name, timed)


def record(path: Path, data: tuple[type, str]) -> None:
    """Note what this process does from now on; the file is written when it ends.

    Args:
        path: The file.
        data: Class and name of the function that makes the boxes change.
    """
    import selectors

    from textual.app import App
    from textual.css.stylesheet import Stylesheet
    from textual.drivers.linux_driver import LinuxDriver
    from textual.message_pump import MessagePump
    from textual.screen import Screen
    from textual.widget import Widget

    from rgt_tui.ui.screens.base import FleetAwareScreen

    recorder = _Recorder()
    _wrap(recorder, selectors.DefaultSelector, "select", "wait")
    for owner, name, activity in (
        (App, "_register", "mount"),
        (Stylesheet, "apply", "styles"),
        (Screen, "_refresh_layout", "layout"),
        (Screen, "_compositor_refresh", "render"),
        (LinuxDriver, "write", "write"),
        (FleetAwareScreen, "receive_state", "draw"),
        (FleetAwareScreen, "watch_fleet_state", "draw"),
        (*data, "data"),
    ):
        _wrap(recorder, owner, name, activity)
    _wrap_coroutine(recorder, MessagePump, "_pre_process", "mount")
    _wrap_coroutine(recorder, Widget, "_compose", "mount")
    gc.callbacks.append(recorder.note_garbage)
    atexit.register(recorder.write, path)


class Timeline:
    """What the dashboard did when."""

    def __init__(self, path: Path) -> None:
        self._entries = list(ENTRY.iter_unpack(path.read_bytes()))
        self._times = [at for at, _, _ in self._entries]

    def split(self, begin: float, end: float) -> dict[str, float]:
        """Return the milliseconds of each activity between two times, in CPU time where it is not a wait."""
        spent = dict.fromkeys(SPLIT, 0.0)
        first = max(0, bisect_right(self._times, begin) - 1)
        last = bisect_right(self._times, end)
        for place in range(first, last):
            at, cpu, activity = self._entries[place]
            if place + 1 < len(self._entries):
                until, cpu_until, _ = self._entries[place + 1]
            else:
                until, cpu_until = end, cpu
            wall = 1000 * (min(until, end) - max(at, begin))
            name = ACTIVITIES[activity]
            if name != "wait":
                used = min(wall, 1000 * (cpu_until - cpu))
                spent[name] += used
                spent["others"] += wall - used
            elif place == first:
                spent["read"] += wall
            elif place == last - 1:
                spent["terminal"] += wall
            else:
                spent["wait"] += wall
        return spent
