"""``rgt record``: write what comes over the wire into a file that can be replayed."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from rgt_tui.cli.arguments import (
    boxes_argument,
    command,
    fleet_option,
    host_key_option,
    json_option,
    positive_seconds,
)
from rgt_tui.cli.commands import FAILED, OK, UNREACHABLE, USAGE, Subparsers

if TYPE_CHECKING:
    from rgt_tui.model.box import BoxSpec


def add_record(subparsers: Subparsers) -> None:
    """Declare the command."""
    parser = command(
        subparsers,
        "record",
        about="Connect to the boxes and write every line that they send into a new file, with lost connections and\n"
        "the provider's readings beside them, until Ctrl-C. The file holds logs and process names as they\n"
        "are, and no keys; look through it before you hand it on.",
        examples=("rgt record --out fleet.jsonl.gz --for 600", "rgt record lab --out lab.jsonl.gz"),
    )
    boxes_argument(parser)
    fleet_option(parser)
    parser.add_argument("--out", metavar="FILE", required=True, help="a new file; FILE.gz is compressed")
    parser.add_argument(
        "--for", dest="seconds", type=positive_seconds, metavar="S", help="end after this time"
    )
    json_option(parser, "print one JSON object at the end: file, seconds, bytes, lines per box")
    host_key_option(parser)


def run_record(arguments: argparse.Namespace) -> int:
    """Record; return the exit code."""
    from rgt_tui.cli.opening import chosen, open_fleet
    from rgt_tui.cli.printing import complain
    from rgt_tui.fleet.fleet_file import FleetFileError
    from rgt_tui.recordings.recording_writer import RecordFailed

    try:
        specs = chosen(open_fleet(arguments), arguments.boxes)
    except FleetFileError as error:
        complain(error)
        return USAGE
    from rgt_tui.cli import running

    try:
        return running.run(_record(specs, arguments))
    except RecordFailed as error:
        complain(error)
        return FAILED


async def _record(specs: Sequence[BoxSpec], arguments: argparse.Namespace) -> int:
    import asyncio
    import json
    import time
    from pathlib import Path

    from rgt_tui.cli import running
    from rgt_tui.cli.composing import make_fleet
    from rgt_tui.cli.gathering import stop
    from rgt_tui.cli.watching import TextWatcher
    from rgt_tui.recordings.recording_writer import LineFile, Recorder

    over = asyncio.Event()
    running.until_signalled(over)
    file = LineFile(Path(arguments.out))
    started = time.time()
    recorder = Recorder(file, specs, started)
    told = TextWatcher(sys.stderr)
    fleet = make_fleet(
        specs,
        accept_new_host_keys=arguments.accept_new_host_key,
        observers=[recorder, told],
        tap=recorder.tap,
    )
    waits = [asyncio.create_task(each) for each in (over.wait(), recorder.failed.wait(), told.run(fleet.now))]
    try:
        await fleet.start()
        await asyncio.wait(waits, timeout=arguments.seconds, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for each in waits:
            each.cancel()
        await asyncio.gather(*waits, return_exceptions=True)
        await stop(fleet)
        told.look(fleet.now())
        await recorder.close()
    if recorder.failure is not None:
        raise recorder.failure
    seconds = time.time() - started
    lines = sum(recorder.frames.values())
    if arguments.json:
        summary = {
            "file": str(file.path),
            "seconds": round(seconds, 3),
            "bytes": file.written,
            "boxes": recorder.frames,
        }
        sys.stdout.write(json.dumps(summary) + "\n")
    else:
        sys.stderr.write(
            f"{file.path}: {lines:,} lines of {len(specs)} boxes in {seconds:.0f} s, {file.written:,} bytes\n"
        )
    return OK if lines else UNREACHABLE
