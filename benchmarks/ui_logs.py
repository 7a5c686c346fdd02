"""The log screen: following 5,000 lines a second, opening a file of 1 GB at its end, searching a million lines."""

from __future__ import annotations

import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from benchmarks.agent_box import PackedAgent
from benchmarks.product import rgt
from benchmarks.report import BenchmarkError, Row, say
from benchmarks.terminal import Terminal, cpu_seconds
from rgt_tui.fleet import extend_log
from rgt_tui.fleet.kept_lines import KeptLines, keep_from_view
from rgt_tui.model import BoxSpec, LogLines
from rgt_tui.recordings import recording_lines

LINES_A_SECOND = 5000
FRAMES_A_SECOND = 10
LINE = (
    "2026-03-01 12:00:{:02d} | INFO | step {} epoch 3 loss={:.4f} lr=3.0e-4 grad_norm=0.812 "
    "tok/s=51234 mem=23.4GB"
)
ERROR = "OSError: [Errno 28] No space left on device: '/data/x'"
WANTED = "no space left"
PATH = "/jobs/demo/train.log"


def lines(first: int, count: int) -> list[str]:
    """Return lines as trainings write them."""
    return [LINE.format(step % 60, step, 3 - step / 1e7) for step in range(first, first + count)]


def write_log(path: Path, megabytes: int) -> None:
    """Write a log of so many megabytes, with an error now and then."""
    with path.open("w") as file:
        step = 0
        while file.tell() < megabytes * 1_000_000:
            file.write("\n".join([*lines(step, 20_000), ERROR]) + "\n")
            step += 20_000


# Following


def write_recording(path: Path, seconds: float) -> None:
    """Write what a box sends whose log grows by 5,000 lines a second."""
    began = 1_700_000_000.0
    spec = BoxSpec(name="busy", host="h", logs=(PATH,))
    each = LINES_A_SECOND // FRAMES_A_SECOND
    with path.open("wb") as file:
        file.write(recording_lines.header_line([spec], began))
        hello = {
            "t": "hello",
            "proto": 1,
            "agent": "a",
            "boot": "b",
            "host": "h",
            "python": "3.11",
            "pid": 1,
        }
        file.write(
            recording_lines.frame_line("busy", began, json.dumps({**hello, "at": began}).encode())
        )
        offset = 0
        for tick in range(int(seconds * FRAMES_A_SECOND)):
            at = began + tick / FRAMES_A_SECOND
            if tick % FRAMES_A_SECOND == 0:
                sample = {
                    "t": "sample",
                    "boot": "b",
                    "seq": 1 + tick // FRAMES_A_SECOND,
                    "at": at,
                    "gpus": [],
                }
                file.write(recording_lines.frame_line("busy", at, json.dumps(sample).encode()))
            rows = lines(tick * each, each)
            end = offset + sum(len(row) + 1 for row in rows)
            frame = LogLines(path=PATH, inode=7, start=offset, end=end, lines=tuple(rows))
            file.write(recording_lines.frame_line("busy", at, msgspec.json.encode(frame)))
            offset = end


def append_percent(quick: bool) -> Row:
    """Measure the whole product, in a terminal, with the log on the screen; `tail -f` shows the same beside it."""
    warm, measured = (2.0, 4.0) if quick else (6.0, 20.0)
    with tempfile.TemporaryDirectory() as folder:
        recording = Path(folder) / "busy.jsonl"
        write_recording(recording, warm + measured + 15)
        growing = Path(folder) / "growing.log"
        growing.touch()
        state = {f"XDG_{what}_HOME": folder for what in ("STATE", "CONFIG", "DATA", "CACHE")}
        with (
            Terminal([rgt(), "replay", str(recording)], state) as ours,
            Terminal(["tail", "-f", str(growing)], patience=0) as theirs,
        ):
            if ours.wait_for(r"busy", 30) is None:
                raise BenchmarkError(f"the dashboard did not come up:\n{ours.text()[-500:]}")
            for key in (b"\r", b"l"):  # the page of the platform may stand before it
                time.sleep(1.0)
                ours.send(key)
            if ours.wait_for(r"following|tok/s", 15) is None:
                raise BenchmarkError(f"the log did not open:\n{ours.text()[-500:]}")
            time.sleep(warm)
            before = [cpu_seconds(one.pid) for one in (ours, theirs)]
            began = time.monotonic()
            with growing.open("w") as file:
                tick = 0
                while time.monotonic() - began < measured:
                    file.write("\n".join(lines(tick * 500, 500)) + "\n")
                    file.flush()
                    tick += 1
                    time.sleep(max(0.0, began + tick / FRAMES_A_SECOND - time.monotonic()))
            took = time.monotonic() - began
            used = [
                cpu_seconds(one.pid) - cpu for one, cpu in zip((ours, theirs), before, strict=True)
            ]
            if "step" not in ours.text():
                raise BenchmarkError("no lines were painted")
    percent = [100 * cpu / took for cpu in used]
    say(f"log: following takes {percent[0]:.1f}% of a core, tail -f {percent[1]:.1f}%")
    ratio = percent[0] / max(percent[1], 0.1)
    return Row("log_append_percent", percent[0], "%", ratio, "tail -f of the same lines", goal=20)


