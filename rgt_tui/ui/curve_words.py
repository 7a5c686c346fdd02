"""The texts of the curves screen: header, legend, why a plot is empty, and what ``y`` copies."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from rgt_tui.health import assess_box
from rgt_tui.language import translate, translate_in, translate_noun
from rgt_tui.model import BoxHealth, BoxState, QueueCell, RunState, how_many, training_of
from rgt_tui.profiles import no_agent, stale_after
from rgt_tui.ui.box_status import old_mark, status_label
from rgt_tui.ui.commands import key_for
from rgt_tui.ui.notation import NONE, compact_time, current_glyphs, format_thousands, number_or_dash
from rgt_tui.ui.plot.view import PlotSettings, RunKey, ShownRun, XAxis, metrics_of, name_axis
from rgt_tui.ui.widgets.curve import LegendEntry
from rgt_tui.ui.widgets.fixed_lines import Parts
from rgt_tui.ui.widgets.spans import Line, Span, Tone, dim_span, make_line

if TYPE_CHECKING:
    from rgt_tui.health import Assessment
    from rgt_tui.ui.plot.board import AveragedRuns, Board
    from rgt_tui.ui.plot.frame import PlotFrame


FIRST = ("lr", "batch", "seed")
"""Settings listed first among the differences."""
LAST = ("config",)
"""Settings listed last: a file's name says less than the settings in it."""
_SHORT = {
    "learning_rate": "lr",
    "batch_size": "batch",
    "per_device_train_batch_size": "batch",
    "train_batch_size": "batch",
    "micro_batch_size": "batch",
    "random_seed": "seed",
    "cfg": "config",
    "config_file": "config",
    "config_path": "config",
}
# A letter first: a negative number is a value, not an option.
_OPTION = re.compile(r"^--?([A-Za-z][\w.\-]*)(?:=(.*))?$", re.DOTALL)
# Hydra writes `+key` for a new key and `++key` to override one.
_PAIR = re.compile(r"^\+{0,2}([A-Za-z][\w.]*)=(.*)$", re.DOTALL)
"""``key=value`` as in Hydra."""


def curve_parts(
    settings: PlotSettings,
    board: Board,
    frame: PlotFrame | None,
    left_out: int = 0,
    seeds: AveragedRuns | None = None,
) -> Parts:
    """Return the right end of the header; `seeds` are the runs whose average is drawn."""
    # The frame knows which axis it has: without a value above 0 it is linear.
    if frame is None:
        log = settings.is_log
    else:
        log = frame.log
    y = "log" if log else translate("linear")
    # The chosen axis cannot be drawn: the header names the one drawn instead.
    if settings.is_log and not log:
        y = translate("linear (nothing above 0)")
    if settings.smooth:
        smooth = f"{settings.smooth:.2f}"
    else:
        smooth = translate_in("curve", "off")
    total, shown = len(board.runs) + left_out, board.shown_runs
    boxes = len({each.box for each in board.runs})
    count = translate("{shown} of {runs}", shown=len(shown), runs=how_many(total, "run"))
    shown_count = count
    if boxes > 1:
        shown_count = translate(
            "{count} of {boxes}", count=count, boxes=how_many(boxes, "box", "boxes")
        )
    kinds = (each.run.axis for each in board.runs if each.key in shown)
    parts: Parts = [
        (1, _label_value("", settings.metric)),
        (4, _label_value("x ", translate(name_axis(settings.axis, kinds)))),
        (2, _label_value("y ", y)),
        (3, _label_value(translate("smooth "), smooth)),
        (5, _label_value("", shown_count)),
    ]
    if seeds is not None and seeds.summary is not None:
        # Replaces the count of runs, with a rank that stays in narrow terminals.
        parts[-1] = (
            1,
            _label_value(translate("over "), translate("{runs} runs", runs=seeds.summary.runs)),
        )
        parts.append((2, _label_value("", seeds.summary.describe_range(seeds.names))))
        parts.append((3, _label_value(translate("band "), translate("95% bootstrap"))))
    elif settings.reference is not None:
        parts.append((5, _label_value(translate("pinned "), settings.reference.run)))
    if frame is not None:
        parts.append((6, _label_value("", describe_density(frame.per_dot, settings.axis))))
        if not settings.view.is_all:
            # It loads numpy, for which neither commands nor the first frame may wait.
            from rgt_tui.ui.plot.frame import format_axis_value

            window = translate(" to ").join(
                format_axis_value(settings.axis, end) for end in frame.window
            )
            parts.append(
                (
                    5,
                    _label_value(
                        translate("window "),
                        window
                        if settings.view.right is not None
                        else translate("{window}, following", window=window),
                    ),
                )
            )
    return parts


