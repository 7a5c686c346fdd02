"""One stream of a pull: many requests go out at once, and no memory is used again before what it held has landed."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from rgt_tui.transfer import FileStamp, Ledger
from rgt_tui.transfer.copying import (
    BoxListing,
    PullFetcher,
    RemoteFile,
    RequestStream,
    fetching,
    local_copy,
    plan_pull,
)
from rgt_tui.transfer.copying.request_stream import AHEAD_TASKS

COUNT = AHEAD_TASKS + 100


def content(number: int) -> bytes:
    return hashlib.sha256(b"%d" % number).digest() * (number % 40)


def answer(line: bytes) -> bytes:
    request = json.loads(line)
    data = content(int(request["path"].rpartition("/")[2]))
    stamp = [len(data), 1, 2, 3]
    head = json.dumps({"id": request["id"], "n": len(data), "stamp": stamp})
    tail = {"id": request["id"], "stamp": stamp, "sha256": hashlib.sha256(data).hexdigest()}
    return head.encode() + b"\n" + data + json.dumps(tail).encode() + b"\n"


class Case:
    """A pull of many small files."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "out"
        self.folder.mkdir()
        self.ledger = Ledger(folder / "ledger.jsonl")
        files = tuple(
            RemoteFile(f"/w/{n}", FileStamp(len(content(n)), 1, 2, 3), 1) for n in range(COUNT)
        )
        todo = plan_pull(BoxListing(roots=("/w",), files=files), self.ledger, self.folder)
        self.fetcher = PullFetcher(todo, self.ledger, self.folder, "", lambda: None)
        self.stream = RequestStream(self.fetcher, 0, lambda: None)

    def close(self) -> None:
        self.stream.give_back_tasks()
        self.fetcher.close()
        self.ledger.close()

    def landed(self) -> dict[str, bytes]:
        return {path.name: path.read_bytes() for path in (self.folder / "w").iterdir()}


ALL = {str(number): content(number) for number in range(COUNT)}


@pytest.fixture(params=["brought to the disk together", "each by itself"])
def case(request: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Case]:
    if request.param == "each by itself":
        monkeypatch.setattr(fetching, "group_sync", lambda folder: None)
    found = Case(tmp_path)
    yield found
    found.close()


def test_requests_go_out_many_at_once(case: Case) -> None:
    waiting = case.stream.next_requests().splitlines()
    assert len(waiting) == AHEAD_TASKS
    for number, line in enumerate(waiting):
        case.stream.feed_data(answer(line))
        if number < AHEAD_TASKS // 2:
            assert case.stream.next_requests() == b"", (
                "more is asked for while enough is on its way"
            )
            continue
        more = case.stream.next_requests().splitlines()
        assert len(more) == (COUNT - AHEAD_TASKS if number == AHEAD_TASKS // 2 else 0)
        waiting += more
    assert case.stream.is_idle
    case.close()
    assert case.landed() == ALL


@pytest.mark.parametrize("size", [100, 1000, 70_000])
def test_memory_that_is_read_into_again_is_no_longer_needed(case: Case, size: int) -> None:
    free: list[bytearray] = []
    given = threading.Condition()

    def give(buffer: bytearray) -> None:
        buffer[:] = b"?" * size  # as the next read would
        with given:
            free.append(buffer)
            given.notify()

    for _ in range(2):
        give(bytearray(size))
    while lines := case.stream.next_requests():
        data = b"".join(map(answer, lines.splitlines()))
        for at in range(0, len(data), size):
            with given:
                assert given.wait_for(lambda: free, 60), "memory does not come back"
                buffer = free.pop()
            piece = data[at : at + size]
            buffer[: len(piece)] = piece
            case.stream.feed_data(buffer, len(piece))
            case.fetcher.after_hashing(partial(give, buffer))
    case.close()
    assert (case.fetcher.failure, case.fetcher.problems) == (None, [])
    assert case.landed() == ALL


def test_memory_is_held_while_a_small_file_is_written_from_it(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, freed = local_copy.write_part, threading.Event()
    early: list[bool] = []

    def write_part(path: str, chunks: Any, *rest: Any) -> bool:
        if any(isinstance(chunk, memoryview) for chunk in chunks):
            early.append(freed.wait(0.2))
        return real(path, chunks, *rest)

    monkeypatch.setattr(fetching, "write_part", write_part)
    lines = case.stream.next_requests().splitlines()
    case.stream.feed_data(answer(lines[0]) + answer(lines[1]))
    data = answer(lines[2])
    case.stream.feed_data(bytearray(data))
    case.fetcher.after_hashing(freed.set)
    assert freed.wait(60)
    assert early == [False] * case.fetcher.together, (
        "with each by itself, several threads write, and so from copies"
    )
