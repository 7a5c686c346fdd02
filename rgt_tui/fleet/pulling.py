"""Pull results off a box: what is there, what is missing here, several streams, and a ledger of what was verified."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import asyncssh
import msgspec

from rgt_tui.fleet.box_questions import RESULTS_SECONDS, Wanted, ask_results
from rgt_tui.fleet.errands import connected, reached
from rgt_tui.model.box import BoxSpec
from rgt_tui.model.profile import Profile
from rgt_tui.model.results import ResultGroup, Results
from rgt_tui.profiles import load_profile
from rgt_tui.profiles.readings import how_many, size
from rgt_tui.ssh import (
    AuthFailed,
    BoxError,
    BulkChannel,
    ConfigError,
    Deployed,
    HostKeyRefused,
    NoCommands,
    NoPython,
    Unreachable,
    open_bulk,
    record,
)
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
    RANGE_BYTES,
    Fetcher,
    LandingFailed,
    Listing,
    ListingError,
    ListingReader,
    Plan,
    PullProgress,
    Refused,
    Stream,
    StreamError,
    empty_but_listed,
    folds_case,
    parts_folder,
    plan,
    sync_folder,
)

HELD_HIGH, HELD_LOW = 16 << 20, 4 << 20
"""Bytes of one stream that wait to be written, before it is told to wait and when it goes on."""
SILENCE_S = 120.0
"""A box that sends nothing for so long, while something is asked of it, is given up."""
PATIENCE_S = 120.0
"""A connection that was lost is tried again for so long."""
FIRST_WAIT_S, LONGEST_WAIT_S = 0.5, 15.0
COMPARE_SECONDS = 60.0
"""All is here by then, and a person waits."""
LOOK_S, LONGEST_LOOK_S = 0.2, 5.0
MOST_STREAMS = 16
MOST_NONSENSE = 3
"""A box that so often sends what no agent does is not asked again."""
CONNECTIONS = 2
"""TCP connections that the streams share, where the box lets us in twice."""
HOPELESS = (AuthFailed, HostKeyRefused, ConfigError, NoPython)
"""More tries change nothing."""


class PullFailed(Exception):
    """Nothing can be pulled, or no more; the message says why. What has come is kept, and the next pull goes on."""


class PullRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be pulled, and how."""

    paths: tuple[str, ...] = ()
    """On the box; empty = what its results are."""
    destination: Path
    """Absolute."""
    streams: int = 4
    limit: float | None = None
    """Bytes per second; None = as fast as it goes."""
    dry_run: bool = False
    patience: float = PATIENCE_S
    """Seconds for which a lost connection is tried again."""
    accept_new_host_keys: bool = False


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
    """Of the files, those whose verified copy stood here already."""
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
    seconds: float = 0.0

    @property
    def whole(self) -> bool:
        """Everything that was asked for stands here, verified."""
        return not self.refused and not self.uncounted


OnProgress = Callable[[PullProgress], None]


