"""Pull results, then check whether every checkpoint in the copy loads, which the gate relies on."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from rgt_tui.fleet.box_questions import Wanted
from rgt_tui.fleet.fleet_source import Pulled
from rgt_tui.fleet.pulls.pull_streams import OnProgress
from rgt_tui.fleet.pulls.pull_way import PullRequest
from rgt_tui.fleet.pulls.pulling import Agree, PullReport, pull
from rgt_tui.fleet.transfer_diary import noted
from rgt_tui.model import BoxSpec, Meter
from rgt_tui.profiles import how_many, quoted, size
from rgt_tui.transfer import Copied, Verification, copies, ledger_path, verify
from rgt_tui.transfer.copying import Listing, Plan, PullProgress

PULLED = "pulled"
"""Directory of the copies, a directory for each box below it, where nobody names another."""
SHOWN = 3
"""Of what is wrong; `rgt verify` prints all."""


class _Stopped(Exception):
    """Nobody waits for the verification any more."""


async def pull_and_verify(
    spec: BoxSpec,
    paths: tuple[str, ...],
    destination: Path,
    on_progress: OnProgress,
    on_plan: Callable[[str], None],
    agree: Agree,
    meter: Meter,
    wanted: Wanted | None,
    env: Mapping[str, str] = os.environ,
) -> Pulled:
    """Pull directories of a box and verify the copy. Cancelled, it keeps what has come.

    Args:
        spec: The box.
        paths: On the box; empty = what its results are.
        destination: Directory of the copy.
        on_progress: Called some times a second.
        on_plan: Told what will be fetched, and what its traffic costs, before the first byte.
        agree: Asked then, where that may cost money; see `pull`.
        meter: What the provider says of the machine.
        wanted: With it, `paths` are directories of the list of results that was made so: see `PullRequest.wanted`.
        env: Where the state of rgt lies, in which stands what was pulled.

    Raises:
        rgt_tui.ssh.BoxError: the box cannot be reached.
        rgt_tui.fleet.pulls.pull_way.PullFailed: nothing can be pulled, or no more.
        rgt_tui.transfer.LedgerError: the list of what was pulled cannot be read.
        rgt_tui.transfer.NotVerifiable: the copy cannot be looked at.
    """
    async with noted(spec.name, "pull", paths, str(destination.absolute()), env) as page:

        def planned(todo: Plan, listing: Listing, traffic: str) -> None:
            what = f"{len(todo.steps):,} of {how_many(len(listing.files), 'file')}, {size(todo.bytes)}"
            page.plan(what)
            on_plan(f"{what}, to {destination}{f'; traffic: {traffic}' if traffic else ''}")

        def progress(look: PullProgress) -> None:
            page.look(look)
            on_progress(look)

        request = PullRequest(paths=paths, wanted=wanted, destination=destination.absolute())
        report = await pull(spec, request, progress, planned, env, agree=agree, meter=meter)
        found = await _verified(spec.name, destination.absolute(), progress, env)
        end = ended(report, found, destination)
        page.end(end.text, whole=end.whole)
        return end


def ended(report: PullReport, found: Verification, destination: Path) -> Pulled:
    """Say how it ended.

    Args:
        report: What came.
        found: What was found in the copy.
        destination: As a person named it.
    """
    wrong = [f"{quoted(row.path)}: {quoted(row.reason)}" for row in report.incomplete]
    if report.unconfirmed:
        wrong.append(f"the box could not list its results at the end: {quoted(report.unconfirmed)}")
    if report.too_much_unclaimed:
        wrong += [f"{quoted(group.path)}: claimed by no job, run or `results`" for group in report.unclaimed]
    wrong += [f"{quoted(row.path)}: {quoted(row.reason)}" for row in found.errors]
    wrong = list(dict.fromkeys(wrong))
    count = len(wrong) + report.uncounted
    if count:
        more = f"; and {count - SHOWN} more" if count > SHOWN else ""
        text = f"incomplete in {destination}, {how_many(count, 'reason')}: {'; '.join(wrong[:SHOWN])}{more}"
        return Pulled(whole=False, text=text)
    came = f"{how_many(report.landed, 'file')}, {size(report.landed_bytes)}"
    same = f", {report.same:,} already here" if report.same else ""
    count = len(found.checkpoints)
    loads = f", {how_many(count, 'checkpoint')} complete" if count else ""
    return Pulled(whole=True, text=f"{came} verified in {destination}{same}{loads}")


async def _verified(
    box: str, destination: Path, on_progress: OnProgress, env: Mapping[str, str]
) -> Verification:
    """Verify the copy in a thread; cancelled, the thread ends at the next file."""
    loop, stop = asyncio.get_running_loop(), threading.Event()

    def progress(done: int, total: int, path: str) -> None:
        if stop.is_set():
            raise _Stopped
        look = PullProgress(phase="verifying", bytes=total, bytes_done=done, path=path)
        loop.call_soon_threadsafe(on_progress, look)

    on_progress(PullProgress(phase="verifying"))
    try:
        rows = (row for row in copies(ledger_path(box, env)) if isinstance(row, Copied))
        return await asyncio.to_thread(partial(verify, destination, pulled=rows, progress=progress))
    finally:
        stop.set()
