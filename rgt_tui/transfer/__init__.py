"""Results of a box: what was pulled, and the proof that the copies are complete."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rgt_wire import imported_later

from rgt_tui.transfer.ledger import (
    Copied,
    FileRow,
    FolderRow,
    GoneRow,
    Ledger,
    LedgerError,
    Stamp,
    copies,
    fingerprint,
    home,
    ledger_path,
)

if TYPE_CHECKING:
    from rgt_tui.transfer.source_tree import (
        ALWAYS_LEFT_OUT,
        IgnoreRules,
        LeftOut,
        OwnFiles,
        SourceError,
        SourceFile,
        SourceTree,
        read_tree,
        why_secret,
    )
    from rgt_tui.transfer.verification import NotVerifiable, verify
    from rgt_tui.transfer.verified_record import (
        CheckpointFound,
        Problem,
        Verification,
        VerifiedFile,
        proofs,
    )

__all__ = [
    "ALWAYS_LEFT_OUT",
    "CheckpointFound",
    "Copied",
    "FileRow",
    "FolderRow",
    "GoneRow",
    "IgnoreRules",
    "Ledger",
    "LedgerError",
    "LeftOut",
    "NotVerifiable",
    "OwnFiles",
    "Problem",
    "SourceError",
    "SourceFile",
    "SourceTree",
    "Stamp",
    "Verification",
    "VerifiedFile",
    "copies",
    "fingerprint",
    "home",
    "ledger_path",
    "proofs",
    "read_tree",
    "verify",
    "why_secret",
]

_LATER = {
    "source_tree": (
        "ALWAYS_LEFT_OUT IgnoreRules LeftOut OwnFiles SourceError SourceFile SourceTree read_tree why_secret"
    ),
    "verification": "NotVerifiable verify",
    "verified_record": "CheckpointFound Problem Verification VerifiedFile proofs",
}
__getattr__ = imported_later(__name__, _LATER)
