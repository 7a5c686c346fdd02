"""Parses lines of console output: pieces, rows, and line formats as data."""

from __future__ import annotations

import math
import re

from rgt_wire.log_envelopes import split_envelope, unwrap_json_line
from rgt_wire.metric_roles import LOSS, MEASURES, OTHER, REWARD, is_evaluation, position_of, role_of

from rgt_box.metrics.reader_base import ROW, STEP

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, List, Mapping, NamedTuple, Tuple

    from rgt_wire import JsonObject


if TYPE_CHECKING:
    Values = Dict[str, float]
    State = JsonObject
    Parse = Callable[[str, State], List["ConsoleRow"]]
    Flush = Callable[[State], List["ConsoleRow"]]
    Pairs = Callable[[str], List[Tuple[str, str]]]

GENERIC, BAR, NAMED = 0, 1, 2
"""Tiers: how reliable a match of a format is."""
COUNTED = "counted"
"""The stream of rows that are only counted, because the log prints no position."""

UNMEASURED = " unmeasured"
"""The end of the stream of bars that may be no training: none has shown a loss so far."""


class ConsoleRow:
    """The numbers of one printed line, at one position of the run.

    Attributes:
        values: Tag as printed → number; NaN and infinities are kept.
        step: Training step, if the line has it.
        epoch: Epoch, if the line has it (fractional if the program prints fractions).
        samples: Samples seen, if the line counts samples.
        stream: Which of several bars or loops of the same format printed it; "" if there is only
            one.
        total: Planned steps of the run, if known; 0 if they turned out to be unknown. Planned
            epochs of a row without a step.
        weak: True for numbers that many programs print in addition to their own: they do not vote
            for a format.
        is_summary: The values are those of an epoch in a log that counts steps.
    """

    __slots__ = ("epoch", "is_summary", "samples", "step", "stream", "total", "values", "weak")

    def __init__(
        self,
        values: Values,
        step: int | None = None,
        epoch: float | None = None,
        samples: int | None = None,
        weak: bool = False,
        stream: str = "",
        total: float | None = None,
        is_summary: bool = False,
    ) -> None:
        self.values = values
        self.is_summary = is_summary
        self.step = step
        self.epoch = epoch
        self.samples = samples
        self.weak = weak
        self.stream = stream
        self.total = total

    def summarize_epoch(self, step: int) -> ConsoleRow:
        """Return the row as the summary of its epoch, printed after `step`."""
        values = {}
        for tag, y in self.values.items():
            if not is_evaluation(tag) and not self.is_summary:
                tag += "_epoch"
            values[tag] = y
        return ConsoleRow(values, step, self.epoch, is_summary=True)

    def x_position(self) -> tuple[str, float] | None:
        """Return (x kind, x): the row's count, or the first known of step, epoch and samples."""
        if self.step is not None:
            if self.stream == COUNTED:
                return ROW, self.step
            return STEP, self.step
        if self.epoch is not None and math.isfinite(self.epoch):
            return "epoch", self.epoch
        if self.samples is None:
            return None
        return ("samples", self.samples)

    def to_json_values(self) -> list[Any]:
        """Return the row as JSON-compatible values; `from_json_values` is the reverse."""
        values = {tag: y if math.isfinite(y) else repr(y) for tag, y in self.values.items()}
        rest = (self.weak, self.stream, self.total, self.is_summary)
        return [values, self.step, self.epoch, self.samples, *rest]

    @classmethod
    def from_json_values(cls, packed: list[Any]) -> ConsoleRow:
        """Return the row that `to_json_values` wrote."""
        values, *rest = packed
        return cls({tag: float(y) for tag, y in values.items()}, *rest)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ConsoleRow) and repr(self) == repr(other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return (
            f"Row({self.values!r}, step={self.step!r}, epoch={self.epoch!r}, "
            f"samples={self.samples!r})"
        )


TAKEN: "list[ConsoleRow]" = []
"""Returned by a format that knows a line as its own, although its row needs a later line."""


class LineFormat:
    """One way in which a program prints its numbers.

    Attributes:
        name: Short name; the source of its points is ``console:NAME``.
        seen: Program and version that it was tested with.
        hints: Lower-case substrings; `parse` is only called for lines that contain one.
        sample: An example line.
        parse: ``(line, state)`` → rows. The state is the format's own JSON-compatible dictionary,
            one per rank.
        tier: `NAMED`, `BAR` or `GENERIC`.
        flush: Returns the rows that `parse` still holds at the end of the output.
    """

    __slots__ = ("flush", "hints", "name", "parse", "sample", "seen", "tier")

    def __init__(
        self,
        name: str,
        seen: str,
        hints: tuple[str, ...],
        sample: str,
        parse: Parse,
        tier: int = NAMED,
        flush: Flush | None = None,
    ) -> None:
        self.name = name
        self.seen = seen
        self.hints = hints
        self.sample = sample
        self.parse = parse
        self.tier = tier
        self.flush = flush


NUM = (
    r"(?:[-+]?(?:(?:\d{1,3}(?:,\d{3}){1,6}|\d{1,24})(?:\.\d{0,24})?|\.\d{1,24})(?:e[-+]?\d{1,4})?"
    r"|[-+]?(?:nan|inf(?:inity)?))(?![\w.])"
)
"""Matches a complete number token. Every repetition is bounded, so no text makes it slow. For
``re.IGNORECASE``."""


def parse_decimal(text: str) -> float:
    """Return the number that `NUM` matched, without thousands separators."""
    return float(text.replace(",", ""))


_ALONE = re.compile(rf"\s{{0,40}}({NUM})\s{{0,40}}$", re.I)


def parse_piped_pairs(rest: str) -> list[tuple[str, str]]:
    """Return the pairs of ``name: 1.0 | name: 2.0 |``; cells with several numbers are left out."""
    found = []
    for cell in rest.split("|")[:200]:
        name, colon, text = cell.partition(":")
        if colon:
            value = _ALONE.match(text)
        else:
            value = None
        if value is not None:
            found.append((name.strip()[:100], value.group(1)))
    return found


def _pair_finder(pattern: str) -> Pairs:
    return re.compile(pattern % NUM, re.I).findall


colons = _pair_finder(r"([A-Za-z_\[][\w/.\[\]\-()%%]{0,80}):\s*(%s)")
"""``name: 1.0  name:2.0``"""

equals = _pair_finder(r"(?:^|, ?|\| )([A-Za-z_]\w{0,80})[= ](%s)")
"""``name=1.0, name=2.0`` and ``| name 1.0 | name 2.0``"""

dictionary = _pair_finder(r"'([^'{}]{1,100})':\s*'?(%s)'?(?=\s*[,}]|\s*$)")
"""``'name': 1.0, 'name': '2.0'``"""

_PLACES = ("step", "epoch", "total", "rest")


class LineShape:
    """One kind of line.

    Args:
        pattern: Regex for ``search``, ignoring case. Group ``step`` or ``epoch`` is the position,
            ``total`` the planned steps, ``rest`` is searched for pairs, and any other group is a
            value of that name (``name`` and ``value`` together are one pair).
        pairs: Finds the pairs in ``rest``.
        names: Tag as printed → tag to use; None drops it.
        prefix: Prefix for every tag that is not in `names`.
        step_key: The pair that holds the step.
        weak: See `ConsoleRow`.
    """

    def __init__(
        self,
        pattern: str,
        pairs: Pairs | None = None,
        names: Mapping[str, str | None] | None = None,
        prefix: str = "",
        step_key: str = "",
        weak: bool = False,
    ) -> None:
        self._search = re.compile(pattern.replace("{N}", NUM), re.I).search
        self._pairs = pairs
        self._names = names or {}
        self._prefix = prefix
        self._step_key = step_key
        self._weak = weak

    def parse_line(self, line: str) -> ConsoleRow | None:
        """Return the row of a line; None if the line is of another kind or has no number."""
        match = self._search(line)
        if match is None:
            return None
        groups = match.groupdict()
        pairs: JsonObject = {k: v for k, v in groups.items() if v is not None and k not in _PLACES}
        if "name" in pairs and "value" in pairs:
            pairs[pairs.pop("name")] = pairs.pop("value")
        if self._pairs is not None and groups.get("rest"):
            pairs.update(self._pairs(groups["rest"]))
        step = groups.get("step")
        epoch = groups.get("epoch")
        if self._step_key:
            step = pairs.pop(self._step_key, step)
        if epoch is None:
            epoch = pairs.pop("epoch", epoch)
        values = {}
        for key, text in pairs.items():
            if key in self._names:
                tag = self._names[key]
            else:
                tag = self._prefix + key
            if tag is not None:
                values[tag] = parse_decimal(text)
        row = ConsoleRow(
            values,
            step=None if step is None else parse_step(step),
            epoch=None if epoch is None else parse_decimal(epoch),
            weak=self._weak,
            total=float(groups.get("total") or 0) or None,
        )
        if values and row.x_position():
            return row
        return None


def parse_step(text: str) -> int | None:
    """Return a step as an integer; None if it is out of range."""
    value = parse_decimal(text)
    if 0 <= value < 1e15:
        return int(value)
    return None


PIECE = re.compile(rb"[^\r\n]+")

_ANSI = re.compile(
    r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])|[\x08\x00]"
)
"""Escape sequences, and the backspaces with which Keras erases its bar."""


