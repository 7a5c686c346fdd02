"""A log that grows is searched a line at a time, and says the same as one that is searched whole."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from rgt_tui.health import lognotes as module
from rgt_tui.health import scan_log
from rgt_tui.health.lognotes import _MARKS, _build_reports, searched_window

LINES = st.sampled_from(
    [
        "step 5 loss 2.1",
        "step 6 loss nan",
        "checkpoint saved at step 5",
        "resumed from step 5",
        "OSError: [Errno 28] No space left on device",
        "RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB",
        "10/20 [00:01<00:01]\r11/20 [00:01<00:01]",
        "",
    ]
)


@given(st.lists(st.lists(LINES, max_size=20), max_size=12))
def test_a_growing_log_says_what_the_whole_says(parts: list[list[str]]) -> None:
    module._SEARCHED.clear()
    lines: tuple[str, ...] = ()
    for part in parts:
        lines += tuple(part)
        seen = searched_window(lines)
        assert scan_log(seen, "log") == scan_log(seen)


CALM = st.sampled_from([
    "step 5 loss 2.1", "checkpoint saved at step 5", "resumed from step 5", "epoch 1", "x\r10/20 [00:01<00:01]\ry", "",
])  # fmt: skip


@given(st.lists(st.lists(CALM, max_size=8), max_size=24), st.booleans())
def test_a_log_without_trouble_says_what_the_whole_says(
    parts: list[list[str]], open_end: bool
) -> None:
    module._SEARCHED.clear()
    lines: tuple[str, ...] = ()
    for part in parts:
        lines = (*lines[: len(lines) - open_end], *part)[-30:]
        assert scan_log(lines, "log") == scan_log(lines)


def test_a_new_line_costs_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    module._SEARCHED.clear()
    lines = tuple(f"step {n} loss 2.{n}" for n in range(60))
    scan_log(lines, "log")
    searched: list[str] = []
    marked = module._find_marks

    def counted(row: str, marks: Iterable[int]) -> tuple[int, ...]:
        searched.append(row)
        return marked(row, marks)

    monkeypatch.setattr(module, "_find_marks", counted)
    scan_log(lines, "log")
    scan_log((*lines[1:], "step 60 loss 2.6"), "log")
    assert searched == ["step 60 loss 2.6"]
    scan_log(lines, "another log")
    assert len(searched) == 61


@given(st.lists(LINES | st.text("\r\nstep 143 los=.\u017f", max_size=30), max_size=8))
def test_lines_say_together_what_each_says_alone(lines: list[str]) -> None:
    assert _build_reports(lines) == tuple(_build_reports([line])[0] for line in lines)


def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    module._SEARCHED.clear()
    monkeypatch.setattr(module, "SEARCH_LIMITS", replace(module.SEARCH_LIMITS, owners=5))
    for number in range(20):
        scan_log(("step 1 loss 2.0",), number)
    assert list(module._SEARCHED) == [15, 16, 17, 18, 19]


def test_the_numbers_of_a_failed_save_are_those_of_the_newest_line_that_has_them() -> None:
    lines = (
        "checkpoint save failed at step 1,200: No space left; last good checkpoint is step 1,000",
        "loss: 0.5\rholding at step 1,300: waiting",
        "not holding at step 9; giving up at step ,",
    )
    found = scan_log(lines)
    assert (found.failed_step, found.last_good, found.step) == (1300, 1000, 1)
    assert (scan_log(lines[2:]).failed_step, scan_log(lines[2:]).last_good) == (None, None)


def test_ranks_that_write_between_one_another_s_lines() -> None:
    own = [
        "Traceback (most recent call last):",
        '  File "/exp/train.py", line 3, in <module>',
        "    main()",
    ]
    lines = [f"[rank{rank}]: {line}" for line in own for rank in (0, 1)]
    refused = "[rank1]: ConnectionRefusedError: [Errno 111] no"
    found = scan_log((*lines, "[rank0]: KeyError: 'a'", refused, "step 3"))
    assert {(hit.id, hit.line, hit.row, hit.line_no) for hit in found.hits} == {
        ("PY1", "[rank0]: KeyError: 'a'", 6, 6),
        ("PY1", refused, 7, 7),
        ("NET1", refused, 7, 7),
    }


def test_a_line_that_rewrites_itself_has_several_rows_and_one_number() -> None:
    found = scan_log(
        (
            "10/20 [00:01<00:01]\r11/20 [00:01<00:01]",
            "a\rb\rModuleNotFoundError: No module named 'einops'",
        )
    )
    assert [(hit.id, hit.row, hit.line_no, hit.name) for hit in found.hits] == [
        ("ENV1", 4, 1, "einops")
    ]


@pytest.mark.parametrize(
    "line",
    [
        "Checkpoint saved", "SAVED THE CKPT", "2026 checkpoint 1,200 done", "LOSS: 0.25", "'loss'=tensor(2.0",
        "12/90 [00:03<", "Resuming from step 4", "ReSumed at 7", "checkpoint save failed at step 12",
        "holding at step 3", "giving up at step 9", "last good checkpoint is step 1,000", "lo\u017fs 2.0",
        "chec\u212apoint saved", "resume: at step 4", "nothing of the kind", "", "loss", "saved",
    ],
)  # fmt: skip
def test_no_mark_is_missed_for_the_words_that_are_looked_for_first(line: str) -> None:
    expected = tuple(place for place, pattern in enumerate(_MARKS) if pattern.search(line))
    for beside in ("", "epoch 1", "loss [", "\u017f"):
        ((marks, _),), _ = _build_reports([line, beside])
        assert marks == expected, beside


def test_a_step_is_seen_however_it_is_written_and_blanks_cost_no_square() -> None:
    for line in (
        "loss: 1.5",
        "Loss = 2",
        "'loss': tensor(0.5)",
        "loss 3.1",
        "loss | -1",
        "loss\t2",
        "3/9 [00:01<",
    ):
        assert module._STEP.search(line), line
    for line in ("lossless 3", "loss of 3 cards", "losses: 3"):
        assert not module._STEP.search(line), line
    for run in ("loss" + " " * 400_000, "1" * 400_000):
        assert module._STEP.search(run) is None


def test_lines_that_say_the_same_a_thousand_times_cost_no_square_and_are_kept_once() -> None:
    bar = "\r".join(["CUDA out of memory. Tried to allocate 2.00 GiB"] * 400)
    wide = "no space left on device: " * 800
    seen = (*[bar] * 30, *[wide] * 30)
    found = scan_log(seen).hits
    assert {hit.id for hit in found} >= {"U10", "U7"}
    assert len(found) <= 30 * module.SEARCH_LIMITS.states * 3
    assert all(len(hit.line) <= module.SEARCH_LIMITS.line_characters for hit in found)
    assert sum(1 for hit in found if hit.id == "U10") == 30 * module.SEARCH_LIMITS.states


def test_a_line_that_is_found_is_the_one_that_is_kept() -> None:
    line = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB"
    assert all(hit.line is line for hit in scan_log((line,)).hits)
