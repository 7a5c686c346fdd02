"""Runs the tests in two passes: those that may share the machine, and the serial ones, one after the other.

Where the right is there (root on Linux), each pass runs in a process namespace of its own: the
agent looks for trainings in all of /proc and must find those of the tests alone, not another's on
this machine, and nothing that a test has started outlives the run. The passes then run at the same
time, since most serial tests wait most of the time; elsewhere, and when arguments choose tests, the
serial ones come last. Both run even when one fails, and the last line is one total for a person and
for CI. Arguments go to pytest in both passes.

Tests that are marked `full` repeat, with other values, what a test without that mark proves as
well. A run without arguments leaves them out; `--full` runs all tests, and `--rest` only those with
the mark, each of which begins before RGT_TESTS_UNTIL (seconds since 1970) or is counted as not run.
Arguments that choose tests choose among all of them. RGT_TESTS_PART says to the tests which of
these runs it is: without `--full` those that try values at random try fewer.

Without other arguments, tests that failed run once more, one at a time and with nothing else
running. A test that passes only then is listed as flaky and does not fail the run: its cause is a
bug to find, but no reason to hold up other work.

Most of the time goes into processes that start, so that every module is compiled once: bytecode is
kept in the tree's `__pycache__` even where PYTHONDONTWRITEBYTECODE is set, as it is in many
containers.
"""

from __future__ import annotations

import compileall
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ET
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

ROOT = Path(__file__).resolve().parent.parent

INTERRUPTED = (2, 128 + signal.SIGINT)
"""pytest's exit statuses after Ctrl-C, taken in by it or not: the second pass is then not wanted
either.
"""

FAILED = 1
"""pytest's exit status when tests failed and nothing worse happened."""

NO_TESTS = 5
"""pytest's exit status when nothing was selected: normal for one pass, an error for both."""

NAMESPACE = ("unshare", "--pid", "--fork", "--kill-child", "--mount-proc")
"""util-linux: the child is the first process of a namespace whose end is the end of all in it."""

WORKERS = int(os.environ.get("PYTEST_XDIST_AUTO_NUM_WORKERS") or (os.cpu_count() or 1) + 6)
"""More than there are cores: a test computes for less than a third of its time, and waits for its
processes otherwise.

Who wants another number says so by the variable that pytest-xdist has for it.
"""

NICE = 5
"""Of the tests that share the machine: where both passes want a core the serial one has it, whose
demos keep time.
"""

NO_BYTECODE = "PYTHONDONTWRITEBYTECODE"
"""With it, each `rgt` that a test starts compiles the whole program anew, and so does each worker
with the tests.
"""

PACKAGES = ("rgt_tui", "remote", "benchmarks", "scripts")
"""What the workers import in the same seconds: each of them would compile all of it."""

TESTS = ROOT / "tests"
"""Each worker looks at all of them; pytest compiles them in a way of its own, in a fresh clone once
and before.
"""

ONE_PASS = "--pass"
"""The first argument of the runner when it runs a single pass inside of a namespace."""

PARTS = {"--core": ("not full",), "--full": (), "--rest": ("full",)}
"""The first argument of the runner → which of the marks `full` it wants."""

SHARED, SERIAL, RETRY = range(3)
"""The passes."""

PART = "RGT_TESTS_PART"
"""Which of the `PARTS` runs, for tests that try fewer values in one of them."""

NOT_RUN = "RGT_TESTS_NOT_RUN"
"""The file to which tests/conftest.py adds the node id of each test whose time was up."""

SLOWEST = 10
"""Tests that are named at the end of a run."""

RETRIED_AT_MOST = 40
"""Failed tests: with more, something is broken that a second run would only show again, after many
minutes.
"""

FAILED_TESTS = Path("v/cache/lastfailed")
"""Where pytest keeps the node ids of failed tests below its `cache_dir`: a JSON object whose keys
are the ids.
"""


@dataclass(frozen=True)
class Counts:
    """How many tests ended in which way."""

    passed: int = 0
    failed: int = 0
    skipped: int = 0

    def __add__(self, other: Counts) -> Counts:
        """Adds two passes."""
        return Counts(
            self.passed + other.passed, self.failed + other.failed, self.skipped + other.skipped
        )

    def __str__(self) -> str:
        """The closing line."""
        return f"total: {self.passed} passed, {self.failed} failed, {self.skipped} skipped"


