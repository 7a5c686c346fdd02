"""One login as driven by asyncssh: keys in OpenSSH's order, passwords, and other prompts."""

from __future__ import annotations

import asyncio
import base64
import binascii
import contextlib
import copy
import functools
import os
import re
import shlex
import stat
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import asyncssh

from rgt_tui.language import translate
from rgt_tui.model import FrozenStruct, QuestionKind
from rgt_tui.ssh.login_shell import EXPIRED
from rgt_tui.ssh.person import PausableDeadline, Person, PromptWaiter
from rgt_tui.ssh.ssh_route import SshHost

_PASSWORD = re.compile(r"pass ?(word|code|phrase)", re.IGNORECASE)
_ONCE = re.compile(r"one.?time|otp|token|verif|2fa|factor|duo", re.IGNORECASE)
"""Prompts whose answer is only valid once."""
MOST_CHALLENGES = 10
"""Give up on a server that keeps sending challenges."""
_MAGIC = b"openssh-key-v1\0"

Unlock = Callable[[str], Awaitable[asyncssh.SSHKey]]
"""Returns the key of a file, after prompting if needed; raises ValueError if it stays locked."""


class UsedKey(NamedTuple):
    """The part of a key pair that is kept, without its private half."""

    type: str
    """As in its public half: ``ssh-rsa`` whatever it signs with."""
    public: bytes
    """Its public half in wire format."""
    certified: bool
    path: str | None
    """Its file; None = the agent has it."""

    @classmethod
    def from_pair(cls, pair: asyncssh.SSHKeyPair, path: str | None) -> UsedKey:
        """Return the part of a pair that is kept."""
        public = pair.public_data
        kind = public[4 : 4 + int.from_bytes(public[:4], "big")].decode("ascii", "replace")
        return cls(kind, public, pair.has_cert or "-cert-v" in kind, path)


