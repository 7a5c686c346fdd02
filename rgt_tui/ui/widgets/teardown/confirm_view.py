"""The texts of the teardown dialog as lines: pure functions of its state."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from rich.cells import cell_len

from rgt_tui.language import translate
from rgt_tui.model import (
    ActionReview,
    BillingAction,
    BillingVerb,
    EvidenceItem,
    Meter,
    RiskLevel,
    StopPhase,
    clean_text,
    how_many,
)
from rgt_tui.profiles import bilingual_verb, list_manual_steps, prices
from rgt_tui.ui.commands import key_for
from rgt_tui.ui.notation import (
    amount_or_dash,
    clock_or_dash,
    current_glyphs,
    money_or_dash,
    size_or_dash,
)
from rgt_tui.ui.widgets.spans import (
    EMPTY,
    Line,
    Span,
    Tone,
    clip_line,
    dim_span,
    fit_text,
    join_parts,
    make_line,
    width_of,
    wrap_text,
)
from rgt_tui.ui.widgets.teardown.confirm_state import (
    ConfirmState,
    DialogStage,
    describe_mismatch,
    level_of,
)
from rgt_tui.ui.widgets.teardown.evidence_list import in_order

NAMES = 15
"""Width of the column of names at the left."""
OURS = {BillingVerb.PARK: "Stop", BillingVerb.DESTROY: "Destroy"}
"""Our names for the verbs; each is shown next to the platform's own."""
CONSOLE = "console:"
"""Prefix of the steps in a profile that are done on the console."""
UNDO: dict[RiskLevel, tuple[str, Tone]] = {
    RiskLevel.LOCAL: ("not needed: only rgt itself changes", Tone.TEXT),
    RiskLevel.RECOVERABLE: ("a stopped run can be started again", Tone.TEXT),
    RiskLevel.METER: ("you can start it again; the kept disks stay", Tone.TEXT),
    RiskLevel.IRREVERSIBLE: ("this cannot be undone", Tone.STRONG),
}
"""Whether the action can be undone, by level."""
READY: dict[RiskLevel, tuple[str, str]] = {
    RiskLevel.LOCAL: ("ready: the button does it", ""),
    RiskLevel.RECOVERABLE: ("ready: the button sends it", "; a stopped run can be started again"),
    RiskLevel.METER: ("ready: the button sends it", "; the meter stops"),
    RiskLevel.IRREVERSIBLE: ("ready: the button sends it", "; there is no undo"),
}


@dataclass(frozen=True)
class DialogSetting:
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
    to_button: str = ""
    """Which key leads from the focus to the button, or presses it."""
    lacks: str = ""
    """Message that the platform lacks this verb, and what to do instead."""
    checked: str = ""
    outdated: tuple[str, ...] = ()
    """As in `ActionReview`, if there is no review."""


def facts_lines(state: ConfirmState, setting: DialogSetting, width: int) -> list[Line]:
    """Return everything above the evidence: refusals, changes, money and losses."""
    lines: list[Line] = []
    review = state.review
    if state.by_hand:
        return [
            *_text_lines(translate("by hand"), (state.review_error or "",), width, Tone.STRONG),
            EMPTY,
            *_console_step_lines(setting, width),
        ]
    # The gate checks once more when the button is pressed: what it saw then is worth more than the
    # review.
    if state.closed:
        lines += _text_lines("refused", state.closed, width, Tone.TROUBLE, current_glyphs().trouble)
        lines += [
            named_line(
                "",
                Span(
                    translate("the gate checked again and stayed closed: nothing was sent"),
                    Tone.STRONG,
                ),
            ),
            EMPTY,
        ]
    if state.review_error is not None:
        lines += _text_lines(
            translate("no review"),
            (state.review_error,),
            width,
            Tone.TROUBLE,
            current_glyphs().trouble,
        )
        lines += [
            named_line(
                "", dim_span(translate("retried every 2 s; nothing can be sent until it succeeds"))
            ),
            EMPTY,
        ]
    if review is None:
        if state.review_error is None:
            lines.append(named_line("", dim_span(translate("asking the box and the provider"))))
        return lines + _by_profile(setting, width)
    if state.stage is DialogStage.REVIEW:
        lines += _refusal_lines(review, width)
    lines += _outcome_lines(state, setting, width)
    if state.changed:
        lines += [
            *_text_lines(
                translate("just changed"), state.changed, width, Tone.WARN, current_glyphs().warn
            ),
            EMPTY,
        ]
    lines += _money_lines(state, review, setting, width)
    if review.first:
        pulls = translate(
            "{first} ({key} on a row pulls it)", first=review.first, key=key_for("teardown.pull")
        )
        lines += _text_lines("first", (pulls,), width, Tone.WARN, current_glyphs().warn)
    lines += _text_lines(
        "lost",
        review.lost or (translate("nothing, according to the profile"),),
        width,
        Tone.STRONG if review.lost else Tone.TEXT,
    )
    if review.kept:
        lines += _text_lines("kept", review.kept, width)
    lines += _text_lines(
        translate("keeps billing"), review.keeps_billing or (translate("nothing found"),), width
    )
    if review.dangers:
        lines += _text_lines(translate("without you"), review.dangers, width)
    return [*lines, *_outdated_lines(review, width), EMPTY]


