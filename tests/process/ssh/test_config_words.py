"""What rgt makes of ssh_config around ``ssh -G``: names, tokens, jumps, limits, and what is remembered."""

from __future__ import annotations

import contextlib
import fnmatch
import os
import re
import shutil
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rgt_tui.cli.set_up.doctor_here import DoctorStatus, check_ssh_config
from rgt_tui.ssh import (
    NO_SSH,
    ConfigError,
    HostRequest,
    check_host,
    check_user,
    expand_path,
    known_hosts,
    replace_tokens,
    resolve_host,
    scan_config,
    surroundings,
)
from rgt_tui.ssh.ssh_config import default_settings, environment
from rgt_tui.ssh.ssh_route import JumpHost, parse_jumps, resolve_route
from tests.process.box.harness import until

PLAIN = st.text("ab.-1*?", min_size=1, max_size=8)


@given(PLAIN, st.text("ab.-1", max_size=8))
def test_a_pattern_means_what_a_shell_means_by_it(pattern: str, text: str) -> None:
    assert known_hosts.matches_pattern(pattern, text) == bool(
        re.fullmatch(fnmatch.translate(pattern), text)
    )


@pytest.mark.parametrize(
    ("text", "host", "fits"),
    [
        ("a,b", "b", True),
        ("*,!b", "b", False),
        ("!b,*", "b", False),
        ("!b", "a", False),
        ("A*", "abc", True),
    ],
)
def test_lists(text: str, host: str, fits: bool) -> None:
    assert known_hosts.in_list(text, host) is fits


def test_many_stars_cost_no_time() -> None:
    assert not known_hosts.matches_pattern("*" * 5000 + "b", "a" * 200)


@pytest.mark.parametrize(
    ("text", "jumps"),
    [
        ("gate", (JumpHost("gate"),)),
        ("me@gate:22,other", (JumpHost("gate", "me", 22), JumpHost("other"))),
        ("ssh://me@gate:2200", (JumpHost("gate", "me", 2200),)),
        ("a@b@[::1]:7", (JumpHost("::1", "a@b", 7),)),
    ],
)
def test_jumps(text: str, jumps: tuple[JumpHost, ...]) -> None:
    assert parse_jumps(text) == jumps


@pytest.mark.parametrize(
    "text", ["", "a:0", "a:99999", "a:b", "-oProxyCommand=x", "a,,b", "a b:1:2", "me@-x"]
)
def test_what_is_no_jump_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="ProxyJump"):
        parse_jumps(text)


@pytest.mark.parametrize("host", ["a;b", "$(x)", "a b", "-x", "", "a`b", "a\nb", "a|b"])
def test_names_that_a_shell_could_take_for_more_are_refused(host: str) -> None:
    with pytest.raises(ValueError, match="host name"):
        check_host(host)
    with pytest.raises(ValueError, match="user name"):
        check_user(host.replace("a b", "a -b").replace("$(x)", "(x)"))


def test_tokens_and_paths() -> None:
    table = {"%": "%", "d": "/home/me", "h": "box", "p": "22"}
    assert replace_tokens("%h:%p %% %%h", table) == "box:22 % %h"
    assert expand_path("~/.ssh/${KEY}", table, {"KEY": "id"}) == "/home/me/.ssh/id"
    with pytest.raises(ValueError, match="%x"):
        replace_tokens("%x", table)
    with pytest.raises(ValueError, match="NO_SUCH"):
        environment("${NO_SUCH}", {})


def config(folder: Path, text: str) -> Path:
    path = folder / "config"
    path.write_text(text)
    return path


def test_a_private_file_that_others_may_write_to_is_refused(tmp_path: Path) -> None:
    (tmp_path / ".ssh").mkdir()
    path = tmp_path / ".ssh/config"
    path.write_text("Port 1\n")
    env = {**os.environ, "HOME": str(tmp_path), "USER": "me"}
    assert resolve_host(HostRequest("a"), surroundings(env=env)).port == 1
    path.chmod(0o666)
    with pytest.raises(ConfigError, match=f"chmod go-w {path}"):
        resolve_host(HostRequest("a"), surroundings(env=env))


def test_so_is_one_that_a_private_file_includes(tmp_path: Path) -> None:
    (tmp_path / ".ssh").mkdir()
    part = config(tmp_path, "Port 1\n")
    part.chmod(0o666)
    (tmp_path / ".ssh/config").write_text(f"Include {part}\n")
    with pytest.raises(ConfigError, match=f"chmod go-w {part}"):
        resolve_host(HostRequest("a"), surroundings(env={**os.environ, "HOME": str(tmp_path)}))


