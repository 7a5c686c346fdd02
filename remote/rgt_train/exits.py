"""Exit codes of a training process, the words a queue runner acts on (see docs/jobs.md)."""

from __future__ import annotations

import functools
import sys
from typing import Any, Callable, TypeVar

Work = TypeVar("Work", bound=Callable[..., Any])

DONE = 0
"""All steps are done and the result is on disk."""
FAILED = 1
"""The training itself failed (an exception, or a loss that stays NaN)."""
USAGE = 2
"""Nothing was started: a bad option or config, a missing torch, a second trainer on one directory."""
NO_SPACE = 74
"""Nothing could be kept for longer than the hold limit (`EX_IOERR` of sysexits.h)."""
PREEMPTED = 75
"""Asked to stop by a signal; wants to be launched again with the same command (`EX_TEMPFAIL`)."""


class Stop(SystemExit):
    """Ends the process from inside a training loop with one of the codes above.

    It is a `SystemExit`, so that a person's own loop needs no handling for it: `with run:` unwinds, the interpreter
    ends with `code`.

    Attributes:
        code: The exit code.
        cause: What the ledger keeps as the end of this incarnation, e.g. ``SIGTERM``.
        saves: Whether the state is worth a save on the way out; a rollback leaves it behind.
    """

    saves = True

    def __init__(self, code: int, cause: str) -> None:
        super().__init__(code)
        self.cause = cause


class UsageError(Exception):
    """A mistake of the person who launched it: shown as one line without a traceback, exit code 2."""


class NotStarted(UsageError, SystemExit):
    """A `UsageError` that ends the process with code 2 where nobody catches it: a person's own loop needs no handling.

    The line is on stderr already when it is raised, because the interpreter says nothing about a `SystemExit`.
    """

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.code = USAGE

    @classmethod
    def of(cls, error: UsageError) -> "NotStarted":
        """Say the line, once, and return what to raise."""
        if isinstance(error, cls):
            return error
        print(f"rgt_train: {error}", file=sys.stderr, flush=True)
        return cls(str(error))


def starts(work: Work) -> Work:
    """Let a function that is called before a training begins raise `NotStarted` in place of `UsageError`."""

    @functools.wraps(work)
    def started(*args: Any, **kwargs: Any) -> Any:
        try:
            return work(*args, **kwargs)
        except UsageError as error:
            raise NotStarted.of(error) from error

    found: Any = started
    return found  # type: ignore[no-any-return]
