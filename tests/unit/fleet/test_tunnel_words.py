"""What a tunnel may be called, and that nothing else gets through."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rgt_tui.model import Tunnel, parse_tunnel, pasted_tunnel


@pytest.mark.parametrize(
    ("text", "tunnel"),
    [
        ("6006", Tunnel(6006, "localhost", 6006)),
        ("8080:6006", Tunnel(8080, "localhost", 6006)),
        ("8080:db.internal:5432", Tunnel(8080, "db.internal", 5432)),
        ("8080:[::1]:80", Tunnel(8080, "[::1]", 80)),
        ("socks:1080", Tunnel(1080, "")),
    ],
)
def test_forms(text: str, tunnel: Tunnel) -> None:
    assert parse_tunnel(text) == tunnel
    assert parse_tunnel(str(tunnel)) == tunnel


@pytest.mark.parametrize(
    "text",
    [
        "",
        "0",
        "65536",
        "a",
        "1:2:3:4",
        ":1",
        "1:",
        "1:a b:2",
        "-1",
        "1:-x:2",
        "socks:",
        "1:$(x):2",
        "１",
    ],
)
def test_what_is_none(text: str) -> None:
    with pytest.raises(ValueError, match="is no tunnel"):
        parse_tunnel(text)


@given(st.text(alphabet="0189:[]abc./-* ", max_size=20))
def test_any_text_ends_in_a_tunnel_or_in_words(text: str) -> None:
    try:
        tunnel = parse_tunnel(text)
    except ValueError:
        return
    assert parse_tunnel(str(tunnel)) == tunnel
    assert 1 <= tunnel.local <= 65535


def test_a_pasted_one_listens_on_the_loopback_alone() -> None:
    assert pasted_tunnel("L", "0.0.0.0:80:h:8080") == Tunnel(80, "h", 8080)
    assert pasted_tunnel("L", "80/h/8080") == Tunnel(80, "h", 8080)
    assert pasted_tunnel("D", "*:1080") == Tunnel(1080, "")
    assert pasted_tunnel("L", "/tmp/a.sock:/tmp/b.sock") is None
