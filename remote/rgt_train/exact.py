"""What an object made of the state it was given: torch casts the state of an optimizer to the dtype of its weights."""

from __future__ import annotations

from typing import Any, Iterator, List, Mapping, Optional, Tuple

import torch

_SHOWN = 3


def uncast(optimizer: Any, saved: Mapping[str, Any]) -> None:
    """Put tensors of the state `saved` that `optimizer` took over with another dtype back as they were.

    ``torch.optim.Optimizer.load_state_dict`` casts every tensor of a parameter's state to the dtype of the parameter
    (torch 2.13, ``_process_value_according_to_param_policy``): 32-bit master weights of a bfloat16 model would come
    back with 16 bits.
    """
    here, there = getattr(optimizer, "param_groups", ()), saved.get("param_groups", ())
    for group, old in zip(here, there):  # noqa: B905  torch has refused another number of them
        for parameter, number in zip(group["params"], old["params"]):  # noqa: B905  likewise
            values = optimizer.state.get(parameter, {})
            for key, value in saved.get("state", {}).get(number, {}).items():
                if key in values:
                    values[key] = _uncast(value, values[key])


def differences(saved: Any, here: Any, name: str) -> Optional[str]:
    """Return which tensors of the state `saved` are others in the state `here`, in words; None if none.

    Args:
        saved: What an object was given.
        here: What it says its state is now.
        name: The object.
    """
    found = list(_differences(saved, here, name))
    if not found:
        return None
    more = f" and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
    return f"{', '.join(found[:_SHOWN])}{more} (its load_state_dict changed what it was given)"


def _differences(saved: Any, here: Any, path: str) -> Iterator[str]:
    if isinstance(saved, torch.Tensor):
        how = _difference(saved, here)
        if how:
            yield f"{path} {how}"
        return
    others = dict(_children(here))
    for key, value in _children(saved):
        yield from _differences(value, others.get(key), f"{path}/{key}")


def _children(value: Any) -> List[Tuple[Any, Any]]:
    if isinstance(value, Mapping):
        return list(value.items())
    return list(enumerate(value)) if isinstance(value, (list, tuple)) else []


def _difference(saved: torch.Tensor, here: Any) -> str:
    if not isinstance(here, torch.Tensor):
        return "is gone"
    if here.dtype != saved.dtype:
        return f"{saved.dtype} → {here.dtype}".replace("torch.", "")
    if here.shape != saved.shape:
        return f"{tuple(saved.shape)} → {tuple(here.shape)}"
    return "" if torch.equal(_raw(saved), _raw(here)) else "has other bits"


def _raw(tensor: torch.Tensor) -> torch.Tensor:
    """Return the bytes: a NaN equals itself then, and -0.0 is not 0.0."""
    return tensor.detach().cpu().reshape(-1).view(torch.uint8)


def _uncast(saved: Any, found: Any) -> Any:
    """Return `found` with the tensors of `saved` where the dtype is another one."""
    if isinstance(saved, torch.Tensor) and isinstance(found, torch.Tensor):
        return found if saved.dtype == found.dtype else saved.to(found.device)
    if isinstance(saved, dict) and isinstance(found, dict):
        found.update({key: _uncast(value, found[key]) for key, value in saved.items() if key in found})
    elif type(saved) is type(found) and type(saved) in (list, tuple) and len(saved) == len(found):
        return type(saved)(map(_uncast, saved, found))
    return found
