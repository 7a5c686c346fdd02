"""Files for ``rgt triage`` that are no logs: dumps of torch's flight recorder, and the output of ``ncclras``.

A dump is a pickle: it is looked at by the reader of `rgt_tui.transfer` that does nothing of what a pickle says, and may
name no class or function at all.
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rgt_tui.files import open_regular
from rgt_tui.handbook import FileFinding, Page, Unreadable, collectives, ras_output
from rgt_tui.handbook.collectives import RankDump, Verdict
from rgt_tui.transfer import pickle_values
from rgt_tui.transfer.file_stretch import Refused

LARGEST = 64 << 20
"""Bytes of a dump: 2,000 collectives with their stacks are a few megabytes."""
HEAD = 4096
PAGE = "D19"
_PICKLE = re.compile(rb"\x80[\x02-\x05](?:\x95.{8})?}[q\x94]?", re.S)
_JSON = re.compile(
    rb'\s*\{\s*"(?:comm_lib_version|entries|host_name|nccl_comm_state|nccl_version|pg_config|version)"'
)
_RANK = re.compile(r"(\d{1,7})(?:\.\w+)?$")


def collective_findings(
    names: Sequence[str], pages: Mapping[str, Page]
) -> dict[str, list[FileFinding] | Unreadable]:
    """Return file → what the dumps among some files show together; what is a log, or cannot be read, is not in it."""
    found: dict[str, list[FileFinding] | Unreadable] = {}
    dumps: dict[str, RankDump] = {}
    for number, name in enumerate(names):
        try:
            data = _head(Path(name))
            if _PICKLE.match(data) or _JSON.match(data):
                value = _value(Path(name))
                if ras_output.is_ras_json(value):
                    found[name] = _as_findings(ras_output.of_ras_json(value), pages)
                else:
                    dumps[name] = _dump(value, Path(name), number)
            elif ras_output.is_ncclras(text := data.decode("utf-8", "replace")):
                text = _whole(Path(name)).decode("utf-8", "replace")
                found[name] = _as_findings(ras_output.of_ncclras(text), pages)
        except Unreadable as error:
            found[name] = error
        except OSError:
            continue  # who reads it as a log will say so
    verdicts = _as_findings(collectives.compared(list(dumps.values())), pages) if dumps else []
    return found | dict.fromkeys(dumps, verdicts)


def _as_findings(verdicts: Sequence[Verdict], pages: Mapping[str, Page]) -> list[FileFinding]:
    page = pages[PAGE]
    return [
        FileFinding(
            gotcha=PAGE,
            title=page.title,
            line_no=0,
            line=verdict.text,
            confidence=verdict.confidence,
            severity=str(page.severity),
            action=str(page.action),
            fix=page.fixes,
            never=page.never,
        )
        for verdict in sorted(verdicts, key=lambda verdict: -verdict.confidence)
    ]


def _head(path: Path) -> bytes:
    if str(path) == "-" or path.suffix == ".gz":
        return b""
    with open_regular(path) as file:
        return file.read(HEAD)


def _whole(path: Path) -> bytes:
    with open_regular(path) as file:
        data = file.read(LARGEST + 1)
    if len(data) > LARGEST:
        raise Unreadable(f"{path}: more than {LARGEST >> 20} MiB, too much for a dump of collectives")
    return data


def _dump(value: Any, path: Path, number: int) -> RankDump:
    """Read a dump; of which rank it is its name ends in, else it counts by its place among the files."""
    told = _RANK.search(path.name)
    try:
        return collectives.dump_of(value, int(told[1]) if told else number)
    except ValueError as error:
        raise Unreadable(f"{path}: {error}") from error


def _value(path: Path) -> Any:
    data = _whole(path)
    try:
        if _JSON.match(data[:HEAD]):
            return json.loads(data)
        return pickle_values.contents(io.BytesIO(data), ()).value
    except (Refused, ValueError, RecursionError) as error:
        raise Unreadable(f"{path}: {error}") from error
