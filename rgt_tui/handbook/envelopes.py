"""Takes a log out of what it was exported in: JSON of collectors, CSV, supervisord; oldest line first.

The field with the text is found by what it holds, its name only helps.
"""

from __future__ import annotations

import contextlib
import csv
import io
import itertools
import json
import re
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import msgspec

# Enough for hundreds of lines: a field is only recognised over several records.
HEAD = 1 << 16
"""Bytes at the beginning of a log by which its envelope is recognised."""
LARGEST = 64 << 20
"""Largest export, in bytes, that is read whole: a JSON document, CSV, or one that is newest first.
"""
_USUAL = re.compile(
    r"(?i)(?:^|[._@])(?:log|logs|log_?line|log_?message|line|message|msg|text|text_?payload|event"
    r"|data|body|content|"
    r"(?:short|full|raw)_?message|raw|output)$"
)
_NO_TEXT = re.compile(r"[\w+-]*\d{4}-\d\d-\d\d[T ][\d:.,Z+ -]*|\S*|(?:/\S+)(?: \S+)*")
"""What metadata hold: a time, a number, one word, a command."""
_TRACE = re.compile(
    r'Traceback \(most recent call last\)|^ +File "[^"\n]+", line \d+', re.MULTILINE
)
_RAISED = re.compile(r"(?:[A-Za-z_]\w*\.)*[A-Z]\w*(?:Error|Exception|Interrupt|Exit|Failure)")
_MESSAGE = re.compile(r"(?i)value|message|msg|error|reason|detail")
_PREFIX = re.compile(r"[^{\"]{0,200}?(?=\{\s*\")")
_BLOCK_HEAD = re.compile(
    r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} DEBG '[^'\n]{1,100}' std(?:out|err) output:\s*"
)
_TIME = re.compile(
    r"[\W_]{0,3}((?:\d{4}-\d\d-\d\d[T ]|\d\d/\d\d/\d{2,4} )?\d\d:\d\d:\d\d(?:[.,]\d{1,9})?)\b"
)
_STEP = re.compile(
    r"(?i)\b(?:global_)?(?:step|iter|iteration|epoch)\b['\"]?[\s:=\[#]{0,4}(\d{1,9})\b"
)
_NAME = re.compile(r"[@A-Za-z_][\w @./()-]{0,40}")
"""Name of a column."""
_KEY = re.compile(r"(\w[\w.@/-]{0,60}): ?(.*)")


class LogSource:
    """A log without its envelope, and the line of the file that each of its lines came from."""

    def __init__(self) -> None:
        self._origins: array[int] | None = None

    def line_of(self, number: int) -> int:
        """Return the line of the file, from 1, that a line of the text came from."""
        if self._origins is None or not 0 < number <= len(self._origins):
            return number
        return self._origins[number - 1]

    def read_text(self, pieces: Iterable[bytes]) -> Iterator[bytes]:
        """Yield the text, oldest line first, in pieces; a plain log is yielded as it is.

        Args:
            pieces: The file's bytes, as UTF-8, in pieces of any size.
        """
        pieces = iter(pieces)
        head = b""
        # A pipe returns little pieces, so they are collected first.
        for piece in pieces:
            head += piece
            if len(head) >= HEAD:
                break
        read = _choose_reader(
            head[:HEAD].decode("utf-8", "surrogateescape"), whole=len(head) < HEAD
        )
        if read is None:
            # A plain log is not held in memory, so it may have any length.
            yield head
            yield from pieces
            return
        data = head
        for piece in pieces:
            data += piece
            # Too large to sort: lines are then searched inside their envelope.
            if len(data) > LARGEST:
                yield data
                yield from pieces
                return
        # surrogateescape keeps bytes that are not UTF-8, which `decode_line` can read as GBK and
        # the like.
        lines = read(data.decode("utf-8", "surrogateescape"))
        # 8 bytes a line, where a list of ints would need four times as much.
        self._origins = array("L")
        text = []
        for line, origin in lines:
            self._origins.append(origin)
            text.append(line)
        joined = "".join(f"{line}\n" for line in text)
        try:
            yield joined.encode("utf-8", "surrogateescape")  # other encodings keep their bytes
        except UnicodeEncodeError:
            yield joined.encode("utf-8", "replace")


NumberedLine = tuple[str, int]
"""A line of the text, and the line of the file that it came from."""


