"""A training in an interpreter of its own, and what the killing asks of any that was launched."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Mapping, Sequence
from typing import Protocol

from tests.process.train.harness import ENV, ROOT, TIMEOUT


class Launched(Protocol):
    """A training that was launched."""

    @property
    def pid(self) -> int:
        """What was launched first."""
        ...

    @property
    def code(self) -> int | None:
        """Its exit code, once it has ended."""
        ...

    @property
    def lines(self) -> list[str]:
        """Its output so far."""
        ...

    def wait_more_lines(self, count: int) -> bool:
        """Wait for `count` further lines; False if it ended before."""
        ...

    def wait(self) -> int:
        """Wait for its end; return the exit code, negative for a signal."""
        ...

    def text(self) -> str:
        """Return all output."""
        ...


class Piped:
    """A command in a session of its own whose output is read line by line.

    Args:
        command: The program and its arguments.
        env: Its environment; None = the one of all trainings here.
    """

    def __init__(self, command: Sequence[str], env: Mapping[str, str] | None = None) -> None:
        self._process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=ENV if env is None else env, cwd=ROOT,
            text=True, start_new_session=True,
        )  # fmt: skip
        self.pid, self.pids, self.lines = self._process.pid, [self._process.pid], list[str]()
        self._news, self._over = threading.Condition(), False
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    @property
    def code(self) -> int | None:
        """Its exit code, once it has ended."""
        return self._process.poll()

    def wait_more_lines(self, count: int) -> bool:
        """Wait for `count` further lines; False if it ended before."""
        target = len(self.lines) + count
        with self._news:
            self._news.wait_for(lambda: len(self.lines) >= target or self._over, TIMEOUT)
        return self.code is None

    def wait(self) -> int:
        """Wait for its end, and for that of all who have its output open."""
        code = self._process.wait(TIMEOUT)
        self._thread.join(TIMEOUT)
        assert not self._thread.is_alive(), "a process has outlived the one that was launched"
        return code

    def text(self) -> str:
        """Return all output."""
        return "\n".join(self.lines)

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as output:
            for line in output:
                with self._news:
                    self.lines.append(line.rstrip("\n"))
                    self._news.notify_all()
        with self._news:
            self._over = True
            self._news.notify_all()