def options_of(number: int, part: str) -> tuple[str, ...]:
    """Returns pytest's options for one pass over one of the `PARTS`."""
    if number == RETRY:
        return ("-n", "0", "--last-failed", "--last-failed-no-failures", "none")
    if number == SERIAL:
        return ("-n", "0", "-m", " and ".join(("serial", *PARTS[part])))
    marks = " and ".join(("not serial", *PARTS[part]))
    # Each worker begins with a third in the order of the files: it makes fewer fixtures of sessions
    # and modules.
    return ("-n", str(WORKERS), "--dist", "worksteal", "-m", marks)


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


def slowest_tests(reports: Sequence[Path]) -> list[str]:
    """Returns a line for each of the tests that took longest, from setup to teardown, with the longest first."""
    took = []
    for report in reports:
        try:
            cases = ET.parse(report).getroot().iter("testcase")
        except (OSError, ET.ParseError):
            continue
        took += [
            (float(case.get("time", 0)), f"{case.get('classname')}::{case.get('name')}")
            for case in cases
        ]
    return [f"{seconds:7.1f} s  {name}" for seconds, name in sorted(took, reverse=True)[:SLOWEST]]


def cache_of(report: Path) -> Path:
    """Returns the `cache_dir` of the pass that writes this report: each has one, since passes run at the same time."""
    return report.with_suffix(".cache")


def own_cache(report: Path) -> tuple[str, ...]:
    """Returns pytest's options for a pass of the whole suite; with arguments the developer's own cache is used."""
    return ("-o", f"cache_dir={cache_of(report)}")


def read_failed_tests(report: Path) -> set[str]:
    """Returns the node ids of the tests that failed in the pass that wrote this report."""
    try:
        failed = json.loads((cache_of(report) / FAILED_TESTS).read_text())
    except (OSError, ValueError):
        return set()
    return set(failed)


def write_failed_tests(report: Path, tests: set[str]) -> None:
    """Makes pytest's `--last-failed` select these tests in the pass that will write this report."""
    path = cache_of(report) / FAILED_TESTS
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps(dict.fromkeys(sorted(tests), True)))


def run_pass(options: Sequence[str], extra: Sequence[str], report: Path) -> int:
    """Runs pytest once and returns its exit status."""
    command = [sys.executable, "-m", "pytest", *options, f"--junitxml={report}", *extra]
    environment = {name: value for name, value in os.environ.items() if name != NO_BYTECODE}
    process = subprocess.Popen(command, cwd=ROOT, env=environment)
    while True:
        try:
            # The first process of a namespace inherits every orphan: one that is never waited for
            # stays a zombie, which a test that waits for its end would see for ever.
            pid, status = os.wait()
        except KeyboardInterrupt:
            # pytest got the same Ctrl-C from the terminal and tears its fixtures down: wait for
            # that.
            continue
        if pid == process.pid:
            code = process.returncode = os.waitstatus_to_exitcode(status)
            if code >= 0:
                return code
            return 128 - code


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
    number: int, part: str, extra: Sequence[str], report: Path, output: IO[bytes] | None
) -> subprocess.Popen[bytes]:
    """Starts one pass in a process namespace of its own, its output in a file or where ours goes."""
    command = [
        *NAMESPACE,
        sys.executable,
        __file__,
        ONE_PASS,
        str(number),
        part,
        str(report),
        *extra,
    ]
    return subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT if output else None)


def ended(process: subprocess.Popen[bytes]) -> int:
    """Waits for a pass; a Ctrl-C reached it too, and it tears its tests down first."""
    while True:
        try:
            return process.wait()
        except KeyboardInterrupt:
            continue


def run_both(folder: Path, part: str) -> list[int]:
    """Runs the passes at the same time and returns their exit statuses; the serial one's output comes last."""
    with (folder / "serial.txt").open("w+b") as output:
        shared, serial = report_of(folder, SHARED), report_of(folder, SERIAL)
        processes = [
            run_apart(SHARED, part, own_cache(shared), shared, None),
            run_apart(SERIAL, part, own_cache(serial), serial, output),
        ]
        codes = [ended(process) for process in processes]
        output.seek(0)
        shutil.copyfileobj(output, sys.stdout.buffer)
    return codes


def report_of(folder: Path, number: int) -> Path:
    """Returns the path of the JUnit report of one pass."""
    return folder / f"pass{number}.xml"


def run_one(folder: Path, number: int, part: str, extra: Sequence[str]) -> int:
    """Runs one pass, with nothing else running, and returns its exit status."""
    report = report_of(folder, number)
    if namespaces():
        return ended(run_apart(number, part, extra, report, None))
    return run_pass(options_of(number, part), extra, report)


