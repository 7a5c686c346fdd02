"""The base class of our widgets, which redraws only changed cells, and the messages of lists."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, ClassVar
from weakref import WeakKeyDictionary

from rich.segment import Segment
from rich.style import Style
from textual import events, on
from textual.containers import Horizontal, Vertical
from textual.css.model import RuleSet
from textual.css.stylesheet import Stylesheet
from textual.dom import DOMNode
from textual.geometry import Region, Size
from textual.message import Message
from textual.selection import Selection
from textual.strip import Strip
from textual.widget import Widget

from rgt_tui.language import translate
from rgt_tui.ui.enduring import FaultTolerant, describe_error, report_fault_to_app
from rgt_tui.ui.notation import current_glyphs, make_displayable
from rgt_tui.ui.widgets.spans import (
    EMPTY,
    Line,
    Span,
    Tone,
    clip_line,
    find_differing_runs,
    make_line,
    split_line,
)

# Besides control characters: marks that end a line, or reverse the direction of the text after
# them.
_UNPRINTABLE = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")


@lru_cache(maxsize=4096)
def _replace_controls(text: str) -> str:
    """Replace control characters: the last defence before text reaches the terminal."""
    return make_displayable(_UNPRINTABLE.sub("�", text))


def _safe_span(span: Span) -> Span:
    return Span(_replace_controls(span.text), span.tone)


def draw_cursor(row: Line, column: int) -> Line:
    """Draw the cursor into a cell of a line: without colours the background alone is invisible."""
    before, after = split_line(row, column)
    return (*before, Span(current_glyphs().cursor, Tone.ACCENT), *split_line(after, 1)[1])


_PART_STYLES: WeakKeyDictionary[
    Stylesheet, tuple[list[RuleSet], dict[tuple[object, ...], dict[str, Style]]]
] = WeakKeyDictionary()
"""Styles of the component classes, per style sheet and `style_cache_key` of a widget."""


def style_cache_key(node: DOMNode) -> tuple[object, ...]:
    """Return a cache key: everything a CSS selector can match on, except siblings."""
    app = node.app
    named = app.stylesheet.rules_map
    return (
        frozenset(app.get_pseudo_classes()),
        *(
            (
                type(one),
                # An id counts only if a rule names it; widgets that differ in others share their
                # styles.
                one.id if f"#{one.id}" in named else None,
                one.classes,
                one._pseudo_classes_cache_key,
                getattr(one, "can_focus", False),
            )
            for one in node.css_path_nodes
        ),
    )


FRAMES = frozenset(
    {
        "tint",
        "text_opacity",
        "hatch",
        "outline_top",
        "outline_right",
        "outline_bottom",
        "outline_left",
    }
)
"""Style rules that change how the lines of a widget look."""


def apply_filters(widget: Widget, strips: list[Strip]) -> list[Strip]:
    """Return strips in the colours of this terminal."""
    background = widget.background_colors[1]
    for each in widget.get_line_filters():
        strips = [strip.apply_filter(each, background) for strip in strips]
    return strips


class PaintedGround(Widget):
    """Container that paints its background where its children leave cells uncovered."""

    def render_lines(self, crop: Region) -> list[Strip]:
        """Return the background; all lines share one strip."""
        below, background = self.background_colors
        blank = Strip.blank(crop.width, Style.from_color(bgcolor=(below + background).rich_color))
        return apply_filters(self, [blank]) * crop.height


class StackedWidgets(Vertical, PaintedGround):
    """Widgets stacked vertically."""


class SideBySideWidgets(Horizontal, PaintedGround):
    """Widgets side by side."""


class LineWidget(FaultTolerant, Widget):
    """Shows what `make_lines` returns; `redraw` repaints only the spans that differ.

    A subclass implements `make_lines` and calls `redraw` when its data has changed. Styles come
    from the theme by tone (see `app.tcss`), one component class each; none of them is declared.
    """

    DEFAULT_CSS = """
    LineWidget { height: 1; background: $background; color: $foreground; }
    """
    WHEEL: ClassVar[int] = 0
    """Lines scrolled per notch of the wheel."""
    HINTS_CLICK: ClassVar[bool] = True
    """Whether a hint in the border can be clicked; False if a click anywhere does the same."""

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:  # noqa: A002
        super().__init__(id=id, classes=classes)
        self._told: Sequence[Line] = ()
        """The last result of `make_lines`."""
        self._drawn: list[Line] = []
        self._drawn_size = Size()
        self._selected: int | None = None
        self._dragged: Selection | None = None
        """The range selected with the mouse, in characters of the lines."""
        self._part_styles: dict[str, Style] | None = None
        """Style per component class, shared by all widgets with the same `style_cache_key`."""
        self._base_style: Style | None = None
        self._tone_styles: dict[tuple[Tone, bool], Style] = {}
        self._strip_cache: dict[tuple[Line, bool, int], Strip] = {}

    def make_lines(self, width: int, height: int) -> Sequence[Line]:
        """Return the lines that fill `width` times `height` cells; missing ones are blank.

        Returning the same tuple as last time means that nothing has changed.
        """
        raise NotImplementedError

    def selected_line(self) -> int | None:
        """Return the line that the keys act on, counted from the first visible line.

        It gets the selection's background from column `selected_from` on. The cell at that column
        must be blank: the cursor is drawn there.
        """
        return None

    @property
    def selected_from(self) -> int:
        """First column of the selection; anything left of it is not part of the list."""
        return 0

    def scroll_lines(self, count: int) -> None:
        """Scroll by `count` lines; for subclasses whose content may not fit."""

    def move_by(self, count: int) -> bool | None:
        """Move by `count` lines with the keys: scroll, or select another line in a list."""
        self.scroll_lines(count)
        return None

    @property
    def page_rows(self) -> int:
        """Lines per page: inside the frame, one line stays visible."""
        return max(1, self.size.height - 3)

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        """Scroll with the wheel."""
        self.scroll_lines(self.WHEEL)

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        """Scroll with the wheel."""
        self.scroll_lines(-self.WHEEL)

    def _forward_event(self, event: events.Event) -> None:
        """Handle an event of the mouse; a click that ends a selecting drag is dropped."""
        if not isinstance(event, events.Click) or not self.screen.selections:
            super()._forward_event(event)

    def text_select_all(self) -> None:
        """Ignore double clicks, which open a row instead of selecting text."""

    @property
    def select_container(self) -> Widget:
        """This widget, so that a triple click does not select more, either."""
        return self

    def selection_updated(self, selection: Selection | None) -> None:
        """Show the text selected with the mouse."""
        self._dragged = selection
        self.refresh()

    def get_selection(self, selection: Selection) -> tuple[str, str]:
        """Return the selected text, and its line ending."""
        from rgt_tui.ui.mouse import marked_text

        # Cleaned as on the screen, because it is pasted elsewhere.
        return marked_text(
            [tuple(_safe_span(span) for span in row) for row in self._drawn], selection
        ), "\n"

    @on(events.Click)
    async def follow_hint(self, event: events.Click) -> None:
        """Run the command of a clicked border hint."""
        offered = getattr(self.screen, "offered", None)
        if not self.HINTS_CLICK or not callable(offered) or not 0 <= event.y < len(self._drawn):
            return
        from rgt_tui.ui.mouse import find_hinted_command

        command = find_hinted_command(self._drawn[event.y], int(event.x), offered())
        if command is not None:
            event.stop()
            await self.screen.run_action(command.textual_action)

    def watch_has_focus(self, has_focus: bool) -> None:
        """Redraw with the new focus."""
        super().watch_has_focus(has_focus)
        self.redraw()

    @property
    def shown_lines(self) -> list[Line]:
        """The lines on screen."""
        return self._drawn

    def redraw(self) -> None:
        """Make the lines again, and repaint the cells that changed."""
        if not self.is_mounted:
            return
        width, height = self.size
        if not width or not height:
            self._drawn_size = Size()  # what was drawn before is invalid once there is room again
            return
        before, selected_before = self._drawn, self._selected
        self._update_drawn(width, height)
        if len(before) != len(self._drawn):
            self.refresh()
            return
        regions: list[Region] = []
        for y, (old, new) in enumerate(zip(before, self._drawn, strict=True)):
            # The background of the selection covers the row.
            if (y == selected_before) != (y == self._selected):
                regions.append(Region(0, y, width, 1))
            elif old != new:
                regions += [
                    Region(first, y, end - first, 1) for first, end in find_differing_runs(old, new)
                ]
        # Without regions, `refresh` would repaint everything.
        if regions:
            self.refresh(*regions)

    def _update_drawn(self, width: int, height: int) -> None:
        try:
            made = self.make_lines(width, height)
            same = (
                isinstance(made, tuple)
                and made is self._told
                and self._drawn_size == (width, height)
            )
            if same and made and self._selected is None and self.selected_line() is None:
                return
            self._told = made
            lines = [clip_line(one, width) for one in list(made)[:height]]
            lines.extend([clip_line(EMPTY, width)] * (height - len(lines)))
            at = self.selected_line()
            if at is not None and 0 <= at < len(lines):
                lines[at] = draw_cursor(lines[at], self.selected_from)
        except Exception as error:
            if not report_fault_to_app(self, error):
                raise
            failed = clip_line(
                make_line(
                    Span(
                        translate("this cannot be drawn: {error}", error=describe_error(error)),
                        Tone.TROUBLE,
                    )
                ),
                width,
            )
            self._told, lines, at = (), [failed, *[clip_line(EMPTY, width)] * (height - 1)], None
        self._drawn, self._selected, self._drawn_size = lines, at, Size(width, height)

    def on_resize(self, event: events.Resize) -> None:
        """Draw for the new size, unless the first paint already did."""
        if self._drawn_size != self.size:
            self._update_drawn(*self.size)
            self.refresh()

    def _component(self, name: str) -> Style:
        """Return the style of a component class, computed when the first such widget uses it.

        Textual computes all classes in `COMPONENT_CLASSES` for each widget, again on every focus
        change.
        """
        if self._part_styles is None:
            sheet = self.app.stylesheet
            rules, known = _PART_STYLES.get(sheet, ([], {}))
            # A new list of rules: they were parsed again, as for another theme.
            if rules is not sheet.rules:
                known = {}
                _PART_STYLES[sheet] = (sheet.rules, known)
            self._part_styles = known.setdefault(style_cache_key(self), {})
        style = self._part_styles.get(name)
        if style is None:
            # What Textual does for all component classes of a widget, for one class only.
            drawn = DOMNode(classes=name)
            drawn._attach(self)
            self.app.stylesheet.apply(drawn)
            style = self._part_styles[name] = drawn.styles.partial_rich_style
        return style

    def notify_style_update(self) -> None:
        """Drop the styles of the old theme or widget state, and repaint if any of them changed."""
        super().notify_style_update()
        # Most style updates change nothing that this widget shows.
        before = dict(self._tone_styles)
        self._part_styles = self._base_style = None
        self._tone_styles.clear()
        self._strip_cache.clear()
        if any(self._tone_style(*used) != style for used, style in before.items()):
            self.refresh()

    def render_lines(self, crop: Region) -> list[Strip]:
        """Return the lines of a region, without Textual's per-line styling, which we do not use."""
        styles = self.styles
        # Frames and opacity are left to Textual's own drawing.
        if styles.gutter or self.opacity != 1.0 or not FRAMES.isdisjoint(styles.get_rules()):
            return super().render_lines(crop)
        size = self.size  # computed from the layout at each access, so not once a line
        strips = apply_filters(self, [self._make_strip(y, size) for y in crop.line_range])
        first, end = crop.column_span
        if (first, end) != (0, size.width):
            strips = [strip.crop(first, end) for strip in strips]
        return strips

    def render_line(self, y: int) -> Strip:
        """Return one line with offsets: Textual reads from it which character the pointer is on."""
        return self._make_strip(y, self.size).apply_offsets(0, y)

    def _make_strip(self, y: int, size: Size) -> Strip:
        """Return one line as a strip, cached by its content."""
        width, height = size
        if self._drawn_size != (width, height):
            self._update_drawn(width, height)
        if y < len(self._drawn):
            content = self._drawn[y]
        else:
            content = EMPTY
        selected = y == self._selected
        key = (content, selected, width)
        strip = self._strip_cache.get(key)
        if strip is None:
            # Painted lines that a widget caches: twice a tall terminal. Each is about thirty
            # objects, which the garbage collector must traverse.
            most_strips = 128
            if len(self._strip_cache) >= most_strips:
                self._strip_cache.clear()
            aside, chosen = (
                split_line(content, self.selected_from) if selected else (content, EMPTY)
            )
            segments = [
                Segment(_replace_controls(span.text), self._tone_style(span.tone, False))
                for span in aside
            ]
            segments += [
                Segment(_replace_controls(span.text), self._tone_style(span.tone, True))
                for span in chosen
            ]
            strip = Strip(segments).adjust_cell_length(width, self._tone_style(Tone.TEXT, selected))
            self._strip_cache[key] = strip
        if self._dragged is None:
            span = None
        else:
            span = self._dragged.get_span(y)
        if span is None:
            return strip
        from rgt_tui.ui.mouse import paint_selection

        return paint_selection(strip, content, span, self._component("text--marked"))

    def _tone_style(self, tone: Tone, selected: bool) -> Style:
        style = self._tone_styles.get((tone, selected))
        if style is None:
            if self._base_style is None:
                self._base_style = self.rich_style
            style = self._base_style + self._component(f"tone--{tone}")
            if selected:
                style += self._component("row--selected")
            self._tone_styles[tone, selected] = style
        return style

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        """Return one line, unless the style sheet sets a height."""
        return 1


class FittedLines(LineWidget):
    """As many lines as `make` returns for the available width."""

    DEFAULT_CSS = "FittedLines { height: auto; }"

    def __init__(self, make: Callable[[int], list[Line]], *, id: str | None = None) -> None:  # noqa: A002
        super().__init__(id=id)
        self._make_fitted = make
        self._count = 0

    def make_lines(self, width: int, height: int) -> Sequence[Line]:
        """Draw the lines."""
        return self._make_fitted(width)

    def get_content_height(self, container: object, viewport: object, width: int) -> int:
        """Return the number of lines."""
        self._count = len(self._make_fitted(width))
        return self._count

    def update(self) -> None:
        """Redraw, with a new layout if the number of lines changed."""
        if (
            self.is_mounted
            and self.size.width
            and len(self._make_fitted(self.size.width)) != self._count
        ):
            self.refresh(layout=True)
        self.redraw()


class RowChosen(Message):
    """A row of a list was selected, or opened (Enter, a second click)."""

    def __init__(self, key: Any, *, opened: bool) -> None:
        super().__init__()
        self.key = key
        self.opened = opened


class SortAsked(Message):
    """The title of a column was clicked."""

    def __init__(self, column: str) -> None:
        super().__init__()
        self.column = column