def _outcome_lines(state: ConfirmState, setting: DialogSetting, width: int) -> list[Line]:
    """Return the full result or manual steps, because the line below the field may be cut."""
    if state.stage is DialogStage.OFF and state.progress:
        return [*_text_lines("result", (state.progress[-1].text,), width, Tone.STRONG), EMPTY]
    if state.stage is DialogStage.UNKNOWN and state.trouble:
        return [*_text_lines("unknown", (state.trouble,), width, Tone.TROUBLE), EMPTY]
    if state.stage is not DialogStage.YOURS:
        return []
    lines = _text_lines(
        translate("not done"),
        (state.told,) if state.told else (),
        width,
        Tone.WARN,
        current_glyphs().warn,
    )
    for number, step in enumerate(console_steps(setting), 1):
        lines += _text_lines(f"{number}", (step,), width, Tone.STRONG)
    which: list[str] = []
    if state.review:
        which = [item.text for item in state.review.items if item.kind == "identity"]
    lines += _text_lines("which", which, width)
    lines += _text_lines(
        "waits",
        (state.review.waits,) if state.review and state.review.waits else (),
        width,
        Tone.DIM,
    )
    return [*lines, EMPTY]


def call_lines(state: ConfirmState, width: int) -> list[Line]:
    """Return the part below the evidence: the call, and what the profile adds to its facts."""
    review = state.review
    if review is None:
        return []
    return [
        EMPTY,
        *_text_lines(translate("will send"), (review.will_send,), width),
        *_text_lines(translate("or by hand"), review.how, width, Tone.DIM),
        # Below the evidence: on AutoDL these rows pushed the checks out of a terminal of 34 rows.
        *_text_lines(translate("note"), (review.note,) if review.note else (), width),
        *_checked_lines(review, width),
    ]


def _refusal_lines(review: ActionReview, width: int) -> list[Line]:
    """Return why the gate is closed.

    Only the first one that repeats a row of the evidence is shown, the others are counted.
    """
    blocking = [item for item in in_order(review) if item.is_blocking]
    rows = {item.text for item in blocking}
    texts = [text for text in review.refusals if text not in rows]
    if review.refusals and blocking:
        # The first reason in full: in a small terminal the evidence is out of sight.
        first, *rest = blocking
        texts.append(f"{translate(first.kind)}: {first.text}")
        if rest:
            more = how_many(len(rest), "more failing check")
            shows = translate("{key} shows them", key=key_for("teardown.walk-down"))
            texts.append(f"{more}: {_count_by_kind(rest)} ({shows})")
    if texts:
        return [
            *_text_lines("refused", texts, width, Tone.TROUBLE, current_glyphs().trouble),
            EMPTY,
        ]
    return []


def _count_by_kind(items: Sequence[EvidenceItem]) -> str:
    """Return the kinds of the items in their order, with counts above one."""
    counts = Counter(item.kind for item in items)
    named = [(translate(kind), count) for kind, count in counts.items()]
    return ", ".join(f"{kind} {count}" if count > 1 else kind for kind, count in named)


