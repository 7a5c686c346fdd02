"""Names of weights that do not depend on what a model is wrapped in.

`DistributedDataParallel` puts ``module.`` before every name, `torch.compile` puts ``_orig_mod.`` before or into it. A
checkpoint has the names of the bare model, so that it fits with and without them. Only what a wrapper really added is
taken away: a layer that a person called ``module`` keeps its name.
"""

from __future__ import annotations

from typing import Dict, Iterable, List, Mapping, Tuple

import torch

_WRAPPERS: "dict[str, str]" = {
    "DistributedDataParallel": "module",
    "DataParallel": "module",
    "FullyShardedDataParallel": "_fsdp_wrapped_module",
    "OptimizedModule": "_orig_mod",
    "CheckpointWrapper": "_checkpoint_wrapped_module",
}
"""Class of a wrapper → the attribute that holds what it wraps."""
_SHOWN = 8


def bare_names(model: torch.nn.Module) -> Dict[str, str]:
    """Return key of ``model.state_dict()`` → name in a checkpoint.

    Raises:
        ValueError: Two keys would get one name.
    """
    names = stripped(model, model.state_dict())
    taken: Dict[str, str] = {}
    for key, name in names.items():
        if name in taken:
            raise ValueError(f"{taken[name]} and {key} would both be saved as {name}")
        taken[name] = key
    return names


def stripped(model: torch.nn.Module, keys: Iterable[str]) -> Dict[str, str]:
    """Return key → the key without what wrappers in `model` have added to it.

    The names of parameters and buffers are not always keys of the state: some wrappers take their part out of those.
    """
    added = _added_prefixes(model)
    return {key: _bare(key, added) for key in keys}


def parameters(model: torch.nn.Module) -> List[Tuple[str, torch.nn.Parameter]]:
    """Return the bare name of each parameter, and the parameter."""
    named = dict(model.named_parameters())
    names = stripped(model, named)
    return [(names[key], parameter) for key, parameter in named.items()]


def compare(
    saved: Mapping[str, torch.Tensor], here: Mapping[str, torch.Tensor], names: Mapping[str, str]
) -> List[str]:
    """Return what keeps the tensors `saved` from fitting those that are `here`, a line each; empty if nothing.

    Args:
        saved: Bare name → tensor.
        here: Key → tensor.
        names: Key → bare name.
    """
    wanted = {names[key]: tensor for key, tensor in here.items()}
    problems: List[str] = []
    for kind, left, right in (("missing", wanted, saved), ("unexpected", saved, wanted)):
        absent = [name for name in left if name not in right]
        if absent:
            more = f" and {len(absent) - _SHOWN} more" if len(absent) > _SHOWN else ""
            problems.append(f"{len(absent)} {kind}: {', '.join(absent[:_SHOWN])}{more}")
    both = [(name, saved[name], tensor) for name, tensor in wanted.items() if name in saved]
    shapes = [
        f"{name} {tuple(old.shape)} → {tuple(new.shape)}" for name, old, new in both if old.shape != new.shape
    ]
    dtypes = [
        f"{name} {old.dtype} → {new.dtype}".replace("torch.", "")
        for name, old, new in both
        if old.dtype != new.dtype
    ]
    for kind, other in (("shape", shapes), ("dtype", dtypes)):
        if other:
            more = f" and {len(other) - _SHOWN} more" if len(other) > _SHOWN else ""
            problems.append(f"{len(other)} of another {kind}: {', '.join(other[:_SHOWN])}{more}")
    return problems


def _added_prefixes(model: torch.nn.Module) -> List[Tuple[str, str]]:
    """Return (path of a wrapper, component that it adds behind its path), the outermost first."""
    found = []
    for path, module in model.named_modules(remove_duplicate=False):
        for kind in type(module).__mro__:
            attribute = _WRAPPERS.get(kind.__name__)
            if attribute is not None and hasattr(module, attribute):
                found.append((path, attribute))
                break
    return sorted(set(found), key=lambda entry: len(entry[0]))


def _bare(key: str, added: List[Tuple[str, str]]) -> str:
    drop = set()
    parts = key.split(".")
    for path, attribute in added:
        depth = len(path.split(".")) if path else 0
        if parts[:depth] == (path.split(".") if path else []) and parts[depth : depth + 1] == [attribute]:
            drop.add(depth)
    return ".".join(part for number, part in enumerate(parts) if number not in drop)