async def pull(
    spec: BoxSpec,
    request: PullRequest,
    on_progress: OnProgress = lambda progress: None,
    on_plan: Callable[[Plan, Listing, str], None] = lambda plan, listing, traffic: None,
    env: Mapping[str, str] = os.environ,
) -> PullReport:
    """Pull from a box; whatever ends it, the next one goes on where it was.

    Args:
        spec: The box.
        request: What and how.
        on_progress: Called some times a second.
        on_plan: Called before the first byte: what will be done, what the box has, what the traffic costs.
        env: Where the state of rgt lies.

    Raises:
        BoxError: the box cannot be reached, or its agent cannot be used.
        PullFailed: this machine cannot take it, what the box says cannot be used, or another pull is at work.
    """
    begun = time.monotonic()
    on_progress(PullProgress(phase="connecting"))
    path = ledger_path(spec.name, env)
    way = Way(spec, request)
    try:
        with _alone(spec.name, path):
            ledger = await asyncio.to_thread(Ledger, path)
            try:
                found = await _pull(spec, request, way, ledger, on_progress, on_plan)
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
) -> PullReport:
    destination = request.destination
    instance = spec.provider.instance if spec.provider is not None else ""
    on_progress(PullProgress(phase="listing"))
    paths = request.paths or await _default_paths(spec, way)
    folds = False if request.dry_run else await asyncio.to_thread(_prepare, destination)
    listing = await list_files(way, paths, folds=folds)
    on_progress(PullProgress(phase="comparing"))
    touched: list[FileRow] = []
    todo = await asyncio.to_thread(plan, listing, ledger, destination, instance, touched.append)
    traffic = traffic_words(load_profile(spec.profile), todo.bytes)
    on_plan(todo, listing, traffic)
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
        traffic=traffic,
    )
    if request.dry_run:
        return report
    await asyncio.to_thread(ledger.add, touched)
    _foresee(destination, todo)
    fetched = await _fetch(way, request, todo, ledger, instance, on_progress)
    on_progress(fetched.progress("closing"))
    await asyncio.to_thread(_close, fetched, ledger, listing)
    refused = (*todo.refused, *fetched.problems)
    folders, nobodys = await _compare(spec, way, ledger, listing, refused, destination, instance)
    return msgspec.structs.replace(
        report,
        folders=folders,
        nobodys=nobodys,
        landed=len(fetched.landed),
        landed_bytes=sum(row.there.size for row in fetched.landed),
        refused=refused,
        beside=tuple(fetched.notes),
    )


async def _results(spec: BoxSpec, way: Way, seconds: float = RESULTS_SECONDS) -> Results:
    connection, deployed = await way.reach()
    wanted = Wanted(results=spec.results, ignore=spec.ignore)
    return await ask_results(connection, deployed, spec, wanted, seconds=seconds)


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
    spec: BoxSpec,
    way: Way,
    ledger: Ledger,
    listing: Listing,
    refused: Sequence[Refused],
    destination: Path,
    instance: str,
) -> tuple[tuple[FolderRow, ...], tuple[ResultGroup, ...]]:
    """Ask the box once more what it holds, and write down which directories stand here just so."""
    try:
        found = await _results(spec, way, COMPARE_SECONDS)
    except BoxError:
        return (), ()  # nothing is claimed: the gate asks anew
    tops = dict.fromkeys(listing.roots)
    within = {
        group.path: group
        for group in found.groups
        if group.path in tops or home(group.path, tops) is not None
    }
    members: dict[str, list[FileRow]] = {path: [] for path in within}
    for row in ledger.files():
        owner = home(row.path, members)
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
        other = (
            group.problem
            or "it changed while it was pulled, or what it holds is not all pulled: pull it again"
        )
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


def traffic_words(profile: Profile, count: int) -> str:
    """Say what it costs that so many bytes leave a box, as far as the platform's profile says it."""
    traffic = profile.network.traffic
    if traffic is None:
        return f"whether {profile.name} charges for traffic is not known; {size(count)} will leave the box"
    said = (traffic.url or traffic.cited_as or "no source", traffic.verified or "not dated")
    source = f"({', '.join(said)})"
    if not traffic.metered:
        return f"{traffic.note} {source}"
    return f"it costs money: {size(count)} will leave the box. {traffic.note} What this one takes is not known {source}"


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


async def list_files(way: Way, paths: tuple[str, ...], *, folds: bool) -> Listing:
    """Return what a box has below some paths.

    Raises:
        BoxError: it could not be asked.
        ListingError: its answer cannot be used.
    """
    reader = ListingReader()
    lines = Lines(reader.feed)
    channel = await way.open("manifest", lines.feed, "--no-hash", "--", *paths)
    try:
        await _until_silent(channel, lambda: lines.count)
    finally:
        channel.close()
    if not reader.ended and channel.words:
        raise ListingError(f"the box could not list its files: {channel.words}")
    return reader.listing(folds=folds)


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
                raise Unreachable(
                    f"the box has sent nothing for {SILENCE_S:g} s, though the connection is up: a disk or network "
                    "file system there may hang"
                )
    finally:
        ended.cancel()
        await asyncio.gather(ended, return_exceptions=True)


