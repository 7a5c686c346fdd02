"""The embedded fleet: three sandboxed boxes on loopback that really train, and the stories they tell."""

from pathlib import Path

RECORDING = Path(__file__).with_name("replay.jsonl.gz")
"""A recorded run, for where the demo cannot run; ``python -m scripts.record_demo`` makes it."""

__all__ = ["RECORDING"]
