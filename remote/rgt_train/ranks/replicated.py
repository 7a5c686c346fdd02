"""Saves a state that every rank holds whole (DDP): one rank writes it, all take part.

The ranks compare their replicas, the random states of all are sent to the writer, and the writer
saves like a single process: copied during training, written by another process. At a load every
rank reads and verifies the whole checkpoint itself; the ranks agree that it is good on all of them
before any of them applies it.

A save combines parts of several ranks, or uses one replica for all. If the ranks have diverged,
such a checkpoint would be silently wrong, so the run ends with the name of the rank and of the
first tensor.

Buffers and their averages are not compared: batch normalisation's statistics differ between the
ranks until the next forward, when `DistributedDataParallel` sends those of rank 0 to all.
"""

from __future__ import annotations

import ctypes
import time
import zlib
from contextlib import suppress
from typing import Any, Callable, Dict, Mapping, Sequence

import torch

from rgt_train import exits
from rgt_train.checkpoint import encoding, matching
from rgt_train.checkpoint.async_saver import Persister, SaveOutcome, SaveRequest
from rgt_train.checkpoint.matching import by_name
from rgt_train.checkpoint.safetensors import LoadedCheckpoint
from rgt_train.checkpoint.state import RestoredState, RunState
from rgt_train.ranks.launch import Coordinator, Ranks, StandIn, mark_everywhere, run_on_all_ranks

_HEARD_S = 5.0
"""Seconds between two signs of life in a wait."""
_FIRST_S, _LAST_S = 0.0005, 0.02
"""Seconds between two polls of a save, at first and in a long wait."""


