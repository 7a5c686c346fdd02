"""Runs tests in several processes that share one collection.

    pytest -p scripts.forked_workers --forks 8

One process imports and collects the tests, then forks the workers. To collect 18,000 tests takes
nine seconds of one core, which each worker of pytest-xdist spends for itself. A worker begins with
a part of the tests in their order, so that it makes few fixtures of modules; when its part is done,
it takes half of what is left of the longest other part.

A worker has what pytest-xdist gives its workers: PYTEST_XDIST_WORKER, and a directory of its own
for temporary files.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import signal
import sys
import warnings
import weakref
from collections import deque
from dataclasses import dataclass
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, NoReturn

import pytest


@dataclass
class Worker:
    """What the collecting process knows of a worker; tests are numbers in their order.

    Attributes:
        running: The test that it runs.
        following: The test that it runs next. It asks for that when it tears `running` down, to
            keep the fixtures that both need.
        waiting: Those that others may take from it.
    """

    name: str
    waiting: deque[int]
    pid: int = 0
    channel: Connection | None = None
    running: int | None = None
    following: int | None = None


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add --forks."""
    parser.addoption(
        "--forks", type=int, default=0, help="processes that run tests, forked after collecting"
    )


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool | None:
    """Fork the workers and give them tests, beside files that cannot be imported as well."""
    count = min(session.config.getoption("--forks"), len(session.items))
    if not count or session.config.option.collectonly:
        return None
    Tests(session, count).run()
    return True


