"""When a box is asked whether it takes files, and what is said of it."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from rgt_tui.fleet import FileAccess, connector
from rgt_tui.ssh import NO_FILES, NO_SFTP, Unreachable

CONNECTION = cast(Any, object())
Answers = list[bool | Unreachable | None]


async def asked(
    answers: Answers, connections: int, monkeypatch: pytest.MonkeyPatch
) -> tuple[FileAccess, list[str]]:
    """Let so many connections give three readings each; return the answers that were used, and each word of a lack."""
    heard: list[str] = []

    async def has_sftp(_: object) -> bool | None:
        answer = answers.pop(0)
        heard.append("asked")
        if isinstance(answer, Unreachable):
            raise answer
        return answer

    monkeypatch.setattr(connector, "has_sftp", has_sftp)
    access = FileAccess(lambda: heard.append("lacks"))
    for _ in range(connections):
        for _ in range(3):
            access.start_check(CONNECTION)
            await asyncio.sleep(0)
        access.cancel_check()
    return access, heard


@pytest.mark.parametrize(
    ("answers", "heard", "limits"),
    [
        ([True], ["asked"], ("x",)),
        ([False, False], ["asked", "lacks"] * 2, ("x", NO_SFTP)),
        ([False, True], ["asked", "lacks", "asked"], ("x",)),
        ([None, True], ["asked", "asked"], ("x",)),
        ([Unreachable("lost"), False], ["asked", "asked", "lacks"], ("x", NO_SFTP)),
    ],
)
async def test_a_box_is_asked_once_a_connection_until_it_takes_files(
    answers: Answers, heard: list[str], limits: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    access, said = await asked(answers, 2, monkeypatch)
    assert said == heard
    assert access.add_limitation(("x",)) == limits
    assert access.add_limitation(limits) == limits
    assert access.add_limitation((NO_FILES,)) == (NO_FILES,)