NOT_HEARD = frozenset(
    {
        BoxHealth.UNREACHABLE,
        BoxHealth.UNKNOWN,
        BoxHealth.STALE,
        BoxHealth.CONNECTING,
        BoxHealth.STOPPED,
        BoxHealth.PAUSED,
        BoxHealth.GONE,
    }
)
"""States of a box whose curves may be outdated; the header shows them first."""


def heard_part(box: BoxState | None, verdict: Assessment | None) -> Parts:
    """Return the state of the curves' box if it does not report now."""
    if box is None or verdict is None or verdict.health not in NOT_HEARD:
        return []
    glyph, word, tone = status_label(box, verdict)
    age = ""
    if verdict.sample_age is not None:
        age = f" {compact_time(verdict.sample_age)}"
    return [(0, make_line(Span(f"{glyph} {word}{age}", tone)))]


def _label_value(name: str, value: str) -> Line:
    return make_line(dim_span(name), Span(value))


def describe_density(per_dot: float, axis: XAxis = XAxis.STEP) -> str:
    """Return how many steps (seconds, epochs, tokens) share a column of dots, or columns a step."""
    if axis in (XAxis.SINCE, XAxis.CLOCK):
        if per_dot >= 1:
            return translate("1 dot = {time}", time=compact_time(per_dot))
        return translate("1 dot = {per_dot:,.0f} ms", per_dot=per_dot * 1000)
    if axis is XAxis.EPOCH:
        return translate("1 dot = {per_dot:.2g} epochs", per_dot=per_dot)
    if axis is XAxis.TOKENS:
        one = "token"
    else:
        one = "step"
    if per_dot >= 0.75:
        # A decimal for few steps per dot only, and none for a whole number.
        few = per_dot < 9.5 and abs(per_dot - round(per_dot)) > 0.05
        if few:
            count = f"{per_dot:.1f}"
        else:
            count = f"{per_dot:,.0f}"
        unit = translate_noun(one if count == "1" else one + "s")
        return translate("1 dot = {count} {unit}", count=count, unit=unit)
    # A window of no width has no steps per dot.
    return translate(
        "1 {unit} = {count:,.0f} dots", unit=translate_noun(one), count=1 / max(per_dot, 1e-9)
    )


