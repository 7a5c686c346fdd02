"""Documents as rows of equal length: packed or padded, with labels that leave out what must not be learned.

A row holds pieces of documents. Each piece is a *segment* of its own: its positions begin at 0, and attention and
labels stay inside it. What fills up a row is padding: an id that no text has, in no segment, with no label.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import List, Sequence

import torch

IGNORE = -100
"""The label of a position that is not scored; `torch.nn.functional.cross_entropy` leaves it out by default."""
NO_SEGMENT = -1


@dataclass(frozen=True)
class Rows:
    """Some rows, each tensor (rows, length), int64.

    Attributes:
        tokens: Inputs.
        labels: What follows each input within its document, or `IGNORE`.
        positions: Place within the segment, from 0.
        segments: Number of the segment within the row, from 0, or `NO_SEGMENT` in padding.
    """

    tokens: torch.Tensor
    labels: torch.Tensor
    positions: torch.Tensor
    segments: torch.Tensor

    def __len__(self) -> int:
        return len(self.tokens)

    def at(self, indices: Sequence[int]) -> "Rows":
        """Return the rows `indices`."""
        chosen = torch.as_tensor(indices, dtype=torch.int64)
        return Rows(self.tokens[chosen], self.labels[chosen], self.positions[chosen], self.segments[chosen])

    def to(self, device: torch.device) -> "Rows":
        """Return the rows on `device`."""
        return Rows(*(t.to(device) for t in (self.tokens, self.labels, self.positions, self.segments)))

    @property
    def scored(self) -> int:
        """How many positions have a label."""
        return int((self.labels != IGNORE).sum())


def lay_out(
    documents: Sequence[Sequence[int]],
    length: int,
    end: int,
    pad: int,
    *,
    pack: bool,
    prompts: Sequence[int] = (),
) -> Rows:
    """Return `documents` as rows of `length`, padded on the right.

    Args:
        documents: Token ids of each, without begin or end.
        length: Length of a row; longer documents are cut into several pieces.
        end: The id that begins and ends a document.
        pad: The id of padding; no document may have it.
        pack: Whether documents share rows: each row is filled to its end, and a document is cut there, to go on in
            the next row as a segment of its own. Else each document begins a row of its own.
        prompts: How many tokens at the start of each document are given rather than learned; none by default.

    Raises:
        ValueError: A document holds the padding id, or `prompts` has another length than `documents`.
    """
    if prompts and len(prompts) != len(documents):
        raise ValueError(f"{len(documents)} documents have {len(prompts)} prompts")
    rows: List[_Row] = []
    for number, document in enumerate(documents):
        if pad in document:
            raise ValueError(f"document {number} holds the padding id {pad}")
        given = prompts[number] if prompts else 0
        whole = [end, *document, end]
        start, last = 0, len(whole) - 1
        while start < last:
            if not (pack and rows and rows[-1].room):
                rows.append(_Row(length, pad))
            stop = min(start + rows[-1].room, last)
            hidden = max(0, min(given, stop) - start)
            rows[-1].add(whole[start:stop], [IGNORE] * hidden + whole[start + 1 + hidden : stop + 1])
            start = stop
    return Rows(*(torch.tensor([row.columns[kind] for row in rows]) for kind in range(4)))


class _Row:
    def __init__(self, length: int, pad: int) -> None:
        self.columns = [[pad] * length, [IGNORE] * length, [0] * length, [NO_SEGMENT] * length]
        self._used = self._segments = 0

    @property
    def room(self) -> int:
        """How many tokens still fit."""
        return len(self.columns[0]) - self._used

    def add(self, tokens: List[int], labels: List[int]) -> None:
        """Put a piece, not longer than `room`, behind what is there."""
        size, at = len(tokens), self._used
        pieces = (tokens, labels, list(range(size)), [self._segments] * size)
        for column, piece in zip(self.columns, pieces):  # noqa: B905  Python 3.8
            column[at : at + size] = piece
        self._used, self._segments = at + size, self._segments + 1


def strided(tokens: Sequence[int], length: int, stride: int, pad: int) -> Rows:
    """Return one long text as overlapping windows in which every token but the first is scored exactly once.

    Args:
        tokens: The text.
        length: Length of a window.
        stride: How far the next window lies; the rest of it is context that is not scored again.
        pad: The id of padding, for the last window.
    """
    rows: List[_Row] = []
    scored = 0
    for start in range(0, max(1, len(tokens) - 1), stride):
        piece = list(tokens[start : min(start + length, len(tokens) - 1)])
        labels = list(tokens[start + 1 : start + 1 + len(piece)])
        old = max(0, scored - start)
        row = _Row(length, pad)
        row.add(piece, [IGNORE] * old + labels[old:])
        rows.append(row)
        scored = start + len(piece)
        if scored >= len(tokens) - 1:
            break
    return Rows(*(torch.tensor([row.columns[kind] for row in rows]) for kind in range(4)))


def allowed(segments: torch.Tensor) -> torch.Tensor:
    """Return which position may attend to which, (rows, 1, length, length): earlier ones of the same segment.

    Padding may attend to padding, so that no row of the softmax is empty.
    """
    length = segments.shape[1]
    causal = torch.ones(length, length, dtype=torch.bool, device=segments.device).tril()
    same = segments.unsqueeze(2) == segments.unsqueeze(1)
    return (same & causal).unsqueeze(1)
