"""Which failures in a log are over: the run has outlived them by some steps, or has saved again.

Pure.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple, TypeVar

from rgt_tui.handbook.line_search import (
    LineHit,
    find_quoted_rows,
    matches_words,
    states_of,
    writer_of,
)
from rgt_tui.handbook.pages import AdvisedAction, HandbookPage, PageRole
from rgt_tui.model import Severity

LOSS_BROKEN = "P8"
"""Page for a loss that is not a number."""
RAISED = re.compile(
    r"(?:\[[^]\n]{1,40}\]: ?|\([^)\n]{1,80}\) |\d{1,6}: )?[\w.]*(?:Error|Exception)\b"
)
"""The line of an exception, after the prefix of its writer."""
_ADVANCES = re.compile(
    r"((?<![\d/])\d{1,9}/\d{1,9} \[(?:[\d:]{2,10}<|=)|\d{1,9}/\d{1,9} +[\u2501\u2588=]{4})"
    r"|(?i:(?:\b|_)loss(?:[_/]\w{1,9})?['\"]?(?:\s{0,9}[=:|]\s{0,9}"
    r"|\s{1,9})['\"]?(?:tensor\()?[-+]?\d)"
    r"|(?i:\b(?:epoch|step|iter(?:ation)?|episode|trial|round)s?['\"]?(?:\s{0,3}[=:#\[]\s{0,3}"
    r"|\s{1,3})\d)"
)
"""A progress bar, a finite loss, or the number of a step."""
_STAMPED = re.compile(
    r"\W{0,3}(?:[A-Z] )?(?:[A-Z]\d{4} |\d{4}[-/]\d\d[-/]\d\d[T _])?\d\d:\d\d:\d\d"
)
_STATE = re.compile(r"[^\r\n]{0,300}")
# A step with a NaN loss proves that the loop runs, not that the training goes well.
_NAN = re.compile(r"(?i)\bnan\b")
_SAVES = re.compile(
    r"(?<!not )\b(?:[Ss]aved|published|written)\b(?:(?=[^\n]{0,80}(?i:checkpoint|ckpt|model|weights"
    r"|state))|:)"
    r"|\b(?:[Cc]heckpoint|[Mm]odel|[Ww]eights) [^\n]{0,80}(?<!not )\b(?:saved|published|written)\b"
)
_NUMBER = re.compile(r"[-+]?\d+(?:[.,:]\d+)*(?:e[-+]?\d+)?")
_DIGITS = re.compile(r"\d+")
_TRIES_ON = re.compile(
    r"(?i)\bretr(?:y|ies|ying)\b|\btr(?:y|ying)\b|\battempt \d|\bskip|\bfall(?:ing)? ?back"
    r"|\bcontinu(?:e|ing)\b|\bignor"
)
_REPORTS_FAILURE = re.compile(
    r"(?i)err(?:or|no)|exception|fail|fatal|abort|assert|panic|\bcan(?:no|')t\b|could ?n[o']t"
    r"|unable|invalid|illegal"
    r"|denied|refuse|\blost\b|terminated|exceed|insufficient|\bno more\b|\bout of\b|unavailable"
    r"|mismatch|corrupt"
    r"|truncated|premature|missing|\bnot (?:found|available|enough|enabled)|\bd(?:o|oes|id)(?: not"
    r"|n't)\b|previous xid"
    r"|exit|\bkill|\bsignal\b|\bSIG[A-Z]{3,4}\b|crash|\bdied\b|segmentation|timed out|unreachable"
    r"|\bfull\b"
    r"|no space|\bE(?:NOSPC|DQUOT|CONN\w+|TIMEDOUT|HOST\w+|NET\w+|AI_\w+)\b|空间|espacio|espace"
    r"|speicherplatz|容量"
)
_STATUS = re.compile(
    r"(?i)(?:exit|return)(?:ed|s)?[ _-]?(?:with )?(?:exit |return )?(?:code|status"
    r"|value)?['\"]?(?: (?:is|was|of))?"
    r"\s?[:=(]{0,2}\s?(-?\d{1,3})\b(?![.%\d])"
    r"|\bsignal:? ?[#=(]{0,2}(\d{1,2})\b|\b(?:sig|\d{1,2}/)(kill|segv|abrt|bus|ill|fpe)\b"
)
"""How a process ended, in the words of any launcher: an exit status, a signal's number or name."""
_MILD_WORDS = re.compile(
    r"(?i)\b(?:warn(?:ings?)?|info|debug|\w*deprecat\w*|ignor\w*|skip\w*|retry\w*|suggestion)\b"
)
_GRAVE_WORDS = re.compile(r"\b(?:ERROR|FATAL|CRITICAL)\b|\w(?:Error|Exception)\b[:(]")
_NO_FAILURE = re.compile(
    r"(?i)(?<![\w.])(?:0|no) (?:\w+ )?(?:corrupt\w*|missing|errors?|fail\w*)|\btruncated (?:to|at"
    r"|after) \w"
    r"|\b(?:missing|unexpected|failed|errors?|corrupt\w*"
    r"|mismatch\w*)(?: \w+)?\s?[:=]\s?(?:0\b(?!\.\d)|\[\]|none\b)"
)
WARNS = re.compile(
    r": W (?:tensorflow|external|xla)/|^\[?W\d{3,4} \S+ +\d|torch/(?:cuda|xpu"
    r"|npu)/__init__\.py:\d+: UserWarning"
)
"""A framework only warns of what it found of devices and their libraries: it goes on, on the CPU.
"""
_ENDS_RUN = re.compile(
    r"(?:\b|_)(?:ERROR|FATAL|CRITICAL)\b|^[\w.]*[a-z](?:Error|Exception)(?:: (?![-+\d.%]+$)|$)"
    r"|(?:^|[\]:|] ?)(?i:(?:uncaught |fatal |internal )?error|fatal|panic)\]?:(?! *[-+\d.%]+$)"
    r"|错误[:：]|##\[error\]"
    r"|(?i:\b(?:job|process|task|worker|executor|container|subprocess|command|cell|kernel|session"
    r"|program|script|node"
    r"|host)\b[^\n]{0,80}\b(?:killed|aborted|failed|lost|exited|died|dead|crashed|terminated"
    r"|exceeded|cancell?ed"
    r"|evicted|preempted)\b(?! \w+ 0\b)|\bexit(?:ed|s)?(?: with)?(?: return)?(?: code"
    r"| status)[ =:]{1,3}-?[1-9])"
    r"|\bSIG(?!TERM|INT|HUP)[A-Z]{3,6}\b|core dumped|^terminate called|^[EF]\d{4} |^\*\*\* "
    r"|[Ee]xception code:"
    r"|\b[Aa]bort(?:ed)?\b|^\s{0,4}what\(\):"
)
"""A line with which a program, or who started it, ends: more than a word for a failure."""
_FRAME = re.compile(r'^\s*File "[^"\n]+", line \d')
SAVED_BY = ("U6", "U7", "U33", "CKPT1")
"""Pages about what could not be stored: over once a checkpoint was saved."""


