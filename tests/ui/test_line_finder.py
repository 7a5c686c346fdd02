"""What is looked for in lines: the same as looking at each line by itself, and never for ever."""

from __future__ import annotations

import re
import time
from unittest import mock

from hypothesis import given, settings
from hypothesis import strategies as st

from rgt_tui.fleet import kept_lines
from rgt_tui.fleet.kept_lines import FilePlace, KeptLines, LineBlock, block_of
from rgt_tui.handbook import shipped_pages
from rgt_tui.model import clean_text
from rgt_tui.ui import line_finder
from rgt_tui.ui.line_finder import (
    ErrorFinder,
    LineFinder,
    LineMarks,
    PageFinder,
    Re2Finder,
    TextFinder,
    finder_for,
    is_error,
    line_shape,
)
from tests.ui.test_log_errors import ERRORS, NONE, lines

PIECES = st.sampled_from(
    [
        "step 812",
        "loss",
        "nan",
        "Error",
        "é",
        "É",
        " ",
        "  ",
        "x",
        "INFO",
        "[12]",
        "a.b",
        "12",
        "\x1b[31m",
        "-",
    ]
)
LINES = st.lists(
    st.lists(PIECES, max_size=6).map(lambda parts: clean_text("".join(parts))), max_size=20
)


def block(rows: list[str]) -> LineBlock:
    return block_of(5, rows)


def found(finder: LineFinder, rows: list[str]) -> list[int]:
    return [number - 5 for number, _ in finder.find_lines(block(rows))] if rows else []


PATTERNS = [
    "loss",
    "STEP",
    "é",
    "É",
    "a.b",
    r"\d+\s*$",
    "^x",
    r"^$",
    "nan|Error",
    r"[^x]x",
    r"\s",
    "$",
    "",
    r"\[12\]",
]


@settings(max_examples=30, deadline=None)
@given(rows=LINES)
def test_every_way_finds_what_looking_at_each_line_finds(rows: list[str]) -> None:
    for pattern in PATTERNS:
        for fold in (False, True):
            naive = re.compile(pattern, re.IGNORECASE if fold else 0)
            wanted = [index for index, row in enumerate(rows) if naive.search(row)]
            assert found(Re2Finder(pattern, fold=fold), rows) == wanted, (pattern, fold)
            text = re.compile(re.escape(pattern), re.IGNORECASE if fold else 0)
            wanted = [index for index, row in enumerate(rows) if text.search(row)]
            if pattern:
                assert found(TextFinder(pattern, fold=fold), rows) == wanted, (pattern, fold)


def test_no_expression_takes_long() -> None:
    chosen = finder_for("(a+)+$")
    assert isinstance(chosen.finder, Re2Finder)
    began = time.process_time()
    assert found(chosen.finder, ["a" * 10_000 + "b"]) == []
    chosen.finder.find_spans("a" * 10_000 + "b")
    assert time.process_time() - began < 2


def test_how_a_typed_text_is_looked_for() -> None:
    assert found(finder_for("nan").finder, ["NaN", "nan", "x"]) == [0, 1]
    assert found(finder_for("NaN").finder, ["NaN", "nan", "x"]) == [0], "a capital makes case count"
    assert found(finder_for(r"\S+x").finder, ["aX", "x"]) == [0], "an escape is no capital"
    wrong = finder_for("loss (")
    assert wrong.trouble.startswith("not a regular expression (missing )")
    assert found(wrong.finder, ["the LOSS (", "loss"]) == [0], "then it is text"
    unknown = finder_for(r"(?<!x)y")
    assert (
        unknown.trouble
        == "not a regular expression (invalid perl operator: (?<!): searched as plain text"
    )
    assert found(unknown.finder, ["y", "a(?<!x)y"]) == [1]


def test_lines_in_which_it_matches_are_told_where() -> None:
    assert finder_for("os").finder.find_spans("loss os") == ((1, 3), (5, 7))
    assert finder_for(r"[0-9]+").finder.find_spans("a12b3") in (((1, 3), (4, 5)), ())


ALL = [line for _, line in (*lines(ERRORS), *lines(NONE))]


def test_errors_are_found_as_by_looking_at_each_line() -> None:
    finder = ErrorFinder()
    wanted = [index for index, row in enumerate(ALL) if is_error(row)]
    assert len(wanted) > 80
    assert found(finder, ALL) == wanted


WORDS = st.sampled_from([word for line in ALL for word in line.split()])


@given(st.lists(st.lists(WORDS, max_size=8).map(" ".join), max_size=12))
@settings(deadline=None)
def test_any_words_of_such_lines_are_found_alike(rows: list[str]) -> None:
    assert found(ErrorFinder(), rows) == [index for index, row in enumerate(rows) if is_error(row)]


def test_pages_of_the_handbook_are_found_with_the_line() -> None:
    rows = [*["step 1 loss 2.0"] * 30, "ModuleNotFoundError: No module named 'einops'", "x"]
    finder = PageFinder(shipped_pages().values())
    ((number, page),) = finder.find_lines(block(rows))
    assert (number, page != "") == (35, True)


def test_lines_that_differ_in_numbers_alone_have_one_shape() -> None:
    assert line_shape("rank 3: out of memory 2.00 GiB") == line_shape(
        "rank 71: out of memory 12.5 GiB"
    )
    assert line_shape("a") != line_shape("b")


def look(marks: LineMarks) -> None:
    while (job := marks.next_job()) is not None:
        job.run()
        marks.apply_job(job)


@settings(max_examples=50, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["append", "older", "look", "catch up"]), LINES, st.integers(0, 30)
        ),
        max_size=10,
    )
)
def test_an_index_knows_what_looking_anew_would_find(
    steps: list[tuple[str, list[str], int]],
) -> None:
    with (
        mock.patch.object(line_finder, "AT_ONCE", 7),
        mock.patch.object(kept_lines, "BLOCK_BYTES", 64),
    ):
        take_steps(steps)


def take_steps(steps: list[tuple[str, list[str], int]]) -> None:
    kept = KeptLines("a.log", most_lines=60)
    marks = LineMarks(kept, TextFinder("loss", fold=False))
    for what, rows, back in steps:
        if what == "append":
            kept.append_lines(rows)
        elif what == "older":
            number = max(kept.first_number, kept.end - back)
            if kept.replace_before(number, rows, FilePlace(1, 0)):
                marks.forget_before(number)
        elif what == "look":
            look(marks)
            assert marks.is_complete
        else:
            marks.catch_up()
        told = list(marks.line_numbers)
        wanted = [at for at in range(kept.first_number, kept.end) if "loss" in kept.read_line(at)]
        assert told == [at for at in wanted if marks.was_searched(at)]
        if what == "look":
            assert told == wanted
            for at in range(kept.first_number - 1, kept.end + 1):
                assert list(marks.iterate_after(at)) == [one for one in wanted if one > at]
                assert list(marks.iterate_before(at)) == [
                    one for one in reversed(wanted) if one < at
                ]
                assert marks.count_up_to(at) == sum(one <= at for one in wanted)
