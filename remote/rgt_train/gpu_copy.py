"""Copies from GPUs into pinned memory on streams of their own: the training's stream waits for them, not its thread."""

from __future__ import annotations

from typing import Dict, List, Sequence, Tuple

import torch

Move = Tuple[torch.Tensor, torch.Tensor]
"""(source on a GPU, target in memory)."""


class GpuCopy:
    """Copies that run beside the next forward and backward.

    Args:
        now: Copied in the order of the training's own stream: nothing that it does later is seen by them.
        later: Copied by a second stream of each device.
    """

    def __init__(self, now: Sequence[Move], later: Sequence[Move]) -> None:
        self._done: List["torch.cuda.Event"] = []
        self._later: Dict[torch.device, "torch.cuda.Event"] = {}
        for source, target in now:
            target.copy_(source, non_blocking=True)
        for device in {source.device for source, _ in now}:
            self._done.append(_record(torch.cuda.current_stream(device)))
        for device in {source.device for source, _ in later}:
            stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
            stream.wait_stream(torch.cuda.current_stream(device))
            with torch.cuda.stream(stream):
                for source, target in later:
                    if source.device == device:
                        target.copy_(source, non_blocking=True)
            self._later[device] = _record(stream)

    def fence(self) -> None:
        """Let what the training launches from now on wait for the copies, on the GPU."""
        for device, event in self._later.items():
            torch.cuda.current_stream(device).wait_event(event)

    def finish(self) -> None:
        """Wait until all copies have arrived in memory."""
        for event in [*self._done, *self._later.values()]:
            event.synchronize()


def _record(stream: "torch.cuda.Stream") -> "torch.cuda.Event":
    event = torch.cuda.Event()  # type: ignore[no-untyped-call]
    event.record(stream)
    return event
