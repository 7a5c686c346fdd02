"""Push code or data to a box: plan with its agent, send missing content, publish it.

Code goes to a directory whose name contains the hash of the entire tree, and a link to it is
switched atomically: a running process keeps the files it was started with. Data goes file by file;
a file that is in use, or newer, is not replaced.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import msgspec

from rgt_tui.fleet.pushes.push_transport import PushAgentFailed, send_files
from rgt_tui.language import translate
from rgt_tui.model import BoxSpec, Exact, FrozenStruct, Profile, is_exact_path, size
from rgt_tui.ssh import (
    BoxTransport,
    CommandFailed,
    DeployedAgent,
    decode_answer,
    extract_record,
    run_command,
)
from rgt_tui.transfer import (
    ALWAYS_LEFT_OUT,
    ExcludedPath,
    IgnoreRules,
    OwnFiles,
    SourceFile,
    SourceTree,
    read_tree,
)

CODE_FOLDER = "rgt-code"
MOST_ANSWER = 64 << 20
PLAN_S, PUBLISH_S = 600.0, 3600.0
"""Limits in seconds: the box hashes the files it already has, which takes long for large data."""
SLOWEST = 30e6
"""Bytes per second at which a slow network disk can be read back."""

T = TypeVar("T")
Progress = Callable[[int, int], None]
"""Called with bytes sent and bytes to send."""


class PushRefused(CommandFailed):
    """Nothing was written on the box; the message gives the reason and figures."""


class PushChoice(FrozenStruct, kw_only=True):
    """Options of a push."""

    kind: str = "code"
    """code or data."""
    to: str | None = None
    """Directory on the box; None = the profile's."""
    name: str | None = None
    """Name on the box; None = the local name."""
    exclude: tuple[str, ...] = ()
    secrets_too: bool = False
    mend: bool = False
    replace_newer: bool = False
    dry_run: bool = False
    fleet: Path | None = None
    """The fleet file in use: never pushed, under any name."""


class PushResult(FrozenStruct, kw_only=True):
    """The result of a push, or of a dry run."""

    kind: str
    name: str
    path: str
    """Absolute path on the box: the code's own directory, or the data."""
    digest: str
    """SHA-256 of all paths, contents and links, in hex."""
    files: int
    bytes: int
    link: str | None = None
    """For code: the link that points to it now."""
    sent: int = 0
    """Bytes sent."""
    saved: int = 0
    """How many fewer went over the line, because they were packed on the way."""
    same: int = 0
    """Number of files that the box already had."""
    refused: tuple[tuple[str, str], ...] = ()
    """(path, reason) of files that were not put in place."""
    left_out: tuple[ExcludedPath, ...] = ()
    windows: tuple[str, ...] = ()
    """Scripts and queue files with Windows line endings."""
    mended: bool = False
    """These files have Unix line endings on the box."""
    dry_run: bool = False


class PushRoom(FrozenStruct):
    """Space and inodes needed and free on the box."""

    needed_bytes: int
    needed_inodes: int
    mount: str = ""
    free_bytes: int = 0
    free_inodes: int | None = None
    error: str | None = None


class _PushPlan(FrozenStruct):
    staging: Exact
    place: str
    wanted: tuple[tuple[str, int], ...] = ()
    refused: tuple[tuple[str, str], ...] = ()
    same: int = 0
    blocked: str | None = None
    room: PushRoom | None = None


class _Published(FrozenStruct):
    damaged: tuple[str, ...] = ()
    refused: tuple[tuple[str, str], ...] = ()
    same: int = 0
    path: Exact = ""
    link: str | None = None


def code_place(profile: Profile) -> str:
    """Return the directory on a box of this platform for pushed code."""
    return f"{profile.overrides.data_dir or '~'}/{CODE_FOLDER}"


