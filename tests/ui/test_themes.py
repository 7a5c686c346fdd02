"""Every text of every theme can be read on what it is drawn on, by those who see fewer colours, and without colours."""

from __future__ import annotations

import itertools

import pytest
from rich.color import Color, ColorSystem
from textual.theme import Theme

from rgt_tui.model import BoxHealth, CheckStatus
from rgt_tui.ui import (
    ASCII,
    THEMES,
    UNICODE,
    Preferences,
    RgtApp,
    health_mark,
    state_legend,
    themes_of,
)
from rgt_tui.ui.widgets import status_glyph as check_mark
from tests.ui.fakes import FakeFleet
from tests.ui.snap import running, settle

DRAWN = [
    pytest.param(theme.name, marks=() if number == 0 or not theme.dark else pytest.mark.full)
    for number, theme in enumerate(THEMES)
]
"""Inks and grounds of all themes are compared below; screens are drawn in the first theme and the light one."""
LEAST = 4.5
LEAST_HIGH = 7.0

PROTAN = (
    (0.152286, 1.052583, -0.204868),
    (0.114503, 0.786281, 0.099216),
    (-0.003882, -0.048116, 1.051998),
)
DEUTAN = (
    (0.367322, 0.860646, -0.227968),
    (0.280085, 0.672501, 0.047413),
    (-0.011820, 0.042940, 0.968881),
)
TRITAN = (
    (1.255528, -0.076749, -0.178779),
    (-0.078411, 0.930809, 0.147602),
    (0.004733, 0.691367, 0.303900),
)
"""What linear RGB is to those who lack one kind of cone: Machado, Oliveira and Fernandes 2009, severity 1.0,
https://www.inf.ufrgs.br/~oliveira/pubs_files/CVD_Simulation/CVD_Simulation.html"""
APART = 18.0
"""CIE76; some 2.3 is the least that is noticed."""

Rgb = tuple[float, float, float]


def linear(colour: str) -> Rgb:
    red, green, blue = (
        c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4
        for c in (part / 255 for part in Color.parse(colour).get_truecolor())
    )
    return red, green, blue


def contrast(one: str, other: str) -> float:
    """Return the ratio of https://www.w3.org/TR/WCAG21/#dfn-contrast-ratio between two colours."""
    light, dark = sorted(
        (
            sum(w * c for w, c in zip((0.2126, 0.7152, 0.0722), linear(x), strict=True))
            for x in (one, other)
        ),
        reverse=True,
    )
    return (light + 0.05) / (dark + 0.05)


def lab(rgb: Rgb) -> Rgb:
    red, green, blue = (min(1.0, max(0.0, part)) for part in rgb)
    x = (0.4124 * red + 0.3576 * green + 0.1805 * blue) / 0.95047
    y = 0.2126 * red + 0.7152 * green + 0.0722 * blue
    z = (0.0193 * red + 0.1192 * green + 0.9505 * blue) / 1.08883
    fx, fy, fz = (t ** (1 / 3) if t > 0.008856 else 7.787 * t + 16 / 116 for t in (x, y, z))
    return 116 * fy - 16, 500 * (fx - fy), 200 * (fy - fz)


def seen(colour: str, matrix: tuple[Rgb, ...]) -> Rgb:
    red, green, blue = (
        sum(w * c for w, c in zip(row, linear(colour), strict=True)) for row in matrix
    )
    return lab((red, green, blue))


def inks(theme: Theme) -> dict[str, str]:
    return {
        "text": str(theme.foreground),
        "faint": theme.variables["rgt-faint"],
        "accent": str(theme.accent),
        "warn": str(theme.warning),
        "trouble": str(theme.error),
        "proved": str(theme.success),
    }


def test_the_measure_is_that_of_the_standard() -> None:
    assert contrast("#000000", "#ffffff") == pytest.approx(21.0)
    assert contrast("#767676", "#ffffff") == pytest.approx(4.54, abs=0.01)


@pytest.mark.parametrize("theme", THEMES, ids=lambda theme: theme.name)
def test_every_ink_has_enough_contrast_on_both_grounds(theme: Theme) -> None:
    least = LEAST_HIGH if theme.name == "rgt-contrast" else LEAST
    for name, ink in inks(theme).items():
        for ground in (str(theme.background), theme.variables["rgt-raised"]):
            assert contrast(ink, ground) >= least, (
                f"{name} {ink} on {ground}: {contrast(ink, ground):.2f}"
            )


def in_sixteen(colour: object) -> int | None:
    return Color.parse(str(colour)).downgrade(ColorSystem.STANDARD).number


