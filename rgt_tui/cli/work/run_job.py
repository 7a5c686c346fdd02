"""``rgt run``: start one command on a box, detached, and show how it begins."""

from __future__ import annotations

import asyncio
import contextlib
import os
import posixpath
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from rgt_tui.cli import running
from rgt_tui.cli.commands import FAILED, OK, UNREACHABLE, USAGE
from rgt_tui.cli.opening import find_fleet_place, open_box, open_boxes, rgt_with
from rgt_tui.cli.printing import (
    confirm_yes,
    hint_expanded_tilde,
    is_interactive,
    print_error,
    print_json,
    print_lines,
    wait_indicator,
)
from rgt_tui.cli.set_up.adding import trust_written_file
from rgt_tui.cli.set_up.push_to_box import ProgressLine, list_push_warnings, noted_push
from rgt_tui.cli.set_up.secrets_and_mirrors import read_value
from rgt_tui.cli.work.local_smoke import run_local_smoke
from rgt_tui.cli.work.on_start import change_start_hook
from rgt_tui.cli.work.pod_job import run_pod_job, start_reader
from rgt_tui.cli.work.work_arguments import LaunchArguments, RunArguments, parse_environment
from rgt_tui.fleet import connected_agent
from rgt_tui.fleet.config import FleetFileError
from rgt_tui.fleet.config.editing import add_entry
from rgt_tui.fleet.pushes import PushChoice, read_source
from rgt_tui.fleet.work.agent_answers import Row, query_agent, row_text, rows_of
from rgt_tui.fleet.work.installing import find_conda_file, plan_install
from rgt_tui.fleet.work.job_file import (
    CardVerdict,
    GpuRequest,
    JobFileError,
    PortableJob,
    judge_cards,
    read_job_file,
)
from rgt_tui.fleet.work.launching import (
    CannotRun,
    JobRequest,
    LaunchReport,
    PushedCode,
    describe_phase,
    finding_lines,
    job_for,
    phase_of,
)
from rgt_tui.language import translate
from rgt_tui.model import BoxSpec, Secret, format_duration
from rgt_tui.profiles import load_profile
from rgt_tui.ssh import AuthFailed, ConfigError, HostKeyRefused, Unreachable
from rgt_tui.transfer import SourceError, SourceTree

SLACK_S = 60.0
"""Extra time for the box, besides the smoke command and watching the start."""
UNSURE = (
    "unknown whether it was started: run the same command again to see its state; nothing is "
    "started twice"
)


def run_run(arguments: RunArguments) -> int:
    """Launch a command; return the exit status."""
    gpu = None
    if arguments.job is not None:
        try:
            gpu = _apply_job_file(arguments, read_job_file(Path(arguments.job)))
        except JobFileError as error:
            print_error(error)
            return USAGE
    if arguments.on_start and not arguments.words:
        spec = open_box(arguments, trusted=True)
        return running.run_on_box(spec.name, change_start_hook(arguments, spec))
    if arguments.reader:
        spec = open_box(arguments, trusted=True)
        return running.run_on_box(spec.name, start_reader(arguments, spec))
    if not arguments.words and not arguments.install:
        print_error(translate("which command? write it after --: rgt run BOX -- python train.py"))
        return USAGE
    try:
        # All local mistakes before the first connection: a box that is billed should not wait for a
        # typo.
        env = parse_environment(arguments.env)
        secrets = read_secrets(arguments.secret)
        place = find_fleet_place(arguments)
        choice = PushChoice(fleet=None if place is None else place.path)
        if arguments.push:
            # Read once: the same tree is tried here, hashed, and pushed, even if a file changes
            # meanwhile.
            tree = read_source(Path(arguments.push or ""), choice)
        else:
            tree = None
        if arguments.install:
            _plan_words(arguments, tree)
        if arguments.smoke_here and not run_local_smoke(arguments, tree, env, secrets):
            return FAILED
        config, (spec,) = open_boxes(arguments, [arguments.box], trusted=True)
        if spec.creates_job:
            return running.run_on_box(spec.name, run_pod_job(arguments, spec, env))
        start = _JobStart(arguments, config.path, spec, choice, tree, env, secrets)
        # Only to find mistakes before anything is connected.
        start.build_job(None)
    except SourceError as error:
        print_error(error)
        return USAGE
    except (CannotRun, ValueError) as error:
        print_error(f"{arguments.box}: {error}")
        return USAGE
    status = running.run_on_box(spec.name, start.run(gpu))
    if arguments.on_start and status == OK:
        # After the launch, so that the hook lists this job.
        status = running.run_on_box(spec.name, change_start_hook(arguments, spec))
    return status


