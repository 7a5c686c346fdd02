"""Pull results from a box: list its files, find missing ones, run the streams, keep the ledger."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import shutil
import threading
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from functools import partial
from pathlib import Path

import msgspec

from rgt_tui.files import note_written, sync_folder
from rgt_tui.fleet.box_evidence import EVIDENCE_LIMITS, ResultsRequest, request_results
from rgt_tui.fleet.fleet_source import PullResult
from rgt_tui.fleet.pulls.box_lists import (
    FinishedPull,
    ResultFiles,
    absent_names,
    check_copies,
    find_gone_files,
    list_results,
    list_run_folders,
    list_tree,
    replace_run_names,
    unclaimed_groups,
)
from rgt_tui.fleet.pulls.box_pipe import BoxConnection
from rgt_tui.fleet.pulls.pull_stream import OnProgress, PullFailed, PullRequest, fetch
from rgt_tui.fleet.transfer_diary import noted_transfer
from rgt_tui.language import show_recorded, translate
from rgt_tui.model import (
    BoxResults,
    BoxSpec,
    FrozenStruct,
    Meter,
    ResultGroup,
    SkippedFiles,
    how_many,
    quote_name,
    size,
)
from rgt_tui.profiles import TransferCost, estimate_transfer_cost, load_profile
from rgt_tui.ssh import BoxError
from rgt_tui.transfer import (
    CopiedFile,
    FileRow,
    FolderRow,
    GoneRow,
    Ledger,
    LedgerError,
    Verification,
    iterate_copies,
    ledger_path,
    verify_directory,
)
from rgt_tui.transfer.copying import (
    BoxListing,
    LandingFailed,
    ListingError,
    PullFetcher,
    PullPlan,
    PullProgress,
    RefusedFile,
    destination_path,
    empty_but_listed,
    folds_case,
    parts_folder,
    plan_pull,
    remove_left_parts,
)

Agree = Callable[[TransferCost], Awaitable[bool]]
"""Called before the first byte that may cost money; False = fetch nothing."""
PULLED = "pulled"
"""Default directory of the copies; it has a subdirectory for each box."""
SHOWN = 3
"""Number of errors shown; `rgt verify` prints all."""


async def at_any_price(_: TransferCost) -> bool:
    """Agree to any price: the caller shows it to the person, who can stop the pull."""
    return True


class PullReport(FrozenStruct, kw_only=True):
    """The result of a pull."""

    box: str
    destination: str
    dry_run: bool
    roots: tuple[str, ...]
    files: int
    """Number of files on the box below the roots."""
    bytes: int
    same: int
    """Number of files whose verified copy was already here."""
    landed: int
    """Number of files fetched and verified in this run; with `dry_run`, to be fetched."""
    landed_bytes: int
    refused: tuple[RefusedFile, ...] = ()
    """Files that were not copied, each with the reason."""
    beside: tuple[RefusedFile, ...] = ()
    """Files that were stored under another name, each with that name."""
    links: tuple[tuple[str, str], ...] = ()
    uncounted: int = 0
    """How many more files were refused or are links than are listed."""
    folders: tuple[FolderRow, ...] = ()
    """Result directories below the roots, with the missing files of each."""
    unclaimed: tuple[ResultGroup, ...] = ()
    """Directories outside the roots that could be lost, that no job, run or `results` claims, and
    without a complete local copy."""
    too_much_unclaimed: bool = False
    """They are larger than `PullRequest.unclaimed_bytes`, and all results of the box were
    requested."""
    left_out: tuple[SkippedFiles, ...] = ()
    """If all results were requested: files that a rule excludes from the results by their path
    alone."""
    traffic: str = ""
    """Price of the traffic, as text."""
    unconfirmed: str = ""
    """Why the box could not list its results at the end; empty = it did."""
    carrier: str = ""
    """Why the bytes were not transferred by the system's ``ssh`` where that is faster."""
    found_runs: tuple[str, ...] = ()
    """For each name of a run that was given instead of a path: its directories, as a sentence."""
    packed_bytes: int = 0
    line_bytes: int = 0
    """Bytes sent through a pipe that packs where it pays, and how many of them went over the line;
    0 = none."""
    seconds: float = 0.0

    @property
    def incomplete(self) -> tuple[RefusedFile, ...]:
        """Reasons why this copy lacks files that the box has below the roots, by path."""
        missing = (
            RefusedFile(path, why) for folder in self.folders for path, why in folder.missing
        )
        return tuple(dict.fromkeys((*self.refused, *missing)))

    @property
    def is_complete(self) -> bool:
        """Whether the box confirmed that the copy is complete.

        Everything requested is here and verified, and unclaimed files on the box are few.
        """
        return not (
            self.incomplete or self.uncounted or self.unconfirmed or self.too_much_unclaimed
        )


