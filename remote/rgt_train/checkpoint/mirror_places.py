"""Possible places of a mirror: a directory, or a prefix in an object store.

An object store has no rename. A directory counts as complete once it has its manifest, which is
written last.
"""

from __future__ import annotations

import os
import re
from importlib import import_module
from typing import Any, BinaryIO, Iterator, Mapping, Protocol

from rgt_train.checkpoint import manifest
from rgt_train.checkpoint.diskio import fsync_dir, remove_path, replace_file, write_all
from rgt_train.checkpoint.manifest import CheckpointDamaged
from rgt_train.checkpoint.store import CheckpointItem
from rgt_train.exits import UsageError

MANIFEST = manifest.NAME
OWNER = "owner.json"
"""Next to the directories: the owner of the mirror (see `rgt_train.checkpoint.mirror_worker`)."""
PIECE = 4 << 20
"""Bytes that are read or written at a time."""
_STEP = re.compile(r"step-(\d{8,})-a(\d+)(?:\.(\d+))?\Z")
_BEST = re.compile(r"best-(\d{8,})-a(\d+)(?:\.(\d+))?\Z")


class MirrorPlace(Protocol):
    """A remote set of directories of files.

    Every method raises `OSError` if the place does not answer.

    Attributes:
        url: Its address, for a person.
    """

    url: str

    def list_names(self) -> list[str]:
        """Return the names of the complete directories: those that have a manifest."""

    def put_directory(self, name: str, files: Mapping[str, BinaryIO]) -> None:
        """Copy `files` into the new directory `name`, the manifest last.

        Replace a dead copy's remains.
        """

    def stream_file(self, name: str, file: str) -> Iterator[bytes]:
        """Yield the content of a file, from the storage and not from a local cache."""

    def delete_directory(self, name: str) -> None:
        """Delete a directory, the manifest first."""

    def remove_partial(self) -> None:
        """Delete the partial copies and deletions of killed processes."""

    def read_note(self, file: str = OWNER) -> bytes:
        """Return what `write_note` wrote last; empty if there is nothing."""

    def write_note(self, content: bytes, file: str = OWNER) -> None:
        """Store `content` next to the directories, replacing a file with that name."""


def step_items(names: list[str]) -> list[CheckpointItem]:
    """Return the step checkpoints among `names`, oldest first."""
    return _parse_items(names, _STEP)


def best_items(names: list[str]) -> list[CheckpointItem]:
    """Return the best checkpoints among `names`, the current one last.

    That is the best of the last launch: a best of a later step may come from a time that a rollback
    gave up.
    """
    return sorted(
        _parse_items(names, _BEST), key=lambda item: (item.attempt, item.step, item.serial)
    )


def is_ours(name: str) -> bool:
    """Return whether `name` is the name of a checkpoint in a mirror."""
    return bool(_STEP.match(name) or _BEST.match(name))


def verify_copy(
    place: MirrorPlace, name: str, expected: Mapping[str, Mapping[str, object]]
) -> None:
    """Read a directory back and compare every byte.

    Args:
        place: The mirror.
        name: The directory.
        expected: The ``files`` of its manifest as at the source.

    Raises:
        CheckpointDamaged: A file differs from the copied one.
    """
    for file, facts in expected.items():
        size, sums = _stream_checksums(_stream_listed(place, name, file))
        if size != facts["size"] or sums != facts["crc32"]:
            raise CheckpointDamaged(
                f"{file} reads back differently ({size} of {facts['size']} bytes)"
            )


def fetch_directory(place: MirrorPlace, name: str, target: str) -> None:
    """Copy a directory to the new local directory `target`, fsynced.

    Raises:
        OSError: It could not be read or written.
        CheckpointDamaged: It is incomplete there.
    """
    remove_path(target)
    os.mkdir(target)
    try:
        raw = b"".join(place.stream_file(name, MANIFEST))
        _write_pieces(os.path.join(target, MANIFEST), iter([raw]))
        for file in manifest.read_manifest(target)["files"]:
            # The manifest comes from outside: a name with a slash could lead out of the directory.
            if os.path.basename(file) != file:
                raise CheckpointDamaged(f"{file} is not a name of a file")
            _write_pieces(os.path.join(target, file), _stream_listed(place, name, file))
        fsync_dir(target)
        # From the local disk: the network may have delivered other bytes than the disk stored.
        manifest.verify_checkpoint(target)
    except BaseException:
        remove_path(target)
        raise


