"""Small choices in putting a run together: which parts it has, and what saves their state."""

from __future__ import annotations

import os
from typing import Callable, Dict, Mapping, Optional, Set, Union

from torch.optim.swa_utils import AveragedModel

from rgt_train.arena_persister import ArenaPersister
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
