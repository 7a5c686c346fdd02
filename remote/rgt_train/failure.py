"""Saying why a checkpoint could not be saved, in the two lines and the event that the documentation promises."""

from __future__ import annotations

import json
from typing import Any, Callable, Mapping, Optional, Tuple

from rgt_train import space
from rgt_train.durable import replace_file
from rgt_train.report import Report
from rgt_train.store import Store


class Telling:
    """Tells failures of saves.

    Args:
        report: Where to.
        store: Where the checkpoints were to go.
        needs: Returns the bytes and inodes of one checkpoint.

    Attributes:
        loud: Whether the next failure is told; quiet attempts that fail like the one before are not.
    """

    def __init__(self, report: Report, store: Store, needs: Callable[[], Tuple[int, int]]) -> None:
        self._report, self._store, self._needs = report, store, needs
        self.loud = True

    def failed(self, step: int, error: BaseException, good: str) -> None:
        """Tell that the save of `step` failed, and what is still `good`."""
        if not self.loud:
            return
        place, raw = self._store.root, f"{type(error).__name__}: {error}"
        why, what, mount = raw, "other", None
        if isinstance(error, OSError):
            try:
                left: Optional[space.Space] = space.read_space(self._store.out)
            except OSError:
                left = None
            need = self._needs()
            why, what = space.describe(error, left, *need), space.resource_of(error, left, *need)
            mount, place = left.mount if left else None, str(error.filename or place)
        self._report.say(raw)
        self._report.say(f"checkpoint save failed at step {step}: {why}; {good}")
        self._report.event("checkpoint-failed", step, path=place, error=raw, resource=what, mount=mount)

    def holding(self, step: int, unsaved: int, most: int, limit_s: float) -> None:
        """Tell that the training waits until there is room."""
        size, inodes = self._needs()
        self._report.say(
            f"holding at step {step}: {unsaved} steps are not saved (limit {most}); waiting up to {limit_s:.0f} s "
            f"until {self._store.root} takes {space.human(size)} and {inodes} inodes"
        )
        self._report.event("hold", step, unsaved=unsaved)

    def given_up(self, step: int, unsaved: int, limit_s: float, good: str) -> None:
        """Tell that the training ends because nothing could be saved."""
        self._report.say(
            f"giving up at step {step}: nothing could be saved for {limit_s:.0f} s; {good}, {unsaved} steps are lost. "
            "Free space and launch the same command"
        )

    def mistaken(self, step: int, unsaved: int, error: BaseException, good: str) -> None:
        """Tell that the training ends because of a mistake that no room on the disk would mend."""
        self._report.say(
            f"giving up at step {step}: saving fails again and again, and not because of the disk: "
            f"{type(error).__name__}: {error}; {good}, {unsaved} steps are lost. Mend that and launch the same command"
        )

    @staticmethod
    def replace(path: str, body: Mapping[str, Any]) -> Optional[OSError]:
        """Replace a small JSON file; return why that failed."""
        try:
            replace_file(path, (json.dumps(body) + "\n").encode())
        except OSError as error:
            return error
        return None
