"""The largest batch that fits, by trial: exact on a CPU, after an exhausted GPU, and without traces in the model."""

from __future__ import annotations

import pytest
import torch
from rgt_train import UsageError, cli, estimate_batch, exits


def small_model() -> torch.nn.Sequential:
    nn = torch.nn
    return nn.Sequential(nn.Linear(100, 500), nn.Tanh(), nn.BatchNorm1d(500), nn.Linear(500, 10))


@pytest.mark.parametrize("megabytes", [3, 10, 57])
def test_one_sample_more_does_not_fit(megabytes: int) -> None:
    found = estimate_batch(small_model(), torch.randn(3, 100), megabytes * 1_000_000)
    tried = dict(found.tried)
    usable = 0.9 * found.budget_bytes
    assert tried[found.batch] == found.peak_bytes <= usable
    after = tried[found.batch + 1]
    assert after is None or after > usable
    assert found.headroom_bytes >= 0.1 * found.budget_bytes
    assert f"a batch of {found.batch} fits" in str(found) and "headroom" in str(found)


@pytest.mark.parametrize("budget", ["20MB", "20 MB", "0.02gb", "20e6"])
def test_the_budget_may_be_a_text(budget: str) -> None:
    found = estimate_batch(small_model(), torch.randn(3, 100), budget)
    assert found == estimate_batch(small_model(), torch.randn(3, 100), 20_000_000)
    assert found.budget_bytes == 20_000_000


@pytest.mark.parametrize("budget", ["much", "", 0, -5])
def test_a_budget_that_is_no_size_is_refused(budget: str | int) -> None:
    with pytest.raises(UsageError, match="is not a size"):
        estimate_batch(small_model(), torch.randn(3, 100), budget)


def test_what_is_counted() -> None:
    """Weights, gradients, two moments of each weight, inputs and the activations that backward needs."""
    model = torch.nn.Sequential(torch.nn.Linear(1000, 1000), torch.nn.Tanh())
    weights = 4 * (1000 * 1000 + 1000)
    found = estimate_batch(model, torch.randn(1, 1000), 10**9, most=1000)
    per_sample = 4 * 1000
    least = 4 * weights + 1000 * 2 * per_sample
    assert found.batch == 1000 and least <= found.peak_bytes <= least + 1000 * 2 * per_sample
    assert "no larger one was tried" in str(found)
    without = estimate_batch(model, torch.randn(1, 1000), 10**9, most=1000, optimizer_bytes=0)
    assert found.peak_bytes - without.peak_bytes == 2 * weights


def test_an_exhausted_device_is_a_batch_that_does_not_fit() -> None:
    def loss(model: torch.nn.Module, batch: torch.Tensor) -> torch.Tensor:
        if len(batch) > 37:
            raise torch.cuda.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")
        return torch.as_tensor(model(batch)).sum()

    found = estimate_batch(small_model(), torch.randn(1, 100), 10**9, loss=loss)
    assert found.batch == 37 and dict(found.tried)[38] is None


def test_nothing_is_left_behind_in_the_model() -> None:
    model = small_model()
    model(torch.randn(4, 100)).sum().backward()
    grads = [p.grad for p in model.parameters()]
    former = {name: value.clone() for name, value in model.state_dict().items()}
    example, state = torch.randn(1, 100), torch.get_rng_state()
    model.append(torch.nn.Dropout(0.5))  # draws random numbers
    estimate_batch(model, example, 10_000_000)
    assert all(p.grad is grad for p, grad in zip(model.parameters(), grads, strict=True))
    assert all(torch.equal(value, former[name]) for name, value in model.state_dict().items())
    assert torch.equal(state, torch.get_rng_state())


def test_batches_of_several_parts() -> None:
    class Scored(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.head = torch.nn.Linear(8, 2)

        def forward(self, inputs: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
            return {"loss": torch.nn.functional.cross_entropy(self.head(inputs), labels)}

    inputs, labels = torch.randn(2, 8), torch.tensor([0, 1])
    named = estimate_batch(Scored(), {"inputs": inputs, "labels": labels}, 100_000)
    assert named.batch == estimate_batch(Scored(), (inputs, labels), 100_000).batch > 10


def test_what_cannot_be_estimated_is_said() -> None:
    assert estimate_batch(small_model(), torch.randn(1, 100), 200_000).batch == 0
    for example, budget, message in (
        (torch.randn(1, 100), None, "on cpu the budget is missing"),
        (torch.randn(0, 100), 1_000_000, "has no sample"),
    ):
        with pytest.raises(UsageError, match=message):
            estimate_batch(small_model(), example, budget)


def test_the_command_estimates_for_a_task(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--task", "image_classifier", "--set", "images=200", "--estimate-batch"]
    assert cli.main([*words, "2MB"]) == exits.DONE
    assert "estimate: a batch of " in capsys.readouterr().out
    for budget, message in (("lots", "'lots' is not a size such as 2GB"), ("", "is missing")):
        assert cli.main([*words, budget, "--set", "device=cpu"]) == exits.USAGE
        assert message in capsys.readouterr().err
