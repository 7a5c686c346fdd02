"""The ``push`` verb: plan, receive and publish a push, and list or remove versions."""

from __future__ import annotations

import os
import stat
import sys
import time

from rgt_box import background, files, jsonline, options
from rgt_box.commands import hashing
from rgt_box.commands.hashing import HashCache, default_path
from rgt_box.push import code_versions, push_staging
from rgt_box.push.push_staging import BadManifest, PushManifest
from rgt_box.queue import queue_file

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable, NamedTuple

    from rgt_wire import JsonObject


HELP = """
usage: push plan                              manifest on stdin; print what is missing, and whether it fits
       push take --staging DIR                write pieces from stdin: "HASH OFFSET LENGTH" and a newline, then bytes;
                                              with a fourth number, so many bytes that are a zlib stream of them
       push publish --staging DIR             check every hash, and put everything in its place
       push list --place DIR [--job DIR]...   list versions of code, and who uses each
       push prune --place DIR [--job DIR]... [--shared] [--dry-run]   remove versions not known to be in use

Code goes to PLACE/NAME-HASH, and the link PLACE/NAME to it is switched at once; a version is never changed again.
Data goes to its place file by file; a file that a process has open is not replaced, nor a newer one unless the
manifest says so. An interrupted push is resumed by the next plan.

  --job DIR   a job directory that may refer to a version
  --shared    also where other machines may share the file system: promises that none of them runs it

Each prints one line of JSON. Exit status: 0 done (see "refused" in it), 2 wrong command line or manifest, 3 another
push of the same is running, 74 no room.

Example: push list --place ~/rgt-code
"""
SPEC = {
    "--staging": "str",
    "--place": "str",
    "--job": "list",
    "--shared": "flag",
    "--dry-run": "flag",
}
USAGE, BUSY, NO_ROOM = 2, 3, 74
TAKE_WAITS_S = 20.0
"""Seconds to wait for another running take of the same push: one that was just killed may still
have data in transit.
"""
FULL = (28, 122)
"""ENOSPC and EDQUOT."""


def main(argv: list[str]) -> int:
    """Run the verb; return the exit status."""
    actions: dict[str, Callable[[JsonObject], int]] = {
        "plan": plan_push,
        "take": receive_pieces,
        "publish": publish_push,
        "list": print_versions,
        "prune": prune_versions,
    }
    if not argv or argv[0] not in actions:
        return options.refuse_verb(argv, HELP)
    found = options.parse_or_exit(argv[1:], SPEC, HELP)
    if argv[0] in ("take", "publish"):
        needs = "staging"
    elif argv[0] in ("list", "prune"):
        needs = "place"
    else:
        needs = ""
    if needs and not found[needs]:
        print(f"push: --{needs} DIR is missing", file=sys.stderr)
        return USAGE
    try:
        return actions[argv[0]](found)
    except (BadManifest, ValueError, TypeError) as error:
        print(f"push: {error}", file=sys.stderr)
        return USAGE
    except OSError as error:
        where = error.filename or found["staging"] or found["place"] or ""
        print(f"push: {background.write_error_text(error, where)}", file=sys.stderr)
        if error.errno in FULL:
            return NO_ROOM
        return USAGE


def plan_push(_: JsonObject) -> int:
    """Print the missing contents; write nothing if the push does not fit or is refused."""
    told = jsonline.loads_dict(sys.stdin.buffer.read(push_staging.MOST + 1))
    manifest = PushManifest(told or {})
    cache = HashCache(default_path())
    answer: JsonObject = {
        "staging": manifest.staging_folder,
        "place": manifest.place,
        "there": None,
        "wanted": [],
        "refused": [],
        "same": 0,
    }
    digests = list(manifest.sizes_by_digest())
    if manifest.kind == "code":
        why = code_versions.find_obstacles(manifest)
        if why:
            push_staging.print_answer(dict(answer, blocked=why))
            return 0
        answer["there"] = code_versions.find_complete_version(manifest.place, manifest, cache)
        if answer["there"]:
            digests = []
        if answer["there"]:
            making = 0
        else:
            making = len(manifest.files) + len(manifest.links) + len(manifest.needed_folders()) + 8
    else:
        found = sort_data(manifest, cache)
        answer.update(refused=found.refused, same=len(found.same))
        going = set(found.going)
        digests = list({row[2]: 0 for row in manifest.files if row[0] in going})
        making = len(going) + len(manifest.needed_folders()) + 8
    wanted = push_staging.list_wanted(manifest, digests, cache)
    sizes = manifest.sizes_by_digest()
    copies = 0
    if manifest.kind == "code":
        copies = sum(row[1] for row in manifest.files) - sum(sizes.values())
    needed = sum(sizes[digest] - have for digest, have in wanted) + (copies if digests else 0)
    answer["room"] = push_staging.measure_room(manifest, needed, making if digests else 0)
    if is_short(answer["room"]) or (told or {}).get("dry_run"):
        push_staging.print_answer(dict(answer, wanted=wanted))
        cache.close()
        return 0
    push_staging.create_staging(manifest)
    if manifest.kind == "code":
        still = set(code_versions.copy_from_versions(manifest, [digest for digest, _ in wanted]))
        wanted = [row for row in wanted if row[0] in still]
    cache.close()
    push_staging.print_answer(dict(answer, wanted=wanted))
    return 0


