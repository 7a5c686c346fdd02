"""Logging in on a real sshd: what works, and in which words it does not."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from rgt_tui.ssh import AuthFailed, HostKeyRefused, Unreachable, connect, run_command
from tests.contract.ssh.conftest import RealSshd
from tests.contract.ssh.servers import spec_of, sshd
from tests.free_ports import free_port

replace = msgspec.structs.replace


async def test_a_verified_host_key_and_a_key_log_in(real_sshd: RealSshd) -> None:
    async with await connect(real_sshd.spec) as connection:
        done = await connection.run("echo $HOME")
    assert str(done.stdout).strip() == str(real_sshd.folder / "home")


async def test_an_unknown_host_key_is_refused(real_sshd: RealSshd, tmp_path: Path) -> None:
    (tmp_path / "known_hosts").touch()
    with pytest.raises(HostKeyRefused, match="host key"):
        await connect(replace(real_sshd.spec, known_hosts=str(tmp_path / "known_hosts")))


async def test_a_changed_host_key_is_refused(real_sshd: RealSshd, tmp_path: Path) -> None:
    other = (real_sshd.folder / "stranger.pub").read_text()
    (tmp_path / "known_hosts").write_text(f"[127.0.0.1]:{real_sshd.port} {other}")
    with pytest.raises(HostKeyRefused, match=f":{real_sshd.port}"):
        await connect(replace(real_sshd.spec, known_hosts=str(tmp_path / "known_hosts")))


async def test_a_key_that_the_box_does_not_know_is_told_apart(real_sshd: RealSshd) -> None:
    with pytest.raises(AuthFailed, match="refused the login"):
        await connect(replace(real_sshd.spec, identity=str(real_sshd.folder / "stranger")))


async def test_a_closed_port_is_unreachable_and_named(real_sshd: RealSshd) -> None:
    port = free_port()
    with pytest.raises(
        Unreachable, match=rf"{port}: refused the connection; .*port still the same"
    ):
        await connect(replace(real_sshd.spec, port=port))


async def test_a_connection_outlives_a_new_key_exchange_and_holds_nothing_of_the_login(
    tmp_path: Path,
) -> None:
    with sshd(tmp_path, "RekeyLimit 300K\n") as port:
        async with await connect(spec_of(tmp_path, port)) as connection:
            login = vars(connection)
            assert (login["_client_kexinit"], login["_server_kexinit"]) == (b"", b"")
            assert (login["_server_sig_algs"], login["_options"].kwargs) == (frozenset(), {})
            first = connection.get_extra_info("send_cipher")
            done = await run_command(connection, "head -c 3000000 /dev/zero", most_bytes=4_000_000)
            assert len(done.out) == 3_000_000
            assert login["_server_kexinit"], "keys were exchanged anew"
            assert connection.get_extra_info("send_cipher") == first