def typing_prompt(state: ConfirmState, width: int) -> Line:
    """Return the exact text to type, and what it means."""
    if state.stage is not DialogStage.REVIEW or state.review is None or state.by_hand:
        return EMPTY
    # Levels at which nothing is lost need no typed text.
    if not state.wanted_text:
        return named_line("", dim_span(translate("nothing to type: press the button")))
    given = state.review.forfeits
    if state.is_protected:
        means = translate("then Enter: the fleet file protects it")
    elif given:
        sizes = [one.bytes for one in given if one.bytes is not None]
        # An unknown size makes the sum a lower bound.
        if len(sizes) < len(given):
            some = translate("at least ")
        else:
            some = ""
        count = how_many(len(given), "thing")
        means = translate("gives up {count}", count=count) + (
            f": {some}{size_or_dash(sum(sizes))}" if sizes else ""
        )
    else:
        means = translate("the box's name")
    return clip_line(
        named_line(
            translate("type exactly"), Span(state.wanted_text, Tone.STRONG), dim_span(f"   {means}")
        ),
        width,
    )


def console_steps(setting: DialogSetting) -> tuple[str, ...]:
    """Return the manual steps on the platform's console, in its own words; empty if unknown."""
    action = setting.action
    if action is None:
        return ()
    on_console = [
        way.removeprefix(CONSOLE).strip() for way in action.how if way.startswith(CONSOLE)
    ]
    others = [way for way in action.how if not way.startswith(CONSOLE)]
    where = translate("open the console of {owner}", owner=setting.owner or setting.platform)
    where += f": {setting.console}" if setting.console else ""
    # Other ways, such as a command, need no console.
    if on_console or not others:
        steps = [where, *(translate("click {way}", way=way) for way in on_console[:1])]
    else:
        steps = []
    if not on_console and not others:
        steps.append(translate("click {way}", way=bilingual_verb(action)))
    more = (*on_console[1:], *others)
    steps += [translate("or {way}", way=way) for way in more] if steps else more
    first = (action.first,) if action.first else ()
    seen: tuple[str, ...] = ()
    if action.confirm_with:
        seen = (translate("done when {confirm_with}", confirm_with=action.confirm_with),)
    return (*first, *steps, *seen)


def _console_step_lines(setting: DialogSetting, width: int) -> list[Line]:
    """Return the manual steps if rgt cannot act, with the price and what keeps billing."""
    if setting.action is not None:
        note = setting.action.note
    else:
        note = ""
    steps = [
        (f"{number}", (text,), Tone.STRONG) for number, text in enumerate(console_steps(setting), 1)
    ]
    return _manual_lines(
        setting, [*steps, (translate("note"), (note,) if note else (), Tone.TEXT)], width
    )


def _by_profile(setting: DialogSetting, width: int) -> list[Line]:
    """Return what the profile alone says about the verb: manual steps, and what keeps billing."""
    told: dict[str, list[str]] = {}
    for label, text in list_manual_steps(setting.action) if setting.action is not None else ():
        told.setdefault(label, []).append(text)
    rows = [
        (name, texts, Tone.STRONG if name == "by hand" else Tone.TEXT)
        for name, texts in told.items()
    ]
    return _manual_lines(setting, rows, width)


def _manual_lines(
    setting: DialogSetting, rows: Sequence[tuple[str, Sequence[str], Tone]], width: int
) -> list[Line]:
    """Return the price, the rows, and what keeps billing; for a missing verb, the alternative."""
    if setting.action is None:
        return _text_lines(
            translate("instead"), (setting.lacks,) if setting.lacks else (), width, Tone.STRONG
        )
    rate = prices.find_hourly_cost(setting.meter)
    if rate is None:
        price = Span(translate("price unknown"), Tone.WARN)
    else:
        price = Span(f"{amount_or_dash(rate)}/h", Tone.STRONG)
    lines = [named_line(translate("now"), price, dim_span(f"   {setting.meter.source}"))]
    for name, texts, tone in rows:
        lines += _text_lines(name, texts, width, tone)
    lines += _text_lines(
        translate("keeps billing"),
        setting.keeps or (translate("nothing, according to the profile"),),
        width,
    )
    return [*lines, *_checked_lines(setting, width), *_outdated_lines(setting, width)]


