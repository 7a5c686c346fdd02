"""What all verbs have in common."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from rgt_box import __main__ as entry

from tests.process.box.harness import Agent

VERBS = [
    "queue",
    "detach",
    "manifest",
    "reconcile",
    "mirror",
    "grep",
    "results",
    "seal",
    "unseal",
    "autostop",
    "sink",
]
DOC = Path(__file__).parents[3] / "docs" / "agent.md"


@pytest.mark.parametrize("verb", VERBS)
def test_help_has_an_example_and_the_exit_statuses(agent: Agent, verb: str) -> None:
    done = agent.run(verb, "--help")
    text = done.stdout.decode()
    assert (done.returncode, done.stderr) == (0, b"")
    assert text.startswith(f"usage: {verb}")
    assert f"Example: {verb} " in text
    assert "Exit status" in text
    assert max(map(len, text.splitlines())) <= 120


@pytest.mark.parametrize("verb", sorted(entry.VERBS))
def test_every_verb_is_described(verb: str) -> None:
    assert re.search(rf"^\| `{verb}[ `]", DOC.read_text(), re.MULTILINE), verb


def test_a_verb_whose_module_is_not_packed_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(entry.VERBS, "reap", ("rgt_box.commands.not_there", "x"))
    assert entry.main(["reap"]) == 2
    assert (
        "reap: this agent was built without that verb (no module rgt_box.commands.not_there)"
        in capsys.readouterr().err
    )
    monkeypatch.setitem(entry.VERBS, "reap", ("rgt_box.nowhere.at_all", "x"))
    assert entry.main(["reap"]) == 2


@pytest.mark.parametrize("verb", VERBS)
def test_unknown_options_exit_2(agent: Agent, verb: str) -> None:
    words = ["run", "--nope"] if verb == "queue" else ["--nope"]
    done = agent.run(verb, *words)
    assert (done.returncode, b"unknown argument: --nope" in done.stderr) == (2, True)
