"""Counts what arrives, and says at once when something is missing or comes twice."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal

from rgt_tui.fleet import BoxSession
from rgt_tui.model import LinkState, protocol

CELL = "a"
"""Name of the one cell of the boxes that are cut."""


class Tally:
    """Where each stream must go on."""

    def __init__(self) -> None:
        self.line = self.step = self.seq = self.attempt = 0
        self.samples = self.events = self.resets = 0
        self.boot = ""
        self.faults: list[str] = []
        self.expected: set[str] = set()
        """Boots that may follow; their count begins anew."""

    def take(self, frame: protocol.Frame, log: str) -> None:
        """Account for a frame."""
        if isinstance(frame, protocol.LogLines) and frame.path == log:
            self.resets += frame.reset
            if frame.skipped:
                self._fault(f"{frame.skipped} lines skipped")
            for line in frame.lines:
                self.line = self._next("line", self.line, int(line.removeprefix("line ")))
        elif (
            isinstance(frame, protocol.Scalars) and frame.run == CELL
        ):  # not a training that runs here beside
            for point in frame.points:
                self.step = self._next("step", self.step, point.step)
        elif isinstance(frame, protocol.Sample) or (
            isinstance(frame, protocol.BoxEvent) and frame.seq
        ):
            if getattr(frame, "skipped", 0):
                self._fault(f"{frame} skips")
            if self.boot in ("", frame.boot):
                self.seq = self._next("seq", self.seq, frame.seq)
            elif frame.boot in self.expected:
                self.seq = frame.seq
            else:
                self._fault("a new boot")
            self.boot = frame.boot
            self.samples += isinstance(frame, protocol.Sample)
            if isinstance(frame, protocol.BoxEvent):
                self._event(frame)

    def _event(self, event: protocol.BoxEvent) -> None:
        self.events += 1
        if event.kind == "cell-running":
            attempt = int(event.text.rpartition(" ")[2])
            if attempt <= self.attempt:
                self._fault(f"attempt {attempt} after {self.attempt}")
            self.attempt = attempt

    def _next(self, what: str, last: int, number: int) -> int:
        if last and number != last + 1:
            self._fault(f"{what} {number} after {last}")
        return number

    def _fault(self, text: str) -> None:
        self.faults.append(text)


class CutSession(BoxSession):
    """The real session, which kills the agent's process by itself now and then, and counts what it sees."""

    tally: Tally
    dice: random.Random
    log: str
    news: asyncio.Event
    cuts = 0
    gentle = False
    _left = -1
    _frames = 0
    _pid = 0

    def _accept_frame(self, frame: protocol.Frame) -> None:
        self.tally.take(frame, self.log)
        super()._accept_frame(frame)
        self._frames += 1
        if isinstance(frame, protocol.Hello):
            self._pid, self._left = frame.pid, self.dice.randrange(1, 24)
        self._left -= 1
        if self._left == 0 and not self.gentle:
            if self.dice.random() < 0.5:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(self._pid, signal.SIGKILL)
            elif self._channel is not None:
                self._channel.close()
        self.news.set()

    def _set_link(self, link: LinkState, reason: str, retry_at: float | None) -> None:
        super()._set_link(link, reason, retry_at)
        self.cuts += (
            self._frames > 1
        )  # a connection that was cut before its first frame proves little
        self._frames = 0
        self.news.set()