def run_in_turn(folder: Path, part: str, extra: Sequence[str]) -> list[int]:
    """Runs one pass after the other and returns their exit statuses; after a Ctrl-C the second is not wanted."""
    codes: list[int] = []
    for number in (SHARED, SERIAL):
        code = run_one(folder, number, part, extra or own_cache(report_of(folder, number)))
        codes.append(code)
        if code in INTERRUPTED:
            break
    return codes


def retry_failed_tests(
    folder: Path, part: str, codes: Sequence[int]
) -> tuple[list[int], Counts, set[str]]:
    """Runs the failed tests once more, alone.

    Returns:
        The exit statuses, in which those of passes whose failures were all flaky are 0; the counts
        of all passes, in which each test counts by its last result; and the node ids of flaky
        tests.
    """
    reports = [report_of(folder, number) for number in range(len(codes))]
    total = sum((read_counts(report) for report in reports), Counts())
    failed = {number: read_failed_tests(report) for number, report in enumerate(reports)}
    tests = set().union(*failed.values())
    # Any other status means that pytest itself did not finish.
    finished = all(code in (0, FAILED, NO_TESTS) for code in codes)
    if not finished or not 0 < len(tests) <= RETRIED_AT_MOST:
        return list(codes), total, set()
    print(f"tests: {len(tests)} failed, running them once more, alone", flush=True)
    retry = report_of(folder, RETRY)
    write_failed_tests(retry, tests)
    os.environ.pop(NOT_RUN, None)
    if run_one(folder, RETRY, part, own_cache(retry)) not in (0, FAILED):
        return list(codes), total, set()
    again = read_counts(retry)
    still_failed = read_failed_tests(retry)
    if again.passed + again.failed + again.skipped < len(tests):
        # A failed id that names no test (a file that cannot be imported) is not proved flaky by not
        # running.
        return list(codes), total, set()
    total = Counts(total.passed + again.passed, again.failed, total.skipped + again.skipped)
    corrected = [
        0 if code == FAILED and not failed[number] & still_failed else code
        for number, code in enumerate(codes)
    ]
    return corrected, total, tests - still_failed


def tests_not_run(path: Path) -> int:
    """Prints the files whose tests found their time up, with how many they were; returns the number of all."""
    files = Counter(line.partition("::")[0] for line in path.read_text().splitlines())
    if files:
        print(f"not run, because the time was up: {files.total()} tests of `make test-all`")
        for file, count in files.most_common():
            print(f"{count:9}  {file}")
    return files.total()


def main(arguments: Sequence[str]) -> int:
    """Runs the passes and prints the total."""
    if arguments[:1] == [ONE_PASS]:
        _, number, part, report, *extra = arguments
        if int(number) == SHARED:
            os.nice(NICE)
        return run_pass(options_of(int(number), part), extra, Path(report))
    if arguments and arguments[0] in PARTS:
        part, *extra = arguments
    else:
        part, extra = ("--full" if arguments else "--core"), list(arguments)
    os.environ[PART] = part
    for package in PACKAGES:
        compileall.compile_dir(ROOT / package, quiet=2, workers=0)
    if not extra:
        compile_tests()
    with tempfile.TemporaryDirectory(prefix="rgt-tests-") as name:
        folder = Path(name)
        not_run = folder / "not-run"
        not_run.touch()
        if part == "--rest":
            os.environ[NOT_RUN] = str(not_run)
        if extra:
            codes = run_in_turn(folder, part, extra)
            total = sum(
                (read_counts(report_of(folder, number)) for number in range(len(codes))), Counts()
            )
            flaky: set[str] = set()
        else:
            if namespaces():
                codes = run_both(folder, part)
            else:
                codes = run_in_turn(folder, part, ())
            codes, total, flaky = retry_failed_tests(folder, part, codes)
        print(f"the {SLOWEST} slowest tests:")
        print("\n".join(slowest_tests([report_of(folder, number) for number in range(len(codes))])))
        late = tests_not_run(not_run)
    for test in sorted(flaky):
        print(f"flaky: {test} failed, and passed when it ran alone")
    print(total, flush=True)
    if all(code == NO_TESTS for code in codes) and not late:
        print("tests: no test was selected", file=sys.stderr)
        return NO_TESTS
    return next((code for code in codes if code not in (0, NO_TESTS)), 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
