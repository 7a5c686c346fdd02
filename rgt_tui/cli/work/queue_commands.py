"""``rgt queue``: the queue of one box, or one queue over several boxes."""

from __future__ import annotations

import asyncio
import os
import posixpath
import sys
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from pathlib import Path

import msgspec

from rgt_tui.cli import running
from rgt_tui.cli.commands import FAILED, OK, UNREACHABLE, USAGE
from rgt_tui.cli.opening import open_boxes, rgt_with
from rgt_tui.cli.printing import hint_expanded_tilde, print_error, print_json, print_lines
from rgt_tui.cli.status_line import HOLDING
from rgt_tui.cli.work.box_tools import confirm_box_name
from rgt_tui.cli.work.run_job import allow_cards, launch_job, print_outcome, save_job
from rgt_tui.cli.work.sweeps import (
    RequestedSweep,
    find_existing_results,
    make_sweep,
    read_job_sweep,
    send_job_secrets,
)
from rgt_tui.cli.work.work_arguments import QueueArguments
from rgt_tui.fleet import connected_agent, meter_text, provider_word
from rgt_tui.fleet.config import FleetConfig
from rgt_tui.fleet.renting.acceptance import checks_path, load_checks
from rgt_tui.fleet.work.agent_answers import (
    AgentAnswer,
    Row,
    query_agent,
    row_text,
    row_texts,
    rows_of,
)
from rgt_tui.fleet.work.job_file import JobFileError
from rgt_tui.fleet.work.launching import job_directory
from rgt_tui.fleet.work.queue_split import OK as WHOLE
from rgt_tui.fleet.work.queue_split import (
    UNDONE,
    CellEntry,
    HandedCell,
    NoQueue,
    QueueLine,
    QueuePart,
    describe_share,
    forget_handed,
    handed_cells,
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
from rgt_tui.model import BoxSpec, Lifecycle, QueueState, clean_decoded
from rgt_tui.profiles import format_time_ago, how_many, size, wait_text
from rgt_tui.ssh import BoxError, CommandFailed, ConfigError, Unreachable
from rgt_tui.store import FleetHistory, HistoryError, history_path

SECONDS = 60.0
TASK = "run"
"""Default task of a queue line, for programs without tasks."""
HASHING_S = 4 * 3600.0
"""Long, because every file of every copy is read."""
NEW_ALONE = {
    "--push": "push",
    "--in": "workdir",
    "--env": "env",
    "--smoke": "smoke",
    "--retries": "retries",
    "--prune": "prune",
    "--keep": "keep",
}
"""Options of the job that ``new`` makes, with their names in the namespace."""


def run_queue(arguments: QueueArguments) -> int:
    """Run one action on the queue of each named box; return the exit status."""
    names = list(dict.fromkeys(name for name in arguments.boxes.split(",") if name))
    if arguments.hand_over:
        handed = [arguments.hand_over]
    else:
        handed = []
    sweep = None
    try:
        sweep = read_job_sweep(arguments, names)
    except (JobFileError, ValueError) as error:
        print_error(error)
        return USAGE
    config, specs = open_boxes(arguments, [*names, *handed], trusted=True)
    by_name = {spec.name: spec for spec in specs}
    if sweep is not None:
        folders = {name: (job_directory(by_name[name], sweep.name),) for name in names}
        command = QueueCommand(arguments, config, specs, folders)
        return running.run_on_box(",".join(names), command.run_job_sweep(sweep))
    wrong = _find_argument_fault(arguments, names)
    if wrong is not None:
        print_error(wrong)
        return USAGE
    try:
        jobs = {name: jobs_of(by_name[name], arguments) for name in [*names, *handed]}
    except ValueError as error:
        print_error(error)
        return USAGE
    if arguments.action == "new":
        making = make_sweep(arguments, config.path, [by_name[name] for name in names], jobs)
        return running.run_on_box(",".join(names), making)
    work = QueueCommand(arguments, config, [by_name[name] for name in names], jobs)
    if arguments.action == "reconcile" and len(names) > 1:
        return running.run_coroutine(work.reconcile_fleet())
    if arguments.hand_over:
        return running.run_on_box(arguments.hand_over, work.hand_over(by_name[arguments.hand_over]))
    if arguments.action == "run" and arguments.rest:
        return running.run_on_box(",".join(names), work.split_file())
    return running.run_coroutine(work.run_on_each())


def _find_argument_fault(arguments: QueueArguments, names: Sequence[str]) -> str | None:
    action, rest = arguments.action, arguments.rest
    if not names:
        return translate("name a box, or several separated by commas: a,b,c")
    if action == "new" and len(rest) != 1:
        return "new takes the name of the job: rgt queue BOX new sweep -- 'python train.py --config {cfg}'"
    if action == "new" and not arguments.words:
        return "which command? write it after --: rgt queue BOX new sweep -- 'python train.py --config {cfg}'"
    if action == "new" and arguments.job is not None:
        return "new takes the name of the job instead of --job"
    if action != "new" and arguments.words:
        return translate("{action} takes no command", action=action)
    only_new = [
        word for word, name in NEW_ALONE.items() if action != "new" and getattr(arguments, name)
    ]
    if only_new:
        return translate(
            "only for new, as part of the job: {only_new}", only_new=" and ".join(only_new)
        )
    if action == "add" and (len(names) > 1 or not rest):
        return translate(
            "add takes lines, and one box; several boxes share a file: rgt queue a,b run QUEUEFILE"
        )
    if action == "take-out" and not rest:
        return translate("take-out takes the names of cells")
    if action in ("status", "check", "reconcile") and rest:
        return translate("{action} takes no {rest!r}", action=action, rest=rest[0])
    if action == "run" and len(rest) > 1:
        return translate("run takes one queue file")
    if arguments.hand_over and action != "run":
        return "--hand-over goes with run: rgt queue b,c run --hand-over a"
    if arguments.hand_over in names:
        return translate(
            "{hand_over} cannot take over its own cells", hand_over=arguments.hand_over
        )
    if arguments.hand_over and rest:
        return "--hand-over uses the cells of that box: give no file"
    return None


def jobs_of(spec: BoxSpec, arguments: QueueArguments) -> tuple[str, ...]:
    """Return the job directories of a box to act on: one, except for ``reconcile`` and ``status``.

    Raises:
        ValueError: None is known, or several are.
    """
    if arguments.action == "new":
        return (job_directory(spec, arguments.rest[0]),)
    if arguments.job is not None:
        return (job_directory(spec, arguments.job),)
    if (
        len(spec.jobs) == 1
        or arguments.action == "status"
        or (spec.jobs and arguments.action == "reconcile")
    ):
        return spec.jobs
    if not spec.jobs:
        raise ValueError(
            f"{spec.name}: the fleet file names no job of it; name one with --job DIR, or make one: rgt queue "
            f"{spec.name} new sweep --push . -- 'python train.py --config {{cfg}}'"
        )
    names = ", ".join(posixpath.basename(job.rstrip("/")) for job in spec.jobs)
    raise ValueError(f"{spec.name}: which of its jobs? --job one of: {names}")


class QueueCommand:
    """One action on the queues of some boxes.

    Args:
        arguments: The command line.
        config: The fleet file.
        specs: The boxes, in the order in which they were named.
        jobs: Box → its job directories.
    """

    def __init__(
        self,
        arguments: QueueArguments,
        config: FleetConfig,
        specs: Sequence[BoxSpec],
        jobs: Mapping[str, tuple[str, ...]],
    ) -> None:
        self._arguments, self._config, self._specs, self._jobs = arguments, config, specs, jobs

    async def run_on_each(self) -> int:
        """Run the action on all boxes concurrently; return the worst exit status."""
        actions: dict[str, Callable[[BoxSpec], Coroutine[None, None, int]]] = {
            "add": self._add_cells,
            "take-out": self._comment_out_cells,
            "run": self._run_queue,
            "status": self._print_status,
            "check": self._check_queue,
            "reconcile": self._reconcile_queues,
        }
        action = actions[self._arguments.action]
        if self._arguments.action == "run" and len(self._specs) > 1:
            read = await asyncio.gather(*map(self._read_queue, self._specs), return_exceptions=True)
            found = zip((spec.name for spec in self._specs), read, strict=True)
            if self._has_different_code(
                {box: queue for box, queue in found if isinstance(queue, QueueState)}
            ):
                return FAILED

        async def run_guarded(spec: BoxSpec) -> int:
            try:
                return await action(spec)
            except BoxError as error:
                print_error(f"{spec.name}: {error}")
                return running.status_of(error)

        codes = await asyncio.gather(*map(run_guarded, self._specs))
        return max(codes, key=lambda code: (code != OK, code == FAILED, code))

    async def _query_agent(
        self, spec: BoxSpec, words: Sequence[str], data: bytes = b"", seconds: float = SECONDS
    ) -> AgentAnswer:
        accept = self._arguments.accept_new_host_key
        async with connected_agent(spec, accept_new_host_keys=accept) as (connection, deployed):
            return await query_agent(connection, deployed, words, data=data, seconds=seconds)

    def _first_job(self, spec: BoxSpec) -> str:
        return self._jobs[spec.name][0]

    def _print_row(
        self, spec: BoxSpec, row: Row, lines: Sequence[str], job: str | None = None
    ) -> None:
        if self._arguments.json:
            print_json({"box": spec.name, "job": job or self._first_job(spec), **row})
        else:
            print_lines(*(f"{spec.name}: {line}" for line in lines))

    def _report_exit(self, spec: BoxSpec, answer: AgentAnswer) -> int:
        if answer.words and answer.status:
            print_error(f"{spec.name}: {answer.words}{hint_expanded_tilde(self._arguments.job)}")
        # The agent's 3 means that a runner is alive; ours that the box was not reached.
        if answer.status == UNREACHABLE:
            return FAILED
        return answer.status

    async def _add_cells(self, spec: BoxSpec) -> int:
        data = "\n".join(map(with_task, self._arguments.rest)).encode() + b"\n"
        answer = await self._query_agent(
            spec, ["queue", "add", "--job", self._first_job(spec)], data
        )
        if answer.status == OK:
            added, there = row_texts(answer.last_row, "added"), row_texts(answer.last_row, "there")
            if added:
                lines = [f"added {', '.join(added)}"]
            else:
                lines = []
            self._print_row(
                spec,
                answer.last_row,
                lines
                + ([translate("there already: {there}", there=", ".join(there))] if there else []),
            )
        return self._report_exit(spec, answer)

    async def _comment_out_cells(self, spec: BoxSpec) -> int:
        answer = await self._query_agent(
            spec,
            comment_out_words(self._first_job(spec), self._arguments.rest, "taken out"),
        )
        if answer.rows:
            lines = [
                translate("taken out {name}", name=name)
                for name in row_texts(answer.last_row, "out")
            ]
            kept = answer.last_row.get("kept")
            lines += (
                [f"kept {name}: {why}" for name, why in kept.items()]
                if isinstance(kept, dict)
                else []
            )
            self._print_row(
                spec,
                answer.last_row,
                lines
                + [
                    translate("no cell {name}", name=name)
                    for name in row_texts(answer.last_row, "absent")
                ],
            )
        return self._report_exit(spec, answer)

    async def _run_queue(self, spec: BoxSpec) -> int:
        await self._comment_out_handed(spec)
        arguments, job = self._arguments, self._first_job(spec)
        if arguments.again:
            words = [
                "queue",
                "again",
                "--job",
                job,
                *(word for name in arguments.again for word in ("--cell", name)),
            ]
            answer = await self._query_agent(spec, words)
            if answer.status != OK or row_texts(answer.last_row, "absent"):
                print_error(
                    f"{spec.name}: {answer.words or 'no cell ' + ', '.join(row_texts(answer.last_row, 'absent'))}"
                )
                return USAGE
        words = ["launch", "--job", job, "--seconds", f"{arguments.probe:g}"]
        words += ["--smoke-seconds", f"{arguments.smoke_seconds:g}"] + [
            "--no-smoke"
        ] * arguments.no_smoke
        words += ["--from", arguments.start] if arguments.start else []
        launched = await launch_job(spec, words, b"", arguments, alone=len(self._specs) == 1)
        name = posixpath.basename(job.rstrip("/"))
        if "start" in launched.rows or "begins" in launched.rows:
            save_job(arguments, self._config.path, spec, job)
        return await print_outcome(arguments, spec, launched, name, {"job": job})

    async def _print_status(self, spec: BoxSpec) -> int:
        """Show one job, or all: those of the fleet file, then others that the box knows."""
        named = self._jobs[spec.name]
        accept = self._arguments.accept_new_host_key
        async with connected_agent(spec, accept_new_host_keys=accept) as (connection, deployed):
            others: list[str] = []
            if self._arguments.job is None:
                known = await query_agent(connection, deployed, ["queue", "list"], seconds=SECONDS)
                if known.status != OK:
                    raise CommandFailed(
                        translate("its other jobs could not be listed: {words}", words=known.words)
                    )
                others = [
                    job
                    for job in row_texts(known.last_row, "jobs")
                    if not any(same_job(job, one) for one in named)
                ]
            codes = []
            for job in (*named, *others):
                answer = await query_agent(
                    connection, deployed, ["queue", "status", "--job", job], seconds=SECONDS
                )
                lines = queue_lines(queue_of(answer), time.time())
                if len(named) + len(others) > 1:
                    if job in named:
                        unnamed = ""
                    else:
                        unnamed = translate(", which the fleet file does not name")
                    lines = [f"job {job}{unnamed}", *(f"  {line}" for line in lines)]
                self._print_row(spec, answer.last_row, lines, job)
                codes.append(self._report_exit(spec, answer))
        return max(codes, default=OK)

    async def _check_queue(self, spec: BoxSpec) -> int:
        arguments = self._arguments
        words = ["queue", "check", "--json", "--job", self._first_job(spec)] + [
            "--fix"
        ] * arguments.fix
        answer = await self._query_agent(
            spec, words + (["--from", arguments.start] if arguments.start else [])
        )
        row = answer.last_row
        lines = [f"fixed: {path}" for path in row_texts(row, "fixed")] + row_texts(row, "problems")
        lines += [f"note: {note}" for note in row_texts(row, "notes")]
        if row.get("ok"):
            lines.append(
                translate("{get}, nothing wrong", get=how_many(int(row.get("cells") or 0), "cell"))
            )
        self._print_row(spec, row, lines)
        return self._report_exit(spec, answer)

    async def _reconcile_queues(self, spec: BoxSpec) -> int:
        answer = await self._query_agent(spec, self._reconcile_words(spec), seconds=HASHING_S)
        if not answer.rows:
            return self._report_exit(spec, answer)
        lines = []
        for cell in rows_of(answer.last_row, "cells"):
            why = ""
            if cell.get("reason"):
                why = f": {row_text(cell, 'reason')}"
            lines.append(f"{row_text(cell, 'status'):<10} {row_text(cell, 'name')}{why}")
        lines += row_texts(answer.last_row, "problems") + [
            f"extra      {path}" for path in row_texts(answer.last_row, "extra")
        ]
        self._print_row(spec, answer.last_row, lines)
        return answer.status

    def _reconcile_words(self, spec: BoxSpec) -> list[str]:
        words = ["reconcile", *(word for job in self._jobs[spec.name] for word in ("--job", job))]
        return words + (["--durable", self._arguments.durable] if self._arguments.durable else [])

    # Over several boxes.

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
        if bad - {"unknown", "unproven", "unreadable"}:
            return FAILED
        if lost:
            return UNREACHABLE
        if bad or not entries:
            return 2
        return OK

    async def _reconcile_box(self, spec: BoxSpec) -> list[QueuePart]:
        try:
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
                        if len(self._jobs[spec.name]) == 1 or same_job(row_text(row, "job"), job)
                    ]
                    found.append(
                        QueuePart(box=spec.name, job=job, queue=queue_of(status), cells=tuple(mine))
                    )
                return found
        except BoxError as error:
            remembered = (await self._load_recorded_queues([spec])).get(spec.name, ())
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

    async def run_job_sweep(self, sweep: RequestedSweep) -> int:
        """Make the sweep of a job file on each box whose card fits, and share its cells out.

        All cards are checked before anything is pushed.
        """
        arguments = self._arguments
        dry_run = arguments.dry_run
        allowed = True
        for spec in self._specs:
            if sweep.gpu is not None and not await allow_cards(
                spec, sweep.gpu, arguments, force=arguments.force, ask=not dry_run
            ):
                allowed = False
        if not allowed and not dry_run:
            return FAILED
        lines = sweep.lines
        if arguments.skip_existing:
            remembered = await self._load_recorded_queues(self._config.boxes)
            existing = find_existing_results(sweep, remembered)
            for name, place in existing.items():
                self._print_words(translate("left out: {name} ({place})", name=name, place=place))
            lines = tuple(line for line in lines if line.name not in existing)
            if not lines:
                self._print_words(translate("every cell has results: nothing to do"))
                return OK
        if dry_run:
            await self._share_out(lines, dry_run=True)
            self._print_words(translate("dry run: nothing was pushed, made or started"))
            if allowed:
                return OK
            return FAILED
        code = await make_sweep(arguments, self._config.path, self._specs, self._jobs)
        if code == OK:
            code = await send_job_secrets(arguments, self._specs, self._jobs, sweep.secrets)
        if code != OK:
            return code
        return await self._share_out(lines)

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
        for note in found.notes if fresh else ():
            self._print_words(note)
        for share in found.shares:
            if share.lines:
                self._print_words(f"{share.box}: {describe_share(share)}")
        if dry_run:
            return OK
        return await self._start_shares({share.box: share.lines for share in found.shares})

    def _has_different_code(self, queues: Mapping[str, QueueState]) -> bool:
        """Return whether the boxes would run different versions of the code, and say so."""
        if len({(queue.code or "").rpartition("-")[2] for queue in queues.values()}) < 2:
            return False
        said = ", ".join(
            f"{box} has {queue.code or 'no pushed code'}" for box, queue in queues.items()
        )
        job = posixpath.basename(next(iter(queues.values())).path.rstrip("/"))
        push = f"{rgt_with(self._arguments.fleet)} queue {','.join(queues)} new {job} --push PATH -- 'COMMAND'"
        print_error(
            translate(
                "nothing was started: {said}; results of different code cannot be compared. "
                "Push one version to all of them: {push}",
                said=said,
                push=push,
            )
        )
        return True

    async def _start_shares(self, shares: Mapping[str, Sequence[QueueLine]]) -> int:
        """Add each share to its queue, then launch all.

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
        self._arguments.action, self._arguments.rest = "run", []
        self._specs = [spec for spec in self._specs if shares.get(spec.name)] or self._specs
        return await self.run_on_each()

    async def hand_over(self, away: BoxSpec) -> int:
        """Give the unfinished cells of a box to others, but never while it may still run them."""
        job = self._first_job(away)
        try:
            queue = await self._read_queue(away)
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
            left = ()
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

    async def _comment_out_handed(self, spec: BoxSpec) -> tuple[str, ...]:
        """Comment out the cells that others run now on a box; return those that it keeps."""
        job, path = self._first_job(spec), ledger_path(os.environ)
        gone = [
            one for one in self._load_handed() if one.box == spec.name and same_job(one.job, job)
        ]
        if not gone:
            return ()
        names = [one.cell for one in gone]
        answer = await self._query_agent(
            spec, comment_out_words(job, names, "handed over to another box")
        )
        if not answer.rows:
            raise CommandFailed(
                translate(
                    "its queue could not be updated with the cells that others run now: {words}",
                    words=answer.words,
                )
            )
        kept = answer.last_row.get("kept")
        if isinstance(kept, dict):
            stays = tuple(str(name) for name in kept)
        else:
            stays = ()
        for name in stays:
            print_error(
                translate(
                    "{name}: {name_2} stays there: {more}",
                    name=spec.name,
                    name_2=name,
                    more=kept[name] if isinstance(kept, dict) else "",
                )
            )
        if row_texts(answer.last_row, "out"):
            self._print_words(
                translate(
                    "{name}: no longer run there: {last_row}",
                    name=spec.name,
                    last_row=", ".join(row_texts(answer.last_row, "out")),
                )
            )
        try:
            await asyncio.to_thread(forget_handed, path, spec.name, gone[0].job, names)
        except OSError as error:
            print_error(f"{path}: {error.strerror or error}")
        return stays

    def _load_handed(self) -> tuple[HandedCell, ...]:
        path = ledger_path(os.environ)
        try:
            return handed_cells(path)
        except OSError as error:
            raise ConfigError(f"{path} {error.strerror}") from error

    async def _read_queue(self, spec: BoxSpec) -> QueueState:
        answer = await self._query_agent(spec, ["queue", "status", "--job", self._first_job(spec)])
        if answer.status != OK:
            raise CommandFailed(
                f"{spec.name}: {answer.words or row_text(answer.last_row, 'error')}"
            )
        return queue_of(answer)

    async def _read_queue_if_any(self, spec: BoxSpec) -> QueueState:
        try:
            return await self._read_queue(spec)
        except CommandFailed:
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

    def _print_words(self, words: str) -> None:
        if self._arguments.json:
            out = sys.stderr
        else:
            out = sys.stdout
        print_lines(words, out=out)
        out.flush()


def with_task(line: str) -> str:
    """Return a line of a queue with the task ``run`` if it has none: ``CONFIG``, ``CONFIG 20``."""
    words, hash_mark, comment = line.partition("#")
    parts = words.split()
    if len(parts) == 1 or (len(parts) == 2 and parts[1].isdecimal()):
        parts.insert(1, TASK)
        return " ".join(parts) + (f" {hash_mark}{comment}" if hash_mark else "")
    return line


def comment_out_words(job: str, names: Sequence[str], why: str) -> list[str]:
    """Return the agent's command that comments cells out."""
    return [
        "queue",
        "take-out",
        "--job",
        job,
        "--why",
        why,
        *(word for name in names for word in ("--cell", name)),
    ]


