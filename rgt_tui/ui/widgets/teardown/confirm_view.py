"""The texts of the teardown dialog as lines: pure functions of its state."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from rich.cells import cell_len

from rgt_tui.model import BillingAction, EvidenceItem, Level, Meter, Review, StopPhase, Verb, clean
from rgt_tui.profiles import by_hand, how_many, in_both, prices
from rgt_tui.ui.box_pulls import Pull
from rgt_tui.ui.commands import key_for
from rgt_tui.ui.notation import clock, compact_time, glyphs, known, money, percent, size
from rgt_tui.ui.widgets.bars import bar
from rgt_tui.ui.widgets.spans import (
    EMPTY,
    Line,
    Span,
    Tone,
    clip,
    dim,
    fit,
    joined,
    line,
    pick,
    width_of,
    wrapped,
)
from rgt_tui.ui.widgets.teardown.confirm_state import Confirm, Stage, level_of, mismatch
from rgt_tui.ui.widgets.teardown.evidence_list import in_order

NAMES = 15
"""Width of the column of names at the left."""
BAR = 8
PRICE_LINES = 2
"""Lines about a pull's price; the line below has the sum."""
LONGEST_WORD = 20
OURS = {Verb.PARK: "Stop", Verb.DESTROY: "Destroy"}
"""Our names for the verbs; each is shown next to the platform's own."""
CONSOLE = "console:"
"""Prefix of the steps in a profile that are done on the console."""
UNDO: dict[Level, tuple[str, Tone]] = {
    Level.LOCAL: ("not needed: only rgt itself changes", Tone.TEXT),
    Level.RECOVERABLE: ("a stopped run can be started again", Tone.TEXT),
    Level.METER: ("you can start it again; the kept disks stay", Tone.TEXT),
    Level.IRREVERSIBLE: ("this cannot be undone", Tone.STRONG),
}
"""Whether the action can be undone, by level."""
READY: dict[Level, tuple[str, str]] = {
    Level.LOCAL: ("ready: the button does it", ""),
    Level.RECOVERABLE: ("ready: the button sends it", "; a stopped run can be started again"),
    Level.METER: ("ready: the button sends it", "; the meter stops"),
    Level.IRREVERSIBLE: ("ready: the button sends it", "; there is no undo"),
}


@dataclass(frozen=True)
class Setting:
    """Data for the dialog besides its state."""

    meter: Meter
    action: BillingAction | None
    """The platform's own description of the chosen verb."""
    platform: str
    now: float
    console: str = ""
    """URL of the console."""
    keeps: tuple[str, ...] = ()
    """What is still billed after the verb by the platform's profile, if no review has it."""
    owner: str = ""
    """The console's owner if the profile is generic; empty = the platform."""
    lacks: str = ""
    """Message that the platform lacks this verb, and what to do instead."""


def facts(state: Confirm, setting: Setting, width: int) -> list[Line]:
    """Return everything above the evidence: refusals, changes, money and losses."""
    lines: list[Line] = []
    review = state.review
    if state.by_hand:
        return [
            *_list("by hand", (state.review_error or "",), width, Tone.STRONG),
            EMPTY,
            *_clicks(setting, width),
        ]
    if state.closed:
        lines += _list("refused", state.closed, width, Tone.TROUBLE, glyphs().trouble)
        lines += [
            _named(
                "", Span("the gate checked again and stayed closed: nothing was sent", Tone.STRONG)
            ),
            EMPTY,
        ]
    if state.review_error is not None:
        lines += _list("no review", (state.review_error,), width, Tone.TROUBLE, glyphs().trouble)
        lines += [
            _named("", dim("retried every 2 s; nothing can be sent until it succeeds")),
            EMPTY,
        ]
    if review is None:
        if state.review_error is None:
            lines.append(_named("", dim("asking the box and the provider")))
        return lines + _by_profile(setting, width)
    if state.stage is Stage.REVIEW:
        lines += _refused(review, width)
    lines += _outcome(state, setting, width)
    if state.changed:
        lines += [*_list("just changed", state.changed, width, Tone.WARN, glyphs().warn), EMPTY]
    lines += _money(state, review, setting, width)
    if review.first:
        pulls = f"{review.first} ({key_for('teardown.pull')} on a row pulls it)"
        lines += _list("first", (pulls,), width, Tone.WARN, glyphs().warn)
    lines += _list(
        "lost",
        review.lost or ("nothing, according to the profile",),
        width,
        Tone.STRONG if review.lost else Tone.TEXT,
    )
    if review.kept:
        lines += _list("kept", review.kept, width)
    lines += _list("keeps billing", review.keeps_billing or ("nothing found",), width)
    if review.dangers:
        lines += _list("without you", review.dangers, width)
    lines += _list("note", (review.note,) if review.note else (), width)
    return [*lines, EMPTY]


