"""Runs the tests in two passes: those that may share the machine, and the serial ones, one after the other.

Where the right is there (root on Linux), each pass runs in a process namespace of its own: the agent looks for
trainings in all of /proc and must find those of the tests alone, not another's on this machine, and nothing that a
test has started outlives the run. The passes then run at the same time, since most serial tests wait most of the time;
elsewhere, and when arguments choose tests, the serial ones come last. Both run even when one fails, and the last line
is one total for a person and for CI. Arguments go to pytest in both passes.

Most of the time goes into processes that start, so that every module is compiled once: bytecode is kept in the tree's
`__pycache__` even where PYTHONDONTWRITEBYTECODE is set, as it is in many containers.
"""

from __future__ import annotations

import compileall
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
from typing import IO

ROOT = Path(__file__).resolve().parent.parent

INTERRUPTED = (2, 128 + signal.SIGINT)
"""pytest's exit statuses after Ctrl-C, taken in by it or not: the second pass is then not wanted either."""

NO_TESTS = 5
"""pytest's exit status when nothing was selected: normal for one pass, an error for both."""

NAMESPACE = ("unshare", "--pid", "--fork", "--kill-child", "--mount-proc")
"""util-linux: the child is the first process of a namespace whose end is the end of all in it."""

WORKERS = int(os.environ.get("PYTEST_XDIST_AUTO_NUM_WORKERS") or (os.cpu_count() or 1) + 4)
"""More than there are cores: a test computes for less than half of its time, and waits for its processes otherwise.

Who wants another number says so by the variable that pytest-xdist has for it.
"""

NICE = 5
"""Of the tests that share the machine: where both passes want a core the serial one has it, whose demos keep time."""

NO_BYTECODE = "PYTHONDONTWRITEBYTECODE"
"""With it, each `rgt` that a test starts compiles the whole program anew, and so does each worker with the tests."""

PACKAGES = ("rgt_tui", "remote", "benchmarks", "scripts")
"""What the workers import in the same seconds: each of them would compile all of it."""

TESTS = ROOT / "tests"
"""Each worker looks at all of them; pytest compiles them in a way of its own, in a fresh clone once and before."""

ONE_PASS = "--pass"
"""The first argument of the runner when it runs a single pass inside of a namespace."""

PASSES: tuple[tuple[str, ...], ...] = (
    # Each worker begins with a third in the order of the files: it makes fewer fixtures of sessions and modules.
    ("-n", str(WORKERS), "--dist", "worksteal", "-m", "not serial"),
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
    environment = {name: value for name, value in os.environ.items() if name != NO_BYTECODE}
    process = subprocess.Popen(command, cwd=ROOT, env=environment)
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


def compile_tests() -> None:
    """Have pytest compile the tests of a fresh clone, a core each; what is wrong with one of them the passes say."""
    if any(TESTS.rglob("*-pytest-*.pyc")):
        return
    modules = sorted(map(str, TESTS.rglob("test_*.py")))
    cores = os.cpu_count() or 1
    environment = {name: value for name, value in os.environ.items() if name != NO_BYTECODE}
    command = [sys.executable, "-m", "pytest", "--collect-only", "-qq", "-p", "no:cacheprovider"]
    looking = [
        subprocess.Popen(
            [*command, *modules[core::cores]], cwd=ROOT, env=environment,
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )
        for core in range(min(cores, len(modules)))
    ]  # fmt: skip
    for process in looking:
        ended(process)


def namespaces() -> bool:
    """Tell whether a process namespace can be made here."""
    if not shutil.which(NAMESPACE[0]):
        return False
    return subprocess.run([*NAMESPACE, "true"], capture_output=True, check=False).returncode == 0


def run_apart(
    number: int, extra: Sequence[str], report: Path, output: IO[bytes] | None
) -> subprocess.Popen[bytes]:
    """Starts one pass in a process namespace of its own, its output in a file or where ours goes."""
    command = [*NAMESPACE, sys.executable, __file__, ONE_PASS, str(number), str(report), *extra]
    return subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT if output else None)


def ended(process: subprocess.Popen[bytes]) -> int:
    """Waits for a pass; a Ctrl-C reached it too, and it tears its tests down first."""
    while True:
        try:
            return process.wait()
        except KeyboardInterrupt:
            continue


def run_both(folder: Path) -> list[int]:
    """Runs the passes at the same time and returns their exit statuses; the serial one's output comes last."""
    with (folder / "serial.txt").open("w+b") as output:
        processes = [
            run_apart(0, (), folder / "pass0.xml", None),
            run_apart(1, (), folder / "pass1.xml", output),
        ]
        codes = [ended(process) for process in processes]
        output.seek(0)
        shutil.copyfileobj(output, sys.stdout.buffer)
    return codes


def run_in_turn(folder: Path, extra: Sequence[str]) -> list[int]:
    """Runs one pass after the other and returns their exit statuses; after a Ctrl-C the second is not wanted."""
    apart = namespaces()
    codes: list[int] = []
    for number in range(len(PASSES)):
        report = folder / f"pass{number}.xml"
        code = (
            ended(run_apart(number, extra, report, None))
            if apart
            else run_pass(PASSES[number], extra, report)
        )
        codes.append(code)
        if code in INTERRUPTED:
            break
    return codes


def main(extra: Sequence[str]) -> int:
    """Runs both passes and prints the total."""
    if extra[:1] == [ONE_PASS]:
        number = int(extra[1])
        if number == 0:
            os.nice(NICE)
        return run_pass(PASSES[number], extra[3:], Path(extra[2]))
    for package in PACKAGES:
        compileall.compile_dir(ROOT / package, quiet=2, workers=0)
    if not extra:
        compile_tests()
    with tempfile.TemporaryDirectory(prefix="rgt-tests-") as name:
        folder = Path(name)
        codes = run_both(folder) if not extra and namespaces() else run_in_turn(folder, extra)
        total = sum((read_counts(folder / f"pass{number}.xml") for number in range(len(codes))), Counts())
    print(total, flush=True)
    if all(code == NO_TESTS for code in codes):
        print("tests: no test was selected", file=sys.stderr)
        return NO_TESTS
    return next((code for code in codes if code not in (0, NO_TESTS)), 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
