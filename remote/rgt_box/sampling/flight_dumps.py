"""torch's flight recorder dumps: read in a separate process, reduced to what identifies a rank.

A dump is a pickle that any user may have written, so it is loaded without any class or function, in
the child process of `confined_child` with limited memory and time. The client gets it in torch's
own format, so that one parser handles both: for each group the last completed collective, the first
pending one and the last one, and the last messages if one of them is pending
(https://docs.pytorch.org/tutorials/unstable/flight_recorder_tutorial.html).
"""

from __future__ import annotations

import os
import time

from rgt_box import files
from rgt_box.confined_child import WALL, AnswerPending, ChildDied, ConfinedChild

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Iterable, Mapping

    from rgt_wire import JsonObject

NAMES = ("TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE")
"""Variables with the path prefix, the newer name first; the rank is appended
(https://docs.pytorch.org/docs/stable/torch_nccl_environment_variables.html).
"""
OLD_DEFAULT, DEFAULT = "/tmp/nccl_trace_rank_", "torch/comm_lib_trace_rank_"
"""Defaults of older and of current releases; the latter is relative to the user's cache directory.
"""
LARGEST = 32 << 20
"""Maximum bytes of a dump: 2,000 collectives with their stacks are a few megabytes."""
MOST_GROUPS, MOST_MESSAGES = 8, 16
LONGEST, MOST_LISTED = 200, 6
"""Maximum characters of a text and members of a list that are reported."""
KEPT = ("collective_seq_id", "p2p_seq_id", "profiling_name", "is_p2p", "state", "retired")
LISTS = ("process_group", "input_sizes", "input_dtypes")


def dump_paths(env: Mapping[str, str], rank: int) -> list[str]:
    """Return the possible paths of a rank's dump, from its environment."""
    told = [env[name] for name in NAMES if env.get(name)]
    cache = env.get("XDG_CACHE_HOME") or os.path.join(env.get("HOME") or "/tmp", ".cache")
    return [
        "%s%d" % (prefix, rank) for prefix in told or (os.path.join(cache, DEFAULT), OLD_DEFAULT)
    ]


class FlightDumps:
    """The dumps of the ranks of this machine; a file is read again only when it changes.

    Use it in a separate thread: the directory may be on a mount that hangs.
    """

    def __init__(self) -> None:
        self._child = ConfinedChild(__name__)
        self._child.patience = WALL + 1.0
        self._told: dict[str, tuple[tuple[int, ...], JsonObject | None]] = {}

    def read_dump(self, path: str) -> JsonObject | None:
        """Return a dump's reduced content, with its ``age_s`` and ``open_s``.

        ``open_s`` is how long its oldest pending call had been open. None if the file is not this
        user's, is not a dump, or is still being read.
        """
        try:
            fd = files.open_regular(path)
        except (OSError, ValueError):
            return None
        try:
            seen = os.fstat(fd)
        finally:
            os.close(fd)
        # The name is predictable and in /tmp by default: anybody could put a file there.
        if seen.st_uid != os.geteuid() or not 0 < seen.st_size <= LARGEST:
            return None
        stamp = (seen.st_ino, seen.st_size, seen.st_mtime_ns)
        known = self._told.get(path)
        if known is None or known[0] != stamp:
            try:
                known = self._told[path] = (
                    stamp,
                    self._child.request_answer({"flight": path, "stamp": stamp})["told"],
                )
            # Not cached: the next call gets the answer.
            except AnswerPending:
                return None
            except (ChildDied, OSError):  # an input that ends the child once would do so again
                known = self._told[path] = (stamp, None)
        if known[1] is None:
            return None
        told = dict(known[1])
        told["age_s"] = round(max(0.0, time.time() - seen.st_mtime), 1)
        told["open_s"] = round(max(0.0, seen.st_mtime - told["open_s"]), 1)
        return told

    def keep_only(self, but: Iterable[str]) -> None:
        """Forget all files except these."""
        kept = set(but)
        for path in [path for path in self._told if path not in kept]:
            del self._told[path]


def answer(request: JsonObject) -> JsonObject:
    """Run the child's part of `FlightDumps.read_dump`."""
    fd = files.open_regular(request["flight"])
    try:
        if os.fstat(fd).st_uid != os.geteuid():
            return {"told": None}
        with os.fdopen(os.dup(fd), "rb") as file:
            data = file.read(LARGEST + 1)
    finally:
        os.close(fd)
    try:
        return {"told": reduce_dump(load_dump(data) if len(data) <= LARGEST else None)}
    except Exception:  # the file may be anything that `pickle` fails on
        return {"told": None}