class Login(asyncssh.SSHClient):
    """The client side of one login.

    Attributes:
        offered: The host key that matched no known_hosts line, if any.
        deadline: How long the login may take.
        reached: The transport connected; a failure then happened during the login.
        patience: Waits for a person.
        keyring: The keys that were tried.
        unanswered: Prompts without an answer, except passphrases.
        has_expired: The server wants a new password, which rgt never types.
        used: The last key offered, if only keys were used: after a login, the accepted one.
    """

    def __init__(
        self, host: SshHost, person: Person, deadline: PausableDeadline, login_seconds: float
    ) -> None:
        self.offered: asyncssh.SSHKey | None = None
        self.reached = False
        self.patience = PromptWaiter(deadline, login_seconds)
        self.keyring = Keyring(host, person, self.patience)
        self.unanswered: list[str] = []
        self.has_expired = False
        self.used: UsedKey | None = None
        self.methods: tuple[str, ...] = ()
        self._host = host
        self._person = person
        self.deadline = deadline
        self._seconds = login_seconds
        self._keys: AsyncIterator[asyncssh.SSHKeyPair] | None = None
        self._banner: list[str] = []
        self._given: str | None = None
        """The last password used in this login."""
        self._fresh = False
        """A person was prompted for it in this login."""
        self._challenges = 0
        self._answerable: int | None = None
        """Number of challenges at the last offer to answer some; None = none offered yet."""
        self._connection: asyncssh.SSHClientConnection | None = None

    def connection_made(self, conn: asyncssh.SSHClientConnection) -> None:
        """Record that the server was reached: from now on the login timeout applies."""
        self._connection = conn
        self.reached = True
        # The time to reach a far or sleeping host is not taken from the login.
        self.deadline.extend_by(self._seconds)

    def connection_lost(self, exc: Exception | None) -> None:
        """Close the connection to the agent."""
        self.keyring.close()

    def validate_host_public_key(
        self, host: str, addr: str, port: int, key: asyncssh.SSHKey
    ) -> bool:
        """Refuse, but keep the key: a person decides before the next attempt."""
        self.offered = key
        return False

    def auth_banner_received(self, msg: str, lang: str) -> None:
        """Keep the server's banner for the person who is prompted."""
        # A hostile server could send banners without end.
        if len(self._banner) < 10:
            self._banner += msg.splitlines()[:10]

    def auth_completed(self) -> None:
        """Close the connection to the agent, and drop the private keys."""
        self._keys = None
        self.keyring.close()

    async def public_key_auth_requested(self) -> asyncssh.SSHKeyPair | None:
        """Return the next key."""
        self._remember_methods()
        if self._keys is None:
            self._keys = self.keyring.iterate_keys()
        # One at a time: unlocking a key may prompt a person, so later keys wait.
        pair = await anext(self._keys, None)
        if pair is None:
            self.used = None
        else:
            self.used = UsedKey.from_pair(pair, self.keyring.offered)
        return pair

    async def password_auth_requested(self) -> str | None:
        """Return the password, remembered or entered."""
        self._remember_methods()
        self.used = None
        return await self._choose_password(f"password of {self._host.user_host_port}", ())

    def kbdint_auth_requested(self) -> str | None:
        """Offer to answer challenges while some arrive.

        An offer without any counts as a failure.
        """
        self._remember_methods()
        self.used = None
        # asyncssh asks again after each failure; without challenges in between it would never end.
        if self._challenges == self._answerable or self._challenges >= MOST_CHALLENGES:
            return None
        self._answerable = self._challenges
        return ""

    async def kbdint_challenge_received(
        self, name: str, instructions: str, lang: str, prompts: Sequence[tuple[str, bool]]
    ) -> list[str] | None:
        """Answer the server's prompts: a password from memory, everything else by the person."""
        self._challenges += 1
        if self._challenges > MOST_CHALLENGES:
            return None
        answers = []
        words = tuple(part for part in (name, *instructions.splitlines()) if part.strip())
        # The server asks for a new password: an answer would change it without the person's
        # knowledge.
        if EXPIRED.search("\n".join((*words, *(prompt for prompt, _ in prompts)))):
            self.has_expired = True
            return None
        for prompt, echo in prompts:
            title = f"{prompt.strip().rstrip(':') or 'answer'} of {self._host.user_host_port}"
            # A one-time code looks like a password, but is wrong the second time.
            if not echo and _PASSWORD.search(prompt) and not _ONCE.search(prompt):
                answer = await self._choose_password(title, words)
            else:
                if echo:
                    kind = QuestionKind.TEXT
                else:
                    kind = QuestionKind.SECRET
                answer = await self._prompt_with_patience(kind, title, words)
            if answer is None:
                return None
            answers.append(answer)
        return answers

    def drop_refused_password(self) -> None:
        """Drop the password, because the server refused the login."""
        if self._given is not None:
            self._person.answers.drop_password(self._host.user_host_port, self._given)

    async def _choose_password(self, title: str, words: tuple[str, ...]) -> str | None:
        """Return a password that was not refused in this login.

        A person is prompted for it once.
        """
        where, answers = self._host.user_host_port, self._person.answers
        if self._given is not None:
            # It was refused in this very login: it must not be tried again.
            answers.drop_password(where, self._given)
        known = answers.find_password(where)
        if known is None or known == self._given:
            if self._fresh:
                return None
            known = await self.patience.wait_for_prompt(self._new_password(title, words))
        self._given = known
        return known

    async def _new_password(self, title: str, words: tuple[str, ...]) -> str | None:
        """Return a password entered for another box meanwhile, or prompt for one and keep it."""
        where, answers = self._host.user_host_port, self._person.answers
        async with self._person.idle(title), answers.prompt_lock("password", where):
            known = answers.find_password(where)
            if known is None or known == self._given:
                self._fresh = True
                known = await self._put_prompt(QuestionKind.SECRET, title, words)
                if known is not None:
                    answers.keep_password(where, known)
            return known

    async def _prompt_with_patience(
        self, kind: QuestionKind, title: str, words: tuple[str, ...]
    ) -> str | None:
        # Not `PromptWaiter.wait_for_prompt`: a one-time answer is useless after the connection is
        # lost.
        with self.patience.while_thinking():
            async with self._person.idle(title):
                return await self._put_prompt(kind, title, words)

    @property
    def was_declined(self) -> bool:
        """Whether the person declined or was absent: another attempt would only prompt again."""
        return bool(self.unanswered or self.has_expired or self.keyring.locked)

    async def _put_prompt(
        self, kind: QuestionKind, title: str, words: tuple[str, ...]
    ) -> str | None:
        lines = (*self._banner, *words, translate("kept in memory until rgt ends, never written"))
        answer = await self._person.prompt_person(kind, title, lines)
        if answer is None:
            self.unanswered.append(title)
        return answer

    def _remember_methods(self) -> None:
        if self._connection is not None:
            self.methods = self.methods or tuple(self._connection.get_server_auth_methods())


