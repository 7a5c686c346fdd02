"""A sharded run that froze and unfroze layers on its way resumes with the same ones trained, and their moments."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from rgt_train.checkpoint import STEP, CheckpointStore, RunState, SaveRequest
from rgt_train.data.position import Progress
from rgt_train.ranks import choose
from rgt_train.ranks.launch import SingleRank
from rgt_train.ranks.replicated import DesyncChecks
from rgt_train.ranks.sharded_saver import ShardedPersister
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from tests.process.train.harness import assert_same


class One(SingleRank):
    """A world of one, over torch.distributed."""

    group = None

    def background(self) -> One:
        """The same."""
        return self


@pytest.fixture
def group(tmp_path: Path) -> Iterator[None]:
    store = dist.FileStore(str(tmp_path / "group"), 1)  # type: ignore[attr-defined]
    dist.init_process_group("gloo", store=store, rank=0, world_size=1)
    yield
    dist.destroy_process_group()


@pytest.mark.usefixtures("group")
def test_the_command_names_both_dtypes_of_each_block() -> None:
    """What is left implicit is summed over the ranks in other bits than the person thinks."""
    few = (torch.bfloat16, torch.float32)
    for dtype, expected in ((torch.bfloat16, few), (None, (None, None))):
        model = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.ReLU(), torch.nn.Linear(3, 3))
        wrapped: Any = choose.wrap_model(model, "fsdp", SingleRank(), dtype)
        units = [part for part in (wrapped, *wrapped) if hasattr(part, "_get_fsdp_state")]
        assert len(units) == 3, "the root, and each block that has weights"
        policies = [unit._get_fsdp_state()._mp_policy for unit in units]
        assert {(policy.param_dtype, policy.reduce_dtype) for policy in policies} == {expected}
        wrapped(torch.ones(2, 3)).sum().backward()
        assert {p.grad.dtype for p in wrapped.parameters()} == {torch.float32}


def make() -> tuple[Any, RunState]:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Linear(3, 3))
    model[1].requires_grad_(False)
    fully_shard(model, mesh=init_device_mesh("cpu", (1,)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    state = RunState({"model": model}, {"optimizer": optimizer}, Progress(), {}, {})
    state.optimizers = {"optimizer"}
    return model, state


def step(model: Any, state: RunState) -> None:
    optimizer: Any = state.others["optimizer"]
    optimizer.zero_grad()
    model(torch.ones(2, 3)).square().sum().backward()
    optimizer.step()


@pytest.mark.usefixtures("group")
def test_frozen_layers(tmp_path: Path) -> None:
    ranks = One()
    persister = ShardedPersister(
        CheckpointStore(tmp_path, 1), ranks, DesyncChecks(ranks, 0, print), background=False
    )
    model, state = make()
    step(model, state)
    model[0].requires_grad_(False)
    model[1].requires_grad_(True)
    step(model, state)
    persister.begin_save(SaveRequest(STEP, 2), state)
    outcome = persister.wait()
    assert outcome is not None and outcome.checkpoint is not None, outcome
    fresh, other = make()
    restored = persister.restore_checkpoint(outcome.checkpoint.path, other)
    assert [p.requires_grad for p in fresh.parameters()] == [False, False, True, True]
    assert "requires_grad (2 parameters trained again: 1.weight, 1.bias)" in restored.parts
    for each in ((model, state), (fresh, other)):
        step(*each)
    for left, right in zip(model.parameters(), fresh.parameters(), strict=True):
        assert_same(left.full_tensor(), right.full_tensor())
