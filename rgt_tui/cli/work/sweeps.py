"""``rgt queue BOX new NAME``: make the job of a sweep of one's own code, on one or more boxes."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from rgt_tui.cli import running
from rgt_tui.cli.commands import FAILED, OK, USAGE
from rgt_tui.cli.opening import rgt_with
from rgt_tui.cli.printing import print_error, print_json, print_lines
from rgt_tui.cli.set_up.bringing_arguments import SecretArguments
from rgt_tui.cli.set_up.push_to_box import ProgressLine, list_push_warnings, noted_push
from rgt_tui.cli.set_up.secrets_and_mirrors import send_secret
from rgt_tui.cli.work.run_job import save_job
from rgt_tui.cli.work.work_arguments import QueueArguments, parse_environment
from rgt_tui.fleet import connected_agent
from rgt_tui.fleet.pushes import PushChoice, read_source
from rgt_tui.fleet.work.agent_answers import Row, query_agent, row_text, row_texts
from rgt_tui.fleet.work.job_file import GpuRequest, read_job_file
from rgt_tui.fleet.work.launching import CannotRun, PushedCode, sweep_for
from rgt_tui.fleet.work.queue_split import QueueLine, same_job
from rgt_tui.language import translate
from rgt_tui.model import BoxSpec, FrozenStruct, QueueState, Secret
from rgt_tui.profiles import load_profile
from rgt_tui.ssh import BoxError
from rgt_tui.transfer import SourceError, SourceTree

SECONDS = 60.0


class RequestedSweep(FrozenStruct, kw_only=True):
    """The sweep of a job file."""

    name: str
    """Name of the job."""
    lines: tuple[QueueLine, ...]
    gpu: GpuRequest | None
    secret_names: list[str]
    """Names of the secrets for its cells."""


def read_job_sweep(arguments: QueueArguments, names: Sequence[str]) -> RequestedSweep | None:
    """Return the sweep of the job file that the arguments name, which are completed with it.

    None if they name none.

    Raises:
        JobFileError: It cannot be used.
        ValueError: Arguments contradict each other.
    """
    # --job has two meanings: a job on the box, or a file here, which ends in .toml.
    if arguments.job is None or not arguments.job.endswith(".toml"):
        only = {
            "--names": arguments.names,
            "--skip-existing": arguments.skip_existing,
            "--dry-run": arguments.dry_run,
            "--force": arguments.force,
            "--parallel": arguments.parallel,
        }
        given = [option for option, value in only.items() if value]
        if given:
            raise ValueError(
                translate(
                    "{names}: only with a job file: run --job job.toml", names=" and ".join(given)
                )
            )
        return None
    if arguments.action != "run" or arguments.rest or arguments.hand_over or arguments.words:
        raise ValueError(
            translate(
                "a job file goes with run alone: rgt queue {names} run --job {job}",
                names=",".join(names),
                job=arguments.job,
            )
        )
    path = Path(arguments.job)
    job = read_job_file(path)
    lines = job.queue_lines(arguments.names)
    name = job.name or path.stem
    # As if a person had typed `queue BOX new NAME -- COMMAND`: `make_sweep` knows no job file.
    arguments.rest, arguments.words, arguments.job = [name], job.command_words, None
    arguments.env, arguments.smoke, arguments.workdir = job.environment, job.smoke, job.workdir
    if job.push is not None:
        arguments.push = str(path.parent / job.push)
    arguments.keep, arguments.prune = job.results, arguments.prune or job.prune
    gpu = None
    if job.resources is not None:
        gpu = job.resources.gpu
    return RequestedSweep(name=name, lines=lines, gpu=gpu, secret_names=job.secrets)


def find_existing_results(
    sweep: RequestedSweep, queues: Mapping[str, Sequence[QueueState]], pulled: Path = Path("pulled")
) -> dict[str, str]:
    """Return the cells of a sweep that have results, with the place where they were seen.

    Args:
        sweep: The sweep.
        queues: Box → its queues as last recorded.
        pulled: Directory of pulled results, as ``rgt pull`` makes it.
    """
    found: dict[str, str] = {}
    unfinished: set[str] = set()
    for box, states in queues.items():
        cells = [
            cell for state in states if same_job(state.path, sweep.name) for cell in state.cells
        ]
        found |= {
            cell.name: translate("done on {box}", box=box) for cell in cells if cell.state == "done"
        }
        unfinished |= {cell.name for cell in cells if cell.state != "done"}
    for line in sweep.lines:
        # A cell that failed or still runs may have been pulled in part.
        if line.name in unfinished:
            continue
        # At any depth, because a pull keeps the box's own directories.
        for folder in pulled.rglob(f"{sweep.name}/{line.name}"):
            # An empty directory is what an interrupted pull may leave.
            if folder.is_dir() and any(folder.iterdir()):
                found[line.name] = translate("pulled to {folder}", folder=folder)
    names = [line.name for line in sweep.lines]
    return {name: place for name, place in found.items() if name in names}


async def send_job_secrets(
    arguments: QueueArguments,
    specs: Sequence[BoxSpec],
    jobs: Mapping[str, tuple[str, ...]],
    secrets: Mapping[str, Secret],
) -> int:
    """Store the secrets of a job for its cells on every box; return the exit status."""
    for spec in specs:
        for name, value in secrets.items():
            request = SecretArguments(
                box=spec.name,
                name=name,
                job=jobs[spec.name][0],
                json=arguments.json,
                accept_new_host_key=arguments.accept_new_host_key,
            )
            code = await send_secret(request, spec, value)
            if code != OK:
                return code
    return OK


async def make_sweep(
    arguments: QueueArguments,
    fleet: Path,
    specs: Sequence[BoxSpec],
    jobs: Mapping[str, tuple[str, ...]],
) -> int:
    """Push one version of the code to every box, and make the job there; return the exit status."""
    choice, tree = PushChoice(fleet=fleet), None
    try:
        env = parse_environment(arguments.env)
        if arguments.push:
            tree = await asyncio.to_thread(read_source, Path(arguments.push), choice)
    except (SourceError, ValueError) as error:
        print_error(error)
        return USAGE
    made: dict[str, str] = {}
    code = OK
    # One box after the other: their uploads would share one line anyway, and progress is one line.
    for spec in specs:
        try:
            row = await _on_box(arguments, spec, choice, tree, env)
        except (CannotRun, SourceError) as error:
            print_error(f"{spec.name}: {error}")
            code = USAGE
            continue
        except BoxError as error:
            print_error(f"{spec.name}: {error}")
            code = running.status_of(error)
            continue
        if row is None:
            code = USAGE
            continue
        made[spec.name] = row_text(row, "digest")
        save_job(arguments, fleet, spec, jobs[spec.name][0])
        _print_job(arguments, spec, row, jobs[spec.name][0])
    # An older version on one box: the job existed there, and kept its code.
    if len(set(made.values())) > 1:
        print_error(
            translate(
                "the boxes have different versions of the code: {made}; push again",
                made=", ".join(made),
            )
        )
        return FAILED
    missing = [spec.name for spec in specs if spec.name not in made]
    # With none made, the errors above say it already.
    if missing and made:
        print_error(
            translate(
                "the job is not on {missing}: run the same command again once that is fixed",
                missing=", ".join(missing),
            )
        )
    return code


async def _on_box(
    arguments: QueueArguments,
    spec: BoxSpec,
    choice: PushChoice,
    tree: SourceTree | None,
    env: Mapping[str, str],
) -> Row | None:
    """Make the job on one box.

    Return the agent's answer with the code's digest, None if refused.
    """
    profile = load_profile(spec.profile)
    # Fail before pushing anything if the job cannot be made.
    sweep_for(spec, profile, arguments.words, name=arguments.rest[0], code=None)
    accept = arguments.accept_new_host_key
    async with connected_agent(spec, accept_new_host_keys=accept) as (connection, deployed):
        code = None
        if tree is not None:
            line = ProgressLine()
            try:
                arrived = await noted_push(
                    spec.name,
                    (connection, deployed),
                    profile,
                    Path(arguments.push or ""),
                    choice,
                    line,
                    tree,
                )
            finally:
                line.close_line()
            for doubt in list_push_warnings(arrived):
                print_error(f"{spec.name}: {doubt}")
            code = PushedCode(arrived.digest, arrived.path)
        asked = sweep_for(
            spec,
            profile,
            arguments.words,
            name=arguments.rest[0],
            code=code,
            workdir=arguments.workdir,
            env=env,
            retries=arguments.retries,
            smoke=arguments.smoke,
            prune=arguments.prune,
            keep=arguments.keep,
        )
        answer = await query_agent(
            connection, deployed, ["queue", "new"], data=msgspec.json.encode(asked), seconds=SECONDS
        )
    if answer.status != OK:
        print_error(f"{spec.name}: {answer.words}")
        return None
    return {
        **answer.last_row,
        "code": code.path if code else None,
        "digest": code.digest if code else "",
    }


def _print_job(arguments: QueueArguments, spec: BoxSpec, row: Row, job: str) -> None:
    if arguments.json:
        body: dict[str, Any] = {"box": spec.name, "job": job, **row}
        print_json(body)
        return
    if row.get("made"):
        how = "made"
    else:
        how = translate("already exists, with the same command")
    if row.get("code"):
        lines = [f"code   {row_text(row, 'code')}"]
    else:
        lines = []
    lines += [
        translate(
            "job    {job} {how}; results go to {row}", job=job, how=how, row=row_text(row, "out")
        )
    ]
    lines += [f"note   {note}" for note in row_texts(row, "notes")]
    # From a job file the cells are added and started at once, so there is no next step.
    if arguments.action != "new":
        print_lines(*(f"{spec.name}: {line}" for line in lines))
        return
    rgt, name = rgt_with(arguments.fleet), arguments.rest[0]
    lines += [f"next   {rgt} queue {spec.name} add configs/a.yaml 'configs/b.yaml 20' --job {name}"]
    lines += [f"next   {rgt} queue {spec.name} run --job {name}"]
    print_lines(*(f"{spec.name}: {line}" for line in lines))
