"""A platform's facts in the person's language: every text, and nothing that a program compares."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest

from rgt_tui import language
from rgt_tui.model import Profile
from rgt_tui.profiles import (
    TEXT_FIELDS,
    all_profiles,
    change_texts,
    load_profile,
    platform_sections,
)
from scripts.translations import collect_texts, find_faults, list_catalogues, read_catalogue


@pytest.fixture
def chinese(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let texts be Chinese."""
    monkeypatch.setattr(language, "_current_catalogue", lambda: language.load_catalogue("zh_CN"))


def strip_texts(profile: Profile) -> Profile:
    """Return a profile without its texts."""
    made: Profile = change_texts(profile, lambda text: "")
    return made


@pytest.mark.usefixtures("chinese")
def test_only_the_texts_are_translated_and_a_program_gets_english() -> None:
    for name, shown in all_profiles().items():
        english = load_profile(name, english=True)
        assert shown.top_danger != english.top_danger
        assert strip_texts(shown) == strip_texts(english), name


def test_the_language_of_one_reader_is_not_kept_for_the_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    english = load_profile("autodl")
    with monkeypatch.context() as patch:
        patch.setattr(language, "_current_catalogue", lambda: language.load_catalogue("zh_CN"))
        assert "15 天" in load_profile("autodl").top_danger
    assert load_profile("autodl") == english


def test_every_text_field_exists() -> None:
    for kind, names in TEXT_FIELDS.items():
        assert set(names) <= {field.name for field in msgspec.structs.fields(kind)}, kind


def test_a_fact_without_a_translation_is_a_fault() -> None:
    fact = load_profile("autodl", english=True).top_danger
    assert fact in collect_texts()
    catalogue = read_catalogue(list_catalogues()[0])
    assert find_faults([fact], catalogue)[:1] != [f"no translation: {fact!r}"]
    catalogue.delete(fact)
    assert find_faults([fact], catalogue)[0] == f"no translation: {fact!r}"


@pytest.mark.usefixtures("chinese")
def test_a_page_of_ones_own_keeps_its_words(tmp_path: Path) -> None:
    mine = msgspec.structs.replace(load_profile("autodl"), top_danger="a fact of one's own")
    rows = platform_sections(change_texts(mine, language.translate))[0].rows
    assert rows[0].text == "a fact of one's own"


@pytest.mark.usefixtures("chinese")
def test_a_page_in_chinese_has_no_english_sentence() -> None:
    english = re.compile(r"(?<![\w./-])(?:[a-z]{3,} ){3,}[a-z]{3,}")
    for profile in all_profiles().values():
        for section in platform_sections(profile):
            assert language.translate(section.title) != section.title
            for row in section.rows:
                # What programs print stays as it is, and so does what names a source.
                if row.label not in ("seen by", "pattern") and "http" not in row.text:
                    assert not english.search(row.text), row.text
