"""Copies the tensors of a step to shared memory, large ones during the next forward and backward.

The weights that an optimizer steps and its moments change only inside ``optimizer.step()``. Until
the next call there is time to read them: a thread copies them, and the step waits for it.
Everything else (the statistics of a batch norm, a teacher, a codebook, the scale of a GradScaler,
…) may change at any moment and is copied at once, on the training thread.

It is checked, not assumed, that nothing changed meanwhile, in two ways; a copy that fails is
discarded.

- torch counts the in-place changes of every tensor. It counts a change after it was made, so the
  copying thread cannot detect one in progress. The training thread checks at its next call (in the
  backward pass, see `Looks`, or before an ``optimizer.step()``), where it is certainly not in the
  middle of a change.
- Changes by ``.data`` are not counted. So the copy is compared with the content of the tensors when
  it began: completely if that is small, otherwise by samples, and then it is known to be right as
  far as the samples show.

A snapshot is published once the training thread has seen that nothing changed during the copy.
Without the backward hooks it would check only before the next ``optimizer.step()``, which is most
of a step after the end of the copy.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import sys
import threading
import time
from dataclasses import dataclass
from typing import Any, Callable, Iterable, Mapping, Sequence, Tuple

import torch

Move = Tuple[torch.Tensor, torch.Tensor]
"""(source on a GPU, target in memory)."""


class GpuCopy:
    """Copies that run concurrently with the next forward and backward.

    Args:
        now: Copied in order on the training's own stream: they see no later change.
        later: Copied by a second stream of each device.
    """

    def __init__(self, now: Sequence[Move], later: Sequence[Move]) -> None:
        self._done: list["torch.cuda.Event"] = []
        self._later: dict[torch.device, "torch.cuda.Event"] = {}
        for source, target in now:
            target.copy_(source, non_blocking=True)
        for device in {source.device for source, _ in now}:
            self._done.append(_record_event(torch.cuda.current_stream(device)))
        for device in {source.device for source, _ in later}:
            stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
            # Or it would copy the weights while the step before still writes them.
            stream.wait_stream(torch.cuda.current_stream(device))
            with torch.cuda.stream(stream):
                for source, target in later:
                    if source.device == device:
                        target.copy_(source, non_blocking=True)
            self._later[device] = _record_event(stream)

    def fence_training(self) -> None:
        """Make later GPU work of the training wait for the copies, on the GPU."""
        for device, event in self._later.items():
            torch.cuda.current_stream(device).wait_event(event)

    def wait_until_copied(self) -> None:
        """Wait until all copies have arrived in memory."""
        for event in [*self._done, *self._later.values()]:
            event.synchronize()


def _record_event(stream: "torch.cuda.Stream") -> "torch.cuda.Event":
    event = torch.cuda.Event()  # type: ignore[no-untyped-call]
    event.record(stream)
    return event


PARANOID = "RGT_TRAIN_PARANOID"
"""If set to 1, every snapshot is compared byte for byte with the state at the moment of its step
(slow).
"""
LITTLE = 4 << 20
"""Bytes that are compared in full at each save: their copy takes less than a millisecond."""
WINDOWS, WINDOW = 128, 4096
"""Above that size: the number of tensors that are sampled, and the bytes of each; other ones at
each save.
"""


class TornSnapshot(RuntimeError):
    """A tensor changed outside ``optimizer.step()`` after the step that was being copied.

    Attributes:
        names: The tensors.
    """

    def __init__(self, names: Sequence[str]) -> None:
        self.names = list(names)
        shown = ", ".join(self.names[:3]) + (
            f" and {len(self.names) - 3} more" if len(self.names) > 3 else ""
        )
        super().__init__(f"{shown} changed between run.step and the next optimizer.step()")


@dataclass(frozen=True, eq=False)
class CopyPair:
    """One tensor to copy: its name, source and target."""

    name: str
    source: torch.Tensor
    target: torch.Tensor


class ContentWitness:
    """The content of tensors at one moment: all of it if small, otherwise parts of some.

    Args:
        tensors: The tensors.
        turn: Selects the parts: successive numbers select successive parts.

    Attributes:
        whole: Whether it has the complete content.
        moves: Parts on a GPU, each with the memory to copy it to before any later change there.
    """

    def __init__(self, tensors: Sequence[torch.Tensor], turn: int = 0) -> None:
        self.whole = is_paranoid() or sum(tensor.nbytes for tensor in tensors) <= LITTLE
        if self.whole or not tensors:
            apart = 1
        else:
            apart = -(-len(tensors) // WINDOWS)
        if self.whole:
            self._most = sys.maxsize
        else:
            self._most = WINDOW
        # Steps of the golden ratio spread evenly, so successive saves sample everything in time.
        golden = 0.6180339887498949
        self._share = turn * golden % 1.0
        self._taken = range(turn % apart, len(tensors), apart)
        self.moves: list[Move] = []
        self._held = [self._sample_tensor(tensors[number]) for number in self._taken]

    def find_changed(self, tensors: Sequence[torch.Tensor]) -> list[int]:
        """Return the numbers of the `tensors` whose content differs now, as known so far."""
        pairs = zip(self._taken, self._held)
        return [number for number, held in pairs if not self._is_unchanged(tensors[number], held)]

    def _sample_tensor(self, tensor: torch.Tensor) -> bytes | torch.Tensor:
        if tensor.is_cuda:
            window = window_of(tensor, self._share, self._most)
            held = torch.empty(window.shape, dtype=window.dtype, pin_memory=True, device="cpu")
            self.moves.append((window, held))
            return held
        # For a tensor without gaps its memory, which is several times faster than letting torch
        # slice and copy it.
        if tensor.is_contiguous():
            return self._sample_bytes(tensor)
        return window_of(tensor, self._share, self._most).clone()

    def _is_unchanged(self, tensor: torch.Tensor, held: bytes | torch.Tensor) -> bool:
        if isinstance(held, bytes):
            return self._sample_bytes(tensor.contiguous()) == held
        return digest_of(held) == digest_of(window_of(tensor, self._share, self._most))

    def _sample_bytes(self, tensor: torch.Tensor) -> bytes:
        length = min(tensor.nbytes, self._most)
        begin = int(self._share * (tensor.nbytes - length))
        if length:
            return ctypes.string_at(tensor.data_ptr() + begin, length)
        return b""


class SnapshotCopy:
    """A copy in progress.

    Args:
        now: Copied before the constructor returns.
        later: Copied by a thread.
        copied: Called when all is copied, with the error if that failed; by the thread if there is
            one.
        judged: Called on the training thread once it is known whether the copy is of one moment:
            with `TornSnapshot`, or None.
        ready: Waits until the memory exists.
        witness: Knows the content that the thread copies.
    """

    def __init__(
        self,
        now: Sequence[CopyPair],
        later: Sequence[CopyPair],
        copied: Callable[[BaseException | None], None],
        judged: Callable[[BaseException | None], None],
        ready: Callable[[], None],
        witness: ContentWitness,
    ) -> None:
        self._witness = witness
        self._later = list(later)
        self._copied = copied
        self._judged = judged
        self._ready = ready
        self._all = [*now, *later]
        self._versions = [version_of(pair.source) for pair in self._later]
        if is_paranoid():
            self._digests = [digest_of(pair.source) for pair in self._all]
        else:
            self._digests = []
        self._over = threading.Event()
        self._settled = False
        copy_all([pair for pair in now if not pair.source.is_cuda])
        self._gpu = _on_gpu(now, self._later, self._witness.moves)
        if self._later or self._gpu:
            threading.Thread(target=self._copy_later, name="rgt-copy", daemon=True).start()
        else:
            self._report_end(None)
            self._judge_changes()

    @property
    def is_judged(self) -> bool:
        """Whether the copy has been judged; then later changes cannot spoil it."""
        return self._settled

    @property
    def overlaps_backward(self) -> bool:
        """Whether it runs during a backward pass on this process's threads (a GPU is fenced)."""
        return self._gpu is None and not self._settled

    def before_change(self) -> float:
        """Make sure that later changes cannot spoil the copy; return the seconds this took."""
        begun = time.monotonic()
        if self._gpu is not None:
            self._gpu.fence_training()
        else:
            self._over.wait()
        self._judge_changes()
        return time.monotonic() - begun

    def judge_if_ready(self) -> None:
        """Judge the copy if no waiting is needed.

        The training thread calls this, so it changes nothing.
        """
        if self._gpu is not None or self._over.is_set():
            self.before_change()

    def wait(self) -> None:
        """Wait until all is copied, reported and judged."""
        self.before_change()
        self._over.wait()

    def _copy_later(self) -> None:
        try:
            self._ready()
            copy_all([pair for pair in self._later if not pair.source.is_cuda])
            if self._gpu is not None:
                self._gpu.wait_until_copied()
            # The copies are compared, because they are what gets published.
            torn = self._witness.find_changed([pair.target for pair in self._later])
            if torn:
                raise TornSnapshot([self._later[number].name for number in torn])
        except BaseException as error:
            self._report_end(error)
        else:
            self._report_end(None)

    def _report_end(self, error: BaseException | None) -> None:
        try:
            self._copied(error)
        finally:
            self._over.set()

    def _judge_changes(self) -> None:
        """Check whether anything changed since the beginning (GPU: up to the fence)."""
        if self._settled:
            return
        # First, because the callback may lead here again.
        self._settled = True
        pairs = zip(self._later, self._versions)
        torn = [pair.name for pair, version in pairs if version_of(pair.source) != version]
        self._judged(TornSnapshot(torn) if torn else self._find_torn())

    def _find_torn(self) -> BaseException | None:
        if self._digests:
            self._over.wait()
        pairs = zip(self._all, self._digests)
        other = [pair for pair, digest in pairs if digest_of(pair.target) != digest]
        if any(pair not in self._later for pair in other):
            return AssertionError(
                f"{PARANOID}: the snapshot of {other[0].name} is not what it was at its step"
            )
        if other:
            return TornSnapshot([pair.name for pair in other])
        return None