class _ForwardingPersister:
    """A persister that forwards everything to another one."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    @property
    def busy(self) -> bool:
        """Whether a save is in flight, as far as this rank knows."""
        return bool(self._inner.busy)

    def prepare(self, state: RunState) -> None:
        """Prepare for saves of this size."""
        self._inner.prepare(state)

    def write_again(self, *, give_up: bool) -> None:
        """Write the snapshot of the last `begin_save` again."""
        self._inner.write_again(give_up=give_up)

    def before_change(self) -> None:
        """Wait until parameters and optimizer state may change."""
        self._inner.before_change()

    def poll_outcome(self) -> SaveOutcome | None:
        """Return the result of the save in flight, once.

        None while it runs or another rank writes.
        """
        found: SaveOutcome | None = self._inner.poll_outcome()
        return found

    def wait(self) -> SaveOutcome | None:
        """Wait for the end of the save in flight and return its result."""
        found: SaveOutcome | None = self._inner.wait()
        return found

    def close(self) -> None:
        """Abandon the save in flight."""
        self._inner.close()

    def needs(self) -> tuple[int, int]:
        """Return the bytes and the inodes of one checkpoint, as known so far."""
        size, inodes = self._inner.needs()
        return size, inodes


class OrderedPersister(_ForwardingPersister):
    """Forwards everything; `begin_save`, `write_again` and `restore_checkpoint` are carried out by all ranks.

    Args:
        inner: This rank's part.
        coordinator: Its orders ``begin``, ``again`` and ``load`` call `inner`.
    """

    def __init__(self, inner: Persister, coordinator: Coordinator) -> None:
        super().__init__(inner)
        self._coordinator = coordinator

    def begin_save(self, request: SaveRequest, state: RunState) -> None:
        """Take the present state, on all ranks, and start to write it."""
        self._coordinator.order_all("begin", request)

    def write_again(self, *, give_up: bool) -> None:
        """Write the snapshot of the last `begin_save` again."""
        self._coordinator.order_all("again", give_up)

    def wait(self) -> SaveOutcome | None:
        """Wait for the end of the save in flight; the other ranks get regular signs of life."""
        heard = time.monotonic()
        pause = _FIRST_S
        while self._coordinator.is_leading and self._inner.busy:
            outcome: SaveOutcome | None = self._inner.poll_outcome()
            if outcome is not None:
                return outcome
            if time.monotonic() - heard >= _HEARD_S:
                self._coordinator.signal_alive()
                heard = time.monotonic()
            time.sleep(pause)
            pause = min(2 * pause, _LAST_S)
        return super().wait()

    def restore_checkpoint(self, directory: str, state: RunState) -> RestoredState:
        """Restore a checkpoint on all ranks."""
        found: Any = self._coordinator.order_all("load", directory)
        restored: RestoredState = found
        return restored


ODD = 0x9E3779B97F4A7C15 - (1 << 64)
"""An odd multiplier (as a signed 64-bit number): every bit of a word changes the sum."""
CHUNK = 1 << 22


def hash_tensor(tensor: torch.Tensor) -> int:
    """Return a number of at most 64 bits that depends on every bit of a tensor and its position.

    It detects accidents, not forgery. Compare those of tensors on the same kind of device only.
    """
    data = tensor.detach()
    if data.device.type == "cpu":
        return hash_memory(data.contiguous())
    return weighted_checksum(data)


def hash_memory(tensor: torch.Tensor) -> int:
    """Return the CRC-32 of a contiguous CPU tensor (124 ms for 500 MB on one core, no GIL)."""
    size = tensor.numel() * tensor.element_size()
    if size == 0:
        return 0
    # The tensor's own memory: without a copy and without NumPy.
    raw = (ctypes.c_char * size).from_address(tensor.data_ptr())
    return zlib.crc32(memoryview(raw))


def weighted_checksum(tensor: torch.Tensor) -> int:
    """Return 64 bits that a GPU computes in its own memory.

    Words of 32 bits are added, weighted by an odd function of their position, in integers that
    wrap: the order of the additions does not matter, so the sum is the same for any number of
    threads.
    """
    data = tensor.detach().contiguous().view(-1)
    if data.numel() == 0:
        return 0
    if data.element_size():
        raw = data.view(torch.uint8)
    else:
        raw = data
    rest = (-raw.numel()) % 4
    if rest:
        raw = torch.cat([raw, raw.new_zeros(rest)])
    words = raw.view(torch.int32)
    total = 0
    # In pieces, because words and weights of 64 bits take several times the memory of the tensor.
    for start in range(0, words.numel(), CHUNK):
        part = words[start : start + CHUNK].to(torch.int64)
        places = torch.arange(start, start + part.numel(), dtype=torch.int64, device=part.device)
        weights = (places * 2 + 1) * ODD
        total += int((part * weights).sum())
        total &= (1 << 64) - 1
    return total


def is_whole_tensor(tensor: Any) -> bool:
    """Return whether a value is a tensor that every rank holds whole, not a shard of one."""
    return isinstance(tensor, torch.Tensor) and type(tensor).__name__ != "DTensor"


Prints = Dict[str, int]
SHARD = "@"
"""Separates the name of a tensor from its shard."""


def differences(
    ranks: Ranks,
    step: int,
    models: Mapping[str, torch.nn.Module],
    optimizers: Mapping[str, Any],
    averaging: Mapping[str, Any],
) -> list[str]:
    """Compare the ranks. Collective; the same answer on every rank.

    Args:
        ranks: The ranks to compare.
        step: The step of this rank.
        models: Name → module; its parameters are compared, shards with the same shard of another
            replica.
        optimizers: Name → anything with `state_dict`; its tensors are compared.
        averaging: Name → anything with `state_dict` that keeps averages; those of parameters are
            compared.

    Returns:
        The differences, in words, by rank; empty if all are in step.
    """
    return describe_differences(
        ranks.all_gather((step, fingerprint_state(models, optimizers, averaging)))
    )


def fingerprint_state(
    models: Mapping[str, torch.nn.Module],
    optimizers: Mapping[str, Any],
    averaging: Mapping[str, Any],
) -> Prints:
    """Return the fingerprint of each parameter, its average, and each tensor of an optimizer.

    A shard's fingerprint includes its position. A state that cannot be collected is left to the
    save, which reports it.
    """
    found: Prints = {}

    def add_fingerprint(path: str, tensor: torch.Tensor) -> str:
        local, shard = own_part(tensor)
        found[path + shard] = hash_tensor(local)
        return path

    for name, model in models.items():
        for key, parameter in matching.list_parameters(model):
            add_fingerprint(f"{name}/{key}", parameter)
    for name, optimizer in optimizers.items():
        with suppress(encoding.CannotStore):
            encoding.encode_value(optimizer.state_dict(), add_fingerprint, name)
    for name, keeper in averaging.items():
        for model in models.values():
            for key, average in by_name(
                keeper.state_dict(), dict(matching.list_parameters(model))
            ).items():
                add_fingerprint(f"{name}/{key}", average)
    return found


def own_part(tensor: Any) -> tuple[torch.Tensor, str]:
    """Return this rank's part of a tensor, and its shard position: empty for a whole one."""
    if is_whole_tensor(tensor):
        return tensor, ""
    place = tensor.device_mesh.get_coordinate() or ()
    where = [str(at) for at, how in zip(place, tensor.placements) if how.is_shard()]
    return tensor.to_local(), SHARD + ".".join(where) if where else ""


