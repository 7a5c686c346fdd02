"""What rentals hand out to be pasted, and what else a person writes."""

from __future__ import annotations

from typing import Any

import pytest

from rgt_tui.cli.set_up.adding import guess_profile
from rgt_tui.cli.set_up.pasted_address import NotSshAddress, parse_target

TAKEN: list[tuple[str, dict[str, Any]]] = [
    ("lab-a100", {"host": "lab-a100"}),
    ("me@10.0.0.1", {"host": "10.0.0.1", "user": "me"}),
    ("10.0.0.1:2222", {"host": "10.0.0.1", "port": 2222}),
    ("[fe80::1]:2222", {"host": "fe80::1", "port": 2222}),
    ("fe80::1", {"host": "fe80::1"}),
    ("ssh://me@host:40022/", {"host": "host", "user": "me", "port": 40022}),
    (
        "ssh -p 12345 root@connect.westb.seetacloud.com",
        {"host": "connect.westb.seetacloud.com", "port": 12345, "user": "root"},
    ),
    (
        "ssh root@194.68.245.10 -p 22113 -i ~/.ssh/id_ed25519",
        {"host": "194.68.245.10", "port": 22113, "user": "root", "identity": "~/.ssh/id_ed25519"},
    ),
    ("ssh -p 31592 root@ssh5.vast.ai -L 8080:localhost:8080",
     {"host": "ssh5.vast.ai", "port": 31592, "user": "root", "tunnels": ["8080:localhost:8080"]}),
    ("ssh a -L 0.0.0.0:1:db.x:2 -D 1080 -L 3:[::1]:4 -L /tmp/s:/x -N",
     {"host": "a", "tunnels": ["1:db.x:2", "socks:1080", "3:[::1]:4"]}),
    (
        "ssh k3v9q0x1fake01-6441@ssh.runpod.io -i ~/.ssh/id_ed25519",
        {"host": "ssh.runpod.io", "user": "k3v9q0x1fake01-6441", "identity": "~/.ssh/id_ed25519"},
    ),
    ("/usr/bin/ssh -tAp22 -lme host", {"host": "host", "port": 22, "user": "me"}),
    ("ssh -o Port=99 -oUser=me -o 'IdentityFile /a b' h", {"host": "h", "port": 99, "user": "me", "identity": "/a b"}),
    ("ssh -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null h", {"host": "h"}),
    ("ssh -NT h tmux attach -p 3", {"host": "h"}),
    ("ssh -F my.conf gate", {"host": "gate", "ssh_config": "my.conf"}),
    ("ssh", {"host": "ssh"}),
    ("sshpass -p 'a b' ssh -p 22 me@h", {"host": "h", "port": 22, "user": "me"}),
    ("SSHPASS=x sshpass -e ssh me@h", {"host": "h", "user": "me"}),
    ("/usr/bin/sshpass -f/tmp/p -v /usr/bin/ssh h", {"host": "h"}),
]  # fmt: skip


@pytest.mark.parametrize(("text", "expected"), TAKEN, ids=[text for text, _ in TAKEN])
def test_taken(text: str, expected: dict[str, Any]) -> None:
    assert parse_target(text) == expected


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("", "no host"),
        ("ssh -p", "needs a value"),
        ("ssh -p x h", "'x' is not a port"),
        ("ssh -p 70000 h", "not a port"),
        ("ssh -v", "names no host"),
        ("h:", "empty port"),
        ("@h", "not a host"),
        ("two words", "neither a host nor an ssh command"),
        ("ssh -J gate box", "ProxyJump gate"),
        ("ssh -o ProxyCommand='nc %h %p' box", "ProxyCommand"),
        ("'open", "closing"),
        ("sshpass -p secret scp a h:", "no ssh command"),
        ("sshpass -p", "no ssh command"),
        ("-oProxyCommand=x", "not a host"),
    ],
)
def test_refused_with_the_reason(text: str, word: str) -> None:
    with pytest.raises(NotSshAddress) as error:
        parse_target(text)
    assert word.lower() in str(error.value).lower()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("ssh me@h", []),
        ("ssh -NTv -q -o LogLevel=ERROR -o RequestTTY=no me@h", []),
        ("ssh me@h nvidia-smi -L", ["'nvidia-smi -L'", "rgt exec NAME"]),
        ("ssh -t me@h 'cd /a b && ./run.sh'", ["cd /a b && ./run.sh", "rgt exec NAME"]),
        ("ssh -o StrictHostKeyChecking=no me@h", ["StrictHostKeyChecking=no", "asks once"]),
        (
            "ssh -oUserKnownHostsFile=/dev/null -o 'StrictHostKeyChecking off' me@h",
            ["UserKnownHostsFile=/dev/null, -o StrictHostKeyChecking=off", "asks once"],
        ),
        (
            "ssh -o serveraliveinterval=30 -4 -c aes256-ctr me@h",
            ["serveraliveinterval=30, -4, -c aes256-ctr", "~/.ssh/config", "rgt add NAME ALIAS"],
        ),
        ("ssh -A -o SendEnv=X -R 80:a:80 h", ["-A, -o SendEnv=X, -R 80:a:80", "does not use"]),
        ("ssh -L /tmp/s:/x h", ["-L /tmp/s:/x", "does not use"]),
        ("sshpass -p secret ssh -p 22 me@h", ["sshpass", "in memory", "ssh-copy-id -p 22 me@h"]),
    ],
)
def test_what_is_left_out_is_named_with_the_reason(text: str, words: list[str]) -> None:
    left_out: list[str] = []
    parse_target(text, left_out)
    assert all(any(word in line for line in left_out) for word in words), left_out
    assert bool(left_out) == bool(words)
    assert "secret" not in " ".join(left_out)


def test_a_password_is_not_repeated_in_an_error() -> None:
    with pytest.raises(NotSshAddress) as error:
        parse_target("sshpass -p secret scp a h:")
    assert "secret" not in str(error.value)


@pytest.mark.parametrize(
    ("host", "profile"),
    [
        ("connect.westb.seetacloud.com", "autodl"),
        ("CONNECT.cqa1.SeetaCloud.com", "autodl"),
        ("ssh5.vast.ai", "vastai"),
        ("ssh.runpod.io", "runpod"),
        ("hz-t2.matpool.com", "matpool"),
        ("i-2.gpushare.com", "gpushare"),
        ("ssh.t1.lanrui-ai.com", "lanrui"),
        ("1.2.3.4", None),
        ("localhost", None),  # as a rule the near end of a tunnel to a machine that bills
        ("127.0.0.1", None),
        ("notvast.ai", None),
        ("seetacloud.com.evil.example", None),
    ],
)
def test_the_profile_is_only_told_where_the_host_name_is_the_platform_s(
    host: str, profile: str | None
) -> None:
    assert guess_profile(host) == profile
