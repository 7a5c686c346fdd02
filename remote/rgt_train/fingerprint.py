"""What decides, beside the state, which bits a step computes."""

from __future__ import annotations

import platform
import sys
from typing import Any, Dict, Mapping

import torch


def environment(world: int = 1) -> Dict[str, Any]:
    """Return versions, device, threads and flags; where two differ, bits may differ.

    Args:
        world: Ranks of the run (another number adds in another order).
    """
    cuda = torch.cuda.is_available()
    facts: Dict[str, Any] = {
        "torch": str(torch.__version__),
        "python": platform.python_version(),
        "device": torch.cuda.get_device_name() if cuda else "cpu",
        "cpu": _capability(),
        "threads": torch.get_num_threads(),
        "ranks": world,
        "deterministic": _deterministic(),
        "matmul": torch.get_float32_matmul_precision(),
    }
    numpy: Any = sys.modules.get("numpy")
    if numpy is not None:
        facts["numpy"] = str(numpy.__version__)
    if cuda:
        facts["cuda"] = str(torch.version.cuda)
        facts["cudnn"] = str(torch.backends.cudnn.version())  # type: ignore[no-untyped-call]
        facts["cudnn deterministic"] = torch.backends.cudnn.deterministic
        facts["cudnn benchmark"] = torch.backends.cudnn.benchmark
        facts["tf32"] = torch.backends.cuda.matmul.allow_tf32
    return facts


_HARMLESS = ("python", "numpy")
"""Told when they change, but they compute nothing in a step."""


def changes(old: Mapping[str, Any], new: Mapping[str, Any]) -> str:
    """Return what differs, in words; empty if nothing."""
    keys = [key for key in {**old, **new} if old.get(key) != new.get(key)]
    return ", ".join(f"{key} {old.get(key)} → {new.get(key)}" for key in keys)


def guarantee(
    old: Mapping[str, Any],
    new: Mapping[str, Any],
    lost: str = "",
    settings: str = "",
    *,
    sampled: bool = False,
    unknown: str = "",
) -> str:
    """Say in words whether the run goes on with the bits it would have had without the interruption.

    Args:
        old: `environment` of the checkpoint.
        new: `environment` now.
        lost: What could not be restored, in words.
        settings: Which settings have changed, in words.
        sampled: Whether the checkpoint was compared with its step by samples alone.
        unknown: What cannot be known and may make other bits, in words.
    """
    weighty = {key for key in {**old, **new} if key not in _HARMLESS}
    differs = changes(
        {k: v for k, v in old.items() if k in weighty}, {k: v for k, v in new.items() if k in weighty}
    )
    timed = "cudnn benchmark is on: each launch picks its kernels anew, by their speed"
    doubts = [lost, differs, timed if new.get("cudnn benchmark") else ""]
    if any(doubts):
        return f"bits may differ from the uninterrupted run: {'; '.join(doubt for doubt in doubts if doubt)}"
    if sampled:
        told = "the checkpoint was sampled, not compared in full with its step; as far as that tells, the same bits"
    else:
        told = "bit for bit, as far as known"
    if torch.cuda.is_available() and new.get("deterministic") is not True:
        told += ", where the CUDA kernels are deterministic"
    if settings:
        told += ", but for what the changed settings do"
    return f"same torch, device and threads: {told}{f' (not known: {unknown})' if unknown else ''}"


def _deterministic() -> Any:
    """Return True, False, or ``warn only``, which computes as it would without and merely complains."""
    asked = torch.are_deterministic_algorithms_enabled()
    return "warn only" if asked and torch.is_deterministic_algorithms_warn_only_enabled() else asked


def _capability() -> str:
    try:
        return str(torch.backends.cpu.get_cpu_capability())
    except AttributeError:
        return platform.machine()
