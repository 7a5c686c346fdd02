"""What goes wrong silently in training diffusion models, one test each, by the numbers DF1 to DF7 of the checklist."""

from __future__ import annotations

import itertools
import math
from typing import Any

import pytest
import torch
from rgt_train import tasks
from rgt_train.config import merge_config
from rgt_train.loop import TrainingSetup
from rgt_train.tasks.diffusion import (
    PREDICTIONS,
    SCHEDULES,
    Denoiser,
    Diffusion,
    NoiseSchedule,
    energy_distance,
    sample_points,
)

CPU = torch.device("cpu")
torch.set_num_threads(1)  # small tensors: more threads only wait for each other


def trained(steps: int, **values: object) -> TrainingSetup:
    given = {"task": "diffusion", "batch": "128", **{k: str(v) for k, v in values.items()}}
    config = merge_config([], given)
    setup = TrainingSetup(config, tasks.make_task(config), steps)
    order = torch.randperm(setup.task.samples, generator=torch.Generator().manual_seed(0)).tolist()
    for step in range(steps):
        setup.optimizer.zero_grad()
        setup.add_gradients(
            setup.task.loss(setup.model, order[128 * step : 128 * (step + 1)], int, CPU)
        )
        setup.apply_gradients(setup.learning_rate(step), setup.grad_norm())
    setup.model.eval()
    return setup


@pytest.fixture(scope="module")
def setup() -> TrainingSetup:
    return trained(450)


def task_of(setup: TrainingSetup) -> Diffusion:
    assert isinstance(setup.task, Diffusion)
    return setup.task


def model_of(setup: TrainingSetup) -> Denoiser:
    assert isinstance(setup.validated_model, Denoiser)
    return setup.validated_model


KINDS = torch.arange(240) % 6


def test_DF1_samples_are_judged_and_not_only_the_loss(setup: TrainingSetup) -> None:  # noqa: N802
    task = task_of(setup)
    with torch.no_grad():
        good = task.scores(setup.validated_model, CPU)
        fresh = task.scores(task.model().eval(), CPU)
    assert good["sample_hits"] > 0.9 > fresh["sample_hits"]
    assert good["sample_distance"] < 0.1 < fresh["sample_distance"]


def test_DF1_the_distance_is_one_between_distributions() -> None:  # noqa: N802
    draw = torch.Generator().manual_seed(0)
    a, b = (torch.randn(400, 2, generator=draw) for _ in range(2))
    assert energy_distance(a, b) == pytest.approx(0.0, abs=0.04)
    assert energy_distance(a, a) == pytest.approx(0.0, abs=1e-5)
    assert energy_distance(a, b + 2) > 1.0
    assert energy_distance(a, 0.1 * b) > 0.2


def test_DF2_averaged_weights_are_judged_and_raw_ones_go_on(setup: TrainingSetup) -> None:  # noqa: N802
    assert setup.ema is not None
    assert setup.validated_model is setup.ema.module is not setup.model
    raw, averaged = setup.model.state_dict(), setup.validated_model.state_dict()
    assert any(not torch.equal(raw[name], averaged[name]) for name in raw)
    # Noise on the raw weights, as a high learning rate makes it, hardly reaches the average.
    noisy = trained(120, lr=0.02)
    with torch.no_grad():
        raw_loss, judged_loss = (
            sum(loss for loss, _ in noisy.task.validation(model.eval(), CPU))
            for model in (noisy.model, noisy.validated_model)
        )
    assert judged_loss < raw_loss


def test_DF3_data_have_unit_variance_by_their_own_measure() -> None:  # noqa: N802
    for modes in (3, 9):
        task = tasks.make_task(
            merge_config([], {"task": "diffusion", "modes": str(modes), "points": "5000"})
        )
        assert isinstance(task, Diffusion)
        assert float(task._train.std()) == pytest.approx(1.0, abs=0.02)
        assert task._train.mean(dim=0).tolist() == pytest.approx([0.0, 0.0], abs=0.02)
        points = torch.randn(10, 2)
        torch.testing.assert_close(task.denormalize_points(task.normalize_points(points)), points)


