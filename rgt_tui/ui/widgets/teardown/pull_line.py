"""One line on a pull of results: how far it is, or how it ended. Pure."""

from __future__ import annotations

from rgt_tui.profiles.readings import how_many
from rgt_tui.ui.box_pulls import Pull
from rgt_tui.ui.commands import key_for
from rgt_tui.ui.notation import clean, clock, compact_time, glyphs, percent, size
from rgt_tui.ui.widgets.bars import bar
from rgt_tui.ui.widgets.spans import Line, Span, Tone, clip, dim, line, pick, width_of, wrapped

BAR = 8
NAMES = 15
"""Width of the name at the left, that of the other lines of the teardown page."""


PRICE_LINES = 2
"""Of what is known of the price; the line below has the sum."""


def pull_line(pull: Pull, width: int) -> Line:
    """Return how far a pull is, or how it ended."""
    g = glyphs()
    if pull.end is not None:
        mark = Span(f"{g.check} ", Tone.PROVED) if pull.end.whole else Span(f"{g.trouble} ", Tone.TROUBLE)
        if pull.stopped:
            mark = Span(f"{g.warn} ", Tone.WARN)
        return clip(_begun(f"pull {clock(pull.ended_at)}", mark, Span(clean(pull.end.text))), width)
    if pull.asks is not None:
        price = Span(clean(pull.asks.short), Tone.WARN)
        return clip(
            _begun(
                "the pull asks",
                price,
                _key(key_for("teardown.agree"), "yes"),
                _key(key_for("teardown.pull"), "no"),
            ),
            width,
        )
    look, stop = pull.progress, _key(key_for("teardown.pull"), "stops it")
    if look is None or look.phase not in {"pulling", "verifying"}:
        words = look.phase if look is not None else "connecting"
        return clip(_begun("pulling", dim(f"{clean(words)} {g.ellipsis}  {clean(pull.plan)}"), stop), width)
    parts = [
        (0, line(Span(percent(100 * look.share)))),
        (2, line(Span(f"{size(look.bytes_done)} of {size(look.bytes)}"))),
        (3, line(Span(f"{size(look.rate)}/s" if look.rate is not None else ""))),
        (1, line(Span(f"{compact_time(look.eta)} to go" if look.eta is not None else ""))),
        (4, line(Span(how_many(look.problems, "problem") if look.problems else "", Tone.WARN))),
        (5, line(dim(clean(pull.plan)))),
    ]
    head = line(bar(100 * look.share, BAR), "  ")
    room = width - NAMES - width_of(head) - width_of(stop)
    return clip(_begun(look.phase, head, pick(max(0, room), parts), stop), width)


def price_lines(pull: Pull | None, width: int) -> list[Line]:
    """Return what is known of the price that a pull asks to agree to."""
    if pull is None or pull.asks is None:
        return []
    return [clip(made, width) for made in wrapped(clean(pull.asks.words), width, Tone.DIM, most=PRICE_LINES)]


def _key(key: str, words: str) -> Line:
    return line(Span(f"   {key}", Tone.ACCENT), dim(f" {words}"))


def _begun(name: str, *spans: Span | Line) -> Line:
    return line(dim(f"{name:<{NAMES}}"), *spans)
