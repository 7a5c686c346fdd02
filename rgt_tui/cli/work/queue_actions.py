"""What `rgt queue` does with the queue of each named box, and how a queue is shown."""

from __future__ import annotations

import asyncio
import contextlib
import os
import posixpath
import sys
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence

import msgspec

from rgt_tui.cli import running
from rgt_tui.cli.commands import FAILED, OK, UNREACHABLE, USAGE
from rgt_tui.cli.opening import rgt_with
from rgt_tui.cli.printing import hint_expanded_tilde, print_error, print_json, print_lines
from rgt_tui.cli.status_line import HOLDING
from rgt_tui.cli.work.run_job import launch_job, print_outcome, save_job
from rgt_tui.cli.work.work_arguments import QueueArguments
from rgt_tui.fleet import connected_agent
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
from rgt_tui.fleet.work.pod_jobs import KubernetesJob
from rgt_tui.fleet.work.queue_split import (
    CellEntry,
    HandedCell,
    forget_handed,
    handed_cells,
    ledger_path,
    same_job,
)
from rgt_tui.language import translate
from rgt_tui.model import BoxSpec, QueueState, clean_decoded, format_time_ago, how_many, size
from rgt_tui.profiles import wait_text
from rgt_tui.ssh import BoxError, CommandFailed, ConfigError, Unreachable

