"""The manifest of a checkpoint.

Which files, how long, which SHA-256. Standard library only, so that listing and
verifying never waits for `import torch`.
"""

from __future__ import annotations

import hashlib
import json
import os
from typing import Any, Dict, Mapping

from rgt_train.durable import StrPath

NAME = "manifest.json"
FORMAT = 1
_CHUNK = 1 << 20


class Damaged(Exception):
    """A checkpoint is incomplete, or a byte of it is not what was written; the text says where."""


def sha256_of(path: StrPath) -> str:
    """Return the SHA-256 of the file at `path` in hexadecimal.

    Raises:
        OSError: It cannot be read.
    """
    digest = hashlib.sha256()
    buffer = bytearray(_CHUNK)
    view = memoryview(buffer)
    with open(path, "rb", buffering=0) as file:
        while True:
            n = file.readinto(buffer)
            if not n:
                return digest.hexdigest()
            digest.update(view[:n])


def encode(step: int, files: Mapping[str, Mapping[str, Any]], about: Mapping[str, Any]) -> bytes:
    """Return the bytes of a manifest.

    The text is canonical and carries its own digest, so that a flipped bit in the manifest itself is noticed too.

    Args:
        step: Optimizer steps done.
        files: Name → ``{"size": bytes, "sha256": hex}``.
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
        Damaged: It is missing, unreadable, altered, or of a format this version does not know.
    """
    path = os.path.join(directory, NAME)
    try:
        with open(path, "rb") as file:
            raw = file.read()
    except OSError as error:
        raise Damaged(f"{NAME}: {error.strerror}") from error
    try:
        body = json.loads(raw)
        digest = body.pop("digest")
        expected = hashlib.sha256(_canonical(body)).hexdigest()
        intact = digest == expected and raw == _canonical({**body, "digest": digest})
    except (ValueError, KeyError, AttributeError, TypeError, RecursionError) as error:
        raise Damaged(f"{NAME}: not readable as a manifest") from error
    if not intact:
        raise Damaged(f"{NAME}: its bytes are not what was written")
    if body["format"] != FORMAT:
        raise Damaged(f"{NAME}: format {body['format']}, this version reads {FORMAT}")
    result: Dict[str, Any] = body
    return result


def verify(directory: StrPath) -> Dict[str, Any]:
    """Read every byte of the checkpoint in `directory` and return its manifest.

    Raises:
        Damaged: The first file that is missing, short, long or altered.
    """
    body = read(directory)
    for name, facts in body["files"].items():
        path = os.path.join(directory, name)
        try:
            size = os.stat(path).st_size
            if size != facts["size"]:
                raise Damaged(f"{name}: {size} bytes, {facts['size']} were written")
            found = sha256_of(path)
        except OSError as error:
            raise Damaged(f"{name}: {error.strerror}") from error
        if found != facts["sha256"]:
            raise Damaged(f"{name}: sha256 {found[:12]}…, {facts['sha256'][:12]}… was written")
    return body


def _canonical(body: Mapping[str, Any]) -> bytes:
    return (json.dumps(body, sort_keys=True, indent=1) + "\n").encode()
