"""Sends only changed cells to the terminal, and of their style only what differs from the cell before.

Textual (8.2) crops a changed span at its end, not at its beginning: it writes the line again from the widget's left
edge. And it sets both colours in front of every piece of text and takes them back behind it: forty bytes for what is
mostly a digit. On a slow link that is most of what an idle dashboard sends, so our screens use a compositor that crops
both ends and sends a style only where it changes. It builds on Textual's private compositor: where that is another
one, Textual's own drawing is used.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Any, NamedTuple

from rich.color import ColorSystem
from rich.console import Console
from rich.style import Style
from textual._compositor import ChopsUpdate, Compositor, LayoutUpdate
from textual.geometry import Region
from textual.strip import Strip

ON = ("1", "2", "3", "4", "5", "6", "7", "8", "9", "21", "51", "52", "53")
"""By the bit of an attribute in Rich's styles: what turns it on (ECMA-48, SGR)."""
OFF = ("22", "22", "23", "24", "25", "25", "27", "28", "29", "24", "54", "54", "55")
"""What turns it off; bold and dim go together."""
INK = 0b111
"""Attributes that a blank has not: bold, dim, italic."""
Piece = tuple[int, int, Strip]
"""Line, column, and what stands there."""


class Look(NamedTuple):
    """How a terminal draws a cell."""

    attributes: int = 0
    ink: str = "39"
    """What sets the colour of the text; as the terminal would have it, unless a style says more."""
    ground: str = "49"
    """What sets the one behind it."""


PLAIN = Look()


@lru_cache(maxsize=4096)
def look_of(style: Style | None, system: ColorSystem) -> Look:
    """Return how a terminal of so many colours draws a style.

    Raises:
        ValueError: it is a link, which is more than a look.
    """
    if style is None:
        return PLAIN
    if style.link:
        raise ValueError("a link")
    ink, ground = PLAIN.ink, PLAIN.ground
    if style.color is not None:
        ink = ";".join(style.color.downgrade(system).get_ansi_codes())
    if style.bgcolor is not None:
        ground = ";".join(style.bgcolor.downgrade(system).get_ansi_codes(foreground=False))
    return Look(style._attributes & style._set_attributes, ink, ground)


@lru_cache(maxsize=4096)
def turned(before: Look, after: Look) -> str:
    """Return what makes a terminal that draws in one look draw in another."""
    if before == after:
        return ""
    if after == PLAIN:
        return "\x1b[0m"
    ended, begun = before.attributes & ~after.attributes, after.attributes & ~before.attributes
    codes = [code for bit, code in enumerate(OFF) if ended >> bit & 1]
    if ended:
        begun = after.attributes  # one code may end two of them
    codes += [code for bit, code in enumerate(ON) if begun >> bit & 1]
    codes += [new for old, new in zip(before[1:], after[1:], strict=True) if old != new]
    return f"\x1b[{';'.join(dict.fromkeys(codes))}m"


def drawn(pieces: Iterable[Piece], system: ColorSystem) -> str:
    """Return the sequences that draw the pieces, in a terminal that draws plainly before and after."""
    out: list[str] = []
    pen, line = PLAIN, -1
    for y, x, strip in pieces:
        out.append(f"\x1b[{x + 1}G" if y == line else f"\x1b[{y + 1};{x + 1}H")
        line = y
        for text, style, _ in strip:
            look = look_of(style, system)
            if look is not pen:
                if not (pen.attributes | look.attributes) & ~INK and not text.strip(" "):
                    look = pen._replace(
                        ground=look.ground
                    )  # nobody sees what nothing would be written with
                out.append(turned(pen, look))
                pen = look
            out.append(text)
    out.append(turned(pen, PLAIN))
    return "".join(out)


def colours_of(console: Console) -> ColorSystem:
    """Return how many colours a terminal has."""
    return console._color_system or ColorSystem.TRUECOLOR


class TightUpdate(ChopsUpdate):
    """A partial update that is cropped at both ends of every span."""

    def render_segments(self, console: Console) -> str:
        """Return the escape sequences that draw the spans."""
        try:
            return drawn(
                (piece for y, x1, x2 in self.spans for piece in self._pieces(y, x1, x2)),
                colours_of(console),
            )
        except (AttributeError, LookupError, TypeError, ValueError):  # not the lines of Textual 8
            return super().render_segments(console)

    def _pieces(self, y: int, x1: int, x2: int) -> list[Piece]:
        """Return the parts of line `y` that lie between `x1` and `x2`."""
        pieces = []
        for end, (start, strip) in zip(self.chop_ends[y], self.chops[y].items(), strict=False):
            left, right = max(start, x1), min(end, x2)
            if strip is not None and left < right:
                pieces.append((y, left, strip.crop(left - start, right - start)))
        return pieces


class TightLayout(LayoutUpdate):
    """All of a screen, each style sent once for neighbours that have it."""

    def render_segments(self, console: Console) -> str:
        """Return the escape sequences that draw the lines."""
        try:
            return drawn(self._pieces(), colours_of(console))
        except (AttributeError, LookupError, TypeError, ValueError):
            return super().render_segments(console)

    def _pieces(self) -> list[Piece]:
        pieces = []
        for y, line in enumerate(self.strips, self.region.y):
            x = self.region.x
            for strip in line:
                pieces.append((y, x, strip))
                x += strip.cell_length
        return pieces


def _met(regions: Iterable[Region], seen: Region) -> tuple[int, int]:
    """Return the lines, first and behind the last, in which any of the regions meets one; none: the first is not less.

    Asked for each widget at every paint, of all that changed: numbers, where Textual would make regions.
    """
    left, top, width, height = seen
    right, bottom = left + width, top + height
    first, end = bottom, top
    for x, y, wide, high in regions:
        if x < right and left < x + wide and y < bottom and top < y + high:
            first, end = min(first, y), max(end, y + high)
    return max(first, top), min(end, bottom)


class TightCompositor(Compositor):
    """Textual's compositor, with tight updates, for which only the lines that changed are drawn."""

    _changed: tuple[Region, ...] = ()
    """While a partial update is made: the regions that it is about."""

    def render_partial_update(self, *args: Any, **named: Any) -> ChopsUpdate | None:
        """Return what changed, cropped at both ends."""
        self._changed = tuple(self._dirty_regions)
        try:
            update = super().render_partial_update(*args, **named)
        finally:
            self._changed = ()
        try:
            if update is None:
                return None
            return TightUpdate(update.chops, update.spans, update.chop_ends)
        except (AttributeError, TypeError):
            return update

    def _get_renders(
        self, crop: Region | None = None
    ) -> Iterable[tuple[Region, Region, list[Strip]]]:
        """Return the lines of the widgets; where little changed those of a clock, say, and not of the whole screen."""
        if not self._changed:
            yield from super()._get_renders(crop)
            return
        for widget, (region, clip) in self.visible_widgets.items():
            seen = region.intersection(clip)
            top, end = _met(self._changed, seen)
            if top < end:
                part = Region(seen.x, top, seen.width, end - top)
                yield region, part, widget.render_lines(part.translate((-region.x, -region.y)))

    def render_full_update(self, *args: Any, **named: Any) -> LayoutUpdate:
        """Return the whole screen."""
        update = super().render_full_update(*args, **named)
        try:
            return TightLayout(update.strips, update.region)
        except (AttributeError, TypeError):
            return update
