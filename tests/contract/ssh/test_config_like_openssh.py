"""ssh_config read by rgt and by the installed OpenSSH (``ssh -G``): the same values, over a table of files."""

from __future__ import annotations

import getpass
import os
import subprocess
from pathlib import Path

import pytest

from rgt_tui.ssh import ConfigError, HostRequest, SshHost, resolve_host, surroundings
from rgt_tui.ssh.ssh_route import DEFAULT_IDENTITIES

HOSTS = (
    "alpha",
    "beta",
    "alpha.example.org",
    "10.0.0.7",
    "gpu-17",
    "GPU-17",
    "never",
    "deep",
    "final-host",
    "odd,name",
)

FILES = {
    "patterns": """
        Host alpha beta
          Port 2201
        Host gpu-?? !gpu-17
          Port 2202
        Host *.example.org 10.0.*
          User carol
          Port 2203
        Host odd,name
          Port 2204
        Host !never *
          User everyone
    """,
    "the first value counts": """
        Port 1111
        Host alpha
          Port 2222
          User first
          User second
          IdentityFile ~/.ssh/one
        Host *
          Port 3333
          IdentityFile ~/.ssh/two
          IdentityFile ~/.ssh/one
          IdentitiesOnly yes
    """,
    "ways to write a line": """
        Host=alpha
          Port = 2201
          User="two words"
        host beta   # a comment behind it
          HOSTNAME   beta.example.org   # another
          PORT=2202
        Host "gpu-17" 'deep'
          User 'it is'
          IdentityFile "~/.ssh/with blank"
        \tHost   alpha.example.org
        \t\tPort\t2203
    """,
    "names": """
        Host alpha
          HostName %h.Internal.Example.ORG
        Host beta
          HostName 192.0.2.%h%%
        Host gpu-17
          HostName fe80::1
        Match host *.internal.example.org
          User inside
        Match originalhost alpha
          Port 2201
        Match host alpha
          Port 2299
    """,
    "match": """
        Match host alpha,beta user root
          Port 2201
        Match host "alpha,gpu-*" !host gpu-17
          IdentityFile ~/.ssh/matched
        Match !host alpha
          User stranger
        Match user stranger
          Port 2202
        Match localuser {user}
          ServerAliveInterval 7
        Match all
          ServerAliveCountMax 9
        Match host=deep
          ConnectTimeout 11
    """,
    "exec": """
        Match exec "test %n = alpha"
          User executed
        Match host beta exec "test %h = beta && test %p = 22"
          Port 2201
        Match host alpha exec "false"
          Port 2299
        Match exec "test %r = executed" user executed
          ServerAliveInterval 3
    """,
    "final": """
        Match final host *.example.org
          User at-last
          Port 2299
        Match host alpha
          Port 2201
        Host alpha final-host
          HostName %h.example.org
        Match !final host final-host
          ConnectTimeout 5
        Match final all
          ServerAliveCountMax 4
    """,
    "times": """
        Host alpha
          ConnectTimeout 1m30s
          ServerAliveInterval 2m
        Host beta
          ConnectTimeout none
          ServerAliveInterval 90
        Host *
          ConnectTimeout 1h
          ServerAliveCountMax 5
    """,
    "ways there": """
        Host alpha
          ProxyJump user@jump:2222,second
          ProxyCommand nc %h %p
        Host beta
          ProxyCommand   ssh -W "%h:%p" gate # not a comment
          ProxyJump jump
        Host deep
          ProxyJump none
        Host gpu-17
          ProxyJump me@[2001:db8::7]:2200,ssh://gate:22
        Host *
          ProxyJump fallback
    """,
    "known hosts": """
        Host alpha
          UserKnownHostsFile ~/.ssh/a /tmp/b
          GlobalKnownHostsFile /tmp/c
          HostKeyAlias other
          HashKnownHosts yes
          StrictHostKeyChecking accept-new
        Host beta
          UserKnownHostsFile none
          StrictHostKeyChecking no
        Host gpu-17
          UserKnownHostsFile "/tmp/with blank" %d/x
          StrictHostKeyChecking off
        Host *
          StrictHostKeyChecking yes
          CheckHostIP no
    """,
    "logins": """
        Host alpha
          PasswordAuthentication no
          KbdInteractiveAuthentication no
          PreferredAuthentications publickey,password
          CertificateFile ~/.ssh/cert.pub
          CertificateFile /tmp/other-cert.pub
          IdentityAgent none
          BatchMode yes
          ServerAliveInterval 30
        Host beta
          PubkeyAuthentication no
          ChallengeResponseAuthentication no
          IdentityAgent ~/agent.sock
        Host gpu-17
          IdentityAgent SSH_AUTH_SOCK
          PubkeyAuthentication unbound
          IdentityFile none
        Host deep
          Compression yes
          AddressFamily inet6
          BindAddress 127.0.0.1
          GSSAPIAuthentication yes
          ForwardAgent yes
    """,
    "includes": """
        Host alpha
          Include {folder}/part.conf
          User behind
        Include {folder}/b*.conf {folder}/missing.conf
        Host deep
          Include {folder}/many-*.conf
        Host *
          Port 2299
    """,
}

