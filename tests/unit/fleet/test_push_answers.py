"""What a box answers to a push is held against what was pushed: a box that lies gets nothing else."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, cast

import asyncssh
import msgspec
import pytest

from rgt_tui.fleet.pushes import PushChoice, PushRefused, pushing, versions_of
from rgt_tui.model import BoxSpec, clean_text
from rgt_tui.profiles import load_profile
from rgt_tui.ssh import CommandFailed, DeployedAgent, RemoteCommandResult
from rgt_tui.transfer import IgnoreRules, read_tree

BOX = cast("asyncssh.SSHClientConnection", object())
AGENT = DeployedAgent("/usr/bin/python3", "/root/.cache/rgt/rgt-box.pyz")
ROOM = {
    "needed_bytes": 10,
    "needed_inodes": 5,
    "free_bytes": 100,
    "free_inodes": None,
    "mount": "/",
}
PLAN = {"staging": "/data/.rgt-push/in-x", "place": "/data", "wanted": [], "room": ROOM}
ESCAPE = "\x1b]52;c;aGk=\x07"


def answered(
    monkeypatch: pytest.MonkeyPatch, *bodies: Any, status: int = 0, words: str = ""
) -> None:
    waiting = list(bodies)

    async def run(*_: object, **__: object) -> RemoteCommandResult:
        body = waiting.pop(0)
        return RemoteCommandResult(
            status, body if isinstance(body, bytes) else msgspec.json.encode(body), words
        )

    monkeypatch.setattr(pushing, "run_command", run)


def push(top: Path, **choice: Any) -> pushing.PushResult:
    return asyncio.run(
        pushing.push_tree(
            BOX, AGENT, load_profile("autodl"), top, PushChoice(**{"dry_run": True, **choice})
        )
    )


@pytest.fixture
def top(tmp_path: Path) -> Path:
    (tmp_path / "exp").mkdir()
    (tmp_path / "exp" / "a.py").write_text("print(1)\n")
    (tmp_path / "exp" / "b.bin").write_text("x" * 500)
    return tmp_path / "exp"


@pytest.mark.parametrize(
    "body",
    [
        b"", b"garbage", b"[]", b'{"staging": 1}', {**PLAN, "wanted": [["f" * 64, 0]]}, {**PLAN, "staging": "relative"},
        {**PLAN, "staging": "/data/" + ESCAPE}, {**PLAN, "room": None}, {**PLAN, "wanted": [["../../x", 0]]},
    ],
)  # fmt: skip
def test_an_answer_that_makes_no_sense_is_not_used(
    monkeypatch: pytest.MonkeyPatch, top: Path, body: Any
) -> None:
    answered(monkeypatch, body)
    with pytest.raises(CommandFailed) as error:
        push(top)
    assert clean_text(str(error.value)) == str(error.value) and not isinstance(
        error.value, PushRefused
    )


@pytest.mark.parametrize("have", [-1, 10**9])
def test_no_byte_outside_of_a_file_is_sent(
    monkeypatch: pytest.MonkeyPatch, top: Path, have: int
) -> None:
    tree = read_tree(top, IgnoreRules())
    answered(monkeypatch, {**PLAN, "wanted": [[tree.files[0].sha256, have]]})
    with pytest.raises(CommandFailed, match="not pushed"):
        push(top)


def test_what_does_not_fit_is_refused_with_figures_and_a_way(
    monkeypatch: pytest.MonkeyPatch, top: Path
) -> None:
    answered(monkeypatch, {**PLAN, "room": {**ROOM, "needed_bytes": 509, "free_bytes": 100}})
    with pytest.raises(
        PushRefused, match=r"509 B needed, 100 B free; it would fit without b\.bin \(500 B\)"
    ):
        push(top)
    answered(monkeypatch, {**PLAN, "room": {**ROOM, "free_inodes": 4}})
    with pytest.raises(PushRefused, match="5 needed, 4 free"):
        push(top)
    answered(monkeypatch, {**PLAN, "room": {**ROOM, "error": "no answer" + ESCAPE}})
    with pytest.raises(PushRefused, match=r"is unknown: no answer$"):
        push(top)
    answered(monkeypatch, {**PLAN, "blocked": "in the way" + ESCAPE})
    with pytest.raises(PushRefused, match=r"in the way$"):
        push(top)


def test_names_from_the_box_are_harmless(monkeypatch: pytest.MonkeyPatch, top: Path) -> None:
    answered(monkeypatch, {**PLAN, "refused": [["a" + ESCAPE, "open" + ESCAPE]]})
    assert push(top).refused == (("a", "open"),)
    row = {
        "path": "/x" + ESCAPE,
        "name": ESCAPE,
        "version": "v",
        "files": 1,
        "bytes": 1,
        "current": False,
        "kept": ESCAPE,
    }
    answered(
        monkeypatch,
        {
            "place": "/data" + ESCAPE,
            "versions": [row],
            "unfinished": [{"path": ESCAPE, "bytes": 1}],
        },
    )
    found = asyncio.run(versions_of(BOX, AGENT, BoxSpec("a", "h"), "/data"))
    text = msgspec.json.encode(found).decode()
    assert "52;c" not in text and "/data" in text


def test_a_platform_without_a_data_directory_is_asked_for_one(top: Path) -> None:
    with pytest.raises(PushRefused, match="--to DIR"):
        asyncio.run(
            pushing.push_tree(BOX, AGENT, load_profile("generic-ssh"), top, PushChoice(kind="data"))
        )
