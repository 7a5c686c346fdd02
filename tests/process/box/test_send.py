"""The send verb: pieces of real files and their hashes, and what it says of files that change."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import subprocess
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from rgt_wire import block_packing

from tests.process.box.harness import Agent, until

OLD = 10**18


class Sending:
    """A running ``send``."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self.process, self._requests, self._answers = process, process.stdin, process.stdout

    def ask(self, **request: Any) -> None:
        self._requests.write(json.dumps({"id": 1, **request}).encode() + b"\n")
        self._requests.flush()

    def row(self) -> dict[str, Any]:
        return dict(json.loads(self._answers.readline()))

    def read(self, count: int) -> bytes:
        return self._answers.read(count)

    def whole(self, **request: Any) -> tuple[bytes, dict[str, Any]]:
        self.ask(**request)
        return self.read(self.row()["n"]), self.row()


@pytest.fixture
def sending(agent: Agent, tmp_path: Path) -> Iterator[Sending]:
    agent.env["RGT_ROOTS"] = str(tmp_path)
    process = subprocess.Popen(
        agent.command("send"), env=agent.env, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    with process:
        found = Sending(process)
        yield found
        process.kill()


def rested(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    os.utime(path, ns=(OLD, OLD))
    return path


def stamp(path: Path) -> list[int]:
    found = path.stat()
    return [found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino]


def test_a_file_a_range_and_their_hashes(sending: Sending, tmp_path: Path) -> None:
    data = os.urandom(3_000_001)
    path = rested(tmp_path / "a.pt", data)
    sent, end = sending.whole(path=str(path))
    assert sent == data
    assert end == {"id": 1, "stamp": stamp(path), "sha256": hashlib.sha256(data).hexdigest()}
    sent, end = sending.whole(path=str(path), start=5, end=2_000_000)
    assert (sent, end["sha256"]) == (data[5:2_000_000], None)
    for start, stop in ((0, 3_000_001), (7, 9), (0, 10**15)):
        sending.ask(path=str(path), start=start, end=stop, hash=True)
        assert sending.row()["sha256"] == hashlib.sha256(data[start:stop]).hexdigest()


def test_names_that_are_no_utf8(sending: Sending, tmp_path: Path) -> None:
    path = rested(tmp_path / os.fsdecode(b"caf\xe9"), b"x")
    assert sending.whole(path_b64=base64.b64encode(os.fsencode(path)).decode())[0] == b"x"


def test_what_is_no_file_is_refused_and_the_next_one_served(
    sending: Sending, tmp_path: Path
) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", tmp_path, tmp_path / "nowhere", Path("/dev/zero")):
        sending.ask(path=str(path))
        assert "error" in sending.row()
    sending.ask(start=3)
    assert "error" in sending.row()
    assert sending.whole(path=str(rested(tmp_path / "a", b"hello")))[0] == b"hello"


@pytest.mark.parametrize("swapped", ["the file", "its directory", "a directory above"])
def test_a_link_of_our_own_in_the_place_of_what_was_listed_is_not_followed(
    sending: Sending, tmp_path: Path, swapped: str
) -> None:
    """A training of the same user, or of root, may have laid it there since the file was listed."""
    results, secret = tmp_path / "a" / "results", tmp_path / "secret"
    for folder in (results, secret / "results"):
        folder.mkdir(parents=True)
    path = rested(results / "metrics.json", b"{}")
    for place in (secret / "metrics.json", secret / "results" / "metrics.json"):
        rested(place, b"a private key")
    assert sending.whole(path=str(path))[0] == b"{}"
    place, target = {
        "the file": (path, secret / "metrics.json"),
        "its directory": (results, secret),
        "a directory above": (results.parent, secret),
    }[swapped]
    place.rename(tmp_path / "away")
    place.symlink_to(target)
    until(lambda: refusal(sending, path) != "none", "the directory is not kept any more")
    assert "symbolic link" in refusal(sending, path)


def refusal(sending: Sending, path: Path) -> str:
    sending.ask(path=str(path), hash=True)
    row = sending.row()
    if "error" in row:
        return str(row["error"])
    return "none" if row["sha256"] == hashlib.sha256(b"{}").hexdigest() else "it was read"


def test_another_file_than_the_listed_one_is_refused(
    agent: Agent, sending: Sending, tmp_path: Path
) -> None:
    """Its stamp is named where it is on the same device: saved again by rename, it can be requested anew."""
    path = rested(tmp_path / "latest.pt", b"one")
    rows = [
        json.loads(line)
        for line in subprocess.run(
            agent.command("manifest", "--no-hash", str(tmp_path)),
            env=agent.env,
            capture_output=True,
            check=True,
        ).stdout.splitlines()
    ]
    (listed,) = [[row["device"], row["stamp"][3]] for row in rows if row.get("path") == "latest.pt"]
    assert sending.whole(path=str(path), listed=listed)[0] == b"one"
    rested(tmp_path / "new", b"two").rename(path)
    for request in ({}, {"hash": True}):
        sending.ask(path=str(path), listed=listed, **request)
        row = sending.row()
        assert "another file" in row["error"]
        assert row["stamp"] == stamp(path)
    assert sending.whole(path=str(path), listed=[listed[0], stamp(path)[3]])[0] == b"two"
    others: tuple[object, ...] = ([listed[0] + 1, stamp(path)[3]], "nonsense", [], {})
    for other in others:
        sending.ask(path=str(path), listed=other)
        assert set(sending.row()) == {"id", "error"}


def test_a_relative_path_is_refused(sending: Sending) -> None:
    sending.ask(path="etc/hostname")
    assert "absolute" in sending.row()["error"]


@pytest.mark.parametrize("change", ["written", "cut", "touched"])
def test_a_change_in_the_midst_shows_in_the_stamp(
    sending: Sending, tmp_path: Path, change: str
) -> None:
    """The pipe holds some of it; the rest is read after the change."""
    size = 20 << 20
    path = rested(tmp_path / "a.pt", bytes(size))
    before = stamp(path)
    sending.ask(path=str(path))
    assert sending.row() == {"id": 1, "n": size, "stamp": before}
    if change == "written":
        with path.open("r+b") as file:
            file.write(b"x")
    elif change == "cut":
        os.truncate(path, 100)
    else:
        os.utime(path, ns=(OLD + 1, OLD + 1))
    assert len(sending.read(size)) == size, "so much was announced, and so much comes"
    assert sending.row()["stamp"] == stamp(path) != before


def test_a_fresh_file_is_waited_for(sending: Sending, tmp_path: Path) -> None:
    """A write in the same tick of the clock would not show: the stamp it tells is older than any further write."""
    path = tmp_path / "a"
    path.write_bytes(b"one")
    _, end = sending.whole(path=str(path))
    path.write_bytes(b"two")
    assert stamp(path) != end["stamp"]


def test_it_ends_with_its_input_and_with_its_reader(agent: Agent, tmp_path: Path) -> None:
    done = subprocess.run(
        agent.command("send"), env=agent.env, input=b"", capture_output=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    path = rested(tmp_path / "a", bytes(5 << 20))
    process = subprocess.Popen(
        agent.command("send"),
        env=agent.env,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    with process:
        sending = Sending(process)
        sending.ask(path=str(path))
        sending.read(10)
        assert process.stdout is not None
        process.stdout.close()
        assert process.stderr is not None
        assert process.wait(60) == 0
        assert process.stderr.read() == b""


def test_pieces_that_follow_each_other_end_with_the_hash_of_all(
    sending: Sending, tmp_path: Path
) -> None:
    data = os.urandom(3_000_001)
    path = rested(tmp_path / "a.pt", data)
    for start, stop in ((0, 2_000_000), (2_000_000, 2_500_000), (2_500_000, 3_000_001)):
        sent, end = sending.whole(path=str(path), start=start, end=stop)
        assert (sent, end["sha256"]) == (data[start:stop], hashlib.sha256(data[:stop]).hexdigest())
    # Only what was sent from the beginning on, without a gap and of one file, is said to be hashed.
    sent, end = sending.whole(path=str(path), start=2_000_000, end=2_000_005)
    assert (sent, end["sha256"]) == (data[2_000_000:2_000_005], None)
    sending.whole(path=str(path), start=0, end=5)
    other = rested(tmp_path / "b.pt", data)
    assert sending.whole(path=str(other), start=5, end=9)[1]["sha256"] is None


def test_a_file_that_changes_between_two_pieces_has_no_hash(
    sending: Sending, tmp_path: Path
) -> None:
    path = rested(tmp_path / "a.pt", b"x" * 100)
    sending.whole(path=str(path), start=0, end=50)
    rested(path, b"y" * 100)
    assert sending.whole(path=str(path), start=50, end=100)[1]["sha256"] is None


def test_no_verb_runs_in_it(sending: Sending) -> None:
    sending.ask(verb="manifest", words=["/"])
    assert sending.row() == {"id": 1, "error": "send: no request"}


def test_many_small_files_are_whole_and_answered_before_more_is_waited_for(
    sending: Sending, tmp_path: Path
) -> None:
    sizes = [0, 1, 4095, 200_000, 262_144, 262_145, 300_000, 524_288, 3] * 4
    paths = [
        rested(tmp_path / f"{number}.txt", os.urandom(size)) for number, size in enumerate(sizes)
    ]
    lines = [json.dumps({"id": number, "path": str(path)}) for number, path in enumerate(paths)]
    lines.insert(5, json.dumps({"id": 99, "path": "/nonexistent"}))
    asked = "".join(line + "\n" for line in lines)
    assert sending.process.stdin is not None
    for at in range(0, len(asked), 700):  # lines are cut anywhere
        sending.process.stdin.write(asked[at : at + 700].encode())
        sending.process.stdin.flush()
    for number, path in enumerate(paths):
        if number == 5:
            assert sending.row()["id"] == 99
        head = sending.row()
        assert (head["id"], head["n"]) == (number, len(path.read_bytes()))
        assert sending.read(head["n"]) == path.read_bytes()
        assert sending.row()["sha256"] == hashlib.sha256(path.read_bytes()).hexdigest()
    assert sending.whole(path=str(paths[1]))[0] == paths[1].read_bytes(), (
        "it waits, and answers at once"
    )


def unpacked(data: bytes) -> tuple[bytes, set[str]]:
    """Return the output of ``send --pack`` without its frames, and which kinds there were."""
    out, kinds, at = [], set(), 0
    while at < len(data):
        kind, size = chr(data[at]), int.from_bytes(data[at + 1 : at + 5], "big")
        body = data[at + 5 : at + 5 + size]
        assert len(body) == size
        out.append(zlib.decompress(body) if kind == "z" else body)
        assert len(out[-1]) <= 1 << 20
        kinds.add(kind)
        at += 5 + size
    return b"".join(out), kinds


def test_packed_output_is_the_same_in_frames(agent: Agent, tmp_path: Path) -> None:
    agent.env["RGT_ROOTS"] = str(tmp_path)
    files = {
        "small.txt": b"small\n" * 200,
        "a.jsonl": b'{"step": 1, "loss": 2.5}\n' * 200_000,
        "b.bin": os.urandom(3_000_000),
    }
    requests = b"".join(
        json.dumps({"id": number, "path": str(rested(tmp_path / name, data))}).encode() + b"\n"
        for number, (name, data) in enumerate(files.items())
    )
    done = subprocess.run(
        agent.command("send", "--pack"), env=agent.env, input=requests, capture_output=True,
        check=True,
    )  # fmt: skip
    said, kinds = unpacked(done.stdout)
    assert kinds <= {"r", "z"}
    for data in files.values():
        end, _, said = said[said.index(b"\n") + 1 :].partition(data)
        assert end == b""
        row, _, said = said.partition(b"\n")
        assert json.loads(row)["sha256"] == hashlib.sha256(data).hexdigest()
    assert said == b""


def test_a_block_is_packed_where_it_arrives_sooner() -> None:
    text, noise = b'{"step": 1, "loss": 2.5}\n' * 40_000, os.urandom(1 << 20)
    slow, fast = block_packing.BlockPacker(), block_packing.BlockPacker()
    assert slow.pack_block(text) is None, "nothing is known of the line yet"
    slow.count_line(1 << 20, 1.0)
    fast.count_line(1 << 30, 0.001)
    assert slow.pack_block(text) is None, "the block after one that did not pay goes as it is"
    packed = slow.pack_block(text)
    assert packed is not None
    assert zlib.decompress(packed) == text
    assert [fast.pack_block(text) for _ in range(4)] == [None] * 4
    assert slow.pack_block(noise) is None
    tried = [slow.pack_block(text) is not None for _ in range(3)]
    assert tried == [False, True, True]


def test_data_that_do_not_shrink_are_tried_more_and_more_rarely(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tried = []

    def compress(block: bytes, level: int) -> bytes:
        tried.append(level)
        return block

    monkeypatch.setattr("rgt_wire.block_packing.zlib.compress", compress)
    packer = block_packing.BlockPacker()
    packer.count_line(1 << 20, 1.0)
    assert [packer.pack_block(b"noise") for _ in range(159)] == [None] * 159
    assert len(tried) == 9, "after 1, 2, 4, 8, 16 blocks, then after 32 each"
