"""Runs `rgt demo` as a person does, in a temporary directory of its own, and looks for what it leaves behind."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

RGT = [sys.executable, "-m", "rgt_tui.cli.entry"]


class DemoProcess:
    """A running `rgt demo`; its progress is read by a thread, so that one can wait for a line of it."""

    def __init__(self, tmp: Path, *arguments: str, env: dict[str, str] | None = None) -> None:
        self.tmp = tmp
        tmp.mkdir(parents=True, exist_ok=True)
        self.process = subprocess.Popen(
            # A shell starts its background jobs with SIGINT ignored, and we may descend from one.
            ["env", "--default-signal=INT", *RGT, "demo", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "TMPDIR": str(tmp), **(env or {})},
            start_new_session=True,
        )
        self.progress: list[str] = []
        self._news = threading.Condition()
        self._ended = False
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            with self._news:
                self.progress.append(line.rstrip())
                self._news.notify_all()
        with self._news:
            self._ended = True
            self._news.notify_all()

    def wait_for(self, pattern: str, seconds: float = 240) -> str:
        """Return the first line of progress that matches; fail with all of it when there is none."""
        wanted = re.compile(pattern)

        def found() -> str | None:
            return next((line for line in self.progress if wanted.search(line)), None)

        with self._news:
            self._news.wait_for(lambda: found() or self._ended, seconds)
            line = found()
        assert line is not None, f"no line matches {pattern!r} in:\n" + "\n".join(self.progress)
        return line

    def finish(self, seconds: float = 170) -> tuple[int, str]:
        """Wait for the end; return the exit code and standard output."""
        assert self.process.stdout is not None
        out = self.process.stdout.read()
        code = self.process.wait(seconds)
        self._reader.join()
        return code, out

    def ssh(self, box: str, command: str) -> str:
        """Run a command on a box with the real OpenSSH client and the command that the demo prints."""
        shown = self.wait_for(rf"{box}: ssh -F ")
        config = re.search(r"ssh -F ('.*?'|\S+) ", shown)
        assert config is not None
        argv = ["ssh", "-F", config.group(1).strip("'"), box, command]
        done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=True)
        return done.stdout


@contextmanager
def demo(tmp: Path, *arguments: str, env: dict[str, str] | None = None) -> Iterator[DemoProcess]:
    """Run a demo, and make sure that it is over afterwards."""
    running = DemoProcess(tmp, *arguments, env=env)
    try:
        yield running
    finally:
        running.process.kill()
        running.process.wait()


def last_json(out: str) -> dict[str, Any]:
    """Return the object on the last line."""
    result = json.loads(out.rstrip("\n").rsplit("\n", 1)[-1])
    assert isinstance(result, dict)
    return result


DYING_S = 20.0
"""A process that was killed is there until the kernel has run it once more: on a busy machine a while later."""


def leftovers(tmp: Path) -> list[str]:
    """Return everything that a demo in `tmp` has left for good: directories, mounts, processes."""
    end = time.monotonic() + DYING_S
    while (left := seen_of(tmp)) and time.monotonic() < end:
        time.sleep(0.05)
    return left


def seen_of(tmp: Path) -> list[str]:
    """Return what is there of a demo in `tmp` now."""
    left = [str(path) for path in tmp.glob("rgt-demo-*/*")]
    left += [
        line for line in Path("/proc/self/mountinfo").read_text().splitlines() if str(tmp) in line
    ]
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if f"RGT_DEMO_ROOT={tmp}".encode() in (entry / "environ").read_bytes():
                left.append(f"{entry}: {(entry / 'cmdline').read_text()[:200]}")
        except OSError:
            continue
    return left
