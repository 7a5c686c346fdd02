"""Private keys whose file is encrypted: offered at once, unlocked only when the server wants their signature."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Awaitable, Callable

import asyncssh

_MAGIC = b"openssh-key-v1\0"

Unlock = Callable[[str], Awaitable[asyncssh.SSHKey]]
"""Returns the key of a file, by asking if need be; raises ValueError when it stays locked."""


class SealedKey(asyncssh.SSHKeyPair):
    """A key pair of which only the public half is at hand until it has to sign."""

    _key_type = "local"

    def __init__(self, public: asyncssh.SSHKey, path: str, unlock: Unlock) -> None:
        super().__init__(
            public.algorithm,
            public.algorithm,
            public.sig_algorithms,
            public.sig_algorithms,
            public.public_data,
            path,
        )
        self._path = path
        self._unlock = unlock

    async def sign_async(self, data: bytes) -> bytes:
        """Unlock the key and sign."""
        key = await self._unlock(self._path)
        return key.sign(data, self.sig_algorithm)


def public_part(text: bytes) -> asyncssh.SSHKey | None:
    """Return the public key that stands in the clear in an encrypted file of OpenSSH's own format."""
    lines = text.strip().splitlines()
    if not lines or lines[0].strip() != b"-----BEGIN OPENSSH PRIVATE KEY-----":
        return None
    try:
        data = base64.b64decode(b"".join(line.strip() for line in lines[1:-1]), validate=True)
        if not data.startswith(_MAGIC):
            return None
        rest = data[len(_MAGIC) :]
        for _ in range(3):  # cipher, derivation, its options
            _, rest = _string(rest)
        count, rest = int.from_bytes(rest[:4], "big"), rest[4:]
        blob, _ = _string(rest)
        kind, _ = _string(blob)
        if count != 1:
            return None
        return asyncssh.import_public_key(kind + b" " + base64.b64encode(blob))
    except (binascii.Error, ValueError, asyncssh.KeyImportError):
        return None


def _string(data: bytes) -> tuple[bytes, bytes]:
    size = int.from_bytes(data[:4], "big")
    if len(data) < 4 + size:
        raise ValueError("cut off")
    return data[4 : 4 + size], data[4 + size :]