# Opening


@contextmanager
def opened_by_less(path: Path) -> Iterator[float]:
    """Yield the seconds until `less` shows the end of a file."""
    began = time.time()
    with Terminal(["less", "-S", "+G", str(path)], {"LESS": "", "LESSHISTFILE": "-"}) as terminal:
        at = terminal.wait_for("the very last line", 120)
        if at is None:
            raise BenchmarkError(f"less did not show the end:\n{terminal.text()[-300:]}")
        yield at - began
        terminal.send(b"q")


async def shown_by_agent(agent: PackedAgent, path: Path, tries: int) -> list[float]:
    """Return the seconds from asking the agent for a log until the screen has drawn its end, a few times."""
    from textual.app import App, ComposeResult

    from rgt_tui.ui.widgets import LogPane

    class Shown(App[None]):
        def compose(self) -> ComposeResult:
            yield LogPane(id="log", margins=True)

    found = []
    app = Shown()
    async with app.run_test(size=(120, 34)):
        pane = app.query_one(LogPane)
        for number in range(tries):
            link = path.with_name(f"try{number}.log")
            os.link(path, link)
            reader, writer = os.pipe()
            with agent.watch(writer, interval=60.0, logs=[]) as channel:
                os.close(writer)
                with os.fdopen(reader, "rb") as frames:
                    frames.readline()
                    while b'"t":"sample"' not in await asyncio.to_thread(frames.readline):
                        pass
                    began = time.perf_counter()
                    assert channel.stdin is not None
                    channel.stdin.write(
                        json.dumps({"op": "follow", "path": str(link)}).encode() + b"\n"
                    )
                    channel.stdin.flush()
                    while True:
                        raw = await asyncio.to_thread(frames.readline)
                        if b'"t":"log"' in raw:
                            break
                    frame = msgspec.json.decode(raw, type=LogLines)
                    kept = keep_from_view(extend_log(None, frame, 1.0), frame.inode, frame.end)
                    pane.show_logs([kept], now=1.0, age=None, empty="")
                    drawn = "".join(pane.render_line(y).text for y in range(pane.size.height))
                    found.append(time.perf_counter() - began)
            if "the very last line" not in drawn:
                raise BenchmarkError(f"the end is not shown: {drawn[-300:]}")
            link.unlink()
    return found


def open_over_less(quick: bool) -> Row:
    """Measure how long it takes to show the end of a file of 1 GB: asked of the agent on this machine, and drawn."""
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "large.log"
        write_log(log, 50 if quick else 1000)
        with log.open("a") as file:
            file.write("the very last line\n")
        agent = PackedAgent(Path(folder))
        try:
            ours = statistics.median(asyncio.run(shown_by_agent(agent, log, 3 if quick else 7)))
        finally:
            agent.stop()
        theirs = []
        for _ in range(3 if quick else 7):
            with opened_by_less(log) as seconds:
                theirs.append(seconds)
    beside = statistics.median(theirs)
    say(f"log: opening {1000 * ours:.0f} ms, less +G {1000 * beside:.0f} ms")
    return Row(
        "log_open_over_less",
        1000 * ours,
        "ms",
        ours / beside,
        "less +G in a terminal",
        ratio_goal=2,
    )


# Searching


def search_over_grep(quick: bool) -> Row:
    """Measure a search in a million lines as the screen does it, with `grep` in the same lines beside it."""
    from rgt_tui.ui.line_finder import LineMarks, finder_for

    kept = KeptLines(PATH, most_bytes=1 << 30)
    count = 200_000 if quick else 1_000_000
    for first in range(0, count, 20_000):
        kept.append_lines([*lines(first, 20_000), ERROR])
    ours, theirs = [], []
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "same.log"
        log.write_text(
            "".join(f"{line}\n" for line in kept.read_lines(kept.first_number, kept.end))
        )
        for _ in range(9):
            began = time.perf_counter()
            command = ["grep", "-c", "-i", "-F", "--", WANTED, str(log)]
            told = subprocess.run(
                command, env={**os.environ, "LC_ALL": "C.UTF-8"}, capture_output=True, check=True
            )
            theirs.append(time.perf_counter() - began)
            began = time.perf_counter()
            marks = LineMarks(kept, finder_for(WANTED).finder)
            while (job := marks.next_job()) is not None:
                job.run()
                marks.apply_job(job)
            ours.append(time.perf_counter() - began)
            if len(marks) != int(told.stdout):
                raise BenchmarkError(f"found {len(marks)}, grep {told.stdout!r}")
    mine, beside = statistics.median(ours), statistics.median(theirs)
    say(
        f"log: searching {len(kept):,} lines {1000 * mine:.0f} ms, grep -i -F {1000 * beside:.0f} "
        "ms"
    )
    return Row(
        "log_search_over_grep",
        1000 * mine,
        "ms",
        mine / beside,
        "grep -i -F -c, warm",
        ratio_goal=2.5,
    )


def log_cases(quick: bool) -> list[Row]:
    """Measure; returns the rows."""
    return [append_percent(quick), open_over_less(quick), search_over_grep(quick)]


if __name__ == "__main__":
    from benchmarks.report import main

    sys.exit(main("ui_logs", log_cases))
