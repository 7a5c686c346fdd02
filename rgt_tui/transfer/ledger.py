"""Records what was pulled from each box, and proves that the copies are still unchanged.

One file per box: ``$XDG_STATE_HOME/rgt/pulled/BOX.jsonl``. A row is written only once its file is
on disk under its name with the hash that the box reported; the last row of a path counts. Damaged
rows prove nothing: their files are pulled again.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import os
import stat
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Self, TypeVar
from urllib.parse import quote

import msgspec

from rgt_tui.files import find_fault, open_regular, state_directory
from rgt_tui.language import translate
from rgt_tui.model import CopyProof, FrozenStruct, ResultGroup, how_many, steady_time

BLOCK = 4 << 20
CODED = "base64:"
"""Prefix of an encoded name that is not UTF-8; every other name begins with a slash."""


class LedgerError(Exception):
    """The ledger of a box is unusable; the message has its file and the reason."""


class FileStamp(FrozenStruct, array_like=True, gc=False):
    """Metadata that changes whenever the content of a file may have changed."""

    size: int
    mtime_ns: int
    ctime_ns: int
    inode: int

    @classmethod
    def from_stat(cls, found: os.stat_result) -> Self:
        """Return the stamp of a file."""
        return cls(found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino)


class CopiedFile(FrozenStruct, kw_only=True, tag_field="t", tag="file", gc=False):
    """The part of a `FileRow` that a verification needs.

    Small, as there may be hundreds of thousands.
    """

    path: str
    """Absolute path on the box."""
    local: str
    """Absolute path of the copy."""
    sha256: str


class FileRow(CopiedFile, frozen=True, kw_only=True, tag_field="t", tag="file", gc=False):
    """A file of the box whose copy was verified."""

    there: FileStamp
    """Stamp of the file on the box when it was read."""
    here: FileStamp
    """Stamp of the copy when it was verified."""
    instance: str = ""
    """The provider's id of the machine; empty = unknown."""
    at: float = 0.0
    """Client clock, Unix time."""
    uncounted: bool = False
    """The box does not count it among its directory's results: it belongs to a package, or to rgt.
    """


class GoneRow(FrozenStruct, kw_only=True, tag_field="t", tag="gone"):
    """A file that was pulled and is no longer on the box."""

    path: str
    at: float = 0.0


class FolderRow(FrozenStruct, kw_only=True, tag_field="t", tag="folder"):
    """A directory of the box after pulling all of it was tried."""

    path: str
    """Absolute path on the box."""
    local: str
    fingerprint: str
    """The box's fingerprint, equal before and after the pull."""
    files: int
    bytes: int
    missing: tuple[tuple[str, str], ...] = ()
    """``(path, reason)`` of files missing in the copy."""
    instance: str = ""
    at: float = 0.0


Row = FileRow | GoneRow | FolderRow
R = TypeVar("R", bound=msgspec.Struct)
_decode = msgspec.json.Decoder(Row).decode
_decode_copied = msgspec.json.Decoder(CopiedFile | GoneRow | FolderRow).decode


def encode_path(path: str) -> str:
    """Return a path as JSON text; one that is not UTF-8 is encoded with base64."""
    try:
        path.encode()
    except UnicodeEncodeError:
        return CODED + base64.b64encode(os.fsencode(path)).decode("ascii")
    return path


def decode_path(text: str) -> str:
    """Return the path that `encode_path` encoded.

    Raises:
        ValueError: it is not valid.
    """
    if not text.startswith(CODED):
        return text
    return os.fsdecode(base64.b64decode(text[len(CODED) :], validate=True))


def ledger_path(box: str, env: Mapping[str, str] = os.environ) -> Path:
    """Return the path of a box's ledger."""
    return state_directory(env) / "pulled" / f"{quote(box, safe=' ')}.jsonl"


def _iterate_rows(path: Path, decode: Callable[[bytes], R]) -> Iterator[R | None]:
    """Yield the rows of a ledger, with decoded names; None for an invalid line.

    Raises:
        LedgerError: it cannot be read, or others may write to it.
    """
    try:
        with open_regular(path, follow=False) as file:
            # With write access to the ledger, a proof could be forged that lets a box be deleted.
            why = find_fault(path, os.fstat(file.fileno()), file.fileno())
            if why is not None:
                raise LedgerError(
                    translate(
                        "{words}, so it proves nothing; {cure}", words=why.words, cure=why.cure
                    )
                )
            for line in file:
                try:
                    row = decode(line)
                    for name in ("path", "local"):
                        text = getattr(row, name, "")
                        if text.startswith(CODED):
                            row = msgspec.structs.replace(row, **{name: decode_path(text)})
                except (ValueError, RecursionError):
                    # A line feed alone was written to separate a torn row.
                    if line.strip():
                        yield None
                    continue
                yield row
    except FileNotFoundError:
        pass
    except OSError as error:
        raise LedgerError(
            translate("cannot read {path}: {strerror}", path=path, strerror=error.strerror or error)
        ) from error