def nothing_to_draw(
    box: BoxState | None,
    name: str,
    settings: PlotSettings,
    listed: Sequence[ShownRun] | None = None,
) -> tuple[str, ...]:
    """Return why the plot is empty, and what to do."""
    if box is None:
        return (
            translate("{name} is no longer in the fleet.", name=name),
            translate("{key} goes back.", key=key_for("screen.back")),
        )
    if listed is None:
        runs = box.runs
    else:
        runs = tuple(each.run for each in listed)
    if not runs and box.sample is None:
        return (
            translate(
                "No data from {name} yet: {reason}.", name=name, reason=box.reason or box.link.value
            ),
            translate("{key} connects now.", key=key_for("box.connect")),
        )
    if not runs and no_agent(box):
        return (
            translate("No curves from {name}: no agent runs there.", name=name),
            f"rgt doctor {name} says what is missing.",
        )
    if not runs:
        waiting = sum(cell.state == "waiting" for queue in box.queues for cell in queue.cells)
        if waiting:
            queue = translate("{waiting} waiting in the queue.", waiting=how_many(waiting, "cell"))
        else:
            queue = translate(
                "Start a queue on the box, or name its job directory in the fleet file."
            )
        return (
            translate("No run of {name} has logged a point yet.", name=name),
            queue,
            translate(
                "{key} shows the log, {key_2} the phases.",
                key=key_for("box.log"),
                key_2=key_for("box.phases"),
            ),
        )
    metrics = metrics_of(runs)
    if not metrics:
        return (
            translate(
                "The runs of {name} have started, but none has logged a point yet.", name=name
            ),
            translate("{key} shows the log.", key=key_for("box.log")),
        )
    if settings.metric not in metrics:
        return (
            translate("No run of {name} has {metric}.", name=name, metric=settings.metric),
            translate("{key} shows {metric}.", key=key_for("curves.metric"), metric=metrics[0]),
        )
    if listed is None:
        keys = [RunKey(box.spec.name, run.name) for run in runs]
    else:
        keys = [each.key for each in listed]
    # Steps are known for every run, so on that axis only hiding is left as a reason.
    if settings.axis is not XAxis.STEP and not all(key in settings.hidden for key in keys):
        return (
            translate(
                "No shown run can be drawn on an axis of {value}.",
                value=translate(settings.axis.value),
            ),
            translate("{key} switches to the next axis.", key=key_for("curves.axis")),
        )
    return (
        translate("Every run with this metric is hidden."),
        translate(
            "{key} shows the selected one, {key_2} all of them, {key_3} another metric.",
            key=key_for("curves.hide"),
            key_2=key_for("curves.only"),
            key_3=key_for("curves.metric"),
        ),
    )


def is_stale(box: BoxState | None, now: float) -> bool:
    """Return whether a box has not reported for too long to be live."""
    return box is None or box.sample_at is None or now - box.sample_at > stale_after(box)


def unseen_mark(box: BoxState | None, now: float) -> str:
    """Return the glyph for why a box has not reported for a while; empty if it has."""
    if not is_stale(box, now):
        return ""
    return old_mark(BoxHealth.STALE if box is None else assess_box(box, now).health)


def build_legend_entries(
    boxes: Mapping[str, BoxState], board: Board, now: float, frame: PlotFrame | None = None
) -> list[LegendEntry]:
    """Return the legend's entries, one per run; `frame` is the drawn plot."""
    cells = {
        (name, cell.name): cell
        for name, box in boxes.items()
        for queue in box.queues
        for cell in queue.cells
    }
    unseen = {name: unseen_mark(boxes.get(name), now) for name in {each.box for each in board.runs}}
    several = len({each.box for each in board.runs}) > 1
    shown = frozenset(board.shown_runs)
    reference = board.settings.reference
    pinned = next((each for each in board.runs if each.key == reference), None)
    if pinned is not None:
        known = settings_of(boxes.get(pinned.box), pinned.run)
    else:
        known = None
    made = []
    for each in board.runs:
        differs = ""
        if each.key == reference:
            differs = "pinned"
        elif known is not None and each.key in shown:
            found = list_differences(known, settings_of(boxes.get(each.box), each.run))
            differs = "  ".join(found) or translate("no known difference")
        entry = _read_entry(
            each, cells.get((each.box, each.run.name)), board, now, shown=each.key in shown
        )
        label = each.run.name
        if several:
            label = f"{each.box} {each.run.name}"
        if each.key in shown:
            why_missing = _off_the_axis(each.key, board, frame)
        else:
            why_missing = _why_not_drawn(each.key, board)
        made.append(
            LegendEntry(
                each.key, board.run_number(each.key), *entry, each.key in shown,
                list_notes(each, board),
                label,
                why_missing,
                differs,
                unseen[each.box]
            )
        )  # fmt: skip
    return made


def _why_not_drawn(key: RunKey, board: Board) -> str:
    """Return why a run is not drawn."""
    settings = board.settings
    if key in settings.hidden:
        return translate("hidden")
    if board.find_trace(key) is None:
        return translate("no {values}", values=settings.metric)
    return translate("no {values}", values=translate(PLACE_WORDS[settings.axis]))


