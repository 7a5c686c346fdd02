"""The one base of our widgets: a list of lines in, only the cells that changed out; and the messages of lists."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import ClassVar
from weakref import WeakKeyDictionary

from rich.segment import Segment
from rich.style import Style
from textual import events, on
from textual.css.model import RuleSet
from textual.css.stylesheet import Stylesheet
from textual.dom import DOMNode
from textual.geometry import Region, Size
from textual.message import Message
from textual.strip import Strip
from textual.widget import Widget

from rgt_tui.ui.enduring import Enduring, endured, words
from rgt_tui.ui.notation import glyphs, plain
from rgt_tui.ui.widgets.spans import EMPTY, Line, Span, Tone, clip, differing, line, split

_UNPRINTABLE = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")


@lru_cache(maxsize=4096)
def _safe(text: str) -> str:
    """Last line of defence: whatever got here, no control character reaches the terminal."""
    return plain(_UNPRINTABLE.sub("�", text))


def pointed(row: Line, column: int) -> Line:
    """Put the cursor into a cell of a line: a background alone is not seen without colours."""
    before, after = split(row, column)
    return (*before, Span(glyphs().cursor, Tone.ACCENT), *split(after, 1)[1])


_PART_STYLES: WeakKeyDictionary[
    Stylesheet, tuple[list[RuleSet], dict[tuple[object, ...], dict[str, Style]]]
] = WeakKeyDictionary()
"""By the rules of a style sheet, and how a widget stands: how its component classes are drawn."""


def standing(widget: Widget) -> tuple[object, ...]:
    """Return all that the rules of a style sheet may ask about a widget and those around it."""
    named = widget.app.stylesheet.rules_map
    return tuple(
        (
            type(node),
            node.id if f"#{node.id}" in named else None,
            node.classes,
            node._pseudo_classes_cache_key,
        )
        for node in widget.css_path_nodes
    )


class LineWidget(Enduring, Widget):
    """Shows what `make_lines` returns, and on `redraw` repaints only the spans that differ.

    A subclass implements `make_lines` and calls `redraw` when something it depends on has changed. Styles
    come from the theme by tone (see `app.tcss`), one component class each; none of them is declared.
    """

    DEFAULT_CSS = """
    LineWidget { height: 1; background: $background; color: $foreground; }
    """
    ALLOW_SELECT = False
    WHEEL: ClassVar[int] = 0
    """Lines that one notch of the wheel scrolls."""
    HINTS_CLICK: ClassVar[bool] = True
    """A hint in the border does what its key does; False where a click anywhere does."""

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:  # noqa: A002
        super().__init__(id=id, classes=classes)
        self._drawn: list[Line] = []
        self._selected: int | None = None
        self._part_styles: dict[str, Style] | None = None
        """By component class: how it is drawn, of all widgets that stand like this one."""
        self._tone_styles: dict[tuple[Tone, bool], Style] = {}
        self._strip_cache: dict[tuple[Line, bool, int], Strip] = {}

    def make_lines(self, width: int, height: int) -> Sequence[Line]:
        """Return the lines that fill `width` times `height` cells; missing ones are blank."""
        raise NotImplementedError

    def selected_line(self) -> int | None:
        """Return the line that the keys act on, counted from the top of what is visible.

        From `selected_from` on it gets the selection's background; the cell there is to be blank, it gets the cursor.
        """
        return None

    @property
    def selected_from(self) -> int:
        """The column at which the selection begins; what is at the left of it is not a part of the list."""
        return 0

    def scroll_lines(self, count: int) -> None:
        """Scroll by `count` lines; implemented where not all fits."""

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        """Scroll with the wheel."""
        self.scroll_lines(self.WHEEL)

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        """Scroll with the wheel."""
        self.scroll_lines(-self.WHEEL)

    @on(events.Click)
    async def follow_hint(self, event: events.Click) -> None:
        """Do what a hint in a border says, as its key does."""
        offered = getattr(self.screen, "offered", None)
        if not self.HINTS_CLICK or not callable(offered) or not 0 <= event.y < len(self._drawn):
            return
        from rgt_tui.ui.mouse_buttons import hinted

        command = hinted(self._drawn[event.y], int(event.x), offered())
        if command is not None:
            event.stop()
            await self.screen.run_action(command.does)

    def watch_has_focus(self, has_focus: bool) -> None:
        """Show where the focus is."""
        super().watch_has_focus(has_focus)
        self.redraw()

    @property
    def shown_lines(self) -> list[Line]:
        """What is on screen now."""
        return self._drawn

    def redraw(self) -> None:
        """Make the lines anew and repaint the cells that changed."""
        if not self.is_mounted:
            return
        width, height = self.size
        if not width or not height:
            return
        before, selected_before = self._drawn, self._selected
        self._make(width, height)
        if len(before) != len(self._drawn):
            self.refresh()
            return
        regions: list[Region] = []
        for y, (old, new) in enumerate(zip(before, self._drawn, strict=True)):
            if (y == selected_before) != (y == self._selected):
                regions.append(Region(0, y, width, 1))
            elif old != new:
                regions += [Region(first, y, end - first, 1) for first, end in differing(old, new)]
        if regions:
            self.refresh(*regions)

    def _make(self, width: int, height: int) -> None:
        try:
            lines = [clip(made, width) for made in list(self.make_lines(width, height))[:height]]
            lines.extend([clip(EMPTY, width)] * (height - len(lines)))
            at = self.selected_line()
            if at is not None and 0 <= at < len(lines):
                lines[at] = pointed(lines[at], self.selected_from)
        except Exception as error:
            if not endured(self, error):
                raise
            failed = clip(line(Span(f"this failed: {words(error)}", Tone.TROUBLE)), width)
            lines, at = [failed, *[clip(EMPTY, width)] * (height - 1)], None
        self._drawn, self._selected = lines, at

    def on_resize(self, event: events.Resize) -> None:
        """Draw for the new size."""
        self._make(*self.size)
        self.refresh()

    def _component(self, name: str) -> Style:
        """Return the style of a component class, worked out when the first widget that stands so draws with it.

        Those that a widget names in `COMPONENT_CLASSES`, Textual works out all, for each widget and at every change of
        its focus again.
        """
        if self._part_styles is None:
            sheet = self.app.stylesheet
            rules, known = _PART_STYLES.get(sheet, ([], {}))
            if rules is not sheet.rules:
                known = {}
                _PART_STYLES[sheet] = (sheet.rules, known)
            self._part_styles = known.setdefault(standing(self), {})
        style = self._part_styles.get(name)
        if style is None:
            drawn = DOMNode(classes=name)
            drawn._attach(self)
            self.app.stylesheet.apply(drawn)
            style = self._part_styles[name] = drawn.styles.partial_rich_style
        return style

    def notify_style_update(self) -> None:
        """Forget the styles of the old theme, or of another state of the widget; draw anew what looks different."""
        super().notify_style_update()
        before = dict(self._tone_styles)
        self._part_styles = None
        self._tone_styles.clear()
        self._strip_cache.clear()
        if any(self._style(*used) != style for used, style in before.items()):
            self.refresh()

    def render_line(self, y: int) -> Strip:
        """Return one line as a strip; strips are kept by their content."""
        width, height = self.size
        if len(self._drawn) != height:
            self._make(width, height)
        content = self._drawn[y] if y < len(self._drawn) else EMPTY
        selected = y == self._selected
        key = (content, selected, width)
        strip = self._strip_cache.get(key)
        if strip is None:
            if len(self._strip_cache) > 400:
                self._strip_cache.clear()
            aside, chosen = split(content, self.selected_from) if selected else (content, EMPTY)
            segments = [Segment(_safe(span.text), self._style(span.tone, False)) for span in aside]
            segments += [Segment(_safe(span.text), self._style(span.tone, True)) for span in chosen]
            strip = Strip(segments).adjust_cell_length(width, self._style(Tone.TEXT, selected))
            self._strip_cache[key] = strip
        return strip

    def _style(self, tone: Tone, selected: bool) -> Style:
        style = self._tone_styles.get((tone, selected))
        if style is None:
            style = self._component(f"tone--{tone}")
            style = self.rich_style + style
            if selected:
                style += self._component("row--selected")
            self._tone_styles[tone, selected] = style
        return style

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        """One line, unless the style sheet says more."""
        return 1


class RowChosen(Message):
    """A row of a list was selected, or opened (Enter, a second click)."""

    def __init__(self, key: str, *, opened: bool) -> None:
        super().__init__()
        self.key = key
        self.opened = opened


class EntryClosed(Message):
    """The entry line is closed; `text` is None when it was given up with Escape."""

    def __init__(self, text: str | None) -> None:
        super().__init__()
        self.text = text


class EntryChanged(Message):
    """The text of the entry line changed."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.text = text


class SortAsked(Message):
    """The title of a column was clicked."""

    def __init__(self, column: str) -> None:
        super().__init__()
        self.column = column
