"""What `rgt notify` makes of an agent's answer: words, in which nothing acts on the terminal."""

from __future__ import annotations

import json

import pytest

from rgt_tui.cli.autostop.notify import _answer_text


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ({"set": False}, "it has no address to notify"),
        (
            {"set": True, "host": "hooks.example", "kind": "json"},
            "it notifies hooks.example (json)",
        ),
        ({"text": "sent"}, "sent"),
    ],
)
def test_an_answer_is_said_in_words(answer: dict[str, object], words: str) -> None:
    assert _answer_text(json.dumps(answer)) == words


@pytest.mark.parametrize(
    "answer",
    [
        {"set": True, "host": "a\x1b]52;c;cm0gLXJmIH4=\x07b", "kind": "json\x1b[2J"},
        {"set": True, "host": "a", "kind": "\x9b31mjson"},
        {"text": "sent\x1b[2J\x1b[H\rnothing"},
    ],
)
def test_what_json_has_escaped_does_not_act_on_the_terminal(answer: dict[str, object]) -> None:
    assert _answer_text(json.dumps(answer)).isprintable()


def test_an_answer_that_nests_without_end_stands_as_it_is() -> None:
    text = '{"text":' * 100_000
    assert _answer_text(text) == text
