"""The check of the code's figures counts what it says, and fails when a figure exceeds its limit."""

from __future__ import annotations

from pathlib import Path

import pytest

from scripts import code_figures
from scripts.code_figures import count_deep_imports, count_module

MODULE = '''"""Whoever reads this."""

PACE = 5

# Nobody is told anew.
def look(box):
    """One line."""
    return 1 if box else 2


def inspect_mounts(box):
    return look(box)
'''


def test_a_module_is_counted() -> None:
    figures = count_module(MODULE)
    assert figures["modules"] == 1
    assert figures["conditional_expressions"] == 1
    assert figures["short_names"] == 1
    assert figures["bare_constants"] == 1
    assert figures["odd_words"] == 4
    bare = count_module("PACE = 5\n")
    assert bare["tokens"] == 3
    assert count_module('"""A text."""\n# a comment\n\n\nPACE = (\n    5\n)\n')["tokens"] == 5, (
        "formatting counts nothing"
    )


def test_imports_from_inside_a_package_are_counted() -> None:
    text = "from rgt_tui.ssh import connect\nfrom rgt_tui.ssh.channel import WatchChannel, PackedLines\nimport os\n"
    assert count_deep_imports(text) == 2


def test_a_figure_above_its_limit_fails_and_limits_only_go_down(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    limits = tmp_path / "limits.toml"
    monkeypatch.setattr(code_figures, "LIMITS", limits)
    monkeypatch.setattr(code_figures, "count_tree", lambda: count_module(MODULE))
    limits.write_text("modules = 3\nodd_words = 3\n")
    assert code_figures.main([]) == 1
    assert "odd_words" in capsys.readouterr().out
    assert code_figures.main(["--lower"]) == 1, "a limit is never raised"
    assert limits.read_text() == "modules = 1\nodd_words = 3\n"
    limits.write_text("modules = 1\nodd_words = 4\n")
    assert code_figures.main([]) == 0
