"""``rgt curves`` and ``rgt scalars``: what a training program logged, as a plot or as a list."""

from __future__ import annotations

import math
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase

import plotext
from rgt_wire.metric_roles import display_rank

from rgt_tui.cli import running
from rgt_tui.cli.commands import FAILED, OK, UNREACHABLE
from rgt_tui.cli.gathering import gather_state
from rgt_tui.cli.opening import open_box, open_boxes
from rgt_tui.cli.printing import print_error, print_json, print_lines
from rgt_tui.cli.watch_arguments import CurvesArguments, ScalarsArguments
from rgt_tui.language import translate
from rgt_tui.model import (
    BoxSpec,
    BoxState,
    LinkState,
    RunState,
    Series,
    clean_text,
    how_many,
    join_names,
)
from rgt_tui.ssh import remote_root

USUAL = ("loss", "val_loss", "eval_loss", "valid_loss")
"""Losses that are plotted by default, before any other; see `chosen_series`."""
ASCII = str.maketrans("┌┐└┘├┤┬┴┼─│", "+++++++++-|")
LARGEST, SMALLEST = 1e300, 1e-300
"""The plot subtracts values and multiplies them by powers of ten, which must not overflow."""
AGENT_MODULE = "rgt_box.metrics.scalars_command"


def run_scalars(arguments: ScalarsArguments) -> int:
    """Run the agent's code in a separate process and return its exit code."""
    try:
        root = remote_root()
    except FileNotFoundError as error:
        print_error(error)
        return FAILED
    path = arguments.path
    # The agent's parser would take a path such as -1.log for an option.
    words = [f"./{path}" if path.startswith("-") else path]
    words += ["--json"] if arguments.json else []
    # -P: a module in a run's directory must not shadow one of the standard library.
    command = [sys.executable, "-P", "-m", AGENT_MODULE, *words]
    # A process of its own: the agent's readers open databases under a memory limit, and its modules
    # are written for Python 3.8 on a box.
    finished = subprocess.run(command, env={**os.environ, "PYTHONPATH": str(root)}, check=False)
    # Negative: killed by a signal, which is no status of this command.
    if finished.returncode >= 0:
        return finished.returncode
    return FAILED


def run_curves(arguments: CurvesArguments) -> int:
    """Plot; return the exit status."""
    if arguments.over_seeds or arguments.first_difference:
        names = [name for name in arguments.box.split(",") if name]
        _, specs = open_boxes(arguments, names)
        if arguments.first_difference:
            return running.run_coroutine(_print_first_difference(specs, arguments))
        return running.run_coroutine(_print_over_seeds(specs, arguments))
    spec = open_box(arguments)

    return running.run_coroutine(_print_plot(spec, arguments))


async def _gather_boxes(
    specs: Sequence[BoxSpec], arguments: CurvesArguments
) -> tuple[BoxState, ...] | None:
    """Return the boxes with their curves; None, with a message, if one was not reached."""
    state = await gather_state(
        specs, arguments.timeout, accept_new_host_keys=arguments.accept_new_host_key
    )
    away = [box for box in state.boxes if box.link is not LinkState.LIVE]
    for box in away:
        print_error(f"{box.spec.name}: {box.reason}")
    # One missing box would make an average of other runs than asked for.
    if away:
        return None
    return state.boxes


async def _print_first_difference(specs: Sequence[BoxSpec], arguments: CurvesArguments) -> int:
    """Print where two runs of the boxes part, and which settings differ; return the exit status."""
    boxes = await _gather_boxes(specs, arguments)
    if boxes is None:
        return UNREACHABLE
    try:
        pair = [
            _find_run(boxes, name) for name in (arguments.run, arguments.first_difference or "")
        ]
        names = chosen_series(pair[0][1], arguments.metrics)
        # One series only: the first of several differences would depend on their order.
        return compare_runs(pair[0], pair[1], names[0], as_json=arguments.json)
    except (LookupError, ValueError) as error:
        print_error(f"{arguments.box}: {error.args[0]}")
        return FAILED