AnyHit = TypeVar("AnyHit", bound=LineHit)


class ProgressMark(NamedTuple):
    """A state of a line that shows that the training advances, or that it came to its end."""

    number: int
    text: str
    kind: str
    """Its text without the numbers; empty = a progress bar. A summary at the end, as trackers
    print, has a line of each kind.
    """
    in_order: bool
    """It cannot have been held back in a buffer: it has a time, or is a progress bar."""


def find_progress(end: str, last: int) -> list[ProgressMark]:
    """Return the progress marks in the end of a log.

    Args:
        end: End of the log.
        last: Number of its last line.
    """
    first, marks = last - end.count("\n"), []
    at = number = 0
    for match in _ADVANCES.finditer(end):
        number += end.count("\n", at, match.start())
        at = match.start()
        start = max(end.rfind("\n", 0, at), end.rfind("\r", 0, at)) + 1
        text = _STATE.match(end, start)[0]  # type: ignore[index]
        bar = match[1] is not None
        kind = _NUMBER.sub("0", text)
        if bar:
            kind = ""
        timed = bar or _STAMPED.match(text) is not None
        if _NAN.search(text) is None:
            marks.append(ProgressMark(first + number, text, kind, timed))
    return marks


def drop_outlived(
    hits: Sequence[AnyHit], pages: Mapping[str, HandbookPage], end: str, last: int
) -> Sequence[AnyHit]:
    """Return the hits that the run has not outlived, see `split_outlived`."""
    return split_outlived(hits, pages, end, last)[0]


