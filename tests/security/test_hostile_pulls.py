"""A box that lies while its files are pulled: it writes nowhere else, fills no memory, and never has the last word."""

from __future__ import annotations

import hashlib
import json
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rgt_tui.transfer import FileStamp, Ledger
from rgt_tui.transfer.copying import (
    RANGE_BYTES,
    BoxListing,
    PullFetcher,
    RemoteFile,
    RequestStream,
    StreamError,
    parts_folder,
    plan_pull,
)
from rgt_tui.transfer.copying.local_copy import GroupSync
from rgt_tui.transfer.copying.pull_plan import WHOLE_BYTES

Answer = Callable[[dict[str, Any]], bytes]
"""What a box answers to a request."""
BIG = WHOLE_BYTES + 5


def stamp(size: int, mtime: int = 1) -> list[int]:
    return [size, mtime, 2, 3]


class Pull:
    """A pull from a box that answers as it likes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "out"
        parts_folder(self.folder).mkdir(parents=True)
        self.ledger = Ledger(folder / "ledger.jsonl")
        self.news = threading.Event()

    def begin(self, **sizes: int) -> tuple[PullFetcher, RequestStream]:
        files = tuple(
            RemoteFile(f"/w/{name}", FileStamp(size, 1, 2, 3), 1) for name, size in sizes.items()
        )
        todo = plan_pull(BoxListing(roots=("/w",), files=files), self.ledger, self.folder)
        self.fetcher = PullFetcher(todo, self.ledger, self.folder, "", self.news.set)
        self.stream = RequestStream(self.fetcher, 0, self.news.set)
        return self.fetcher, self.stream

    def run(self, answer: Answer, **sizes: int) -> PullFetcher:
        """Ask and answer until nothing is left."""
        fetcher, stream = self.begin(**sizes)
        while not fetcher.is_finished:
            self.news.clear()
            requests = stream.next_requests()
            for line in requests.splitlines():
                stream.feed_data(answer(json.loads(line)))
            if not requests and not fetcher.is_finished:
                assert self.news.wait(60), "nothing is asked, and nothing is over"
        self.end()
        return fetcher

    def end(self) -> None:
        self.stream.give_back_tasks()
        self.fetcher.close()

    def written(self) -> dict[str, bytes]:
        return {
            str(path.relative_to(self.folder)): path.read_bytes()
            for path in self.folder.rglob("*")
            if path.is_file() and ".rgt-parts" not in path.parts
        }


@pytest.fixture
def pull(tmp_path: Path) -> Iterator[Pull]:
    found = Pull(tmp_path)
    yield found
    found.ledger.close()


def honest(request: dict[str, Any], data: bytes, mtime: int = 1) -> bytes:
    part = data[request["start"] : request["end"]]
    told = {"id": request["id"], "stamp": stamp(len(data), mtime)}
    digest = hashlib.sha256(part).hexdigest()
    if request.get("hash"):
        return json.dumps({**told, "sha256": digest}).encode() + b"\n"
    whole = digest if len(part) == len(data) else None
    head, tail = {**told, "n": len(part)}, {**told, "sha256": whole}
    return json.dumps(head).encode() + b"\n" + part + json.dumps(tail).encode() + b"\n"


@pytest.mark.parametrize("size", [0, 1, 1000, BIG, 2 * RANGE_BYTES + 1])
def test_an_honest_box_is_believed(pull: Pull, size: int) -> None:
    data = bytes(range(256)) * (size // 256 + 1)
    fetcher = pull.run(lambda request: honest(request, data[:size]), a=size)
    assert pull.written() == {"w/a": data[:size]}
    assert fetcher.problems == []
    row = pull.ledger.find_file("/w/a")
    assert row is not None
    assert row.sha256 == hashlib.sha256(data[:size]).hexdigest()


@pytest.mark.parametrize("size", [100, BIG])
def test_bytes_that_are_not_what_was_hashed_never_get_their_name(pull: Pull, size: int) -> None:
    def lies(request: dict[str, Any]) -> bytes:
        told = honest(request, b"a" * size)
        return told if request.get("hash") else told.replace(b"aaaa", b"aaba", 1)

    fetcher = pull.run(lies, a=size)
    assert pull.written() == {}
    assert [row.reason for row in fetcher.problems] == [
        "what came is not what the box says that it holds"
    ]
    assert pull.ledger.find_file("/w/a") is None


@pytest.mark.parametrize("told", [b"null", b'"x"', b'"../../../etc/passwd"', b"7"])
def test_a_hash_that_is_none_proves_nothing(pull: Pull, told: bytes) -> None:
    def lies(request: dict[str, Any]) -> bytes:
        head = b'{"id":%d,"n":5,"stamp":[5,1,2,3]}\nhello' % request["id"]
        return head + b'{"id":%d,"stamp":[5,1,2,3],"sha256":%s}\n' % (request["id"], told)

    try:
        pull.run(lies, a=5)
    except StreamError:
        pull.end()
    assert pull.written() == {}


def test_a_size_that_lies_ends_the_stream(pull: Pull) -> None:
    _, stream = pull.begin(a=5)
    (line,) = stream.next_requests().splitlines()
    with pytest.raises(StreamError, match="6 bytes announced of a file of 5"):
        stream.feed_data(b'{"id":%d,"n":6,"stamp":[5,1,2,3]}\n' % json.loads(line)["id"])
    pull.end()


def test_more_than_was_asked_for_is_not_taken(pull: Pull) -> None:
    """An endless answer: however much is announced, no more than the range is held."""
    _, stream = pull.begin(a=BIG)
    first = json.loads(stream.next_requests().splitlines()[0])
    with pytest.raises(StreamError, match="announced"):
        stream.feed_data(b'{"id":%d,"n":%d,"stamp":[%d,1,2,3]}\n' % (first["id"], 10**15, 10**15))
    assert stream.held == 0
    pull.end()


def test_an_answer_to_another_file_ends_the_stream(pull: Pull) -> None:
    _, stream = pull.begin(a=5, b=5)
    one, two = map(json.loads, stream.next_requests().splitlines())
    with pytest.raises(StreamError, match="not made"):
        stream.feed_data(honest(two, b"other"))
    assert one["path"] == "/w/a"
    pull.end()


def test_a_file_that_is_another_one_each_time_is_given_up(pull: Pull) -> None:
    seen = iter(range(2, 1000))
    fetcher = pull.run(lambda request: honest(request, b"x" * BIG, next(seen)), a=BIG)
    assert len(fetcher.problems) == 1
    assert next(seen) < 20


def test_a_box_that_reads_nothing_is_named_file_by_file(pull: Pull) -> None:
    def refuses(request: dict[str, Any]) -> bytes:
        return b'{"id":%d,"error":"No such\\u001b[2J file"}\n' % request["id"]

    fetcher = pull.run(refuses, a=5, b=BIG)
    assert {row.path for row in fetcher.problems} == {"/w/a", "/w/b"}
    assert {row.reason for row in fetcher.problems} == {"the box cannot read it: No such file"}
    assert pull.written() == {}


def test_a_name_that_is_a_directory_here_costs_that_file_alone(pull: Pull) -> None:
    (pull.folder / "w").mkdir()
    (pull.folder / "w" / "a").write_bytes(b"in the way of a directory")
    files = (
        RemoteFile("/w/a/b", FileStamp(5, 1, 2, 3), 1),
        RemoteFile("/w/c", FileStamp(5, 1, 2, 3), 1),
    )
    todo = plan_pull(BoxListing(roots=("/w",), files=files), pull.ledger, pull.folder)
    pull.fetcher = PullFetcher(todo, pull.ledger, pull.folder, "", pull.news.set)
    pull.stream = RequestStream(pull.fetcher, 0, pull.news.set)
    for line in pull.stream.next_requests().splitlines():
        pull.stream.feed_data(honest(json.loads(line), b"hello"))
    pull.end()
    assert [row.path for row in pull.fetcher.problems] == ["/w/a/b"]
    assert pull.written() == {"w/a": b"in the way of a directory", "w/c": b"hello"}


def test_a_link_in_the_place_of_a_copy_is_not_written_through(pull: Pull, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.write_bytes(b"mine")
    (pull.folder / "w").mkdir()
    (pull.folder / "w" / "a").symlink_to(outside)
    fetcher = pull.run(lambda request: honest(request, b"hello"), a=5)
    assert outside.read_bytes() == b"mine"
    assert (pull.folder / "w" / "a").is_symlink()
    assert "not a regular file" in fetcher.notes[0].reason
    assert sorted(pull.written().values()) == [b"hello", b"mine"]


def test_a_lost_stream_gives_back_what_was_not_answered(pull: Pull) -> None:
    fetcher, stream = pull.begin(a=5, b=BIG)
    lines = stream.next_requests().splitlines()
    stream.feed_data(honest(json.loads(lines[0]), b"hello"))
    stream.feed_data(honest(json.loads(lines[1]), b"x" * BIG)[:5000])
    stream.give_back_tasks()
    other = pull.stream = RequestStream(fetcher, 0, pull.news.set)
    again = other.next_requests().splitlines()
    assert len(again) == len(lines) - 1
    for line in again:
        other.feed_data(honest(json.loads(line), b"x" * BIG))
    while not fetcher.is_finished:
        assert pull.news.wait(60)
        pull.news.clear()
    pull.end()
    assert pull.written() == {"w/a": b"hello", "w/b": b"x" * BIG}
    assert fetcher.read_progress().bytes_done == BIG + 5


@pytest.mark.parametrize("size", [1000, BIG])
def test_a_copy_is_on_the_disk_before_it_takes_its_name(
    pull: Pull, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    done: list[str] = []
    sync, group, rename = os.fsync, GroupSync.sync, os.rename

    def syncs(fd: int) -> None:
        done.append("fsync")
        sync(fd)

    def syncs_all(self: GroupSync) -> None:
        done.append("syncfs")
        group(self)

    def renames(source: str, target: str) -> None:
        done.append("rename")
        rename(source, target)

    monkeypatch.setattr(os, "fsync", syncs)
    monkeypatch.setattr(GroupSync, "sync", syncs_all)
    monkeypatch.setattr(os, "rename", renames)
    pull.run(lambda request: honest(request, b"x" * size), a=size)
    assert done[0] in ("fsync", "syncfs")
    assert done[1] == "rename"
    assert "fsync" in done[2:], "the ledger comes last, and is on the disk as well"