async def pull_box(
    spec: BoxSpec,
    request: PullRequest,
    on_progress: OnProgress = lambda progress: None,
    on_plan: Callable[[PullPlan, BoxListing, str], None] = lambda plan, listing, traffic: None,
    env: Mapping[str, str] = os.environ,
    *,
    agree: Agree = at_any_price,
    meter: Meter | None = None,
) -> PullReport:
    """Pull from a box. After an error or cancellation, the next pull resumes.

    Args:
        spec: The box.
        request: Paths and options.
        on_progress: Called several times a second.
        on_plan: Called before the first byte with the plan, the box's files, and the price of the
            traffic.
        env: Environment with the location of rgt's state.
        agree: Called then, unless the traffic is known to be free or nothing must be fetched.
        meter: The provider's data about the machine, which may include a price of traffic.

    Raises:
        BoxError: the box cannot be reached, or its agent is unusable.
        PullFailed: this machine cannot store the files, the box's data is unusable, another pull is
            running, or the price was refused.
    """
    begun = time.monotonic()
    on_progress(PullProgress(phase="connecting"))
    path = ledger_path(spec.name, env)
    connection = BoxConnection(spec, accept_new_host_keys=request.accept_new_host_keys)
    try:
        # Before the ledger is opened: two pulls would both append to it.
        with _locked_box(spec.name, path):
            ledger = await asyncio.to_thread(Ledger, path)
            try:
                found = await _run_pull(
                    spec, request, connection, ledger, on_progress, on_plan, agree, meter, env
                )
            finally:
                ledger.close()
    except (LandingFailed, LedgerError, ListingError) as error:
        raise PullFailed(str(error)) from error
    finally:
        await connection.close()
    on_progress(PullProgress(phase="done"))
    return msgspec.structs.replace(found, seconds=time.monotonic() - begun)


