"""Finds another trainer's complete checkpoints: checksums, a mirror, and the newest good one."""

from __future__ import annotations

import fcntl
import json
import math
import os
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Callable, Iterable, Iterator, Mapping
from urllib.parse import quote, unquote

from rgt_train import exits
from rgt_train.checkpoint import manifest, mirror_worker
from rgt_train.checkpoint.diskio import (
    StrPath,
    Unreadable,
    fsync_dir,
    make_dirs,
    remove_path,
    replace_file,
)
from rgt_train.checkpoint.manifest import CheckpointDamaged
from rgt_train.checkpoint.mirror_places import (
    MANIFEST,
    MirrorPlace,
    fetch_directory,
    open_place,
    step_items,
)
from rgt_train.checkpoint.mirror_worker import download_logs, read_place_manifest
from rgt_train.tracking.report import METRICS, print_line
from rgt_train.tracking.run_log import RUN_JSON

FOLDER = mirror_worker.PROVEN
"""Folder of the checksums in the run directory: the checkpoints stay as their trainer wrote them.
"""
_PLAIN = " =+,@"
"""Characters that stay unchanged in the name of a file in a mirror."""


@dataclass(frozen=True)
class ProvenCheckpoint:
    """A checkpoint with recorded checksums.

    Attributes:
        step: Its step.
        path: Its path.
        files: Name in the manifest → path.
        note: The manifest.
    """

    step: int
    path: str
    files: Mapping[str, str]
    note: bytes


def record_checksums(
    out: StrPath, step: int, path: StrPath, best: StrPath | None = None, attempt: int = 0
) -> ProvenCheckpoint:
    """Flush a checkpoint to the disk and record its checksums, so that `newest_good` knows it.

    Args:
        out: The run directory.
        step: The step of the checkpoint.
        path: The checkpoint, a file or a directory.
        best: The best checkpoint so far, according to its trainer.
        attempt: Number of this launch.

    Raises:
        OSError: The checkpoint cannot be read, or the note cannot be written.
    """
    whole = os.path.abspath(path)
    found = dict(_checkpoint_files(whole))
    folders = {os.path.dirname(whole)}
    for file in found.values():
        fd = os.open(file, os.O_RDONLY)
        try:
            # The trainer does not: after a crash of the machine, the checksums would be of lost
            # bytes.
            os.fsync(fd)
        finally:
            os.close(fd)
        folders.add(os.path.dirname(file))
    # The deepest first: a name is durable only in a folder that is.
    for folder in sorted(folders, reverse=True):
        fsync_dir(folder)
    about = {
        "path": _relative_path(out, whole),
        "single": os.path.isfile(whole),
        "attempt": attempt,
        "time": time.time(),
    }
    if best is not None:
        about["best"] = _relative_path(out, best)
    note = manifest.build_manifest(
        step, {name: _file_facts(file) for name, file in found.items()}, about
    )
    _store_note(out, _relative_path(out, whole), note)
    for other, body in _iterate_notes(out):
        if not os.path.lexists(os.path.join(out, body["path"])):
            remove_path(other)  # its trainer deleted the checkpoint
    return ProvenCheckpoint(step, whole, found, note)


def last_recorded_attempt(out: StrPath) -> int:
    """Return the last launch that recorded a checkpoint that still exists; 0 without one."""
    attempts = [int(body.get("attempt", 0)) for _, body in _iterate_notes(out)]
    return max(attempts, default=0)


@exits.raises_not_started
def newest_good(
    out: StrPath,
    there: Iterable[str],
    mirror: str = "",
    is_complete: Callable[[str], bool] = lambda path: True,
) -> str | None:
    """Return the newest checkpoint whose every byte matches its checksum; None without one.

    A launch that was killed in its very first save has recorded nothing: what that save left is
    moved to ``.rgt/unproven``, with a message, and the run begins at step 0.

    Args:
        out: The run directory.
        there: All existing checkpoints, recorded or not.
        mirror: Place of the second copies: a newer one is fetched from there. Empty for none.
        is_complete: Returns whether a checkpoint without checksums has all its files.

    Raises:
        NotStarted: There are some, and none of them is good: a run that begins at step 0 would
            overwrite them. Or there are none here, and the mirror does not answer.
    """
    told: list[str] = []
    there = list(there)
    with _single_fetcher(out, needed=bool(mirror or there)):
        found, unproven = _find_newest(out, there, told)
        if mirror:
            found = _fetch_newer(out, mirror, found, told)
        if found is None and not told and not os.path.isdir(os.path.join(out, FOLDER)):
            begun = _first_save_begun(out)
            while unproven and (
                os.path.getmtime(unproven[0]) > begun or not is_complete(unproven[0])
            ):
                _set_aside(out, unproven.pop(0))
    told += [f"{path}: no checksums were noted" for path in unproven]
    if found is not None:
        print_line(
            f"rgt: resuming from {found[1]}, step {found[0]}: every byte is as it was written"
        )
        return found[1]
    if told:
        raise exits.UsageError(
            f"{os.fspath(out)} has checkpoints, and none is known to be good: {'; '.join(told)}. "
            "Name the one to resume from yourself, or move them away to start over"
        )
    return None


