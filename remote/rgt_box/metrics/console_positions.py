"""Where a line of the console is in the run: its step, counted on over epochs, its epoch, or its samples."""

from __future__ import annotations

from rgt_box.metrics.console_lines import COUNTED, ConsoleRow

TYPE_CHECKING = False
if TYPE_CHECKING:
    from rgt_wire import JsonObject

    from rgt_box.metrics.line_plans import LinePlan


SCALE = {"K": 1e3, "M": 1e6, "B": 1e9, "G": 1e9, "T": 1e12}


def read_number(text: str, scale: str | None) -> float:
    """Return a number as printed: ``1,234``, or ``31`` with the scale ``K``."""
    value = float(text.replace(",", ""))
    if scale:
        return value * SCALE[scale]
    return value


def read_total(text: str | None) -> float:
    """Return the total of a number: ``500`` or ``50K``; 0 without one."""
    if not text:
        return 0.0
    return float(text.rstrip("KMB")) * SCALE.get(text[-1], 1.0)


def are_hits(score: str, count: str, total: str) -> bool:
    """Return whether a score is `count` of `total`, as a fraction or in percent, within rounding.

    ``accuracy: 93.5% (935/1000)``; others are progress: ``accuracy: 0.91 (64/60000)``.
    """
    whole = read_total(total)
    if not whole:
        return False
    share, y = read_number(count, None) / whole, read_number(score, None)
    rounding = 0.51 * 10.0 ** -len(score.partition(".")[2])
    return abs(share - y) < rounding or abs(100 * share - y) < rounding


def place_row(
    values: dict[str, float],
    places: list[tuple[int, str, float, float]],
    plan: LinePlan,
    state: JsonObject,
) -> ConsoleRow | None:
    """Return the row of a line with a position; None if it is not that of the training."""
    own = min((place[0] for place in places), default=9)
    if plan.measures and not _is_established(state) and own != state.get("rank", own):
        # So far, other lines only happened to have a position: a tracker's greeting with
        # "[batch:256]", or the numbers of a model's layers.
        forget_position(state)
    row = _place_by_rank(values, places, plan, state)
    # Numbers that may be positions by where they are in the line have this rank.
    edge = 7
    if row is not None:
        count_placed(plan.measures and state.get("rank", own) < edge, state)
    return row


def count_placed(measured: bool, state: JsonObject) -> None:
    """Count a line by which the position of the log is known; one with a measure is enough."""
    if measured:
        state["established"] = True
    elif not _is_established(state):
        state["placed"] = state.get("placed", 0) + 1


def _is_established(state: JsonObject) -> bool:
    """Return whether the position is that of the log, and not only of some line."""
    least_lines = 3
    return bool(state.get("established")) or state.get("placed", 0) >= least_lines


def forget_position(state: JsonObject) -> None:
    """Forget the position, and how it was counted."""
    for key in _COUNTED:
        state.pop(key, None)


_COUNTED = (
    *("at", "rank", "last", "number", "epoch", "base", "stride", "whole", "from", "anew"),
    "longest",
    "placed",
    "established",
)


def count_row(values: dict[str, float], plan: LinePlan, state: JsonObject) -> list[ConsoleRow]:
    """Count the lines of a log that prints no position: a name that repeats begins the next row."""
    is_placed = state.get("established") or (state.get("at") and state.get("rank", 9) < 9)
    if is_placed or not plan.measures or all(y == int(y) for y in values.values() if abs(y) < 1e15):
        return []
    seen: dict[str, float] = state.setdefault("counted", {})
    most_names = 200
    # Text that is only repeated is no curve.
    changes = any(tag in seen and seen[tag] != y for tag, y in values.items())
    if not seen or not set(state["row"]).isdisjoint(values) or len(seen) > most_names:
        state["row"] = []
        state["count"] = state.get("count", 0) + 1
    state["row"].extend(values)
    seen.update({tag: y for tag, y in values.items() if abs(y) < 1e300})
    return [ConsoleRow(values, state["count"], weak=not changes, stream=COUNTED)]


