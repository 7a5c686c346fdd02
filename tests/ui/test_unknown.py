"""Unknown is not "no": a box that was never reached, one whose processes are not seen, and values that are missing."""

from __future__ import annotations

import re

import msgspec
import pytest

from rgt_tui.health import evaluate_checks
from rgt_tui.model import BoxState, CheckStatus, FleetState, LinkState, MemoryReading
from rgt_tui.ui import assess_box
from rgt_tui.ui.widgets import memory_lines, text_of, thin_bar
from rgt_tui.ui.widgets.fleet_rows import FleetRow, vram_cell
from rgt_tui.ui.widgets.queue_lines import queue_lines
from rgt_tui.ui.widgets.vitals import process_lines
from tests.ui.boxes import gpu, profile, running_box, sample, spec
from tests.ui.fakes import NOW, FakeFleet
from tests.ui.snap import running, screen_text, settle

DENIAL = re.compile(
    r"no training process|nothing trains|nothing is wrong|no queue, and|was found on the box|no cell |no GPU found"
    r"|no run of|no limit\b|no mounts|no finding|idle\b",
    re.IGNORECASE,
)
"""What only somebody who has looked can say."""
NEVER = BoxState(
    spec=spec("new-box"), link=LinkState.UNREACHABLE, reason="ssh: timed out", since=NOW - 30
)
WAITING = msgspec.structs.replace(NEVER, link=LinkState.CONNECTING, reason="connecting")
BLIND = msgspec.structs.replace(
    running_box("half-blind"),
    queues=(),
    runs=(),
    checkpoints=(),
    logs=(),
    sample=msgspec.structs.replace(
        sample(), procs=(), unseen="no Python on the box, ps shows own processes only"
    ),
)


@pytest.mark.full_matrix(together=2)
@pytest.mark.parametrize("box", [NEVER, WAITING], ids=["never reached", "connecting"])
@pytest.mark.parametrize("keys", [(), ("enter",), ("enter", "l"), ("c",), ("p",), ("a",)], ids=str)
@pytest.mark.parametrize("size", [(120, 34), (200, 50)])
async def test_no_screen_denies_what_nobody_has_looked_at(
    box: BoxState, keys: tuple[str, ...], size: tuple[int, int]
) -> None:
    fleet = FakeFleet(FleetState(boxes=(box,), at=NOW))
    fleet.check_results = evaluate_checks(box, profile("autodl"), NOW)
    async with running(fleet, keys=keys, size=size) as (app, pilot, _):
        await settle(pilot)
        text = screen_text(app)
        if keys == ("p",):
            for _ in range(20):
                await pilot.press("j")
                text += screen_text(app)
        found = DENIAL.search(text)
        assert found is None, found


@pytest.mark.parametrize(
    "box", [NEVER, WAITING, BLIND], ids=["never reached", "connecting", "blind"]
)
def test_no_check_denies_what_nobody_has_looked_at(box: BoxState) -> None:
    for result in evaluate_checks(box, profile("autodl"), NOW):
        if result.status is not CheckStatus.PASSED:
            assert DENIAL.search(result.evidence) is None, result
        if box is not BLIND and result.status is CheckStatus.PASSED:
            assert result.at is None, f"{result.id} is proved by a reading that there is not"
    assert assess_box(box, NOW).word != "idle"


def test_the_panes_of_a_box_that_nobody_can_look_into_say_so() -> None:
    assert "unknown" in text_of(process_lines(BLIND, 60)[0])
    assert "unknown: no Python" in text_of(queue_lines(BLIND, 80, NOW)[0])
    assert DENIAL.search(text_of(process_lines(NEVER, 60)[0])) is None
    looked = msgspec.structs.replace(sample(), procs=())
    seen = msgspec.structs.replace(BLIND, sample=looked)
    assert text_of(process_lines(seen, 60)[0]) == "no training process"
    assert "no training found" in text_of(queue_lines(seen, 80, NOW)[0])


def test_a_limit_that_nobody_sees_is_unknown_not_none() -> None:
    def said(mem: MemoryReading) -> str:
        box = msgspec.structs.replace(
            running_box(), sample=msgspec.structs.replace(sample(), mem=mem)
        )
        return text_of(memory_lines(box, 60)[0])

    assert "limit unknown" in said(MemoryReading(used=5, cgroup=None))
    assert "no limit" in said(MemoryReading(used=5, cgroup=2))


def test_video_memory_that_is_not_read_is_not_empty() -> None:
    card = gpu()
    silent = msgspec.structs.replace(card, vram_used=None)

    def drawn(*cards: object) -> str:
        made = msgspec.structs.replace(sample(), gpus=cards)
        box = msgspec.structs.replace(running_box(), sample=made)
        return text_of(vram_cell(FleetRow(box, assess_box(box, NOW), (), "AutoDL"), 8))

    assert drawn(silent) == drawn(card, silent) == text_of(thin_bar(None, 8))
    assert drawn(silent) != drawn(msgspec.structs.replace(card, vram_used=0))
    assert text_of(thin_bar(None, 6)) != text_of(thin_bar(0.0, 6))