def test_files_that_include_each_other_end(tmp_path: Path) -> None:
    path = config(tmp_path, f"Include {tmp_path}/config\n")
    with pytest.raises(ConfigError, match="recursive"):
        resolve_host(HostRequest("a"), surroundings(str(path)))


def test_a_command_of_match_exec_that_hangs_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rgt_tui.ssh.ssh_config.SECONDS", 0.2)
    path = config(tmp_path, f'Match exec "echo $$ > {tmp_path}/pid; exec sleep 600"\n  Port 1\n')
    with pytest.raises(ConfigError, match=r"for a: .*did not end.*Match exec"):
        resolve_host(HostRequest("a"), surroundings(str(path)))
    started = tmp_path / "pid"
    if started.exists() and (
        pid := started.read_text().strip()
    ):  # it is ended with the ssh that started it
        until(lambda: not sleeps(pid), "its end")


def sleeps(pid: str) -> bool:
    with contextlib.suppress(OSError):
        return b"sleep" in Path("/proc", pid, "cmdline").read_bytes()
    return False


def test_what_is_not_honoured_is_noted_where_it_applies(tmp_path: Path) -> None:
    text = "Host a\n  PKCS11Provider /x\n  GSSAPIAuthentication no\nHost b\n  ProxyUseFdpass yes\n"
    path = config(tmp_path, text)
    for host, expected in (("a", "pkcs11provider /x"), ("b", "proxyusefdpass yes")):
        (note,) = resolve_host(HostRequest(host), surroundings(str(path))).notes
        assert note == f"{expected} of ssh_config is not supported by rgt"


def test_a_port_that_is_neither_a_number_nor_a_service_is_named(tmp_path: Path) -> None:
    for text in ("no-such-service", "0", "65536", "-1"):
        path = config(tmp_path, f"Host a\n  Port {text}\n")
        with pytest.raises(ConfigError, match=rf"for a: {path} line 2: Bad"):
            resolve_host(HostRequest("a"), surroundings(str(path)))


@pytest.mark.parametrize("named", ["file", "local"])
def test_the_profile_s_user_counts_behind_the_file_s(tmp_path: Path, named: str) -> None:
    path = config(tmp_path, f"Host a\n  User {named}\n")
    around = surroundings(str(path), env={**os.environ, "HOME": str(tmp_path), "LOGNAME": "local"})
    for host, default, user in (
        ("a", "root", named),
        ("b", "root", "root"),
        ("b", "ubuntu", "ubuntu"),
    ):
        assert resolve_host(HostRequest(host, default_user=default), around).user == user


def test_a_user_that_the_file_names_counts_even_where_it_is_the_local_one(tmp_path: Path) -> None:
    me = resolve_host(HostRequest("b"), surroundings(str(config(tmp_path, "Port 1\n")))).user
    around = surroundings(str(config(tmp_path, f"Host a\n  User {me}\n")))
    assert resolve_host(HostRequest("a", default_user="ubuntu"), around).user == me


def test_only_the_first_jump_s_own_way_counts(tmp_path: Path) -> None:
    text = "Host box\n ProxyJump a,b\nHost a\n ProxyJump z\nHost b\n ProxyCommand nothing\n"
    around = surroundings(str(config(tmp_path, text)))
    hops = resolve_route(HostRequest("box"), around)
    assert [hop.alias for hop in hops] == ["z", "a", "b", "box"]
    assert hops[2].proxy_command is None


def test_a_circle_ends_with_its_members(tmp_path: Path) -> None:
    text = "Host box\n ProxyJump a\nHost a\n ProxyJump b\nHost b\n ProxyJump a\n"
    around = surroundings(str(config(tmp_path, text)))
    with pytest.raises(ConfigError, match="box → a → b → a; give"):
        resolve_route(HostRequest("box"), around)
    around = surroundings(str(config(tmp_path, "Host *\n ProxyJump gate\n")))
    with pytest.raises(
        ConfigError, match=r"gate.*(gate → gate|loop via gate); give .*ProxyJump none"
    ):
        resolve_route(HostRequest("box"), around)


@pytest.mark.parametrize("host", ["-oProxyCommand=touch x", "-F/dev/null", "--"])
def test_no_name_of_a_host_becomes_an_option_of_ssh(tmp_path: Path, host: str) -> None:
    around = surroundings(str(config(tmp_path, "Port 1\n")))
    with pytest.raises(ConfigError, match="is not a valid host name"):
        resolve_host(HostRequest(host), around)


