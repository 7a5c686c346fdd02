"""Copying the tensors of a step into the arena, the big ones while the next forward and backward already run.

The weights that an optimizer steps and its moments change only inside ``optimizer.step()``. Until that is called again
they can be read at leisure: a thread copies them, and the step waits for it. Everything else (the statistics of a batch
norm, a teacher, a codebook, the scale of a GradScaler, …) may change at any moment and is copied at once, on the
training thread.

That nothing changed meanwhile is not assumed but checked, in two ways; a copy that fails is thrown away.

- torch counts the in-place changes of every tensor. It counts a change after it was made, so the copying thread cannot
  tell: it may look while one is going on. The training thread looks, the next time it comes by (in the backward pass,
  see `rgt_train.looking`, or before an ``optimizer.step()``), where it is certainly not in the middle of a change.
- What is changed by ``.data`` is not counted. So the copy is compared with what the tensors held when it began: with
  all of it where that is little, else with samples, and then it is known to be right as far as samples tell.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import threading
import time
from dataclasses import dataclass
from typing import Callable, Iterable, List, Optional, Sequence, Tuple

import torch

from rgt_train.gpu_copy import GpuCopy, Move

PARANOID = "RGT_TRAIN_PARANOID"
"""Set to 1, every snapshot is compared byte for byte with the state at the moment of its step (slow)."""
LITTLE = 4 << 20
"""Bytes that are compared in full at each save: their copy takes less than a millisecond."""
WINDOWS, WINDOW = 128, 4096
"""Of more than that so many tensors are looked at, so many bytes of each: other ones at each save."""
_GOLDEN = 0.6180339887498949


class Torn(RuntimeError):
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
class Pair:
    """One tensor to copy: what it is called, where it is, where it goes."""

    name: str
    source: torch.Tensor
    target: torch.Tensor


class Witness:
    """What tensors held at one moment: all of it where it is little, else a part of some of them.

    Args:
        tensors: The tensors.
        turn: Which parts are taken: with other numbers others, in turn.

    Attributes:
        whole: Whether it knows everything that they held.
    """

    def __init__(self, tensors: Sequence[torch.Tensor], turn: int = 0) -> None:
        self.whole = is_little(tensors)
        apart = 1 if self.whole else -(-len(tensors) // WINDOWS)
        most = LITTLE if self.whole else WINDOW
        self._share = turn * _GOLDEN % 1.0
        self._taken = range(turn % apart, len(tensors), apart) if tensors else range(0)
        self._most = most
        self._held: List[torch.Tensor] = []
        self.moves: List[Tuple[torch.Tensor, torch.Tensor]] = []
        """(part on a GPU, where it is to be copied to before anything else is done with it)."""
        for number in self._taken:
            part = _window(tensors[number].detach(), self._share, most)
            if part.is_cuda:
                held = torch.empty(part.shape, dtype=part.dtype, pin_memory=True)
                self.moves.append((part, held))
            else:
                held = part.clone()
            self._held.append(held)

    def others(self, tensors: Sequence[torch.Tensor]) -> List[int]:
        """Return the numbers of those of `tensors` that hold something else now, as far as it knows."""
        return [
            number
            for number, held in zip(self._taken, self._held)  # noqa: B905  made together
            if not _same(held, _window(tensors[number].detach(), self._share, self._most))
        ]


class Copy:
    """A copy in progress.

    Args:
        now: What is copied before the constructor returns.
        later: What a thread copies.
        copied: Called when all is copied, with the error if that failed; by the thread where there is one.
        judged: Called on the training thread when it is known whether the copy is of one moment: with `Torn`, or None.
        ready: Waits until the memory is there.
        turn: Which samples are compared, where not everything is.
    """

    def __init__(
        self,
        now: Sequence[Pair],
        later: Sequence[Pair],
        copied: Callable[[Optional[BaseException]], None],
        judged: Callable[[Optional[BaseException]], None],
        ready: Callable[[], None],
        turn: int = 0,
    ) -> None:
        self._later, self._copied, self._judged, self._ready = list(later), copied, judged, ready
        self._all = [*now, *later]
        self._versions = [version_of(pair.source) for pair in self._later]
        self._digests = [digest_of(pair.source) for pair in self._all] if paranoid() else []
        self._over = threading.Event()
        self._settled = False
        self._witness = Witness([pair.source for pair in self._later], turn)
        copy_all([pair for pair in now if not pair.source.is_cuda])
        self._gpu = _on_gpu(now, self._later, self._witness.moves)
        if self._later or self._gpu:
            threading.Thread(target=self._run, name="rgt-copy", daemon=True).start()
        else:
            self._end(None)
            self._judge()

    @property
    def settled(self) -> bool:
        """Whether it is known if the copy is good; then nothing that happens can spoil it."""
        return self._settled

    @property
    def overlaps_backward(self) -> bool:
        """Whether it goes on beside a backward pass of this process's own threads (a GPU is fenced, and goes on)."""
        return self._gpu is None and not self._settled

    def before_change(self) -> float:
        """Make sure that what happens next cannot spoil the copy; return the seconds this took."""
        begun = time.monotonic()
        if self._gpu is not None:
            self._gpu.fence()
        else:
            self._over.wait()
        self._judge()
        return time.monotonic() - begun

    def glance(self) -> None:
        """Judge the copy if that needs no waiting; the training thread is here, so it is changing nothing."""
        if self._gpu is not None or self._over.is_set():
            self.before_change()

    def wait(self) -> None:
        """Wait until all is copied, told and judged."""
        self.before_change()
        self._over.wait()

    def _run(self) -> None:
        try:
            self._ready()
            copy_all([pair for pair in self._later if not pair.source.is_cuda])
            if self._gpu is not None:
                self._gpu.finish()
            torn = self._witness.others([pair.target for pair in self._later])
            if torn:
                raise Torn([self._later[number].name for number in torn])
        except BaseException as error:
            self._end(error)
        else:
            self._end(None)

    def _end(self, error: Optional[BaseException]) -> None:
        try:
            self._copied(error)
        finally:
            self._over.set()

    def _judge(self) -> None:
        """Look whether anything has changed since the beginning (GPU: so far as launched, which is fenced)."""
        if self._settled:
            return
        self._settled = True
        pairs = zip(self._later, self._versions)  # noqa: B905  made together
        torn = [pair.name for pair, version in pairs if version_of(pair.source) != version]
        self._judged(Torn(torn) if torn else self._compare())

    def _compare(self) -> Optional[BaseException]:
        if self._digests:
            self._over.wait()
        pairs = zip(self._all, self._digests)  # noqa: B905  made together, or no digests at all
        other = [pair for pair, digest in pairs if digest_of(pair.target) != digest]
        if any(pair not in self._later for pair in other):
            return AssertionError(
                f"{PARANOID}: the snapshot of {other[0].name} is not what it was at its step"
            )
        return Torn([pair.name for pair in other]) if other else None


