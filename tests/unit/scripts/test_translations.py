"""Texts in the person's language: which one, and whether every catalogue is complete and usable."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from rich.cells import cell_len

from rgt_tui.language import choose_language, load_catalogue
from rgt_tui.ui.commands import commands_by_screen
from rgt_tui.ui.widgets.fleet_rows import COLUMNS

ROOT = Path(__file__).resolve().parents[3]


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
    assert choose_language(environ) == language


def test_every_catalogue_is_complete_and_compiled() -> None:
    """No text lacks a translation, none has other names in braces, and rgt reads what the file says."""
    found = subprocess.run(
        [sys.executable, ROOT / "scripts" / "translations.py", "check"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert found.returncode == 0, found.stdout[-4000:]


def test_titles_of_columns_fit_their_columns_in_wide_characters() -> None:
    translated = load_catalogue("zh_CN").gettext
    for column in COLUMNS:
        if column.width:
            assert cell_len(translated(column.title.strip())) <= column.width, column.key


def test_names_in_the_key_line_stay_short() -> None:
    translated = load_catalogue("zh_CN").gettext
    most_cells = 14
    for _, commands in commands_by_screen():
        for command in commands:
            if command.footer:
                shown = translated(command.title)
                assert cell_len(shown) <= max(most_cells, len(command.title)), shown


def run_rgt(*words: str, language: str) -> str:
    return subprocess.run(
        [sys.executable, "-m", "rgt_tui", *words],
        env={"RGT_LANG": language, "PATH": "/usr/bin:/bin", "HOME": "/nonexistent"},
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
    ).stdout


def test_the_help_of_rgt_speaks_chinese_and_keeps_the_names_of_commands() -> None:
    english, chinese = (run_rgt("--help", language=one) for one in ("en", "zh_CN"))
    assert "triage" in chinese
    assert chinese != english
    wide = [one for one in chinese if "\u4e00" <= one <= "\u9fff"]
    assert len(wide) > 300
