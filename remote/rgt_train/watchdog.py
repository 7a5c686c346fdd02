"""A step that never ends is noticed, with the stack of every thread, instead of being paid for by the hour."""

from __future__ import annotations

import faulthandler
import os
import statistics
import threading
import time
from collections import deque
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Callable, Deque, Iterator, Optional

from rgt_train.durable import StrPath
from rgt_train.progress import Progress
from rgt_train.report import Report

STEPS = 32
"""Step times that the limit is computed from."""


@dataclass(frozen=True)
class StallRules:
    """When a step counts as stalled.

    Attributes:
        factor: Times the median step that a step may take; 0 switches the watchdog off.
        floor_s: Seconds below which no step is called stalled (a first batch, a recompilation, a slow disk).
        exit_code: Leave with this code once a stall was told; 0 stays and waits.
    """

    factor: float = 20.0
    floor_s: float = 300.0
    exit_code: int = 0


class Telltale:
    """Tells a stall to the log, to the metrics and, where the process will leave, to the ledger.

    Args:
        report: Lines and events.
        progress: Which step it was.
        ledger: Notes how the incarnation ends.
        exit_code: The code it will leave with; 0 where it stays.
    """

    def __init__(self, report: Report, progress: Progress, ledger: Any, exit_code: int) -> None:
        self._report, self._progress, self._ledger, self._exit = report, progress, ledger, exit_code

    def __call__(self, spent: float, limit: float, path: str) -> None:
        """Tell that there was no step for `spent` seconds; the stacks are in `path`."""
        step = self._progress.step
        self._report.say(
            f"stalled: no step for {spent:.0f} s (limit {limit:.0f} s) after step {step}; "
            f"the stacks of all threads are in {path}"
        )
        self._report.event("stalled", step, seconds=round(spent, 1), limit=round(limit, 1), path=path)
        if self._exit:
            self._ledger.end(step, "stalled")


class Watchdog:
    """Watches the time since the last beat from a thread of its own.

    A thread needs the interpreter lock to run; a call that never gives it back would silence it. So the thread also
    arms `faulthandler`'s own timer, which needs no lock, again and again: it goes off when the thread is held up too.

    Args:
        out: Directory of the stack dumps.
        rules: When a step is stalled.
        tell: Called once per stall with seconds, the limit and the file of the dump.
    """

    def __init__(self, out: StrPath, rules: StallRules, tell: Callable[[float, float, str], None]) -> None:
        self._rules, self._tell = rules, tell
        self.path = os.path.join(out, "stalls.log")
        self._times: Deque[float] = deque(maxlen=STEPS)
        self._last = time.monotonic()
        self._paused = 0
        self._told = False
        self._closing = threading.Event()
        self._thread: Optional[threading.Thread] = None
        if rules.factor > 0:
            self._thread = threading.Thread(target=self._watch, name="rgt-watchdog", daemon=True)
            self._thread.start()

    def beat(self) -> None:
        """Note that a step has ended."""
        now = time.monotonic()
        self._times.append(now - self._last)
        self._last, self._told = now, False

    def alive(self) -> None:
        """Note a sign of life that is no step (a validation batch, a save)."""
        self._last, self._told = time.monotonic(), False

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Look away while something takes as long as it takes (waiting for a full disk)."""
        self._paused += 1
        try:
            yield
        finally:
            self._paused -= 1
            self.alive()

    def limit_s(self) -> float:
        """Return the seconds after which a step is stalled."""
        times = list(self._times)
        usual = statistics.median(times) if times else 0.0
        return max(self._rules.floor_s, self._rules.factor * usual)

    def close(self) -> None:
        """Stop watching."""
        self._closing.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()

    def _watch(self) -> None:
        try:
            while not self._closing.wait(min(5.0, max(0.02, self.limit_s() / 8))):
                limit = self.limit_s()
                # Twice the limit: it goes off only where this thread, too, has been held up that long.
                faulthandler.dump_traceback_later(2 * limit, exit=self._rules.exit_code != 0, file=2)
                spent = time.monotonic() - self._last
                if spent > limit and not self._paused and not self._told:
                    self._told = True
                    self._stalled(spent, limit)
        finally:
            faulthandler.cancel_dump_traceback_later()

    def _stalled(self, spent: float, limit: float) -> None:
        faulthandler.dump_traceback(2, all_threads=True)
        self._tell(spent, limit, self.path if self._keep_dump(spent, limit) else "stderr")
        if self._rules.exit_code:
            os._exit(self._rules.exit_code)  # the main thread is stuck: nothing else ends the process

    def _keep_dump(self, spent: float, limit: float) -> bool:
        stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        try:
            with open(self.path, "ab", buffering=0) as log:
                log.write(f"--- {stamp} no step for {spent:.1f} s (limit {limit:.1f} s)\n".encode())
                faulthandler.dump_traceback(log, all_threads=True)
        except OSError:
            return False
        return True
