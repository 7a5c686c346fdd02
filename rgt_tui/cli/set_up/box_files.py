"""``rgt push --trainer``, ``rgt agent``, ``rgt remove``: add and remove rgt's files on a box."""

from __future__ import annotations

import os
import shlex
import sys
from typing import Any

import msgspec

from rgt_tui.cli import running
from rgt_tui.cli.commands import FAILED, OK
from rgt_tui.cli.opening import open_box, open_boxes
from rgt_tui.cli.printing import (
    confirm_yes,
    is_interactive,
    json_line,
    print_error,
    print_json,
    print_lines,
)
from rgt_tui.cli.set_up.adding import find_target_file, trust_written_file
from rgt_tui.cli.set_up.bringing_arguments import PushArguments
from rgt_tui.cli.set_up.set_up_arguments import AgentArguments, RemoveArguments
from rgt_tui.fleet import noted_transfer, push_trainer
from rgt_tui.fleet.config import FleetFileError
from rgt_tui.fleet.config.editing import remove_box
from rgt_tui.fleet.errands import RemovalResult, remove_agent
from rgt_tui.language import translate
from rgt_tui.model import BoxSpec, size
from rgt_tui.profiles import load_profile
from rgt_tui.ssh import (
    DeployedTrainer,
    build_agent,
)


def run_push_trainer(arguments: PushArguments) -> int:
    """Install the trainer on a box; return the exit code."""
    spec = open_box(arguments, trusted=True)

    async def push_and_print() -> int:
        accept = arguments.accept_new_host_key
        # Shown by other rgts as a transfer, since it takes a while on a slow line.
        async with noted_transfer(spec.name, translate("push trainer")) as page:
            pushed = await push_trainer(spec, arguments.timeout, accept_new_host_keys=accept)
            page.record_result(
                pushed.training_problem or translate("it is there"),
                whole=not pushed.training_problem,
                to=pushed.path,
            )
        return print_pushed(pushed, job_settings(pushed, spec), arguments.json)

    return running.run_on_box(spec.name, push_and_print())


# The queue's own fields; the trainer fills nothing in itself.
COMMAND = ("--config", "{cfg}", "--task", "{task}", "--epochs", "{epochs}", "--out", "{out}")


def job_settings(pushed: DeployedTrainer, spec: BoxSpec) -> dict[str, Any]:
    """Return a ``job.json`` for the box, with paths and environment of its platform's profile."""
    overrides = load_profile(spec.profile).overrides
    # The fleet file wins: a person may keep results elsewhere than the platform suggests.
    durable = spec.durable or overrides.durable_dir
    return {
        "py": pushed.python,
        "command": ["{py}", pushed.path, *COMMAND],
        "out": f"{overrides.data_dir or '~'}/runs/{{name}}",
        "durable": None if durable is None else f"{durable}/runs/{{name}}",
        "env": overrides.env,
    }


def print_pushed(pushed: DeployedTrainer, job: dict[str, Any], as_json: bool) -> int:
    """Print what is installed; return the exit code."""
    if as_json:
        body = {**msgspec.structs.asdict(pushed), "job": job, "problem": pushed.training_problem}
        print_json(body)
    else:
        if pushed.torch:
            torch = f"torch {pushed.torch}"
        else:
            torch = translate("no torch")
        python, path = shlex.quote(pushed.python), shlex.quote(pushed.path)
        for line in (
            f"{pushed.box}: {pushed.path}  sha256 {pushed.sha256[:16]}…",
            f"python    {pushed.python} ({torch})",
            f"launch    {pushed.launch}",
            f"try it    {python} {path} --smoke 2",
            translate(
                "your loop {library} {python} train.py", library=pushed.library, python=python
            ),
            f"job.json  {json_line(job).decode().strip()}",
        ):
            print_lines(line)
    if pushed.training_problem:
        print_error(f"{pushed.box}: {pushed.training_problem}")
        return FAILED
    return OK


def run_agent(arguments: AgentArguments) -> int:
    """Write the zipapp; the same source gives the same bytes."""
    bundle = build_agent()
    try:
        # O_NONBLOCK: do not wait for a reader of a pipe.
        fd = os.open(
            arguments.out,
            os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NONBLOCK,
            # The umask decides, as for any file that a person asks for.
            0o666,
        )
        # Only opening must not wait; a write to a full pipe may.
        os.set_blocking(fd, True)
        with os.fdopen(fd, "wb") as file:
            file.write(bundle.data)
    except OSError as error:
        print_error(
            translate("cannot write {out}: {strerror}", out=arguments.out, strerror=error.strerror)
        )
        return FAILED
    print_lines(
        translate(
            "{out}  {data:,} bytes  sha256 {digest}",
            out=arguments.out,
            data=len(bundle.data),
            digest=bundle.digest,
        )
    )
    return OK


