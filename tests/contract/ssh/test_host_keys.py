"""Host keys against a real sshd, and known_hosts files read by rgt and by OpenSSH alike."""

from __future__ import annotations

import asyncio
import contextlib
import os
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from rgt_tui.model import BoxQuestion, BoxSpec, QuestionKind
from rgt_tui.ssh import HostKeyPolicy, HostKeyRefused, LoginAnswers, MovedAddress, connect
from rgt_tui.ssh.known_hosts import hash_name
from tests.contract.ssh.conftest import keygen
from tests.contract.ssh.people import Somebody
from tests.contract.ssh.servers import command, spec_of, ssh_keygen, sshd
from tests.free_ports import free_port

replace = msgspec.structs.replace


class Box:
    """A running sshd with an empty known_hosts."""

    def __init__(self, folder: Path, port: int) -> None:
        self.folder, self.port = folder, port
        self.known = folder / "known_hosts"
        self.known.unlink(missing_ok=True)
        self.spec = spec_of(folder, port)
        self.key = " ".join((folder / "host_key.pub").read_text().split()[:2])

    @property
    def name(self) -> str:
        return f"[127.0.0.1]:{self.port}"

    def config(self, text: str) -> BoxSpec:
        """A description that leaves the rest to an ssh_config file."""
        path = self.folder / "ssh_config"
        path.write_text(
            f"Host box\n  HostName 127.0.0.1\n  Port {self.port}\n  User {self.spec.user}\n"
            f"  IdentityFile {self.folder}/id\n  UserKnownHostsFile {self.known}\n"
            f"  GlobalKnownHostsFile none\n{text}"
        )
        return BoxSpec(name="box", host="box", ssh_config=str(path))


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, int]]:
    folder = tmp_path_factory.mktemp("box")
    with sshd(folder) as port:
        yield folder, port


@pytest.fixture
def box(server: tuple[Path, int]) -> Box:
    return Box(*server)


async def enter(spec: BoxSpec, who: Somebody | None = None, **options: object) -> None:
    person = None if who is None else who.person()
    connection = await connect(spec, person=person, **options)  # type: ignore[arg-type]
    connection.abort()
    await connection.wait_closed()


async def test_an_unknown_key_is_shown_and_written_down_when_accepted(box: Box) -> None:
    who = Somebody(host_key="yes")
    await enter(box.spec, who)
    (question,) = who.asked
    printed = ssh_keygen("-lvf", str(box.folder / "host_key.pub")).splitlines()
    text = "\n".join(question.lines)
    assert question.kind is QuestionKind.HOST_KEY
    assert printed[0].split()[1] in text
    assert all(row in question.lines for row in printed[1:])
    assert str(box.known) in text
    assert box.known.read_text() == f"{box.name} {box.key}\n"
    assert stat.S_IMODE(box.known.stat().st_mode) == 0o600
    await enter(box.spec, who)
    assert len(who.asked) == 1
    assert ssh_keygen("-F", box.name, "-f", str(box.known))


@pytest.mark.parametrize("reply", ["no", "", None, "y", "yes please"])
async def test_anything_but_yes_refuses(box: Box, reply: str | None) -> None:
    with pytest.raises(HostKeyRefused, match="was not accepted") as caught:
        await enter(box.spec, Somebody(host_key=reply))
    assert not box.known.exists()
    assert "SHA256:" in str(caught.value)


async def test_nobody_there_means_refused_with_what_to_do(box: Box) -> None:
    with pytest.raises(
        HostKeyRefused, match=r"was not accepted.*rgt doctor .*--accept-new-host-key"
    ):
        await enter(box.spec)


async def test_accept_new_writes_without_asking(box: Box) -> None:
    who = Somebody()
    await enter(box.spec, who, policy=HostKeyPolicy.ACCEPT_NEW)
    assert who.asked == []
    assert box.known.read_text() == f"{box.name} {box.key}\n"


async def test_refuse_asks_nobody(box: Box) -> None:
    who = Somebody(host_key="yes")
    with pytest.raises(HostKeyRefused, match="unknown keys are refused"):
        await enter(box.spec, who, policy=HostKeyPolicy.REFUSE)
    assert who.asked == []