def _plan_words(arguments: RunArguments, tree: SourceTree | None) -> None:
    """Set the command that installs the dependencies of the code.

    Raises:
        CannotRun: There is a command as well, no code, or nothing in it says what it needs.
    """
    if arguments.words or tree is None:
        raise CannotRun(
            translate("--install takes the code (--push PATH), and no command: run that afterwards")
        )
    paths = {file.path for file in tree.files}
    plan = plan_install(paths)
    if plan is None:
        conda_file = find_conda_file(paths)
        if conda_file is not None:
            raise CannotRun(
                translate(
                    "{file} is for conda, which would replace the image's torch: list what the "
                    "image lacks in a requirements.txt (pip list on the box shows what it has), "
                    "or run conda yourself as the job's command",
                    file=conda_file,
                )
            )
        raise CannotRun(
            translate(
                "nothing in {path} says what to install: an install_deps.sh, a lock file or a "
                "requirements.txt does",
                path=arguments.push,
            )
        )
    arguments.words = [plan.line]
    # The same code is installed once: the same again shows how it went.
    arguments.name = arguments.name or f"install-{tree.tree_digest[:6]}"
    print_error(translate("installs from {file}", file=plan.source))
    if plan.warning:
        print_error(plan.warning)


def _apply_job_file(arguments: RunArguments, job: PortableJob) -> GpuRequest | None:
    """Complete the arguments with a job file; return the card that it asks for.

    Raises:
        JobFileError: It is a sweep, whose command has fields.
    """
    if job.cells and not arguments.words:
        raise JobFileError(
            translate(
                "{job}: cells: this is a sweep: rgt queue {box} run --job {job}",
                job=arguments.job,
                box=arguments.box,
            )
        )
    arguments.words = arguments.words or job.command_words
    arguments.name = arguments.name or job.name or None
    # Not by truth: --smoke '' means no smoke command.
    if arguments.smoke is None:
        arguments.smoke = job.smoke
    if arguments.push is None and job.push is not None:
        # Relative to the file, so that it works from any directory.
        arguments.push = str(Path(arguments.job or "").parent / job.push)
    arguments.workdir = arguments.workdir or job.workdir
    # The command line comes last, so that it overrides the file.
    arguments.env = [*job.environment, *arguments.env]
    arguments.secret = [*job.secrets, *arguments.secret]
    arguments.keep = arguments.keep or job.results
    if job.resources is None:
        return None
    return job.resources.gpu


def read_secrets(names: Sequence[str]) -> dict[str, Secret]:
    """Return the values of secrets, from the environment here, else typed or from stdin.

    Raises:
        ValueError: One has no value or is not text, or two would come from stdin.
    """
    # An empty variable counts as missing: an empty key would fail the job much later.
    missing = [name for name in dict.fromkeys(names) if not os.environ.get(name)]
    if len(missing) > 1 and not sys.stdin.isatty():
        raise ValueError(
            translate(
                "standard input has one secret, but {names} are not in the environment here",
                names=" and ".join(missing),
            )
        )
    found = {name: Secret(os.environ[name]) for name in names if name not in missing}
    for name in missing:
        value = read_value(name)
        if value is None:
            raise ValueError(
                translate(
                    "--secret {name}: it is not in the environment here, and no value was given",
                    name=name,
                )
            )
        found[name] = value
    for name, value in found.items():
        try:
            # Bytes of the environment that are not UTF-8 are surrogates here, and JSON cannot carry
            # them.
            value.reveal().encode()
        except UnicodeEncodeError:
            raise ValueError(
                translate("--secret {name}: it is not UTF-8 text", name=name)
            ) from None
    return found


