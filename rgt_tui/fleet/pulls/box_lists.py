"""Requests a box's lists of files during a pull: a tree, the list of results, or the files of some of its directories.

A list comes from the `send` process that brings the bytes where that is possible, else from a command of its own.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable
from typing import Protocol, TypeVar

import msgspec

from rgt_tui.fleet.box_questions import RESULTS_SECONDS, Wanted, results_of, results_words
from rgt_tui.fleet.pulls.pull_way import SILENCE_S, Way, silent
from rgt_tui.model import BoxSpec, Results
from rgt_tui.ssh import BoxError, BulkChannel, CommandFailed, HostKeyRefused, NotCarried, record
from rgt_tui.transfer.copying import LONGEST_LINE, Listing, ListingError, ListingReader, StreamError

WORDS_FROM_STDIN, LONGEST_COMMAND = "--words-from-stdin", 32 << 10
"""Of the agent: what a command line cannot hold, which has at most 128 KiB on Linux, quotes included."""
MOST_RESULTS = 8 << 20
"""Bytes of the answer of ``results``, as the agent bounds it."""


class ResultFiles(msgspec.Struct, frozen=True):
    """What a box lists as its results, and the files of some of the directories."""

    results: Results
    listing: Listing


async def list_tree(way: Way, spec: BoxSpec, paths: tuple[str, ...], *, folds: bool, alone: bool) -> Listing:
    """Return every file below some paths of a box, without those of rgt itself.

    Args:
        way: To it.
        spec: The box.
        paths: On the box.
        folds: The destination takes names for one that differ in case only.
        alone: Nothing will be sent: a connection of rgt's own does.

    Raises:
        BoxError: the box did not answer.
        ListingError: its answer cannot be used.
    """
    jobs = [word for job in spec.jobs for word in ("--job", job)]
    words = ("--no-hash", *jobs, "--", *paths)
    reader = await _read(way, "manifest", words, ListingReader, LONGEST_LINE, SILENCE_S, alone)
    return reader.listing(folds=folds)


async def list_results(
    way: Way,
    spec: BoxSpec,
    wanted: Wanted,
    folders: tuple[str, ...] | None,
    *,
    folds: bool,
    alone: bool,
) -> ResultFiles:
    """Return the list of results, and exactly the files of some of its directories.

    Args:
        way: To the box.
        spec: The box.
        wanted: What counts as a result.
        folders: Directories of that list; None = all that have an owner.
        folds: The destination takes names for one that differ in case only.
        alone: Nothing will be sent: a connection of rgt's own does.

    Raises:
        BoxError: the box did not answer, or not with a list of results.
        ListingError: its list of files cannot be used.
    """
    chosen = ["--list-owned"] if folders is None else [word for path in folders for word in ("--list", path)]
    words = (*results_words(spec, wanted), *chosen)
    reader = await _read(way, "results", words, _ResultsReader, MOST_RESULTS, RESULTS_SECONDS, alone)
    if reader.results is None:
        raise CommandFailed("rgt-box results: it answered nothing")
    return ResultFiles(reader.results, reader.files.listing(folds=folds))


class _ResultsReader:
    """Reads the object of ``results``, then the lines of its ``--list``."""

    def __init__(self) -> None:
        self.results: Results | None = None
        self.files = ListingReader()

    @property
    def ended(self) -> bool:
        return self.files.ended

    def feed(self, line: bytes) -> None:
        """Read a line.

        Raises:
            CommandFailed: the object cannot be used.
            ListingError: a line is none of a list.
        """
        if self.results is None:
            self.results = results_of(line)
        else:
            self.files.feed(line)


class _Reader(Protocol):
    @property
    def ended(self) -> bool: ...
    def feed(self, line: bytes, /) -> None: ...


R = TypeVar("R", bound=_Reader)


async def _read(
    way: Way,
    verb: str,
    words: tuple[str, ...],
    make: Callable[[], R],
    longest: int,
    silence: float,
    alone: bool,
) -> R:
    """Run a verb that prints lines, and return the reader that got them.

    Args:
        way: To the box.
        verb: Of the agent.
        words: Its command line.
        make: Returns a new reader.
        longest: Bytes that a line may have.
        silence: Seconds without a byte after which the box is given up.
        alone: As for `list_tree`.
    """
    reader = make()
    if not alone and await run_in_pipe(way, verb, words, reader.feed, longest) is not None and reader.ended:
        return reader
    reader = make()
    lines = Lines(reader.feed, longest)
    is_long = sum(map(len, words)) > LONGEST_COMMAND
    channel = await way.open(verb, lines.feed, *((WORDS_FROM_STDIN,) if is_long else words))
    if is_long:
        channel.write(json.dumps(words).encode() + b"\n")
        channel.finish()
    try:
        await _until_silent(channel, lambda: lines.count, silence)
    finally:
        channel.close()
    if not reader.ended and channel.words:
        raise ListingError(f"the box could not list its files: {channel.words}")
    return reader


async def run_in_pipe(
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
        longest: Bytes that one may have.
    """

    def __init__(self, take: Callable[[bytes], None], longest: int = LONGEST_LINE) -> None:
        self.count = 0
        self._take, self._longest = take, longest
        self._rest = b""
        self._spoken = False

    def feed(self, data: bytes) -> None:
        """Take what has come.

        Raises:
            ListingError: a line has no end.
        """
        self.count += len(data)
        *lines, self._rest = (self._rest + data).split(b"\n")
        if len(self._rest) > self._longest:
            raise ListingError("the box sent a line without an end")
        for line in lines:
            if self._spoken:
                self._take(line)
            elif found := record(line):
                self._spoken = True
                self._take(found)


async def _until_silent(channel: BulkChannel, count: Callable[[], int], silence: float) -> None:
    """Wait for the end of a command.

    Raises:
        Unreachable: nothing has come for too long.
    """
    ended = asyncio.ensure_future(channel.wait())
    try:
        while True:
            before = count()
            done, _ = await asyncio.wait({ended}, timeout=silence)
            if done:
                return ended.result()
            if count() == before:
                raise silent(silence)
    finally:
        ended.cancel()
        await asyncio.gather(ended, return_exceptions=True)
