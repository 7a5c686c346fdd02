"""What a run in a person's own loop is at, as it tells it itself."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from rgt_train import Options, Run, UsageError
from rgt_train.ranks import heartbeat


def test_a_run_tells_its_phases_by_itself(tmp_path: Path) -> None:
    model = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    run = Run(
        tmp_path, model=model, optimizer=optimizer, samples=4, batch_size=2, epochs=1,
        options=Options(save_every=1, background=False, stall_factor=0),
    )  # fmt: skip
    seen: list[str] = []
    beat = run._beat

    class Page(list):  # type: ignore[type-arg]
        def __setitem__(self, index: Any, value: Any) -> None:
            if index == 2:
                seen.append(heartbeat.PHASES[value & 15])

    beat._page = Page()
    with run:
        for _ in run.epochs():
            for _ in run.loading(run.batches()):
                run.phase("forward")
                loss = model(torch.ones(2, 2)).sum()
                run.phase("backward")
                loss.backward()
                optimizer.step()
                run.step(loss.detach())
            with run.evaluating():
                run.phase("forward")
    wanted = ["data", "loop", "forward", "backward", "optimizer", "loop", "checkpoint", "loop"]
    assert [name for name, _ in itertools.groupby(seen)] == [
        "loop",
        *wanted,
        *wanted,
        "data",
        "loop",
        "evaluation",
        "loop",
        "end",
    ]
    for name in ("checkpoint", "Forward", ""):
        with pytest.raises(UsageError, match="one of loop, data, forward, backward"):
            run.phase(name)


def logged(folder: Path, options: Options, *, loading: bool) -> list[dict[str, Any]]:
    """Train two epochs, and return the points."""
    model = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    run = Run(
        folder, model=model, optimizer=optimizer, samples=8, batch_size=2, epochs=2, options=options
    )
    with run:
        for _ in run.epochs():
            batches = run.loading(run.batches()) if loading else run.batches()
            for _ in batches:
                loss = model(torch.ones(2, 2)).sum()
                loss.backward()
                optimizer.step()
                run.step(loss.detach(), data_time=7.0) if not loading else run.step(loss.detach())
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [row for row in rows if "loss" in row and "event" not in row]


def test_where_the_time_of_a_step_goes_is_logged(tmp_path: Path) -> None:
    options = Options(save_every=3, background=False, stall_factor=0, log_every=2)
    rows = logged(tmp_path / "a", options, loading=True)
    assert len(rows) == 4
    for row in rows:
        assert 0.0 <= row["data_time"] <= row["step_time"]
        assert row["compute_time"] == pytest.approx(row["step_time"] - row["data_time"], abs=2e-6)
        assert "comm_time" not in row
    # Without run.loading nobody knows when it waits; and what a loop logs itself is its own.
    rows = logged(tmp_path / "b", options, loading=False)
    assert all(
        row["step_time"] > 0.0 and row["data_time"] == 7.0 and "compute_time" not in row
        for row in rows
    )


def test_ddp_tells_what_its_exchange_costs() -> None:
    """The names are torch's own; without them computing and communication are one number."""
    store: Any = dist.HashStore()  # type: ignore[attr-defined]
    dist.init_process_group("gloo", store=store, rank=0, world_size=1)
    try:
        wrapped = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(8, 8))
        assert heartbeat.exposed_communication_s(wrapped) is None
        for _ in range(3):
            wrapped(torch.ones(4, 8)).sum().backward()
        told = heartbeat.exposed_communication_s(wrapped)
    finally:
        dist.destroy_process_group()
    assert told is not None
    assert 0.0 <= told < 10.0
