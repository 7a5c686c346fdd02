"""Results off a box: what was pulled, and what proves that the copies are complete."""

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
    from rgt_tui.transfer.verification import NotVerifiable, verify
    from rgt_tui.transfer.verified_record import CheckpointFound, Problem, Verification, VerifiedFile, proofs

__all__ = [
    "CheckpointFound",
    "Copied",
    "FileRow",
    "FolderRow",
    "GoneRow",
    "Ledger",
    "LedgerError",
    "NotVerifiable",
    "Problem",
    "Stamp",
    "Verification",
    "VerifiedFile",
    "copies",
    "fingerprint",
    "home",
    "ledger_path",
    "proofs",
    "verify",
]

_LATER = {
    "verification": "NotVerifiable verify",
    "verified_record": "CheckpointFound Problem Verification VerifiedFile proofs",
}
__getattr__ = imported_later(__name__, _LATER)