def _checked_lines(source: ActionReview | DialogSetting, width: int) -> list[Line]:
    """Return when the profile's facts were checked."""
    return _text_lines(translate("facts"), tuple(filter(None, (source.checked,))), width, Tone.DIM)


def _outdated_lines(source: ActionReview | DialogSetting, width: int) -> list[Line]:
    """Return a warning for facts that are too old to rely on."""
    mark = current_glyphs().warn
    return _text_lines(translate("old facts"), source.outdated, width, Tone.WARN, mark)


def dialog_title(state: ConfirmState, setting: DialogSetting) -> str:
    """Return the title of the frame: the verb, the box and the instance."""
    review = state.review
    if review is not None:
        instance = translate(
            "  {platform} instance {instance}",
            platform=setting.platform,
            instance=review.instance,
        )
    else:
        instance = ""
    box = state.box
    what = {
        DialogStage.REVIEW: translate("{verb} {box}?", verb=verb_label(state, setting), box=box),
        DialogStage.SENDING: translate(
            "{verb} {box}: sent", verb=verb_label(state, setting), box=box
        ),
        DialogStage.YOURS: translate(
            "{state} {box}: you have to click it", state=verb_label(state, setting), box=box
        ),
        DialogStage.OFF: f"{box}: {translate(DONE[state.verb])}",
        DialogStage.UNKNOWN: translate("{box}: state unknown", box=box),
    }[state.stage]
    return f"{what}{instance}"


DONE = {BillingVerb.PARK: "stopped", BillingVerb.DESTROY: "destroyed"}


def button_text(state: ConfirmState, setting: DialogSetting) -> str:
    """Return the text of the button: the action, or the confirmation."""
    if state.stage is DialogStage.YOURS:
        return translate("{box} is {done}", box=state.box, done=translate(DONE[state.verb]))
    return f"{verb_label(state, setting)} {state.box}"


def verb_label(state: ConfirmState, setting: DialogSetting) -> str:
    """Return our name for the chosen verb, with the platform's own."""
    if setting.action is not None:
        native = setting.action.native_label
    else:
        native = ""
    # The label of the call that would be sent comes before the profile's.
    if state.review is not None and state.review.native_label:
        native = state.review.native_label
    return verb_with_native(state.verb, native)


def verb_with_native(verb: BillingVerb, native: str) -> str:
    """Return a verb with the platform's name, ``Stop (关机)``; only ours if both are the same."""
    ours, word = translate(OURS[verb]), native_word(native)
    # "Stop (Stop)" would look like two different things.
    if word.casefold() in {"", ours.casefold(), OURS[verb].casefold(), verb.value}:
        return ours
    return f"{ours} ({word})"


def native_word(native: str) -> str:
    """Return a platform's name for a verb if it can be displayed on a button, else nothing."""
    word = clean_text(native)
    # A terminal that shows only ASCII would draw question marks on the button.
    shown = word.isascii() or current_glyphs().braille
    longest_word = 20
    if shown and cell_len(word) <= longest_word:
        return word
    return ""


def promise_text(state: ConfirmState) -> str:
    """Return the text at the right end of the frame."""
    if state.by_hand:
        return translate("rgt sends nothing here")
    if state.stage is DialogStage.REVIEW:
        if state.review is not None and state.review.by_hand:
            return translate("rgt sends nothing here")
        if state.name_fits():
            more = translate("press the button")
        else:
            more = translate("type the phrase")
        return translate("nothing is sent until you {more}", more=more)
    return {
        DialogStage.SENDING: translate("in progress"),
        DialogStage.YOURS: translate("rgt sends nothing here"),
        DialogStage.OFF: translate("meter off"),
        DialogStage.UNKNOWN: translate("state unknown"),
    }[state.stage]


