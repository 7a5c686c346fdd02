"""People's own questions find the page that answers them.

The questions are from public threads, in the words of their authors; a row is the ids of the pages that answer it
(`none`: no page does), the question, its source. They were labelled by reading the pages, before they were searched
for. Labels never change. `tuning.tsv` and `kept_back.tsv` are halves of 200, split by a fixed seed before the search
was changed; `tuning_2.tsv` and `tuning_3.tsv` came later, then `tuning_4.tsv` and `kept_back_2.tsv`. The search and
the words that lead to a page may be adapted to the files for tuning; those kept back only measure: do not look at
which of their questions fail.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from rgt_tui.handbook import find_pages, shipped_pages

QUESTIONS = Path(__file__).parents[2] / "fixtures" / "questions"


def share_found(name: str, rows_expected: int, among: int) -> float:
    """Return the share of a file's questions that find one of their pages among the first ones."""
    pages = list(shipped_pages().values())
    rows = [
        line.split("\t") for line in (QUESTIONS / name).read_text(encoding="utf-8").splitlines()
    ]
    asked = [(set(ids.split()), question) for ids, question, _ in rows if ids != "none"]
    assert len(rows) == rows_expected and len(asked) >= 0.88 * rows_expected
    found = [
        bool(ids & {page.id for page in find_pages(question, pages)[:among]})
        for ids, question in asked
    ]
    return sum(found) / len(found)


@pytest.mark.parametrize(
    ("name", "rows", "least"),
    [
        ("tuning.tsv", 100, 0.95),
        ("tuning_2.tsv", 69, 0.9),
        ("tuning_3.tsv", 152, 0.9),
        ("kept_back.tsv", 100, 0.9),
        ("tuning_4.tsv", 26, 0.85),
        ("kept_back_2.tsv", 26, 0.8),
    ],
)
def test_a_question_finds_its_page_among_the_first_three(
    name: str, rows: int, least: float
) -> None:
    assert share_found(name, rows, among=3) >= least


def test_the_labels_name_pages_that_exist() -> None:
    for path in QUESTIONS.glob("*.tsv"):
        for line in path.read_text(encoding="utf-8").splitlines():
            ids, question, source = line.split("\t")
            assert ids == "none" or set(ids.split()) <= set(shipped_pages()), question
            assert source.startswith("https://")