def count_complete_bytes(data: bytes) -> int:
    """Return how many bytes of `data` belong to complete pieces."""
    return max(data.rfind(b"\n"), data.rfind(b"\r")) + 1


def split_rank_prefix(piece: bytes) -> tuple[str, str]:
    """Return (rank, text) of a piece without escape sequences and envelope; rank "" if none."""
    # Bytes of a piece that are parsed; the rest is dropped.
    cap = 8192
    text = unwrap_json_line(piece[:cap].decode("utf-8", "replace"))
    if "\x1b" in text or "\x08" in text or "\x00" in text:
        text = _ANSI.sub("", text)
    rank, rest = split_envelope(text)
    if rank and rank.isdigit() and _NO_RANK.match(rest):
        return "", text  # "[12]:    train's auc:0.9" and "12: 1.68, 2.13 avg" count rounds
    return rank, rest


_NO_RANK = re.compile(r"\s{2}|\t|-?\d{1,9}\.\d{1,20}, ")


# Progress bars: tqdm bars that show a loss (Lightning, torchtune, kohya, diffusers, ai-toolkit,
# custom loops), and the bar of transformers' Trainer, which gives printed dictionaries their step.
# If stdout is not buffered, the first bar drawn after a dictionary shows its step. If it is
# buffered, dictionaries come in bursts and only their epoch is reliable: two dictionaries in a row
# show that.


