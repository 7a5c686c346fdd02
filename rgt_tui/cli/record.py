"""``rgt record``: write what comes over the wire into a file that can be replayed."""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from rgt_tui.cli import running
from rgt_tui.cli.commands import FAILED, OK, UNREACHABLE, USAGE
from rgt_tui.cli.composing import make_fleet
from rgt_tui.cli.gathering import stop
from rgt_tui.cli.opening import chosen, open_fleet
from rgt_tui.cli.printing import complain
from rgt_tui.cli.watching import TextWatcher
from rgt_tui.fleet.fleet_file import FleetFileError
from rgt_tui.model.box import BoxSpec
from rgt_tui.recordings.recording_writer import LineFile, Recorder, RecordFailed


def run_record(arguments: argparse.Namespace) -> int:
    """Record; return the exit code."""
    try:
        specs = chosen(open_fleet(arguments), arguments.boxes)
    except FleetFileError as error:
        complain(error)
        return USAGE

    try:
        return running.run(_record(specs, arguments))
    except RecordFailed as error:
        complain(error)
        return FAILED


async def _record(specs: Sequence[BoxSpec], arguments: argparse.Namespace) -> int:
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