def _find_run(boxes: Sequence[BoxState], name: str | None) -> tuple[BoxState, RunState]:
    """Return the run of this name, with its box.

    Raises:
        LookupError: No box has it.
    """
    for box in boxes:
        # Two boxes may have a run of that name; the first box named on the command line wins.
        if any(run.name == name and run.metrics for run in box.runs):
            return box, chosen_run(box, name)
    known = [run.name for box in boxes for run in box.runs if run.metrics]
    raise LookupError(
        translate(
            "no run with a curve is called {name!r}; there are: {known}",
            name=name,
            known=", ".join(known),
        )
    )


def compare_runs(
    one: tuple[BoxState, RunState], two: tuple[BoxState, RunState], metric: str, *, as_json: bool
) -> int:
    """Print the first step where two runs differ, and which settings differ; return the exit status.

    Raises:
        ValueError: They have no step of this metric in common.
    """
    # Imported here: the other commands of this module need nothing of the dashboard.
    from rgt_tui.ui import circumstances_of, list_differences
    from rgt_tui.ui.plot import find_first_difference

    if metric not in two[1].metrics:
        raise ValueError(
            translate("{name} has no series {metric!r}", name=two[1].name, metric=metric)
        )
    found = find_first_difference(one[1].series[metric], two[1].series[metric])
    known, other = circumstances_of(*one), circumstances_of(*two)
    names = (one[1].name, two[1].name)
    if as_json:
        # Keys of both, in their order; a setting that only one run has is a difference, too.
        keys = [key for key in {**known, **other} if known.get(key) != other.get(key)]
        body: dict[str, object] = {
            "boxes": [one[0].spec.name, two[0].spec.name],
            "runs": names,
            "metric": metric,
            "step": None,
            "values": None,
            "differences": {key: [known.get(key), other.get(key)] for key in keys},
        }
        if found is not None:
            body |= {"step": found.step, "values": found.values}
        print_json(body)
        return OK
    said = translate(
        "{metric}: {names} and {names_2} do not differ by more than their noise",
        metric=metric,
        names=names[0],
        names_2=names[1],
    )
    if found is not None:
        left, right = found.values
        said = translate(
            "{metric}: they differ from step {step:,} on: {left:.4g} and {right:.4g}",
            metric=metric,
            step=found.step,
            left=left,
            right=right,
        )
    print_lines(said)
    # Two configurations may differ in hundreds of keys; --json has all of them.
    most = 100
    for text in list_differences(known, other, most) or (translate("no known difference"),):
        print_lines(f"  {text}")
    return OK


async def _print_over_seeds(specs: Sequence[BoxSpec], arguments: CurvesArguments) -> int:
    """Plot the average of several runs of the boxes; return the exit status."""
    boxes = await _gather_boxes(specs, arguments)
    if boxes is None:
        return UNREACHABLE
    # Brackets are part of a name, such as "lr[0.1]": only * and ? are a pattern.
    pattern = (arguments.run or "*").replace("[", "[[]")
    runs = {
        # Keyed by box and run: the same seed name on two boxes is two runs.
        (box.spec.name, run.name): run
        for box in boxes
        for run in box.runs
        if run.metrics and fnmatchcase(run.name, pattern)
    }
    if not runs:
        print_error(
            translate(
                "{box}: no run with a curve is called {pattern!r}",
                box=arguments.box,
                pattern=arguments.run or "*",
            )
        )
        return FAILED
    try:
        # Of the first run: the others are skipped if they lack it, see `_print_average`.
        metrics = arguments.metrics or chosen_series(next(iter(runs.values())), None)[:1]
        for metric in metrics:
            _print_average(runs, metric, arguments)
    except ValueError as error:
        print_error(f"{arguments.box}: {error}")
        return FAILED
    return OK