# The keys offered to a server, in OpenSSH's order: from the agent and from files, also encrypted.


class SealedKey(asyncssh.SSHKeyPair):
    """A key pair whose private half is unlocked only when it must sign."""

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
    """Return the public key that an encrypted OpenSSH key file stores unencrypted."""
    lines = text.strip().splitlines()
    if not lines or lines[0].strip() != b"-----BEGIN OPENSSH PRIVATE KEY-----":
        return None
    try:
        data = base64.b64decode(b"".join(line.strip() for line in lines[1:-1]), validate=True)
        if not data.startswith(_MAGIC):
            return None
        rest = data[len(_MAGIC) :]
        for _ in range(3):  # cipher, key derivation, its options
            _, rest = _split_string(rest)
        count, rest = int.from_bytes(rest[:4], "big"), rest[4:]
        blob, _ = _split_string(rest)
        kind, _ = _split_string(blob)
        if count != 1:
            return None
        return asyncssh.import_public_key(kind + b" " + base64.b64encode(blob))
    except (binascii.Error, ValueError, asyncssh.KeyImportError):
        return None


def _split_string(data: bytes) -> tuple[bytes, bytes]:
    size = int.from_bytes(data[:4], "big")
    if len(data) < 4 + size:
        raise ValueError("cut off")
    return data[4 : 4 + size], data[4 + size :]


class LoadedIdentity(FrozenStruct):
    """The content of one identity file."""

    key: asyncssh.SSHKey | None = None
    """The private key; None = encrypted or unusable."""
    public: asyncssh.SSHKey | None = None
    """The public half; None = unusable, or unknown without the passphrase."""
    certificate: asyncssh.SSHCertificate | None = None
    sealed: bool = False
    """The file is encrypted."""
    problem: str | None = None
    """Why it cannot be used, as text."""
    missing: bool = False


def load_identity(path: str) -> LoadedIdentity:
    """Read an identity file and the ``.pub`` and ``-cert.pub`` next to it."""
    return _load_cached(
        path, _file_stamp(path), _file_stamp(f"{path}.pub"), _file_stamp(f"{path}-cert.pub")
    )


def _file_stamp(path: str) -> tuple[int, int, int, int] | None:
    try:
        status = os.stat(path)  # noqa: PTH116 (one call, no object)
    except OSError:
        return None
    return (status.st_ino, status.st_mtime_ns, status.st_size, status.st_mode)


