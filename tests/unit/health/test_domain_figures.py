"""What a field's own figures prove, and that figures as they usually are prove nothing."""

from __future__ import annotations

import math
import random

import msgspec
import pytest

from rgt_tui.health import diagnose_box
from rgt_tui.health.handbook import RULES
from rgt_tui.model import Finding, RunResume, Series
from tests.unit.triage.builders import NOW, box, run

NOISE = random.Random(7)
MANY = 400


def about(level: float, count: int = MANY, spread: float = 0.05) -> list[float]:
    return [level * (1.0 + NOISE.uniform(-spread, spread)) for _ in range(count)]


def found(resume: int = 0, /, **series: list[float]) -> list[Finding]:
    losses = [4.0 - i / 200 for i in range(MANY)]
    resumes = (RunResume(step=1000 + resume, reason="killed", index=resume),) if resume else ()
    made = run(step=1000 + MANY, losses=losses, resumes=resumes)
    more = {
        name.replace("__", "/"): Series().with_points(
            [(1001 + MANY - len(ys) + i, y) for i, y in enumerate(ys)]
        )
        for name, ys in series.items()
    }
    state = box(runs=(msgspec.structs.replace(made, series={**made.series, **more}),))
    return [one for one in diagnose_box(state, NOW, ()) if one.where == "scalars"]


WRONG: list[tuple[str, dict[str, list[float]]]] = [
    ("L7", {"eval_perplexity": [30.0, 1.01, 1.0, 1.0]}),
    ("L7", {"val__ppl": [2e5, 3e5, 4e5]}),
    ("L9", {"rewards__accuracies": about(0.5), "rewards__margins": about(0.001)}),
    ("V3", {"metrics__mAP50": [0.0] * 5}),
    ("V3", {"eval_map": [0.0] * 5}),
    ("V3", {"val_map_50": [0.0] * 5}),
    ("V5", {"val_mIoU": [0.0, math.nan, math.nan]}),
    ("V6", {"val_minority_recall": [0.0] * 3, "val_accuracy": [0.95] * 3}),
    ("V6", {"val_macro_recall": [0.25] * 3, "val_accuracy": [0.95] * 3}),
    ("DF3", {"latent_std": [0.18] * 3}),
    ("R1", {"critic__score__mean": [*about(0.8, 300), *about(0.1, 30)]}),
    ("R1", {"objective__rlhf_reward": [*about(4.0, 300), *about(1.0, 30)]}),
    ("R1", {"train__reward": [*about(10.0, 300), *about(3.0, 30)]}),
    ("R1", {"Mean reward": [*about(-200.0, 300), *about(-400.0, 30)]}),
    ("R2", {"approx_kl": [*about(0.02, 300), *about(0.5, 30)]}),
    ("R2", {"objective__kl": [60.0, 61.0, 62.0]}),
    ("R3", {"advantages": [NOISE.gauss(0, 40) for _ in range(80)]}),
    ("R3", {"critic__advantages__max": [300.0, 250.0, 400.0]}),
    ("R3", {"train__advantages_std": [40.0, 45.0, 50.0]}),
    ("R3", {"train__value_loss": about(5e4), "rollout__ep_rew_mean": about(-900.0)}),
    ("O22", {"update_ratio": [1e-3, 0.2, 0.3, 0.4]}),
    ("O22", {"update_ratio": [1e-7] * 12}),
    ("O25", {"dead_units": [0.6, 0.7, 0.7]}),
    ("R4", {"reward": [*about(10.0, 200), *about(1.0, 40)]}),
]


@pytest.mark.parametrize(
    ("page", "series"), WRONG, ids=[f"{page}-{next(iter(names))}" for page, names in WRONG]
)
def test_odd_figures_are_told_with_their_page(page: str, series: dict[str, list[float]]) -> None:
    (one,) = found(MANY - 40 if page == "R4" else 0, **series)
    assert (one.gotcha, one.run, one.confidence) == (page, "lstm-b", 0.7)
    name = next(iter(series)).replace("__", "/")
    assert one.evidence.startswith(f"lstm-b: {name} ") and one.resource and one.fixes


