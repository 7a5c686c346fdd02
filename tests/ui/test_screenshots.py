"""ctrl+s writes where it can, never over another file, and says where on the event line."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from rgt_tui.ui import stretch_wide_text, write_screenshot
from tests.ui.snap import running, screen_text, settle


def test_it_is_written_here_and_never_over_another_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("time.strftime", lambda *_: "20261122-031500")
    said = [write_screenshot(f"<svg {n}>", os.environ) for n in range(3)]
    names = ["rgt-20261122-031500.svg", "rgt-20261122-031500-1.svg", "rgt-20261122-031500-2.svg"]
    assert [text.rpartition("/")[2] for text in said] == names
    assert [(tmp_path / name).read_text() for name in names] == ["<svg 0>", "<svg 1>", "<svg 2>"]


@pytest.mark.parametrize("removed", [True, False])
def test_where_nothing_can_be_written_it_goes_to_the_state_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, state_home: Path, removed: bool
) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone if removed else "/proc")
    gone.rmdir()
    said = write_screenshot("<svg>", os.environ)
    (there,) = (state_home / "screenshots").iterdir()
    assert f"the screen was saved to {there}" in said
    assert ("/proc: " in said) is not removed, "and why it is not here"
    assert there.read_text() == "<svg>"


def test_where_it_cannot_be_written_at_all_that_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, state_home: Path
) -> None:
    state_home.parent.mkdir(parents=True)
    state_home.write_text("a file")
    monkeypatch.chdir("/proc")
    assert write_screenshot("<svg>", os.environ).startswith(
        "no screenshot could be written: /proc: "
    )


async def test_the_event_line_says_where_and_nothing_pops_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    async with running(keys=("ctrl+s",)) as (app, pilot, _):
        await settle(pilot)
        (there,) = tmp_path.glob("rgt-*.svg")
        assert f"the screen was saved to {there}"[:60] in screen_text(app).splitlines()[-2]
        assert not app._notifications
        assert "vast-demo" in there.read_text()


def test_a_wide_character_has_two_cells_in_a_picture() -> None:
    narrow = '<text x="0" textLength="48.8" clip-path="url(#a)">&#160;rgt</text>'
    wide = '<text x="0" textLength="48.8" clip-path="url(#a)">&#160;机群 </text>'
    assert stretch_wide_text(narrow) == narrow
    assert stretch_wide_text(wide) == wide.replace("48.8", "73.2")