PARTS = {
    "part.conf": "IdentityFile ~/.ssh/included\nHost beta\n  User never-for-beta\nHost alpha\n  Port 2201\n",
    "b1.conf": "Host beta\n  User from-b1\n  Port 2211\n",
    "b2.conf": "Host beta\n  User from-b2\nUser never\n",
    "many-b.conf": "Port 2222\n",
    "many-a.conf": "Port 2221\nUser many\n",
}

WRONG = {
    "port": "Port 22222222\n",
    "word": "Host *\n  Port twenty\n",
    "quote": 'User "open\n',
    "bool": "IdentitiesOnly perhaps\n",
    "time": "ConnectTimeout soon\n",
    "match": "Match nonsense x\n  Port 1\n",
    "missing": "Port\n",
    "more": "Port 22 23\n",
    "jump": "ProxyJump a:b:c\n",
}


def ssh_g(path: Path, host: str, *options: str) -> dict[str, list[str]]:
    done = subprocess.run(
        ["ssh", "-F", str(path), *options, "-G", "--", host],
        capture_output=True,
        text=True,
        check=True,
    )
    answer: dict[str, list[str]] = {}
    for line in done.stdout.splitlines():
        key, _, value = line.partition(" ")
        answer.setdefault(key, []).append(value)
    return answer


def seen(host: SshHost) -> dict[str, object]:
    """What rgt makes of it, in the words of ``ssh -G``."""
    home = str(Path.home())
    jumps = ",".join(
        (f"{jump.user}@" if jump.user else "")
        + (f"[{jump.host}]" if ":" in jump.host else jump.host)
        + (f":{jump.port}" if jump.port else "")
        for jump in host.jumps
    )
    default = tuple(f"{home}/.ssh/{name}" for name in DEFAULT_IDENTITIES)
    return {
        "hostname": host.host,
        "port": str(host.port),
        "user": host.user,
        "identityfile": None if host.identities == default else host.identities,
        "certificatefile": host.certificates,
        "identitiesonly": host.identities_only,
        "proxyjump": jumps,
        "proxycommand": host.proxy_command or "",
        "serveraliveinterval": host.alive_interval or 0,
        "serveralivecountmax": 3 if host.alive_count is None else host.alive_count,
        "connecttimeout": host.connect_timeout,
        "userknownhostsfile": host.user_known_hosts,
        "globalknownhostsfile": host.global_known_hosts,
        "hostkeyalias": host.host_key_alias or "",
        "hashknownhosts": host.hash_known_hosts,
        "stricthostkeychecking": host.strict,
        "batchmode": host.batch,
        "pubkeyauthentication": host.public_key_auth,
        "passwordauthentication": host.password_auth,
        "kbdinteractiveauthentication": host.kbdint_auth,
        "preferredauthentications": host.preferred_auth,
        "compression": host.compression,
        "addressfamily": host.family,
        "bindaddress": host.bind_address or "",
    }


def told(answer: dict[str, list[str]]) -> dict[str, object]:
    """What ``ssh -G`` says, with the paths expanded that it prints as they stand in the file."""
    home = str(Path.home())

    def one(key: str, default: str = "") -> str:
        return answer.get(key, [default])[0]

    def path(text: str) -> str:
        text = text.replace("%d", home)
        return home + text[1:] if text.startswith("~/") else text

    def files(key: str) -> tuple[str, ...]:
        # -G joins with blanks and does not quote: put together again what belongs together.
        parts = one(key).replace("/tmp/with blank", "/tmp/with\0blank").split()
        return tuple(path(part.replace("\0", " ")) for part in parts if part != "none")

    identities = tuple(path(item) for item in answer.get("identityfile", []))
    defaults = any(item.endswith("/.ssh/id_xmss") for item in identities)
    strict = {"true": "yes", "false": "no", "off": "no"}
    timeout = one("connecttimeout")
    return {
        "hostname": one("hostname"),
        "port": one("port"),
        "user": one("user"),
        "identityfile": None if defaults else tuple(item for item in identities if item != "none"),
        "certificatefile": tuple(path(item) for item in answer.get("certificatefile", [])),
        "identitiesonly": one("identitiesonly") == "yes",
        "proxyjump": one("proxyjump"),
        "proxycommand": one("proxycommand")
        .replace("%h", one("hostname"))
        .replace("%p", one("port")),
        "serveraliveinterval": int(one("serveraliveinterval")),
        "serveralivecountmax": int(one("serveralivecountmax")),
        "connecttimeout": None if timeout == "none" else int(timeout),
        "userknownhostsfile": files("userknownhostsfile"),
        "globalknownhostsfile": files("globalknownhostsfile"),
        "hostkeyalias": one("hostkeyalias"),
        "hashknownhosts": one("hashknownhosts") == "yes",
        "stricthostkeychecking": strict.get(
            one("stricthostkeychecking"), one("stricthostkeychecking")
        ),
        "batchmode": one("batchmode") == "yes",
        "pubkeyauthentication": one("pubkeyauthentication") not in ("no", "false"),
        "passwordauthentication": one("passwordauthentication") == "yes",
        "kbdinteractiveauthentication": one("kbdinteractiveauthentication") == "yes",
        "preferredauthentications": tuple(filter(None, one("preferredauthentications").split(","))),
        "compression": one("compression") == "yes",
        "addressfamily": one("addressfamily"),
        "bindaddress": one("bindaddress"),
    }


