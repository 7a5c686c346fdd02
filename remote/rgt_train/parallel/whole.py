"""The weights of a sharded checkpoint put together by one process, without any ranks."""

from __future__ import annotations

import warnings
from typing import Any, Dict, Mapping

import torch
from torch.distributed.checkpoint.state_dict_loader import load as load_sharded

from rgt_train.parallel.safe_reader import SafeReader, tensors_in


def weights(directory: str, document: Mapping[str, Any]) -> Dict[str, Dict[str, torch.Tensor]]:
    """Return by model the weights and buffers in a checkpoint whose bytes have been verified.

    Args:
        directory: The checkpoint.
        document: What it has beside the tensors.

    Raises:
        Damaged: Its metadata are not what a checkpoint has.
    """
    reader = SafeReader(directory)
    names = tuple(f"{model}/" for model in document["models"])
    found = {
        name: torch.empty(entry.size, dtype=entry.properties.dtype)
        for name, entry in tensors_in(reader).items()
        if name.startswith(names)
    }
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*single process.*")  # just what is meant
        load_sharded(dict(found), storage_reader=reader, no_dist=True)
    result: Dict[str, Dict[str, torch.Tensor]] = {model: {} for model in document["models"]}
    for name, tensor in found.items():
        model, _, key = name.partition("/")
        result[model][key] = tensor
    return result
