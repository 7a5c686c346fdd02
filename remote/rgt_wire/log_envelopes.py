"""What collectors, launchers and loggers put before a line of a log, and how to take it off.

Used for curves on the box and for triage on the client, so both see the same text.
"""

from __future__ import annotations

import json
import re

from rgt_wire.metric_roles import MEASURES, role_of

WRITERS = (
    r"\[(?:[A-Za-z_]{1,40})?\d{1,6}\]:(?: (?=\S|  File ))?"
    r"|\[\d{1,6},\d{1,6}\]<std(?:out|err)>:(?: (?=\S|  File ))?"
    r"|\(\w[\w.:-]{0,80} pid=\d{1,9}(?:, ip=[\d.a-f:]{2,40})?\) "
    r"|\d{1,6}: (?=\S|  File )|[a-z][\w.-]{0,60}-\d{1,3} +\| |\[pod/[\w./-]{1,200}\] "
)
"""Prefixes of lines from one of several writers (torch, torchrun --tee, MPI, Ray, srun --label,
Compose, kubectl --prefix).
"""
COLLECTED = (
    r"\d{4}-\d\d-\d\dT[\d:.,]{8,20}(?:Z|[+-]\d\d:?\d\d)? (?:std(?:out|err) [FP] )?"
    r"|#\d{1,4} (?:\d{1,6}\.\d{1,4} |(?=ERROR: ))"
    r"|[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d (?!Traceback )[\w.-]{1,64} "
    r"(?:(?:bash|sh|python[\d.]{0,5}|train\w{0,20}|run\w{0,20}|[\w-]{1,40}\.(?:sh"
    r"|py))\[\d{1,8}\]: )?"
)
"""Prefixes added by log collectors: a pod's runtime, an image builder, the systemd journal. The
program's name is kept, except for scripts, because messages are recognised together with it.
"""
_LOGGED = (
    r"[ ]?[\[(]?(?:\d{4}[-/.]\d\d[-/.]\d\d"
    r"|\d\d[-/]\d\d(?:[-/]\d{2,4})?)[T ,_]{1,2}\d\d:\d\d:\d\d(?:[.,:]\d{1,9})?"
    r"(?:Z|[ ]?[+-]\d\d:?\d\d)?[\])]?[:,]?(?: |$|(?=[\t\[]))"
    r"|[ ]?[\[(]?\d\d:\d\d:\d\d(?:[.,]\d{1,9})?[\])]?[:,]?(?: |(?=\t))"
    r"|(?:\[ )?[A-Z][a-z]{2} (?:\d\d? [A-Z][a-z]{2}|[A-Z][a-z]{2} [ \d]?\d) (?:\d{4} )?"
    r"\d\d:\d\d:\d\d(?: \d{4})?(?: \])? "
    r"|\[?(?:INFO|DEBUG|WARNING|ERROR)\]?[ :|-]{1,3}(?=[\[(]?\d\d)"
    r"|[IWEF]\d{4,8} \d\d:\d\d:\d\d\.\d{3,9} +\d{1,20} [\w./-]{1,80}:\d{1,6}\] "
)
"""Time stamps that a program's own logger writes."""
_BEFORE = re.compile(f"(?:{COLLECTED}|{_LOGGED}|(?P<writer>{WRITERS}))")
_STARTS = frozenset("0123456789[( #IWEFJMASONDTabcdefghijklmnopqrstuvwxyz")
_TEXT_KEYS = ("log", "message", "msg", "textPayload", "jsonPayload", "MESSAGE", "line", "data")
"""Keys under which collectors and loggers keep a line inside a JSON object."""


def unwrap_json_line(text: str) -> str:
    """Return the line inside a collector's JSON object; any other text unchanged.

    An object with a measure of its own, such as a loss, is a line itself.
    """
    # Before json.loads: this runs for every line of every log.
    if text[:1] not in "{[," or not any(f'"{key}"' in text for key in _TEXT_KEYS):
        return text
    try:
        # Collectors that write one JSON array put its commas and brackets around each line.
        row = json.loads(text.strip().lstrip("[,").rstrip("],"))
    except (ValueError, RecursionError):
        return text
    if not isinstance(row, dict):
        return text
    if any(type(y) in (int, float) and role_of(key) in MEASURES for key, y in row.items()):
        return text
    if isinstance(row.get("jsonPayload"), dict):
        row = row["jsonPayload"]
    for key in _TEXT_KEYS:
        if isinstance(row.get(key), str):
            return str(row[key]).rstrip("\r\n")
    return text


def split_envelope(text: str) -> "tuple[str, str]":
    """Return (writer, text) of a line without what comes before its message; writer "" if unknown."""
    # Most lines have no prefix: one character decides, without a regular expression.
    if text[:1] not in _STARTS:
        return "", text
    writer = ""
    start = 0
    # A runtime's time stamp, a rank and the logger's own time stamp may follow each other.
    most_prefixes = 4
    for _ in range(most_prefixes):
        found = _BEFORE.match(text, start)
        # An empty match would loop without progress.
        if found is None or found.end() == start:
            break
        writer = writer or (found.group("writer") or "").strip(" :[]|")
        start = found.end()
    return writer, text[start:]
