"""The agent's list of a box's files: which names are accepted, and which are refused and why.

The list is untrusted text: it may contain any name, and be endless. Nothing in it determines where
this machine writes before it is checked here.
"""

from __future__ import annotations

import base64
import os
import re
import unicodedata
from collections.abc import Iterable
from pathlib import Path, PurePosixPath

import msgspec

from rgt_tui.model import FrozenStruct, clean_text, how_many
from rgt_tui.transfer.ledger import FileStamp

MOST_FILES = 1_000_000
MOST_BYTES = 1 << 30
MOST_REFUSED = 10_000
"""How many refused names are kept; the rest is counted."""
LONGEST_NAME, LONGEST_PATH = 255, 4096
"""Limits in bytes, as on Linux and macOS."""
PARTS = ".rgt-parts"
"""Directory of unfinished copies, in the destination."""
SMALL_PART = re.compile(r"\.[0-9a-f]{16}\.rgt-part")
"""Name of a small file being written, in the same directory as its final name."""
CHECKPOINTS = frozenset((".pt", ".pth", ".ckpt", ".safetensors", ".distcp", ".npz", ".h5", ".gguf"))
"""Suffixes of files that are never empty unless damaged."""
TRAINERS_LIST = "manifest.json"
"""The trainer writes it last into a checkpoint; it has the size of each of its files."""


class ListingError(Exception):
    """The list is unusable; the message says why."""


class RemoteFile(FrozenStruct, gc=False):
    """A file that can be pulled."""

    path: str
    """Absolute path on the box; bytes that are not UTF-8 are decoded like `os.fsdecode`."""
    there: FileStamp
    device: int
    """Device number on the box; with the stamp's inode it identifies the file."""


class RefusedFile(FrozenStruct):
    """A file that is not pulled."""

    path: str
    reason: str


class BoxListing(FrozenStruct, kw_only=True):
    """Everything below some paths of a box."""

    roots: tuple[str, ...]
    files: tuple[RemoteFile, ...]
    refused: tuple[RefusedFile, ...] = ()
    """Entries that cannot be pulled and may be lost: while there are any, no proof is valid."""
    links: tuple[tuple[str, str], ...] = ()
    """``(path, target)``: listed, but neither followed nor recreated."""
    uncounted: int = 0
    """How many more were refused, or are links."""

    @property
    def total_bytes(self) -> int:
        """Total bytes of all files."""
        return sum(file.there.size for file in self.files)


class _ListingRow(FrozenStruct, gc=False):
    root: str | None = None
    root_b64: str | None = None
    file: bool = False
    path: str | None = None
    path_b64: str | None = None
    stamp: FileStamp | None = None
    device: int | None = None
    link: str | None = None
    error: str | None = None
    end: bool = False
    files: int = -1


_decode = msgspec.json.Decoder(_ListingRow).decode


class ListingReader:
    """Parses the lines of ``manifest --no-hash``, or of ``results --list``.

    Args:
        most_files: Maximum number of files kept in memory.
        most_bytes: Maximum bytes of the list.
    """

    def __init__(self, most_files: int = MOST_FILES, most_bytes: int = MOST_BYTES) -> None:
        self.ended = False
        self._most = most_files
        self._bytes_left = most_bytes
        self._roots: list[str] = []
        self._files: dict[str, RemoteFile] = {}
        self._refused: list[RefusedFile] = []
        self._links: list[tuple[str, str]] = []
        self._root = ""
        self._prefix: str | None = None
        self._rows = self._uncounted = 0

    def accept_line(self, line: bytes) -> None:
        """Parse a line.

        Raises:
            ListingError: it is not part of a list, or the list is too long.
        """
        # Counted before the line is parsed: an endless list must not fill the memory.
        self._bytes_left -= len(line)
        if self._bytes_left < 0:
            raise ListingError(f"the box's list of files is too long: {self._parts_advice()}")
        try:
            row = _decode(line)
        except (ValueError, RecursionError) as error:
            raise ListingError(f"the box's list of files cannot be read: {error}") from error
        if row.end:
            # The only proof that nothing was lost on the way: the list is otherwise a row per file.
            if row.files != self._rows:
                raise ListingError(
                    f"the box says that it listed {how_many(row.files, 'file')}, but "
                    f"{self._rows:,} came"
                )
            self.ended = True
        elif (root := _decode_name(row.root, row.root_b64)) is not None:
            self._begin_root(root, row.file)
        else:
            self._add_entry(row)

    def _parts_advice(self) -> str:
        return "pull it in parts, by naming paths"

    def _begin_root(self, root: str, is_file: bool) -> None:
        reason = find_root_problem(root)
        if reason is not None:
            raise ListingError(f"the box lists {root!r}, which is {reason}")
        if root not in self._roots:
            self._roots.append(root)
        self._root = root
        # A root that is a file is listed by its own name, so names count from its directory.
        self._prefix = (root.rpartition("/")[0] if is_file else root).rstrip("/") + "/"

    def _add_entry(self, row: _ListingRow) -> None:
        name = _decode_name(row.path, row.path_b64)
        if name is None or self._prefix is None:
            raise ListingError("the box lists something without a name")
        # An entry without a stamp, because the agent could not read it: no reason to refuse the
        # whole list.
        if row.error is not None:
            return self._add_refused(
                self._root if name == "." else self._prefix + name, clean_text(row.error)
            )
        if row.link is not None:
            if len(self._links) < MOST_REFUSED:
                self._links.append((self._prefix + name, row.link))
            else:
                self._uncounted += 1
            return None
        if row.stamp is None or row.device is None:
            raise ListingError(f"the box lists {name!r} without its size or its device")
        # Counted even if it is refused below: the agent's count at the end has it, too.
        self._rows += 1
        if len(self._files) >= self._most:
            raise ListingError(
                f"the box lists more than {self._most:,} files: {self._parts_advice()}"
            )
        reason = find_name_problem(name, row.stamp)
        if reason is not None:
            return self._add_refused(self._prefix + name, reason)
        path = self._prefix + name
        self._files[path] = RemoteFile(path, row.stamp, row.device)
        return None

    def _add_refused(self, path: str, reason: str) -> None:
        if len(self._refused) < MOST_REFUSED:
            self._refused.append(RefusedFile(path, reason))
        else:
            self._uncounted += 1

    def build_listing(self, *, folds: bool) -> BoxListing:
        """Return what was listed.

        Args:
            folds: The destination's names are case-insensitive.

        Raises:
            ListingError: the list was cut off.
        """
        if not self.ended:
            raise ListingError("the box's list of files was cut off")
        # Only now: a clash shows when all names are known.
        files, clashes = (
            split_clashes(self._files.values()) if folds else (tuple(self._files.values()), ())
        )
        return BoxListing(
            roots=tuple(self._roots),
            files=files,
            refused=(*self._refused, *clashes),
            links=tuple(self._links),
            uncounted=self._uncounted,
        )


