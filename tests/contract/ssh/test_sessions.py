"""What a person sees of it all: questions, refusals, limited boxes and moved ones, through the real fleet engine."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from rgt_tui.model import BoxSpec, LinkState, QuestionKind
from rgt_tui.ssh import NO_SFTP, build_agent, connect, deploy_agent
from tests.contract.ssh.conftest import RealSshd
from tests.contract.ssh.servers import spec_of, sshd, terminal_only
from tests.contract.ssh.watched import Watched
from tests.free_ports import free_port

replace = msgspec.structs.replace


@pytest.fixture
async def box(real_sshd: RealSshd, tmp_path: Path) -> AsyncIterator[BoxSpec]:
    """A box whose known_hosts is empty."""
    yield replace(real_sshd.spec, known_hosts=str(tmp_path / "known_hosts"), python=sys.executable)
    connection = await connect(real_sshd.spec)
    agent = await deploy_agent(connection, build_agent(), (sys.executable,))
    await connection.run(agent.build_command("record", "--stop"))
    connection.abort()


async def test_a_question_is_answered_and_the_box_goes_live(box: BoxSpec, tmp_path: Path) -> None:
    watched = Watched(box, tmp_path, asks=True)
    await watched.start()
    try:
        state = await watched.fleet_until(lambda fleet: bool(fleet.questions))
        (question,) = state.questions
        assert (question.box, question.kind) == (box.name, QuestionKind.HOST_KEY)
        asking = await watched.until(lambda state: state.link is LinkState.ASKING)
        assert "new host key" in asking.reason
        watched.fleet.answer_question(question.id, "yes")
        live = await watched.until(
            lambda state: state.link is LinkState.LIVE and state.sample is not None
        )
        assert live.limited == ()
        assert watched.fleet.state.questions == ()
    finally:
        await watched.close()


async def test_a_refusal_is_a_state_of_its_own_and_is_not_hammered(
    box: BoxSpec, tmp_path: Path
) -> None:
    watched = Watched(box, tmp_path)
    await watched.start()
    try:
        refused = await watched.until(lambda state: state.link is LinkState.REFUSED_KEY)
        assert "was not accepted" in refused.reason
        assert refused.retry_at is None or refused.retry_at - refused.since > 300
    finally:
        await watched.close()


async def test_a_login_that_is_refused_is_a_state_of_its_own(
    real_sshd: RealSshd, tmp_path: Path
) -> None:
    watched = Watched(
        replace(real_sshd.spec, identity=str(real_sshd.folder / "stranger")), tmp_path
    )
    await watched.start()
    try:
        refused = await watched.until(lambda state: state.link is LinkState.REFUSED_LOGIN)
        assert "refused the login" in refused.reason
        assert refused.retry_at is None or refused.retry_at - refused.since > 300
    finally:
        await watched.close()


async def test_a_closed_port_is_unreachable_never_more(real_sshd: RealSshd, tmp_path: Path) -> None:
    watched = Watched(replace(real_sshd.spec, port=free_port()), tmp_path)
    await watched.start()
    try:
        lost = await watched.until(lambda state: state.link is not LinkState.CONNECTING)
        assert lost.link is LinkState.UNREACHABLE
        assert "refused the connection" in lost.reason
    finally:
        await watched.close()


async def test_a_limited_box_is_live_and_says_what_it_lacks(tmp_path: Path) -> None:
    async with terminal_only(tmp_path, ("dash",)) as port:
        watched = Watched(spec_of(tmp_path, port), tmp_path)
        await watched.start()
        try:
            live = await watched.until(lambda state: state.counters.samples >= 2)
            assert live.link is LinkState.LIVE
            assert any("terminal only" in line for line in live.limited)
            assert live.counters.gaps == live.counters.duplicates == 0
        finally:
            await watched.close()


async def test_a_box_without_sftp_says_so_from_its_first_reading_on(tmp_path: Path) -> None:
    (tmp_path / "no-home").touch()
    options = f'SetEnv "HOME={tmp_path}/no-home" "XDG_CACHE_HOME={tmp_path}/no-home" '
    options += '"RGT_SPARE_DIRS=/none"\n'
    with sshd(tmp_path, options) as port:
        watched = Watched(spec_of(tmp_path, port), tmp_path)
        await watched.start()
        try:
            live = await watched.until(lambda state: NO_SFTP in state.limited)
            assert live.link is LinkState.LIVE
            assert live.sample is not None
            assert "cannot write the agent" in live.limited[0]
            assert len(live.limited) == 2
        finally:
            await watched.close()


async def test_a_moved_box_is_found_where_the_provider_says(
    box: BoxSpec, real_sshd: RealSshd, tmp_path: Path
) -> None:
    gone = free_port()
    key = " ".join((real_sshd.folder / "host_key.pub").read_text().split()[:2])
    (tmp_path / "known_hosts").write_text(f"[127.0.0.1]:{gone} {key}\n")
    watched = Watched(replace(box, port=gone), tmp_path)
    await watched.start()
    try:
        await watched.until(lambda state: state.link is LinkState.UNREACHABLE)
        session = watched.fleet._sessions[box.name]
        session.set_meter(
            replace(session.state.meter, ssh_host="127.0.0.1", ssh_port=real_sshd.port)
        )
        await watched.until(lambda state: state.link is LinkState.LIVE)
    finally:
        await watched.close()
