"""All readable formats: file names, first bytes, reader and preference."""

from __future__ import annotations

import json
import os
import re
from fnmatch import fnmatchcase, translate

from rgt_wire.metric_roles import LOSS, MEASURES, position_of, role_of

from rgt_box.metrics.reader_base import MAX_TAGS
from rgt_box.metrics.rows import CHECKPOINT, IDENTIFIERS, flatten_row, has_no_position

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable, NamedTuple

    from rgt_wire import JsonObject

    from rgt_box.metrics.reader_base import MetricReader

    Sniff = Callable[[str, str, bytes], bool]

    class FileFormat(NamedTuple):
        """One file format."""

        kind: str
        names: tuple[str, ...]
        """Lower-case file names; ``*`` matches anything. With the directory if it matters."""
        rank: int
        """Preference if several files have the same metric; 0 is best."""
        sniff: Sniff | None
        """(path, lower-case name, first `SNIFF` bytes) → whether a file has this format. None:
        never used for a file."""
        reader: str
        """Module of this package and its reader class; imported when first needed."""
        is_database: bool = False
        """It is read in a child process, see `sqlite_child`."""
        counts: Sniff | None = None
        """Whether the rows of such a file have no position of their own, so that they are counted.
        """
else:
    from collections import namedtuple

    FileFormat = namedtuple(
        "FileFormat", "kind names rank sniff reader is_database counts", defaults=(False, None)
    )

COUNTED, COUNTED_RANK = ":counted", 7
"""End of the kind of a file whose rows are only counted, and its preference: they may be the
samples of one evaluation, so every file with positions comes first, also what the console
prints."""
SNIFF = 64 << 10
"""First bytes used to detect a format: enough for a first row with hundreds of metrics."""
SQLITE = b"SQLite format 3\0"
# A line of MLflow's file store: milliseconds and a value; all but old versions add the step.
_MLFLOW = re.compile(rb"\d{10,16} \S{1,40}(?: -?\d{1,18}\b.*)?\s*(?:\n|$)")
_PAIR = re.compile(r"[^=:]+[=:]\s*(?:[-+]?[.\d]\S*|nan|[-+]?inf)\W{0,20}(?:\r.*)?", re.S)
"""A cell that is a name with its value, as in a progress bar; ``\\r`` begins the bar's next frame.
"""
_NUMBER_CELL = re.compile(r"[-+]?\d{1,20}(?:\.\d{0,20})?(?:e[-+]?\d{1,3})?")
_YOLO = re.compile(rb"\s{0,9}\d{1,6}/\d{1,6}\s{1,9}[\d.]{1,9}G(?:\s{1,20}[-+.\de]{1,20}){13}\s")
_HOLE = re.compile(rb"(?:^|(?<=\n))\0{4,}")
"""Zeros at the beginning of a text or of a line."""
_TORCHTUNE = re.compile(rb"Step \d{1,15} \| \S")


def _is_tensorboard(path: str, name: str, head: bytes) -> bool:
    from rgt_box.metrics.tensorboard import cached_data_length

    # The length of a record has its own checksum, so the first 12 bytes prove the format.
    return len(head) >= 12 and cached_data_length(head[:12]) is not None


def _is_hf_trainer(path: str, name: str, head: bytes) -> bool:
    return head.lstrip()[:1] == b"{" and (b'"log_history"' in head or name == "trainer_state.json")


def _is_wandb(path: str, name: str, head: bytes) -> bool:
    return head[:4] == b":W&B"


def _is_console_log(path: str, name: str, head: bytes) -> bool:
    # A log that another program has emptied has zeros up to the place where its own writes on.
    text = _HOLE.sub(b"", head)
    return b"\0\0\0\0" not in text and head[:16] != SQLITE


def _is_torchtune(path: str, name: str, head: bytes) -> bool:
    return _TORCHTUNE.match(head) is not None and name.startswith("log_")


def _is_mlflow_files(path: str, name: str, head: bytes) -> bool:
    return _MLFLOW.match(head) is not None


def _merged_row(head: bytes) -> JsonObject:
    """Return the merged keys of the first JSON lines; {} if they are not JSON objects."""
    found: JsonObject = {}
    # Several lines, because frameworks write rows of another kind first (a start event, the
    # settings).
    for line in head.split(b"\n")[:12]:
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):
            break
        if not isinstance(row, dict):
            return {}
        found.update(row)
    return found


