"""How a training process ends: exit codes, errors shown as one line, and requests to stop."""

from __future__ import annotations

import functools
import os
import signal
import sys
import threading
import weakref
from contextlib import suppress
from types import FrameType
from typing import Any, Callable, Sequence, TypeVar

Work = TypeVar("Work", bound=Callable[..., Any])

DONE = 0
"""All steps are done and the result is on disk."""
FAILED = 1
"""The training itself failed (an exception, or a loss that stays NaN)."""
USAGE = 2
"""Nothing was started: a bad option or config, a missing torch, a second trainer in one directory.
"""
NO_SPACE = 74
"""Nothing could be saved for longer than the hold limit (`EX_IOERR` of sysexits.h)."""
PREEMPTED = 75
"""Asked to stop by a signal; the same command continues it (`EX_TEMPFAIL`)."""


class TrainingStop(SystemExit):
    """Ends the process from inside a training loop with one of the codes above.

    It is a `SystemExit`, so that a person's own loop needs no handling for it: `with run:` unwinds,
    the interpreter ends with `code`.

    Attributes:
        code: The exit code.
        cause: The end of this attempt in the run log, e.g. ``SIGTERM``.
        saves: Whether the state is saved at the exit; a rollback discards it.
    """

    saves = True

    def __init__(self, code: int, cause: str) -> None:
        super().__init__(code)
        self.cause = cause


class UsageError(Exception):
    """A mistake by the person who launched it: one line without a traceback, exit code 2."""


class RanksError(RuntimeError):
    """The ranks have lost each other, or are out of step; the message names which."""


class ShownError(UsageError, SystemExit):
    """A `UsageError` that ends the process with code 1, without a traceback, unless caught.

    A person's loop need not handle it. The line is on stderr already when it is raised, because the
    interpreter prints nothing for a `SystemExit`.
    """

    exit_code = FAILED

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.code = self.exit_code

    @classmethod
    def of(cls, error: BaseException) -> "ShownError":
        """Print the line, once, and return the exception to raise."""
        if isinstance(error, ShownError):
            return error
        # an error in a loader's worker arrives with its traceback in the text
        line = str(error).rstrip().rpartition("\n")[2].replace(f"{__name__}.UsageError: ", "")
        print(f"rgt_train: {line}", file=sys.stderr, flush=True)
        return cls(line)


class NotStarted(ShownError):
    """A `UsageError` that ends the process with code 2 unless caught: nothing was started."""

    exit_code = USAGE


def explain_error(error: BaseException) -> BaseException | None:
    """Return the `UsageError` that explains an error in a person's loop; None if it is unknown."""
    if isinstance(error, UsageError):
        return error
    if isinstance(error, ValueError) and "batch_sampler option is mutually exclusive" in str(error):
        return UsageError(
            "DataLoader(data, batch_sampler=run.batches()) takes no batch_size, shuffle, sampler "
            "or drop_last: give batch_size to the Run, which shuffles; steps_per_epoch=len(data) "
            "// batch_size drops a smaller last batch"
        )
    return None


def raises_not_started(work: Work) -> Work:
    """Make a function of the start of a training raise `NotStarted` instead of `UsageError`."""

    @functools.wraps(work)
    def call_work(*args: Any, **kwargs: Any) -> Any:
        try:
            return work(*args, **kwargs)
        except UsageError as error:
            raise NotStarted.of(error) from error

    found: Any = call_work
    return found  # type: ignore[no-any-return]


STOP_SIGNALS = (signal.SIGTERM, signal.SIGUSR1, signal.SIGINT)
_END = b"\0"


