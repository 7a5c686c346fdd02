"""A box's file lists during a pull: a tree, its results, or the files of some directories."""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import Awaitable, Callable, Container, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Protocol, TypeVar

import msgspec

from rgt_tui.fleet.box_evidence import (
    EVIDENCE_LIMITS,
    ResultsRequest,
    decode_results,
    results_arguments,
)
from rgt_tui.fleet.pulls.box_pipe import SILENCE_S, BoxConnection, silence_error
from rgt_tui.fleet.pulls.pull_stream import PullFailed
from rgt_tui.language import translate
from rgt_tui.model import BoxResults, BoxSpec, FrozenStruct, ResultGroup
from rgt_tui.ssh import BulkChannel, CommandFailed, extract_record
from rgt_tui.transfer import FileRow, FolderRow, Ledger, deepest_folder, fingerprint
from rgt_tui.transfer.copying import (
    LONGEST_LINE,
    BoxListing,
    ListingError,
    ListingReader,
    RefusedFile,
    RemoteFile,
)

WORDS_FROM_STDIN, LONGEST_COMMAND = "--words-from-stdin", 32 << 10
"""The agent option for long arguments, and the length from which it is used: Linux allows 128 KiB
per argument, including quotes."""
MOST_RESULTS = 8 << 20
"""Maximum bytes of the answer of ``results``, the same as the agent's limit."""
CHANGED = "was written while it was pulled: pull it again"
UNREADABLE = "changed while it was pulled, or not all of it was pulled: pull it again"


class ResultFiles(FrozenStruct):
    """A box's list of results, and the files of some of its directories."""

    results: BoxResults
    listing: BoxListing


async def list_tree(
    connection: BoxConnection, spec: BoxSpec, paths: tuple[str, ...], *, folds: bool
) -> BoxListing:
    """Return every file below some paths of a box, except those of rgt itself.

    Args:
        connection: To it.
        spec: The box.
        paths: On the box.
        folds: The destination's file system is case-insensitive.

    Raises:
        BoxError: the box did not answer.
        ListingError: its answer is unusable.
    """
    jobs = [word for job in spec.jobs for word in ("--job", job)]
    words = ("--no-hash", *jobs, "--", *paths)
    # Without hashes: a pull compares them itself, file by file.
    reader = await _read_lines(
        connection, "manifest", words, ListingReader(), LONGEST_LINE, SILENCE_S
    )
    return reader.build_listing(folds=folds)


async def list_results(
    connection: BoxConnection,
    spec: BoxSpec,
    wanted: ResultsRequest,
    folders: tuple[str, ...] | None,
    *,
    folds: bool,
) -> ResultFiles:
    """Return the list of results, and exactly the files of some of its directories.

    Args:
        connection: To the box.
        spec: The box.
        wanted: Defines which files are results.
        folders: Directories of that list; None = all that have an owner.
        folds: The destination's file system is case-insensitive.

    Raises:
        BoxError: the box did not answer, or not with a list of results.
        ListingError: its list of files is unusable.
    """
    if folders is None:
        chosen = ["--list-owned"]
    else:
        chosen = [word for path in folders for word in ("--list", path)]
    words = (*results_arguments(spec, wanted), *chosen)
    reader = await _read_lines(
        connection, "results", words, _ResultsReader(), MOST_RESULTS, EVIDENCE_LIMITS.results_s
    )
    if reader.results is None:
        raise CommandFailed(translate("rgt-box results: it answered nothing"))
    return ResultFiles(reader.results, reader.files.build_listing(folds=folds))


class _ResultsReader:
    """Parses the object printed by ``results``, then the lines of its ``--list``."""

    def __init__(self) -> None:
        self.results: BoxResults | None = None
        self.files = ListingReader()

    @property
    def ended(self) -> bool:
        return self.files.ended

    def accept_line(self, line: bytes) -> None:
        """Parse a line.

        Raises:
            CommandFailed: the object is unusable.
            ListingError: a line does not have the format of a list.
        """
        # The first line is the object, which names the directories of the lines after it.
        if self.results is None:
            self.results = decode_results(line)
        else:
            self.files.accept_line(line)