def _stream_listed(place: MirrorPlace, name: str, file: str) -> Iterator[bytes]:
    """Yield the content of a file that the manifest lists.

    Raises:
        CheckpointDamaged: It is missing, while the manifest is there.
    """
    try:
        yield from place.stream_file(name, file)
    except FileNotFoundError as error:
        # Otherwise the whole place is gone, such as a volume that is no longer mounted.
        if name in place.list_names():
            raise CheckpointDamaged(f"{file} is missing") from error
        raise


def _write_pieces(path: str, pieces: Iterator[bytes]) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
    try:
        for piece in pieces:
            write_all(fd, piece, path)
        os.fsync(fd)
    finally:
        os.close(fd)


def _stream_checksums(pieces: Iterator[bytes]) -> tuple[int, list[str]]:
    """Return the size and the checksums of a stream, by the chunks of a manifest."""
    import zlib

    sums: list[str] = []
    size = current = 0
    for piece in pieces:
        view = memoryview(piece)
        while view:
            room = manifest.CHUNK - size % manifest.CHUNK
            part = view[:room]
            view = view[room:]
            current = zlib.crc32(part, current)
            size += len(part)
            if size % manifest.CHUNK == 0:
                sums.append(f"{current:08x}")
                current = 0
    if size % manifest.CHUNK:
        sums.append(f"{current:08x}")
    return size, sums


def _parse_items(names: list[str], pattern: "re.Pattern[str]") -> list[CheckpointItem]:
    found: list[CheckpointItem] = []
    for name in names:
        match: "re.Match[str] | None" = pattern.match(name)
        if match:
            step, attempt, serial = (int(group or 0) for group in match.groups())
            found.append(CheckpointItem(step, attempt, serial, name, 0.0))
    return sorted(found)


class FolderPlace:
    """A directory; it is made if its parent exists.

    Args:
        path: Its path.

    Raises:
        UsageError: It is not absolute, or something else is there.
        OSError: It cannot be made: a volume that is not mounted must not be replaced by an empty
            directory.
    """

    def __init__(self, path: str) -> None:
        if not os.path.isabs(path):
            raise UsageError(
                f"mirror {path}: give an absolute path, or a URL such as s3://bucket/run"
            )
        self.url = path
        if not os.path.isdir(path):
            if os.path.lexists(path):
                raise UsageError(f"mirror {path} is not a directory")
            os.mkdir(path)
            fsync_dir(os.path.dirname(path))

    def list_names(self) -> list[str]:
        """Return the names of the complete directories."""
        # Copies and deletions in progress begin with a dot.
        found = [name for name in os.listdir(self.url) if not name.startswith(".")]
        return [name for name in found if os.path.exists(os.path.join(self.url, name, MANIFEST))]

    def put_directory(self, name: str, files: Mapping[str, BinaryIO]) -> None:
        """Copy `files` into the new directory `name`."""
        temporary = os.path.join(self.url, f".tmp-{name}")
        target = os.path.join(self.url, name)
        remove_path(temporary)
        os.mkdir(temporary)
        try:
            for file, source in files.items():
                self._copy_file(source, os.path.join(temporary, file))
            fsync_dir(temporary)
            if os.path.lexists(target):  # the same name again: its earlier copy was found to be bad
                self.delete_directory(name)
            os.rename(temporary, target)
            fsync_dir(self.url)
        except BaseException:
            remove_path(temporary)
            raise

    def stream_file(self, name: str, file: str) -> Iterator[bytes]:
        """Yield the content of a file."""
        fd = os.open(os.path.join(self.url, name, file), os.O_RDONLY)
        try:
            if hasattr(os, "posix_fadvise"):  # from the disk, if the system drops its cached copy
                os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
            while True:
                piece = os.read(fd, PIECE)
                if not piece:
                    return
                yield piece
        finally:
            os.close(fd)

    def delete_directory(self, name: str) -> None:
        """Delete a directory."""
        # Renamed first: a half-deleted directory must not keep a published name.
        aside = os.path.join(self.url, f".old-{name}")
        remove_path(aside)
        os.rename(os.path.join(self.url, name), aside)
        fsync_dir(self.url)
        remove_path(aside)

    def remove_partial(self) -> None:
        """Delete the partial copies and deletions of killed processes."""
        for name in os.listdir(self.url):
            if any(
                name.startswith(kind) and is_ours(name[len(kind) :]) for kind in (".tmp-", ".old-")
            ):
                remove_path(os.path.join(self.url, name))

    def read_note(self, file: str = OWNER) -> bytes:
        """Return what `write_note` wrote last; empty if there is nothing."""
        try:
            with open(os.path.join(self.url, file), "rb") as opened:
                return opened.read()
        except FileNotFoundError:
            os.stat(self.url)  # a missing volume is not a mirror without an owner
            return b""

    def write_note(self, content: bytes, file: str = OWNER) -> None:
        """Store `content` next to the directories, replacing a file with that name."""
        replace_file(os.path.join(self.url, file), content)

    @staticmethod
    def _copy_file(source: BinaryIO, target: str) -> None:
        fd = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
        try:
            while True:
                piece = source.read(PIECE)
                if not piece:
                    break
                write_all(fd, piece, target)
            os.fsync(fd)
        finally:
            os.close(fd)


