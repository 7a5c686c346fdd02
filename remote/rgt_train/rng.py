"""The random state of a process: Python, torch, and NumPy and CUDA where the process uses them."""

from __future__ import annotations

import base64
import random
import sys
from typing import Any, Dict, List

import torch

from rgt_train.sampler import mix


def seed_all(seed: int) -> None:
    """Seed Python, torch (all devices) and, where it is imported, NumPy."""
    random.seed(mix(seed, 3))
    torch.manual_seed(mix(seed, 4))
    numpy: Any = sys.modules.get("numpy")
    if numpy is not None:
        numpy.random.seed(mix(seed, 5) % 2**32)


def capture() -> Dict[str, Any]:
    """Return all random states as plain values that JSON takes."""
    version, words, gauss = random.getstate()
    state: Dict[str, Any] = {
        "python": [version, list(words), gauss],
        "torch": _text(torch.get_rng_state()),
    }
    numpy: Any = sys.modules.get("numpy")
    if numpy is not None:
        kind, keys, position, has_gauss, cached = numpy.random.get_state()
        words_of = [int(key) for key in keys]
        state["numpy"] = [str(kind), words_of, int(position), int(has_gauss), float(cached)]
    if torch.cuda.is_available() and torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        state["cuda"] = [_text(tensor) for tensor in torch.cuda.get_rng_state_all()]
    return state


def restore(state: Dict[str, Any]) -> List[str]:
    """Put back what `capture` returned; return what could not be, in words.

    Call it last: building a model, loading an optimizer and opening a data loader all draw random numbers.
    """
    missing: List[str] = []
    version, words, gauss = state["python"]
    random.setstate((version, tuple(words), gauss))
    torch.set_rng_state(_tensor(state["torch"]))
    if "numpy" in state:
        numpy: Any = sys.modules.get("numpy")
        if numpy is None:
            missing.append("numpy's random state (numpy is not imported)")
        else:
            kind, keys, position, has_gauss, cached = state["numpy"]
            array = numpy.array(keys, dtype=numpy.uint32)
            numpy.random.set_state((kind, array, position, has_gauss, cached))
    if "cuda" in state:
        count = torch.cuda.device_count() if torch.cuda.is_available() else 0
        if count != len(state["cuda"]):
            missing.append(f"CUDA random state of {len(state['cuda'])} devices ({count} here)")
        else:
            torch.cuda.set_rng_state_all([_tensor(text) for text in state["cuda"]])
    return missing


def _text(state: torch.Tensor) -> str:
    return base64.b64encode(bytes(state.cpu().tolist())).decode()


def _tensor(text: str) -> torch.Tensor:
    return torch.frombuffer(bytearray(base64.b64decode(text)), dtype=torch.uint8).clone()
