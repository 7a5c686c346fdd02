"""The random state of a process: Python, torch, and NumPy and CUDA if the process uses them."""

from __future__ import annotations

import base64
import ctypes
import random
import sys
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Iterable, Iterator, Mapping

import torch

from rgt_train.data.sampler import mix_bits


def seed_all(seed: int) -> None:
    """Seed Python, torch (all devices) and, if imported, NumPy."""
    random.seed(mix_bits(seed, 3))
    torch.manual_seed(mix_bits(seed, 4))
    numpy: Any = sys.modules.get("numpy")
    if numpy is not None:
        numpy.random.seed(mix_bits(seed, 5) % 2**32)


def capture_states() -> dict[str, Any]:
    """Return all random states as JSON-compatible values."""
    version, words, gauss = random.getstate()
    state: dict[str, Any] = {
        "python": [version, list(words), gauss],
        "torch": _encode_state(torch.get_rng_state()),
    }
    numpy: Any = sys.modules.get("numpy")
    if numpy is not None:
        kind, keys, position, has_gauss, cached = numpy.random.get_state()
        state["numpy"] = [str(kind), keys.tolist(), int(position), int(has_gauss), float(cached)]
    # Asking an uninitialised device would create a CUDA context of hundreds of MB on each card.
    if torch.cuda.is_available() and torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        state["cuda"] = [_encode_state(tensor) for tensor in torch.cuda.get_rng_state_all()]
    return state


def unrestorable_parts(state: Mapping[str, Any]) -> list[str]:
    """Return which parts of `state` cannot be restored here, in words."""
    found: list[str] = []
    if "numpy" in state and find_spec("numpy") is None:
        found.append("numpy's random state (numpy is not installed)")
    if "cuda" in state and _count_devices() != len(state["cuda"]):
        found.append(f"CUDA random state of {len(state['cuda'])} devices ({_count_devices()} here)")
    return found


def restore_states(state: Mapping[str, Any]) -> None:
    """Restore the result of `capture_states`, except for the `unrestorable_parts` parts.

    Call it last: building a model, loading an optimizer and opening a data loader all draw random
    numbers.
    """
    version, words, gauss = state["python"]
    random.setstate((version, tuple(words), gauss))
    torch.set_rng_state(_decode_state(state["torch"]))
    if "numpy" in state and find_spec("numpy") is not None:
        # perhaps not imported yet: it will be, because it was used before
        numpy: Any = import_module("numpy")
        kind, keys, position, has_gauss, cached = state["numpy"]
        array = numpy.array(keys, dtype=numpy.uint32)
        numpy.random.set_state((kind, array, position, has_gauss, cached))
    if "cuda" in state and _count_devices() == len(state["cuda"]):
        torch.cuda.set_rng_state_all([_decode_state(text) for text in state["cuda"]])


def _count_devices() -> int:
    if torch.cuda.is_available():
        return torch.cuda.device_count()
    return 0


def _encode_state(state: torch.Tensor) -> str:
    state = state.cpu().contiguous()
    # Not state.numpy(): torch may be installed without NumPy.
    return base64.b64encode(ctypes.string_at(state.data_ptr(), state.numel())).decode()


def _decode_state(text: str) -> torch.Tensor:
    return torch.frombuffer(bytearray(base64.b64decode(text)), dtype=torch.uint8).clone()


@contextmanager
def evaluation(models: Iterable[torch.nn.Module]) -> Iterator[None]:
    """Switch to evaluation, without gradients.

    Then restore each module's mode and the random state.

    A module that was in evaluation mode in a model that trains (a frozen backbone) is so again
    afterwards.
    """
    models = list(models)
    modes = [(module, module.training) for model in models for module in model.modules()]
    state = capture_states()
    try:
        for model in models:
            model.eval()
        with torch.no_grad():
            yield
    finally:
        roots = {id(model): model for model in models}
        for module, training in modes:
            if id(module) in roots:
                module.train(training)  # some modules do more than set a flag
        for module, training in modes:
            module.training = training
        restore_states(state)


def random_state(value: Any) -> Any:
    """Return the state of the random generator `value`; None for any other object."""
    numpy: Any = sys.modules.get("numpy")
    if isinstance(value, torch.Generator):
        return value.get_state()
    if isinstance(value, random.Random):
        return value.getstate()
    if numpy is not None and isinstance(value, numpy.random.Generator):
        return value.bit_generator.state
    if numpy is not None and isinstance(value, numpy.random.RandomState):
        # The legacy tuple names only one kind of bit generator.
        return value.get_state(legacy=False)
    return None


def restore_generator(generator: Any, state: Any) -> None:
    """Restore the state of a generator that `random_state` returned."""
    if isinstance(generator, random.Random):
        generator.setstate(state)
    elif hasattr(generator, "bit_generator"):
        generator.bit_generator.state = state
    else:
        generator.set_state(state)


def find_generators(value: Any, depth: int = 5) -> list[Any]:
    """Return the random generators in the attributes and containers of `value`, in a fixed order."""
    found: list[Any] = []
    level: list[Any] = [value]
    seen: set[int] = set()
    for _ in range(depth):
        inside: list[Any] = []
        for each in level:
            if id(each) in seen or isinstance(each, (type, torch.Tensor)):
                continue
            seen.add(id(each))
            if random_state(each) is not None:
                found.append(each)
            elif isinstance(each, (list, tuple)):
                inside += each[:32]
            elif isinstance(each, Mapping):
                inside += list(each.values())[:32]
            else:
                inside += getattr(each, "__dict__", {}).values()
        level = inside
    return found
