"""The gate before every billing action: evidence in, a permit or all the reasons against it out.

`gather` makes the evidence, `evaluate` judges it (the only place that builds a permit), `review` says what a
person must see, `AuditLog` keeps the record. All but the record are pure functions of their arguments.
"""

from rgt_tui.gate.audit import AuditEntry, AuditEvent, AuditFailed, AuditLog
from rgt_tui.gate.decision import changes, digest, evaluate, review
from rgt_tui.gate.evidence import gather

__all__ = [
    "AuditEntry",
    "AuditEvent",
    "AuditFailed",
    "AuditLog",
    "changes",
    "digest",
    "evaluate",
    "gather",
    "review",
]
