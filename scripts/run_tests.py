"""Runs the tests in two passes: those that may share the machine, then the serial ones.

Both passes run even when the first fails, and the last line is one total for a person and for CI. Arguments
go to pytest in both passes. Where the right is there (root on Linux), the tests run in a process namespace of their
own: the agent looks for trainings in all of /proc and must find those of the tests alone, not another's on this
machine, and nothing that a test has started outlives the run.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ET
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

INTERRUPTED = (2, 128 + signal.SIGINT)
"""pytest's exit statuses after Ctrl-C, taken in by it or not: the second pass is then not wanted either."""

NO_TESTS = 5
"""pytest's exit status when nothing was selected: normal for one pass, an error for both."""

NAMESPACE = ("unshare", "--pid", "--fork", "--kill-child", "--mount-proc")
"""util-linux: the child is the first process of a namespace whose end is the end of all in it."""

WORKERS = (os.cpu_count() or 1) + 1
"""One more than there are cores: many tests wait for processes of theirs most of the time."""

PASSES: tuple[tuple[str, ...], ...] = (
    ("-n", str(WORKERS), "-m", "not serial"),
    ("-n", "0", "-m", "serial"),
)


@dataclass(frozen=True)
class Counts:
    """How many tests ended in which way."""

    passed: int = 0
    failed: int = 0
    skipped: int = 0

    def __add__(self, other: Counts) -> Counts:
        """Adds two passes."""
        return Counts(self.passed + other.passed, self.failed + other.failed, self.skipped + other.skipped)

    def __str__(self) -> str:
        """The closing line."""
        return f"total: {self.passed} passed, {self.failed} failed, {self.skipped} skipped"


def read_counts(report: Path) -> Counts:
    """Reads a JUnit report; a missing or torn one (pytest was killed) counts nothing."""
    try:
        root = ET.parse(report).getroot()  # written by the pytest that we started
    except (OSError, ET.ParseError):
        return Counts()
    total = Counts()
    for suite in root.iter("testsuite"):
        tests, failures, errors, skipped = (
            int(suite.get(name, "0")) for name in ("tests", "failures", "errors", "skipped")
        )
        failed = failures + errors
        total += Counts(max(tests - failed - skipped, 0), failed, skipped)
    return total


def run_pass(options: Sequence[str], extra: Sequence[str], report: Path) -> int:
    """Runs pytest once and returns its exit status."""
    command = [sys.executable, "-m", "pytest", *options, f"--junitxml={report}", *extra]
    process = subprocess.Popen(command, cwd=ROOT)
    while True:
        try:
            # The first process of a namespace inherits every orphan: one that is never waited for stays a zombie,
            # which a test that waits for its end would see for ever.
            pid, status = os.wait()
        except KeyboardInterrupt:
            # pytest got the same Ctrl-C from the terminal and tears its fixtures down: wait for that.
            continue
        if pid == process.pid:
            code = process.returncode = os.waitstatus_to_exitcode(status)
            return code if code >= 0 else 128 - code


def namespace() -> list[str]:
    """Return the command that starts another in a process namespace of its own; nothing where that cannot be made."""
    if os.getpid() == 1 or not shutil.which(NAMESPACE[0]):
        return []
    tried = subprocess.run([*NAMESPACE, "true"], capture_output=True, check=False)
    return list(NAMESPACE) if tried.returncode == 0 else []


def main(extra: Sequence[str]) -> int:
    """Runs both passes and prints the total."""
    if apart := namespace():
        os.execvp(apart[0], [*apart, sys.executable, __file__, *extra])
    total = Counts()
    codes: list[int] = []
    with tempfile.TemporaryDirectory(prefix="rgt-tests-") as folder:
        for number, options in enumerate(PASSES):
            report = Path(folder) / f"pass{number}.xml"
            code = run_pass(options, extra, report)
            codes.append(code)
            total += read_counts(report)
            if code in INTERRUPTED:
                break
    print(total, flush=True)
    if all(code == NO_TESTS for code in codes):
        print("tests: no test was selected", file=sys.stderr)
        return NO_TESTS
    return next((code for code in codes if code not in (0, NO_TESTS)), 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