class Tests:
    """Distributes the tests of a session."""

    def __init__(self, session: pytest.Session, count: int) -> None:
        self._session = session
        size = len(session.items)
        edges = [size * number // count for number in range(count + 1)]
        self._workers = [
            Worker(f"gw{number}", deque(range(edges[number], edges[number + 1])))
            for number in range(count)
        ]
        self._reported: set[int | None] = set()

    def run(self) -> None:
        """Run them all.

        Raises:
            pytest.Session.Failed: As many tests have failed as `--maxfail` allows.
        """
        try:
            for worker in self._workers:
                self._start(worker)
            while channels := {w.channel: w for w in self._workers if w.channel is not None}:
                for channel in wait(list(channels)):
                    assert isinstance(channel, Connection)
                    self._hear(channels[channel])
                if self._session.shouldfail:
                    raise self._session.Failed(self._session.shouldfail)
                if self._session.shouldstop:
                    raise self._session.Interrupted(self._session.shouldstop)
            not_run = list_late_tests()
            for number, item in enumerate(self._session.items):
                if number not in self._reported and item.nodeid not in not_run:
                    self._report_failure(number, "no worker has reported the end of")
        except KeyboardInterrupt:
            for worker in self._workers:
                if worker.channel is not None:
                    os.kill(worker.pid, signal.SIGINT)
            raise
        finally:
            for worker in self._workers:
                self._end(worker)

    def _start(self, worker: Worker) -> None:
        """Fork a worker."""
        ours, theirs = Pipe()
        # Made here: of two workers that make it at the same time, one would get another number.
        self._session.config._tmp_path_factory.getbasetemp()  # type: ignore[attr-defined]
        sys.stdout.flush()
        sys.stderr.flush()
        worker.pid = os.fork()
        if worker.pid == 0:
            ours.close()
            for other in self._workers:
                if other.channel is not None:
                    other.channel.close()
            run_worker(self._session, worker.name, theirs)
        theirs.close()
        worker.channel = ours

    def _end(self, worker: Worker) -> None:
        """Wait for a worker; one that runs a test begins no other and tears its fixtures down."""
        if worker.channel is not None:
            with contextlib.suppress(OSError, EOFError):
                worker.channel.send(None)
                while True:
                    worker.channel.recv()  # it must not wait until we read
            worker.channel.close()
            worker.channel = None
        if worker.pid:
            os.waitpid(worker.pid, 0)
            worker.pid = 0

    def _next_test(self, worker: Worker) -> int | None:
        """Take a test from the worker's own part, or half of the longest part of another for it."""
        if not worker.waiting:
            richest = max(self._workers, key=lambda each: len(each.waiting))
            half = (len(richest.waiting) + 1) // 2
            taken = [richest.waiting.pop() for _ in range(half)]
            worker.waiting.extend(reversed(taken))
        if worker.waiting:
            return worker.waiting.popleft()
        return None

    def _hear(self, worker: Worker) -> None:
        assert worker.channel is not None
        try:
            kind, *rest = worker.channel.recv()
        except (EOFError, OSError):
            return self._replace(worker)
        hook = self._session.config.hook
        if kind == "next":
            worker.following = self._next_test(worker)
            with contextlib.suppress(OSError):  # it has ended, which is received next
                worker.channel.send(worker.following)
        elif kind == "done":
            worker.running, worker.following = worker.following, None
            if worker.running is None:
                worker.channel.close()
                worker.channel = None
        elif kind == "report":
            report = hook.pytest_report_from_serializable(config=self._session.config, data=rest[0])
            if report.when == "teardown":
                self._reported.add(worker.running)
            hook.pytest_runtest_logreport(report=report)
        else:
            text, place, when, nodeid, location = rest
            message = warnings.WarningMessage(Warning(text), Warning, *place)
            hook.pytest_warning_recorded.call_historic(
                kwargs={
                    "warning_message": message,
                    "when": when,
                    "nodeid": nodeid,
                    "location": location,
                }
            )
        return None

    def _replace(self, worker: Worker) -> None:
        """Report the test in which a worker has ended as failed, and start another worker."""
        assert worker.channel is not None
        worker.channel.close()
        worker.channel = None
        code = os.waitstatus_to_exitcode(os.waitpid(worker.pid, 0)[1])
        worker.pid = 0
        if worker.running is not None:
            self._report_failure(worker.running, f"the worker {worker.name} ended with {code} in")
        elif worker.following is None:
            raise RuntimeError(f"the worker {worker.name} ended with {code} before its first test")
        if worker.following is not None:
            worker.waiting.appendleft(worker.following)
        worker.running = worker.following = None
        self._start(worker)

    def _report_failure(self, number: int, what: str) -> None:
        """Report a test as failed of which its worker cannot say so."""
        item = self._session.items[number]
        text = f"{what} {item.nodeid}"
        report = pytest.TestReport(item.nodeid, item.location, {}, "failed", text, "call")
        self._reported.add(number)
        self._session.config.hook.pytest_runtest_logreport(report=report)


def list_late_tests() -> set[str]:
    """Return the tests that did not begin, because their time was up: tests/conftest.py notes them."""
    path = Path(os.environ.get("RGT_TESTS_NOT_RUN", ""))
    if path.is_file():
        return set(path.read_text().splitlines())
    return set()


class Reporter:
    """The plugin of a worker that sends what is to be reported."""

    def __init__(self, config: pytest.Config, channel: Connection) -> None:
        self._config, self._channel = config, channel

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Send a report."""
        data = self._config.hook.pytest_report_to_serializable(config=self._config, report=report)
        self._channel.send(("report", data))

    def pytest_warning_recorded(
        self,
        warning_message: warnings.WarningMessage,
        when: str,
        nodeid: str,
        location: tuple[str, int, str] | None,
    ) -> None:
        """Send a warning as text: its class may be one that only this process knows."""
        text = f"{warning_message.category.__name__}: {warning_message.message}"
        place = (warning_message.filename, warning_message.lineno)
        self._channel.send(("warning", text, place, when, nodeid, location))


class Following:
    """The next test, for the end of the one before: it is chosen only then.

    So no test waits behind a long one while other workers have nothing to do.
    """

    def __init__(self, session: pytest.Session, channel: Connection) -> None:
        self._session, self._channel = session, channel
        self._asked = False
        self._item: pytest.Item | None = None

    def item(self) -> pytest.Item | None:
        """Return the next test; None when there is no other."""
        if not self._asked:
            self._channel.send(("next",))
            number = self._channel.recv()
            if number is not None:
                self._item = self._session.items[number]
            self._asked = True
        return self._item

    def listchain(self) -> list[Any]:
        """Return whose fixtures the next test needs, as `pytest.Item.listchain` does."""
        item = self.item()
        if item is None:
            return []
        return item.listchain()


def run_worker(session: pytest.Session, name: str, channel: Connection) -> NoReturn:
    """Run tests until there are no more, and end this process."""
    code = 1
    pid = os.getpid()
    # What a test forks may outlive the worker, whose end is noticed when nobody has the channel.
    os.register_at_fork(after_in_child=channel.close)
    try:
        forget_parent(session.config, name)
        session.config.pluginmanager.register(Reporter(session.config, channel))
        item = Following(session, channel).item()
        channel.send(("done",))
        while item is not None:
            following: Any = Following(session, channel)
            session.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            item = following.item()
            channel.send(("done",))
        code = 0
    except (KeyboardInterrupt, EOFError, BrokenPipeError):
        signal.signal(
            signal.SIGINT, signal.SIG_IGN
        )  # of two, the second must not stop the end of fixtures
        code = 2
    finally:
        if os.getpid() != pid:
            os._exit(1)  # forked by a test, it came back and could not report: it is no worker
        with contextlib.suppress(BaseException):
            session._setupstate.teardown_exact(None)
        channel.close()
        atexit._run_exitfuncs()
        os._exit(code)


def forget_parent(config: pytest.Config, name: str) -> None:
    """Give this process an output, a temporary directory and an end of its own."""
    os.environ["PYTEST_XDIST_WORKER"] = name
    # What was to be done at the parent's end is the parent's.
    atexit._clear()
    for finalizer in list(weakref.finalize._registry):  # type: ignore[attr-defined]
        finalizer.atexit = False
    weakref.finalize._registered_with_atexit = False  # type: ignore[attr-defined]
    capture = config.pluginmanager.getplugin("capturemanager")
    capture.stop_global_capturing()
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    os.dup2(2, 1)
    os.close(null)
    capture.start_global_capturing()
    capture.suspend_global_capture()
    terminal = config.pluginmanager.getplugin("terminalreporter")
    terminal._tw._file = Path(os.devnull).open("w")  # noqa: SIM115  it stays open to the end
    factory = config._tmp_path_factory  # type: ignore[attr-defined]
    factory._basetemp = factory.getbasetemp() / f"popen-{name}"
    factory._basetemp.mkdir(mode=0o700, exist_ok=True)
