"""Which source a file is: never by its name alone, always by its beginning as well."""

from __future__ import annotations

import json
import os
import re
from fnmatch import fnmatchcase

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable

SNIFF = 64 << 10
"""Bytes by which a file is known: a first row with hundreds of metrics fits in."""

NAMES = (
    ("*tfevents*", ("tensorboard",)),
    ("trainer_state.json", ("hf_trainer",)),
    ("*.wandb", ("wandb",)),
    ("*.db", ("mlflow", "trackio", "aitoolkit")),
    ("*.sqlite", ("mlflow", "trackio", "aitoolkit")),
    ("*.jsonl", ("rgt", "llamafactory", "verl", "mmengine", "detectron2", "jsonl")),
    ("metrics.json", ("detectron2", "mmengine", "jsonl")),
    ("*.json", ("mmengine", "detectron2")),
    ("*.csv", ("deepspeed", "ultralytics", "lightning", "keras", "csv")),
    ("metrics/*", ("mlflow_files",)),
    ("log_*.txt", ("torchtune", "console")),
    ("*.log", ("console",)),
    ("*.out", ("console",)),
    ("*.err", ("console",)),
    ("log*.txt", ("console",)),
    ("*log.txt", ("console",)),
    ("*output*.txt", ("console",)),
    ("std*.txt", ("console",)),
    ("stdout", ("console",)),
    ("stderr", ("console",)),
)
"""Lower-case name (with its directory, where that matters) → kinds that it may be, in the order of being asked."""

RANKS = {
    "rgt": 0,
    "llamafactory": 1,
    "mmengine": 1,
    "detectron2": 1,
    "lightning": 1,
    "ultralytics": 1,
    "torchtune": 1,
    "verl": 1,
    "keras": 1,
    "deepspeed": 1,
    "jsonl": 1,
    "csv": 1,
    "tensorboard": 2,
    "tensorboard_dir": 2,
    "aitoolkit": 3,
    "trackio": 3,
    "mlflow": 3,
    "mlflow_files": 3,
    "wandb": 4,
    "console": 5,
    "hf_trainer": 6,
}
"""Kind → preference, the best first: exact and small, exact, late, rounded, and stale between two saves."""

DATABASES = ("mlflow", "trackio", "aitoolkit")
"""Kinds that are read in a process of their own: see `confined`."""

_STEPS = ("step", "global_step", "iteration", "iter", "current_steps", "_step", "train/global_step")
_MLFLOW = re.compile(rb"\d{10,16} \S{1,40}(?: -?\d{1,18}\b.*)?\s*(?:\n|$)")


def candidates(path: str) -> tuple[str, ...]:
    """Return the kinds that a file may be by its name; () for one that is not looked at."""
    folder, name = os.path.split(path)
    name = name.lower()
    inside = os.path.basename(folder).lower() + "/" + name
    if name == "scalars.json":
        return ()
    for pattern, kinds in NAMES:
        if fnmatchcase(inside if "/" in pattern else name, pattern):
            return kinds
    return ("mlflow_files",) if "/metrics/" in folder + "/" else ()


