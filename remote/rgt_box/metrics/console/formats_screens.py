"""Programs that spread a frame over several lines: Keras with its epoch headline, Lightning with rich."""

from __future__ import annotations

import re

from rgt_box.metrics.console.numbers import NUM, number
from rgt_box.metrics.console.row import Format, Row
from rgt_box.metrics.console.shape import colons

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, List

_HEADLINE = re.compile(r"^Epoch (\d{1,9})/\d{1,9}\s*$")
_FRAME = re.compile(r"^\s{0,9}(\d{1,12})/(\d{1,12}) (?:[━╸\[=>.\]]{1,100} |- )(.*)")


def _keras(line: str, state: Dict[str, Any]) -> List[Row]:
    """Read the epoch's last frame; the others are running means.

    What follows it without validation results is no part of the epoch (``evaluate`` draws the same bar).
    """
    headline = _HEADLINE.match(line)
    if headline is not None:
        state.update(epoch=int(headline.group(1)), done=False)
        return []
    found = _FRAME.match(line)
    if found is None or "epoch" not in state:
        return []
    place = found.group(3).find("loss: ")
    if place < 0 or found.group(1) != found.group(2):
        return []
    values = {tag: number(text) for tag, text in colons(found.group(3)[place:])}
    validated = any(tag.startswith("val_") for tag in values)
    if not values or (state["done"] and not validated):
        return []
    state["done"] = True
    return [Row(values, epoch=float(state["epoch"]))]


KERAS = Format(
    "keras",
    "Keras 3.15 verbose 1 and 2; Keras 2",
    ("epoch ", "loss: "),
    "8/8 - 1s - 126ms/step - loss: nan - mae: nan - val_loss: nan - val_mae: nan",
    _keras,
)

_RICH = re.compile(r"^Epoch (\d{1,9})/\d{1,9} {1,4}[━╸╺]{1,200} (\d{1,12})/(\d{1,12}) ")
_RICH_VALUE = re.compile(r"^ {20,400}([A-Za-z_][\w/.\-]{0,80}): (%s)\s*$" % NUM, re.I)


def _rich(line: str, state: Dict[str, Any]) -> List[Row]:
    """Read the last state of the rich bar and the values in the lines below it; its epochs count from 0."""
    frame = _RICH.match(line)
    if frame is not None:
        epoch, n, total = (int(group) for group in frame.groups())
        state["step"] = epoch * total + n
        return []
    found = _RICH_VALUE.match(line) if "step" in state else None
    if found is None:
        state.pop("step", None)
        return []
    if state["step"] >= 10**15:
        return []
    return [Row({found.group(1): number(found.group(2))}, state["step"])]


RICH = Format(
    "lightning-rich",
    "lightning 2.6 RichProgressBar (drawn once, at the end, into a file)",
    ("━", ": "),
    "                                                               train_loss: 0.288",
    _rich,
)
