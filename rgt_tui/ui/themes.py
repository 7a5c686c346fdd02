"""Calm themes: one neutral, one dim, one accent; red and yellow for trouble, green for proof."""

from __future__ import annotations

from textual.theme import Theme

DEFAULT = "rgt-dark"


def _theme(name: str, *, dark: bool, colours: tuple[str, ...]) -> Theme:
    text, faint, accent, warn, trouble, proved, background, raised = colours
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
            "block-cursor-background": raised,
            "block-cursor-foreground": text,
            "block-cursor-text-style": "none",
            "input-cursor-text-style": "reverse",
            "border": faint,
            "footer-key-foreground": accent,
        },
    )


THEMES: tuple[Theme, ...] = (
    _theme(
        DEFAULT,
        dark=True,
        colours=(
            "#c9ced6", "#838b97", "#7aa7d9", "#e0b050", "#f0616d", "#79b98a", "#111418", "#2f363f",
        ),
    ),
    _theme(
        "rgt-light",
        dark=False,
        colours=(
            "#2a2f36", "#6a717b", "#2563a8", "#8a5f00", "#c0212f", "#23703b", "#fafafa", "#c8ced6",
        ),
    ),
    _theme(
        "rgt-contrast",
        dark=True,
        colours=(
            "#ffffff", "#b4b4b4", "#7fc4ff", "#ffd75f", "#ff6b6b", "#7ee787", "#000000", "#303030",
        ),
    ),
)  # fmt: skip
"""Every theme names the same eight colours in the same order: text, faint, accent, warn, trouble, proved,
background, raised. The last two stay apart, and each of the others stays readable on both, where a terminal has
256 or 16 colours."""