class _JobStart:
    """One command on its way to a box.

    Args:
        arguments: The command line.
        fleet: The fleet file, to which the job is added.
        spec: The box.
        choice: How the code is pushed.
        tree: The code that was read; None = no code is pushed.
        env: Environment of the command.
        secrets: Name → value of the secrets for its cells.
    """

    def __init__(
        self,
        arguments: RunArguments,
        fleet: Path,
        spec: BoxSpec,
        choice: PushChoice,
        tree: SourceTree | None,
        env: Mapping[str, str],
        secrets: Mapping[str, Secret],
    ) -> None:
        self._arguments, self._fleet, self._spec = arguments, fleet, spec
        self._choice, self._tree, self._env, self._secrets = choice, tree, env, secrets
        self._again = arguments.again

    def build_job(self, code: PushedCode | None) -> JobRequest:
        """Return the job of this command.

        Raises:
            CannotRun: It cannot run on this platform.
        """
        arguments = self._arguments
        return job_for(
            self._spec,
            load_profile(self._spec.profile),
            arguments.words,
            name=arguments.name,
            workdir=arguments.workdir,
            code=code,
            env=self._env,
            secrets=tuple(self._secrets),
            retries=arguments.retries,
            smoke=arguments.smoke,
            ckpt_bytes=arguments.ckpt_size,
            keep=arguments.keep,
            again=self._again,
        )

    async def run(self, gpu: GpuRequest | None = None) -> int:
        """Push the code unless the job has begun, start the job unless it runs, show its start.

        `gpu` = the card that the box must have.
        """
        arguments, spec, code = self._arguments, self._spec, None
        # Before the push: gigabytes for a card that is too small would be sent for nothing.
        if gpu is not None and not await allow_cards(spec, gpu, arguments, force=arguments.force):
            return FAILED
        if self._tree is not None:
            # The digest is enough to find a job of this code; the path is known after the push.
            code = PushedCode(self._tree.tree_digest)
            # Asked before the push: code of a command that already runs need not be sent.
            known = await self._launch_job(["launch", "--find"], self.build_job(code))
            if known.status != OK or (
                known.running_jobs and not known.was_begun and not self._confirm_restart(known)
            ):
                return await self._print_outcome(known, self.build_job(code))
            if self._again or not known.was_begun:
                try:
                    code = await _push_code(arguments, spec, self._choice, self._tree)
                except SourceError as error:
                    print_error(error)
                    return USAGE
        words = ["launch", "--make", "--seconds", f"{arguments.probe:g}"]
        words += ["--smoke-seconds", f"{arguments.smoke_seconds:g}"] + [
            "--no-smoke"
        ] * arguments.no_smoke
        for note in self.build_job(code).notes:
            print_error(f"note: {note}")
        launched = await self._launch_job(words, self.build_job(code))
        if launched.running_jobs and self._confirm_restart(launched):
            launched = await self._launch_job(words, self.build_job(code))
        folder = launched.folder_of(self.build_job(code))
        # False if another job has that name: its queue is not ours to watch.
        if launched.job_row.get("same"):
            save_job(arguments, self._fleet, spec, folder)
        status = await self._print_outcome(launched, self.build_job(code))
        if status == OK and arguments.wait and "begins" in launched.rows:
            return await wait_for_job(arguments, spec, folder)
        return status

    async def _launch_job(self, words: Sequence[str], job: JobRequest) -> LaunchReport:
        secrets = {name: value.reveal() for name, value in self._secrets.items()}
        # On the agent's stdin: arguments of processes can be read by other users of the box.
        data = msgspec.json.encode({**job.asked, "secrets": secrets})
        return await launch_job(self._spec, words, data, self._arguments)

    def _confirm_restart(self, launched: LaunchReport) -> bool:
        """Return whether to start a command that runs with other code; in a script with --again."""
        if self._again:
            return True
        names = ", ".join(
            f"{each.name} (for {format_duration(each.seconds)})" for each in launched.running_jobs
        )
        runs = translate("this command is already running, with other code: {names}", names=names)
        # With --json, stdout has one object, and a script has decided beforehand with --again.
        if is_interactive() and not self._arguments.json:
            self._again = confirm_yes(
                translate("{name}: {runs}. Start it once more?", name=self._spec.name, runs=runs)
            )
        if not self._again:
            print_error(
                translate(
                    "{name}: {runs}; nothing was started. --again starts it once more, next to that",
                    name=self._spec.name,
                    runs=runs,
                )
            )
        return self._again

    async def _print_outcome(self, launched: LaunchReport, job: JobRequest) -> int:
        more: dict[str, Any] = {"job": row_text(launched.job_row, "folder") or None}
        # The local shell may have expanded ~ in --in.
        if "is not a directory" in launched.words:
            hint = hint_expanded_tilde(self._arguments.workdir)
            launched = msgspec.structs.replace(launched, words=launched.words + hint)
        if launched.running_jobs:
            more["others"] = [each._asdict() for each in launched.running_jobs]
            launched = msgspec.structs.replace(launched, status=FAILED)
        name = posixpath.basename(launched.folder_of(job))
        return await print_outcome(self._arguments, self._spec, launched, name, more)


