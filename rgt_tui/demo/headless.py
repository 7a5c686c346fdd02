"""The demo without a screen, or only its boxes for another rgt to watch."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import signal
import sys
import time
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

from rgt_tui.demo.autostop_story import AutostopStory, idle_box
from rgt_tui.demo.demo_fleet import METER_SECONDS, DemoFleet
from rgt_tui.demo.embedded import EmbeddedFleet
from rgt_tui.demo.stories import StoryDirector, StoryTracker
from rgt_tui.demo.teardown_story import StoryFailed, TeardownStory, story_box
from rgt_tui.demo.workspace import DemoError
from rgt_tui.files import note_written
from rgt_tui.fleet import Fleet
from rgt_tui.fleet.config.editing import dump_fleet, write_atomically
from rgt_tui.fleet.config.loading import FleetFileError, read_source
from rgt_tui.fleet.config.trusted import default_path, renew_trust
from rgt_tui.health import assess_box
from rgt_tui.model import BoxState, FleetState


def build_report(
    state: FleetState, stories: StoryTracker, now: float, seconds: float
) -> dict[str, Any]:
    """Return a report of the run.

    Args:
        state: The newest state.
        stories: The stories that have happened.
        now: Client clock.
        seconds: Duration of the run.
    """
    return {
        "boxes": [box_report(box, now) for box in state.boxes],
        "stories": dict(stories.seen),
        "seconds": round(seconds, 1),
    }


def box_report(box: BoxState, now: float) -> dict[str, Any]:
    """Return the report of one box."""
    cells = [cell for queue in box.queues for cell in queue.cells]
    # Counted here, so that a script need not know the queue's format.
    counts = {
        state: sum(cell.state == state for cell in cells) for state in ("done", "failed", "running")
    }
    if box.meter.spent is None:
        spent = None
    else:
        spent = round(box.meter.spent, 6)
    latest = max(box.runs, key=lambda run: run.last_at or 0.0, default=None)
    return {
        "name": box.spec.name,
        "platform": box.spec.profile,
        "state": assess_box(box, now).health.value,
        "samples": box.counters.samples,
        "gaps": box.counters.gaps,
        "duplicates": box.counters.duplicates,
        "agent_rss_bytes": box.sample.agent_rss if box.sample is not None else None,
        "cells": {"total": len(cells), **counts},
        "last_step": latest.step if latest is not None else None,
        "last_loss": latest.loss if latest is not None else None,
        "resumed": any(run.resumes for run in box.runs),
        "findings": [
            {
                "gotcha": finding.gotcha,
                "evidence": finding.evidence,
                "resource": finding.resource,
                "where": finding.where,
                "fix": [fix.text for fix in finding.fixes],
            }
            for finding in box.findings
        ],
        "meter": box.meter.kind.value,
        # Kept for scripts from before there were other currencies.
        "spent_usd": spent if box.meter.currency == "USD" else None,
        "spent": spent,
        "spent_at_least": box.meter.spent_at_least,
        "per_hour": box.meter.per_hour,
        "per_hour_at_least": box.meter.at_least,
        "currency": box.meter.currency,
    }


EXIT_INTERRUPTED = 130


def write_progress(text: str) -> None:
    """Write a line of progress."""
    sys.stderr.write(f"{time.strftime('%H:%M:%S')} {text}\n")
    sys.stderr.flush()


async def run_headless(
    *,
    seconds: float | None,
    until_story: bool,
    as_json: bool,
    port_base: int | None = None,
    follow_advice: bool = False,
) -> int:
    """Run the demo for a time, or until the stories have happened; return the exit code.

    Args:
        seconds: Duration; with `until_story`, the maximum wait. None to run until interrupted.
        until_story: End as soon as all three stories have happened; exit with 1 if one is missing.
        as_json: Print the JSON object as the last line of standard output.
        port_base: First SSH port; None for any free one.
        follow_advice: Remove the files that fill the disk once rgt has reported them.

    Raises:
        DemoError: The demo cannot run here.
    """
    interrupted = _log_progress_to_stderr()
    demo = DemoFleet(port_base=port_base, follow_advice=follow_advice)
    stories = StoryTracker(demo.embedded.boxes)
    told = asyncio.Event()
    watcher = _StoryWatcher(stories, told)
    # Before the start: the first state may already complete a story.
    demo.subscribe(watcher.report_state)
    began = time.monotonic()
    starting = asyncio.create_task(demo.start())
    try:
        # Ctrl-C must work while the boxes start, which takes longest.
        await _wait_for_first(starting, interrupted.wait())
        if not interrupted.is_set():
            await starting
            for box in demo.embedded.boxes:
                write_progress(f"{box.name}: {demo.embedded.ssh_command(box.name)}")
            # Seconds that ``--until story`` waits before it reports missing stories.
            story_seconds = 180.0
            # Without a limit, a story that never happens would hang a CI job.
            limit = story_seconds if seconds is None and until_story else seconds
            waits = [interrupted.wait(), *([told.wait()] if until_story else [])]
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(limit):
                    await _wait_for_first(*waits)
        result = build_report(demo.state, stories, demo.now(), time.monotonic() - began)
    finally:
        # Cancelled and awaited first: `stop` needs everything that `start` has made so far.
        starting.cancel()
        await asyncio.gather(starting, return_exceptions=True)
        await demo.stop()
    if as_json:
        sys.stdout.write(json.dumps(result) + "\n")
        sys.stdout.flush()
    if interrupted.is_set():
        write_progress("interrupted; everything of the demo is taken down")
        return EXIT_INTERRUPTED
    if until_story and stories.missing_stories:
        write_progress(f"missing: {', '.join(stories.missing_stories)}")
        return 1
    return 0


def _log_progress_to_stderr() -> asyncio.Event:
    """Log to stderr as progress; return the event that Ctrl-C and similar signals set."""
    logging.basicConfig(
        level=logging.INFO, format="%(message)s", handlers=[_ProgressHandler()], force=True
    )
    # It reports each connection that the demo cuts on purpose.
    logging.getLogger("asyncssh").setLevel(logging.CRITICAL)
    logging.getLogger("httpx").setLevel(logging.WARNING)
    return _signal_event()


def _signal_event() -> asyncio.Event:
    over, loop = asyncio.Event(), asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, over.set)
    return over


class _StoryWatcher:
    """Reports events on stderr, and sets an event when all stories have happened."""

    def __init__(self, stories: StoryTracker, told: asyncio.Event) -> None:
        self._stories = stories
        self._told = told
        self._last: object = None

    def report_state(self, state: FleetState) -> None:
        events = list(state.events)
        start = 0
        # The state has the newest events only; those that were printed are recognised by the last
        # one.
        if self._last in events:
            start = events.index(self._last) + 1
        for event in events[start:]:
            write_progress(f"{event.box} {event.text}")
        if events:
            self._last = events[-1]
        for story in self._stories.check_state(state):
            write_progress(f"story told: {story}")
        if not self._stories.missing_stories:
            self._told.set()


class _ProgressHandler(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        write_progress(record.getMessage())


async def run_teardown(*, as_json: bool, port_base: int | None = None) -> int:
    """Let one box train, fetch its results and destroy it; return the exit code.

    Args:
        as_json: Print the JSON object as the last line of standard output: ok, deletes, steps,
            problem.
        port_base: First SSH port; None for any free one.

    Raises:
        DemoError: The demo cannot run here.
    """
    interrupted = _log_progress_to_stderr()
    async with EmbeddedFleet((story_box(),), port_base=port_base) as embedded:
        story = TeardownStory(embedded, write_progress)
        problem = await _run_story(story.run_story(), interrupted)
        deletes = story.delete_count
    ok = not problem and not interrupted.is_set()
    if as_json:
        result = {"ok": ok, "deletes": deletes, "steps": story.steps, "problem": problem}
        sys.stdout.write(json.dumps(result) + "\n")
        sys.stdout.flush()
    if interrupted.is_set():
        write_progress("interrupted; everything of the demo is taken down")
        return EXIT_INTERRUPTED
    if problem:
        write_progress(problem)
    if ok:
        return 0
    return 1


async def _run_story(story: Coroutine[Any, Any, None], interrupted: asyncio.Event) -> str:
    """Run a story until its end or an interrupt; return what did not happen, or ""."""
    telling = asyncio.create_task(story)
    try:
        await _wait_for_first(telling, interrupted.wait())
        if not interrupted.is_set():
            await telling
    except StoryFailed as failed:
        return str(failed)
    finally:
        telling.cancel()
        await asyncio.gather(telling, return_exceptions=True)
    return ""


async def run_autostop(*, as_json: bool, port_base: int | None = None) -> int:
    """Let one box train and park itself without a client, and check its report.

    Return the exit code.

    Args:
        as_json: Print a JSON object for each finished step, and at the end: ok, problem, seconds.
        port_base: First SSH port; None for any free one.

    Raises:
        DemoError: The demo cannot run here.
    """
    interrupted = _log_progress_to_stderr()
    began = time.monotonic()

    def print_step(step: dict[str, Any]) -> None:
        if as_json:
            sys.stdout.write(json.dumps(step) + "\n")
            sys.stdout.flush()

    # Only the one box of the story: the others would take its CPU.
    async with EmbeddedFleet((idle_box(),), port_base=port_base) as embedded:
        problem = await _run_story(
            AutostopStory(embedded, write_progress, print_step).run_story(), interrupted
        )
    ok = not problem and not interrupted.is_set()
    print_step({"ok": ok, "problem": problem, "seconds": round(time.monotonic() - began, 1)})
    if interrupted.is_set():
        write_progress("interrupted; everything of the demo is taken down")
        return EXIT_INTERRUPTED
    if problem:
        write_progress(problem)
    if ok:
        return 0
    return 1


async def _wait_for_first(*awaitables: object) -> None:
    """Wait until one awaitable is done, and cancel the others (except tasks of the caller)."""
    tasks = {
        item if isinstance(item, asyncio.Task) else asyncio.ensure_future(item)  # type: ignore[call-overload]
        for item in awaitables
    }
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            # A task of the caller is its own to cancel.
            if task not in awaitables:
                task.cancel()


def _write_fleet_file(path: Path, text: str) -> None:
    """Write the fleet file; it stays trusted if it was, and a new one becomes trusted."""
    if path.is_file():
        before = read_source(path)
    else:
        before = None
    write_atomically(path, text)
    note_written([path])
    with contextlib.suppress(FleetFileError):
        renew_trust(default_path(os.environ), before, read_source(path), os.environ)


async def run_boxes_only(path: str, *, port_base: int | None, seconds: float | None) -> int:
    """Run the boxes until a signal or the end of the time.

    Prints one JSON line ``{"fleet", "env"}`` when they are up; `env` is the environment that a
    watcher needs.

    Raises:
        DemoError: They cannot run here, or the file cannot be written.
    """
    over = _signal_event()
    async with EmbeddedFleet(port_base=port_base) as embedded:
        try:
            _write_fleet_file(Path(path), dump_fleet(embedded.specs))
        except (OSError, FleetFileError) as error:
            raise DemoError(
                f"cannot write {path}: {getattr(error, 'strerror', None) or error}"
            ) from error
        assert embedded.workspace is not None
        fleet = Fleet(
            embedded.specs,
            audit=embedded.workspace.path / "audit.jsonl",
            env=embedded.env,
            # The fleet here only directs the stories; the watcher has an engine of its own.
            meter_seconds=METER_SECONDS,
        )
        await fleet.start()
        director = asyncio.create_task(StoryDirector(embedded, lambda: fleet.state).run())
        sys.stdout.write(
            json.dumps({"fleet": str(Path(path).resolve()), "env": embedded.env}) + "\n"
        )
        sys.stdout.flush()
        try:
            await asyncio.wait_for(over.wait(), seconds)
        except TimeoutError:
            pass
        finally:
            director.cancel()
            await asyncio.gather(director, return_exceptions=True)
            await fleet.stop()
    return 0
