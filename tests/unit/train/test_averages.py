"""Which weights an export calls averaged, for all the forms in which averages are kept."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from rgt_train import UsageError
from rgt_train.checkpoint import matching

TRAINED = {"a.weight": torch.zeros(2, 2), "a.mean": torch.zeros(2)}
AVERAGED = {"a.weight": torch.ones(2, 2), "a.mean": torch.ones(2)}


def prefixed(prefix: str) -> dict[str, Any]:
    return {f"{prefix}{key}": value for key, value in AVERAGED.items()}


@pytest.mark.parametrize(
    "state",
    [
        {"updates": 3, "average": AVERAGED},
        AVERAGED,
        {"n_averaged": torch.tensor(3), **prefixed("module.")},
        {"n_averaged": torch.tensor(3), **prefixed("module.module.")},
        prefixed("module._orig_mod."),
        {
            **{f"online_model.{key}": value for key, value in TRAINED.items()},
            **prefixed("ema_model."),
        },
    ],
)
def test_every_usual_form_is_found_by_the_names(state: dict[str, Any]) -> None:
    for part in ("ema", "ema.net", "ema.other"):
        found, kind = matching.replace_with_averages({"net": TRAINED}, {part: state})
        assert kind == "averaged weights"
        assert all(torch.equal(found["net"][name], AVERAGED[name]) for name in TRAINED)


def test_what_is_not_averaged_is_named() -> None:
    shadow = {"shadow": {"a.weight": AVERAGED["a.weight"]}}
    found, kind = matching.replace_with_averages({"net": TRAINED}, {"ema": shadow})
    assert kind == "averaged weights of net with a.mean as trained"
    assert torch.equal(found["net"]["a.mean"], TRAINED["a.mean"])
    found, kind = matching.replace_with_averages(
        {"g": TRAINED, "d": {"b": torch.zeros(1)}}, {"ema": AVERAGED}
    )
    assert kind == "averaged weights of g, weights of d as trained"
    assert torch.equal(found["g"]["a.mean"], AVERAGED["a.mean"])
    both = {"ema.g": AVERAGED, "ema.d": {"average": TRAINED}}
    assert (
        matching.replace_with_averages({"g": TRAINED, "d": AVERAGED}, both)[1] == "averaged weights"
    )


@pytest.mark.parametrize(
    ("state", "why"),
    [
        (
            {"shadow_params": list(AVERAGED.values())},
            "ema keeps averaged weights, but has no weights under",
        ),
        (AVERAGED, "fits g and d: --raw"),
    ],
)
def test_averages_that_cannot_be_told_apart_are_refused(state: Any, why: str) -> None:
    with pytest.raises(UsageError, match=why):
        matching.replace_with_averages({"g": TRAINED, "d": TRAINED}, {"ema": state})


def test_the_parts_that_keep_averages() -> None:
    assert matching.average_parts({"optimizer": 1, "ema.b": 1, "ema.a": 1, "emanation": 1}) == [
        "ema.a",
        "ema.b",
    ]
