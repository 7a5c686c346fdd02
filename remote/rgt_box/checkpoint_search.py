"""Find a run's checkpoints in its directories repeatedly, at the cost of a few stat calls.

`rgt_wire.checkpoint_layouts` recognises them; this module walks the directories, sums sizes, and
decides whether a checkpoint is complete.
"""

from __future__ import annotations

import io
import json
import os
import re
import stat
import struct
import time

from rgt_wire import checkpoint_layouts, cut_saves
from rgt_wire.checkpoint_layouts import NOTHING, FileContent

from rgt_box import files

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Iterable, NamedTuple

    from rgt_wire import JsonObject
    from rgt_wire.checkpoint_layouts import Checkpoint


STEP_KEYS = (
    "global_step", "step", "iter_num", "iteration", "iter", "num_updates", "current_step",
    "global_steps", "steps",
    "ss_steps", "train_step", "training_step", "num_timesteps", "cur_nimg",
)  # fmt: skip
"""Top-level keys under which trainers save the step."""
EPOCH_KEYS = ("epoch", "current_epoch", "ss_epoch", "epochs", "last_epoch")
MOST_HEADER = 16 << 20
"""Maximum bytes read of a safetensors header; a longer one is ignored."""
MOST_PICKLE = 1 << 20
MOST_TEXT = 1 << 20
_ENDS_ZIP = b"PK\x05\x06"
_OF_WEIGHTS = re.compile(
    r"(?:^|[._/])(?:weight|bias|kernel|gamma|lora_[abAB]|lora_down|lora_up|embedding)s?$|state_dict"
    r"|_module\.|\.weight\b"
)
_WEIGHTS_IN_PICKLE = re.compile(
    rb"(?:[._/](?:weight|bias|kernel|lora_[abAB])|(?:model|net|module|ema|generator"
    rb"|network)?_?state_dict|_rebuild_parameter)"
)


if TYPE_CHECKING:

    class FoundCheckpoint(NamedTuple):
        """A checkpoint on the disk."""

        path: str
        """Absolute path of its directory, or of its weights file."""
        files: "tuple[str, ...]"
        """Absolute paths of all its files."""
        group: str
        step: "int | None"
        epoch: "int | None"
        best: bool
        bytes: int
        inodes: int
        at: float
        """When its newest file was written, by the box's clock."""
        unfinished: str
        """Why it is incomplete; "" if it is complete."""
else:
    from collections import namedtuple

    FoundCheckpoint = namedtuple(
        "FoundCheckpoint", "path files group step epoch best bytes inodes at unfinished"
    )

MOST = 20_000
"""Maximum number of listed entries of a directory tree, which bounds the cost of a walk."""
MOST_BY_LINK = 5000
"""The same for the target of a link, which may be anything."""
DEPTH, DEEPEST = 8, 16
"""Levels of directories; the second applies if they changed since the run began."""
QUIET_S = 3.0
"""Seconds without a change after which a checkpoint whose format has no end marker counts as
complete.
"""
MOST_FOLDERS = 400
"""Maximum number of directories whose mtimes are compared at every poll; a larger tree is walked
again from time to time instead.
"""
WALK_COST = 50.0
"""A walk is not repeated within this many times its own duration."""
WALK_EVERY_S, LARGE_COST = 10.0, 200.0
"""A tree that is too large to compare is walked again after this many seconds, or this many times
the walk's duration.
"""
SKIPPED = checkpoint_layouts.SKIPPED | {
    ".hg",
    ".svn",
    "site-packages",
    "miniconda3",
    "anaconda3",
}
_ENDS_BY_ITSELF = (
    ".safetensors",
    ".pt",
    ".pth",
    ".ckpt",
    ".pth.tar",
    ".keras",
    ".h5",
    ".zip",
    ".pkl",
)
"""Formats that contain their own end: a file that is not cut off is complete."""


