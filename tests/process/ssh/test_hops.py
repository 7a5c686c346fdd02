"""The way to a box as its description says: what is wrong with it is said by the key that says it."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from rgt_tui.model import BoxSpec
from rgt_tui.ssh import ConfigError, MovedAddress, resolve_hops

BOX = BoxSpec(name="lab", host="h", ssh_config="none")
WRONG = [
    (
        {"identity": "~/keys/100%.pem"},
        r"boxes\.lab\.identity in the fleet file: the token '%\.' .*write a literal % as %%",
    ),
    ({"identity": "${NO_SUCH}/id"}, r"boxes\.lab\.identity .*NO_SUCH is not set"),
    ({"known_hosts": "${NO_SUCH}"}, r"boxes\.lab\.known_hosts .*NO_SUCH"),
    ({"ssh_config": "${NO_SUCH}/c"}, r"boxes\.lab\.ssh_config .*NO_SUCH"),
    ({"user": "a;b"}, r"boxes\.lab\.user in the fleet file: 'a;b' is not a valid user name"),
    ({"host": "a;b"}, r"'a;b' is not a valid host name, and ssh_config has no HostName for it"),
]


@pytest.mark.parametrize(("said", "words"), WRONG)
def test_what_is_wrong_is_said_by_its_key(
    said: dict[str, str], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NO_SUCH", raising=False)
    with pytest.raises(ConfigError, match=words):
        resolve_hops(msgspec.structs.replace(BOX, **said))


def test_a_strange_name_is_what_ssh_takes_it_for(tmp_path: Path) -> None:
    (tmp_path / "config").write_text("Host a;b\n  HostName 10.0.0.7\n")
    spec = msgspec.structs.replace(BOX, host="a;b", ssh_config=str(tmp_path / "config"))
    try:
        assert resolve_hops(spec)[-1].host.host == "10.0.0.7"
    except ConfigError as error:  # from OpenSSH 9.6 on
        assert "hostname contains invalid characters" in str(error)


@pytest.mark.parametrize(
    ("host", "port"), [("a b", 22), ("-oX", 22), ("h", 0), ("h", 70000), ("", 22)]
)
def test_an_address_that_is_none_is_not_gone_to(host: str, port: int) -> None:
    told = MovedAddress(host, port, "Acme")
    assert not told.is_usable
    with pytest.raises(ConfigError, match=rf"boxes\.lab: Acme reports .*{port}.*not an address"):
        resolve_hops(BOX, None, told)


def test_what_to_type_names_the_way_there(tmp_path: Path) -> None:
    path = tmp_path / "config"
    path.write_text(
        "Host box\n ProxyJump me@a:2201,b\n Port 2203\nHost a\n ProxyJump z\nHost *\n User u\n"
    )
    spec = BoxSpec(name="lab", host="box", ssh_config=str(path), known_hosts="/k h", identity="/id")
    front = ("-F", str(path))
    own = (*front, "-i", "/id", "-o", "IdentitiesOnly=yes", "-o", 'UserKnownHostsFile="/k h"')
    assert [step.by_hand for step in resolve_hops(spec)] == [
        (*front, "u@z"),
        (*front, "-J", "u@z:22", "-p", "2201", "me@a"),
        (*front, "-J", "u@z:22,me@a:2201", "u@b"),
        (*own, "-p", "2203", "u@box"),
    ]
    moved = resolve_hops(spec, None, MovedAddress("203.0.113.7", 9))[-1].by_hand
    assert moved == (*own, "-J", "u@z:22,me@a:2201,u@b:22", "-p", "9", "u@203.0.113.7")
    assert resolve_hops(msgspec.structs.replace(BOX, port=22, user="r"))[-1].by_hand == (
        "-F",
        "none",
        "-p",
        "22",
        "r@h",
    )


def test_a_box_of_a_file_that_nobody_trusts_is_a_host_of_one_s_own_ssh_config_or_not_reached(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / ".ssh").mkdir()
    (tmp_path / ".ssh/config").write_text(
        "Host lab\n  HostName 10.0.0.7\nHost *\n  User me\nMatch host other\n"
    )
    monkeypatch.setenv("HOME", str(tmp_path))
    spec = BoxSpec(name="mine", host="lab", untrusted=True)
    assert resolve_hops(spec)[-1].host.user_host_port == "me@10.0.0.7:22"
    for host in ("other", "LAB", "*", "10.0.0.7"):
        strange = msgspec.structs.replace(spec, host=host)
        with pytest.raises(ConfigError, match="the fleet file is not trusted"):
            resolve_hops(strange)
    assert resolve_hops(BoxSpec(name="mine", host="other"))[-1].host.host == "other"


def test_the_ssh_config_of_a_file_that_nobody_trusts_is_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "theirs").write_text(f'Host lab\nMatch exec "touch {tmp_path}/ran"\n')
    spec = BoxSpec(name="mine", host="lab", ssh_config=str(tmp_path / "theirs"), untrusted=True)
    with pytest.raises(ConfigError, match="the fleet file is not trusted"):
        resolve_hops(spec)
    assert not (tmp_path / "ran").exists()
    assert resolve_hops(msgspec.structs.replace(spec, untrusted=False))[-1].host.host == "lab"
    assert (tmp_path / "ran").exists()
