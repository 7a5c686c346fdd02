"""A checkpoint has the names of the bare model: it fits whatever that is wrapped in, and says what does not fit."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from rgt_train import UsageError
from rgt_train.checkpoint import STEP, AsyncSaver, CheckpointStore, RunState, SaveRequest, matching
from rgt_train.data.position import Progress


class Net(torch.nn.Module):
    """Has a layer that somebody called `module`."""

    def __init__(self, width: int = 3) -> None:
        super().__init__()
        self.module = torch.nn.Linear(2, width)
        self.head = torch.nn.Linear(width, 1)


BARE = {"module.weight", "module.bias", "head.weight", "head.bias"}


@pytest.fixture
def group(tmp_path: Path) -> Iterator[None]:
    store = dist.FileStore(str(tmp_path / "group"), 1)  # type: ignore[attr-defined]
    dist.init_process_group("gloo", store=store, rank=0, world_size=1)
    yield
    dist.destroy_process_group()


class OptimizedModule(torch.nn.Module):
    """What `torch.compile` returns, without the seconds it takes to import it."""

    def __init__(self, inner: torch.nn.Module) -> None:
        super().__init__()
        self._orig_mod = inner


def compiled_head(net: Net) -> Net:
    net.head = OptimizedModule(net.head)  # type: ignore[assignment]
    return net


Wrap = Callable[[Net], torch.nn.Module]
WRAPS: dict[str, Wrap] = {
    "bare": lambda net: net,
    "data parallel": torch.nn.DataParallel,
    "ddp": torch.nn.parallel.DistributedDataParallel,
    "compiled": OptimizedModule,
    "compiled ddp": lambda net: OptimizedModule(torch.nn.parallel.DistributedDataParallel(net)),
    "ddp of compiled": lambda net: torch.nn.parallel.DistributedDataParallel(OptimizedModule(net)),
    "one layer compiled": compiled_head,
}


def state_of(model: torch.nn.Module, **others: Any) -> RunState:
    return RunState({"model": model}, others, Progress(), {}, {})


def save(out: Path, state: RunState) -> str:
    out.mkdir(exist_ok=True)
    persister = AsyncSaver(CheckpointStore(out, 1), background=False)
    persister.begin_save(SaveRequest(STEP, 1), state)
    outcome = persister.wait()
    persister.close()
    assert outcome is not None and outcome.checkpoint is not None, outcome
    return outcome.checkpoint.path


def load(path: str, state: RunState) -> None:
    AsyncSaver(CheckpointStore(Path(path).parents[1], 2)).restore_checkpoint(path, state)


@pytest.mark.parametrize("wrap", WRAPS)
@pytest.mark.usefixtures("group")
def test_names_do_not_depend_on_wrappers(tmp_path: Path, wrap: str) -> None:
    torch.manual_seed(1)
    net = Net()
    wanted = {key: value.clone() for key, value in net.state_dict().items()}
    wrapped = WRAPS[wrap](net)
    assert set(matching.bare_names(wrapped).values()) == BARE
    ema = (
        torch.optim.swa_utils.AveragedModel(wrapped)
        if wrap != "ddp of compiled"
        else torch.nn.Linear(1, 1)
    )
    path = save(tmp_path / "run", state_of(wrapped, ema=ema))
    for other in WRAPS:
        fresh = Net()
        target = WRAPS[other](fresh)
        shadow = (
            torch.optim.swa_utils.AveragedModel(target)
            if isinstance(ema, torch.optim.swa_utils.AveragedModel)
            else ema
        )
        load(path, state_of(target, ema=shadow))
        for key, name in matching.bare_names(target).items():
            assert torch.equal(target.state_dict()[key], wanted[name]), (other, key)


def test_what_does_not_fit_is_listed_and_nothing_is_changed(tmp_path: Path) -> None:
    path = save(tmp_path / "run", state_of(Net()))
    other = Net(4)
    other.extra = torch.nn.Linear(1, 1)
    del other.head
    before = {key: value.clone() for key, value in other.state_dict().items()}
    with pytest.raises(UsageError) as told:
        load(path, state_of(other))
    text = str(told.value)
    assert "2 missing: extra.weight, extra.bias" in text
    assert "2 unexpected: head.weight, head.bias" in text
    assert "2 of another shape: module.weight (3, 2) → (4, 2), module.bias (3,) → (4,)" in text
    assert all(torch.equal(value, other.state_dict()[key]) for key, value in before.items())


def test_tied_weights_and_other_parts(tmp_path: Path) -> None:
    net = torch.nn.Module()
    net.a = torch.nn.Linear(2, 2, bias=False)
    net.b = torch.nn.Linear(2, 2, bias=False)
    net.b.weight = net.a.weight
    path = save(tmp_path / "run", state_of(net))
    value = net.a.weight.detach().clone()
    with torch.no_grad():
        net.a.weight.zero_()
    load(path, state_of(net))
    assert torch.equal(net.b.weight, value)
    assert net.b.weight is net.a.weight
    added = torch.nn.Linear(1, 1)
    before = added.weight.detach().clone()
    load(path, state_of(net, ema=added))  # a part added later begins afresh
    assert torch.equal(added.weight, before)


def test_two_layers_that_would_share_a_name_are_refused() -> None:
    net = torch.nn.Module()
    net.inner = OptimizedModule(torch.nn.Linear(1, 1))
    net.inner.weight = torch.nn.Parameter(torch.ones(1))
    with pytest.raises(ValueError, match=r"would both be saved as inner\.weight"):
        matching.bare_names(net)
