"""Reads the numbers of any program: ``name: value`` on one line, in blocks of lines, or in columns.

A line is cut at its numbers. The text between them names them, and is the same on every line of a
kind, so it is understood once and remembered. A name says what a number is: a position (step,
epoch, samples), a measure (loss, score, reward) or any other number. A block is a line with a
position and the lines of pairs that follow it, or the pairs between two rules, of which one is the
position. Columns are named by the line above them. A JSON object on several lines is one row.

Only rising positions with a measure make a curve (see `console.FormatChooser`), so prose with
numbers does not.
"""

from __future__ import annotations

import re
from functools import lru_cache

from rgt_wire.metric_roles import (
    EVALUATION,
    MEASURES,
    NO_VALUES,
    SPEED,
    in_english,
    is_evaluation,
    position_of,
    role_of,
)

from rgt_box.metrics.console_lines import GENERIC, ConsoleRow, LineFormat
from rgt_box.metrics.line_plans import (
    PATH,
    UNIT_END,
    USUAL_NAMES,
    LinePlan,
    plan_line,
    split_word,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from rgt_wire import JsonObject


# Every repetition is bounded, so no line makes the search slow. The first part skips the "683-" of
# a range: ESPnet prints "683-1364batch" (its issue 2183). "nan" and "inf" before another word are
# prose.
_TOKEN = re.compile(
    r"(?<![\w.@/\-])(?:\d{1,15}-(?=\d{1,15}[a-z]{2}))?"
    r"([-+]?(?:(?:\d{1,3}(?:,\d{3}){1,6}(?!\d)|\d{1,24})(?:\.\d{0,24})?|\.\d{1,24})(?:[eE][-+]?\d{1,4})?"
    r"|[-+]?(?:[nN][aA][nN]|[iI]nf(?:inity)?)(?![A-Za-z]|\s[a-z]{2,20}(?:\s|:)))"
    r"([KMBGT](?![A-Za-z\d]))?(?:\s{0,2}/\s{0,8}(\d{1,15}[KMB]?)(?![\w.]))?"
    r"(?![\d_]|[A-Za-z%]{0,12}[\d_]|\.\d)"
)
"""A number, its scale and its total: ``1.5e-3``, ``31K``, ``100/ 500000``."""
_SCALE = {"K": 1e3, "M": 1e6, "B": 1e9, "G": 1e9, "T": 1e12}
_BAR = re.compile(
    r"\d{1,3}%(?:\|[^|]{0,400}\|[^\[]{0,60}|\s{1,3}\d{1,12}/\d{1,12} )\[[^\]]{0,2000}\]?"
)
_GAPS = re.compile(r" {3,}")
_RULE = re.compile(r"[|+\s]*[-=#*\u2500-\u257f]{6}[-=#*|+\s\u2500-\u257f]*$")
_WIDE = re.compile(r"\s{2,}|\t|\s{0,200}\|\s*")
_LISTS = re.compile(r"\[\s?(?:(-?[\d.]{1,24}(?:e[-+]\d{1,3})?)|[-+\d.e, ]{1,400})\s?\]")
"""A cell with a list: the figure if it has one; several have no names."""
_CELL = re.compile(r"\s{0,200}[|,]\s*|\s{2,}|\t")
_CALLER = re.compile(
    r"\s{2,40}[\w./-]{1,80}\.py:\d{1,6}\s*$"
    r"|^[\w./-]{1,80}\.py(?: \w{1,60})? ?\[line:\d{1,6}\][ -]{1,3}(?:[A-Z]{4,8}:? )?"
)
"""Where a logger was called: at the right edge (rich), or before the message."""
_MEMBER = re.compile(
    r'"([^"]{1,200})":\s?(-?\d{1,24}(?:\.\d{1,24})?(?:[eE][-+]?\d{1,4})?|NaN|-?Infinity),?$'
)
"""A number in a JSON object, on a line of its own."""
_INSIDE = re.compile(r'"|[\[\]{},]{1,9}$|[-+.\deE, ]{1,60}$')
"""A line inside such an object: a member, brackets, or the numbers of a list."""
_HINTS = (
    "step", "loss", "epoc", "iter", "|", "rew", "acc", "updat", "batch", "up.", "mae", "mse", "auc", "learn",
    "err", "cost", "ppl", "perp", "score", "dice", "epch", "return", "round", "tick", "map", "ndcg", "nll",
    "sampl", "xent", "l1", "l2", "cross", "avg", "epis", "_train", "result:",
)  # fmt: skip
"""Pieces of positions and measures: a line outside a block has one of them, or is text."""
_PLANS: dict[str, LinePlan] = {}
"""Text of a line without its numbers → its plan."""


def parse_any_line(line: str, state: JsonObject) -> list[ConsoleRow]:
    """Return the rows of a line; see the module."""
    if "object" in state or line.strip() in ("{", "[{"):
        rows = _parse_object_line(line, state)
        if rows is not None:
            return rows
    if not line.isascii():
        line = in_english(line)
    heading = state.pop("heading", "")
    if (
        not heading
        and state.get("seen", -1) < 0
        and "block" not in state
        and "columns" not in state
    ):
        low = line.lower()
        for hint in _HINTS:
            if hint in low:
                break
        else:
            return []
    # What a bar shows of itself (count, total, remaining time) is no value of the training.
    if "%" in line:
        line = _BAR.sub("  ", line)
    if ".py" in line and ("  " in line or "[line:" in line):
        line = _CALLER.sub("", line)
    indent = 0
    if line[:8].isspace():
        indent = len(line) - len(line.lstrip())
    # Programs pad their columns, and the padding changes with the width of a number: with gaps of
    # one width, more lines share a plan.
    if "   " in line:
        line = _GAPS.sub("  ", line)
    cut = _TOKEN.split(line)
    if len(cut) == 1:
        return _parse_text(line, state)
    if "columns" in state:
        rows = _parse_columns(line, state)
        if rows:
            return rows
    key = "\0".join(cut[0::4])
    # The same text with a total and without one ("3/10", "3") needs two plans: a total makes a
    # position.
    if any(cut[3::4]):
        key += "\1" + "".join("1" if total else "0" for total in cut[3::4])
    plan = _PLANS.get(key)
    if plan is None:
        # Text that never repeats, such as names with a random part, must not fill the memory.
        most_plans = 1024
        if len(_PLANS) >= most_plans:
            _PLANS.clear()
        # A line with more numbers is a printed array.
        most_numbers = 200
        if len(cut) > 4 * most_numbers:
            return []
        plan = _PLANS[key] = plan_line(cut[0::4], cut[3::4])
    if heading and not plan.split:
        plan = plan._replace(split=heading)
    if indent and plan.measures and indent > state.get("indent", indent):
        state["seen"] = 0  # the rest of a line that was too long
        rows = _apply_plan(plan, cut, state)
        state["seen"] = -1
        return rows
    rows = _apply_plan(plan, cut, state)
    state["indent"] = 9999
    if rows and state.get("seen", -1) < 0:
        state["indent"] = indent
    return rows


def _parse_object_line(line: str, state: JsonObject) -> list[ConsoleRow] | None:
    """Read a line of a JSON object that stands on several lines; None if it is none.

    What is nested inside it is left out.
    """
    text = line.strip()
    if "object" not in state:
        state["object"] = 1
        return _close_block(state)
    if _INSIDE.match(text) is None:
        _drop_object(state)  # it was cut off
        return None
    depth = state["object"]
    found = _MEMBER.match(text)
    if found is not None:
        name = found.group(1)
        y = float(found.group(2))
        position = position_of(name)
        if depth != 1:
            return []
        if position is None:
            return _add_to_block({USUAL_NAMES.get(name.lower(), name): y}, [], state)
        if 0 <= y < 1e15:
            return _add_to_block({}, [(position[1], position[0], y, 0.0)], state)
        return []
    if text[0] in "}]":
        depth -= 1
    rows: list[ConsoleRow] = []
    if depth < 1:
        # Programs print their settings as such an object, too: only one with a measure is a row.
        if any(role_of(tag) in MEASURES for tag in state.get("block", {})):
            rows = _close_block(state)
        _drop_object(state)
    if text[-1] in "{[":
        depth += 1
    if depth > 0:
        state["object"] = depth
    return rows


def _drop_object(state: JsonObject) -> None:
    """Forget an object that is read, was cut off, or holds settings."""
    for key in ("object", "block", "places"):
        state.pop(key, None)


def _number(text: str, scale: str | None) -> float:
    value = float(text.replace(",", ""))
    if scale:
        return value * _SCALE[scale]
    return value


def _apply_plan(plan: LinePlan, cut: list[str], state: JsonObject) -> list[ConsoleRow]:
    values: dict[str, float] = {}
    places: list[tuple[int, str, float, float]] = []
    for at, slot in enumerate(plan.slots):
        if not slot.tag and not slot.kind:
            continue
        y = _number(cut[4 * at + 1], cut[4 * at + 2])
        if slot.tag:
            if plan.split and not split_word(slot.tag.replace("_", " ")):
                values.setdefault(f"{plan.split}/{slot.tag}", y)
            else:
                values.setdefault(slot.tag, y)
        elif 0 <= y < 1e15 and not (slot.kind == "step" and y != int(y)):
            total = cut[4 * at + 3]
            whole = 0.0
            if total:
                whole = float(total.rstrip("KMB")) * _SCALE.get(total[-1], 1.0)
            rank = slot.rank
            if "e" in cut[4 * at + 1]:
                rank += 4  # "5.8e6" is rounded
            if slot.kind == "edge":
                places.append(_edge_position(y, whole, plan, state))
            else:
                places.append((rank, slot.kind, y, whole))
    used = state.get("rank", 9)
    # Only VITS and its relatives print the step as a list without a name (RVC issue 507).
    if any(place[1] == "listed" for place in places):
        places = _find_listed_step(plan, cut, state)
    places = [
        (rank % PATH, kind, y, total)
        for rank, kind, y, total in places
        if rank < PATH or used == 9 or plan.is_row
    ]
    if not values and places and state.get("seen", -1) >= 0:
        rank = min(places)[0]
        if (rank > used and rank >= 4) or (rank < used and (state.get("headed") or used == 7)):
            return []  # another count inside a block
    named = [place for place in places if place[1] not in ("within", "bare", "samples_within")]
    if plan.is_row and (named or values):
        return _add_to_block(values, named, state)
    # Another kind of line ends a table that has no closing rule.
    if state.get("block"):
        late = _close_block(state)
        if late:
            return late + _apply_plan(plan, cut, state)
    if not named and (not plan.measures or not places or state.get("rank", 9) < 9):
        return _follow_position(values, plan, state)
    row = _place_row(values, places, plan, state)
    if row is None:
        return []
    row.weak = not plan.measures
    state["seen"] = 0 if not plan.measures else -1
    state["headed"] = not values and row.total is not None
    if values:
        return [row]
    return []


def _edge_position(
    y: float, total: float, plan: LinePlan, state: JsonObject
) -> tuple[int, str, float, float]:
    """Return the place of a number that begins or ends a line: a step if it cannot be a rank."""
    known = (state.get("at") or [None])[0]
    behind = state.get("rank", 9) < 7 and (known is None or y < known)
    if not plan.measures or y != int(y) or behind or state.get("seen", -1) >= 0:
        return 9, "bare", y, total
    return 7, "step", y, total


def _find_listed_step(
    plan: LinePlan, cut: list[str], state: JsonObject
) -> list[tuple[int, str, float, float]]:
    """Return the position of a list of numbers in a block with an epoch: its only whole number.

    A number that stays the same is a setting, and no step.
    """
    whole = [
        float(cut[4 * at + 1])
        for at, slot in enumerate(plan.slots)
        if slot.kind == "listed" and cut[4 * at + 1].isdigit()
    ]
    step, epoch, _, _ = state.get("at") or (None, None, None, None)
    if len(whole) != 1 or epoch is None:
        return []
    if state.get("seen", -1) < 0 or state.get("unlisted"):
        return []
    # Such as the batch size. The rank returns to 9 (no position known), so that the epoch is the
    # axis again.
    if whole[0] == step and state.get("rank") == 6:
        state.update(unlisted=True, rank=9, at=[None, state.get("epoch"), None, None])
        return []
    return [(6, "step", whole[0], 0.0)]


def _follow_position(
    values: dict[str, float], plan: LinePlan, state: JsonObject
) -> list[ConsoleRow]:
    """Place a line of pairs at the position of the line above it."""
    at = state.get("at")
    if at is None or not values or not (plan.slots[0].tag or plan.split):
        return []
    # Lines of a block that begins with a position of its own; others need a measure.
    block_lines = 80
    in_block = 0 <= state.get("seen", -1) < block_lines
    if not in_block and not (plan.measures and (plan.split or is_evaluation(plan.slots[0].tag))):
        return []
    if in_block:
        state["seen"] += 1
    step, epoch, samples, total = at
    return [ConsoleRow(values, step, epoch, samples, weak=not plan.measures, total=total)]


def _place_row(
    values: dict[str, float],
    places: list[tuple[int, str, float, float]],
    plan: LinePlan,
    state: JsonObject,
) -> ConsoleRow | None:
    """Return the row of a line with a position; None if it is not that of the training."""
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
    if step is not None and known is not None and step[2] < known:
        less_certain = used < step[0] and used < 4
        of_total = step[3] and step[0] < 5
        if less_certain and not of_total:
            state["seen"] = -1
            state["at"] = None
            return None  # counts something else: the batches of an evaluation
    # An evaluation counts its own batches: its values belong to the last training step.
    if plan.split and step is not None and step[0] == 5 and state.get("at"):
        at = state["at"]
        return ConsoleRow(values, at[0], at[1], at[2])
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
            kept = {
                tag if plan.split or split_word(tag.replace("_", " ")) else tag + "_epoch": y
                for tag, y in values.items()
            }
            values.clear()
            values.update(kept)
            return ConsoleRow(values, last[0], epoch[2])
        state["at"] = [None, epoch[2], None, None]
        return ConsoleRow(values, epoch=epoch[2])
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
    state["last"], state["number"] = x, number
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
    # Not the next epoch: a restart, which prints its step without the epoch added here.
    elif x < last and (number is None or number != before):
        state.pop("base", None)
    elif number is not None:
        state["stride"] = x - last
    return x + state.get("base", 0.0), None


def _add_to_block(
    values: dict[str, float], named: list[tuple[int, str, float, float]], state: JsonObject
) -> list[ConsoleRow]:
    """Collect a row of a table; a name that repeats begins the next block."""
    block = state.setdefault("block", {})
    group = state.get("group", "")
    rows: list[ConsoleRow] = []
    for tag, y in values.items():
        if group + tag in block:
            rows = _close_block(state)
            block = state.setdefault("block", {})
        # The state travels as JSON, which has no NaN and no infinities: `_close_block` reads the
        # text.
        most_values = 500
        if len(block) < most_values:
            block[group + tag] = y if y == y and abs(y) != float("inf") else repr(y)
    state.setdefault("places", []).extend(list(place) for place in named)
    return rows


def _close_block(state: JsonObject) -> list[ConsoleRow]:
    block = state.pop("block", {})
    places = state.pop("places", [])
    state.pop("group", None)
    if not block:
        return []
    values = {tag: float(y) for tag, y in block.items()}
    measures = any(role_of(tag) in MEASURES for tag in values)
    plan = LinePlan((), "", measures, True)
    if not places:
        at = state.get("at")
        if at is None:
            return []
        return [ConsoleRow(values, at[0], at[1], at[2], weak=not measures)]
    row = _place_row(values, [tuple(place) for place in places[:20]], plan, state)
    if row is None:
        return []
    row.weak = not measures
    return [row]


def _parse_text(line: str, state: JsonObject) -> list[ConsoleRow]:
    """Read a line without numbers: a rule, the group of a table, or the names of columns."""
    if _RULE.match(line):
        return _close_block(state)
    head = line.strip().strip("|")
    if head.endswith(":") and head.count(" ") < 4 and split_word(head):
        state["heading"] = split_word(head)  # "valid result:", and the figures on the next line
    comment = head.startswith("#")
    if comment:
        head = head.lstrip("# ")
    cells = [cell.strip(" '\"") for cell in _CELL.split(head) if cell.strip()]
    # "# step rmse_val lr": after a comment mark, one blank may be all that divides the names.
    if comment and len(cells) == 1 and column_position(head.split()[0]):
        cells = head.split()
    # Stable-Baselines3 prints the group of the rows below as a row of its own: "| rollout/ |".
    if line.lstrip()[:1] == "|" and len(cells) == 1 and cells[0].endswith("/"):
        if "block" not in state:
            state["block"] = {}
        state["group"] = cells[0]
    elif 2 <= len(cells) <= 60 and any(role_of(cell) in (*MEASURES, SPEED) for cell in cells):
        if any(map(column_position, cells)):
            state["columns"] = cells
        elif line.lstrip()[:1] == "|" and len(cells) > 2:
            state["columns"] = ["", *cells[1:]]  # each row is a set: train, val, test
    return []


@lru_cache(maxsize=1024)
def column_position(name: str) -> tuple[str, int] | None:
    """Return (kind, rank) of a column with positions: spaCy heads its own with ``E`` and ``#``."""
    if name.endswith(")") and "%" in name:
        name = UNIT_END.sub("", name)  # "Step (% Done)"
    name = name.rstrip(".")
    return position_of({"E": "epoch", "#": "step"}.get(name, name))


@lru_cache(maxsize=1024)
def column_tag(name: str) -> str:
    """Return the tag of a column of values; "" for times and numbers of processes."""
    if UNIT_END.sub("", name.lower()) in NO_VALUES:
        return ""
    return USUAL_NAMES.get(name.lower(), name)


def _parse_columns(line: str, state: JsonObject) -> list[ConsoleRow]:
    """Read a row below the names of columns."""
    names: list[str] = state["columns"]
    if "[" in line:
        line = _LISTS.sub(lambda found: found.group(1) or "-", line)
    line = line.strip().strip("|").strip()
    cells = _CELL.split(line)
    if len(cells) > len(names):
        cells = _WIDE.split(line)  # "39 s, 300.7 ms" is one cell
    if len(cells) < len(names):
        cells = line.split()  # below a comment, one blank may be all that divides them
        if len(cells) != len(names):
            return []
    values: dict[str, float] = {}
    places: list[tuple[int, str, float, float]] = []
    prefix = ""
    for name, cell in zip(names, cells):
        cell = cell.strip()
        found = _TOKEN.match(cell)
        if found is None:
            word = cell.lower()
            if word in EVALUATION or (not name and word.startswith("train")):
                prefix = word + "/"
            elif word == "false" and name.lower() in ("train", "training"):
                prefix = "val/"
            continue
        unit = cell[found.end() :].strip()
        # "00:12" (fastai's column "time") begins with a number, but is a duration.
        if unit and ":" in cell:
            continue
        position = column_position(name)
        y = _number(found.group(1), found.group(2)) * _SCALE.get(unit, 1.0)
        if position is not None and y >= 0:
            places.append((position[1], position[0], y, float(found.group(3) or 0)))
        elif column_tag(name):
            values[column_tag(name)] = y
    measures = any(role_of(tag) in (*MEASURES, SPEED) for tag in values)
    if prefix:
        values = {prefix + tag: y for tag, y in values.items()}
    at = state.get("at")
    if not names[0] and prefix and measures and at is not None:
        return [ConsoleRow(values, at[0], at[1], at[2])]
    if not places or not measures:
        return []
    row = _place_row(values, places, LinePlan((), "", True, False), state)
    if row is not None:
        return [row]
    return []


def flush_block(state: JsonObject) -> list[ConsoleRow]:
    """Return the table that is still open at the end of the output; an object is not complete."""
    if "object" in state:
        _drop_object(state)
    return _close_block(state)


ANY_LINE = LineFormat(
    "generic",
    "any program: pairs on a line, blocks, tables, columns",
    ("",),
    "iter 100: train loss 1.234, lr 3e-4",
    parse_any_line,
    tier=GENERIC,
    flush=flush_block,
)
