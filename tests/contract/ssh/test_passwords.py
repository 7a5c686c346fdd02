"""Passwords and prompts, asked for once and kept in memory; the server is asyncssh's, since sshd needs PAM for it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import asyncssh
import pytest

from rgt_tui.model.box import BoxSpec
from rgt_tui.model.question import Question, QuestionKind
from rgt_tui.ssh import hop
from rgt_tui.ssh.connect import connect
from rgt_tui.ssh.errors import AuthFailed, Unreachable
from rgt_tui.ssh.login.answers import Answers
from tests.contract.ssh.people import Somebody
from tests.contract.ssh.servers import make_keys, spec_of, trust


class House:
    """What the server wants, and what it saw."""

    def __init__(self) -> None:
        self.password = "first"
        self.prompts: list[tuple[str, bool]] | None = None
        self.replies: dict[str, str] = {}
        self.tries: list[str] = []
        self.left = asyncio.Event()


class Door(asyncssh.SSHServer):
    def __init__(self, house: House) -> None:
        self._house = house

    def connection_made(self, conn: asyncssh.SSHServerConnection) -> None:
        conn.send_auth_banner("Rented by\x1b[31m the hour\x1b[0m\n")

    def connection_lost(self, exc: Exception | None) -> None:
        self._house.left.set()

    def begin_auth(self, username: str) -> bool:
        return True

    def password_auth_supported(self) -> bool:
        return self._house.prompts is None

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
async def serve(folder: Path, house: House, login_timeout: float = 60.0) -> AsyncIterator[BoxSpec]:
    make_keys(folder)
    server = await asyncssh.listen(
        "127.0.0.1",
        0,
        server_factory=lambda: Door(house),
        server_host_keys=[str(folder / "host_key")],
        login_timeout=login_timeout,
        process_factory=lambda process: process.exit(0),
    )
    trust(folder, server.get_port())
    (folder / "config").write_text("IdentityFile none\nIdentityAgent none\n")
    try:
        yield spec_of(folder, server.get_port(), identity=None, ssh_config=str(folder / "config"))
    finally:
        server.close()
        await server.wait_closed()


async def enter(spec: BoxSpec, who: Somebody | None = None, answers: Answers | None = None) -> None:
    connection = await connect(spec, person=None if who is None else who.person(answers))
    connection.abort()
    await connection.wait_closed()


async def test_a_password_is_asked_for_once_and_kept_for_reconnects(tmp_path: Path) -> None:
    house, answers, who = House(), Answers(), Somebody(secret="first")
    async with serve(tmp_path, house) as spec:
        await enter(spec, who, answers)
        await enter(spec, who, answers)
        (question,) = who.asked
        assert question.title == f"password of {spec.user}@127.0.0.1:{spec.port}"
        assert question.lines[0] == "Rented by the hour"
        assert house.tries == ["first", "first"]
        assert "first" not in repr(answers)


async def test_a_password_that_has_changed_is_dropped_and_asked_for_anew(tmp_path: Path) -> None:
    house, answers, who = House(), Answers(), Somebody(secret=lambda _: house.password)
    async with serve(tmp_path, house) as spec:
        await enter(spec, who, answers)
        house.password = "second"
        await enter(spec, who, answers)
        assert house.tries == ["first", "first", "second"]
        assert len(who.asked) == 2


async def test_a_wrong_password_is_tried_once_and_forgotten(tmp_path: Path) -> None:
    house, answers = House(), Answers()
    async with serve(tmp_path, house) as spec:
        with pytest.raises(AuthFailed, match="takes password") as caught:
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
    house, answers = House(), Answers()
    house.prompts = [("Password: ", False), ("Verification code: ", False), ("Your name: ", True)]
    house.replies = {"Password: ": "first", "Verification code: ": "123", "Your name: ": "Ada"}

    def reply(question: Question) -> str:
        return next(answer for prompt, answer in house.replies.items() if prompt[:-2] in question.title)

    who = Somebody(secret=reply, text=reply)
    async with serve(tmp_path, house) as spec:
        await enter(spec, who, answers)
        await enter(spec, who, answers)
    kinds = who.kinds()
    assert kinds.count(QuestionKind.SECRET) == 3
    assert kinds.count(QuestionKind.TEXT) == 2
    assert "Two things, please" in who.asked[0].lines


async def test_a_slow_person_loses_neither_the_answer_nor_the_login(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    house = House()
    monkeypatch.setattr(hop, "LOGIN_SECONDS", 5.0)

    class Slow(Somebody):
        async def ask(self, question: Question) -> str | None:
            await house.left.wait()  # the server's own patience has ended
            return await super().ask(question)

    who = Slow(secret="first")
    async with serve(tmp_path, house, login_timeout=0.5) as spec:
        await enter(spec, who)
    assert len(who.asked) == 1
    assert house.tries == ["first"]


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
    house, answers, who = House(), Answers(), Somebody(secret="first")
    async with serve(tmp_path, house) as spec:
        await asyncio.gather(*(enter(spec, who, answers) for _ in range(5)))
    assert len(who.asked) == 1
