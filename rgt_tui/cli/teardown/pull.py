"""``rgt pull``: the results of a box, copied here and verified."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from rgt_tui.cli import running
from rgt_tui.cli.commands import FAILED, OK
from rgt_tui.cli.opening import open_box
from rgt_tui.cli.printing import print_error, print_json, print_lines
from rgt_tui.cli.teardown.money_arguments import PullArguments
from rgt_tui.fleet import noted_transfer
from rgt_tui.fleet.pulls.pull_stream import UNCLAIMED_BYTES, PullFailed, PullRequest
from rgt_tui.fleet.pulls.pulling import PullReport, pull_box
from rgt_tui.language import show_recorded, translate
from rgt_tui.model import BoxSpec, clean_text, format_duration, how_many, pct, size
from rgt_tui.transfer.copying import BoxListing, PullPlan, PullProgress, RefusedFile

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.live import Live

COPYING = ("pulling", "sending")
"""Phases in which bytes are counted."""
EVERY_S = 5.0
"""Seconds between two lines of progress without a terminal."""


def run_pull(arguments: PullArguments) -> int:
    """Pull; return the exit code."""
    spec = open_box(arguments, trusted=True)
    # Absolute: the ledger of the pull is kept per directory, and must not depend on the cwd.
    destination = Path(arguments.dest or Path("pulled") / spec.name).expanduser().absolute()
    request = PullRequest(
        paths=tuple(arguments.paths),
        destination=destination,
        limit=arguments.limit,
        unclaimed_bytes=UNCLAIMED_BYTES if arguments.unclaimed is None else arguments.unclaimed,
        dry_run=arguments.dry_run,
        patience=arguments.timeout,
        accept_new_host_keys=arguments.accept_new_host_key,
    )
    if arguments.dry_run:
        hint = ""
    else:
        hint = translate("; what has arrived is kept, and the next rgt pull resumes")
    return running.run_on_box(
        spec.name, _run_pull(spec, request, as_json=arguments.json), hint=hint
    )


async def _run_pull(spec: BoxSpec, request: PullRequest, *, as_json: bool) -> int:
    with PullDisplay(spec.name, as_json=as_json) as display:
        try:
            report = await running.run_until_signalled(_noted_pull(spec, request, display))
        except PullFailed as error:
            print_error(f"{spec.name}: {error}")
            return FAILED
    print_report(report, as_json=as_json)
    if report.is_complete:
        return OK
    return FAILED


async def _noted_pull(spec: BoxSpec, request: PullRequest, display: PullDisplay) -> PullReport:
    """Pull, and record progress and result for other rgts; a dry run is not recorded."""
    if request.dry_run:
        return await pull_box(spec, request, display.show_progress, display.show_plan)
    async with noted_transfer(spec.name, "pull", request.paths, str(request.destination)) as page:

        def show_progress(progress: PullProgress) -> None:
            page.record_progress(progress)
            display.show_progress(progress)

        def show_plan(plan: PullPlan, listing: BoxListing, traffic: str) -> None:
            page.record_plan(
                f"{len(plan.steps):,} of {how_many(len(listing.files), 'file')}, {size(plan.bytes)}"
            )
            display.show_plan(plan, listing, traffic)

        report = await pull_box(spec, request, show_progress, show_plan)
        # An exception leaves the page without a result: other rgts then show that it was
        # interrupted.
        page.record_result(in_short(report), whole=report.is_complete)
        return report


def in_short(report: PullReport) -> str:
    """Return the result, or the reason why it is incomplete, in one line."""
    if not report.is_complete:
        reasons = [f"{row.path}: {show_recorded(row.reason)}" for row in report.incomplete]
        if report.unconfirmed:
            reasons.append(
                translate(
                    "the box did not confirm it: {unconfirmed}", unconfirmed=report.unconfirmed
                )
            )
        if report.too_much_unclaimed:
            reasons.append(
                translate("{path} and others belong to no job", path=report.unclaimed[0].path)
            )
        # The box limits its lists, and counts what did not fit.
        count = len(reasons) + report.uncounted
        return translate(
            "incomplete, {reasons}: {first}",
            reasons=how_many(count, "reason"),
            first=reasons[0] if reasons else translate("not named"),
        )
    same = ""
    if report.same:
        same = translate(", {same:,} already here", same=report.same)
    return f"{how_many(report.landed, 'file')}, {size(report.landed_bytes)} verified{same}"


class PullDisplay:
    """Shows the progress of a pull.

    On a terminal as a line that is updated, elsewhere as a line every few seconds, or as JSON.

    Args:
        name: The box's name.
        as_json: Whether to write JSON lines to stdout.
        quiet: Show no progress unless on a terminal.
    """

    def __init__(self, name: str, *, as_json: bool, quiet: bool = False) -> None:
        self._name = name
        self._json = as_json
        self._quiet = quiet
        self._live: Live | None = None
        # So that the first progress is printed at once.
        self._said_at = -EVERY_S
        self._phase = ""

    def __enter__(self) -> PullDisplay:
        if sys.stderr.isatty() and not self._json:
            from rich.console import Console
            from rich.live import Live

            # Without a thread of rich: progress arrives often enough to draw it.
            self._live = Live(console=Console(stderr=True), transient=True, auto_refresh=False)
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()

    def show_plan(self, plan: PullPlan, listing: BoxListing, traffic: str) -> None:
        """Print what will be done, before the first byte."""
        if self._json:
            return
        said = f"{self._name}: {how_many(len(listing.files), 'file')}, {size(listing.total_bytes)}"
        said += translate(
            "; here already: {same:,}; to fetch: {steps:,}, {bytes}",
            same=len(plan.same),
            steps=len(plan.steps),
            bytes=size(plan.bytes),
        )
        if plan.present:
            said += translate(
                " (of that at most {present} from an earlier pull)", present=size(plan.present)
            )
        self._print_line(said)
        # Before the first byte, because on some platforms traffic costs money.
        if plan.steps:
            self._print_line(f"{self._name}: traffic: {traffic}")

    def _print_line(self, text: str) -> None:
        with contextlib.suppress(OSError):
            if self._live is not None:
                # Names of files may look like rich's markup.
                self._live.console.print(clean_text(text), markup=False, highlight=False)
            else:
                sys.stderr.write(clean_text(text) + "\n")
                sys.stderr.flush()

    def show_progress(self, progress: PullProgress) -> None:
        """Show the current progress."""
        if self._live is not None:
            self._live.update(draw_progress(self._name, progress), refresh=True)
            return
        now = time.monotonic()
        # A new phase is always printed, so that each shows up at least once.
        if self._quiet or (progress.phase == self._phase and now - self._said_at < EVERY_S):
            return
        self._phase, self._said_at = progress.phase, now
        if self._json:
            # A path may have bytes that are not UTF-8, which JSON cannot carry.
            row = {**msgspec.structs.asdict(progress), "path": clean_text(progress.path)}
            print_json({"box": self._name, **row})
            sys.stdout.flush()
        elif progress.phase == "pulling":
            self._print_line(f"{self._name}: {describe_progress(progress)}")


def describe_progress(progress: PullProgress) -> str:
    """Return the progress of a pull as one line."""
    if progress.phase not in COPYING:
        parts = [translate(progress.phase)]
        if progress.phase == "listing" and progress.files_done:
            parts += [how_many(progress.files_done, "file"), size(progress.bytes_done)]
        if progress.phase == "comparing" and progress.files:
            parts.append(
                translate(
                    "{done} of {total}",
                    done=f"{progress.files_done:,}",
                    total=how_many(progress.files, "file"),
                )
            )
            parts.append(
                translate(
                    "{done} of {total}", done=size(progress.bytes_done), total=size(progress.bytes)
                )
            )
        return ", ".join(parts) + " …"
    parts = [
        f"{pct(100 * progress.done_share):>5}",
        translate("{done} of {total}", done=size(progress.bytes_done), total=size(progress.bytes)),
        translate(
            "{done} of {total}",
            done=f"{progress.files_done:,}",
            total=how_many(progress.files, "file"),
        ),
        f"{size(progress.rate)}/s" if progress.rate is not None else "",
        translate("{eta} to go", eta=format_duration(progress.eta))
        if progress.eta is not None
        else "",
        how_many(progress.problems, "problem") if progress.problems else "",
    ]
    if progress.phase != "pulling":
        parts.insert(0, translate(progress.phase))
    return "  ".join(part for part in parts if part)


def draw_progress(name: str, progress: PullProgress) -> RenderableType:
    """Return the progress line for a terminal."""
    from rich.progress_bar import ProgressBar
    from rich.table import Table
    from rich.text import Text

    row = Table.grid(padding=(0, 1))
    bar = ProgressBar(total=1.0, completed=progress.done_share, width=20)
    cells: list[RenderableType] = [
        Text(f"{name}:"),
        *([bar] if progress.phase in COPYING else []),
    ]
    row.add_row(*cells, Text(describe_progress(progress)))
    return row


def print_report(report: PullReport, *, as_json: bool) -> None:
    """Print what was found and done."""
    if as_json:
        body = {
            "end": True,
            "ok": report.is_complete,
            **msgspec.to_builtins(make_utf8_report(report)),
        }
        print_json(body)
        return
    name = report.box
    for sentence in report.found_runs:
        print_error(sentence)
    if report.dry_run:
        verb = translate("would be fetched")
    else:
        verb = translate("verified now")
    if report.dry_run:
        here = ""
    else:
        here = f", in {report.destination}"
    print_lines(
        translate(
            "{name}: {landed} {verb} ({landed_bytes}), {same:,} were here already{here}",
            name=name,
            landed=how_many(report.landed, "file"),
            verb=verb,
            landed_bytes=size(report.landed_bytes),
            same=report.same,
            here=here,
        )
    )
    # Below 5% the ratio says nothing, since blocks that do not shrink are sent as they are.
    if report.line_bytes and report.packed_bytes > 1.05 * report.line_bytes:
        ratio = f"{report.packed_bytes / report.line_bytes:.1f}:1"
        line = size(report.line_bytes)
        print_lines(
            translate(
                "{name}: packed on the way: {packed_bytes} as {line} ({ratio})",
                name=name,
                packed_bytes=size(report.packed_bytes),
                line=line,
                ratio=ratio,
            )
        )
    if report.carrier:
        print_error(
            translate(
                "{name}: over rgt's built-in SSH client, which is slower: {carrier}",
                name=name,
                carrier=report.carrier,
            )
        )
    _print_problems(
        name,
        translate("not pulled"),
        ((row.path, row.reason) for row in report.refused),
        len(report.refused),
    )
    _print_problems(
        name,
        translate("beside"),
        ((row.path, row.reason) for row in report.beside),
        len(report.beside),
    )
    links = (
        (path, translate("is a link to {target}: not followed", target=target))
        for path, target in report.links
    )
    _print_problems(name, translate("link"), links, len(report.links))
    for folder in report.folders:
        found = translate("complete here, {files}", files=how_many(folder.files, "file"))
        # One example; --json has all of them.
        if folder.missing:
            path, reason = folder.missing[0]
            first = path.removeprefix(folder.path.rstrip("/") + "/")
            more = ""
            if len(folder.missing) > 1:
                more = translate(" (and {missing:,} more)", missing=len(folder.missing) - 1)
            found = translate(
                "incomplete: {first}: {reason}{more}",
                first=first,
                reason=show_recorded(reason),
                more=more,
            )
        print_lines(f"{name}: {folder.path}: {replace_surrogates(found)}")
    if report.unconfirmed:
        print_error(
            translate(
                "{name}: incomplete: the box could not list its results at the end, so files "
                "may be missing here: {unconfirmed}; run rgt pull again",
                name=name,
                unconfirmed=report.unconfirmed,
            )
        )
    if report.left_out:
        # Maximum rules that left out files, the largest first; `rgt down` shows all.
        rules_shown = 3
        largest = sorted(report.left_out, key=lambda rule: -rule.bytes)[:rules_shown]
        rules = ", ".join(f"{rule.rule} ({size(rule.bytes)})" for rule in largest)
        print_lines(
            translate(
                "{name}: not results, by their location: {rules}; `results` in the fleet "
                "file adds files",
                name=name,
                rules=rules,
            )
        )
    if report.unclaimed:
        _print_unclaimed(report)
    if report.uncounted:
        print_error(
            translate("{name}: and {uncounted:,} more", name=name, uncounted=report.uncounted)
        )


def _print_unclaimed(report: PullReport) -> None:
    """Print the unclaimed directories; all of them if they make the copy incomplete."""
    name, groups = report.box, sorted(report.unclaimed, key=lambda group: -group.bytes)
    directories = how_many(len(groups), "directory", "directories")
    total = f"{size(sum(group.bytes for group in groups))} in {directories}"
    # Small files are mentioned, but do not make the copy incomplete (--unclaimed).
    if not report.too_much_unclaimed:
        print_lines(
            translate(
                "{name}: not pulled, claimed by no job, run or `results`: {total}: rgt pull "
                "{name} PATH",
                name=name,
                total=total,
            )
        )
        return
    print_error(
        translate(
            "{name}: incomplete: {total} claimed by no job, run or `results`; rgt pull "
            "{name} PATH brings one, `results` in the fleet file always brings it, "
            "`ignore` never",
            name=name,
            total=total,
        )
    )
    rows = [
        (group.path, f"{how_many(group.files, 'file')}, {size(group.bytes)}") for group in groups
    ]
    _print_problems(name, translate("unclaimed"), rows, len(rows))


def make_utf8_report(report: PullReport) -> PullReport:
    """Return a report as valid UTF-8: undecodable bytes in names become U+FFFD."""
    return msgspec.structs.replace(
        report,
        destination=replace_surrogates(report.destination),
        roots=tuple(map(replace_surrogates, report.roots)),
        refused=tuple(
            RefusedFile(replace_surrogates(row.path), replace_surrogates(row.reason))
            for row in report.refused
        ),
        beside=tuple(
            RefusedFile(replace_surrogates(row.path), replace_surrogates(row.reason))
            for row in report.beside
        ),
        links=tuple(
            (replace_surrogates(path), replace_surrogates(target)) for path, target in report.links
        ),
        folders=tuple(
            msgspec.structs.replace(
                row,
                missing=tuple(
                    (replace_surrogates(path), replace_surrogates(reason))
                    for path, reason in row.missing
                ),
            )
            for row in report.folders
        ),
    )


def replace_surrogates(text: str) -> str:
    """Return a text without lone surrogates, which represent undecodable bytes."""
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def _print_problems(name: str, what: str, rows: Iterable[tuple[str, str]], count: int) -> None:
    # Maximum names of one kind that are printed; --json has all.
    shown = 50
    # On stderr like all problems: stdout has the result.
    for path, reason in list(rows)[:shown]:
        print_error(
            f"{name}: {what}: {replace_surrogates(path)}: "
            f"{replace_surrogates(show_recorded(reason))}"
        )
    if count > shown:
        print_error(
            translate(
                "{name}: {what}: and {count:,} more (rgt pull --json names them)",
                name=name,
                what=what,
                count=count - shown,
            )
        )
