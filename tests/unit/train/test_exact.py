"""What comes back is what was: layout and dtype of the optimizer's state, which parameters are trained, schedulers."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from rgt_train import UsageError
from rgt_train.checkpoint import (
    STEP,
    AsyncSaver,
    CheckpointStore,
    RunState,
    SaveRequest,
    manifest,
    matching,
)
from rgt_train.checkpoint.state import RestoredState
from rgt_train.data.position import Progress

from tests.process.train.harness import assert_same

lr_scheduler = torch.optim.lr_scheduler


def state_of(model: Any, **others: Any) -> RunState:
    state = RunState(
        {"model": model} if isinstance(model, torch.nn.Module) else model,
        others,
        Progress(),
        {},
        {},
    )
    state.optimizers = {name for name in others if name.startswith("optimizer")}
    return state


def save(out: Path, state: RunState) -> str:
    persister = AsyncSaver(CheckpointStore(out, 1), background=False)
    persister.begin_save(SaveRequest(STEP, 1), state)
    outcome = persister.wait()
    persister.close()
    assert outcome is not None and outcome.checkpoint is not None, outcome
    return outcome.checkpoint.path


def load(path: str, state: RunState) -> RestoredState:
    return AsyncSaver(CheckpointStore(Path(path).parents[1], 2)).restore_checkpoint(path, state)


def convolution() -> torch.nn.Module:
    torch.manual_seed(0)
    nn = torch.nn
    model: Any = nn.Sequential(nn.Conv2d(3, 16, 3), nn.ReLU(), nn.Conv2d(16, 8, 3))
    result: torch.nn.Module = model.to(memory_format=torch.channels_last)
    return result


def step(model: torch.nn.Module, optimizer: torch.optim.Optimizer, seed: int) -> None:
    torch.manual_seed(seed)
    optimizer.zero_grad()
    x = torch.randn(2, 3, 8, 8).to(memory_format=torch.channels_last)
    model(x).square().mean().backward()
    optimizer.step()


@pytest.mark.parametrize(
    "options", [{"fused": True}, {"foreach": True}, {"foreach": False}], ids=str
)
def test_moments_of_channels_last_weights_meet_their_weights_again(
    tmp_path: Path, options: Any
) -> None:
    def make() -> tuple[torch.nn.Module, torch.optim.Optimizer]:
        model = convolution()
        return model, torch.optim.AdamW(model.parameters(), lr=1e-2, **options)

    model, optimizer = make()
    for seed in range(3):
        step(model, optimizer, seed)
    path = save(tmp_path, state_of(model, optimizer=optimizer))
    fresh, other = make()
    assert load(path, state_of(fresh, optimizer=other)).not_restored == []
    for left, right in ((model, optimizer), (fresh, other)):
        step(left, right, 7)
    assert_same(fresh.state_dict(), model.state_dict())
    moments = [[s["exp_avg"].stride() for s in each.state.values()] for each in (optimizer, other)]
    assert moments[0] == moments[1]


def test_gradients_of_a_half_done_step_keep_their_layout(tmp_path: Path) -> None:
    model = convolution()
    model(torch.randn(2, 3, 8, 8).to(memory_format=torch.channels_last)).sum().backward()
    state = state_of(model)
    state.progress.micro = 1
    path = save(tmp_path, state)
    fresh = convolution()
    again = state_of(fresh)
    again.restore_grads(load(path, again).grads)
    for left, right in zip(model.parameters(), fresh.parameters(), strict=True):
        assert left.grad is not None and right.grad is not None
        assert torch.equal(left.grad, right.grad)
        assert left.grad.stride() == right.grad.stride()


class Master(torch.optim.Optimizer):
    """SGD on 32-bit copies of 16-bit weights."""

    def __init__(self, parameters: Any) -> None:
        super().__init__(parameters, {"lr": 0.01})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for p in group["params"]:
                state = self.state[p]
                state.setdefault("master", p.float().clone())
                state.setdefault("more", [torch.full((2,), 1 / 3, dtype=torch.float64)])
                state["master"].add_(p.grad.float(), alpha=-group["lr"])
                p.copy_(state["master"])


class Forgetful(Master):
    """Does not take all of its state over."""

    def load_state_dict(self, state_dict: Any) -> None:
        super().load_state_dict(state_dict)
        for state in self.state.values():
            state["master"] = state["master"].floor()
            del state["more"]


def test_master_weights_keep_their_digits(tmp_path: Path) -> None:
    def make(kind: type[Master]) -> tuple[torch.nn.Module, Master]:
        torch.manual_seed(0)
        model = torch.nn.Linear(3, 3).bfloat16()
        return model, kind(model.parameters())

    model, optimizer = make(Master)
    model(torch.ones(1, 3).bfloat16()).square().mean().backward()
    optimizer.step()
    path = save(tmp_path, state_of(model, optimizer=optimizer))
    fresh, other = make(Master)
    restored = load(path, state_of(fresh, optimizer=other))
    assert restored.not_restored == []
    assert_same(other.state_dict()["state"], optimizer.state_dict()["state"])
    masters = [s["master"] for s in other.state.values()]
    assert [m.dtype for m in masters] == [torch.float32] * 2
    fresh, forgetful = make(Forgetful)
    told = load(path, state_of(fresh, optimizer=forgetful))
    assert told.not_restored == [
        "optimizer/state/0/more/0 is gone, optimizer/state/1/more/0 is gone "
        "(its load_state_dict changed what it was given)"
    ]
    assert told.guarantee().startswith(
        "bits may differ from the uninterrupted run: optimizer/state/0/more/0 is gone"
    )


def test_every_way_to_differ_is_told() -> None:
    nan = float("nan")
    saved = {
        "a": [torch.tensor([0.0, nan])],
        "b": torch.ones(2),
        "c": torch.ones(1),
        "d": torch.ones(1),
        "e": 1,
    }
    here = {
        "a": [torch.tensor([-0.0, nan])],
        "b": torch.ones(2, 1),
        "c": torch.ones(1).double(),
        "e": 2,
    }
    told = matching.differences(saved, here, "x")
    assert told is not None
    assert told.startswith(
        "x/a/0 has other bits, x/b (2,) → (2, 1), x/c float32 → float64 and 2 more ("
    )
    assert matching.differences(saved, saved, "x") is None


def test_weights_of_another_dtype_are_no_silent_cast(tmp_path: Path) -> None:
    path = save(tmp_path, state_of(torch.nn.Linear(3, 3)))
    told = load(path, state_of(torch.nn.Linear(3, 3).bfloat16())).guarantee()
    words = "2 of another precision: weight float32 → bfloat16, bias float32 → bfloat16"
    assert f"bits may differ from the uninterrupted run: model: {words}" in told
    whole = torch.nn.Linear(3, 3)
    whole.weight = torch.nn.Parameter(whole.weight.to(torch.int8), requires_grad=False)
    with pytest.raises(UsageError, match="1 of another dtype: weight float32 → int8"):
        load(path, state_of(whole))


@pytest.mark.parametrize(("old", "new"), [("float32", "bfloat16"), ("bfloat16", "float32")])
@pytest.mark.parametrize("how", [{"fused": True}, {"foreach": True}, {"foreach": False}], ids=str)
def test_training_goes_on_with_weights_of_another_precision(
    tmp_path: Path, old: str, new: str, how: Any
) -> None:
    def make(dtype: str) -> tuple[torch.nn.Module, torch.optim.Optimizer]:
        model = torch.nn.Linear(8, 8).to(getattr(torch, dtype))
        return model, torch.optim.AdamW(model.parameters(), lr=1e-2, **how)

    def step(model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> None:
        model(torch.ones(2, 8, dtype=next(model.parameters()).dtype)).square().mean().backward()
        optimizer.step()

    first, second = make(old), make(new)
    step(*first)
    path = save(tmp_path, state_of(first[0], optimizer=first[1]))
    told = load(path, state_of(second[0], optimizer=second[1])).guarantee()
    assert f"model: 2 of another precision: weight {old} → {new}" in told
    step(*second)
    assert all(p.isfinite().all() for p in second[0].parameters())


def test_a_scaler_may_come_and_go(tmp_path: Path) -> None:
    model, scaler = torch.nn.Linear(2, 2), torch.amp.GradScaler("cpu", init_scale=2.0)
    without = save(tmp_path / "without", state_of(model))
    told = load(without, state_of(model, scaler=scaler)).not_restored
    assert told == ["scaler (not in the checkpoint): it starts afresh"]
    assert scaler.get_scale() == 2.0
    with_one = save(tmp_path / "with", state_of(model, **{"scaler.a": scaler}))
    restored = load(with_one, state_of(model))
    assert restored.not_restored == ["scaler.a of the checkpoint (this run has none)"]
    assert "bits may differ" in restored.guarantee()
    average = state_of(model, scaler=scaler, ema=torch.nn.Linear(1, 1))
    with_both = save(tmp_path / "both", average)
    assert load(without, average).not_restored[0].startswith("ema (not in the checkpoint)")
    with pytest.raises(UsageError, match=r"unexpected \['ema'\]"):
        load(with_both, state_of(model, scaler=scaler))


def test_what_was_frozen_on_the_way_is_frozen_again(tmp_path: Path) -> None:
    def make() -> tuple[torch.nn.Sequential, torch.optim.Optimizer]:
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Linear(2, 2))
        model[1].weight.requires_grad_(False)
        return model, torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

    model, optimizer = make()
    model[0].requires_grad_(False)
    model[1].requires_grad_(True)
    path = save(tmp_path, state_of(model, optimizer=optimizer))
    fresh, other = make()
    parts = load(path, state_of(fresh, optimizer=other)).parts
    assert [p.requires_grad for p in fresh.parameters()] == [False, False, True, True]
    assert "requires_grad (2 parameters frozen again: 0.weight, 0.bias)" in parts
    assert "requires_grad (1 parameter trained again: 1.weight)" in parts
    assert not [
        part
        for part in load(path, state_of(fresh, optimizer=other)).parts
        if "requires_grad" in part
    ]


def test_a_group_that_was_added_on_the_way_is_told_what_to_do_about(tmp_path: Path) -> None:
    model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Linear(2, 2))
    optimizer = torch.optim.SGD(model[0].parameters(), lr=0.1)
    early = torch.optim.SGD(model[0].parameters(), lr=0.1)
    optimizer.add_param_group({"params": list(model[1].parameters())})
    path = save(tmp_path, state_of(model, optimizer=optimizer))
    with pytest.raises(UsageError, match="make every parameter group before the Run is made"):
        load(path, state_of(model, optimizer=early))


def test_two_models_whose_weights_would_share_a_name_are_refused(tmp_path: Path) -> None:
    outer = torch.nn.Module()
    outer.b = torch.nn.Linear(2, 2, bias=False)
    with pytest.raises(UsageError, match=r"two tensors would both be kept as a\.b\.weight"):
        save(tmp_path, state_of({"a": outer, "a.b": torch.nn.Linear(2, 2, bias=False)}))


SCHEDULERS: dict[str, Callable[[torch.optim.Optimizer], Any]] = {
    "multi-step": lambda o: lr_scheduler.MultiStepLR(o, [2, 3, 3, 9], gamma=0.5),
    "step": lambda o: lr_scheduler.StepLR(o, 3),
    "lambda": lambda o: lr_scheduler.LambdaLR(o, lambda epoch: 0.5**epoch),
    "one cycle": lambda o: lr_scheduler.OneCycleLR(o, 0.1, total_steps=20),
    "cyclic": lambda o: lr_scheduler.CyclicLR(o, 0.01, 0.1),
    "sequential": lambda o: lr_scheduler.SequentialLR(
        o, [lr_scheduler.LinearLR(o), lr_scheduler.MultiStepLR(o, [1, 2])], milestones=[3]
    ),
    "chained": lambda o: lr_scheduler.ChainedScheduler(
        [lr_scheduler.LinearLR(o), lr_scheduler.ExponentialLR(o, 0.9)], o
    ),
    "warm restarts": lambda o: lr_scheduler.CosineAnnealingWarmRestarts(o, 3),
    "swa": lambda o: torch.optim.swa_utils.SWALR(o, 0.05, anneal_epochs=4),
}


@pytest.mark.parametrize("name", SCHEDULERS)
def test_schedulers_of_torch_go_on(tmp_path: Path, name: str) -> None:
    def make() -> tuple[torch.nn.Module, torch.optim.Optimizer, Any]:
        model = torch.nn.Linear(2, 2)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        return model, optimizer, SCHEDULERS[name](optimizer)

    def rates(optimizer: torch.optim.Optimizer, scheduler: Any, count: int) -> list[float]:
        seen = []
        for _ in range(count):
            optimizer.step()
            scheduler.step()
            seen.append(optimizer.param_groups[0]["lr"])
        return seen

    model, optimizer, scheduler = make()
    rates(optimizer, scheduler, 2)
    path = save(tmp_path, state_of(model, optimizer=optimizer, scheduler=scheduler))
    fresh, other, again = make()
    load(path, state_of(fresh, optimizer=other, scheduler=again))
    assert rates(other, again, 6) == rates(optimizer, scheduler, 6)


def test_a_checkpoint_from_before_these_were_kept_still_loads(tmp_path: Path) -> None:
    """Format 2 once had neither strides nor flags."""
    model = convolution()
    path = Path(save(tmp_path, state_of(model)))
    document = json.loads((path / "state.json").read_text())
    del document["frozen"]
    for entry in document["models"]["model"].values():
        entry.pop("stride", None)
    text = json.dumps(document).encode()
    (path / "state.json").write_bytes(text)
    files = {
        **manifest.read_manifest(path)["files"],
        "state.json": manifest.file_facts(memoryview(text)),
    }
    (path / "manifest.json").write_bytes(manifest.build_manifest(1, files, {}))
    fresh = convolution()
    fresh[0].requires_grad_(False)  # type: ignore[index]
    load(str(path), state_of(fresh))
    assert_same(fresh.state_dict(), model.state_dict())
    assert not next(fresh.parameters()).requires_grad, "as the launch has it"
