"""The ``manifest`` verb: every file of a tree with size, SHA-256 and mtime, as JSON lines."""

from __future__ import annotations

import glob
import os
import sys

from rgt_box import jsonline, secret_store
from rgt_box.background import error_text
from rgt_box.commands import file_tree, hashing, results
from rgt_box.commands.hashing import HashCache, default_path

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Iterator

    from rgt_wire import JsonObject

HELP = """
usage: manifest PATH... [--out FILE] [--cache FILE | --no-cache] [--no-hash [--job DIR]...]

Print one JSON line for each file below each PATH, sorted: {"path", "size", "sha256", "mtime"}. A line {"root"}
precedes the files of each PATH. A link is named {"path", "link"} and never followed ("outside": true where it leads out
of PATH). What cannot be listed, changes while it is read, or is not a regular file is named {"path", "error"}. The last
line {"end": true, "files", "bytes", "links", "problems", "hashed", "cached"} shows that nothing is missing.
A name that is not UTF-8 also comes as "path_b64".

  --out FILE    write to FILE (through a temporary file and a rename) and print the last line only
  --cache FILE  where hashes are remembered; by default in the agent's state directory
  --no-cache    hash everything
  --no-hash     read no file: {"path", "stamp", "device"} instead, where stamp is [size, mtime_ns, ctime_ns, inode];
                "~", globs and links in PATH are resolved; {"root", "file": true} precedes what is not a directory;
                files of rgt itself below PATH (its agent, recordings and locks) are left out
  --job DIR     a job directory, whose locks are rgt's own, too

Exit status: 0 everything is listed, 1 something is not (see the lines with "error"), 2 wrong command line, or FILE
cannot be written.

Example: manifest /workspace/runs --out /workspace/manifest.jsonl
"""
SPEC = {
    "--out": "str",
    "--cache": "str",
    "--no-cache": "flag",
    "--no-hash": "flag",
    "--job": "list",
}


class ManifestTotals:
    """Totals of a manifest."""

    def __init__(self) -> None:
        self.files = self.bytes = self.links = self.problems = self.hashed = self.cached = 0

    def summary_row(self) -> JsonObject:
        """Return the final line."""
        return dict({"end": True}, **vars(self))


def main(argv: list[str]) -> int:
    """Run the verb; returns the exit status."""
    roots, found = file_tree.parse_words(argv, SPEC, HELP)
    if not roots:
        return file_tree.print_usage_error("manifest: PATH is required")
    cache: HashCache | None = None
    own_places: frozenset[bytes] = frozenset()
    if found["no-hash"]:
        own_places = frozenset(
            os.fsencode(os.path.realpath(at)) for at in results.own_places(found["job"])
        )
        roots = list(dict.fromkeys(path for root in roots for path in expand_path(root)))
    else:
        # Niceness: hashing must not slow down a training run.
        nice = 10
        os.nice(nice)
        roots = [os.path.expanduser(root) for root in roots]
        cache = HashCache(None if found["no-cache"] else found["cache"] or default_path())
    counts = ManifestTotals()
    try:
        if found["out"]:
            _to_file(found["out"], roots, cache, counts)
        else:
            _write_manifest(
                roots,
                cache,
                counts,
                sys.stdout.buffer.write,
                secret_store.secret_inodes(),
                own_places,
            )
        jsonline.print_frame(counts.summary_row())
    except BrokenPipeError:
        os.dup2(
            os.open(os.devnull, os.O_WRONLY), 1
        )  # otherwise the interpreter reports the error again at exit
        return 1
    except OSError as error:
        return file_tree.print_usage_error(
            f"manifest: {error.filename or found['out']}: {error_text(error)}"
        )
    finally:
        if cache is not None:
            cache.close()
    if counts.problems:
        return 1
    return 0


def expand_path(root: str) -> list[str]:
    """Expand ``~`` and globs to paths; returns the word itself if nothing matches."""
    path = os.path.expanduser(root)
    if os.path.lexists(path):
        return [path]
    return sorted(glob.glob(path)) or [path]


