"""Which parameters are trained: what a run froze or unfroze on its way must hold after a resume as well."""

from __future__ import annotations

from typing import Container, Dict, List, Mapping, Sequence

import torch

from rgt_train import keys

_SHOWN = 3


def flags(models: Mapping[str, torch.nn.Module]) -> Dict[str, List[str]]:
    """Return model → names of its parameters that take no gradient."""
    return {
        name: [key for key, parameter in keys.parameters(model) if not parameter.requires_grad]
        for name, model in models.items()
    }


def put_back(models: Mapping[str, torch.nn.Module], saved: Mapping[str, Sequence[str]]) -> List[str]:
    """Let the parameters take gradients as they did when `flags` was asked; return what that changed, in words."""
    changed: Dict[bool, List[str]] = {False: [], True: []}
    for name, frozen in saved.items():
        for key, parameter in keys.parameters(models[name]):
            wanted = key not in frozen
            if parameter.requires_grad != wanted:
                parameter.requires_grad_(wanted)
                changed[wanted].append(key)
    return [_words(how, names) for how, names in zip(("frozen", "trained"), changed.values()) if names]  # noqa: B905


def unlock(models: Mapping[str, torch.nn.Module], names: Container[str]) -> None:
    """Let the parameters `names` take gradients, whatever is wanted of them later."""
    for model in models.values():
        for key, parameter in keys.parameters(model):
            if key in names:
                parameter.requires_grad_(True)


def _words(how: str, names: Sequence[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    plural = "s" if len(names) > 1 else ""
    return f"requires_grad ({len(names)} parameter{plural} {how} again: {', '.join(names[:_SHOWN])}{more})"