def test_where_no_file_is_wanted_nothing_is_run(tmp_path: Path) -> None:
    around = surroundings("none", env={"PATH": str(tmp_path), "HOME": str(tmp_path), "USER": "me"})
    host = resolve_host(HostRequest("Box", port=2222, default_user="root"), around)
    assert (host.host, host.port, host.user, host.notes) == ("box", 2222, "root", ())


def test_a_blank_in_a_known_hosts_file_s_name_is_part_of_it(tmp_path: Path) -> None:
    text = 'UserKnownHostsFile "/with blank/a" "~/two blanks here"\n'
    around = surroundings(str(config(tmp_path, text)))
    first, second = resolve_host(HostRequest("a"), around).user_known_hosts
    assert first == "/with blank/a"
    assert second.endswith("/two blanks here")


def counting(folder: Path) -> dict[str, str]:
    """Return an environment in which ``ssh`` writes down that it was run."""
    real = shutil.which("ssh")
    script = folder / "ssh"
    script.write_text(f'#!/bin/sh\necho . >> {folder}/runs\nexec {real} "$@"\n')
    script.chmod(0o755)
    return {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}"}


def runs(folder: Path) -> int:
    path = folder / "runs"
    return len(path.read_text().split()) if path.exists() else 0


def test_an_answer_is_remembered_as_long_as_no_file_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    env = counting(tmp_path)
    monkeypatch.setenv("PATH", env["PATH"])
    part = tmp_path / "part"
    part.write_text("Port 1\n")
    around = surroundings(str(config(tmp_path, f"Include {part}\n")), env)
    assert [resolve_host(HostRequest("a"), around).port for _ in range(5)] == [1] * 5
    asked = runs(tmp_path)
    part.write_text("Port 12\n")
    assert resolve_host(HostRequest("a"), around).port == 12
    assert runs(tmp_path) == asked + 1
    part.unlink()
    assert resolve_host(HostRequest("a"), around).port == 22


