"""How far a stop has come: its journal, and the lock of the process that carries it out.

The recorder reads it to know what became of a stop; a process that goes on with one that was killed begins by it.
"""

from __future__ import annotations

import os

from rgt_box import files
from rgt_box.recorder import state_files

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

LOCK, JOURNAL = "autostop-stop.lock", "autostop-stop.json"
BEGUN, SEALED, SAVED, INTENT, ANSWERED = "begun", "sealed", "saved", "intent", "answered"
OFF, WITHDRAWN, FAILED = "off", "withdrawn", "failed"
UNFINISHED, FINISHED = (BEGUN, SEALED, SAVED, INTENT, ANSWERED), (OFF, WITHDRAWN, FAILED)
"""Phases of the journal: of a stop that goes on, or was killed, and of one that has ended."""
ASKED = (INTENT, ANSWERED)
"""Those after which the platform may have done it: it is asked, before anything else."""
START_WITHIN = 15.0
"""Seconds for the process to take its lock."""


def is_at_work(folder: str) -> bool:
    """Tell whether a stop is being carried out."""
    return any(files.is_locked(os.path.join(where, LOCK)) for where in state_files.places(folder))


def mode_at_work(folder: str) -> str:
    """Return which armed stop is being carried out; "" where that is not told."""
    for where in state_files.places(folder):
        found = files.lock_holder(os.path.join(where, LOCK)).get("mode")
        if found:
            return str(found)
    return ""


def read_journal(folder: str) -> dict[str, Any]:
    """Return the journal of the last stop; {} where there is none."""
    return state_files.read_json(folder, JOURNAL)


def forget_journal(folder: str) -> None:
    """Remove the journal of a stop that a conclusion was drawn from; one that may have been asked for stays."""
    if read_journal(folder).get("phase") not in ASKED:
        state_files.unlink(folder, JOURNAL)


def pace() -> float:
    """Return the factor of every wait; ``RGT_AUTOSTOP_PACE`` makes a rehearsal quick."""
    try:
        return min(1.0, max(0.0, float(os.environ.get("RGT_AUTOSTOP_PACE", ""))))
    except ValueError:
        return 1.0


def start_within() -> float:
    """Return the seconds after which a process that was started, and does not hold its lock, is taken to be gone."""
    return max(2.0, START_WITHIN * pace())
