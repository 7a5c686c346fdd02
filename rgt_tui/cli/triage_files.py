"""``rgt triage``: failures in logs of any origin, and in dumps of collectives."""

from __future__ import annotations

import io
import json
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rgt_tui.cli.commands import OK, TROUBLE, UNKNOWN
from rgt_tui.cli.printing import json_line, print_error, print_lines
from rgt_tui.cli.watch_arguments import TriageArguments
from rgt_tui.files import open_regular
from rgt_tui.handbook import (
    ACTION_WORDS,
    AdvisedAction,
    FileFinding,
    HandbookError,
    HandbookPage,
    LogSource,
    Unreadable,
    add_nearest_page,
    all_pages,
    collectives,
    curve_findings,
    triage_file,
)
from rgt_tui.handbook.collectives import CollectiveVerdict, RankDump
from rgt_tui.language import show_recorded, translate
from rgt_tui.profiles.log_advice import HeadAndTail, log_advice

if TYPE_CHECKING:
    from rgt_tui.profiles import Advice


def run_triage(arguments: TriageArguments) -> int:
    """Triage the files; return the exit status."""
    try:
        pages = all_pages()
        samples: Sequence[Mapping[str, Any]] = ()
        if arguments.samples:
            from rgt_tui.handbook.sample_evidence import read_samples

            samples = read_samples(Path(arguments.samples), arguments.box)
    except (HandbookError, Unreadable) as error:
        print_error(error)
        return UNKNOWN
    status = OK
    # All dumps together first: which rank is missing only shows in a comparison of the ranks.
    dumps = collective_findings(arguments.files, pages)
    for name in arguments.files:
        try:
            overcome: list[FileFinding] = []
            found = dumps.get(name)
            told: Sequence[Advice] = ()
            if isinstance(found, Unreadable):
                raise found
            if found is None:
                found, told = triage_log(Path(name), pages, samples, overcome)
        except Unreadable as error:
            print_error(error)
            # The other files are still read; an unreadable one means that the answer is incomplete.
            status = UNKNOWN
            continue
        # Never back from UNKNOWN to TROUBLE: a file that could not be read may be the important
        # one.
        if found and status == OK:
            status = TROUBLE
        if arguments.json:
            sys.stdout.buffer.write(json_line(as_json(name, found, told, overcome)))
        else:
            print_lines(*as_text(name, found, told, overcome))
    sys.stdout.flush()
    return status


def triage_log(
    path: Path,
    pages: Mapping[str, HandbookPage],
    samples: Sequence[Mapping[str, Any]] = (),
    overcome: list[FileFinding] | None = None,
) -> tuple[list[FileFinding], Sequence[Advice]]:
    """Return what broke in one log, and advice from its figures.

    Args:
        path: The log.
        pages: The handbook.
        samples: Readings of the box from that time.
        overcome: Failures that the run has outlived are appended to it.

    Raises:
        Unreadable: The file cannot be read.
    """
    # Fed by the same pass over the file, which may be gigabytes long or standard input.
    ends, source = HeadAndTail(), LogSource()
    found = triage_file(path, pages, ends.feed, source, overcome)
    if samples:
        # Imported when needed: most calls have no --samples.
        from rgt_tui.handbook.sample_evidence import weigh_findings

        found = weigh_findings(found, samples, pages)
    for add_findings in (curve_findings, add_nearest_page):
        found = add_findings(
            ends.last_line_states, pages, found, whole=not ends.cut, line_of=source.line_of
        )
    suggested = [one for one in found if pages[one.gotcha].suggests]
    return (
        [one for one in found if one not in suggested],
        (*map(_as_advice, suggested), *log_advice(ends.all_line_states, samples)),
    )


def _as_advice(found: FileFinding) -> Advice:
    """Return the advice that a library's own suggestion gives: nothing broke."""
    from rgt_tui.profiles.log_advice import NAME
    from rgt_tui.profiles.run_advice import Advice

    first = ""
    if found.fix:
        first = f". {translate(found.fix[0].text)}"
    text = f"{translate(found.title)}{first}"
    return Advice(run=NAME, about="speed", text=text, page=found.gotcha)


def as_json(
    name: str,
    found: list[FileFinding],
    told: Sequence[Advice] = (),
    overcome: Sequence[FileFinding] = (),
) -> dict[str, Any]:
    """Return one file's object: what broke, what it overcame, and advice from its own figures."""
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
                "fix": [
                    fix.text if fix.command is None else f"{fix.text}: {fix.command}"
                    for fix in one.fix
                ],
                "never": one.never,
                "times": one.times,
                "by_words": one.by_words,
            }
            for one in found
        ],
        "overcome": [
            {
                "gotcha": one.gotcha,
                "title": one.title,
                "line_no": one.line_no,
                "line": one.line,
                "steps": one.steps_behind,
            }
            for one in overcome
        ],
        "advice": [
            {"about": one.about, "text": one.text, "page": one.page, "seconds": one.seconds}
            for one in told
        ],
    }


