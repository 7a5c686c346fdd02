"""How a number looks in the output of a training program, NaN and infinities included."""

from __future__ import annotations

NUM = (
    r"(?:[-+]?(?:(?:\d{1,3}(?:,\d{3}){1,6}|\d{1,24})(?:\.\d{0,24})?|\.\d{1,24})(?:e[-+]?\d{1,4})?"
    r"|[-+]?(?:nan|inf(?:inity)?))(?![\w.])"
)
"""A whole number token; every repetition is bounded, so that no text makes it slow. For ``re.IGNORECASE``."""

STEP = r"\d{1,15}"
"""A step: short enough to be counted exactly."""

MOST_STEP = 10**15


def number(text: str) -> float:
    """Return the number that `NUM` matched; thousands separators are dropped."""
    return float(text.replace(",", ""))