class ObjectStorePlace:
    """A prefix in an object store.

    Args:
        url: ``scheme://bucket/prefix``; the library finds credentials (environment, instance role),
            never in the URL.

    Raises:
        UsageError: fsspec, or its package for this scheme, is not installed.
        OSError: The store does not answer.
    """

    def __init__(self, url: str) -> None:
        self.url = url.rstrip("/")
        try:
            core = import_module("fsspec.core")
        except ImportError as error:
            raise UsageError(
                f"mirror {url} needs fsspec: pip install fsspec, and s3fs for s3://"
            ) from error
        try:
            self._fs, self._root = _with_os_errors(
                # Other launches write here as well, which a cached listing would hide.
                lambda: core.url_to_fs(self.url, use_listings_cache=False)
            )
        except (ImportError, ValueError) as error:
            raise UsageError(f"mirror {url}: {error}") from error

    def list_names(self) -> list[str]:
        """Return the names of the complete directories."""
        found: list[str] = _with_os_errors(lambda: self._fs.glob(f"{self._root}/*/{MANIFEST}"))
        return [path.rstrip("/").rsplit("/", 2)[-2] for path in found]

    def put_directory(self, name: str, files: Mapping[str, BinaryIO]) -> None:
        """Copy `files` into the new directory `name`, the manifest last."""
        self.delete_directory(name)
        for file in sorted(files, key=lambda file: file == MANIFEST):
            _with_os_errors(
                lambda file=file: self._put_file(f"{self._root}/{name}/{file}", files[file])
            )

    def stream_file(self, name: str, file: str) -> Iterator[bytes]:
        """Yield the content of a file."""
        source = _with_os_errors(
            lambda: self._fs.open(f"{self._root}/{name}/{file}", "rb", block_size=PIECE)
        )
        with source:
            while True:
                piece = _with_os_errors(lambda: source.read(PIECE))
                if not piece:
                    return
                yield piece

    def delete_directory(self, name: str) -> None:
        """Delete a directory, the manifest first: a partial one must not count."""
        folder = f"{self._root}/{name}"
        for path in (f"{folder}/{MANIFEST}", folder):
            if _with_os_errors(lambda path=path: self._fs.exists(path)):
                _with_os_errors(lambda path=path: self._fs.rm(path, recursive=True))

    def remove_partial(self) -> None:
        """Delete the remains of killed copies and deletions: directories without a manifest."""
        try:
            found = _with_os_errors(lambda: self._fs.ls(self._root, detail=False))
        except FileNotFoundError:
            return
        whole = set(self.list_names())
        for name in (path.rstrip("/").rsplit("/", 1)[-1] for path in found):
            if is_ours(name) and name not in whole:
                self.delete_directory(name)

    def read_note(self, file: str = OWNER) -> bytes:
        """Return what `write_note` wrote last; empty if there is nothing."""
        try:
            found: bytes = _with_os_errors(lambda: self._fs.cat_file(f"{self._root}/{file}"))
        except FileNotFoundError:
            return b""
        return found

    def write_note(self, content: bytes, file: str = OWNER) -> None:
        """Store `content` next to the directories, replacing a file with that name."""
        _with_os_errors(lambda: self._fs.pipe_file(f"{self._root}/{file}", content))

    def _put_file(self, path: str, source: BinaryIO) -> None:
        with self._fs.open(path, "wb") as target:
            while True:
                piece = source.read(PIECE)
                if not piece:
                    return
                target.write(piece)


def _with_os_errors(work: Any) -> Any:
    """Return ``work()``; errors of the store's own library become an `OSError`.

    Raises:
        OSError: The store refused, or did not answer.
    """
    try:
        return work()
    # Callers distinguish FileNotFoundError from a store that does not answer.
    except (OSError, ImportError, ValueError):
        raise
    except Exception as error:
        raise OSError(5, f"{type(error).__name__}: {error}") from error


def open_place(url: str) -> MirrorPlace:
    """Return the place at `url`: a path, or ``scheme://…`` for fsspec.

    Raises:
        UsageError: fsspec, or its package for this scheme, is not installed, or the URL is invalid.
        OSError: It cannot be reached.
    """
    if "://" in url and not url.startswith("file://"):
        return ObjectStorePlace(url)
    return FolderPlace(url[len("file://") :] if url.startswith("file://") else url)
