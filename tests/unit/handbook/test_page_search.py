"""The search takes words as people type them: endings, slips, synonyms, unknown words, half a word."""

from __future__ import annotations

import tomllib

import msgspec
import pytest

from rgt_tui.handbook import TextIndex, find_pages, shipped_pages
from rgt_tui.handbook.page_search import SearchWords, TermReader
from tests.system.tree import ROOT

WORDS = SearchWords(
    filler="the is a of out how",
    endings=(("ing", ""), ("ed", ""), ("s", ""), ("e", "")),
    irregular={"hung": "hang"},
    same=(("oom", "out of memory"), ("hang", "freeze")),
)


def first_pages(term: str, most: int = 3) -> list[str]:
    return [page.id for page in find_pages(term, shipped_pages().values())[:most]]


def best_text(question: str, *texts: str) -> int | None:
    index = TextIndex([[(text, 1.0)] for text in texts], TermReader(WORDS))
    scores = index.score_texts(question)
    return max(scores, key=lambda number: scores[number], default=None)


@pytest.mark.parametrize(
    ("term", "page"),
    [
        ("ddp or fsdp", "D7"),
        ("how often should I save on spot", "SP3"),
        ("how do i stop paying without losing my checkpoints", "STOP1"),
        ("shut the machine down when training is done", "STOP2"),
        ("checkpoint flibbertigibbet truncated", "C2"),  # a word that no page has
        ("chekpoint corupted", "C2"),  # letters that are missing
        ("num_workers on windows", "U44"),
        ("findUnusedParameters", "D8"),
        ("MASTER_PORT already in use", "D4"),
        ("fabr", "MN1"),  # half a word, on the screen
    ],
)
def test_what_people_type_finds_the_page(term: str, page: str) -> None:
    assert page in first_pages(term)


def test_a_title_word_for_word_finds_its_page_first() -> None:
    """Even if it is made of words that say nothing, as `already in use`."""
    assert first_pages("Address already in use", most=1) == ["D4"]
    pages = shipped_pages().values()
    missed = [page.id for page in pages if find_pages(page.title, pages)[0] != page]
    assert not missed


def test_words_that_lead_to_a_page_find_it() -> None:
    pages = shipped_pages().values()
    missed = [
        (page.id, text)
        for page in pages
        for text in page.asked
        if page not in find_pages(text, pages)[:4]
    ]
    assert not missed


@pytest.mark.parametrize(
    ("question", "best"),
    [
        ("hung", 0),
        ("freezing", 0),  # the stem of a synonym
        ("OOMs", 1),
        ("the disk is full of oom", 2),  # two words against one
        ("disk_full", 2),
        ("killler", 1),
        ("traiing", 0),
        ("klilers", 1),
        ("killor", 1),
        ("kilr", None),  # two letters are wrong
        ("the of", None),  # filler alone, which no text has
        ("zzzzzz", None),
    ],
)
def test_terms_are_stems_groups_and_slips(question: str, best: int | None) -> None:
    texts = ("training hangs", "it ran out of memory; the oom killer came", "disks are full")
    assert best_text(question, *texts) == best


def test_a_shorter_text_and_a_rarer_word_count_more() -> None:
    assert best_text("gpu", "gpu", "gpu and very many other words that come after it") == 0
    assert best_text("gpu fabric", "gpu", "fabric", "gpu cards", "gpu") == 1


def test_a_group_of_words_is_used_once_and_no_word_is_in_two() -> None:
    """Else the second group would never be found."""
    path = ROOT / "handbook" / "search" / "words.toml"
    words = msgspec.convert(tomllib.loads(path.read_text(encoding="utf-8")), SearchWords)
    phrases = [phrase for group in words.same for phrase in group]
    assert len(set(phrases)) == len(phrases)
    assert all(
        phrase == phrase.lower() and len(group) > 1 for group in words.same for phrase in group
    )
    assert list(words.irregular) == [
        word for word in words.irregular if word not in words.filler.split()
    ]


def test_what_leads_to_a_page_is_short_and_is_given_once() -> None:
    for page in shipped_pages().values():
        assert len(set(page.asked)) == len(page.asked) <= 8, page.id
        assert all(0 < len(text) <= 70 for text in page.asked), page.id