@pytest.mark.parametrize("policy", list(HostKeyPolicy))
async def test_a_changed_key_is_refused_under_every_policy(
    box: Box, policy: HostKeyPolicy, tmp_path: Path
) -> None:
    keygen(tmp_path / "old")
    old = " ".join((tmp_path / "old.pub").read_text().split()[:2])
    box.known.write_text(f"# a comment\nother.example.org {box.key}\n{box.name} {old}\n")
    before = box.known.read_text()
    who = Somebody(host_key="yes")
    with pytest.raises(HostKeyRefused) as caught:
        await enter(box.spec, who, policy=policy)
    message = str(caught.value)
    assert f"{box.known}:3" in message
    assert message.count("SHA256:") == 2
    assert f"ssh-keygen -R '{box.name}' -f {box.known}" in message
    assert who.asked == []
    assert box.known.read_text() == before


async def test_what_the_message_advises_helps(box: Box, tmp_path: Path) -> None:
    keygen(tmp_path / "old")
    box.known.write_text(f"{box.name} {(tmp_path / 'old.pub').read_text()}")
    with pytest.raises(HostKeyRefused) as caught:
        await enter(box.spec)
    advice = str(caught.value).split("`")[1]
    assert command("sh", "-c", advice).returncode == 0
    await enter(box.spec, policy=HostKeyPolicy.ACCEPT_NEW)


def advised(error: pytest.ExceptionInfo[HostKeyRefused], folder: Path) -> None:
    """Do what a message says, with a person who says yes."""
    yes = folder / "yes"
    yes.write_text("#!/bin/sh\necho yes\n")
    yes.chmod(0o755)
    lines = str(error.value).split("`")[1::2]
    assert lines[-1].startswith("ssh ")
    env = {**os.environ, "SSH_ASKPASS": str(yes), "SSH_ASKPASS_REQUIRE": "force"}
    # `rgt doctor` asks on a terminal; here, what to do without rgt.
    commands = [line for line in lines[:-1] if not line.startswith("rgt ")]
    for line in (*commands, f"{lines[-1]} true"):
        done = subprocess.run(["sh", "-c", line], env=env, capture_output=True, check=False)
        assert done.returncode == 0, (line, done.stderr)


async def test_the_ssh_command_of_the_message_accepts_the_key(box: Box, tmp_path: Path) -> None:
    spec = replace(box.spec, known_hosts=str(tmp_path / "a blank/known_hosts"))
    (tmp_path / "a blank").mkdir()
    with pytest.raises(HostKeyRefused, match="--accept-new-host-key") as caught:
        await enter(spec)
    advised(caught, tmp_path)
    await enter(spec, policy=HostKeyPolicy.REFUSE)
    # By the alias, with what ssh_config says of it: nothing that the fleet file would have to repeat.
    spec = box.config("  HostKeyAlias the-alias\n  BatchMode yes\n")
    with pytest.raises(HostKeyRefused, match=r"BatchMode=no .*box") as caught:
        await enter(spec, Somebody(host_key="yes"))
    advised(caught, tmp_path)
    assert "the-alias" in box.known.read_text()
    await enter(spec, policy=HostKeyPolicy.REFUSE)


async def test_what_cannot_help_is_not_advised(box: Box, tmp_path: Path) -> None:
    spec = box.config("  StrictHostKeyChecking yes\n")
    with pytest.raises(HostKeyRefused, match="StrictHostKeyChecking is yes") as caught:
        await enter(spec, Somebody(host_key="yes"), policy=HostKeyPolicy.ACCEPT_NEW)
    assert "dashboard" not in str(caught.value)
    assert "--accept-new" not in str(caught.value)
    advised(caught, tmp_path)
    await enter(spec)
    # Known by another kind of key: neither option accepts that unseen.
    ssh_keygen("-q", "-t", "ecdsa", "-N", "", "-f", str(tmp_path / "other"))
    other = " ".join((tmp_path / "other.pub").read_text().split()[:2])
    for strict, policy, way in (
        ("accept-new", HostKeyPolicy.ASK, "is accept-new .*does not ask"),
        ("ask", HostKeyPolicy.ACCEPT_NEW, "dashboard"),
    ):
        box.known.write_text(f"{box.name} {other}\n")
        spec = box.config(f"  StrictHostKeyChecking {strict}\n")
        with pytest.raises(HostKeyRefused, match=way) as caught:
            await enter(spec, policy=policy)
        assert "--accept-new" not in str(caught.value)
        advised(caught, tmp_path)
        await enter(spec, policy=HostKeyPolicy.REFUSE)