def _place_by_rank(
    values: dict[str, float],
    places: list[tuple[int, str, float, float]],
    plan: LinePlan,
    state: JsonObject,
) -> ConsoleRow | None:
    by: dict[str, tuple[int, str, float, float]] = {}
    for place in sorted(places, key=lambda each: (each[0], not each[3])):
        by.setdefault(place[1], place)
    step = by.get("step")
    epoch = by.get("epoch")
    within = by.get("samples_within", by.get("within"))
    if step is not None and step[0] == 7 and "within" in by:
        step = None  # "203/50000: episode: 1"
    # "Epoch: [2] [1800/1831]" (PaddleDetection issue 4496) has no word for the step: the count of a
    # total is the step within the epoch.
    if epoch is not None and within is not None and (step is None or step[0] >= 5):
        step = (5, "step", within[2], within[3])
    used = state.get("rank", 9)
    known = (state.get("at") or [None])[0]
    # An evaluation counts its own batches: its values belong to the last training step.
    if plan.split and step is not None and step[0] == 5 and state.get("at"):
        at = state["at"]
        return ConsoleRow(values, at[0], at[1], at[2])
    if step is not None and known is not None and step[2] < known:
        less_certain = used < step[0] and used < 4
        of_total = step[3] and step[0] < 5
        if less_certain and not of_total:
            state["seen"] = -1
            state["at"] = None
            return None  # counts something else: the batches of an evaluation
    number: float | None = state.get("epoch")
    if epoch is not None:
        number = epoch[2]
        state["epoch"] = number
    if step is None:
        return _place_without_step(values, by, plan, state, used)
    state["rank"] = min(used, step[0])
    if epoch is not None and step in places and places.index(step) < places.index(epoch):
        state["whole"] = True  # "step=1/739328,epoch=0": the total is not that of an epoch
    x, total = _count_steps(step, epoch, number, by, state)
    if x >= 1e15:
        return None
    if "samples_within" in by:
        state["at"] = [None, None, int(x), None]
        return ConsoleRow(values, samples=int(x))
    state["at"] = [int(x), number, None, total]
    return ConsoleRow(values, int(x), number if epoch is not None else None, total=total)


def _place_without_step(
    values: dict[str, float],
    by: dict[str, tuple[int, str, float, float]],
    plan: LinePlan,
    state: JsonObject,
    used: int,
) -> ConsoleRow | None:
    epoch = by.get("epoch")
    samples = by.get("samples")
    bare = by.get("bare") or by.get("within")
    last = state.get("at")
    if epoch is not None:
        if last is not None and last[0] is not None and used < 9:
            # The summary of an epoch in a log that counts steps.
            if not values:
                return None
            if plan.split:
                return ConsoleRow(values, last[0], epoch[2], is_summary=True)
            return ConsoleRow(values, epoch=epoch[2]).summarize_epoch(last[0])
        state["at"] = [None, epoch[2], None, epoch[3] or None]
        return ConsoleRow(values, epoch=epoch[2], total=epoch[3] or None)
    # This log has printed a better position before. Axes are never mixed in one curve.
    if used < 9:
        return None
    if samples is not None:
        state["at"] = [None, None, int(samples[2]), None]
        return ConsoleRow(values, samples=int(samples[2]))
    if bare is not None and bare[2] == int(bare[2]):
        state["at"] = [int(bare[2]), None, None, None]
        return ConsoleRow(values, int(bare[2]), total=bare[3] or None)
    return None


def _count_steps(
    step: tuple[int, str, float, float],
    epoch: tuple[int, str, float, float] | None,
    number: float | None,
    by: dict[str, tuple[int, str, float, float]],
    state: JsonObject,
) -> tuple[float, float | None]:
    """Return (step of the run, planned steps; 0 if unknown, None if the line does not say)."""
    rank, _, x, steps = step
    last = state.get("last", 0.0)
    before = state.get("number")
    longest = max(last, state.get("longest", 0.0))
    state["last"], state["number"], state["longest"] = x, number, longest
    # ``global_step`` and its like count over the whole run: no epoch is added. The total may be on
    # another number of the line, if that one has the same count.
    if rank == 0:
        other = by.get("within") or next(
            (each for each in by.values() if each[1] == "step" and each[3]), None
        )
        return x, steps or (other[3] if other and other[2] == x else None) or None
    if steps and x <= steps and number is not None and number == int(number):
        # Epochs count from 1 unless a 0 was seen: a log that begins with epoch 5 is that of a
        # resume.
        state["from"] = first = min(number, state.get("from", 1))
        if before is not None and number > before and x > last and x != steps:
            state["whole"] = True  # the count goes on over epochs
        if state.get("whole"):
            return x, steps
        epochs = 0.0
        if epoch is not None:
            epochs = epoch[3]
        x += (number - first) * steps
        return x, epochs * steps if x <= epochs * steps < 1e15 else 0
    if steps:
        # A count that has started over counts within an epoch or something like it: its total is
        # not that of the run.
        state["anew"] = state.get("anew", False) or x < last
        return x, steps if x <= steps and not state["anew"] else 0
    if number is not None and before is not None and x < last and number == before + 1:
        # Without a total, the last step before the next epoch is the length of the epochs so far.
        stride = state.get("stride", 0.0)
        state["base"] = state.get("base", 0.0) + last
        if x < stride:
            state["base"] += stride  # batches are counted from 0
    elif number is not None and before is not None and number > before + 1 and x <= last:
        # Nothing was printed in the epochs between: each had at least the longest count so far.
        state["base"] = state.get("base", 0.0) + (number - before) * longest
    # An earlier epoch: a restart, which prints its step without the epoch added here.
    elif (x < last and (number is None or before is None)) or (number or 0) < (before or 0):
        state.pop("base", None)
        state["longest"] = x
    elif number is not None:
        state["stride"] = x - last
    return x + state.get("base", 0.0), None
