"""The colours of the runs. Red, yellow and green are not among them: those mean something."""

from __future__ import annotations

from typing import cast

from rgt_tui.ui.widgets.spans import Tone

DARK = ("#6ea8e0", "#c59af0", "#58c5d8", "#e28fc2", "#c9ced6", "#8d93f5")
LIGHT = ("#2563a8", "#7a4fc0", "#0b7f92", "#b03a86", "#2a2f36", "#4048c8")
DARK_LOST = ("#3c546c", "#5d4d70", "#355f68", "#6a4a5e", "#5b6068", "#494c73")
LIGHT_LOST = ("#a9c0d8", "#c8b8e2", "#a2ccd3", "#dcb2cd", "#b0b4ba", "#b4b7e6")


def curve_tone(number: int, *, lost: bool = False) -> Tone:
    """Return the tone of a run's curve, or of the part that a resume threw away.

    Tones are names of component classes; these exist on the widgets that declare `CLASSES`, nowhere else.
    """
    return cast(Tone, f"{'lost' if lost else 'curve'}-{number % len(DARK)}")


CLASSES = {f"tone--{kind}-{i}" for kind in ("curve", "lost") for i in range(len(DARK))}


def css(widget: str) -> str:
    """Return the style rules of `CLASSES` for a widget."""
    rules = []
    for theme, kinds in (("dark", (DARK, DARK_LOST)), ("light", (LIGHT, LIGHT_LOST))):
        for kind, colours in zip(("curve", "lost"), kinds, strict=True):
            for i, colour in enumerate(colours):
                rules.append(f"{widget}:{theme} > .tone--{kind}-{i} {{ color: {colour}; }}")
    return "\n".join(rules)
