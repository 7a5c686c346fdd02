"""How the numbers of a tensor lie in memory, where that is not row by row: ``channels_last``, a transposed weight.

A checkpoint holds every tensor row by row, as other programs expect it. A fused optimizer walks through parameter and
moments side by side, as they lie in memory: moments that came back in another order would meet the wrong weights. So
the strides are kept beside the tensor, and what is read back lies as it did.
"""

from __future__ import annotations

from typing import Optional, Sequence, Tuple

import torch


def odd(tensor: torch.Tensor) -> Optional[Tuple[int, ...]]:
    """Return the strides of `tensor` if they are not those of rows; None also where it has gaps or overlaps.

    A tensor with gaps or overlaps is a view of another one. Its values are kept, not what it shares memory with.
    """
    if tensor.layout is not torch.strided:
        return None  # refused elsewhere, by its name
    shape, stride = tuple(tensor.shape), tuple(tensor.stride())
    if stride == _rows(shape) or 0 in shape or not _dense(shape, stride):
        return None
    return stride


def laid_out(tensor: torch.Tensor, stride: Sequence[int]) -> torch.Tensor:
    """Return a copy of `tensor` whose memory is laid out by `stride`.

    Raises:
        ValueError: These are no strides of a tensor of this shape without gaps and overlaps.
    """
    shape = tuple(tensor.shape)
    if len(stride) != len(shape) or not _dense(shape, stride):
        raise ValueError(f"strides {list(stride)} do not fit a tensor of shape {list(shape)}")
    result = torch.empty_strided(shape, list(stride), dtype=tensor.dtype, device=tensor.device)
    return result.copy_(tensor)


def _rows(shape: Sequence[int]) -> Tuple[int, ...]:
    stride, step = [], 1
    for length in reversed(shape):
        stride.append(step)
        step *= max(1, length)
    return tuple(reversed(stride))


def _dense(shape: Sequence[int], stride: Sequence[int]) -> bool:
    """Say whether every place of the memory is used exactly once. The stride of a dimension of 1 means nothing."""
    step = 1
    for each, length in sorted((each, length) for each, length in zip(stride, shape) if length != 1):  # noqa: B905
        if each != step:
            return False
        step *= length
    return True