def write(folder: Path, text: str) -> Path:
    for name, part in PARTS.items():
        (folder / name).write_text(part)
    path = folder / "config"
    lines = text.replace("{folder}", str(folder)).replace("{user}", getpass.getuser()).splitlines()
    path.write_text(
        "\n".join(line[8:] if line.startswith(" " * 8) else line for line in lines) + "\n"
    )
    return path


def test_a_port_may_be_the_name_of_a_service(tmp_path: Path) -> None:
    """Where the machine knows services; elsewhere both refuse."""
    path = write(tmp_path, "Port https\n")
    theirs = subprocess.run(
        ["ssh", "-F", str(path), "-G", "a"], capture_output=True, text=True, check=False
    )
    try:
        mine = resolve_host(HostRequest("a"), surroundings(str(path))).port
    except ConfigError:
        assert theirs.returncode != 0
    else:
        assert f"port {mine}" in theirs.stdout.splitlines()


@pytest.mark.parametrize("name", FILES)
def test_every_value_is_the_one_of_openssh(name: str, tmp_path: Path) -> None:
    path = write(tmp_path, FILES[name])
    around = surroundings(str(path))
    for host in HOSTS:
        if name == "ways to write a line" and host in ("alpha", "gpu-17", "deep"):
            # OpenSSH checks a user name only when it connects; rgt refuses these at once.
            continue
        try:
            theirs = told(ssh_g(path, host))
        except subprocess.CalledProcessError as error:
            assert "invalid characters" in error.stderr, error.stderr
            continue
        assert seen(resolve_host(HostRequest(host), around)) == theirs, (name, host)


@pytest.mark.parametrize("name", ["match", "the first value counts", "ways there"])
def test_what_is_said_explicitly_counts_as_on_the_command_line(name: str, tmp_path: Path) -> None:
    path = write(tmp_path, FILES[name])
    around = surroundings(str(path))
    for host in HOSTS[:4]:
        theirs = told(ssh_g(path, host, "-p", "4444", "-l", "root"))
        assert seen(resolve_host(HostRequest(host, port=4444, user="root"), around)) == theirs, (
            name,
            host,
        )


@pytest.mark.parametrize("name", WRONG)
def test_what_openssh_refuses_is_refused_with_file_and_line(name: str, tmp_path: Path) -> None:
    path = write(tmp_path, "# first\n" + WRONG[name])
    with pytest.raises(subprocess.CalledProcessError):
        ssh_g(path, "alpha")
    with pytest.raises(ConfigError, match=str(path) if name != "jump" else "ProxyJump"):
        resolve_host(HostRequest("alpha"), surroundings(str(path)))


def test_the_system_s_file_counts_behind_the_user_s(tmp_path: Path) -> None:
    # Nothing of the user's own: what is left is the system's, as `ssh` itself reads it.
    theirs = told(ssh_g(Path("/etc/ssh/ssh_config"), "alpha"))
    env = {**os.environ, "HOME": str(tmp_path)}
    mine = seen(resolve_host(HostRequest("alpha"), surroundings(env=env)))
    assert mine["hashknownhosts"] == theirs["hashknownhosts"]
    (tmp_path / ".ssh").mkdir()
    (tmp_path / ".ssh/config").write_text("HashKnownHosts no\nPort 2201\n")
    mine = seen(resolve_host(HostRequest("alpha"), surroundings(env=env)))
    assert (mine["hashknownhosts"], mine["port"]) == (False, "2201")
