"""Cut a real SSH connection again and again while a writer writes: no gap and no duplicate, in any stream.

RGT_TORTURE=full cuts 500 times instead of 30.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import sys
import time
from pathlib import Path

import msgspec
import pytest

from rgt_tui.fleet import ConnectLimit
from rgt_tui.fleet import box_session as sessions
from rgt_tui.profiles import load_profile
from rgt_tui.ssh import DeployedAgent, build_agent, channel, connect, deploy_agent
from tests.contract.ssh.conftest import RealSshd
from tests.process.box.harness import make_job
from tests.torture.agent import writer as writers
from tests.torture.agent.proxy import Proxy
from tests.torture.agent.tally import CutSession, Tally

FULL = os.environ.get("RGT_TORTURE") == "full"
CUTS = 500 if FULL else 30
DEPLOY_EVERY = 10
"""Every so many connections put the agent there anew; the others know where it is, to get on faster."""


class NoBackoff:
    """Back at once."""

    def reset(self) -> None:
        pass

    def next_wait_s(self, failure: object) -> float:
        return 0.0


@pytest.mark.timeout(3600 if FULL else 600)
async def test_every_stream_goes_on_where_it_was_cut(
    real_sshd: RealSshd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = make_job(tmp_path / "job", ["true"], ["a"])
    (job / "logs").mkdir()
    (job / "out" / "a").mkdir(parents=True)
    log = str(job / "logs" / "a.log")
    bundle = build_agent()
    async with await connect(real_sshd.spec) as connection:
        known = await deploy_agent(connection, bundle, (sys.executable,))
    deploys = 0

    async def deploy_sometimes(*arguments: object) -> DeployedAgent:
        nonlocal deploys
        deploys += 1
        return known if deploys % DEPLOY_EVERY else await deploy_agent(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(channel, "deploy_agent", deploy_sometimes)
    monkeypatch.setattr(sessions, "Backoff", NoBackoff)
    dice = random.Random(os.environ.get("RGT_TORTURE_SEED", "11"))
    async with Proxy(real_sshd.port, dice) as proxy:
        spec = msgspec.structs.replace(
            real_sshd.spec,
            port=proxy.port,
            jobs=(str(job),),
            interval=0.05,
            known_hosts=str(tmp_path / "known"),
        )
        host_key = (real_sshd.folder / "host_key.pub").read_text()
        (tmp_path / "known").write_text(f"[127.0.0.1]:{proxy.port} {host_key}")
        loop = asyncio.get_running_loop()

        def take_in(_: str) -> None:
            loop.call_soon(
                session.apply_received
            )  # as the fleet's board does, for all of its boxes in turn

        session = CutSession(
            spec, load_profile(spec.profile), bundle, ConnectLimit(1), time.time, take_in
        )
        session.tally, session.dice, session.log, session.news = Tally(), dice, log, asyncio.Event()
        running = asyncio.ensure_future(session.run())
        try:
            await until(session, lambda: session.tally.samples > 0)
            process = await asyncio.create_subprocess_exec(
                sys.executable, writers.__file__, log, str(job / "out" / "a" / "metrics.jsonl"),
                str(job / "state.json"), stdout=asyncio.subprocess.PIPE,
            )  # fmt: skip
            await until(session, lambda: session.cuts >= CUTS or bool(session.tally.faults))
            process.terminate()
            written = int((await process.communicate())[0])
            proxy.gentle = session.gentle = True
            tally = session.tally
            await until(
                session,
                lambda: (tally.line, tally.step) == (written, written) or bool(tally.faults),
            )
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
            async with await connect(real_sshd.spec) as connection:
                await connection.run(known.build_command("record", "--stop"))
    report = {
        key: getattr(tally, key)
        for key in ("line", "step", "samples", "events", "attempt", "resets")
    }
    print(json.dumps(report | {"cuts": session.cuts, "connections": len(proxy.fates)}))
    assert tally.faults == []
    assert tally.samples > CUTS / 2
    assert tally.attempt > 0
    counters = session.state.counters
    assert (counters.gaps, counters.duplicates, counters.bad_frames, counters.skipped) == (
        0,
        0,
        0,
        0,
    )


async def until(session: CutSession, condition: object) -> None:
    """Wait for what frames bring about."""
    assert callable(condition)
    while not condition():
        session.news.clear()
        await asyncio.wait_for(session.news.wait(), 60)
