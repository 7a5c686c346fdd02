"""`rgt record` against a real sshd, `rgt replay` of what it wrote, and of the recording beside the tests."""

from __future__ import annotations

import gzip
import json
import shlex
import signal
import subprocess
import time
from pathlib import Path

import msgspec
import pytest

from rgt_tui.model import BoxSpec
from tests.contract.cli.conftest import PATIENCE, Rgt
from tests.free_ports import free_port

replace = msgspec.structs.replace
THREE = Path(__file__).parents[2] / "fixtures" / "recordings" / "three-boxes.jsonl.gz"


def until_it_says(process: subprocess.Popen[bytes], *all_of: bytes) -> bytes:
    assert process.stderr is not None
    seen = b""
    for line in process.stderr:
        seen += line
        if all(words in seen for words in all_of):
            return seen
    raise AssertionError(seen.decode())


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_recording_ends_by_a_signal_and_can_be_replayed(
    rgt: Rgt, lab: BoxSpec, number: int
) -> None:
    rgt.describe([replace(lab, interval=0.2), replace(lab, name="dead", port=free_port())])
    process = rgt.start("record", "--out", "r.jsonl.gz", "--json")
    until_it_says(
        process, b"lab              info  connected", b"dead             warn  unreachable"
    )
    process.send_signal(number)
    out, _ = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0
    summary = json.loads(out)
    assert summary["boxes"]["lab"] > 0
    assert summary["boxes"]["dead"] == 0
    assert summary["bytes"] == (rgt.folder / "r.jsonl.gz").stat().st_size
    gzip.decompress((rgt.folder / "r.jsonl.gz").read_bytes())  # it was ended properly
    done = rgt("replay", "r.jsonl.gz", "--json")
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert [(line["box"], line["link"]) for line in lines] == [
        ("lab", "live"),
        ("dead", "unreachable"),
    ]
    assert "refused the connection" in lines[1]["reason"]


def test_a_recording_that_was_killed_plays_up_to_there(rgt: Rgt, lab: BoxSpec) -> None:
    rgt.describe([replace(lab, interval=0.1)])
    process = rgt.start("record", "--out", "r.jsonl.gz")
    until_it_says(process, b"connected")
    path = rgt.folder / "r.jsonl.gz"
    size = path.stat().st_size
    while path.stat().st_size < size + 500:
        assert process.poll() is None
    process.kill()
    process.communicate()
    done = rgt("replay", "r.jsonl.gz", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["sample"]["seq"] > 0


def test_it_ends_after_its_time_and_says_when_nothing_came(rgt: Rgt, lab: BoxSpec) -> None:
    rgt.describe([replace(lab, port=free_port())])
    done = rgt.on("record", "--out", "r.jsonl", "--for", "0.5")
    assert done.returncode == 3
    assert "r.jsonl: 0 lines from 1 box in" in done.stderr


def test_a_recording_never_replaces_a_file(rgt: Rgt, lab: BoxSpec) -> None:
    rgt.describe([lab])
    (rgt.folder / "r").write_text("mine")
    done = rgt.on("record", "--out", "r", "--for", "1")
    assert (done.returncode, (rgt.folder / "r").read_text()) == (1, "mine")
    assert "already exists" in done.stderr


def test_a_box_that_is_not_there_is_named_with_the_nearest(rgt: Rgt, lab: BoxSpec) -> None:
    rgt.describe([lab])
    done = rgt.on("record", "lap", "--out", "r")
    assert done.returncode == 2
    assert "did you mean 'lab'" in done.stderr
    assert not (rgt.folder / "r").exists()


# The recording that lies beside the tests: a minute of the demo, with a preemption and a disk without inodes.


def test_the_words_of_the_recording_come_again(rgt: Rgt) -> None:
    done = rgt("replay", str(THREE), "--headless")
    assert done.returncode == 0
    for words in (
        "runpod-demo      warn  unreachable: ssh: the connection was lost",
        "runpod-demo      info  back after 14s",
        "runpod-demo      info  spot-lm resumed from step 134 (SIGTERM)",
        "autodl-demo      info  gpt-a done, copy on the durable disk verified",
        "vast-demo        error U7 No inodes left",
    ):
        assert words in done.stderr
    states = {line.split()[0]: line.split()[1] for line in done.stdout.splitlines()}
    assert states == {"autodl-demo": "running", "runpod-demo": "running", "vast-demo": "warn"}


def test_the_same_recording_always_ends_the_same(rgt: Rgt) -> None:
    first, second = (rgt("replay", str(THREE), "--json") for _ in range(2))
    assert first.stdout == second.stdout
    lines = {line["box"]: line for line in map(json.loads, first.stdout.splitlines())}
    assert lines["vast-demo"]["meter"]["per_hour"] == pytest.approx(0.4255, abs=1e-4)
    assert {run["name"]: run["resumes"] for run in lines["runpod-demo"]["runs"]} == {"spot-lm": 1}


def test_a_replay_begins_at_a_time_of_day(rgt: Rgt) -> None:
    """From its beginning it would take five minutes at this speed."""
    with gzip.open(THREE) as file:
        late = json.loads(file.readline())["started"] + 61.9
    at = time.strftime("%H:%M:%S", time.localtime(late))
    done = rgt("replay", str(THREE), "--json", "--speed", "0.2", "--at", at)
    assert (done.returncode, done.stdout) == (0, rgt("replay", str(THREE), "--json").stdout)


def test_damaged_lines_are_named_and_the_rest_is_played(rgt: Rgt) -> None:
    lines = gzip.decompress(THREE.read_bytes()).splitlines(keepends=True)
    lines[41] = lines[41][:50] + b"\x00\xff" + lines[41][52:]
    (rgt.folder / "hurt.jsonl").write_bytes(b"".join(lines))
    done = rgt("replay", "hurt.jsonl", "--headless")
    assert done.returncode == 1
    assert "hurt.jsonl: line 42 was left out: " in done.stderr
    assert len(done.stdout.splitlines()) == 3


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("replay", "missing.jsonl", "--json"), "missing.jsonl cannot be read: No such file"),
        (("replay", "other", "--json"), "other is not an rgt recording"),
        (("replay", "other"), "other is not an rgt recording"),
        (("replay", str(THREE), "--json", "--loop"), "--loop never ends"),
        (("replay", str(THREE), "--speed", "fast"), "'fast' is not a speed"),
        (("replay", str(THREE), "--speed", "0"), "'0' is not a speed"),
        (("replay", str(THREE), "--json", "--at", "noon"), "'noon' is not a time"),
        (("replay", str(THREE), "--json", "--at", "2020-01-01 10:00"), "is not after "),
        (("replay", str(THREE), "--at", "02:30", "--from", "1m"), "not allowed with"),
        (
            ("replay", str(THREE)),
            f"needs a terminal; without one use `rgt replay {shlex.quote(str(THREE))} --headless`",
        ),
    ],
)
def test_what_cannot_be_played_is_said(rgt: Rgt, words: tuple[str, ...], said: str) -> None:
    (rgt.folder / "other").write_text("hello\n")
    done = rgt(*words)
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr


def test_a_replay_can_be_left_at_any_time(rgt: Rgt) -> None:
    process = subprocess.Popen(
        rgt.command("replay", str(THREE), "--json", "--speed", "1"),
        env=rgt.environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    until_it_says(process, b"connected")
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0
    assert len(out.splitlines()) == 3