class _LineReader(Protocol):
    @property
    def ended(self) -> bool: ...
    def accept_line(self, line: bytes, /) -> None: ...


R = TypeVar("R", bound=_LineReader)


async def _read_lines(
    connection: BoxConnection,
    verb: str,
    words: tuple[str, ...],
    reader: R,
    longest: int,
    silence: float,
) -> R:
    """Run a verb that prints lines; return the reader once it has parsed them.

    Args:
        connection: To the box.
        verb: Of the agent.
        words: Its command line.
        reader: Parses the lines.
        longest: Maximum bytes of a line.
        silence: Seconds without a byte after which the box is given up.
    """
    lines = OutputLines(reader.accept_line, longest)
    # Well below the limit, since quoting adds to it.
    is_long = sum(map(len, words)) > LONGEST_COMMAND
    channel = await connection.open(
        verb, lines.feed_data, *((WORDS_FROM_STDIN,) if is_long else words)
    )
    if is_long:
        channel.write(json.dumps(words).encode() + b"\n")
        channel.close_input()
    try:
        await _until_silent(channel, lambda: lines.count, silence)
    finally:
        channel.close()
    # What the agent said explains more than "was cut off".
    if not reader.ended and channel.last_error_line:
        raise ListingError(
            translate(
                "the box could not list its files: {words}",
                words=channel.last_error_line,
            )
        )
    return reader


class OutputLines:
    """Splits the output of a command into lines, dropping the login shell's output before it.

    Args:
        take: Called with each line.
        longest: Maximum bytes of a line.
    """

    def __init__(self, take: Callable[[bytes], None], longest: int = LONGEST_LINE) -> None:
        self.count = 0
        self._take, self._longest = take, longest
        self._rest = b""
        self._spoken = False

    def feed_data(self, data: bytes) -> None:
        """Process received data.

        Raises:
            ListingError: a line is too long.
        """
        self.count += len(data)
        # The last part has no end yet.
        *lines, self._rest = (self._rest + data).split(b"\n")
        if len(self._rest) > self._longest:
            raise ListingError(translate("the box sent a line without an end"))
        for line in lines:
            if self._spoken:
                self._take(line)
            elif found := extract_record(line):
                self._spoken = True
                self._take(found)


async def _until_silent(channel: BulkChannel, count: Callable[[], int], silence: float) -> None:
    """Wait for the end of a command.

    Raises:
        Unreachable: no output for too long.
    """
    ended = asyncio.ensure_future(channel.wait())
    try:
        while True:
            before = count()
            done, _ = await asyncio.wait({ended}, timeout=silence)
            if done:
                return ended.result()
            # Bytes count, not lines: one long line may take minutes on a slow connection.
            if count() == before:
                raise silence_error(silence)
    finally:
        ended.cancel()
        await asyncio.gather(ended, return_exceptions=True)


# Compares the copies of a pull with the box's list of results at the end.


class FinishedPull(FrozenStruct, kw_only=True):
    """The facts about a finished pull that the comparison needs."""

    listing: BoxListing
    exact: bool
    """`BoxListing.roots` are directories of the list of results, and the listing has exactly their
    files."""
    refused: Sequence[RefusedFile]
    destination: Path
    instance: str

    def covers_folder(self, path: str) -> bool:
        """Return whether a directory of the list of results was pulled."""
        tops = dict.fromkeys(self.listing.roots)
        return path in tops or (not self.exact and deepest_folder(path, tops) is not None)