async def allow_cards(
    spec: BoxSpec, gpu: GpuRequest, arguments: LaunchArguments, *, force: bool, ask: bool = True
) -> bool:
    """Return whether a job may start on a box, by the card that it asks for.

    Nothing was sent before this: a smaller card is refused, an unknown one needs consent.

    Raises:
        BoxError: The box was not reached, or was lost.
    """
    accept = arguments.accept_new_host_key
    async with connected_agent(spec, accept_new_host_keys=accept) as (connection, deployed):
        row = (await query_agent(connection, deployed, ["gpu-health"], seconds=SLACK_S)).last_row
    cards: list[tuple[str, int | None]] = []
    for card in rows_of(row, "gpus"):
        # From the box, so it may be anything.
        total = card.get("vram_total")
        if not isinstance(total, int):
            # Unknown memory, which must not count as too little.
            total = None
        cards.append((row_text(card, "name"), total))
    return allow_known_cards(spec, gpu, cards, arguments, force=force, ask=ask)


def allow_known_cards(
    spec: BoxSpec,
    gpu: GpuRequest,
    cards: Sequence[tuple[str, int | None]],
    arguments: LaunchArguments,
    *,
    force: bool,
    ask: bool = True,
) -> bool:
    """Return whether a job may start on these cards: name, and bytes of memory (None = unknown)."""
    verdict, text = judge_cards(gpu, cards)
    line = f"{spec.name}: card   {text}"
    if verdict is CardVerdict.FITS:
        if not arguments.json:
            print_lines(line)
        return True
    # Another card that is large enough: said, and not refused.
    if verdict is CardVerdict.OTHER or force:
        print_error(line)
        return True
    if verdict is CardVerdict.UNKNOWN:
        reason = translate(
            "{name}: the job asks for {count} × {wish_text}, but {words}",
            name=spec.name,
            count=gpu.count,
            wish_text=gpu.wish_text,
            words=text,
        )
        ask = ask and is_interactive() and not arguments.json
        if ask and confirm_yes(translate("{reason}. Start anyway?", reason=reason)):
            return True
        print_error(
            translate("{reason}; nothing was started. --force starts it anyway", reason=reason)
        )
        return False
    print_error(
        translate(
            "{name}: its card is smaller than the job asks for: {words}; nothing was started. Rent "
            "another one (rgt up --job FILE), or --force",
            name=spec.name,
            words=text,
        )
    )
    return False


async def _push_code(
    arguments: RunArguments, spec: BoxSpec, choice: PushChoice, tree: SourceTree
) -> PushedCode:
    """Push the code; return the pushed version, which never changes."""
    accept = arguments.accept_new_host_key
    async with connected_agent(spec, accept_new_host_keys=accept) as (connection, deployed):
        line = ProgressLine()
        try:
            arrived = await noted_push(
                spec.name,
                (connection, deployed),
                load_profile(spec.profile),
                Path(arguments.push or ""),
                choice,
                line,
                tree,
            )
        finally:
            line.close_line()
    for doubt in list_push_warnings(arrived):
        print_error(f"{spec.name}: {doubt}")
    if not arguments.json:
        print_lines(f"{spec.name}: code   {arrived.path}")
        sys.stdout.flush()
    return PushedCode(arrived.digest, arrived.path)


async def launch_job(
    spec: BoxSpec,
    words: Sequence[str],
    data: bytes,
    arguments: LaunchArguments,
    *,
    alone: bool = True,
) -> LaunchReport:
    """Launch a job through the agent, and print its rows as they arrive.

    `alone` = no other launch runs at the same time.

    Raises:
        BoxError: The box was not reached, or was lost.
    """
    rows: dict[str, Row] = {}

    def collect_row(row: Row) -> None:
        # By phase: the last row of each counts, e.g. of several reports of the start.
        rows[phase_of(row)] = row
        if not arguments.json and "--find" not in words:
            print_lines(*(f"{spec.name}: {line}" for line in describe_phase(row)))
            sys.stdout.flush()

    seconds = arguments.probe + arguments.smoke_seconds + SLACK_S
    accept = arguments.accept_new_host_key
    # Decides what a lost connection means.
    asked = False
    try:
        async with connected_agent(spec, accept_new_host_keys=accept) as (connection, deployed):
            # From here on the box may have started it, even if the connection breaks.
            asked = True
            with (
                wait_indicator(translate("launching on {name} …", name=spec.name))
                if alone
                else contextlib.nullcontext()
            ):
                answer = await query_agent(
                    connection, deployed, words, data=data, seconds=seconds, each=collect_row
                )
    # Other errors are answers of the box, so the outcome is known.
    except Unreachable as error:
        if not asked:
            raise
        raise Unreachable(f"{error}; {translate(UNSURE)}") from error
    return LaunchReport(status=answer.status, words=answer.words, rows=rows)


