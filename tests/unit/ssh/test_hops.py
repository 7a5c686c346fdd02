"""The way to a box as its description says: what is wrong with it is said by the key that says it."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from rgt_tui.model.box import BoxSpec
from rgt_tui.ssh.config.errors import ConfigError
from rgt_tui.ssh.connect import Elsewhere, hops

BOX = BoxSpec(name="lab", host="h", ssh_config="none")
WRONG = [
    ({"identity": "~/keys/100%.pem"}, r"boxes\.lab\.identity in the fleet file: the token '%\.'.*written %%"),
    ({"identity": "${NO_SUCH}/id"}, r"boxes\.lab\.identity .*NO_SUCH is not set"),
    ({"known_hosts": "${NO_SUCH}"}, r"boxes\.lab\.known_hosts .*NO_SUCH"),
    ({"ssh_config": "${NO_SUCH}/c"}, r"boxes\.lab\.ssh_config .*NO_SUCH"),
    ({"user": "a;b"}, r"boxes\.lab\.user in the fleet file: 'a;b' is no user name"),
    ({"host": "a;b"}, r"'a;b' is no host name, and ssh_config has no HostName for it"),
]


@pytest.mark.parametrize(("said", "words"), WRONG)
def test_what_is_wrong_is_said_by_its_key(
    said: dict[str, str], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NO_SUCH", raising=False)
    with pytest.raises(ConfigError, match=words):
        hops(msgspec.structs.replace(BOX, **said))


def test_a_strange_name_is_fine_where_a_file_says_what_it_stands_for(tmp_path: Path) -> None:
    (tmp_path / "config").write_text("Host a;b\n  HostName 10.0.0.7\n")
    spec = msgspec.structs.replace(BOX, host="a;b", ssh_config=str(tmp_path / "config"))
    assert hops(spec)[-1].host.host == "10.0.0.7"


@pytest.mark.parametrize(("host", "port"), [("a b", 22), ("-oX", 22), ("h", 0), ("h", 70000), ("", 22)])
def test_an_address_that_is_none_is_not_gone_to(host: str, port: int) -> None:
    told = Elsewhere(host, port, "Acme")
    assert not told.usable
    with pytest.raises(ConfigError, match=rf"boxes\.lab: Acme says .*{port}.*no address"):
        hops(BOX, None, told)
