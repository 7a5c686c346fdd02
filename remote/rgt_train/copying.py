"""Copying the tensors of a step into the arena, the big ones while the next forward and backward already run.

Parameters and the moments of an optimizer change only inside ``optimizer.step()``. Until that is called again they
can be read at leisure: a thread copies them, and the step waits for it. Everything else (the statistics of a batch
norm, the scale of a GradScaler, …) may change at any moment and is copied at once, on the training thread.

That nothing changed meanwhile is not assumed but checked: torch counts the in-place changes of every tensor, and a copy
whose tensors have another count at its end is thrown away.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import threading
import time
from dataclasses import dataclass
from typing import Callable, Iterable, List, Optional, Sequence

import torch

from rgt_train.gpu_copy import GpuCopy

PARANOID = "RGT_TRAIN_PARANOID"
"""Set to 1, every snapshot is compared byte for byte with the state at the moment of its step (slow)."""


class Torn(RuntimeError):
    """A tensor changed outside ``optimizer.step()`` while it was being copied.

    Attributes:
        names: The tensors.
    """

    def __init__(self, names: Sequence[str]) -> None:
        self.names = list(names)
        shown = ", ".join(self.names[:3]) + (
            f" and {len(self.names) - 3} more" if len(self.names) > 3 else ""
        )
        super().__init__(f"{shown} changed outside optimizer.step() while being copied")


@dataclass(frozen=True)
class Pair:
    """One tensor to copy: what it is called, where it is, where it goes."""

    name: str
    source: torch.Tensor
    target: torch.Tensor


class Copy:
    """A copy in progress.

    Args:
        now: What is copied before the constructor returns.
        later: What a thread copies.
        then: Called when all is copied, with the error if it is not good; by the thread where there is one.
        ready: Waits until the memory is there.
    """

    def __init__(
        self,
        now: Sequence[Pair],
        later: Sequence[Pair],
        then: Callable[[Optional[BaseException]], None],
        ready: Callable[[], None],
    ) -> None:
        self._later, self._then, self._ready = list(later), then, ready
        self._all = [*now, *later]
        self._versions = [_version(pair.source) for pair in self._later]
        self._digests = [digest_of(pair.source) for pair in self._all] if paranoid() else []
        self._over, self._judged = threading.Event(), threading.Event()
        self._torn: List[str] = []
        copy_all([pair for pair in now if not pair.source.is_cuda])
        self._gpu = _on_gpu(now, self._later)
        if self._later or self._gpu:
            threading.Thread(target=self._run, name="rgt-copy", daemon=True).start()
        else:
            self._end(None)

    @property
    def over(self) -> bool:
        """Whether all is copied and told."""
        return self._over.is_set()

    def before_change(self) -> float:
        """Make sure that what happens next cannot spoil the copy; return the seconds this took."""
        begun = time.monotonic()
        if self._gpu is not None:
            self._gpu.fence()
            self.judge()
        else:
            self._over.wait()
        return time.monotonic() - begun

    def judge(self) -> None:
        """Look whether anything that is being copied has changed since the beginning (GPU: so far as launched)."""
        if not self._judged.is_set():
            pairs = zip(self._later, self._versions)  # noqa: B905  made together
            self._torn = [pair.name for pair, version in pairs if _version(pair.source) != version]
            self._judged.set()

    def judge_gpu(self) -> None:
        """Like `judge`, where it has to be this thread that looks: a GPU's work is counted when it is launched."""
        if self._gpu is not None:
            self.judge()

    def wait(self) -> None:
        """Wait until all is copied and told."""
        self.judge_gpu()
        self._over.wait()

    def _run(self) -> None:
        try:
            self._ready()
            copy_all([pair for pair in self._later if not pair.source.is_cuda])
            if self._gpu is not None:
                self._gpu.finish()
                self._judged.wait()
            else:
                self.judge()
            self._end(Torn(self._torn) if self._torn else self._compare())
        except BaseException as error:
            self._end(error)

    def _compare(self) -> Optional[BaseException]:
        for pair, digest in zip(self._all, self._digests):  # noqa: B905  made together, or no digests at all
            if digest_of(pair.target) != digest:
                return AssertionError(
                    f"{PARANOID}: the snapshot of {pair.name} is not what it was at its step"
                )
        return None

    def _end(self, error: Optional[BaseException]) -> None:
        try:
            self._then(error)
        finally:
            self._over.set()


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


def _on_gpu(now: Iterable[Pair], later: Iterable[Pair]) -> Optional[GpuCopy]:
    here = [(pair.source, pair.target) for pair in now if pair.source.is_cuda]
    there = [(pair.source, pair.target) for pair in later if pair.source.is_cuda]
    return GpuCopy(here, there) if here or there else None


def _version(tensor: torch.Tensor) -> int:
    try:
        return tensor._version
    except RuntimeError:
        return 0  # an inference tensor: it cannot change in place
