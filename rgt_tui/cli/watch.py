"""``rgt watch`` and ``rgt record``: stay connected, and print events or write them to a file."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TextIO

from rgt_tui.cli import running
from rgt_tui.cli.commands import FAILED, OK, UNREACHABLE, USAGE
from rgt_tui.cli.gathering import make_fleet, make_recording_fleet, running_fleet
from rgt_tui.cli.opening import choose_boxes, open_boxes, open_fleet, watch_fleet_file
from rgt_tui.cli.printing import print_error, write_json
from rgt_tui.cli.status_line import NAME_WIDTH, StatusLine, encode_line, status_line, text_line
from rgt_tui.cli.watch_arguments import RecordArguments, WatchArguments
from rgt_tui.files import note_written
from rgt_tui.fleet.config import FleetConfig, FleetFileError
from rgt_tui.health import assess_box
from rgt_tui.language import translate
from rgt_tui.model import BoxHealth, BoxSpec, BoxState, FleetEvent, FleetState, clean_text, how_many
from rgt_tui.recordings import FleetRecorder, LineFile, RecordFailed

# States are published more often than a person reads; several changes become one line.
LOOK_SECONDS = 0.25


class _StateWatcher:
    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._boxes: dict[str, BoxState] = {}
        self._changed: set[str] = set()

    def published(self, state: FleetState, changed: tuple[tuple[BoxState, BoxState], ...]) -> None:
        """Remember the changes until the next `print_due`."""
        # A box was added to or removed from the fleet file.
        if self._boxes.keys() != {box.spec.name for box in state.boxes}:
            self._boxes = {box.spec.name: box for box in state.boxes}
        for _, new in changed:
            self._boxes[new.spec.name] = new
            self._changed.add(new.spec.name)

    def receive_events(self, events: tuple[FleetEvent, ...]) -> None:
        """Receive events; ignored by default."""

    async def close(self) -> None:
        """Do nothing: there is nothing to close."""

    async def run(self, clock: Callable[[], float]) -> None:
        """Print until cancelled, or until the reader has closed the pipe.

        Raises:
            BrokenPipeError: The reader has closed the pipe.
        """
        while True:
            self.print_due(clock())
            # Also without news: this is how a closed pipe is noticed.
            self._out.flush()
            await asyncio.sleep(LOOK_SECONDS)

    def print_due(self, now: float) -> None:
        """Print what is due at `now` (client clock)."""
        raise NotImplementedError


class TextWatcher(_StateWatcher):
    """Prints events, and a line about a box whenever its state word changes."""

    def __init__(self, out: TextIO) -> None:
        super().__init__(out)
        self._events: list[FleetEvent] = []
        self._words: dict[str, tuple[BoxHealth, str]] = {}

    def receive_events(self, events: tuple[FleetEvent, ...]) -> None:
        """Buffer events until the next `print_due`."""
        self._events += events

    def print_due(self, now: float) -> None:
        """Print the events and state changes since the last call."""
        events, self._events = self._events, []
        for event in events:
            self._print_line(
                event.at, clean_text(f"{event.box:<{NAME_WIDTH}} {event.level:<5} {event.text}")
            )
        for name, box in self._boxes.items():
            seen = assess_box(box, now)
            # Not the reason: it contains figures that change with every sample.
            word = (seen.health, seen.word)
            if self._words.get(name) != word and (
                # "connecting" as the first word of every box says nothing.
                name in self._words or seen.health is not BoxHealth.CONNECTING
            ):
                self._words[name] = word
                self._print_line(now, text_line(status_line(box, seen, now)))

    def _print_line(self, at: float, text: str) -> None:
        self._out.write(f"{time.strftime('%H:%M:%S', time.localtime(at))} {text}\n")


class JsonWatcher(_StateWatcher):
    """Prints the status line of a box whose data changed, or whose state changed with age."""

    def __init__(self, out: TextIO) -> None:
        super().__init__(out)
        self._printed: dict[str, float] = {}
        self._states: dict[str, str] = {}

    def print_due(self, now: float) -> None:
        """Print the lines that are due."""
        # Minimum time between two lines about one box.
        between_seconds = 1.0
        for name, box in self._boxes.items():
            # The box stays in `_changed`, so its newest state is printed once the second is over.
            if now - self._printed.get(name, float("-inf")) < between_seconds:
                continue
            line = status_line(box, assess_box(box, now), now)
            # A state can change by age alone, without anything from the box.
            if name in self._changed or self._states.get(name) != line.state:
                self._print_status(line, now)

    def _print_status(self, line: StatusLine, now: float) -> None:
        self._changed.discard(line.box)
        self._printed[line.box] = now
        self._states[line.box] = line.state
        write_json(encode_line(line), self._out)


def run_watch(arguments: WatchArguments) -> int:
    """Watch; return the exit code."""
    # Alerts go to sinks, and only a trusted file may name them.
    config, specs = open_boxes(arguments, arguments.boxes, trusted=True)

    return running.run_coroutine(_watch_boxes(specs, config, arguments), boxes=len(specs))


async def _watch_boxes(
    specs: Sequence[BoxSpec], config: FleetConfig, arguments: WatchArguments
) -> int:
    over = asyncio.Event()
    running.until_signalled(over)
    watcher = JsonWatcher(sys.stdout) if arguments.json else TextWatcher(sys.stdout)
    fleet = make_recording_fleet(
        specs,
        config.alerts,
        fleet_file=config.path,
        history=not arguments.no_history,
        accept_new_host_keys=arguments.accept_new_host_key,
        observers=[watcher],
        whole=len(specs) == len(config.boxes),
        following=watch_fleet_file(arguments, config, arguments.boxes),
    )
    async with running_fleet(fleet):
        # If the reader has closed the pipe, the watcher raises an exception.
        await running.first_of(over.wait(), watcher.run(fleet.now), seconds=arguments.seconds)
    return OK


def run_record(arguments: RecordArguments) -> int:
    """Record; return the exit code."""
    try:
        # An untrusted file is enough: a recording sends nothing anywhere.
        specs = choose_boxes(open_fleet(arguments), arguments.boxes)
    except FleetFileError as error:
        print_error(error)
        return USAGE

    try:
        return running.run_coroutine(_record_boxes(specs, arguments))
    except RecordFailed as error:
        print_error(error)
        return FAILED


async def _record_boxes(specs: Sequence[BoxSpec], arguments: RecordArguments) -> int:
    over = asyncio.Event()
    running.until_signalled(over)
    # Noted as written by rgt, so that no push takes the recording for code.
    file = LineFile(Path(arguments.out), on_begun=lambda path: note_written([path], grows=True))
    started = time.time()
    recorder = FleetRecorder(file, specs, started)
    told = TextWatcher(sys.stderr)
    fleet = make_fleet(
        specs,
        accept_new_host_keys=arguments.accept_new_host_key,
        observers=[recorder, told],
        # Raw lines: a replay runs them through the same readers as a connection does.
        tap=recorder.record_line,
    )
    try:
        async with running_fleet(fleet):
            # stderr may be closed; the recording is completed anyway
            with contextlib.suppress(OSError):
                await running.first_of(
                    over.wait(),
                    recorder.failed.wait(),
                    told.run(fleet.now),
                    seconds=arguments.seconds,
                )
    finally:
        # The events of the last moment, after the fleet has stopped.
        told.print_due(fleet.now())
        await recorder.close()
    if recorder.failure is not None:
        raise recorder.failure
    seconds = time.time() - started
    lines = sum(recorder.frames.values())
    if arguments.json:
        summary = {
            "file": str(file.path),
            "seconds": round(seconds, 3),
            "bytes": file.written,
            "boxes": recorder.frames,
        }
        sys.stdout.write(json.dumps(summary) + "\n")
    else:
        boxes = how_many(len(specs), "box", "boxes")
        size = f"{file.written:,} bytes"
        sys.stderr.write(
            translate(
                "{path}: {lines} from {boxes} in {seconds:.0f} s, {size}\n",
                path=file.path,
                lines=how_many(lines, "line"),
                boxes=boxes,
                seconds=seconds,
                size=size,
            )
        )
    # A file with reasons alone is a recording, too, but a script should know.
    if lines:
        return OK
    return UNREACHABLE