async def test_a_revoked_key_is_refused_even_if_it_is_also_known(box: Box) -> None:
    box.known.write_text(f"{box.name} {box.key}\n@revoked * {box.key}\n")
    with pytest.raises(HostKeyRefused, match=rf"revoked.*{box.known}:2"):
        await enter(box.spec, Somebody(host_key="yes"))


@pytest.mark.full_matrix
@pytest.mark.parametrize("known", ["{name}", "127.0.0.1"])
@pytest.mark.parametrize("revoked", ["127.0.0.1", "{name}", "127.0.0.*"])
async def test_a_key_that_is_revoked_for_the_host_is_revoked_on_its_other_ports(
    box: Box, known: str, revoked: str
) -> None:
    box.known.write_text(
        f"{known.format(name=box.name)} {box.key}\n@revoked {revoked.format(name=box.name)} {box.key}\n"
    )
    with pytest.raises(HostKeyRefused, match=rf"revoked.*{box.known}:2"):
        await enter(box.spec, Somebody(host_key="yes"), policy=HostKeyPolicy.ACCEPT_NEW)


@pytest.mark.parametrize("kind", ["folder", "loop", "below a file"])
async def test_a_known_hosts_that_cannot_be_read_trusts_nothing(
    box: Box, tmp_path: Path, kind: str
) -> None:
    path = tmp_path / "known"
    if kind == "folder":
        path.mkdir()
    elif kind == "loop":
        path.symlink_to(path)
    else:
        path.write_text("")
        path /= "known"
    good = tmp_path / "good"
    good.write_text(f"{box.name} {box.key}\n")
    config = str(box.config("").ssh_config)
    for files in (f"{path} {good}", f"{good} {path}"):
        box.config("")
        text = Path(config).read_text().replace(str(box.known), files)
        Path(config).write_text(text)
        with pytest.raises(HostKeyRefused, match=r"cannot be read.*so no host key can be trusted"):
            await enter(
                BoxSpec(name="box", host="box", ssh_config=config), Somebody(host_key="yes")
            )
    missing = text.replace(str(path), str(tmp_path / "missing"))
    Path(config).write_text(missing)
    await enter(BoxSpec(name="box", host="box", ssh_config=config), policy=HostKeyPolicy.REFUSE)


async def test_a_file_of_revoked_keys_counts(box: Box, tmp_path: Path) -> None:
    (tmp_path / "revoked").write_text(f"# list\n{box.key} comment\n")
    box.known.write_text(f"{box.name} {box.key}\n")
    with pytest.raises(HostKeyRefused, match="revoked"):
        await enter(box.config(f"  RevokedHostKeys {tmp_path}/revoked\n"))
    with pytest.raises(HostKeyRefused, match="cannot be read"):
        await enter(box.config(f"  RevokedHostKeys {tmp_path}/missing\n"))
    ssh_keygen("-q", "-k", "-f", str(tmp_path / "krl"), str(box.folder / "id.pub"))
    with pytest.raises(HostKeyRefused, match="binary revocation list"):
        await enter(box.config(f"  RevokedHostKeys {tmp_path}/krl\n"))


async def test_hashed_names_are_recognised_and_written_when_asked_for(box: Box) -> None:
    await enter(box.config("  HashKnownHosts yes\n"), policy=HostKeyPolicy.ACCEPT_NEW)
    assert box.known.read_text().startswith("|1|")
    assert "127.0.0.1" not in box.known.read_text()
    assert ssh_keygen("-F", box.name, "-f", str(box.known))
    await enter(box.config(""), policy=HostKeyPolicy.REFUSE)
    box.known.write_text(f"{hash_name(box.name)} {box.key}\n")
    await enter(box.config(""), policy=HostKeyPolicy.REFUSE)


