"""What torch's flight recorder has written of a real launch names the rank that differs, or is behind.

The recorder, its dumps and the processes are real; gloo's recorder writes what NCCL's does. The last test takes the
whole way, from the agent's own process to what the client says, by the real clock.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
import torch
from rgt_box.sampling import flight_dumps

from rgt_tui.health import diagnose_box
from rgt_tui.model import Finding, Frame, Sample
from tests.process.train.parallel import record_worker
from tests.process.train.parallel.launching import ROOT, torchrun
from tests.process.train.parallel.watched import Watched
from tests.unit.triage.builders import box

pytestmark = pytest.mark.skipif(
    not hasattr(torch._C._distributed_c10d, "_dump_fr_trace"),
    reason="a torch whose gloo has no flight recorder",
)


@pytest.fixture(scope="module")
def launched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """One launch for all tests: each lets it go on as it was, but for the last, whose ranks stand for ever."""
    folder = tmp_path_factory.mktemp("recorded")
    env = {"TORCH_FR_BUFFER_SIZE": "500", "TORCH_FR_DUMP_TEMP_FILE": f"{folder}/fr_"}
    with torchrun(3, record_worker.__file__, str(folder), env=env) as process:
        seen = Watched(folder)
        try:
            seen.until(
                lambda: min(map(seen.step, range(3))) > 2 or process.poll() is not None,
                "the first steps",
            )
            assert process.poll() is None, process.communicate()[0].decode()
            yield folder
        finally:
            seen.kill()


@pytest.fixture
def seen(launched: Path) -> Watched:
    """The launch, which goes on, without a dump, and as nobody has looked at it yet."""
    for path in [*launched.glob("[0-9]"), launched / "dump", *launched.glob("fr_[0-9]")]:
        path.unlink(missing_ok=True)
    found = Watched(launched)
    before = found.step(0)
    found.until(lambda: found.step(0) > before + 2, "it goes on")
    return found


def dumped(seen: Watched, count: int, waiting: int = 0) -> None:
    """Have so many ranks write what they know, so many of them while they wait in a collective."""

    def written() -> bool:
        (seen.folder / "dump").touch()
        dumps = list(seen.folder.glob("fr_[0-9]"))
        if len(dumps) < count:
            return False
        if sum(map(waits, dumps)) >= waiting:
            return True
        for path in dumps:  # written between two collectives: the rank was still on its way
            path.unlink()
        return False

    seen.until(written, "the dumps")


def waits(dump: Path) -> bool:
    entries = flight_dumps.load_dump(dump.read_bytes())["entries"]
    return any(entry["state"] != "completed" and not entry["retired"] for entry in entries)


def findings(seen: Watched, count: int) -> list[Finding]:
    """Judge as soon as the agent has read so many dumps: its child takes its time."""

    def read() -> int:
        readings = [proc.dist for proc in seen.look(10.0).values() if proc.dist is not None]
        return sum(reading.flight is not None for reading in readings)

    seen.until(lambda: read() == count, "the dumps are read")
    return seen.findings()


def test_a_rank_that_works_by_itself_is_named_by_what_the_others_have_written(
    seen: Watched,
) -> None:
    """By the kernel alone it may evaluate, for minutes."""
    pid = seen.look(10.0)[2].pid
    seen.tell(2, "spin")
    seen.until(
        lambda: {rank for rank, proc in seen.look(10.0).items() if stands(seen, rank)} == {0, 1},
        "they wait",
    )
    dumped(seen, 3, waiting=2)
    (found,) = findings(seen, 3)
    seen.tell(2, "")
    assert (found.gotcha, found.resource) == ("HANG2", f"rank 2 of 3 (pid {pid})")
    assert "flight recorder: rank 2 did not come to collective" in found.evidence
    assert "ranks 0, 1 wait" in found.evidence


def stands(seen: Watched, rank: int) -> bool:
    dist = {proc.dist.rank: proc.dist for proc in seen.procs if proc.dist is not None}[rank]
    return (dist.still_s or 0.0) > 0.0


def test_the_whole_way_from_the_box_to_the_named_rank_takes_less_than_a_minute(
    seen: Watched, tmp_path: Path
) -> None:
    """A rank is really stopped; the age that the sample itself tells is what is held against the minute."""
    pid = seen.look(10.0)[1].pid
    box_agent = [sys.executable, "-m", "rgt_box"]
    env = os.environ | {"PYTHONPATH": f"{ROOT / 'remote'}", "HOME": str(tmp_path)}
    agent = subprocess.Popen(
        [*box_agent, "watch"], env=env,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    assert agent.stdin is not None and agent.stdout is not None
    try:
        config = {
            "proto": 1,
            "interval": 2.0,
            "pattern": re.escape(str(seen.folder)),
            "plain": True,
        }
        agent.stdin.write(msgspec.json.encode(config) + b"\n")
        agent.stdin.flush()
        os.kill(pid, signal.SIGSTOP)
        dumped(seen, 2, waiting=2)  # a rank that is stopped writes none
        decode = msgspec.json.Decoder(Frame).decode
        found: list[Finding] = []
        for line in agent.stdout:
            frame = decode(line)
            if isinstance(frame, Sample):
                state = box(sample=frame, sample_at=frame.at, queues=(), logs=(), runs=(), found=())
                found = [one for one in diagnose_box(state, frame.at, ()) if one.gotcha == "HANG1"]
                waited = max(
                    (proc.dist.still_s or 0.0 for proc in frame.procs if proc.dist), default=0.0
                )
                # By the kernel's word it may be named before the dumps have been read.
                if (found and "flight recorder" in found[0].evidence) or waited > 60.0:
                    break
        assert [one.resource for one in found] == [f"rank 1 of 3 (pid {pid})"]
        assert "rank 1 (pid" in found[0].evidence
        assert "no dump of rank 1 was given" in found[0].evidence
        assert waited <= 60.0
    finally:
        agent.kill()
        agent.communicate()
        subprocess.run(
            [*box_agent, "record", "--stop"], env=env, check=True, stdout=subprocess.DEVNULL
        )
        os.kill(pid, signal.SIGCONT)
    dumped(seen, 3)


def test_a_rank_in_another_collective_is_named_and_the_dump_of_a_run_that_goes_on_names_nobody(
    seen: Watched,
) -> None:
    dumped(seen, 3)
    assert seen.findings_of_steps() == []
    for path in [seen.folder / "dump", *seen.folder.glob("fr_[0-9]")]:
        path.unlink()
    pids = {rank: proc.pid for rank, proc in seen.look(10.0).items()}
    seen.tell(1, "barrier")
    seen.until(seen.stands, "all stand")
    assert seen.findings() == []  # so soon nobody knows: all wait, and each for the others
    dumped(seen, 3, waiting=3)
    (found,) = findings(seen, 3)
    assert (found.gotcha, found.resource) == ("HANG2", f"rank 1 of 3 (pid {pids[1]})")
    assert found.confidence == 0.95
    said = re.search(
        r"flight recorder: the ranks do not agree on collective \d+ of group 0 \(default_pg\): rank 1 barrier at "
        r"\S+record_worker.py:\d+, ranks 0, 2 all_reduce of \[8\] Float at \S+record_worker.py:\d+$",
        found.evidence,
    )
    assert said is not None, found.evidence