@contextlib.contextmanager
def _locked_box(box: str, path: Path) -> Iterator[None]:
    """Lock out other pulls from the same box: they would write the same files."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        lock = path.with_suffix(".lock").open("ab")
    except OSError as error:
        raise PullFailed(
            translate(
                "cannot write to {parent}: {strerror}",
                parent=path.parent,
                strerror=error.strerror or error,
            )
        ) from error
    with lock:
        try:
            fcntl.flock(lock.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise PullFailed(translate("another rgt pulls from {box} right now", box=box)) from None
        yield


async def _run_pull(
    spec: BoxSpec,
    request: PullRequest,
    connection: BoxConnection,
    ledger: Ledger,
    on_progress: OnProgress,
    on_plan: Callable[[PullPlan, BoxListing, str], None],
    agree: Agree,
    meter: Meter | None,
    env: Mapping[str, str],
) -> PullReport:
    destination = request.destination
    instance = ""
    if spec.provider is not None:
        instance = spec.provider.instance
    on_progress(PullProgress(phase="listing"))
    if request.dry_run:
        # A dry run writes nothing, so the destination cannot be asked.
        folds = False
    else:
        folds = await asyncio.to_thread(_prepare_destination, destination)
    wanted = request.wanted or ResultsRequest(results=spec.results, ignore=spec.ignore)
    found_runs: tuple[str, ...] = ()
    # None: the person named paths, and everything below them is pulled.
    exact: BoxResults | None = None
    if request.paths and request.wanted is None:
        listing = await list_tree(connection, spec, request.paths, folds=folds)
        if absent := absent_names(listing, request.paths):
            try:
                runs = list_run_folders(await _request_results(spec, connection, wanted))
            except (BoxError, TimeoutError):
                # The names stay missing paths; the other paths can be pulled.
                if not listing.files:
                    raise
                runs = {}
            paths, found_runs = replace_run_names(
                spec.name, request.paths, absent, runs, has_files=bool(listing.files)
            )
            listing = await list_tree(connection, spec, paths, folds=folds)
    else:
        found = await list_results(connection, spec, wanted, request.paths or None, folds=folds)
        exact, listing = found.results, found.listing
        if not listing.roots:
            raise PullFailed(_no_results(spec.name, exact))
    on_progress(PullProgress(phase="comparing"))
    # Rows whose copy is the same but has a newer time stamp; written only if the pull goes on.
    touched: list[FileRow] = []
    todo = await asyncio.to_thread(
        plan_pull, listing, ledger, destination, instance, touched.append
    )
    traffic = estimate_transfer_cost(load_profile(spec.profile), todo.bytes, meter)
    on_plan(todo, listing, traffic.words)
    report = PullReport(
        box=spec.name,
        destination=str(destination),
        dry_run=request.dry_run,
        roots=listing.roots,
        files=len(listing.files),
        bytes=listing.total_bytes,
        same=len(todo.same),
        landed=len(todo.steps),
        landed_bytes=todo.bytes,
        refused=todo.refused,
        links=listing.links,
        uncounted=listing.uncounted,
        traffic=traffic.words,
        found_runs=found_runs,
    )
    if request.dry_run:
        if exact is None:
            return report
        pulled = FinishedPull(
            listing=listing, exact=True, refused=(), destination=destination, instance=instance
        )
        return _with_unclaimed(report, request, unclaimed_groups(pulled, ledger, exact), exact)
    # Not in a dry run, which leaves no trace.
    await asyncio.to_thread(ledger.append_rows, touched)
    _check_free_space(destination, todo)
    # After all checks and before the first byte: a refusal costs nothing.
    if todo.steps and not traffic.free and not await agree(traffic):
        raise PullFailed(
            translate(
                "nothing was fetched: you did not agree to {size_and_price}",
                size_and_price=traffic.size_and_price,
            )
        )
    try:
        fetched = await fetch(connection, request, todo, ledger, instance, on_progress)
    finally:
        # Also after a failure: a part is here, and is not to be pushed back as code.
        folders_here = [Path(destination_path(destination, root)) for root in listing.roots]
        await asyncio.to_thread(note_written, folders_here, env)
    on_progress(fetched.read_progress("closing"))
    # All bytes are here: the box lists its results while this side closes its files.
    final_results = asyncio.ensure_future(_request_results(spec, connection, wanted))
    folders: tuple[FolderRow, ...] = ()
    unclaimed: tuple[ResultGroup, ...] = ()
    unconfirmed = ""
    try:
        await asyncio.to_thread(_finish_pull, fetched, ledger, listing, exact)
        pulled = FinishedPull(
            listing=listing,
            exact=exact is not None,
            refused=(*todo.refused, *fetched.problems),
            destination=destination,
            instance=instance,
        )

        async def list_again(folders: tuple[str, ...]) -> ResultFiles:
            return await list_results(connection, spec, wanted, folders, folds=False)

        folders, unclaimed = await check_copies(pulled, ledger, final_results, list_again)
    # The files are here and stay; only that they are all is not proved.
    except (BoxError, TimeoutError) as error:
        unconfirmed = str(error) or translate(
            "no answer within {limit:g} s", limit=EVIDENCE_LIMITS.results_s
        )
    finally:
        # It may still run, if closing the files failed.
        final_results.cancel()
        await asyncio.gather(final_results, return_exceptions=True)
    report = _with_unclaimed(report, request, unclaimed, exact)
    return msgspec.structs.replace(
        report,
        folders=folders,
        unconfirmed=unconfirmed,
        landed=len(fetched.landed),
        landed_bytes=sum(row.there.size for row in fetched.landed),
        # Not kept from above: closing the files may have ended in a time limit of a network disk.
        refused=(*todo.refused, *fetched.problems),
        beside=tuple(fetched.notes),
        carrier=connection.no_ssh if fetched.landed else "",
        packed_bytes=sum(pipe.data_bytes for pipe in connection.packed),
        line_bytes=sum(pipe.line_bytes for pipe in connection.packed),
    )


def _with_unclaimed(
    report: PullReport,
    request: PullRequest,
    unclaimed: tuple[ResultGroup, ...],
    exact: BoxResults | None,
) -> PullReport:
    """Add unclaimed files, and files left out by rules, to a report."""
    everything = exact is not None and not request.paths
    total = sum(group.bytes for group in unclaimed)
    # With named paths, rules that leave out other files do not matter.
    rules = () if exact is None or not everything else exact.skipped
    return msgspec.structs.replace(
        report,
        unclaimed=unclaimed,
        too_much_unclaimed=everything and total > request.unclaimed_bytes,
        left_out=tuple(rule for rule in rules if rule.bytes and not rule.proved),
    )


async def _request_results(
    spec: BoxSpec, connection: BoxConnection, wanted: ResultsRequest
) -> BoxResults:
    """Return the box's current results."""
    opened, deployed = await connection.reach()
    async with asyncio.timeout(EVIDENCE_LIMITS.results_s):
        return await request_results(opened, deployed, spec, wanted)


