"""The ``reconcile`` verb: compares queue cells with their copies on durable storage."""

from __future__ import annotations

import os
import sys

from rgt_box import files, jsonline, options
from rgt_box.background import error_text
from rgt_box.commands import file_tree, hashing
from rgt_box.queue import queue_state
from rgt_box.queue.durable_copy import MANIFEST, ExpectedFiles, locate_copy, read_manifest
from rgt_box.queue.queue_file import Job, QueueLine
from rgt_box.sampling import free_space

TYPE_CHECKING = False
if TYPE_CHECKING:
    from rgt_wire import JsonObject

CHECKPOINT = "manifest.json"


def read_listing(folder: str, paths: list[bytes]) -> ExpectedFiles:
    """Return the expected files of `folder`, from its manifest or its checkpoints' manifests.

    Args:
        folder: A durable copy.
        paths: Paths of the files in it.
    """
    if MANIFEST.encode() in paths:
        return read_manifest(folder)
    listing = ExpectedFiles()
    suffix = CHECKPOINT.encode()
    for path in paths:
        if path == suffix or path.endswith(b"/" + suffix):
            _read_checkpoint(folder, path, listing)
    return listing


def _read_checkpoint(folder: str, path: bytes, listing: ExpectedFiles) -> None:
    content = files.read_json(os.path.join(folder, os.fsdecode(path))) or {}
    listed = content.get("files")
    if not isinstance(listed, dict):
        return  # another program's manifest.json
    # The trainer's steps have their own checksums. Only files that leave the box (`best`) have the
    # SHA-256 compared here.
    listed = {
        name: facts
        for name, facts in listed.items()
        if not (isinstance(facts, dict) and _has_only_crc(facts))
    }
    if not listed:
        return
    listing.found = True
    base = path[: -len(CHECKPOINT)]
    for name, facts in listed.items():
        if isinstance(facts, dict):
            known = facts
        else:
            known = {}
        listing.add_file(
            base + os.fsencode(name), known.get("size"), known.get("sha256"), os.fsdecode(path)
        )


def _has_only_crc(facts: JsonObject) -> bool:
    return "crc32" in facts and "sha256" not in facts


OK, MISSING, ZERO, DAMAGED, UNPROVEN, UNREADABLE = (
    "ok", "missing", "zero-byte", "damaged", "unproven", "unreadable",
)  # fmt: skip


def verify_copy(folder: str, keep: list[str]) -> JsonObject:
    """Return ``status``, ``reason``, ``files``, ``bytes`` and the affected ``paths``.

    Args:
        folder: The durable copy of one cell.
        keep: Files that the job keeps: they must not be empty, even if the manifest says so.
    """
    try:
        entries = [
            (entry.path, entry.kind, entry.stat, entry.text)
            for entry in file_tree.walk_tree(folder)
        ]
    except OSError as error:
        return _verdict(UNREADABLE, error_text(error), [])
    sizes = {
        path: stat.st_size
        for path, kind, stat, _ in entries
        if kind == file_tree.FILE and stat is not None
    }
    broken = [path for path, kind, _, _ in entries if kind == file_tree.ERROR]
    facts = {"files": len(sizes), "bytes": sum(sizes.values())}
    if broken:
        return dict(_verdict(UNREADABLE, entries[0][3] or "cannot be listed", broken), **facts)
    if not set(sizes) - {MANIFEST.encode()}:
        return dict(_verdict(MISSING, "the durable directory is empty", []), **facts)
    listed = read_listing(folder, sorted(sizes))
    kept = {os.fsencode(path) for path in keep}
    # A manifest written from an empty file would agree with it: files that the job keeps are
    # checked without it.
    empty = [
        path
        for path, size in sizes.items()
        if not size and (path in kept or listed.entries.get(path, (1, ""))[0])
    ]
    if empty:
        return dict(_verdict(ZERO, "%d empty" % len(empty), empty), **facts)
    if listed.problem:
        return dict(_verdict(DAMAGED, listed.problem, []), **facts)
    if not listed.found:
        return dict(_verdict(UNPROVEN, "no manifest says what it should hold", []), **facts)
    return dict(_compare_with_listing(folder, sizes, listed), **facts)