@pytest.mark.parametrize(
    "line",
    [
        'Match exec "test -e {folder}/there"',
        "match host a exec true",
        "Match localnetwork 10.0.0.0/8",
        "CanonicalizeHostname yes",
        "IdentityFile ${HOME}/x",
    ],
)
def test_what_may_change_without_a_file_is_asked_each_time(
    tmp_path: Path, line: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    env = counting(tmp_path)
    monkeypatch.setenv("PATH", env["PATH"])
    around = surroundings(
        str(config(tmp_path, line.replace("{folder}", str(tmp_path)) + "\n")), env
    )
    assert scan_config(around).changing
    for _ in range(2):
        try:
            resolve_host(HostRequest("a"), around)
        except ConfigError as error:
            assert "localnetwork" in str(error)  # an ssh that does not know it
    before = runs(tmp_path)
    with contextlib.suppress(ConfigError):
        resolve_host(HostRequest("a"), around)
    assert runs(tmp_path) == before + 1


def test_a_file_that_comes_under_the_glob_of_an_include_is_seen(tmp_path: Path) -> None:
    env = counting(tmp_path)
    around = surroundings(str(config(tmp_path, f"Include {tmp_path}/part*\n")), env)
    assert resolve_host(HostRequest("a"), around).port == 22
    before = runs(tmp_path)
    assert resolve_host(HostRequest("a"), around).port == 22 and runs(tmp_path) == before
    (tmp_path / "part1").write_text("Port 2201\n")
    assert resolve_host(HostRequest("a"), around).port == 2201
    (tmp_path / "part1").unlink()
    assert resolve_host(HostRequest("a"), around).port == 22


def test_hosts_that_no_line_tells_apart_are_asked_for_together(tmp_path: Path) -> None:
    env = counting(tmp_path)
    text = (
        "Host gate !gate2 gpu-??\n  Port 7\nHost *\n  HashKnownHosts yes\n  ServerAliveInterval 9\n"
    )
    around = surroundings(str(config(tmp_path, text)), env)
    resolve_host(HostRequest("first"), around)
    before = runs(tmp_path)
    for number in range(20):
        hop = resolve_host(
            HostRequest(f"10.0.0.{number}", port=2000 + number, user=f"u{number}"), around
        )
        assert (hop.host, hop.port, hop.user) == (f"10.0.0.{number}", 2000 + number, f"u{number}")
        assert hop.alive_interval == 9.0 and hop.hash_known_hosts
    assert runs(tmp_path) == before + 1, "one more: with a port and a user"
    for host in ("gate", "gate2", "gpu-17", "Upper", "a%b"):
        seen = runs(tmp_path)
        assert resolve_host(HostRequest(host), around).port == (
            7 if host in ("gate", "gpu-17") else 22
        )
        assert runs(tmp_path) == seen + 1, f"{host} may be meant by a line"


@pytest.mark.parametrize(
    "line",
    [
        "Match host b\n  Port 7",
        "HostName %h.example.org",
        "ControlPath /tmp/%C",
        "UserKnownHostsFile /kh/%n",
        "ProxyJump gate",
    ],
)
def test_where_a_value_is_made_from_the_host_each_is_asked_for(tmp_path: Path, line: str) -> None:
    env = counting(tmp_path)
    around = surroundings(str(config(tmp_path, f"{line}\n")), env)
    told = {host: resolve_host(HostRequest(host, port=9), around) for host in ("a", "b")}
    assert runs(tmp_path) >= 2
    if line.startswith("HostName"):
        assert told["b"].host == "b.example.org"
    if line.startswith("UserKnown"):
        assert told["b"].user_known_hosts == ("/kh/b",)


def test_tokens_that_ssh_leaves_as_they_are_stand_for_each_host(tmp_path: Path) -> None:
    around = surroundings(str(config(tmp_path, "ProxyCommand nc %h %p\n")), counting(tmp_path))
    told = {host: resolve_host(HostRequest(host, port=9), around) for host in ("a", "b")}
    assert runs(tmp_path) == 1, "one answer for both"
    assert [told[host].proxy_command for host in "ab"] == ["nc a 9", "nc b 9"]


def test_what_cannot_change_is_told_from_it(tmp_path: Path) -> None:
    text = "# Match exec x ${HOME}\nCanonicalizeHostname no\nMatch host exec,b\n  Port 1\n"
    assert scan_config(
        surroundings(str(config(tmp_path, text)))
    ).changing  # a host called exec: asked once too often
    text = text.replace("exec,b", "b")
    assert not scan_config(surroundings(str(config(tmp_path, text)))).changing


def test_without_ssh_asyncssh_reads_the_file_and_says_so(tmp_path: Path) -> None:
    text = "Host a\n  HostName 10.0.0.7\n  User carol\n  ProxyJump gate\n  IdentityFile ~/.ssh/one\n  Port 7\n"
    env = {"PATH": str(tmp_path), "HOME": str(tmp_path), "USER": "me"}
    around = surroundings(str(config(tmp_path, text)), env)
    host = resolve_host(HostRequest("a", default_user="root"), around)
    assert (host.host, host.user, host.port, host.jumps) == (
        "10.0.0.7",
        "carol",
        7,
        (JumpHost("gate"),),
    )
    assert host.identities[0].endswith("/.ssh/one")
    assert host.notes == (NO_SSH,)
    other = resolve_host(HostRequest("b", default_user="root"), around)
    assert (other.host, other.user, other.port, other.identities_given) == ("b", "root", 22, False)
    with pytest.raises(ConfigError, match="Port"):
        resolve_host(HostRequest("a"), surroundings(str(config(tmp_path, "Port x\n")), env))


def test_an_ssh_that_has_no_g_is_as_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = tmp_path / "ssh"
    other.write_text("#!/bin/sh\necho 'Dropbear SSH client: unknown option -G' >&2\nexit 1\n")
    other.chmod(0o755)
    around = surroundings(
        str(config(tmp_path, "Host a\n  Port 7\n")), {**os.environ, "PATH": str(tmp_path)}
    )
    monkeypatch.setenv("PATH", str(tmp_path))
    default_settings.cache_clear()
    host = resolve_host(HostRequest("a"), around)
    assert (host.port, host.notes) == (7, (NO_SSH,))
    monkeypatch.undo()
    assert default_settings()


def test_doctor_says_who_read_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / ".ssh").mkdir()
    (tmp_path / ".ssh/config").write_text(
        "Host a b\n  ProxyUseFdpass yes\nHost *\n  ProxyUseFdpass yes\n"
    )
    monkeypatch.setenv("HOME", str(tmp_path))
    found = check_ssh_config()
    assert found.status is DoctorStatus.OK
    assert "2 hosts named" in found.text
    assert "proxyusefdpass yes of ssh_config is not supported by rgt" in found.text
    monkeypatch.setenv("PATH", str(tmp_path))
    found = check_ssh_config()
    assert found.status is DoctorStatus.WARN
    assert "read by asyncssh" in found.text


def test_a_line_for_who_stands_for_all_hosts_means_that_one_alone(tmp_path: Path) -> None:
    around = surroundings(str(config(tmp_path, "Host rgt-*\n  Port 7\n")), counting(tmp_path))
    assert resolve_host(HostRequest("a"), around).port == 22
