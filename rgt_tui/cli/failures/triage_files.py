"""``rgt triage``: what logs of any origin show."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from rgt_tui.cli.commands import OK, TROUBLE, UNKNOWN
from rgt_tui.cli.failures.collective_files import collective_findings
from rgt_tui.cli.printing import complain, json_line
from rgt_tui.handbook import (
    ACTION_WORDS,
    Action,
    FileFinding,
    HandbookError,
    Unreadable,
    all_pages,
    read_samples,
    triage_file,
    weighed,
)
from rgt_tui.model.plain import clean
from rgt_tui.profiles.log_advice import Ends, log_advice
from rgt_tui.profiles.run_advice import Advice


def run_triage(arguments: argparse.Namespace) -> int:
    """Read the files; return the exit status."""
    try:
        pages = all_pages()
        samples = read_samples(Path(arguments.samples)) if arguments.samples else ()
    except (HandbookError, Unreadable) as error:
        complain(error)
        return UNKNOWN
    status = OK
    dumps = collective_findings(arguments.files, pages)
    for name in arguments.files:
        try:
            ends = Ends()
            found = dumps.get(name)
            if isinstance(found, Unreadable):
                raise found
            if found is None:
                found = weighed(triage_file(Path(name), pages, ends.feed), samples, pages)
        except Unreadable as error:
            complain(error)
            status = UNKNOWN
            continue
        if found and status == OK:
            status = TROUBLE
        told = log_advice(ends.lines, samples)
        if arguments.json:
            sys.stdout.buffer.write(json_line(as_json(name, found, told)))
        else:
            sys.stdout.write("".join(f"{line}\n" for line in as_text(name, found, told)))
    sys.stdout.flush()
    return status


def as_json(name: str, found: list[FileFinding], told: Sequence[Advice] = ()) -> dict[str, Any]:
    """Return one file's object: what broke, and what its own figures advise."""
    return {
        "file": name,
        "findings": [
            {
                "gotcha": one.gotcha,
                "title": one.title,
                "line_no": one.line_no,
                "line": one.line,
                "confidence": one.confidence,
                "severity": one.severity,
                "action": one.action,
                "fix": [fix.text if fix.command is None else f"{fix.text}: {fix.command}" for fix in one.fix],
                "never": one.never,
                "times": one.times,
            }
            for one in found
        ],
        "advice": [
            {"about": one.about, "text": one.text, "page": one.page, "seconds": one.seconds} for one in told
        ],
    }


def as_text(name: str, found: list[FileFinding], told: Sequence[Advice] = ()) -> Iterator[str]:
    """Yield the lines that a person reads."""
    if not found:
        yield f"{clean(name)}: nothing known is wrong in it"
    for one in found:
        where = f"{clean(name)}:{one.line_no}" if one.line_no else clean(name)
        yield f"{where}: {one.gotcha} {one.title} ({one.severity}, {one.confidence:.0%} sure)"
        yield f"  proof  {clean(one.line)[:400]}"
        yield f"  do     {ACTION_WORDS[Action(one.action)]}"
        yield f"  never  {one.never}"
        for number, fix in enumerate(one.fix, 1):
            yield f"  fix {number}  {fix.text}"
            if fix.command is not None:
                yield f"         $ {fix.command}"
    for advice in told:
        page = f" ({advice.page})" if advice.page else ""
        yield f"{clean(name)}: advice: {clean(advice.text)}{page}"
