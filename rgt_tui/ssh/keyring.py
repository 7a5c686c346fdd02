"""The keys offered to a server, in OpenSSH's order: from the agent and from files, encrypted ones included."""

from __future__ import annotations

import asyncio
import base64
import binascii
import contextlib
import copy
import functools
import os
import shlex
import stat
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import asyncssh
import msgspec

from rgt_tui.model import QuestionKind
from rgt_tui.ssh.person import Patience, Person
from rgt_tui.ssh.ssh_route import Host

_MAGIC = b"openssh-key-v1\0"

Unlock = Callable[[str], Awaitable[asyncssh.SSHKey]]
"""Returns the key of a file, by asking if need be; raises ValueError when it stays locked."""


class SealedKey(asyncssh.SSHKeyPair):
    """A key pair whose private half is only unlocked when it has to sign."""

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
    """Return the public key that an encrypted file of OpenSSH's own format holds unencrypted."""
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
    """Read an identity file and the ``.pub`` and ``-cert.pub`` next to it."""
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


AGENT_SECONDS = 5.0
"""An agent that has not told its keys by then hangs: the login goes on without it."""


class Keyring:
    """Yields keys to try, and remembers in words what became of each.

    Args:
        host: Where they are to log in.
        person: Who is asked for passphrases.
        patience: How that is waited for.

    Attributes:
        locked: Encrypted files whose passphrase nobody gave.
        notes: What a person should know when the login fails: files that could not be used, locked keys.
        tried: The keys that were offered.
        offered: The file of the one that was offered last; None = the agent has it.
    """

    def __init__(self, host: Host, person: Person, patience: Patience) -> None:
        self.locked: list[str] = []
        self.notes: list[str] = []
        self.tried: list[str] = []
        self.offered: str | None = None
        self._host = host
        self._person = person
        self._patience = patience
        self._agent: asyncssh.SSHAgentClient | None = None
        self._refused: set[str] = set()

    async def keys(self) -> AsyncIterator[asyncssh.SSHKeyPair]:
        """Yield the keys: those of the agent that a file names, the agent's others, then the files' own."""
        files = [(path, load(path)) for path in self._host.identities]
        named = {loaded.public.public_data for _, loaded in files if loaded.public is not None}
        certificates = [
            cert for path in self._host.certificates if (cert := self._certificate(path)) is not None
        ]
        certificates += [loaded.certificate for _, loaded in files if loaded.certificate is not None]
        held = await self._held()
        wanted = [pair for pair in held if _bare(pair) in named]
        if not self._host.identities_only:
            wanted += [pair for pair in held if _bare(pair) not in named]
        offered = set()
        for pair in wanted:
            offered.add(_bare(pair))
            for found in _with(pair, certificates):
                self.offered = None
                yield self._offer(
                    found, f"agent: {pair.get_comment(errors='replace') or pair.get_algorithm()}"
                )
        for path, loaded in files:
            if loaded.public is not None and loaded.public.public_data in offered:
                continue
            for found in _with(await self._own(path, loaded), certificates):
                self.offered = path
                yield self._offer(found, path)

    def close(self) -> None:
        """Close the connection to the agent."""
        if self._agent is not None:
            self._agent.close()
            self._agent = None

    def _offer(self, pair: asyncssh.SSHKeyPair, name: str) -> asyncssh.SSHKeyPair:
        shown = f"{name} (certificate)" if pair.has_cert else name
        if shown not in self.tried:
            self.tried.append(shown)
        return pair

    def _certificate(self, path: str) -> asyncssh.SSHCertificate | None:
        found = read_certificate(path)
        if found is None:
            self.notes.append(f"{path}: no certificate could be read")
        return found

    async def _held(self) -> list[asyncssh.SSHKeyPair]:
        if self._host.agent is None:
            return []
        try:
            async with asyncio.timeout(AGENT_SECONDS):
                self._agent = await asyncssh.connect_agent(self._host.agent)
                return list(await self._agent.get_keys())
        except TimeoutError:
            self.notes.append(f"the SSH agent at {self._host.agent} has not answered for {AGENT_SECONDS:g} s")
            self.close()
            return []
        except (OSError, ValueError, asyncssh.Error) as error:
            self.notes.append(f"the SSH agent at {self._host.agent} does not answer ({error})")
            return []

    async def _own(self, path: str, loaded: Loaded) -> asyncssh.SSHKeyPair | None:
        if loaded.problem is not None:
            self.notes.append(loaded.problem)
        if loaded.missing and self._host.identities_given and loaded.public is None:
            self.notes.append(f"{path}: no such key file")
        key = loaded.key if loaded.key is not None else self._person.answers.key(path)
        if key is None and loaded.sealed and loaded.public is not None:
            return SealedKey(loaded.public, path, self._unlock)
        if key is None and loaded.sealed:
            # An old format: not even the public half can be offered without the passphrase.
            with contextlib.suppress(ValueError):
                key = await self._unlock(path)
        return None if key is None else asyncssh.load_keypairs([key])[0]

    async def _unlock(self, path: str) -> asyncssh.SSHKey:
        if path in self._refused:
            raise ValueError("asked already")
        return await self._patience.wait(self._unlocked(path))

    async def _unlocked(self, path: str) -> asyncssh.SSHKey:
        answers = self._person.answers
        title = f"passphrase of {path}"
        async with self._person.idle(title), answers.lock("key", path):
            known = answers.key(path)
            if known is not None:
                return known
            lines = (f"to log in at {self._host.where}", "kept in memory until rgt ends, never written")
            phrase = await self._person.ask(QuestionKind.SECRET, title, lines)
            if phrase is None:
                self._refused.add(path)
                self.locked.append(path)
                self.notes.append(
                    f"{path} is encrypted and nobody gave its passphrase; ssh-add {shlex.quote(path)}"
                )
                raise ValueError("no passphrase")
            try:
                key = await asyncio.to_thread(asyncssh.read_private_key, path, phrase)
            except (OSError, ValueError, asyncssh.KeyImportError, asyncssh.KeyEncryptionError):
                self._refused.add(path)
                self.notes.append(f"{path}: that is not its passphrase")
                raise ValueError("wrong passphrase") from None
            answers.keep_key(path, key)
            return key


def _bare(pair: asyncssh.SSHKeyPair) -> bytes:
    """Return the public key of a pair, without the certificate around it that an agent may hold."""
    if not pair.algorithm.endswith(b"-cert-v01@openssh.com"):
        return pair.public_data
    try:
        line = pair.algorithm + b" " + base64.b64encode(pair.public_data)
        return asyncssh.import_certificate(line).key.public_data
    except (ValueError, asyncssh.KeyImportError):
        return pair.public_data


def _with(
    pair: asyncssh.SSHKeyPair | None, certificates: list[asyncssh.SSHCertificate]
) -> list[asyncssh.SSHKeyPair]:
    """Return a key with each of its certificates, then the key alone."""
    if pair is None:
        return []
    certified = []
    for certificate in certificates:
        if not pair.has_cert and certificate.key.public_data == pair.public_data:
            other = copy.copy(pair)
            other.set_certificate(certificate)
            certified.append(other)
    return [*certified, pair]
