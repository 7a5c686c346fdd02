"""What is asked of a box about a log, over a real OpenSSH server and the real agent; and what a box may not answer."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import asyncssh
import pytest

from rgt_tui.fleet.box_logs import BoxLog, BoxSearch, lines_of
from rgt_tui.fleet.kept_lines import FilePlace
from rgt_tui.ssh import BoxError, DeployedAgent, build_agent, connect, deploy_agent
from tests.contract.ssh.conftest import RealSshd, running_sshd, stop_recorder

Way = tuple[asyncssh.SSHClientConnection, DeployedAgent]
ROWS = [
    f"step {number} loss 1.0" + (" NaN!" if number % 1000 == 7 else "") for number in range(30_000)
]


@pytest.fixture(scope="module")
def box(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealSshd]:
    with running_sshd(tmp_path_factory.mktemp("logs")) as running:
        yield running
        stop_recorder(running)


@contextlib.asynccontextmanager
async def way(box: RealSshd) -> AsyncIterator[Way]:
    async with await connect(box.spec) as connection:
        yield connection, await deploy_agent(connection, build_agent(), (box.spec.python or "",))


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "a [1]*.log"
    path.write_text("".join(f"{row}\n" for row in ROWS))
    return path


async def test_pieces_of_a_log_are_its_whole_lines_wherever_they_are_cut(
    box: RealSshd, log: Path
) -> None:
    inode, size = log.stat().st_ino, log.stat().st_size
    async with way(box) as agent:
        held = BoxLog(lambda: agent, str(log))
        found: list[str] = []
        stop = size
        while stop > 0:
            piece = await held.read_piece(inode, max(0, stop - 200_000), stop)
            assert log.read_bytes()[piece.place.offset :].startswith(piece.lines[0].encode())
            assert (piece.end, piece.size) == (stop, size)
            found[:0] = piece.lines
            stop = piece.place.offset
        assert found == ROWS
        empty = await held.read_piece(inode, 1, 9)
        assert (empty.lines, empty.end) == ((), 9)
        place = await held.find_line(20_001)
        assert await held.count_before(place) == 20_000
        at_line = await held.read_piece(inode, place.offset, place.offset + 100)
        assert at_line.lines[0] == ROWS[20_000]
        log.rename(log.with_name(f"{log.name}.1"))
        log.write_text("another\n")
        rotated = await held.read_piece(inode, 0, 100)
        assert rotated.lines[0] == ROWS[0], "a rotated log is read under its new name"
        log.with_name(f"{log.name}.1").unlink()
        with pytest.raises(BoxError, match="no longer on the box"):
            await held.read_piece(inode, 0, 100)
        with pytest.raises(BoxError):
            await held.count_before(FilePlace(inode, 4))


async def test_a_search_sends_what_it_found_and_little_else(box: RealSshd, tmp_path: Path) -> None:
    path = tmp_path / "big.log"
    path.write_text("".join(f"{row} {'x' * 1000}\n" for row in ROWS))
    told: list[BoxSearch] = []
    async with way(box) as agent:
        held = BoxLog(lambda: agent, str(path))
        for wanted, fixed, fold, count in (
            ("nan!", True, True, 30),
            (r"NaN!\s", False, False, 30),
            ("zzz", True, False, 0),
        ):
            told.clear()
            end = await held.search_log(wanted, fixed=fixed, fold=fold, each=told.append)
            hits = [hit for one in told for hit in one.hits]
            assert (end.ended, end.matches, len(hits), end.incomplete) == (True, count, count, "")
            assert end.read == path.stat().st_size
            assert not hits or hits[0].text.startswith("step 29007 loss 1.0 NaN! xxx")
            assert all(
                path.read_bytes()[hit.place.offset :].startswith(hit.text[:24].encode())
                for hit in hits[:3]
            )
            assert all(hit.place.inode == path.stat().st_ino for hit in hits)
        told.clear()
        end = await held.search_log("step", fixed=True, fold=True, each=told.append)
        hits = [hit for one in told for hit in one.hits]
        assert (end.matches, len(hits)) == (30_000, 1000)
        assert sum(len(hit.text) for hit in hits) < 1_000_000
        with pytest.raises(BoxError, match="is not a regular expression"):
            await held.search_log("(", fixed=False, fold=True, each=told.append)
        gone = await BoxLog(lambda: agent, "/no/such").search_log(
            "x", fixed=True, fold=True, each=told.append
        )
        assert gone.incomplete == "does not exist"


HOSTILE: dict[str, list[Any]] = {
    "no answer": [],
    "nonsense": ["what?", '{"t":5}'],
    "another file": [{"t": "file", "path": "x", "inode": 9, "start": 0, "size": 9}],
    "too much": [
        {"t": "file", "path": "x", "inode": 7, "start": 0, "size": 9},
        *[{"t": "data", "n": 60_000}, "y" * 59_999] * 3,
    ],
    "negative": [
        {"t": "file", "path": "x", "inode": 7, "start": -5, "size": -1},
        {"t": "count", "lines": -1},
    ],
    "an end without hits": [
        {"path": "x", "offset": -1, "text": "a", "inode": 7},
        {"path": 1, "text": [], "offset": None},
    ],
}


@pytest.mark.parametrize("what", list(HOSTILE))
async def test_what_a_box_may_not_answer_is_an_error_in_words(
    box: RealSshd, tmp_path: Path, what: str
) -> None:
    agent = tmp_path / "agent"
    rows = [
        row if isinstance(row, str) else json.dumps(row, separators=(",", ":"))
        for row in HOSTILE[what]
    ]
    (tmp_path / "said").write_text("".join(f"{row}\n" for row in rows))
    agent.write_text(f"cat '{tmp_path}/said'\n")
    deployed = DeployedAgent(python="sh", path=str(agent))
    told: list[BoxSearch] = []
    async with await connect(box.spec) as connection:
        held = BoxLog(lambda: (connection, deployed), "/x")
        with pytest.raises(BoxError):
            await held.read_piece(7, 0, 100)
        with pytest.raises(BoxError):
            await held.count_before(FilePlace(7, 100))
        with pytest.raises(BoxError):
            await held.search_log("a", fixed=True, fold=True, each=told.append)
    assert not any(one.hits for one in told)


async def test_more_hits_than_were_asked_for_are_not_kept(box: RealSshd, tmp_path: Path) -> None:
    agent = tmp_path / "agent"
    hit = json.dumps({"path": "/x", "offset": 1, "inode": 7, "text": "\x1b[31m" + "y" * 50_000})
    (tmp_path / "said").write_text(
        f"{hit}\n" * 1200 + '{"end":true,"matches":1e99,"read":-4,"problems":[3]}\n'
    )
    agent.write_text(f"cat '{tmp_path}/said'\n")
    told: list[BoxSearch] = []
    async with await connect(box.spec) as connection:
        held = BoxLog(lambda: (connection, DeployedAgent(python="sh", path=str(agent))), "/x")
        end = await held.search_log("y", fixed=True, fold=True, each=told.append)
    hits = [one for told_ in told for one in told_.hits]
    assert len(hits) == 1000
    assert max(len(one.text) for one in hits) <= 320
    assert not any("\x1b" in one.text for one in hits)
    assert (end.matches, end.ended) == (0, True)
    assert os.path.exists(agent)


def test_lines_of_any_bytes_are_those_that_the_agent_shows() -> None:
    assert lines_of(b"a\r\n10%\r20%\rdone\n\n\xff\x1b[31mred\nrest") == (
        "a",
        "done",
        "",
        "\ufffdred",
    )
    assert lines_of(b"x" * 20_000 + b"\n")[0].endswith("x … [line cut]")
    assert lines_of(b"") == ()
