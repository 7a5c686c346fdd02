"""A check that is run prints line by line, and is ended with all that it began."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from rgt_tui.fleet import Fleet, NotRunnable, check_runs, run_check_command
from rgt_tui.model import BoxSpec, CheckResult, CheckStatus, PersonTick

PYTHON = sys.executable


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(300):
        while not holds():  # noqa: ASYNC110  (other processes tell nobody)
            await asyncio.sleep(0.01)


def pretend(monkeypatch: pytest.MonkeyPatch, folder: Path, code: str) -> dict[str, str]:
    """Let a program stand for Python: it is given the words that Python would be."""
    program = folder / "python"
    program.write_text(f"#!{PYTHON} -I\n{code}")
    program.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(program))
    return {**os.environ}


async def test_it_prints_line_by_line_and_its_status_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    env = pretend(
        monkeypatch,
        tmp_path,
        "import sys\nprint(sys.argv[1:])\nprint('\\x1b[31mred')\n"
        "print('x' * 9999, file=sys.stderr)\nsys.stdout.write('no end')\nsys.exit(3)\n",
    )
    lines: list[str] = []
    assert (
        await run_check_command(("queue", "lab", "check"), tmp_path / "f.toml", lines.append, env)
        == 3
    )
    told = "['-P', '-m', 'rgt_tui', 'queue', '--fleet', '%s', 'lab', 'check']" % (
        tmp_path / "f.toml"
    )
    assert told in lines and "no end" in lines
    assert (
        not any("\x1b" in row for row in lines)
        and max(map(len, lines)) <= check_runs.CHECK_LIMITS.line_characters
    )


async def test_more_than_anyone_reads_is_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    env = pretend(monkeypatch, tmp_path, "print('a\\n' * 7000, end='')\n")
    lines: list[str] = []
    assert await run_check_command(("doctor", "lab"), tmp_path / "f", lines.append, env) == 0
    assert len(lines) == check_runs.CHECK_LIMITS.lines + 1 and lines[-1] == "and 2,000 more lines"


async def test_cancelled_it_takes_along_what_it_began(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    env = pretend(
        monkeypatch,
        tmp_path,
        "import signal, subprocess, sys, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "child = subprocess.Popen(['/bin/sleep', '600'])\n"
        "print(child.pid, flush=True)\ntime.sleep(600)\n",
    )
    monkeypatch.setattr(check_runs, "CHECK_LIMITS", replace(check_runs.CHECK_LIMITS, grace_s=0.2))
    lines: list[str] = []
    task = asyncio.create_task(
        run_check_command(("doctor", "lab"), tmp_path / "f", lines.append, env)
    )
    await until(lambda: bool(lines))
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
    assert task.cancelled()
    await until(lambda: not alive(int(lines[0])))


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


async def test_what_takes_too_long_or_cannot_be_started_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    env = pretend(monkeypatch, tmp_path, "import time\ntime.sleep(600)\n")
    monkeypatch.setattr(check_runs, "CHECK_LIMITS", replace(check_runs.CHECK_LIMITS, run_s=0.2))
    with pytest.raises(NotRunnable, match="took longer than"):
        await run_check_command(("doctor", "lab"), tmp_path / "f", print, env)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "none"))
    with pytest.raises(NotRunnable, match="cannot be started"):
        await run_check_command(("doctor", "lab"), tmp_path / "f", print, env)


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path


def fleet_of(folder: Path, **changes: object) -> Fleet:
    spec = msgspec.structs.replace(BoxSpec(name="lab", host="127.0.0.1", port=9), **changes)
    (folder / "fleet.toml").write_text('[[box]]\nname = "lab"\nhost = "127.0.0.1"\nport = 9\n')
    return Fleet(
        [spec],
        audit=folder / "audit.jsonl",
        copies=folder / "pulled",
        fleet_file=folder / "fleet.toml",
    )


async def test_what_is_ticked_counts_in_this_rgt_and_in_the_next_one(state: Path) -> None:
    fleet = fleet_of(state)
    asked = next(
        check.id for check in fleet.evaluate_checks("lab") if check.status is CheckStatus.PERSON
    )

    def looked(fleet: Fleet) -> CheckResult:
        return next(check for check in fleet.evaluate_checks("lab") if check.id == asked)

    tick = PersonTick(ticked=True, at=100.0, by="han", note="both read well")
    assert await fleet.store_tick("lab", asked, tick) is None
    for one in (looked(fleet), looked(fleet_of(state))):
        assert (one.status, one.by, one.evidence) == (
            CheckStatus.PASSED,
            "han",
            "both read well (han)",
        )
    assert looked(fleet_of(state, host="127.0.0.2")).status is CheckStatus.PERSON, "another machine"
    assert (state / "state" / "rgt" / "ticks.json").exists()
    (state / "state" / "rgt" / "ticks.json").write_text("{")
    assert "ticks.json is damaged" in (await fleet.store_tick("lab", asked, tick) or "")
    open_ = [check for check in fleet.evaluate_checks("lab") if check.status is CheckStatus.PERSON]
    assert open_ and all("ticks.json is damaged" in check.evidence for check in open_)


async def test_the_command_itself_is_run_and_what_may_not_be_is_refused(state: Path) -> None:
    fleet = fleet_of(state)
    lines: list[str] = []
    assert fleet.runnable_command("lab", "5.6") == f"rgt verify {state}/pulled/lab"
    assert await fleet.run_check("lab", "5.6", lines.append) not in (0, None)
    assert any("pulled/lab" in row for row in lines), lines
    with pytest.raises(NotRunnable, match="only looks"):
        await fleet.run_check("lab", "3.2", lines.append)
    assert fleet.runnable_command("lab", "3.2") is None
    with pytest.raises(NotRunnable, match="rgt trust"):
        await fleet_of(state, untrusted=True).run_check("lab", "0.4", lines.append)
    bare = Fleet([BoxSpec(name="lab", host="127.0.0.1")], audit=state / "audit.jsonl")
    with pytest.raises(NotRunnable, match="no fleet file"):
        await bare.run_check("lab", "0.4", lines.append)
