"""What a verification found, and the file in the directory that keeps it: ``PULL_VERIFIED.json``.

A directory that did not pass has a ``PULL_REFUSED.json`` instead, with what it should have held: whoever verifies a
second time must not find that nobody knows any more what was right.
"""

from __future__ import annotations

import contextlib
from pathlib import Path

import msgspec

from rgt_tui.files import open_regular, publish
from rgt_tui.transfer.ledger import Stamp

VERIFIED = "PULL_VERIFIED.json"
REFUSED = "PULL_REFUSED.json"
RECORDS = frozenset({VERIFIED, REFUSED})
FORMAT = 1
_MOST_BYTES = 1 << 30


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """What is wrong with a file, or with the directory (``.``)."""

    path: str
    reason: str


class CheckpointFound(msgspec.Struct, frozen=True, kw_only=True):
    """A checkpoint that is whole."""

    path: str
    """Its directory, or its file; relative."""
    kind: str
    how: str
    """What was done to know it: ``loaded by torch 2.13.0``, ``every byte against its checksums``, …"""


class VerifiedFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file as it was found, or as it should have been."""

    path: str
    sha256: str
    stamp: Stamp
    proof: str = ""
    """What says that these are the right bytes: ``pull``, ``manifest``, ``before`` (the last verification) or its own
    ``checksums``; empty = nothing does."""


class Verification(msgspec.Struct, frozen=True, kw_only=True):
    """What was found in a directory."""

    ok: bool
    directory: str
    files: int
    bytes: int
    errors: tuple[Problem, ...] = ()
    unproven: tuple[Problem, ...] = ()
    """Nothing is wrong with these, but something about them could not be known, and why."""
    checkpoints: tuple[CheckpointFound, ...] = ()
    only_hashed: int = 0
    """Files of which nothing but the hash was taken: of no kind that is known, and nothing says what they should be."""
    torch: str = ""
    """The torch that loaded what it could; empty = none did."""
    no_torch: str = ""
    """Why not."""
    at: float = 0.0
    """Seconds since 1970."""
    version: str = ""
    """Of rgt."""
    entries: tuple[VerifiedFile, ...] = ()
    format: int = FORMAT


def read(directory: Path) -> Verification | None:
    """Return what the last verification of a directory left in it; None where there was none.

    Raises:
        ValueError: it is damaged, or of another version; the message says so.
        OSError: it cannot be read.
    """
    for name in (REFUSED, VERIFIED):
        try:
            with open_regular(directory / name, follow=False) as file:
                raw = file.read(_MOST_BYTES + 1)
        except FileNotFoundError:
            continue
        try:
            found = msgspec.json.decode(raw, type=Verification)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"{name} is damaged: {str(error)[:120]}") from None
        if found.format != FORMAT:
            raise ValueError(f"{name} is of format {found.format}, and this version of rgt reads {FORMAT}")
        return found
    return None


def write(directory: Path, found: Verification) -> None:
    """Keep what was found in the directory, and take away what contradicts it.

    Raises:
        OSError: it cannot be written.
    """
    new, old = (VERIFIED, REFUSED) if found.ok else (REFUSED, VERIFIED)
    if not found.ok:  # first: whoever looks between the two must not see that all is well
        with contextlib.suppress(FileNotFoundError):
            (directory / old).unlink()
    publish(directory / new, msgspec.json.format(msgspec.json.encode(found), indent=1) + b"\n")
    with contextlib.suppress(FileNotFoundError):
        (directory / old).unlink()
