"""Pure plotting: raw series in, rows of styled text out. Knows nothing of Textual.

`view` and `ticks` are plain Python; the others import numpy, so that whoever wants a plot imports them when the first
one is drawn, not before.
"""

__all__ = ["board", "canvas", "frame", "picture", "view"]
"""Modules that other packages may use."""
