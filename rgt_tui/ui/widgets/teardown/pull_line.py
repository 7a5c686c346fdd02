"""A pull of results in the teardown dialog: its progress, its result, its price."""

from __future__ import annotations

from rgt_tui.language import translate
from rgt_tui.model import how_many
from rgt_tui.ui.box_pulls import BoxPull
from rgt_tui.ui.commands import key_for
from rgt_tui.ui.notation import (
    clock_or_dash,
    compact_time,
    current_glyphs,
    percent_or_dash,
    size_or_dash,
)
from rgt_tui.ui.widgets.bars import draw_bar
from rgt_tui.ui.widgets.spans import (
    Line,
    Span,
    Tone,
    clip_line,
    dim_span,
    join_fitting,
    make_line,
    width_of,
    wrap_text,
)
from rgt_tui.ui.widgets.teardown.confirm_view import NAMES, named_line


def pull_line(pull: BoxPull, width: int) -> Line:
    """Return a pull's progress or its result."""
    g = current_glyphs()
    if pull.end is not None:
        if pull.end.whole:
            mark = Span(f"{g.check} ", Tone.PROVED)
        else:
            mark = Span(f"{g.trouble} ", Tone.TROUBLE)
        # A pull that the person has stopped is no failure.
        if pull.stopped:
            mark = Span(f"{g.warn} ", Tone.WARN)
        return clip_line(
            named_line(
                translate("pull {ended_at}", ended_at=clock_or_dash(pull.ended_at)),
                mark,
                Span(pull.end.text),
            ),
            width,
        )
    if pull.asks is not None:
        price = Span(translate("{size}?", size=pull.asks.size_and_price), Tone.WARN)
        return clip_line(
            named_line(
                translate("fetch"),
                price,
                _key_hint(key_for("teardown.agree"), translate("yes")),
                _key_hint(key_for("teardown.pull"), translate("no")),
            ),
            width,
        )
    look, stop = pull.progress, _key_hint(key_for("teardown.pull"), translate("stops it"))
    # Other phases have no figures.
    if look is None or look.phase not in {"pulling", "verifying"}:
        if look is not None:
            words = translate(look.phase)
        else:
            words = translate("connecting")
        return clip_line(
            named_line(translate("pulling"), dim_span(f"{words} {g.ellipsis}  {pull.plan}"), stop),
            width,
        )
    parts = [
        (0, make_line(Span(percent_or_dash(100 * look.done_share)))),
        (
            2,
            make_line(
                Span(
                    translate(
                        "{bytes_done} of {bytes}",
                        bytes_done=size_or_dash(look.bytes_done),
                        bytes=size_or_dash(look.bytes),
                    )
                )
            ),
        ),
        (3, make_line(Span(f"{size_or_dash(look.rate)}/s" if look.rate is not None else ""))),
        (
            1,
            make_line(
                Span(
                    translate("{eta} to go", eta=compact_time(look.eta))
                    if look.eta is not None
                    else ""
                )
            ),
        ),
        (
            4,
            make_line(Span(how_many(look.problems, "problem") if look.problems else "", Tone.WARN)),
        ),
        (5, make_line(dim_span(pull.plan))),
    ]
    bar = 8
    head = make_line(draw_bar(100 * look.done_share, bar), "  ")
    room = width - NAMES - width_of(head) - width_of(stop)
    return clip_line(named_line(look.phase, head, join_fitting(max(0, room), parts), stop), width)


def price_lines(pull: BoxPull | None, width: int) -> list[Line]:
    """Return what is known about the price that a pull asks to agree to."""
    if pull is None or pull.asks is None:
        return []
    # Lines about a pull's price; the line below has the sum.
    price_lines_limit = 2
    return [
        clip_line(made, width)
        for made in wrap_text(pull.asks.words, width, Tone.DIM, most=price_lines_limit)
    ]


def _key_hint(key: str, words: str) -> Line:
    return make_line(Span(f"   {key}", Tone.ACCENT), dim_span(f" {words}"))