async def check_copies(
    pull: FinishedPull,
    ledger: Ledger,
    looking: Awaitable[BoxResults],
    list_again: Callable[[tuple[str, ...]], Awaitable[ResultFiles]],
) -> tuple[tuple[FolderRow, ...], tuple[ResultGroup, ...]]:
    """Compare the copies with the box's final list; record which directories are complete.

    Where a fingerprint differs, the box lists the files of that directory. Then each missing file
    is named, and copies that the box does not count (packages, rgt's own files) are marked as
    uncounted.

    Args:
        pull: Facts about the pull.
        ledger: Where the copies are recorded.
        looking: The box's list of results, made after the last byte.
        list_again: Returns that list once more, with the files of some of its directories.

    Returns:
        The pulled directories, and the directories without an owner and without a complete local
            copy.

    Raises:
        BoxError, TimeoutError: the box did not list its files; nothing is recorded.
        ListingError: its list is unusable.
    """
    found = await looking
    members = _copies_by_folder(ledger, found, pull)
    differ = tuple(
        path
        for path, group in _pulled_groups(found, pull).items()
        if not group.problem
        # A name that was not UTF-8 cannot be asked for by this text.
        and "\ufffd" not in path
        and fingerprint(members[path]) != group.fingerprint
    )
    there: dict[str, list[RemoteFile]] = {}
    if differ:
        again = await list_again(differ)
        # The newer list: files may have changed since the first one.
        found = again.results
        there = {path: [] for path in differ}
        groups = {group.path: group for group in found.groups}
        for file in again.listing.files:
            owner = deepest_folder(file.path, groups)
            if owner in there:
                there[owner].append(file)
        await asyncio.to_thread(ledger.append_rows, tuple(_corrected_rows(ledger, groups, there)))
        members = _copies_by_folder(ledger, found, pull)
    refused: dict[str | None, list[tuple[str, str]]] = {}
    for bad in pull.refused:
        refused.setdefault(deepest_folder(bad.path, members), []).append((bad.path, bad.reason))
    folders = []
    for path, group in _pulled_groups(found, pull).items():
        missing: dict[str, str] = {}
        if group.problem or fingerprint(members[path]) != group.fingerprint:
            missing = {
                file.path: CHANGED
                for file in there.get(path, ())
                if not _has_local_copy(file, ledger, pull)
            }
            missing.update(refused.get(path, ()))
            # Something differs, but no file of it could be named.
            missing = missing or {path: group.problem or UNREADABLE}
        folders.append(_folder_row(group, members[path], missing, pull))
    await asyncio.to_thread(ledger.append_rows, folders)
    return tuple(folders), unclaimed_groups(pull, ledger, found)


def unclaimed_groups(
    pull: FinishedPull, ledger: Ledger, found: BoxResults
) -> tuple[ResultGroup, ...]:
    """Return the directories without an owner that were never pulled completely."""
    members = _copies_by_folder(ledger, found, pull)
    return tuple(
        group
        for group in found.groups
        if not group.owner
        and not pull.covers_folder(group.path)
        and (group.problem or fingerprint(members[group.path]) != group.fingerprint)
    )


def _pulled_groups(found: BoxResults, pull: FinishedPull) -> dict[str, ResultGroup]:
    return {group.path: group for group in found.groups if pull.covers_folder(group.path)}


def _copies_by_folder(
    ledger: Ledger, found: BoxResults, pull: FinishedPull
) -> dict[str, list[FileRow]]:
    """Return for each directory of the box's list the copies of its files from this machine."""
    members: dict[str, list[FileRow]] = {group.path: [] for group in found.groups}
    homes: dict[str, str | None] = {}
    for row in ledger.file_rows():
        folder = row.path.rpartition("/")[0]
        # By directory: a checkpoint has thousands of files, all with the same owner.
        if folder not in homes:
            homes[folder] = deepest_folder(row.path, members)
        owner = homes[folder]
        if owner is not None and row.instance == pull.instance and not row.uncounted:
            members[owner].append(row)
    return members


