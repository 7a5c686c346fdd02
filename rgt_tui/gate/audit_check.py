"""Whether the audit log is whole: its own hashes, and the lines that the journal says were written; in words."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

import msgspec

from rgt_tui.gate.audit import AuditLine, AuditLog, Chain, default_path, verify
from rgt_tui.gate.journal import JOURNAL, Journal
from rgt_tui.profiles.readings import how_many


def whole_chain(lines: Sequence[AuditLine], journal: Journal) -> Chain:
    """Follow the hashes, and look for the lines that the journal names: a log whose end was cut off has whole hashes.

    Raises:
        JournalFailed: the journal cannot be read.
    """
    chain = verify(iter(lines))
    if chain.broken is not None:
        return chain
    there = {line.hash for line in lines}
    gone = next((record for record in journal.audited() if record.audit not in there), None)
    if gone is None:
        return chain
    deed = f"{gone.verb or 'rent'} of {gone.box} at {moment(gone.at)}"
    why = f"the line of {deed}, which the journal names, is not there"
    return msgspec.structs.replace(chain, broken=chain.lines + 1, reason=why)


def read_checked(env: Mapping[str, str]) -> tuple[list[AuditLine], Chain]:
    """Read the whole log of a person and check it. It may block.

    Raises:
        AuditFailed: the log cannot be read.
        JournalFailed: the journal cannot be read.
    """
    log = AuditLog(default_path(env))
    lines = list(log.lines())
    return lines, whole_chain(lines, Journal(log.path.parent / JOURNAL))


def moment(at: float) -> str:
    """Return a time by the local clock; a number that is none as it stands."""
    try:
        return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at))
    except (ValueError, OverflowError, OSError):
        return f"{at:g}"


def chain_words(chain: Chain) -> str:
    """Return what the hashes say, in a sentence."""
    if chain.broken is not None:
        return f"BROKEN at line {chain.broken}: {chain.reason}"
    if not chain.lines:
        return "no line yet"
    said = f"whole, {how_many(chain.lines, 'line')}"
    if chain.begins is None:
        said = f"{said}, none of which carries a hash: an older rgt wrote them"
    elif chain.begins > 1:
        said = f"{said}; the chain begins at line {chain.begins}, nothing vouches for what an older rgt wrote before"
    if chain.torn:
        torn = ", ".join(map(str, chain.torn))
        said = f"{said}; torn when rgt or the computer ended: line {torn}"
    return said
