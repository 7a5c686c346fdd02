"""What is said when a server is not reached: why, and what to do next."""

from __future__ import annotations

import errno
import socket

import asyncssh
import pytest

from rgt_tui.ssh.hop import failure_advice, failure_reason_text

FAILED: list[tuple[asyncssh.Error | OSError, bool, str, str]] = [
    (
        ConnectionRefusedError(errno.ECONNREFUSED, "x"),
        False,
        "refused the connection",
        "address and port still the same",
    ),
    (TimeoutError(), False, "no answer within 7 s", "check the provider's console"),
    (TimeoutError(), True, "the login took longer than 7 s", "out of memory"),
    (
        socket.gaierror(-2, "Name or service not known"),
        False,
        "Name or service not known",
        "check `host`",
    ),
    (OSError(errno.EHOSTUNREACH, "No route to host"), False, "No route to host", "VPN"),
    (
        asyncssh.ChannelOpenError(2, "Connection refused"),
        False,
        "Connection refused",
        "the hop before it",
    ),
    (asyncssh.KeyExchangeFailed("No match"), True, "No match", "an algorithm that both"),
    (
        asyncssh.ConnectionLost("Connection \x1b[31mlost"),
        True,
        "Connection lost",
        "it closed the connection",
    ),
    (OSError(errno.EIO, "Input/output error"), False, "Input/output error", ""),
]


@pytest.mark.parametrize(("error", "reached", "why", "then"), FAILED)
def test_each_failure_has_its_words(
    error: asyncssh.Error | OSError, reached: bool, why: str, then: str
) -> None:
    assert failure_reason_text(error, 7.0, reached=reached) == why
    assert then in failure_advice(error, reached=reached)
    assert bool(then) == bool(failure_advice(error, reached=reached))
