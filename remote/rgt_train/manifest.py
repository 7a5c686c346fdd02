"""The manifest of a checkpoint: which files, how long, which checksums.

Standard library only, so that listing and verifying never waits for `import torch`, and the writer process never
imports it.
"""

from __future__ import annotations

import hashlib
import json
import mmap
import os
from typing import Any, Callable, Container, Dict, List, Mapping, Optional

from rgt_train import digest
from rgt_train.durable import StrPath
from rgt_train.exits import UsageError

NAME = "manifest.json"
FORMAT = 2
_POPULATE = getattr(mmap, "MAP_POPULATE", 0x8000)


class Damaged(Exception):
    """A checkpoint is incomplete, or a byte of it is not what was written; the text says where."""


class Foreign(UsageError):
    """A checkpoint that is intact but of a format this version does not read; it must not be passed over."""


def encode(step: int, files: Mapping[str, Mapping[str, Any]], about: Mapping[str, Any]) -> bytes:
    """Return the bytes of a manifest.

    The text is canonical and carries its own digest, so that a flipped bit in the manifest itself is noticed too.

    Args:
        step: Optimizer steps done.
        files: Name → what `rgt_train.digest.facts` says of it.
        about: Further facts a person or a tool may want (epoch, torch version, best metric, …).
    """
    body: Dict[str, Any] = {
        **about,
        "format": FORMAT,
        "step": step,
        "files": {k: dict(v) for k, v in files.items()},
    }
    body["digest"] = hashlib.sha256(_canonical(body)).hexdigest()
    return _canonical(body)


def read(directory: StrPath) -> Dict[str, Any]:
    """Return the manifest of `directory` after checking its own digest (not the files it lists).

    Raises:
        Damaged: It is missing, unreadable or altered.
        Foreign: It is intact and of another format.
    """
    path = os.path.join(directory, NAME)
    try:
        with open(path, "rb") as file:
            raw = file.read()
    except OSError as error:
        raise Damaged(f"{NAME}: {error.strerror}") from error
    return parse(raw, os.fspath(directory))


def parse(raw: bytes, where: str) -> Dict[str, Any]:
    """Return the manifest in `raw`, found at `where`, after checking its own digest.

    Raises:
        Damaged: It is altered.
        Foreign: It is intact and of another format.
    """
    try:
        body = json.loads(raw)
        found = body.pop("digest")
        expected = hashlib.sha256(_canonical(body)).hexdigest()
        intact = found == expected and raw == _canonical({**body, "digest": found})
    except (ValueError, KeyError, AttributeError, TypeError, RecursionError) as error:
        raise Damaged(f"{NAME}: not readable as a manifest") from error
    if not intact:
        raise Damaged(f"{NAME}: its bytes are not what was written")
    if body["format"] != FORMAT:
        raise Foreign(
            f"{where} is a checkpoint of format {body['format']}, this version reads "
            f"format {FORMAT}. Finish the run with the version that wrote it, or give another --out"
        )
    result: Dict[str, Any] = body
    return result


class Verified:
    """A checkpoint of which every byte has been looked at; its files stay mapped until `close`.

    Attributes:
        body: The manifest.
        views: File name → its content, read-only.
    """

    def __init__(self, body: Dict[str, Any]) -> None:
        self.body = body
        self.views: Dict[str, memoryview] = {}
        self._maps: List[mmap.mmap] = []

    def add(self, name: str, path: str) -> None:
        """Map a file."""
        with open(path, "rb", buffering=0) as file:
            if os.fstat(file.fileno()).st_size == 0:
                self.views[name] = memoryview(b"")
                return
            flags = mmap.MAP_SHARED | (_POPULATE if hasattr(os, "memfd_create") else 0)
            mapped = mmap.mmap(file.fileno(), 0, flags=flags, prot=mmap.PROT_READ)
        self._maps.append(mapped)
        self.views[name] = memoryview(mapped)

    def release(self) -> None:
        """Let go of the files; the memory goes with the last view of it."""
        self.views.clear()
        self._maps.clear()


def open_verified(
    directory: StrPath, threads: Optional[int] = None, only: Optional[Container[str]] = None
) -> Verified:
    """Map the files of the checkpoint in `directory` and compare every byte with its checksum.

    Args:
        directory: The checkpoint.
        threads: How many check at a time; None for as many as there are cores.
        only: Names of the files to look at, where several processes share the work; None for all.

    Raises:
        Damaged: The first file that is missing, short, long or altered.
        Foreign: It is of another format.
    """
    result = Verified(read(directory))
    threads = threads or digest.spare_threads()
    try:
        tasks: List[Callable[[], None]] = []
        for name, facts in result.body["files"].items():
            if only is not None and name not in only:
                continue
            path = os.path.join(directory, name)
            try:
                size = os.stat(path).st_size
                if size != facts["size"]:
                    raise Damaged(f"{name}: {size} bytes, {facts['size']} were written")
                result.add(name, path)
            except OSError as error:
                raise Damaged(f"{name}: {error.strerror}") from error
            tasks += _checks(name, result.views[name], facts)
        digest.in_parallel(tasks, threads)
    except BaseException:
        result.release()
        raise
    return result


def verify(directory: StrPath, threads: Optional[int] = None) -> Dict[str, Any]:
    """Read every byte of the checkpoint in `directory` and return its manifest.

    Raises:
        Damaged: The first file that is missing, short, long or altered.
        Foreign: It is of another format.
    """
    result = open_verified(directory, threads)
    body = result.body
    result.release()
    return body


def _checks(name: str, view: memoryview, facts: Mapping[str, Any]) -> List[Callable[[], None]]:
    chunk, expected = facts["chunk"], facts["crc32"]
    if len(expected) != -(-len(view) // chunk):
        raise Damaged(f"{name}: {len(expected)} checksums for {len(view)} bytes")

    def check(number: int) -> None:
        begin = number * chunk
        found = digest.crc32s(view[begin : begin + chunk], chunk)[0]
        if found != expected[number]:
            end = min(begin + chunk, len(view))
            raise Damaged(f"{name}: crc32 {found} of bytes {begin} to {end}, {expected[number]} was written")

    return [digest.bind(check, number) for number in range(len(expected))]


def _canonical(body: Mapping[str, Any]) -> bytes:
    return (json.dumps(body, sort_keys=True, indent=1) + "\n").encode()
