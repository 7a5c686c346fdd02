"""`rgt status` prints a box once, also if it changes while the slower ones are waited for."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import pytest

from rgt_tui.cli import UNREACHABLE, entry, status
from rgt_tui.model import BoxSpec, BoxState, FleetState, LinkState

NOW = 1_700_000_000.0


def test_a_box_that_changes_has_one_line_and_the_exit_status_agrees_with_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fast, slow = (
        BoxState(spec=BoxSpec(name=name, host="192.0.2.1"), since=NOW, link=LinkState.CONNECTING)
        for name in ("fast", "slow")
    )
    later = msgspec.structs.replace(fast, link=LinkState.UNREACHABLE, reason="refused")

    async def gather(
        specs: Sequence[BoxSpec],
        config: object,
        arguments: object,
        each: Callable[[BoxState, float], None],
    ) -> FleetState:
        each(fast, NOW)
        each(slow, NOW)
        return FleetState(at=NOW, boxes=(later, slow))

    monkeypatch.setattr(status, "gather_named", gather)
    config: Any = None
    code = asyncio.run(status._print_status([], config, entry.parse_command_line(["status"])))
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[:2] for line in lines] == [["fast", "connecting"], ["slow", "connecting"]]
    assert code == UNREACHABLE
