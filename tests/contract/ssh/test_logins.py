"""Logging in with keys, an agent, certificates and encrypted files, at a real sshd."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from rgt_tui.model import BoxSpec, QuestionKind
from rgt_tui.ssh import AuthFailed, LoginAnswers, connect, login
from tests.contract.ssh.conftest import keygen
from tests.contract.ssh.people import Somebody
from tests.contract.ssh.servers import command, spec_of, ssh_keygen, sshd

replace = msgspec.structs.replace
PHRASE = "correct horse"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BoxSpec]:
    folder = tmp_path_factory.mktemp("logins")
    keygen(folder / "ca")
    options = f"TrustedUserCAKeys {folder}/ca.pub\nMaxAuthTries 4\n"
    with sshd(folder, options) as port:
        yield spec_of(folder, port)


@pytest.fixture
def folder(server: BoxSpec) -> Path:
    return Path(server.identity or "").parent


@pytest.fixture
def sealed(server: BoxSpec, folder: Path, tmp_path: Path) -> BoxSpec:
    """The accepted key, encrypted, without its public half beside it."""
    shutil.copy(folder / "id", tmp_path / "sealed")
    ssh_keygen("-q", "-a", "1", "-p", "-P", "", "-N", PHRASE, "-f", str(tmp_path / "sealed"))
    return replace(server, identity=str(tmp_path / "sealed"))


@pytest.fixture
def agent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A real ssh-agent, in the environment."""
    socket = str(tmp_path / "agent.sock")
    told = command("ssh-agent", "-a", socket)
    found = re.search(r"SSH_AGENT_PID=(\d+)", told.stdout)
    assert found is not None, told.stderr
    monkeypatch.setenv("SSH_AUTH_SOCK", socket)
    yield socket
    os.kill(int(found[1]), signal.SIGTERM)


async def enter(
    spec: BoxSpec, who: Somebody | None = None, answers: LoginAnswers | None = None
) -> None:
    person = None if who is None else who.person(answers)
    connection = await connect(spec, person=person)
    done = await connection.run("echo inside")
    assert done.stdout == "inside\n"
    connection.abort()
    await connection.wait_closed()


async def test_the_passphrase_is_asked_for_once_and_kept(sealed: BoxSpec) -> None:
    who, answers = Somebody(secret=PHRASE), LoginAnswers()
    await enter(sealed, who, answers)
    await enter(sealed, who, answers)
    (question,) = who.asked
    assert question.kind is QuestionKind.SECRET
    assert str(sealed.identity) in question.title
    assert any("never written" in line for line in question.lines)
    assert PHRASE not in repr(answers)
    assert PHRASE not in repr(vars(answers))


async def test_a_wrong_passphrase_is_said_and_not_kept(sealed: BoxSpec) -> None:
    answers = LoginAnswers()
    with pytest.raises(AuthFailed, match="wrong passphrase") as caught:
        await enter(sealed, Somebody(secret="wrong horse"), answers)
    assert "wrong horse" not in str(caught.value)
    who = Somebody(secret=PHRASE)
    await enter(sealed, who, answers)
    assert len(who.asked) == 1


async def test_nobody_there_means_what_to_do(sealed: BoxSpec) -> None:
    with pytest.raises(AuthFailed, match=f"ssh-add {sealed.identity}"):
        await enter(sealed)


async def test_a_key_that_the_box_does_not_want_is_never_asked_about(
    server: BoxSpec, tmp_path: Path
) -> None:
    ssh_keygen("-q", "-a", "1", "-t", "ed25519", "-N", PHRASE, "-f", str(tmp_path / "stranger"))
    who = Somebody(secret=PHRASE)
    with pytest.raises(AuthFailed, match="refused the login"):
        await enter(replace(server, identity=str(tmp_path / "stranger")), who)
    assert who.asked == []


async def test_a_server_that_offers_challenges_and_puts_none_is_asked_once(tmp_path: Path) -> None:
    """As sshd without PAM, of a name that it does not let in: it had counted six tries, and spoke of too many keys."""
    with sshd(tmp_path, "KbdInteractiveAuthentication yes\n") as port:
        keygen(tmp_path / "stranger")
        with pytest.raises(
            AuthFailed, match="it accepts publickey, keyboard-interactive; 1 key tried"
        ):
            await enter(replace(spec_of(tmp_path, port), identity=str(tmp_path / "stranger")))


async def test_an_old_encrypted_format_works(tmp_path: Path) -> None:
    ssh_keygen(
        "-q", "-t", "rsa", "-b", "2048", "-m", "PEM", "-N", PHRASE, "-f", str(tmp_path / "id")
    )
    public = (tmp_path / "id.pub").read_text()
    with sshd(tmp_path) as port:
        (tmp_path / "authorized_keys").write_text(public)
        (tmp_path / "id.pub").unlink()
        assert "ENCRYPTED" in (tmp_path / "id").read_text()
        who = Somebody(secret=PHRASE)
        await enter(spec_of(tmp_path, port), who)
        assert len(who.asked) == 1


