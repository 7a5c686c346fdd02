"""The documents name files and targets that exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.system.tree import ROOT, shown, tracked_files

DOCUMENTS = [
    path for path in tracked_files() if path.suffix == ".md" and "fixtures" not in path.parts
]

LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
TARGET = re.compile(r"(?:^|`)make ([a-z-]+)\b", re.MULTILINE)


def outside_code(text: str) -> str:
    return re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)


def test_there_are_documents() -> None:
    assert {"README.md", "CONTRIBUTING.md", "CHANGELOG.md", "docs/architecture.md"} <= {
        shown(path) for path in DOCUMENTS
    }


@pytest.mark.parametrize("document", DOCUMENTS, ids=shown)
def test_every_relative_link_leads_somewhere(document: Path) -> None:
    text = outside_code(document.read_text(encoding="utf-8"))
    links = [
        link.partition("#")[0] for link in LINK.findall(text) if not re.match(r"[a-z]+:", link)
    ]
    assert [link for link in links if link and not (document.parent / link).exists()] == []


def test_the_index_leads_to_every_page() -> None:
    text = (ROOT / "docs/README.md").read_text(encoding="utf-8")
    pages = {str(page.relative_to(ROOT / "docs")) for page in (ROOT / "docs").rglob("*.md")} - {
        "README.md"
    }
    assert pages - set(LINK.findall(text)) == set()


@pytest.mark.parametrize(
    "document", [each for each in DOCUMENTS if each.name != "CHANGELOG.md"], ids=shown
)
def test_lines_of_prose_are_at_most_120_wide(document: Path) -> None:
    """Rows of tables and what a program printed cannot be broken; links can be as long as they are."""
    lines = [
        re.sub(r"\(https://\S*\)", "()", line)
        for line in outside_code(document.read_text(encoding="utf-8")).splitlines()
    ]
    assert [
        line for line in lines if len(line) > 120 and not line.lstrip().startswith(("|", "!["))
    ] == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=shown)
def test_every_named_make_target_exists(document: Path) -> None:
    targets = set(
        re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    )
    named = set(TARGET.findall(document.read_text(encoding="utf-8")))
    assert named - targets == set()


@pytest.mark.parametrize("document", DOCUMENTS, ids=shown)
def test_no_place_was_left_to_be_filled_in(document: Path) -> None:
    text = outside_code(document.read_text(encoding="utf-8"))
    assert re.findall(r"@@\w*@@|\bTODO\b|\bTBD\b|\bXXX\b", text) == []


def test_every_recipe_names_files_that_are_there() -> None:
    """What a newcomer has to make stands in capitals: ``conditions_SUBJECT.py`` has brothers in that folder."""
    named = re.findall(
        r"`((?:rgt_tui|remote|tests|benchmarks|scripts|docs)/[\w/.-]+)`",
        (ROOT / "CONTRIBUTING.md").read_text(),
    )
    assert len(named) > 20
    lost = [name for name in named if not list(ROOT.glob(re.sub(r"[A-Z]{3,}", "*", name)))]
    assert lost == []


def test_the_map_of_the_code_names_modules_that_are_there() -> None:
    """It names a folder once; the bare names of modules behind it belong there."""
    text = outside_code((ROOT / "docs/architecture.md").read_text(encoding="utf-8"))
    named = re.findall(r"`((?:rgt_tui|remote|profiles|handbook)/[\w/.*]+|[\w/]+\.py)`", text)
    folder, lost = ROOT, []
    for name in named:
        whole = ROOT / name
        if name.partition("/")[0] in {"rgt_tui", "remote", "profiles", "handbook"}:
            folder = whole if whole.is_dir() else whole.parent
            lost += [] if list(ROOT.glob(name)) else [name]
        elif not (folder / name).is_file():
            lost.append(f"{folder.relative_to(ROOT)}/{name}")
    assert len(named) > 100
    assert lost == []
