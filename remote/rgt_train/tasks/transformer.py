"""A small causal transformer that keeps to the segments of a row."""

from __future__ import annotations

from typing import List, Sequence, cast

import torch
from torch import nn
from torch.nn import functional

from rgt_train.tasks.rows import NO_SEGMENT, allowed


class Block(nn.Module):
    """One pre-norm transformer block.

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

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """Map (batch, time, width) to the same shape; `mask` says who may attend to whom."""
        b, t, c = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(b, t, 3, self.heads, c // self.heads).permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        x = x + self.drop(self.out(mixed.transpose(1, 2).reshape(b, t, c)))
        return cast(torch.Tensor, x + self.drop(self.mlp(self.norm2(x))))


class CharTransformer(nn.Module):
    """Predicts the next character.

    Args:
        vocabulary: Number of ids, padding included.
        width: Channels.
        layers: Blocks.
        heads: Attention heads.
        context: Longest segment, in characters.
        dropout: Dropout probability.
    """

    def __init__(
        self, vocabulary: int, width: int, layers: int, heads: int, context: int, dropout: float
    ) -> None:
        super().__init__()
        self.context = context
        self.token, self.place = nn.Embedding(vocabulary, width), nn.Embedding(context, width)
        self.blocks = nn.ModuleList(Block(width, heads, dropout) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary)
        nn.init.normal_(self.token.weight, std=0.02)
        nn.init.normal_(self.place.weight, std=0.02)

    def forward(self, tokens: torch.Tensor, positions: torch.Tensor, segments: torch.Tensor) -> torch.Tensor:
        """Map ids (batch, time) to logits (batch, time, vocabulary); see `rgt_train.tasks.rows`."""
        x = self.token(tokens) + self.place(positions)
        mask = allowed(segments)
        for block in self.blocks:
            x = block(x, mask)
        return cast(torch.Tensor, self.head(self.norm(x)))


@torch.no_grad()
def generate(
    model: CharTransformer, prompts: Sequence[Sequence[int]], length: int, pad: int
) -> List[List[int]]:
    """Continue each of `prompts` by `length` ids, always the most likely one; gives the same as one at a time.

    Prompts are padded on the left here, so that all of them end at the position that is continued.

    Raises:
        ValueError: Prompt and continuation are longer than the context that the model was trained with.
    """
    longest = max(len(prompt) for prompt in prompts)
    if longest + length > model.context + 1:
        raise ValueError(
            f"{longest} ids and {length} more need a context of {longest + length - 1}, "
            f"the model was trained with {model.context}: positions beyond it mean nothing to it"
        )
    if not all(prompts):
        raise ValueError("a prompt is empty: begin it with the id that begins a document")
    device = model.token.weight.device
    rows = torch.tensor([[pad] * (longest - len(p)) + list(p) for p in prompts], device=device)
    start = torch.tensor([[longest - len(p)] for p in prompts], device=device)
    for _ in range(length):
        places = torch.arange(rows.shape[1], device=device) - start
        segments = torch.where(places < 0, NO_SEGMENT, 0)
        logits = model(rows, places.clamp(min=0), segments)[:, -1]
        logits[:, pad] = -torch.inf
        rows = torch.cat([rows, logits.argmax(dim=-1, keepdim=True)], dim=1)
    return [row[longest:].tolist() for row in rows]
