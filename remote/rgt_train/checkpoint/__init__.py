"""Checkpoints: the state taken apart, copied, written by another process, published, kept, mirrored, put back."""

from __future__ import annotations
