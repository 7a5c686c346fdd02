"""The frame of the command line: the table, what is loaded when, help, exit statuses."""

from __future__ import annotations

import argparse
import gc
import json
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import cast

import pytest

from rgt_tui.cli import arguments, commands, entry
from tests.system.tree import ROOT

HEAVY = (
    "asyncssh",
    "httpx",
    "numpy",
    "textual",
    "rich",
    "torch",
    "cryptography",
    "argcomplete",
    "asyncio",
    "msgspec",
)
LOADED = """
import contextlib, json, sys
from rgt_tui.cli.entry import parse_command_line
with contextlib.suppress(SystemExit):  # of a command that wants arguments
    parse_command_line(sys.argv[1:])
print(json.dumps(sorted(name for name in sys.modules if "." not in name or name.startswith("rgt_tui."))))
"""


def loaded(*words: str) -> set[str]:
    done = subprocess.run(
        [sys.executable, "-c", LOADED, *words], capture_output=True, text=True, check=True
    )
    return set(json.loads(done.stdout))


@pytest.mark.parametrize("command", ["", *commands.COMMANDS])
def test_nothing_heavy_is_loaded_before_the_command_runs(command: str) -> None:
    modules = loaded(*([command] if command else []))
    assert modules & set(HEAVY) == set()
    light = {
        "rgt_tui.cli.arguments"
    }  # what every parser shares; the completion of shells runs from there
    assert modules & ({commands.module_name(name) for name in commands.COMMANDS} - light) == set()


@pytest.mark.parametrize("command", commands.COMMANDS)
def test_every_help_has_an_example_and_the_exit_statuses(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        entry.parse_command_line([command, "--help"])
    assert ended.value.code == 0
    text = capsys.readouterr().out
    assert re.search(rf"examples?:\n  .*rgt {command}\b", text)
    for code, meaning in commands.list_statuses(command):
        assert f"  {code}  {meaning}\n" in text


def test_every_command_is_in_every_table() -> None:
    for name in commands.COMMANDS:
        assert arguments.arguments_of(name).examples
        assert callable(commands.find_runner(name))


def test_help_lists_every_command_once_in_its_group(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        entry.parse_command_line(["--help"])
    text = capsys.readouterr().out
    heads = re.findall(r"^([A-Z]\w+(?: \w+)?):$", text, re.MULTILINE)
    assert heads == [
        group
        for group in commands.GROUPS
        if any(c.group == group for c in commands.COMMANDS.values())
    ]
    for name, command in commands.COMMANDS.items():
        assert len(re.findall(rf"^  {name} +{re.escape(command.brief)}$", text, re.MULTILINE)) == 1
        section = text.partition(f"\n{command.group}:\n")[2].partition("\n\n")[0]
        assert re.search(rf"^  {name} ", section, re.MULTILINE)


def test_the_documents_have_every_command_and_every_exit_status() -> None:
    text = (ROOT / "docs" / "commands.md").read_text(encoding="utf-8")
    rows = {
        match[1] or "": match[0]
        for match in re.finditer(r"^\| `rgt(?: ([a-z-]+))?[ `][^\n]*$", text, re.MULTILINE)
    }
    for command in ("rgt", *commands.COMMANDS):
        row = rows["" if command == "rgt" else command]
        cell = row.rstrip(" |").rpartition("|")[2]
        assert re.findall(r"(?:^|; )\s*(\d+)\b", cell.strip()) == [
            str(code) for code, _ in commands.list_statuses(command)
        ], row


def parsers(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    yield parser
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for below in action.choices.values():
                yield from parsers(below)


def test_every_option_is_explained() -> None:
    bare = [
        (parser.prog, action.dest)
        for parser in parsers(entry.build_parser())
        for action in parser._actions
        if not action.help and not isinstance(action, argparse._SubParsersAction)
    ]
    assert bare == []


def run(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "rgt_tui.cli.entry", *words]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_a_mistyped_command_is_answered_with_the_nearest_one() -> None:
    done = run("stauts")
    assert (done.returncode, done.stdout) == (2, "")
    assert "did you mean 'status'?" in done.stderr


def test_the_fleet_file_may_be_named_before_the_command_and_behind_it() -> None:
    for words in (
        ["--fleet", "x.toml", "status"],
        ["status", "--fleet", "x.toml"],
        ["--fleet=x.toml", "status"],
    ):
        done = run(*words)
        assert (done.returncode, "cannot read x.toml" in done.stderr) == (2, True), done.stderr
    assert entry.parse_command_line(["--fleet", "a", "status", "--fleet", "b"]).fleet == "b"


def test_a_value_that_is_called_like_a_command_is_no_command() -> None:
    assert entry.parse_command_line(["--fleet", "status"]).command is None
    assert entry.parse_command_line(["--fleet", "status", "watch"]).command == "watch"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["status", "--timeout", "-1"], "is not a time such as 90s, 30m"),
        (["status", "--timeout", "nan"], "is not a time such as 90s, 30m"),
        (["logs", "a", "--lines", "-3"], "not a whole number"),
        (["logs", "a", "--lines", "3", "--from-start"], "not allowed with"),
        (["logs"], "BOX"),
        (["completion", "tcsh"], "invalid choice"),
    ],
)
def test_wrong_command_lines_end_with_2(words: list[str], said: str) -> None:
    done = run(*words)
    assert (done.returncode, said in done.stderr) == (2, True), done.stderr