class CheckpointSearch:
    """Finds the checkpoints below one directory.

    Args:
        root: The directory; it need not exist yet.
        since: Only checkpoints written at or after this time.
        only: Only paths below the root with this name as one part; "" for all.
        most: Maximum number of entries to list.
        depth: Maximum levels of directories.
        waits: Whether a recently written checkpoint without an end marker counts as incomplete.
    """

    def __init__(
        self,
        root: str,
        since: float = 0.0,
        only: str = "",
        most: int = MOST,
        depth: int = DEPTH,
        waits: bool = True,
    ) -> None:
        self.root = root
        self._since = since
        self._only = only
        self._most = most
        self._depth = depth
        self._waits = waits
        self._content = ContentReader(root)
        self._folders: "dict[str, object]" = {}
        self._paths: list[str] = []
        self._watched: "dict[str, object]" = {}
        self._found: "list[FoundCheckpoint]" = []
        self._seen: "dict[str, tuple[object, float]]" = {}
        self._walked = self._took = 0.0
        self._pending = False
        """A checkpoint may become complete although nothing changes any more."""
        self.cut = False
        """The tree is larger than the listed part."""

    def poll_checkpoints(self) -> "list[FoundCheckpoint]":
        """Return all current checkpoints, oldest first."""
        now = time.monotonic()
        walk = self._is_changed(now)
        if walk:
            self._walk_folders(now)
        if walk or self._pending or self._are_files_changed():
            self._find_checkpoints(now)
        if walk:
            self._took = time.monotonic() - now
        return self._found

    def _is_changed(self, now: float) -> bool:
        if not self._walked:
            return True
        since = now - self._walked
        # Before any stat: a network volume may take seconds for a walk.
        if since < WALK_COST * self._took:
            return False
        if len(self._folders) > MOST_FOLDERS or self.cut:
            return since > max(WALK_EVERY_S, LARGE_COST * self._took)
        return any(files.signature(path) != mark for path, mark in self._folders.items())

    def _are_files_changed(self) -> bool:
        return any(files.signature(path) != mark for path, mark in self._watched.items())

    def _walk_folders(self, now: float) -> None:
        paths: list[str] = []
        folders: "dict[str, object]" = {}
        level = [(self.root, "", 0)]
        links: "list[tuple[str, str, int]]" = []
        known: "set[tuple[int, int]]" = set()
        entries = 0
        self.cut = False
        # A directory that changed within this many nanoseconds is listed again at the next poll.
        fresh_ns = 100_000_000
        while level or links:
            is_link = not level
            if is_link:  # short real paths first: ``last`` is inside ``checkpoints``
                links.sort(key=lambda link: len(os.path.realpath(link[0])), reverse=True)
            path, inside, depth = (level or links).pop()
            try:
                status = os.stat(path)
            except OSError:
                # None is the signature of a missing path: it counts as changed once it exists.
                folders[path] = None
                continue
            # LeRobot's ``last`` leads to a checkpoint that was seen; ``checkpoints`` may lead to
            # another disk.
            # Also ends loops of links.
            if (status.st_dev, status.st_ino) in known or not stat.S_ISDIR(status.st_mode):
                continue
            known.add((status.st_dev, status.st_ino))
            if is_link:
                most = MOST_BY_LINK
            else:
                most = self._most
            mark = files.signature(path)
            # A change within the same clock tick as this walk would leave the mtime unchanged.
            is_fresh = mark is not None and abs(time.time_ns() - mark[2]) < fresh_ns
            if is_fresh:
                # An object equals nothing else, so the next poll sees a change.
                folders[path] = object()
            else:
                folders[path] = mark
            try:
                listed = list(os.scandir(path))
            except OSError:
                continue
            # What the run itself has made may be nested deeper: a home directory is searched less.
            is_fresh = 0.0 < self._since <= status.st_mtime and depth < DEEPEST
            enters = is_fresh or depth < self._depth
            entries += len(listed)
            if entries > most:
                self.cut = True
                break
            for entry in listed:
                name = inside + entry.name
                if entry.is_symlink():
                    if enters and entry.name not in SKIPPED:
                        links.append((entry.path, name + "/", depth + 1))
                elif entry.is_dir(follow_symlinks=False):
                    if enters and entry.name not in SKIPPED:
                        level.append((entry.path, name + "/", depth + 1))
                else:
                    paths.append(name)
        self._folders = folders
        self._paths = paths
        self._walked = now

    def _find_checkpoints(self, now: float) -> None:
        found = []
        present = set()
        self._pending = False
        for one in checkpoint_layouts.find_checkpoints(self._paths, self._content):
            present.add(one.path)
            if self._only and self._only not in one.path.split("/")[:-1]:
                continue
            measured = self._measure_checkpoint(one, now)
            if measured is not None and measured.at >= self._since:
                found.append(measured)
        found.sort(key=lambda one: (one.at, -1 if one.step is None else one.step, one.path))
        self._found = found
        self._content.keep_only(set(self._paths))
        # A run that keeps the last three would add a name with each save.
        self._seen = {path: seen for path, seen in self._seen.items() if path in present}
        self._watched = {}
        newest: "dict[str, FoundCheckpoint]" = {}
        for each in found:
            newest[each.group] = each
        # Overwriting a file changes no directory, so watch the files of each series' newest
        # checkpoint and of checkpoints without a number.
        for each in found:
            if (
                newest[each.group] is each
                or each.unfinished
                or (each.step is None and each.epoch is None)
            ):
                self._watched.update(
                    (path, files.signature(path)) for path in each.files[:MOST_FOLDERS]
                )

    def _measure_checkpoint(self, one: Checkpoint, now: float) -> "FoundCheckpoint | None":
        path = os.path.normpath(os.path.join(self.root, one.path))
        total = 0
        newest = 0.0
        # Maximum number of files counted per checkpoint.
        most_files = 20_000
        whole = [os.path.join(self.root, name) for name in one.files[:most_files]]
        for name in whole:
            try:
                status = os.lstat(name)
            except OSError:
                self._pending = True
                continue
            total = total + status.st_size
            newest = max(newest, status.st_mtime)
        if not newest:
            return None
        is_folder = one.path not in one.files
        inodes = len(one.files) + (
            len({os.path.dirname(name) for name in one.files}) if is_folder else 0
        )
        unfinished = one.unfinished
        if (
            not unfinished
            and self._waits
            and not self._is_settled(one, total, newest, now, is_folder)
        ):
            unfinished = "it was written to a moment ago"
            self._pending = True
        # A series differs only in its numbers: step-100 and step-200.
        group = re.sub(r"\d+", "#", path)
        return FoundCheckpoint(
            path,
            tuple(whole),
            group,
            one.step,
            one.epoch,
            one.best,
            total,
            inodes,
            newest,
            unfinished,
        )

    def _is_settled(
        self, one: Checkpoint, total: int, newest: float, now: float, is_folder: bool
    ) -> bool:
        if not is_folder and len(one.files) == 1 and one.path.lower().endswith(_ENDS_BY_ITSELF):
            return True
        if is_folder and os.path.join(one.path, "manifest.json") in one.files:
            return True  # ours: the directory gets its name when it is complete
        known = self._seen.get(one.path)
        mark = (total, newest, len(one.files))
        if known is None or known[0] != mark:
            known = self._seen[one.path] = (mark, now)
        age = time.time() - newest
        # Either clock: a copied file keeps an old mtime, and the box's clock may be wrong.
        return age > QUIET_S or now - known[1] > QUIET_S


