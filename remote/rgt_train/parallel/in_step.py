"""The desync guard: before a save, do all ranks stand at the same step, with the same bits in what they replicate?

A save is made of parts of several ranks, or of one replica that stands for all. If the ranks have drifted apart, such a
checkpoint would be wrong without looking wrong, so the run ends with the name of the rank and of the first tensor.

Buffers and their averages are not compared: batch normalisation's statistics differ between the ranks until the next
forward, when `DistributedDataParallel` sends those of rank 0 to all.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any, Dict, List, Mapping, Sequence, Tuple

import torch

from rgt_train import keys, tree
from rgt_train.averages import by_name
from rgt_train.parallel import fingerprint
from rgt_train.ranks import Ranks

Prints = Dict[str, int]
SHARD = "@"
"""Stands between the name of a tensor and which shard of it is meant."""


def differences(
    ranks: Ranks,
    step: int,
    models: Mapping[str, torch.nn.Module],
    optimizers: Mapping[str, Any],
    averaging: Mapping[str, Any],
) -> List[str]:
    """Compare the ranks. Collective; the same answer on every rank.

    Args:
        ranks: Who is compared.
        step: Where this rank stands.
        models: Name → module; its parameters are compared, shards with the same shard of another replica.
        optimizers: Name → anything with `state_dict`; its tensors are compared.
        averaging: Name → anything with `state_dict` that keeps averages; those of parameters are compared.

    Returns:
        What differs, in words, by rank; empty where all are in step.
    """
    return judge(ranks.all_gather((step, prints(models, optimizers, averaging))))


def prints(
    models: Mapping[str, torch.nn.Module], optimizers: Mapping[str, Any], averaging: Mapping[str, Any]
) -> Prints:
    """Return the fingerprint of each parameter, its average, and each tensor of an optimizer.

    That of a shard says which one it is. A state that cannot be taken apart is left to the save, which says so.
    """
    found: Prints = {}

    def put(path: str, tensor: torch.Tensor) -> str:
        local, shard = part_of(tensor)
        found[path + shard] = fingerprint.of_tensor(local)
        return path

    for name, model in models.items():
        for key, parameter in keys.parameters(model):
            put(f"{name}/{key}", parameter)
    for name, optimizer in optimizers.items():
        with suppress(tree.CannotStore):
            tree.encode(optimizer.state_dict(), put, name)
    for name, keeper in averaging.items():
        for model in models.values():
            for key, average in by_name(keeper.state_dict(), dict(keys.parameters(model))).items():
                put(f"{name}/{key}", average)
    return found


def part_of(tensor: Any) -> Tuple[torch.Tensor, str]:
    """Return what this rank holds of a tensor, and which shard that is: empty for a whole one."""
    if fingerprint.local(tensor):
        return tensor, ""
    place = tensor.device_mesh.get_coordinate() or ()
    where = [str(at) for at, how in zip(place, tensor.placements) if how.is_shard()]  # noqa: B905  as long as the mesh
    return tensor.to_local(), SHARD + ".".join(where) if where else ""


def judge(seen: Sequence[Tuple[int, Prints]]) -> List[str]:
    """Say in words how the ranks differ.

    Args:
        seen: By rank: the step it is at, and its fingerprints.
    """
    out: List[str] = []
    first: Dict[str, Tuple[int, int]] = {}
    whole = {name for name in seen[0][1] if SHARD not in name}
    for rank, (step, found) in enumerate(seen):
        if step != seen[0][0]:
            out.append(f"rank {rank} is at step {step}, rank 0 at step {seen[0][0]}")
            continue
        names = sorted(whole ^ {name for name in found if SHARD not in name})
        if names:
            out.append(f"rank {rank} and rank 0 do not have the same tensors: {names[0]}{_more(names)}")
            continue
        names = [name for name in found if first.setdefault(name, (rank, found[name]))[1] != found[name]]
        if names:
            other = first[names[0]][0]
            out.append(f"rank {rank} has other bits than rank {other} in {names[0]}{_more(names)}")
    return out


def _more(names: Sequence[str]) -> str:
    return f" and {len(names) - 1} more" if len(names) > 1 else ""
