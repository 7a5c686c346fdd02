"""The agent on a box: samples, records, follows logs, runs queues.

Standard library only, Python 3.8 or newer.
"""

from __future__ import annotations

PROTO = 1
"""Version of the frames; equal to the client's ``PROTOCOL_VERSION``."""