@functools.lru_cache(maxsize=256)
def _load_cached(path: str, *_stamps: object) -> LoadedIdentity:
    public = read_public(f"{path}.pub")
    certificate = read_certificate(f"{path}-cert.pub")
    try:
        text = Path(path).read_bytes()
        status = os.stat(path)  # noqa: PTH116
    except FileNotFoundError:
        # Only the public half exists: the agent may have the private one.
        return LoadedIdentity(public=public, certificate=certificate, missing=True)
    except OSError as error:
        return LoadedIdentity(public=public, problem=f"{path}: {error.strerror}", missing=True)
    # As ssh does; another person's file is not ours to judge.
    if stat.S_IMODE(status.st_mode) & 0o077 and status.st_uid == os.getuid() and b"PRIVATE" in text:
        return LoadedIdentity(
            public=public,
            certificate=certificate,
            problem=translate(
                "{path}: others may read it, so rgt does not use it; chmod 600 {quoted}",
                path=path,
                quoted=shlex.quote(path),
            ),
        )
    try:
        key = asyncssh.import_private_key(text)
    except asyncssh.KeyEncryptionError:
        return LoadedIdentity(
            public=public or public_part(text), certificate=certificate, sealed=True
        )
    except (asyncssh.KeyImportError, ValueError) as error:
        # Older formats raise a general error for a missing passphrase.
        if "assphrase" in str(error):
            return LoadedIdentity(
                public=public or public_part(text), certificate=certificate, sealed=True
            )
        public = public or read_public(path)
        if public is not None:
            problem = None
        else:
            problem = f"{path}: {error}"
        return LoadedIdentity(public=public, certificate=certificate, problem=problem)
    return LoadedIdentity(key=key, public=key.convert_to_public(), certificate=certificate)


def read_public(path: str) -> asyncssh.SSHKey | None:
    """Read a public key file; None if it is not one."""
    try:
        return asyncssh.read_public_key(path)
    except (OSError, ValueError, asyncssh.KeyImportError):
        return None


def read_certificate(path: str) -> asyncssh.SSHCertificate | None:
    """Read a certificate file; None if it is not one."""
    try:
        return asyncssh.read_certificate(path)
    except (OSError, ValueError, asyncssh.KeyImportError):
        return None


AGENT_SECONDS = 5.0
"""Seconds after which an agent that has not listed its keys is skipped."""


