"""A person's own state is filled in place, and the bytecode of a loop shows what it carries along."""

from __future__ import annotations

import json
import random
import sys
from collections import deque
from typing import Any

import numpy as np
import pytest
import torch
from rgt_train import loop_code, state_search
from rgt_train.checkpoint import encoding


def stored(state: Any) -> Any:
    """Return `state` as a checkpoint gives it back."""
    tensors: dict[str, torch.Tensor] = {}

    def put(path: str, tensor: torch.Tensor) -> str:
        tensors[path] = tensor.clone()
        return path

    return encoding.decode_value(
        json.loads(json.dumps(encoding.encode_value(state, put))), tensors.__getitem__
    )


def make_own() -> dict[str, Any]:
    return {
        "history": [1.0],
        "shadow": {"w": torch.zeros(2)},
        "recent": deque([1], maxlen=3),
        "pair": (torch.zeros(1), [0]),
        "array": np.zeros(2),
        "seen": {1},
        "objects": [torch.optim.SGD([torch.zeros(1)], lr=0.1, momentum=0.9)],
        "torch": torch.Generator().manual_seed(1),
        "numpy": np.random.default_rng(1),
        "python": random.Random(1),
        "old": np.random.RandomState(1),
        "step": 0,
    }


def draw_all(own: dict[str, Any]) -> list[float]:
    return [
        float(torch.rand(1, generator=own["torch"])),
        float(own["numpy"].random()),
        own["python"].random(),
        float(own["old"].random_sample()),
    ]


def test_nested_values_are_filled_in_place() -> None:
    own = make_own()
    own["history"] += [2.0, 3.0]
    own["shadow"]["w"] += 1
    own["recent"].extend([2, 3, 4])
    own["pair"][0].fill_(7)
    own["pair"][1].append(8)
    own["array"] += 5
    own["seen"].add(2)
    own["objects"][0].param_groups[0]["lr"] = 0.5
    own["step"] = 9
    draw_all(own)
    saved = stored(encoding.OwnState(own).state_dict())
    expected = draw_all(own)

    fresh = make_own()
    held = {name: value for name, value in fresh.items() if name not in ("step", "pair")}
    weight: torch.Tensor = fresh["shadow"]["w"]
    first, inner = fresh["pair"]
    encoding.OwnState(fresh).load_state_dict(saved)
    assert all(fresh[name] is value for name, value in held.items())
    assert fresh["shadow"]["w"] is weight
    assert fresh["pair"][0] is first
    assert fresh["pair"][1] is inner
    assert held["history"] == [1.0, 2.0, 3.0]
    assert weight.tolist() == [1, 1]
    assert (list(held["recent"]), held["recent"].maxlen) == ([2, 3, 4], 3)
    assert (first.item(), inner) == (7, [0, 8])
    assert held["array"].tolist() == [5, 5]
    assert held["seen"] == {1, 2}
    assert held["objects"][0].param_groups[0]["lr"] == 0.5
    assert fresh["step"] == 9
    assert draw_all(fresh) == expected


def test_a_saved_value_is_a_copy() -> None:
    own = make_own()
    saved = encoding.OwnState(own).state_dict()
    own["history"].append(2.0)
    own["shadow"]["w"] += 1
    assert saved["history"] == [1.0]
    assert saved["shadow"]["w"].tolist() == [0, 0]


def mark() -> set[str]:
    """Return what the calling loop carries past this call."""
    frame = sys._getframe(1)
    return loop_code.carried_names(frame.f_code, frame.f_lasti)


def test_a_loop_carries_what_it_reads_before_it_assigns_it() -> None:
    total, best, fresh = 0.0, 9, 0
    found: set[str] = set()
    for epoch in range(2):
        rate = 0.1 / (epoch + 1)
        for number, (left, right) in enumerate([(1, 2), (3, 4)]):
            fresh = left + right
            total += fresh * rate + number
            best = min(best, fresh)
            found = mark()
    assert {"total", "best"} <= found
    assert not {"left", "right", "number", "epoch"} & found
    assert "rate" in found, "assigned again in each epoch: compared within one alone"


def test_the_target_of_a_loop_that_may_make_no_turn_is_not_carried() -> None:
    found: set[str] = set()
    read: list[int] = []
    for _ in range(2):
        for part in (1, 2):
            read.append(part)
        read.append(part)
        found = mark()
    assert "read" in found and "part" not in found


def epochs() -> Any:
    """Yield twice what the loop over this generator carries from turn to turn."""
    for _ in range(2):
        frame = sys._getframe(1)
        yield loop_code.carried_names(frame.f_code, frame.f_lasti)


def test_what_a_loop_over_epochs_carries_is_what_its_body_reads_first() -> None:
    patience, accuracy = 0, 0.0
    for carried in epochs():
        accuracy = 0.5
        patience += accuracy < 0.6
        assert carried & {"patience", "accuracy"} == {"patience"}
    assert (patience, accuracy) == (2, 0.5)


@pytest.mark.parametrize("flag", [False, True])
def test_a_value_that_is_assigned_on_one_path_only_is_carried(flag: bool) -> None:
    state = 0
    found: set[str] = set()
    while state < 3:
        if flag:
            state = 1
        state += 2
        found = mark()
    assert "state" in found


def test_a_survey_reads_values_of_every_kind_and_changes_nothing() -> None:
    class Eager:
        """Makes up any attribute, as a lazily imported module does."""

        def __getattr__(self, name: str) -> Any:
            raise AssertionError(f"{name} was requested")

    state = make_own()
    state["view"] = torch.arange(12).reshape(3, 4).t()
    state["eager"] = Eager()
    state["text"] = "a"
    seen: list[dict[str, Any]] = []
    for _ in range(2):
        survey = state_search.StateSurvey(())
        survey.add_value("own", state)
        seen.append(survey.found)
    assert seen[0] == seen[1]
    state["view"][1, 1] = 99
    state["array"][1] = 9
    state["text"] = "b"
    draw_all(state)
    survey = state_search.StateSurvey(())
    survey.add_value("own", state)
    changed = {path for path, value in survey.found.items() if seen[0][path] != value}
    names = ("view", "array", "text", "torch", "numpy", "python", "old")
    assert changed == {f"own[{name!r}]" for name in names}