def data_place(profile: Profile) -> str:
    """Return the directory for pushed data.

    Raises:
        PushRefused: no such directory is known for the platform.
    """
    if profile.overrides.data_dir is None:
        raise PushRefused(
            translate(
                "no data directory is known for {name}: name one with --to DIR", name=profile.name
            )
        )
    return profile.overrides.data_dir


def read_source(path: Path, choice: PushChoice) -> SourceTree:
    """Read and hash the files of a push. Blocks until all of them are read.

    Raises:
        SourceError: a local file cannot be read.
    """
    code = choice.kind == "code"
    return read_tree(
        path,
        # Data is pushed as it is: a directory called "build" may be a data set.
        IgnoreRules((*(ALWAYS_LEFT_OUT if code else ()), *choice.exclude)),
        own=OwnFiles(choice.fleet, pulled_too=not code),
        secrets_too=choice.secrets_too,
        mend=choice.mend,
        name=choice.name,
    )


async def push_tree(
    connection: BoxTransport,
    deployed: DeployedAgent,
    profile: Profile,
    path: Path,
    choice: PushChoice,
    *,
    tree: SourceTree | None = None,
    progress: Progress | None = None,
) -> PushResult:
    """Push code and switch its link to it, or push data.

    Args:
        connection: To the box.
        deployed: The agent there (`rgt_tui.fleet.errands.reached` yields both).
        profile: Of its platform.
        path: Local directory or file.
        choice: Options.
        tree: The result of `read_source`, if it has just been called, so that nothing is read
            twice.
        progress: Called with the progress.

    Raises:
        SourceError: a local file cannot be read.
        PushRefused: the box has no room for it, or another file is in its place.
        BoxError: the connection was lost, or the agent's answer is unusable. The next push resumes.
    """
    code = choice.kind == "code"
    place = choice.to or (code_place(profile) if code else data_place(profile))
    sent = saved = 0
    damaged: tuple[str, ...] = ()
    # Attempts for files that arrived damaged or changed meanwhile.
    tries = 3
    # Each try plans again, so that only missing content is sent.
    for tries_left in reversed(range(tries)):
        if tree is None:
            tree = await asyncio.to_thread(read_source, path, choice)
        plan = await _request_plan(
            connection,
            deployed,
            _build_manifest(tree, choice, place, as_folder=code or path.is_dir()),
            tree.total_bytes,
        )
        wanted = _files_to_send(plan, tree)
        _raise_if_refused(plan, tree)
        total = sum(file.size - have for file, have in wanted)
        # After the checks of space, which are the purpose of a dry run.
        if choice.dry_run:
            published = _Published(refused=plan.refused, same=plan.same)
            return _build_result(tree, choice, plan, published, total)
        try:
            saved += await send_files(
                connection, deployed, plan.staging, wanted, _progress_reporter(progress, total)
            )
            sent += total
            published = await _request_publish(connection, deployed, plan, tree)
        # Such as a directory that another push removed meanwhile; BoxError is not repeated here.
        except PushAgentFailed:
            if tries_left:
                continue
            raise
        damaged = published.damaged
        if not damaged:
            made = _build_result(tree, choice, plan, published, sent)
            return msgspec.structs.replace(made, saved=saved)
        named = tree
        tree = None  # read it again: it may have changed locally
    if damaged:
        names = {file.sha256: file.path for file in named.files}
    else:
        names = {}
    shown = ", ".join(names.get(digest, digest[:12]) for digest in damaged[:3])
    raise PushRefused(
        translate(
            "the copies repeatedly differ from the sources: {shown}; is a program writing to them "
            "here?",
            shown=shown,
        )
    )


def _progress_reporter(progress: Progress | None, total: int) -> Callable[[int], None]:
    def report_sent(done: int) -> None:
        if progress is not None:
            # A file that grew meanwhile would show more than 100%.
            progress(min(done, total), total)

    return report_sent


