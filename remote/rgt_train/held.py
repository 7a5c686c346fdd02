"""The end of an epoch as it was, kept while the person's code does what comes after the last step.

A checkpoint at the last step of an epoch is made before the scheduler of the epoch steps and before the validation: a
resume does both again. A save that is asked for later (by a signal in the validation, for a new best) must therefore
not hold a scheduler that has stepped already, or it would step twice. What is small is kept as it was; weights, moments
and averages are not copied, but it is noticed where they change.
"""

from __future__ import annotations

import copy
from contextlib import contextmanager
from typing import Any, Dict, Iterator, List, Mapping, Set, Tuple

import torch

from rgt_train.copying import Witness, version_of

_SHOWN = 3


class Held:
    """The state right after the last step of an epoch.

    Args:
        models: Name → module.
        others: Name → optimizer, scheduler, scaler, EMA, ….
        small: Names of the `others` that are kept as they are (schedulers, scalers).
        optimizers: Names of those whose hyperparameters are kept.
        random: The random state.
    """

    def __init__(
        self,
        models: Mapping[str, torch.nn.Module],
        others: Mapping[str, Any],
        small: Set[str],
        optimizers: Set[str],
        random: Dict[str, Any],
    ) -> None:
        self.random = random
        self._objects = {name: copy.deepcopy(others[name].state_dict()) for name in small}
        self._groups: List[Tuple[Dict[str, Any], Dict[str, Any]]] = []
        for name in sorted(optimizers):
            for group in getattr(others[name], "param_groups", []):
                kept = {key: value for key, value in group.items() if key != "params"}
                self._groups.append((group, copy.deepcopy(kept)))
        self._parts = {name: part for name, part in {**others, **models}.items() if name not in small}
        found = self._look()
        self._versions = {path: version_of(tensor) for path, tensor in found.items()}
        self._witness = Witness([_local(tensor) for tensor in found.values()])
        for window, held in self._witness.moves:
            held.copy_(window)

    def of(self, name: str, part: Any) -> Dict[str, Any]:
        """Return the state of a part: what was kept, else what it is now."""
        if name in self._objects:
            return dict(self._objects[name])
        state: Dict[str, Any] = part.state_dict()
        return state

    @contextmanager
    def settings(self) -> Iterator[None]:
        """Give the optimizers the hyperparameters that were kept, for a moment."""
        now = [({key: group[key] for key in kept if key in group}, group) for group, kept in self._groups]
        try:
            for group, kept in self._groups:
                group.update(kept)
            yield
        finally:
            for values, group in now:
                group.update(values)

    def changed(self) -> str:
        """Return which tensors have changed since, as far as known, in words; empty if none."""
        now = self._look()
        names = [path for path in self._versions if path not in now]
        if not names:
            others = self._witness.others([_local(now[path]) for path in self._versions])
            unlike = {list(self._versions)[number] for number in others}
            told = self._versions.items()
            names = [path for path, version in told if path in unlike or version_of(now[path]) != version]
        more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
        return ", ".join(names[:_SHOWN]) + more

    def _look(self) -> Dict[str, torch.Tensor]:
        return {
            path: tensor
            for name, part in self._parts.items()
            for path, tensor in _tensors(name, part.state_dict())
        }


def _local(tensor: Any) -> torch.Tensor:
    """Return the memory that stands for `tensor` here: this rank's part of a sharded one, none where it has none."""
    found: torch.Tensor = tensor.to_local() if hasattr(tensor, "to_local") else tensor
    plain = found.layout is torch.strided and not found.is_meta and not hasattr(found, "__tensor_flatten__")
    return found if plain else torch.empty(0)


def _tensors(path: str, value: Any) -> Iterator[Tuple[str, torch.Tensor]]:
    if isinstance(value, torch.Tensor):
        yield path, value
    elif isinstance(value, Mapping):
        for key, entry in value.items():
            yield from _tensors(f"{path}/{key}", entry)
    elif isinstance(value, (list, tuple)):
        for number, entry in enumerate(value):
            yield from _tensors(f"{path}/{number}", entry)
