"""Whatever ends the demo, and whenever: nothing stays."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import threading
from pathlib import Path

import pytest

from rgt_tui.demo import embedded
from rgt_tui.demo.workspace import Workspace
from tests.torture.demo.demo_process import demo, last_json, leftovers, seen_of

pytestmark = pytest.mark.serial

LONG = "600"
"""Seconds that are never over before the signal: the moment may come late on a busy machine."""
MOMENTS = ["autodl-demo: ssh", "connected", "launched", "an evaluation writes"]
ENDED_BY_US = (130, -signal.SIGINT)
BEFORE_OURS = ("Failed to import the site module", "Could not import runpy module")


@pytest.mark.parametrize("moment", MOMENTS)
def test_ctrl_c_at_a_known_moment_takes_everything_down(tmp_path: Path, moment: str) -> None:
    with demo(tmp_path, "--headless", "--for", LONG, "--json") as running:
        running.wait_for(moment)
        running.process.send_signal(signal.SIGINT)
        code, out = running.finish(120)
    assert code == 130
    assert last_json(out)["boxes"]
    assert leftovers(tmp_path) == []


@pytest.mark.parametrize("after", [0.05, 0.2, 0.4, 0.6, 0.8, 1.1])
def test_ctrl_c_while_it_starts_leaves_nothing(tmp_path: Path, after: float) -> None:
    with demo(tmp_path, "--headless", "--for", LONG) as running:
        with pytest.raises(subprocess.TimeoutExpired):
            running.process.wait(after)
        running.process.send_signal(signal.SIGINT)
        code, _ = running.finish(120)
    # Python itself ends with 1 where it is interrupted before it has come to any program.
    not_yet_ours = any(words in line for line in running.progress for words in BEFORE_OURS)
    assert code in ENDED_BY_US or (code == 1 and not_yet_ours), running.progress
    assert leftovers(tmp_path) == []


async def test_a_start_that_is_given_up_while_its_folder_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    began, go_on, made = threading.Event(), threading.Event(), threading.Event()

    class Slow(Workspace):
        def __init__(self) -> None:
            began.set()
            go_on.wait()
            super().__init__()
            made.set()

    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(embedded, "Workspace", Slow)
    fleet = embedded.Embedded()
    starting = asyncio.create_task(fleet.start())
    await asyncio.to_thread(began.wait)
    starting.cancel()
    await asyncio.wait([starting], timeout=0.05)
    go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await starting
    await asyncio.to_thread(made.wait)
    await fleet.stop()
    assert leftovers(tmp_path) == []


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_other_polite_signals_do_the_same(tmp_path: Path, number: signal.Signals) -> None:
    with demo(tmp_path, "--headless", "--for", LONG) as running:
        running.wait_for("connected")
        running.process.send_signal(number)
        code, _ = running.finish(120)
    assert code == 130
    assert leftovers(tmp_path) == []


def test_kill_9_is_cleaned_up_by_the_next_start(tmp_path: Path) -> None:
    with demo(tmp_path, "--headless", "--for", LONG) as running:
        running.wait_for("vast-demo: an evaluation writes")
        running.process.kill()
        running.finish(120)
    assert [line for line in seen_of(tmp_path) if "rgt-demo-" in line]
    with demo(tmp_path, "--headless", "--for", "2") as following:
        code, _ = following.finish(60)
    assert code == 0
    assert leftovers(tmp_path) == []


def test_two_demos_at_once_do_not_disturb_each_other(tmp_path: Path) -> None:
    with (
        demo(tmp_path, "--headless", "--for", LONG, "--json") as first,
        demo(tmp_path, "--headless", "--for", LONG, "--json") as second,
    ):
        for each in (first, second):
            for moment in (
                "autodl-demo connected",
                "runpod-demo connected",
                "vast-demo: an evaluation writes",
            ):
                each.wait_for(moment)
        for each in (first, second):
            each.process.send_signal(signal.SIGINT)
        results = [first.finish(), second.finish()]
    for code, out in results:
        assert code == 130
        assert all(box["samples"] > 0 for box in last_json(out)["boxes"])
    assert leftovers(tmp_path) == []
