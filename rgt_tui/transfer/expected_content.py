"""What a directory should contain: by the pull's ledger, a copy's manifest, or the last verification."""

from __future__ import annotations

import base64
import binascii
import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from rgt_tui.files import open_regular
from rgt_tui.transfer.ledger import Copied, FolderRow, unsaid

MANIFEST = ".rgt-manifest.jsonl"
"""Beside the files of a verified copy to storage that outlives the box (docs/jobs.md)."""
_MOST_BYTES = 256 << 20


class Expected(NamedTuple):
    """What a file should be."""

    sha256: str
    by: str
    """``pull``, ``manifest`` or ``before``."""
    since: str = ""
    """For a person: when that was known."""


class Brought(NamedTuple):
    """What pulls have brought into a directory."""

    files: dict[str, str]
    """Relative name → SHA-256."""
    missing: list[tuple[str, str]]
    """Names and reasons of what a pull into it, or above it, could not bring."""


def of_ledger(root: Path, rows: Iterable[Copied | FolderRow]) -> Brought:
    """Return what the rows of ledgers say about a directory; the rows are not kept."""
    found = Brought({}, [])
    bases = tuple(dict.fromkeys(f"{base}/".replace("//", "/") for base in (root, os.path.realpath(root))))
    for row in rows:
        if isinstance(row, Copied):
            if (name := _inside(bases, row.local)) is not None:
                found.files[name] = row.sha256
            continue
        for path, reason in row.missing:
            below = path.removeprefix(row.path).strip("/")
            if (name := _inside(bases, f"{row.local}/{below}")) is not None:
                found.missing.append((name, reason))
    return found


def _inside(bases: Iterable[str], local: str) -> str | None:
    """Return the name of a copy relative to a directory; None where it is not in it."""
    for base in bases:
        if local.startswith(base):
            return local[len(base) :].rstrip("/") or "."
        if f"{local}/" == base:
            return "."
    return None


def of_manifest(path: Path, folder: str) -> dict[str, str]:
    """Return what a ``.rgt-manifest.jsonl`` says, name → SHA-256, of the directory `folder` (relative; "" = the root).

    Raises:
        ValueError: it is damaged or cut off.
        OSError: it cannot be read.
    """
    with open_regular(path, follow=False) as file:
        lines = file.read(_MOST_BYTES).splitlines()
    found: dict[str, str] = {}
    ended = False
    for line in lines:
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):
            raise ValueError("a line of it is not JSON") from None
        if not isinstance(row, dict):
            raise ValueError("a line of it is not an object")
        ended = ended or row.get("end") is True
        if "sha256" in row:
            name = _path(row)
            found[f"{folder}/{name}" if folder else name] = str(row["sha256"])
    if not ended:
        raise ValueError("it is cut off: its last line is missing")
    return found


def _path(row: Mapping[str, object]) -> str:
    name = str(row.get("path"))
    coded = row.get("path_b64")
    if isinstance(coded, str):
        try:
            name = os.fsdecode(base64.b64decode(coded, validate=True))
        except binascii.Error:
            raise ValueError("a name in it is damaged") from None
    if not name or name.startswith("/") or ".." in name.split("/"):
        raise ValueError(f"it names {name[:80]!r}, which is not in its directory")
    return name


def named(text: str) -> str:
    """Return the path that a record means."""
    try:
        return unsaid(text)
    except ValueError:
        return text  # a name that begins as a coded one does


def wrong(expected: Expected, sha256: str) -> str | None:
    """Return what is wrong with a file of this hash; None where it is as it should be."""
    if expected.sha256 == sha256:
        return None
    if expected.by == "before":
        return f"its bytes are no longer those that were verified on {expected.since}"
    what = "what the box had" if expected.by == "pull" else "what was copied"
    return f"its SHA-256 {sha256[:12]}… is not that of {what} ({expected.sha256[:12]}…)"


def missing(expected: Expected) -> str:
    """Return what is wrong where a file is not there."""
    if expected.by == "before":
        return f"it is gone: it was verified on {expected.since}"
    return "it is missing: " + ("the pull brought it" if expected.by == "pull" else f"{MANIFEST} names it")
