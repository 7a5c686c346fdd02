"""Pulls results off a box: lists what is there, finds what is missing here, runs the streams, keeps the ledger."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import shutil
import threading
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from rgt_tui.files import sync_folder
from rgt_tui.fleet.box_questions import RESULTS_SECONDS, Wanted, ask_results, results_of, results_words
from rgt_tui.fleet.pulls.pull_streams import OnProgress, fetch
from rgt_tui.fleet.pulls.pull_way import SILENCE_S, PullFailed, PullRequest, Way, silent
from rgt_tui.model.box import BoxSpec
from rgt_tui.model.evidence import ResultGroup, Results
from rgt_tui.model.money import Meter
from rgt_tui.profiles import load_profile
from rgt_tui.profiles.prices import Toll, toll
from rgt_tui.profiles.readings import how_many
from rgt_tui.ssh import BoxError, BulkChannel, CommandFailed, HostKeyRefused, NotCarried, record
from rgt_tui.transfer import (
    FileRow,
    FolderRow,
    GoneRow,
    Ledger,
    LedgerError,
    fingerprint,
    home,
    is_own,
    ledger_path,
)
from rgt_tui.transfer.copying import (
    LONGEST_LINE,
    Fetcher,
    LandingFailed,
    Listing,
    ListingError,
    ListingReader,
    Plan,
    PullProgress,
    Refused,
    StreamError,
    empty_but_listed,
    folds_case,
    parts_folder,
    plan,
)

COMPARE_SECONDS = 60.0
"""All is here by then, and a person waits."""
MOST_RESULTS = 8 << 20
"""Bytes of the answer of ``results``, as the agent bounds it."""

Agree = Callable[[Toll], Awaitable[bool]]
"""Asked before the first byte of what may cost money; False = nothing is to be fetched."""


async def at_any_price(_: Toll) -> bool:
    """Agree: whoever started it is told the price, and can stop it."""
    return True


class PullReport(msgspec.Struct, frozen=True, kw_only=True):
    """What a pull has found and done."""

    box: str
    destination: str
    dry_run: bool
    roots: tuple[str, ...]
    files: int
    """On the box, below the roots."""
    bytes: int
    same: int
    """Of the files, those whose verified copy is already here."""
    landed: int
    """Of the files, those that were verified in this run; with `dry_run` those that would be fetched."""
    landed_bytes: int
    refused: tuple[Refused, ...] = ()
    """What was not taken, each with why."""
    beside: tuple[Refused, ...] = ()
    """What did not take its own name, and where it stands."""
    links: tuple[tuple[str, str], ...] = ()
    uncounted: int = 0
    """How many more were refused, or are links, than are named."""
    folders: tuple[FolderRow, ...] = ()
    """Directories of results that lie below the roots, and what is missing of each."""
    nobodys: tuple[ResultGroup, ...] = ()
    """Directories below no root that could be lost and are nobody's result."""
    traffic: str = ""
    """What the traffic costs, in words."""
    carrier: str = ""
    """Why the bytes did not go through the system's ``ssh``, which is faster, in words; empty = they did."""
    seconds: float = 0.0

    @property
    def whole(self) -> bool:
        """Everything that was asked for is here, verified."""
        return not self.refused and not self.uncounted


async def pull(
    spec: BoxSpec,
    request: PullRequest,
    on_progress: OnProgress = lambda progress: None,
    on_plan: Callable[[Plan, Listing, str], None] = lambda plan, listing, traffic: None,
    env: Mapping[str, str] = os.environ,
    *,
    agree: Agree = at_any_price,
    meter: Meter | None = None,
) -> PullReport:
    """Pull from a box; however it ends, the next pull resumes there.

    Args:
        spec: The box.
        request: What and how.
        on_progress: Called some times a second.
        on_plan: Called before the first byte: what will be done, what the box has, what the traffic costs.
        env: Where the state of rgt lies.
        agree: Asked then, where the traffic is not known to be free and something is to be fetched.
        meter: What the provider says of the machine, which may have a price of traffic of its own.

    Raises:
        BoxError: the box cannot be reached, or its agent cannot be used.
        PullFailed: this machine cannot take it, what the box says cannot be used, another pull is at work, or the
            price was not agreed to.
    """
    begun = time.monotonic()
    on_progress(PullProgress(phase="connecting"))
    path = ledger_path(spec.name, env)
    way = Way(spec, request)
    try:
        with _alone(spec.name, path):
            ledger = await asyncio.to_thread(Ledger, path)
            try:
                found = await _pull(spec, request, way, ledger, on_progress, on_plan, agree, meter)
            finally:
                ledger.close()
    except (LandingFailed, LedgerError, ListingError) as error:
        raise PullFailed(str(error)) from error
    finally:
        await way.close()
    on_progress(PullProgress(phase="done"))
    return msgspec.structs.replace(found, seconds=time.monotonic() - begun)


