"""From a key to the paint of what it does, at random times, over the keys that a person presses on the fleet screen.

`far_cases` measures the whole product beside 200 boxes over real SSH connections (what of the boxes
is simulated, `benchmarks.fleet_boxes` says), on the same machine and with half a second of round
trip to each.
"""

from __future__ import annotations

import math
import random
import re
import tempfile
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

from benchmarks.fleet import Boxes, recorded, simulated
from benchmarks.fleet_client import host
from benchmarks.product import last_words, rgt
from benchmarks.report import BenchmarkError, Row, say
from benchmarks.terminal import LINES, Terminal
from benchmarks.ui_trace import SPLIT, Timeline

LONGEST_S = 5.0
SETTLE_S = 6.0
PAUSE_S = (0.02, 0.13)
"""Between the paint of one key and the next key: not in step with the boxes, and faster than most
people type.
"""

STYLED = rb"(?:\x1b\[[\d;]*m)*"
CURSOR = rb"\x1b\[\d+;1H" + STYLED + "▌".encode() + rb"|\x1b\[2;\d+H"
"""The mark of the selected row, in the first column (bars that data draw may hold the same sign
elsewhere); or, where it stays in its line and the rows move, which ones are in sight, beside the
titles."""
EVENT_LINE = rb"\x1b\[%d;\d+H" % (LINES - 1)
"""Where hints and entries stand, and no data."""
TITLES = rb"inode|cgroup"
"""Titles of the table: they are painted when the screen comes up, and not with the data; the one
that the rows are sorted by is cut for its arrow.
"""
CRUMBS = "›".encode()
"""In the header of every screen but the fleet's."""
FRAME = "╭".encode()
"""A corner of a pane: painted anew when the pane gets the focus or loses it."""


class Press(NamedTuple):
    """One key."""

    kind: str
    """What it does; of one that only prepares the next ones it is empty."""
    keys: bytes
    painted: bytes
    """Pattern of what is painted then, and not with data."""


class KeyWait(NamedTuple):
    """One key that was painted."""

    kind: str
    ms: float
    """From the key to the paint of what it does."""
    start: float
    """When it was sent, on the machine's monotonic clock."""


TOP = Press("", b"g", b"")
"""Not measured: where the cursor stands already, nothing is painted."""
STILL = Press("", b"", b"")
"""Waits. A key that takes back the one before may come while that is not painted: then neither is.
"""
DOWN, UP = Press("down", b"j", CURSOR), Press("up", b"k", CURSOR)
NEXT_PAGE, LAST_PAGE = Press("page", b"\x1b[6~", CURSOR), Press("page", b"\x1b[5~", CURSOR)
SORT = Press("sort", b"O", EVENT_LINE)
"""Turns the order round, twice. By a column whose values change, the selected row may jump to the
end of the list, and a key that goes on from there paints nothing.
"""
OPEN, BACK = Press("open a box", b"\r", CRUMBS), Press("back", b"q", TITLES)
FILTER = Press("filter", b"/", rb"filter")
CLEAR, CLOSE = Press("clear", b"\x15", rb"1(?:-\d+)?/\d{3}"), Press("close", b"\r", EVENT_LINE)
LOGS, CURVES = Press("open its logs", b"l", CRUMBS), Press("open its curves", b"c", CRUMBS)


def typed(text: str) -> Iterator[Press]:
    """The letters of what the boxes are filtered by; the cursor blinks in the same line."""
    for end in range(1, len(text) + 1):
        yield Press(
            "letter", text[end - 1 : end].encode(), EVENT_LINE + rb"[^\n]*" + text[:end].encode()
        )


ROUND: tuple[tuple[Press, ...], ...] = (
    *((TOP, *(DOWN,) * 6, STILL, *(UP,) * 5),) * 2,
    (TOP, NEXT_PAGE, NEXT_PAGE, STILL, LAST_PAGE, STILL, NEXT_PAGE, STILL, LAST_PAGE),
    (SORT, SORT),
    (OPEN, BACK),
    (CURVES, BACK),
    (FILTER, *typed("01"), CLEAR, CLOSE),
)
"""What somebody does on the fleet screen; the order of these is another one each time.

Not escape: a terminal sends it as the beginning of other keys, too, so Textual waits a tenth of a
    second for more.
"""
ASKING: tuple[tuple[Press, ...], ...] = (*ROUND, (OPEN, BACK), (LOGS, BACK))
"""With keys whose screens ask the box for something."""


def presses(
    count: int, round_: tuple[tuple[Press, ...], ...] = ROUND, seed: int = 1
) -> Iterator[Press]:
    """So many keys, always the same ones in the same order."""
    pace = random.Random(seed)
    left = count
    while True:
        parts = list(round_)
        pace.shuffle(parts)
        for part in parts:
            if left <= 0:
                return
            left -= sum(bool(press.kind) for press in part)
            yield from part


def _painted(terminal: Terminal, before: int, pattern: re.Pattern[bytes]) -> bool:
    return pattern.search(terminal.since(before)) is not None