def identify(path: str, kinds: tuple[str, ...] | None = None) -> str | None:
    """Return the kind of a file.

    Args:
        path: The file.
        kinds: Kinds to ask for; None asks for all of them, and takes what nothing else is as a console.

    Returns:
        The kind; None for a file that is empty, or none of these.

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
    for kind in ORDER if kinds is None else kinds:
        if _SNIFFERS[kind](path, name, head):
            return kind
    return None


def _tensorboard(path: str, name: str, head: bytes) -> bool:
    from rgt_box.metrics.tensorboard import length_of

    return len(head) >= 12 and length_of(head[:12]) is not None


def _hf_trainer(path: str, name: str, head: bytes) -> bool:
    return head.lstrip()[:1] == b"{" and (b'"log_history"' in head or name == "trainer_state.json")


def _wandb(path: str, name: str, head: bytes) -> bool:
    return head[:4] == b":W&B"


def _console(path: str, name: str, head: bytes) -> bool:
    return b"\0\0\0\0" not in head and head[:16] != b"SQLite format 3\0"


def _torchtune(path: str, name: str, head: bytes) -> bool:
    return re.match(rb"Step \d{1,15} \| \S", head) is not None and name.startswith("log_")


def _mlflow_files(path: str, name: str, head: bytes) -> bool:
    return _MLFLOW.match(head) is not None


def _row(head: bytes) -> dict[str, Any]:
    """Return the keys of the first JSON lines together; {} when they are none."""
    found: dict[str, Any] = {}
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


def _numbers(row: dict[str, Any]) -> bool:
    return any(isinstance(value, (int, float)) and not isinstance(value, bool) for value in row.values())


def _rgt(path: str, name: str, head: bytes) -> bool:
    row = _row(head)
    return "step" in row and ("event" in row or (name == "metrics.jsonl" and "time" in row))


def _llamafactory(path: str, name: str, head: bytes) -> bool:
    return "current_steps" in _row(head)


def _verl(path: str, name: str, head: bytes) -> bool:
    row = _row(head)
    return "step" in row and isinstance(row.get("data"), dict)


def _mmengine(path: str, name: str, head: bytes) -> bool:
    row = _row(head)
    return "iter" in row and "step" in row and "time" in row


def _detectron2(path: str, name: str, head: bytes) -> bool:
    return "iteration" in _row(head)


def _jsonl(path: str, name: str, head: bytes) -> bool:
    row = _row(head)
    return any(key in row for key in _STEPS) and _numbers(row)


def _header(head: bytes) -> list[str]:
    line, newline, _ = head.partition(b"\n")
    if not newline or b"\0" in line:
        return []
    text = line.decode("utf-8-sig", "replace").lower()
    delimiter = next((each for each in ",\t;" if each in text), ",")
    return [cell.strip().strip('"') for cell in text.split(delimiter)]


def _deepspeed(path: str, name: str, head: bytes) -> bool:
    names = _header(head)
    return len(names) == 2 and names[0] == "step" and name.endswith("samples_%s.csv" % names[1])


def _ultralytics(path: str, name: str, head: bytes) -> bool:
    names = _header(head)
    return "epoch" in names and any(each.startswith("train/") and each.endswith("_loss") for each in names)


def _lightning(path: str, name: str, head: bytes) -> bool:
    names = _header(head)
    return "step" in names and ("epoch" in names or (name == "metrics.csv" and len(names) > 1))


def _keras(path: str, name: str, head: bytes) -> bool:
    names = _header(head)
    return names[:1] == ["epoch"] and "step" not in names and any("loss" in each for each in names)


def _csv(path: str, name: str, head: bytes) -> bool:
    names = _header(head)
    place = any(each in names for each in (*_STEPS, "epoch"))
    return place and any("loss" in each or "reward" in each for each in names)


def _database(*words: str) -> Callable[[str, str, bytes], bool]:
    def sniff(path: str, name: str, head: bytes) -> bool:
        if head[:16] != b"SQLite format 3\0":
            return False
        tables = schema(path, head)
        return all(word in tables for word in words)

    return sniff


def schema(path: str, head: bytes) -> str:
    """Return the statements that made a database, from its first page if they are there."""
    if b"CREATE TABLE" in head and b"metrics" in head and head[100:101] == b"\x0d":
        return head.decode("latin-1")
    from rgt_box.metrics.confined import tables

    return tables(path)


_SNIFFERS: dict[str, Callable[[str, str, bytes], bool]] = {
    "tensorboard": _tensorboard,
    "wandb": _wandb,
    "mlflow": _database("metrics", "run_uuid", "is_nan"),
    "trackio": _database("metrics", "run_name"),
    "aitoolkit": _database("metrics", "value_real"),
    "llamafactory": _llamafactory,
    "detectron2": _detectron2,
    "verl": _verl,
    "rgt": _rgt,
    "mmengine": _mmengine,
    "jsonl": _jsonl,
    "hf_trainer": _hf_trainer,
    "deepspeed": _deepspeed,
    "ultralytics": _ultralytics,
    "lightning": _lightning,
    "keras": _keras,
    "csv": _csv,
    "mlflow_files": _mlflow_files,
    "torchtune": _torchtune,
    "console": _console,
}

ORDER = tuple(_SNIFFERS)
"""Every kind, those with the surest marks first."""
