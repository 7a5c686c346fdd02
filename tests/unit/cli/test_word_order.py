"""Words of a command may stand behind its options, where people put them as well."""

from __future__ import annotations

import pytest

from rgt_tui.cli import parse_command_line


@pytest.mark.parametrize(
    ("line", "name", "expected"),
    [
        ("pull lab --dest d /p /q", "paths", ["/p", "/q"]),
        ("pull lab /p --json /q", "paths", ["/p", "/q"]),
        ("status a --json b", "boxes", ["a", "b"]),
        ("logs lab --raw /p", "log", "/p"),
        ("mute --off lab", "box", "lab"),
        ("mute lab --off idle-gpu", "what", "idle-gpu"),
        ("triage a --json b", "files", ["a", "b"]),
        ("grep lab x --max 3 /p", "paths", ["/p"]),
        ("queue lab add --job j word", "rest", ["word"]),
    ],
)
def test_they_are_the_same_words(line: str, name: str, expected: object) -> None:
    assert getattr(parse_command_line(line.split()), name) == expected


@pytest.mark.parametrize(
    "line",
    [
        "mute a b --off c",
        "logs lab /p --raw /q",
        "logs lab --raw /p /q",
        "pull lab --json /p --oops",
        "audit --json x",
    ],
)
def test_what_is_too_much_is_refused(line: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        parse_command_line(line.split())
    assert ended.value.code == 2
    said = capsys.readouterr().err
    command = line.split()[0]
    assert said.startswith(f"usage: rgt {command} ")  # that of the command: it shows what there is
    assert f"\nrgt {command}: error: unrecognized arguments: " in said