PLACE_WORDS = {
    XAxis.EPOCH: "epoch",
    XAxis.SINCE: "time",
    XAxis.CLOCK: "time",
    XAxis.TOKENS: "tokens",
}


def _read_entry(
    each: ShownRun, cell: QueueCell | None, board: Board, now: float, *, shown: bool
) -> tuple[float | None, str, int | None, float | None]:
    """Return value, state, step and age."""
    run = each.run
    series = run.series.get(board.settings.metric)
    cross = board.settings.crosshair_x
    if cross is not None:
        value = board.value_at(each.key, cross)
    else:
        if series is not None and series.last_point is not None:
            value = series.last_point[1]
        else:
            value = None
    state = ""
    if cell is not None:
        state = cell.state
    # The queue only knows that the process lives; the run itself reports that it waits.
    if state == "running" and run.wait is not None:
        state = "holding"
    # An ended run makes no progress any more: an age would only grow.
    if state in {"running", "holding", ""} and run.progressed_at is not None:
        age = now - run.progressed_at
    else:
        age = None
    if run.step is not None:
        step = run.step
    elif series is not None and series.last_point:
        step = series.last_point[0]
    else:
        step = None
    return value, state, step, age


def list_notes(each: ShownRun, board: Board) -> tuple[tuple[str, Tone], ...]:
    """Return what happened to a curve: its newest resumes and gaps, and its best point."""
    g = current_glyphs()
    up, cross, star = ("⇡", "╳", "★") if g.braille else ("^", "X", "B")
    found: list[tuple[float, str, Tone]] = []
    for resume in each.run.resumes:
        reason = ""
        if resume.reason:
            reason = translate(" after {reason}", reason=resume.reason)
        found.append(
            (
                float(resume.step),
                translate(
                    "{up} resumed from {step}{reason}",
                    up=up,
                    step=format_thousands(resume.step),
                    reason=reason,
                ),
                Tone.DIM,
            )
        )
    for gap in board.list_gaps(each.key):
        steps = ""
        if gap.count > 1:
            steps = translate(", {count} steps", count=format_thousands(gap.count))
        undone = translate(", since redone") if gap.lost else ""
        where = translate("{kind} at {step}", kind=gap.kind, step=format_thousands(gap.first))
        text = f"{cross} {where}{steps}{undone}"
        found.append((gap.first, text, Tone.DIM if gap.lost else Tone.WARN))
    # Resumes and gaps come from two lists.
    found.sort(key=lambda note: note[0])
    most_notes = 3
    older = len(found) - most_notes
    shown = [(text, tone) for _, text, tone in found[max(0, older) :]]
    if older > 0:
        shown.insert(0, (translate("{older} earlier", older=older), Tone.DIM))
    best = board.best_point(each.key)
    # One line per run would fill the legend.
    if best is not None and each.key in (board.selected, board.settings.reference):
        shown.append(
            (
                translate(
                    "{star} best {best} at {best_2}",
                    star=star,
                    best=number_or_dash(best[1]),
                    best_2=format_thousands(best[0]),
                ),
                Tone.DIM,
            )
        )
    return tuple(shown)


def _off_the_axis(key: RunKey, board: Board, frame: PlotFrame | None) -> str:
    """Return a note if a logarithmic axis cannot show all of a run's values."""
    trace = board.find_trace(key)
    if frame is None or not frame.log or trace is None:
        return ""
    low, high = trace.path_bounds(board.settings.smooth)
    # `not … <=`, because without a value `low` is NaN.
    if not low <= 0:
        return ""
    if high > 0:
        return translate("partly not above 0")
    return translate("not above 0")


def copied_table(title: str, made: Sequence[LegendEntry]) -> str:
    """Return the legend's values as text lines: the title, then one line per run."""
    rows = [
        (
            entry.shown_name,
            number_or_dash(entry.value),
            entry.state or NONE,
            format_thousands(entry.step),
            entry.differs,
        )
        for entry in made
        if entry.shown
    ]
    if not rows:
        return ""
    widths = [max(len(row[column]) for row in rows) for column in range(4)]
    lines = [
        (
            f"{name:<{widths[0]}}  {value:>{widths[1]}}  {state:<{widths[2]}}  {step:>{widths[3]}} "
            f" {differs}"
        ).rstrip()
        for name, value, state, step, differs in rows
    ]
    return "\n".join([title, *lines])