def _write_manifest(
    roots: list[str],
    cache: HashCache | None,
    counts: ManifestTotals,
    write: Callable[[bytes], Any],
    omitted: frozenset[tuple[int, int]],
    own_places: frozenset[bytes] = frozenset(),
) -> None:
    for root in roots:
        if cache is None:
            # `send` refuses a path that leads through a link, so links are resolved here.
            path = os.path.realpath(root)
        else:
            path = os.path.abspath(root)
        head = file_tree.name_fields(os.fsencode(path), "root")
        if cache is None and not os.path.isdir(path):
            head["file"] = True
        write(jsonline.encode_line(head))
        for row in iterate_rows(path, cache, counts, omitted, own_places):
            write(jsonline.encode_line(row))


def _to_file(path: str, roots: list[str], cache: HashCache | None, counts: ManifestTotals) -> None:
    temporary = path + ".part"  # a fixed name: a killed run's leftover is overwritten
    try:
        with open(temporary, "wb") as file:
            stat = os.fstat(file.fileno())
            omitted = secret_store.secret_inodes() | {(stat.st_dev, stat.st_ino)}
            _write_manifest(roots, cache, counts, file.write, omitted)
            file.write(jsonline.encode_line(counts.summary_row()))
            file.flush()
            # Before the rename: after a power cut, the name must not lead to an empty file.
            os.fsync(file.fileno())
        os.rename(temporary, path)
    except OSError:
        try:
            os.unlink(temporary)
        except OSError:
            pass
        raise


def iterate_rows(
    root: str,
    cache: HashCache | None,
    counts: ManifestTotals,
    omitted: frozenset[tuple[int, int]] = frozenset(),
    own_places: frozenset[bytes] = frozenset(),
) -> Iterator[JsonObject]:
    """Yield the lines of one tree.

    Args:
        root: A directory or a file.
        cache: Known hashes; None to hash nothing.
        counts: Updated with each line.
        omitted: (device, inode) of files not listed: the output itself, and secrets.
        own_places: Absolute paths of rgt's own files, left out unless `root` is inside one.
    """
    if secret_store.is_place(root):
        counts.problems += 1
        yield {"path": ".", "error": "contains secrets that rgt stores here: it stays on the box"}
        return
    top = os.fsencode(os.path.realpath(root)).rstrip(b"/") + b"/"
    inside = [path[len(top) :] for path in own_places if path.startswith(top)]
    try:
        for entry in file_tree.walk_tree(root):
            if any(
                entry.path == own_path or entry.path.startswith(own_path + b"/")
                for own_path in inside
            ):
                continue
            # By inode, so that a hard link or another path to a secret is left out, too.
            if entry.stat is not None and (entry.stat.st_dev, entry.stat.st_ino) in omitted:
                continue
            row = _entry_row(root, entry, cache, counts)
            if row is not None:
                counts.problems += "error" in row
                yield row
    except OSError as error:
        counts.problems += 1
        yield {"path": ".", "error": error_text(error)}


def _entry_row(
    root: str, entry: file_tree.TreeEntry, cache: HashCache | None, counts: ManifestTotals
) -> JsonObject | None:
    """Return the line of one entry; None for a directory, since its files are listed."""
    row = file_tree.name_fields(entry.path)
    try:
        if entry.kind == file_tree.FOLDER:
            return None
        if entry.kind == file_tree.FILE:
            return dict(row, **_file_fields(entry, cache, counts))
        if entry.kind == file_tree.LINK:
            counts.links += 1
            row.update(file_tree.name_fields(entry.read_link(), "link"))
            if file_tree.leads_outside(root, entry.path):
                return dict(row, outside=True)
            return row
    except hashing.FileChangedError as error:
        return dict(row, error=str(error), changed=True)
    except OSError as error:
        return dict(row, error=error_text(error))
    if entry.kind == file_tree.SPECIAL:
        text = f"is {entry.text}: neither read nor listed"
    else:
        text = entry.text
    return dict(row, error=text)


def _file_fields(
    entry: file_tree.TreeEntry, cache: HashCache | None, counts: ManifestTotals
) -> JsonObject:
    stat = entry.stat
    if cache is None and stat is not None:
        counts.files += 1
        counts.bytes += stat.st_size
        return hashing.listing_fields(stat)
    assert cache is not None
    if stat is not None:
        found = cache.get(stat)
    else:
        found = None
    if found is None or stat is None:
        found, stat = hashing.hash_unchanging_file(entry.open_file)
        cache.put(stat, found)
        counts.hashed += 1
    else:
        counts.cached += 1
    counts.files += 1
    counts.bytes += stat.st_size
    return {"size": stat.st_size, "sha256": found, "mtime": stat.st_mtime_ns / 10**9}
