"""Every entry by its id. The facts stand in three tables; what counts as proof is decided by their users."""

from __future__ import annotations

from rgt_tui.triage.entry import Entry
from rgt_tui.triage.handbook_memory import MEMORY
from rgt_tui.triage.handbook_runtime import RUNTIME
from rgt_tui.triage.handbook_storage import STORAGE

HANDBOOK: dict[str, Entry] = {entry.id: entry for entry in (*STORAGE, *MEMORY, *RUNTIME)}