# The settings that a run was started with, where known, and the differences to another run.


def settings_of(box: BoxState | None, run: RunState) -> dict[str, str]:
    """Return the known settings of a run, from its cell, its command and its learning rate."""
    known: dict[str, str] = {}
    lr = run.series.get("lr")
    # Maximum points of a learning-rate curve to search for its maximum.
    most_looked = 20_000
    if lr is not None and len(lr) <= most_looked:
        highest = max((y for _, y in lr if y == y), default=None)
    else:
        highest = None
    if highest is not None:
        known["peak lr"] = f"{highest:.3g}"
    if box is None:
        return known
    name = training_of(run.name, {found.name for found in box.found})
    found = next((each for each in box.found if each.name == name), None)
    if found is not None:
        known |= options_of(found.command)
    cell = next(
        (cell for queue in box.queues for cell in queue.cells if cell.name == run.name), None
    )
    if cell is not None:
        known |= {**(cell.told or {}), "config": cell.cfg, "task": cell.task}
        if cell.epochs is not None:
            known["epochs"] = str(cell.epochs)
    # A setting that is known exactly replaces the one read off the curve.
    if "lr" in known:
        known.pop("peak lr", None)
    return known


def circumstances_of(box: BoxState | None, run: RunState) -> dict[str, str]:
    """Return the settings of a run, and where it ran: cards, code, packages, platform, resumes."""
    known = settings_of(box, run)
    resumes = [f"{resume.step:,} ({resume.reason})" for resume in run.resumes]
    known["resumed"] = ", ".join(resumes) or "no"
    if box is None:
        return known
    known["box"], known["platform"] = box.spec.name, box.spec.profile
    if box.sample is not None:
        known["GPU"] = ", ".join(sorted(gpu.name for gpu in box.sample.gpus)) or "none"
    if box.hello is not None:
        known["python"] = box.hello.python
    name = training_of(run.name, {found.name for found in box.found})
    for found in box.found:
        if found.name == name:
            known["code"] = found.cwd or "?"
            known["packages"] = ", ".join(found.uses)
    return known


def time_at_crosshair(
    board: Board, settings: PlotSettings, selected: RunKey | None, box: str
) -> float | None:
    """Return when the selected run of a box, or its first one, was at the crosshair."""
    # It loads numpy.
    from rgt_tui.ui.plot.board import clock_of

    cross = settings.crosshair_x
    for each in board.runs:
        if cross is not None and selected in (None, each.key) and each.box == box:
            step, knots = board.step_at(each.key, cross), clock_of(each.run)
            if step is not None and knots is not None:
                return knots.x_of(step)
    return None


def step_at_time(each: ShownRun, at: float | None) -> float | None:
    """Return the step that a run was at; None if it does not log its time."""
    from rgt_tui.ui.plot.board import clock_of

    knots = clock_of(each.run)
    if knots is None or at is None:
        return None
    step = knots.step_of(at)
    if step is None:
        return None
    # The step that was done then, not the one under way.
    return float(int(step))


class RunComparison(NamedTuple):
    """Where two runs part, for the line above the keys."""

    text: str
    step: int | None = None
    """None = nowhere, or they cannot be compared."""


