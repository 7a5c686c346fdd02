"""The largest batch that fits into the memory, found by trial: doubling, then bisection."""

from __future__ import annotations

import re
import weakref
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Callable, Iterator, Mapping

import torch
from rgt_wire import size_text
from torch.utils._python_dispatch import TorchDispatchMode

from rgt_train.data import rng
from rgt_train.exits import UsageError

Loss = Callable[[torch.nn.Module, Any], torch.Tensor]
"""Model and batch → the loss of a training step."""


@dataclass(frozen=True)
class BatchEstimate:
    """The largest batch that fits.

    Attributes:
        batch: Its number of samples; 0 if not even one fits.
        peak_bytes: The most memory that its step needs: weights, gradients, activations and the
            state of the optimizer.
        budget_bytes: The memory that there is.
        tried: Each batch that was tried, with its peak; None if the memory was exhausted.
    """

    batch: int
    peak_bytes: int
    budget_bytes: int
    tried: tuple[tuple[int, int | None], ...]

    @property
    def headroom_bytes(self) -> int:
        """The memory that this batch leaves free."""
        return self.budget_bytes - self.peak_bytes

    def __str__(self) -> str:
        """Return the result in one line, with the headroom."""
        if not self.batch:
            return f"not even a batch of 1 fits into {size_text(self.budget_bytes)}"
        share = 100 * self.headroom_bytes / self.budget_bytes
        text = (
            f"a batch of {self.batch} fits: {size_text(self.peak_bytes)} of "
            f"{size_text(self.budget_bytes)}, headroom {size_text(self.headroom_bytes)} "
            f"({share:.0f}%)"
        )
        failed = [batch for batch, _ in self.tried if batch > self.batch]
        if failed:
            return f"{text}; {min(failed)} does not"
        return f"{text}; no larger one was tried"


def estimate_batch(
    model: torch.nn.Module,
    example: Any,
    budget: int | str | None = None,
    *,
    loss: Loss | None = None,
    optimizer_bytes: int | None = None,
    headroom: float = 0.1,
    most: int = 65_536,
) -> BatchEstimate:
    """Return the largest batch whose training step fits into `budget`, tried one after the other.

    Each trial is a forward and a backward pass. Gradients, buffers and the random state are
    afterwards as they were before.

    Args:
        model: The model, on the device that it trains on, in the mode in which it trains.
        example: A batch as the loader returns it, a tensor, or a tuple, list or dictionary of them;
            its first sample is repeated.
        budget: Bytes, or a text such as ``24GiB`` or ``200MB``. None on a GPU: its free memory and
            the cache of this process; on a CPU it must be given. There the tensors that torch
            allocates are counted, and a trial ends as soon as they exceed it.
        loss: Returns the loss of a batch. None calls the model with the batch (a tuple as
            positional, a dictionary as named arguments), and takes ``output.loss`` or the mean of
            what it returns.
        optimizer_bytes: The size of the optimizer's state. None assumes the two moments of Adam;
            0 if the optimizer has made a step already on a GPU, where its state is counted.
        headroom: Share of the budget that stays free, for what a trial does not see: fragmentation,
            longer samples, the validation.
        most: Largest batch to try.

    Raises:
        UsageError: There is no budget, it is not a size, or the example has no samples.
    """
    device = next(model.parameters()).device
    if budget is not None:
        limit = parse_bytes(str(budget))
    else:
        if device.type != "cuda":
            raise UsageError(
                f"on {device.type} the budget is missing: --estimate-batch 8GB or budget='8GB'"
            )
        free, _ = torch.cuda.mem_get_info(device)
        # What torch's cache holds is not free to others, but to this process.
        limit = free + torch.cuda.memory_reserved(device)
    if optimizer_bytes is None:
        trained = [p for p in model.parameters() if p.requires_grad]
        optimizer_bytes = 2 * sum(p.numel() * p.element_size() for p in trained)
    usable = int(limit * (1 - headroom)) - optimizer_bytes
    tried: dict[int, int | None] = {}

    def try_batch(batch: int) -> bool:
        used = _measure_step(model, _repeat_first(example, batch), loss or _default_loss, usable)
        tried[batch] = used
        if used is None:
            return False
        tried[batch] = used + optimizer_bytes
        return used <= usable

    with _kept_state(model):
        best = _largest_that_fits(try_batch, most)
    peak = tried.get(best) or 0
    return BatchEstimate(best, peak, limit, tuple(tried.items()))


def _largest_that_fits(fits: Callable[[int], bool], most: int) -> int:
    """Return the largest number up to `most` that fits: by doubling, then by bisection; or 0."""
    good, candidate = 0, min(2, most)  # batch normalisation refuses a batch of 1
    while fits(candidate):
        good = candidate
        if good >= most:
            return good
        candidate = min(2 * candidate, most)
    bad = candidate
    while bad - good > 1:
        middle = (good + bad) // 2
        if fits(middle):
            good = middle
        else:
            bad = middle
    return good