def _first_save_begun(out: StrPath) -> float:
    """Return when the first launch began, if it began at step 0 and no save was finished since.

    Otherwise infinity.
    """
    try:
        with open(os.path.join(out, METRICS), encoding="utf-8") as file:
            events = [json.loads(line).get("event") for line in file]
        with open(os.path.join(out, RUN_JSON), encoding="utf-8") as file:
            begun = float(json.load(file)["first"]["time"])
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return math.inf
    if events[:1] == ["start"] and "checkpoint" not in events:
        return begun
    return math.inf


def _set_aside(out: StrPath, path: str) -> None:
    aside = os.path.join(out, ".rgt", "unproven", os.path.basename(path))
    make_dirs(os.path.dirname(aside))
    remove_path(aside)
    os.rename(path, aside)
    print_line(
        f"rgt: {path} was not finished by the first save, moved to {aside}: starting from step 0"
    )


def _find_newest(
    out: StrPath, there: Iterable[str], told: list[str]
) -> tuple[tuple[int, str] | None, list[str]]:
    """Return the newest good checkpoint here, and those without checksums."""
    noted = [
        (int(body["step"]), os.path.join(out, body["path"]), body)
        for _, body in _iterate_notes(out)
    ]
    notes = [note for note in noted if os.path.lexists(note[1])]
    # Without the notes themselves: mappings have no order.
    notes.sort(key=lambda note: note[:2])
    for step, path, body in reversed(notes):
        complaint = _complaint(path, body["files"])
        if not complaint:
            return (step, path), []
        told.append(f"{path}: {complaint}")
        print_line(f"rgt: passed over {told[-1]}")
    known = {os.path.abspath(path) for _, path, _ in notes}
    exist = [path for path in there if os.path.lexists(path)]
    return None, [path for path in exist if os.path.abspath(path) not in known]


def _fetch_newer(
    out: StrPath, mirror: str, found: tuple[int, str] | None, told: list[str]
) -> tuple[int, str] | None:
    """Fetch the checkpoint that the mirror has and `out` lacks; return the newest of both."""
    try:
        place = open_place(mirror)
        launch = os.urandom(8).hex()
        holder = mirror_worker.check_owner(place, os.fspath(out), launch, held=False)
        for item in reversed(step_items(place.list_names())):
            # Newest first, so the rest is older still.
            if found is not None and item.step <= found[0]:
                break
            try:
                found = item.step, _fetch_checkpoint(place, item.name, out)
            except Unreadable:
                raise
            except CheckpointDamaged as error:
                told.append(f"{mirror}/{item.name} is damaged: {error}")
                print_line(f"rgt: passed over {told[-1]}")
                continue
            _fetch_best(place, item.name, out)
            break
        logs = download_logs(place, os.fspath(out))
        if logs:
            print_line(f"rgt: fetched {' and '.join(logs)} from the mirror {mirror}")
        if holder is not None:
            # a full mirror can still be read; the next copy writes the note
            with suppress(OSError):
                mirror_worker.record_owner(place, os.fspath(out), holder)
    except OSError as error:
        if found is None:
            raise exits.UsageError(
                f"{os.fspath(out)} has no good checkpoint, and the mirror {mirror} does not "
                f"answer: {error}. Mend it, or launch without it to start from step 0"
            ) from error
        print_line(f"rgt: the mirror {mirror} does not answer: {error}; going on with what is here")
    return found


def _fetch_checkpoint(place: MirrorPlace, name: str, out: StrPath) -> str:
    """Fetch a checkpoint to its old place in the run directory; return its path.

    Raises:
        OSError: The place does not answer, or the local disk refuses.
        CheckpointDamaged: The copy there is incomplete, or differs from the checksums that
            `record_checksums` recorded.
    """
    staged = os.path.join(out, ".rgt", "fetched")
    make_dirs(os.path.dirname(staged))
    fetch_directory(place, name, staged)
    body = manifest.read_manifest(staged)
    with open(os.path.join(staged, MANIFEST), "rb") as file:
        note = file.read()
    remove_path(os.path.join(staged, MANIFEST))
    moves = {
        os.path.join(staged, flat): _path_inside(staged, unquote(flat)) for flat in body["files"]
    }
    for here, there in moves.items():
        if here != there:
            os.renames(here, there)
    kept = str(body.get("path", ""))
    target = _path_inside(out, kept)
    if os.path.lexists(target):  # already examined and found damaged
        aside = os.path.join(out, ".rgt", "damaged")
        remove_path(aside)
        os.rename(target, aside)
    make_dirs(os.path.dirname(target))
    _store_note(out, kept, note)
    os.rename(
        os.path.join(staged, os.path.basename(target)) if body.get("single") else staged, target
    )
    fsync_dir(os.path.dirname(target))
    remove_path(staged)
    print_line(f"rgt: fetched {name} from the mirror {place.url} to {target}")
    return target


