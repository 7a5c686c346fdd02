"""What a sharded checkpoint holds, put together by one process, without any ranks."""

from __future__ import annotations

import warnings
from typing import Any, Dict, Iterable, Mapping, Sequence

import torch
from torch.distributed.checkpoint.state_dict_loader import load as load_sharded

from rgt_train import tree
from rgt_train.parallel.safe_reader import SafeReader, tensors_in
from rgt_train.parallel.sharded_state import OBJECTS


def weights(directory: str, document: Mapping[str, Any]) -> Dict[str, Dict[str, torch.Tensor]]:
    """Return by model the weights and buffers in a checkpoint whose bytes have been verified.

    Args:
        directory: The checkpoint.
        document: What it has beside the tensors.

    Raises:
        Damaged: Its metadata are not what a checkpoint has.
    """
    found = _read(directory, [f"{model}/" for model in document["models"]])
    result: Dict[str, Dict[str, torch.Tensor]] = {model: {} for model in document["models"]}
    for name, tensor in found.items():
        model, _, key = name.partition("/")
        result[model][key] = tensor
    return result


def objects(directory: str, document: Mapping[str, Any], names: Iterable[str]) -> Dict[str, Any]:
    """Return by name the saved state of parts that are neither models nor optimizers.

    Args:
        directory: The checkpoint.
        document: What it has beside the tensors.
        names: Which parts.

    Raises:
        Damaged: Its metadata are not what a checkpoint has.
    """
    wanted = sorted(names)
    found = _read(directory, [f"{OBJECTS}{name}/" for name in wanted]) if wanted else {}
    return {name: tree.decode(document["objects"][name], lambda key: found[OBJECTS + key]) for name in wanted}


def _read(directory: str, prefixes: Sequence[str]) -> Dict[str, torch.Tensor]:
    reader = SafeReader(directory)
    found = {
        name: torch.empty(entry.size, dtype=entry.properties.dtype)
        for name, entry in tensors_in(reader).items()
        if name.startswith(tuple(prefixes))
    }
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*single process.*")  # just what is meant
        load_sharded(dict(found), storage_reader=reader, no_dist=True)
    return found
