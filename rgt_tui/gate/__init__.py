"""The gate before every billing action: evidence in, a permit or all the reasons against it out.

`gather` makes the evidence, `evaluate` judges it (the only place that builds a permit), `review` says what a
person must see, `AuditLog` keeps the record, `Journal` knows how far each action came. All but the last two are pure
functions of their arguments.
"""

from rgt_tui.gate.audit import (
    AuditEntry,
    AuditEvent,
    AuditFailed,
    AuditLine,
    AuditLog,
    Chain,
    chain_words,
    verify,
)
from rgt_tui.gate.decision import changes, digest, evaluate, facts_digest, objections, outdated, review
from rgt_tui.gate.evidence import (
    Consent,
    Parked,
    ParkedEvidence,
    Situation,
    gather,
    phrase,
    sealed,
    stands,
    tiers,
    unprotect_phrase,
    worth_keeping,
)
from rgt_tui.gate.identity import GENERIC, SAID, recognised, recognised_words
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
    Renting,
    Target,
    boot,
    read_checked,
    words,
)
from rgt_tui.gate.rent_permits import RentCase, rent_permit, rent_review
from rgt_tui.gate.roster import RESULTS, Told

__all__ = [
    "GENERIC",
    "JOURNAL",
    "RESULTS",
    "SAID",
    "SETTLED",
    "Action",
    "ActionState",
    "AuditEntry",
    "AuditEvent",
    "AuditFailed",
    "AuditLine",
    "AuditLog",
    "Chain",
    "Consent",
    "Held",
    "Journal",
    "JournalFailed",
    "OpenAction",
    "Parked",
    "ParkedEvidence",
    "Record",
    "RentCase",
    "Renting",
    "Situation",
    "Target",
    "Told",
    "boot",
    "chain_words",
    "changes",
    "digest",
    "evaluate",
    "facts_digest",
    "gather",
    "objections",
    "outdated",
    "phrase",
    "read_checked",
    "recognised",
    "recognised_words",
    "rent_permit",
    "rent_review",
    "review",
    "sealed",
    "stands",
    "tiers",
    "unprotect_phrase",
    "verify",
    "words",
    "worth_keeping",
]