def is_short(room: JsonObject) -> bool:
    """Return whether it does not fit, or that is unknown."""
    if "error" in room:
        return True
    inodes = room["free_inodes"]
    return bool(
        room["needed_bytes"] > room["free_bytes"]
        or (inodes is not None and room["needed_inodes"] > inodes)
    )


def receive_pieces(found: JsonObject) -> int:
    """Write the pieces from standard input."""
    held = files.FileLock(os.path.join(found["staging"], "take.lock"))
    if not held.acquire(TAKE_WAITS_S):
        print("push: the same push is already running", file=sys.stderr)
        return BUSY
    total = push_staging.write_pieces(found["staging"], sys.stdin.buffer)
    held.release()
    push_staging.print_answer({"took": total})
    return 0


def publish_push(found: JsonObject) -> int:
    """Move the received files to their places."""
    manifest = push_staging.load_manifest(found["staging"])
    held = files.FileLock(os.path.join(manifest.place, push_staging.FOLDER, "publish.lock"))
    if not held.acquire(60.0):
        print(f"push: another push to {manifest.place} is being published", file=sys.stderr)
        return BUSY
    cache = HashCache(default_path())
    answer: JsonObject = {"damaged": [], "refused": [], "same": 0, "placed": 0}
    code = manifest.kind == "code"
    if code:
        there = code_versions.find_complete_version(manifest.place, manifest, cache)
    else:
        there = None
    if there:
        going = set()
    else:
        going = {row[0] for row in manifest.files}
    if not code:
        going = set(sort_data(manifest, cache).going)
    digests = list({row[2]: 0 for row in manifest.files if row[0] in going})
    # Staged files may have been damaged or cut since; the client then sends them again.
    answer["damaged"] = [digest for digest, _ in push_staging.list_wanted(manifest, digests, cache)]
    if answer["damaged"]:
        push_staging.print_answer(answer)
        return 0
    if code:
        why = code_versions.find_obstacles(manifest)
        version = there or code_versions.publish_version(manifest)
        answer.update(
            path=os.path.join(manifest.place, version), placed=len(going), same=len(manifest.files)
        )
        answer["same"] -= answer["placed"]
        if why:
            answer["refused"] = [[manifest.name, why]]
        else:
            code_versions.switch_link(manifest, version)
            answer["link"] = os.path.join(manifest.place, manifest.name)
    else:
        done = publish_data(manifest, cache)
        answer.update(
            path=manifest.place, placed=len(done.going), same=len(done.same), refused=done.refused
        )
    cache.close()
    push_staging.remove_folder(manifest.staging_folder)
    push_staging.print_answer(answer)
    return 0


def print_versions(found: JsonObject) -> int:
    """Print the versions of code in a place."""
    place = os.path.abspath(os.path.expanduser(found["place"]))
    rows = code_versions.list_versions(place, _list_jobs(found))
    unfinished = code_versions.unfinished(place, time.time(), remove=False)
    push_staging.print_answer({"place": place, "versions": rows, "unfinished": unfinished})
    return 0


def prune_versions(found: JsonObject) -> int:
    """Remove the versions without known users."""
    place = os.path.abspath(os.path.expanduser(found["place"]))
    jobs = _list_jobs(found)
    rows = code_versions.list_versions(place, jobs, bool(found["shared"]))
    if not found["dry-run"]:
        rows = code_versions.remove_unused(place, rows, jobs)
    unfinished = code_versions.unfinished(place, time.time(), remove=not found["dry-run"])
    push_staging.print_answer({"place": place, "versions": rows, "unfinished": unfinished})
    return 0


def _list_jobs(found: JsonObject) -> list[str]:
    """Return the job directories given, and those that rgt has made here."""
    top = os.path.expanduser(queue_file.JOBS)
    try:
        made = [os.path.join(top, name) for name in sorted(os.listdir(top))]
    except OSError:
        made = []
    jobs = [*found["job"], *filter(os.path.isdir, made)]
    return list(dict.fromkeys(jobs))


# Put pushed data into place, file by file and verified; files in use or newer are not replaced.


