"""`rgt` in Chinese, as a person starts it."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

from rich.cells import cell_len

from rgt_tui import language as texts
from rgt_tui.ui import commands_by_screen

ROOT = Path(__file__).resolve().parents[3]


def run_rgt(*words: str, language: str) -> str:
    found = subprocess.run(
        [sys.executable, "-m", "rgt_tui", *words],
        env={"RGT_LANG": language, "PATH": "/usr/bin:/bin", "HOME": "/nonexistent"},
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
    )
    assert found.returncode in (0, 1), found.stderr
    return found.stdout


def test_the_help_of_rgt_speaks_chinese_and_keeps_the_names_of_commands() -> None:
    english, chinese = (run_rgt("--help", language=one) for one in ("en", "zh_CN"))
    assert "triage" in chinese
    assert chinese != english
    wide = [one for one in chinese if "\u4e00" <= one <= "\u9fff"]
    assert len(wide) > 300


ALL_HELP = """
from rgt_tui.cli.entry import build_parser
parser = build_parser()
print(parser.format_help())
for name, command in parser.get_default("parsers").items():
    print(command.format_help())
"""
SENTENCE = re.compile(r"(?<![\w./=<{-])(?:[A-Za-z][a-z']+ ){2,}[A-Za-z][a-z']+(?![\w/=(}])")


def test_the_help_of_every_command_has_no_english_sentence() -> None:
    found = subprocess.run(
        [sys.executable, "-c", ALL_HELP],
        env={
            "RGT_LANG": "zh_CN",
            "PATH": "/usr/bin:/bin",
            "HOME": "/nonexistent",
            "COLUMNS": "200",
        },
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
    ).stdout
    assert found.count("退出状态：") > 40 and "位置参数" in found and "显示本帮助并退出" in found
    # Names of commands, and what other programs call their own things, are the same in Chinese.
    names = re.compile(r"^  rgt .*?(?=   |$)|rgt [a-z-]+|flight recorder|Hugging Face|token")
    assert [line for line in found.splitlines() if SENTENCE.search(names.sub("-", line))] == []


def test_the_help_fits_a_terminal_of_80_columns_in_wide_characters() -> None:
    found = subprocess.run(
        [sys.executable, "-c", ALL_HELP],
        env={"RGT_LANG": "zh_CN", "PATH": "/usr/bin:/bin", "HOME": "/nonexistent", "COLUMNS": "80"},
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
    ).stdout
    # argparse counts the characters of "用法"; a command of an example stays on one line.
    wide = [line for line in found.splitlines() if not line.isascii() and cell_len(line) > 80]
    assert [line for line in wide if not re.match(r"用法|  (?:rgt|[a-z]+) ", line)] == []


def test_an_error_of_the_command_line_is_in_chinese() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "rgt_tui", "down"],
        env={"RGT_LANG": "zh_CN", "PATH": "/usr/bin:/bin", "HOME": "/nonexistent"},
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
    )
    assert (done.returncode, done.stderr.splitlines()[-1]) == (
        2,
        "rgt down：错误：缺少以下参数：BOX",
    )


def test_what_a_program_reads_is_the_same_in_every_language(tmp_path: Path) -> None:
    log = tmp_path / "train.log"
    log.write_text("OSError: [Errno 28] No space left on device\n")
    one, other = (
        json.loads(run_rgt("triage", "--json", str(log), language=language))
        for language in ("en", "zh_CN")
    )
    assert one == other


def test_a_finding_is_told_in_chinese(tmp_path: Path) -> None:
    log = tmp_path / "train.log"
    log.write_text("OSError: [Errno 28] No space left on device\n")
    found = run_rgt("triage", str(log), language="zh_CN")
    assert "没有剩余空间" in found
    assert "No space left on device" in found, "what the program said stays as it was"


def test_a_page_says_its_cause_in_chinese() -> None:
    """The explanation is what a person opens a page for."""
    shown = run_rgt("handbook", "SHP1", language="zh_CN")
    (cause,) = [line for line in shown.splitlines() if line.startswith("**原因。**")]
    assert re.search(r"[A-Za-z]{3,} [a-z]{2,} [a-z]{2,}", cause) is None, cause


def test_names_in_the_key_line_stay_short() -> None:
    translated = texts.load_catalogue("zh_CN").gettext
    most_cells = 14
    for _, commands in commands_by_screen():
        for command in commands:
            if command.footer:
                shown = translated(command.title)
                assert cell_len(shown) <= max(most_cells, len(command.title)), shown