def key_to_paint(terminal: Terminal, keys: Iterator[Press], seed: int = 1) -> list[KeyWait]:
    """Each key with its time from the key to the paint of what it does.

    Raises:
        BenchmarkError: a key was not answered by what it should paint.
    """
    found: list[KeyWait] = []
    pace = random.Random(seed)
    for press in keys:
        time.sleep(pace.uniform(*PAUSE_S))
        if not press.kind:
            terminal.send(press.keys)
            time.sleep(0.3)
            continue
        before, pattern = terminal.written, re.compile(press.painted)
        start = time.perf_counter()
        terminal.send(press.keys)
        if (
            terminal.wait_until(
                partial(_painted, terminal, before, pattern), LONGEST_S, every=0.0005
            )
            is None
        ):
            said = last_words(terminal.text())
            raise BenchmarkError(
                f"{press.kind}: nothing of it was painted within {LONGEST_S:g} s:\n{said}"
            )
        found.append(KeyWait(press.kind, (time.perf_counter() - start) * 1000, start))
    return found


def at_share(waits: list[float], share: float) -> float:
    """The wait that this share of the keys does not exceed."""
    return sorted(waits)[max(0, math.ceil(share * len(waits)) - 1)]


def slowest(found: list[KeyWait], count: int = 5) -> str:
    """The slowest keys, in words."""
    worst = sorted(found, key=lambda one: -one.ms)[:count]
    return ", ".join(f"{one.kind} {one.ms:.0f} ms" for one in worst)


def slowest_table(found: list[KeyWait], timeline: Timeline, share: float = 0.02) -> str:
    """The slowest keys, a line each: milliseconds in all, and of each activity of the dashboard."""
    count = max(1, round(share * len(found)))
    worst = sorted(found, key=lambda one: -one.ms)[:count]
    lines = [f"  {'key':<18}{'ms':>7}" + "".join(f"{name:>9}" for name in SPLIT)]
    for one in worst:
        spent = timeline.split(one.start, one.start + one.ms / 1000)
        parts = "".join(f"{spent.get(name, 0.0):>9.1f}" for name in SPLIT)
        lines.append(f"  {one.kind:<18}{one.ms:>7.1f}{parts}")
    return "\n".join(lines)


def without_others(found: list[KeyWait], timeline: Timeline) -> list[KeyWait]:
    """The same keys without the time in which other programs had the processor."""
    return [
        one._replace(ms=one.ms - timeline.split(one.start, one.start + one.ms / 1000)["others"])
        for one in found
    ]


def rows(name: str, found: list[KeyWait], goal: float) -> list[Row]:
    """The table of one case."""
    waits = [one.ms for one in found]
    return [
        Row(f"{name}_p50_ms", at_share(waits, 0.5), f"ms, {len(waits)} keys"),
        Row(f"{name}_p90_ms", at_share(waits, 0.9), "ms"),
        Row(f"{name}_p99_ms", at_share(waits, 0.99), "ms", goal=goal),
        Row(f"{name}_max_ms", max(waits), "ms"),
    ]


FAR_S = 0.5
"""Round trip."""
CONNECT_WAIT_S = 90.0


def fleet_file(keys: Path, port: int, count: int) -> str:
    """Describe simulated boxes to rgt."""
    lines = [
        "[defaults]",
        'user = "root"',
        f'identity = "{keys / "id"}"',
        f'known_hosts = "{keys / "known_hosts"}"',
    ]
    for number in range(count):
        lines += [f"[boxes.box-{number:03d}]", f'host = "{host(number)}"', f"port = {port}"]
    return "\n".join(lines) + "\n"


def connected(boxes: Boxes, count: int, terminal: Terminal) -> None:
    """Wait until all boxes send samples."""
    deadline = time.monotonic() + CONNECT_WAIT_S
    while boxes.live() < count:
        if time.monotonic() > deadline or not terminal.running:
            raise BenchmarkError(
                f"{boxes.live()} of {count} boxes are connected:\n{last_words(terminal.text())}"
            )
        time.sleep(0.2)


def far_cases(count: int, keys: int, goal: float) -> list[Row]:
    """Measure the product beside so many boxes that are near, and then the same boxes far away."""
    with tempfile.TemporaryDirectory(prefix="rgt-bench-") as name:
        folder = Path(name)
        recordings = recorded(folder, 0.15)
        with simulated(folder, recordings[:1], 1, far=True) as (boxes,):
            (folder / "fleet.toml").write_text(fleet_file(folder, boxes.port, count))
            home = {f"XDG_{what}_HOME": name for what in ("STATE", "CONFIG", "DATA", "CACHE")}
            with Terminal(
                [rgt(), "--fleet", str(folder / "fleet.toml")], {**home, "RGT_ASCII": "0"}
            ) as terminal:
                connected(boxes, count, terminal)
                time.sleep(SETTLE_S)
                terminal.send(b"q")  # the page of the platform stands before the fleet
                time.sleep(1.0)
                say(f"ui: {keys} keys beside {count} boxes over SSH")
                near = key_to_paint(terminal, presses(keys, ASKING))
                boxes.move(FAR_S)
                time.sleep(SETTLE_S)
                say(
                    f"ui: the same, {FAR_S:g} s of round trip away; the slowest before: "
                    f"{slowest(near)}"
                )
                far = key_to_paint(terminal, presses(keys, ASKING))
                say(f"ui: the slowest: {slowest(far)}")
    return [*rows("key_to_paint_ssh", near, goal), *rows("key_to_paint_ssh_500ms", far, goal)]