def _print_average(
    runs: Mapping[tuple[str, str], RunState], metric: str, arguments: CurvesArguments
) -> None:
    """Print average and band of one metric.

    Raises:
        ValueError: There are too few runs, or they share no step.
    """
    from rgt_tui.ui.plot import AverageBand, CurveTrace, summarize_seeds

    found, traces = [], []
    for (_, name), run in runs.items():
        if metric in run.series:
            found.append(name)
            traces.append(CurveTrace())
            # A trace folds the steps that a resumed run wrote twice, which the average must not
            # count twice.
            traces[-1].feed(run.series[metric])
    band = AverageBand(arguments.band)
    summary = summarize_seeds([(trace.xs, trace.ys) for trace in traces], band)
    curves = dict(summary.listed_curves())
    steps = summary.steps.astype(int).tolist()
    if arguments.json:
        named = {name.lower(): values for name, values in curves.items()}
        boxes = list(dict.fromkeys(box for box, _ in runs))
        body = {"boxes": boxes, "runs": found, "metric": metric, "band": band, "steps": steps}
        print_json({**body, **named})
        return
    title = translate("{metric} over {runs} runs", metric=metric, runs=summary.runs)
    # A made-up run, so that the average is drawn by the same code as a run.
    average = RunState(title, series={name: Series(steps, ys) for name, ys in curves.items()})
    width = arguments.width or _plot_width()
    text, _ = draw_plot(average, list(curves), width, arguments.height, log=arguments.log)
    colours = sys.stdout.isatty() and "NO_COLOR" not in os.environ
    sys.stdout.write(for_output(text, sys.stdout.encoding, colours=colours))
    # In the order of `listed_curves`.
    iqm, mean, low, high = (values[-1] for values in curves.values())
    print_lines(
        translate(
            "step {steps:,}: IQM {iqm:.4g}, {low:.4g} to {high:.4g} ({ends_text}), mean {mean:.4g}",
            steps=steps[-1],
            iqm=iqm,
            low=low,
            high=high,
            ends_text=band.ends_text,
            mean=mean,
        ),
        f"{summary.runs} runs ({join_names(found)}), {summary.describe_range(found)}",
    )
    # Fewer runs than this do not separate a difference from the scatter of seeds (handbook page
    # R6).
    fewest_seeds = 5
    if summary.runs < fewest_seeds:
        print_error(
            translate(
                "{runs} runs are few: report {fewest_seeds} seeds or more",
                runs=summary.runs,
                fewest_seeds=fewest_seeds,
            )
        )


async def _print_plot(spec: BoxSpec, arguments: CurvesArguments) -> int:
    state = await gather_state(
        [spec], arguments.timeout, accept_new_host_keys=arguments.accept_new_host_key
    )
    box = state.boxes[0]
    if box.link is not LinkState.LIVE:
        print_error(f"{spec.name}: {box.reason}")
        return UNREACHABLE
    try:
        run = chosen_run(box, arguments.run)
        names = chosen_series(run, arguments.metrics)
    except LookupError as error:
        print_error(f"{spec.name}: {error.args[0]}")
        return FAILED
    if arguments.json:
        return _print_json(spec.name, run, names)
    width = arguments.width or _plot_width()
    text, left_out = draw_plot(run, names, width, arguments.height, log=arguments.log)
    colours = sys.stdout.isatty() and "NO_COLOR" not in os.environ
    sys.stdout.write(for_output(text, sys.stdout.encoding, colours=colours))
    if left_out:
        print_error(
            translate(
                "{name}: {left_out} left out (NaN, beyond ±1e300, or not positive)",
                name=spec.name,
                left_out=how_many(left_out, "point"),
            )
        )
    return OK