def count_bytes_and_inodes(path: str) -> "tuple[int, int]":
    """Return (bytes, inodes) of a file or a tree; (0, 0) if it does not exist."""
    try:
        total = 0
        if not os.path.isdir(path):
            total = os.lstat(path).st_size
        entries = 1
    except OSError:
        return 0, 0
    for folder, names, inside in os.walk(path):
        entries += len(names) + len(inside)
        for name in inside:
            try:
                total += os.lstat(os.path.join(folder, name)).st_size
            except OSError:
                continue
        if entries > MOST:
            break
    return total, entries


# Read what a file's bytes show about a checkpoint: whether it has weights, its step, and whether it
# is cut off.
#
# Only the start and the end of a file are read, at any size. No pickle is ever loaded: only
# its opcodes are listed.


class ContentReader:
    """Reads each file once as long as it does not change.

    Args:
        root: The directory that paths are relative to.
    """

    def __init__(self, root: str) -> None:
        self._root = root
        self._known: dict[str, "tuple[object, FileContent]"] = {}

    def __call__(self, path: str) -> FileContent:
        """Return what a file's bytes show; `NOTHING` if it cannot be read."""
        full = os.path.join(self._root, path)
        seen = files.signature(full)
        known = self._known.get(path)
        if known is not None and known[0] == seen:
            return known[1]
        try:
            content = read_content(full)
        except (OSError, ValueError, struct.error, RecursionError):
            content = NOTHING
        self._known[path] = (seen, content)
        return content

    def keep_only(self, paths: "set[str]") -> None:
        """Forget the files that no longer exist."""
        self._known = {path: known for path, known in self._known.items() if path in paths}


