"""What people have answered, in memory only: never written, never printed, gone when rgt ends."""

from __future__ import annotations

import asyncio

import asyncssh

Subject = tuple[str, str]
"""What an answer is about: a kind, and a name within it."""


class Answers:
    """Passwords, unlocked keys and accepted host keys. One object may serve a whole fleet.

    It holds what is asked for once: a reconnect needs no person, and a hundred boxes behind one jump host ask
    for its password once, since whoever asks holds the subject's lock.
    """

    def __init__(self) -> None:
        self._passwords: dict[str, str] = {}
        self._keys: dict[str, asyncssh.SSHKey] = {}
        self._accepted: dict[str, set[tuple[str, str]]] = {}
        self._locks: dict[Subject, asyncio.Lock] = {}

    def __repr__(self) -> str:
        return "Answers(…)"

    def lock(self, kind: str, name: str) -> asyncio.Lock:
        """Return the lock that whoever asks about a subject holds."""
        return self._locks.setdefault((kind, name), asyncio.Lock())

    def password(self, where: str) -> str | None:
        """Return the password of ``user@host:port``, if someone gave it."""
        return self._passwords.get(where)

    def keep_password(self, where: str, password: str) -> None:
        """Keep a password for the next connection."""
        self._passwords[where] = password

    def drop_password(self, where: str, password: str | None = None) -> None:
        """Forget a password that was refused; a newer one stays."""
        if password is None or self._passwords.get(where) == password:
            self._passwords.pop(where, None)

    def key(self, path: str) -> asyncssh.SSHKey | None:
        """Return an encrypted key that has been unlocked."""
        return self._keys.get(path)

    def keep_key(self, path: str, key: asyncssh.SSHKey) -> None:
        """Keep an unlocked key."""
        self._keys[path] = key

    def accepted(self, name: str) -> frozenset[tuple[str, str]]:
        """Return the host keys (type, base64) that a person accepted for a server that has no file for them."""
        return frozenset(self._accepted.get(name, ()))

    def accept(self, name: str, kind: str, key: str) -> None:
        """Keep an accepted host key."""
        self._accepted.setdefault(name, set()).add((kind, key))