class Way:
    """The connections to a box, made when they are needed and made again when they are lost.

    Args:
        spec: The box.
        request: How long a lost one is tried again.
    """

    def __init__(self, spec: BoxSpec, request: PullRequest) -> None:
        self._spec, self._request = spec, request
        self._stack: dict[int, contextlib.AsyncExitStack] = {}
        self._open: dict[int, tuple[asyncssh.SSHClientConnection, Deployed]] = {}
        self._turns = [asyncio.Lock() for _ in range(CONNECTIONS)]
        self._single = False

    async def open(
        self, verb: str, on_data: Callable[[bytes], None], *words: str, number: int = 0
    ) -> BulkChannel:
        """Start a verb of the agent on one of the connections.

        Raises:
            BoxError: it cannot be had.
        """
        connection, deployed = await self._connection(number)
        return await open_bulk(connection, deployed.command(verb, *words), on_data)

    async def reach(self) -> tuple[asyncssh.SSHClientConnection, Deployed]:
        """Return the first connection, and where the agent stands.

        Raises:
            BoxError: it cannot be had.
        """
        return await self._connection(0)

    async def _connection(self, number: int) -> tuple[asyncssh.SSHClientConnection, Deployed]:
        number = 0 if self._single else number % CONNECTIONS
        async with self._turns[number]:
            found = self._open.get(number)
            if found is not None and not found[0].is_closed():
                return found
            await self._drop(number)
            stack = contextlib.AsyncExitStack()
            accept = self._request.accept_new_host_keys
            first = self._open.get(0)
            try:
                if first is None or number == 0:
                    found = await stack.enter_async_context(reached(self._spec, accept_new_host_keys=accept))
                else:
                    way = connected(self._spec, accept_new_host_keys=accept)
                    found = (await stack.enter_async_context(way), first[1])
            except BoxError:
                if number == 0:
                    raise
                self._single = True  # one is enough, and a box that lets nobody in twice is not asked again
            else:
                self._stack[number], self._open[number] = stack, found
                return found
        return await self._connection(0)

    async def _drop(self, number: int) -> None:
        self._open.pop(number, None)
        stack = self._stack.pop(number, None)
        if stack is not None:
            with contextlib.suppress(BoxError):
                await stack.aclose()

    async def close(self) -> None:
        """Hang up."""
        for number in tuple(self._stack):
            await self._drop(number)


class Throttle:
    """Keeps all streams together below a rate.

    Args:
        rate: Bytes per second; None = no bound.
    """

    def __init__(self, rate: float | None) -> None:
        self._rate = rate
        self._due = 0.0

    def wait(self, count: int) -> float:
        """Count bytes that came; return for how many seconds none should be taken."""
        if self._rate is None:
            return 0.0
        now = time.monotonic()
        self._due = max(self._due, now) + count / self._rate
        return self._due - now


async def _fetch(
    way: Way, request: PullRequest, todo: Plan, ledger: Ledger, instance: str, on_progress: OnProgress
) -> Fetcher:
    loop = asyncio.get_running_loop()
    bells: list[asyncio.Event] = []

    def ring() -> None:
        for bell in bells:
            bell.set()

    def news() -> None:
        with contextlib.suppress(RuntimeError):  # the loop has gone
            loop.call_soon_threadsafe(ring)

    fetcher = Fetcher(todo, ledger, request.destination, instance, news)
    throttle = Throttle(request.limit)
    streams = max(1, min(request.streams, MOST_STREAMS, len(todo.steps) or 1))
    if len(todo.steps) == 1 and todo.bytes > RANGE_BYTES:
        streams = max(1, min(request.streams, MOST_STREAMS))
    bells += [asyncio.Event() for _ in range(streams)]
    tasks = [
        asyncio.ensure_future(_stream(way, request, fetcher, throttle, bells[number], number))
        for number in range(streams)
    ]
    try:
        while not fetcher.finished:
            await asyncio.wait(tasks, timeout=LOOK_S, return_when=asyncio.FIRST_COMPLETED)
            on_progress(fetcher.progress())
            if all(task.done() for task in tasks):
                break
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if fetcher.failure is not None or not fetcher.finished:
            await asyncio.to_thread(fetcher.close)
    if fetcher.failure is not None:
        raise fetcher.failure
    return fetcher


