"""What a run writes about itself: lines, metrics, its own records, TensorBoard."""

from __future__ import annotations