def _build_manifest(tree: SourceTree, choice: PushChoice, place: str, *, as_folder: bool) -> bytes:
    """Return the agent's input. Paths of data begin with the directory's name."""
    above = ""
    if choice.kind == "data" and as_folder:
        # Data goes into its own directory, code's directory is named by its hash.
        above = f"{tree.name}/"
    return msgspec.json.encode(
        {
            "kind": choice.kind,
            "place": place,
            "name": tree.name,
            "digest": tree.tree_digest,
            "replace": choice.replace_newer,
            "dry_run": choice.dry_run,
            "files": [
                [above + file.path, file.size, file.sha256, file.mtime_ns, file.executable]
                for file in tree.files
            ],
            "links": [[above + path, target] for path, target in tree.links],
        }
    )


async def _request_plan(
    connection: BoxTransport, deployed: DeployedAgent, manifest: bytes, total: int
) -> _PushPlan:
    done = await run_command(
        connection, deployed.build_command("push", "plan"),
        # By size, because the box hashes all of the files that it has.
        data=manifest, seconds=max(PLAN_S, total / SLOWEST), most_bytes=MOST_ANSWER,
        name="planning the push",
    )  # fmt: skip
    return _decode_answer(done.out, done.status, done.words, _PushPlan)


async def _request_publish(
    connection: BoxTransport,
    deployed: DeployedAgent,
    plan: _PushPlan,
    tree: SourceTree,
) -> _Published:
    seconds = max(PUBLISH_S, tree.total_bytes / SLOWEST)
    command = deployed.build_command("push", "publish", "--staging", plan.staging)
    done = await run_command(
        connection, command, seconds=seconds, most_bytes=MOST_ANSWER, name="publishing the push"
    )
    found = _decode_answer(done.out, done.status, done.words, _Published)
    # The path becomes part of commands: it must be absolute, and the same in every shell.
    if not found.damaged and not _is_usable_path(found.path):
        raise CommandFailed(translate("invalid answer from the agent: it has no path"))
    return found


def _is_usable_path(path: str) -> bool:
    return path.startswith("/") and is_exact_path(path)


def _decode_answer(out: bytes, status: int | None, words: str, kind: type[T]) -> T:
    lines = [line for raw in out.splitlines() if (line := extract_record(raw))]
    if status != 0 or not lines:
        raise PushAgentFailed(
            translate("the box refused it: {words}", words=words or f"exit {status}")
        )
    return decode_answer(lines[-1], kind, "the agent's answer")


def _files_to_send(plan: _PushPlan, tree: SourceTree) -> list[tuple[SourceFile, int]]:
    """Return the files to send according to the agent; reject any that is not in this tree."""
    known = {file.sha256: file for file in tree.files}
    found = []
    # The box asks by hash, so it can only get content of this push, never another local file.
    for digest, have in dict(plan.wanted).items():
        file = known.get(digest)
        if file is None or not 0 <= have <= file.size:
            raise CommandFailed(
                translate("invalid answer from the agent: it requests files that are not pushed")
            )
        found.append((file, have))
    if not _is_usable_path(plan.staging):
        raise CommandFailed(translate("invalid answer from the agent: it has no path"))
    return found


def _raise_if_refused(plan: _PushPlan, tree: SourceTree) -> None:
    """Raise the reason why the push is impossible, if there is one.

    Raises:
        PushRefused: with the figures.
    """
    if plan.blocked is not None:
        raise PushRefused(plan.blocked)
    room = plan.room
    if room is None:
        raise CommandFailed(translate("invalid answer from the agent: it has no free space"))
    if room.error is not None:
        raise PushRefused(
            translate(
                "the free space of {place} is unknown: {error}", place=plan.place, error=room.error
            )
        )
    mount = room.mount
    if room.needed_bytes > room.free_bytes:
        raise PushRefused(
            translate(
                "no space on {mount}: {needed_bytes} needed, {free_bytes} free; {tree}",
                mount=mount,
                needed_bytes=size(room.needed_bytes),
                free_bytes=size(room.free_bytes),
                tree=_suggest_exclusions(tree, room.needed_bytes - room.free_bytes),
            )
        )
    # None: the file system has no fixed number.
    if room.free_inodes is not None and room.needed_inodes > room.free_inodes:
        raise PushRefused(
            translate(
                "no inodes on {mount}: {needed_inodes:,} needed, {free_inodes:,} free; push an "
                "archive of the small files, or to another disk with --to",
                mount=mount,
                needed_inodes=room.needed_inodes,
                free_inodes=room.free_inodes,
            )
        )