async def test_the_agent_is_asked_before_the_person(
    sealed: BoxSpec, folder: Path, agent: str
) -> None:
    assert command("ssh-add", "-q", str(folder / "id")).returncode == 0
    shutil.copy(folder / "id.pub", f"{sealed.identity}.pub")
    who = Somebody(secret=PHRASE)
    await enter(sealed, who)
    assert who.asked == []


async def test_with_an_identity_the_agent_s_other_keys_are_not_offered(
    server: BoxSpec, agent: str, tmp_path: Path
) -> None:
    for number in range(5):
        keygen(tmp_path / f"other{number}")
        assert command("ssh-add", "-q", str(tmp_path / f"other{number}")).returncode == 0
    await enter(server)
    # Without one, five wrong keys come first, and the server has enough after four: as with OpenSSH.
    config = tmp_path / "config"
    config.write_text(f"Host *\n  UserKnownHostsFile {server.known_hosts}\n")
    with pytest.raises(AuthFailed, match=r"too many keys.*IdentitiesOnly"):
        await enter(replace(server, identity=None, ssh_config=str(config)))
    config.write_text(f"Host *\n  IdentityFile {server.identity}\n  IdentitiesOnly yes\n")
    await enter(replace(server, identity=None, ssh_config=str(config)))


async def test_the_agent_alone_is_enough(
    server: BoxSpec, folder: Path, agent: str, tmp_path: Path
) -> None:
    assert command("ssh-add", "-q", str(folder / "id")).returncode == 0
    await enter(replace(server, identity=None))
    (tmp_path / "config").write_text("IdentityAgent none\nIdentityFile none\n")
    with pytest.raises(AuthFailed, match="no key to try"):
        await enter(replace(server, identity=None, ssh_config=str(tmp_path / "config")))
    (tmp_path / "config").write_text(f"IdentityAgent {tmp_path}/nobody\nIdentityFile none\n")
    with pytest.raises(AuthFailed, match=f"agent at {tmp_path}/nobody does not answer"):
        await enter(replace(server, identity=None, ssh_config=str(tmp_path / "config")))


async def test_an_agent_that_hangs_is_left_aside(
    server: BoxSpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(login, "AGENT_SECONDS", 0.05)
    monkeypatch.setenv("SSH_AUTH_SOCK", str(tmp_path / "agent.sock"))
    async with await asyncio.start_unix_server(
        lambda reader, writer: None, str(tmp_path / "agent.sock")
    ):
        await enter(server)
        (tmp_path / "config").write_text("IdentityFile none\n")
        with pytest.raises(
            AuthFailed, match=f"agent at {tmp_path}/agent.sock has not answered for 0.05 s"
        ):
            await enter(replace(server, identity=None, ssh_config=str(tmp_path / "config")))


@pytest.mark.parametrize("beside", [True, False])
@pytest.mark.parametrize("encrypted", [True, False])
async def test_a_certificate_logs_in(
    server: BoxSpec, folder: Path, tmp_path: Path, beside: bool, encrypted: bool
) -> None:
    ssh_keygen(
        "-q",
        "-a",
        "1",
        "-t",
        "ed25519",
        "-N",
        PHRASE if encrypted else "",
        "-f",
        str(tmp_path / "me"),
    )
    user = server.user or ""
    ssh_keygen("-q", "-s", str(folder / "ca"), "-I", "me", "-n", user, str(tmp_path / "me.pub"))
    spec = replace(server, identity=str(tmp_path / "me"))
    if not beside:
        (tmp_path / "me-cert.pub").rename(tmp_path / "elsewhere.pub")
        (tmp_path / "config").write_text(
            f"IdentityFile {tmp_path}/me\nCertificateFile {tmp_path}/elsewhere.pub\n"
        )
        spec = replace(spec, identity=None, ssh_config=str(tmp_path / "config"))
    who = Somebody(secret=PHRASE)
    await enter(spec, who)
    assert len(who.asked) == int(encrypted)


async def test_a_key_that_others_may_read_is_not_used(
    server: BoxSpec, folder: Path, tmp_path: Path
) -> None:
    shutil.copy(folder / "id", tmp_path / "open")
    (tmp_path / "open").chmod(0o644)
    with pytest.raises(AuthFailed, match=f"chmod 600 {tmp_path}/open"):
        await enter(replace(server, identity=str(tmp_path / "open")))


async def test_a_missing_key_file_is_named(server: BoxSpec, tmp_path: Path) -> None:
    with pytest.raises(AuthFailed, match=f"{tmp_path}/nothing: no such key file"):
        await enter(replace(server, identity=str(tmp_path / "nothing")))


async def test_batch_mode_asks_nobody(sealed: BoxSpec, tmp_path: Path) -> None:
    (tmp_path / "config").write_text("BatchMode yes\n")
    who = Somebody(secret=PHRASE)
    with pytest.raises(AuthFailed):
        await enter(replace(sealed, ssh_config=str(tmp_path / "config")), who)
    assert who.asked == []
