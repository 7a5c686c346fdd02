"""Pull results from a box: requests, connections, streams, and checks of the copies."""

__all__ = ["box_pipe", "pull_stream", "pulling"]
"""Modules that other packages may use."""