def _row_with(*keys: str) -> Sniff:
    return lambda path, name, head: all(key in row for row in [_merged_row(head)] for key in keys)


def _is_rgt_metrics(path: str, name: str, head: bytes) -> bool:
    row = _merged_row(head)
    # Other loggers (structlog) call their message "event", too.
    return "step" in row and "time" in row and ("event" in row or name == "metrics.jsonl")


def _is_verl(path: str, name: str, head: bytes) -> bool:
    row = _merged_row(head)
    return "step" in row and isinstance(row.get("data"), dict)


def _is_jsonl(path: str, name: str, head: bytes) -> bool:
    row = _merged_row(head)
    keys = [key for part in (row, *row.values()) if isinstance(part, dict) for key in part]
    has_numbers = any(type(value) in (int, float, dict) for value in row.values())
    placed = any(map(position_of, keys)) or (
        IDENTIFIERS.isdisjoint(map(str.lower, row))
        and any(role_of(key) == LOSS and type(value) is float for key, value in row.items())
    )
    return placed and has_numbers


def _counts_lines(path: str, name: str, head: bytes) -> bool:
    return has_no_position(flatten_row(_merged_row(head), MAX_TAGS))


def _is_json_document(path: str, name: str, head: bytes) -> bool:
    from rgt_box.metrics.json_documents import is_json_document

    return is_json_document(path, head)


def _counts_lists(path: str, name: str, head: bytes) -> bool:
    from rgt_box.metrics.json_documents import counts_rows

    return counts_rows(path)


def _column_names(head: bytes) -> list[str]:
    """Return the names of a table's columns in lower case; [] if the file is no table."""
    from rgt_box.metrics.tables import find_header

    if b"\0" in head[:4096]:
        return []
    header = find_header(head[:16384])
    if header is None:
        return []
    # pandas names the index that another program had saved "Unnamed: 0".
    names = [name.lower().replace("unnamed: 0", "") for name in header.names]
    if any(map(_PAIR.fullmatch, names)):
        return []  # "2.25s/it, loss=0.31": a bar
    if any(map(_NUMBER_CELL.fullmatch, names)):
        return []  # "epoch, 1, loss, 0.41": a row
    return names


def _is_deepspeed(path: str, name: str, head: bytes) -> bool:
    names = _column_names(head)
    return len(names) == 2 and names[0] == "step" and name.endswith(f"samples_{names[1]}.csv")


def _is_ultralytics(path: str, name: str, head: bytes) -> bool:
    names = _column_names(head)
    return "epoch" in names and any(
        each.startswith("train/") and each.endswith("_loss") for each in names
    )


def _is_lightning(path: str, name: str, head: bytes) -> bool:
    names = _column_names(head)
    return "step" in names and ("epoch" in names or (name == "metrics.csv" and len(names) > 1))


def _is_keras_csv(path: str, name: str, head: bytes) -> bool:
    names = _column_names(head)
    return names[:1] == ["epoch"] and "step" not in names and any("loss" in each for each in names)


def _is_csv(path: str, name: str, head: bytes) -> bool:
    names = _column_names(head)
    roles = list(map(role_of, names))
    if names[:1] and names[0] in CHECKPOINT:
        return len(names) > 1
    if names == ["wall time", "step", "value"]:
        return True  # what TensorBoard's page downloads
    if names[:3] == ["r", "l", "t"]:
        return True  # Stable-Baselines' monitor
    # Without a position, the rows are counted, if the names are those of a training.
    placed = any(map(position_of, names)) or (
        len(names) > 1
        and has_no_position(names)
        and IDENTIFIERS.isdisjoint(names)
        and _has_figures(head)
    )
    return placed and any(role in MEASURES for role in roles)


def _is_optuna(path: str, name: str, head: bytes) -> bool:
    names = _column_names(head)
    return {"number", "state"}.issubset(names) and any(each.startswith("value") for each in names)


def _is_yolo_results(path: str, name: str, head: bytes) -> bool:
    return _YOLO.match(head) is not None


def _counts_cells(path: str, name: str, head: bytes) -> bool:
    names = _column_names(head)
    return names[0] not in CHECKPOINT and has_no_position(names)


def _is_number_table(path: str, name: str, head: bytes) -> bool:
    from rgt_box.metrics.tables import NumberLayout

    return NumberLayout(head[:16384]).is_table(os.path.splitext(name)[0])


