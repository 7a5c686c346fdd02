"""A box whose processes cannot be seen: every reader of the process list says unknown, none says "no"."""

from __future__ import annotations

import msgspec
import pytest

from rgt_tui.cli import StatusVerdict, format_exposition, text_line
from rgt_tui.cli.status_line import status_line
from rgt_tui.gate.quiet import list_quiet_items
from rgt_tui.health import assess_box, facts_of
from rgt_tui.health.rows.conditions_queue import check_quiet as all_quiet
from rgt_tui.model import BoxState, CheckStatus, FleetState, ReceivedTimes, TrainingProcess
from rgt_tui.profiles import load_profile
from rgt_tui.ssh.sh_sample import BY_NAME
from rgt_tui.store.spending import has_live_run
from rgt_tui.ui.widgets import text_of
from rgt_tui.ui.widgets.vitals import process_lines
from tests.unit.triage.builders import NOW, box, sample

TRAINING = TrainingProcess(pid=7, started=NOW - 60, cmd="python train.py")


def limited(*procs: TrainingProcess, unseen: str | None = BY_NAME) -> BoxState:
    return box(
        sample=sample(procs=procs, unseen=unseen, gpus=()), queues=(), runs=(), checkpoints=()
    )


def at_once(state: BoxState) -> BoxState:
    return msgspec.structs.replace(state, seen=ReceivedTimes(sample=5.0))


def metrics(state: BoxState) -> list[str]:
    lines = format_exposition(FleetState(boxes=(state,)), NOW).decode().splitlines()
    return [line for line in lines if line.startswith("rgt_training_processes{")]


def test_status_watch_and_patrol_say_unknown() -> None:
    state = limited()
    line = status_line(state, assess_box(state, NOW), NOW)
    assert (line.state, line.verdict) == ("unknown", StatusVerdict.UNKNOWN)
    assert "cannot see" in text_line(line)


def test_the_dashboard_says_unknown() -> None:
    assert [text_of(line) for line in process_lines(limited(), 200)] == [
        f"processes unknown: {BY_NAME}"
    ]
    first, more = [text_of(line) for line in process_lines(limited(TRAINING), 200)]
    assert "train.py" in first and more.startswith("others unknown")


def test_metrics_leave_the_number_out() -> None:
    assert metrics(limited()) == []
    assert metrics(limited(unseen=None)) == ['rgt_training_processes{box="vast-demo"} 0.0']
    assert metrics(limited(TRAINING)) == ['rgt_training_processes{box="vast-demo"} 1.0']


@pytest.mark.parametrize(("state", "expected"), [
    (limited(), None), (limited(TRAINING), True), (limited(unseen=None), False),
])  # fmt: skip
def test_the_time_is_not_counted_as_idle(state: BoxState, expected: bool | None) -> None:
    assert has_live_run(state, NOW) is expected


def test_the_gate_stays_locked() -> None:
    seen = limited(unseen=None)
    assert seen.sample is not None
    told = msgspec.structs.replace(seen.sample, transfers=(), input_at=0.0)
    assert [
        item.ok
        for item in list_quiet_items(at_once(msgspec.structs.replace(seen, sample=told)), NOW, 5.0)
    ] == [True]
    (item,) = list_quiet_items(at_once(limited()), NOW, 5.0)
    assert (item.ok, "the processes of the box cannot be listed" in item.text) == (False, True)


def test_the_checklist_does_not_pass() -> None:
    profile = load_profile("vastai")
    assert (
        all_quiet(facts_of(limited(unseen=None), NOW, profile=profile)).status is CheckStatus.PASSED
    )
    found = all_quiet(facts_of(limited(), NOW, profile=profile))
    assert (found.status, "unknown" in found.evidence) == (CheckStatus.WARN, True)