@pytest.mark.parametrize("theme", themes_of(16), ids=lambda theme: theme.name)
def test_a_terminal_of_sixteen_colours_has_red_for_trouble_and_another_ink_for_a_warning(
    theme: Theme,
) -> None:
    shown = {name: in_sixteen(ink) for name, ink in inks(theme).items()}
    assert shown["trouble"] in (1, 9) and shown["warn"] in ((3, 11) if theme.dark else (5,))
    assert len({shown[name] for name in ("text", "faint", "warn", "trouble", "accent")}) == 5, shown
    grounds = {in_sixteen(theme.background), in_sixteen(theme.variables["rgt-raised"])}
    assert len(grounds) == 2 and not grounds & set(shown.values())
    if theme.dark:
        assert shown["proved"] not in {
            shown[name] for name in ("text", "faint", "warn", "trouble", "accent")
        }


XTERM = (
    "#000000", "#cd0000", "#00cd00", "#cdcd00", "#0000ee", "#cd00cd", "#00cdcd", "#e5e5e5",
    "#7f7f7f", "#ff0000", "#00ff00", "#ffff00", "#5c5cff", "#ff00ff", "#00ffff", "#ffffff",
)  # fmt: skip
CONSOLE = (
    "#000000", "#aa0000", "#00aa00", "#aa5500", "#0000aa", "#aa00aa", "#00aaaa", "#aaaaaa",
    "#555555", "#ff5555", "#55ff55", "#ffff55", "#5555ff", "#ff55ff", "#55ffff", "#ffffff",
)  # fmt: skip
"""What the 16 colours are where nobody chose others: of xterm, and of the console of Linux."""


def in_sixteen_colours(theme: str, monkeypatch: pytest.MonkeyPatch) -> RgtApp:
    """Make the app as such a terminal gets it."""
    monkeypatch.setenv("TERM", "screen")
    monkeypatch.delenv("COLORTERM", raising=False)
    app = RgtApp(FakeFleet, preferences=Preferences(theme=theme))
    app.match_terminal()
    return app


