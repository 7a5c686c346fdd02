"""Small choices in putting a run together: which parts it has, and what saves their state."""

from __future__ import annotations

import copy
import os
from typing import Any, Callable, Dict, Mapping, MutableMapping, Optional, Set, Union

import torch
from torch.optim.swa_utils import AveragedModel

from rgt_train.arena_persister import ArenaPersister
from rgt_train.exits import UsageError
from rgt_train.lock import RunLock
from rgt_train.options import Options
from rgt_train.persister import Persister
from rgt_train.state import Stateful
from rgt_train.store import Store

BACKGROUND = "RGT_TRAIN_BACKGROUND"
"""Set to 0, the training waits for each save: for tests, and to look for the cause of trouble."""
Parts = Union[Stateful, Mapping[str, Stateful]]
"""One object with state, or several by name."""
MakePersister = Callable[[Store, RunLock, Options], Persister]


def arena_persister(store: Store, lock: RunLock, options: Options) -> Persister:
    """Return what saves a state that one process holds."""
    return ArenaPersister(store, [lock.fd], lock.note_helper, background=in_background(options))


def in_background(options: Options) -> bool:
    """Say whether saves go on beside the training."""
    return options.background and os.environ.get(BACKGROUND) != "0"


def counted(parts: Mapping[str, Stateful]) -> Set[str]:
    """Return the names of the averaged weights that are known to change by operations that torch counts.

    Of others it is not known: many keep their average up to date by ``.data``, which nobody notices. They are copied
    at once, unless their `counted` is True.
    """
    return {
        n
        for n, part in parts.items()
        if isinstance(part, AveragedModel) or getattr(part, "counted", None) is True
    }


def named(parts: Mapping[str, Optional[Parts]]) -> Dict[str, Stateful]:
    """Return the parts that there are, those of a mapping as ``optimizer.name``."""
    found: Dict[str, Stateful] = {}
    for name, part in parts.items():
        if isinstance(part, Mapping):
            found.update({f"{name}.{key}": value for key, value in part.items()})
        elif part is not None:
            found[name] = part
    return found


class OwnState:
    """A dictionary of a person's own values as something with state.

    Args:
        values: Plain values, and objects with `state_dict` and `load_state_dict`; a load changes it in place. What a
            checkpoint does not have stays as it is.
    """

    def __init__(self, values: MutableMapping[str, Any]) -> None:
        self._values = values

    def state_dict(self) -> Dict[str, Any]:
        """Return the values, of objects their state."""
        return {
            name: value.state_dict() if hasattr(value, "load_state_dict") else copy.deepcopy(value)
            for name, value in self._values.items()
        }

    def load_state_dict(self, state_dict: Dict[str, Any]) -> None:
        """Take the values over."""
        for name, value in state_dict.items():
            here = self._values.get(name)
            if here is not None and hasattr(here, "load_state_dict"):
                here.load_state_dict(value)
            else:
                self._values[name] = value


def own_state(extra: Any) -> Optional[Stateful]:
    """Return the state that a person gave as `extra`, as an object with state.

    Raises:
        UsageError: It is neither that nor a dictionary.
    """
    if extra is None or (hasattr(extra, "state_dict") and hasattr(extra, "load_state_dict")):
        found: Optional[Stateful] = extra
        return found
    if isinstance(extra, MutableMapping):
        return OwnState(extra)
    raise UsageError(
        f"extra is a {type(extra).__name__}: give a dictionary, or an object with state_dict and load_state_dict"
    )


def check(model: Any, parts: Mapping[str, Any], options: Options) -> None:
    """See that what a run is made of can be saved and loaded again.

    Raises:
        UsageError: Something is of a kind that cannot, or an option is out of its range.
    """
    models = model if isinstance(model, Mapping) else {"model": model}
    for name, module in models.items():
        if not isinstance(module, torch.nn.Module):
            raise UsageError(
                f"{name} is a {type(module).__name__}, not a torch.nn.Module (several go in by name)"
            )
    for kind, part in parts.items():
        named_parts = part if isinstance(part, Mapping) else {"": part}
        for name, one in named_parts.items():
            where = f"{kind} {name}".rstrip()
            if isinstance(one, (list, tuple)):
                raise UsageError(
                    f'{where} is a {type(one).__name__}: give several by name, as {kind}={{"a": …, "b": …}}, so that a '
                    "resume knows which is which"
                )
            if one is not None and not (hasattr(one, "state_dict") and hasattr(one, "load_state_dict")):
                raise UsageError(
                    f"{where} is a {type(one).__name__}, which has no state_dict and load_state_dict"
                )
            if type(one).__name__ == "ZeroRedundancyOptimizer":
                raise UsageError(
                    f"{where} is a ZeroRedundancyOptimizer, whose state is in parts on the ranks: use fully_shard "
                    "(FSDP2), or the plain optimizer"
                )
    for name, least in _LEAST.items():
        value = getattr(options, name)
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not value >= least:
            raise UsageError(f"Options({name}={value!r}): it must be a number, at least {least}")


_LEAST = {
    "save_every": 0, "keep": 1, "keep_hours": 0, "max_unsaved": 0, "hold_limit_s": 0, "log_every": 0, "pace_s": 0,
    "max_bad_steps": 1, "spike_factor": 0, "spike_window": 1, "stall_factor": 0, "stall_floor_s": 0, "desync_every": 0,
}  # fmt: skip
"""The least values of the options that are numbers."""