def queue_of(answer: AgentAnswer) -> QueueState:
    """Return the queue in the agent's answer.

    Raises:
        CommandFailed: The answer has no valid queue.
    """
    try:
        return clean_decoded(msgspec.convert(answer.last_row, QueueState))
    except msgspec.ValidationError as error:
        raise CommandFailed(
            translate("the agent's answer cannot be used: {words}", words=answer.words or error)
        ) from error


def queue_lines(queue: QueueState, now: float) -> list[str]:
    """Return a queue as lines."""
    lines = []
    for cell in queue.cells:
        when = ""
        if cell.started:
            when = f", {format_time_ago(cell.ended or cell.started, now)}"
        why = ""
        if cell.reason:
            why = f": {cell.reason}"
        state = cell.state
        if cell.wait is not None:
            state, why = (
                HOLDING,
                translate(
                    ": at step {step:,}, {wait}",
                    step=cell.wait.step,
                    wait=wait_text(cell.wait, queue.at - now, now),
                ),
            )
        if cell.epochs is None:
            epochs = ""
        else:
            epochs = f", {how_many(cell.epochs, 'epoch')}"
        freed = ""
        if cell.pruned:
            freed = f", freed {size(cell.pruned)}"
        lines.append(f"{state:<11} {cell.name} ({cell.task}{epochs}{when}{freed}){why}")
    if queue.runner_pid:
        runner = translate("runner pid {runner_pid}", runner_pid=queue.runner_pid)
    else:
        runner = "a runner"
    lines.append(
        translate("{runner} is active", runner=runner)
        if queue.runner_alive
        else translate("all cells are done")
        if queue.done
        else translate("no runner is active")
    )
    return lines + ([f"error: {queue.error}"] if queue.error else [])


def entry_lines(entry: CellEntry) -> list[str]:
    """Return a cell of the fleet as lines."""
    why = f": {entry.why}" if entry.why else ""
    line = f"{entry.status:<10} {entry.name}  on {', '.join(entry.boxes)}{why}"
    return [line, *([f"           {entry.command}"] if entry.command else [])]


def speeds_of(env: Mapping[str, str]) -> dict[str, float]:
    """Return the newest speed that ``rgt check-box`` measured for each box, in TFLOPS."""
    found: dict[str, float] = {}
    for check in sorted(load_checks(checks_path(env)), key=lambda one: one.at):
        if check.tflops:
            found[check.box] = check.tflops
    return found