def _no_results(box: str, found: BoxResults) -> str:
    count, total = len(found.groups), sum(group.bytes for group in found.groups)
    held = ""
    if count:
        held = translate(
            "; nobody's: {directories} of {total:,} bytes",
            directories=how_many(count, "directory", "directories"),
            total=total,
        )
    return translate(
        "no cell, run or `results` of the fleet file says what the results of {box} are{held}: "
        "name paths",
        box=box,
        held=held,
    )


def _prepare_destination(destination: Path) -> bool:
    """Create the destination; return whether its file system is case-insensitive."""
    try:
        # Created here, so that a read-only destination fails before the box lists its files.
        parts_folder(destination).mkdir(parents=True, exist_ok=True)
        remove_left_parts(destination)
        return folds_case(parts_folder(destination))
    except OSError as error:
        raise PullFailed(
            translate(
                "cannot write to {destination}: {strerror}",
                destination=destination,
                strerror=error.strerror or error,
            )
        ) from error


def _check_free_space(destination: Path, todo: PullPlan) -> None:
    """Fail before the first byte if the files will not fit."""
    free = shutil.disk_usage(destination).free
    # Partial copies are resumed, so `needed_bytes` is without what they have.
    if todo.needed_bytes > free:
        raise PullFailed(
            translate(
                "no room under {destination}: {needed_bytes:,} bytes are needed, {free:,} are "
                "free; nothing was fetched. Make room, name another --dest, or pull it in parts, "
                "by naming paths",
                destination=destination,
                needed_bytes=todo.needed_bytes,
                free=free,
            )
        )


def _finish_pull(
    fetched: PullFetcher, ledger: Ledger, listing: BoxListing, exact: BoxResults | None
) -> None:
    fetched.close()
    for folder in fetched.folders:
        # The names of the files must be on disk before the ledger proves them.
        sync_folder(folder)
    fetched.problems.extend(empty_but_listed(fetched.landed))
    ledger.append_rows(
        GoneRow(path=path, at=time.time()) for path in find_gone_files(ledger, listing, exact=exact)
    )
    with contextlib.suppress(OSError):
        parts_folder(fetched.destination).rmdir()  # fails unless it is empty


# Pull results, then check whether every checkpoint in the copy loads, which the gate relies on.


class _VerificationStopped(Exception):
    """The verification was cancelled."""


