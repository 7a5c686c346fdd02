"""A small causal transformer on documents of a built-in grammar: the language-model task.

A row holds pieces of documents. Each piece is a separate *segment*: its positions begin at 0, and
attention and labels stay inside it. The rest of a row is padding: an id that no text has, in no
segment, with no label.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass
from typing import Callable, Iterator, Sequence, cast

import torch
from torch import nn
from torch.nn import functional

from rgt_train.config import Config
from rgt_train.data.sampler import mix_bits
from rgt_train.exits import UsageError
from rgt_train.tasks import Scored

ALPHABET = "\n .,abcdefghijklmnopqrstuvwxyz"
"""The characters; the first one ends a document."""

_RULES: dict[str, tuple[str, ...]] = {
    "S": ("N V N P.", "P, N V N.", "N V N that V N.", "N V N and N V N."),
    "N": ("the A B", "a A B", "the B", "every B", "the A B of the B"),
    "A": (
        "old",
        "quiet",
        "green",
        "broken",
        "heavy",
        "early",
        "little",
        "narrow",
        "bright",
        "hungry",
    ),
    "B": (
        "river",
        "engine",
        "garden",
        "letter",
        "winter",
        "captain",
        "bridge",
        "lantern",
        "market",
        "fox",
    ),
    "V": ("sees", "follows", "carries", "forgets", "paints", "hears", "leaves", "finds"),
    "P": ("near N", "before N", "under N", "without N", "after a long day"),
}


def documents(characters: int, seed: int) -> list[str]:
    """Return documents of one or two sentences with at least `characters` characters in all."""
    draw = random.Random(seed)  # its own generator: the global one belongs to the training
    found: list[str] = []
    size = 0
    while size < characters:
        document = _expand_symbol("S", draw)
        if draw.random() < 0.3:
            document += " " + _expand_symbol("S", draw)
        found.append(document)
        size += len(document) + 1
    return found


def _expand_symbol(symbol: str, draw: random.Random) -> str:
    # random() is stable over Python versions by its documentation; choice() is not.
    options = _RULES[symbol]
    rule = options[int(draw.random() * len(options))]
    return "".join(_expand_symbol(c, draw) if c in _RULES else c for c in rule)


IGNORE = -100
"""The label of a position that is not scored; `torch.nn.functional.cross_entropy` leaves it out by
default.
"""
NO_SEGMENT = -1


@dataclass(frozen=True)
class TokenRows:
    """Some rows, each tensor (rows, length), int64.

    Attributes:
        tokens: Inputs.
        labels: The next token after each input within its document, or `IGNORE`.
        positions: Position within the segment, from 0.
        segments: Number of the segment within the row, from 0, or `NO_SEGMENT` in padding.
    """

    tokens: torch.Tensor
    labels: torch.Tensor
    positions: torch.Tensor
    segments: torch.Tensor

    def __len__(self) -> int:
        return len(self.tokens)

    def select_rows(self, indices: Sequence[int]) -> "TokenRows":
        """Return the rows `indices`."""
        chosen = torch.as_tensor(indices, dtype=torch.int64)
        return TokenRows(
            self.tokens[chosen], self.labels[chosen], self.positions[chosen], self.segments[chosen]
        )

    def to(self, device: torch.device) -> "TokenRows":
        """Return the rows on `device`."""
        return TokenRows(
            *(t.to(device) for t in (self.tokens, self.labels, self.positions, self.segments))
        )

    @property
    def scored_count(self) -> int:
        """Number of positions with a label."""
        return int((self.labels != IGNORE).sum())


def pack_documents(
    documents: Sequence[Sequence[int]],
    length: int,
    end: int,
    pad: int,
    *,
    pack: bool,
    prompts: Sequence[int] = (),
) -> TokenRows:
    """Return `documents` as rows of `length`, padded on the right.

    Args:
        documents: Token ids of each, without begin or end.
        length: Length of a row; longer documents are cut into several pieces.
        end: The id that begins and ends a document.
        pad: The id of padding; no document may have it.
        pack: Whether documents share rows: each row is filled to its end, and a document is cut
            there, to continue in the next row as a separate segment. Otherwise each document begins
            a new row.
        prompts: Number of given, not learned, tokens at the start of each document; none by
            default.

    Raises:
        ValueError: A document holds the padding id, or `prompts` has another length than
            `documents`.
    """
    if prompts and len(prompts) != len(documents):
        raise ValueError(f"{len(documents)} documents have {len(prompts)} prompts")
    rows: list[_PackedRow] = []
    for number, document in enumerate(documents):
        if pad in document:
            raise ValueError(f"document {number} holds the padding id {pad}")
        given = 0
        if prompts:
            given = prompts[number]
        # The end goes in front as well: the first character is predicted from it.
        whole = [end, *document, end]
        start = 0
        last = len(whole) - 1
        while start < last:
            if not (pack and rows and rows[-1].free_positions):
                rows.append(_PackedRow(length, pad))
            stop = min(start + rows[-1].free_positions, last)
            # Of a document that is cut, a piece has only its own share of the prompt.
            hidden = max(0, min(given, stop) - start)
            rows[-1].append_piece(
                whole[start:stop], [IGNORE] * hidden + whole[start + 1 + hidden : stop + 1]
            )
            start = stop
    return _stack_rows(rows)


class _PackedRow:
    def __init__(self, length: int, pad: int) -> None:
        # The fields of `TokenRows`, in their order.
        self.columns = [
            [pad] * length,
            [IGNORE] * length,
            [0] * length,
            [NO_SEGMENT] * length,
        ]
        self._used = self._segments = 0

    @property
    def free_positions(self) -> int:
        """Number of tokens that still fit."""
        return len(self.columns[0]) - self._used

    def append_piece(self, tokens: list[int], labels: list[int]) -> None:
        """Append a piece that is not longer than `free_positions`."""
        size = len(tokens)
        at = self._used
        pieces = (tokens, labels, list(range(size)), [self._segments] * size)
        for column, piece in zip(self.columns, pieces):
            column[at : at + size] = piece
        self._used = at + size
        self._segments = self._segments + 1


def strided_windows(tokens: Sequence[int], length: int, stride: int, pad: int) -> TokenRows:
    """Return one long text as overlapping windows that score every token but the first once.

    Args:
        tokens: The text.
        length: Length of a window.
        stride: Distance to the next window; the rest of that one is context that is not scored
            again.
        pad: The id of padding, for the last window.
    """
    rows: list[_PackedRow] = []
    scored = 0
    for start in range(0, max(1, len(tokens) - 1), stride):
        piece = list(tokens[start : min(start + length, len(tokens) - 1)])
        labels = list(tokens[start + 1 : start + 1 + len(piece)])
        old = max(0, scored - start)
        row = _PackedRow(length, pad)
        row.append_piece(piece, [IGNORE] * old + labels[old:])
        rows.append(row)
        scored = start + len(piece)
        if scored >= len(tokens) - 1:
            break
    return _stack_rows(rows)


def _stack_rows(rows: Sequence[_PackedRow]) -> TokenRows:
    columns = [[row.columns[kind] for row in rows] for kind in range(4)]
    return TokenRows(*map(torch.tensor, columns))


def attention_mask(segments: torch.Tensor) -> torch.Tensor:
    """Return which position may attend to which, (rows, 1, length, length).

    These are the earlier ones of the same segment. Padding may attend to padding, so that no row of
    the softmax is empty.
    """
    length = segments.shape[1]
    causal = torch.ones(length, length, dtype=torch.bool, device=segments.device).tril()
    same = segments.unsqueeze(2) == segments.unsqueeze(1)
    return (same & causal).unsqueeze(1)


class TransformerBlock(nn.Module):
    """One pre-norm transformer block.

    Args:
        width: Channels.
        heads: Attention heads.
        dropout: Dropout probability.
    """

    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.heads = heads
        self.norm1 = nn.LayerNorm(width)
        self.norm2 = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )
        self.drop = nn.Dropout(dropout)

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """Map (batch, time, width) to the same shape.

        `mask` selects which positions attend to which.
        """
        b, t, c = x.shape
        projected = self.qkv(self.norm1(x))
        by_head = projected.view(b, t, 3, self.heads, c // self.heads)
        q, k, v = by_head.permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        joined = mixed.transpose(1, 2).reshape(b, t, c)
        x = x + self.drop(self.out(joined))
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
        self.token = nn.Embedding(vocabulary, width)
        self.place = nn.Embedding(context, width)
        self.blocks = nn.ModuleList(TransformerBlock(width, heads, dropout) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocabulary)
        # As in GPT-2: torch's own deviation of 1 would drown what the blocks add.
        nn.init.normal_(self.token.weight, std=0.02)
        nn.init.normal_(self.place.weight, std=0.02)

    def forward(
        self, tokens: torch.Tensor, positions: torch.Tensor, segments: torch.Tensor
    ) -> torch.Tensor:
        """Map ids (batch, time) to logits (batch, time, vocabulary); see `rgt_train.tasks.char_lm`."""
        x = self.token(tokens) + self.place(positions)
        mask = attention_mask(segments)
        for block in self.blocks:
            x = block(x, mask)
        return cast(torch.Tensor, self.head(self.norm(x)))


@torch.no_grad()
def generate_ids(
    model: CharTransformer, prompts: Sequence[Sequence[int]], length: int, pad: int
) -> list[list[int]]:
    """Continue each of `prompts` by `length` ids, always the most likely one.

    The result is the same as for one prompt at a time. Prompts are padded on the left here, so that
    all of them end at the position that is continued.

    Raises:
        ValueError: Prompt and continuation are longer than the context that the model was trained
            with.
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
    padded = [[pad] * (longest - len(prompt)) + list(prompt) for prompt in prompts]
    rows = torch.tensor(padded, device=device)
    start = torch.tensor([[longest - len(p)] for p in prompts], device=device)
    for _ in range(length):
        # Padding on the left has negative places, which no embedding has.
        places = torch.arange(rows.shape[1], device=device) - start
        segments = torch.where(places < 0, NO_SEGMENT, 0)
        logits = model(rows, places.clamp(min=0), segments)[:, -1]
        logits[:, pad] = -torch.inf
        rows = torch.cat([rows, logits.argmax(dim=-1, keepdim=True)], dim=1)
    return [row[longest:].tolist() for row in rows]


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
            raise UsageError(
                f"width {config.int('width')} must be a multiple of heads {config.int('heads')}"
            )
        self._context = config.int("context")
        self._z = config.float("z_loss")
        seed = config.int("seed")
        pack = config.str("layout") == "pack"
        held_out = _encode_texts(documents(2 * _VALIDATION_ROWS * self._context, mix_bits(seed, 2)))
        rows = pack_documents(
            _encode_texts(documents(config.int("corpus"), mix_bits(seed, 1))),
            self._context,
            END,
            PAD,
            pack=pack,
        )
        # An incomplete packed row is the last one: without it the loss of every batch is a mean
        # over characters.
        if pack and len(rows) > 1:
            self._train = rows.select_rows(range(len(rows) - 1))
        else:
            self._train = rows
        # Validated on documents that begin at the start of a row, for any layout of the training.
        rows = pack_documents(held_out, self._context, END, PAD, pack=False)
        self._held_out = rows.select_rows(range(min(_VALIDATION_ROWS, len(rows))))
        self._long = [token for document in held_out[:40] for token in (END, *document)]
        self.samples = len(self._train)
        self._labels = self._train.scored_count / self.samples
        self.per_sample = max(1, round(self._labels))

    def model(self) -> nn.Module:
        """Return a new transformer."""
        c = self._config
        return CharTransformer(
            PAD + 1,
            c.int("width"),
            c.int("layers"),
            c.int("heads"),
            self._context,
            c.float("dropout"),
        )

    def loss(
        self,
        model: nn.Module,
        indices: list[int],
        seed_of: Callable[[int], int],
        device: torch.device,
    ) -> torch.Tensor:
        """Return the cross entropy in nats per character; nothing is augmented.

        It is divided by the average number of characters in a training row, not by the number in
        these rows: so it is a mean over rows, and parts of a batch, on several ranks or one after
        the other, add up to the whole batch.
        """
        nll, _, log_z = score_rows(model, self._train.select_rows(indices).to(device))
        if self._z and torch.is_grad_enabled():
            nll = nll + self._z * (log_z**2).sum()
        return nll / (len(indices) * self._labels)

    def validation(self, model: nn.Module, device: torch.device) -> Iterator[Scored]:
        """Yield sum and count of the losses of the characters of held-out documents."""
        for start in range(0, len(self._held_out), _BATCH):
            rows = self._held_out.select_rows(
                range(start, min(start + _BATCH, len(self._held_out)))
            )
            nll, count, _ = score_rows(model, rows.to(device))
            yield nll.item(), count

    def scores(self, model: nn.Module, device: torch.device) -> dict[str, float]:
        """Return the perplexity of a long text, in half-overlapping windows, each token once."""
        rows = strided_windows(self._long, self._context, max(1, self._context // 2), PAD)
        nll, count, _ = score_rows(model, rows.to(device))
        return {"long_perplexity": perplexity(float(nll), count)}


def score_rows(model: nn.Module, rows: TokenRows) -> tuple[torch.Tensor, int, torch.Tensor]:
    """Return the summed loss of labelled positions, their number, and softmax log-normalisers."""
    logits = model(rows.tokens, rows.positions, rows.segments).flatten(0, 1)
    labels = rows.labels.flatten()
    nll = functional.cross_entropy(logits, labels, ignore_index=IGNORE, reduction="sum")
    return nll, rows.scored_count, torch.logsumexp(logits[labels != IGNORE], dim=-1)


def perplexity(nll: float, count: int) -> float:
    """Return the exponential of the mean loss of `count` scored characters."""
    # Above 709 it would overflow: a diverged model must not end the run by its validation.
    return math.exp(min(nll / max(1, count), 700.0))


def _encode_texts(texts: list[str]) -> list[list[int]]:
    table = {character: number for number, character in enumerate(ALPHABET)}
    return [[table[character] for character in text] for text in texts]