def _choose_reader(head: str, *, whole: bool) -> Callable[[str], Iterable[NumberedLine]] | None:
    """Return the function that reads this kind of export; None = it is a plain log."""
    lines = [line for line in head.split("\n") if line.strip()]
    # The last line of the head is cut.
    if not whole and len(lines) > 1:
        lines.pop()
    if not lines:
        return None
    rows = [_parse_object(line) for line in lines]
    objects = [row for row in rows if row is not None]
    # Not all: collectors mix plain lines (of the shell, of Docker) into their records.
    if len(objects) > 0.6 * len(lines):
        field = find_text_field(objects)
        if field is not None:
            return lambda text: _in_time_order(_of_json_lines(text, field))
    if (len(lines) == 1 or len(objects) <= 0.6 * len(lines)) and _is_document(head, whole=whole):
        return _of_document
    if (column := _find_csv_column(head, whole=whole)) is not None:
        return lambda text: _in_time_order(_of_csv(text, *column))
    # One heading could be a line of the program itself.
    if sum(_BLOCK_HEAD.match(line) is not None for line in lines) >= 2:
        return _of_blocks
    if (key := _find_yaml_key(lines)) is not None:
        return lambda text: _in_time_order(_of_yaml(text, key))
    if _is_newest_first(lines):
        return _of_newest_first
    return None


def unwrap_record(line: str) -> str | None:
    """Return the text of one JSON record of a log collector, with exceptions as lines; None = it is none.

    A record that carries figures stays as it is, followed by the exceptions in it.
    """
    record = _parse_object(line)
    if record is None:
        return None
    # A record with figures is one of metrics: its fields are the log.
    if not _has_figures(record) and (field := find_text_field([record])) is not None:
        return _text_of(record, field)
    raised = "\n".join(_describe_exceptions(record, ""))
    if raised:
        return f"{line}\n{raised}"
    return None


def find_text_field(records: Sequence[dict[str, Any]]) -> tuple[str, ...] | None:
    """Return the path of the field that holds a log's text, by what these records hold; None = there is none."""
    found: dict[tuple[str, ...], list[str]] = {}
    # Enough to distinguish a text from metadata.
    for record in records[:300]:
        for path, text in _iterate_texts(record):
            found.setdefault(path, []).append(text)
    best, most = None, 0.0
    for path, texts in found.items():
        wordy = sum(_NO_TEXT.fullmatch(text.strip()) is None for text in texts) / len(texts)
        # A name alone does not decide: "message" is often the name of an event, with the text next
        # to it.
        usual = _USUAL.search(path[-1]) is not None
        # Fewer records say nothing about which field differs from one to the next.
        enough = 5
        if not usual and (len(texts) < enough or len(set(texts)) < 0.5 * len(texts) or wordy < 0.5):
            continue
        length = sum(map(len, texts)) / len(texts)
        score = (
            wordy * len(texts) * len(set(texts)) / len(texts) / len(records)
            + min(length, 200) / 1000
        )
        score += usual
        if (wordy > 0 or (usual and len(records) > enough)) and score > most:
            best, most = path, score
    # Texts that repeat next to numbers that change: metrics again.
    if best is not None and len(set(found[best])) < 0.5 * len(found[best]):
        figures = sum(map(_has_figures, records))
        if figures > 0.3 * len(records):
            return None
    return best


def _iterate_texts(
    record: dict[str, Any], path: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], str]]:
    for key, value in record.items():
        text = _as_text(value)
        if text is not None:
            yield (*path, key), text
        # Deeper fields are arguments of the program, not its output.
        elif isinstance(value, dict) and len(path) < 3:
            yield from _iterate_texts(value, (*path, key))


def _as_text(value: Any) -> str | None:
    """Return a text, which journald may write as a list of bytes, and a notebook as one of lines."""
    if isinstance(value, str):
        return value
    if not isinstance(value, list) or not value:
        return None
    if all(isinstance(part, str) for part in value):
        return "".join(value)
    if all(type(byte) is int and 0 <= byte < 256 for byte in value):
        return bytes(value).decode("utf-8", "replace")
    return None


def _has_figures(record: dict[str, Any]) -> bool:
    return any(
        # Integers are ids and sizes in any log; losses and rates are floats.
        isinstance(value, float) and _TIME_KEY.search(key) is None
        for key, value in record.items()
    )