WELL: list[dict[str, list[float]]] = [
    {"eval_perplexity": [30.0, 12.0, 1.01]},
    {"rewards__accuracies": about(0.5), "rewards__margins": [i / 100 for i in range(MANY)]},
    {"rewards__accuracies": about(0.7), "rewards__margins": about(0.001)},
    {"rewards__accuracies": about(0.5)},
    {"metrics__mAP50": [0.0, 0.0, 0.01]},
    {"val_mIoU": [0.0, 0.0, 0.3]},
    {"val_minority_recall": [0.0] * 3, "val_accuracy": [0.5] * 3},
    {"val_minority_recall": [0.0] * 3},
    {"val_macro_recall": [0.7] * 3, "val_accuracy": [0.95] * 3},
    {"critic__values__mean": [*about(10.0, 300), *about(3.0, 30)]},
    {"latent_std": [0.9, 1.1, 0.6]},
    {"reward": about(10.0)},
    {"reward": [NOISE.gauss(1.0, 3.0) for _ in range(MANY)]},
    {"reward": about(-10.0)},
    {"reward": [*about(-200.0, 300), *about(-100.0, 30)]},
    {"reward": [*about(-200.0, 300), *about(-250.0, 30)]},
    {"reward": [*about(10.0, 40), *about(1.0, 20)]},
    {"reward": [*about(10.0, 300), *about(3.0, 5)]},
    {"kl": about(0.3)},
    {"kl": [i / 1000 for i in range(MANY)]},
    {"advantages": [NOISE.gauss(0, 1) for _ in range(80)]},
    {"critic__advantages__max": about(8.0), "critic__advantages__min": about(-9.0)},
    {"adv_std": about(1.0)},
    {"value_loss": about(5e4), "reward": [float(i) for i in range(MANY)]},
    {"value_loss": about(5e4)},
    {"value_loss": about(20.0), "reward": about(-900.0)},
    {"update_ratio": [2e-3 * 0.9**i for i in range(100)]},
    {"dead_units": [0.1, 0.2, 0.3]},
    {"update_to_data": about(1.0)},
    {"update_ratio": about(-3.0)},
    {"dead_neurons": [3.0, 0.0, 1.0]},
    {"dead_relu": [1.2, 1.7, 0.9]},
    {"reward_std": [*about(10.0, 300), *about(3.0, 30)], "roadmap": [0.0] * 9},
    {"reward": [*about(10.0, 300), *[math.nan] * 30]},
]


@pytest.mark.parametrize("series", WELL, ids=[next(iter(one)) for one in WELL])
def test_usual_figures_prove_nothing(series: dict[str, list[float]]) -> None:
    assert found(**series) == []


def test_a_reward_that_comes_back_after_a_resume_is_none() -> None:
    assert found(MANY - 40, reward=about(10.0, 240)) == []


def test_map_is_no_matter_before_anything_could_be_found() -> None:
    early = run(step=100, losses=[4.0 - i / 200 for i in range(100)])
    zero = Series().with_points([(i, 0.0) for i in range(90, 100)])
    state = box(runs=(msgspec.structs.replace(early, series={**early.series, "map": zero}),))
    assert diagnose_box(state, NOW, ()) == ()


@pytest.mark.parametrize(("epochs", "there"), [(4, False), (8, True)])
def test_a_detector_that_counts_epochs_is_judged_by_epochs(epochs: int, there: bool) -> None:
    """The results.csv of Ultralytics: one row an epoch; 500 steps are never reached."""
    base = run(step=epochs, losses=[4.0 - i / 2 for i in range(epochs)])
    zero = Series().with_points([(i, 0.0) for i in range(1, epochs + 1)])
    series = {**base.series, "metrics/mAP50-95(B)": zero}
    counted = msgspec.structs.replace(base, series=series, axis="epoch", epoch=float(epochs))
    found = diagnose_box(box(runs=(counted,)), NOW, ())
    assert [one.gotcha for one in found] == (["V3"] if there else [])
    assert not there or f"at epoch {epochs}" in found[0].evidence


def test_every_rule_is_tried() -> None:
    assert {page for page, _ in WRONG} == {rule.page for rule in RULES}