def _decode_name(text: str | None, coded: str | None) -> str | None:
    if coded is None:
        return text
    try:
        # Without `validate`, characters outside of base64 are skipped: two texts would name one
        # file.
        return os.fsdecode(base64.b64decode(coded, validate=True))
    except ValueError as error:
        raise ListingError("the box lists a name that is not base64") from error


def find_root_problem(root: str) -> str | None:
    """Return why nothing below this path of a box can be pulled; None = it can."""
    if not root.startswith("/"):
        return "not an absolute path"
    if root.rstrip("/"):
        return _find_part_problem(root[1:].rstrip("/"))
    return None


def find_name_problem(name: str, stamp: FileStamp) -> str | None:
    """Return why a file, named relative to the requested path, is refused.

    None = it is accepted.
    """
    if name.startswith("/"):
        return "is refused: its name is absolute"
    reason = _find_part_problem(name)
    if reason is not None:
        return f"is refused: it is {reason}"
    if stamp.size < 0:
        return "is refused: its size makes no sense"
    # A full disk leaves such files; a pull that accepts them would call the results safe.
    if stamp.size == 0 and PurePosixPath(name).suffix.lower() in CHECKPOINTS:
        return "is refused: it has 0 bytes, and a checkpoint has more"
    return None


def _find_part_problem(name: str) -> str | None:
    parts = name.split("/")
    if ".." in parts:
        return "a path with .. in it"
    if "" in parts or "." in parts:
        return "a path with an empty part"
    if "\0" in name:
        return "a name with a zero byte"
    # A box must not write into the state of a pull.
    if parts[0] == PARTS:
        return "where rgt keeps what is not finished"
    # UTF-8 has at most four bytes per character, so most names need no encoding for this test.
    if len(name) * 4 > LONGEST_NAME and any(
        len(os.fsencode(part)) > LONGEST_NAME for part in parts
    ):
        return f"a name of more than {LONGEST_NAME} bytes"
    return None


def destination_path(destination: Path, path: str) -> str:
    """Return the local path of a file of the box: its absolute path below the destination.

    Raises:
        ListingError: the path is too long here.
    """
    found = f"{destination}/{path.lstrip('/')}"
    # "At least", because PATH_MAX counts the zero byte at the end.
    if len(found) * 4 >= LONGEST_PATH and len(os.fsencode(found)) >= LONGEST_PATH:
        raise ListingError(f"is refused: its path would be longer than {LONGEST_PATH} bytes here")
    return found


def split_clashes(
    files: Iterable[RemoteFile],
) -> tuple[tuple[RemoteFile, ...], tuple[RefusedFile, ...]]:
    """Separate files whose names would collide on a case-insensitive destination.

    None of them is pulled, because chance would decide which one survives.
    """
    by_key: dict[str, list[RemoteFile]] = {}
    for file in files:
        # APFS compares names normalised and without case.
        by_key.setdefault(unicodedata.normalize("NFC", file.path).casefold(), []).append(file)
    kept = tuple(same[0] for same in by_key.values() if len(same) == 1)
    clashes = tuple(
        RefusedFile(
            file.path,
            "is refused: its name differs only in case from another one, and this destination "
            "cannot hold both",
        )
        for same in by_key.values()
        if len(same) > 1
        for file in same
    )
    return kept, clashes


def folds_case(folder: Path) -> bool:
    """Return whether names in a directory are case-insensitive.

    Raises:
        OSError: nothing can be written there.
    """
    # Asked of the directory itself: it may be another file system than its parent's.
    probe = folder / f"Case-{os.getpid()}"
    probe.touch()
    try:
        return os.path.lexists(folder / probe.name.lower())
    finally:
        probe.unlink(missing_ok=True)


class _FileEntry(FrozenStruct):
    size: int


class _TrainersList(FrozenStruct):
    files: dict[str, _FileEntry]


def size_in_trainers_list(data: bytes, name: str) -> int | None:
    """Return the size of a file in its checkpoint's own list; None if the list has none."""
    try:
        entry = msgspec.json.decode(data, type=_TrainersList).files.get(name)
    except (ValueError, RecursionError):
        return None
    if entry is None:
        return None
    return entry.size