@pytest.mark.parametrize("prediction", PREDICTIONS)
@pytest.mark.parametrize("kind", SCHEDULES)
def test_DF4_what_is_predicted_gives_back_what_it_was_made_of(kind: str, prediction: str) -> None:  # noqa: N802
    schedule = NoiseSchedule(kind, 50, prediction)
    level = torch.arange(40)
    clean, noise = torch.randn(40, 2), torch.randn(40, 2)
    noisy = schedule.add_noise(clean, noise, level)
    got_clean, got_noise = schedule.split_prediction(
        schedule.prediction_target(clean, noise, level), noisy, level
    )
    torch.testing.assert_close(got_clean, clean, rtol=1e-3, atol=1e-3)
    torch.testing.assert_close(got_noise, noise, rtol=1e-3, atol=1e-3)
    torch.testing.assert_close(schedule.noise_of(noisy, clean, level), noise, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("kind", SCHEDULES)
def test_DF4_noise_grows_from_almost_none_to_almost_all(kind: str) -> None:  # noqa: N802
    for levels in (20, 100, 1000):
        bar = NoiseSchedule(kind, levels, "v").alpha_bar
        assert (bar[1:] < bar[:-1]).all()
        assert 0.9 < float(bar[0]) <= 1.0
        assert 0.0 <= float(bar[-1]) < 0.01
    a, s = NoiseSchedule(kind, 100, "v").coefficients_at(torch.arange(100))
    torch.testing.assert_close(a**2 + s**2, torch.ones(100, 1))


def test_DF4_the_sampler_has_the_schedule_of_the_training(setup: TrainingSetup) -> None:  # noqa: N802
    task, model = task_of(setup), model_of(setup)
    assert model.schedule is not None
    assert (model.schedule.kind, model.schedule.levels, model.schedule.prediction) == (
        "cosine",
        100,
        "v",
    )
    # The very same weights, read as if they had been trained to predict something else, give no samples.
    good = energy_distance(
        task.draw_points(model, KINDS), task.denormalize_points(task._held_out[:240])
    )
    was = model.schedule
    try:
        for wrong in (NoiseSchedule("cosine", 100, "eps"), NoiseSchedule("cosine", 100, "x0")):
            model.schedule = wrong
            bad = energy_distance(
                task.draw_points(model, KINDS), task.denormalize_points(task._held_out[:240])
            )
            assert bad > 5 * max(good, 0.02), wrong.prediction
    finally:
        model.schedule = was


def test_DF5_guidance_works_because_classes_are_hidden_in_training(setup: TrainingSetup) -> None:  # noqa: N802
    def reach(of: TrainingSetup, guidance: float) -> float:
        """Mean distance of samples to the centre of the ring: 4 for the data."""
        return float(
            task_of(of).draw_points(model_of(of), KINDS, guidance=guidance).norm(dim=1).mean()
        )

    task, model = task_of(setup), model_of(setup)
    blind = task.draw_points(model, torch.full((240,), model.nothing), guidance=1.0)
    assert (
        energy_distance(blind, task.denormalize_points(task._held_out[:240])) < 0.3
    )  # the unconditional model is one
    assert reach(setup, 3.0) == pytest.approx(4.0, abs=0.6)
    plain, strong = (task.draw_points(model, KINDS, guidance=g) for g in (1.0, 3.0))
    assert not torch.allclose(plain, strong, atol=0.05)
    never = trained(450, drop_condition=0)
    assert (
        abs(reach(never, 3.0) - 4.0) > 0.6
    )  # without hidden classes there is nothing to guide away from


def test_DF5_the_share_of_hidden_classes() -> None:  # noqa: N802
    task = tasks.make_task(
        merge_config([], {"task": "diffusion", "drop_condition": "0.25", "points": "4000"})
    )
    seen: list[torch.Tensor] = []

    class Spy(torch.nn.Module):
        def forward(
            self, noisy: torch.Tensor, level: torch.Tensor, kind: torch.Tensor
        ) -> torch.Tensor:
            seen.append(kind)
            return noisy

    torch.manual_seed(0)
    task.loss(Spy(), list(range(4000)), int, CPU)
    assert float((seen[0] == 6).float().mean()) == pytest.approx(0.25, abs=0.03)
    list(task.validation(Spy(), CPU))
    assert int(torch.cat(seen[1:]).max()) < 6  # never in validation


def test_DF6_few_and_many_steps_give_the_same_samples(setup: TrainingSetup) -> None:  # noqa: N802
    task, model = task_of(setup), model_of(setup)
    held_out = task.denormalize_points(task._held_out[:240])
    for steps in (10, 25, 100, 5000):
        generator = torch.Generator().manual_seed(1)
        points = task.denormalize_points(sample_points(model, KINDS, steps, 1.0, generator))
        assert energy_distance(points, held_out) < 0.15, steps


def test_DF6_the_descent_begins_at_noise_and_ends_clean() -> None:  # noqa: N802
    schedule = NoiseSchedule("cosine", 100, "v")
    for steps in (1, 2, 7, 100, 1000):
        pairs = list(schedule.descending_levels(steps))
        assert pairs[0][0] == 99 and pairs[-1][1] == -1
        assert len(pairs) == min(steps, 100)
        assert all(now > then for now, then in pairs)
        assert all(a[1] == b[0] for a, b in itertools.pairwise(pairs))


def test_DF6_samples_are_the_same_for_the_same_seed(setup: TrainingSetup) -> None:  # noqa: N802
    task, model = task_of(setup), model_of(setup)
    assert torch.equal(task.draw_points(model, KINDS), task.draw_points(model, KINDS))
    assert not torch.equal(task.draw_points(model, KINDS), task.draw_points(model, KINDS, seed=9))


def test_DF7_min_snr_weights_mean_the_same_for_every_prediction() -> None:  # noqa: N802
    """Whatever is predicted, an error of the clean sample has the weight min(SNR, γ)."""
    level = torch.arange(100)
    clean_error = torch.full((100, 2), 0.1)
    clean, noise = torch.randn(100, 2), torch.randn(100, 2)
    weighed: list[Any] = []
    for prediction in PREDICTIONS:
        schedule = NoiseSchedule("cosine", 100, prediction)
        noisy = schedule.add_noise(clean, noise, level)
        wrong = clean + clean_error
        # The prediction that means `wrong` for this noisy sample:
        target = schedule.prediction_target(wrong, schedule.noise_of(noisy, wrong, level), level)
        error = (target - schedule.prediction_target(clean, noise, level)) ** 2
        weighed.append((schedule.loss_weights(level, 5.0) * error)[:90])
    for other in weighed[1:]:
        torch.testing.assert_close(other, weighed[0], rtol=2e-2, atol=1e-5)
    a, s = schedule.coefficients_at(level)
    expected = ((a / s) ** 2).clamp(max=5.0) * clean_error**2
    torch.testing.assert_close(weighed[0], expected[:90], rtol=2e-2, atol=1e-5)
    assert torch.equal(schedule.loss_weights(level, 0.0), torch.ones(100, 1))


def test_DF7_validation_is_not_weighted() -> None:  # noqa: N802
    losses = []
    for gamma in (0, 5):
        task = tasks.make_task(
            merge_config([], {"task": "diffusion", "snr_gamma": str(gamma), "points": "500"})
        )
        torch.manual_seed(0)
        model = task.model().eval()
        with torch.no_grad():
            losses.append(sum(loss for loss, _ in task.validation(model, CPU)))
    assert losses[0] == losses[1]
    assert math.isfinite(losses[0])