def read_content(path: str) -> FileContent:
    """Return what a file's bytes show.

    Raises:
        OSError: It cannot be read.
        ValueError, struct.error: It is damaged beyond interpretation.
    """
    fd = files.open_regular(path)
    try:
        size = os.fstat(fd).st_size
        head = os.pread(fd, 64, 0)
        name = os.path.basename(path)
        if name.endswith((".json", ".txt")) or name in cut_saves.TRACKERS:
            return _read_text_content(name, os.pread(fd, MOST_TEXT, 0))
        if head.startswith(b"PK\x03\x04"):
            return _read_zip(fd, path, size)
        if name.endswith(".safetensors"):
            return _read_safetensors(fd, head, size)
        if head.startswith(b"\x89HDF\r\n\x1a\n"):
            return FileContent(cut=_hdf5_end(head) > size)
        # The opcode PROTO and its version, with which pickles begin since protocol 2.
        if head[:1] == b"\x80" and head[1:2] in (b"\x02", b"\x03", b"\x04", b"\x05"):
            return _read_pickle(fd, size, name)
        return FileContent(cut=size == 0)
    finally:
        os.close(fd)


def _read_text_content(name: str, data: bytes) -> FileContent:
    if not name.endswith(".json"):
        return FileContent(text=data[:200].decode("utf-8", "replace").split("\n")[0].strip())
    entries = json.loads(data)
    if not isinstance(entries, dict):
        return NOTHING
    return FileContent(
        step=_first_whole_number(entries, STEP_KEYS), epoch=_first_whole_number(entries, EPOCH_KEYS)
    )


def _first_whole_number(entries: "JsonObject", keys: "tuple[str, ...]") -> "int | None":
    """Return the value of the first key that is a whole number, or a text of one."""
    for key in keys:
        value = entries.get(key)
        if isinstance(value, str) and value.isdigit() and len(value) < 16:
            return int(value)
        if (
            isinstance(value, (int, float))
            # bool is an int: ``"step": true`` is no step.
            and not isinstance(value, bool)
            and 0 <= value < 1e15
            and value == int(value)
        ):
            return int(value)
    return None


def _read_safetensors(fd: int, head: bytes, size: int) -> FileContent:
    if size < 8:
        return FileContent(cut=True)
    length = int(struct.unpack("<Q", head[:8])[0])
    if length > MOST_HEADER:
        return NOTHING
    if 8 + length > size:
        return FileContent(cut=True)
    header = json.loads(os.pread(fd, length, 8))
    if not isinstance(header, dict):
        return NOTHING
    metadata = header.pop("__metadata__", None)
    if isinstance(metadata, dict):
        entries = metadata
    else:
        entries = {}
    ends = [
        entry.get("data_offsets", [0, 0])[1] for entry in header.values() if isinstance(entry, dict)
    ]
    weights = any(_OF_WEIGHTS.search(name) for name in header)
    return FileContent(
        weights if header else None,
        _first_whole_number(entries, STEP_KEYS),
        _first_whole_number(entries, EPOCH_KEYS),
        8 + length + max(ends or [0]) > size,
    )