_TIME_KEY = re.compile(
    r"(?i)(?:time|date|(?:^|[_@.])ts|(?:^|[_.])at|elapsed|created|msecs|score)$|time|timestamp"
)


def _time_of(record: dict[str, Any]) -> str | float | None:
    """Return what a record's times are compared by."""
    for key, value in record.items():
        if _TIME_KEY.search(key) is not None:
            if isinstance(value, (int, float)):
                return float(value)
            if isinstance(value, str) and value[:4].isdecimal():
                if value.isdecimal():
                    return float(value)
                return value
    return None


def _parse_object(line: str) -> dict[str, Any] | None:
    """Return the JSON object of a line, which may stand in an array or behind a collector's own prefix."""
    # A JSON array with a record on each line.
    line = line.strip().rstrip(",]")
    if line[-1:] != "}":
        return None
    if line[:1] != "{":
        prefix = _PREFIX.match(line)
        if prefix is None:
            return None
        line = line[prefix.end() :]
    try:
        value = msgspec.json.decode(line)
    # RecursionError: a line of a hostile log can be nested deeply.
    except (msgspec.DecodeError, ValueError, RecursionError):
        return None
    if isinstance(value, dict):
        return value
    return None


def _text_of(record: dict[str, Any], field: tuple[str, ...]) -> str | None:
    """Return a record's text, unwrapped again if it is a record itself, with the exceptions that it carries."""
    value: Any = record
    for key in field:
        if not isinstance(value, dict):
            return None
        value = value.get(key)
    text = _as_text(value)
    if text is None:
        return None
    # Docker's records contain those of the program's own logger.
    if text.startswith("{"):
        text = unwrap_record(text) or text
    raised = "\n".join(_describe_exceptions(record, text))
    if not raised:
        return text
    return text.rstrip("\n") + "\n" + raised


def _describe_exceptions(value: Any, text: str) -> Iterator[str]:
    """Yield the exceptions within a record as the lines that Python prints."""
    if isinstance(value, str):
        if value != text and _TRACE.search(value) is not None:
            yield value.rstrip("\n")
    elif isinstance(value, list):
        for item in value:
            yield from _describe_exceptions(item, text)
    elif isinstance(value, dict):
        texts = {key: said for key, said in value.items() if isinstance(said, str)}
        # By its value: each logging library has another name for the field.
        kind = next((said for said in texts.values() if _RAISED.fullmatch(said)), None)
        traced = [part for item in value.values() for part in _describe_exceptions(item, text)]
        yield from traced
        if (
            kind is None
            or any(kind.rpartition(".")[2] in part for part in traced)
            or kind + ":" in text
        ):
            return
        words = [said for key, said in texts.items() if said != kind and _MESSAGE.search(key)]
        frames = [line for item in value.values() for line in _frame_lines(item)]
        if words and frames:
            yield "Traceback (most recent call last):"
            yield from frames
        if words:
            yield f"{kind}: {words[-1]}"


def _frame_lines(frames: Any) -> list[str]:
    """Return the lines of a traceback's frames; empty if these are none."""
    found: list[str] = []
    if not isinstance(frames, list):
        return found
    for frame in frames:
        if isinstance(frame, dict) and isinstance(name := frame.get("filename"), str):
            place = f"line {frame.get('lineno', 0)}, in {frame.get('name', '?')}"
            found.append(f'  File "{name}", {place}')
            if isinstance(source := frame.get("line"), str) and source.strip():
                found.append(f"    {source.strip()}")
    return found


ExportedRecord = tuple[str, int, "str | float | None"]
"""Text, first line in the file, and time of a record; None = unknown."""


def _in_time_order(records: Iterable[ExportedRecord]) -> Iterator[NumberedLine]:
    """Yield the lines of records, the oldest first; a line that was cut in two is put together again."""
    records = list(records)
    if _is_descending([time for _, _, time in records if time is not None]):
        records.reverse()
    # Only then does a text without a line end continue in the next record (Docker cuts at 16 KiB).
    whole = sum(text.endswith("\n") for text, _, _ in records) > 0.3 * len(records)
    held = ""
    for text, origin, _ in records:
        text = held + text
        held = ""
        if whole and not text.endswith("\n") and len(text) < HEAD:
            held = text
            continue
        for line in text.removesuffix("\n").split("\n"):
            yield line, origin
    if held:
        yield held, records[-1][1]


