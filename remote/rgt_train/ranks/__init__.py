"""The processes of a run: their identities, the leader, and how their state gets to disk."""

from __future__ import annotations

__all__ = ["choose", "dcp_reader", "heartbeat", "launch", "replicated", "torch_ranks"]
"""Modules that other packages may use."""
