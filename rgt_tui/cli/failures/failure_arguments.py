"""Arguments of the commands about failures: options, help and examples."""

from __future__ import annotations

from rgt_tui.cli.arguments import (
    Arguments,
    flag,
    positional,
    text_option,
)


class TriageArguments(Arguments):
    """Arguments of ``rgt triage``."""

    about = """
    Read logs of any origin on this machine and say which known failures they show, the best first:
    the line that proves it, what never to do, and the fix. Nothing is run, and no box is asked.
    """
    examples = (
        "rgt triage train.log",
        "rgt triage logs/*.log --json | jq -r '.findings[0].gotcha'",
        "journalctl -u train | rgt triage -",
        "rgt triage /tmp/nccl_trace_rank_*",
    )
    files: list[str] = positional(
        "FILE",
        "a log (- is standard input; gz, bz2, xz are unpacked), the ranks' flight recorder dumps, ncclras' output",
        nargs="+",
    )
    samples = text_option(
        "FILE", "readings of the box from that time: a file of rgt record, or lines of the agent's sample"
    )
    box = text_option("NAME", "whose readings count, where FILE has those of several boxes")
    json = flag("print one JSON object per file: file, findings")


class HandbookArguments(Arguments):
    """Arguments of ``rgt handbook``."""

    about = """
    Search the handbook of known failures: by id, by words, or by an error line in quotes. One match
    is shown whole. `rgt handbook new ID` drafts a page of your own in ~/.config/rgt/handbook.
    """
    examples = (
        "rgt handbook U7",
        "rgt handbook no space",
        "rgt handbook 'Address already in use'",
        "rgt handbook new LAB1",
    )
    term: list[str] = positional("TERM", "an id, words, or a line (default: list all pages)", nargs="*")
    json = flag("print one JSON object per page, and per trap of a platform")