async def pull_and_verify(
    spec: BoxSpec,
    paths: tuple[str, ...],
    destination: Path,
    on_progress: OnProgress,
    on_plan: Callable[[str], None],
    agree: Agree,
    meter: Meter,
    wanted: ResultsRequest | None,
    env: Mapping[str, str] = os.environ,
) -> PullResult:
    """Pull directories of a box and verify the copy. Cancelling keeps the files copied so far.

    Args:
        spec: The box.
        paths: Directories on the box; empty = its results.
        destination: Directory of the copy.
        on_progress: Called several times a second.
        on_plan: Called before the first byte with a description of the download and its traffic
            costs.
        agree: Called then, if that may cost money; see `pull_box`.
        meter: The provider's data about the machine.
        wanted: If set, `paths` are directories of the list of results made with it: see
            `PullRequest.wanted`.
        env: Environment with the location of rgt's state, which includes the ledger of pulled
            files.

    Raises:
        rgt_tui.ssh.BoxError: the box cannot be reached.
        rgt_tui.fleet.pulls.pull_stream.PullFailed: the pull is impossible or broke off.
        rgt_tui.transfer.LedgerError: the ledger cannot be read.
        rgt_tui.transfer.NotVerifiable: the copy cannot be read.
    """
    async with noted_transfer(spec.name, "pull", paths, str(destination.absolute()), env) as page:

        def show_plan(todo: PullPlan, listing: BoxListing, traffic: str) -> None:
            what = translate(
                "{count:,} of {files}, {bytes}",
                count=len(todo.steps),
                files=how_many(len(listing.files), "file"),
                bytes=size(todo.bytes),
            )
            page.record_plan(what)
            plan = translate("{what}, to {destination}", what=what, destination=destination)
            if traffic:
                plan += translate("; traffic: {traffic}", traffic=traffic)
            on_plan(plan)

        def show_progress(look: PullProgress) -> None:
            page.record_progress(look)
            on_progress(look)

        request = PullRequest(paths=paths, wanted=wanted, destination=destination.absolute())
        report = await pull_box(
            spec, request, show_progress, show_plan, env, agree=agree, meter=meter
        )
        found = await _verify_copy(spec.name, destination.absolute(), show_progress, env)
        end = build_pull_result(report, found, destination)
        page.record_result(end.text, whole=end.whole)
        return end


def build_pull_result(report: PullReport, found: Verification, destination: Path) -> PullResult:
    """Return the result of a pull and its verification.

    Args:
        report: Of the pull.
        found: Of the verification.
        destination: As the person wrote it.
    """
    wrong = [
        f"{quote_name(row.path)}: {quote_name(show_recorded(row.reason))}"
        for row in report.incomplete
    ]
    if report.unconfirmed:
        wrong.append(
            translate(
                "the box could not list its results at the end: {unconfirmed}",
                unconfirmed=quote_name(report.unconfirmed),
            )
        )
    if report.too_much_unclaimed:
        wrong += [
            translate("{path}: claimed by no job, run or `results`", path=quote_name(group.path))
            for group in report.unclaimed
        ]
    wrong += [
        f"{quote_name(row.path)}: {quote_name(show_recorded(row.reason))}" for row in found.errors
    ]
    # The pull and the verification may report the same file.
    wrong = list(dict.fromkeys(wrong))
    count = len(wrong) + report.uncounted
    if count:
        more = ""
        if count > SHOWN:
            more = translate("; and {count} more", count=count - SHOWN)
        text = translate(
            "incomplete in {destination}, {reasons}: {names}{more}",
            destination=destination,
            reasons=how_many(count, "reason"),
            names="; ".join(wrong[:SHOWN]),
            more=more,
        )
        return PullResult(whole=False, text=text)
    came = f"{how_many(report.landed, 'file')}, {size(report.landed_bytes)}"
    same = ""
    if report.same:
        same = translate(", {same:,} already here", same=report.same)
    count = len(found.checkpoints)
    loads = ""
    if count:
        loads = translate(", {count} complete", count=how_many(count, "checkpoint"))
    return PullResult(
        whole=True,
        text=translate(
            "{came} verified in {destination}{same}{loads}",
            came=came,
            destination=destination,
            same=same,
            loads=loads,
        ),
    )


async def _verify_copy(
    box: str, destination: Path, on_progress: OnProgress, env: Mapping[str, str]
) -> Verification:
    """Verify the copy in a thread; when cancelled, the thread ends at the next file."""
    loop, stop = asyncio.get_running_loop(), threading.Event()

    def report_progress(done: int, total: int, path: str) -> None:
        if stop.is_set():
            # A thread cannot be cancelled from outside: it ends itself here.
            raise _VerificationStopped
        look = PullProgress(phase="verifying", bytes=total, bytes_done=done, path=path)
        loop.call_soon_threadsafe(on_progress, look)

    on_progress(PullProgress(phase="verifying"))
    try:
        rows = (row for row in iterate_copies(ledger_path(box, env)) if isinstance(row, CopiedFile))
        return await asyncio.to_thread(
            partial(verify_directory, destination, pulled=rows, progress=report_progress)
        )
    finally:
        stop.set()
