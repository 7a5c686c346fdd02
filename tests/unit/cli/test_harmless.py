"""What boxes say, on its way to a terminal: plain text without anything a terminal obeys, JSON exact and harmless."""

from __future__ import annotations

import json

import pytest

from rgt_tui.cli import json_line, print_error
from rgt_tui.cli.set_up.box_files import job_settings, print_pushed
from rgt_tui.model import BoxSpec, clean_text
from rgt_tui.ssh import DeployedTrainer

HOSTILE = "a\x1b]52;c;aGk=\x07b\x9b2Jc\u202etxt.exe\x7f\u2066\ufeff\U000e0041 你好 é"


def test_json_is_exact_and_has_nothing_that_a_terminal_obeys() -> None:
    line = json_line({"text": HOSTILE, "path": [HOSTILE]}).decode()
    assert json.loads(line) == {"text": HOSTILE, "path": [HOSTILE]}
    assert line.endswith("\n") and clean_text(line[:-1]) == line[:-1]
    assert "你好 é" in line


def test_no_name_that_an_error_quotes_makes_a_line_that_could_be_rgt_s_own(
    capsys: pytest.CaptureFixture[str],
) -> None:
    print_error("/tmp/x\nrgt: the meter is off\n     an advice of ours: not a regular file")
    assert capsys.readouterr().err == (
        "rgt: /tmp/x\n     rgt: the meter is off\n     an advice of ours: not a regular file\n"
    )


@pytest.mark.parametrize("as_json", [False, True])
def test_what_a_box_names_is_harmless_when_push_prints_it(
    as_json: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    pushed = DeployedTrainer(
        box="lab",
        path=HOSTILE,
        sha256="0" * 64,
        python=HOSTILE,
        torch=None,
        launch=HOSTILE,
        library=HOSTILE,
    )
    print_pushed(pushed, job_settings(pushed, BoxSpec("lab", "h")), as_json)
    said = capsys.readouterr()
    for line in (*said.out.splitlines(), *said.err.splitlines()):
        assert clean_text(line) == line
    assert not as_json or json.loads(said.out)["path"] == HOSTILE
