"""Results of a box: what was pulled, and the proof that the copies are complete."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rgt_wire import imported_later

from rgt_tui.transfer.ledger import (
    CopiedFile,
    FileRow,
    FileStamp,
    FolderRow,
    GoneRow,
    Ledger,
    LedgerError,
    deepest_folder,
    fingerprint,
    iterate_copies,
    ledger_path,
)

if TYPE_CHECKING:
    from rgt_tui.transfer.source_tree import (
        ALWAYS_LEFT_OUT,
        ExcludedPath,
        IgnoreRules,
        OwnFiles,
        SourceError,
        SourceFile,
        SourceTree,
        read_tree,
        why_secret,
    )
    from rgt_tui.transfer.verification import NotVerifiable, verify_directory
    from rgt_tui.transfer.verified_record import (
        CheckpointFound,
        FileProblem,
        Verification,
        VerifiedFile,
        prove_loadable_copies,
    )

__all__ = [
    "ALWAYS_LEFT_OUT",
    "CheckpointFound",
    "CopiedFile",
    "ExcludedPath",
    "FileProblem",
    "FileRow",
    "FileStamp",
    "FolderRow",
    "GoneRow",
    "IgnoreRules",
    "Ledger",
    "LedgerError",
    "NotVerifiable",
    "OwnFiles",
    "SourceError",
    "SourceFile",
    "SourceTree",
    "Verification",
    "VerifiedFile",
    "deepest_folder",
    "fingerprint",
    "iterate_copies",
    "ledger_path",
    "prove_loadable_copies",
    "read_tree",
    "verify_directory",
    "why_secret",
]

_LATER = {
    "source_tree": (
        "ALWAYS_LEFT_OUT IgnoreRules ExcludedPath OwnFiles SourceError SourceFile SourceTree "
        "read_tree why_secret"
    ),
    "verification": "NotVerifiable verify_directory",
    "verified_record": "CheckpointFound FileProblem Verification VerifiedFile prove_loadable_copies",
}
__getattr__ = imported_later(__name__, _LATER)
