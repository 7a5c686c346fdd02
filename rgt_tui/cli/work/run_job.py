"""``rgt run``: start one command on a box, detached, and show how it begins."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import posixpath
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from rgt_tui.cli import running
from rgt_tui.cli.bringing.push_to_box import ProgressLine, doubts, noted_push
from rgt_tui.cli.commands import FAILED, OK, UNREACHABLE, USAGE
from rgt_tui.cli.opening import meant, open_boxes, rgt_with
from rgt_tui.cli.printing import complain, print_json, waiting
from rgt_tui.cli.set_up.adding import keep_trust
from rgt_tui.fleet.config import FleetFileError
from rgt_tui.fleet.config.editing import add_entry
from rgt_tui.fleet.errands import reached
from rgt_tui.fleet.pushes import PushChoice
from rgt_tui.fleet.work.agent_answers import Row, ask, rows_of, text
from rgt_tui.fleet.work.launching import CannotRun, Job, Launched, finding_lines, job_for, phase_of, said
from rgt_tui.model.box import BoxSpec
from rgt_tui.model.plain import clean
from rgt_tui.profiles import load_profile
from rgt_tui.ssh import AuthFailed, ConfigError, HostKeyRefused, Unreachable
from rgt_tui.transfer.sending import SourceError

SLACK_S = 60.0
"""What the box may take beside the smoke command and the look at the beginning."""
AGAIN_S = 5.0
"""Between two tries to get back to a box whose job is waited for."""
WAIT_S = 60.0
"""How long one question for the end of a job waits on the box."""
UNSURE = (
    "whether it was started is not known: the same command again shows its state, and starts nothing twice"
)
VARIABLE = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=(.*)", re.DOTALL)


def environment(given: Sequence[str]) -> dict[str, str]:
    """Return ``K=V`` words as an environment.

    Raises:
        ValueError: one is none.
    """
    found = {}
    for word in given:
        match = VARIABLE.fullmatch(word)
        if match is None:
            raise ValueError(f"--env {word!r}: write NAME=VALUE")
        found[match[1]] = match[2]
    return found


def run_run(arguments: argparse.Namespace) -> int:
    """Launch a command; return the exit status."""
    if not arguments.words:
        complain("which command? write it after --: rgt run BOX -- python train.py")
        return USAGE
    config, (spec,) = open_boxes(arguments, [arguments.box], trusted=True)
    try:
        job = _job(arguments, spec, arguments.workdir)
    except (CannotRun, ValueError) as error:
        complain(f"{spec.name}: {error}")
        return USAGE
    return running.run_on_box(spec.name, _run(arguments, config.path, spec, job))


def _job(arguments: argparse.Namespace, spec: BoxSpec, workdir: str | None) -> Job:
    return job_for(
        spec,
        load_profile(spec.profile),
        arguments.words,
        name=arguments.name,
        workdir=workdir,
        env=environment(arguments.env or ()),
        retries=arguments.retries,
        smoke=arguments.smoke,
    )


async def _pushed(arguments: argparse.Namespace, spec: BoxSpec) -> str:
    """Push the code; return where the job starts: in this version of it, which never changes."""
    accept: bool = arguments.accept_new_host_key
    async with reached(spec, accept_new_host_keys=accept) as (connection, deployed):
        line = ProgressLine()
        try:
            arrived = await noted_push(
                spec.name,
                (connection, deployed),
                load_profile(spec.profile),
                Path(arguments.push),
                PushChoice(),
                line,
            )
        finally:
            line.end()
    for doubt in doubts(arrived):
        complain(f"{spec.name}: {doubt}")
    if not arguments.json:
        sys.stdout.write(f"{spec.name}: code   {clean(arrived.path)}\n")
        sys.stdout.flush()
    return posixpath.join(arrived.path, arguments.workdir or "")


async def _run(arguments: argparse.Namespace, fleet: Path, spec: BoxSpec, job: Job) -> int:
    if arguments.push:
        try:
            job = _job(arguments, spec, await _pushed(arguments, spec))
        except SourceError as error:
            complain(error)
            return USAGE
    words = ["launch", "--make", "--seconds", f"{arguments.probe:g}"]
    words += ["--smoke-seconds", f"{arguments.smoke_seconds:g}"] + ["--no-smoke"] * arguments.no_smoke
    for note in job.notes:
        complain(f"note: {note}")
    launched = await launch(spec, words, msgspec.json.encode(job.asked), arguments)
    made = launched.rows.get("job", {})
    if made.get("same"):
        _keep(arguments, fleet, spec, job.folder)
    code = await told(arguments, spec, launched, job.name, {"job": text(made, "folder") or None})
    if code == OK and arguments.wait and "begins" in launched.rows:
        return await follow(arguments, spec, job.folder)
    return code


async def launch(
    spec: BoxSpec, words: Sequence[str], data: bytes, arguments: argparse.Namespace, *, alone: bool = True
) -> Launched:
    """Have the agent launch a job, and print what it tells as it comes; `alone` = no other one at the same time.

    Raises:
        BoxError: the box was not reached, or lost.
    """
    rows: dict[str, Row] = {}

    def take(row: Row) -> None:
        rows[phase_of(row)] = row
        if not arguments.json:
            sys.stdout.write("".join(f"{spec.name}: {line}\n" for line in said(row)))
            sys.stdout.flush()

    seconds = arguments.probe + arguments.smoke_seconds + SLACK_S
    accept: bool = arguments.accept_new_host_key
    asked = False
    try:
        async with reached(spec, accept_new_host_keys=accept) as (connection, deployed):
            asked = True
            with waiting(f"launching on {spec.name} …") if alone else contextlib.nullcontext():
                answer = await ask(connection, deployed, words, data=data, seconds=seconds, each=take)
    except Unreachable as error:
        if not asked:
            raise
        raise Unreachable(f"{error}; {UNSURE}") from error
    return Launched(status=answer.status, words=answer.words, rows=rows)


async def told(
    arguments: argparse.Namespace, spec: BoxSpec, launched: Launched, name: str, more: dict[str, Any]
) -> int:
    """Print the rest of what a launch has to report; return its exit status."""
    finding = launched.finding
    code = launched.status if launched.status in (OK, FAILED, USAGE) else FAILED
    if arguments.json:
        rows = {phase: row for phase, row in launched.rows.items() if phase != "job"}
        body = {"box": spec.name, "name": name, **more, **rows, "finding": finding, "exit": code}
        print_json(body)
    elif finding is not None:
        sys.stdout.write("".join(f"{spec.name}: {line}\n" for line in finding_lines(finding)))
    if launched.words and code != OK:
        complain(f"{spec.name}: {launched.words}")
    cell = text(launched.rows.get("begins", {}), "cell")
    if code == OK and cell and not arguments.json:
        sys.stdout.write(
            f"{spec.name}: next   {rgt_with(arguments.fleet)} logs {spec.name} {cell} --follow\n"
        )
    return code


def _keep(arguments: argparse.Namespace, fleet: Path, spec: BoxSpec, folder: str) -> None:
    """Have the fleet file name the job, so that every rgt watches its queue."""
    if folder in spec.jobs:
        return
    doubts: list[str | None] = []
    try:
        add_entry(
            fleet, spec.name, "jobs", folder, lambda before, after: doubts.append(keep_trust(before, after))
        )
    except FleetFileError as error:
        complain(f'it runs, and the fleet file does not name it: {error}; by hand: jobs = ["{folder}"]')
    place = meant(arguments)
    if place is not None and place.lies_there:
        for doubt in filter(None, doubts):
            complain(doubt)


async def follow(arguments: argparse.Namespace, spec: BoxSpec, folder: str) -> int:
    """Wait until the job's runner has ended, reconnecting when the connection is lost."""
    lost = False
    while True:
        try:
            async with reached(spec) as (connection, deployed):
                lost = False
                while True:
                    words = ["queue", "wait", "--job", folder, "--seconds", f"{WAIT_S:g}"]
                    frame = (await ask(connection, deployed, words, seconds=WAIT_S + SLACK_S)).last
                    if not (frame.get("runner_alive") or frame.get("queued")):
                        return _ended(arguments, spec, frame)
        except (AuthFailed, HostKeyRefused, ConfigError):
            raise
        except Unreachable as error:
            if not lost:
                complain(f"{spec.name}: {error}; the job continues there, and rgt keeps waiting")
            lost = True
            await asyncio.sleep(AGAIN_S)


def _ended(arguments: argparse.Namespace, spec: BoxSpec, frame: Row) -> int:
    cells = rows_of(frame, "cells")
    bad = [cell for cell in cells if cell.get("state") != "done"]
    if arguments.json:
        print_json({"box": spec.name, "queue": frame})
    else:
        for cell in cells:
            why = f": {text(cell, 'reason')}" if cell.get("reason") else ""
            sys.stdout.write(f"{spec.name}: {text(cell, 'state'):<6} {text(cell, 'name')}{why}\n")
    if not cells:
        complain(f"{spec.name}: {text(frame, 'error') or 'the queue cannot be read'}")
        return UNREACHABLE if not frame else FAILED
    return FAILED if bad else OK