async def test_the_bare_name_counts_for_a_port_as_in_openssh(box: Box) -> None:
    box.known.write_text(f"127.0.0.1 {box.key}\n")
    await enter(box.spec, policy=HostKeyPolicy.REFUSE)


@pytest.mark.parametrize(
    ("marker", "said"), [("", True), ("@revoked ", False), ("@cert-authority ", False)]
)
async def test_that_the_same_key_is_known_elsewhere_is_said_of_plain_lines_alone(
    box: Box, marker: str, said: bool
) -> None:
    """It helps a person to say yes: what was revoked there must not."""
    box.known.write_text(f"{marker}gpu-07.example.org {box.key}\n")
    who = Somebody(host_key="no")
    with pytest.raises(HostKeyRefused):
        await enter(box.spec, who)
    assert any("the very same key is known at" in line for line in who.asked[0].lines) is said


async def test_under_an_alias_the_bare_name_counts_for_nothing(box: Box) -> None:
    """Who names an alias means the key of that alone, as OpenSSH does."""
    box.known.write_text(f"127.0.0.1 {box.key}\n")
    spec = box.config("  HostKeyAlias the-alias\n")
    with pytest.raises(HostKeyRefused, match="its key is unknown"):
        await enter(spec, policy=HostKeyPolicy.REFUSE)
    box.known.write_text(f"the-alias {box.key}\n")
    await enter(spec, policy=HostKeyPolicy.REFUSE)


async def test_an_alias_and_the_global_file_count(box: Box, tmp_path: Path) -> None:
    (tmp_path / "global").write_text(f"the-alias {box.key}\n")
    spec = box.config(
        f"  HostKeyAlias the-alias\nHost *\n  GlobalKnownHostsFile {tmp_path}/global\n"
    )
    text = (box.folder / "ssh_config").read_text().replace("  GlobalKnownHostsFile none\n", "")
    (box.folder / "ssh_config").write_text(text)
    await enter(spec, policy=HostKeyPolicy.REFUSE)


@pytest.mark.parametrize(
    ("strict", "asked", "accepted"),
    [
        ("yes", 0, False),
        ("no", 1, True),
        ("off", 1, True),
        ("ask", 1, True),
        ("accept-new", 0, True),
    ],
)
async def test_strict_host_key_checking_counts_and_no_means_ask(
    box: Box, strict: str, asked: int, accepted: bool
) -> None:
    who = Somebody(host_key="yes")
    spec = box.config(f"  StrictHostKeyChecking {strict}\n")
    if accepted:
        await enter(spec, who)
    else:
        with pytest.raises(HostKeyRefused):
            await enter(spec, who)
    assert len(who.asked) == asked


async def test_no_file_to_write_to_is_said_and_the_answer_kept_in_memory(box: Box) -> None:
    spec = box.config("")
    path = box.folder / "ssh_config"
    path.write_text(
        path.read_text().replace(f"UserKnownHostsFile {box.known}", "UserKnownHostsFile /dev/null")
    )
    who, answers = Somebody(host_key="yes"), LoginAnswers()
    for _ in range(2):
        connection = await connect(spec, person=who.person(answers))
        connection.abort()
    assert len(who.asked) == 1
    assert "until rgt ends" in "\n".join(who.asked[0].lines)