def _outcome(state: Confirm, setting: Setting, width: int) -> list[Line]:
    """Return the full result or manual steps, because the line below the field may be cut."""
    if state.stage is Stage.OFF and state.progress:
        return [*_list("result", (state.progress[-1].text,), width, Tone.STRONG), EMPTY]
    if state.stage is Stage.UNKNOWN and state.trouble:
        return [*_list("unknown", (state.trouble,), width, Tone.TROUBLE), EMPTY]
    if state.stage is not Stage.YOURS:
        return []
    lines = _list("not done", (state.told,) if state.told else (), width, Tone.WARN, glyphs().warn)
    for number, step in enumerate(clicks(setting), 1):
        lines += _list(f"{number}", (step,), width, Tone.STRONG)
    which = (
        [item.text for item in state.review.items if item.kind == "identity"]
        if state.review
        else []
    )
    lines += _list("which", which, width)
    lines += _list(
        "waits",
        (state.review.waits,) if state.review and state.review.waits else (),
        width,
        Tone.DIM,
    )
    return [*lines, EMPTY]


def sends(state: Confirm, width: int) -> list[Line]:
    """Return the part below the evidence: the call."""
    if state.review is None:
        return []
    call = _list("will send", (state.review.will_send,), width)
    return [EMPTY, *call, *_list("or by hand", state.review.how, width, Tone.DIM)]


def _refused(review: Review, width: int) -> list[Line]:
    """Return why the gate is closed.

    Refusals that repeat a row of the evidence are only counted.
    """
    blocking = [item for item in in_order(review) if item.blocks]
    rows = {item.text for item in blocking}
    texts = [text for text in review.refusals if text not in rows]
    if review.refusals and blocking:
        fails = "fails" if len(blocking) == 1 else "fail"
        texts.append(f"{how_many(len(blocking), 'check')} {fails}: {_count_by_kind(blocking)}")
    if texts:
        return [*_list("refused", texts, width, Tone.TROUBLE, glyphs().trouble), EMPTY]
    return []


def _count_by_kind(items: Sequence[EvidenceItem]) -> str:
    """Return the kinds of the items in their order, with counts above one."""
    counts = Counter(item.kind for item in items)
    return ", ".join(f"{kind} {count}" if count > 1 else kind for kind, count in counts.items())


def asked(state: Confirm, width: int) -> Line:
    """Return the exact text to type, and what it means."""
    if state.stage is not Stage.REVIEW or state.review is None or state.by_hand:
        return EMPTY
    if not state.wanted:
        return _named("", dim("nothing to type: press the button"))
    given = state.review.forfeits
    if state.protected:
        means = "then Enter: the fleet file protects it"
    elif given:
        sizes = [one.bytes for one in given if one.bytes is not None]
        some = "at least " if len(sizes) < len(given) else ""
        count = how_many(len(given), "thing")
        means = f"gives up {count}" + (f": {some}{size(sum(sizes))}" if sizes else "")
    else:
        means = "the box's name"
    return clip(_named("type exactly", Span(state.wanted, Tone.STRONG), dim(f"   {means}")), width)


def clicks(setting: Setting) -> tuple[str, ...]:
    """Return the manual steps on the platform's console, in its own words; empty if unknown."""
    action = setting.action
    if action is None:
        return ()
    on_console = [
        way.removeprefix(CONSOLE).strip() for way in action.how if way.startswith(CONSOLE)
    ]
    others = [way for way in action.how if not way.startswith(CONSOLE)]
    where = f"open the console of {setting.owner or setting.platform}"
    where += f": {setting.console}" if setting.console else ""
    steps = [where, *(f"click {way}" for way in on_console[:1])] if on_console or not others else []
    if not on_console and not others:
        steps.append(f"click {in_both(action)}")
    steps += [f"or {way}" if steps else way for way in (*on_console[1:], *others)]
    first = (action.first,) if action.first else ()
    seen = (f"done when {action.confirm_with}",) if action.confirm_with else ()
    return (*first, *steps, *seen)


