"""Real file systems that run out of inodes, of bytes, or turn read-only while a real trainer saves."""

from __future__ import annotations

import errno
import itertools
import re
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from rgt_train import exits

from tests.process.train.harness import (
    Mounts,
    Trainer,
    Zygote,
    assert_same,
    events,
    final_state,
    losses,
    steps_kept,
)

NUMBERS = itertools.count()
VALUES = {"epochs": 1, "steps_per_epoch": 120, "save_every": 5, "pace_ms": 20}
BRAKE = 30
"""The step from which on a training whose disk a test fills waits for it."""
LAST = 120


@pytest.fixture(scope="module")
def mounts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mounts]:
    made = Mounts(
        tmp_path_factory.mktemp("mounts"),
        {
            "inodes": "size=64m,nr_inodes=128",
            "bytes": "size=4m",
            "hold": "size=64m,nr_inodes=128",
            "two": "size=64m,nr_inodes=22",
            "end": "size=64m,nr_inodes=24",
            "readonly": "size=16m",
        },
    )
    if made.zygote is None:
        pytest.skip("no mount namespace can be made here")
    yield made
    made.zygote.close()


@pytest.fixture(scope="module")
def reference(trainers: Zygote, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("reference") / "run"
    assert trainers.launch(out, {**VALUES, "pace_ms": 0}).wait() == 0
    return out


def fill_inodes(place: Path) -> list[Path]:
    filler: list[Path] = []
    for _ in range(100_000):
        path = place / f"fill{next(NUMBERS)}"
        try:
            path.touch()
        except OSError as error:
            assert error.errno == errno.ENOSPC
            return filler
        filler.append(path)
    raise AssertionError("never full")


def fill_bytes(place: Path) -> list[Path]:
    path = place / f"fill{next(NUMBERS)}"
    with path.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(4096))
        except OSError as error:
            assert error.errno == errno.ENOSPC
    return [path]


def fill(
    trainer: Trainer, place: Path, take: Callable[[Path], list[Path]] = fill_inodes, after: int = 2
) -> list[Path]:
    """Take all room after some checkpoints, and again after each later one: a save on its way frees what it replaces.

    Returns what was made, once a save was refused.
    """
    filler: list[Path] = []
    while "failed" not in trainer.wait_line(r"^checkpoint (\d|save failed)", count=after):
        filler += take(place)
        trainer.go_on()
        after += 1
    return filler


def failure(trainer: Trainer) -> tuple[str, str]:
    """Return the two lines of the first failed save."""
    second = trainer.wait_line("checkpoint save failed")
    return trainer.lines[trainer.lines.index(second) - 1], second


def assert_recovered(trainer: Trainer, out: Path, reference: Path) -> None:
    trainer.wait_line(r"^checkpoint saved again at step \d+$")
    assert trainer.wait() == 0, trainer.text()
    assert events(out, "checkpoint-recovered")
    assert losses(out) == losses(reference)
    assert_same(final_state(out, LAST)[0], final_state(reference, LAST)[0])
    assert not list((out / "checkpoints").glob(".*"))


def test_no_inodes(mounts: Mounts, reference: Path) -> None:
    assert mounts.zygote is not None
    out, place = mounts.outside("inodes") / "run", mounts.outside("inodes")
    values = {**VALUES, "max_unsaved": 1000}
    trainer = mounts.zygote.launch(mounts.inside("inodes") + "/run", values, brake=BRAKE)
    filler = fill(trainer, place)
    raw, told = failure(trainer)
    inside = mounts.inside("inodes")
    assert re.fullmatch(
        rf"OSError: \[Errno 28\] No space left on device: '{inside}/run/checkpoints/\.tmp-\d+-1(/\S+)?'",
        raw,
    )
    assert re.fullmatch(
        rf"checkpoint save failed at step \d+: no inodes left on {inside} "
        r"\(\d+ of 128 used; bytes \d+%\); last good checkpoint is step \d+",
        told,
    )
    good = int(told.rsplit(" ", 1)[1])
    trainer.wait_line(rf"^step {good + 12} ")  # it goes on training
    assert steps_kept(out)[-1] == good
    for path in filler:
        path.unlink()
    assert_recovered(trainer, out, reference)
    event = events(out, "checkpoint-failed")[0]
    assert (event["resource"], event["mount"], event["error"]) == ("inodes", inside, raw)


def test_no_bytes(mounts: Mounts, reference: Path) -> None:
    assert mounts.zygote is not None
    out, place = mounts.outside("bytes") / "run", mounts.outside("bytes")
    values = {**VALUES, "max_unsaved": 1000}
    trainer = mounts.zygote.launch(mounts.inside("bytes") + "/run", values, brake=BRAKE)
    filler = fill(trainer, place, fill_bytes)
    raw, told = failure(trainer)
    assert raw.startswith("OSError: [Errno 28] No space left on device: '")
    assert f"no bytes left on {mounts.inside('bytes')} (needs " in told
    good = int(told.rsplit(" ", 1)[1])
    trainer.wait_line(rf"^step {good + 12} ")
    for path in filler:
        path.unlink()
    assert_recovered(
        trainer, out, reference
    )  # losses that did not fit into metrics.jsonl are there now
    assert events(out, "checkpoint-failed")[0]["resource"] == "bytes"