def has_copy_below(folder: str, env: Mapping[str, str] = os.environ) -> bool:
    """Return whether a directory contains an unchanged file that was pulled into it from any box.

    An unreadable ledger proves nothing.

    Args:
        folder: Absolute path without links.
        env: Environment that determines rgt's state directory.
    """
    real: dict[str, str] = {}
    for path in sorted((state_directory(env) / "pulled").glob("*.jsonl")):
        # Another box's damaged ledger proves nothing, and is no reason to answer nothing.
        with contextlib.suppress(LedgerError):
            for row in _iterate_rows(path, _decode):
                if not isinstance(row, FileRow):
                    continue
                above = row.local.rpartition("/")[0]
                if above not in real:
                    # Cached, because thousands of files share a directory.
                    real[above] = os.path.realpath(above)
                if f"{real[above]}/".startswith(f"{folder}/") and _is_unchanged(row):
                    return True
    return False


def _is_unchanged(row: FileRow) -> bool:
    """Return whether a copy is unchanged.

    Ctime and inode are ignored, as a backup may change them.
    """
    try:
        found = FileStamp.from_stat(os.lstat(row.local))
    except OSError:
        return False
    return (found.size, found.mtime_ns) == (row.here.size, row.here.mtime_ns)


def iterate_copies(path: Path) -> Iterator[CopiedFile | FolderRow]:
    """Yield what a ledger has: the files, and the directories of the box that contain them.

    Raises:
        LedgerError: as `Ledger`.
    """
    files: dict[str, CopiedFile] = {}
    folders: dict[str, FolderRow] = {}
    for row in _iterate_rows(path, _decode_copied):
        if isinstance(row, CopiedFile):
            files.pop(row.path, None)
            files[row.path] = row
        elif isinstance(row, FolderRow):
            folders[row.path] = row
        elif row is not None:
            files.pop(row.path, None)
    above: set[str] = set()
    for copied in files.values():
        yield copied
        folder = copied.path
        # Stops at the first known parent: those above it are known as well.
        while (folder := folder.rpartition("/")[0]) not in above:
            above.add(folder)
    yield from (folders[folder or "/"] for folder in above if (folder or "/") in folders)


