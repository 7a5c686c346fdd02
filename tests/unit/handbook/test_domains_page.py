"""docs/domains.md: every entry of the lists has its row, and whatever a row names is there."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from rgt_tui.cli import COMMANDS
from rgt_tui.handbook import shipped_pages
from rgt_tui.health import BY_ID, CHECKS, HANDBOOK

ROOT = Path(__file__).parents[3]
LISTS = {"L": 10, "V": 7, "DF": 8, "R": 6, "X": 5, "D": 27, "MN": 6, "U": 44}


def rows() -> Iterator[tuple[str, str, list[tuple[str, str]]]]:
    for line in (ROOT / "docs" / "domains.md").read_text().splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("| ") and cells[0] != "row":
            yield cells[0], cells[1], re.findall(r"(\w+) `([^`]+)`", cells[2])


def every_test() -> set[str]:
    texts = (path.read_text() for path in (ROOT / "tests").rglob("test_*.py"))
    return {
        name for text in texts for name in re.findall(r"^(?:async )?def (test_\w+)\(", text, re.M)
    }


def test_every_entry_of_the_lists_has_one_row() -> None:
    told = [name for name, _, _ in rows()]
    assert len(told) == len(set(told))
    expected = {
        f"{letters}{number}" for letters, many in LISTS.items() for number in range(1, many + 1)
    }
    assert expected <= set(told), sorted(expected - set(told))


def test_whatever_a_row_names_is_there() -> None:
    tests, pages = every_test(), shipped_pages()
    there = {
        "finding": {id_ for id_ in HANDBOOK if pages[id_].patterns},
        "line": {id_ for id_, page in pages.items() if page.patterns and page.terminal_only},
        "figures": {id_ for id_, entry in HANDBOOK.items() if entry.prove is not None},
        "page": set(pages),
        "alert": set(BY_ID),
        "check": {check.id for check in CHECKS},
        "command": set(COMMANDS),
        "test": tests,
        "advice": tests,
    }
    for name, what, items in rows():
        assert what and items, name
        for kind, item in items:
            assert item in there[kind], f"{name}: no {kind} is called {item}"


@pytest.mark.parametrize("letters", LISTS)
def test_a_row_says_what_its_page_says_and_hides_no_finding(letters: str) -> None:
    pages = shipped_pages()
    for name, what, items in rows():
        if not re.fullmatch(rf"{letters}\d+", name):
            continue
        assert what == pages[name].title
        kinds = {kind for kind, item in items if item == name}
        entry = HANDBOOK.get(name)
        found = {"finding"} if entry is not None and pages[name].patterns else set()
        found |= {"figures"} if entry is not None and entry.prove is not None else set()
        assert kinds - {"line"} == (
            found or ({"page"} if not pages[name].terminal_only else set())
        ), name


@pytest.mark.parametrize(
    ("page", "numbers"),
    [
        ("L5", ("linear", "dynamic", "yarn", "4 times", "16 to 32 times", "new length / trained length")),
        ("L9", ("beta 0.1", "0.3 to 0.5", "1e-6", "1e-5", "0.7")),
        ("R1", ("1e-6",)),
        ("R2", ("target 6", "0.2")),
        ("DF3", ("1 / deviation",)),
        ("DF5", ("0.1", "5 to 15")),
        ("X1", ("Stage 1", "1e-3", "Stage 2", "2e-5")),
        ("X3", ("1e-3", "2e-5")),
    ],
)  # fmt: skip
def test_a_page_has_the_numbers_of_its_fix(page: str, numbers: tuple[str, ...]) -> None:
    texts = " ".join(fix.text for fix in shipped_pages()[page].fixes)
    assert [number for number in numbers if number not in texts] == []
