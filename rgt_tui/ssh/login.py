"""One login as asyncssh drives it: which key, password or answer comes next."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Sequence
from typing import NamedTuple

import asyncssh

from rgt_tui.model import QuestionKind
from rgt_tui.ssh.keyring import Keyring
from rgt_tui.ssh.person import Deadline, Patience, Person
from rgt_tui.ssh.ssh_route import Host

_PASSWORD = re.compile(r"pass ?(word|code|phrase)", re.IGNORECASE)
_ONCE = re.compile(r"one.?time|otp|token|verif|2fa|factor|duo", re.IGNORECASE)
"""Prompts whose answer is worth nothing a second time."""
MOST_CHALLENGES = 10
"""A server that goes on asking without end is left."""


class UsedKey(NamedTuple):
    """What is kept of a key pair, without its private half."""

    type: str
    """As its public half says: ``ssh-rsa`` whatever it signs with."""
    public: bytes
    """Its public half in wire format."""
    certified: bool
    path: str | None
    """Its file; None = the agent has it."""

    @classmethod
    def of(cls, pair: asyncssh.SSHKeyPair, path: str | None) -> UsedKey:
        """Return what is kept of a pair."""
        public = pair.public_data
        kind = public[4 : 4 + int.from_bytes(public[:4], "big")].decode("ascii", "replace")
        return cls(kind, public, pair.has_cert or "-cert-v" in kind, path)


class Login(asyncssh.SSHClient):
    """The client side of one login.

    Attributes:
        offered: The host key that no known_hosts line vouches for, when there was one.
        deadline: How long the login may take.
        reached: The transport connected; whatever failed then failed behind it.
        patience: The waiting for a person.
        keyring: What was tried.
        unanswered: What nobody answered, passphrases left out.
        used: The key that was offered last, if nothing but keys was: after a login, the one that the server took.
    """

    def __init__(self, host: Host, person: Person, deadline: Deadline, login_seconds: float) -> None:
        self.offered: asyncssh.SSHKey | None = None
        self.reached = False
        self.patience = Patience(deadline, login_seconds)
        self.keyring = Keyring(host, person, self.patience)
        self.unanswered: list[str] = []
        self.used: UsedKey | None = None
        self.methods: tuple[str, ...] = ()
        self._host = host
        self._person = person
        self.deadline = deadline
        self._seconds = login_seconds
        self._keys: AsyncIterator[asyncssh.SSHKeyPair] | None = None
        self._banner: list[str] = []
        self._given: str | None = None
        """The password that was given last in this login."""
        self._fresh = False
        """A person was asked for it in this login."""
        self._challenges = 0
        self._answerable: int | None = None
        """How many challenges had come when it was offered last to answer some; None = never yet."""
        self._connection: asyncssh.SSHClientConnection | None = None

    def connection_made(self, conn: asyncssh.SSHClientConnection) -> None:
        """Note that the server is reached: from now on the login has its own timeout."""
        self._connection = conn
        self.reached = True
        self.deadline.extend(self._seconds)

    def connection_lost(self, exc: Exception | None) -> None:
        """Close the connection to the agent."""
        self.keyring.close()

    def validate_host_public_key(self, host: str, addr: str, port: int, key: asyncssh.SSHKey) -> bool:
        """Refuse, and keep the key: a person decides before the next try."""
        self.offered = key
        return False

    def auth_banner_received(self, msg: str, lang: str) -> None:
        """Keep the server's banner for the person who is prompted."""
        if len(self._banner) < 10:
            self._banner += msg.splitlines()[:10]

    def auth_completed(self) -> None:
        """Close the connection to the agent, and drop the private keys."""
        self._keys = None
        self.keyring.close()

    async def public_key_auth_requested(self) -> asyncssh.SSHKeyPair | None:
        """Return the next key."""
        self._methods()
        if self._keys is None:
            self._keys = self.keyring.keys()
        pair = await anext(self._keys, None)
        self.used = None if pair is None else UsedKey.of(pair, self.keyring.offered)
        return pair

    async def password_auth_requested(self) -> str | None:
        """Return the password, remembered or asked for."""
        self._methods()
        self.used = None
        return await self._password(f"password of {self._host.where}", ())

    def kbdint_auth_requested(self) -> str | None:
        """Answer challenges, as long as some come: an offer without any counts as a failed try."""
        self._methods()
        self.used = None
        if self._challenges == self._answerable or self._challenges >= MOST_CHALLENGES:
            return None
        self._answerable = self._challenges
        return ""

    async def kbdint_challenge_received(
        self, name: str, instructions: str, lang: str, prompts: Sequence[tuple[str, bool]]
    ) -> list[str] | None:
        """Answer the server's prompts: a password from memory, anything else from the person."""
        self._challenges += 1
        if self._challenges > MOST_CHALLENGES:
            return None
        answers = []
        words = tuple(part for part in (name, *instructions.splitlines()) if part.strip())
        for prompt, echo in prompts:
            title = f"{prompt.strip().rstrip(':') or 'answer'} of {self._host.where}"
            if not echo and _PASSWORD.search(prompt) and not _ONCE.search(prompt):
                answer = await self._password(title, words)
            else:
                kind = QuestionKind.TEXT if echo else QuestionKind.SECRET
                answer = await self._ask(kind, title, words)
            if answer is None:
                return None
            answers.append(answer)
        return answers

    def refused(self) -> None:
        """Note that the server refused the login, so the password is wrong."""
        if self._given is not None:
            self._person.answers.drop_password(self._host.where, self._given)

    async def _password(self, title: str, words: tuple[str, ...]) -> str | None:
        """Return a password that was not refused in this login; a person is asked for it once."""
        where, answers = self._host.where, self._person.answers
        if self._given is not None:
            answers.drop_password(where, self._given)
        known = answers.password(where)
        if known is None or known == self._given:
            if self._fresh:
                return None
            known = await self.patience.wait(self._new_password(title, words))
        self._given = known
        return known

    async def _new_password(self, title: str, words: tuple[str, ...]) -> str | None:
        """Return a password that somebody else was asked for meanwhile, or ask for one and keep it."""
        where, answers = self._host.where, self._person.answers
        async with self._person.idle(title), answers.lock("password", where):
            known = answers.password(where)
            if known is None or known == self._given:
                self._fresh = True
                known = await self._put(QuestionKind.SECRET, title, words)
                if known is not None:
                    answers.keep_password(where, known)
            return known

    async def _ask(self, kind: QuestionKind, title: str, words: tuple[str, ...]) -> str | None:
        # Not `Patience.wait`: an answer that is good for this connection only is worth nothing once it is lost.
        with self.patience.thinking():
            async with self._person.idle(title):
                return await self._put(kind, title, words)

    @property
    def declined(self) -> bool:
        """The person declined, or there was nobody to ask: another try would only ask again."""
        return bool(self.unanswered or self.keyring.locked)

    async def _put(self, kind: QuestionKind, title: str, words: tuple[str, ...]) -> str | None:
        lines = (*self._banner, *words, "kept in memory until rgt ends, never written")
        answer = await self._person.ask(kind, title, lines)
        if answer is None:
            self.unanswered.append(title)
        return answer

    def _methods(self) -> None:
        if self._connection is not None:
            self.methods = self.methods or tuple(self._connection.get_server_auth_methods())
