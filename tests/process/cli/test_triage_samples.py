"""What README and docs show of `rgt triage` is what it prints, and every place shows a diagnosis in one order."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from rgt_tui.cli import main
from rgt_tui.cli.handbook_command import page_lines
from rgt_tui.cli.triage_files import as_text
from rgt_tui.fleet.work.launching import finding_lines as launch_lines
from rgt_tui.handbook import FileFinding, shipped_pages
from rgt_tui.model import Finding, FixStep, Severity
from rgt_tui.ui.screens import page_sections
from rgt_tui.ui.widgets import finding_details, finding_lines, text_of
from tests.system.tree import ROOT

LOG = (
    "step 1 loss 2.0\n" * 1202
    + "OSError: [Errno 28] No space left on device: '/data/runs/a/latest.pt'\n"
)
ORDER = ("do", "never", "fix", "proof")


def sample(page: str) -> list[str]:
    """Return the lines below ``$ rgt triage train.log`` of a document."""
    text = (ROOT / page).read_text(encoding="utf-8")
    found = re.search(r"^\$ rgt triage train\.log\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    assert found is not None, page
    return found[1].splitlines()


@pytest.mark.parametrize("page", ["README.md", "docs/triage.md"])
def test_the_sample_of_a_document_is_what_triage_prints(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    Path("train.log").write_text(LOG)
    assert main(["triage", "train.log"]) == 1
    printed = capsys.readouterr().out.splitlines()
    shown = sample(page)
    first, *left = "\n".join(shown).split("\n  \u2026\n")
    rest = left[0].splitlines() if left else []
    assert printed[: len(first.splitlines())] == first.splitlines()
    assert printed[len(printed) - len(rest) :] == rest
    assert left or printed == shown


def words_of(lines: list[str]) -> list[str]:
    """Return the labels of `ORDER` in the order in which lines begin with them, each once."""
    found = [
        match[1]
        for one in lines
        if (match := re.match(r"[\s*]*(do|never|fix|proof)\b", one.lower()))
    ]
    return list(dict.fromkeys(found))


def test_every_screen_and_command_shows_a_diagnosis_in_one_order() -> None:
    page = shipped_pages()["U7"]
    finding = Finding(
        gotcha="U7", title=page.title, severity=Severity.FATAL, resource="inodes of /data", evidence="OSError: full",
        reading="4,096 of 4,096 inodes used", where="/data/train.log", never=page.never, action=str(page.action),
        fixes=(FixStep("look", "df -i"), FixStep("remove", "rm -r x")),
    )  # fmt: skip
    read = FileFinding.from_page(page, "OSError: full", 0.7)
    sections = page_sections(page, (), 80)
    shown = {
        "box": [text_of(one) for one in finding_lines(finding, 76, 0.0)],
        "box, narrow": [text_of(one) for one in finding_lines(finding, 40, 0.0)],
        "alerts": [text_of(one) for one in finding_details(finding, 76, said=False)],
        "handbook": [text_of(one) for part in sections for one in part.body],
        "rgt triage": list(as_text("train.log", [read])),
        "rgt run": launch_lines(finding),
        "rgt handbook": list(page_lines(page)),
    }
    for where, lines in shown.items():
        words = words_of(lines)
        assert words == [word for word in ORDER if word in words], (where, words)
        assert {"never", "fix"} <= set(words), (where, lines)
