"""``--gpu``: a model, a memory or both, and how many."""

from __future__ import annotations

import argparse

import pytest

from rgt_tui.cli import gpu_wish


@pytest.mark.parametrize(
    ("text", "wish"),
    [
        ("A100", ("A100", 1)),
        ("A100:2", ("A100", 2)),
        ("RTX 4090:2", ("RTX 4090", 2)),
        ("A100:80GB", ("A100 80GB", 1)),
        ("A100:80GB:8", ("A100 80GB", 8)),
        ("24GB+", ("24GB+", 1)),
        ("24GB+:4", ("24GB+", 4)),
    ],
)
def test_a_wish_is_a_model_a_memory_or_both(text: str, wish: tuple[str, int]) -> None:
    assert gpu_wish(text) == wish


@pytest.mark.parametrize(
    "text",
    [
        *("", ":2", "A100:0", "A100:65", "RTX", "nvidia", "A100:999999999999"),
        # Only the first digits are within the limit; and int() refuses more than 4,300 of them.
        *("A100:00640000", "A100:" + "1" * 5000),
    ],
)
def test_what_names_no_gpu_is_refused_with_examples(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match=r"24GB\+"):
        gpu_wish(text)