def _compare_with_listing(
    folder: str, sizes: dict[bytes, int], listed: ExpectedFiles
) -> JsonObject:
    gone = [path for path in listed.entries if path not in sizes]
    # Missing files are found without hashing the others.
    if gone:
        return _verdict(
            DAMAGED, "%d of %d files are missing" % (len(gone), len(listed.entries)), gone
        )
    altered = []
    for path, (size, digest) in sorted(listed.entries.items()):
        try:
            same = (
                sizes[path] == size
                and hashing.hash_path(os.path.join(os.fsencode(folder), path)) == digest
            )
        except OSError as error:
            return _verdict(UNREADABLE, error_text(error), [path])
        if not same:
            altered.append(path)
    if altered:
        return _verdict(
            DAMAGED, "%d of %d files differ" % (len(altered), len(listed.entries)), altered
        )
    return dict(_verdict(OK, None, []), verified=len(listed.entries))


def _verdict(status: str, reason: str | None, paths: list[bytes]) -> JsonObject:
    found: JsonObject = {"status": status}
    if reason:
        found["reason"] = reason
    if paths:
        # Files named per cell; the count is exact.
        shown = 20
        found["paths"] = [file_tree.name_fields(path) for path in sorted(paths)[:shown]]
    return found


HELP = """
usage: reconcile --job DIR [--job DIR ...] [--durable DIR]

Compare every cell of the queue files with its copy on durable storage and print one JSON object: "ok", "counts" by
status, "cells" ({"name", "job", "line", "status", "reason", "durable", "state", "files", "bytes", "verified",
"paths"}), "extra" (what is there but belongs to no cell) and "problems". Every file of a copy is read and hashed again.

A status is one of
  ok          every file is there with the size and hash of its manifest
  missing     there is no copy, or an empty directory
  zero-byte   a file is empty that should not be
  damaged     a file differs from the manifest or is missing
  duplicate   two lines share a name, or two cells a directory
  never-ran   it was never attempted
  not-done    there is a copy, but the queue does not call the cell done: it is from an earlier run
  unproven    there is a copy without a manifest
  unreadable  it cannot be read

  --durable DIR   where to look instead: DIR/NAME, or DIR with {name} in it

Exit status: 0 every cell is ok, 1 one is not, 2 unknown (unproven, unreadable, storage not mounted, no queue) or
wrong command line.

Example: reconcile --job ~/jobs/sweep --durable /mnt/results
"""
UNKNOWN = (UNPROVEN, UNREADABLE)


def main(argv: list[str]) -> int:
    """Run the verb; returns the exit status."""
    found = options.parse_or_exit(argv, {"--job": "list", "--durable": "str"}, HELP)
    if not found["job"]:
        print("--job DIR is missing (see --help)", file=sys.stderr)
        return 2
    report = reconcile([Job(folder) for folder in found["job"]], found["durable"])
    jsonline.print_frame(report)
    bad = [status for status in report["counts"] if status != OK]
    # A known fault counts more than an unknown status.
    if set(bad) - set(UNKNOWN):
        return 1
    if bad or report["problems"]:
        return 2
    return 0


def reconcile(jobs: list[Job], durable: str | None = None) -> JsonObject:
    """Return the report.

    Args:
        jobs: Jobs whose cells are expected.
        durable: Directory to use instead of the jobs' own durable directories.
    """
    problems: list[str] = []
    cells: list[JsonObject] = []
    owners: dict[str, JsonObject] = {}
    for job in jobs:
        lines, found = job.read_all_lines()
        if not lines:
            problems += found or [f"{job.path('queue.txt')}: has no cells"]
        problem = _unreachable(job, lines, durable)
        if problem:
            problems.append(problem)
        state = queue_state.cells_by_name(queue_state.load_state(job))
        for line in lines:
            cell = _reconcile_cell(job, line, state, copy_folder(job, line.name, durable), problem)
            cells.append(cell)
            if line.twin is None and cell["durable"]:
                _claim_copy_folder(cell, owners)
    counts: dict[str, int] = {}
    for cell in cells:
        counts[cell["status"]] = counts.get(cell["status"], 0) + 1
    whole = not problems and bool(cells) and set(counts) == {OK}
    return {
        "ok": whole, "counts": counts, "cells": cells, "extra": list_unowned_entries(owners),
        "problems": problems,
    }  # fmt: skip