def run_remove(arguments: RemoveArguments) -> int:
    """List, ask, remove; return the exit code."""
    config, (spec,) = open_boxes(arguments, [arguments.box], trusted=True)

    if arguments.only_forget:
        nothing = RemovalResult((), (), 0)
        if not arguments.dry_run and not ask_consent(
            arguments, translate("Remove {name} from {path}?", name=spec.name, path=config.path)
        ):
            return FAILED
        return _forget_box(arguments, spec, nothing)

    hint = ""
    if arguments.forget:
        hint = translate("; if the machine is gone: rgt remove --only-forget")
    return running.run_on_box(spec.name, _remove_files(arguments, spec), hint=hint)


async def _remove_files(arguments: RemoveArguments, spec: BoxSpec) -> int:
    # A dry run first: its list is shown, and only then is consent asked for.
    found = await _request_removal(arguments, spec, dry_run=True)
    if (
        not arguments.dry_run
        and not found.refused
        and any(thing.kept is None for thing in found.things)
    ):
        if not arguments.yes and not arguments.json:
            _print_removal(spec.name, found, dry_run=True)
        if not ask_consent(arguments, translate("Remove this from {name}?", name=spec.name)):
            return FAILED
        found = await _request_removal(arguments, spec, dry_run=False)
    # Only a cleaned box is forgotten: otherwise no file would name the rest of rgt on it.
    if arguments.forget and not found.refused and not found.failed:
        return _forget_box(arguments, spec, found)
    return _report_removal(arguments, spec, found, forgotten=False)


async def _request_removal(
    arguments: RemoveArguments, spec: BoxSpec, *, dry_run: bool
) -> RemovalResult:
    return await remove_agent(
        spec,
        arguments.timeout,
        old=arguments.old,
        dry_run=dry_run,
        accept_new_host_keys=arguments.accept_new_host_key,
    )


def ask_consent(arguments: RemoveArguments | PushArguments, question: str) -> bool:
    """Ask for consent; without a terminal, refuse."""
    if arguments.yes:
        return True
    # JSON has one object on stdout, and a question would make a script wait.
    if arguments.json or not is_interactive():
        print_error(
            translate(
                "nothing was removed: cannot prompt here; check with --dry-run, then use --yes"
            )
        )
        return False
    if confirm_yes(question):
        return True
    print_error(translate("nothing was removed"))
    return False


def _forget_box(arguments: RemoveArguments, spec: BoxSpec, found: RemovalResult) -> int:
    """Remove the box from the fleet file; return the exit code."""
    if arguments.dry_run:
        return _report_removal(arguments, spec, found, forgotten=False)
    path, lies_there = find_target_file(arguments.fleet)
    doubts: list[str | None] = []
    try:
        remove_box(
            path, spec.name, lambda before, after: doubts.append(trust_written_file(before, after))
        )
    except FleetFileError as error:
        print_error(error)
        # The files on the box are gone, even if the fleet file could not be written.
        _report_removal(arguments, spec, found, forgotten=False)
        return FAILED
    for doubt in doubts:
        if doubt and lies_there:
            print_error(doubt)
    code = _report_removal(arguments, spec, found, forgotten=True)
    if not arguments.json:
        print_lines(f"{path}: {spec.name} removed")
    return code


def _report_removal(
    arguments: RemoveArguments, spec: BoxSpec, found: RemovalResult, *, forgotten: bool
) -> int:
    if arguments.json:
        head = {"box": spec.name, "dry_run": arguments.dry_run}
        body = {**head, **msgspec.to_builtins(found), "forgotten": forgotten}
        print_json(body)
    elif not arguments.only_forget:
        _print_removal(spec.name, found, dry_run=arguments.dry_run)
    if found.is_complete:
        return OK
    return FAILED


def _print_removal(name: str, found: RemovalResult, *, dry_run: bool) -> None:
    for why in found.refused:
        print_error(translate("{name}: nothing was removed: {why}", name=name, why=why))
    if found.refused:
        return
    going = [thing for thing in found.things if thing.kept is None]
    if dry_run:
        said = translate("would be removed")
    else:
        said = "removed"
    head = translate("{name}: nothing to remove\n", name=name)
    if going:
        head = f"{name}: {size(found.bytes)} {said}\n"
    sys.stdout.write(head)
    for thing in found.things:
        if thing.kept is None:
            print_lines(f"  {size(thing.bytes):>8}  {thing.path}  ({thing.what})")
    for thing in found.things:
        if thing.kept is not None:
            print_lines(f"  kept      {thing.path}  ({thing.what}): {thing.kept}")
    for why in found.failed:
        print_error(translate("{name}: not removed: {why}", name=name, why=why))
