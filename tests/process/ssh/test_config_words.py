"""Lines, patterns, tokens and jumps of ssh_config."""

from __future__ import annotations

import fnmatch
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rgt_tui.ssh.config import patterns, tokens, words
from rgt_tui.ssh.config.errors import ConfigError
from rgt_tui.ssh.config.host import Jump, check_host, check_user
from rgt_tui.ssh.config.jumps import parse_jumps
from rgt_tui.ssh.config.resolve import Wanted, resolve, surroundings
from rgt_tui.ssh.config.route import route

PLAIN = st.text("ab.-1*?", min_size=1, max_size=8)


@given(st.lists(st.text("abc 'x#=\\", min_size=1, max_size=6), min_size=1, max_size=4))
def test_quoted_words_come_back_as_they_are(given_words: list[str]) -> None:
    line = " ".join('"' + word.replace("\\", "\\\\").replace('"', '\\"') + '"' for word in given_words)
    assert words.arguments(line + "  # and a comment") == given_words


@given(st.text(max_size=60))
def test_no_line_breaks_the_reader(line: str) -> None:
    name, rest = words.keyword(line)
    assert name == name.lower()
    try:
        words.arguments(rest)
    except ValueError as error:
        assert "quote" in str(error)


@given(PLAIN, st.text("ab.-1", max_size=8))
def test_a_pattern_means_what_a_shell_means_by_it(pattern: str, text: str) -> None:
    assert patterns.matches(pattern, text) == bool(re.fullmatch(fnmatch.translate(pattern), text))


@pytest.mark.parametrize(
    ("text", "host", "fits"),
    [("a,b", "b", True), ("*,!b", "b", False), ("!b,*", "b", False), ("!b", "a", False), ("A*", "abc", True)],
)
def test_lists(text: str, host: str, fits: bool) -> None:
    assert patterns.in_list(text, host, lower=True) is fits


def test_many_stars_cost_no_time() -> None:
    assert not patterns.matches("*" * 5000 + "b", "a" * 200)


@pytest.mark.parametrize(
    ("text", "jumps"),
    [
        ("gate", (Jump("gate"),)),
        ("me@gate:22,other", (Jump("gate", "me", 22), Jump("other"))),
        ("ssh://me@gate:2200", (Jump("gate", "me", 2200),)),
        ("a@b@[::1]:7", (Jump("::1", "a@b", 7),)),
    ],
)
def test_jumps(text: str, jumps: tuple[Jump, ...]) -> None:
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
    assert tokens.percent("%h:%p %% %%h", table) == "box:22 % %h"
    assert tokens.path("~/.ssh/${KEY}", table, {"KEY": "id"}) == "/home/me/.ssh/id"
    with pytest.raises(ValueError, match="%x"):
        tokens.percent("%x", table)
    with pytest.raises(ValueError, match="NO_SUCH"):
        tokens.environment("${NO_SUCH}", {})


def config(folder: Path, text: str) -> Path:
    path = folder / "config"
    path.write_text(text)
    return path


def test_a_private_file_that_others_may_write_to_is_refused(tmp_path: Path) -> None:
    (tmp_path / ".ssh").mkdir()
    path = tmp_path / ".ssh/config"
    path.write_text("Port 1\n")
    env = {"HOME": str(tmp_path), "USER": "me"}
    assert resolve(Wanted("a"), surroundings(env=env)).port == 1
    path.chmod(0o666)
    with pytest.raises(ConfigError, match=f"chmod go-w {path}"):
        resolve(Wanted("a"), surroundings(env=env))


def test_files_that_include_each_other_end(tmp_path: Path) -> None:
    path = config(tmp_path, f"Include {tmp_path}/config\n")
    with pytest.raises(ConfigError, match="include each other"):
        resolve(Wanted("a"), surroundings(str(path)))


def test_a_command_of_match_exec_that_hangs_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rgt_tui.ssh.config.conditions.EXEC_SECONDS", 0.2)
    path = config(tmp_path, 'Match exec "exec sleep 60"\n  Port 1\n')
    with pytest.raises(ConfigError, match=rf"{path}:1: match: .*did not end"):
        resolve(Wanted("a"), surroundings(str(path)))


def test_what_is_not_honoured_is_noted_where_it_applies(tmp_path: Path) -> None:
    text = "Host a\n  PKCS11Provider x\n  GSSAPIAuthentication no\nHost b\n  ProxyUseFdpass yes\n"
    path = config(tmp_path, text)
    for host, expected in (("a", "2: pkcs11provider"), ("b", "5: proxyusefdpass")):
        (note,) = resolve(Wanted(host), surroundings(str(path))).notes
        assert note == f"{path}:{expected} is not honoured by rgt"


def test_a_port_that_is_neither_a_number_nor_a_service_is_named(tmp_path: Path) -> None:
    for text in ("no-such-service", "0", "65536", "-1"):
        path = config(tmp_path, f"Host a\n  Port {text}\n")
        with pytest.raises(ConfigError, match=rf"{path}:2: port: '{text}' is no port"):
            resolve(Wanted("a"), surroundings(str(path)))


def test_the_profile_s_user_counts_behind_the_file_s(tmp_path: Path) -> None:
    path = config(tmp_path, "Host a\n  User file\n")
    around = surroundings(str(path), env={"HOME": str(tmp_path), "USER": "local"})
    for host, default, user in (("a", "root", "file"), ("b", "root", "root"), ("b", None, "local")):
        assert resolve(Wanted(host, default_user=default), around).user == user


def test_only_the_first_jump_s_own_way_counts(tmp_path: Path) -> None:
    text = "Host box\n ProxyJump a,b\nHost a\n ProxyJump z\nHost b\n ProxyCommand nothing\n"
    around = surroundings(str(config(tmp_path, text)))
    hops = route(Wanted("box"), around)
    assert [hop.alias for hop in hops] == ["z", "a", "b", "box"]
    assert hops[2].proxy_command is None


def test_a_circle_ends_with_its_members(tmp_path: Path) -> None:
    around = surroundings(str(config(tmp_path, "Host *\n ProxyJump gate\n")))
    with pytest.raises(ConfigError, match="box → gate → gate"):
        route(Wanted("box"), around)
