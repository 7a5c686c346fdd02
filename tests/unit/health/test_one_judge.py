"""The gate, the alerts and the checklist answer the same question in the same way."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from rgt_tui.gate.quiet import list_quiet_items
from rgt_tui.health import assess_box, evaluate_checks
from rgt_tui.model import BoxState, CheckStatus, QueueCell, ReceivedTimes, TrainingProcess
from rgt_tui.profiles import load_profile
from tests.unit.triage.builders import NOW, box, cell, queue, sample

DONE = (cell("lstm-a", state="done", exit_code=0, durable="verified", ended=NOW - 600),)


def proc(state: str) -> TrainingProcess:
    return TrainingProcess(pid=2231, started=NOW - 600, cmd="python train.py", state=state)


def through(*cells: QueueCell, **over: Any) -> BoxState:
    """A box whose queue is through and which still bills."""
    return box(
        queues=(queue(*cells, done=True, runner_alive=False),), runs=(), sample=sample(**over)
    )


@pytest.mark.parametrize(
    ("over", "trains"),
    [
        ({"procs": ()}, False),
        ({"procs": (proc("Z"),)}, False),
        ({"procs": (proc("R"),)}, True),
        ({"procs": (proc("Z"), proc("S"))}, True),
        ({"procs": (proc("T"),)}, True),
    ],
    ids=["none", "zombie", "runs", "both", "halted"],
)
def test_whether_anything_trains(over: dict[str, Any], trains: bool) -> None:
    state = through(*DONE, **over)
    assert is_quiet(state) is not trains
    alerts = [alert.id for alert in assess_box(state, NOW).alerts]
    assert ("done-billing" in alerts) is not trains
    checks = {
        result.id: result.status for result in evaluate_checks(state, load_profile("vastai"), NOW)
    }
    assert (checks["5.4"] is CheckStatus.PASSED) is not trains


def is_quiet(state: BoxState) -> bool:
    """Ask the gate about a box of which everything else is known to be quiet."""
    assert state.sample is not None
    calm = replace(state.sample, transfers=(), input_at=0.0)
    return all(
        item.ok
        for item in list_quiet_items(
            replace(state, sample=calm, seen=ReceivedTimes(sample=9.0)), NOW, 9.0
        )
    )


def test_nobody_calls_a_box_quiet_that_cannot_be_seen_into() -> None:
    state = through(*DONE, procs=(), unseen="no /proc")
    assert not is_quiet(state)
    assert [alert.id for alert in assess_box(state, NOW).alerts] == []
    checks = {
        result.id: result.status for result in evaluate_checks(state, load_profile("vastai"), NOW)
    }
    assert checks["5.4"] is CheckStatus.WARN