SECONDS = 60.0
# The agent's queue format has a task in each line; own scripts know of none.
TASK = "run"
"""Default task of a queue line, for programs without tasks."""
HASHING_S = 4 * 3600.0
"""Long, because every file of every copy is read."""


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
        # Before any of them starts: results of different code cannot be compared.
        if self._arguments.action == "run" and len(self._specs) > 1:
            # A box that does not answer is reported by its own action below.
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
        # FAILED beats larger numbers: a cell that died is known, an unreached box is not.
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
            # The row last: the agent's own keys win.
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
        # Over stdin, because a sweep may have thousands of lines.
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
            # Lines are commented out, not deleted, so that the file keeps the plan.
            comment_out_words(self._first_job(spec), self._arguments.rest, "taken out"),
        )
        if answer.rows:
            lines = [
                translate("taken out {name}", name=name)
                for name in row_texts(answer.last_row, "out")
            ]
            kept = answer.last_row.get("kept")
            if isinstance(kept, dict):
                lines += [f"kept {name}: {why}" for name, why in kept.items()]
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
        # First: cells that were given to another box must not run twice.
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
            # A misspelt cell would else be ignored, and the rest started.
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
        # A path on the box, so never os.path, which is this machine's.
        name = posixpath.basename(job.rstrip("/"))
        # Only a job that really started is added to the fleet file.
        if "start" in launched.rows or "begins" in launched.rows:
            save_job(arguments, self._config.path, spec, job)
        return await print_outcome(arguments, spec, launched, name, {"job": job})

    async def _print_status(self, spec: BoxSpec) -> int:
        """Show the queues as the box reports them; if no pod of a Job runs, as the cluster does."""
        try:
            return await self._print_box_status(spec)
        except Unreachable as error:
            queue = None
            if spec.kubectl is not None and spec.kubectl.job is not None:
                with contextlib.suppress(BoxError):
                    queue = await KubernetesJob(spec).read_queue()
            if queue is None:
                raise
            print_error(f"{spec.name}: {error}")
        row = msgspec.to_builtins(queue)
        self._print_row(spec, row, queue_lines(queue, time.time()), queue.path)
        return OK

    async def _print_box_status(self, spec: BoxSpec) -> int:
        """Show one job, or all: those of the fleet file, then others that the box knows."""
        named = self._jobs[spec.name]
        accept = self._arguments.accept_new_host_key
        async with connected_agent(spec, accept_new_host_keys=accept) as (connection, deployed):
            others: list[str] = []
            if self._arguments.job is None:
                # Jobs of another computer's fleet file run on the same GPUs.
                known = await query_agent(connection, deployed, ["queue", "list"], seconds=SECONDS)
                if known.status != OK:
                    raise CommandFailed(
                        translate("its other jobs could not be listed: {words}", words=known.words)
                    )
                others = [
                    job
                    for job in row_texts(known.last_row, "jobs")
                    # ~/jobs/a and /root/jobs/a are one job.
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
        # Read-only on the box, so a time limit costs nothing but the answer.
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

    def _has_different_code(self, queues: Mapping[str, QueueState]) -> bool:
        """Return whether the boxes would run different versions of the code, and say so."""
        # A version ends in its hash; its directory differs between boxes.
        if len({(queue.code or "").rpartition("-")[2] for queue in queues.values()}) < 2:
            return False
        said = ", ".join(
            f"{box} has {queue.code or translate('no pushed code')}"
            for box, queue in queues.items()
        )
        job = posixpath.basename(next(iter(queues.values())).path.rstrip("/"))
        push = (
            f"{rgt_with(self._arguments.fleet)} queue {','.join(queues)} new {job} --push PATH "
            "-- 'COMMAND'"
        )
        print_error(
            translate(
                "nothing was started: {said}; results of different code cannot be compared. "
                "Push one version to all of them: {push}",
                said=said,
                push=push,
            )
        )
        return True

    def _load_handed(self) -> tuple[HandedCell, ...]:
        path = ledger_path(os.environ)
        try:
            return handed_cells(path)
        except OSError as error:
            raise ConfigError(f"{path} {error.strerror}") from error

    async def _comment_out_handed(self, spec: BoxSpec) -> tuple[str, ...]:
        """Comment out the cells that others run now on a box; return those that it keeps."""
        job, path = self._first_job(spec), ledger_path(os.environ)
        gone = [
            one for one in self._load_handed() if one.box == spec.name and same_job(one.job, job)
        ]
        # The usual case costs no request.
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
            # Only once the box has confirmed it; until then the ledger repeats it at each call.
            await asyncio.to_thread(forget_handed, path, spec.name, gone[0].job, names)
        except OSError as error:
            print_error(f"{path}: {error.strerror or error}")
        return stays

    async def _read_queue(self, spec: BoxSpec) -> QueueState:
        answer = await self._query_agent(spec, ["queue", "status", "--job", self._first_job(spec)])
        if answer.status != OK:
            raise CommandFailed(
                f"{spec.name}: {answer.words or row_text(answer.last_row, 'error')}"
            )
        return queue_of(answer)

    def _print_words(self, words: str) -> None:
        # The manifest of a dry run is all of its standard output, for kubectl.
        is_manifest = self._arguments.dry_run and self._specs[0].creates_job
        if self._arguments.json or is_manifest:
            out = sys.stderr
        else:
            out = sys.stdout
        print_lines(words, out=out)
        out.flush()


def with_task(line: str) -> str:
    """Return a line of a queue with the task ``run`` if it has none: ``CONFIG``, ``CONFIG 20``."""
    words, hash_mark, comment = line.partition("#")
    parts = words.split()
    # A number in second place is the epochs: no task is called 20.
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
        # The box's text is cleaned here, once, for everything that shows the queue.
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
                    # The box's clock against ours, because its times are by its own.
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
    if queue.runner_alive:
        lines.append(translate("{runner} is active", runner=runner))
    elif queue.done:
        lines.append(translate("all cells are done"))
    else:
        lines.append(translate("no runner is active"))
    return lines + ([f"error: {queue.error}"] if queue.error else [])


def entry_lines(entry: CellEntry) -> list[str]:
    """Return a cell of the fleet as lines."""
    why = f": {entry.why}" if entry.why else ""
    line = f"{entry.status:<10} {entry.name}  on {', '.join(entry.boxes)}{why}"
    return [line, *([f"           {entry.command}"] if entry.command else [])]


def speeds_of(env: Mapping[str, str]) -> dict[str, float]:
    """Return the newest speed that ``rgt check-box`` measured for each box, in TFLOPS."""
    found: dict[str, float] = {}
    # Oldest first, so that the newest of a box remains.
    for check in sorted(load_checks(checks_path(env)), key=lambda one: one.at):
        if check.tflops:
            found[check.box] = check.tflops
    return found
