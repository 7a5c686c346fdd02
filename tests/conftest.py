"""For every test: nothing is skipped in CI, Ctrl-C means what it means in a terminal, one thread computes."""

from __future__ import annotations

import gc
import os
import signal
import sys
import time
from collections.abc import Generator, Iterator
from functools import cache
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, settings

if TYPE_CHECKING:
    from tests.process.train.harness import Zygote

THOROUGH = os.environ.get("RGT_TESTS_PART") != "--core"
"""False in `make test`, where what tries many values tries fewer of them."""

settings.register_profile(
    "rgt",
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    max_examples=100 if THOROUGH else 25,
)
settings.load_profile("rgt")
"""How long an example takes says how busy the machine is, and nothing of what is tested."""

TESTS = Path(__file__).resolve().parent

NAMED_MARKS = ("serial", "full")
"""Marks that a file must name as `mark.NAME`: a pass that wants them opens no other file."""

REST = TESTS / "rest.txt"
"""Node ids of tests that get the mark `full` because others run what they run: scripts/choose_tests.py writes it."""

os.environ.setdefault("OMP_NUM_THREADS", "1")
# Texts are compared with their English form, whatever the locale of the person who runs the tests.
os.environ["RGT_LANG"] = "en"
"""Before anything imports torch: several threads in each of several processes only wait for each other."""


def pytest_configure(config: pytest.Config) -> None:
    """Children inherit an ignored SIGINT (a shell's background job has it): then no test of Ctrl-C could pass.

    Each worker begins to collect in another folder: what one has compiled the others only load.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    worker = os.environ.get("PYTEST_XDIST_WORKER", "")
    if worker and [Path(each).resolve() for each in config.args] == [TESTS]:
        parts = sorted({str(TESTS / _part(path)) for path in TESTS.rglob("test_*.py")})
        first = int(worker.removeprefix("gw")) % max(1, len(parts))
        config.args[:] = [*parts[first:], *parts[:first]] or config.args


@pytest.fixture(autouse=True)
def _run_logs_are_closed(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Close what a test of the trainer leaves open in this process: who holds a metrics.jsonl open is a training.

    The tests of the finder, in a neighbour's process, would find the tests themselves.
    """
    diskio: Any = sys.modules.get("rgt_train.checkpoint.diskio")
    if diskio is None:
        yield
        return
    opened: list[Any] = []
    begin = diskio.LineAppender.__init__

    def noted(self: Any, *given: Any, **named: Any) -> None:
        begin(self, *given, **named)
        opened.append(self)

    monkeypatch.setattr(diskio.LineAppender, "__init__", noted)
    yield
    for log in opened:
        if log._fd is not None:
            log.close()


@pytest.fixture(scope="session")
def thorough() -> bool:
    """Tell whether there is time for many values."""
    return THOROUGH


@pytest.fixture(scope="session")
def trainers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Zygote]:
    """The process that forks trainers, one for all directories: its imports take four seconds."""
    from tests.process.train.harness import zygote

    with zygote(tmp_path_factory.mktemp("trainers") / "fifos") as running:
        yield running


