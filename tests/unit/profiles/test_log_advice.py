"""What a log's own figures advise: the interval of its saves, attempts that began anew, ranks, versions, readings."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rgt_tui.profiles import (
    FIRST_BYTES,
    LAST_BYTES,
    LEAST_POINTS,
    HeadAndTail,
    compute_daly_interval,
)
from rgt_tui.profiles.log_advice import log_advice

HF = "***** Running training *****"
GOES_ON = "  Continuing training from checkpoint, will skip to saved global_step"


def told(lines: list[str], about: str, samples: tuple[dict[str, Any], ...] = ()) -> list[str]:
    return [one.text for one in log_advice(lines, samples) if one.about == about]


def ours(every_min: int, count: int = 6) -> list[str]:
    begun = "2026-11-02 10:00:00 lm on cuda:0: torch 2.9, python 3.12, 9 parameters, 900 steps in 3 epochs"
    times = [divmod(600 + every_min * i, 60) for i in range(1, count + 1)]
    return [begun, *(
        f"2026-11-02 {h:02}:{m:02}:00 checkpoint {100 * i} → /x/{i}  3 MB  on disk after 2.10 s, stalled 2,000 ms"
        for i, (h, m) in enumerate(times, 1)
    )]  # fmt: skip


def test_the_interval_of_the_saves_beside_the_optimum() -> None:
    (one,) = log_advice(ours(40))
    assert one.seconds == pytest.approx(compute_daly_interval(2.0, 4 * 3600), abs=0.1)
    assert (
        one.text
        == "saves every 40m00; 3m58 would lose less (a save costs 2.0 s, no failure in 4h00)"
    )
    assert log_advice(ours(4, count=20)) == (), "near the optimum"
    assert log_advice(ours(40, count=1)) == () == log_advice(ours(5, count=4)), (
        "too few, or too short"
    )
    again = [*ours(40), *(line.replace("2026-11-02", "2026-11-03") for line in ours(40))]
    assert "1 failure in 8h00" in told(again, "save")[0]


def test_without_times_by_the_steps_and_the_progress_bar() -> None:
    bars = [
        f" {i}%|██ | {i * 10}/1000 [{i // 10}:{i % 10 * 6:02}:00<9:00:00, 36.00s/it]"
        for i in range(1, 60)
    ]
    saves = [f"Saving model checkpoint to out/checkpoint-{step}" for step in (100, 200, 300, 400)]
    text = told([HF, *bars, *saves], "save")
    assert text == [
        "saves every 1h00: a failure costs 30m00 of work on average (no failure in 5h54)"
    ]
    assert told([HF, *saves], "save") == [] == told([HF, *bars], "save")


def test_a_clock_without_a_date_goes_on_over_midnight() -> None:
    lines = [
        "22:00:00 start",
        *(f"{h:02}:00:00 saved checkpoint at step {i}" for i, h in enumerate((22, 23, 0, 1, 2))),
    ]
    assert told(lines, "save") == [
        "saves every 1h00: a failure costs 30m00 of work on average (no failure in 4h00)"
    ]


def test_an_attempt_that_began_anew_although_the_one_before_had_saved() -> None:
    first = [HF, "Saving model checkpoint to out/checkpoint-500"]
    (text,) = told([*first, "Killed", HF], "resume")
    assert (
        text
        == "transformers: starts from scratch after a preemption: trainer.train(resume_from_checkpoint=True)"
    )
    assert told([*first, HF, GOES_ON], "resume") == []
    assert told(first, "resume") == [] == told([HF, HF], "resume"), (
        "one attempt, or nothing to resume from"
    )
    lightning = ["GPU available: True (cuda), used: True", "saved checkpoint at step 10"]
    (text,) = told([*lightning, *lightning], "resume")
    assert text.startswith("lightning: starts from scratch") and 'ckpt_path="last"' in text


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("lightning==2.6.6", "a resumed run sees its data in the order of epoch 0 again"),
        ("Successfully installed lightning-2.5.1", "(seen on 2.6.6; unknown for 2.5.1: check it)"),
        ("lightning version: 2.6.6", "epoch 0 again"),
    ],
)
def test_versions_that_a_log_names(line: str, expected: str) -> None:
    goes_on = [
        "GPU available: False, used: False",
        "Restoring states from the checkpoint path at last.ckpt",
    ]
    (text,) = told([line, *goes_on], "resume")
    assert text.startswith("lightning 2.") and text.endswith(expected)
    (unknown,) = told(goes_on, "resume")
    assert unknown.endswith("(seen on 2.6.6; which version is here is unknown: check it)")


def test_zero_and_one_checkpoint_kept() -> None:
    assert (
        "refused by another number of ranks"
        in told(["DeepSpeed info: version=0.18.2, git-hash=x"], "resume")[0]
    )
    lines = ['  "transformers_version": "4.57.1",', "save_total_limit=1,"]
    assert told(lines, "resume")[0].startswith(
        "transformers 4.57.1: save_total_limit=1 leaves nothing"
    )
    assert told([lines[0], "save_total_limit=10,"], "resume") == []


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ("Starting with 8 processes", "Starting with 2 processes", "2 ranks now, 8 before: the effective batch is 0.2"),
        ("torchrun --nproc_per_node=4 t.py", "torchrun --nproc-per-node=8 t.py", "8 ranks now, 4 before"),
        ("Total train batch size (w. parallel, distributed & accumulation) = 1,024",
         "Total train batch size (w. parallel, distributed & accumulation) = 256", "the total batch is 256 now, 1,024"),
        ("WORLD_SIZE=4", "WORLD_SIZE=4", ""),
        ("Starting with 8 processes", "", ""),
    ],
)  # fmt: skip
def test_another_number_of_ranks_than_the_attempt_before(
    first: str, second: str, expected: str
) -> None:
    begin = "GPU available: True (cuda), used: True"
    texts = told([begin, first, begin, second], "batch")
    assert [text[: len(expected)] for text in texts] == ([expected] if expected else [])


def test_batch_norm_is_told_of_where_it_stands_in_the_log() -> None:
    begin = "GPU available: True (cuda), used: True"
    lines = [begin, "(bn1): BatchNorm2d(64)", "WORLD_SIZE=8", begin, "WORLD_SIZE=2"]
    assert [one.page for one in log_advice(lines) if one.about == "batch"] == ["D11", "D10"]


def reading(used: float, usable: float | None = 8.0, **more: Any) -> dict[str, Any]:
    return {
        "mem": {},
        "cpu": {"usable": usable},
        "gpus": [{"vram_used": used, "vram_total": 80e9, **more}],
    }


def test_readings_add_workers_and_room_on_the_cards() -> None:
    many = (reading(30e9),) * LEAST_POINTS
    line = "UserWarning: This DataLoader will create 32 worker processes in total. Our suggested max is 8"
    assert told([line], "workers", many) == [
        "32 loader workers share 8 cores: 7 are as fast, and take less memory"
    ]
    assert told([line], "workers") == [] == told(["num_workers=8"], "workers", many)
    assert told([line], "workers", (reading(1, usable=None),)) == []
    assert told([], "memory", many) == [
        "the cards were never fuller than 37% (46.6 GiB free): a larger batch fits"
    ]
    for samples in (
        many[1:],
        (*many, reading(60e9)),
        (reading(0),) * 40,
        (reading(30e9, sim=True),) * 40,
    ):
        assert told([], "memory", samples) == []


def test_readings_of_another_shape_say_nothing() -> None:
    odd: tuple[dict[str, Any], ...] = (
        {"gpus": 3, "cpu": []},
        {"gpus": [None, {"vram_used": "x"}]},
        {},
    )
    assert log_advice(["num_workers=99"], odd * 40) == ()


def test_a_long_log_is_looked_at_at_both_ends() -> None:
    ends = HeadAndTail()
    filler = b"x" * 79 + b"\n"
    ends.feed(b"lightning==2.6.6\nGPU available: False\n" + filler * (FIRST_BYTES // 80))
    for _ in range(8):
        ends.feed(filler * (LAST_BYTES // 160))
    ends.feed(b"10%\r20%\rRestoring states from the checkpoint path\n")
    lines = ends.all_line_states
    assert sum(map(len, lines)) < FIRST_BYTES + LAST_BYTES and "20%" in lines
    assert told(lines, "resume") == [
        "lightning 2.6.6: a resumed run sees its data in the order of epoch 0 again"
    ]
    small = HeadAndTail()
    small.feed(b"a\nb")
    assert small.all_line_states == ["a", "b"]


@given(st.binary(max_size=600), st.integers(1, 5))
def test_no_bytes_raise(data: bytes, times: int) -> None:
    ends = HeadAndTail()
    for _ in range(times):
        ends.feed(data)
    log_advice(ends.all_line_states)


@given(
    st.lists(
        st.sampled_from(
            [HF, GOES_ON, *ours(40), "9999-99-99 99:99:99 checkpoint 1 → x", "1/2 [99:99<"]
        ),
        max_size=30,
    )
)
def test_no_order_of_lines_raises(lines: list[str]) -> None:
    log_advice(lines)