def _is_descending(times: Sequence[Any]) -> bool:
    ups = downs = 0
    for before, after in itertools.pairwise(times):
        if type(before) is type(after) and before != after:
            ups += before < after
            downs += before > after
    # Nine to one: clocks of several machines make a few steps back in any log.
    return downs >= 3 and downs > 9 * ups


def _of_json_lines(text: str, field: tuple[str, ...]) -> Iterator[ExportedRecord]:
    for number, line in enumerate(text.removesuffix("\n").split("\n"), 1):
        record = _parse_object(line)
        if record is not None and (said := _text_of(record, field)) is not None:
            yield said, number, _time_of(record)
        else:
            yield (unwrap_record(line) or line) + "\n", number, None


def _is_document(head: str, *, whole: bool) -> bool:
    """Return whether it begins with a JSON object or array; `whole` = nothing follows."""
    head = head.lstrip()
    if head[:1] not in ("[", "{"):
        return False
    try:
        _, end = json.JSONDecoder().raw_decode(head)
    except json.JSONDecodeError as error:
        # Cut in the middle of a document, unless the error is near its begin: then it is no JSON.
        return not whole and error.pos > len(head) // 2
    except (ValueError, RecursionError):
        return False
    return head[end:].lstrip()[:1] in ("", "[", "{")


def _of_document(text: str) -> Iterable[NumberedLine]:
    """Yield the lines of the records in a JSON document, or in several."""
    decoder, at, values = json.JSONDecoder(), 0, []
    try:
        while at < len(text):
            value, at = decoder.raw_decode(text, at)
            values.append(value)
            at += len(text[at : at + HEAD]) - len(text[at : at + HEAD].lstrip())
    except (ValueError, RecursionError):
        if not values:
            return _plain_lines(text)
    place, number, found = 0, 1, []
    for said, time in _gather_records(values):
        # The line number is found by the text: the decoder does not report positions.
        written = text.find(json.dumps(said)[1:-1][:60], place)
        if written >= 0:
            number += text.count("\n", place, written)
            place = written
        found.append((said, number, time))
    if not found:
        return _plain_lines(text)
    return _in_time_order(found)


def _is_timed_line(item: Any) -> bool:
    """Return whether it is a pair of a time and a line, as Loki answers."""
    if not isinstance(item, list) or len(item) != 2:
        return False
    return str(item[0]).isdecimal() and isinstance(item[1], str)


def _texts_and_times(
    records: Iterable[dict[str, Any]], field: tuple[str, ...]
) -> Iterator[tuple[str, str | float | None]]:
    for record in records:
        text = _text_of(record, field) or "\n".join(_describe_exceptions(record, ""))
        if text:
            yield text, _time_of(record)


def _gather_records(value: Any) -> Iterator[tuple[str, str | float | None]]:
    if isinstance(value, dict):
        if "nbformat" in value:  # the cells' code is no log
            value = {str(at): cell.get("outputs") for at, cell in enumerate(value["cells"])}
        for item in value.values():
            yield from _gather_records(item)
    elif isinstance(value, list):
        records = [item for item in value if isinstance(item, dict)]
        pairs = [item for item in value if _is_timed_line(item)]
        if records and (field := find_text_field(records)) is not None:
            yield from _texts_and_times(records, field)
        elif pairs and len(pairs) == len(value):
            yield from ((item[1], float(item[0])) for item in pairs)
        else:
            for item in value:
                yield from _gather_records(item)


def _plain_lines(text: str) -> Iterator[NumberedLine]:
    return ((line, number) for number, line in enumerate(text.removesuffix("\n").split("\n"), 1))


def _find_csv_column(head: str, *, whole: bool) -> tuple[str, int, int | None] | None:
    """Return the delimiter, and the columns of text and time, of a table that holds a log."""
    for delimiter in ",;\t":
        try:
            rows = [row for row in csv.reader(io.StringIO(head), delimiter=delimiter) if row]
        except csv.Error:
            continue
        if not whole:
            rows = rows[:-1]
        # Rows that are needed, the first with the names.
        enough = 3
        if len(rows) < enough or len(rows[0]) < 2 or not all(map(_NAME.fullmatch, rows[0])):
            continue
        names = rows[0]
        records = [dict(zip(names, row, strict=True)) for row in rows[1:] if len(row) == len(names)]
        if len(records) < 0.8 * len(rows[1:]) or (field := find_text_field(records)) is None:
            continue
        spaced = sum(" " in record[field[0]].strip() for record in records)
        if spaced < 0.2 * len(records):
            continue
        times = [at for at, name in enumerate(names) if _TIME_KEY.search(name) is not None]
        return delimiter, names.index(field[0]), next(iter(times), None)
    return None