def copy_all(pairs: Sequence[CopyPair]) -> None:
    """Copy all `pairs` in one call, so that the interpreter lock is released only once."""
    if not pairs:
        return
    with torch.no_grad():
        targets = [pair.target for pair in pairs]
        sources = [pair.source.detach() for pair in pairs]
        try:
            # Private API of torch, missing or refusing mixed dtypes in some releases: see the
            # fallback.
            torch._foreach_copy_(targets, sources)
        except (AttributeError, RuntimeError, TypeError):
            for target, source in zip(targets, sources):
                target.copy_(source)


def digest_of(tensor: torch.Tensor) -> bytes:
    """Return the SHA-256 of a tensor's content."""
    flat = tensor.detach().cpu().contiguous()
    size = flat.numel() * flat.element_size()
    if not size:
        return hashlib.sha256().digest()
    return hashlib.sha256((ctypes.c_char * size).from_address(flat.data_ptr())).digest()


def is_paranoid() -> bool:
    """Return whether to compare snapshots."""
    return os.environ.get(PARANOID) == "1"


def _on_gpu(
    now: Iterable[CopyPair], later: Iterable[CopyPair], moves: Iterable[Move]
) -> GpuCopy | None:
    here = list(moves)
    here += [(pair.source, pair.target) for pair in now if pair.source.is_cuda]
    there = [(pair.source, pair.target) for pair in later if pair.source.is_cuda]
    if here or there:
        return GpuCopy(here, there)
    return None