if TYPE_CHECKING:

    class ProgressBarState(NamedTuple):
        """One drawn state of a bar."""

        start: int
        desc: str
        n: float
        total: float
        rate: str
        post: str
else:
    from collections import namedtuple

    ProgressBarState = namedtuple("ProgressBarState", "start desc n total rate post")


_BAR = re.compile(
    r"\d{1,3}%\|[^|]{0,400}\|\s{0,20}(?P<n>[\d.]{1,20}[kMGT]?)/(?P<total>[\d.]{1,20}[kMGT]?)\s{1,4}"
    r"\[[\d:]{1,20}<(?:[\d:]{1,20}"
    r"|\?),\s{0,9}(?P<rate>[^,\]]{1,40})(?:,\s{0,9}(?P<post>[^\]]{0,2000}))?\]"
)
_BARE = re.compile(
    r"(?:^|(?<=[:\s]))(?P<n>[\d.]{1,20}[kMGT]?)it \[[\d:]{1,20},\s{0,9}(?P<rate>[^,\]]{1,40})"
    r"(?:,\s{0,9}(?P<post>[^\]]{0,2000}))?\]"
)
"""A bar without a total."""
_PAIR = re.compile(
    rf"(?:^|[,;|]\s{{0,9}}|\s)([A-Za-z_][\w/.\-]{{0,80}}(?: [A-Za-z_][\w/.\-]{{0,80}}){{0,3}})"
    rf"\s{{0,9}}[=:]\s{{0,9}}({NUM})",
    re.I,
)
_SCALE = {"k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}
# Bars of data sets, downloads and evaluations show totals and sometimes a loss, but no training
# step.
_NOT_TRAINING = re.compile(
    r"^\W*(?:val|test|eval|predict|sanity|map|filter|download|load|writ|generat|tokeni|sav|fetch"
    r"|convert|shard|sampl)",
    re.I,
)
_NOT_STEPS = ("examples/s", "B/s", "files/s", "tokens/s")
_EPOCH = re.compile(
    r"^\W*Epoch:?\s{0,4}\[?(\d{1,9})(?:(?:\s?/\s?|\s{1,4}of\s{1,4})(\d{1,9}))?\]?", re.I
)
_TUNE = re.compile(rf"^(\d{{1,9}})\|(\d{{1,15}})\|Loss: ({NUM})", re.I)
_NUMBER = re.compile(NUM, re.I)
_WORDLESS = re.compile(r"[\W\d_]+")
# No values: the version of Lightning's log directory, and positions.
_DROP = ("v_num", "step", "epoch")


def parse_bar(line: str) -> ProgressBarState | None:
    """Return the last bar in a piece, with the title before it; None without a bar."""
    if "%|" in line:
        pattern = _BAR
    elif "it [" in line:
        pattern = _BARE
    else:
        return None
    found = None
    before = 0
    for match in pattern.finditer(line):
        if found is None:
            before = 0
        else:
            before = found.end()
        found = match
    if found is None:
        return None
    n = _parse_count(found.group("n"))
    if pattern is _BAR:
        total = _parse_count(found.group("total"))
    else:
        total = 0.0
    if n is None or total is None:
        return None
    desc = line[before : found.start()].strip().rstrip(":").strip()[-200:]
    return ProgressBarState(
        found.start(), desc, n, total, found.group("rate"), found.group("post") or ""
    )


def _parse_count(text: str) -> float | None:
    try:
        if text[-1] in _SCALE:
            return float(text[:-1]) * _SCALE[text[-1]]
        return float(text)
    except ValueError:
        return None


def _training_values(bar: ProgressBarState, state: JsonObject) -> dict[str, float]:
    """Return the values shown in a training bar; {} if it shows no loss."""
    if bar.desc.lower().startswith(("val", "eval")):
        state.pop("eval", None)  # the next values of the training bar are new
    if _NOT_TRAINING.match(bar.desc) or bar.rate.endswith(_NOT_STEPS):
        return {}
    values = {}
    for source in (bar.desc, bar.post):
        for tag, text in _PAIR.findall(source):
            tag = tag.strip()
            if tag.lower() not in _DROP:
                values[tag] = parse_decimal(text)
    # Any program may draw a bar: only one that shows a loss is that of a training; or, until a bar
    # shows one, two numbers that are no counts.
    if any(role_of(tag) in (LOSS, REWARD) or "loss" in tag.lower() for tag in values):
        state["measured"] = True
    elif state.get("measured"):
        return {}
    elif not state.get("figures"):
        figures = [tag for tag, y in values.items() if y % 1 and role_of(tag) in (*MEASURES, OTHER)]
        if len(figures) < 2:
            return {}
        state["figures"] = True
    return _drop_repeated_evaluation(values, state)


def _drop_repeated_evaluation(values: dict[str, float], state: JsonObject) -> dict[str, float]:
    """Drop evaluation results that a bar repeats until the next evaluation."""
    last = state.setdefault("eval", {})
    fresh = {}
    for tag, value in values.items():
        if tag.lower().startswith(("val", "eval", "test")):
            text = repr(value)
            # Lightning keeps val_loss in the bar until the next validation: it would be one value
            # on every step.
            if last.get(tag) == text or len(last) > 100:
                continue
            last[tag] = text
        fresh[tag] = value
    return fresh


def _parse_lightning(line: str, state: JsonObject) -> list[ConsoleRow]:
    """Read a bar that restarts each epoch; its steps continue across epochs."""
    bar = parse_bar(line)
    if bar is None:
        return []
    found = _EPOCH.match(bar.desc)
    if found is None:
        _training_values(bar, state)
        return []
    if not bar.total:
        return []
    epoch = int(found.group(1))
    epochs = found.group(2)
    values = _training_values(bar, state)
    if not values or bar.n < 1:
        return []
    # "Epoch 1/3" counts from 1, Lightning's "Epoch 0" from 0; its bar shows v_num.
    first = _first_epoch_number(epoch, epochs is not None, "v_num=" in bar.post, state)
    step = (epoch - first) * bar.total + bar.n
    total = 0.0
    if epochs:
        total = int(epochs) * bar.total
    if step < 1e15:
        return [ConsoleRow(values, int(step), total=total if step <= total < 1e15 else 0.0)]
    return []


def _first_epoch_number(epoch: int, counted: bool, lightning: bool, state: JsonObject) -> int:
    """Return the number of the first epoch: 0 as in Lightning, or 1 if the log suggests it."""
    known = state.get("first")
    if known is None:
        known = 0
        if epoch and not lightning and (counted or epoch == 1):
            known = 1
    state["first"] = min(known, epoch)
    return int(state["first"])


def _parse_tqdm(line: str, state: JsonObject) -> list[ConsoleRow]:
    """Read any other bar; if it restarts after it was full, steps continue."""
    bar = parse_bar(line)
    if bar is None or _EPOCH.match(bar.desc):
        return []
    tune = _TUNE.match(bar.desc)
    if tune is not None:
        return [ConsoleRow({"loss": parse_decimal(tune.group(3))}, int(tune.group(2)))]
    values = _training_values(bar, state)
    if not values:
        return []
    # The title without its numbers: "Epoch 3 step" and "Epoch 4 step" are one series of bars.
    stream = _WORDLESS.sub(" ", _NUMBER.sub(" ", bar.desc)).strip()[:60]
    bars = state.setdefault("bars", {})
    last, total, base = bars.pop(stream, (0.0, bar.total, 0.0))
    # Full before it fell: the next epoch. Not full: a restart, which counts from 0 again.
    if bar.n < last and total == bar.total:
        if total and last >= total:
            base = base + total
        else:
            base = 0.0
    elif total != bar.total:
        base = 0.0
    # Bar titles tracked at a time.
    most_bars = 8
    while len(bars) >= most_bars:
        del bars[next(iter(bars))]
    bars[stream] = [bar.n, bar.total, base]
    step = base + bar.n
    for tag in list(values):
        place = position_of(tag)
        if place is not None and place[0] == "step" and (values[tag] > bar.n or not bar.total):
            step = values.pop(tag)  # "env_step=50000": the run's own count
    # A bar that restarted is one of an unknown number of bars, so the total is unknown.
    whole = 0.0
    if not base and bar.n <= bar.total < 1e15:
        whole = bar.total
    if "measured" not in state:
        stream += UNMEASURED
    if step < 1e15:
        return [ConsoleRow(values, int(step), stream=stream, total=whole)]
    return []


LIGHTNING = LineFormat(
    "lightning",
    "lightning 2.6 TQDMProgressBar",
    ("%|",),
    "Epoch 2:  40%|████      | 4/10 [00:00<00:00, 418.51it/s, v_num=2, train_loss=0.485]",
    _parse_lightning,
    tier=BAR,
)

TQDM = LineFormat(
    "tqdm",
    "tqdm 4.67: kohya sd-scripts, diffusers, torchtune, ai-toolkit",
    ("%|", "it ["),
    "steps:   2%|▏         | 5/300 [00:00<00:06, 49.04it/s, loss=2e-6, lr=0.0001]",
    _parse_tqdm,
    tier=BAR,
)


_PRINTED = re.compile(r"(?<!>> )\{('[^'{}]{1,100}': [^{}]*)\}")
_CALLBACK = re.compile(r"callbacks?:\d{1,6} >> \{('[^'{}]{1,100}': [^{}]*)\}")


def _scalar_dict_row(found: re.Match[str] | None) -> ConsoleRow | None:
    """Return the row of a scalar dictionary: it has an epoch, and a loss or reward.

    TRL's PPO prints no key that ends with ``loss``.
    """
    if found is None or "'epoch'" not in found.group(1):
        return None
    values = {key: parse_decimal(text) for key, text in dictionary(found.group(1))}
    epoch = values.pop("epoch", None)
    if (
        epoch is None
        or not math.isfinite(epoch)
        or ("train_runtime" in values and "train_loss" in values)
    ):
        return None
    if not any(key.endswith("loss") or key.startswith(("reward", "objective/")) for key in values):
        return None
    if values.get("loss") == 0.0 and math.isnan(values.get("grad_norm", 0.0)):
        values["loss"] = float("nan")  # logging_nan_inf_filter writes 0 instead
    return ConsoleRow(values, epoch=epoch)


def _parse_trainer(line: str, state: JsonObject) -> list[ConsoleRow]:
    if "'epoch'" in line:
        found = _PRINTED.search(line)
    else:
        found = None
    row = _scalar_dict_row(found)
    bar = parse_bar(line)
    rows: list[ConsoleRow] = []
    # A bar in front of the dictionary on the same piece was drawn before it, so it does not show
    # its step.
    if bar is not None and (row is None or found is None or bar.start < found.start()):
        rows += _apply_bar(bar.n, bar.total, bar.desc, state)
        bar = None
    if row is not None:
        rows += _add_dictionary_row(row, state)
    if bar is not None:
        rows += _apply_bar(bar.n, bar.total, bar.desc, state)
    if row is not None and not rows:
        return TAKEN
    return rows


def _add_dictionary_row(row: ConsoleRow, state: JsonObject) -> list[ConsoleRow]:
    rows = flush_pending_row(state)
    if rows:
        state["burst"] = True
    if state.get("burst") or "total" not in state:
        return rows + [row]
    state["row"] = row.to_json_values()
    return rows


def _apply_bar(n: float, total: float, desc: str, state: JsonObject) -> list[ConsoleRow]:
    """Apply a bar: the first untitled one is the trainer's; evaluations have other totals."""
    if desc:
        return []
    if state.setdefault("total", total) != total or "row" not in state:
        return []
    rows = flush_pending_row(state)
    rows[0].step, rows[0].total = int(n), total
    return rows


def flush_pending_row(state: JsonObject) -> list[ConsoleRow]:
    """Return the dictionary that still waits for its bar, without a step."""
    packed = state.pop("row", None)
    if packed is None:
        return []
    return [ConsoleRow.from_json_values(packed)]


def _parse_llamafactory(line: str, _: JsonObject) -> list[ConsoleRow]:
    row = _scalar_dict_row(_CALLBACK.search(line))
    if row is None:
        return []
    return [row]


LLAMAFACTORY = LineFormat(
    "llamafactory",
    "LLaMA-Factory 0.9 LogCallback",
    (">> {'",),
    "[INFO|2026-03-01 10:00:00] llamafactory.train.callbacks:143 >> {'loss': 3.8978, "
    "'learning_rate': 1.6000e-04, 'epoch': 0.10, 'throughput': 7257.13}",
    _parse_llamafactory,
)

HF = LineFormat(
    "hf",
    "transformers 4.57 (numbers) and 5.23 (strings)",
    ("'epoch'", "%|"),
    "{'loss': '3.898', 'grad_norm': 'nan', 'learning_rate': '5.714e-06', 'epoch': '0.8'}",
    _parse_trainer,
    flush=flush_pending_row,
)
