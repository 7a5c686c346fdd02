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

import json
import re
from functools import lru_cache

from rgt_wire.metric_roles import (
    EVALUATION,
    LOSS,
    MEASURES,
    NO_VALUES,
    SETTING,
    SPEED,
    TIME,
    in_english,
    is_evaluation,
    position_of,
    role_of,
)

from rgt_box.metrics.console_lines import GENERIC, ConsoleRow, LineFormat
from rgt_box.metrics.console_positions import (
    SCALE,
    are_hits,
    count_placed,
    count_row,
    forget_position,
    place_row,
    read_number,
    read_total,
)
from rgt_box.metrics.line_plans import (
    PATH,
    UNIT_END,
    USUAL_NAMES,
    LinePlan,
    name_each_number,
    plan_line,
    split_word,
)
from rgt_box.metrics.rows import flatten_row, name_values, parse_json_integer, to_number

TYPE_CHECKING = False
if TYPE_CHECKING:
    from rgt_wire import JsonObject


# Every repetition is bounded, so no line makes the search slow. The first part skips the "683-" of
# a range: ESPnet prints "683-1364batch" (its issue 2183). "nan" and "inf" before another word are
# prose.
_TOKEN = re.compile(
    r"(?<![\w.@/\-])(?:\d{1,15}-(?=\d{1,15}[a-z]{2}))?"
    r"([-+]?(?:(?:\d{1,3}(?:,\d{3}){1,6}(?!\d)|\d{1,24})(?:\.\d{0,24})?"
    r"|\.\d{1,24})(?:[eE][-+]?\d{1,4})?"
    r"|[-+]?(?:[nN][aA][nN]|[iI]nf(?:inity)?)(?![A-Za-z]|\s[a-z]{2,20}(?:\s|:)))"
    r"([KMBGT](?![A-Za-z\d]))?(?:(?:\s{0,2}/\s{0,8}|\s{1,2}of\s{1,2})(\d{1,15}[KMB]?)(?!\w|\.\w"
    r"|/))?"
    r"(?![\d_]|[A-Za-z%]{0,12}[\d_]|\.\d|-\d\d-\d\d)"
)
"""A number, its scale and its total: ``1.5e-3``, ``31K``, ``100/ 500000``, ``3 of 90``."""
_BAR = re.compile(
    r"(?:[A-Za-z ]{1,40}: {0,3})?\|[^|]{0,400}\| {0,9}\d{1,12}/\? \[[^\]]{0,200}\]"
    r"|\d{1,3}%(?:\|[^|]{0,400}\|[^\[]{0,60}|\s{1,3}\d{1,12}/\d{1,12} )\[[^\]]{0,2000}\]?"
)
_SINGLE = re.compile(r"(?<=\.\d)f0\b|(?<=\.\d\d)f0\b|(?<=\d{3})f0\b")
"""The end of Julia's single precision numbers."""
_SLASHED = re.compile(r"(\d\.\d{1,12})/(?=\d{1,12}\.\d)")
"""Several numbers for several names: ``P/R/F1: 0.81/0.72/0.76``."""
_GLUED = re.compile(
    r"(?:(?<![\w./-])([Ee]poch|EPOCH|[Ee]p|EP|[Bb]atch|[Ii]ter|[Ss]tep)_?|^\[?(E))"
    r"(?=\d{1,6}(?![\w/]|\.\w|-\d))"
)
"""A position without a blank before its number: ``epoch3:``, ``ep03``, ``E003``."""
_R_PRINT = re.compile(r'^\[\d{1,6}\] "')
"""What R's print writes before a text in quotes."""
_GAPS = re.compile(r" {3,}")
_RULE = re.compile(r"[|+\s]*[-=#*\u2500-\u257f]{6}[-=#*|+\s\u2500-\u257f]*$")
_WIDE = re.compile(r"\s{2,}|\t|\s{0,200}\|\s*")
_LISTS = re.compile(r"\[\s?(?:(-?[\d.]{1,24}(?:e[-+]\d{1,3})?)|[-+\d.e, ]{1,400})\s?\]")
"""A cell with a list of figures."""
_DRAWN = re.compile(
    r"\s{0,40}\|\s{0,40}([A-Za-z][\w /.@()-]{1,60}?)\s{0,60}\|"
    r"\s{0,40}(-?\d{1,24}(?:\.\d{0,24})?(?:e[-+]?\d{1,4})?)\s{0,60}\|?\s{0,40}$"
)
"""A row of a drawn table whose name has a number: ``| mean 100 episode reward | 25.8 |``."""
_SUM = "\u2211"
"""Marks the sum of such a list."""
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
    "step", "loss", "epoc", "iter", "|", "rew", "acc", "updat", "batch", "up.", "mae", "mse", "auc",
    "learn",
    "err", "cost", "ppl", "perp", "score", "dice", "epch", "return", "round", "tick", "map", "ndcg",
    "nll",
    "sampl", "frame", "xent", "l1", "l2", "cross", "avg", "epis", "_train", "result:",
    " train ", " val ",
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
    is_ascii = line.isascii()
    if not is_ascii:
        line = in_english(line)
    elif line[:1] == "[" and line[-1:] == '"':
        line = _R_PRINT.sub("", line)[:-1]
    if line[-1:] == "}" and '{"' in line:
        rows = _parse_embedded_object(line, state)
        if rows:
            return rows
    heading = state.pop("heading", "")
    if (
        is_ascii
        and not heading
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
    if "%" in line or "/? [" in line:
        line = _BAR.sub("  ", line)
    if ".py" in line and ("  " in line or "[line:" in line):
        line = _CALLER.sub("", line)
    indent = 0
    if line[:8].isspace():
        indent = len(line) - len(line.lstrip())
    if "f0" in line:
        line = _SINGLE.sub("", line)
    if "/" in line:
        line = _SLASHED.sub(r"\1 / ", line)
    # Programs pad their columns, and the padding changes with the width of a number: with gaps of
    # one width, more lines share a plan.
    if "   " in line:
        line = _GAPS.sub("  ", line)
    cut = _TOKEN.split(line)
    if len(cut) == 1 and _GLUED.search(line) is not None:
        cut = _TOKEN.split(_GLUED.sub(_divide_glued, line))
    if len(cut) == 1:
        return _parse_text(line, state)
    if "columns" in state:
        rows = _parse_columns(line, state)
        if rows:
            return rows
    if "block" in state and len(cut) > 5 and line.lstrip()[:1] == "|":
        drawn = _DRAWN.match(line)
        if drawn is not None:
            return _add_to_block({drawn.group(1): float(drawn.group(2))}, [], state)
    key = _key_of_texts(cut)
    plan = _PLANS.get(key)
    if plan is None and _GLUED.search(line) is not None:
        # Only a text that is new is searched, because most lines have no such position.
        cut = _TOKEN.split(_GLUED.sub(_divide_glued, line))
        key = _key_of_texts(cut)
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
        plan = _PLANS[key] = plan_line(name_each_number(cut[0::4]), cut[3::4])
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


def _parse_embedded_object(line: str, state: JsonObject) -> list[ConsoleRow]:
    """Read a line that ends with a JSON object, such as MLPerf's and NVIDIA's loggers write."""
    try:
        row = json.loads(line[line.index('{"') :], parse_int=parse_json_integer)
    except (ValueError, RecursionError):
        return []
    values: dict[str, float] = {}
    places: list[tuple[int, str, float, float]] = []
    most_values = 200
    for name, value in name_values(flatten_row(row, most_values)).items():
        name = name.rpartition("data/")[2] if name.startswith(("data/", "metadata/")) else name
        position = position_of(name)
        if position is not None and isinstance(value, list) and value:
            value = value[-1]  # "step": [epoch, step]
        y = to_number(value)
        if y is None or isinstance(value, str):
            continue
        if position is None:
            values[name] = y
        elif 0 <= y < 1e15:
            places.append((position[1], position[0], y, 0.0))
    if not places or not any(role_of(tag) in MEASURES for tag in values):
        return []
    for name in [tag for tag in values if tag.lower() in NO_VALUES or role_of(tag) in _NOT_SHOWN]:
        del values[name]
    found = place_row(values, places, LinePlan((), "", True, False), state)
    if found is None:
        return []
    return [found]


_NOT_SHOWN = (TIME, SETTING)


def _drop_object(state: JsonObject) -> None:
    """Forget an object that is read, was cut off, or holds settings."""
    for key in ("object", "block", "places"):
        state.pop(key, None)


def _key_of_texts(cut: list[str]) -> str:
    """Return the key of a line's plan: its text, and which of its numbers have a total.

    The same text with a total and without one ("3/10", "3") needs two plans: a total makes a
    position.
    """
    key = "\0".join(cut[0::4])
    if any(cut[3::4]):
        key += "\1" + "".join("1" if total else "0" for total in cut[3::4])
    return key


def _divide_glued(found: re.Match[str]) -> str:
    if found.group(2):
        return "epoch "
    return found.group(1) + " "


def _apply_plan(plan: LinePlan, cut: list[str], state: JsonObject) -> list[ConsoleRow]:
    values: dict[str, float] = {}
    places: list[tuple[int, str, float, float]] = []
    for at, slot in enumerate(plan.slots):
        kind = slot.kind
        if kind == "hits":
            if are_hits(cut[4 * at - 3], cut[4 * at + 1], cut[4 * at + 3]):
                continue
            kind = "within"
        if not slot.tag and not kind:
            continue
        y = read_number(cut[4 * at + 1], cut[4 * at + 2])
        if slot.tag:
            if plan.split and not split_word(slot.tag.replace("_", " ")):
                values.setdefault(f"{plan.split}/{slot.tag}", y)
            else:
                values.setdefault(slot.tag, y)
        elif 0 <= y < 1e15 and not (kind == "step" and y != int(y)):
            whole = read_total(cut[4 * at + 3])
            rank = slot.rank
            if "e" in cut[4 * at + 1]:
                rank += 4  # "5.8e6" is rounded
            if kind == "edge":
                places.append(_edge_position(y, whole, plan, state))
            else:
                places.append((rank, kind, y, whole))
    used = state.get("rank", 9)
    # Only VITS and its relatives print the step as a list without a name (RVC issue 507).
    if any(place[1] == "listed" for place in places):
        places = _find_listed_step(plan, cut, state)
    in_table = plan.is_row or (plan.is_pair and "trailing" in state)
    if not in_table:
        places = [
            (rank % PATH, kind, y, total)
            for rank, kind, y, total in places
            if rank < PATH or used == 9
        ]
    if not values and places and state.get("seen", -1) >= 0:
        rank = min(places)[0]
        if (rank > used and rank >= 4) or (rank < used and (state.get("headed") or used == 7)):
            return []  # another count inside a block
    named = [place for place in places if place[1] not in ("within", "bare", "samples_within")]
    if in_table and (named or values or not plan.is_row):
        return _add_to_block(values, named, state)
    if plan.is_pair:
        late = _learn_trailing_position(values, named, state)
        if late is not None:
            return late
    elif values or named:
        state.pop("loose", None)
    # Another kind of line ends a table that has no closing rule.
    if state.get("block"):
        late = _close_block(state)
        if late:
            return late + _apply_plan(plan, cut, state)
    if not named and (not plan.measures or not places or state.get("rank", 9) < 9):
        return _follow_position(values, plan, state)
    row = place_row(values, places, plan, state)
    if row is None:
        return []
    row.weak = not plan.measures
    state["seen"] = 0 if not plan.measures else -1
    state["headed"] = not values and row.total is not None and row.step is not None
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
    if at is None:
        return count_row(values, plan, state)
    if not values or not (plan.slots[0].tag or plan.split):
        return count_row(values, plan, state)
    # Lines of a block that begins with a position of its own; others need a measure.
    block_lines = 80
    in_block = 0 <= state.get("seen", -1) < block_lines
    of_a_set = plan.split or any(is_evaluation(slot.tag) for slot in plan.slots)
    if not in_block and not (plan.measures and of_a_set):
        return count_row(values, plan, state)
    if in_block:
        state["seen"] += 1
    if plan.measures:
        count_placed(True, state)
    step, epoch, samples, total = at
    return [ConsoleRow(values, step, epoch, samples, weak=not plan.measures, total=total)]


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
        most_values = 500
        if len(block) < most_values:
            block[group + tag] = _as_json(y)
    state.setdefault("places", []).extend(list(place) for place in named)
    return rows


def _learn_trailing_position(
    values: dict[str, float], named: list[tuple[int, str, float, float]], state: JsonObject
) -> list[ConsoleRow] | None:
    """Collect the first block of pairs, one a line, until its position shows; None while it is unknown.

    If the first name repeats after a position that came after values, each block has its position
    at the end (RLlib's results in YAML): from then on, the lines are read as the rows of a table.
    """
    loose = state.get("loose")
    if loose is None:
        # A log whose position comes first, or of other lines, is no such log.
        if named or not values or state.get("at") is not None:
            return None
        loose = state["loose"] = {"values": {}, "places": []}
    least_values, most_values = 3, 500
    repeated = any(tag in loose["values"] for tag in values)
    if repeated:
        del state["loose"]
        measured = any(role_of(tag) in MEASURES for tag in loose["values"])
        if not loose["places"] and measured and "count" not in state:
            plan = LinePlan((), "", True, False)
            first = {tag: float(y) for tag, y in loose["values"].items()}
            return count_row(first, plan, state) + count_row(values, plan, state)
        if not loose["places"] or not measured or len(loose["values"]) < least_values:
            return None
        forget_position(state)
        state.pop("seen", None)
        state["trailing"] = True
        state["block"], state["places"] = loose["values"], loose["places"]
        return _add_to_block(values, named, state)
    if len(loose["values"]) < most_values:
        loose["values"].update({tag: _as_json(y) for tag, y in values.items()})
        loose["places"].extend(list(place) for place in named)
    if "count" in state and not loose["places"]:
        return None  # if no position shows, its lines are only counted
    return []


def _as_json(y: float) -> float | str:
    """Return a number as the state keeps it: it travels as JSON, which has no NaN and no infinities."""
    if y == y and abs(y) != float("inf"):
        return y
    return repr(y)


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
        if at is None or "count" in state:
            return count_row(values, plan, state)
        return [ConsoleRow(values, at[0], at[1], at[2], weak=not measures)]
    # "epoch" before "test/episode": a plain name is the table's own position.
    best = min(place[0] for place in places) // PATH
    own = [(rank % PATH, *rest) for rank, *rest in places[:20] if rank // PATH == best]
    row = place_row(values, own, plan, state)
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
    if len(cells) == 1 and column_position(head.split()[0]):
        words = head.split()
        if comment or all(role_of(word) or column_position(word) for word in words):
            cells = words
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


def _sum_list(found: re.Match[str]) -> str:
    """Return the number of a list; several are the parts of a sum, if they are a loss."""
    if found.group(1):
        return found.group(1)
    parts = found.group().strip("[] ").replace(",", " ").split()
    try:
        return f"{sum(map(float, parts)):.10g}{_SUM}"
    except ValueError:
        return "-"


def _parse_columns(line: str, state: JsonObject) -> list[ConsoleRow]:
    """Read a row below the names of columns."""
    names: list[str] = state["columns"]
    if "[" in line:
        line = _LISTS.sub(_sum_list, line)
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
        if unit == _SUM and role_of(name) != LOSS:
            continue
        position = column_position(name)
        y = read_number(found.group(1), found.group(2)) * SCALE.get(unit, 1.0)
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
    row = place_row(values, places, LinePlan((), "", True, False), state)
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