def _clicks(setting: Setting, width: int) -> list[Line]:
    """Return the manual steps if rgt cannot act, with the price and what keeps billing."""
    note = setting.action.note if setting.action is not None else ""
    steps = [(f"{number}", (text,), Tone.STRONG) for number, text in enumerate(clicks(setting), 1)]
    return _by_hand(setting, [*steps, ("note", (note,) if note else (), Tone.TEXT)], width)


def _by_profile(setting: Setting, width: int) -> list[Line]:
    """Return what the profile alone says about the verb: manual steps, and what keeps billing."""
    told: dict[str, list[str]] = {}
    for label, text in by_hand(setting.action) if setting.action is not None else ():
        told.setdefault(label, []).append(text)
    rows = [
        (name, texts, Tone.STRONG if name == "by hand" else Tone.TEXT)
        for name, texts in told.items()
    ]
    return _by_hand(setting, rows, width)


def _by_hand(
    setting: Setting, rows: Sequence[tuple[str, Sequence[str], Tone]], width: int
) -> list[Line]:
    """Return the price, the rows, and what keeps billing; for a missing verb, the alternative."""
    if setting.action is None:
        return _list("instead", (setting.lacks,) if setting.lacks else (), width, Tone.STRONG)
    rate = prices.rate(setting.meter)
    price = (
        Span("price unknown", Tone.WARN) if rate is None else Span(f"{known(rate)}/h", Tone.STRONG)
    )
    lines = [_named("now", price, dim(f"   {setting.meter.source}"))]
    for name, texts, tone in rows:
        lines += _list(name, texts, width, tone)
    return lines + _list(
        "keeps billing", setting.keeps or ("nothing, according to the profile",), width
    )


def title(state: Confirm, setting: Setting) -> str:
    """Return the title of the frame: the verb, the box and the instance."""
    review = state.review
    instance = f"  {setting.platform} instance {review.instance}" if review is not None else ""
    box = state.box
    what = {
        Stage.REVIEW: f"{label(state, setting)} {box}?",
        Stage.SENDING: f"{label(state, setting)} {box}: sent",
        Stage.YOURS: f"{label(state, setting)} {box}: you have to click it",
        Stage.OFF: f"{box}: {DONE[state.verb]}",
        Stage.UNKNOWN: f"{box}: state unknown",
    }[state.stage]
    return f"{what}{instance}"


DONE = {Verb.PARK: "stopped", Verb.DESTROY: "destroyed"}


def button(state: Confirm, setting: Setting) -> str:
    """Return the text of the button: the action, the confirmation or the receipt."""
    if state.stage is Stage.YOURS:
        return f"{state.box} is {DONE[state.verb]}"
    if state.stage is Stage.OFF:
        return "Receipt"
    return f"{label(state, setting)} {state.box}"


def label(state: Confirm, setting: Setting) -> str:
    """Return our name for the chosen verb, with the platform's own."""
    native = setting.action.native_label if setting.action is not None else ""
    if state.review is not None and state.review.native_label:
        native = state.review.native_label
    return called(state.verb, native)


def called(verb: Verb, native: str) -> str:
    """Return a verb with the platform's name, ``Stop (关机)``; only ours if both are the same."""
    ours, word = OURS[verb], native_word(native)
    if word.casefold() in {"", ours.casefold(), verb.value}:
        return ours
    return f"{ours} ({word})"


def native_word(native: str) -> str:
    """Return a platform's name for a verb if it can be displayed on a button, else nothing."""
    word = clean(native)
    shown = word.isascii() or glyphs().braille
    if shown and cell_len(word) <= LONGEST_WORD:
        return word
    return ""


def promise(state: Confirm) -> str:
    """Return the text at the right end of the frame."""
    if state.by_hand:
        return "rgt sends nothing here"
    if state.stage is Stage.REVIEW:
        if state.review is not None and state.review.by_hand:
            return "rgt sends nothing here"
        return f"nothing is sent until you {'press the button' if state.name_fits() else 'type the phrase'}"
    return {
        Stage.SENDING: "in progress",
        Stage.YOURS: "rgt sends nothing here",
        Stage.OFF: "meter off",
        Stage.UNKNOWN: "state unknown",
    }[state.stage]


