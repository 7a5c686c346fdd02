"""Which format a log speaks: the first hits choose, a stray line changes nothing, a clear majority does."""

from __future__ import annotations

import json

from rgt_box.metrics import FIRST, OTHER, OTHER_RANK, FormatChooser

OURS = "step {}  epoch 1  loss 2.5"
MEGATRON = " iteration {}/ 900 | lm loss: 2.1 | grad norm: 1.0 |"
PLAIN = "step {} loss 0.5"


def steps(chooser: FormatChooser, line: str, *at: int, rank: str = "") -> list[int | None]:
    return [row.step for n in at for row in chooser.parse_piece(rank, line.format(n))[0]]


def test_three_hits_choose_and_none_is_lost() -> None:
    chooser = FormatChooser()
    assert steps(chooser, OURS, 1, 2) == []
    assert chooser.format_name == ""
    assert steps(chooser, OURS, 3, 4) == [1, 2, 3, 4]
    assert chooser.format_name == "rgt"


def test_the_end_of_what_there_is_chooses_a_named_format_but_not_the_fallback() -> None:
    chooser = FormatChooser()
    steps(chooser, OURS, 1)
    assert [row.step for row in chooser.choose_at_end()] == [1]
    guess = FormatChooser()
    steps(guess, PLAIN, 1, 2)
    assert guess.choose_at_end() == guess.flush_formats() == []
    assert steps(guess, PLAIN, 3) == [1, 2, 3]


def test_the_fallback_needs_steps_that_rise() -> None:
    chooser = FormatChooser()
    assert steps(chooser, PLAIN, 5, 5, 5, 4, 3, 2, 1) == []
    assert steps(chooser, PLAIN, 2, 3) == [1, 2, 3]
    assert steps(chooser, PLAIN, 1) == [1], "once it is chosen, a step that goes back is a restart"


def test_a_stray_line_changes_nothing_and_a_clear_run_takes_over() -> None:
    chooser = FormatChooser()
    steps(chooser, OURS, 1, 2, 3)
    assert steps(chooser, MEGATRON, *range(OTHER - 1)) == []
    assert steps(chooser, OURS, 4) == [4]
    assert steps(chooser, MEGATRON, *range(OTHER)) == list(range(OTHER))
    assert chooser.format_name == "megatron"
    assert steps(chooser, OURS, 9) == []


def test_a_surer_format_takes_over_at_once() -> None:
    chooser = FormatChooser()
    steps(chooser, PLAIN, 1, 2, 3)
    assert chooser.format_name == "generic"
    found = [chooser.parse_piece("", OURS.format(n)) for n in range(FIRST)]
    assert [over for _, over in found] == [False, False, True]
    assert chooser.format_name == "rgt"


def test_one_rank_is_kept_until_it_is_gone() -> None:
    chooser = FormatChooser()
    for n in range(1, 20):
        both = steps(chooser, OURS, n, rank="0") + steps(chooser, OURS, n, rank="1")
        assert len(both) in (0, 1, 3)
    assert chooser.chosen.split("\n")[1] == "0"
    found = steps(chooser, OURS, *range(100, 100 + OTHER_RANK + 5), rank="7")
    assert found == list(range(100, 100 + OTHER_RANK + 5))


def test_numbers_that_many_print_choose_nothing_but_come_along() -> None:
    weak = "[Rank 0] step=10, skipped=0, lr=[0.0001], mom=[(0.9, 0.999)]"
    chooser = FormatChooser()
    assert not any(chooser.parse_piece("", weak)[0] for _ in range(30))
    assert chooser.flush_formats() == []
    chooser = FormatChooser()
    chooser.parse_piece("", weak)
    chooser.parse_piece("", "steps: 10 loss: 2.1 iter time (s): 0.5 samples/sec: 15.6")
    (row,) = chooser.choose_at_end()
    assert {"lr", "loss", "samples/sec"} <= set(row.values)


def test_one_line_is_enough_only_if_it_is_plainly_that_of_a_training() -> None:
    chooser = FormatChooser()
    chooser.parse_piece("", "Step 1 | loss:2.1 lr:4e-05 tokens_per_second_per_gpu:1250.1")
    assert [row.step for row in chooser.choose_at_end()] == [1]
    chooser = FormatChooser()
    chooser.parse_piece("", "step 3 of the loss tutorial: accuracy 0.5, loss 0.1")
    assert chooser.choose_at_end() == []


def test_many_ranks_and_titles_are_held_in_bounded_memory() -> None:
    chooser = FormatChooser()
    for n in range(2000):
        chooser.parse_piece(f"rank{n}", OURS.format(n))
        chooser.parse_piece("", f"bar {'x' * (n % 50)}: 1%|#| 1/9 [00:01<00:02, 3it/s, loss=1]")
    assert len(json.dumps(chooser.pack_state())) < 100_000


def test_what_is_remembered_survives_json() -> None:
    lines = [OURS.format(n) for n in (1, 2, 3, 4)] + [
        "step 5  epoch 1  loss nan",
        MEGATRON.format(6),
    ]
    whole, parts = FormatChooser(), FormatChooser()
    for line in lines:
        expected = whole.parse_piece("", line)
        parts = FormatChooser(json.loads(json.dumps(parts.pack_state(), allow_nan=False)))
        assert repr(parts.parse_piece("", line)) == repr(expected)
    assert parts.pack_state() == whole.pack_state()


def test_a_counter_without_a_measure_beside_the_loops_own_is_no_fall() -> None:
    """DeepSpeed's engine prints its own step, one ahead of the loop; two ranks print each loss."""
    chooser = FormatChooser()
    found = []
    for number in range(6):
        for line in (
            f"[Rank 0] step={number + 1}, skipped=0, lr=[1e-05], mom=[(0.9, 0.999)]",
            f"[Step {number}/100] Loss: 5.{number} | Tokens/s: 92.5",
            f"[Step {number}/100] Loss: 5.{number} | Tokens/s: 93.1",
        ):
            found += [row for row in chooser.parse_piece("", line)[0] if "loss" in row.values]
    assert {row.step for row in found} == {0, 1, 2, 3, 4, 5}
    falling = FormatChooser()
    assert steps(falling, PLAIN, 5) == []
    falling.parse_piece("", "step=6, skipped=0")
    assert steps(falling, PLAIN, 4, 5) == [], "the loss went back: the count begins again"


def test_epochs_that_a_configuration_plans_are_no_position() -> None:
    chooser = FormatChooser()
    chooser.parse_piece("", "data ....... {'seed': 1234, 'sampling': {'num_epochs': 1000}}")
    assert steps(chooser, "[Step {}/100] Loss: 5.1", 0, 1, 2) == [0, 1, 2]


def test_a_step_a_word_and_a_loss() -> None:
    """build-nanogpt's log.txt."""
    chooser = FormatChooser()
    rows = [
        row
        for line in ("0 val 10.9", "0 hella 0.24", "0 train 10.8", "1 train 10.5", "2 train 9.9")
        for row in chooser.parse_piece("", line)[0]
    ]
    assert [row.step for row in rows] == [0, 1, 2]
    assert (rows[0].values["val"], rows[0].values["train"], rows[2].values["train"]) == (10.9, 10.8, 9.9)  # fmt: skip
