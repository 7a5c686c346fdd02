"""Checkpoints: the state taken apart, copied, written by another process, published, kept, mirrored, restored."""

from __future__ import annotations

__all__ = [
    "async_saver",
    "diskio",
    "encoding",
    "lock",
    "manifest",
    "matching",
    "mirror",
    "mirror_places",
    "mirror_worker",
    "publish",
    "receipt",
    "resume",
    "safetensors",
    "saver",
    "state",
    "store",
]
"""Modules that other packages may use."""
