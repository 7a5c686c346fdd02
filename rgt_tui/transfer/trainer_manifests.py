"""Checks checkpoints of rgt_train byte by byte against ``manifest.json`` (docs/checkpoint-format.md)."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path
from typing import Any

from rgt_wire import checkpoint_names
from rgt_wire.checkpoint_names import FORMAT, MANIFEST

from rgt_tui.transfer import dcp_files, safetensors_files
from rgt_tui.transfer.file_stretch import OpenStretch, Refused, Stretch, Trouble

MOST_BYTES = 64 << 20
_HEX = re.compile(r"[0-9a-f]{8}")


def is_manifest(raw: bytes) -> bool:
    """Say whether a file called ``manifest.json`` is one of rgt_train, whole or damaged."""
    return (b'"files"' in raw and b'"crc32"' in raw) or (b'"digest"' in raw and b'"format"' in raw)


def read(folder: Path) -> dict[str, Any]:
    """Return the manifest of a checkpoint after comparing it with its own digest.

    Raises:
        Trouble: it is damaged, or of another format.
        OSError: it cannot be read.
    """
    try:
        with OpenStretch(folder / MANIFEST) as whole:
            if whole.length > MOST_BYTES:
                raise Refused(f"it has {whole.length} bytes, more than a manifest may")
            return _parsed(whole.read(0, whole.length))
    except FileNotFoundError:
        raise Trouble(MANIFEST, "it is missing: nothing says what belongs to this checkpoint") from None
    except Refused as refused:
        raise Trouble(MANIFEST, str(refused)) from None


def _parsed(raw: bytes) -> dict[str, Any]:
    try:
        body = checkpoint_names.decode_manifest(raw)
    except ValueError as error:
        raise Refused(str(error)) from None
    if body.get("format") != FORMAT:
        raise Refused(
            f"it is of format {str(body.get('format'))[:20]}, and this version of rgt reads format {FORMAT}"
        )
    if type(body.get("files")) is not dict or not body["files"]:
        raise Refused("it lists no files")
    return body


def examine(folder: Path) -> tuple[str, ...]:
    """Compare every byte of a checkpoint with its checksum, and look at its files; return their names.

    Raises:
        Trouble: a file is missing, short, long, altered, or not what it should be.
        OSError: one cannot be read.
    """
    files = read(folder)["files"]
    for name, facts in sorted(files.items()):
        if not name or "/" in name or "\0" in name or name in (".", "..", MANIFEST):
            raise Trouble(MANIFEST, f"it lists {name[:80]!r}, which is not a file next to it")
        try:
            with OpenStretch(folder / name) as whole:
                _file(whole, facts)
                if name.endswith(".safetensors"):
                    safetensors_files.examine(whole)
                elif name.endswith(".json"):
                    _json(whole)
        except FileNotFoundError:
            raise Trouble(name, "it is missing") from None
        except Refused as refused:
            raise Trouble(name, str(refused)) from None
    if dcp_files.METADATA in files:
        dcp_files.examine(folder)
    return (MANIFEST, *files)


def _file(whole: Stretch, facts: Any) -> None:
    size, chunk, sums = (
        facts.get(key) if type(facts) is dict else None for key in ("size", "chunk", "crc32")
    )
    if type(size) is not int or type(chunk) is not int or chunk < 1 or type(sums) is not list:
        raise Refused("the manifest does not say what it should be")
    if whole.length != size:
        raise Refused(f"{whole.length} bytes, {size} were written")
    if len(sums) != -(-size // chunk) or not all(type(each) is str and _HEX.fullmatch(each) for each in sums):
        raise Refused("the manifest lacks its checksums")
    for number, wanted in enumerate(sums):
        begin = number * chunk
        end = min(begin + chunk, size)
        found = f"{whole.part(begin, end - begin).crc32():08x}"
        if found != wanted:
            raise Refused(f"crc32 {found} of bytes {begin} to {end}, {wanted} was written")
    digest = facts.get("sha256")
    if digest is not None:
        whole_digest = hashlib.sha256()
        for piece in whole.pieces():
            whole_digest.update(piece)
        if whole_digest.hexdigest() != digest:
            raise Refused("its SHA-256 is not the one that was written")


def _json(whole: Stretch) -> None:
    if whole.length > MOST_BYTES * 4:
        return  # the checksum was right, and nothing here needs what it says
    try:
        json.loads(whole.read(0, whole.length))
    except (ValueError, RecursionError) as error:
        raise Refused(f"it is not JSON: {str(error)[:120]}") from None