def describe_differences(seen: Sequence[tuple[int, Prints]]) -> list[str]:
    """Return in words how the ranks differ.

    Args:
        seen: By rank: its step, and its fingerprints.
    """
    out: list[str] = []
    first: dict[str, tuple[int, int]] = {}
    whole = {name for name in seen[0][1] if SHARD not in name}
    for rank, (step, found) in enumerate(seen):
        if step != seen[0][0]:
            out.append(f"rank {rank} is at step {step}, rank 0 at step {seen[0][0]}")
            continue
        names = sorted(whole ^ {name for name in found if SHARD not in name})
        if names:
            out.append(
                f"rank {rank} and rank 0 do not have the same tensors: "
                f"{names[0]}{_more_text(names)}"
            )
            continue
        names = []
        for name, bits in found.items():
            # Compared with the first rank that has the same part: of a sharded tensor rank 0 has
            # only one.
            _, expected = first.setdefault(name, (rank, bits))
            if expected != bits:
                names.append(name)
        if names:
            other = first[names[0]][0]
            out.append(
                f"rank {rank} has other bits than rank {other} in {names[0]}{_more_text(names)}"
            )
    return out


def _more_text(names: Sequence[str]) -> str:
    if len(names) > 1:
        return f" and {len(names) - 1} more"
    return ""


class DesyncChecks:
    """When the desync guard compares.

    Args:
        ranks: The ranks that are compared.
        every: Saves between two comparisons; 0 for never.
        say: Receives the differences.
    """

    def __init__(self, ranks: Ranks, every: int, say: Callable[[str], None]) -> None:
        self._ranks = ranks
        self._every = every
        self._say = say
        self._saves = 0

    def before_save(self, step: int, state: RunState) -> None:
        """Compare the ranks if it is due. Collective.

        Raises:
            TrainingStop: They are not in step (exit code 1, on every rank); nothing is saved.
        """
        self._saves += 1
        # The first save is compared as well: ranks that began differently are found at once.
        if not self._every or (self._saves - 1) % self._every:
            return
        optimizers = {name: state.others[name] for name in state.optimizers}
        averaging = {name: state.others[name] for name in matching.average_parts(state.others)}
        found = differences(self._ranks, state.progress.step, state.models, optimizers, averaging)
        if found:
            self._say(f"the ranks are out of step at step {step}, not saved: {'; '.join(found)}")
            raise mark_everywhere(exits.TrainingStop(exits.FAILED, f"out of step: {found[0]}"))


class Replicated(_ForwardingPersister):
    """Saves the replica of the writer; see `rgt_train.checkpoint.async_saver.Persister`.

    Args:
        inner: The persister of the writer; None on the other ranks.
        ranks: All ranks.
        checks: The desync guard.
    """

    def __init__(self, inner: Persister | None, ranks: Ranks, checks: DesyncChecks) -> None:
        super().__init__(inner or StandIn(busy=False, needs=lambda: (0, 0)))
        self._ranks = ranks
        self._checks = checks

    def begin_save(self, request: SaveRequest, state: RunState) -> None:
        """Compare the ranks, collect their random states, and start to write. Collective.

        Raises:
            TrainingStop: The ranks are out of step.
        """
        self._checks.before_save(request.step, state)
        state.random = self._ranks.gather_on_writer(state.random_here())
        self._inner.begin_save(request, state)

    def restore_checkpoint(self, directory: str, state: RunState) -> RestoredState:
        """Restore a checkpoint that every rank has verified. Collective.

        Raises:
            CheckpointDamaged: A rank found a byte that is not the one written; no rank has changed
                anything.
            UsageError: It belongs to something else.
        """
        opened: list[LoadedCheckpoint] = []
        try:
            # Two rounds: no rank changes anything before all have verified every byte.
            run_on_all_ranks(self._ranks, lambda: opened.append(LoadedCheckpoint(directory)))
            return run_on_all_ranks(self._ranks, lambda: state.restore(opened[0]))
        finally:
            for loaded in opened:
                loaded.close()