def dialog_status(state: ConfirmState, setting: DialogSetting, width: int) -> Line:
    """Return the line below the field: what is missing, or the state of the request."""
    if state.by_hand:
        return make_line(
            dim_span(
                state.told
                or translate(
                    "{key} copies the steps; {key_2} closes",
                    key=key_for("teardown.copy"),
                    key_2=key_for("teardown.close"),
                )
            )
        )
    if state.stage is DialogStage.SENDING:
        return make_line(
            dim_span(
                translate(
                    "closing this does not stop the request; the fleet screen shows the result"
                )
            )
        )
    if state.stage is DialogStage.YOURS:
        copies = translate("{key} copies the steps", key=key_for("teardown.copy"))
        return make_line(
            translate("once the console shows it, press the button; {copies}", copies=copies),
            dim_span(translate("   closing leaves it open")),
        )
    if state.stage is DialogStage.OFF:
        return make_line(
            dim_span(translate("done; the audit log has what was shown, sent and answered"))
        )
    if state.stage is DialogStage.UNKNOWN:
        if setting.console:
            console = translate(" at {url}", url=setting.console)
        else:
            console = ""
        text = translate(
            "state unknown, check the console{console}: {trouble}",
            console=console,
            trouble=state.trouble or "",
        )
        return make_line(Span(f"{current_glyphs().trouble} {text}", Tone.TROUBLE))
    if state.told:
        return make_line(Span(f"{current_glyphs().warn} {state.told}", Tone.WARN))
    wrong = describe_mismatch(state.typed, state.wanted_text)
    if wrong:
        return make_line(Span(f"{current_glyphs().warn} {wrong}", Tone.WARN))
    missing = state.list_blockers(setting.now)
    if not missing:
        does, means = READY[
            level_of(state.review) if state.review is not None else RiskLevel.IRREVERSIBLE
        ]
        return make_line(
            translate(does),
            setting.to_button and f"; {setting.to_button}",
            Span(translate(means), Tone.STRONG),
        )
    if len(missing) > 1:
        more = translate("  and {reasons}", reasons=how_many(len(missing) - 1, "more reason"))
    else:
        more = ""
    why = translate("locked: {reason}", reason=missing[0])
    return make_line(
        # The reason is cut rather than the number of other reasons.
        dim_span(fit_text(why, min(cell_len(why), max(8, width - cell_len(more))))),
        dim_span(more),
    )


def progress_line(state: ConfirmState, width: int) -> Line:
    """Return the progress of a request: done steps with their times, and the next ones."""
    if state.by_hand:
        return EMPTY
    made = _progress_spans(state, "  ")
    if width_of(made) > width:
        made = _progress_spans(state, " ")
    if width_of(made) > width:
        made = _progress_spans(state, " ", narrow=True)
    return made


def _progress_spans(state: ConfirmState, gap: str, *, narrow: bool = False) -> Line:
    """Return the steps; a narrow line has no name, and only the last step that is done has its time."""
    at = {step.phase: step.at for step in state.progress}
    name = translate("then")
    if state.stage is DialogStage.OFF:
        name = translate("done")
    spans: list[Span] = []
    if not narrow:
        spans.append(dim_span(fit_text(name, NAMES)))
    yours = state.stage is DialogStage.YOURS or (state.review is not None and state.review.by_hand)
    for index, (phase, text) in enumerate(BY_CLICK if yours else BY_CALL):
        if index:
            spans.append(dim_span(f"{gap}{current_glyphs().arrow}{gap}"))
        if phase in at:
            # A request, or the provider's answer to it, does not prove that billing has stopped.
            proved = phase is StopPhase.METER_OFF
            shown = translate(text)
            if proved:
                shown = f"{current_glyphs().check} {shown}"
            if not narrow or phase is state.progress[-1].phase:
                shown = f"{shown} {clock_or_dash(at[phase])}"
            spans.append(Span(shown, Tone.PROVED if proved else Tone.TEXT))
        else:
            # The first step that is not done is the one under way.
            waits = state.stage is DialogStage.SENDING and (
                index == 0 or BY_CALL[index - 1][0] in at
            )
            if waits:
                spans.append(Span(f"{translate(text)} {current_glyphs().ellipsis}", Tone.ACCENT))
            else:
                spans.append(dim_span(translate(text)))
    if state.stage is DialogStage.SENDING and state.progress and state.progress[-1].text:
        spans.append(dim_span(f"   {state.progress[-1].text}"))
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


