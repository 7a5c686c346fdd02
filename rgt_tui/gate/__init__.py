"""The gate before every billing action: evidence in, a permit or all the reasons against it out.

`gather` makes the evidence, `evaluate` judges it (the only place that builds a permit), `review` says what a
person must see, `AuditLog` keeps the record, `Journal` knows how far each action came. All but the last two are pure
functions of their arguments.
"""

from rgt_tui.gate.audit import AuditEntry, AuditEvent, AuditFailed, AuditLine, AuditLog, Chain, verify
from rgt_tui.gate.decision import changes, digest, evaluate, phrase, review, unprotect_phrase
from rgt_tui.gate.evidence import gather
from rgt_tui.gate.journal import (
    JOURNAL,
    SETTLED,
    Action,
    ActionState,
    Held,
    Journal,
    JournalFailed,
    OpenAction,
    Record,
    Target,
    boot,
    words,
)

__all__ = [
    "JOURNAL",
    "SETTLED",
    "Action",
    "ActionState",
    "AuditEntry",
    "AuditEvent",
    "AuditFailed",
    "AuditLine",
    "AuditLog",
    "Chain",
    "Held",
    "Journal",
    "JournalFailed",
    "OpenAction",
    "Record",
    "Target",
    "boot",
    "changes",
    "digest",
    "evaluate",
    "gather",
    "phrase",
    "review",
    "unprotect_phrase",
    "verify",
    "words",
]