def test_room_for_two_with_keep_2(mounts: Mounts, reference: Path) -> None:
    """Two kept and one being written are three: told once, and from then on every save succeeds."""
    assert mounts.zygote is not None
    out = mounts.outside("two") / "run"
    trainer = mounts.zygote.launch(mounts.inside("two") + "/run", {**VALUES, "max_unsaved": 1000})
    assert trainer.wait() == 0, trainer.text()
    told = [line for line in trainer.lines if "no room" in line]
    assert [line.split("; ")[0] for line in told] == [
        "there is no room for keep=2: from here on one checkpoint is kept"
    ], trainer.text()
    assert "checkpoint save failed" not in trainer.text()
    assert steps_kept(out) == [LAST]
    assert losses(out) == losses(reference)
    assert_same(final_state(out, LAST)[0], final_state(reference, LAST)[0])


def test_no_room_for_the_result_beside_two_checkpoints_and_the_best(
    mounts: Mounts, reference: Path
) -> None:
    """What is older than the last checkpoint goes for it: nobody waits for room that the run itself takes."""
    assert mounts.zygote is not None
    out = mounts.outside("end") / "run"
    trainer = mounts.zygote.launch(mounts.inside("end") + "/run", {**VALUES, "max_unsaved": 1000})
    assert trainer.wait() == 0, trainer.text()
    assert "holding" not in trainer.text()
    assert (out / "result.json").exists()
    assert LAST in steps_kept(out)
    assert_same(final_state(out, LAST)[0], final_state(reference, LAST)[0])


def test_read_only(mounts: Mounts, reference: Path) -> None:
    assert mounts.zygote is not None
    out = mounts.outside("readonly") / "run"
    values = {**VALUES, "max_unsaved": 1000}
    trainer = mounts.zygote.launch(mounts.inside("readonly") + "/run", values, brake=BRAKE)
    trainer.wait_line(r"^checkpoint \d", count=2)
    # A mount with open writers cannot be remounted, so its directory gets a read-only cover.
    mounts.cover(out / "checkpoints", read_only=True)
    trainer.go_on()
    raw, told = failure(trainer)
    assert raw.startswith("OSError: [Errno 30] Read-only file system: '")
    assert "is read-only; last good checkpoint is step " in told
    mounts.cover(out / "checkpoints", read_only=False)
    assert_recovered(trainer, out, reference)
    assert events(out, "checkpoint-failed")[0]["resource"] == "read-only"


def test_holding(mounts: Mounts, reference: Path) -> None:
    assert mounts.zygote is not None
    out, place = mounts.outside("hold") / "run", mounts.outside("hold")
    inside = mounts.inside("hold") + "/run"
    values = {**VALUES, "max_unsaved": 8, "hold_limit": 2, "keep": 1}
    first = mounts.zygote.launch(inside, values, brake=BRAKE)
    filler = fill(first, place, after=1)
    line = first.wait_line(
        r"^holding at step \d+: \d+ steps are not saved \(limit 8\); waiting up to 2 s until "
    )
    held = int(line.split(":")[0].rsplit(" ", 1)[1])
    assert first.wait() == exits.NO_SPACE
    assert max(losses(out)) == held, "no step was made that could not be kept"
    good = steps_kept(out)[-1]
    assert f"last good checkpoint is step {good}, {held - good} steps are lost" in first.text()
    # Launched again on the full disk it resumes, works up to the limit, holds, and obeys a signal.
    second = mounts.zygote.launch(inside, {**values, "hold_limit": 600})
    second.wait_line("^holding at step ")
    second.signal(signal.SIGTERM)
    assert second.wait() == exits.PREEMPTED
    third = mounts.zygote.launch(inside, {**values, "hold_limit": 600})
    third.wait_line("^holding at step ")
    for path in filler:
        path.unlink()
    assert_recovered(third, out, reference)
    assert [event["reason"] for event in events(out, "resume")] == ["hold-limit", "SIGTERM"]


def test_older_checkpoints_are_given_up_before_it_holds(mounts: Mounts, reference: Path) -> None:
    assert mounts.zygote is not None
    place = mounts.outside("hold")
    out, inside = place / "tight", mounts.inside("hold") + "/tight"
    values = {**VALUES, "max_unsaved": 12, "keep": 3, "hold_limit": 60}
    trainer = mounts.zygote.launch(inside, values, brake=BRAKE)
    filler = fill(trainer, place, after=3)
    trainer.wait_line(r"^no room for step \d+: gave up step-\d+-a1$")
    trainer.wait_line(r"^checkpoint saved again at step \d+$")
    assert "holding" not in trainer.text()
    for path in filler:
        path.unlink()
    assert trainer.wait() == 0, trainer.text()
    assert losses(out) == losses(reference)
    assert_same(final_state(out, LAST)[0], final_state(reference, LAST)[0])


def test_the_result_waits_for_the_disk_too(mounts: Mounts, reference: Path) -> None:
    assert mounts.zygote is not None
    place = mounts.outside("hold")
    out, inside = place / "end", mounts.inside("hold") + "/end"
    trainer = mounts.zygote.launch(inside, {**VALUES, "max_unsaved": 1000, "keep": 1}, brake=BRAKE)
    filler = fill(trainer, place)
    trainer.wait_line(r"^holding at step 120: ")
    assert not (out / "result.json").exists()
    for path in filler:
        path.unlink()
    assert_recovered(trainer, out, reference)
    assert (out / "result.json").exists()
    assert (out / "best.json").read_text() == (reference / "best.json").read_text()