def _of_csv(text: str, delimiter: str, column: int, time: int | None) -> Iterator[ExportedRecord]:
    reader = csv.reader(io.StringIO(text), delimiter=delimiter)
    before = 0
    try:
        for row in reader:
            number, before = before + 1, reader.line_num
            if number == 1 or len(row) <= column:
                continue
            at = None
            if time is not None and time < len(row):
                at = _time_of({"time": row[time]})
            yield row[column], number, at
    except csv.Error:  # such as a field that is too long: the rest as it is
        for line, number in _plain_lines(text):
            if number > before:
                yield f"{line}\n", number, None


def _of_blocks(text: str) -> Iterator[NumberedLine]:
    """Yield the lines between the headings that supervisord puts before each piece of a program's output."""
    blank = None
    for line, number in _plain_lines(text):
        if _BLOCK_HEAD.fullmatch(line) is None:
            if blank is not None:
                yield blank
            blank = None
            if line:
                yield line, number
            else:
                blank = line, number
        else:
            blank = None


def _find_yaml_key(lines: Sequence[str]) -> str | None:
    """Return the key of the text in documents of YAML, as gcloud prints them."""
    records = [_parse_yaml(part)[0] for part in _split_yaml("\n".join(lines))]
    # Documents that are needed.
    enough = 3
    if len(records) < enough or (field := find_text_field(records)) is None:
        return None
    return field[0]


def _of_yaml(text: str, key: str) -> Iterator[ExportedRecord]:
    number = 1
    for part in _split_yaml(text):
        record, lines = _parse_yaml(part)
        if key in record:
            yield record[key], number + lines[key], _time_of(record)
        number += part.count("\n") + 2


def _split_yaml(text: str) -> list[str]:
    parts = text.removeprefix("---\n").split("\n---\n")
    if len(parts) > 1:
        return parts
    return []


def _parse_yaml(text: str) -> tuple[dict[str, Any], dict[str, int]]:
    """Return the texts of a document's own keys, and their lines from 1."""
    record: dict[str, Any] = {}
    lines: dict[str, int] = {}
    rows = text.split("\n")
    for number, row in enumerate(rows, 1):
        match = _KEY.fullmatch(row)
        if match is not None:
            more = itertools.takewhile(lambda row: row[:1] in (" ", ""), rows[number:])
            record[match[1]], lines[match[1]] = _parse_yaml_value(match[2], list(more)), number
    return record, lines


def _parse_yaml_value(text: str, more: Sequence[str]) -> str:
    if text[:1] in ("|", ">"):
        return "\n".join(row[2:] for row in more).rstrip("\n")
    text = " ".join([text, *map(str.strip, more)]).strip()
    if text[:1] == '"':
        with contextlib.suppress(ValueError):
            return str(json.loads(text))
    if text[:1] == "'":
        return text[1:-1].replace("''", "'")
    return text


def _is_newest_first(lines: Sequence[str]) -> bool:
    # Fewer descents may be an accident.
    enough = 8
    times = [match[1] for line in lines if (match := _TIME.match(line)) is not None]
    if len(times) >= enough:
        return _is_descending(times)
    steps = [int(match[1]) for line in lines if (match := _STEP.search(line)) is not None]
    return len(steps) >= enough and _is_descending(steps) and steps == sorted(steps, reverse=True)


def _of_newest_first(text: str) -> Iterator[NumberedLine]:
    """Yield the lines of a log that is newest first; lines without a time belong to the one before them."""
    lines = list(_plain_lines(text))
    ordered = (
        re.search(r'Traceback \(most recent call last\):\n[^\n]{0,120} File "', text) is not None
    )
    records: list[list[NumberedLine]] = []
    stamped = any(_TIME.match(line) is not None for line, _ in lines[:100])
    for line, number in lines:
        if records and stamped and ordered and _TIME.match(line) is None:
            records[-1].append((line, number))
        else:
            records.append([(line, number)])
    return itertools.chain.from_iterable(reversed(records))
