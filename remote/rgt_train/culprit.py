"""Which tensor of a model went bad first: what a person needs to know beside 'the loss is NaN'."""

from __future__ import annotations

from typing import Any, List, Mapping, Tuple

import torch


def culprit(models: Mapping[str, torch.nn.Module], optimizer: Any = None) -> str:
    """Say in words which weights or gradients are not finite; empty where all are finite.

    A backward pass carries a NaN from the output towards the input, and clipping by a norm that is NaN spoils every
    gradient: so ask before clipping. Of several, the last in the model's order is nearest to where it began.

    Args:
        models: Name → module.
        optimizer: Where it has ``param_groups``, the group is named too.
    """
    named = [
        (f"{model}.{name}" if len(models) > 1 else name, parameter)
        for model, module in models.items()
        for name, parameter in module.named_parameters()
    ]
    weights = [(name, p) for name, p in named if not _finite(p)]
    if weights:
        name, parameter = weights[0]
        return (
            f"{len(weights)} of {len(named)} weights are not finite, the first is {name}"
            f"{_group(parameter, optimizer)} ({_count(parameter)})"
        )
    grads = [(name, p) for name, p in named if p.grad is not None]
    bad: List[Tuple[str, Any]] = [
        (name, p) for name, p in grads if p.grad is not None and not _finite(p.grad)
    ]
    if not bad:
        return ""
    if len(bad) == len(grads):
        name, parameter = bad[-1]
        return (
            f"all {len(grads)} gradients are not finite (from the loss on, or clipped before this was asked), "
            f"the last is {name}{_group(parameter, optimizer)} ({_count(parameter.grad)})"
        )
    name, parameter = bad[-1]
    return (
        f"{len(bad)} of {len(grads)} gradients are not finite, nearest to the loss is {name}"
        f"{_group(parameter, optimizer)} ({_count(parameter.grad)})"
    )


def _finite(tensor: torch.Tensor) -> bool:
    return bool(torch.isfinite(tensor.detach()).all())


def _count(tensor: torch.Tensor) -> str:
    values = tensor.detach()
    nan, bad = int(torch.isnan(values).sum()), int((~torch.isfinite(values)).sum())
    return f"{nan} NaN and {bad - nan} infinite of {values.numel()}"


def _group(parameter: Any, optimizer: Any) -> str:
    for number, group in enumerate(getattr(optimizer, "param_groups", ())):
        if any(entry is parameter for entry in group["params"]):
            label = group.get("name")
            return f" of parameter group {number}" + (f" ({label})" if label else "")
    return ""
