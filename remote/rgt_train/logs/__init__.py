"""Where a run's numbers go beside ``metrics.jsonl``: TensorBoard event files, W&B, trackio."""

from __future__ import annotations
