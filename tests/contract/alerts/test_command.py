"""A program as a sink: real processes, also ones that fail, hang, or leave others behind."""

from __future__ import annotations

import os
import select
import sys
from pathlib import Path

import msgspec
import pytest

from rgt_tui.health import CommandSink, SinkError
from rgt_tui.model import AlertEvent, SinkSettings
from tests.contract.alerts.samples import EVENT
from tests.process.box.harness import PATIENCE

ENV = {"PATH": os.environ["PATH"]}


def running(*argv: str, timeout_s: float = PATIENCE) -> CommandSink:
    return CommandSink(SinkSettings("command", argv=argv, timeout_s=timeout_s), ENV)


def gone(pid: int) -> bool:
    """Wait for a process that is being killed; a zombie that nobody reaps has ended."""
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([handle], [], [], PATIENCE)[0])
    finally:
        os.close(handle)


async def test_it_gets_the_event_on_its_standard_input(tmp_path: Path) -> None:
    target = tmp_path / "a b; touch $(pwned)"
    await running("sh", "-c", 'cat >"$1"', "sh", str(target)).send(EVENT)
    assert msgspec.json.decode(target.read_bytes(), type=AlertEvent) == EVENT
    assert [item.name for item in tmp_path.iterdir()] == [target.name]


async def test_one_that_does_not_read_is_fine() -> None:
    await running("true").send(EVENT)


async def test_a_failure_has_its_status_and_its_last_words() -> None:
    with pytest.raises(SinkError, match="sh ended with 3: no such room") as caught:
        await running(
            "sh", "-c", "echo one >&2; printf '\\033[31mno such room\\n' >&2; exit 3"
        ).send(EVENT)
    assert "\x1b" not in str(caught.value)


async def test_a_flood_of_words_is_bounded() -> None:
    with pytest.raises(SinkError) as caught:
        await running("sh", "-c", "head -c 3000000 /dev/zero | tr '\\0' x >&2; exit 1").send(EVENT)
    assert len(str(caught.value)) < 300


async def test_a_program_that_is_not_there() -> None:
    with pytest.raises(SinkError, match="cannot start /no/such: No such file or directory"):
        await running("/no/such").send(EVENT)


async def test_one_that_hangs_is_killed_with_its_children(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    script = f"trap '' TERM INT HUP; sleep 600 & echo $$ $! >{pids}; wait; sleep 600"
    for limit in (0.5, 5.0, 60.0):  # on a busy machine a shell may come late
        with pytest.raises(SinkError, match=f"sh did not exit within {limit:g} s and was killed"):
            await running("sh", "-c", script, timeout_s=limit).send(EVENT)
        if pids.exists() and len(pids.read_text().split()) == 2:
            break
    assert len(pids.read_text().split()) == 2
    assert all(gone(int(pid)) for pid in pids.read_text().split())


async def test_what_a_program_leaves_behind_is_ended_too(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    await running("sh", "-c", f"sleep 600 2>/dev/null & echo $! >{pid}").send(EVENT)
    assert gone(int(pid.read_text()))


async def test_nothing_of_our_environment_but_what_was_given(tmp_path: Path) -> None:
    target = tmp_path / "env"
    os.environ["RGT_TEST_SECRET"] = "s3cr3t"
    try:
        await running(
            sys.executable, "-c", f"import os; open({str(target)!r}, 'w').write(repr(os.environ))"
        ).send(EVENT)
    finally:
        del os.environ["RGT_TEST_SECRET"]
    assert "s3cr3t" not in target.read_text()
