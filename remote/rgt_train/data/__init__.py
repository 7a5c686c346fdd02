"""Data whose position and randomness survive a kill: seeded samples, streams with a position."""

from __future__ import annotations