def chosen_run(box: BoxState, name: str | None) -> RunState:
    """Return the run of this name, or the one that wrote last.

    Raises:
        LookupError: There is no such run with a curve; the message lists those that exist.
    """
    runs = {run.name: run for run in box.runs if run.metrics}
    if not runs:
        raise LookupError(
            translate("no run on it has a curve; `rgt scalars` says what can be read of a file")
        )
    if name is None:
        # A run without a time has not written since it was found.
        return max(runs.values(), key=lambda run: run.last_at or 0.0)
    if name not in runs:
        raise LookupError(
            translate(
                "no run with a curve is called {name!r}; there are: {runs}",
                name=name,
                runs=", ".join(runs),
            )
        )
    return runs[name]


def chosen_series(run: RunState, wanted: Sequence[str] | None) -> list[str]:
    """Return the names of the series to plot.

    Raises:
        LookupError: A series does not exist; the message lists those that do.
    """
    missing = [name for name in wanted or () if name not in run.metrics]
    if missing:
        raise LookupError(
            translate(
                "{name} has no series {missing!r}; there are: {metrics}",
                name=run.name,
                missing=missing[0],
                metrics=", ".join(run.metrics),
            )
        )
    if wanted:
        return list(wanted)
    ranked = sorted(run.metrics, key=display_rank)
    # More curves than these are hard to distinguish.
    rewards = [name for name in ranked if display_rank(name) == 0][:2]
    losses = [name for name in USUAL if name in run.metrics]
    if not losses:
        losses = [name for name in ranked if display_rank(name) == 1][:3]
    return rewards + losses or ranked[:1]


def draw_plot(
    run: RunState, names: Sequence[str], width: int, height: int, *, log: bool = False
) -> tuple[str, int]:
    """Return the coloured plot, and how many points could not be drawn.

    Args:
        run: The run.
        names: Its series.
        width: Columns.
        height: Lines.
        log: Whether the values are logarithmic.
    """
    # plotext draws into one figure per process: without this, the series of the previous plot stay.
    plotext.clear_figure()
    plotext.theme("pro")
    # A pipe has no size, and plotext would shrink the plot to its guess.
    plotext.limit_size(False, False)
    plotext.plotsize(max(20, width), max(8, height))
    plotext.title(clean_text(f"{run.name}: {', '.join(names)}"))
    plotext.xlabel(run.axis)
    if log:
        plotext.yscale("log")
    left_out = 0
    for name in names:
        points = list(run.series[name])
        drawn = [
            # NaN fails both comparisons below, so it is left out as well.
            (x, y if abs(y) >= SMALLEST else 0.0)
            for x, y in points
            if abs(y) <= LARGEST and (y >= SMALLEST or not log)
        ]
        left_out += len(points) - len(drawn)
        if drawn:
            plotext.plot(
                [x for x, _ in drawn],
                [y for _, y in drawn],
                label=clean_text(name),
                marker="braille",
            )
    return str(plotext.build()), left_out


def for_output(text: str, encoding: str | None, *, colours: bool) -> str:
    """Return a plot for this output: without colours for a pipe, in ASCII without UTF-8."""
    if not colours:
        # plotext has no switch for this.
        text = plotext.uncolorize(text)
    if (encoding or "").lower().replace("-", "") != "utf8":
        # Braille dots have no ASCII of the same density.
        text = "".join(
            "*" if "\u2800" <= char <= "\u28ff" else char for char in text.translate(ASCII)
        )
    return "\n".join(line.rstrip() for line in text.splitlines()) + "\n"


def _print_json(box: str, run: RunState, names: Sequence[str]) -> int:
    for name in names:
        points = list(run.series[name])
        # JSON has no NaN and no infinity.
        values = [y if math.isfinite(y) else str(y) for _, y in points]
        body = {
            "box": box,
            "run": run.name,
            "metric": name,
            "steps": [x for x, _ in points],
            "values": values,
        }
        print_json(body)
    return OK


def _plot_width() -> int:
    if sys.stdout.isatty():
        return shutil.get_terminal_size((100, 24)).columns
    # A fixed width for pipes, so that a report looks the same everywhere.
    return 100
