"""Data whose order, position and randomness survive a kill."""

from __future__ import annotations
