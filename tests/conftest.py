"""What holds for every test: nothing is skipped in CI, and Ctrl-C means what it means in a terminal."""

from __future__ import annotations

import os
import signal
from collections.abc import Generator

import pytest


def pytest_configure() -> None:
    """Children inherit an ignored SIGINT (a shell's background job has it): then no test of Ctrl-C could pass."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Turn a skip into a failure where CI is set: a machine that lacks a part has proved nothing."""
    report = yield
    if report.skipped and os.environ.get("CI") == "true" and not hasattr(report, "wasxfail"):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr
        report.outcome = "failed"
        report.longrepr = f"{item.nodeid}\n{reason}\nCI must not skip: this machine lacks what the test needs"
    return report