def _hdf5_end(head: bytes) -> int:
    """Return the file length in an HDF5 superblock; 0 if its version is unknown."""
    version = head[8]
    if version in (2, 3) and head[9] == 8:
        return int(struct.unpack("<Q", head[28:36])[0])
    if version == 0 and head[13] == 8:
        return int(struct.unpack("<Q", head[40:48])[0])
    return 0


def _read_zip(fd: int, path: str, size: int) -> FileContent:
    # The directory of a zip file ends within this many bytes of its end, even with the longest
    # comment.
    end_bytes = 66_000
    end = os.pread(fd, end_bytes, max(0, size - end_bytes))
    # torch writes a zip file's directory at the very end, so a file without it is cut off.
    if _ENDS_ZIP not in end:
        return FileContent(cut=True)
    import zipfile  # here: needed only for such files

    try:
        with open(fd, "rb", closefd=False) as file, zipfile.ZipFile(file) as archive:
            names = archive.namelist()
            pickled = next(
                (name for name in names if name.endswith("/data.pkl") or name == "data.pkl"), None
            )
            if pickled is None:
                # Keras 3 stores weights in model.weights.h5; Stable-Baselines3 has policy.pth.
                return FileContent(
                    weights=any(name.endswith((".h5", ".pth")) for name in names) or None
                )
            with archive.open(pickled) as member:
                data = member.read(MOST_PICKLE)
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError):
        return FileContent(cut=True)
    step, epoch = read_pickle_entries(data)
    return FileContent(_WEIGHTS_IN_PICKLE.search(data) is not None, step, epoch)


def _read_pickle(fd: int, size: int, name: str) -> FileContent:
    """Read the first pickle of a file.

    torch's format before 1.6 has several, followed by the bytes of tensors.
    """
    data = os.pread(fd, MOST_PICKLE, 0)
    last = os.pread(fd, 1, max(0, size - 1))
    plain = name.endswith((".pkl", ".pickle", ".joblib"))
    step, epoch = read_pickle_entries(data)
    return FileContent(
        _WEIGHTS_IN_PICKLE.search(data) is not None, step, epoch, plain and last != b"."
    )


def read_pickle_entries(data: bytes) -> "tuple[int | None, int | None]":
    """Return step and epoch of a pickle's outermost dictionary, from its opcodes only."""
    import pickletools  # here: needed only for such files

    entries: "JsonObject" = {}
    file = io.BytesIO(data)
    try:
        # torch before 1.6 puts three pickles in front
        while not set(entries).intersection(STEP_KEYS + EPOCH_KEYS) and file.tell() < len(data):  #
            _add_entries(pickletools.genops(file), entries)
    except ValueError:
        pass  # cut off after `MOST_PICKLE`, or not a pickle: use the entries read
    return _first_whole_number(entries, STEP_KEYS), _first_whole_number(entries, EPOCH_KEYS)


def _add_entries(opcodes: "Iterable[Any]", entries: "JsonObject") -> None:
    depth = 0
    key = None
    for opcode, value, _ in opcodes:
        name = opcode.name
        if name == "MARK":
            depth += 1
        elif name in (
            "SETITEMS",
            "APPENDS",
            "TUPLE",
            "LIST",
            "DICT",
            "FROZENSET",
            "ADDITEMS",
            "POP_MARK",
            "OBJ",
            "INST",
        ):
            depth -= 1
        if name in ("BINPUT", "LONG_BINPUT", "MEMOIZE", "PUT"):
            continue
        if (
            depth <= 1
            and key is not None
            and isinstance(value, int)
            and name.startswith(("BININT", "LONG", "INT"))
        ):
            entries.setdefault(key, value)
        if depth <= 1 and isinstance(value, str) and "UNICODE" in name:
            key = value
        else:
            key = None
