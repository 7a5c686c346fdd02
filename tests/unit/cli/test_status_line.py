"""The line of `rgt status --json`, and the text, made of states."""

from __future__ import annotations

import json
import math
from typing import Any

import msgspec
import pytest

from rgt_tui.cli import (
    StatusLine,
    StatusVerdict,
    choose_verdict,
    encode_line,
    patrol_code,
    text_line,
)
from rgt_tui.cli import exit_code as status_code
from rgt_tui.cli.status_line import status_line
from rgt_tui.health import Assessment, assess_box
from rgt_tui.model import (
    Alert,
    BoxHealth,
    BoxSpec,
    BoxState,
    DiskReading,
    GpuReading,
    Hello,
    Lifecycle,
    LinkState,
    MemoryReading,
    Meter,
    MeterKind,
    QueueCell,
    QueueState,
    RunState,
    Sample,
    Series,
    TrainingProcess,
)

NOW = 1_000_000.0
TRAINING = TrainingProcess(pid=7, started=NOW - 9, cmd="python train.py")
PROMISED = ("box", "state", "reason", "age_s", "sample", "runs", "alerts", "meter")


def box(**fields: Any) -> BoxState:
    hello = Hello(proto=1, agent="a", boot="b", host="h", python="3", pid=1, at=NOW)
    sample = Sample(
        boot="b", seq=1, at=NOW,
        gpus=(GpuReading(index=0, name="A100", util=97.0),),
        mem=MemoryReading(used=50, limit=100, cache=0),
        disks=(DiskReading(mount="/", bytes_total=100, bytes_used=30, bytes_free=70, inodes_total=10, inodes_used=6),),
    )  # fmt: skip
    state = BoxState(
        spec=BoxSpec(name="lab", host="h"),
        link=LinkState.LIVE,
        hello=hello,
        sample=sample,
        sample_at=NOW - 1.5,
    )
    return msgspec.structs.replace(state, **fields)


def line(state: BoxState) -> StatusLine:
    return status_line(state, assess_box(state, NOW), NOW)


def decoded(state: BoxState) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(encode_line(line(state)))
    return found


def test_what_is_over_calls_for_a_person_once_and_what_has_failed_always() -> None:
    def seen(*alerts: Alert) -> Assessment:
        return msgspec.structs.replace(assess_box(box(), NOW), alerts=list(alerts))

    unknown, failed = Alert("ended:a", "warn", "x"), Alert("ended:a", "error", "x")
    stalled, told = Alert("stalled:a", "warn", "x"), frozenset({"ended:a", "stalled:a"})
    assert choose_verdict(seen(unknown)) is StatusVerdict.ESCALATE
    assert choose_verdict(seen(unknown), told) is StatusVerdict.HEALTHY
    assert (
        choose_verdict(seen(Alert("ended:b", "warn", "x"), unknown), told) is StatusVerdict.ESCALATE
    )
    assert choose_verdict(seen(failed), told) is StatusVerdict.ESCALATE
    assert choose_verdict(seen(stalled), told) is StatusVerdict.ESCALATE


def test_the_first_keys_are_the_promised_ones() -> None:
    assert StatusLine.__struct_fields__[:8] == PROMISED
    assert tuple(decoded(box()))[:8] == PROMISED


def test_a_box_that_was_never_reached_has_nulls_and_no_zeros() -> None:
    found = decoded(
        BoxState(
            spec=BoxSpec(name="lab", host="h"), link=LinkState.UNREACHABLE, reason="ssh: refused"
        )
    )
    assert (found["state"], found["age_s"], found["sample"], found["runs"]) == (
        "unreachable",
        None,
        None,
        [],
    )
    assert (found["meter"]["kind"], found["meter"]["per_hour"], found["meter"]["age_s"]) == (
        "unknown",
        None,
        None,
    )
    assert found["verdict"] == "unknown"


