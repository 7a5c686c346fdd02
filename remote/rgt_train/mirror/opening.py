"""Which kind of place a URL names."""

from __future__ import annotations

from rgt_train.mirror.folder import Folder
from rgt_train.mirror.objects import Objects
from rgt_train.mirror.place import Place


def open_place(url: str) -> Place:
    """Return the place at `url`: a path, or ``scheme://…`` for fsspec.

    Raises:
        UsageError: fsspec, or its part for this scheme, is not installed, or the URL is not understood.
        OSError: It cannot be reached.
    """
    if "://" in url and not url.startswith("file://"):
        return Objects(url)
    return Folder(url[len("file://") :] if url.startswith("file://") else url)