def status(state: Confirm, setting: Setting, width: int) -> Line:
    """Return the line below the field: what is missing, or the state of the request."""
    if state.by_hand:
        return line(
            dim(
                state.told
                or f"{key_for('teardown.copy')} copies the steps; {key_for('teardown.close')} closes"
            )
        )
    if state.stage is Stage.SENDING:
        return line(
            dim("closing this does not stop the request; the fleet screen shows the result")
        )
    if state.stage is Stage.YOURS:
        copies = f"{key_for('teardown.copy')} copies the steps"
        return line(
            f"once the console shows it, press the button; {copies}",
            dim("   closing leaves it open"),
        )
    if state.stage is Stage.OFF:
        return line(dim("done; the audit log has what was shown, sent and answered"))
    if state.stage is Stage.UNKNOWN:
        console = f" at {setting.console}" if setting.console else ""
        text = f"state unknown, check the console{console}: {state.trouble or ''}"
        return line(Span(f"{glyphs().trouble} {text}", Tone.TROUBLE))
    if state.told:
        return line(Span(f"{glyphs().warn} {state.told}", Tone.WARN))
    wrong = mismatch(state.typed, state.wanted)
    if wrong:
        return line(Span(f"{glyphs().warn} {wrong}", Tone.WARN))
    missing = state.blockers(setting.now)
    if not missing:
        does, means = READY[
            level_of(state.review) if state.review is not None else Level.IRREVERSIBLE
        ]
        return line(does, Span(means, Tone.STRONG))
    more = f"  and {how_many(len(missing) - 1, 'more reason')}" if len(missing) > 1 else ""
    why = f"locked: {missing[0]}"
    return line(dim(fit(why, min(len(why), max(8, width - len(more))))), dim(more))


def course(state: Confirm, width: int) -> Line:
    """Return the progress of a request: done steps with their times, and the next ones."""
    if state.by_hand:
        return EMPTY
    wide = _course(state, "  ")
    if width_of(wide) <= width:
        return wide
    return _course(state, " ")


def _course(state: Confirm, gap: str) -> Line:
    at = {step.phase: step.at for step in state.progress}
    spans: list[Span] = [dim(f"{'done' if state.stage is Stage.OFF else 'then':<{NAMES}}")]
    yours = state.stage is Stage.YOURS or (state.review is not None and state.review.by_hand)
    for index, (phase, text) in enumerate(BY_CLICK if yours else BY_CALL):
        if index:
            spans.append(dim(f"{gap}{glyphs().arrow}{gap}"))
        if phase in at:
            proved = phase is StopPhase.METER_OFF
            mark = f"{glyphs().check} " if proved else ""
            spans.append(
                Span(f"{mark}{text} {clock(at[phase])}", Tone.PROVED if proved else Tone.TEXT)
            )
        else:
            waits = state.stage is Stage.SENDING and (index == 0 or BY_CALL[index - 1][0] in at)
            spans.append(Span(f"{text} {glyphs().ellipsis}", Tone.ACCENT) if waits else dim(text))
    if state.stage is Stage.SENDING and state.progress and state.progress[-1].text:
        spans.append(dim(f"   {state.progress[-1].text}"))
    return tuple(spans)


BY_CALL = (
    (StopPhase.REQUESTED, "requested"),
    (StopPhase.CONFIRMED, "provider confirms"),
    (StopPhase.METER_OFF, "meter off"),
)
BY_CLICK = (
    (StopPhase.YOURS, "sent to the console"),
    (StopPhase.METER_OFF, "done, confirmed by you"),
)
"""Without a provider's API only the person can confirm that it is done."""


def _named(name: str, *spans: Span | Line) -> Line:
    return line(dim(f"{name:<{NAMES}}"), *spans)


def _beside(name: str, parts: Sequence[Line], width: int) -> list[Line]:
    """Return a name with its parts side by side, as many per line as fit."""
    rows = joined(parts, max(8, width - NAMES))
    return [_named(name if place == 0 else "", row) for place, row in enumerate(rows)]


def _list(
    name: str, texts: Sequence[str], width: int, tone: Tone = Tone.TEXT, mark: str = ""
) -> list[Line]:
    """Return a name with all of its texts, one below the other; the dialog scrolls."""
    lines: list[Line] = []
    for text in texts:
        prefix = f"{mark} " if mark else ""
        room = max(8, width - NAMES - len(prefix))
        for row, piece in enumerate(wrapped(text, room, tone)):
            lead = prefix if row == 0 else " " * len(prefix)
            lines.append(_named("" if lines else name, Span(lead, tone), piece))
    return lines