def is_little(tensors: Sequence[torch.Tensor]) -> bool:
    """Say whether all that `tensors` hold may be compared at each save."""
    return paranoid() or sum(tensor.numel() * tensor.element_size() for tensor in tensors) <= LITTLE


def copy_all(pairs: Sequence[Pair]) -> None:
    """Copy all `pairs` in one call, so that the interpreter lock is given up once and for all of them."""
    if not pairs:
        return
    with torch.no_grad():
        targets, sources = [pair.target for pair in pairs], [pair.source.detach() for pair in pairs]
        try:
            torch._foreach_copy_(targets, sources)
        except (AttributeError, RuntimeError, TypeError):
            for target, source in zip(targets, sources):  # noqa: B905  made together
                target.copy_(source)


def digest_of(tensor: torch.Tensor) -> bytes:
    """Return the SHA-256 of a tensor's content."""
    flat = tensor.detach().cpu().contiguous()
    size = flat.numel() * flat.element_size()
    if not size:
        return hashlib.sha256().digest()
    return hashlib.sha256((ctypes.c_char * size).from_address(flat.data_ptr())).digest()


def paranoid() -> bool:
    """Say whether snapshots are to be compared."""
    return os.environ.get(PARANOID) == "1"


def _on_gpu(now: Iterable[Pair], later: Iterable[Pair], moves: Iterable[Move]) -> Optional[GpuCopy]:
    here = [*moves, *((pair.source, pair.target) for pair in now if pair.source.is_cuda)]
    there = [(pair.source, pair.target) for pair in later if pair.source.is_cuda]
    return GpuCopy(here, there) if here or there else None


def _window(tensor: torch.Tensor, share: float, most: int) -> torch.Tensor:
    """Return a part of `tensor` of at most `most` bytes, at `share` of it; the same of tensors of the same shape."""
    while tensor.numel() * tensor.element_size() > most:
        length = tensor.shape[0]
        rows = most // (tensor.numel() // length * tensor.element_size())
        if rows:
            return tensor.narrow(0, int(share * (length - rows + 1)), rows)
        if tensor.dim() == 1:
            break  # one number is more than that
        tensor = tensor.select(0, int(share * length))
    return tensor


def _same(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Compare bytes: a NaN equals itself then, and -0.0 is not 0.0."""
    return torch.equal(*(tensor.cpu().contiguous().reshape(-1).view(torch.uint8) for tensor in (one, other)))


def version_of(tensor: torch.Tensor) -> int:
    """Return how often a tensor was changed in place, as torch counts."""
    try:
        return tensor._version
    except RuntimeError:
        return 0  # an inference tensor: it cannot change in place
