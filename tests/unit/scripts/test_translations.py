"""Texts in the person's language: which one, and whether every catalogue is complete and usable."""

from __future__ import annotations

import ast
import collections
import re
from pathlib import Path

import pytest
from babel.messages.catalog import Catalog
from rich.cells import cell_len

from rgt_tui import language as texts
from rgt_tui.ui.widgets.fleet_rows import COLUMNS
from scripts.translations import (
    CODE,
    SAME_IN_CHINESE,
    collect_texts,
    find_merged_texts,
    list_catalogues,
    list_faults,
    list_literals,
    list_sentences,
    read_catalogue,
    split_context,
)

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
    assert texts.choose_language(environ) == language


def test_every_catalogue_is_complete_and_compiled() -> None:
    """No text lacks a translation, none has other names in braces, and rgt reads what the file says."""
    assert list_faults() == []


def test_titles_of_columns_fit_their_columns_in_wide_characters() -> None:
    translated = texts.load_catalogue("zh_CN").gettext
    for column in COLUMNS:
        if column.width:
            assert cell_len(translated(column.title.strip())) <= column.width, column.key


def test_the_catalogue_keeps_to_the_terms_of_the_documentation() -> None:
    """What one term is called twice reads like two things."""
    (path,) = list_catalogues()
    rows = (ROOT / "docs" / "translating.md").read_text("utf-8").split("## Chinese terms")[1]
    last_cells = [row.split("|")[-2].strip() for row in rows.splitlines() if row.startswith("| ")]
    avoided = [word for cell in last_cells[1:] for word in cell.split(", ") if word]
    assert "供应商" in avoided
    assert [
        message.string
        for message in read_catalogue(path)
        if message.id
        # A platform's own label, such as that of a button, stays as it is.
        and any(
            word in str(message.string).replace("主机密钥", "host key")
            for word in [*avoided, "您"]
            if word not in message.id
        )
    ] == []


def test_chinese_and_latin_letters_have_a_space_between_them() -> None:
    (path,) = list_catalogues()
    tight = re.compile(
        r"[\u4e00-\u9fff][A-Za-z0-9]|[A-Za-z0-9][\u4e00-\u9fff]|[\u4e00-\u9fff][,;?!]"
    )
    assert [
        one.string for one in read_catalogue(path) if one.id and tight.search(str(one.string))
    ] == []