def test_nobody_looks_for_garbage_before_a_command_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[bool] = []
    frozen: list[bool] = []
    parse = entry.parse_command_line

    def parsed(words: list[str]) -> arguments.Arguments:
        looked.append(gc.isenabled())
        return cast(arguments.Arguments, parse(words))

    def run(_: arguments.Arguments) -> int:
        looked.append(gc.isenabled())
        return 0

    monkeypatch.setattr(entry, "parse_command_line", parsed)

    def loaded(name: str) -> Callable[[arguments.Arguments], int]:
        looked.append(gc.isenabled())
        return run

    monkeypatch.setattr(entry, "find_runner", loaded)
    monkeypatch.setattr(gc, "freeze", lambda: frozen.append(gc.isenabled()))
    assert entry.main(["status"]) == 0
    assert looked == [False, False, True]
    assert frozen == [], "who calls it from a program of their own has their garbage looked for"
    monkeypatch.setattr(sys, "argv", ["rgt", "status"])
    assert entry.main() == 0
    assert frozen == [False], (
        "all that the process has loaded, and nothing of what the command makes"
    )
    with pytest.raises(SystemExit):
        entry.main(["status", "--no-such-option"])
    assert gc.isenabled()


def test_a_reader_that_has_gone_away_is_no_traceback() -> None:
    script = f"{shlex.quote(sys.executable)} -m rgt_tui.cli.entry --help | true"
    done = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=False)
    assert done.stderr == ""


def test_a_path_on_a_box_is_read_without_a_fleet() -> None:
    script = "import json, sys, rgt_tui.cli.logs; print(json.dumps(sorted(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    modules = set(json.loads(done.stdout))
    assert "rgt_tui.fleet.box_logs" in modules
    assert (
        modules & {"rgt_tui.fleet.engine", "rgt_tui.health", "rgt_tui.store", "rgt_tui.handbook"}
        == set()
    )


OPENED = """
import json, sys
from pathlib import Path
from typing import cast
from rgt_tui.cli import dashboard
from rgt_tui.cli.entry import parse_command_line
from rgt_tui.cli.opening import open_fleet
open_fleet(parse_command_line(["--fleet", sys.argv[1]]))
print(json.dumps(sorted(sys.modules)))
"""


def test_the_dashboard_reads_its_fleet_file_without_anything_heavy(tmp_path: Path) -> None:
    """It does so before the first frame, because what is wrong with the file is told on the terminal."""
    fleet = tmp_path / "rgt.toml"
    fleet.write_text('[boxes.lab]\nhost = "x"\n[boxes.twin]\nhost = "x"\n')
    done = subprocess.run(
        [sys.executable, "-c", OPENED, str(fleet)], capture_output=True, text=True, check=True
    )
    assert "twin is the same host" in done.stderr
    assert (
        set(json.loads(done.stdout))
        & {"asyncssh", "httpx", "numpy", "textual", "asyncio", "sqlite3"}
        == set()
    )


class Base(arguments.Arguments):
    box: str = arguments.positional("BOX", "which")
    fleet = arguments.text_option("FILE", "a file")
    timeout = arguments.option("N", int, "seconds", default=20)


class Derived(Base):
    one_of = ("verb quiet",)
    paths: list[str] = arguments.positional("PATH", "files", nargs="*")
    verb: str | None = arguments.flag_choice(park="stop", destroy="end")
    quiet = arguments.flag("say nothing")
    timeout = arguments.option("N", int, "seconds", default=60)
    checks = arguments.flag("do not check", "--no-check", initial=True)


def derived(*words: str) -> Derived:
    parser = argparse.ArgumentParser(exit_on_error=False)
    Derived.fill_parser(parser)
    return parser.parse_args(words, Derived())


def test_arguments_come_in_the_order_of_the_help_with_their_initial_values() -> None:
    order = ["box", "paths", "verb", "quiet", "timeout", "checks", "fleet"]
    assert list(Derived.list_declared()) == order
    assert vars(derived("lab")) == {
        "box": "lab", "paths": [], "verb": None, "quiet": False, "timeout": 60, "checks": True, "fleet": None,
        "words": [],
    }  # fmt: skip
    assert Derived(quiet=True).quiet


def test_a_command_line_fills_in_the_arguments() -> None:
    found = derived("lab", "a", "b", "--destroy", "--no-check", "--timeout", "7")
    assert (found.paths, found.verb, found.checks, found.timeout) == (
        ["a", "b"],
        "destroy",
        False,
        7,
    )
    with pytest.raises(argparse.ArgumentError, match="not allowed with argument"):
        derived("lab", "--park", "--quiet")