def as_text(
    name: str,
    found: list[FileFinding],
    told: Sequence[Advice] = (),
    overcome: Sequence[FileFinding] = (),
) -> Iterator[str]:
    """Yield the lines for a person."""
    if not found and not overcome:
        yield f"{name}: {translate('no known failure in it')}"
    elif not found:
        yield f"{name}: {translate('no known failure in it that the run has not overcome')}"
    for one in found:
        if one.line_no:
            where = f"{name}:{one.line_no}"
        else:
            where = name
        nearest = f"{translate('nearest page by words')}: " if one.by_words else ""
        yield (
            translate(
                "{where}: {nearest}{page} {title} ({severity}, {share:.0%} sure)",
                where=where,
                nearest=nearest,
                page=one.gotcha,
                title=translate(one.title),
                severity=translate(one.severity),
                share=one.confidence,
            )
        )
        yield translate("  do     {what}", what=translate(ACTION_WORDS[AdvisedAction(one.action)]))
        yield translate("  never  {what}", what=translate(one.never))
        for number, fix in enumerate(one.fix, 1):
            yield translate("  fix {number}  {what}", number=number, what=translate(fix.text))
            if fix.command is not None:
                yield f"         $ {fix.command}"
        # A line may be a whole JSON record; --json has all of it.
        yield translate("  proof  {what}", what=one.line[:400])
    for one in overcome:
        steps = translate("overcome, it went on for {steps} steps", steps=one.steps_behind)
        yield f"{name}:{one.line_no}: {one.gotcha} {translate(one.title)} ({steps})"
        yield translate("  proof  {what}", what=one.line[:400])
    for advice in told:
        page = ""
        if advice.page:
            page = f" ({advice.page})"
        yield translate("{name}: advice: {advice}", name=name, advice=f"{advice.text}{page}")


LARGEST = 64 << 20
"""Maximum bytes of a dump: 2,000 collectives with their stacks are a few megabytes."""
HEAD = 4096
PAGE = "D19"
# The first bytes of a dict of protocol 2 to 5: PyTorch's flight recorder writes one.
_PICKLE = re.compile(rb"\x80[\x02-\x05](?:\x95.{8})?}[q\x94]?", re.S)
# First keys of a flight recorder's JSON and of ncclras' output; a JSON log begins with others.
_JSON = re.compile(
    rb'\s*\{\s*"(?:comm_lib_version|entries|host_name|nccl_comm_state|nccl_version|pg_config'
    rb'|version)"'
)
# nccl_trace_rank_12, or with an extension.
_RANK = re.compile(r"(\d{1,7})(?:\.\w+)?$")


def collective_findings(
    names: Sequence[str], pages: Mapping[str, HandbookPage]
) -> dict[str, list[FileFinding] | Unreadable]:
    """Return the findings of the dumps among some files, by file.

    Logs are left out, and so are files that the log reader will report as unreadable.
    """
    found: dict[str, list[FileFinding] | Unreadable] = {}
    dumps: dict[str, RankDump] = {}
    # The position is the rank of a file whose name has none.
    for number, name in enumerate(names):
        try:
            data = _read_head(Path(name))
            if _PICKLE.match(data) or _JSON.match(data):
                value = _decode_value(Path(name))
                if collectives.is_ras_json(value):
                    found[name] = _as_findings(collectives.of_ras_json(value), pages)
                else:
                    dumps[name] = _read_dump(value, Path(name), number)
            elif collectives.is_ncclras(text := data.decode("utf-8", "replace")):
                # Only the head was read to recognise it.
                text = _read_whole(Path(name)).decode("utf-8", "replace")
                found[name] = _as_findings(collectives.of_ncclras(text), pages)
        except Unreadable as error:
            found[name] = error
        except OSError:
            continue  # reading it as a log will report the error
    if dumps:
        verdicts = _as_findings(collectives.compare_dumps(list(dumps.values())), pages)
    else:
        verdicts = []
    # Each dump gets the verdicts about all of them: the cause may be in the log of another rank.
    return found | dict.fromkeys(dumps, verdicts)


def _as_findings(
    verdicts: Sequence[CollectiveVerdict], pages: Mapping[str, HandbookPage]
) -> list[FileFinding]:
    ordered = sorted(verdicts, key=lambda verdict: -verdict.confidence)
    return [
        FileFinding.from_page(pages[PAGE], show_recorded(verdict.text), verdict.confidence)
        for verdict in ordered
    ]


def _read_head(path: Path) -> bytes:
    # Reading standard input here would take its beginning from the log reader.
    if str(path) == "-":
        return b""
    with open_regular(path) as file:
        return file.read(HEAD)


def _read_whole(path: Path) -> bytes:
    with open_regular(path) as file:
        data = file.read(LARGEST + 1)
    # Refused instead of cut: a truncated pickle cannot be read at all.
    if len(data) > LARGEST:
        raise Unreadable(
            translate(
                "{path}: more than {largest} MiB, too large for a dump of collectives",
                path=path,
                largest=LARGEST >> 20,
            )
        )
    return data


def _read_dump(value: Any, path: Path, number: int) -> RankDump:
    """Read a dump.

    Its rank is the number at the end of its name, else its position among the files.
    """
    told = _RANK.search(path.name)
    try:
        return collectives.dump_of(value, int(told[1]) if told else number)
    except ValueError as error:
        raise Unreadable(f"{path}: {error}") from error


def _decode_value(path: Path) -> Any:
    from rgt_tui.transfer import pickle_values  # imported here: few files are dumps
    from rgt_tui.transfer.file_stretch import FileRefused

    data = _read_whole(path)
    try:
        if _JSON.match(data[:HEAD]):
            return json.loads(data)
        # Own reader: unpickling a file of others would run its code.
        return pickle_values.read_pickle(io.BytesIO(data), ()).value
    except (FileRefused, ValueError, RecursionError) as error:
        raise Unreadable(f"{path}: {error}") from error