def _money(state: Confirm, review: Review, setting: Setting, width: int) -> list[Line]:
    off = state.stage is Stage.OFF
    # the review describes the time before the call
    costs: Meter | Review = setting.meter if off else review
    rate = money(costs.per_hour, costs.currency, costs.at_least)
    price = (
        Span(f"{rate}/h", Tone.STRONG)
        if costs.per_hour is not None
        else Span("price unknown", Tone.WARN)
    )
    so_far = money(
        costs.spent, costs.currency, costs.spent_at_least, estimated=costs.spent_estimated
    )
    spent = Span(f"spent {so_far}")
    says = setting.meter.native_status or setting.meter.lifecycle.value if off else review.status
    source = "seen from here:" if review.by_hand else "provider says"
    lines = _beside("now", (line(price), line(spent), line(dim(f"{source} {says}"))), width)
    for caveat in prices.caveats(setting.meter):
        lines += _list("", (caveat,), width, Tone.DIM)
    parts = _stops(setting, off)
    if parts:
        lines += _beside("stopped" if off else "saves", [line(part) for part in parts], width)
    undo, tone = UNDO[level_of(review)]
    lines.append(_named("undo", Span(undo, tone)))
    return lines


def _stops(setting: Setting, off: bool) -> list[str]:
    """Return each meter of the machine: what stopping it saves, or that it continues.

    The platform's profile defines which meters the verb stops. A stopped meter has no price.
    """
    if setting.action is None:
        return []
    meter = setting.meter
    stopped, rest = [], []
    for name, stops, price in (
        ("compute", setting.action.stops_gpu_meter, meter.compute_per_hour),
        ("storage", setting.action.stops_storage_meter, meter.storage_per_hour),
    ):
        least = meter.at_least and name == "storage"
        # A price of 0 is the current one: kept disks may cost something after the stop, see "keeps
        # billing".
        shows_price = bool(price) and not (off and stops)
        cost = f" {money(price, meter.currency, least)}/h" if shows_price else ""
        unpriced = ", price unknown" if price is None else ""
        if stops is None:
            rest.append(f"{name}{cost}: unknown whether it stops")
        elif stops:
            stopped.append(f"{name}{cost}")
        else:
            rest.append(f"{name}{cost} goes on{unpriced}")
    return [*(stopped or ["nothing"]), *rest]


# A pull of results: its progress or its result.


def pull_line(pull: Pull, width: int) -> Line:
    """Return a pull's progress or its result."""
    g = glyphs()
    if pull.end is not None:
        mark = (
            Span(f"{g.check} ", Tone.PROVED)
            if pull.end.whole
            else Span(f"{g.trouble} ", Tone.TROUBLE)
        )
        if pull.stopped:
            mark = Span(f"{g.warn} ", Tone.WARN)
        return clip(_named(f"pull {clock(pull.ended_at)}", mark, Span(pull.end.text)), width)
    if pull.asks is not None:
        price = Span(f"{pull.asks.short}?", Tone.WARN)
        return clip(
            _named(
                "fetch",
                price,
                _key(key_for("teardown.agree"), "yes"),
                _key(key_for("teardown.pull"), "no"),
            ),
            width,
        )
    look, stop = pull.progress, _key(key_for("teardown.pull"), "stops it")
    if look is None or look.phase not in {"pulling", "verifying"}:
        words = look.phase if look is not None else "connecting"
        return clip(_named("pulling", dim(f"{words} {g.ellipsis}  {pull.plan}"), stop), width)
    parts = [
        (0, line(Span(percent(100 * look.share)))),
        (2, line(Span(f"{size(look.bytes_done)} of {size(look.bytes)}"))),
        (3, line(Span(f"{size(look.rate)}/s" if look.rate is not None else ""))),
        (1, line(Span(f"{compact_time(look.eta)} to go" if look.eta is not None else ""))),
        (4, line(Span(how_many(look.problems, "problem") if look.problems else "", Tone.WARN))),
        (5, line(dim(pull.plan))),
    ]
    head = line(bar(100 * look.share, BAR), "  ")
    room = width - NAMES - width_of(head) - width_of(stop)
    return clip(_named(look.phase, head, pick(max(0, room), parts), stop), width)


def price_lines(pull: Pull | None, width: int) -> list[Line]:
    """Return what is known about the price that a pull asks to agree to."""
    if pull is None or pull.asks is None:
        return []
    return [
        clip(made, width) for made in wrapped(pull.asks.words, width, Tone.DIM, most=PRICE_LINES)
    ]


def _key(key: str, words: str) -> Line:
    return line(Span(f"   {key}", Tone.ACCENT), dim(f" {words}"))