def test_runs_are_the_queue_s_cells_and_what_was_found_beside_them() -> None:
    cells = (
        QueueCell(name="a", cfg="a", task="lm", state="done", best=1.5, durable="verified"),
        QueueCell(name="b", cfg="b", task="lm", state="running", attempts=2),
        QueueCell(name="c", cfg="c", task="lm"),
    )
    runs = (
        RunState(
            name="b", step=10, total_steps=20, loss=math.nan, progressed_at=NOW - 3,
            series={"loss": Series([1], [2])},
        ),
        RunState(name="alone", step=5, loss=math.inf),
    )  # fmt: skip
    found = decoded(box(queues=(QueueState(path="q", at=NOW, cells=cells),), runs=runs))["runs"]
    assert [(run["name"], run["state"]) for run in found] == [
        ("a", "done"), ("b", "running"), ("c", "waiting"), ("alone", None),
    ]  # fmt: skip
    assert (found[0]["best"], found[0]["durable"], found[0]["step"]) == (1.5, "verified", None)
    assert (found[1]["loss"], found[1]["progress_age_s"], found[1]["attempts"]) == ("nan", 3.0, 2)
    assert found[3]["loss"] == "inf"
    assert all("series" not in run for run in found)


def test_what_a_run_costs_stands_beside_it_and_an_unknown_price_is_null() -> None:
    cell = QueueCell(name="a", cfg="a", task="lm", state="running", started=NOW - 100)
    state = box(
        queues=(QueueState(path="q", at=NOW, cells=(cell,)),),
        runs=(RunState(name="a", step=200, total_steps=1000, loss=1.0),),
        meter=Meter(
            kind=MeterKind.COMPUTE_AND_STORAGE, per_hour=3.6, currency="CNY", at=NOW, at_least=True,
            unpriced=("volume disk",), spent=2.0, spent_at_least=True, spent_since=NOW - 9,
        ),
        clock_skew=0.0,
    )  # fmt: skip
    (run,) = decoded(state)["runs"]
    assert (run["cost_per_1000_steps"], run["eta_s"], run["eta_cost"]) == (0.5, 400.0, 0.4)
    assert (run["cost_currency"], run["cost_at_least"]) == ("CNY", True)
    meter = decoded(state)["meter"]
    assert (meter["at_least"], meter["unpriced"], meter["spent_at_least"]) == (
        True,
        ["volume disk"],
        True,
    )
    assert meter["spent_since"] == NOW - 9
    text = text_line(line(state))
    assert "≥ ¥0.50/1k steps, ≥ ¥0.40 to go" in text
    assert "≥ ¥3.60/h, ≥ ¥2.00 so far" in text
    (unknown,) = decoded(msgspec.structs.replace(state, meter=Meter()))["runs"]
    assert unknown["cost_per_1000_steps"] is unknown["eta_cost"] is unknown["cost_currency"] is None
    assert unknown["eta_s"] == 400.0  # without a price, too


def test_where_a_plain_shell_reads_a_box_its_line_says_that_progress_is_not_seen() -> None:
    hello = Hello(proto=1, agent="sh", boot="b", host="h", python="", pid=1, at=NOW)
    state = box(hello=hello, limited=("no Python 3.8",))
    assert state.sample is not None
    trains = msgspec.structs.replace(
        state, sample=msgspec.structs.replace(state.sample, procs=(TRAINING,))
    )
    said = "limited: no logs, no curves"
    assert line(trains).state == "running" and said in text_line(line(trains))
    unknown = msgspec.structs.replace(state.sample, unseen="a plain shell")
    idle = line(msgspec.structs.replace(state, sample=unknown))
    assert idle.state == "unknown" and said not in text_line(idle)  # its reason says so
    assert said not in text_line(line(msgspec.structs.replace(trains, hello=box().hello)))


def test_nothing_that_a_terminal_obeys_is_in_a_line() -> None:
    evil = "a\x1b]0;owned\x07b\x9b31mc\u202ed\nE"
    state = box(link=LinkState.UNREACHABLE, reason=evil, runs=(RunState(name=evil, step=1),))
    for text in (encode_line(line(state)).decode(), text_line(line(state)) + "\n"):
        assert text.count("\n") == 1
        assert not {"\x1b", "\x07", "\x9b", "\u202e"} & set(text)
        assert "owned" not in text


def test_the_text_says_what_matters() -> None:
    meter = Meter(
        kind=MeterKind.COMPUTE_AND_STORAGE, lifecycle=Lifecycle.RUNNING, per_hour=1.89, spent=12.5, at=NOW,
        source="runpod",
    )  # fmt: skip
    runs = (RunState(name="gpt", step=1200, total_steps=5000, loss=2.34567, progressed_at=NOW),)
    text = text_line(line(box(meter=meter, runs=runs)))
    for part in (
        "lab",
        "1s old",
        "gpu 97%",
        "mem 50",
        "inodes / 60",
        "gpt",
        "1,200",
        "2.346",
        "1.89/h",
        "12.5",
    ):
        assert part in text, text