def _counts_numbers(path: str, name: str, head: bytes) -> bool:
    from rgt_box.metrics.tables import NumberLayout

    return NumberLayout(head[:16384]).column is None


def _has_figures(head: bytes) -> bool:
    """Return whether the first rows below the names are numbers, and as many."""
    from rgt_box.metrics.tables import find_header

    header = find_header(head[:16384])
    return header is not None and header.is_strict


def _tables_with(*words: str) -> Sniff:
    def has_all_words(path: str, name: str, head: bytes) -> bool:
        if head[:16] != SQLITE:
            return False
        tables = schema(path, head)
        return all(word in tables for word in words)

    return has_all_words


def schema(path: str, head: bytes) -> str:
    """Return a database's CREATE statements, from its first page if they are there."""
    # Byte 100 is the type of the first page. 13 is a leaf: the whole schema is on this page, and no
    # child has to be started to read it.
    if b"CREATE TABLE" in head and b"metrics" in head and head[100:101] == b"\x0d":
        return head.decode("latin-1")
    from rgt_box.metrics.sqlite_child import tables

    return tables(path)


_LINES = "jsonl.JsonLines"
_TABLE = "tables.Table"
_DB = ("*.db", "*.sqlite")
_TABLES = ("*.csv", "*.tsv")
_NUMBERS = ("*loss*.txt", "*loss*.log", "*loss*.csv", "*acc*.txt", "*reward*.txt")
_DOCUMENTS = (
    "*history*.json",
    "*metrics*.json",
    "*log*.json",
    "*loss*.json",
    "*results*.json",
    # Chainer's LogReport writes its JSON list under this name, and `> log` the console.
    "log",
)
_LOGS = (
    "log_*.txt",
    "*.log",
    "*.out",
    "*.err",
    "*log*.txt",
    "*output*.txt",
    "std*.txt",
    "out.txt",
    "err.txt",
    "console*.txt",
    "nohup*.txt",
    "stdout",
    "stderr",
    "log",
)

FORMATS = (
    FileFormat("tensorboard", ("*tfevents*",), 2, _is_tensorboard, "tensorboard.EventFile"),
    FileFormat("tensorboard_dir", (), 2, None, "tensorboard.EventDirectory"),
    FileFormat("wandb", ("*.wandb",), 4, _is_wandb, "wandb.WandbFile"),
    FileFormat("mlflow", _DB, 3, _tables_with("metrics", "run_uuid", "is_nan"),
               "trackers.MlflowDatabase", True),
    FileFormat("trackio", _DB, 3, _tables_with("metrics", "run_name"), "trackers.TrackioDatabase",
               True),
    FileFormat("aitoolkit", _DB, 3, _tables_with("metrics", "value_real"),
               "trackers.AiToolkitDatabase", True),
    FileFormat("rgt", ("*.jsonl",), 0, _is_rgt_metrics, _LINES),
    FileFormat("llamafactory", ("*.jsonl",), 1, _row_with("current_steps"), _LINES),
    FileFormat("verl", ("*.jsonl",), 1, _is_verl, _LINES),
    FileFormat("mmengine", ("*.jsonl", "*.json"), 1, _row_with("iter", "step", "time"), _LINES),
    FileFormat("detectron2", ("*.jsonl", "*.json"), 1, _row_with("iteration"), _LINES),
    FileFormat("jsonl", ("*.jsonl", "metrics.json"), 1, _is_jsonl, _LINES, counts=_counts_lines),
    FileFormat("hf_trainer", ("trainer_state.json",), 6, _is_hf_trainer, "jsonl.TrainerState"),
    FileFormat("json", _DOCUMENTS, 1, _is_json_document, "json_documents.JsonDocument",
               counts=_counts_lists),
    FileFormat("deepspeed", _TABLES, 1, _is_deepspeed, _TABLE),
    FileFormat("ultralytics", _TABLES, 1, _is_ultralytics, _TABLE),
    FileFormat("lightning", _TABLES, 1, _is_lightning, _TABLE),
    FileFormat("keras", _TABLES, 1, _is_keras_csv, _TABLE),
    FileFormat("optuna", _TABLES, 1, _is_optuna, _TABLE),
    FileFormat("csv", _TABLES, 1, _is_csv, _TABLE, counts=_counts_cells),
    FileFormat("mlflow_files", ("metrics/*",), 3, _is_mlflow_files, "trackers.MetricFile"),
    FileFormat("numbers", _NUMBERS, 1, _is_number_table, "tables.NumberTable",
               counts=_counts_numbers),
    FileFormat("yolo", ("*results*.txt",), 1, _is_yolo_results, "tables.YoloResults"),
    FileFormat("torchtune", ("log_*.txt",), 1, _is_torchtune, "tables.TorchtuneLog"),
    FileFormat("console", _LOGS, 5, _is_console_log, "console.ConsoleReader"),
)  # fmt: skip
"""Formats with the most specific markers come first: the first match wins.

Ranks: exact and small (0, 1), exact (2), late (3, 4), rounded (5), and stale between two saves (6).
Files whose rows are counted come last, see `COUNTED`.
"""
BY_KIND = {each.kind: each for each in FORMATS}
_BY_NAME = {
    pattern: [each.kind for each in FORMATS if pattern in each.names]
    for pattern in dict.fromkeys(pattern for each in FORMATS for pattern in each.names)
}
_KNOWN = re.compile("|".join(translate(pattern) for pattern in _BY_NAME if "/" not in pattern))
_KNOWN_INSIDE = re.compile("|".join(translate(pattern) for pattern in _BY_NAME if "/" in pattern))
"""Match any of the names; checked first, because few of a process's open files have such a name."""


