"""A small causal transformer on documents of a built-in grammar: the language-model task."""

from __future__ import annotations

import math
from typing import Callable, Dict, Iterator, List, Tuple

import torch
from torch import nn
from torch.nn import functional

from rgt_train.config.merge import Config
from rgt_train.exits import UsageError
from rgt_train.sampler import mix
from rgt_train.tasks.base import Scored
from rgt_train.tasks.grammar import ALPHABET, documents
from rgt_train.tasks.rows import IGNORE, Rows, lay_out, strided
from rgt_train.tasks.transformer import CharTransformer

END = 0
PAD = len(ALPHABET)
_VALIDATION_ROWS, _BATCH = 128, 16


class CharLM:
    """Rows of generated documents; a sample is a row.

    Args:
        config: The values of the run.

    Raises:
        UsageError: `width` is not a multiple of `heads`.
    """

    unit = "tok"

    def __init__(self, config: Config) -> None:
        self._config = config
        if config.int("width") % config.int("heads"):
            raise UsageError(f"width {config.int('width')} must be a multiple of heads {config.int('heads')}")
        self._context, self._z = config.int("context"), config.float("z_loss")
        seed, pack = config.int("seed"), config.str("layout") == "pack"
        held_out = _encode(documents(2 * _VALIDATION_ROWS * self._context, mix(seed, 2)))
        rows = lay_out(
            _encode(documents(config.int("corpus"), mix(seed, 1))), self._context, END, PAD, pack=pack
        )
        # A packed row that is not full is the last one: without it the loss of every batch is a mean over characters.
        self._train = rows.at(range(len(rows) - 1)) if pack and len(rows) > 1 else rows
        # Judged on documents that begin where a row begins, whatever the layout of the training.
        rows = lay_out(held_out, self._context, END, PAD, pack=False)
        self._held_out = rows.at(range(min(_VALIDATION_ROWS, len(rows))))
        self._long = [token for document in held_out[:40] for token in (END, *document)]
        self.samples = len(self._train)
        self._labels = self._train.scored / self.samples
        self.per_sample = max(1, round(self._labels))

    def model(self) -> nn.Module:
        """Return a new transformer."""
        c = self._config
        return CharTransformer(
            PAD + 1, c.int("width"), c.int("layers"), c.int("heads"), self._context, c.float("dropout")
        )

    def loss(
        self, model: nn.Module, indices: List[int], seed_of: Callable[[int], int], device: torch.device
    ) -> torch.Tensor:
        """Return the cross entropy in nats a character; nothing is augmented.

        It is divided by the characters that a row of the training has on average, not by those of these rows: so it is
        a mean over rows, and parts of a batch, on several ranks or one after the other, add up to the whole batch.
        """
        nll, _, log_z = score(model, self._train.at(indices).to(device))
        if self._z and torch.is_grad_enabled():
            nll = nll + self._z * (log_z**2).sum()
        return nll / (len(indices) * self._labels)

    def validation(self, model: nn.Module, device: torch.device) -> Iterator[Scored]:
        """Yield sum and count of the losses of the characters of documents that are not trained on."""
        for start in range(0, len(self._held_out), _BATCH):
            rows = self._held_out.at(range(start, min(start + _BATCH, len(self._held_out))))
            nll, count, _ = score(model, rows.to(device))
            yield nll.item(), count

    def scores(self, model: nn.Module, device: torch.device) -> Dict[str, float]:
        """Return the perplexity of a long text, read in windows that overlap by half and count nothing twice."""
        rows = strided(self._long, self._context, max(1, self._context // 2), PAD)
        nll, count, _ = score(model, rows.to(device))
        return {"long_perplexity": perplexity(float(nll), count)}


def score(model: nn.Module, rows: Rows) -> Tuple[torch.Tensor, int, torch.Tensor]:
    """Return the summed loss of the labelled positions, their number, and the log of each softmax's normaliser."""
    logits = model(rows.tokens, rows.positions, rows.segments).flatten(0, 1)
    labels = rows.labels.flatten()
    nll = functional.cross_entropy(logits, labels, ignore_index=IGNORE, reduction="sum")
    return nll, rows.scored, torch.logsumexp(logits[labels != IGNORE], dim=-1)


def perplexity(nll: float, count: int) -> float:
    """Return the exponential of the mean loss of `count` scored characters."""
    return math.exp(min(nll / max(1, count), 700.0))


def _encode(texts: List[str]) -> List[List[int]]:
    table = {character: number for number, character in enumerate(ALPHABET)}
    return [[table[character] for character in text] for text in texts]