def load_dump(data: bytes) -> Any:
    """Return the content of a pickle, or of JSON.

    Raises:
        Exception: It is damaged, or names a class or function.
    """
    # A pickle of protocol 2 or newer begins with this byte; torch can also write JSON.
    if data[:1] != b"\x80":
        import json

        return json.loads(data)
    import io
    import pickle

    class PlainUnpickler(pickle.Unpickler):
        """Loads only numbers, texts, lists and dictionaries.

        Any named class or function is refused.
        """

        def find_class(self, module: str, name: str) -> Any:
            raise pickle.UnpicklingError(f"{module}.{name}")

    return PlainUnpickler(io.BytesIO(data)).load()


def reduce_dump(value: Any) -> JsonObject | None:
    """Return a dump reduced to what identifies a rank; None if it is not a dump.

    Its ``open_s`` is when the oldest pending call was made (epoch seconds).
    """
    if not isinstance(value, dict):
        return None
    entries = value.get("entries")
    if not isinstance(entries, list) or not isinstance(value.get("version"), str):
        return None
    rows = [entry for entry in entries if isinstance(entry, dict)]
    groups: dict[str, list[tuple[int, JsonObject]]] = {}
    messages = [entry for entry in rows if entry.get("is_p2p") is True][-MOST_MESSAGES:]
    for place, entry in enumerate(rows):
        if entry.get("is_p2p") is True or type(entry.get("collective_seq_id")) is not int:
            continue
        name = str(_plain_value(entry.get("process_group")))
        groups.setdefault(name, []).append((place, entry))
    told: list[JsonObject] = []
    # Groups with a pending call first, then the most recently used ones.
    order = sorted(groups.values(), key=lambda calls: (_is_done(calls[-1][1]), -calls[-1][0]))
    for numbered in order[:MOST_GROUPS]:
        told += _telling_calls([entry for _, entry in numbered])
    if not all(map(_is_done, messages)):
        told += messages
    made = [entry.get("time_created_ns") for entry in rows if not _is_done(entry)]
    known = [at for at in made if type(at) is int and at > 0]
    return {
        "open_s": min(known, default=1 << 63) / 1e9,
        "version": value["version"][:LONGEST],
        "entries": [_reduce_entry(entry) for entry in told],
        "pg_config": _reduce_groups(value.get("pg_config")),
    }


def _telling_calls(calls: list[JsonObject]) -> list[JsonObject]:
    """Return the last call that is done, and the first and the last one that are not."""
    done = [entry for entry in calls if _is_done(entry)]
    waits = [entry for entry in calls if not _is_done(entry)]
    # With one that waits, the first is also the last.
    last = [entry for entry in waits[-1:] if entry is not waits[0]]
    return done[-1:] + waits[:1] + last


def _reduce_groups(config: Any) -> dict[str, dict[str, str]]:
    """Return the ranks of each process group, by its name."""
    longest_ranks = 4096
    found: dict[str, dict[str, str]] = {}
    if not isinstance(config, dict):
        return found
    for name, group in list(config.items())[:MOST_GROUPS]:
        if not isinstance(group, dict):
            continue
        ranks = group.get("ranks")
        if isinstance(ranks, str) and len(ranks) <= longest_ranks:
            found[str(name)[:LONGEST]] = {"ranks": ranks}
    return found


def _is_done(entry: JsonObject) -> bool:
    return bool(entry.get("retired")) or entry.get("state") == "completed"


def _reduce_entry(entry: JsonObject) -> JsonObject:
    found = {
        name: _plain_value(entry[name]) for name in KEPT if entry.get(name) not in (None, False)
    }
    found.update((name, _plain_value(entry[name])) for name in LISTS if entry.get(name))
    frames = entry.get("frames")
    for frame in frames if isinstance(frames, list) else ():
        if isinstance(frame, dict):
            file = frame.get("filename")
        else:
            file = None
        if isinstance(file, str) and "/torch/" not in file and type(frame.get("line")) is int:
            found["frames"] = [{"filename": file[-LONGEST:], "line": frame["line"]}]
            break
    return found


def _plain_value(value: Any, depth: int = 2) -> Any:
    if isinstance(value, (list, tuple)):
        if depth:
            return [_plain_value(item, depth - 1) for item in value[: MOST_LISTED + 1]]
        return None
    if isinstance(value, str):
        return value[:LONGEST]
    # Larger integers lose digits in readers that use doubles.
    if type(value) in (int, bool) and abs(value) < 1 << 53:
        return value
    return None
