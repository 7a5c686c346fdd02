"""One queue over several boxes: its lines are shared out, compared, and handed over."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from pathlib import Path

import msgspec

from rgt_tui.cli.commands import FAILED, OK, UNREACHABLE, USAGE
from rgt_tui.cli.printing import print_error, print_json, print_lines
from rgt_tui.cli.work.box_tools import confirm_box_name
from rgt_tui.cli.work.pod_job import create_pod_sweep
from rgt_tui.cli.work.queue_actions import (
    HASHING_S,
    SECONDS,
    QueueCommand,
    entry_lines,
    queue_of,
    speeds_of,
)
from rgt_tui.cli.work.run_job import allow_cards, allow_known_cards, save_job
from rgt_tui.cli.work.sweeps import (
    RequestedSweep,
    find_existing_results,
    make_sweep,
    send_job_secrets,
)
from rgt_tui.fleet import connected_agent, meter_text, provider_word
from rgt_tui.fleet.work.agent_answers import (
    query_agent,
    row_text,
    rows_of,
)
from rgt_tui.fleet.work.queue_split import OK as WHOLE
from rgt_tui.fleet.work.queue_split import (
    UNDONE,
    NoQueue,
    QueueLine,
    QueuePart,
    describe_share,
    ledger_path,
    line_of,
    list_cells,
    note_handed,
    parse_lines,
    same_job,
    seen_in,
    split_queue,
)
from rgt_tui.language import translate
from rgt_tui.model import BoxSpec, Lifecycle, QueueState, Secret, format_time_ago
from rgt_tui.ssh import BoxError, CommandFailed, Unreachable
from rgt_tui.store import FleetHistory, HistoryError, history_path


class SharedQueue(QueueCommand):
    """One action on a queue whose cells several boxes run."""

    async def reconcile_fleet(self) -> int:
        """Compare the cells of all boxes with their results; return the exit status.

        0 = complete, 1 = incomplete, 2 = could not tell, 3 = a box was not reached.
        """
        parts = [
            part
            for found in await asyncio.gather(*map(self._reconcile_box, self._specs))
            for part in found
        ]
        entries = list_cells(parts)
        lost = [part for part in parts if part.error]
        if self._arguments.json:
            body = {"cells": entries, "unreached": {part.box: part.error for part in lost}}
            print_json(body)
        else:
            print_lines(*(line for entry in entries for line in entry_lines(entry)))
        for part in lost:
            print_error(
                translate(
                    "{box}: {error}; shown as last seen, it may still run",
                    box=part.box,
                    error=part.error,
                )
            )
        bad = {entry.status for entry in entries} - {WHOLE}
        # Known damage wins over anything unknown.
        if bad - {"unknown", "unproven", "unreadable"}:
            return FAILED
        if lost:
            return UNREACHABLE
        if bad or not entries:
            return 2
        return OK

    async def _reconcile_box(self, spec: BoxSpec) -> list[QueuePart]:
        try:
            # Otherwise a cell that was handed over would count as missing here and as done there.
            await self._comment_out_handed(spec)
            accept = self._arguments.accept_new_host_key
            async with connected_agent(spec, accept_new_host_keys=accept) as (connection, deployed):
                answer = await query_agent(
                    connection, deployed, self._reconcile_words(spec), seconds=HASHING_S
                )
                rows = rows_of(answer.last_row, "cells")
                found = []
                for job in self._jobs[spec.name]:
                    status = await query_agent(
                        connection, deployed, ["queue", "status", "--job", job], seconds=SECONDS
                    )
                    mine = [
                        row
                        for row in rows
                        # An agent that was asked about one job need not repeat its name in each
                        # row.
                        if len(self._jobs[spec.name]) == 1 or same_job(row_text(row, "job"), job)
                    ]
                    found.append(
                        QueuePart(box=spec.name, job=job, queue=queue_of(status), cells=tuple(mine))
                    )
                return found
        except BoxError as error:
            remembered = (await self._load_recorded_queues([spec])).get(spec.name, ())
            # The box cannot be updated now, so its cells are left out of its remembered queue.
            given = {(one.box, one.cell) for one in self._load_handed()}
            found = []
            for job in self._jobs[spec.name]:
                queue = next((queue for queue in remembered if same_job(queue.path, job)), None)
                if queue is not None:  # cells that other boxes run now are shown there
                    cells = tuple(
                        cell for cell in queue.cells if (spec.name, cell.name) not in given
                    )
                    queue = msgspec.structs.replace(queue, cells=cells)
                found.append(QueuePart(box=spec.name, job=job, queue=queue, error=str(error)))
            return found

    async def split_file(self) -> int:
        """Split a file's lines between the boxes, add each share to its queue, and launch them."""
        try:
            path = Path(self._arguments.rest[0])
            lines = parse_lines(path.read_text(encoding="utf-8"), str(path))
        except (OSError, UnicodeDecodeError) as error:
            print_error(
                translate("cannot read {rest}: {error}", rest=self._arguments.rest[0], error=error)
            )
            return USAGE
        except NoQueue as error:
            print_error(error)
            return USAGE
        return await self._share_out(lines)

    async def run_pod_sweep(self, sweep: RequestedSweep) -> int:
        """Create the Job of a cluster for the sweep of a job file, with a pod for each cell."""
        (spec,) = self._specs
        arguments, route = self._arguments, spec.kubectl
        assert route is not None
        allowed = True
        if sweep.gpu is not None:
            # The cluster chooses the node: model and memory of its cards are unknown.
            cards = [(translate("GPU of the cluster's choice"), None)] * route.gpus
            allowed = allow_known_cards(
                spec, sweep.gpu, cards, arguments, force=arguments.force, ask=not arguments.dry_run
            )
        if not allowed and not arguments.dry_run:
            return FAILED
        lines = await self._leave_out_existing(sweep)
        if not lines:
            return OK
        save = partial(save_job, arguments, self._config.path, spec)
        code = await create_pod_sweep(arguments, spec, sweep.name, lines, save)
        if not allowed:
            return FAILED
        return code

    async def run_job_sweep(self, sweep: RequestedSweep, secrets: Mapping[str, Secret]) -> int:
        """Make the sweep of a job file on each box whose card fits, and share its cells out.

        All cards are checked before anything is pushed.
        """
        arguments = self._arguments
        dry_run = arguments.dry_run
        # All cards are checked, so that every refusal is shown at once.
        allowed = True
        for spec in self._specs:
            if sweep.gpu is not None and not await allow_cards(
                spec, sweep.gpu, arguments, force=arguments.force, ask=not dry_run
            ):
                allowed = False
        if not allowed and not dry_run:
            return FAILED
        lines = await self._leave_out_existing(sweep)
        if not lines:
            return OK
        if dry_run:
            # Without cards that fit, too: the shares are the question of a dry run.
            await self._share_out(lines, dry_run=True)
            self._print_words(translate("dry run: nothing was pushed, made or started"))
            if allowed:
                return OK
            return FAILED
        code = await make_sweep(arguments, self._config.path, self._specs, self._jobs)
        if code == OK:
            # After the jobs exist, which secrets are bound to, and before any cell starts.
            code = await send_job_secrets(arguments, self._specs, self._jobs, secrets)
        if code != OK:
            return code
        return await self._share_out(lines)

    async def _leave_out_existing(self, sweep: RequestedSweep) -> tuple[QueueLine, ...]:
        """Return the cells to run: all, or with ``--skip-existing`` those without results."""
        if not self._arguments.skip_existing:
            return sweep.lines
        # All boxes of the file: a cell may be done on one that is not named now.
        remembered = await self._load_recorded_queues(self._config.boxes)
        existing = find_existing_results(sweep, remembered)
        for name, place in existing.items():
            self._print_words(translate("left out: {name} ({place})", name=name, place=place))
        lines = tuple(line for line in sweep.lines if line.name not in existing)
        if not lines:
            self._print_words(translate("every cell has results: nothing to do"))
        return lines

    async def _share_out(self, lines: Sequence[QueueLine], *, dry_run: bool = False) -> int:
        """Split lines between the boxes.

        Every box has to answer first: one that does not may already have the lines. With `dry_run`,
        a box may lack the job, and nothing is added.
        """
        read_queue = self._read_queue
        if dry_run:
            read_queue = self._read_queue_if_any
        queues = dict(
            zip(
                (s.name for s in self._specs),
                await asyncio.gather(*map(read_queue, self._specs)),
                strict=True,
            )
        )
        if self._has_different_code(queues):
            return FAILED
        # A cell is known by its name, wherever it is: a repeated command must not run it twice.
        there = {cell.name: box for box, queue in queues.items() for cell in queue.cells}
        fresh = [line for line in lines if line.name not in there]
        for box in dict.fromkeys(there.values()):
            names = [line.name for line in lines if there.get(line.name) == box]
            if names:
                self._print_words(
                    translate("{box}: there already: {names}", box=box, names=", ".join(names))
                )
        remembered = await self._load_recorded_queues(self._config.boxes)
        seen = [one for box, queue in queues.items() for one in seen_in(box, [queue])]
        # A queue that was just read is newer than the history's record of it.
        known = {(one.box, one.name) for one in seen}
        seen += [
            one
            for box, states in remembered.items()
            for one in seen_in(box, states)
            if (one.box, one.name) not in known
        ]
        waiting = {
            box: [line_of(cell) for cell in queue.cells if cell.state in UNDONE]
            for box, queue in queues.items()
        }
        found = split_queue(
            fresh, list(queues), seen=seen, speeds=speeds_of(os.environ), queued=waiting
        )
        # Notes are about how fresh lines were weighed.
        for note in found.notes if fresh else ():
            self._print_words(note)
        for share in found.shares:
            if share.lines:
                self._print_words(f"{share.box}: {describe_share(share)}")
        if dry_run:
            return OK
        # A launch that failed has left its cells on a box, which bills while nothing runs there.
        asked = {line.name for line in lines}
        left = {
            box
            for box, queue in queues.items()
            if any(cell.name in asked and cell.state in UNDONE for cell in queue.cells)
        }
        return await self._start_shares(
            {share.box: share.lines for share in found.shares}, also=left
        )

    async def _start_shares(
        self, shares: Mapping[str, Sequence[QueueLine]], *, also: Collection[str] = ()
    ) -> int:
        """Add each share to its queue, then launch all that got one, and the boxes in `also`.

        Repeating the command adds nothing twice.
        """
        by_name = {spec.name: spec for spec in self._specs}
        for box, lines in shares.items():
            if lines:
                data = "\n".join(line.text for line in lines).encode() + b"\n"
                spec = by_name[box]
                answer = await self._query_agent(
                    spec, ["queue", "add", "--job", self._first_job(spec)], data
                )
                if answer.status != OK:
                    return self._report_exit(spec, answer)
        # From here on as `rgt queue BOX run` on each box.
        self._arguments.action, self._arguments.rest = "run", []
        # With nothing to add, all are launched: an earlier attempt may have stopped before that.
        launched = [spec for spec in self._specs if shares.get(spec.name) or spec.name in also]
        self._specs = launched or self._specs
        return await self.run_on_each()

    async def hand_over(self, away: BoxSpec) -> int:
        """Give the unfinished cells of a box to others, but never while it may still run them."""
        job = self._first_job(away)
        try:
            queue = await self._read_queue(away)
        # CommandFailed: the box answers but its queue cannot be read, so it is not known to be
        # idle.
        except (Unreachable, CommandFailed) as error:
            queue = await self._last_known_queue(away, job)
            if not await self._is_off(away, error):
                return FAILED
        else:
            if queue.runner_alive:
                print_error(
                    translate(
                        "{name}: its runner is active and may run them: nothing was handed over",
                        name=away.name,
                    )
                )
                return FAILED
        # the receiving boxes have to answer first
        # A queue that cannot be read could not receive the cells that are taken away below.
        await asyncio.gather(*map(self._read_queue, self._specs))
        cells = [cell for cell in queue.cells if cell.state in UNDONE]
        if not cells:
            self._print_words(translate("{name}: it has no cell to hand over", name=away.name))
            return OK
        names = [cell.name for cell in cells]
        path = ledger_path(os.environ)
        try:
            # Recorded before the others get them, so that the box is updated first if it returns.
            await asyncio.to_thread(note_handed, path, away.name, job, {"others": names})
        except OSError as error:
            print_error(
                translate(
                    "{path}: {strerror}; nothing was handed over",
                    path=path,
                    strerror=error.strerror or error,
                )
            )
            return FAILED
        lines = [line_of(cell, f"from {away.name}") for cell in cells]
        try:
            left = await self._comment_out_handed(away)
        except BoxError:
            # Unreachable: it is updated when it answers again, from the ledger.
            left = ()
        # Cells that the box keeps (it started them meanwhile) are not given away.
        lines = [line for line in lines if line.name not in left]
        try:
            code = await self._share_out(lines)
        except BoxError:
            print_error(translate("to add the cells taken from it to a queue that lacks them:"))
            print_error("\n".join(line.text for line in lines))
            raise
        if left and code == OK:
            return FAILED
        return code

    async def _is_off(self, spec: BoxSpec, error: BoxError) -> bool:
        """Return whether an unreachable box runs nothing, by its provider or else by the person."""
        meter = await provider_word(spec)
        if (
            meter is not None
            and meter.error is None
            and meter.lifecycle in (Lifecycle.STOPPED, Lifecycle.GONE)
        ):
            self._print_words(f"{spec.name}: {meter_text(meter)}")
            return True
        if meter is not None:
            word = f"; {meter_text(meter)}"
        else:
            word = translate("; no provider to ask")
        print_error(
            translate(
                "{name}: {error}{word}. Unreachable does not mean stopped: it may still run "
                "its cells.",
                name=spec.name,
                error=error,
                word=word,
            )
        )
        # The provider does not prove it, so the person does, by the box's name.
        return confirm_box_name(
            self._arguments,
            spec.name,
            translate("confirm that you have seen it off, and hand its cells over"),
        )

    async def _last_known_queue(self, spec: BoxSpec, job: str) -> QueueState:
        queues = (await self._load_recorded_queues([spec])).get(spec.name, ())
        queue = next((queue for queue in queues if same_job(queue.path, job)), None)
        if queue is None:
            raise Unreachable(
                translate(
                    "it is unreachable, and its queue {job} was never seen: its cells are unknown",
                    job=job,
                )
            )
        self._print_words(
            translate(
                "{name}: its queue as it was seen {at}",
                name=spec.name,
                at=format_time_ago(queue.at, time.time()),
            )
        )
        return queue

    async def _read_queue_if_any(self, spec: BoxSpec) -> QueueState:
        try:
            return await self._read_queue(spec)
        except CommandFailed:
            # In a dry run the job need not exist yet.
            return QueueState(path=self._first_job(spec), at=0.0)

    async def _load_recorded_queues(
        self, specs: Sequence[BoxSpec]
    ) -> dict[str, tuple[QueueState, ...]]:
        """Return the queues of boxes as last recorded; empty without a history."""
        path = history_path(os.environ)
        if path is None or not path.exists():
            return {}
        history = FleetHistory(path, fleet=str(self._config.path.absolute()))
        try:
            return {
                name: state.queues for name, state in (await history.recall_states(specs)).items()
            }
        except HistoryError:
            return {}
        finally:
            await history.close()
