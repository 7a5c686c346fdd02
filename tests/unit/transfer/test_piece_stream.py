"""The answers of the box, taken apart; whatever it sends, not a byte more is taken than was asked for."""

from __future__ import annotations

import random

import pytest

from rgt_tui.transfer import FileStamp
from rgt_tui.transfer.copying import StreamError
from rgt_tui.transfer.copying.piece_stream import (
    MOST_GREETING,
    AnswerHead,
    AnswerTail,
    FileUnreadable,
    HashingNotice,
    Piece,
    PieceDecoder,
)

S = b"[5,1,2,3]"
STAMP = FileStamp(5, 1, 2, 3)
HEAD = b'{"id":1,"n":5,"stamp":' + S + b"}\n"
TAIL = b'{"id":1,"stamp":' + S + b',"sha256":"ab"}\n'


def decoder(*expected: tuple[int, int | None]) -> PieceDecoder:
    found = PieceDecoder()
    found.expected.extend(expected)
    return found


def joined(pieces: list[Piece]) -> list[Piece]:
    """Put bytes that follow each other together."""
    found: list[Piece] = []
    for piece in pieces:
        if isinstance(piece, bytes) and found and isinstance(found[-1], bytes):
            found[-1] += piece
        else:
            found.append(piece)
    return found


@pytest.mark.parametrize("cut", [1, 2, 3, 7, 1000])
def test_answers_come_whole_however_they_are_cut(cut: int) -> None:
    data = (
        b"hello\nmotd"
        + HEAD
        + b"ab\n{d"
        + TAIL
        + b'{"id":2,"busy":9}\n{"id":2,"stamp":'
        + S
        + b',"sha256":"cd"}\n'
    )
    data += b'{"id":3,"error":"gone\\u001b[2J"}\n'
    stream = decoder((1, 5), (2, None), (3, 10))
    pieces = [
        piece for at in range(0, len(data), cut) for piece in stream.feed_data(data[at : at + cut])
    ]
    assert joined(pieces) == [
        AnswerHead(1, 5, STAMP), b"ab\n{d", AnswerTail(1, STAMP, "ab"), HashingNotice(2, 9),
        AnswerTail(2, STAMP, "cd"), FileUnreadable(3, "gone"),
    ]  # fmt: skip
    assert not stream.expected


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b'{"id":9,"n":1,"stamp":[5,1,2,3]}\n', "not made"),
        (b'{"id":1,"n":6,"stamp":[5,1,2,3]}\n', "announced"),
        (b'{"id":1,"n":-1,"stamp":[5,1,2,3]}\n', "announced"),
        (b'{"id":1,"n":5}\n', "without a stamp"),
        (TAIL, "without a beginning"),
        (HEAD + b"12345" + HEAD, "announced"),
        (HEAD + b"12345" + b"xyz\n", "not a record"),
        (HEAD + b"12345" + b"[" * 70_000, "without an end"),
        (HEAD + b"12345" + TAIL + TAIL, "not made"),
        (b'{"id":1,"n":99999999999999999999999,"stamp":[5,1,2,3]}\n{"id":1}\n', "."),
    ],
)
def test_an_answer_to_another_question_ends_the_stream(data: bytes, why: str) -> None:
    with pytest.raises(StreamError, match=why):
        list(decoder((1, 5)).feed_data(data))


def test_a_hash_brings_no_bytes() -> None:
    with pytest.raises(StreamError, match="announced"):
        list(decoder((1, None)).feed_data(HEAD))


def test_a_login_shell_that_never_stops_is_not_listened_to() -> None:
    stream = decoder((1, 5))
    with pytest.raises(StreamError, match="login shell"):
        for _ in range(MOST_GREETING // 1000 + 1):
            list(stream.feed_data(b"x" * 999 + b"\n"))


def test_nonsense_never_gives_more_than_was_asked_for() -> None:
    draw = random.Random(7)
    words = [
        HEAD,
        TAIL,
        b"12345",
        b"\n",
        b'{"id":1,',
        b"}",
        b"\xff",
        b'"n":5',
        b'{"id":1,"error":"x"}\n',
    ]
    for _ in range(3000):
        stream, got = decoder((1, 5)), 0
        try:
            for _ in range(8):
                got += sum(
                    len(piece)
                    for piece in stream.feed_data(draw.choice(words))
                    if isinstance(piece, bytes)
                )
        except StreamError:
            pass
        assert got <= 5