def _fetch_best(place: MirrorPlace, name: str, out: StrPath) -> None:
    """Fetch the checkpoint that was the best when `name` was saved, if it is missing here."""
    best = read_place_manifest(place, name).get("best")
    if best is None or os.path.lexists(os.path.join(out, best)):
        return
    for item in reversed(step_items(place.list_names())):
        try:
            if read_place_manifest(place, item.name).get("path") == best:
                _fetch_checkpoint(place, item.name, out)
                return
        except CheckpointDamaged as error:
            print_line(f"rgt: the best checkpoint {item.name} is damaged in the mirror: {error}")


def _path_inside(folder: StrPath, name: str) -> str:
    """Return the path `name` below `folder`.

    Raises:
        CheckpointDamaged: It is not below it.
    """
    if not name or os.path.isabs(name) or ".." in name.split("/"):
        raise CheckpointDamaged(f"{name!r} is not below the run directory")
    return os.path.join(folder, name)


@contextmanager
def _single_fetcher(out: StrPath, *, needed: bool) -> Iterator[None]:
    """Let one rank of a machine fetch, and the others use the fetched files."""
    if not needed:
        yield
        return
    make_dirs(os.path.join(out, ".rgt"))
    fd = os.open(os.path.join(out, ".rgt", "lock"), os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)


def _relative_path(out: StrPath, path: StrPath) -> str:
    return os.path.relpath(path, os.path.abspath(out))  # a moved directory is still the same run


def _store_note(out: StrPath, kept: str, note: bytes) -> None:
    notes = os.path.join(out, FOLDER)
    make_dirs(notes)
    replace_file(os.path.join(notes, quote(kept, safe="") + ".json"), note)


def _complaint(path: str, files: Mapping[str, Any]) -> str:
    try:
        found = dict(_checkpoint_files(path))
        if set(found) != set(files):
            return (
                "other files than were written: "
                f"{', '.join(map(unquote, sorted(set(found) ^ set(files))))}"
            )
        for name, facts in files.items():
            if _file_facts(found[name], facts["chunk"]) != facts:
                return f"{unquote(name)} is not what was written"
    except OSError as error:
        return f"{type(error).__name__}: {error}"
    return ""


def _file_facts(file: str, chunk: int = manifest.CHUNK) -> dict[str, Any]:
    size = os.path.getsize(file)
    sums = [
        manifest.crc32_in(file, begin, min(chunk, size - begin))[0]
        for begin in range(0, size, chunk)
    ]
    return {"size": size, "crc32": sums, "chunk": chunk}


def _checkpoint_files(path: str) -> Iterator[tuple[str, str]]:
    """Yield the files of a checkpoint: name in its manifest and path."""
    if os.path.isfile(path):
        yield _flat_name(os.path.basename(path)), path
    for folder, _, names in os.walk(path):
        for name in names:
            file = os.path.join(folder, name)
            yield _flat_name(os.path.relpath(file, path)), file


def _flat_name(name: str) -> str:
    """Return a file name without folders, reversible by `unquote` and never the manifest's name."""
    if name == MANIFEST:
        return "%6Danifest.json"
    return quote(name, safe=_PLAIN)


def _iterate_notes(out: StrPath) -> Iterator[tuple[str, dict[str, Any]]]:
    folder = os.path.join(out, FOLDER)
    try:
        names = sorted(os.listdir(folder))
    except OSError:
        return
    for name in names:
        try:
            with open(os.path.join(folder, name), "rb") as file:
                yield os.path.join(folder, name), _parse_note(file.read())
        except (
            OSError,
            ValueError,
            KeyError,
            TypeError,
            AttributeError,
            CheckpointDamaged,
            exits.UsageError,
        ):
            continue  # a truncated note proves nothing


def _parse_note(raw: bytes) -> dict[str, Any]:
    body: dict[str, Any] = json.loads(raw)
    if "digest" in body:
        return manifest.parse_manifest(raw, FOLDER)
    files = {}
    # The form of the first versions: one checksum per file.
    for name, facts in body["files"].items():
        checksums = []
        if facts["bytes"]:
            checksums = [facts["crc32"]]
        files[_flat_name(name)] = {
            "size": int(facts["bytes"]),
            "crc32": checksums,
            "chunk": int(facts["bytes"]) or 1,
        }
    return {"step": int(body["step"]), "path": str(body["path"]), "files": files}
