"""Sends only changed cells to the terminal, and style codes only where the style changes.

Textual (8.2) crops a changed span at its end but not at its start, so it rewrites the line from the
widget's left edge. It also sets both colours before every piece of text and resets them after it:
forty bytes for what is often one digit. On a slow link that is most of an idle dashboard's traffic.
Our compositor crops both ends and sends a style only where it changes. It builds on Textual's
private compositor; if that changes, Textual's own drawing is used.
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
"""Codes that turn an attribute on (ECMA-48, SGR), by its bit in Rich's styles."""
OFF = ("22", "22", "23", "24", "25", "25", "27", "28", "29", "24", "54", "54", "55")
"""Codes that turn it off; bold and dim share one."""
Piece = tuple[int, int, Strip]
"""Line, column, and content."""


class CellStyle(NamedTuple):
    """The style of a terminal cell."""

    attributes: int = 0
    ink: str = "39"
    """Code of the text colour; by default the terminal's own."""
    ground: str = "49"
    """Code of the background colour."""


PLAIN = CellStyle()


@lru_cache(maxsize=4096)
def cell_style_of(style: Style | None, system: ColorSystem) -> CellStyle:
    """Return how a terminal with this colour system draws a style.

    Raises:
        ValueError: It is a link, which cannot be expressed as a `CellStyle`.
    """
    if style is None:
        return PLAIN
    # Links need their own sequences: Textual's drawing handles them.
    if style.link:
        raise ValueError("a link")
    ink, ground = PLAIN.ink, PLAIN.ground
    if style.color is not None:
        ink = ";".join(style.color.downgrade(system).get_ansi_codes())
    if style.bgcolor is not None:
        ground = ";".join(style.bgcolor.downgrade(system).get_ansi_codes(foreground=False))
    # As Rich does: bits of attributes that the style does not set may be present.
    return CellStyle(style._attributes & style._set_attributes, ink, ground)


@lru_cache(maxsize=4096)
def switch_style(before: CellStyle, after: CellStyle) -> str:
    """Return the escape sequence that switches from one style to another."""
    if before == after:
        return ""
    if after == PLAIN:
        return "\x1b[0m"
    ended, begun = before.attributes & ~after.attributes, after.attributes & ~before.attributes
    # 0 ends everything and is shorter than a code for each.
    codes = [code for bit, code in enumerate(OFF) if ended >> bit & 1]
    if ended:
        begun = after.attributes  # one code may end two attributes
    codes += [code for bit, code in enumerate(ON) if begun >> bit & 1]
    codes += [new for old, new in zip(before[1:], after[1:], strict=True) if old != new]
    # Some attributes share a code, such as bold and dim; it is sent once.
    return f"\x1b[{';'.join(dict.fromkeys(codes))}m"


def draw_pieces(pieces: Iterable[Piece], system: ColorSystem) -> str:
    """Return the sequences that draw the pieces; the terminal's style is plain before and after."""
    out: list[str] = []
    pen, line = PLAIN, -1
    # Attributes that are invisible on a space: bold, dim, italic.
    ink_limit = 0b111
    for y, x, strip in pieces:
        # Within a line the column alone is enough, in fewer bytes.
        out.append(f"\x1b[{x + 1}G" if y == line else f"\x1b[{y + 1};{x + 1}H")
        line = y
        for text, style, _ in strip:
            look = cell_style_of(style, system)
            # Identity suffices, as `cell_style_of` is cached; an equal one only costs an empty
            # switch.
            if look is not pen:
                if not (pen.attributes | look.attributes) & ~ink_limit and not text.strip(" "):
                    # a space looks the same in any text colour, so keep the current one
                    look = pen._replace(ground=look.ground)
                out.append(switch_style(pen, look))
                pen = look
            out.append(text)
    out.append(switch_style(pen, PLAIN))
    return "".join(out)


def colours_of(console: Console) -> ColorSystem:
    """Return the colour system of a terminal."""
    return console._color_system or ColorSystem.TRUECOLOR


class TightUpdate(ChopsUpdate):
    """A partial update that is cropped at both ends of every span."""

    def render_segments(self, console: Console) -> str:
        """Return the escape sequences that draw the spans."""
        try:
            return draw_pieces(
                (piece for y, x1, x2 in self.spans for piece in self._pieces_of_line(y, x1, x2)),
                colours_of(console),
            )
        # the chops of another Textual version
        except (AttributeError, LookupError, TypeError, ValueError):
            return super().render_segments(console)

    def _pieces_of_line(self, y: int, x1: int, x2: int) -> list[Piece]:
        """Return the parts of line `y` between columns `x1` and `x2`."""
        pieces = []
        for end, (start, strip) in zip(self.chop_ends[y], self.chops[y].items(), strict=False):
            left, right = max(start, x1), min(end, x2)
            # None = the span is not dirty there.
            if strip is not None and left < right:
                pieces.append((y, left, strip.crop(left - start, right - start)))
        return pieces


class TightLayout(LayoutUpdate):
    """A full update; a style is sent once for neighbouring cells that share it."""

    def render_segments(self, console: Console) -> str:
        """Return the escape sequences that draw the lines."""
        try:
            return draw_pieces(self._list_pieces(), colours_of(console))
        except (AttributeError, LookupError, TypeError, ValueError):
            return super().render_segments(console)

    def _list_pieces(self) -> list[Piece]:
        pieces = []
        for y, line in enumerate(self.strips, self.region.y):
            x = self.region.x
            for strip in line:
                pieces.append((y, x, strip))
                x += strip.cell_length
        return pieces


def _find_overlap_rows(regions: Iterable[Region], seen: Region) -> tuple[int, int]:
    """Return the half-open range of rows where a region overlaps `seen`; empty if start >= end.

    Called for each widget at every paint, so it computes with numbers instead of Textual's regions.
    """
    left, top, width, height = seen
    right, bottom = left + width, top + height
    first, end = bottom, top
    for x, y, wide, high in regions:
        if x < right and left < x + wide and y < bottom and top < y + high:
            first, end = min(first, y), max(end, y + high)
    return max(first, top), min(end, bottom)


class TightCompositor(Compositor):
    """Textual's compositor with tight updates, which draws only the lines that changed."""

    _changed: tuple[Region, ...] = ()
    """The changed regions during a partial update."""

    def render_partial_update(self, *args: Any, **named: Any) -> ChopsUpdate | None:
        """Return what changed, cropped at both ends."""
        # Copied, because Textual clears the regions before it draws.
        self._changed = tuple(self._dirty_regions)
        try:
            update = super().render_partial_update(*args, **named)
        finally:
            self._changed = ()
        try:
            # None = nothing has changed.
            if update is None:
                return None
            return TightUpdate(update.chops, update.spans, update.chop_ends)
        except (AttributeError, TypeError):
            return update

    def _get_renders(
        self, crop: Region | None = None
    ) -> Iterable[tuple[Region, Region, list[Strip]]]:
        """Yield the lines of the widgets; in a partial update only those that overlap a change."""
        if not self._changed:
            yield from super()._get_renders(crop)
            return
        for widget, (region, clip) in self.visible_widgets.items():
            seen = region.intersection(clip)
            top, end = _find_overlap_rows(self._changed, seen)
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