def candidates(path: str) -> tuple[str, ...]:
    """Return the kinds that a file may have by its name; () if it should be ignored."""
    folder, name = os.path.split(path)
    name = name.lower()
    inside = os.path.basename(folder).lower() + "/" + name
    # mmengine writes the same rows a second time under this name.
    if name == "scalars.json":
        return ()
    if not (_KNOWN.match(name) or _KNOWN_INSIDE.match(inside)):
        if "/metrics/" in folder + "/":
            return ("mlflow_files",)
        return ()
    found: set[str] = set()
    for pattern, kinds in _BY_NAME.items():
        shown = name
        if "/" in pattern:
            shown = inside
        if fnmatchcase(shown, pattern):
            found.update(kinds)
    return tuple(each for each in BY_KIND if each in found)


def identify_kind(path: str, kinds: tuple[str, ...] | None = None) -> str | None:
    """Return the kind of a file.

    Args:
        path: The file.
        kinds: Kinds to check; None checks all, and any other text counts as a console.

    Returns:
        The kind, with `COUNTED` at its end if the rows are counted; None for a file that is empty
        or has no known kind.

    Raises:
        OSError: when the file cannot be read.
    """
    from rgt_box.files import open_regular

    fd = open_regular(path)
    try:
        head = os.read(fd, SNIFF)
    finally:
        os.close(fd)
    if not head:
        return None
    name = os.path.basename(path).lower()
    for each in FORMATS if kinds is None else [BY_KIND[kind] for kind in kinds]:
        if each.sniff is not None and each.sniff(path, name, head):
            if each.counts is not None and each.counts(path, name, head):
                return each.kind + COUNTED
            return each.kind
    return None


def preference(kind: str) -> int:
    """Return the preference of a kind, 0 is best; ``console:FORMAT`` counts as a console."""
    if kind.endswith(COUNTED):
        return COUNTED_RANK
    found = BY_KIND.get(kind.partition(":")[0])
    if found is None:
        return max(each.rank for each in FORMATS)
    return found.rank


def open_reader(kind: str, path: str) -> MetricReader:
    """Return the reader of one file, for use in this process.

    Args:
        kind: A key of `BY_KIND`.
        path: The file; for ``tensorboard_dir`` a directory, for ``tensorboard`` one of its event
            files.
    """
    from rgt_box.metrics.reader_base import new_reader

    kind = kind.partition(":")[0]
    return new_reader(BY_KIND[kind].reader, path, kind)


def open_source(kind: str, path: str, ended: bool = False) -> MetricReader:
    """Return the reader of a source; databases are read in a child process.

    Args:
        kind: A key of `BY_KIND`.
        path: The file, or the directory of a ``tensorboard_dir``.
        ended: For a console: the program that writes it has ended, so rows that wait for a later
            line are returned.
    """
    if BY_KIND[kind.partition(":")[0]].is_database:
        from rgt_box.metrics.sqlite_child import ConfinedReader

        return ConfinedReader(kind, path, BY_KIND[kind].reader)
    reader = open_reader(kind, path)
    reader.ended = ended
    return reader
