"""``manifest.json`` of the trainer's checkpoints: canonical JSON with its own SHA-256 (docs/checkpoint-format.md)."""

from __future__ import annotations

import hashlib
import json

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, Mapping

MANIFEST = "manifest.json"
FORMAT = 2


def encode(body: "Mapping[str, Any]") -> bytes:
    """Return the file's content: `body` and its digest, so that a flipped bit in the file is noticed."""
    return _canonical({**body, "digest": hashlib.sha256(_canonical(body)).hexdigest()})


def decode(raw: bytes) -> "Dict[str, Any]":
    """Return the body of a manifest without its digest.

    Raises:
        ValueError: It is damaged; the message says how.
    """
    try:
        body: "Dict[str, Any]" = json.loads(raw)
        del body["digest"]
        intact = raw == encode(body)
    except (ValueError, KeyError, AttributeError, TypeError, RecursionError):
        raise ValueError("it is not readable as a manifest") from None
    if not intact:
        raise ValueError("its bytes are not what was written")
    return body


def _canonical(body: "Mapping[str, Any]") -> bytes:
    return (json.dumps(body, sort_keys=True, indent=1) + "\n").encode()
