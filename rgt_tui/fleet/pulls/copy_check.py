"""Compares the copies of a pull with what the box lists as its results at the end."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from rgt_tui.fleet.pulls.box_lists import ResultFiles
from rgt_tui.model import ResultGroup, Results
from rgt_tui.transfer import FileRow, FolderRow, Ledger, fingerprint, home
from rgt_tui.transfer.copying import Listing, Refused, RemoteFile

CHANGED = "was written while it was pulled: pull it again"
UNREADABLE = "changed while it was pulled, or not all of it was pulled: pull it again"


class Pull(msgspec.Struct, frozen=True, kw_only=True):
    """What a pull fetched, as far as the comparison has to know."""

    listing: Listing
    exact: bool
    """`Listing.roots` are directories of the list of results, and it has exactly their files."""
    refused: Sequence[Refused]
    destination: Path
    instance: str

    def covers(self, path: str) -> bool:
        """Whether a directory of the list of results was pulled."""
        tops = dict.fromkeys(self.listing.roots)
        return path in tops or (not self.exact and home(path, tops) is not None)


async def check_copies(
    pull: Pull,
    ledger: Ledger,
    looking: Awaitable[Results],
    list_again: Callable[[tuple[str, ...]], Awaitable[ResultFiles]],
) -> tuple[tuple[FolderRow, ...], tuple[ResultGroup, ...]]:
    """Compare the copies with the box's files at the end, and record which directories are complete here.

    Where a fingerprint differs, the box lists the files of that directory: then each that is missing here has its name,
    and copies that the box does not count (packages, rgt's own) are marked, so that they count for nothing here either.

    Args:
        pull: What was fetched.
        ledger: Where the copies are recorded.
        looking: The box's list of results, made after the last byte.
        list_again: Returns that list once more, with the files of some of its directories.

    Returns:
        The directories that were pulled, and those without an owner of which no complete copy is here.

    Raises:
        BoxError, TimeoutError: the box did not list its files; nothing is recorded.
        ListingError: its list cannot be used.
    """
    found = await looking
    members = _members(ledger, found, pull)
    differ = tuple(
        path
        for path, group in _pulled(found, pull).items()
        if not group.problem and "\ufffd" not in path and fingerprint(members[path]) != group.fingerprint
    )
    there: dict[str, list[RemoteFile]] = {}
    if differ:
        again = await list_again(differ)
        found = again.results
        there = {path: [] for path in differ}
        groups = {group.path: group for group in found.groups}
        for file in again.listing.files:
            owner = home(file.path, groups)
            if owner in there:
                there[owner].append(file)
        await asyncio.to_thread(ledger.add, tuple(_marked(ledger, groups, there)))
        members = _members(ledger, found, pull)
    refused: dict[str | None, list[tuple[str, str]]] = {}
    for bad in pull.refused:
        refused.setdefault(home(bad.path, members), []).append((bad.path, bad.reason))
    folders = []
    for path, group in _pulled(found, pull).items():
        missing: dict[str, str] = {}
        if group.problem or fingerprint(members[path]) != group.fingerprint:
            missing = {file.path: CHANGED for file in there.get(path, ()) if not _is_here(file, ledger, pull)}
            missing.update(refused.get(path, ()))
            missing = missing or {path: group.problem or UNREADABLE}
        folders.append(_folder_row(group, members[path], missing, pull))
    await asyncio.to_thread(ledger.add, folders)
    return tuple(folders), unclaimed_groups(pull, ledger, found)


def unclaimed_groups(pull: Pull, ledger: Ledger, found: Results) -> tuple[ResultGroup, ...]:
    """Return the directories without an owner that were not pulled, now or before."""
    members = _members(ledger, found, pull)
    return tuple(
        group
        for group in found.groups
        if not group.owner
        and not pull.covers(group.path)
        and (group.problem or fingerprint(members[group.path]) != group.fingerprint)
    )


def _pulled(found: Results, pull: Pull) -> dict[str, ResultGroup]:
    return {group.path: group for group in found.groups if pull.covers(group.path)}


def _members(ledger: Ledger, found: Results, pull: Pull) -> dict[str, list[FileRow]]:
    """Return the copies from this machine that the box counts in each of its directories."""
    members: dict[str, list[FileRow]] = {group.path: [] for group in found.groups}
    homes: dict[str, str | None] = {}
    for row in ledger.files():
        folder = row.path.rpartition("/")[0]
        if folder not in homes:
            homes[folder] = home(row.path, members)
        owner = homes[folder]
        if owner is not None and row.instance == pull.instance and not row.uncounted:
            members[owner].append(row)
    return members


def _marked(
    ledger: Ledger, groups: Mapping[str, object], there: Mapping[str, Sequence[RemoteFile]]
) -> Iterator[FileRow]:
    """Yield rows whose mark `FileRow.uncounted` is not what the box's list says."""
    counted = {file.path for files in there.values() for file in files}
    for row in tuple(ledger.files()):
        if home(row.path, groups) in there and row.uncounted != (row.path not in counted):
            yield msgspec.structs.replace(row, uncounted=not row.uncounted)


def _folder_row(
    group: ResultGroup, rows: Sequence[FileRow], missing: Mapping[str, str], pull: Pull
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


def _is_here(file: RemoteFile, ledger: Ledger, pull: Pull) -> bool:
    row = ledger.file(file.path)
    return row is not None and row.there == file.there and row.instance == pull.instance


def gone(ledger: Ledger, listing: Listing, *, exact: Results | None = None) -> tuple[str, ...]:
    """Return the files that were pulled once and that the box does not have any more.

    Args:
        ledger: What was pulled.
        listing: What the box has below some roots now.
        exact: The list of results with whose directories it was made; None = it has everything below its roots.
    """
    there = {file.path for file in listing.files} | {file.path for file in listing.refused}
    missing = [row for row in tuple(ledger.files()) if row.path not in there]
    if exact is not None:
        folders, roots = {group.path: None for group in exact.groups}, set(listing.roots)
        return tuple(row.path for row in missing if not row.uncounted and home(row.path, folders) in roots)
    tops = tuple(root.rstrip("/") + "/" for root in listing.roots)
    return tuple(row.path for row in missing if row.path.startswith(tops) or row.path in listing.roots)
