"""``rgt queue``: the queue of one box, or one queue over several boxes."""

from __future__ import annotations

import posixpath
from collections.abc import Sequence

from rgt_tui.cli import running
from rgt_tui.cli.commands import USAGE
from rgt_tui.cli.opening import open_boxes, rgt_with
from rgt_tui.cli.printing import print_error
from rgt_tui.cli.work.pod_job import UNUSED
from rgt_tui.cli.work.run_job import read_secrets
from rgt_tui.cli.work.shared_queue import SharedQueue
from rgt_tui.cli.work.sweeps import (
    RequestedSweep,
    make_sweep,
    read_job_sweep,
)
from rgt_tui.cli.work.work_arguments import QueueArguments
from rgt_tui.fleet.work.job_file import JobFileError
from rgt_tui.fleet.work.launching import job_directory
from rgt_tui.language import translate
from rgt_tui.model import BoxSpec

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
    # A box named twice would get its share of the cells twice.
    names = list(dict.fromkeys(name for name in arguments.boxes.split(",") if name))
    if arguments.hand_over:
        handed = [arguments.hand_over]
    else:
        handed = []
    sweep = None
    try:
        # Before the fleet file is opened: it completes the arguments that are checked below.
        sweep = read_job_sweep(arguments, names)
    except (JobFileError, ValueError) as error:
        print_error(error)
        return USAGE
    config, specs = open_boxes(arguments, [*names, *handed], trusted=True)
    by_name = {spec.name: spec for spec in specs}
    if sweep is not None:
        folders = {name: (job_directory(by_name[name], sweep.name),) for name in names}
        command = SharedQueue(arguments, config, specs, folders)
        if any(spec.creates_job for spec in specs):
            wrong = _find_sweep_fault(arguments, specs, sweep)
            if wrong is not None:
                print_error(wrong)
                return USAGE
            return running.run_on_box(",".join(names), command.run_pod_sweep(sweep))
        try:
            # Not in a dry run: a person would be asked for keys that are not used.
            secrets = {}
            if not arguments.dry_run:
                secrets = read_secrets(sweep.secret_names)
        except ValueError as error:
            print_error(error)
            return USAGE
        return running.run_on_box(",".join(names), command.run_job_sweep(sweep, secrets))
    wrong = _find_argument_fault(arguments, names)
    if wrong is None and arguments.action in ("new", "add", "run"):
        wrong = _find_pod_fault(arguments, specs)
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
    work = SharedQueue(arguments, config, [by_name[name] for name in names], jobs)
    if arguments.action == "reconcile" and len(names) > 1:
        # Not `run_on_box`: a box that fails is a row of the answer, and the others are still
        # compared.
        return running.run_coroutine(work.reconcile_fleet())
    if arguments.hand_over:
        return running.run_on_box(arguments.hand_over, work.hand_over(by_name[arguments.hand_over]))
    if arguments.action == "run" and arguments.rest:
        return running.run_on_box(",".join(names), work.split_file())
    return running.run_coroutine(work.run_on_each())


def _find_sweep_fault(
    arguments: QueueArguments, specs: Sequence[BoxSpec], sweep: RequestedSweep
) -> str | None:
    """Return why the sweep of a job file cannot be a Job; None = it can."""
    if len(specs) > 1:
        return translate(
            "{boxes}: cells are not shared between a Kubernetes Job and other boxes; name one box",
            boxes=arguments.boxes,
        )
    given = {
        "push": arguments.push,
        "secret": sweep.secret_names,
        "smoke": arguments.smoke and not arguments.no_smoke,
    }
    for key, value in given.items():
        if value:
            return translate(
                "{box}: {key} of the job file does not apply to a Job: {instead}",
                box=arguments.boxes,
                key=key,
                instead=translate(UNUSED[key]),
            )
    return None


def _find_pod_fault(arguments: QueueArguments, specs: Sequence[BoxSpec]) -> str | None:
    """Return why a queue is not made, added to or run by hand on a box that is a Job."""
    jobs = [spec.name for spec in specs if spec.creates_job]
    if not jobs:
        return None
    return translate(
        "{box} is a Kubernetes Job: its cells are those of a job file: {rgt} queue {box} run --job "
        "job.toml",
        box=jobs[0],
        rgt=rgt_with(arguments.fleet),
    )


def _find_argument_fault(arguments: QueueArguments, names: Sequence[str]) -> str | None:
    action, rest = arguments.action, arguments.rest
    if not names:
        return translate("name a box, or several separated by commas: a,b,c")
    if action == "new" and len(rest) != 1:
        return translate(
            "new takes the name of the job: rgt queue BOX new sweep -- 'python train.py --config "
            "{cfg}'"
        )
    # Some of these could be argparse's work, but its messages would not show the right command.
    if action == "new" and not arguments.words:
        return translate(
            "which command? write it after --: rgt queue BOX new sweep -- 'python train.py "
            "--config {cfg}'"
        )
    if action == "new" and arguments.job is not None:
        return translate("new takes the name of the job instead of --job")
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
        return translate("--hand-over goes with run: rgt queue b,c run --hand-over a")
    if arguments.hand_over in names:
        return translate(
            "{hand_over} cannot take over its own cells", hand_over=arguments.hand_over
        )
    if arguments.hand_over and rest:
        return translate("--hand-over uses the cells of that box: give no file")
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
        # status may have none: it then asks the box for the jobs that it knows.
        return spec.jobs
    if not spec.jobs:
        raise ValueError(
            translate(
                "{name}: the fleet file names no job of it; name one with --job DIR, or make one: "
                "rgt queue {name} new sweep --push . -- 'python train.py --config {{cfg}}'",
                name=spec.name,
            )
        )
    names = ", ".join(posixpath.basename(job.rstrip("/")) for job in spec.jobs)
    raise ValueError(
        translate("{name}: which of its jobs? --job one of: {names}", name=spec.name, names=names)
    )
