"""The console output of a training program as a source of scalars, read from a cursor.

The cursor holds the offset, the chosen format and the state of the formats. So a cut at any byte,
even between two lines of one frame, gives the same points.

The format is chosen by its first matches, and kept until another format clearly takes over.
"""

from __future__ import annotations

import re

from rgt_wire.metric_roles import (
    LOSS,
    MEASURES,
    NORM,
    RATE,
    SPEED,
    TIME,
    is_evaluation,
    role_of,
)

from rgt_box.metrics.console_formats import BY_NAME, FORMATS
from rgt_box.metrics.console_lines import (
    BAR,
    COUNTED,
    GENERIC,
    PIECE,
    TAKEN,
    UNMEASURED,
    ConsoleRow,
    count_complete_bytes,
    split_rank_prefix,
)
from rgt_box.metrics.reader_base import (
    BUDGET,
    EPOCH,
    FROM_START,
    MAX_TAGS,
    ROW,
    TOTAL,
    WINDOW,
    AppendedFileReader,
    MetricPoint,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from rgt_wire import JsonObject

    from rgt_box.metrics.console_lines import LineFormat
    from rgt_box.metrics.reader_base import FileWindow, ReadBatch

FIRST = 3
"""Matches that choose a format while none is chosen, or by which a more reliable tier takes
over."""
OTHER = 20
"""Matches in a row by which another format takes over."""
OTHER_RANK = 60
"""The same for another rank: block-buffered ranks print in turns."""

JOINT = "\n"
"""Separator between format, rank and stream; it cannot occur in a piece of console output."""


class FormatChooser:
    """Parses each piece with the formats, and returns the rows of one format, rank and stream.

    Args:
        state: A result of `pack_state`, to resume from.

    Attributes:
        chosen: Format, rank and stream, joined by newlines; "" while undecided.
    """

    def __init__(self, state: JsonObject | None = None) -> None:
        state = state or {}
        self.chosen: str = state.get("chosen", "")
        self._ranks: dict[str, dict[str, JsonObject]] = state.get("ranks", {})
        self._votes: dict[str, int] = state.get("votes", {})
        self._misses: int = state.get("misses", 0)
        self._step: int | None = state.get("step")
        self._held: dict[str, list[ConsoleRow]] = {
            key: [ConsoleRow.from_json_values(row) for row in rows]
            for key, rows in state.get("held", {}).items()
        }

    def pack_state(self) -> JsonObject:
        """Return the state as JSON-compatible values, without empty parts."""
        # Empty parts are left out, because a cursor is kept and sent as JSON.
        ranks = {}
        for rank, states in self._ranks.items():
            ranks[rank] = {name: value for name, value in states.items() if value}
        state = {
            "chosen": self.chosen,
            "ranks": {rank: states for rank, states in ranks.items() if states},
            "votes": self._votes,
            "misses": self._misses,
            "step": self._step,
            "held": {
                key: [row.to_json_values() for row in rows] for key, rows in self._held.items()
            },
        }
        return {key: value for key, value in state.items() if value}

    @property
    def format_name(self) -> str:
        """Name of the chosen format; "" while undecided."""
        return self.chosen.partition(JOINT)[0]

    def parse_piece(self, rank: str, text: str) -> tuple[list[ConsoleRow], bool]:
        """Process the next piece.

        Returns:
            Rows of the chosen format, and whether it has just replaced another format.
        """
        self._misses += 1
        found = self._try_formats(rank, text)
        if found is None:
            return ([], False)
        return self._count_match(_candidate_key(found[0].name, rank, found[1]), found[1])

    def _try_formats(self, rank: str, text: str) -> tuple[LineFormat, list[ConsoleRow]] | None:
        low = text.lower()
        states: dict[str, JsonObject] | None = None
        # Pieces after the last match of a chosen format for which no fallback is tried.
        patience = 100
        tier = _format_tier(self.chosen)
        settled = self._misses <= patience and tier > GENERIC
        if tier == BAR and "%|" not in low and ("epoch" in low or _EVALUATED.search(low)):
            settled = False
        for each in FORMATS:
            if settled and each.tier == GENERIC:
                continue
            for hint in each.hints:
                if hint in low:
                    break
            else:
                continue
            if states is None:
                states = self._states_of_rank(rank)
            rows = each.parse(text, states.setdefault(each.name, {}))
            if rows:
                return each, rows
            # The line belongs to this format, although it gives no row yet: a fallback would
            # misread it.
            if rows is TAKEN:
                break
        return None

    def _states_of_rank(self, rank: str) -> dict[str, JsonObject]:
        states = self._ranks.get(rank)
        if states is None:
            # Prefixes of ranks are text of the program, so their number is not limited by the
            # cluster.
            ranks_limit = 64
            while len(self._ranks) >= ranks_limit:
                del self._ranks[next(iter(self._ranks))]
            states = self._ranks[rank] = {}
        return states

    def _count_match(self, key: str, rows: list[ConsoleRow]) -> tuple[list[ConsoleRow], bool]:
        if key == self.chosen:
            self._misses = 0
            # Challengers have to match in a row: a stray line of another format now and then never
            # adds up.
            self._step = rows[-1].step
            self._drop_challengers()
            return rows, False
        aside = self._evaluation_rows(key, rows)
        held = self._held.get(key)
        if held is None:
            challengers = 6
            if len(self._held) >= challengers:
                self._drop_candidate(next(iter(self._held)))
            held = self._held[key] = []
        # The general format would find rising numbers in prose as well, so only rising positions
        # vote.
        if _format_tier(key) == GENERIC and held:
            rows = self._merge_generic_rows(key, held, rows)
        held.extend(rows)
        # Rows of a challenger kept until the choice is made.
        held_limit = 60
        del held[:-held_limit]
        self._votes[key] = self._votes.get(key, 0) + any(not row.weak for row in rows)
        if self._votes[key] < self._votes_needed(key):
            return aside, False
        return self._choose_key(key)

    def _evaluation_rows(self, key: str, rows: list[ConsoleRow]) -> list[ConsoleRow]:
        """Return the evaluations and summaries printed between bars, at the last step."""
        if _format_tier(self.chosen) != BAR or _format_tier(key) != GENERIC or self._step is None:
            return []
        found = [
            {
                tag: y
                for tag, y in row.values.items()
                if role_of(tag) in MEASURES and is_evaluation(tag)
            }
            for row in rows
        ]
        step = self._step
        return [ConsoleRow(values, step) for values in found if values] + [
            row.summarize_epoch(step)
            for row in rows
            if row.epoch is not None
            and (row.step is None or row.is_summary)
            and not any(map(is_evaluation, row.values))
        ]

    def _merge_generic_rows(
        self, key: str, held: list[ConsoleRow], rows: list[ConsoleRow]
    ) -> list[ConsoleRow]:
        """Return the rows at a new position; the lines of one block vote once, and no fall votes."""
        last = held[-1]
        position = _row_position(rows[0])
        if position < _row_position(last):
            firm = [row for row in held if not row.weak]
            behind = bool(firm) and position <= _row_position(firm[-1])
            if last.weak and not rows[0].weak and not behind:
                # Another part of the program counts apart: DeepSpeed's engine is a step ahead of
                # the loop that logs the loss.
                held[:] = firm
                return rows
            self._votes[key] = 0
            del held[:]
        elif rows[0].is_summary:
            held.append(rows[0])
            return []
        elif position == _row_position(last) and len(rows) == 1:
            firmer = last.weak and not rows[0].weak
            self._votes[key] = self._votes.get(key, 0) + firmer
            last.values.update(rows[0].values)
            last.weak = last.weak and rows[0].weak
            return []
        return rows

    def _votes_needed(self, key: str) -> int:
        if not self.chosen or _format_tier(key) > _format_tier(self.chosen):
            return FIRST
        name, _, stream = key.split(JOINT)
        chosen, _, now = self.chosen.split(JOINT)
        # A position is better than a count, and a loss than other figures.
        if now == COUNTED or (now.endswith(UNMEASURED) and not stream.endswith(UNMEASURED)):
            return FIRST
        # Only the rank differs.
        if (name, stream) == (chosen, now):
            return OTHER_RANK
        return OTHER

    def _choose_key(self, key: str) -> tuple[list[ConsoleRow], bool]:
        # The rows held while this format was a challenger are points, too: none is lost by the
        # choice.
        rows = self._held[key]
        over = bool(self.chosen)
        self.chosen = key
        # A more reliable format may have matched less often so far: its first rows are kept.
        better = [each for each in self._held if _format_tier(each) > _format_tier(key)]
        self._held = {each: self._held[each] for each in better}
        self._votes = {each: self._votes[each] for each in better}
        self._misses = 0
        self._step = rows[-1].step
        return rows, over

    def _drop_challengers(self) -> None:
        """Drop challengers not more reliable than the chosen format, which matched again."""
        for key in [key for key in self._held if _format_tier(key) <= _format_tier(self.chosen)]:
            self._drop_candidate(key)

    def _drop_candidate(self, key: str) -> None:
        del self._held[key]
        self._votes.pop(key, None)

    def choose_at_end(self) -> list[ConsoleRow]:
        """Choose a format at the end of the text from the matches so far, if none is chosen."""
        if self.chosen:
            return []
        # A short log may end before the third match. A bar or a named format counts with one, the
        # general format only if the line is plainly that of a training.
        best = [
            key
            for key, rows in self._held.items()
            if self._votes.get(key) and (_format_tier(key) >= BAR or any(map(_is_plain_row, rows)))
        ]
        best.sort(key=lambda key: (-_format_tier(key), -self._votes[key]))
        if best:
            return self._choose_key(best[0])[0]
        return []

    def flush_formats(self) -> list[ConsoleRow]:
        """Return the rows that formats still hold at the final end of the output, then `choose_at_end`."""
        rows: list[ConsoleRow] = []
        for rank, states in self._ranks.items():
            for name, state in states.items():
                if name in BY_NAME:
                    flush = BY_NAME[name].flush
                else:
                    flush = None
                if flush is not None:
                    late = flush(state)
                else:
                    late = []
                if late:
                    rows += self._count_match(_candidate_key(name, rank, late), late)[0]
        return rows + self.choose_at_end()


_EVALUATED = re.compile(r"(?<![a-z])(?:val(?![u])|eval|test|dev(?!ic))")
"""The word of an evaluation, in lower-case text."""


def _is_plain_row(row: ConsoleRow) -> bool:
    """Return whether one line is enough: a step, a loss, and other numbers that a training logs."""
    roles = [role_of(tag) for tag in row.values]
    return row.step is not None and LOSS in roles and sum(role in _LOGGED for role in roles) >= 3


_LOGGED = (LOSS, RATE, NORM, SPEED, TIME)


def _candidate_key(name: str, rank: str, rows: list[ConsoleRow]) -> str:
    return JOINT.join((name, rank, rows[0].stream))


def _format_tier(key: str) -> int:
    each = BY_NAME.get(key.partition(JOINT)[0])
    if each is None:
        return GENERIC
    return each.tier


def _row_position(row: ConsoleRow) -> tuple[str, float]:
    return row.x_position() or ("", 0.0)


_MAYBE = re.compile(
    rb"\d|nan|inf|epoch|step|iter|loss {2}|\||-{6}|={6}|\xe2[\x94\x95]|[{}\[\]],?\s*$|:$", re.I
)
"""A piece without any of these (numbers, names of columns, rules, brackets of JSON) cannot match a
format.
"""


_PROGRESS = re.compile(
    r"\d%\||(?i:loss|acc|rew|score|ppl|step|iter|epoch|update)\w{0,20}[^\w\n]{1,12}\d", re.A
)
"""A line of a training that goes on. If it gives no row, the reader does not understand it."""


class ConsoleReader(AppendedFileReader):
    """Reads one log file. `source` becomes ``console:FORMAT`` once a format is chosen.

    Args:
        path: The file; it need not exist yet.
        ended: The program that writes the file has ended, so rows that wait for a later line are
            returned too.
    """

    source = "console"

    def __init__(self, path: str, ended: bool = False) -> None:
        super().__init__(path)
        self.ended = ended

    def _consume_records(
        self, window: FileWindow, state: JsonObject, batch: ReadBatch, limit: int
    ) -> None:
        chooser = FormatChooser(state.get("console"))
        offset = first = state["offset"]
        while offset < window.size:
            if len(batch.points) >= limit or offset - first >= BUDGET:
                batch.more = True
                break
            data = window.read_at(offset, WINDOW)
            end = count_complete_bytes(data)
            if self.ended and offset + len(data) == window.size and window.has_whole_end():
                end = len(data)  # the program has ended without ending its last line
            if end:
                offset += self._parse_pieces(data[:end], chooser, state, batch, limit)
            elif len(data) < WINDOW:
                break  # the piece is not complete yet
            else:  # an overlong piece: parse only its beginning
                self._parse_one_piece(data, chooser, state, batch)
                state["skip"] = True
                offset += len(data)
        if not batch.more:
            _add_rows(
                batch, chooser.flush_formats() if self.ended else chooser.choose_at_end(), state
            )
        state["offset"] = offset
        state["console"] = chooser.pack_state()
        if chooser.format_name:
            self.source = "console:" + chooser.format_name
        else:
            self.source = "console"

    def _parse_pieces(
        self,
        data: bytes,
        chooser: FormatChooser,
        state: JsonObject,
        batch: ReadBatch,
        limit: int,
    ) -> int:
        """Process the pieces of `data`; returns the number of bytes processed."""
        # The rest of the overlong piece was empty: the next piece is a new one.
        if state.get("skip") and data[0] in b"\r\n":
            del state["skip"]
        for found in PIECE.finditer(data):
            if len(batch.points) >= limit:
                return found.start()
            self._parse_one_piece(found.group(), chooser, state, batch)
        return len(data)

    @staticmethod
    def _parse_one_piece(
        piece: bytes, chooser: FormatChooser, state: JsonObject, batch: ReadBatch
    ) -> None:
        if state.pop("skip", False) or not _MAYBE.search(piece):
            return
        rank, text = split_rank_prefix(piece)
        rows, over = chooser.parse_piece(rank, text)
        if rows:
            state.pop("unread", None)
        # A log that grows by lines of progress without a readable step makes the step unknown, so
        # that no alert calls the run stuck (docs/scalars.md).
        elif chooser.chosen and _PROGRESS.search(text):
            state["unread"] = state.get("unread", 0) + 1
        if over:
            # The points of the replaced format from there on are hidden, and the planned number of
            # steps is sent again.
            place = rows[0].x_position()
        else:
            place = None
        if place is not None:
            # A count of rows does not continue the positions before it.
            if place[0] == ROW:
                place = (ROW, FROM_START)
            batch.add_restart(place[1], f"the output is now read as {chooser.format_name}")
            state.pop("total", None)
            state.pop("total_epochs", None)
        _add_rows(batch, rows, state)


def _add_rows(batch: ReadBatch, rows: list[ConsoleRow], state: JsonObject) -> None:
    for row in rows:
        place = row.x_position()
        if place is None:
            continue
        kind, x = place
        values = row.values
        if row.epoch is not None and kind != "epoch":
            values = dict(values, epoch=row.epoch)
        for tag, y in list(values.items())[:MAX_TAGS]:
            batch.points.append(MetricPoint(tag, kind, float(x), y, None))
        if row.is_summary and row.epoch is not None:
            # It is at two positions: the step at which it was printed, and its epoch.
            for tag, y in list(row.values.items())[:MAX_TAGS]:
                if tag.endswith("_epoch"):
                    tag = tag[: -len("_epoch")]
                batch.points.append(MetricPoint(tag, EPOCH, row.epoch, y, None))
        known = {"step": "total", "epoch": "total_epochs"}.get(kind, "")
        if row.total is not None and known and row.total != state.get(known, 0.0):
            state[known] = row.total
            batch.points.append(MetricPoint(TOTAL, kind, float(x), row.total, None))
