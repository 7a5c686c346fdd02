"""Fingerprints as OpenSSH prints them."""

from __future__ import annotations

import base64
import hashlib

_CHARS = " .o+=*BOX@%&#/^SE"
_WIDTH, _HEIGHT = 17, 9
_BITS = {
    "ssh-ed25519": 256,
    "ecdsa-sha2-nistp256": 256,
    "ecdsa-sha2-nistp384": 384,
    "ecdsa-sha2-nistp521": 521,
}


def sha256(blob: bytes) -> str:
    """Return ``SHA256:…`` of a public key in wire format."""
    return "SHA256:" + base64.b64encode(hashlib.sha256(blob).digest()).decode().rstrip("=")


def bits(kind: str, blob: bytes) -> int:
    """Return the size of a key; 0 = not known."""
    if kind != "ssh-rsa":
        return _BITS.get(kind, 0)
    rest = blob
    for _ in range(2):  # the type, and the exponent; the modulus is left
        rest = rest[4 + int.from_bytes(rest[:4], "big") :]
    return int.from_bytes(rest[4 : 4 + int.from_bytes(rest[:4], "big")], "big").bit_length()


def art(blob: bytes, label: str) -> tuple[str, ...]:
    """Return OpenSSH's picture of a key (the drunken bishop), which an eye compares faster than letters."""
    field = [[0] * _HEIGHT for _ in range(_WIDTH)]
    x, y = _WIDTH // 2, _HEIGHT // 2
    for byte in hashlib.sha256(blob).digest():
        for shift in (0, 2, 4, 6):
            move = byte >> shift & 3
            x = max(0, min(_WIDTH - 1, x + (1 if move & 1 else -1)))
            y = max(0, min(_HEIGHT - 1, y + (1 if move & 2 else -1)))
            field[x][y] = min(field[x][y] + 1, len(_CHARS) - 3)
    field[_WIDTH // 2][_HEIGHT // 2] = len(_CHARS) - 2
    field[x][y] = len(_CHARS) - 1
    rows = ("".join(_CHARS[field[column][row]] for column in range(_WIDTH)) for row in range(_HEIGHT))
    return (_edge(f"[{label}]"), *(f"|{row}|" for row in rows), _edge("[SHA256]"))


def _edge(label: str) -> str:
    label = label[:_WIDTH]
    left = (_WIDTH - len(label)) // 2
    return "+" + "-" * left + label + "-" * (_WIDTH - left - len(label)) + "+"