@contextlib.contextmanager
def _alone(box: str, path: Path) -> Iterator[None]:
    """Hold the right to pull from a box: another pull would write the same files."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        lock = path.with_suffix(".lock").open("ab")
    except OSError as error:
        raise PullFailed(f"cannot write to {path.parent}: {error.strerror or error}") from error
    with lock:
        try:
            fcntl.flock(lock.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise PullFailed(f"another rgt pulls from {box} right now") from None
        yield


async def _pull(
    spec: BoxSpec,
    request: PullRequest,
    way: Way,
    ledger: Ledger,
    on_progress: OnProgress,
    on_plan: Callable[[Plan, Listing, str], None],
    agree: Agree,
    meter: Meter | None,
) -> PullReport:
    destination = request.destination
    instance = spec.provider.instance if spec.provider is not None else ""
    on_progress(PullProgress(phase="listing"))
    if not request.dry_run:
        way.get_ready()
    paths = request.paths or await _default_paths(spec, way)
    folds = False if request.dry_run else await asyncio.to_thread(_prepare, destination)
    listing = await list_files(way, paths, folds=folds, beside=request.dry_run)
    on_progress(PullProgress(phase="comparing"))
    touched: list[FileRow] = []
    todo = await asyncio.to_thread(plan, listing, ledger, destination, instance, touched.append)
    traffic = toll(load_profile(spec.profile), todo.bytes, meter)
    on_plan(todo, listing, traffic.words)
    report = PullReport(
        box=spec.name,
        destination=str(destination),
        dry_run=request.dry_run,
        roots=listing.roots,
        files=len(listing.files),
        bytes=listing.bytes,
        same=len(todo.same),
        landed=len(todo.steps),
        landed_bytes=todo.bytes,
        refused=todo.refused,
        links=listing.links,
        uncounted=listing.uncounted,
        traffic=traffic.words,
    )
    if request.dry_run:
        return report
    await asyncio.to_thread(ledger.add, touched)
    _foresee(destination, todo)
    if todo.steps and not traffic.free and not await agree(traffic):
        raise PullFailed(f"nothing was fetched: {traffic.short}, was not agreed to")
    fetched = await fetch(way, request, todo, ledger, instance, on_progress)
    on_progress(fetched.progress("closing"))
    # All of the box's bytes are here: it may look while this side closes.
    looking = asyncio.ensure_future(_closing_look(spec, way))
    try:
        await asyncio.to_thread(_close, fetched, ledger, listing)
        refused = (*todo.refused, *fetched.problems)
        folders, nobodys = await _compare(looking, ledger, listing, refused, destination, instance)
    finally:
        looking.cancel()
        await asyncio.gather(looking, return_exceptions=True)
    return msgspec.structs.replace(
        report,
        folders=folders,
        nobodys=nobodys,
        landed=len(fetched.landed),
        landed_bytes=sum(row.there.size for row in fetched.landed),
        refused=refused,
        beside=tuple(fetched.notes),
        carrier=way.carrier if fetched.landed else "",
    )


async def _results(spec: BoxSpec, way: Way, seconds: float = RESULTS_SECONDS) -> Results:
    connection, deployed = await way.reach()
    return await ask_results(connection, deployed, spec, _wanted(spec), seconds=seconds)


def _wanted(spec: BoxSpec) -> Wanted:
    return Wanted(results=spec.results, ignore=spec.ignore)


async def _closing_look(spec: BoxSpec, way: Way) -> Results:
    """Return what the box holds now, as the `send` that brought it tells, or a command of its own."""
    lines: list[bytes] = []
    words = tuple(results_words(spec, _wanted(spec)))
    async with asyncio.timeout(COMPARE_SECONDS):
        status = await _asked(way, "results", words, lines.append, MOST_RESULTS)
    if status is None:
        return await _results(spec, way, COMPARE_SECONDS)
    way.dismiss()
    if status or not lines:
        raise CommandFailed("rgt-box results: it failed")
    return results_of(lines[-1])


async def _default_paths(spec: BoxSpec, way: Way) -> tuple[str, ...]:
    """Return the directories of the box that are somebody's results."""
    found = await _results(spec, way)
    paths = [group.path for group in found.groups if group.owner and "\ufffd" not in group.path]
    tops = [path for path in paths if home(path, dict.fromkeys(paths)) is None]
    if tops:
        return tuple(tops)
    count, total = len(found.groups), sum(group.bytes for group in found.groups)
    held = f"; nobody's: {how_many(count, 'directory', 'directories')} of {total:,} bytes" if count else ""
    raise PullFailed(
        f"no cell, run or `results` of the fleet file says what the results of {spec.name} are{held}: name paths"
    )


