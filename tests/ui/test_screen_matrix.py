"""Every main screen in the sizes of terminals and the states of a fleet, as pictures that a person has looked at.

``RGT_UPDATE_SNAPSHOTS=1`` takes them anew; any browser opens ``snapshots/SCREEN/STATE-SIZE.svg``. What differs is said
in words, and where the new picture lies.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from rich.segment import Segment
from rich.style import Style
from textual.strip import Strip

from tests.ui import kept
from tests.ui.fakes import demo_state
from tests.ui.screen_pictures import (
    KEPT,
    cells_of,
    compared,
    difference,
    rows_of,
    svg_of,
    text_of_rows,
)
from tests.ui.stages import FEW, SCREENS, rest, staged

SIZES = ((80, 24), (120, 34), (200, 50))
SMALLEST = (60, 20)
"""Kept of the live state alone."""
MATRIX = [(screen, state) for screen, shown in SCREENS.items() for state in shown.states]
ALMOST_LIVE = {
    *((screen, state) for screen in ("log", "curves", "journal", "platform", "time machine")
      for state in ("stale", "unreachable")),
    *((screen, "readonly") for screen in ("journal", "platform", "audit", "time machine")),
}  # fmt: skip
"""Their pictures differ from that of the live state in none to three lines."""


def sizes_of(state: str) -> tuple[tuple[int, int], ...]:
    return (SMALLEST, *SIZES) if state == "live" else SIZES


@pytest.fixture(scope="module")
def night(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("night") / "history.db"
    kept.keep_night(path, demo_state()).close()
    return path


@pytest.mark.parametrize(
    ("screen", "state"),
    [pytest.param(*one, marks=pytest.mark.full if one in ALMOST_LIVE else ()) for one in MATRIX],
    ids=lambda one: one.replace(" ", "_"),
)
async def test_a_screen_looks_as_it_did(
    screen: str,
    state: str,
    night: Path,
    tmp_path: Path,
    state_home: Path,
    monkeypatch: pytest.MonkeyPatch,
    thorough: bool,
) -> None:
    # Each pair of screen and size, and of screen and state; with time also all three.
    sizes = sizes_of(state) if thorough or state == "live" else SIZES[1:2]
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    found = []
    async with staged(screen, state, home=state_home, night=night, size=SIZES[0]) as (app, pilot):
        for size in sizes:
            rows = await rest(app, pilot, size)
            assert (len(rows[0]), len(rows)) == size
            name = f"{screen.replace(' ', '-')}/{state}-{size[0]}x{size[1]}"
            found.append(compared(rows, name, tmp_path))
    assert not any(found), "\n\n".join(filter(None, found))


@pytest.mark.parametrize("screen", [name for name, shown in SCREENS.items() if shown.states == FEW])
@pytest.mark.parametrize("state", ["stale", "unreachable"])
async def test_a_screen_without_a_picture_of_a_lost_box_looks_as_with_a_live_one(
    screen: str, state: str, tmp_path: Path, state_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The record of what was done, and the keys, do not depend on who is connected: one picture shows both."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    async with staged(screen, state, home=state_home, size=SIZES[1]) as (app, pilot):
        rows = await rest(app, pilot, SIZES[1])
    kept_rows = rows_of(
        (KEPT / screen / f"live-{SIZES[1][0]}x{SIZES[1][1]}.svg").read_text(encoding="utf-8")
    )
    assert difference(kept_rows, rows) == []


def test_no_picture_is_kept_of_what_is_no_longer_looked_at() -> None:
    expected = {
        f"{screen.replace(' ', '-')}/{state}-{wide}x{high}.svg"
        for screen, state in MATRIX
        for wide, high in sizes_of(state)
    }
    assert {str(path.relative_to(KEPT)) for path in KEPT.rglob("*") if path.is_file()} == expected


ROWS = [
    cells_of(
        Strip(
            [
                Segment("训练 <b> ", Style(color="#ff7f8a", bold=True)),
                Segment("  ", Style(bgcolor="#2f363f")),
                Segment("⣷⣦ ok", Style(color="#c9ced6", bgcolor="#2f363f", underline=True)),
            ]
        )
    ),
    cells_of(Strip([Segment("plain".ljust(16))])),
]


def test_a_picture_is_read_back_cell_by_cell() -> None:
    assert rows_of(svg_of(ROWS)) == ROWS
    with pytest.raises(ValueError, match="not a picture"):
        rows_of("<svg/>")


def test_what_differs_is_said_in_words_and_in_colours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tests.ui.screen_pictures.KEPT", tmp_path)
    monkeypatch.setitem(os.environ, "RGT_UPDATE_SNAPSHOTS", "1")
    assert compared(ROWS, "a/b", tmp_path) == ""
    monkeypatch.delitem(os.environ, "RGT_UPDATE_SNAPSHOTS")
    assert compared(ROWS, "a/b", tmp_path) == ""
    assert "no picture is kept" in compared(ROWS, "a/c", tmp_path)
    calm = [cell._replace(ink="#c9ced6") if cell.letter == "训" else cell for cell in ROWS[0]]
    words = [cell._replace(letter="P") if cell.letter == "p" else cell for cell in ROWS[1]]
    assert difference(ROWS, [tuple(calm), tuple(words)]) == [
        "@@ -2 +2 @@",
        "-plain",
        "+Plain",
        "row 1, columns 1 to 2 '训': colour #ff7f8a → #c9ced6",
    ]
    told = compared([tuple(calm), ROWS[1]], "a/b", tmp_path)
    assert told.splitlines() == [
        f"a/b looks otherwise: {tmp_path / 'a-b.svg'}",
        "row 1, columns 1 to 2 '训': colour #ff7f8a → #c9ced6",
    ]
    assert rows_of((tmp_path / "a-b.svg").read_text())[0] == tuple(calm)
    assert "size 16x2 → 16x1" in difference(ROWS, ROWS[:1])


STRAY = {
    "a percent sign with a blank before it": re.compile(r"\d %"),
    "a size without its unit's name": re.compile(r"\d ?[KMGTP](?![\w./])"),
    "a plural of one": re.compile(r"(?<![\d.,:])1 (?!process\b)[a-z]{2,}s\b"),
    "memory in decimal units": re.compile(
        r"(?:cgroup|memory|vram|cache|host|oom kills) [^│]*\d [kMGT]B"
    ),
    "a disk or a transfer in binary units": re.compile(
        r"(?:free|copied|files,?|loss|verified) [^│]*\d [KMGT]iB"
    ),
}
"""What no screen writes: by the name of the fault."""


def test_all_screens_write_percents_sizes_and_plurals_in_one_way() -> None:
    found = {
        f"{path.relative_to(KEPT)}: {fault}: {text[max(0, at.start() - 20) : at.end() + 20].strip()}"
        for path in sorted(KEPT.rglob("*.svg"))
        for text in text_of_rows(rows_of(path.read_text(encoding="utf-8")))
        for fault, form in STRAY.items()
        for at in form.finditer(text)
    }
    assert not found, "\n".join(sorted(found))


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("bytes 63 %)", "a percent sign with a blank before it"),
        ("16.9/24 G ││", "a size without its unit's name"),
        ("refused 1 files", "a plural of one"),
        ("33% of 107 GB", None),
        ("memory 33% of 107 GB", "memory in decimal units"),
        ("131 of 214 files  298 MiB/s", "a disk or a transfer in binary units"),
        (
            "61.0 GiB  11 files  38.2 GB  41.2 k tok/s  1 dot = 3.1 steps  0.7 a core (1 process)",
            None,
        ),
    ],
)
def test_a_stray_form_is_found(text: str, fault: str | None) -> None:
    assert [name for name, form in STRAY.items() if form.search(text)] == ([fault] if fault else [])
