"""The averaged weights that a run keeps, found in the saved state of whatever object of a person's keeps them.

Every library has a form of its own: ours has a mapping ``average``, `torch.optim.swa_utils.AveragedModel` is a module
whose names begin with ``module.``, others have a mapping ``shadow`` or the names at the top. What they have in common
are the names of the model's own weights, so these are looked for.
"""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, Tuple

import torch

from rgt_train.exits import UsageError

Weights = Dict[str, torch.Tensor]
PART = "ema"
"""The part of a run that keeps averages; ``ema.NAME`` where it was given several."""
_PREFIXES = ("module.", "_orig_mod.", "ema_model.")
"""What wrappers and keepers of averages put before a name."""
_DEPTH = 2
_SHOWN = 4


def parts(objects: Mapping[str, Any]) -> List[str]:
    """Return the names of the parts of a checkpoint that keep averages."""
    return sorted(name for name in objects if name == PART or name.startswith(f"{PART}."))


def replaced(models: Mapping[str, Weights], states: Mapping[str, Any]) -> Tuple[Dict[str, Weights], str]:
    """Return the weights with the averaged ones in place of those that were trained, and what they are, in words.

    Args:
        models: The trained weights by model.
        states: The saved state of each part that keeps averages.

    Raises:
        UsageError: Averages are kept in a form without names, or it is open which model they belong to.
    """
    found: Dict[str, Weights] = {}
    for part, state in states.items():
        model = _model_of(part, state, models)
        found[model] = by_name(state, models[model])
    result = {name: {**weights, **found.get(name, {})} for name, weights in models.items()}
    if all(set(weights) == set(found.get(name, {})) for name, weights in models.items()):
        return result, "averaged weights"
    return result, ", ".join(_told(name, weights, found.get(name, {})) for name, weights in models.items())


def _model_of(part: str, state: Any, models: Mapping[str, Weights]) -> str:
    """Return the model whose averages a part keeps: that of its name, else the one whose names it has."""
    own = part[len(PART) + 1 :]
    fitting = [name for name in ([own] if own in models else models) if by_name(state, models[name])]
    if len(fitting) == 1:
        return fitting[0]
    why = f"fits {' and '.join(fitting)}" if fitting else "has no weights under the names of a model"
    raise UsageError(
        f"{part} keeps averaged weights, but {why}: --raw writes the weights that were trained instead"
    )


def by_name(state: Any, model: Mapping[str, torch.Tensor], depth: int = _DEPTH) -> Weights:
    """Return the tensors in `state` with name and shape of weights of `model`, from the place that has most of them.

    Args:
        state: What a part that keeps averages was saved as.
        model: The weights by name.
        depth: How many mappings within mappings to look into.
    """
    if not isinstance(state, Mapping):
        return {}
    found: Weights = {}
    for key, value in state.items():
        name = _bare(key, model)
        own = model.get(name)
        if isinstance(own, torch.Tensor) and isinstance(value, torch.Tensor) and value.shape == own.shape:
            found[name] = value
    inside = [by_name(value, model, depth - 1) for value in state.values()] if depth else []
    return max([found, *inside], key=len)


def _bare(key: Any, model: Mapping[str, torch.Tensor]) -> str:
    name = str(key)
    while name not in model and name.startswith(_PREFIXES):
        name = name.partition(".")[2]
    return name


def _told(name: str, weights: Weights, averaged: Weights) -> str:
    left = [key for key in weights if key not in averaged]
    if not averaged:
        return f"weights of {name} as trained"
    if not left:
        return f"averaged weights of {name}"
    more = f" and {len(left) - _SHOWN} more" if len(left) > _SHOWN else ""
    return f"averaged weights of {name} with {', '.join(left[:_SHOWN])}{more} as trained"