class Keyring:
    """Yields keys to try, and records what happened with each.

    Args:
        host: The server.
        person: Answers prompts for passphrases.
        patience: Waits for the person.

    Attributes:
        locked: Encrypted files without a passphrase.
        notes: Messages for a failed login: files that could not be used, locked keys.
        tried: The keys that were offered.
        offered: The file of the last offered key; None = the agent has it.
    """

    def __init__(self, host: SshHost, person: Person, patience: PromptWaiter) -> None:
        self.locked: list[str] = []
        self.notes: list[str] = []
        self.tried: list[str] = []
        self.offered: str | None = None
        self._host = host
        self._person = person
        self._patience = patience
        self._agent: asyncssh.SSHAgentClient | None = None
        self._refused: set[str] = set()

    async def iterate_keys(self) -> AsyncIterator[asyncssh.SSHKeyPair]:
        """Yield the keys: agent keys that a file names, other agent keys, then keys from files."""
        files = [(path, load_identity(path)) for path in self._host.identities]
        named = {loaded.public.public_data for _, loaded in files if loaded.public is not None}
        certificates = [
            cert
            for path in self._host.certificates
            if (cert := self._certificate(path)) is not None
        ]
        certificates += [
            loaded.certificate for _, loaded in files if loaded.certificate is not None
        ]
        held = await self._agent_keys()
        wanted = [pair for pair in held if _bare_public_key(pair) in named]
        if not self._host.identities_only:
            wanted += [pair for pair in held if _bare_public_key(pair) not in named]
        offered = set()
        for pair in wanted:
            offered.add(_bare_public_key(pair))
            for found in _with_certificates(pair, certificates):
                self.offered = None
                yield self._note_tried(
                    found, f"agent: {pair.get_comment(errors='replace') or pair.get_algorithm()}"
                )
        for path, loaded in files:
            if loaded.public is not None and loaded.public.public_data in offered:
                continue
            for found in _with_certificates(await self._key_of_file(path, loaded), certificates):
                self.offered = path
                yield self._note_tried(found, path)

    def close(self) -> None:
        """Close the connection to the agent."""
        if self._agent is not None:
            self._agent.close()
            self._agent = None

    def _note_tried(self, pair: asyncssh.SSHKeyPair, name: str) -> asyncssh.SSHKeyPair:
        if pair.has_cert:
            shown = f"{name} (certificate)"
        else:
            shown = name
        if shown not in self.tried:
            self.tried.append(shown)
        return pair

    def _certificate(self, path: str) -> asyncssh.SSHCertificate | None:
        found = read_certificate(path)
        if found is None:
            self.notes.append(translate("{path}: no certificate could be read", path=path))
        return found

    async def _agent_keys(self) -> list[asyncssh.SSHKeyPair]:
        if self._host.agent is None:
            return []
        try:
            async with asyncio.timeout(AGENT_SECONDS):
                self._agent = await asyncssh.connect_agent(self._host.agent)
                return list(await self._agent.get_keys())
        except TimeoutError:
            self.notes.append(
                translate(
                    "the SSH agent at {agent} has not answered for {seconds:g} s",
                    agent=self._host.agent,
                    seconds=AGENT_SECONDS,
                )
            )
            self.close()
            return []
        except (OSError, ValueError, asyncssh.Error) as error:
            self.notes.append(
                translate(
                    "the SSH agent at {agent} does not answer ({error})",
                    agent=self._host.agent,
                    error=error,
                )
            )
            return []

    async def _key_of_file(self, path: str, loaded: LoadedIdentity) -> asyncssh.SSHKeyPair | None:
        if loaded.problem is not None:
            self.notes.append(loaded.problem)
        if loaded.missing and self._host.identities_given and loaded.public is None:
            self.notes.append(translate("{path}: no such key file", path=path))
        key = loaded.key if loaded.key is not None else self._person.answers.find_unlocked_key(path)
        if key is None and loaded.sealed and loaded.public is not None:
            return SealedKey(loaded.public, path, self._unlock_once)
        if key is None and loaded.sealed:
            # An old format: even the public half is unknown without the passphrase.
            with contextlib.suppress(ValueError):
                key = await self._unlock_once(path)
        if key is None:
            return None
        return asyncssh.load_keypairs([key])[0]

    async def _unlock_once(self, path: str) -> asyncssh.SSHKey:
        if path in self._refused:
            raise ValueError("asked already")
        return await self._patience.wait_for_prompt(self._prompt_passphrase(path))

    async def _prompt_passphrase(self, path: str) -> asyncssh.SSHKey:
        answers = self._person.answers
        title = f"passphrase of {path}"
        async with self._person.idle(title), answers.prompt_lock("key", path):
            known = answers.find_unlocked_key(path)
            if known is not None:
                return known
            lines = (
                f"to log in at {self._host.user_host_port}",
                translate("kept in memory until rgt ends, never written"),
            )
            phrase = await self._person.prompt_person(QuestionKind.SECRET, title, lines)
            if phrase is None:
                self._refused.add(path)
                self.locked.append(path)
                self.notes.append(
                    translate(
                        "{path} is encrypted and no passphrase was given; ssh-add {quoted}",
                        path=path,
                        quoted=shlex.quote(path),
                    )
                )
                raise ValueError("no passphrase")
            try:
                key = await asyncio.to_thread(asyncssh.read_private_key, path, phrase)
            except (OSError, ValueError, asyncssh.KeyImportError, asyncssh.KeyEncryptionError):
                self._refused.add(path)
                self.notes.append(translate("{path}: wrong passphrase", path=path))
                raise ValueError("wrong passphrase") from None
            answers.keep_key(path, key)
            return key


def _bare_public_key(pair: asyncssh.SSHKeyPair) -> bytes:
    """Return the public key of a pair, without the certificate that an agent may have added."""
    if not pair.algorithm.endswith(b"-cert-v01@openssh.com"):
        return pair.public_data
    try:
        line = pair.algorithm + b" " + base64.b64encode(pair.public_data)
        return asyncssh.import_certificate(line).key.public_data
    except (ValueError, asyncssh.KeyImportError):
        return pair.public_data


def _with_certificates(
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