class StopRequest:
    """Turns SIGTERM, SIGUSR1 and SIGINT into a flag, and ends a wait as soon as one arrives.

    A handler never saves anything itself: it would run in the middle of an optimizer step. A thread
    reads a signal at once, even while a long operation delays the handler. A second SIGINT comes
    from a person who does not want to wait: it raises `KeyboardInterrupt`. Outside the main thread,
    where Python allows no handlers, the flag stays unset and nothing else changes.

    Signals often go to a whole process group, loader workers included. A worker ignores SIGINT and
    SIGUSR1: its trainer ends it after the step. SIGTERM ends it (torch's own handler does that);
    then torch would raise an error in the middle of the trainer's step, which is prevented: the
    step ends, with its present batch.

    Attributes:
        name: The signal that asked for the end.
        tell: Called with its name as soon as it arrives, by a thread; None calls nothing.
    """

    def __init__(self, signals: Sequence[signal.Signals] = STOP_SIGNALS) -> None:
        self.name: str | None = None
        self.tell: Callable[[str], None] | None = None
        self._signals = {int(number) for number in signals}
        self._interrupted = False
        self._came = threading.Event()
        self._old: dict[int, Any] = {}
        self._pid = os.getpid()
        self._thread: threading.Thread | None = None
        if threading.current_thread() is threading.main_thread():
            self._read, self._write = os.pipe()
            # set_wakeup_fd requires it: the C handler must never block on a full pipe.
            os.set_blocking(self._write, False)
            self._old_wakeup = signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)
            for number in signals:
                self._old[number] = signal.signal(number, self._note_signal)
            self._thread = threading.Thread(
                target=self._read_signals, name="rgt-signals", daemon=True
            )
            self._thread.start()
            _part_in_children(self)

    @property
    def requested(self) -> bool:
        """Whether a signal asked for the end."""
        return self.name is not None

    def wait(self, seconds: float) -> bool:
        """Sleep up to `seconds`; return True at once if a request exists or arrives."""
        if not self.requested and seconds > 0:
            self._came.wait(seconds)
        return self.requested

    def close(self) -> None:
        """Restore the previous handlers."""
        if self._thread is None or os.getpid() != self._pid:
            return
        signal.set_wakeup_fd(self._old_wakeup)
        for number, handler in self._old.items():
            signal.signal(number, handler)
        self._old.clear()
        # Signal numbers begin at 1, so the byte 0 can only mean the end.
        os.write(self._write, _END)
        self._thread.join()
        self._thread = None
        for fd in (self._read, self._write):
            os.close(fd)

    def _read_signals(self) -> None:
        """Read signals.

        The interpreter writes their numbers into the pipe at any point of its work.
        """
        while True:
            for number in os.read(self._read, 512):
                if number == _END[0]:
                    return
                if number in self._signals and not self._came.is_set():
                    name = signal.Signals(number).name
                    self.name = self.name or name
                    self._came.set()  # not by the handler: it may interrupt the wait for this event
                    if self.tell is not None:
                        with suppress(Exception):
                            self.tell(name)

    def _note_signal(self, number: int, frame: FrameType | None) -> None:
        # A forked child (a loader's worker) inherited this handler.
        if os.getpid() != self._pid:
            if number == signal.SIGTERM or os.getppid() != self._pid or not _is_loader_worker():
                signal.signal(
                    number, signal.SIG_DFL
                )  # a forked child inherited this handler: let the signal end it
                os.kill(os.getpid(), number)
            return
        if number == signal.SIGINT and self._interrupted:
            raise KeyboardInterrupt
        self._interrupted = self._interrupted or number == signal.SIGINT
        self.name = signal.Signals(number).name
        self._tolerate_dead_workers()

    def _tolerate_dead_workers(self) -> None:
        """Prevent an error in the middle of a step for a dead worker: its signal also came to us.

        The loader itself detects the missing batch at the next fetch.
        """
        raising = signal.getsignal(signal.SIGCHLD)
        if callable(raising) and str(getattr(raising, "__module__", "")).startswith(
            "torch.utils.data"
        ):
            self._old[signal.SIGCHLD] = raising

            def call_suppressed(number: int, frame: FrameType | None) -> None:
                with suppress(RuntimeError):
                    raising(number, frame)

            signal.signal(signal.SIGCHLD, call_suppressed)


def _is_loader_worker() -> bool:
    data: Any = sys.modules.get("torch.utils.data")
    return data is not None and data.get_worker_info() is not None


def _part_in_children(stop: StopRequest) -> None:
    """Prevent a forked child from writing its signals into the pipe of its trainer."""
    reference: "weakref.ref[StopRequest]" = weakref.ref(stop)

    def after_fork() -> None:
        held: StopRequest | None = reference()
        if held is not None and held._thread is not None:
            with suppress(ValueError):
                signal.set_wakeup_fd(-1)
            for fd in (held._read, held._write):
                os.close(fd)
            held._thread = None

    os.register_at_fork(after_in_child=after_fork)
