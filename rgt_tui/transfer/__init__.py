"""Results off a box: what was pulled, and what proves that the copies are whole. What other packages use of it."""

from __future__ import annotations

from rgt_tui.transfer.ledger import (
    FileRow,
    FolderRow,
    Ledger,
    LedgerError,
    Stamp,
    ledger_path,
    proofs,
)

__all__ = [
    "FileRow",
    "FolderRow",
    "Ledger",
    "LedgerError",
    "Stamp",
    "ledger_path",
    "proofs",
]