def split_outlived(
    hits: Sequence[AnyHit], pages: Mapping[str, HandbookPage], end: str, last: int
) -> tuple[Sequence[AnyHit], Sequence[tuple[AnyHit, int]]]:
    """Return the hits that count, and those that the run has outlived, with the steps after each.

    Steps after a raised exception prove it only if they cannot have been held back in a buffer
    until the end: they have a time, the log had steps before, there are many, or the program says
    that it tries again. What filled a disk is over once a checkpoint was saved. Nothing is dropped
    if all that is left only follows from it.

    Args:
        hits: The matches.
        pages: The handbook.
        end: End of the log.
        last: Number of its last line.
    """
    if not hits:
        return hits, ()
    marks = find_progress(end, last)
    # Different states behind a line that show that the run went on.
    enough = 3
    # One or two may have been buffered since before the failure.
    if len(marks) < enough:
        return hits, ()
    lines = end.split("\n")
    first = last - len(lines) + 1
    # Lines that are still repeated at the end are a state that lasts.
    recent = {
        _shape_of(state)
        for line in lines[max(0, marks[-enough].number - first) :]
        for state in states_of(line)
    }
    kept, outlived = [], []
    for hit in hits:
        after = [mark for mark in marks if mark.number > hit.line_no]
        page = pages[hit.id]
        kinds = Counter(kind for kind, _ in {(mark.kind, mark.text) for mark in after})
        behind = max(kinds.values(), default=0)
        over = behind >= enough and _shape_of(hit.line) not in recent
        if page.severity != Severity.FATAL and page.action != AdvisedAction.RESUME:
            over = False  # a state that lasts, not an event
        elif over and hit.id == LOSS_BROKEN:
            broken = first + _find_last_line(lines, _NAN)
            over = (
                sum(mark.number > broken and "loss" in mark.text.lower() for mark in after)
                >= enough
            )
        elif over and hit.id in SAVED_BY:
            over = first + _find_last_line(lines, _SAVES) > hit.line_no
        elif over and RAISED.match(writer_of(hit.line)[1].lstrip()) is not None:
            over = (
                any(mark.in_order for mark in after)
                or marks[0].number < hit.line_no
                or _is_far_behind(lines, hit.line_no - first, after[-1].number - first)
                or any(map(_TRIES_ON.search, lines[max(0, hit.line_no - first - 8) :][:16]))
            )
        if over:
            outlived.append((hit, behind))
        else:
            kept.append(hit)
    # A consequence without its cause would be reported: then everything counts.
    if kept and all(pages[hit.id].role == PageRole.CONSEQUENCE for hit in kept):
        return hits, ()
    return kept, outlived


def _find_last_line(lines: Sequence[str], pattern: re.Pattern[str]) -> int:
    """Return the index of the last line with a match; -1 = none."""
    for at in range(len(lines) - 1, -1, -1):
        if pattern.search(lines[at]):
            return at
    return -1


def _shape_of(line: str) -> str:
    return _DIGITS.sub("0", line.strip())


def _is_far_behind(lines: Sequence[str], start: int, stop: int) -> bool:
    """Return whether more stands between two lines than a program holds back in its buffer."""
    buffer = 8192
    return sum(len(line) + 1 for line in lines[max(0, start) : stop + 1]) > 2 * buffer