def window_of(tensor: torch.Tensor, share: float, most: int) -> torch.Tensor:
    """Return a part of `tensor` of at most `most` bytes, at `share` of it.

    It is the same part for tensors of the same shape.
    """
    tensor = tensor.detach()
    while tensor.nbytes > most:
        length = tensor.shape[0]
        rows = most // (tensor.nbytes // length)
        if rows:
            return tensor.narrow(0, int(share * (length - rows + 1)), rows)
        tensor = tensor.select(0, int(share * length))
    return tensor


def version_of(tensor: torch.Tensor) -> int:
    """Return how often a tensor was changed in place, as torch counts."""
    try:
        return tensor._version
    except RuntimeError:
        return 0  # an inference tensor: it cannot change in place


def outside_compile(hook: Callable[..., None]) -> Any:
    """Return a hook of an optimizer that ``torch.compile`` does not trace.

    Traced with a compiled ``optimizer.step()``, it would be compiled again for each tensor and each
    new value of a counter.
    """
    if "torch._dynamo" in sys.modules:  # which making an optimizer imports
        return torch.compiler.disable(hook)  # type: ignore[no-untyped-call]
    return hook


class BackwardHooks:
    """Calls a function several times during the next backward passes, after gradients arrive.

    Args:
        models: Name → module; their parameters with gradients are used, evenly spread.
        call: Called on the thread that runs the backward pass. It must be quick, and harmless when
            it is called again.
    """

    def __init__(self, models: Mapping[str, torch.nn.Module], call: Callable[[], None]) -> None:
        found: list[Any] = [
            p
            for model in models.values()
            for p in model.parameters()
            # torch accepts the hook only on leaves.
            if p.requires_grad and p.is_leaf
        ]
        # Approximate number of checks in a backward pass: frequent within a step, rare enough to
        # cost nothing.
        looks = 16
        apart = max(1, len(found) // looks)
        self._hooked: list[Any] = [
            parameter.register_post_accumulate_grad_hook(lambda _: call())
            for parameter in found[::apart]
        ]

    def close(self) -> None:
        """Remove the hooks. Do not call it within a backward pass."""
        for hooked in self._hooked:
            hooked.remove()
        self._hooked.clear()
