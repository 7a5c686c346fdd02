"""ssh_config files that nobody wrote, read by rgt and by the installed OpenSSH (``ssh -G``): the same values.

``RGT_CONFIGS`` is how many are made (60); ``RGT_CONFIGS_SEED`` where they begin.
"""

from __future__ import annotations

import os
import random
import subprocess
from pathlib import Path

import pytest

from rgt_tui.ssh import (
    ConfigError,
    HostRequest,
    resolve_host,
    scan_config,
    ssh_config,
    surroundings,
)
from tests.contract.ssh.test_config_like_openssh import seen, ssh_g, told

FILES = int(os.environ.get("RGT_CONFIGS", "60"))
SEED = int(os.environ.get("RGT_CONFIGS_SEED", "1"))
FEWER = 20
"""In `make test`."""
HOSTS = (
    "alpha",
    "Beta",
    "GPU-17",
    "alpha.example.org",
    "Alpha.Example.ORG",
    "10.0.0.7",
    "a%b",
    "a%hb",
)
PATTERNS = (
    *HOSTS, "*", "a*", "?lpha", "!alpha", "!Beta", "GPU-??", "gpu-*", "*.example.org", "*.ORG", "10.0.*", "!*.org",
    "beta", '"alpha"', "'Beta'", "ALPHA", "a%*",
)  # fmt: skip
LISTS = (
    "alpha,beta",
    "*.example.org",
    "!alpha,*",
    "gpu-17",
    "GPU-17",
    "inner.example.org",
    "a%b",
    "*",
)
OPTIONS: dict[str, tuple[str, ...]] = {
    "HostName": (
        "%h.example.org",
        "10.0.0.8",
        "Inner.Example.org",
        "%h",
        "x%%y",
        "%h%%",
        "fe80::1",
    ),
    "Port": ("22", "2201", "+22", "+2202", "022", '"2203"', " 2204 # comment"),
    "User": ("carol", "${HOME}", "x${RGT_TEST_NAME}y", '"two words"', "Dave", "a%b", "%r"),
    "IdentityFile": ("~/.ssh/one", "%d/.ssh/two", "none", '"~/.ssh/with blank"'),
    "CertificateFile": ("~/.ssh/c.pub", "/c/d-cert.pub"),
    "IdentitiesOnly": ("yes", "no", "true"),
    "ProxyJump": ("none", "gate", "me@gate:2222", "a,b", "[fe80::2]:22", "ssh://u@h:1"),
    "ProxyCommand": ("none", "nc %h %p", "ssh -W [%h]:%p gate", "a # b"),
    "ServerAliveInterval": ("0", "30", "1m30s", "2M"),
    "ServerAliveCountMax": ("3", "0", "+7"),
    "ConnectTimeout": ("none", "10", "1h", "90"),
    "UserKnownHostsFile": ("none", "~/.ssh/a ~/.ssh/b", "/kh/%h"),
    "GlobalKnownHostsFile": ("none", "/g/1 /g/2"),
    "HostKeyAlias": ("other", "Other", "%h"),
    "HashKnownHosts": ("yes", "no"),
    "StrictHostKeyChecking": ("yes", "no", "ask", "accept-new", "off"),
    "PubkeyAuthentication": ("yes", "no", "unbound"),
    "PasswordAuthentication": ("yes", "no"),
    "PreferredAuthentications": ("publickey,password", "password"),
    "Compression": ("yes", "no"),
    "AddressFamily": ("any", "inet", "inet6"),
    "BindAddress": ("127.0.0.1",),
}


def printed(path: Path, host: str) -> dict[str, object] | None:
    """Return what ``ssh -G`` says; a user's variables are expanded, as by OpenSSH 10 and later."""
    theirs = told(ssh_g(path, host))
    return {**theirs, "user": os.path.expandvars(str(theirs["user"]))}


def condition(dice: random.Random) -> str:
    kind = dice.choice(
        ("host", "host", "originalhost", "user", "localuser", "exec", "final", "canonical")
    )
    no = dice.choice(("", "", "", "!"))
    if kind in ("final", "canonical"):
        return no + kind
    if kind == "exec":
        return f'{no}exec "{dice.choice(("true", "false", "test %h = alpha", "test %n = a%%b", "test %p = 22"))}"'
    if kind in ("user", "localuser"):
        return f"{no}{kind} {dice.choice(('root', 'carol', 'Dave,*', '*'))}"
    return f"{no}{kind} {dice.choice(LISTS)}"


def line(dice: random.Random, match: float = 0.16) -> str:
    what = dice.random()
    if what < 0.2:
        return f"Host {' '.join(dice.sample(PATTERNS, dice.randint(1, 3)))}"
    if what < 0.2 + match:
        terms = [condition(dice) for _ in range(dice.randint(1, 2))]
        return f"Match {dice.choice(('all', ' '.join(terms), ' '.join(terms), 'final all'))}"
    name = dice.choice(list(OPTIONS))
    lead, equals = dice.choice(("  ", "\t", "")), dice.choice((" ", " ", "=", " = "))
    return f"{lead}{name}{equals}{dice.choice(OPTIONS[name])}"


def made(seed: int, match: float = 0.16) -> str:
    """Return an ssh_config; the same for the same seed."""
    dice = random.Random(seed)
    return "".join(f"{line(dice, match)}\n" for _ in range(dice.randint(4, 24)))


@pytest.mark.parametrize(
    "seed",
    [
        pytest.param(seed, marks=pytest.mark.full if seed >= SEED + FEWER else ())
        for seed in range(SEED, SEED + FILES)
    ],
)
def test_a_file_that_nobody_wrote_is_read_as_openssh_does(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RGT_TEST_NAME", "seven")
    path = tmp_path / "config"
    path.write_text(made(seed))
    around = surroundings(str(path))
    for host in random.Random(seed).sample(HOSTS, 3):
        try:
            theirs = printed(path, host)
        except subprocess.CalledProcessError:
            theirs = None
        try:
            mine: dict[str, object] | None = seen(resolve_host(HostRequest(host), around))
        except ConfigError as error:
            mine = None
            why = str(error)
        if mine is None or theirs is None:
            assert mine == theirs, (host, mine if mine else why, made(seed))
            continue
        assert {key: (mine[key], theirs[key]) for key in mine if mine[key] != theirs[key]} == {}, (
            host,
            made(seed),
        )


def test_the_answer_for_all_hosts_that_no_line_means_is_the_one_for_each(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, thorough: bool
) -> None:
    files = FILES if thorough else FEWER
    monkeypatch.setenv("RGT_TEST_NAME", "seven")
    for given in ((), ("-p", "2299"), ("-p", "2299", "-l", "zoe")):
        together = 0
        for seed in range(SEED, SEED + 2 * files):
            path = tmp_path / "config"
            text = made(seed, 0.0).replace("${", "x{")
            path.write_text(text)
            around = surroundings(str(path))
            wanted = f'Include "{path}"\nHost *\n'
            for host in ("alpha.example.org", "10.0.0.7", "elsewhere"):
                found = ssh_config._shared_answer(
                    host, given, wanted, os.environ["PATH"], scan_config(around)
                )
                if found is not None:
                    together += 1
                    assert found == ssh_config._query_ssh(host, given, wanted, around.env), (
                        host,
                        text,
                    )
        assert together > files // 2
