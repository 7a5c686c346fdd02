"""A small causal transformer on text from a built-in grammar: the language-model task."""

from __future__ import annotations

from typing import Callable, Iterator, List, cast

import torch
from torch import nn
from torch.nn import functional

from rgt_train.config.merge import Config
from rgt_train.exits import UsageError
from rgt_train.sampler import mix
from rgt_train.tasks.grammar import ALPHABET, text


class Block(nn.Module):
    """One pre-norm transformer block with causal attention.

    Args:
        width: Channels.
        heads: Attention heads.
        dropout: Dropout probability.
    """

    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
        self.drop = nn.Dropout(dropout)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Map (batch, time, width) to the same shape."""
        b, t, c = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(b, t, 3, self.heads, c // self.heads).permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.drop(self.out(mixed.transpose(1, 2).reshape(b, t, c)))
        return cast(torch.Tensor, x + self.drop(self.mlp(self.norm2(x))))


class CharTransformer(nn.Module):
    """Predicts the next character.

    Args:
        vocabulary: Number of characters.
        width: Channels.
        layers: Blocks.
        heads: Attention heads.
        context: Longest input, in characters.
        dropout: Dropout probability.
    """

    def __init__(
        self, vocabulary: int, width: int, layers: int, heads: int, context: int, dropout: float
    ) -> None:
        super().__init__()
        self.token, self.place = nn.Embedding(vocabulary, width), nn.Embedding(context, width)
        self.blocks = nn.Sequential(*(Block(width, heads, dropout) for _ in range(layers)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary)
        nn.init.normal_(self.token.weight, std=0.02)
        nn.init.normal_(self.place.weight, std=0.02)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Map token ids (batch, time) to logits (batch, time, vocabulary)."""
        places = torch.arange(tokens.shape[1], device=tokens.device)
        return cast(torch.Tensor, self.head(self.norm(self.blocks(self.token(tokens) + self.place(places)))))


class CharLM:
    """Windows of generated text; a sample is the window that starts at its index.

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
        self._context = self.per_sample = config.int("context")
        seed = config.int("seed")
        self._train = _encode(text(config.int("corpus"), mix(seed, 1)))
        self._held_out = _encode(text(8 * 16 * self._context + 1, mix(seed, 2)))
        self.samples = len(self._train) - self._context

    def model(self) -> nn.Module:
        """Return a new transformer."""
        c = self._config
        return CharTransformer(
            len(ALPHABET), c.int("width"), c.int("layers"), c.int("heads"), self._context, c.float("dropout")
        )

    def loss(
        self, model: nn.Module, indices: List[int], seed_of: Callable[[int], int], device: torch.device
    ) -> torch.Tensor:
        """Return the mean cross entropy in nats a character; nothing is augmented."""
        starts = torch.tensor(indices).unsqueeze(1)
        return _cross_entropy(model, self._train[starts + torch.arange(self._context + 1)].to(device))

    def validation(self, model: nn.Module, device: torch.device) -> Iterator[float]:
        """Yield the loss of 8 batches of 16 windows of text that is not trained on."""
        starts = torch.arange(0, 8 * 16) * self._context
        for batch in starts.view(8, 16, 1):
            windows = self._held_out[batch + torch.arange(self._context + 1)].to(device)
            yield float(_cross_entropy(model, windows))


def _cross_entropy(model: nn.Module, windows: torch.Tensor) -> torch.Tensor:
    logits = model(windows[:, :-1])
    return functional.cross_entropy(logits.flatten(0, 1), windows[:, 1:].flatten())


def _encode(characters: str) -> torch.Tensor:
    table = {character: number for number, character in enumerate(ALPHABET)}
    return torch.tensor([table[character] for character in characters])
