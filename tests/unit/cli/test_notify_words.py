"""What `rgt notify` makes of an agent's answer: words, in which nothing acts on the terminal; and what it reads."""

from __future__ import annotations

import io
import json
import sys

import pytest

from rgt_tui.cli.autostop import notify


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
    assert notify._answer_text(json.dumps(answer)) == words


@pytest.mark.parametrize(
    "answer",
    [
        {"set": True, "host": "a\x1b]52;c;cm0gLXJmIH4=\x07b", "kind": "json\x1b[2J"},
        {"set": True, "host": "a", "kind": "\x9b31mjson"},
        {"text": "sent\x1b[2J\x1b[H\rnothing"},
    ],
)
def test_what_json_has_escaped_does_not_act_on_the_terminal(answer: dict[str, object]) -> None:
    assert notify._answer_text(json.dumps(answer)).isprintable()


def test_an_answer_that_nests_without_end_stands_as_it_is() -> None:
    text = '{"text":' * 100_000
    assert notify._answer_text(text) == text


@pytest.mark.parametrize(
    ("given", "what"),
    [
        (f"https://hooks.example/{'x' * 5000}\n", "address"),
        (f"https://hooks.example/{'x' * 5000}\ntoken\n", "address"),
        (f"https://hooks.example/\n{'x' * 5000}\n", "token"),
    ],
)
def test_the_rest_of_a_long_line_is_not_read_as_the_token(
    monkeypatch: pytest.MonkeyPatch, given: str, what: str
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO(given))
    with pytest.raises(ValueError, match=f"the {what} on standard input is longer than 4,096 char"):
        notify._read_address(True)


def test_address_and_token_are_a_line_each(monkeypatch: pytest.MonkeyPatch) -> None:
    longest = "https://hooks.example/".ljust(4095, "x")
    monkeypatch.setattr(sys, "stdin", io.StringIO(f"{longest}\ntoken"))
    address, token = notify._read_address(True)
    assert token is not None
    assert (address.reveal(), token.reveal()) == (longest, "token")
