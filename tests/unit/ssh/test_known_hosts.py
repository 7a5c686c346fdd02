"""Lines of known_hosts, the rules for unknown keys, and the order of algorithms."""

from __future__ import annotations

import base64

import asyncssh
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rgt_tui.ssh import ConfigError, HostKeyPolicy, SshHost, hop
from rgt_tui.ssh.known_hosts import effective, hash_name, parse_known_hosts
from rgt_tui.ssh.ssh_route import known_name

KEY = asyncssh.generate_private_key("ssh-ed25519").export_public_key().decode().split()[1]
HOST = SshHost("h", "h", 22, "root")


@given(st.text(max_size=80))
def test_no_file_breaks_the_parser(text: str) -> None:
    for entry in parse_known_hosts("known_hosts", text):
        entry.is_about("host")


@pytest.mark.parametrize(
    ("hosts", "name", "about"),
    [
        ("a,b", "b", True),
        ("A.Example.org", "a.example.org", True),
        ("*.example.org,!bad.example.org", "bad.example.org", False),
        ("*.example.org,!bad.example.org", "good.example.org", True),
        ("[a]:2222", "[a]:2222", True),
        ("a", "[a]:2222", False),
        ("[*]:2222", "[a]:2222", True),
        (hash_name("a"), "a", True),
        (hash_name("a"), "b", False),
        ("|1|broken|", "a", False),
    ],
    ids=lambda value: "hashed" if str(value).startswith("|1|") else None,
)
def test_whom_a_line_is_about(hosts: str, name: str, about: bool) -> None:
    (entry,) = parse_known_hosts("f", f"{hosts} ssh-ed25519 {KEY} comment here\n")
    assert entry.is_about(name) is about
    assert entry.location == "f:1"


@pytest.mark.parametrize(
    "line",
    [
        "# a ssh-ed25519 " + KEY,
        "a ssh-rsa " + KEY,
        "a ssh-ed25519 no*base64",
        "@unknown a ssh-ed25519 " + KEY,
        "a ssh-ed25519",
        "",
    ],
    ids=["comment", "another kind of key", "no base64", "unknown mark", "no key", "empty"],
)
def test_what_is_no_entry_is_passed_over(line: str) -> None:
    assert parse_known_hosts("f", line) == ()


def test_markers() -> None:
    text = f"@cert-authority *.x ssh-ed25519 {KEY}\n@revoked * ssh-ed25519 {KEY} why\n"
    assert [(entry.marker, entry.line) for entry in parse_known_hosts("f", text)] == [
        ("cert-authority", 1),
        ("revoked", 2),
    ]


@pytest.mark.parametrize("asked", list(HostKeyPolicy))
@pytest.mark.parametrize("strict", ["yes", "no", "ask", "accept-new"])
def test_the_stricter_word_wins_and_nothing_turns_the_check_off(
    asked: HostKeyPolicy, strict: str
) -> None:
    rule = effective(asked, strict)
    if strict == "yes" or asked is HostKeyPolicy.REFUSE:
        assert rule is HostKeyPolicy.REFUSE
    elif strict == "accept-new" or asked is HostKeyPolicy.ACCEPT_NEW:
        assert rule is HostKeyPolicy.ACCEPT_NEW
    else:
        assert rule is HostKeyPolicy.ASK


def test_names() -> None:
    assert (known_name("h", 22), known_name("h", 23), known_name("h", 23, "x")) == (
        "h",
        "[h]:23",
        "x",
    )


def test_known_kinds_of_keys_come_first_and_the_rest_stays() -> None:
    rsa = asyncssh.generate_private_key("ssh-rsa", key_size=1024).convert_to_public()
    plain = hop.host_keys(HOST, [], False)
    order = hop.host_keys(HOST, [rsa], False)
    assert order[0].startswith("rsa-sha2-")
    assert set(order) == set(plain)
    assert "ssh-ed25519" in order
    assert not any("cert" in name for name in order)
    assert "cert" in hop.host_keys(HOST, [], True)[0]


def test_cheap_algorithms_first_unless_ssh_config_says_otherwise() -> None:
    chosen = hop.algorithm_options(HOST)
    assert chosen["encryption_algs"].startswith("^aes128-gcm")
    assert chosen["kex_algs"].startswith("^curve25519")
    said = SshHost("h", "h", 22, "root", ciphers="aes256-ctr,unheard-of", compression=True)
    chosen = hop.algorithm_options(said)
    assert chosen["encryption_algs"] == ["aes256-ctr"]
    assert chosen["kex_algs"].startswith("^curve25519")
    assert chosen["compression_algs"][0] == "zlib@openssh.com"
    with pytest.raises(ConfigError, match="unheard-of"):
        hop.algorithm_options(SshHost("h", "h", 22, "root", ciphers="unheard-of"))
    only = SshHost("h", "h", 22, "root", host_key_algorithms="ssh-rsa,rsa-sha2-512")
    assert hop.host_keys(only, [], False) == ["ssh-rsa", "rsa-sha2-512"]


def test_a_key_is_what_it_says() -> None:
    (entry,) = parse_known_hosts("f", f"a ssh-ed25519 {KEY}")
    assert entry.key_blob == base64.b64decode(KEY)