def _suggest_exclusions(tree: SourceTree, over: int) -> str:
    """Return advice which parts to leave out so that the rest fits, the largest first."""
    parts: dict[str, int] = {}
    for file in tree.files:
        head, slash, _ = file.path.partition("/")
        parts[head + slash] = parts.get(head + slash, 0) + file.size
    named: list[str] = []
    for part, count in sorted(parts.items(), key=lambda item: -item[1]):
        # More than three would be no advice.
        if over <= 0 or len(named) == 3:
            break
        named.append(f"{part} ({size(count)})")
        over -= count
    if over > 0 or len(named) == len(parts):
        return translate("push to another disk with --to DIR")
    return translate(
        "it would fit without {names} (--exclude), or on another disk (--to DIR)",
        names=", ".join(named),
    )


def _build_result(
    tree: SourceTree,
    choice: PushChoice,
    plan: _PushPlan,
    published: _Published,
    sent: int,
) -> PushResult:
    path = published.path or plan.place
    if choice.kind == "data" and published.path:
        path = f"{published.path}/{tree.name}"
    return PushResult(
        kind=choice.kind,
        name=tree.name,
        path=path,
        digest=tree.tree_digest,
        files=len(tree.files),
        bytes=tree.total_bytes,
        link=published.link,
        sent=sent,
        same=published.same,
        refused=published.refused,
        left_out=tree.left_out,
        windows=tree.windows,
        mended=choice.mend,
        dry_run=choice.dry_run,
    )


class CodeVersion(FrozenStruct):
    """One version of pushed code on a box."""

    path: str
    name: str
    version: str
    files: int
    bytes: int
    current: bool
    pushed: float | None = None
    kept: str | None = None
    """Why it is kept; None = no known use."""
    removed: bool = False


class Unfinished(FrozenStruct):
    """An interrupted push without progress for a day."""

    path: str
    bytes: int
    removed: bool = False


class PushedVersions(FrozenStruct):
    """The pushed code in a directory."""

    place: str
    versions: tuple[CodeVersion, ...] = ()
    unfinished: tuple[Unfinished, ...] = ()


async def versions_of(
    connection: BoxTransport, deployed: DeployedAgent, spec: BoxSpec, place: str
) -> PushedVersions:
    """Return the versions of code in a directory on a box, and what uses each.

    Raises:
        BoxError: the box did not answer.
    """
    return await _query_versions(connection, deployed, spec, place, "list")


async def prune_code(
    connection: BoxTransport,
    deployed: DeployedAgent,
    spec: BoxSpec,
    place: str,
    *,
    dry_run: bool,
    shared_too: bool = False,
) -> PushedVersions:
    """Remove the versions without a known use.

    Raises:
        BoxError: the box did not answer.
    """
    words = ["--dry-run"] * dry_run + ["--shared"] * shared_too
    return await _query_versions(connection, deployed, spec, place, "prune", *words)


async def _query_versions(
    connection: BoxTransport,
    deployed: DeployedAgent,
    spec: BoxSpec,
    place: str,
    verb: str,
    *words: str,
) -> PushedVersions:
    jobs = [word for job in spec.jobs for word in ("--job", job)]
    command = deployed.build_command("push", verb, "--place", place, *jobs, *words)
    done = await run_command(
        connection, command, seconds=PLAN_S, most_bytes=MOST_ANSWER, name="listing what was pushed"
    )
    return _decode_answer(done.out, done.status, done.words, PushedVersions)
