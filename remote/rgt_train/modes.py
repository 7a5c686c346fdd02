"""Evaluating in the middle of a training, and leaving everything as it was."""

from __future__ import annotations

from contextlib import contextmanager
from typing import Iterable, Iterator

import torch

from rgt_train import rng


@contextmanager
def evaluation(models: Iterable[torch.nn.Module]) -> Iterator[None]:
    """Switch to evaluation, without gradients; put back the mode of every module, and the random state.

    A module that was in evaluation mode in a model that trains (a frozen backbone) is so again afterwards.
    """
    models = list(models)
    modes = [(module, module.training) for model in models for module in model.modules()]
    state = rng.capture()
    try:
        for model in models:
            model.eval()
        with torch.no_grad():
            yield
    finally:
        roots = {id(model): model for model in models}
        for module, training in modes:
            if id(module) in roots:
                module.train(training)  # some do more than set a flag
        for module, training in modes:
            module.training = training
        rng.restore(state)
