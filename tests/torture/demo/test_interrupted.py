"""Whatever ends the demo, and whenever: nothing stays."""

from __future__ import annotations

import asyncio
import contextlib
import shlex
import signal
import subprocess
import threading
from pathlib import Path

import pytest

from rgt_tui.demo import demo_fleet, embedded
from rgt_tui.demo.plan import BOXES
from rgt_tui.demo.sandboxes import SandboxMachine
from rgt_tui.demo.sshd import BoxSshd
from rgt_tui.demo.workspace import Workspace
from tests.torture.demo.demo_process import demo, last_json, leftovers, seen_of

pytestmark = pytest.mark.serial

LONG = "600"
"""Seconds that are never over before the signal: the moment may come late on a busy machine."""
MOMENTS = ["autodl-demo: ssh", "connected", "launched", "an evaluation writes"]
ENDED_BY_US = (130, -signal.SIGINT)
BEFORE_OURS = (
    "Failed to import the site module",
    "Could not import runpy module",
    "init_sys_streams",
)


@pytest.mark.parametrize(
    "moment",
    [*(pytest.param(moment, marks=pytest.mark.full) for moment in MOMENTS[:3]), *MOMENTS[3:]],
)
def test_ctrl_c_at_a_known_moment_takes_everything_down(tmp_path: Path, moment: str) -> None:
    with demo(tmp_path, "--headless", "--for", LONG, "--json") as running:
        running.wait_for(moment)
        running.process.send_signal(signal.SIGINT)
        code, out = running.finish(120)
    assert code == 130
    assert last_json(out)["boxes"]
    assert leftovers(tmp_path) == []


@pytest.mark.parametrize(
    "after",
    [0.05, *(pytest.param(after, marks=pytest.mark.full) for after in (0.2, 0.4, 0.6, 0.8)), 1.1],
)
def test_ctrl_c_while_it_starts_leaves_nothing(tmp_path: Path, after: float) -> None:
    with demo(tmp_path, "--headless", "--for", LONG) as running:
        with pytest.raises(subprocess.TimeoutExpired):
            running.process.wait(after)
        running.process.send_signal(signal.SIGINT)
        code, _ = running.finish(120)
    # Python itself ends with 1 where it is interrupted before it has come to any program.
    not_yet_ours = any(words in line for line in running.progress for words in BEFORE_OURS)
    # Python 3.11 can crash where a signal meets its initialisation: no line of ours has run then.
    crashed_before = code == -signal.SIGSEGV and not running.progress
    assert code in ENDED_BY_US or (code == 1 and not_yet_ours) or crashed_before, running.progress
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
    fleet = embedded.EmbeddedFleet()
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


async def test_the_end_waits_neither_for_a_process_that_hangs_nor_for_a_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    fleet = embedded.EmbeddedFleet(BOXES[:1])
    await fleet.start()
    deaf = await asyncio.create_subprocess_exec(
        *fleet.machines[BOXES[0].name].build_command("trap '' TERM; echo deaf; kill -STOP $$"),
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
    )  # fmt: skip
    assert deaf.stdout is not None
    assert await deaf.stdout.readline() == b"deaf\n"

    monkeypatch.setattr(BoxSshd, "drop_connections", hang)
    monkeypatch.setattr(fleet._planes, "stop", hang)
    async with asyncio.timeout(
        60
    ):  # without an end of their own, the servers would be waited for always
        await fleet.stop()
        await deaf.wait()
    assert leftovers(tmp_path) == []


async def hang(*_: object) -> None:
    """Never return, not even when cancelled once."""
    with contextlib.suppress(asyncio.CancelledError):
        await asyncio.Event().wait()
    await asyncio.Event().wait()


async def test_the_end_has_one_limit_even_if_every_step_hangs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    fleet = demo_fleet.DemoFleet()
    fleet.embedded = embedded.EmbeddedFleet(BOXES[:1])
    await fleet.start()
    assert fleet._fleet is not None
    disconnect = fleet._fleet.stop
    held = subprocess.Popen(  # noqa: ASYNC220 (it is there before the loop goes on)
        [*shlex.split(fleet.embedded.ssh_command(BOXES[0].name)), "trap '' TERM HUP; echo held; sleep 600"],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
    )  # fmt: skip
    try:
        assert held.stdout is not None
        assert await asyncio.to_thread(held.stdout.readline) == b"held\n"
        # Its end of the connection reads nothing any more, nor does it close.
        held.send_signal(signal.SIGSTOP)
        for owner in (fleet._fleet, fleet.embedded._planes, fleet.embedded._room):
            monkeypatch.setattr(owner, "stop", hang)
        monkeypatch.setattr(BoxSshd, "drop_connections", hang)
        monkeypatch.setattr(SandboxMachine, "remove_machine", hang)
        ending = asyncio.create_task(fleet.stop())
        async with asyncio.timeout(
            60
        ):  # without a limit of their own, these would be waited for always
            await ending
        assert leftovers(tmp_path) == []
        ends_at = fleet.embedded._end_at
        await fleet.stop()
        assert fleet.embedded._end_at == ends_at, "the limit is one for all attempts"
    finally:
        await disconnect()
        held.kill()
        held.wait()


@pytest.mark.parametrize(
    "number", [signal.SIGTERM, pytest.param(signal.SIGHUP, marks=pytest.mark.full)]
)
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


@pytest.mark.full  # whatever one demo may disturb, its end included, is its own folder's in the tests above
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
