from __future__ import annotations

import msgspec
import pytest

from rgt_tui.model import FoundRun, Meter, RunResume, RunState, Series
from rgt_tui.ui.widgets import Tone, clip_line, text_of
from rgt_tui.ui.widgets.queue_lines import queue_lines
from tests.ui.boxes import cell, queue
from tests.ui.fakes import NOW, running_box

RUN = FoundRun(
    name="exp/train.py",
    pid=31,
    started=NOW - 125,
    command="python train.py",
    session="tmux",
    place="main:0.1",
    log="/e/o.log",
)


def lines(*found: FoundRun, runs: tuple[RunState, ...] = ()) -> list[str]:
    box = msgspec.structs.replace(
        running_box("a"), queues=(), runs=runs, found=found, clock_skew=0.0, meter=Meter()
    )
    return [text_of(clip_line(made, 100)).rstrip() for made in queue_lines(box, 100, NOW)]


def test_a_training_that_was_found_has_a_line_in_place_of_a_queue() -> None:
    (only,) = lines(RUN, runs=(RunState("exp/train.py", step=1200, loss=0.5),))
    assert "exp/train.py" in only
    assert "step 1,200" in only
    assert "tmux main:0.1" in only
    assert "2m05" in only


@pytest.mark.parametrize(
    ("reason", "shown"),
    [("exit 74", "exit 74"), ("exit 74: out of memory", "exit 74: out of memory"), (None, "exit 74"),
     ("the disk is full", "exit 74  the disk is full")],
)  # fmt: skip
def test_an_exit_status_is_named_once(reason: str | None, shown: str) -> None:
    failed = cell("lstm-a", "failed", exit_code=74, reason=reason, started=None, ended=None)
    box = msgspec.structs.replace(running_box("a"), queues=(queue(failed, at=NOW),), runs=())
    line = text_of(queue_lines(box, 100, NOW)[0])
    assert shown in line and line.count("exit 74") == 1


def test_what_a_run_costs_stands_behind_it_or_below_it_and_an_unknown_price_says_nothing() -> None:
    run = RunState(
        "exp/train.py", step=1200, total_steps=2400, series={"loss": Series([1, 2], [1.0, 1.0])}
    )
    base = msgspec.structs.replace(
        running_box("a"), queues=(), runs=(run,), found=(RUN,), clock_skew=0.0
    )
    box = msgspec.structs.replace(base, meter=msgspec.structs.replace(base.meter, per_hour=36.0))
    words = "¥1.04/1k steps, ¥1.25 to go"
    (wide,) = [text_of(made) for made in queue_lines(box, 140, NOW)]
    assert wide.endswith(words)
    first, below = [text_of(made) for made in queue_lines(box, 80, NOW)]
    assert (words in first, below.strip()) == (False, words)
    unknown = msgspec.structs.replace(box, meter=Meter())
    assert "steps" not in text_of(queue_lines(unknown, 140, NOW)[0]).replace("step 1,200", "")


def test_a_name_of_wide_characters_is_whole() -> None:
    (only,) = lines(msgspec.structs.replace(RUN, name="训练一号实验"))
    assert "训练一号实验  " in only
    waiting = queue(cell("训练一号实验", "waiting", started=None, ended=None), at=NOW)
    box = msgspec.structs.replace(running_box("a"), queues=(waiting,), runs=())
    assert "训练一号实验  " in text_of(queue_lines(box, 100, NOW)[0])


def test_one_that_is_gone_is_never_called_done() -> None:
    gone = msgspec.structs.replace(
        RUN, alive=False, ended=NOW - 5, notes=("its output went to a terminal",)
    )
    first, note = lines(gone)
    assert "ended, exit status unknown" in first
    assert "done" not in first
    assert note.strip() == "its output went to a terminal"
    assert "exit 3" in lines(msgspec.structs.replace(gone, exit_code=3))[0]


def test_without_queue_and_training_it_says_so() -> None:
    assert lines() == ["no queue and no training found on the box"]


def test_hostile_names_are_stripped() -> None:
    (only,) = lines(msgspec.structs.replace(RUN, name="a\x1b[2Jb", session="x\x07"))
    assert "\x1b" not in only
    assert "\x07" not in only


def test_the_end_is_a_warning() -> None:
    gone = msgspec.structs.replace(RUN, alive=False, ended=NOW)
    box = msgspec.structs.replace(running_box("a"), queues=(), runs=(), found=(gone,))
    assert Tone.WARN in {span.tone for span in queue_lines(box, 100, NOW)[0]}


@pytest.mark.parametrize(
    ("steps", "dropped", "expected"),
    [
        ((10, 20, 30), 0, "2m05 of about 20m50"),
        ((1, 2, 30), 0, "2m05 of about 20m50"),
        ((5000, 5010, 5020), 0, "2m05"),
        ((5000,), 0, "2m05"),
        ((), 0, "2m05"),
        ((10, 20, 30), 7, "2m05"),
    ],
)
def test_how_long_it_takes_is_told_where_its_steps_are_its_own(
    steps: tuple[int, ...], dropped: int, expected: str
) -> None:
    curve = Series(list(steps), [1.0] * len(steps), dropped=dropped)
    run = RunState("exp/train.py", step=30, total_steps=300, series={"loss": curve})
    (only,) = lines(RUN, runs=(run,))
    assert f"{expected}  tmux" in only
    resumed = msgspec.structs.replace(run, resumes=(RunResume(step=10, reason="", index=1),))
    assert "2m05  tmux" in lines(RUN, runs=(resumed,))[0]
    unknown = msgspec.structs.replace(run, total_steps=None)
    assert "2m05  tmux" in lines(RUN, runs=(unknown,))[0]