class Ledger:
    """The rows of one box.

    Args:
        path: Its file; created with the first row.

    Attributes:
        damaged: Number of invalid lines.

    Raises:
        LedgerError: it cannot be read, or others may write to it.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.damaged = 0
        self._files: dict[str, FileRow] = {}
        self._local: dict[str, FileRow] = {}
        self._folders: dict[str, FolderRow] = {}
        self._handle: int | None = None
        for row in _iterate_rows(path, _decode):
            if row is None:
                self.damaged += 1
            else:
                self._apply_row(row)

    def _apply_row(self, row: Row) -> None:
        if isinstance(row, FileRow):
            self._drop_file(row.path)
            self._files[row.path] = row
            self._local[row.local] = row
        elif isinstance(row, GoneRow):
            self._drop_file(row.path)
        else:
            self._folders[row.path] = row

    def _drop_file(self, path: str) -> None:
        self._files.pop(path, None)  # its copy remains verified, and so remains in `_local`

    def find_file(self, path: str) -> FileRow | None:
        """Return the row of a file of the box."""
        return self._files.get(path)

    def find_copy(self, local: str) -> FileRow | None:
        """Return the last row about a local path."""
        return self._local.get(local)

    def find_folder(self, path: str) -> FolderRow | None:
        """Return the row of a directory of the box."""
        return self._folders.get(path)

    def file_rows(self) -> Iterable[FileRow]:
        """Return the rows of all files that the box had at the last pull."""
        return self._files.values()

    def append_rows(self, rows: Iterable[Row]) -> None:
        """Append rows and fsync.

        Raises:
            LedgerError: they cannot be written; some of them may have been.
        """
        rows = tuple(rows)
        if not rows:
            return
        data = b"".join(msgspec.json.encode(_encode_row(row)) + b"\n" for row in rows)
        try:
            handle = self._open_handle()
            view = memoryview(data)
            while view:
                # A write may be short, for example just before the disk is full.
                view = view[os.write(handle, view) :]
            # A row is a proof: it must not be lost after the box was deleted because of it.
            os.fsync(handle)
        except OSError as error:
            # The next row must not continue one that was cut off: `_open_handle` separates them.
            self.close()
            raise LedgerError(
                translate(
                    "cannot write {path}: {strerror}",
                    path=self.path,
                    strerror=error.strerror or error,
                )
            ) from error
        for row in rows:
            self._apply_row(row)

    def _open_handle(self) -> int:
        if self._handle is None:
            self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            # O_NOFOLLOW: a link there could direct the rows into another file.
            flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
            self._handle = os.open(self.path, flags, 0o600)
            size = os.fstat(self._handle).st_size
            if size and os.pread(self._handle, 1, size - 1) != b"\n":
                # a row truncated by a crash must not corrupt the next
                os.write(self._handle, b"\n")
        return self._handle

    def close(self) -> None:
        """Close the file."""
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None


def _encode_row(row: Row) -> Row:
    path = encode_path(row.path)
    if isinstance(row, GoneRow):
        return msgspec.structs.replace(row, path=path)
    local = encode_path(row.local)
    if isinstance(row, FolderRow):
        # How many names a directory's row contains; the rest is counted.
        most_missing = 1000
        missing = tuple((encode_path(name), reason) for name, reason in row.missing[:most_missing])
        return msgspec.structs.replace(row, path=path, local=local, missing=missing)
    plain = path is row.path and local is row.local  # the usual case, and there may be thousands
    if plain:
        return row
    return msgspec.structs.replace(row, path=path, local=local)


def sha256_of(path: Path, most: int | None = None) -> tuple[str, FileStamp]:
    """Return the hash of a regular file, or of its first `most` bytes, and its stamp.

    Raises:
        OSError: it is not a regular file, cannot be read, is shorter, or changed during the read.
    """
    with open_regular(path, follow=False) as file:
        before = FileStamp.from_stat(os.fstat(file.fileno()))
        # Only the size at the start: a log that grows would otherwise never end.
        found, left = hashlib.sha256(), before.size if most is None else most
        while left and (data := file.read(min(left, BLOCK))):
            found.update(data)
            left -= len(data)
        after = FileStamp.from_stat(os.fstat(file.fileno()))
    if left:
        raise OSError(0, "it is shorter than it was")
    # A writer was at work: the hash is of no version that ever existed.
    if before != after:
        raise OSError(0, "it changed while it was read")
    return found.hexdigest(), after


def prove_copies(
    box: str,
    instance: str,
    groups: Iterable[ResultGroup],
    *,
    env: Mapping[str, str] = os.environ,
) -> tuple[CopyProof, ...]:
    """Return what was pulled of a box's directories, after checking each copy again.

    A copy with an unchanged stamp is not hashed again. It blocks while the others are read.

    Args:
        box: Its name in the fleet file.
        instance: The provider's current id of the machine; copies from another machine prove
            nothing.
        groups: The directories.
        env: Environment that determines rgt's state directory.

    Returns:
        A proof for each directory pulled from this very machine, including its errors; none for the
        others. The caller compares its fingerprint with the box's current one.

    Raises:
        LedgerError: the ledger is unusable.
    """
    ledger = Ledger(ledger_path(box, env))
    try:
        wanted = {group.path: group for group in groups}
        members: dict[str, list[FileRow]] = {path: [] for path in wanted}
        for row in ledger.file_rows():
            # The deepest one: a file counts once, as in the box's own list.
            owner = deepest_folder(row.path, members)
            if owner is not None and not row.uncounted:
                members[owner].append(row)
        members = {
            path: _counted_copies(rows, wanted[path], instance) for path, rows in members.items()
        }
        fresh: list[FileRow] = []
        folders = [
            _find_folder_row(ledger, group, members[path], instance)
            for path, group in wanted.items()
        ]
        found = tuple(
            _build_proof(folder, members[folder.path], instance, fresh)
            for folder in folders
            if folder is not None
        )
        ledger.append_rows(fresh)
    finally:
        ledger.close()
    return found


def fingerprint(rows: Iterable[FileRow]) -> str:
    """Return the fingerprint that the agent's ``results`` gives a directory with these files.

    It uses their stamps at the time of the pull.
    """
    count = total = 0
    for row in rows:
        there = row.there
        # The bytes on disk, as the agent on the box computes the same fingerprint.
        name = os.fsencode(row.path)
        text = b"%s\0%d\0%d\0%d\0%d" % (
            name,
            there.size,
            there.mtime_ns,
            there.ctime_ns,
            there.inode,
        )
        # A sum does not depend on the order, so a million rows need not be sorted.
        total += int.from_bytes(hashlib.sha256(text).digest(), "big")
        count += 1
    return hashlib.sha256(b"%d:%064x" % (count, total & ((1 << 256) - 1))).hexdigest()


def deepest_folder(path: str, folders: Mapping[str, object]) -> str | None:
    """Return the deepest of the directories that contain a file."""
    above = path
    while (at := above.rpartition("/")[0]) != above:
        above = at
        if (above or "/") in folders:
            return above or "/"
        if not above:
            return None
    return None


def _counted_copies(rows: list[FileRow], group: ResultGroup, instance: str) -> list[FileRow]:
    """Return the copies of the files that the box counts in a directory, by its fingerprint.

    A pull without the machine's creation date also fetched older files, which the gate's list, made
    with that date, leaves out: then only the newest files count.
    """
    own = [row for row in rows if row.instance == instance]
    if group.fingerprint and group.files < len(own) and fingerprint(own) != group.fingerprint:
        newest = sorted(own, key=lambda row: row.there.ctime_ns, reverse=True)[: group.files]
        # The fingerprint decides; sorting by time only finds the candidates.
        if fingerprint(newest) == group.fingerprint:
            return newest
    return rows


def _find_folder_row(
    ledger: Ledger, group: ResultGroup, rows: list[FileRow], instance: str
) -> FolderRow | None:
    """Return what was pulled of a directory: all of its current files, or the last pull's row."""
    rows = [row for row in rows if row.instance == instance]
    if rows and group.fingerprint and fingerprint(rows) == group.fingerprint:
        first = rows[0]
        top = ""
        if first.local.endswith(first.path):
            top = first.local.removesuffix(first.path)
        return FolderRow(
            path=group.path,
            local=top + group.path if top else str(Path(first.local).parent),
            fingerprint=group.fingerprint,
            files=len(rows),
            bytes=sum(row.there.size for row in rows),
            instance=instance,
        )
    folder = ledger.find_folder(group.path)
    if folder is not None and folder.instance == instance:
        return folder
    return None


