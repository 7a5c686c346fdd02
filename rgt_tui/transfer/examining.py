"""Runs the processes that examine files: one without running their code, one that uses torch."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Self

import rgt_tui

SECONDS = 120.0
"""Time limit for one question, in addition to the time to read the file."""
_ROOT = str(Path(rgt_tui.__file__).resolve().parent.parent)
_KEPT = ("PATH", "HOME", "LANG", "LC_ALL", "TMPDIR", "LD_LIBRARY_PATH", "VIRTUAL_ENV")


class ChildEnded(Exception):
    """The process ended, or was killed, during a question; the text says how."""


class ExamineProcess:
    """A process that answers a line of JSON with a line of JSON; started at the first question.

    Args:
        loads: It loads files with torch, and first reports its version; else it only examines them.

    Attributes:
        greeting: The first line it wrote, if it writes one before the first question.
    """

    def __init__(self, *, loads: bool = False) -> None:
        self._loads = loads
        self._process: subprocess.Popen[bytes] | None = None
        self.greeting: dict[str, Any] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def start(self) -> None:
        """Start it, unless it is running.

        Raises:
            ChildEnded: it did not start.
        """
        if self._process is not None:
            return
        env = {name: value for name, value in os.environ.items() if name in _KEPT}
        env |= {"PYTHONPATH": _ROOT, "CUDA_VISIBLE_DEVICES": "", "PYTHONDONTWRITEBYTECODE": "1"}
        env["RGT_LANG"] = "en"  # what it finds is recorded
        env["OPENBLAS_NUM_THREADS"] = "1"  # each OpenBLAS thread reserves memory, which is limited
        self._process = subprocess.Popen(
            # -P: a module in the verified directory must not shadow one of the library.
            [sys.executable, "-P", "-m", "rgt_tui.transfer.examine_child",
             *(("--load",) if self._loads else ())],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            env=env, cwd="/", start_new_session=True,
        )  # fmt: skip
        if self._loads:
            self.greeting = self._read_answer(SECONDS)

    def send_question(self, question: dict[str, Any], size: int = 0) -> dict[str, Any]:
        """Return the answer to a question.

        Args:
            question: The question.
            size: Bytes that must be read to answer it.

        Raises:
            ChildEnded: it ended, took too long, or gave an invalid answer; the next question starts
                another one.
        """
        self.start()
        process = self._process
        assert process is not None and process.stdin is not None
        try:
            process.stdin.write(json.dumps(question).encode() + b"\n")
            process.stdin.flush()
        except OSError:
            raise ChildEnded(self._end_process()) from None
        # Assumed minimum disk speed; slower disks count as hung.
        bytes_per_s = 5e6
        return self._read_answer(SECONDS + size / bytes_per_s)

    def _read_answer(self, seconds: float) -> dict[str, Any]:
        process = self._process
        assert process is not None and process.stdout is not None
        handle = process.stdout.fileno()
        until = time.monotonic() + seconds
        line = bytearray()
        while not line.endswith(b"\n"):
            ready, _, _ = select.select([handle], [], [], max(0.0, until - time.monotonic()))
            if not ready:
                self._end_process()
                raise ChildEnded(f"checking it took more than {seconds:.0f} s")
            piece = os.read(handle, 1 << 16)
            if not piece:
                raise ChildEnded(self._end_process())
            line += piece
        try:
            answer = json.loads(line)
        except ValueError:
            answer = None
        if not isinstance(answer, dict):
            self._end_process()
            raise ChildEnded("looking at it gave no answer")
        return answer

    def _end_process(self) -> str:
        """Kill the process if needed; return how it ended."""
        process, self._process = self._process, None
        if process is None:
            return "looking at it was not possible"
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(0.5)
        if process.returncode is None:
            process.kill()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()
        code = process.wait()
        if code < 0:
            return f"checking it killed the checking process ({signal.Signals(-code).name})"
        return f"checking it killed the checking process (exit status {code})"

    def close(self) -> None:
        """Close its input, and end it."""
        if self._process is not None and self._process.stdin is not None:
            with contextlib.suppress(OSError):
                self._process.stdin.close()
        if self._process is not None:
            self._end_process()


def has_torch() -> bool:
    """Return whether torch is installed next to rgt, without importing it."""
    return importlib.util.find_spec("torch") is not None


def open_examiner() -> ExamineProcess:
    """Return the process that examines files without running their code."""
    return ExamineProcess()


def open_loader() -> ExamineProcess:
    """Return the process that loads with torch.

    Its greeting has the version, or why there is none.
    """
    return ExamineProcess(loads=True)