async def print_outcome(
    arguments: LaunchArguments,
    spec: BoxSpec,
    launched: LaunchReport,
    name: str,
    more: dict[str, Any],
) -> int:
    """Print the rest of a launch's result; return its exit status."""
    finding = launched.finding
    if launched.status in (OK, FAILED, USAGE):
        code = launched.status
    else:
        # The agent's other statuses are its own (3: a runner is alive) and would mislead here.
        code = FAILED
    if arguments.json:
        rows = {phase: row for phase, row in launched.rows.items() if phase != "job"}
        body = {"box": spec.name, "name": name, **more, **rows, "finding": finding, "exit": code}
        print_json(body)
    elif finding is not None:
        print_lines(*(f"{spec.name}: {line}" for line in finding_lines(finding)))
    if launched.words and code != OK:
        print_error(f"{spec.name}: {launched.words}")
    cell = row_text(launched.rows.get("begins", {}), "cell")
    if code == OK and cell and not arguments.json:
        print_lines(
            f"{spec.name}: next   {rgt_with(arguments.fleet)} logs {spec.name} {cell} --follow"
        )
    return code


def save_job(arguments: LaunchArguments, fleet: Path, spec: BoxSpec, folder: str) -> None:
    """Add the job to the fleet file, so that every rgt watches its queue."""
    # Already watched: the file is not touched.
    if folder in spec.jobs:
        return
    doubts: list[str | None] = []
    try:
        add_entry(
            fleet,
            spec.name,
            "jobs",
            folder,
            lambda before, after: doubts.append(trust_written_file(before, after)),
        )
    except FleetFileError as error:
        print_error(
            translate(
                "it runs, but could not be added to the fleet file: {error}; add it by hand: "
                'jobs = ["{folder}"]',
                error=error,
                folder=folder,
            )
        )
    place = find_fleet_place(arguments)
    if place is not None and place.lies_there:
        for doubt in filter(None, doubts):
            print_error(doubt)


async def wait_for_job(arguments: RunArguments, spec: BoxSpec, folder: str) -> int:
    """Wait until the job's runner has ended; reconnect if the connection is lost."""
    lost = False
    # Seconds between two attempts to reconnect to a box while waiting for its job.
    again_s = 5.0
    # Seconds that one request for the end of a job waits on the box.
    wait_s = 60.0
    while True:
        try:
            # A new connection for each attempt; the job itself does not need one.
            async with connected_agent(spec) as (connection, deployed):
                lost = False
                while True:
                    words = ["queue", "wait", "--job", folder, "--seconds", f"{wait_s:g}"]
                    frame = (
                        await query_agent(connection, deployed, words, seconds=wait_s + SLACK_S)
                    ).last_row
                    # "queued": waiting in Slurm's queue, where no runner is alive yet.
                    if not (frame.get("runner_alive") or frame.get("queued")):
                        return _print_ended(arguments, spec, frame)
        # Waiting longer does not help against these.
        except (AuthFailed, HostKeyRefused, ConfigError):
            raise
        except Unreachable as error:
            if not lost:
                print_error(
                    translate(
                        "{name}: {error}; the job continues there, and rgt keeps waiting",
                        name=spec.name,
                        error=error,
                    )
                )
            lost = True
            await asyncio.sleep(again_s)


def _print_ended(arguments: RunArguments, spec: BoxSpec, frame: Row) -> int:
    cells = rows_of(frame, "cells")
    bad = [cell for cell in cells if cell.get("state") != "done"]
    if arguments.json:
        print_json({"box": spec.name, "queue": frame})
    else:
        for cell in cells:
            why = ""
            if cell.get("reason"):
                why = f": {row_text(cell, 'reason')}"
            print_lines(f"{spec.name}: {row_text(cell, 'state'):<6} {row_text(cell, 'name')}{why}")
    if not cells:
        print_error(
            f"{spec.name}: {row_text(frame, 'error') or translate('the queue cannot be read')}"
        )
        # No answer at all is not a failed job.
        if not frame:
            return UNREACHABLE
        return FAILED
    if bad:
        return FAILED
    return OK
