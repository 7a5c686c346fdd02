"""Texts in the person's language: which one, and whether every catalogue is complete and usable."""

from __future__ import annotations

import pytest
from rich.cells import cell_len

from rgt_tui import language as texts
from rgt_tui.ui.widgets.fleet_rows import COLUMNS
from scripts.translations import list_faults


@pytest.mark.parametrize(
    ("environ", "language"),
    [
        ({}, "en"),
        ({"LANG": "C.UTF-8"}, "en"),
        ({"LANG": "de_DE.UTF-8"}, "en"),
        ({"LANG": "zh_CN.UTF-8"}, "zh_CN"),
        ({"LANG": "zh_CN.GBK"}, "zh_CN"),
        ({"LANG": "zh_SG.UTF-8"}, "zh_CN"),
        ({"LC_ALL": "zh_CN@pinyin", "LANG": "C"}, "zh_CN"),
        ({"LC_ALL": "", "LC_MESSAGES": "zh_CN.UTF-8"}, "zh_CN"),
        ({"LC_ALL": "C", "LANG": "zh_CN.UTF-8"}, "en"),
        ({"LANG": "zh_TW.UTF-8"}, "en"),
        ({"RGT_LANG": "en", "LANG": "zh_CN.UTF-8"}, "en"),
        ({"RGT_LANG": "zh", "LANG": "C"}, "zh_CN"),
        ({"RGT_LANG": "zh-CN"}, "zh_CN"),
        ({"RGT_LANG": "../../etc"}, "en"),
    ],
)
def test_the_language_is_chosen_as_posix_says(environ: dict[str, str], language: str) -> None:
    assert texts.choose_language(environ) == language


def test_every_catalogue_is_complete_and_compiled() -> None:
    """No text lacks a translation, none has other names in braces, and rgt reads what the file says."""
    assert list_faults() == []


def test_titles_of_columns_fit_their_columns_in_wide_characters() -> None:
    translated = texts.load_catalogue("zh_CN").gettext
    for column in COLUMNS:
        if column.width:
            assert cell_len(translated(column.title.strip())) <= column.width, column.key
