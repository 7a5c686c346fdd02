"""The handbook's screen: what boxes show now stands first, a search as one types, proof and never before the steps."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from rgt_tui.handbook import shipped_pages
from rgt_tui.model import Finding, FleetState, LinkState, Severity
from rgt_tui.ui import legend_of
from rgt_tui.ui.screens import FleetScreen, HandbookScreen, list_rows, page_sections
from rgt_tui.ui.widgets import Pane, SelectableList, Tone, finding_lines, text_of, wrap_text
from tests.ui.fakes import NOW, demo_state
from tests.ui.snap import running, screen_text, settle


@pytest.fixture(autouse=True)
def own_config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    return tmp_path / "rgt" / "handbook"


def page_text(screen: HandbookScreen) -> str:
    return "\n".join(text_of(row) for row in screen.query_one("#page", Pane).shown_lines)


def picked(screen: HandbookScreen) -> str:
    page = screen.picked_page
    return "" if page is None else page.id


async def test_what_a_box_shows_now_stands_first_with_its_proof() -> None:
    state = demo_state()
    box, finding = next(
        (box.spec.name, one)
        for box in state.boxes
        for one in box.findings
        if one.severity is Severity.FATAL
    )
    async with running(state, size=(200, 50), keys=("H",)) as (app, pilot, _):
        screen = app.screen
        assert isinstance(screen, HandbookScreen)
        assert picked(screen) == finding.gotcha
        text = page_text(screen)
        assert f"on {box} now" in text and finding.evidence[:40] in text
        assert text.index("never") < text.index("fix 1"), (
            "what must not be done stands above the steps"
        )
        assert finding.fixes[0].text[:40] in text, "the steps for this box, with its real paths"
        listed = screen.main_list
        assert (
            text_of(listed.shown_lines[-1]).strip()
            == f"▼ {len(shipped_pages()) - listed.size.height + 1} more"
        )
        await pilot.press("G")
        await settle(pilot)
        assert (
            text_of(listed.shown_lines[-1]).strip()
            == f"{len(shipped_pages()) - listed.size.height + 1} above"
        )
        assert picked(screen) != finding.gotcha and f"on {box}" not in page_text(screen)
        await pilot.press("q")
        await settle(pilot)
        assert isinstance(app.screen, FleetScreen)


async def test_what_a_box_showed_when_it_was_last_seen_is_not_called_now() -> None:
    """The nearest proof comes first: that of a box which is seen."""
    boxes = {box.spec.name: box for box in demo_state().boxes}
    vast = boxes["vast-demo"]
    lost = msgspec.structs.replace(
        vast, link=LinkState.UNREACHABLE, reason="timed out", sample_at=NOW - 200, since=NOW - 200
    )
    async with running(FleetState((lost,), (), NOW), size=(200, 50), keys=("H",)) as (
        app,
        pilot,
        fleet,
    ):
        screen = app.screen
        assert isinstance(screen, HandbookScreen)
        text = page_text(screen)
        assert "now ─" not in text and "on vast-demo ─" in text and "⊘ 3m20 old" in text
        other = msgspec.structs.replace(
            vast, spec=msgspec.structs.replace(vast.spec, name="seen"), sample_at=NOW
        )
        fleet.push(FleetState((lost, other), (), NOW))
        app.tick(force=True)
        await settle(pilot)
        text = page_text(screen)
        assert text.index("on seen now") < text.index("on vast-demo ─")


def test_a_page_names_the_alerts_and_checks_that_lead_to_it() -> None:
    text = [text_of(row).strip() for row in page_sections(shipped_pages()["U7"], (), 80)[-1].body]
    assert "alerts holding, bytes, inodes, filling" in text and "checks 0.2, 0.5, 4.3" in text
    assert not any(
        text_of(row).startswith(("alerts", "checks"))
        for row in page_sections(shipped_pages()["M19"], (), 80)[-1].body
    )


@pytest.mark.parametrize(
    ("severity", "glyph", "tone"),
    [
        (Severity.FATAL, "✖", Tone.TROUBLE),
        (Severity.SILENT_WRONG, "✖", Tone.TROUBLE),
        (Severity.DEGRADING, "▲", Tone.WARN),
        (Severity.COST, "▲", Tone.WARN),
    ],
)
def test_a_severity_has_one_glyph_on_its_page_in_its_diagnosis_and_in_the_help(
    severity: Severity, glyph: str, tone: Tone
) -> None:
    page = next(page for page in shipped_pages().values() if page.severity is severity)
    assert page_sections(page, (), 80)[0].body[len(wrap_text(page.title, 80))][0] == (
        f"{glyph} {severity}",
        tone,
    )
    listed = SelectableList[str](id="pages")
    listed.show_rows(list_rows((page,), {page.id: True}), ())
    assert listed.make_lines(80, 1)[0][0] == (f" {glyph} ", tone)
    listed.show_rows(list_rows((page,), {page.id: False}), ())
    assert listed.make_lines(80, 1)[0][0] == (f" {glyph} ", Tone.DIM), (
        "it was seen, and nobody sees it now"
    )
    listed.show_rows(list_rows((page,), {}), ())
    assert glyph not in text_of(listed.make_lines(80, 1)[0]), "no box shows it now"
    finding = Finding(page.id, page.title, severity, "a thing", "the proof", "log")
    assert finding_lines(finding, 80, 0.0)[0][0] == (f"{glyph} a thing", tone)
    rows = [row for _, part in legend_of("handbook") for row in part]
    assert [row.mark for row in rows if row.means.startswith(f"{severity}:")] == [glyph]


async def test_a_search_narrows_while_it_is_typed_and_escape_clears_it() -> None:
    async with running(demo_state(), keys=("H", "slash", *"fabric")) as (app, pilot, _):
        screen = app.screen
        assert isinstance(screen, HandbookScreen) and picked(screen) == "MN1"
        await pilot.press("enter")
        await settle(pilot)
        assert "search fabric" in screen_text(app)
        await pilot.press("escape")
        await settle(pilot)
        assert app.screen_stack[-1] is screen and "search fabric" not in screen_text(app)
        await pilot.press("slash", *"xyzzy")
        await settle(pilot)
        assert (
            isinstance(screen, HandbookScreen)
            and picked(screen) == ""
            and "no page matches" in screen_text(app)
        )
        await pilot.press("enter", "y")
        await settle(pilot)
        assert "nothing to copy" in screen_text(app)


async def test_y_copies_the_steps_with_what_never_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    async with running(demo_state(), keys=("H", "slash", *"EADDRINUSE", "enter")) as (
        app,
        pilot,
        _,
    ):
        copied: list[str] = []
        monkeypatch.setattr(app, "copy_to_clipboard", copied.append)
        await pilot.press("y")
        await settle(pilot)
        assert "copied the fix of D4: 2 steps" in screen_text(app)
        assert copied[0].startswith("# never: ") and copied[0].endswith("\nss -ltnp | grep 29500")


async def test_own_pages_are_marked_and_a_broken_one_is_named(own_config: Path) -> None:
    own_config.mkdir(parents=True)
    path = own_config / "lab.toml"
    path.write_text(
        'topic = "Lab"\n[[pages]]\nid = "LAB1"\ntitle = "The lab\'s proxy is down"\nseverity = "fatal"\n'
        'action = "ask-user"\nsymptom = "a"\ncause = "b"\nfixes = [{ text = "call them" }]\nnever = "c"\n'
    )
    async with running(demo_state(), keys=("H", "slash", *"LAB1")) as (app, _, _):
        assert isinstance(app.screen, HandbookScreen)
        assert picked(app.screen) == "LAB1" and "your own" in page_text(app.screen)
    path.write_text("topic = ")
    async with running(demo_state(), size=(200, 50), keys=("H",)) as (app, _, _):
        assert "lab.toml: not TOML" in screen_text(app)
        assert isinstance(app.screen, HandbookScreen) and picked(app.screen)


async def test_tab_gives_the_keys_to_the_page() -> None:
    async with running(demo_state(), size=(80, 24), keys=("H", "tab")) as (app, pilot, _):
        screen = app.screen
        assert isinstance(screen, HandbookScreen) and isinstance(screen.focused, Pane)
        here, before = picked(screen), page_text(screen)
        await pilot.press("pagedown")
        await settle(pilot)
        assert picked(screen) == here and page_text(screen) != before
        await pilot.press("tab", "j")
        await settle(pilot)
        assert picked(screen) != here
