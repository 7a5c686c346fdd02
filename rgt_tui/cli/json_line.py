"""A line of JSON that is exact and harmless: what a terminal would obey comes as an escape of JSON."""

from __future__ import annotations

import json
import re

import msgspec

from rgt_tui.model.plain import INVISIBLE


def json_line(value: object) -> bytes:
    """Return `value` as JSON with its line feed. Nothing is lost: whoever parses it has every character back.

    JSON itself escapes only the control characters below U+0020; those of U+007F to U+009F, which a terminal obeys as
    well, and those that turn the direction of text are escaped here.
    """
    return INVISIBLE.sub(_escaped, msgspec.json.encode(value).decode()).encode() + b"\n"


def _escaped(found: re.Match[str]) -> str:
    return json.dumps(found.group())[1:-1]
