"""Combines a log with a box's samples: an OOM kill is proved only if the kernel's counter rose.

A log that ends abruptly, on a machine that was restarted meanwhile, ended with the restart.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from rgt_tui.handbook.file_triage import (
    KERNEL,
    KILLED,
    SPECIFIC,
    SYMPTOM,
    FileFinding,
    Unreadable,
    killed_by,
    list_read_errors,
    open_unpacked,
    unreadable_error,
)
from rgt_tui.handbook.pages import HandbookPage

LONGEST = 16 << 20
"""Maximum bytes of a line."""
Sample = Mapping[str, Any]


def read_samples(path: Path, box: str | None = None) -> tuple[Sample, ...]:
    """Return the samples of a file from ``rgt record``, or of JSON lines.

    Other records are skipped.

    Args:
        path: The file, packed or not.
        box: The box whose samples count; None = the file is of one box.

    Raises:
        Unreadable: it cannot be read, has no sample of that box, or samples of several.
    """
    found: dict[str, list[Sample]] = {}
    try:
        with open_unpacked(path) as file:
            while line := file.readline(LONGEST):
                with contextlib.suppress(ValueError, RecursionError):
                    value = json.loads(line)
                    if isinstance(value, dict) and (sample := _read_sample(value)) is not None:
                        found.setdefault(str(value.get("box", "")), []).append(sample)
    except list_read_errors() as error:
        raise unreadable_error(path, error) from error
    if box is not None:
        if box in found:
            found = {box: found[box]}
        else:
            found = {}
    if not found:
        if box is not None:
            whose = f"holds no sample of {box}"
        else:
            whose = "holds no sample"
        raise Unreadable(
            f'{path}: {whose}: a JSON object per line with "mem", as rgt record writes them'
        )
    if len(found) > 1:
        raise Unreadable(
            f"{path}: holds the readings of {' and '.join(found)}: --box NAME says whose"
        )
    return tuple(next(iter(found.values())))


def _read_sample(value: Mapping[str, Any]) -> Sample | None:
    """Return the sample in a line; None if there is none."""
    # `rgt record` writes a frame as `line`; a bare sample of the agent counts, too.
    frame = value.get("line", value.get("frame", value))
    if not isinstance(frame, dict) or not isinstance(frame.get("mem"), dict):
        return None
    disks = frame.get("disks")
    if not isinstance(disks, list):
        disks = []
    return {**frame, "disks": [disk for disk in disks if isinstance(disk, dict)]}


def weigh_findings(
    found: Sequence[FileFinding], samples: Sequence[Sample], pages: Mapping[str, HandbookPage]
) -> list[FileFinding]:
    """Return the findings revised by the samples; unchanged without samples.

    Args:
        found: Findings of a log, the best first.
        samples: Samples in time order.
        pages: The handbook.
    """
    # Without readings nothing is revised, not even by guesses.
    if not samples:
        return list(found)
    # In their order: the second boot is the restart.
    boots = list(
        dict.fromkeys(boot for sample in samples if isinstance(boot := sample.get("boot"), str))
    )
    # The kernel's counter restarts after a reboot.
    rises = [
        _measure_rise([one for one in samples if one.get("boot") in (boot, None)], "oom_kills")
        for boot in boots or [""]
    ]
    if any(rise is not None for rise in rises):
        kills = sum(rise for rise in rises if rise is not None)
    else:
        kills = None
    share = max((_compute_share(sample["mem"], "used", "limit") for sample in samples), default=0.0)
    told = []
    for one in found:
        page = pages[killed_by(one.gotcha, one.line, kills, share)]
        if page.id != one.gotcha:
            one = FileFinding.from_page(
                page, one.line, SPECIFIC, line_no=one.line_no, times=one.times
            )
        elif page.id in (KILLED, KERNEL) and kills:
            line = f"{one.line}  [the container's kill counter rose by {kills}]"
            one = FileFinding.from_page(
                pages[KERNEL], line, SPECIFIC, line_no=one.line_no, times=one.times
            )
        elif one.gotcha in ("U6", "U7"):
            one = replace(one, line=one.line + _find_full_disk(samples))
        told.append(one)
    if kills and not any(one.gotcha == KERNEL for one in told):
        text = (
            f"the container's kill counter rose by {kills}; memory reached {share:.0%} of its limit"
        )
        # First: the counter proves a kill that the log of a killed process cannot mention.
        told.insert(0, FileFinding.from_page(pages[KERNEL], text, SPECIFIC))
    if len(boots) > 1 and not any(
        # A restart after a failure that is known is its consequence.
        one.confidence > SYMPTOM and one.severity == "fatal"
        for one in told
    ):
        at = next(sample for sample in samples if sample.get("boot") == boots[1])
        when = ""
        if isinstance(at.get("seq"), int):
            when = f", first read as sample {at['seq']:,} of it"
        text = (
            f"the boot id changed from {boots[0]:.40} to {boots[1]:.40}{when}; the log names "
            "no other cause"
        )
        told.insert(0, FileFinding.from_page(pages["BOOT1"], text, SYMPTOM))
    return told


def _measure_rise(samples: Iterable[Sample], key: str) -> int | None:
    """Return by how much a counter rose; None if it was never reported."""
    values = [value for sample in samples if isinstance(value := sample["mem"].get(key), int)]
    if values:
        return max(values) - values[0]
    return None


def _compute_share(reading: Mapping[str, Any], used: str, limit: str) -> float:
    part, whole = reading.get(used), reading.get(limit)
    if isinstance(part, int) and isinstance(whole, int) and whole > 0:
        return part / whole
    return 0.0


def _find_full_disk(samples: Sequence[Sample]) -> str:
    """Return which disk was full, and of what."""
    # Share of bytes or inodes from which a disk counts as full.
    full = 0.95
    for sample in reversed(samples):
        for disk in sample["disks"]:
            for what, used, total in (
                ("inodes", "inodes_used", "inodes_total"),
                ("bytes", "bytes_used", "bytes_total"),
            ):
                share = _compute_share(disk, used, total)
                if share >= full:
                    return f"  [{what} of {disk.get('mount')} {share:.0%} used]"
    return ""
