"""The pages: every one is whole, every pattern is found by its literals, own ones count, bad ones are named."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import pytest

from rgt_tui.handbook import (
    HandbookError,
    HandbookPage,
    all_pages,
    find_pages,
    read_pages,
    search_text,
    shipped_pages,
)
from tests.system.tree import ROOT

PAGE = """
topic = "T"
[[pages]]
id = "LAB1"
title = "a"
severity = "fatal"
action = "none"
symptom = "b"
cause = "c"
fixes = [{ text = "d" }]
never = "e"
"""


def proven(parsed: Any, needles: tuple[str, ...]) -> bool:
    """Tell whether each text that a parsed pattern matches holds one of the literals."""
    run = ""
    for op, value in [*parsed, (None, None)]:
        name = str(op)
        letters = _letters(name, value)
        if letters is not None:
            run += letters
            continue
        if name == "AT":
            continue
        if any(needle in run.lower() for needle in needles):
            return True
        run = ""
        if name == "SUBPATTERN" and proven(value[3], needles):
            return True
        if name == "BRANCH" and all(proven(branch, needles) for branch in value[1]):
            return True
        if name in ("MAX_REPEAT", "MIN_REPEAT") and value[0] >= 1 and proven(value[2], needles):
            return True
    return False


def _letters(name: str, value: Any) -> str | None:
    """Return what an item stands for, where it is the same letters in every match, but for their case."""
    if name == "LITERAL":
        return chr(value)
    if name == "IN" and all(str(one[0]) == "LITERAL" for one in value):
        letters = {chr(one[1]).lower() for one in value}
        return letters.pop() if len(letters) == 1 else None
    if name == "SUBPATTERN" and all(str(one[0]) == "LITERAL" for one in value[3]):
        return "".join(chr(one[1]) for one in value[3])
    return None


@pytest.mark.parametrize(
    "page", [page for page in shipped_pages().values() if page.patterns], ids=lambda page: page.id
)
def test_each_text_that_a_pattern_matches_holds_one_of_the_literals(page: HandbookPage) -> None:
    """Otherwise the cheap first look would pass it over."""
    parser = re._parser  # type: ignore[attr-defined]  # the library's own reader of patterns
    for pattern in page.patterns:
        assert proven(parser.parse(pattern, re.MULTILINE), page.needles) or page.needle_pattern, (
            pattern
        )


GROUPED = [page for page in shipped_pages().values() if page.word_groups]


@pytest.mark.parametrize("page", GROUPED, ids=lambda page: page.id)
def test_a_line_with_a_word_of_each_group_is_found(page: HandbookPage) -> None:
    for first, *others in page.word_groups:
        rest = "".join(f" {group[-1].upper()}" for group in others)
        for word in first:
            unless = any(one in f"{word}{rest}".lower() for one in page.unless)
            assert bool(search_text(f"12{rest} {word}", [page])) != unless, word


def test_word_groups_need_one_word_of_each_and_none_of_the_others() -> None:
    (page,) = read_pages(
        PAGE.replace(
            'never = "e"',
            'never = "e"\nresource = "r"\nunless = ["retry"]\nword_groups = [[["ran out", "(full"], ["tape"]]]',
        ).encode(),
        "own.toml",
    )
    lines = "The TAPE ran out\ntape(full)\nuntape ran out\ntape ran in\nthe tape ran out: retrying"
    assert [hit.line_no for hit in search_text(lines, [page])] == [1, 2]


def test_the_handbook_is_whole() -> None:
    pages = shipped_pages()
    assert len(pages) >= 310 and sum(bool(page.patterns) for page in pages.values()) >= 126
    for page in pages.values():
        assert set(page.beats) <= set(pages), page.id
        assert page.topic and page.sources and page.fixes, page.id
        assert not any(
            "\n" in text for text in (page.title, page.symptom, page.cause, page.never)
        ), page.id


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('title = "a"', "", "missing required field `title`"),
        ('title = "a"', 'titel = "a"\ntitle = "a"', "unknown field `titel`.*did you mean 'title'"),
        ('severity = "fatal"', 'severity = "bad"', "Invalid enum value 'bad'"),
        ('never = "e"', 'never = " "', "page LAB1: never: is empty"),
        ('fixes = [{ text = "d" }]', "fixes = []", "page LAB1: fixes: there is none"),
        (
            'never = "e"',
            "never = 'e'\npatterns = ['(']",
            "page LAB1: patterns: not a regular expression",
        ),
        (
            'never = "e"',
            "never = 'e'\npatterns = ['a*']",
            "page LAB1: patterns: it matches an empty line",
        ),
        ('never = "e"', "never = 'e'\nhints = ['(']", "page LAB1: hints: not a regular expression"),
        (
            'never = "e"',
            "never = 'e'\nneedles = ['AB']",
            "page LAB1: needles: each has at least three",
        ),
        ('id = "LAB1"', 'id = "lab 1"', "id: must begin with a capital"),
        ("topic", "topc", "unknown field `topc`"),
        ('topic = "T"', "topic = ", "not TOML"),
    ],
)
def test_a_broken_page_names_file_page_and_key(old: str, new: str, words: str) -> None:
    with pytest.raises(HandbookError, match=f"own.toml: .*{words}"):
        read_pages(PAGE.replace(old, new, 1).encode(), "own.toml")


def test_the_shipped_pages_are_as_good_as_own_ones_must_be() -> None:
    files = sorted((ROOT / "handbook").glob("*.toml"))
    pages = [page for path in files for page in read_pages(path.read_bytes(), path.name)]
    assert pages == list(shipped_pages().values())


def test_own_pages_count_and_take_the_place_of_shipped_ones(tmp_path: Path) -> None:
    env = {"XDG_CONFIG_HOME": str(tmp_path), "HOME": str(tmp_path)}
    assert all_pages(env) == shipped_pages()
    folder = tmp_path / "rgt" / "handbook"
    folder.mkdir(parents=True)
    (folder / "mine.toml").write_text(PAGE + PAGE.replace('topic = "T"', "").replace("LAB1", "U7"))
    found = all_pages(env)
    assert found["LAB1"].own and found["U7"].title == "a" and not found["U6"].own
    (folder / "mine.toml").chmod(0o666)
    with pytest.raises(HandbookError, match=r"mine\.toml can be written by .*chmod go-w"):
        all_pages(env)
    (folder / "mine.toml").chmod(0o600)
    folder.chmod(0o777)
    with pytest.raises(HandbookError, match=r"handbook can be written by everyone"):
        all_pages(env)
    folder.chmod(0o700)
    (folder / "mine.toml").unlink()
    os.mkfifo(folder / "mine.toml")
    with pytest.raises(HandbookError, match=r"mine\.toml: cannot be read: it is a pipe"):
        all_pages(env)


@pytest.mark.parametrize(
    ("term", "best"),
    [
        ("u7", "U7"),
        ("no space inodes", "U7"),
        ("no space", "U7"),  # and not what is Normalised with the wrong statistics
        ("OSError: [Errno 98] Address already in use", "D4"),
        ("RuntimeError: CUDA out of memory", "U10"),
        ("fabric manager", "MN1"),
        ("windows line ends", "U26"),
        ("find_unused_parameters", "D8"),
        ("egress", "U14"),
        ("which launcher", "D7"),
    ],
)
def test_a_search_finds_the_page(term: str, best: str) -> None:
    assert find_pages(term, shipped_pages().values())[0].id == best


@pytest.mark.parametrize(
    ("term", "page"),
    [
        ("training hangs", "HANG1"),  # the page says "hang"
        ("ssh disconnects", "SSH-K1"),
        ("gpu utilization low", "U21"),  # and "utilisation"
        ("huggingface token", "L10"),  # and "Hugging Face"
        ("dataloader slow", "U24"),
        ("conda activate doesn't work", "E5"),
        ("how do I resume after preemption", "SP4"),
        ("wandb not logging", "U35"),  # no page has all the words
        ("multi gpu slower than single", "T23"),
        ("deepspeed oom", "D16"),
        ("oom", "U10"),
        ("cuda out of memory", "U10"),  # and not the special cases of it before it
        ("why was my process killed", "U9"),
        ("module not found", "ENV1"),
    ],
)
def test_the_words_that_a_person_types_find_the_page(term: str, page: str) -> None:
    assert page in [found.id for found in find_pages(term, shipped_pages().values())][:3]


def test_a_page_about_less_than_half_of_the_words_is_not_shown() -> None:
    assert [page.id for page in find_pages("fabric manager", shipped_pages().values())] == ["MN1"]


def test_a_search_for_what_stands_nowhere_finds_nothing() -> None:
    assert find_pages("xyzzy plugh", shipped_pages().values()) == []