def test_a_training_that_was_found_is_no_cell_of_a_queue() -> None:
    runs = (
        RunState(name="found", step=5, loss=1.0, alive=True),
        RunState(name="over", step=9, alive=False),
    )
    assert "done" not in text_line(line(box(runs=runs)))
    cells = (
        QueueCell(name="a", cfg="a", task="lm", state="done"),
        QueueCell(name="b", cfg="b", task="lm", state="waiting"),
    )
    queue = QueueState(path="q", at=NOW, cells=cells)
    assert "1/2 cells done" in text_line(line(box(queues=(queue,), runs=runs)))


def assessment(health: BoxHealth, *alerts: Alert) -> Assessment:
    return Assessment(
        health=health, word="", why="", alerts=alerts, progress_age=None, sample_age=None, stale=False,
        rank=(0, 0, 0, 0.0, ""),
    )  # fmt: skip


ERROR, WARN, CALLS = (
    Alert("bytes:/", "error", "t"),
    Alert("bytes:/", "warn", "t"),
    Alert("idle-gpu", "warn", "t"),
)
MUTED = msgspec.structs.replace(ERROR, muted=True)


def hidden(beneath: BoxHealth, *alerts: Alert) -> Assessment:
    """Return what a warning stands above."""
    return msgspec.structs.replace(assessment(BoxHealth.WARN, *alerts), beneath=beneath)


@pytest.mark.parametrize(
    ("seen", "expected"),
    [
        (assessment(BoxHealth.RUNNING), StatusVerdict.HEALTHY),
        (assessment(BoxHealth.STOPPED), StatusVerdict.HEALTHY),
        (assessment(BoxHealth.GONE), StatusVerdict.ESCALATE),
        (assessment(BoxHealth.WARN, WARN), StatusVerdict.HEALTHY),
        (assessment(BoxHealth.WARN, CALLS), StatusVerdict.ESCALATE),
        (assessment(BoxHealth.TROUBLE, ERROR), StatusVerdict.ESCALATE),
        (assessment(BoxHealth.RUNNING, MUTED), StatusVerdict.HEALTHY),
        (assessment(BoxHealth.UNREACHABLE), StatusVerdict.UNKNOWN),
        (assessment(BoxHealth.UNREACHABLE, MUTED), StatusVerdict.UNKNOWN),
        (assessment(BoxHealth.UNREACHABLE, ERROR), StatusVerdict.ESCALATE),
        (assessment(BoxHealth.CONNECTING), StatusVerdict.UNKNOWN),
        (assessment(BoxHealth.STALE), StatusVerdict.UNKNOWN),
        (assessment(BoxHealth.UNKNOWN), StatusVerdict.UNKNOWN),
        (hidden(BoxHealth.UNKNOWN, WARN), StatusVerdict.UNKNOWN),
        (hidden(BoxHealth.STALE, WARN), StatusVerdict.UNKNOWN),
        (hidden(BoxHealth.UNKNOWN, CALLS), StatusVerdict.ESCALATE),
        (hidden(BoxHealth.RUNNING, WARN), StatusVerdict.HEALTHY),
    ],
)
def test_verdicts(seen: Assessment, expected: StatusVerdict) -> None:
    assert choose_verdict(seen) is expected


def test_every_state_has_a_verdict() -> None:
    assert {choose_verdict(assessment(health)) for health in BoxHealth} == set(StatusVerdict)


@pytest.mark.parametrize(
    ("verdicts", "status", "patrol"),
    [
        ([], 0, 0),
        ([StatusVerdict.HEALTHY], 0, 0),
        ([StatusVerdict.HEALTHY, StatusVerdict.UNKNOWN], 3, 2),
        ([StatusVerdict.UNKNOWN, StatusVerdict.ESCALATE], 1, 1),
    ],
)
def test_exit_codes(verdicts: list[StatusVerdict], status: int, patrol: int) -> None:
    assert (status_code(verdicts), patrol_code(verdicts)) == (status, patrol)
