"""Whether the audit log is whole: its own hashes, and the lines that the journal says were written; in words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from rgt_tui.gate.audit import AuditLine, AuditLog, Chain, default_path, verify
from rgt_tui.gate.journal import JOURNAL, Journal, Record
from rgt_tui.model.figures import moment
from rgt_tui.profiles.readings import how_many


def whole_chain(lines: Sequence[AuditLine], named: Sequence[Record]) -> Chain:
    """Follow the hashes, and look for the lines that the journal names: a log whose end was cut off has whole hashes.

    Args:
        lines: All of the log.
        named: `Journal.audited`, read before the log: what is written meanwhile must not seem to be missing.
    """
    chain = verify(iter(lines))
    if chain.broken is not None:
        return chain
    there = {line.hash for line in lines}
    gone = next((record for record in named if record.audit not in there), None)
    if gone is None:
        return chain
    deed = f"{gone.verb or 'rent'} of {gone.box} at {moment(gone.at)} ({gone.state})"
    why = f"the line of {deed}, which the journal names, is not there as it was written"
    return msgspec.structs.replace(chain, broken=chain.lines + 1, reason=why)


def read_checked(env: Mapping[str, str]) -> tuple[list[AuditLine], Chain]:
    """Read the whole log of a person and check it. It may block.

    Raises:
        AuditFailed: the log cannot be read.
        JournalFailed: the journal cannot be read.
    """
    log = AuditLog(default_path(env))
    named = tuple(Journal(log.path.parent / JOURNAL).audited())
    lines = list(log.lines())
    return lines, whole_chain(lines, named)


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