@pytest.mark.parametrize("theme", DRAWN)
async def test_the_line_that_keys_act_on_can_be_read_in_sixteen_colours(
    theme: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = in_sixteen_colours(theme, monkeypatch)
    async with app.run_test(size=(120, 34)) as pilot:
        for keys in ((), ("a",), ("q", "p", "e"), ("q", "ctrl+p")):
            await pilot.press(*keys)
            await settle(pilot)
            chosen = [
                (text, in_sixteen(style.color.get_truecolor().hex), in_sixteen(style.bgcolor.get_truecolor().hex))
                for strip in app.screen._compositor.render_strips()
                for text, style, _ in strip
                if text.strip() and style is not None and style.color is not None and style.bgcolor is not None
                and not style.reverse and "\u258c" not in text
                and in_sixteen(style.bgcolor.get_truecolor().hex) != in_sixteen(app.current_theme.background)
            ]  # fmt: skip
            assert chosen, "some line is selected"
            for text, ink, ground in chosen:
                assert ink is not None and ground is not None
                for palette in (XTERM, CONSOLE):
                    assert contrast(palette[ink], palette[ground]) >= LEAST, (
                        theme,
                        keys,
                        text,
                        ink,
                        ground,
                    )


@pytest.mark.parametrize("theme", themes_of(16), ids=lambda theme: theme.name)
def test_what_warns_can_be_read_in_sixteen_colours(theme: Theme) -> None:
    ink, ground = in_sixteen(theme.warning), in_sixteen(theme.background)
    assert ink is not None and ground is not None
    for palette in (XTERM, CONSOLE):
        assert contrast(palette[ink], palette[ground]) >= LEAST


@pytest.mark.parametrize(
    ("term", "trouble"), [("screen", "#ff5555"), ("screen-256color", "#ffa8a8")]
)
async def test_the_terminal_says_how_many_colours_there_are(
    term: str, trouble: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", term)
    monkeypatch.delenv("COLORTERM", raising=False)
    app = RgtApp(FakeFleet, preferences=Preferences(theme="rgt-contrast"))
    app.match_terminal()
    async with app.run_test(size=(120, 34)) as pilot:
        await settle(pilot)
        drawn = {
            style.color.get_truecolor().hex
            for strip in app.screen._compositor.render_strips()
            for text, style, _ in strip
            if style is not None and style.color is not None and "inodes" in text
        }
        assert trouble in {shade.replace("fe", "ff") for shade in drawn}


@pytest.mark.parametrize("theme", DRAWN)
async def test_the_selected_command_of_the_palette_is_told_apart_in_sixteen_colours(
    theme: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = in_sixteen_colours(theme, monkeypatch)
    async with app.run_test(size=(120, 34)) as pilot:
        await settle(pilot)
        await pilot.press("ctrl+p")
        await settle(pilot)
        grounds = {
            text.strip(): in_sixteen(style.bgcolor.get_truecolor().hex)
            for strip in app.screen._compositor.render_strips()
            for text, style, _ in strip
            if style is not None and style.bgcolor is not None and text.strip()
        }
        assert grounds["open  (enter)"] != grounds["filter  (/)"]
        assert grounds["filter  (/)"] == in_sixteen(app.current_theme.background)


@pytest.mark.parametrize("theme", DRAWN)
async def test_every_text_can_be_read_on_what_it_is_drawn_on(theme: str) -> None:
    places = (
        ("fleet", None),
        ("box", "vast-demo"),
        ("alerts", None),
        ("phases", "vast-demo"),
        ("log", "vast-demo"),
    )
    async with running(FakeFleet(), size=(120, 34)) as (app, pilot, _):
        app.theme = theme
        for place, box in places:
            if place != "fleet":
                app.open_screen(place, box)
            await settle(pilot)
            grounds = legible(app, f"{theme}: {place}")
            assert grounds > 1 or place in {"box", "log"}, "the selected row has its own"
        await pilot.press("question_mark")
        await settle(pilot)
        legible(app, f"{theme}: help")
        await pilot.press("escape", "ctrl+p")
        await settle(pilot)
        assert legible(app, f"{theme}: palette") > 1, "the selected command has its own"
        await pilot.press(*"vast")
        await settle(pilot)
        legible(app, f"{theme}: palette, something typed")
        await pilot.press("escape", "escape", "q", "q", "q", "q", "D")
        await settle(pilot)
        assert getattr(app.screen, "PLACE", "") == "tear down"
        legible(app, f"{theme}: tear down")


def legible(app: RgtApp, where: str) -> int:
    """Check every text on screen; return on how many grounds there is any."""
    met = set()
    for strip in app.screen._compositor.render_strips():
        for segment in strip:
            style = segment.style
            if (
                segment.text.strip("▁▔ ")  # rules that frame a dialog say nothing
                and style is not None
                and style.color
                and style.bgcolor
                and not style.reverse
            ):
                met.add(
                    (
                        style.color.get_truecolor().hex,
                        style.bgcolor.get_truecolor().hex,
                        segment.text[:20],
                    )
                )
    for ink, ground, text in met:
        assert contrast(ink, ground) >= LEAST, (
            f"{where}: {text!r} {ink} on {ground}: {contrast(ink, ground):.2f}"
        )
    return len({ground for _, ground, _ in met})


@pytest.mark.parametrize("matrix", [PROTAN, DEUTAN, TRITAN], ids=["no red", "no green", "no blue"])
def test_what_counts_stays_apart_for_those_who_see_fewer_colours(matrix: tuple[Rgb, ...]) -> None:
    theme = next(theme for theme in THEMES if theme.name == "rgt-colour-blind")
    counted = {
        name: ink
        for name, ink in inks(theme).items()
        if name in {"text", "warn", "trouble", "proved"}
    }
    for (one, a), (other, b) in itertools.combinations(counted.items(), 2):
        apart = (
            sum((x - y) ** 2 for x, y in zip(seen(a, matrix), seen(b, matrix), strict=True)) ** 0.5
        )
        assert apart >= APART, f"{one} and {other}: {apart:.1f}"


@pytest.mark.parametrize("glyphs", [UNICODE, ASCII], ids=lambda one: one.name)
def test_glyphs_and_words_say_it_without_colours(
    glyphs: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rgt_tui.ui.box_status.current_glyphs", lambda: glyphs)
    monkeypatch.setattr("rgt_tui.ui.widgets.checklist.current_glyphs", lambda: glyphs)
    bad, good = (
        {BoxHealth.TROUBLE, BoxHealth.WARN, BoxHealth.UNREACHABLE},
        {BoxHealth.RUNNING, BoxHealth.IDLE, BoxHealth.FINISHED},
    )
    assert not {health_mark(health)[0] for health in bad} & {
        health_mark(health)[0] for health in good
    }
    assert (
        len(
            {
                health_mark(health)[0]
                for health in (BoxHealth.TROUBLE, BoxHealth.WARN, BoxHealth.UNREACHABLE)
            }
        )
        == 3
    )
    words = [row.means.partition(":")[0] for row in state_legend()]
    assert len(set(words)) == len(BoxHealth), "and the word is another one each time"
    marks = {check_mark(status).text for status in CheckStatus}
    assert len(marks) == len(CheckStatus)
