"""What a directory should contain, what a verification found, and proof that copies are still here.

A directory that fails gets a ``PULL_REFUSED.json`` instead, with the expected contents, so that a
second verification still knows what was right.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import json
import os
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, TypeVar

import msgspec

from rgt_tui.files import find_fault, open_regular, replace_file
from rgt_tui.language import english_texts
from rgt_tui.model import CopyProof, FrozenStruct, ResultGroup
from rgt_tui.transfer import directory_contents, ledger
from rgt_tui.transfer.ledger import (
    CopiedFile,
    FileRow,
    FileStamp,
    FolderRow,
    Ledger,
    decode_path,
    encode_path,
    ledger_path,
)

VERIFIED = "PULL_VERIFIED.json"
REFUSED = "PULL_REFUSED.json"
RECORDS = frozenset({VERIFIED, REFUSED})
FORMAT = 1
_MOST_BYTES = 1 << 30
MANIFEST = ".rgt-manifest.jsonl"
"""Stored next to the files of a verified copy on storage that outlives the box (docs/jobs.md)."""
_MOST_MANIFEST_BYTES = 256 << 20


class FileProblem(FrozenStruct, kw_only=True):
    """What is wrong with a file, or with the directory (``.``)."""

    path: str
    reason: str


class CheckpointFound(FrozenStruct, kw_only=True):
    """A complete checkpoint."""

    path: str
    """Its directory, or its file; relative."""
    kind: str
    how: str
    """The method that confirmed it: ``loaded by torch 2.13.0``, ``every byte against its
    checksums``, …
    """


class VerifiedFile(FrozenStruct, kw_only=True):
    """A file as it was found, or as it should have been."""

    path: str
    sha256: str
    stamp: FileStamp
    proof: str = ""
    """What confirms its bytes: ``pull``, ``manifest``, ``before`` (the last verification) or its
    own ``checksums``; empty = nothing.
    """


class Verification(FrozenStruct, kw_only=True):
    """The result of verifying a directory."""

    ok: bool
    directory: str
    files: int
    bytes: int
    errors: tuple[FileProblem, ...] = ()
    unproven: tuple[FileProblem, ...] = ()
    """Files without an error of which something could not be verified, and why."""
    checkpoints: tuple[CheckpointFound, ...] = ()
    only_hashed: int = 0
    """Files that were only hashed: their format is unknown, and nothing states what they should
    contain.
    """
    torch: str = ""
    """Version of the torch that loaded files; empty = none did."""
    no_torch: str = ""
    """Why torch was not used."""
    at: float = 0.0
    """Unix time."""
    version: str = ""
    """Version of rgt."""
    entries: tuple[VerifiedFile, ...] = ()
    """Set when read from a record; `verify` leaves it empty, as there may be hundreds of thousands.
    """
    format: int = FORMAT


class _StoredRecord(FrozenStruct, kw_only=True):
    at: float = 0.0
    entries: tuple[msgspec.Raw, ...] = ()
    format: int


T = TypeVar("T", Verification, _StoredRecord)
_entry = msgspec.json.Decoder(VerifiedFile).decode


def read_record(directory: Path) -> Verification | None:
    """Return the result of the last verification of a directory; None if there was none.

    Raises:
        ValueError: it is damaged, or of another version.
        OSError: it cannot be read.
    """
    return _read_as(directory, Verification)


def files_before(directory: Path) -> tuple[float, Iterator[VerifiedFile]] | None:
    """Return the time of the last verification, and its files one at a time; None = there was none.

    Raises:
        ValueError: as `read_record`; also raised by the iterator.
        OSError: as `read_record`.
    """
    found = _read_as(directory, _StoredRecord)
    if found is None:
        return None
    return (found.at, map(_entry, found.entries))


def _read_as(directory: Path, what: type[T]) -> T | None:
    # The refusal first: if both are there, an interrupted write must not count as passed.
    for name in (REFUSED, VERIFIED):
        try:
            with open_regular(directory / name, follow=False) as file:
                # One byte more than allowed: a longer record is cut off and fails as JSON.
                raw = file.read(min(_MOST_BYTES, os.fstat(file.fileno()).st_size) + 1)
        except FileNotFoundError:
            continue
        try:
            found = msgspec.json.decode(raw, type=what)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"{name} is damaged: {str(error)[:120]}") from None
        if found.format != FORMAT:
            raise ValueError(
                f"{name} is of format {found.format}, and this version of rgt reads {FORMAT}"
            )
        return found
    return None


def write_record(directory: Path, found: Verification, entries: Iterable[VerifiedFile]) -> None:
    """Write the result and its files to the directory, and delete the contradicting record.

    Raises:
        OSError: it cannot be written.
    """
    new, old = (VERIFIED, REFUSED) if found.ok else (REFUSED, VERIFIED)
    # deleted first: between the two steps, no reader may see a passed verification
    if not found.ok:
        with contextlib.suppress(FileNotFoundError):
            (directory / old).unlink()
    replace_file(directory / new, _iterate_record_text(found, entries))
    with contextlib.suppress(FileNotFoundError):
        (directory / old).unlink()


_NO_ENTRIES = b'"entries": []'


def _iterate_record_text(found: Verification, entries: Iterable[VerifiedFile]) -> Iterator[bytes]:
    """Yield the text of a record piece by piece, one line per file."""
    text = msgspec.json.format(
        msgspec.json.encode(msgspec.structs.replace(found, entries=())), indent=1
    )
    # The last one: a message earlier in the record may contain the same text.
    before, _, after = text.rpartition(_NO_ENTRIES)
    yield before + _NO_ENTRIES[:-1]
    comma = b"\n  "
    for entry in entries:
        yield comma + msgspec.json.encode(entry)
        comma = b",\n  "
    yield b"\n ]" + after + b"\n"


# Evidence with these reasons is compared between rgt in two languages.
@english_texts()
def prove_loadable_copies(
    box: str,
    instance: str,
    groups: Iterable[ResultGroup],
    *,
    env: Mapping[str, str] = os.environ,
) -> tuple[CopyProof, ...]:
    """Return the result of `ledger.prove_copies`, with whether the checkpoints in the copies load.

    Arguments, blocking and errors are those of `ledger.prove_copies`.

    Returns:
        Its proofs; a directory with unexamined checkpoints gets an error as well.
    """
    groups = tuple(groups)
    found = ledger.prove_copies(box, instance, groups, env=env)
    folders: dict[str, list[FileRow]] = {group.path: [] for group in groups}
    book = Ledger(ledger_path(box, env))
    for row in book.file_rows():
        owner = ledger.deepest_folder(row.path, folders)
        if owner is not None and row.instance == instance:
            folders[owner].append(row)
    # Not kept open for the files below, which can take minutes.
    book.close()
    # A record pulled from the box is not trusted.
    came = {
        Path(row.local)
        for rows in folders.values()
        for row in rows
        if Path(row.local).name in RECORDS
    }
    records: dict[Path, _RecordContent | str | None] = {path.parent: None for path in came}
    return tuple(_with_checkpoints(proof, folders[proof.path], records) for proof in found)


class _RecordContent(NamedTuple):
    """The content of a record, by file name."""

    hashes: dict[str, str]
    reasons: dict[str, str]
    checkpoints: tuple[str, ...]


def _with_checkpoints(
    proof: CopyProof, rows: Sequence[FileRow], records: dict[Path, _RecordContent | str | None]
) -> CopyProof:
    checkpoints, errors = 0, list(proof.errors)
    for folder, members in _by_folder(rows).items():
        count, wrong = _count_verified(folder, members, records)
        checkpoints += count
        errors += wrong
    return msgspec.structs.replace(proof, checkpoints=checkpoints, errors=tuple(errors))


def _by_folder(rows: Iterable[FileRow]) -> dict[Path, list[FileRow]]:
    found: dict[Path, list[FileRow]] = {}
    for row in rows:
        found.setdefault(Path(row.local).parent, []).append(row)
    return found


def _count_verified(
    folder: Path, rows: Sequence[FileRow], records: dict[Path, _RecordContent | str | None]
) -> tuple[int, list[tuple[str, str]]]:
    """Return the number of verified checkpoints in a directory, and errors for the others."""
    # Sizes of the ledger: whether the files still are the same, `prove_copies` has checked.
    here = {Path(row.local).name: row.here.size for row in rows}
    groups = directory_contents.plan_examination(
        dict(directory_contents.read_heads(folder, here.items()))
    ).groups
    if not groups:
        return 0, []
    root, record = _nearest_record(folder, records)
    if record is None or isinstance(record, str):
        why = record or "not checked yet whether this checkpoint loads"
        first = min(groups, key=lambda group: group.path).path
        row = next((row for row in rows if Path(row.local).name == first.split("/")[0]), rows[0])
        return 0, [(row.path, f"{why}: rgt verify {shlex.quote(str(folder))}")]
    look = f"rgt verify {shlex.quote(str(root))}"
    errors = []
    names = {encode_path(str(Path(row.local).relative_to(root))): row for row in rows}
    for name, row in names.items():
        if name in record.reasons:
            errors.append((row.path, f"its copy does not pass: {record.reasons[name]}"))
        # By hash, so that a file that was pulled again after the verification needs a new one.
        elif record.hashes.get(name) != row.sha256:
            errors.append((row.path, f"its copy was not checked since it was pulled: {look}"))
    places = {encode_path(str(folder.relative_to(root))), *names}
    return sum(path in places for path in record.checkpoints), errors


def _nearest_record(
    folder: Path, records: dict[Path, _RecordContent | str | None]
) -> tuple[Path, _RecordContent | str | None]:
    """Return the record of a directory or its nearest parent; a text says why it is unusable."""
    for root in (folder, *folder.parents):
        if root not in records:
            # Kept, since all folders of a tree ask for the same parents.
            records[root] = _read_content(root)
        if records[root] is not None:
            return root, records[root]
    return folder, None


def _read_content(root: Path) -> _RecordContent | str | None:
    for name in sorted(RECORDS):
        try:
            with open_regular(root / name, follow=False) as file:
                why = find_fault(root / name, os.fstat(file.fileno()), file.fileno())
        except FileNotFoundError:
            continue
        except OSError as error:
            return f"{root / name} cannot be read ({error.strerror or error})"
        if why is not None:
            return f"{why.words}, so it proves nothing ({why.cure})"
    try:
        found = read_record(root)
    except (OSError, ValueError) as error:
        return f"the verification record of {root} is invalid ({error})"
    if found is None:
        return None
    return _RecordContent(
        {entry.path: entry.sha256 for entry in found.entries},
        {error.path: error.reason for error in found.errors},
        tuple(checkpoint.path for checkpoint in found.checkpoints),
    )


# What a directory should contain: by the pull's ledger, a copy's manifest, or the last
# verification.


class ExpectedFile(NamedTuple):
    """What a file should be."""

    sha256: str
    by: str
    """``pull``, ``manifest`` or ``before``."""
    since: str = ""
    """When that was recorded, as text."""


class PulledFiles(NamedTuple):
    """What pulls have brought into a directory."""

    files: dict[str, str]
    """Relative name → SHA-256."""
    missing: list[tuple[str, str]]
    """Names that a pull into it, or a parent, could not fetch, with the reason."""


def expected_by_ledger(root: Path, rows: Iterable[CopiedFile | FolderRow]) -> PulledFiles:
    """Return what ledger rows say about a directory; the rows are not kept."""
    found = PulledFiles({}, [])
    bases = tuple(
        # Both names of it: the ledger has the path as it was given to the pull.
        dict.fromkeys(f"{base}/".replace("//", "/") for base in (root, os.path.realpath(root)))
    )
    for row in rows:
        if isinstance(row, CopiedFile):
            if (name := _relative_name(bases, row.local)) is not None:
                found.files[name] = row.sha256
            continue
        for path, reason in row.missing:
            below = path.removeprefix(row.path).strip("/")
            if (name := _relative_name(bases, f"{row.local}/{below}")) is not None:
                found.missing.append((name, reason))
    return found


def _relative_name(bases: Iterable[str], local: str) -> str | None:
    """Return the name of a copy relative to a directory; None if it is outside."""
    for base in bases:
        if local.startswith(base):
            return local[len(base) :].rstrip("/") or "."
        if f"{local}/" == base:
            return "."
    return None


def expected_by_manifest(path: Path, folder: str) -> dict[str, str]:
    """Return name → SHA-256 of a ``.rgt-manifest.jsonl`` for the directory `folder`.

    `folder` is relative; "" = the root.

    Raises:
        ValueError: it is damaged or cut off.
        OSError: it cannot be read.
    """
    with open_regular(path, follow=False) as file:
        lines = file.read(_MOST_MANIFEST_BYTES).splitlines()
    found: dict[str, str] = {}
    ended = False
    for line in lines:
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):
            raise ValueError("a line of it is not JSON") from None
        if not isinstance(row, dict):
            raise ValueError("a line of it is not an object")
        # Without this row, a manifest that was cut off would excuse every file that it no longer
        # names.
        ended = ended or row.get("end") is True
        if "sha256" in row:
            name = _decode_name(row)
            found[f"{folder}/{name}" if folder else name] = str(row["sha256"])
    if not ended:
        raise ValueError("it is truncated: its last line is missing")
    return found


def _decode_name(row: Mapping[str, object]) -> str:
    name = str(row.get("path"))
    coded = row.get("path_b64")
    if isinstance(coded, str):
        try:
            name = os.fsdecode(base64.b64decode(coded, validate=True))
        except binascii.Error:
            raise ValueError("a name in it is damaged") from None
    # The manifest was written on the box: its names lead nowhere else.
    if not name or name.startswith("/") or ".." in name.split("/"):
        raise ValueError(f"it names {name[:80]!r}, which is not in its directory")
    return name


def named_copy(text: str) -> str:
    """Return the decoded path of a record."""
    try:
        return decode_path(text)
    except ValueError:
        return text  # a plain name that begins like an encoded one


def why_wrong(expected: ExpectedFile, sha256: str) -> str | None:
    """Return what is wrong with a file of this hash; None if it is as expected."""
    if expected.sha256 == sha256:
        return None
    if expected.by == "before":
        return f"its bytes are no longer those that were verified on {expected.since}"
    if expected.by == "pull":
        what = "what the box had"
    else:
        what = "what was copied"
    return f"its SHA-256 {sha256[:12]}… is not that of {what} ({expected.sha256[:12]}…)"


def why_missing(expected: ExpectedFile) -> str:
    """Return what is wrong if a file is missing."""
    if expected.by == "before":
        return f"it is missing now: it was verified on {expected.since}"
    return "it is missing: " + (
        "the pull brought it" if expected.by == "pull" else f"{MANIFEST} names it"
    )