def compare_chosen_runs(
    board: Board,
    settings: PlotSettings,
    selected: RunKey | None,
    boxes: Mapping[str, BoxState],
) -> RunComparison:
    """Compare the pinned with the selected run, else the only two that are shown."""
    from rgt_tui.ui.plot import find_first_difference

    runs = {each.key: each for each in board.runs}
    keys = {key: None for key in (settings.reference, selected) if key in runs}
    shown = {key: None for key in board.shown_runs if key in runs}
    # Nothing is pinned, but two runs are drawn: those are meant.
    if len(keys) < 2 and len(shown) == 2:
        keys = dict(shown)
    if len(keys) < 2:
        return RunComparison(
            translate("pin a run with {key}, then select another", key=key_for("curves.reference"))
        )
    one, two = (runs[key] for key in keys if key is not None)
    series = [each.run.series.get(settings.metric) for each in (one, two)]
    if series[0] is None or series[1] is None:
        return RunComparison(translate("only one of them has {metric}", metric=settings.metric))
    try:
        found = find_first_difference(series[0], series[1])
    except ValueError as error:
        return RunComparison(str(error))
    known = [circumstances_of(boxes.get(each.box), each.run) for each in (one, two)]
    most_said = 6
    other = " · ".join(list_differences(known[0], known[1], most_said)) or translate(
        "no known difference"
    )
    if found is None:
        return RunComparison(
            translate(
                "they do not differ by more than their noise; not the same: {other}", other=other
            )
        )
    values = translate("{one:.4g} and {other:.4g}", one=found.values[0], other=found.values[1])
    text = translate(
        "they differ from step {step:,} on: {values}; not the same: {other}",
        step=found.step,
        values=values,
        other=other,
    )
    return RunComparison(text, found.step)


def options_of(command: str) -> dict[str, str]:
    """Return the options of a command line by their usual short names.

    Flags have the value ``on``.
    """
    try:
        words = shlex.split(command)
    # There is an unbalanced quote.
    except ValueError:
        words = command.split()
    found: dict[str, str] = {}
    for place, word in enumerate(words):
        if (pair := _PAIR.match(word)) is not None:
            found[_short_key(pair[1])] = pair[2]
        # `python -m module`: the module is not a setting.
        elif (option := _OPTION.match(word)) is not None and word != "-m":
            if place + 1 < len(words):
                after = words[place + 1]
            else:
                after = "-"
            if _OPTION.match(after) or _PAIR.match(after) or after == "-":
                bare = "on"
            else:
                bare = after
            if option[2] is None:
                found[_short_key(option[1])] = bare
            else:
                found[_short_key(option[1])] = option[2]
    return found


def _short_key(name: str) -> str:
    plain = name.rpartition(".")[2].replace("-", "_").lower()
    return _SHORT.get(plain, plain)


def list_differences(
    reference: Mapping[str, str], other: Mapping[str, str], most_said: int = 3
) -> tuple[str, ...]:
    """Return the differences, e.g. ``lr 3e-4 → 1e-3``; an unknown value is a dash, listed last."""
    keys = [
        key
        for key in {**reference, **other}
        if not _is_same_value(reference.get(key), other.get(key))
    ]
    keys.sort(
        key=lambda key: (
            key not in reference or key not in other,
            key in LAST,
            FIRST.index(key) if key in FIRST else len(FIRST),
            key,
        )
    )
    arrow = current_glyphs().arrow
    said = []
    for key in keys:
        one, two = reference.get(key), other.get(key)
        said.append(f"{key} {_shorten_value(one, two)} {arrow} {_shorten_value(two, one)}")
    if len(said) > most_said:
        return (*said[:most_said], translate("{said} more differ", said=len(said) - most_said))
    return tuple(said)


def _is_same_value(one: str | None, other: str | None) -> bool:
    # The same text, or both unknown.
    if one == other:
        return True
    try:
        # 3e-4 and 0.0003 are the same setting.
        return one is not None and other is not None and float(one) == float(other)
    except ValueError:
        return False


def _shorten_value(value: str | None, other: str | None) -> str:
    """Shorten a value; for a path keep the part that differs."""
    if value is None:
        return NONE
    # Maximum characters of a value.
    longest = 24
    if other is not None and "/" in value:
        head, name = value.rpartition("/")[::2]
        if name and name != other.rpartition("/")[2]:
            value = name
        elif head and len(value) > longest:
            mark = current_glyphs().ellipsis
            value = f"{mark}{value[len(mark) - longest :]}"
    if len(value) <= longest:
        return value
    return value[: longest - 1] + current_glyphs().ellipsis
