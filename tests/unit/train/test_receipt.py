"""The receipt of a resume claims no more than is true."""

from __future__ import annotations

import sys
from typing import Any

import pytest
import torch
from rgt_train.checkpoint import environment, guarantee
from rgt_train.checkpoint.receipt import RestoredState
from rgt_train.data import rng

SAME = {"torch": "2.13", "device": "cpu", "threads": 1, "ranks": 1, "deterministic": False}


def test_warnings_about_kernels_are_not_deterministic_ones() -> None:
    try:
        for warn_only, told in ((False, True), (True, "warn only")):
            torch.use_deterministic_algorithms(True, warn_only=warn_only)
            assert environment()["deterministic"] == told
    finally:
        torch.use_deterministic_algorithms(False)
    assert environment()["deterministic"] is False


def test_kernels_that_are_only_warned_about_promise_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    for how, told in (
        ("warn only", "where the CUDA kernels are deterministic"),
        (True, "as far as given"),
    ):
        facts = {**SAME, "deterministic": how}
        assert guarantee(facts, facts).endswith(told)


def test_kernels_that_are_picked_by_their_speed_differ_even_where_both_launches_do_so() -> None:
    facts = {**SAME, "cudnn benchmark": True}
    assert guarantee(facts, facts).startswith(
        "bits may differ from the uninterrupted run: cudnn benchmark is on"
    )
    assert guarantee({**facts, "cudnn benchmark": False}, facts).count("cudnn benchmark") == 2


def test_changed_settings_are_an_exception() -> None:
    assert guarantee(SAME, SAME) == "same torch, device and threads: the same bits as far as given"
    assert guarantee(SAME, SAME, settings="lr 1 → 2").endswith(
        "the same bits as far as given, but for what the changed settings do"
    )
    assert guarantee(SAME, SAME, "x") == "bits may differ from the uninterrupted run: x"
    both = guarantee(SAME, {**SAME, "threads": 2}, "x")
    assert both == "bits may differ from the uninterrupted run: x; threads 1 → 2"


def restored(
    state: dict[str, Any], settings: dict[str, Any] | None = None, **more: str
) -> RestoredState:
    document = {
        "environment": SAME,
        "rng": [state],
        "settings": {"lr": 1},
        "compared": "whole",
        **more,
    }
    return RestoredState([], document, SAME, settings or {"lr": 1}, {}, 0)


def test_random_state_that_has_no_place_here_is_told_in_the_receipt(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    state = rng.capture_states()
    assert restored(state).not_restored == []
    assert restored(state, {"lr": 2}).guarantee().endswith("but for what the changed settings do")
    state["cuda"] = ["x", "y", "z"]
    (told,) = restored(state).not_restored
    assert told.startswith("CUDA random state of 3 devices (")
    assert "CUDA random state of 3 devices" in restored(state).guarantee()
    rng.restore_states(state)  # the rest is put back
    del state["cuda"]
    monkeypatch.setattr(rng, "find_spec", lambda name: None)
    assert restored(state).not_restored == ["numpy's random state (numpy is not installed)"]


def test_numpy_gets_its_random_state_back_also_where_it_is_not_imported_yet(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    numpy = pytest.importorskip("numpy")
    state = rng.capture_states()
    drawn = numpy.random.rand()
    with monkeypatch.context() as bare:
        bare.delitem(sys.modules, "numpy")
        assert "numpy" not in rng.capture_states()
        bare.setattr(rng, "import_module", lambda name: numpy)
        rng.restore_states(state)
    assert numpy.random.rand() == drawn


@pytest.mark.parametrize("compared", ["sampled", "in a way of a later version"])
def test_a_checkpoint_that_was_only_sampled_promises_no_bits(compared: str) -> None:
    told = restored(rng.capture_states(), compared=compared).guarantee()
    assert "sampled, not compared in full" in told
    assert "bit for bit" not in told
    assert "the same bits" in restored(rng.capture_states()).guarantee()
