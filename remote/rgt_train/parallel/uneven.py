"""Inputs of different length on each rank, under torch's ``Join``.

A rank whose data have ended takes part in the others' reductions, but not in their optimizer steps. At the end ``Join``
gives it the weights of the rank that went on longest; its moments would still be the old ones, and the replicas would
part at the next step. So the state of the optimizers comes from the same rank.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import Any, Iterator, Mapping

import torch
import torch.distributed as dist
from torch.distributed.algorithms.join import Join, Joinable, JoinHook

from rgt_train.state import Stateful


class _Level(Joinable):
    def __init__(self, model: Any, parts: Mapping[str, Stateful]) -> None:
        super().__init__()
        self._model, self.parts = model, parts

    def join_hook(self, **kwargs: Any) -> JoinHook:
        return _Hook(self)

    @property
    def join_device(self) -> torch.device:
        found: torch.device = self._model.join_device
        return found

    @property
    def join_process_group(self) -> Any:
        return self._model.join_process_group


class _Hook(JoinHook):
    def __init__(self, level: _Level) -> None:
        self._level = level

    def post_hook(self, is_last_joiner: bool) -> None:
        """Take over the states of the highest rank among those that went on longest: `Join` took its weights."""
        group, parts = self._level.join_process_group, self._level.parts
        rank = dist.get_rank(group)
        root = torch.tensor(rank if is_last_joiner else -1, device=self._level.join_device)
        dist.all_reduce(root, op=dist.ReduceOp.MAX, group=group)
        held = [{name: part.state_dict() for name, part in parts.items()} if rank == int(root) else None]
        source = dist.get_global_rank(group, int(root))
        dist.broadcast_object_list(held, src=source, group=group, device=self._level.join_device)
        if rank != int(root):
            for name, state in (held[0] or {}).items():
                parts[name].load_state_dict(state)


@contextmanager
def joined(model: Any, parts: Mapping[str, Stateful]) -> Iterator[None]:
    """Let the ranks make different numbers of steps.

    Args:
        model: The ``DistributedDataParallel`` model.
        parts: Optimizers and schedulers, by name, that step with it.
    """
    with Join([model, _Level(model, parts)]):
        yield
