"""The writer's part of a save that all ranks write: room for it, then manifest and rename, or a second try."""

from __future__ import annotations

import errno
import json
import os
import time
from dataclasses import dataclass
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

from rgt_train.commit import Draft
from rgt_train.durable import replace_file
from rgt_train.persister import BEST, Request
from rgt_train.space import read_space
from rgt_train.store import Checkpoint, Store
from rgt_train.writing import FULL, room_made


@dataclass(frozen=True)
class Failed:
    """Why a rank could not write.

    Attributes:
        number: The errno, where it was the disk's fault.
        text: What happened.
        path: The file, as far as known.
        rank: Whose failure it is.
    """

    number: Optional[int]
    text: str
    path: Optional[str]
    rank: int

    @classmethod
    def of(cls, error: BaseException, rank: int) -> "Failed":
        """Describe an error; torch hides that of the disk behind its own."""
        cause: Optional[BaseException] = error
        while cause is not None and not isinstance(cause, OSError):
            cause = cause.__cause__ or cause.__context__
        if isinstance(cause, OSError):
            return cls(cause.errno, str(cause.strerror), cause.filename and os.fsdecode(cause.filename), rank)
        return cls(
            None, f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}", None, rank
        )

    def error(self) -> BaseException:
        """Return it as an exception."""
        text = self.text if self.rank == 0 else f"{self.text} (rank {self.rank})"
        if self.number is None:
            return RuntimeError(text)
        return OSError(self.number, text, self.path) if self.path else OSError(self.number, text)


class Publisher:
    """Makes one checkpoint of what the ranks write.

    Args:
        store: Where to.
        request: What is saved.
        needs: Bytes and inodes of it.

    Attributes:
        made: What was published.
        error: Why nothing was.
        ended: When, seconds of the monotonic clock.
        notes: Lines for a person.
    """

    def __init__(self, store: Store, request: Request, needs: Tuple[int, int]) -> None:
        self._store, self._request, self._needs = store, request, needs
        self._draft: Optional[Draft] = None
        self.made: Optional[Checkpoint] = None
        self.error: Optional[BaseException] = None
        self.ended = 0.0
        self.notes: List[str] = []

    def open(self) -> Tuple[str, Optional[Failed]]:
        """Make room and a directory; return it, or why there is none."""
        try:
            self._draft = Draft.create(self._store, self._request.kind, self._request.step, *self._needs)
            return self._draft.path, None
        except Exception as error:
            self._draft = None
            return "", Failed.of(error, 0)

    def conclude(
        self, failed: Optional[Failed], found: Optional[Sequence[Tuple[Mapping[str, Any], Optional[Failed]]]]
    ) -> bool:
        """Publish what the ranks have written, or drop it. Returns whether to write once more."""
        failures = [each for each in (failed, *(error for _, error in found or ())) if each is not None]
        if not failures:
            try:
                self._publish({name: facts for each, _ in found or () for name, facts in each.items()})
                return False
            except Exception as error:
                failures = [Failed.of(error, 0)]
        worst = next((each for each in failures if each.number is not None), failures[0])
        if worst.number is None and self._is_full():
            worst = Failed(errno.ENOSPC, os.strerror(errno.ENOSPC), self._store.root, worst.rank)
        if self._draft is not None:
            self._draft.drop()
        if worst.number in FULL:
            note = room_made(self._store, self._request.step, self._request.give_up)
            if note is not None:
                self.notes.append(note)
                return True
        self.error, self.ended = worst.error(), time.monotonic()
        return False

    def _publish(self, files: Dict[str, Mapping[str, Any]]) -> None:
        assert self._draft is not None, "opened before"
        there = set(os.listdir(self._draft.path))
        if there != set(files):
            raise RuntimeError(f"the ranks wrote {sorted(there)}, but told of {sorted(files)}")
        self._draft.seal(files, self._request.about)
        self.made = self._draft.publish()
        self.ended = time.monotonic()
        if self._request.kind == BEST:
            body = (json.dumps(self._request.about["best"]) + "\n").encode()
            replace_file(os.path.join(self._store.out, "best.json"), body)
        else:
            self._store.published(self.made.path, *self._needs)

    def _is_full(self) -> bool:
        """Look at the disk where torch has lost the reason."""
        try:
            return read_space(self._store.root).short_of(*self._needs) is not None
        except OSError:
            return False
