"""What the bytes of a file say about a checkpoint: whether it holds weights, its step, and whether it ends too early.

Only the beginning and the end of a file are read, whatever its size. No pickle is ever loaded: its opcodes are listed.
"""

from __future__ import annotations

import io
import json
import os
import re
import struct

from rgt_wire.checkpoint_layouts import NOTHING, Content

from rgt_box import files

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, Iterable, Optional

STEP_KEYS = (
    "global_step", "step", "iter_num", "iteration", "iter", "num_updates", "current_step", "global_steps", "steps",
    "ss_steps", "train_step", "training_step", "num_timesteps", "cur_nimg",
)  # fmt: skip
"""Keys under which trainers keep the step, at the top of what they save."""
EPOCH_KEYS = ("epoch", "current_epoch", "ss_epoch", "epochs", "last_epoch")
MOST_HEADER = 16 << 20
"""Bytes of a safetensors header that are read; a longer one is not looked into."""
MOST_PICKLE = 1 << 20
MOST_TEXT = 1 << 20
_ENDS_ZIP = b"PK\x05\x06"
_END_BYTES = 66_000
"""Within so many bytes of a zip file's end its directory ends, a comment of the longest kind included."""
_OF_WEIGHTS = re.compile(
    r"(?:^|[._/])(?:weight|bias|kernel|gamma|lora_[abAB]|lora_down|lora_up|embedding)s?$|state_dict|_module\.|\.weight\b"
)
_WEIGHTS_IN_PICKLE = re.compile(
    rb"(?:[._/](?:weight|bias|kernel|lora_[abAB])|(?:model|net|module|ema|generator|network)?_?state_dict|_rebuild_parameter)"
)


class ContentReader:
    """Reads each file once as long as it does not change.

    Args:
        root: The directory that paths are relative to.
    """

    def __init__(self, root: str) -> None:
        self._root = root
        self._known: Dict[str, "tuple[object, Content]"] = {}

    def __call__(self, path: str) -> Content:
        """Return what a file says; nothing where it cannot be read."""
        full = os.path.join(self._root, path)
        seen = files.signature(full)
        known = self._known.get(path)
        if known is not None and known[0] == seen:
            return known[1]
        try:
            content = read_content(full)
        except (OSError, ValueError, struct.error):
            content = NOTHING
        self._known[path] = (seen, content)
        return content

    def forget_all_but(self, paths: "set[str]") -> None:
        """Drop what is remembered of files that are gone."""
        self._known = {path: known for path, known in self._known.items() if path in paths}


def read_content(path: str) -> Content:
    """Return what the bytes of a file say.

    Raises:
        OSError: it cannot be read.
        ValueError, struct.error: it is damaged in a way that says nothing.
    """
    fd = files.open_regular(path)
    try:
        size = os.fstat(fd).st_size
        head = os.pread(fd, 64, 0)
        name = os.path.basename(path)
        if name.endswith((".json", ".txt")) or name == "latest":
            return _of_text(name, os.pread(fd, MOST_TEXT, 0))
        if head.startswith(b"PK\x03\x04"):
            return _of_zip(fd, path, size)
        if name.endswith(".safetensors"):
            return _of_safetensors(fd, head, size)
        if head.startswith(b"\x89HDF\r\n\x1a\n"):
            return Content(cut=_hdf5_end(head) > size)
        if head[:1] == b"\x80" and head[1:2] in (b"\x02", b"\x03", b"\x04", b"\x05"):
            return _of_pickle(fd, size, name)
        return Content(cut=size == 0)
    finally:
        os.close(fd)


def _of_text(name: str, data: bytes) -> Content:
    if not name.endswith(".json"):
        return Content(text=data[:200].decode("utf-8", "replace").split("\n")[0].strip())
    entries = json.loads(data)
    if not isinstance(entries, dict):
        return NOTHING
    return Content(step=_first(entries, STEP_KEYS), epoch=_first(entries, EPOCH_KEYS))


