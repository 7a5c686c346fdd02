"""What the checklist asks of gpu."""

from __future__ import annotations

from rgt_tui.health.facts import (
    Facts,
)
from rgt_tui.lifecycle.check import Verdict, failed, passed, waiting, warn


def check_gpu_seen(view: Facts) -> Verdict:
    """A card answers. A replayed trace is called what it is, and proves nothing."""
    if view.box.sample is None:
        return waiting("no sample yet")
    gpus, at = view.box.sample.gpus, view.box.sample_at
    if not gpus:
        return failed("no GPU is seen on this box", at)
    broken = [gpu for gpu in gpus if gpu.error is not None]
    if broken:
        return failed(f"GPU {broken[0].index}: {broken[0].error}", at)
    names = f"{len(gpus)} × {gpus[0].name}"
    if any(gpu.sim for gpu in gpus):
        return warn(f"SIM: {names} replayed from a trace, no real GPU was seen", at)
    source = view.box.hello.gpu_source if view.box.hello is not None else "?"
    return passed(f"{names}, by {source}", at)