def copy_folder(job: Job, name: str, durable: str | None) -> str | None:
    """Return where the copy of a cell should be."""
    if durable is None:
        return job.durable_folder(name)
    folder = os.path.abspath(os.path.expanduser(durable))
    if "{name}" in folder:
        return folder.replace("{name}", name)
    return os.path.join(folder, name)


def _unreachable(job: Job, lines: list[QueueLine], durable: str | None) -> str | None:
    """Return why a job's copies cannot be checked, instead of reporting them as missing."""
    if not lines:
        return None
    first = copy_folder(job, lines[0].name, durable)
    if first is None:
        return (
            f"{job.source.line_of_key('durable')}: names no durable directory; give --durable DIR"
        )
    base = os.path.dirname(first)
    _, error = free_space.measure_free_space(base)
    if error:
        return f"{base}: {error}"
    known = queue_state.load_state(job)["cells"]
    copied = any(cell.get("durable") == "verified" for cell in known)
    # Before any copy was made, a missing directory is normal; afterwards its disk is probably not
    # mounted, and "missing" would be a false alarm for every cell.
    if not os.path.isdir(base) and (copied or not known):
        return f"{base} does not exist; is its storage mounted?"
    return None


def _reconcile_cell(
    job: Job,
    line: QueueLine,
    known: dict[str, JsonObject],
    folder: str | None,
    problem: str | None,
) -> JsonObject:
    state = known.get(line.name)
    cell: JsonObject = {
        "name": line.name,
        "job": job.folder,
        "line": line.number,
        "durable": folder,
    }
    if state:
        cell["state"] = state.get("state")
    else:
        cell["state"] = None
    if line.twin is not None:
        return dict(
            cell,
            status="duplicate",
            reason="lines %d and %d have the same name" % (line.twin.number, line.number),
        )
    if problem or folder is None:
        return dict(cell, status=UNREADABLE, reason=problem or "no durable directory")
    # A crash while a copy was replaced leaves it under another name.
    folder = cell["durable"] = locate_copy(folder)
    if not os.path.lexists(folder):
        return dict(cell, **_missing_copy_status(state, bool(known)))
    found = verify_copy(folder, [str(path) for path in job.settings["keep"]])
    # A complete copy of a cell that the queue does not call done is that of an earlier run.
    if found["status"] == OK and state is not None and state.get("state") != "done":
        found.update(status="not-done", reason=f"the queue state is {state.get('state')}")
    return dict(cell, **found)


def _missing_copy_status(state: JsonObject | None, any_known: bool) -> JsonObject:
    """Return the status of a missing copy: lost, or never produced."""
    if any_known and (state is None or not state.get("attempts")):
        return {"status": "never-ran", "reason": "it was never attempted"}
    if state is None:
        return {
            "status": MISSING,
            "reason": "no copy, and no state.json, so it is unknown whether it ever ran",
        }
    reason = ""
    if state.get("reason"):
        reason = f": {state['reason']}"
    return {"status": MISSING, "reason": f"no copy; the queue state is {state['state']}{reason}"}


def _claim_copy_folder(cell: JsonObject, owners: dict[str, JsonObject]) -> None:
    """Mark both cells as duplicates if another cell already uses this directory."""
    other = owners.setdefault(os.path.realpath(cell["durable"]), cell)
    if other is not cell:
        for one, two in ((cell, other), (other, cell)):
            one.update(
                status="duplicate",
                reason="shares its directory with line %d of %s" % (two["line"], two["job"]),
            )


def list_unowned_entries(owners: dict[str, JsonObject]) -> list[str]:
    """Return up to 100 entries next to the copies that belong to no cell.

    Partial copies are included.
    """
    found: list[str] = []
    for base in sorted({os.path.dirname(path) for path in owners}):
        try:
            names = sorted(os.listdir(base))
        except OSError:
            continue
        found += [
            path for path in (os.path.join(base, name) for name in names) if path not in owners
        ]
    return found[:100]
