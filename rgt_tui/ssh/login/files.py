"""Identity files: read, cached while they do not change, and refused where others could read them."""

from __future__ import annotations

import functools
import os
import shlex
import stat
from pathlib import Path

import asyncssh
import msgspec

from rgt_tui.ssh.login.sealed import public_part


class Loaded(msgspec.Struct, frozen=True):
    """What one identity file gives."""

    key: asyncssh.SSHKey | None = None
    """The private key; None = encrypted or unusable."""
    public: asyncssh.SSHKey | None = None
    """The public half; None = unusable, or it takes the passphrase to know it."""
    certificate: asyncssh.SSHCertificate | None = None
    sealed: bool = False
    """The file is encrypted."""
    problem: str | None = None
    """Why it cannot be used, in words."""
    missing: bool = False


def load(path: str) -> Loaded:
    """Read an identity file and the ``.pub`` and ``-cert.pub`` beside it."""
    return _load(path, _stamp(path), _stamp(f"{path}.pub"), _stamp(f"{path}-cert.pub"))


def _stamp(path: str) -> tuple[int, int, int, int] | None:
    try:
        status = os.stat(path)  # noqa: PTH116 (one call, no object)
    except OSError:
        return None
    return (status.st_ino, status.st_mtime_ns, status.st_size, status.st_mode)


@functools.lru_cache(maxsize=256)
def _load(path: str, *_stamps: object) -> Loaded:
    public = read_public(f"{path}.pub")
    certificate = read_certificate(f"{path}-cert.pub")
    try:
        text = Path(path).read_bytes()
        status = os.stat(path)  # noqa: PTH116
    except FileNotFoundError:
        # Only the public half is here: the agent may have the private one.
        return Loaded(public=public, certificate=certificate, missing=True)
    except OSError as error:
        return Loaded(public=public, problem=f"{path}: {error.strerror}", missing=True)
    if stat.S_IMODE(status.st_mode) & 0o077 and status.st_uid == os.getuid() and b"PRIVATE" in text:
        return Loaded(
            public=public,
            certificate=certificate,
            problem=f"{path}: others may read it, so it is not used; chmod 600 {shlex.quote(path)}",
        )
    try:
        key = asyncssh.import_private_key(text)
    except asyncssh.KeyEncryptionError:
        return Loaded(public=public or public_part(text), certificate=certificate, sealed=True)
    except (asyncssh.KeyImportError, ValueError) as error:
        if "assphrase" in str(error):
            return Loaded(public=public or public_part(text), certificate=certificate, sealed=True)
        public = public or read_public(path)
        problem = None if public is not None else f"{path}: {error}"
        return Loaded(public=public, certificate=certificate, problem=problem)
    return Loaded(key=key, public=key.convert_to_public(), certificate=certificate)


def read_public(path: str) -> asyncssh.SSHKey | None:
    """Read a public key file; None where it is none."""
    try:
        return asyncssh.read_public_key(path)
    except (OSError, ValueError, asyncssh.KeyImportError):
        return None


def read_certificate(path: str) -> asyncssh.SSHCertificate | None:
    """Read a certificate file; None where it is none."""
    try:
        return asyncssh.read_certificate(path)
    except (OSError, ValueError, asyncssh.KeyImportError):
        return None
