"""Calm themes: a neutral, a dim and an accent colour.

Red and yellow for trouble, green for proof.
"""

from __future__ import annotations

from textual.theme import Theme

DEFAULT = "rgt-dark"


def _make_theme(
    name: str, *, dark: bool, colours: tuple[str, ...], chosen: tuple[tuple[str, str], ...] = ()
) -> Theme:
    text, faint, accent, warn, trouble, proved, background, raised = colours
    # In many colours, the selection and the cursor have the raised ground.
    (on, ink), (cursor, cursor_ink) = chosen or ((raised, text), (raised, text))
    return Theme(
        name=name,
        dark=dark,
        primary=accent,
        secondary=accent,
        accent=accent,
        warning=warn,
        error=trouble,
        success=proved,
        foreground=text,
        background=background,
        surface=background,
        panel=raised,
        boost=raised,
        variables={
            "rgt-faint": faint,
            "rgt-raised": raised,
            "rgt-chosen": on,
            "rgt-chosen-ink": ink,
            # Names of Textual's own, used by the command palette and by entries.
            "block-cursor-background": cursor,
            "block-cursor-foreground": cursor_ink,
            "block-cursor-text-style": "none",
            "block-cursor-blurred-background": cursor,
            "block-cursor-blurred-foreground": cursor_ink,
            "block-cursor-blurred-text-style": "none",
            "input-cursor-text-style": "reverse",
            "border": faint,
            "footer-key-foreground": accent,
        },
    )


THEMES: tuple[Theme, ...] = (
    _make_theme(
        DEFAULT,
        dark=True,
        colours=(
            "#c9ced6", "#9aa3b0", "#7fabdc", "#e0b050", "#ff7f8a", "#7dbd8e", "#111418", "#2f363f",
        ),
    ),
    _make_theme(
        "rgt-light",
        dark=False,
        colours=(
            "#24292f", "#4b525b", "#17457d", "#5e4000", "#8f0f1c", "#12502a", "#fafafa", "#c8ced6",
        ),
    ),
    _make_theme(
        "rgt-contrast",
        dark=True,
        colours=(
            "#ffffff", "#d0d0d0", "#9bd3ff", "#ffe07a", "#ffa8a8", "#9bf0a2", "#000000", "#303030",
        ),
    ),
    _make_theme(
        "rgt-colour-blind",
        dark=True,
        colours=(
            "#d8dde4", "#9aa3b0", "#c3b0f5", "#f6e95a", "#ff8a3d", "#5cb3f2", "#111418", "#2f363f",
        ),
    ),
)  # fmt: skip
"""Every theme lists the same eight colours: text, faint, accent, warn, trouble, proved, background,
raised. With 256 colours, background and raised differ, and the others are readable on both. In full
colour each has a contrast of 4.5:1 on both, in rgt-contrast 7:1
(https://www.w3.org/TR/WCAG21/#contrast-minimum). In rgt-colour-blind text, warn, trouble and proved
are distinct without red, green or blue vision: yellow, orange and blue."""

_FEW: dict[str, tuple[str, ...]] = {
    DEFAULT: (
        "#ffffff",
        "#aaaaaa",
        "#55ffff",
        "#ffff55",
        "#ff5555",
        "#55ff55",
        "#000000",
        "#555555",
    ),
    "rgt-light": (
        "#000000",
        "#555555",
        "#0000aa",
        "#aa00aa",
        "#aa0000",
        "#555555",
        "#ffffff",
        "#aaaaaa",
    ),
    "rgt-contrast": (
        "#ffffff",
        "#aaaaaa",
        "#55ffff",
        "#ffff55",
        "#ff5555",
        "#55ff55",
        "#000000",
        "#555555",
    ),
    "rgt-colour-blind": (
        "#ffffff",
        "#aaaaaa",
        "#ff55ff",
        "#ffff55",
        "#ff5555",
        "#55ffff",
        "#000000",
        "#555555",
    ),
}
"""The same eight for a terminal of 16 colours. Without them, pale red maps to grey and trouble
looks like ordinary text. On a light background neither green nor yellow is readable, so warnings
are magenta there."""

_ON_GREY = ("#aaaaaa", "#000000")
"""Background and text of the selected line in 16 colours. On the dark grey of many terminals red
and faint text are unreadable, on the light grey yellow is. Trouble is shown by its glyph, its words
and bold there."""
_ON_BLUE = ("#0000aa", "#ffffff")
"""Background and text of the selected command in the palette, which has faint text below it."""


def themes_of(colours: int) -> tuple[Theme, ...]:
    """Return the themes for a terminal with `colours` colours."""
    if colours > 16:
        return THEMES
    return tuple(
        _make_theme(
            theme.name,
            dark=theme.dark,
            colours=_FEW[theme.name],
            chosen=(_ON_GREY, _ON_BLUE if theme.dark else _ON_GREY),
        )
        for theme in THEMES
    )