@pytest.fixture(scope="session")
def agent_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The packed agent, one for all workers: what one of them has compiled of it the others only load."""
    from rgt_tui.ssh import build_agent

    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "packed-agent"
    folder.mkdir(mode=0o700, exist_ok=True)
    bundle = build_agent()
    path = folder / bundle.filename
    new = folder / f"{bundle.filename}.{os.getpid()}"
    new.write_bytes(bundle.data)
    new.rename(path)
    return path


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave the files alone that do not name a mark which is wanted: importing them all takes longest."""
    if collection_path.suffix != ".py":
        return None
    wanted = [
        mark for mark in NAMED_MARKS if mark in str(config.getoption("markexpr")).split(" and ")
    ]
    return not all(_names(collection_path, mark) for mark in wanted) or None


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> bool | None:
    """Begin no test after the time that scripts/run_tests.py was given; note it for the list of those not run."""
    until, not_run = os.environ.get("RGT_TESTS_UNTIL"), os.environ.get("RGT_TESTS_NOT_RUN")
    if not until or not not_run or time.time() < float(until):
        return None
    with open(not_run, "a") as file:
        file.write(f"{item.nodeid}\n")
    return True


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Leave the tests themselves out of garbage collection: they stay, and to walk them is half of collecting them.

    What the tests leave behind is still found, a few thousand objects later.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.set_threshold(100_000, 10, 10)
        gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Refuse a test that the pass for its mark would not find, and begin with the torture, whose tests are longest.

    One of half a minute that is left to the end has a worker to itself while the others have nothing to do.
    """
    # Once for each of the 26,000: to ask for one mark walks through all of them as well.
    marks = {item: {mark.name for mark in item.iter_markers()} for item in items}
    if os.environ.get("RGT_SERVICES") != "live":
        items[:] = [item for item in items if "services" not in marks[item]]
    items.sort(key=lambda item: (_part(item.path) != "torture", _part(item.path)))
    _mark_repeated_values([item for item in items if "full_matrix" in marks[item]])
    left_to_the_rest = _rest()
    for item in items:
        if item.nodeid in left_to_the_rest:
            item.add_marker(pytest.mark.full)
    for mark in NAMED_MARKS:
        lost = {item.path for item in items if mark in marks[item] and not _names(item.path, mark)}
        if lost:
            raise pytest.Collector.CollectError(
                f"{mark} tests, but no mark.{mark} in the file: {', '.join(map(str, lost))}"
            )


def _mark_repeated_values(items: list[pytest.Item]) -> None:
    """Mark as `full` what repeats: of a `full_matrix`, each value of each parameter stays in one test at least.

    With `together=2`, each pair of values of two parameters does.
    """
    matrices: dict[object, list[pytest.Function]] = {}
    for item in items:
        if isinstance(item, pytest.Function):
            matrices.setdefault((item.path, item.originalname, item.cls), []).append(item)
    for members in matrices.values():
        mark = members[0].get_closest_marker("full_matrix")
        assert mark is not None
        values = {item: set(_values_of(item, mark.kwargs.get("together", 1))) for item in members}
        missing = set().union(*values.values())
        left = members
        while missing:
            best = max(left, key=lambda item: len(values[item] & missing))
            missing -= values[best]
            left = [item for item in left if item is not best]
        for item in left:
            item.add_marker(pytest.mark.full)


def _values_of(item: pytest.Function, together: int) -> Iterator[tuple[tuple[str, int], ...]]:
    """Return which parameters have which values in a test, by their identity: one of them or several together."""
    values = sorted((name, id(value)) for name, value in item.callspec.params.items())
    return combinations(values, together)


@cache
def _part(file: Path) -> str:
    """Return the folder of the tests in which a file lies."""
    return file.relative_to(TESTS).parts[0]


@cache
def _rest() -> frozenset[str]:
    return frozenset(REST.read_text().splitlines()) if REST.exists() else frozenset()


@cache
def _files_of_the_rest() -> tuple[str, ...]:
    return tuple({"/" + test.partition("::")[0] for test in _rest()})


@cache
def _names(file: Path, mark: str) -> bool:
    if mark == "full" and file.as_posix().endswith(_files_of_the_rest()):
        return True
    return f"mark.{mark}".encode() in file.read_bytes()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Turn a skip into a failure where CI is set: a machine that lacks a part has proved nothing."""
    report = yield
    if not hasattr(report, "wasxfail"):
        _fail_in_ci(report)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Do the same where a whole file is skipped as it is imported."""
    report = yield
    _fail_in_ci(report)
    return report


def _fail_in_ci(report: pytest.TestReport | pytest.CollectReport) -> None:
    if report.skipped and os.environ.get("CI") == "true":
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr
        report.outcome = "failed"
        report.longrepr = (
            f"{report.nodeid}\n{reason}\nCI must not skip: this machine lacks what the test needs"
        )


@pytest.fixture(autouse=True)
def _searches_no_env_file_of_another_test() -> Iterator[None]:
    """A command remembers where a fleet file lies for the rest of its process, which tests share."""
    yield
    files = sys.modules.get("rgt_tui.files")
    if files is not None:
        files.ENV_FILES.clear()