def _measure_step(model: torch.nn.Module, batch: Any, loss: Loss, limit: int) -> int | None:
    """Return the most bytes in use during a step on `batch`; None if they ran out."""
    device = next(model.parameters()).device
    if device.type == "cuda":
        return _measure_on_gpu(model, batch, loss, device)
    meter = _AllocationMeter(limit, [*model.parameters(), *model.buffers(), *_tensors_of(batch)])
    try:
        with meter:
            loss(model, batch).backward()  # type: ignore[no-untyped-call]
        return meter.peak
    except (_BudgetExceeded, torch.cuda.OutOfMemoryError):
        return None
    finally:
        model.zero_grad(set_to_none=True)


def _measure_on_gpu(
    model: torch.nn.Module, batch: Any, loss: Loss, device: torch.device
) -> int | None:
    torch.cuda.empty_cache()  # what an earlier trial has split up must not make this one fail
    torch.cuda.reset_peak_memory_stats(device)
    exhausted = False
    try:
        loss(model, batch).backward()  # type: ignore[no-untyped-call]
        torch.cuda.synchronize(device)
    except torch.cuda.OutOfMemoryError:
        exhausted = True  # its traceback keeps the activations alive inside this block
    model.zero_grad(set_to_none=True)
    if exhausted:
        torch.cuda.empty_cache()
        return None
    return torch.cuda.max_memory_allocated(device)


class _BudgetExceeded(Exception):
    """The tensors of a trial have exceeded the budget."""


class _AllocationMeter(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts the bytes of the tensors that exist at one time.

    Args:
        limit: The bytes at which a trial ends.
        existing: The tensors that exist already, and count: weights, buffers, the batch.

    Attributes:
        peak: The most bytes so far.
    """

    def __init__(self, limit: int, existing: list[torch.Tensor]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._limit = limit
        self._live = 0
        self.peak = 0
        self._sizes: dict[int, int] = {}
        for tensor in existing:
            self._add_storage(tensor)

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        for tensor in _tensors_of(result):
            self._add_storage(tensor)
        if self._live > self._limit:
            raise _BudgetExceeded
        return result

    def _add_storage(self, tensor: torch.Tensor) -> None:
        storage = tensor.untyped_storage()
        place = storage.data_ptr()
        size = storage.nbytes()
        # An empty tensor has the address 0, and a view that of its storage.
        if place and place not in self._sizes:
            self._sizes[place] = size
            self._live += size
            self.peak = max(self.peak, self._live)
            # The storage, not the tensor: views share it.
            weakref.finalize(storage, self._remove_storage, place).atexit = False

    def _remove_storage(self, place: int) -> None:
        self._live -= self._sizes.pop(place, 0)


@contextmanager
def _kept_state(model: torch.nn.Module) -> Iterator[None]:
    """Restore gradients, buffers and the random state of `model` afterwards."""
    grads = [(p, p.grad) for p in model.parameters()]
    buffers = [(buffer, buffer.clone()) for buffer in model.buffers()]
    state = rng.capture_states()
    model.zero_grad(set_to_none=True)
    try:
        yield
    finally:
        with torch.no_grad():
            for buffer, former in buffers:
                buffer.copy_(former)
        for parameter, grad in grads:
            parameter.grad = grad
        rng.restore_states(state)


def _repeat_first(example: Any, count: int) -> Any:
    """Return a batch of `count` times the first sample of `example`."""
    if isinstance(example, torch.Tensor):
        if not example.dim() or not len(example):
            raise UsageError("the example of estimate_batch has no sample: give a batch")
        # clone(): an expanded tensor would occupy the memory of a single sample.
        return example[:1].expand(count, *example.shape[1:]).clone()
    if isinstance(example, Mapping):
        return {name: _repeat_first(part, count) for name, part in example.items()}
    if isinstance(example, (tuple, list)):
        return tuple(_repeat_first(part, count) for part in example)
    return example


def _default_loss(model: torch.nn.Module, batch: Any) -> torch.Tensor:
    if isinstance(batch, Mapping):
        output = model(**batch)
    elif isinstance(batch, tuple):
        output = model(*batch)
    else:
        output = model(batch)
    own = getattr(output, "loss", None)
    if isinstance(own, torch.Tensor):
        return own
    means = [tensor.float().mean() for tensor in _tensors_of(output) if tensor.requires_grad]
    if not means:
        raise UsageError("the model returns nothing with a gradient: give estimate_batch a loss")
    return torch.stack(means).sum()


def _tensors_of(value: Any) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, Mapping):
        value = list(value.values())
    if isinstance(value, (tuple, list)):
        return [tensor for part in value for tensor in _tensors_of(part)]
    return []


def parse_bytes(text: str) -> int:
    """Return the bytes of a size such as ``2GB``, ``512MiB`` or ``3e9``.

    Raises:
        UsageError: It is not a size above 0.
    """
    found = re.fullmatch(r"\s*([0-9.]+(?:e[0-9]+)?)\s*([kmgt]?)(i?)b?\s*", text.lower())
    try:
        assert found is not None
        step = 1000
        if found[3]:
            step = 1024
        size = int(float(found[1]) * step ** " kmgt".index(found[2] or " "))
    except (AssertionError, ValueError):
        size = 0
    if size <= 0:
        raise UsageError(f"{text!r} is not a size such as 2GB or 512MiB")
    return size