def _build_proof(
    folder: FolderRow, rows: list[FileRow], instance: str, fresh: list[FileRow]
) -> CopyProof:
    errors = list(folder.missing)
    whole = [row for row in rows if row.instance == instance]
    total = sum(row.there.size for row in whole)
    # The ledger may have lost rows since: then the directory's row claims too much.
    if not errors and (len(whole), total) != (folder.files, folder.bytes):
        errors.append(
            (
                folder.path,
                f"the pull brought {how_many(folder.files, 'file')} of {folder.bytes:,} bytes, the "
                f"ledger knows {len(whole):,} of {total:,}: pull it again",
            )
        )
    for row in whole:
        again = _recheck_copy(row)
        if isinstance(again, str):
            errors.append((row.path, again))
        elif again is not row:
            fresh.append(again)
    return CopyProof(
        path=folder.path,
        fingerprint=folder.fingerprint,
        where=folder.local,
        files=len(whole),
        bytes=total,
        errors=tuple(errors),
        sha256=copy_digest(folder.path, whole),
        checked=steady_time(),
    )


def copy_digest(folder: str, rows: Iterable[FileRow]) -> str:
    """Return one SHA-256 for a directory: that of ``sha256sum``'s output, sorted by file name."""
    prefix = folder.rstrip("/") + "/"
    lines = sorted((os.fsencode(row.path.removeprefix(prefix)), row.sha256) for row in rows)
    return hashlib.sha256(
        b"".join(f"{sha256}  ".encode() + name + b"\n" for name, sha256 in lines)
    ).hexdigest()


def _recheck_copy(row: FileRow) -> FileRow | str:
    """Return the row of an unchanged copy, with its current stamp; or what is wrong with it."""
    path = Path(row.local)
    try:
        found = path.lstat()
        if not stat.S_ISREG(found.st_mode):
            return f"its copy {path} is no longer a regular file"
        # Unchanged since it was hashed, so the hash is still its hash.
        if FileStamp.from_stat(found) == row.here:
            return row
        if found.st_size != row.here.size:
            return f"its copy {path} has {found.st_size:,} bytes, not {row.here.size:,}"
        digest, stamp = sha256_of(path)
    except FileNotFoundError:
        return f"its copy {path} is missing"
    except OSError as error:
        return f"its copy {path} cannot be read: {error.strerror or error}"
    if digest != row.sha256:
        return (
            f"its copy {path} was changed: its SHA-256 is no longer the one that the box reported"
        )
    return msgspec.structs.replace(row, here=stamp, at=time.time())
