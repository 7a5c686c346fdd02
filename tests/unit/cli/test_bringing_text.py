"""What `rgt push` and `rgt secret` say and ask: how far it is, what stayed here, a value without an echo."""

from __future__ import annotations

import getpass
import io
import sys

import pytest

from rgt_tui.cli.set_up.push_to_box import (
    MOST_SHOWN,
    describe_push,
    list_push_warnings,
    progress_text,
)
from rgt_tui.cli.set_up.secrets_and_mirrors import read_value
from rgt_tui.fleet.pushes import PushResult
from rgt_tui.transfer import ExcludedPath


def arrived(**over: object) -> PushResult:
    told = {
        "kind": "code",
        "name": "exp",
        "path": "/data/exp-1",
        "digest": "a" * 64,
        "files": 2,
        "bytes": 2000,
    }
    return PushResult(**{**told, **over})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("done", "seconds", "text"),
    [
        (0, 5.0, "0 B of 100 MB"),
        (50_000_000, 0.2, "50.0 MB of 100 MB"),
        (50_000_000, 10.0, "50.0 MB of 100 MB, 5.0 MB/s, 10s left"),
        (100_000_000, 20.0, "100 MB of 100 MB, 5.0 MB/s, 0s left"),
    ],
)
def test_how_far_it_is(done: int, seconds: float, text: str) -> None:
    assert progress_text(done, 100_000_000, seconds) == text


def test_every_secret_that_stayed_here_is_named_and_the_rest_is_counted() -> None:
    others = tuple(ExcludedPath(f"cache{number}", "cache") for number in range(20))
    secrets = tuple(
        ExcludedPath(f"{number}.pem", "by its name (*.pem)", secret=True) for number in range(12)
    )
    found = describe_push("lab", arrived(left_out=others + secrets))
    assert sum(".pem" in line for line in found) == 12 and found[-1].endswith(
        "20 more (--json names all)"
    )
    few = describe_push("lab", arrived(left_out=others))
    assert sum("cache" in line for line in few) == MOST_SHOWN
    (said,) = list_push_warnings(arrived(left_out=secrets))
    assert "12 files left out that look like a secret" in said and "--include-secrets" in said
    assert (
        list_push_warnings(arrived()) == []
        and list_push_warnings(arrived(windows=("run.sh",), mended=True)) == []
    )


def test_a_value_is_typed_without_an_echo(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def typed(prompt: str) -> str:
        asked.append(prompt)
        return "typed"

    monkeypatch.setattr(sys.stdin, "isatty", lambda: True, raising=False)
    monkeypatch.setattr(getpass, "getpass", typed)
    value = read_value("HF_TOKEN")
    assert (
        value is not None
        and value.reveal() == "typed"
        and asked == ["HF_TOKEN: "]
        and "typed" not in repr(value)
    )


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        (b"a\n", "a"),
        (b"a\r\n", "a"),
        (b"a\n\n", "a\n"),
        (b" a ", " a "),
        (b"\n", None),
        (b"", None),
    ],
)
def test_one_line_end_is_taken_off(
    monkeypatch: pytest.MonkeyPatch, given: bytes, kept: str | None
) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(given)))
    value = read_value("A")
    assert (None if value is None else value.reveal()) == kept