async def _compare(
    looking: Awaitable[Results],
    ledger: Ledger,
    listing: Listing,
    refused: Sequence[Refused],
    destination: Path,
    instance: str,
) -> tuple[tuple[FolderRow, ...], tuple[ResultGroup, ...]]:
    """Compare what the box holds in the end, and write down which directories stand here just so."""
    try:
        found = await looking
    except (BoxError, TimeoutError):
        return (), ()  # nothing is claimed: the gate asks anew
    tops = dict.fromkeys(listing.roots)
    within = {
        group.path: group
        for group in found.groups
        if group.path in tops or home(group.path, tops) is not None
    }
    members: dict[str, list[FileRow]] = {path: [] for path in within}
    homes: dict[str, str | None] = {}
    for row in ledger.files():
        folder = row.path.rpartition("/")[0]
        if folder not in homes:
            homes[folder] = home(row.path, members)
        owner = homes[folder]
        if owner is not None and row.instance == instance and not is_own(row.path, within[owner]):
            members[owner].append(row)
    folders = tuple(
        _folder_row(group, members[path], refused, destination, instance, within)
        for path, group in within.items()
    )
    await asyncio.to_thread(ledger.add, folders)
    return folders, tuple(group for group in found.groups if not group.owner and group.path not in within)


def _folder_row(
    group: ResultGroup,
    rows: Sequence[FileRow],
    refused: Sequence[Refused],
    destination: Path,
    instance: str,
    within: Mapping[str, ResultGroup],
) -> FolderRow:
    missing: tuple[tuple[str, str], ...] = ()
    if fingerprint(rows) != group.fingerprint or group.problem:
        own = [(row.path, row.reason) for row in refused if home(row.path, within) == group.path]
        other = group.problem or "it changed while it was pulled, or not all of it was pulled: pull it again"
        missing = tuple(own) or ((group.path, other),)
    return FolderRow(
        path=group.path,
        local=str(destination) + group.path,
        fingerprint=group.fingerprint,
        files=len(rows),
        bytes=sum(row.there.size for row in rows),
        missing=missing,
        instance=instance,
        at=time.time(),
    )


def _prepare(destination: Path) -> bool:
    """Make the destination; tell whether it takes names for one that differ in case only."""
    try:
        parts_folder(destination).mkdir(parents=True, exist_ok=True)
        return folds_case(parts_folder(destination))
    except OSError as error:
        raise PullFailed(f"cannot write to {destination}: {error.strerror or error}") from error


def _foresee(destination: Path, todo: Plan) -> None:
    """Refuse before the first byte what cannot fit."""
    free = shutil.disk_usage(destination).free
    if todo.needed > free:
        raise PullFailed(
            f"no room under {destination}: {todo.needed:,} bytes are needed, {free:,} are free; nothing was fetched. "
            "Make room, name another --dest, or pull it in parts, by naming paths"
        )


