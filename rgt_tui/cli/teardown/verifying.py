"""``rgt verify``: prove that a directory of results is complete and loads."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from rgt_tui.cli.commands import FAILED, INTERRUPTED, OK, USAGE
from rgt_tui.cli.printing import format_row, json_line, print_error
from rgt_tui.cli.teardown.money_arguments import VerifyArguments
from rgt_tui.files import state_directory
from rgt_tui.fleet.work.job_file import JobFileError, read_job_file
from rgt_tui.fleet.work.queue_split import NoQueue, parse_lines
from rgt_tui.language import show_recorded, translate
from rgt_tui.model import clean_text, how_many, pct
from rgt_tui.transfer import (
    CopiedFile,
    FolderRow,
    LedgerError,
    NotVerifiable,
    Verification,
    iterate_copies,
    verify_directory,
)

STYLES = {"complete": "green", "unproven": "yellow", "error": "bold red"}


def run_verify(arguments: VerifyArguments) -> int:
    """Verify; return the exit status."""
    cells: tuple[str, ...] = ()
    try:
        if arguments.roster:
            # Read first: a wrong queue file should be found before hours of hashing.
            if arguments.roster.endswith(".toml"):
                lines = read_job_file(Path(arguments.roster)).queue_lines()
            else:
                text = Path(arguments.roster).read_text(encoding="utf-8")
                lines = parse_lines(text, arguments.roster)
            cells = tuple(line.name for line in lines)
        with _progress_status() as progress:
            found = verify_directory(
                Path(arguments.directory),
                arguments.expect,
                # The ledgers of all boxes: a directory may hold results of several, or may have
                # been moved here.
                pulled=iterate_pulled(),
                renew=arguments.renew,
                with_torch=not arguments.no_torch,
                progress=progress,
            )
    except (OSError, UnicodeDecodeError) as error:
        print_error(
            translate("cannot read {roster}: {error}", roster=arguments.roster, error=error)
        )
        return USAGE
    except (NotVerifiable, LedgerError, NoQueue, JobFileError) as error:
        print_error(error)
        return USAGE
    except KeyboardInterrupt:
        print_error(translate("interrupted; nothing was written"))
        os._exit(INTERRUPTED)  # a normal exit would wait for threads that still read a large file
    loaded = count_loaded(found, cells)
    lacking = [cell for cell, number in loaded.items() if not number]
    if arguments.json:
        body = as_json(found)
        # A cell without a checkpoint is no error of a file, so `found` does not know of it.
        if arguments.roster:
            body["cells"] = loaded
            body["ok"] = found.ok and not lacking
        sys.stdout.buffer.write(json_line(body))
        sys.stdout.buffer.flush()
    else:
        sys.stdout.write(as_text(found))
        for cell in lacking:
            sys.stdout.write(
                translate("cell {cell}: no complete checkpoint that loads\n", cell=cell)
            )
        if cells:
            whole = len(cells) - len(lacking)
            sys.stdout.write(
                translate(
                    "roster: {whole} of {cells} complete\n",
                    whole=whole,
                    cells=how_many(len(cells), "cell"),
                )
            )
    if found.ok and not lacking:
        return OK
    return FAILED


def count_loaded(found: Verification, cells: Sequence[str]) -> dict[str, int]:
    """Return for each cell how many complete checkpoints are below a directory of its name."""
    parts = [Path(each.path).parts for each in found.checkpoints]
    # By whole parts of a path: a cell "a" must not count the checkpoints of "ab".
    return {cell: sum(cell in path for path in parts) for cell in cells}


def iterate_pulled() -> Iterator[CopiedFile | FolderRow]:
    """Yield the files pulled to this machine from any box, and their directories on the box.

    Raises:
        LedgerError: A ledger cannot be used.
    """
    # Sorted, so that of two records of a file the same one counts each time.
    for path in sorted((state_directory(os.environ) / "pulled").glob("*.jsonl")):
        yield from iterate_copies(path)


def as_json(found: Verification) -> dict[str, Any]:
    """Return the object for ``--json``; the first four keys are stable."""
    return {
        "ok": found.ok,
        "files": found.files,
        "bytes": found.bytes,
        "errors": [{"path": each.path, "reason": each.reason} for each in found.errors],
        "checkpoints": [
            {"path": each.path, "kind": each.kind, "how": each.how} for each in found.checkpoints
        ],
        "unproven": [{"path": each.path, "reason": each.reason} for each in found.unproven],
        "only_hashed": found.only_hashed,
        "torch": found.torch or None,
        "directory": found.directory,
    }


def as_text(found: Verification) -> str:
    """Return the text for a person: what is complete, what is unproven and why, what is wrong."""
    rows = [
        *(
            ("complete", each.path, f"{each.kind}: {show_recorded(each.how)}")
            for each in found.checkpoints
        ),
        *(("unproven", each.path, show_recorded(each.reason)) for each in found.unproven),
        *(("error", each.path, show_recorded(each.reason)) for each in found.errors),
    ]
    shown: list[str] = []
    counts = dict.fromkeys(STYLES, 0)
    # Maximum lines of one kind; further ones are counted, and all are in the record.
    most_lines = 200
    for kind, path, text in rows:
        counts[kind] += 1
        if counts[kind] <= most_lines:
            shown.append(format_row([(translate(kind), 8, STYLES[kind])], f"{path}: {text}"))
    for kind, count in counts.items():
        if count > most_lines:
            shown.append(
                translate(
                    "… and {count} more of the kind {kind}\n",
                    count=count - most_lines,
                    kind=translate(kind),
                )
            )
    if found.no_torch:
        shown.append(
            translate(
                "files of torch.save were checked, but not loaded: {no_torch}\n",
                no_torch=clean_text(show_recorded(found.no_torch)),
            )
        )
    if found.only_hashed:
        if found.only_hashed == 1:
            files = translate("1 file was")
        else:
            files = translate("{only_hashed:,} files were", only_hashed=found.only_hashed)
        shown.append(
            translate("{files} only hashed: no record of what they should contain\n", files=files)
        )
    if found.ok:
        word = translate("verified")
    else:
        word = translate("NOT verified")
    counted = (
        (found.files, "file"),
        (found.bytes, "byte"),
        (len(found.checkpoints), "complete checkpoint"),
        (len(found.errors), "error"),
    )
    shown.append(f"{word}: " + ", ".join(how_many(n, what) for n, what in counted) + "\n")
    return "".join(shown)


@contextlib.contextmanager
def _progress_status() -> Iterator[Any]:
    """Show the progress on a terminal; silent elsewhere."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console

    with Console(stderr=True).status("verifying", spinner="line") as status:
        yield lambda done, total, path: status.update(f"{pct(100 * done / max(1, total))} hashed")
