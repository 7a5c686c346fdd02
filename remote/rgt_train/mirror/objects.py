"""A mirror behind a URL, by fsspec: S3 and its relatives, GCS, Azure, SFTP.

An object store has no rename. A directory counts as complete once its manifest is there, and that is written last.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any, BinaryIO, Iterator, List, Mapping

from rgt_train.exits import UsageError
from rgt_train.mirror.place import MANIFEST, OWNER, PIECE, is_ours


class Objects:
    """A prefix in an object store.

    Args:
        url: ``scheme://bucket/prefix``; credentials come from where the library looks for them (environment,
            instance role), never from the URL.

    Raises:
        UsageError: fsspec, or what it needs for this scheme, is not installed.
        OSError: The store does not answer.
    """

    def __init__(self, url: str) -> None:
        self.url = url.rstrip("/")
        try:
            core = import_module("fsspec.core")
        except ImportError as error:
            raise UsageError(f"mirror {url} needs fsspec: pip install fsspec, and s3fs for s3://") from error
        try:
            self._fs, self._root = _told(lambda: core.url_to_fs(self.url, use_listings_cache=False))
        except (ImportError, ValueError) as error:
            raise UsageError(f"mirror {url}: {error}") from error

    def names(self) -> List[str]:
        """Return the names of the complete directories."""
        found: List[str] = _told(lambda: self._fs.glob(f"{self._root}/*/{MANIFEST}"))
        return [path.rstrip("/").rsplit("/", 2)[-2] for path in found]

    def put(self, name: str, files: Mapping[str, BinaryIO]) -> None:
        """Copy `files` into the new directory `name`, the manifest last."""
        self.drop(name)
        for file in sorted(files, key=lambda file: file == MANIFEST):
            _told(lambda file=file: self._put(f"{self._root}/{name}/{file}", files[file]))

    def read(self, name: str, file: str) -> Iterator[bytes]:
        """Yield the content of a file."""
        source = _told(lambda: self._fs.open(f"{self._root}/{name}/{file}", "rb", block_size=PIECE))
        with source:
            while True:
                piece = _told(lambda: source.read(PIECE))
                if not piece:
                    return
                yield piece

    def drop(self, name: str) -> None:
        """Delete a directory, the manifest first: half of it must not count."""
        folder = f"{self._root}/{name}"
        for path in (f"{folder}/{MANIFEST}", folder):
            if _told(lambda path=path: self._fs.exists(path)):
                _told(lambda path=path: self._fs.rm(path, recursive=True))

    def sweep(self) -> None:
        """Delete what copies that were killed left half done, or half deleted: what has no manifest."""
        try:
            found = _told(lambda: self._fs.ls(self._root, detail=False))
        except FileNotFoundError:
            return
        whole = set(self.names())
        for name in (path.rstrip("/").rsplit("/", 1)[-1] for path in found):
            if is_ours(name) and name not in whole:
                self.drop(name)

    def note(self, file: str = OWNER) -> bytes:
        """Return what `mark` wrote last; empty where there is nothing."""
        try:
            found: bytes = _told(lambda: self._fs.cat_file(f"{self._root}/{file}"))
        except FileNotFoundError:
            return b""
        return found

    def mark(self, content: bytes, file: str = OWNER) -> None:
        """Keep `content` beside the directories, in place of what is there under that name."""
        _told(lambda: self._fs.pipe_file(f"{self._root}/{file}", content))

    def _put(self, path: str, source: BinaryIO) -> None:
        with self._fs.open(path, "wb") as target:
            while True:
                piece = source.read(PIECE)
                if not piece:
                    return
                target.write(piece)


def _told(work: Any) -> Any:
    """Return ``work()``; what the store's own library raises becomes an `OSError`.

    Raises:
        OSError: The store refused, or did not answer.
    """
    try:
        return work()
    except (OSError, ImportError, ValueError):
        raise
    except Exception as error:
        raise OSError(5, f"{type(error).__name__}: {error}") from error