def named_line(name: str, *spans: Span | Line) -> Line:
    """Return a row of the dialog: its name in a column of its own, then what it says."""
    return make_line(dim_span(fit_text(translate(name), NAMES)), *spans)


def _side_by_side(name: str, parts: Sequence[Line], width: int) -> list[Line]:
    """Return a name with its parts side by side, as many per line as fit."""
    rows = join_parts(parts, max(8, width - NAMES))
    return [named_line(name if place == 0 else "", row) for place, row in enumerate(rows)]


def _text_lines(
    name: str, texts: Sequence[str], width: int, tone: Tone = Tone.TEXT, mark: str = ""
) -> list[Line]:
    """Return a name with all of its texts, one below the other; the dialog scrolls."""
    lines: list[Line] = []
    for text in texts:
        prefix = f"{mark} " if mark else ""
        room = max(8, width - NAMES - len(prefix))
        for row, piece in enumerate(wrap_text(text, room, tone)):
            if row == 0:
                lead = prefix
            else:
                lead = " " * len(prefix)
            lines.append(named_line("" if lines else name, Span(lead, tone), piece))
    return lines


def _money_lines(
    state: ConfirmState, review: ActionReview, setting: DialogSetting, width: int
) -> list[Line]:
    off = state.stage is DialogStage.OFF
    # the review describes the time before the call
    costs: Meter | ActionReview
    if off:
        costs = setting.meter
    else:
        costs = review
    rate = money_or_dash(costs.per_hour, costs.currency, costs.at_least)
    if costs.per_hour is not None:
        price = Span(f"{rate}/h", Tone.STRONG)
    else:
        price = Span(translate("price unknown"), Tone.WARN)
    so_far = money_or_dash(
        costs.spent, costs.currency, costs.spent_at_least, estimated=costs.spent_estimated
    )
    spent = Span(translate("spent {so_far}", so_far=so_far))
    if off:
        says = setting.meter.native_status or setting.meter.lifecycle.value
    else:
        says = review.status
    if review.by_hand:
        source = translate("seen from here:")
    else:
        source = translate("provider says")
    lines = _side_by_side(
        translate("now"),
        (make_line(price), make_line(spent), make_line(dim_span(f"{source} {says}"))),
        width,
    )
    for caveat in prices.list_caveats(setting.meter):
        lines += _text_lines("", (caveat,), width, Tone.DIM)
    parts = _meter_texts(setting, off)
    if parts:
        lines += _side_by_side(
            translate("stopped") if off else translate("saves"),
            [make_line(part) for part in parts],
            width,
        )
    undo, tone = UNDO[level_of(review)]
    lines.append(named_line(translate("undo"), Span(translate(undo), tone)))
    return lines


def _meter_texts(setting: DialogSetting, off: bool) -> list[str]:
    """Return each meter of the machine: what stopping it saves, or that it continues.

    The platform's profile defines which meters the verb stops. A stopped meter has no price.
    """
    if setting.action is None:
        return []
    meter = setting.meter
    stopped, rest = [], []
    for name, stops, price in (
        (translate("compute"), setting.action.stops_gpu_meter, meter.compute_per_hour),
        (translate("storage"), setting.action.stops_storage_meter, meter.storage_per_hour),
    ):
        least = meter.at_least and price is meter.storage_per_hour
        # A price of 0 is the current one: kept disks may cost something after the stop, see "keeps
        # billing".
        shows_price = bool(price) and not (off and stops)
        if shows_price:
            cost = f" {money_or_dash(price, meter.currency, least)}/h"
        else:
            cost = ""
        if price is None:
            unpriced = translate(", price unknown")
        else:
            unpriced = ""
        if stops is None:
            rest.append(translate("{name}{cost}: unknown whether it stops", name=name, cost=cost))
        elif stops:
            stopped.append(f"{name}{cost}")
        else:
            rest.append(
                translate("{name}{cost} goes on{unpriced}", name=name, cost=cost, unpriced=unpriced)
            )
    return [*(stopped or [translate("nothing")]), *rest]
