"""Passwords and prompts, asked for once and kept in memory; the server is asyncssh's, since sshd needs PAM for it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import asyncssh
import pytest

from rgt_tui.model import BoxQuestion, BoxSpec, QuestionKind
from rgt_tui.ssh import AuthFailed, LoginAnswers, PausableDeadline, Unreachable, connect, hop
from rgt_tui.ssh.login import Login
from tests.contract.ssh.people import Reply, Somebody
from tests.contract.ssh.servers import make_keys, spec_of, ssh_keygen, trust


class House:
    """What the server wants, and what it saw."""

    def __init__(self) -> None:
        self.password = "first"
        self.prompts: list[tuple[str, bool]] | None = None
        self.replies: dict[str, str] = {}
        self.tries: list[str] = []
        self.keys = False
        """It takes any key instead of a password."""
        self.connection: asyncssh.SSHServerConnection | None = None

    def hang_up(self) -> None:
        assert self.connection is not None
        self.connection.abort()


class Door(asyncssh.SSHServer):
    def __init__(self, house: House) -> None:
        self._house = house

    def connection_made(self, conn: asyncssh.SSHServerConnection) -> None:
        self._house.connection = conn
        conn.send_auth_banner("Rented by\x1b[31m the hour\x1b[0m\n")

    def begin_auth(self, username: str) -> bool:
        return True

    def public_key_auth_supported(self) -> bool:
        return self._house.keys

    def validate_public_key(self, username: str, key: asyncssh.SSHKey) -> bool:
        return True

    def password_auth_supported(self) -> bool:
        return self._house.prompts is None and not self._house.keys

    def validate_password(self, username: str, password: str) -> bool:
        self._house.tries.append(password)
        return password == self._house.password

    def kbdint_auth_supported(self) -> bool:
        return self._house.prompts is not None

    def get_kbdint_challenge(
        self, username: str, lang: str, submethods: str
    ) -> tuple[str, str, str, Sequence[tuple[str, bool]]]:
        return ("", "Two things, please", "", self._house.prompts or [])

    def validate_kbdint_response(self, username: str, responses: Sequence[str]) -> bool:
        self._house.tries += responses
        wanted = [self._house.replies[prompt] for prompt, _ in self._house.prompts or []]
        return list(responses) == wanted


@contextlib.asynccontextmanager
async def serve(folder: Path, house: House) -> AsyncIterator[BoxSpec]:
    make_keys(folder)
    server = await asyncssh.listen(
        "127.0.0.1",
        0,
        server_factory=lambda: Door(house),
        server_host_keys=[str(folder / "host_key")],
        login_timeout=60,
        process_factory=lambda process: process.exit(0),
    )
    trust(folder, server.get_port())
    (folder / "config").write_text("IdentityFile none\nIdentityAgent none\n")
    try:
        yield spec_of(folder, server.get_port(), identity=None, ssh_config=str(folder / "config"))
    finally:
        server.close()
        await server.wait_closed()


async def enter(
    spec: BoxSpec, who: Somebody | None = None, answers: LoginAnswers | None = None
) -> None:
    connection = await connect(spec, person=None if who is None else who.person(answers))
    connection.abort()
    await connection.wait_closed()


async def test_a_password_is_asked_for_once_and_kept_for_reconnects(tmp_path: Path) -> None:
    house, answers, who = House(), LoginAnswers(), Somebody(secret="first")
    async with serve(tmp_path, house) as spec:
        await enter(spec, who, answers)
        await enter(spec, who, answers)
        (question,) = who.asked
        assert question.title == f"password of {spec.user}@127.0.0.1:{spec.port}"
        assert question.lines[0] == "Rented by the hour"
        assert house.tries == ["first", "first"]
        assert "first" not in repr(answers)


async def test_a_password_that_has_changed_is_dropped_and_asked_for_anew(tmp_path: Path) -> None:
    house, answers, who = House(), LoginAnswers(), Somebody(secret=lambda _: house.password)
    async with serve(tmp_path, house) as spec:
        await enter(spec, who, answers)
        house.password = "second"
        await enter(spec, who, answers)
        assert house.tries == ["first", "first", "second"]
        assert len(who.asked) == 2


async def test_a_wrong_password_is_tried_once_and_forgotten(tmp_path: Path) -> None:
    house, answers = House(), LoginAnswers()
    async with serve(tmp_path, house) as spec:
        with pytest.raises(AuthFailed, match="it accepts password") as caught:
            await enter(spec, Somebody(secret="wrong"), answers)
        assert "wrong" not in str(caught.value)
        assert house.tries == ["wrong"]
        await enter(spec, Somebody(secret="first"), answers)
        assert house.tries == ["wrong", "first"]


@pytest.mark.parametrize("who", [None, Somebody(secret=None)])
async def test_no_answer_says_what_to_do(tmp_path: Path, who: Somebody | None) -> None:
    async with serve(tmp_path, House()) as spec:
        with pytest.raises(AuthFailed, match="open the dashboard"):
            await enter(spec, who)


async def test_prompts_are_answered_and_a_code_is_asked_for_every_time(tmp_path: Path) -> None:
    house, answers = House(), LoginAnswers()
    house.prompts = [("Password: ", False), ("Verification code: ", False), ("Your name: ", True)]
    house.replies = {"Password: ": "first", "Verification code: ": "123", "Your name: ": "Ada"}

    def reply(question: BoxQuestion) -> str:
        return next(
            answer for prompt, answer in house.replies.items() if prompt[:-2] in question.title
        )

    who = Somebody(secret=reply, text=reply)
    async with serve(tmp_path, house) as spec:
        await enter(spec, who, answers)
        await enter(spec, who, answers)
    kinds = who.kinds()
    assert kinds.count(QuestionKind.SECRET) == 3
    assert kinds.count(QuestionKind.TEXT) == 2
    assert "Two things, please" in who.asked[0].lines


class Slow(Somebody):
    """Answers long after the server has lost patience and hung up."""

    def __init__(self, house: House, monkeypatch: pytest.MonkeyPatch, **replies: Reply) -> None:
        super().__init__(**replies)
        self.clocks: list[PausableDeadline] = []
        self.stood_still: list[bool] = []
        self._house = house
        self._left = asyncio.Event()
        monkeypatch.setattr(hop, "PausableDeadline", self._clock)
        lost = Login.connection_lost

        def connection_lost(login: Login, exc: Exception | None) -> None:
            lost(login, exc)
            self._left.set()

        monkeypatch.setattr(Login, "connection_lost", connection_lost)

    def _clock(self, seconds: float) -> PausableDeadline:
        self.clocks.append(PausableDeadline(seconds))
        return self.clocks[-1]

    async def ask(self, question: BoxQuestion) -> str | None:
        self.stood_still.append(not self.clocks[-1].will_expire)
        self._house.hang_up()
        await self._left.wait()
        return await super().ask(question)


def lock(folder: Path, house: House, spec: BoxSpec, kind: str) -> BoxSpec:
    """Have the box want a password, or a key whose file is encrypted with the password."""
    if kind == "password":
        return spec
    house.keys = True
    (folder / "config").write_text(f"IdentityFile {folder}/{kind}\nIdentityAgent none\n")
    how = ("-m", "PEM") if kind == "old" else ("-a", "1")
    ssh_keygen("-q", "-t", "ecdsa", *how, "-N", house.password, "-f", str(folder / kind))
    if kind == "old":
        (folder / "old.pub").unlink()
    return spec


@pytest.mark.parametrize("kind", ["password", "sealed", "old"])
async def test_a_slow_person_loses_neither_the_answer_nor_the_login(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    house = House()
    who = Slow(house, monkeypatch, secret="first")
    async with serve(tmp_path, house) as spec:
        await enter(lock(tmp_path, house, spec, kind), who)
    assert len(who.asked) == 1
    assert who.stood_still == [True]
    assert house.tries == (["first"] if kind == "password" else [])


@pytest.mark.parametrize("kind", ["password", "sealed"])
async def test_a_slow_person_who_declines_is_not_asked_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    house = House()
    who = Slow(house, monkeypatch, secret=None)
    async with serve(tmp_path, house) as spec:
        with pytest.raises(
            AuthFailed, match=r"got no answer|is encrypted and no passphrase was given"
        ):
            await enter(lock(tmp_path, house, spec, kind), who)
    assert len(who.asked) == 1


async def test_a_question_goes_with_whoever_connects(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    house = House()
    asked, taken_back = asyncio.Event(), asyncio.Event()

    class Thinking(Somebody):
        async def ask(self, question: BoxQuestion) -> str | None:
            asked.set()
            try:
                return await asyncio.Future()
            finally:
                taken_back.set()

    async with serve(tmp_path, house) as spec:
        entering = asyncio.create_task(enter(spec, Thinking()))
        await asked.wait()
        entering.cancel()
        await asyncio.gather(entering, return_exceptions=True)
        await asyncio.wait_for(taken_back.wait(), 60)


async def test_a_server_that_says_nothing_is_unreachable_in_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hop, "LOGIN_SECONDS", 0.3)
    make_keys(tmp_path)
    mute = await asyncio.start_server(lambda reader, writer: None, "127.0.0.1", 0)
    async with mute:
        port = mute.sockets[0].getsockname()[1]
        with pytest.raises(Unreachable, match=rf"{port}: the login took longer than 0\.3 s"):
            await enter(spec_of(tmp_path, port))


async def test_two_boxes_with_one_account_ask_once(tmp_path: Path) -> None:
    house, answers, who = House(), LoginAnswers(), Somebody(secret="first")
    async with serve(tmp_path, house) as spec:
        await asyncio.gather(*(enter(spec, who, answers) for _ in range(5)))
    assert len(who.asked) == 1


async def test_nothing_is_typed_into_a_prompt_for_a_new_password(tmp_path: Path) -> None:
    house, answers, who = House(), LoginAnswers(), Somebody(secret="first")
    house.prompts = [("Current password: ", False), ("New password: ", False)]
    async with serve(tmp_path, house) as spec:
        answers.keep_password(f"{spec.user}@127.0.0.1:{spec.port}", "first")
        with pytest.raises(AuthFailed, match=r"password has expired.*ssh -t"):
            await enter(spec, who, answers)
    assert (house.tries, who.asked) == ([], [])