async def _stream(
    way: Way, request: PullRequest, fetcher: Fetcher, throttle: Throttle, bell: asyncio.Event, number: int
) -> None:
    """Keep one stream going, through lost connections, until nothing is left."""
    wait, lost_at, nonsense = FIRST_WAIT_S, 0.0, 0
    while not fetcher.finished:
        before = fetcher.came_bytes
        try:
            await _one_stream(way, fetcher, throttle, bell, number)
        except NoCommands as error:
            if number == 0:
                fetcher.fail(error)
            return  # else the box grants fewer sessions than were asked for
        except HOPELESS as error:
            fetcher.fail(error)
        except StreamError as error:
            nonsense += 1
            if nonsense == MOST_NONSENSE:
                fetcher.fail(PullFailed(f"the box sent what its agent does not send: {error}"))
        except BoxError as error:
            now = time.monotonic()
            if fetcher.came_bytes > before or not lost_at:
                wait, lost_at = FIRST_WAIT_S, now
            if now - lost_at > request.patience:
                fetcher.fail(error)
        if not fetcher.finished:
            await asyncio.sleep(wait)
            wait = min(LONGEST_WAIT_S, 2 * wait)


async def _one_stream(
    way: Way, fetcher: Fetcher, throttle: Throttle, bell: asyncio.Event, number: int
) -> None:
    loop = asyncio.get_running_loop()
    channel: BulkChannel | None = None

    def drained() -> None:
        with contextlib.suppress(RuntimeError):  # the loop has gone
            loop.call_soon_threadsafe(bell.set)

    stream = Stream(fetcher, HELD_LOW, drained)
    until = 0.0

    def taken(data: bytes) -> None:
        nonlocal until
        stream.feed(data)
        seconds = throttle.wait(len(data))
        if seconds > 0:
            until = max(until, loop.time() + seconds)
        if channel is not None and (until or stream.held > HELD_HIGH or stream.hungry):
            if until or stream.held > HELD_HIGH:
                channel.pause()
            bell.set()

    try:
        channel = await way.open("send", taken, number=number)
        ended = asyncio.ensure_future(channel.wait())
        ended.add_done_callback(lambda _: bell.set())
        quiet_since = loop.time()
        while not fetcher.finished and not ended.done():
            before = stream.came
            channel.write(stream.requests())
            if until and loop.time() >= until:
                until = 0.0
            if not until and stream.held < HELD_LOW:
                channel.resume()
            bell.clear()
            pause = min(LONGEST_LOOK_S, max(0.0, until - loop.time())) if until else LONGEST_LOOK_S
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(bell.wait(), pause)
            now = loop.time()
            if stream.came != before or stream.idle or until or stream.held:
                quiet_since = now
            if now - quiet_since > SILENCE_S:
                raise Unreachable(
                    f"the box has sent nothing for {SILENCE_S:g} s, though the connection is up"
                )
        if ended.done() and not fetcher.finished:
            ended.result()
            raise Unreachable(f"the agent ended: {channel.words}" if channel.words else "the agent ended")
    finally:
        if channel is not None:
            channel.close()
        await asyncio.to_thread(stream.lost)


def gone(ledger: Ledger, listing: Listing) -> tuple[str, ...]:
    """Return the files below the roots that were pulled once and are not on the box any more."""
    there = {file.path for file in listing.files} | {file.path for file in listing.refused}
    tops = tuple(root.rstrip("/") + "/" for root in listing.roots)
    return tuple(
        row.path
        for row in tuple(ledger.files())
        if row.path not in there and (row.path.startswith(tops) or row.path in listing.roots)
    )