async def test_a_known_hosts_that_cannot_be_written_is_said(box: Box, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    spec = replace(box.spec, known_hosts=str(tmp_path / "file/known_hosts"))
    with pytest.raises(HostKeyRefused, match=r"cannot be (read|written)"):
        await enter(spec, policy=HostKeyPolicy.ACCEPT_NEW)


async def test_a_server_known_by_another_kind_of_key_shows_that_kind(tmp_path: Path) -> None:
    ssh_keygen("-q", "-t", "rsa", "-b", "2048", "-N", "", "-f", str(tmp_path / "rsa"))
    with sshd(tmp_path, f"HostKey {tmp_path}/rsa\n") as port:
        box = Box(tmp_path, port)
        rsa = " ".join((tmp_path / "rsa.pub").read_text().split()[:2])
        box.known.write_text(f"{box.name} {rsa}\n")
        await enter(box.spec, policy=HostKeyPolicy.REFUSE)
        # A third kind, which the server does not have: its own is unknown then, and suspicious.
        ssh_keygen("-q", "-t", "ecdsa", "-N", "", "-f", str(tmp_path / "ecdsa"))
        other = " ".join((tmp_path / "ecdsa.pub").read_text().split()[:2])
        box.known.write_text(f"{box.name} {other}\n")
        with pytest.raises(
            HostKeyRefused, match=rf"known keys of this server: ecdsa.*{box.known}:1"
        ):
            await enter(box.spec, policy=HostKeyPolicy.ACCEPT_NEW)
        who = Somebody(host_key="yes")
        await enter(box.spec, who)
        assert any("CAUTION" in line for line in who.asked[0].lines)


async def test_a_certificate_authority_vouches_for_a_host(tmp_path: Path) -> None:
    for name in ("ca", "host_key", "stranger"):
        keygen(tmp_path / name)
    public = str(tmp_path / "host_key.pub")
    ssh_keygen("-q", "-s", str(tmp_path / "ca"), "-I", "box", "-h", "-n", "127.0.0.1", public)
    with sshd(tmp_path, f"HostCertificate {tmp_path}/host_key-cert.pub\n") as port:
        box = Box(tmp_path, port)
        box.known.write_text(f"@cert-authority * {(tmp_path / 'ca.pub').read_text()}")
        await enter(box.spec, policy=HostKeyPolicy.REFUSE)
        # Nobody knows the authority: the plain key is asked about, as OpenSSH does.
        box.known.write_text(f"@cert-authority *.example.org {(tmp_path / 'ca.pub').read_text()}")
        who = Somebody(host_key="yes")
        await enter(box.spec, who)
        assert len(who.asked) == 1
        box.known.write_text(
            f"@cert-authority * {(tmp_path / 'ca.pub').read_text()}@revoked * {(tmp_path / 'ca.pub').read_text()}"
        )
        with pytest.raises(HostKeyRefused, match="revoked"):
            await enter(box.spec, Somebody(host_key="yes"))


async def test_another_key_behind_the_question_is_not_trusted(tmp_path: Path) -> None:
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
    port = free_port()
    with contextlib.ExitStack() as servers:
        first = contextlib.ExitStack()
        servers.enter_context(first)
        first.enter_context(sshd(tmp_path / "first", port=port))
        box = Box(tmp_path / "first", port)

        class Distracted(Somebody):
            async def ask(self, question: BoxQuestion) -> str | None:
                # While the person thinks, somebody else takes the port.
                first.close()
                servers.enter_context(sshd(tmp_path / "second", port=port))
                return await super().ask(question)

        with pytest.raises(HostKeyRefused, match="someone may be intercepting the connection"):
            await enter(box.spec, Distracted(host_key="yes"))


async def test_many_boxes_behind_one_new_server_ask_once(box: Box) -> None:
    who, answers = Somebody(host_key="yes"), LoginAnswers()
    connections = await asyncio.gather(
        *(connect(box.spec, person=who.person(answers)) for _ in range(8))
    )
    for connection in connections:
        connection.abort()
    assert len(who.asked) == 1
    assert len(box.known.read_text().splitlines()) == 1


async def test_a_moved_box_with_its_old_key_needs_no_question(box: Box) -> None:
    (box.folder / "known_hosts").write_text(f"[203.0.113.7]:10341 {box.key}\n")
    spec = replace(box.spec, host="203.0.113.7", port=10341)
    who = Somebody(host_key="no")
    await enter(spec, who, elsewhere=MovedAddress("127.0.0.1", box.port, "RunPod"))
    assert who.asked == []


async def test_a_moved_box_with_a_new_key_is_asked_about_with_the_reason(box: Box) -> None:
    spec = replace(box.spec, host="203.0.113.7", port=10341)
    who = Somebody(host_key="yes")
    await enter(spec, who, elsewhere=MovedAddress("127.0.0.1", box.port, "RunPod"))
    text = "\n".join(who.asked[0].lines)
    assert "RunPod reports that the box has moved here from [203.0.113.7]:10341" in text
    assert box.known.read_text() == f"{box.name} {box.key}\n"