def _corrected_rows(
    ledger: Ledger, groups: Mapping[str, object], there: Mapping[str, Sequence[RemoteFile]]
) -> Iterator[FileRow]:
    """Yield rows with `FileRow.uncounted` corrected to match the box's list."""
    counted = {file.path for files in there.values() for file in files}
    for row in tuple(ledger.file_rows()):
        if deepest_folder(row.path, groups) in there and row.uncounted != (row.path not in counted):
            yield msgspec.structs.replace(row, uncounted=not row.uncounted)


def _folder_row(
    group: ResultGroup, rows: Sequence[FileRow], missing: Mapping[str, str], pull: FinishedPull
) -> FolderRow:
    return FolderRow(
        path=group.path,
        local=str(pull.destination) + group.path,
        fingerprint=group.fingerprint,
        files=len(rows),
        bytes=sum(row.there.size for row in rows),
        missing=tuple(missing.items()),
        instance=pull.instance,
        at=time.time(),
    )


def _has_local_copy(file: RemoteFile, ledger: Ledger, pull: FinishedPull) -> bool:
    row = ledger.find_file(file.path)
    return row is not None and row.there == file.there and row.instance == pull.instance


def find_gone_files(
    ledger: Ledger, listing: BoxListing, *, exact: BoxResults | None = None
) -> tuple[str, ...]:
    """Return the pulled files that no longer exist on the box.

    Args:
        ledger: Record of pulled files.
        listing: The box's present files below some roots.
        exact: The list of results that the listing was restricted to; None = the listing has
            everything below its roots.
    """
    there = {file.path for file in listing.files} | {file.path for file in listing.refused}
    missing = [row for row in tuple(ledger.file_rows()) if row.path not in there]
    if exact is not None:
        folders, roots = {group.path: None for group in exact.groups}, set(listing.roots)
        return tuple(
            row.path
            for row in missing
            if not row.uncounted and deepest_folder(row.path, folders) in roots
        )
    tops = tuple(root.rstrip("/") + "/" for root in listing.roots)
    return tuple(
        row.path for row in missing if row.path.startswith(tops) or row.path in listing.roots
    )


def absent_names(listing: BoxListing, paths: Iterable[str]) -> frozenset[str]:
    """Return the relative paths that do not exist on the box: they may be names of runs."""
    missing = {row.path for row in listing.refused if row.path in listing.roots}
    return frozenset(
        path
        for path in paths
        if not re.search(r"^[/~]|[*?\[]", path)
        and any(root.endswith(f"/{path}") for root in missing)
    )


def list_run_folders(found: BoxResults) -> dict[str, list[str]]:
    """Return the directories of each run and cell, by its name."""
    runs: dict[str, list[str]] = {}
    for group in found.groups:
        kind, _, name = group.owner.partition(" ")
        if kind in ("run", "cell"):
            runs.setdefault(name, []).append(group.path)
    return runs


def replace_run_names(
    box: str,
    paths: Sequence[str],
    absent: Container[str],
    runs: Mapping[str, Sequence[str]],
    *,
    has_files: bool,
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the paths, with those of runs instead of their names, and a sentence for each name.

    Args:
        box: The box's name.
        paths: Paths and names.
        absent: Those that are no path.
        runs: Directories by the name of the run.
        has_files: Whether other paths have files; a name that is no run is then left as a path,
            which the pull reports as missing.

    Raises:
        PullFailed: One is no run, either, and there is nothing else to pull.
    """
    found: list[str] = []
    sentences = []
    for path in paths:
        if path not in absent:
            found.append(path)
            continue
        if path not in runs:
            if has_files or any(name in runs for name in paths):
                found.append(path)
                continue
            raise PullFailed(
                translate(
                    "{path} is no path there, and no run: there are {runs}",
                    path=path,
                    runs=", ".join(sorted(runs)) or translate("none"),
                )
            )
        found += runs[path]
        sentences.append(
            translate(
                "{box}: {path} is no path there, but a run: {folders}",
                box=box,
                path=path,
                folders=", ".join(runs[path]),
            )
        )
    return tuple(found), tuple(sentences)