def test_an_adapter_raises_no_error_in_english_alone() -> None:
    """A literal of some words in a `raise` of an adapter goes through `translate`."""
    found = []
    for path in sorted((ROOT / "rgt_tui" / "providers").glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if not isinstance(node, ast.Raise) or not isinstance(node.exc, ast.Call):
                continue
            for one in node.exc.args:
                text = "".join(list_literals(one))
                if isinstance(one, ast.JoinedStr):
                    text = ast.unparse(one)
                if len(re.findall(r"[a-z]{2,} [a-z]{2,}", text)) > 1:
                    found.append(f"{path.name}:{node.lineno}: {text}")
    assert found == []


IN_CHINESE = (
    "gate", "ui", "files.py", "cli/teardown", "cli/alert_commands.py", "fleet/billing_actions.py", "fleet/meters.py",
    "fleet/open_actions.py", "fleet/box_evidence.py", "fleet/pulls", "fleet/pushes", "fleet/history",
    "fleet/attention.py", "fleet/autostop", "fleet/config", "fleet/renting", "fleet/work", "transfer",
    "health/moment_changes.py", "health/rows",
)  # fmt: skip
"""Modules and packages in which every sentence for a person is in the catalogue."""
NOT_FOR_A_PERSON = {
    "No space left on device": "as the system's own error",
    "only {v1} bytes left, {v2} wanted": "as the system's own error",
    "the meter keeps running": "a fact, which a digest covers",
    "in the box": "a fact, which a digest covers",
    "kubectl exec in {v1}": "a fact, which a digest covers",
    "found, left out": "part of an item's key",
    "checkpoints, left out": "part of an item's key",
    "{v1} at any price": "typed exactly as it is",
    "{v1} may be preempted": "typed exactly as it is",
    "the fleet did not stop cleanly: {v1}": "for the developer's console",
    "This page is generated from": "docs/screens/keys.md",
    "is also in the command palette": "docs/screens/keys.md",
    "tools=$(mktemp -d) && ": "a command for the box",
    "no such file": "words of logs",
    "stale file handle": "words of logs",
    "no space left": "words of logs",
    "out of memory": "words of logs",
    "system-ui, ": "fonts",
    "find on the box": "the name of a worker",
    "connecting to the fleet": "shown for one frame, before the language's first text",
    "listing the results of {v1}": "the name of a task",
    "counting ": "the name of a task",
    "asking the providers": "the name of a task",
    "reading the meters": "the name of a task",
    "rgt-box ": "which command of the agent an error is about",
    "the agent's answer": "which answer an error is about",
    "was written while it was pulled": "kept in the report of the pull",
    "changed while it was pulled": "kept in the report of the pull",
    "02:30, yesterday": "forms that are typed",
    "Object missing required field": "as msgspec says it",
    "no key on line {v1}": "another error is shown in its place",
    "a free port was refused": "for the developer",
    "frozenset dict list": "names of classes",
    "date datetime time": "names of classes",
    "Partial Replicate": "names of classes",
    "DTensorSpec": "names of classes",
    "Size Tensor device": "names of classes",
    "bytearray set": "names of classes",
}
"""The beginning of a text that stays English, and why."""


ON_SCREENS = ("ui", "health", "fleet/history", "fleet/pulls")
"""Where a single word beside a value is shown, too."""
IDENTIFIERS = re.compile(
    r"\0|\.md$|^[a-z]+[-:.]\S|^(Bearer|autostop|lease|notify|finding|stroke|py-spy|torchfrtrace) ?"
    r"|^(phase|pid|exit|gpu|inodes?|loss|rank|python|agent|tone|box|token|OMP_NUM_THREADS|sink|cd|exec|rgt)"
    r"[ :,]|<|--|\{ |rgt$|[ (,](pid|tmux) \{|^Python \{|^\$ rgt | inodes$"
)
"""Keys, names of things, and terms that are the same in every language."""


def test_no_word_beside_a_value_is_in_english_alone() -> None:
    """`f"{count} marked"` would be English on every screen: too short for the test below."""
    known = {text.rpartition("\x04")[2] for text in collect_texts()}
    found = []
    for place in ON_SCREENS:
        for module in sorted((ROOT / "rgt_tui" / place).rglob("*.py")):
            if module.name == "fulldisk.py":  # names of resources, which `describe_resource` shows
                continue
            for line, text in list_sentences(ast.parse(module.read_text("utf-8")), 1):
                bare = text.strip(" ")
                allowed = IDENTIFIERS.search(bare) or CODE.search(bare) or bare in known
                if "{v1}" in text and not allowed and not text.startswith(tuple(NOT_FOR_A_PERSON)):
                    found.append(f"{module.relative_to(ROOT)}:{line}: {text}")
    assert found == [], "give it to `translate`"


def test_no_sentence_of_a_translated_part_is_in_english_alone() -> None:
    known = {text.rpartition("\x04")[2] for text in collect_texts()}
    found, used = [], set()
    for place in IN_CHINESE:
        path = ROOT / "rgt_tui" / place
        for module in sorted(path.rglob("*.py")) if path.is_dir() else [path]:
            for line, text in list_sentences(ast.parse(module.read_text("utf-8"))):
                if text.strip(" ") in known or CODE.search(text):
                    continue
                allowed = [begin for begin in NOT_FOR_A_PERSON if text.startswith(begin)]
                used.update(allowed)
                if not allowed:
                    found.append(f"{module.relative_to(ROOT)}:{line}: {text}")
    assert found == [], "give it to `translate`, or say in NOT_FOR_A_PERSON why it stays English"
    assert used == NOT_FOR_A_PERSON.keys()


def catalogue_of(translations: dict[str, str]) -> Catalog:
    made = Catalog(locale="zh_CN")
    for text, translation in translations.items():
        bare, context = split_context(text)
        made.add(bare, translation, context=context)
    return made


@pytest.mark.parametrize(
    ("first", "second", "translation", "is_fault"),
    [
        ("{box} stops", "{box} is stopped", "{box} 停止", True),
        ("the pod of {job}", "a pod of {job}", "{job} 的 pod", True),
        ("halted", "paused", "已暂停", True),
        ("lost", "loses", "丢失", True),
        ("the disk", "disks", "磁盘", False),
        ("training process", "training processes", "训练进程", False),
        ("a reboot of the host", "host reboots", "主机重启", False),
        ("transfer\x04stopped", "parked", "已关机", False),
        ("a brace { of a shell", "braces { of shells", "花括号", False),
    ],
)
def test_two_english_texts_are_not_one_in_chinese(
    first: str, second: str, translation: str, is_fault: bool
) -> None:
    """Words that differ in meaning, and every text with values, have a translation of their own."""
    pair = {first: translation, second: translation}
    assert bool(find_merged_texts(pair, catalogue_of(pair))) is is_fault


def test_a_translation_that_texts_may_share_is_still_shared() -> None:
    """An entry of the list of exceptions that is no longer needed would hide a later fault."""
    (path,) = list_catalogues()
    catalogue = read_catalogue(path)
    shared = collections.Counter(str(one.string) for one in catalogue if one.id)
    assert [text for text in SAME_IN_CHINESE if shared[text] < 2] == []