def _first(entries: "Dict[str, Any]", keys: "tuple[str, ...]") -> "Optional[int]":
    """Return the first of the keys whose value is a whole number, or the text of one."""
    for key in keys:
        value = entries.get(key)
        if isinstance(value, str) and value.isdigit() and len(value) < 16:
            return int(value)
        if (
            isinstance(value, (int, float))
            and not isinstance(value, bool)
            and 0 <= value < 1e15
            and value == int(value)
        ):
            return int(value)
    return None


def _of_safetensors(fd: int, head: bytes, size: int) -> Content:
    if size < 8:
        return Content(cut=True)
    length = int(struct.unpack("<Q", head[:8])[0])
    if length > MOST_HEADER:
        return NOTHING
    if 8 + length > size:
        return Content(cut=True)
    header = json.loads(os.pread(fd, length, 8))
    if not isinstance(header, dict):
        return NOTHING
    metadata = header.pop("__metadata__", None)
    entries = metadata if isinstance(metadata, dict) else {}
    ends = [entry.get("data_offsets", [0, 0])[1] for entry in header.values() if isinstance(entry, dict)]
    weights = any(_OF_WEIGHTS.search(name) for name in header)
    return Content(
        weights if header else None,
        _first(entries, STEP_KEYS),
        _first(entries, EPOCH_KEYS),
        8 + length + max(ends or [0]) > size,
    )


def _hdf5_end(head: bytes) -> int:
    """Return the length that the superblock of an HDF5 file says; 0 where it is of no version that is known."""
    version = head[8]
    if version in (2, 3) and head[9] == 8:
        return int(struct.unpack("<Q", head[28:36])[0])
    if version == 0 and head[13] == 8:
        return int(struct.unpack("<Q", head[40:48])[0])
    return 0


def _of_zip(fd: int, path: str, size: int) -> Content:
    end = os.pread(fd, _END_BYTES, max(0, size - _END_BYTES))
    if _ENDS_ZIP not in end:
        return Content(cut=True)
    import zipfile  # here: only who looks into such a file needs it

    try:
        with open(fd, "rb", closefd=False) as file, zipfile.ZipFile(file) as archive:
            names = archive.namelist()
            pickled = next((name for name in names if name.endswith("/data.pkl") or name == "data.pkl"), None)
            if pickled is None:
                # Keras 3 keeps weights in model.weights.h5; Stable-Baselines3 has policy.pth.
                return Content(weights=any(name.endswith((".h5", ".pth")) for name in names) or None)
            with archive.open(pickled) as member:
                data = member.read(MOST_PICKLE)
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError):
        return Content(cut=True)
    step, epoch = told_by_pickle(data)
    return Content(_WEIGHTS_IN_PICKLE.search(data) is not None, step, epoch)


def _of_pickle(fd: int, size: int, name: str) -> Content:
    """Read the first pickle of a file: torch's format before 1.6 has several, and the bytes of tensors after them."""
    data = os.pread(fd, MOST_PICKLE, 0)
    last = os.pread(fd, 1, max(0, size - 1))
    plain = name.endswith((".pkl", ".pickle", ".joblib"))
    step, epoch = told_by_pickle(data)
    return Content(_WEIGHTS_IN_PICKLE.search(data) is not None, step, epoch, plain and last != b".")


def told_by_pickle(data: bytes) -> "tuple[Optional[int], Optional[int]]":
    """Return the step and the epoch that the outermost dictionary of a pickle has, by its opcodes alone."""
    import pickletools  # here: only who looks into such a file needs it

    entries: "Dict[str, Any]" = {}
    file = io.BytesIO(data)
    try:
        # Torch before 1.6 puts three pickles in front.
        while not set(entries).intersection(STEP_KEYS + EPOCH_KEYS) and file.tell() < len(data):  #
            _add_entries(pickletools.genops(file), entries)
    except ValueError:
        pass  # cut off after `MOST_PICKLE`, or no pickle: what was read counts
    return _first(entries, STEP_KEYS), _first(entries, EPOCH_KEYS)


def _add_entries(opcodes: "Iterable[Any]", entries: "Dict[str, Any]") -> None:
    depth, key = 0, None
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
        key = value if depth <= 1 and isinstance(value, str) and "UNICODE" in name else None
