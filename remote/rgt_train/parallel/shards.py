"""The state of sharded models and their optimizers, by parameter names: the same on any number of ranks.

torch's own functions give each tensor under its fully qualified name, whatever wraps the module, as a `DTensor` that
knows which part of it this rank holds. Plain values (learning rates, betas) are kept apart from the tensors: they go
into a file that loads without building objects.
"""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, Tuple

import torch
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_optimizer_state_dict,
    set_model_state_dict,
    set_optimizer_state_dict,
)

from rgt_train.exits import UsageError

FLAT = StateDictOptions(flatten_optimizer_state_dict=True)

Tensors = Dict[str, torch.Tensor]
Plain = Dict[str, Any]


def collect(
    models: Mapping[str, torch.nn.Module], optimizers: Mapping[str, Tuple[str, torch.optim.Optimizer]]
) -> Tuple[Tensors, Plain]:
    """Return the tensors and the plain values of models and optimizers. Collective.

    Args:
        models: The modules by name.
        optimizers: By name: the name of the module whose parameters it changes, and the optimizer.

    Returns:
        (tensors by ``NAME/KEY``, plain values likewise).
    """
    tensors: Tensors = {}
    plain: Plain = {}
    for name, model in models.items():
        _sort(name, get_model_state_dict(model), tensors, plain)
    for name, (owner, optimizer) in optimizers.items():
        _sort(name, get_optimizer_state_dict(models[owner], optimizer, options=FLAT), tensors, plain)
    return tensors, plain


def put_back(
    models: Mapping[str, torch.nn.Module],
    optimizers: Mapping[str, Tuple[str, torch.optim.Optimizer]],
    tensors: Tensors,
    plain: Plain,
) -> None:
    """Put a loaded state into models and optimizers. Collective.

    Raises:
        UsageError: It does not fit them; the message lists what is missing and what is too much.
    """
    both: Dict[str, Any] = {**tensors, **plain}
    for name, model in models.items():
        problems(name, _of(both, name), get_model_state_dict(model))
        set_model_state_dict(model, _of(both, name))
    for name, (owner, optimizer) in optimizers.items():
        try:
            set_optimizer_state_dict(models[owner], optimizer, _of(both, name), options=FLAT)
        except (RuntimeError, KeyError, ValueError, AssertionError) as error:
            raise UsageError(f"{name} of the checkpoint does not fit this {name}: {error}") from error


def problems(name: str, saved: Mapping[str, Any], here: Mapping[str, Any]) -> None:
    """Compare the names of two states.

    Raises:
        UsageError: They differ.
    """
    missing, extra = sorted(set(here) - set(saved)), sorted(set(saved) - set(here))
    if missing or extra:
        raise UsageError(f"{name} does not fit: missing {listed(missing)}; unexpected {listed(extra)}")


def listed(names: List[str], most: int = 8) -> str:
    """Return some names and how many there are besides."""
    if not names:
        return "nothing"
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def _sort(name: str, state: Mapping[str, Any], tensors: Tensors, plain: Plain) -> None:
    for key, value in state.items():
        if isinstance(value, torch.Tensor):
            tensors[f"{name}/{key}"] = value
        else:
            plain[f"{name}/{key}"] = value


def _of(state: Mapping[str, Any], name: str) -> Dict[str, Any]:
    start = name + "/"
    return {key[len(start) :]: value for key, value in state.items() if key.startswith(start)}