def _close(fetched: Fetcher, ledger: Ledger, listing: Listing) -> None:
    fetched.close()
    for folder in fetched.folders:
        sync_folder(folder)
    fetched.problems.extend(empty_but_listed(fetched.landed))
    ledger.add(GoneRow(path=path, at=time.time()) for path in gone(ledger, listing))
    with contextlib.suppress(OSError):
        parts_folder(fetched.destination).rmdir()  # only if nothing is unfinished


async def list_files(way: Way, paths: tuple[str, ...], *, folds: bool, beside: bool = False) -> Listing:
    """Return what a box has below some paths.

    Args:
        way: To it.
        paths: On the box.
        folds: The destination takes names for one that differ in case only.
        beside: Nothing will be sent: rgt's own connection does.

    Raises:
        BoxError: it could not be asked.
        ListingError: its answer cannot be used.
    """
    words = ("--no-hash", "--", *paths)
    reader = ListingReader()
    if (
        not beside
        and await _asked(way, "manifest", words, reader.feed, LONGEST_LINE) is not None
        and reader.ended
    ):
        return reader.listing(folds=folds)
    reader = ListingReader()
    lines = Lines(reader.feed)
    channel = await way.open("manifest", lines.feed, *words)
    try:
        await _until_silent(channel, lambda: lines.count)
    finally:
        channel.close()
    if not reader.ended and channel.words:
        raise ListingError(f"the box could not list its files: {channel.words}")
    return reader.listing(folds=folds)


async def _asked(
    way: Way, verb: str, words: tuple[str, ...], take: Callable[[bytes], None], longest: int
) -> int | None:
    """Run a verb in the `send` that brings the bytes; return its exit status. None = it has to be run by itself.

    Raises:
        HostKeyRefused: another host answers there.
        Exception: what `take` raises.
    """
    try:
        pipe = await way.piped()
    except NotCarried as error:
        way.give_up_client(str(error))
        return None
    stopped = threading.Event()
    asking = asyncio.ensure_future(asyncio.to_thread(pipe.ask, verb, words, take, stopped.is_set, longest))
    status = None
    try:
        status = await asyncio.shield(asking)
    except NotCarried as error:
        way.give_up_client(str(error))
    except HostKeyRefused:
        raise
    except (BoxError, StreamError):
        pass
    finally:
        stopped.set()
        if status is None:
            pipe.process.kill()
        await asyncio.gather(asking, return_exceptions=True)
        if status is None:
            way.leave(pipe)
        else:
            way.keep(pipe)
    return status


class Lines:
    """Cuts what a command prints into lines, behind what the login shell prints.

    Args:
        take: Takes each line.
    """

    def __init__(self, take: Callable[[bytes], None]) -> None:
        self.count = 0
        self._take = take
        self._rest = b""
        self._spoken = False

    def feed(self, data: bytes) -> None:
        """Take what has come.

        Raises:
            ListingError: a line has no end.
        """
        self.count += len(data)
        *lines, self._rest = (self._rest + data).split(b"\n")
        if len(self._rest) > LONGEST_LINE:
            raise ListingError("the box sent a line without an end")
        for line in lines:
            if self._spoken:
                self._take(line)
            elif found := record(line):
                self._spoken = True
                self._take(found)


async def _until_silent(channel: BulkChannel, count: Callable[[], int]) -> None:
    """Wait for the end of a command.

    Raises:
        Unreachable: nothing has come for too long.
    """
    ended = asyncio.ensure_future(channel.wait())
    try:
        while True:
            before = count()
            done, _ = await asyncio.wait({ended}, timeout=SILENCE_S)
            if done:
                return ended.result()
            if count() == before:
                raise silent()
    finally:
        ended.cancel()
        await asyncio.gather(ended, return_exceptions=True)


def gone(ledger: Ledger, listing: Listing) -> tuple[str, ...]:
    """Return the files below the roots that were pulled once and are not on the box any more."""
    there = {file.path for file in listing.files} | {file.path for file in listing.refused}
    tops = tuple(root.rstrip("/") + "/" for root in listing.roots)
    return tuple(
        row.path
        for row in tuple(ledger.files())
        if row.path not in there and (row.path.startswith(tops) or row.path in listing.roots)
    )
