"""``rgt push``: send code and data to a box, and list the versions of code there."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import msgspec

from rgt_tui.cli import running
from rgt_tui.cli.commands import FAILED, OK, USAGE
from rgt_tui.cli.opening import open_boxes
from rgt_tui.cli.printing import print_error, print_json, print_lines
from rgt_tui.cli.set_up import box_files
from rgt_tui.cli.set_up.bringing_arguments import PushArguments
from rgt_tui.fleet import connected_agent, noted_transfer
from rgt_tui.fleet.pushes import (
    PushChoice,
    PushedVersions,
    PushResult,
    code_place,
    prune_code,
    push_tree,
    versions_of,
)
from rgt_tui.language import show_recorded, translate
from rgt_tui.model import BoxSpec, Profile, format_duration, how_many, size
from rgt_tui.profiles import load_profile
from rgt_tui.ssh import BoxTransport, DeployedAgent
from rgt_tui.transfer import ExcludedPath, SourceError, SourceTree

MOST_SHOWN = 8
"""Maximum lines about files left out; --json has all of them."""


def run_push(arguments: PushArguments) -> int:
    """Push, list or prune; return the exit code."""
    if arguments.trainer:
        return box_files.run_push_trainer(arguments)
    wrong = _find_argument_fault(arguments)
    if wrong:
        print_error(wrong)
        return USAGE
    config, (spec,) = open_boxes(arguments, [arguments.box], trusted=True)
    listing = arguments.list_only or arguments.prune
    if listing:
        work = _manage_versions(arguments, spec)
    else:
        work = _push_paths(arguments, spec, config.path)
    return running.run_on_box(
        spec.name, work, hint=translate("; what has arrived is kept: push again")
    )


def _find_argument_fault(arguments: PushArguments) -> str:
    if arguments.list_only or arguments.prune:
        if arguments.paths:
            return translate("--list and --prune take no PATH")
        return ""
    if not arguments.paths:
        return translate(
            "nothing to push: give a path (rgt push BOX PATH), or --trainer, --list or --prune"
        )
    if arguments.to is not None and not arguments.to.startswith(("/", "~/")):
        return translate("--to {to}: give an absolute directory on the box", to=arguments.to)
    if arguments.name is not None and len(arguments.paths) > 1:
        return translate("--name is for one PATH")
    return ""


async def _push_paths(arguments: PushArguments, spec: BoxSpec, fleet: Path) -> int:
    profile = load_profile(spec.profile)
    choice = PushChoice(
        kind="data" if arguments.data else "code",
        to=arguments.to,
        name=arguments.name,
        exclude=tuple(arguments.exclude),
        secrets_too=arguments.include_secrets,
        mend=arguments.fix_crlf,
        replace_newer=arguments.replace_newer,
        dry_run=arguments.dry_run,
        fleet=fleet,
    )
    # One bad PATH does not keep the others from being pushed; the exit status is that of the worst.
    code = OK
    async with connected_agent(spec, accept_new_host_keys=arguments.accept_new_host_key) as (
        connection,
        deployed,
    ):
        for path in arguments.paths:
            line = ProgressLine()
            try:
                arrived = await noted_push(
                    spec.name, (connection, deployed), profile, Path(path), choice, line
                )
            # A mistake in the local tree; errors of the box end all pushes, since the next would
            # meet them.
            except SourceError as error:
                line.close_line()
                print_error(error)
                code = FAILED
                continue
            finally:
                line.close_line()
            if arguments.json:
                print_json({"box": spec.name, **msgspec.to_builtins(arrived)})
            else:
                for text in describe_push(spec.name, arrived):
                    print_lines(text)
            for text in list_push_warnings(arrived):
                print_error(f"{spec.name}: {text}")
            # Refused files do not make the pushed ones wrong, but a script must not take them for
            # there.
            code = FAILED if arrived.refused else code
    return code


async def noted_push(
    box: str,
    way: tuple[BoxTransport, DeployedAgent],
    profile: Profile,
    path: Path,
    choice: PushChoice,
    line: ProgressLine,
    tree: SourceTree | None = None,
) -> PushResult:
    """Push, show the progress, and record it for other rgts; a dry run is not recorded.

    Raises:
        Exception: As in `push_tree`.
    """
    if choice.dry_run:
        return await push_tree(*way, profile, path, choice, tree=tree, progress=line.show_progress)
    async with noted_transfer(
        box, f"push {choice.kind}", (str(path.absolute()),), choice.to or ""
    ) as page:

        def report_progress(done: int, total: int) -> None:
            # The page is read by dashboards, so it is written also where this terminal shows
            # nothing.
            page.record_push_progress(done, total)
            line.show_progress(done, total)

        arrived = await push_tree(*way, profile, path, choice, tree=tree, progress=report_progress)
        what = translate(
            "{files}, {bytes} verified, {same:,} there already",
            files=how_many(arrived.files, "file"),
            bytes=size(arrived.bytes),
            same=arrived.same,
        )
        refused = ""
        if arrived.refused:
            refused = translate(
                "{refused:,} not replaced: {refused_2}",
                refused=len(arrived.refused),
                refused_2=arrived.refused[0][0],
            )
        page.record_result(refused or what, whole=not arrived.refused, to=arrived.path)
        return arrived


class ProgressLine:
    """The progress, on one line of the terminal that is overwritten.

    Silent if stderr is no terminal.
    """

    def __init__(self) -> None:
        self._began: float | None = None
        self._last = 0.0
        self._shown = False

    def show_progress(self, done: int, total: int) -> None:
        """Show the progress, at most ten times a second."""
        now = time.monotonic()
        if self._began is None:
            self._began = now
        # The last call is always drawn: the line must not end at 98%.
        if sys.stderr.isatty() and (now - self._last > 0.1 or done >= total):
            sys.stderr.write(f"\r{progress_text(done, total, now - self._began)}\x1b[K")
            sys.stderr.flush()
            self._last, self._shown = now, True

    def close_line(self) -> None:
        """End the line."""
        if self._shown:
            sys.stderr.write("\n")
            self._shown = False


def progress_text(done: int, total: int, seconds: float) -> str:
    """Return progress, speed and remaining time: ``12.0 MB of 1.2 GB, 8.1 MB/s, 2m26 left``."""
    text = f"{size(done)} of {size(total)}"
    # A speed of less than a second says nothing about the rest.
    if seconds < 1 or done <= 0:
        return text
    return (
        f"{text}, {size(done / seconds)}/s, {format_duration((total - done) * seconds / done)} left"
    )


def describe_push(box: str, arrived: PushResult) -> list[str]:
    """Return the printed result of a push, one line per item."""
    would = ""
    if arrived.dry_run:
        would = translate("would be ")
    sent = f"{size(arrived.sent)} {would}sent"
    if arrived.saved:
        sent += f" (packed: {size(arrived.sent - arrived.saved)})"
    found = [
        f"{box}: {arrived.path}",
        f"  sha256    {arrived.digest}",
        translate(
            "  files     {files:,} ({bytes}); {sent}, {same:,} there already",
            files=arrived.files,
            bytes=size(arrived.bytes),
            sent=sent,
            same=arrived.same,
        ),
    ]
    if arrived.link:
        found.append(f"  link      {arrived.link}")
    found += [
        translate("  left out  {path} ({why})", path=left_out.path, why=left_out.why)
        for left_out in _limit_left_out(arrived.left_out)
    ]
    # Secrets are named in full: a key that is missing on the box must be explained.
    rest = len(arrived.left_out) - len(_limit_left_out(arrived.left_out))
    return found + (
        [translate("  left out  {rest:,} more (--json names all)", rest=rest)] if rest else []
    )


def _limit_left_out(left_out: tuple[ExcludedPath, ...]) -> tuple[ExcludedPath, ...]:
    """Return the left-out files to print: all secrets, then others up to `MOST_SHOWN`."""
    secrets = [each for each in left_out if each.secret]
    others = [each for each in left_out if not each.secret]
    return tuple((secrets + others)[: max(MOST_SHOWN, len(secrets))])


def list_push_warnings(arrived: PushResult) -> list[str]:
    """Return warnings about a push that the person must see."""
    found = [
        translate("not replaced: {path}: {why}", path=path, why=show_recorded(why))
        for path, why in arrived.refused
    ]
    secrets = [each.path for each in arrived.left_out if each.secret]
    if secrets:
        shown = ", ".join(secrets[:5])
        text = translate(
            "1 file left out that looks like a secret: {names}; rgt secret puts one there, "
            "--include-secrets pushes them",
            names=shown,
        )
        if len(secrets) > 1:
            text = translate(
                "{count:,} files left out that look like a secret: {names}; rgt secret puts one "
                "there, --include-secrets pushes them",
                count=len(secrets),
                names=shown,
            )
        found.append(text)
    # A shell reads the carriage return as part of the last word of each line.
    if arrived.windows and not arrived.mended:
        found.append(
            translate(
                "Windows line endings, which break shells and queues: {names}; --fix-crlf fixes "
                "the pushed copies",
                names=", ".join(arrived.windows[:5]),
            )
        )
    return found


async def _manage_versions(arguments: PushArguments, spec: BoxSpec) -> int:
    place = arguments.to or code_place(load_profile(spec.profile))
    async with connected_agent(spec, accept_new_host_keys=arguments.accept_new_host_key) as (
        connection,
        deployed,
    ):
        if arguments.list_only:
            return _print_versions(
                arguments, spec, await versions_of(connection, deployed, spec, place)
            )
        # Always a dry run first: its list is what the person consents to.
        shared = arguments.shared
        found = await prune_code(connection, deployed, spec, place, dry_run=True, shared_too=shared)
        going = [each for each in found.versions if each.kept is None]
        # Nothing to remove: no question.
        if arguments.dry_run or not (going or found.unfinished):
            return _print_versions(arguments, spec, found)
        if not arguments.yes and not arguments.json:
            _print_versions(arguments, spec, found)
        if not box_files.ask_consent(
            arguments,
            translate(
                "Remove {going} from {name}?", going=how_many(len(going), "version"), name=spec.name
            ),
        ):
            return FAILED
        return _print_versions(
            arguments,
            spec,
            await prune_code(connection, deployed, spec, place, dry_run=False, shared_too=shared),
        )


def _print_versions(arguments: PushArguments, spec: BoxSpec, found: PushedVersions) -> int:
    if arguments.json:
        print_json({"box": spec.name, **msgspec.to_builtins(found)})
        return OK
    print_lines(
        translate(
            "{name}: {versions} of code in {place}",
            name=spec.name,
            versions=how_many(len(found.versions), "version"),
            place=found.place,
        )
    )
    now = time.time()
    for each in found.versions:
        if each.pushed is None:
            when = translate("at an unknown time")
        else:
            when = f"{format_duration(max(0.0, now - each.pushed))} ago"
        if each.removed:
            word = "removed"
        elif each.kept:
            word = "kept"
        else:
            word = "unused"
        why = f": {each.kept}" if each.kept else ""
        print_lines(f"  {word:<8}  {each.path}  {size(each.bytes)}, pushed {when}{why}")
    for part in found.unfinished:
        if part.removed:
            word = "removed"
        else:
            word = "unused"
        print_lines(
            translate(
                "  {word:<8}  {path}  {bytes}, interrupted and never resumed",
                word=word,
                path=part.path,
                bytes=size(part.bytes),
            )
        )
    return OK