if TYPE_CHECKING:

    class SortedFiles(NamedTuple):
        """The files of a push, by what will happen to them."""

        same: list[str]
        """They already exist with this content."""
        going: list[str]
        """They are written, or replace an older file."""
        refused: list[tuple[str, str]]
        """(path, why)."""
else:
    from collections import namedtuple

    SortedFiles = namedtuple("SortedFiles", "same going refused")


def sort_data(manifest: PushManifest, cache: hashing.HashCache) -> SortedFiles:
    """Compare the files of a push with the existing files.

    Args:
        manifest: The push.
        cache: Known hashes of files on this box.
    """
    found = SortedFiles([], [], [])
    replaced = []
    for path, size, digest, mtime, _ in manifest.files:
        target = os.path.join(manifest.place, path)
        why = _why_unwritable(manifest.place, target)
        if why:
            found.refused.append((path, why))
            continue
        try:
            seen = os.lstat(target)
        except OSError:
            found.going.append(path)
            continue
        if seen.st_size == size and push_staging.is_right(target, digest, cache):
            found.same.append(path)
        # Perhaps a result, or an edit on the box.
        elif seen.st_mtime_ns > mtime and not manifest.replace:
            found.refused.append((path, "the file on the box is newer and differs"))
        else:
            replaced.append((path, target))
    for path, why in _in_use(manifest, replaced):
        found.refused.append((path, why))
    refused = {path for path, _ in found.refused}
    found.going.extend(path for path, _ in replaced if path not in refused)
    for path, wanted in manifest.links:
        why = _why_unwritable(manifest.place, os.path.join(manifest.place, path), wanted)
        if why:
            found.refused.append((path, why))
    return found


def _in_use(manifest: PushManifest, replaced: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return the files to be replaced that a process uses, or may use."""
    if not replaced:
        return []
    held = code_versions.find_open_paths([target for _, target in replaced])
    found = []
    for path, target in replaced:
        # A known use always protects; --replace only overrules what could not be checked.
        why = held.users_of(target) or ([] if manifest.replace else held.doubts)
        if why:
            found.append((path, why[0]))
    return found


def _why_unwritable(place: str, target: str, link: str | None = None) -> str:
    """Return why nothing can be written at a path; "" if a file may be."""
    folder = os.path.dirname(target)
    # Both resolved: a link on the box must not lead the push out of its directory.
    real = os.path.realpath(folder)
    inside = os.path.realpath(place)
    if not files.is_below(real, inside):
        return f"{folder} is a link to a target outside {place}"
    while not os.path.lexists(real):
        real = os.path.dirname(real)
    if not os.path.isdir(real):
        return f"{real} is not a directory"
    try:
        seen = os.lstat(target)
    except OSError:
        return ""
    if link is not None:
        if stat.S_ISLNK(seen.st_mode) and os.readlink(target) == link:
            return ""
        return "something else is in its place"
    if not stat.S_ISREG(seen.st_mode):
        return "what is there is not a regular file"
    return ""


def publish_data(manifest: PushManifest, cache: hashing.HashCache) -> SortedFiles:
    """Move the staged files to their places, after checking these again.

    Raises:
        OSError: It cannot be written.
    """
    found = sort_data(manifest, cache)
    going = set(found.going)
    mask = os.umask(0)
    os.umask(mask)
    left: dict[str, int] = {}
    for row in manifest.files:
        if row[0] in going:
            left[row[2]] = left.get(row[2], 0) + 1
    for path, _, digest, mtime, executable in manifest.files:
        if path not in going:
            continue
        target = os.path.join(manifest.place, path)
        waiting = push_staging.blob_path(manifest, digest)
        os.makedirs(os.path.dirname(target), exist_ok=True)
        # Several files may have one content: the last one takes the staged file, others get copies.
        left[digest] -= 1
        source = waiting
        if left[digest]:
            source = waiting + ".one"
            if not push_staging.copy_content(waiting, digest, source):
                raise OSError(5, "what arrived differs from what was sent", path)
        os.chmod(source, (0o777 if executable else 0o666) & ~mask)
        os.utime(source, ns=(mtime, mtime))
        # Before the rename: after a crash, the name must not have a file without content.
        files.sync_path(source)
        os.rename(source, target)
    refused = {path for path, _ in found.refused}
    for path, wanted in manifest.links:
        target = os.path.join(manifest.place, path)
        if path not in refused and not os.path.lexists(target):
            os.makedirs(os.path.dirname(target), exist_ok=True)
            os.symlink(wanted, target)
    for folder in {os.path.dirname(os.path.join(manifest.place, path)) for path in going}:
        hashing.sync_folder(folder)
    return found
