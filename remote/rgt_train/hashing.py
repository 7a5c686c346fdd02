"""A file that `torch.save` can write to: hashed while it is written, and with a real errno when it fails."""

from __future__ import annotations

import hashlib
import os
from typing import Any, Dict, Optional

from rgt_train.durable import StrPath, write_all


class HashingFile:
    """Creates a file, hashes what is written to it, syncs it at `close`.

    `torch.save` to a path reports a full disk as a `RuntimeError` about file positions, without an errno. Here the
    first `OSError` is kept, later writes are swallowed, and `close` raises it: no exception has to cross torch's C++
    writer, and the caller learns the errno and the path.

    Raises:
        OSError: The file cannot be created, or exists.
    """

    def __init__(self, path: StrPath) -> None:
        self.path = os.fspath(path)
        self.size = 0
        self._digest = hashlib.sha256()
        self._error: Optional[OSError] = None
        self._fd = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)

    def write(self, data: Any) -> int:
        """Take in `data` (any buffer of bytes) and return its length."""
        view = memoryview(data).cast("B")
        if self._error is None:
            try:
                write_all(self._fd, view, self.path)
            except OSError as error:
                self._error = error
            else:
                self._digest.update(view)
                self.size += len(view)
        return len(view)

    def flush(self) -> None:
        """Nothing is buffered here."""

    def close(self, *, sync: bool = True) -> None:
        """Sync and close.

        Args:
            sync: Whether the data must survive a power loss from here on.

        Raises:
            OSError: A write or the sync failed.
        """
        if self._fd < 0:
            return
        fd, self._fd = self._fd, -1
        try:
            if sync and self._error is None:
                os.fsync(fd)
        except OSError as error:
            self._error = OSError(error.errno, error.strerror, self.path)
        finally:
            os.close(fd)
        if self._error is not None:
            raise self._error

    def facts(self) -> Dict[str, Any]:
        """Return the file's entry in the manifest."""
        return {"size": self.size, "sha256": self._digest.hexdigest()}