def find_stated_ends(
    end: str, last: int, pages: Mapping[str, HandbookPage], hits: Sequence[LineHit]
) -> list[LineHit]:
    """Return the pages' `end_words` matches among the lines that report a failure at the end of a log.

    Messages of any program and form count: an exception's text, glog's failed checks, C++'s message
    about an uncaught exception. Empty if a line names a cause already.

    Args:
        end: End of the log.
        last: Number of its last line.
        pages: The handbook.
        hits: The matches of the pages' patterns that count.
    """
    if any(
        pages[hit.id].role == PageRole.CAUSE
        and pages[hit.id].severity == Severity.FATAL
        and not WARNS.search(hit.text)
        for hit in hits
    ):
        return []
    worded = [page for page in pages.values() if page.end_words]
    # What a pattern knows is surer.
    known = {
        hit.line_no
        for hit in hits
        if pages[hit.id].role != PageRole.UNKNOWN and pages[hit.id].severity == Severity.FATAL
    }
    # A launcher ends the other ranks after an exception of one.
    raised = any(RAISED.match(hit.text) for hit in hits)
    found: list[LineHit] = []
    for number, state, said in find_failure_lines(end, last):
        if number in known:
            continue
        low = said.lower()
        if not raised:
            low += f" {_name_signal(said)}"
        found.extend(
            LineHit(id=page.id, line=state, line_no=number, text=said.strip(), by_end_words=True)
            for page in worded
            if matches_words(low, page.end_words, page.unless)
        )
    return list(drop_outlived(found, pages, end, last))


def _name_signal(said: str) -> str:
    """Return ``=killed`` or ``=crashed`` if a line reports an end by SIGKILL or by a fault, else nothing."""
    kill, faults, shell_base = 9, (4, 6, 7, 8, 10, 11), 128
    for status, number, name in _STATUS.findall(said):
        signal = int(number or status or 0)
        if status and signal > shell_base:
            signal -= shell_base
        elif status:
            signal = max(0, -signal)
        if signal == kill or name.lower() == "kill":
            return "=killed"
        if signal in faults or name:
            return "=crashed"
    return ""


def find_failure_lines(end: str, last: int) -> Iterator[tuple[int, str, str]]:
    """Yield the lines that report a failure at the end of a log: number, text, text without prefixes.

    Args:
        end: End of the log.
        last: Number of its last line.
    """
    passed = max((mark.number for mark in find_progress(end, last)), default=-1)
    lines = end.rstrip().split("\n")
    first = last - end[len(end.rstrip()) :].count("\n") - len(lines) + 1
    # Lines at the end of a log in which programs say why they end; a C++ stack may follow.
    last_words = 60
    start = max(0, len(lines) - last_words)
    quoted = find_quoted_rows(lines[start:])
    # After the same line the program continued before.
    survived = {_shape_of(states_of(line)[-1]) for line in lines[: max(0, passed - first)]}
    for place, line in enumerate(lines[start:]):
        state = states_of(line)[-1]
        said = _NO_FAILURE.sub("", writer_of(state)[1][:1000])
        if quoted[place] or not _REPORTS_FAILURE.search(said) or _shape_of(state) in survived:
            continue
        # The loop continued, except that losses after an exception may have been held back.
        if first + start + place < passed and RAISED.match(said) is None:
            continue
        if _MILD_WORDS.search(said) and not _GRAVE_WORDS.search(said):
            continue
        yield first + start + place, state.strip(), said


def find_last_words(end: str, last: int) -> list[tuple[int, str, str]]:
    """Return the last lines that report a failure, as `find_failure_lines`; empty if the log does not end in one.

    Args:
        end: End of the log.
        last: Number of its last line.
    """
    # A few lines may follow the error, such as a launcher's.
    most_after, most_lines = 25, 8
    found = [row for row in find_failure_lines(end, last) if not _FRAME.match(row[2])]
    stop = last - end[len(end.rstrip()) :].count("\n")
    ends = any(stop - number <= most_after and _ENDS_RUN.search(said) for number, _, said in found)
    if not ends:
        return []
    return found[-most_lines:]
