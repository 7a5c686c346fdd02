"""What keeps a save from succeeding is told for what it is: only a full disk is waited for."""

from __future__ import annotations

import errno
import re
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from rgt_train import Options, Run
from rgt_train.checkpoint import AsyncSaver, SaveResult, TransientFailure, saver, snapshot

from tests.process.train.harness import steps_kept


def failing(
    monkeypatch: pytest.MonkeyPatch, error: Callable[[], BaseException], first: int, last: int
) -> None:
    """Let the copies number `first` to `last` that are made beside the training fail."""
    real, calls = snapshot.copy_all, [0]

    def copied(pairs: Any) -> None:
        if threading.current_thread() is not threading.main_thread():
            calls[0] += 1
            if first <= calls[0] <= last:
                raise error()
        real(pairs)

    monkeypatch.setattr(snapshot, "copy_all", copied)


def train(out: Path, steps: int = 40) -> Run:
    """Train, with a save after every step."""
    torch.manual_seed(0)
    model = torch.nn.Linear(3, 3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    run = Run(
        out, model=model, optimizer=optimizer, samples=steps, epochs=1,
        options=Options(save_every=1, log_every=0, hold_limit_s=60),
    )  # fmt: skip
    with run:
        for _ in run.epochs():
            for _ in run.batches():
                loss = model(torch.ones(1, 3)).square().mean()
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                run.step(loss.item())
    return run


def test_a_mistake_ends_the_training_with_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(saver, "RETRY_S", 0.0)
    failing(monkeypatch, lambda: ValueError("no disk's fault"), 2, 10_000)
    with pytest.raises(ValueError, match="no disk's fault"):
        train(tmp_path, 10_000)
    told = capsys.readouterr().out
    assert "holding" not in told
    assert re.search(r"giving up at step \d+: saving fails again and again, and not because of the disk: "
                     r"ValueError: no disk's fault; last good checkpoint is step \d+", told)  # fmt: skip
    assert "Free space" not in told


@pytest.mark.parametrize(
    ("error", "last"), [(ValueError("once"), 3), (OSError(errno.ENOMEM, "no memory"), 8)]
)
def test_what_passes_ends_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception, last: int
) -> None:
    monkeypatch.setattr(saver, "RETRY_S", 0.0)
    monkeypatch.setattr(saver, "HOLD_POLL_S", 0.001)
    failing(monkeypatch, lambda: error, 2, last)
    assert train(tmp_path).finished
    assert steps_kept(tmp_path)[-1] == 40


def test_a_writer_that_dies_and_missing_memory_are_mishaps() -> None:
    for kind, mishap in (("WriterDied", True), ("MemoryError", True), ("ValueError", False)):
        assert (
            isinstance(
                SaveResult(error=(kind, None, "text", None)).to_exception(), TransientFailure
            )
            == mishap
        )


def test_a_best_that_could_not_be_copied_is_not_taken_for_published(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Run(tmp_path, model=torch.nn.Linear(2, 1), samples=4, epochs=1)
    with run:
        run.step(1.0)
        assert run.validated(3.0)
        with monkeypatch.context() as broken:
            broken.setattr(AsyncSaver, "_arena_for", _no_memory)
            run.validated(2.0)
        assert (run.progress.best, run.progress.best_step) == (3.0, 1)
        assert run.validated(2.5)


def _no_memory(*_: object) -> None:
    raise OSError(errno.ENOMEM, "Cannot allocate memory")
