"""When a save is tried again: a copy that turned out to be of no single moment is made anew at once."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from rgt_train import StopRequest
from rgt_train.cadence import FailureRate, SaveCadence
from rgt_train.checkpoint import (
    BEST,
    STEP,
    Checkpoint,
    CheckpointSaver,
    CheckpointStore,
    LossLimits,
    RunState,
    SaveOutcome,
    SaveRequest,
    TornSnapshot,
)
from rgt_train.data.position import Progress
from rgt_train.ranks import launch
from rgt_train.tracking.report import RunReport


class Scripted:
    """Ends each save as the script says: with an error, or published."""

    def __init__(self, *ends: BaseException | None) -> None:
        self.ends = list(ends)
        self.begun: list[SaveRequest] = []
        self.again_asked = 0
        self.busy = False

    def needs(self) -> tuple[int, int]:
        return 1, 1

    def prepare(self, state: RunState) -> None:
        """Nothing to prepare."""

    def begin_save(self, request: SaveRequest, state: RunState) -> None:
        self.begun.append(request)
        self.busy = True

    def write_again(self, *, give_up: bool) -> None:
        self.again_asked += 1
        self.busy = True

    def before_change(self) -> None:
        """Nothing is copied."""

    def poll_outcome(self) -> SaveOutcome | None:
        if not self.busy:
            return None
        self.busy = False
        request, error = self.begun[-1], self.ends.pop(0)
        made = None if error else Checkpoint(f"/out/{request.step}", request.step, 1, {})
        return SaveOutcome(request, made, error)

    wait = poll_outcome

    def restore_checkpoint(self, directory: str, state: RunState) -> Any:
        raise NotImplementedError

    def close(self) -> None:
        """Nothing to close."""


@pytest.fixture
def stop() -> Iterator[StopRequest]:
    request = StopRequest()
    yield request
    request.close()


def saver_of(tmp_path: Path, stop: StopRequest, persister: Scripted) -> CheckpointSaver:
    state = RunState({}, {}, Progress(), {}, {})
    store, report, cadence = (
        CheckpointStore(tmp_path, 1),
        RunReport(tmp_path),
        SaveCadence(10, FailureRate(3600.0)),
    )
    return CheckpointSaver(
        persister, state, store, dict, report, cadence, stop, LossLimits(), None, 0
    )


def steps(saver: CheckpointSaver, first: int, last: int) -> None:
    for step in range(first, last + 1):
        saver.perform_agreed(step, saver.wishes(step))


def test_a_torn_copy_is_made_again_at_the_next_step(tmp_path: Path, stop: StopRequest) -> None:
    persister = Scripted(TornSnapshot(["w"]), None, None)
    saver = saver_of(tmp_path, stop, persister)
    steps(saver, 1, 12)
    assert [request.step for request in persister.begun] == [10, 11], (
        "not only when the next one is due"
    )
    assert saver.last_good == 11
    assert not saver.failing, "the disk is well"
    assert not saver.wishes(13) & launch.SAVE


def test_one_that_is_waited_for_is_made_again_until_it_is_good(
    tmp_path: Path, stop: StopRequest
) -> None:
    persister = Scripted(TornSnapshot(["w"]), TornSnapshot(["w"]), None)
    saver = saver_of(tmp_path, stop, persister)
    assert saver.save(7)
    assert [request.step for request in persister.begun] == [7, 7, 7]
    assert saver.last_good == 7
    assert persister.ends == []


def test_a_torn_best_is_written_from_a_copy_of_its_own_step(
    tmp_path: Path, stop: StopRequest
) -> None:
    persister = Scripted(TornSnapshot(["w"]), None)
    saver = saver_of(tmp_path, stop, persister)
    assert saver.offer_best(5, 1.0, "val_loss")
    assert [request.kind for request in persister.begun] == [BEST]
    assert persister.begun[0].about["best"] == {"step": 5, "metric": "val_loss", "value": 1.0}
    steps(saver, 6, 6)
    assert persister.again_asked == 1
    assert STEP not in {request.kind for request in persister.begun}, (
        "no later step is saved before it"
    )


def test_a_refusal_of_the_disk_is_no_torn_copy(tmp_path: Path, stop: StopRequest) -> None:
    persister = Scripted(OSError(28, "No space left on device"), None)
    saver = saver_of(tmp_path, stop, persister)
    assert not saver.save(7)
    assert saver.failing
    assert len(persister.begun) == 1


def test_older_checkpoints_go_for_the_result_and_the_newest_stays(
    tmp_path: Path,
    stop: StopRequest,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    saver = saver_of(tmp_path, stop, Scripted())
    root = tmp_path / "checkpoints"
    for step in (5, 10, 15):
        (root / f"step-{step:08}-a1").mkdir(parents=True)

    def full(least: int) -> None:
        def replace(path: str, body: object) -> OSError | None:
            return OSError(errno.ENOSPC, "full") if len(list(root.iterdir())) > least else None

        monkeypatch.setattr(saver._telling, "replace_json", replace)

    full(2)
    assert saver.write_json(15, str(tmp_path / "result.json"), {})
    assert "no room for result.json: gave up step-00000005-a1" in capsys.readouterr().out
    full(0)
    assert not saver.write_json(15, str(tmp_path / "result.json"), {})
    assert [path.name for path in root.iterdir()] == ["step-00000015-a1"]
    monkeypatch.setattr(
        saver._telling, "replace_json", lambda path, body: OSError(errno.EROFS, "read-only")
    )
    (root / "step-00000005-a1").mkdir()
    assert not saver.write_json(15, str(tmp_path / "result.json"), {})
    assert len(list(root.iterdir())) == 2, "no room would mend that"
