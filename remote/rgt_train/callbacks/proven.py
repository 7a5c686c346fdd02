"""Which of another trainer's checkpoints are whole: checksums beside them, and the newest that still has them."""

from __future__ import annotations

import json
import os
from typing import Any, Dict, Iterator, List, Mapping, Optional, Tuple
from urllib.parse import quote

from rgt_train import digest, exits
from rgt_train.durable import StrPath, fsync_dir, make_dirs, remove, replace_file
from rgt_train.report import say

FOLDER = os.path.join(".rgt", "proven")
"""Where the checksums are, in the run directory: the checkpoints themselves stay as their trainer wrote them."""


def prove(out: StrPath, step: int, path: StrPath) -> None:
    """Bring a checkpoint onto the disk and note its checksums; from then on `newest_good` knows it.

    Args:
        out: The run directory.
        step: The step it is of.
        path: The checkpoint, a file or a directory.

    Raises:
        OSError: It cannot be read, or the note not be written.
    """
    whole = os.path.abspath(path)
    files: Dict[str, Any] = {}
    folders = {os.path.dirname(whole)}
    for name, file in _files(whole):
        fd = os.open(file, os.O_RDONLY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)
        files[name] = _facts(file)
        folders.add(os.path.dirname(file))
    for folder in sorted(folders, reverse=True):
        fsync_dir(folder)
    notes = os.path.join(out, FOLDER)
    make_dirs(notes)
    kept = os.path.relpath(whole, os.path.abspath(out))  # a directory that moved is the same run
    body = {"step": step, "path": kept, "files": files}
    replace_file(os.path.join(notes, quote(kept, safe="") + ".json"), json.dumps(body).encode())
    for note, other in _notes(out):
        if not os.path.lexists(os.path.join(out, other["path"])):
            remove(note)  # its trainer deleted the checkpoint


@exits.starts
def newest_good(out: StrPath, there: Iterator[str]) -> Optional[str]:
    """Return the newest checkpoint whose every byte is as it was noted; None where there is none at all.

    Args:
        out: The run directory.
        there: All the checkpoints that lie there, whether noted or not.

    Raises:
        NotStarted: There are some, and none of them is good: a run that began at step 0 would write over them.
    """
    told: List[str] = []
    noted = [(int(body["step"]), os.path.join(out, body["path"]), body) for _, body in _notes(out)]
    notes = sorted((note for note in noted if os.path.lexists(note[1])), key=lambda note: note[:2])
    for step, path, body in reversed(notes):
        complaint = _complaint(path, body["files"])
        if not complaint:
            say(f"rgt: going on from {path}, step {step}: every byte is as it was written")
            return str(path)
        told.append(f"{path}: {complaint}")
        say(f"rgt: passed over {told[-1]}")
    known = {os.path.abspath(path) for _, path, _ in notes}
    told += [f"{path}: no checksums were noted" for path in there if os.path.abspath(path) not in known]
    if told:
        raise exits.UsageError(
            f"{os.fspath(out)} has checkpoints, and none is known to be good: {'; '.join(told)}. Name the one "
            "to go on from yourself, or move them away to begin anew"
        )
    return None


def _complaint(path: str, files: Mapping[str, Any]) -> str:
    try:
        found = dict(_files(path))
        if set(found) != set(files):
            return f"other files than were written: {', '.join(sorted(set(found) ^ set(files)))}"
        for name, facts in files.items():
            if _facts(found[name]) != facts:
                return f"{name} is not what was written"
    except OSError as error:
        return f"{type(error).__name__}: {error}"
    return ""


def _facts(file: str) -> Dict[str, Any]:
    size = os.path.getsize(file)
    found, done = digest.crc32_in(file, 0, size)
    return {"bytes": done, "crc32": found}


def _files(path: str) -> Iterator[Tuple[str, str]]:
    """Yield the files of a checkpoint: name below it (its own where it is a file) and path."""
    if os.path.isfile(path):
        yield os.path.basename(path), path
    for folder, _, names in os.walk(path):
        for name in names:
            file = os.path.join(folder, name)
            yield os.path.relpath(file, path), file


def _notes(out: StrPath) -> Iterator[Tuple[str, Dict[str, Any]]]:
    folder = os.path.join(out, FOLDER)
    try:
        names = sorted(os.listdir(folder))
    except OSError:
        return
    for name in names:
        try:
            with open(os.path.join(folder, name), encoding="utf-8") as file:
                body = json.load(file)
            if (
                isinstance(body["step"], int)
                and isinstance(body["path"], str)
                and isinstance(body["files"], dict)
            ):
                yield os.path.join(folder, name), body
        except (OSError, ValueError, KeyError, TypeError):
            continue  # a note that is cut off proves nothing
